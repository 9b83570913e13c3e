//! One model call: started event, streamed deltas, finished message.

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
};

use super::{ModelCall, RunContext, local::LocalEffects};
use crate::{
    Error, ErrorKind, Result, Timestamp,
    event::{EffectKey, Envelope, Event, ModelFinished, ModelStarted, Warning},
    message::Part,
    provider::{Assembled, Assembler, Delta, DeltaStream, FinishReason},
    tool::{CallIds, check_call},
};

/// Deltas handed to the reader at once, and between two chances for other tasks.
const BURST: usize = 64;

pub(crate) async fn perform(
    local: &LocalEffects,
    cx: &RunContext,
    key: Option<EffectKey>,
    recorded: &[Event],
    call: ModelCall,
) -> Result<Arc<ModelFinished>> {
    for event in recorded {
        if let Event::ModelFinished(reply) = event {
            return reply.error.as_ref().map_or_else(|| Ok(Arc::clone(reply)), |error| Err(error.to_error()));
        }
    }
    let started = cx.clock();
    let step = call.step;
    let model = call.model.clone();
    let start = ModelStarted { step, provider: model.provider().name().to_owned(), model: Arc::clone(model.name()), key };
    let seq = local.stage(cx, Event::ModelStarted(Arc::new(start)));
    local.commit(cx).await?;

    let mut assembler = Assembler::default();
    let offered = call.offered.clone();
    let repair = call.repair.clone();
    let streamed = reply(cx, call, seq, &mut assembler).await;
    let (reply, error) = match streamed {
        Ok(()) if assembler.is_finished() => (assembler.finish()?, None),
        Ok(()) => (assembler.abort(FinishReason::Error), Some(Assembler::cut_off())),
        Err(error) if error.kind() == ErrorKind::Cancelled => (assembler.abort(FinishReason::Cancelled), Some(error)),
        Err(error) => (assembler.abort(FinishReason::Error), Some(error)),
    };
    report_losses(local, cx, &reply);
    let Assembled { finish, usage, response_id, model: answered, .. } = &reply;
    let mut finished = ModelFinished {
        step,
        cost: model.cost(usage),
        finish: finish.clone(),
        usage: *usage,
        model: answered.clone(),
        response: response_id.clone(),
        micros: u64::try_from(cx.clock().since(started).as_micros()).unwrap_or(u64::MAX),
        error: error.as_ref().map(Error::record),
        key,
        message: Arc::new(crate::message::Message::assistant("")),
    };
    let mut ids = CallIds::default();
    let cut_off = error.is_some();
    finished.message = Arc::new(reply.into_message_with(|mut raw| {
        // CM14: a call that was cut off has no arguments, and is never run.
        if cut_off {
            raw.arguments.clear();
        }
        let hook = repair.as_deref().filter(|_| !cut_off).map(|hook| (hook, &offered));
        Part::ToolCall(check_call(raw, &mut ids, hook).0)
    }));
    let finished = Arc::new(finished);
    local.stage(cx, Event::ModelFinished(Arc::clone(&finished)));
    error.map_or(Ok(finished), Err)
}

fn report_losses(local: &LocalEffects, cx: &RunContext, reply: &Assembled) {
    let warn = |text: String| local.stage(cx, Event::Warning(Arc::new(Warning { text })));
    for warning in &reply.warnings {
        warn(warning.to_string());
    }
    if reply.dropped_calls > 0 {
        warn(format!("the model made too many tool calls at once; {} were left out", reply.dropped_calls));
    }
}

/// Streams one reply into `assembler`, shows its deltas, and ends early on a cancel or when the model stays silent.
async fn reply(cx: &RunContext, call: ModelCall, seq: u64, assembler: &mut Assembler) -> Result<()> {
    let call_cx = cx.call_context();
    let silence = call.silence;
    let mut cancelled = pin!(cx.cancellation().cancelled());
    let mut silent = pin!(tokio::time::sleep(silence));
    let too_silent = || {
        Error::new(ErrorKind::Timeout, format!("the model said nothing for {} s; try again", silence.as_secs()))
            .during("model.stream")
    };
    let stream = tokio::select! {
        biased;
        () = &mut cancelled => return Err(Error::cancelled()),
        stream = call.model.stream(call.request, &call_cx) => stream?,
        () = &mut silent => return Err(too_silent()),
    };
    let mut pump = Pump { cx, seq, assembler, stream, burst: Vec::new(), has_text: false, moved: false };
    std::future::poll_fn(|task| {
        if let Poll::Ready(result) = pump.poll(task) {
            return Poll::Ready(result);
        }
        if cancelled.as_mut().poll(task).is_ready() {
            return Poll::Ready(Err(Error::cancelled()));
        }
        if std::mem::take(&mut pump.moved) {
            silent.as_mut().reset(tokio::time::Instant::now() + silence);
        }
        silent.as_mut().poll(task).map(|()| Err(too_silent()))
    })
    .await
}

/// Moves deltas from the stream to the assembler and to whoever watches.
struct Pump<'a> {
    cx: &'a RunContext,
    seq: u64,
    assembler: &'a mut Assembler,
    stream: DeltaStream,
    burst: Vec<Envelope>,
    has_text: bool,
    /// Whether anything came since the silence was last measured.
    moved: bool,
}

impl Pump<'_> {
    fn poll(&mut self, task: &mut Context<'_>) -> Poll<Result<()>> {
        let mut left = BURST;
        let end = loop {
            if left == 0 {
                // Others get their turn, the reader of these deltas among them.
                task.waker().wake_by_ref();
                break Poll::Pending;
            }
            left -= 1;
            match self.stream.as_mut().poll_next(task) {
                Poll::Ready(Some(Ok(delta))) => {
                    if let Err(error) = self.take(delta) {
                        break Poll::Ready(Err(error));
                    }
                }
                Poll::Ready(Some(Err(error))) => break Poll::Ready(Err(error)),
                Poll::Ready(None) => break Poll::Ready(Ok(())),
                Poll::Pending => break Poll::Pending,
            }
        };
        if !self.burst.is_empty() {
            self.moved = true;
            let at = self.cx.clock();
            for envelope in &mut self.burst {
                envelope.at = at;
            }
            self.cx.emitter().emit(&mut self.burst);
        }
        end
    }

    fn take(&mut self, mut delta: Delta) -> Result<()> {
        // CM03: a reply does not begin with a blank line.
        if let Delta::Text(text) = &mut delta
            && !self.has_text
        {
            if text.starts_with('\n') {
                text.remove(0);
            }
            self.has_text = !text.is_empty();
        }
        self.assembler.push(&delta)?;
        let origin = Arc::clone(self.cx.origin());
        self.burst.push(Envelope::new(origin, self.seq, Timestamp::default(), Event::Delta(delta)));
        Ok(())
    }
}
