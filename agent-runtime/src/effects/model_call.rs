//! One model call: started event, streamed deltas, finished message.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use crate::reply::{Assembled, Assembler};
use entourage_core::{
    Error, ErrorKind, RequestId, Result, Timestamp,
    budget::Reservation,
    event::{EffectKey, Event, ModelFinished, ModelRestarted, ModelStarted, WarningRaised},
    provider::{CallContext, Delta, DeltaStream, Egress, FinishReason, Restart, Warning, WarningKind},
    run::{ModelCall, Observation, RunContext},
    session::reply_charge,
};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::{
    effects::{site::Site, tool_check::check_call},
    layers::Forecast,
};

/// Deltas that are delivered at once, and between two chances for other tasks, at most.
const BURST: usize = 128;

/// First number of the calls that are keyed effects.
const EFFECTS: u64 = 1 << 32;
/// First number of the calls that are neither a step nor a keyed effect.
const LOOSE: u64 = 1 << 63;

/// Returns the answer that an earlier life of the run recorded, if there is one.
pub(crate) fn recalled(recorded: Vec<Event>) -> Option<Result<Observation>> {
    recorded.into_iter().find_map(|event| match event {
        Event::ModelFinished(reply) => Some(match &reply.error {
            Some(error) => Err(error.to_error()),
            None => Ok(Observation::Model(reply)),
        }),
        _ => None,
    })
}

/// Calls the model and records its reply. Not an `async fn`, which would keep its arguments twice.
pub(crate) fn perform<'a>(
    site: &'a Site,
    cx: &'a RunContext,
    key: Option<EffectKey>,
    call: Box<ModelCall>,
) -> impl Future<Output = Result<Observation>> + Send + 'a {
    // Steps and effects are counted apart; no run has so many steps that the two meet.
    let number = match key {
        Some(key) => EFFECTS.saturating_add(key.ordinal),
        // Calls without a number of their own are each another one.
        None if call.step == 0 => LOOSE | site.loose_call(),
        None => u64::from(call.step),
    };
    let notes = Notes { site, key, step: call.step, request: RequestId::of(cx.run(), number) };
    async move {
        site.newest.check(&call.request)?;
        let reserved = cx
            .budget()
            .map(|budget| budget.reserve(Forecast::new(&call.request, None).charge()))
            .transpose()?;
        site.warn_of_rules(call.offered.specs().iter());
        let started = site.now();
        let model = call.model.clone();
        // An earlier life of the run, or a future that was dropped, left a call whose end is unknown.
        let lost = site.read(|state| state.run().is_some_and(|run| run.calling));
        let seq = notes.started(&call, started, reserved.as_ref());
        site.commit().await?;
        if let Some(subtree) = &site.subtree {
            subtree.begin_call();
        }

        let (offered, repair) = (call.offered.clone(), call.repair.clone());
        let mut assembler = Assembler::default();
        let streamed = reply(cx, call, seq, started, &mut assembler, &notes).await;
        let (reply, error) = match streamed {
            Ok(()) if assembler.is_finished() => (assembler.finish()?, None),
            Ok(()) => (assembler.abort(FinishReason::Error), Some(Assembler::cut_off())),
            Err(error) if error.kind() == ErrorKind::Cancelled => {
                (assembler.abort(FinishReason::Cancelled), Some(error))
            }
            Err(error) => (assembler.abort(FinishReason::Error), Some(error)),
        };
        notes.losses(&reply);
        let (usage, wasted, finish) = (reply.usage, reply.wasted, reply.finish.clone());
        let record = error.as_ref().map(Error::record);
        let cost = reply.cost_after(&model, record.as_ref()).filter(|_| !lost);
        let attempt = reply.restarts.last().map_or(1, |restart| restart.attempt);
        let info = reply.info.clone();
        let cut_off = error.is_some();
        let ended = site.now();
        let message = reply.into_message_with(|mut raw| {
            // A call that was cut off has no arguments, and is never run.
            if cut_off {
                raw.arguments.clear();
            }
            check_call(raw, repair.as_deref().filter(|_| !cut_off).map(|hook| (hook, &offered)))
        });
        let mut finished = ModelFinished::new(notes.step, Arc::new(message), finish, usage);
        finished.cost = cost;
        finished.wasted = wasted;
        finished.model = info.model;
        finished.response = info.id;
        finished.service_request = info.request;
        finished.request = Some(notes.request);
        finished.attempt = attempt;
        finished.micros = u64::try_from(ended.since(started).as_micros()).unwrap_or(u64::MAX);
        finished.error = record;
        finished.key = key;
        if let Some(reserved) = reserved {
            let charge = reply_charge(&reserved.charge(), &finished);
            reserved.settle(charge);
        }
        if let Some(subtree) = &site.subtree {
            subtree.count(&finished);
        }
        let finished = Arc::new(finished);
        site.note_at(ended, Event::ModelFinished(Arc::clone(&finished)));
        error.map_or(Ok(Observation::Model(finished)), Err)
    }
}

/// Records the events of one call.
struct Notes<'a> {
    site: &'a Site,
    key: Option<EffectKey>,
    step: u32,
    request: RequestId,
}

impl Notes<'_> {
    /// Stages the start of the call. Returns the event's number.
    fn started(&self, call: &ModelCall, at: Timestamp, reserved: Option<&Reservation>) -> u64 {
        let (provider, model) = (call.model.provider_name(), call.model.name());
        let mut started = ModelStarted::new(self.step, Arc::clone(provider), Arc::clone(model));
        (started.request, started.key) = (Some(self.request), self.key);
        started.template.clone_from(&call.template);
        started.reserved = reserved.map(Reservation::charge);
        let Self { site, .. } = self;
        // Staged with the state that it is derived from: of two calls at once, one has a content that is new.
        let staged = site.stage_with(at, |state| {
            if site.env.store.is_some() {
                site.newest.record(&site.env.texts, &call.request, state, &mut started);
            }
            Ok(Event::ModelStarted(Arc::new(started)))
        });
        // In a run that is over nothing is staged; the caller learns of that by its commit.
        staged.unwrap_or_default()
    }

    fn restarted(&self, restart: &Restart) {
        let Self { site, key, step, request } = *self;
        let restart = restart.clone();
        site.note(Event::ModelRestarted(Arc::new(ModelRestarted::new(step, request, restart, key))));
    }

    fn losses(&self, reply: &Assembled) {
        let warn = |warning: Warning| {
            let Warning { kind, subject, text, .. } = warning;
            let warning = WarningRaised::new(kind, subject, text, Some(self.request));
            self.site.note(Event::WarningRaised(Arc::new(warning)));
        };
        reply.warnings.iter().cloned().for_each(warn);
        if reply.dropped_calls > 0 {
            let text =
                format!("the model made too many tool calls at once; {} were left out", reply.dropped_calls);
            warn(Warning::new(WarningKind::Reply, "tool_calls", text));
        }
    }
}

/// Streams one reply into `assembler`, delivers its deltas, and ends early on a cancel or when the model stays silent.
async fn reply(
    cx: &RunContext,
    call: Box<ModelCall>,
    seq: u64,
    started: Timestamp,
    assembler: &mut Assembler,
    notes: &Notes<'_>,
) -> Result<()> {
    if cx.cancellation().is_cancelled() {
        return Err(Error::cancelled().unsent());
    }
    let call_cx = call_context(cx, notes.site.env.egress, notes.request);
    let mut patience = Patience { cx, silence: call.silence, cancelled: None, timer: None };
    let ModelCall { model, request, .. } = *call;
    let mut start = model.stream(request, &call_cx);
    let stream = std::future::poll_fn(|task| match start.as_mut().poll(task) {
        Poll::Pending => patience.poll(task, false).map(Err),
        ready @ Poll::Ready(_) => ready,
    })
    .await?;
    drop(start);
    let mut pump = Pump {
        site: notes.site,
        notes,
        seq,
        assembler,
        stream,
        burst: Vec::new(),
        begun: false,
        heard: false,
        at: started,
        has_text: false,
        moved: false,
    };
    loop {
        let end = std::future::poll_fn(|task| match pump.poll(task) {
            Poll::Pending => {
                let moved = std::mem::take(&mut pump.moved);
                patience.poll(task, moved).map(Err)
            }
            ready @ Poll::Ready(_) => ready,
        });
        match end.await? {
            Stop::End => return Ok(()),
            // The wait for the next attempt may be long: what happened is stored before it.
            Stop::Restart => Box::pin(notes.site.commit()).await?,
        }
    }
}

fn call_context(cx: &RunContext, egress: Egress, request: RequestId) -> CallContext {
    let mut call = CallContext::within(cx.cancellation().clone(), request).with_egress(egress);
    call.session = Some(cx.session().clone());
    call.run = Some(cx.run());
    call
}

/// The reason that the pump stopped.
enum Stop {
    /// The stream has ended.
    End,
    /// Another attempt begins.
    Restart,
}

/// The limits of a wait for the model: a cancel, or too long a silence. Timers are made only once there is something to
/// wait for.
struct Patience<'a> {
    cx: &'a RunContext,
    silence: Duration,
    cancelled: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Patience<'_> {
    fn poll(&mut self, task: &mut Context<'_>, moved: bool) -> Poll<Error> {
        let token = self.cx.cancellation();
        let cancelled = self.cancelled.get_or_insert_with(|| Box::pin(token.clone().cancelled_owned()));
        if cancelled.as_mut().poll(task).is_ready() {
            return Poll::Ready(Error::cancelled());
        }
        let silence = self.silence;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(silence)));
        // A silence beyond the clock's range leaves the timer as it is, which is far away too.
        if moved && let Some(end) = Instant::now().checked_add(silence) {
            timer.as_mut().reset(end);
        }
        timer.as_mut().poll(task).map(|()| {
            let text = format!("the model said nothing for {} s; try again", silence.as_secs());
            Error::new(ErrorKind::Timeout, text).during("model.stream")
        })
    }
}

/// Moves deltas from the stream to the assembler, and to the readers of the run's events.
struct Pump<'a> {
    site: &'a Site,
    notes: &'a Notes<'a>,
    seq: u64,
    assembler: &'a mut Assembler,
    stream: DeltaStream,
    burst: Vec<Delta>,
    begun: bool,
    /// True when anybody receives the burst; otherwise it is not collected.
    heard: bool,
    /// Time at which the burst began.
    at: Timestamp,
    has_text: bool,
    /// True when anything came since the silence was last measured.
    moved: bool,
}

impl Pump<'_> {
    fn poll(&mut self, task: &mut Context<'_>) -> Poll<Result<Stop>> {
        let mut left = BURST;
        let end = loop {
            if left == 0 {
                // Others get their turn, the reader of these deltas among them.
                task.waker().wake_by_ref();
                break Poll::Pending;
            }
            left -= 1;
            match self.stream.as_mut().poll_next(task) {
                // Nearly every delta is text, and only its two words are moved out: a copy of the whole delta would
                // stall until the stream's own writes to it have left the store buffer.
                Poll::Ready(Some(Ok(Delta::Text(text)))) => {
                    if let Err(error) = self.take_text(text) {
                        break Poll::Ready(Err(error));
                    }
                }
                Poll::Ready(Some(Ok(delta))) => {
                    let restarts = matches!(delta, Delta::Restart(_));
                    if let Err(error) = self.take(delta) {
                        break Poll::Ready(Err(error));
                    }
                    if restarts {
                        break Poll::Ready(Ok(Stop::Restart));
                    }
                }
                Poll::Ready(Some(Err(error))) => break Poll::Ready(Err(error)),
                Poll::Ready(None) => break Poll::Ready(Ok(Stop::End)),
                Poll::Pending => break Poll::Pending,
            }
        };
        self.begun = false;
        if !self.burst.is_empty() {
            self.site.emitter.emit_deltas(&self.site.origin, self.seq, self.at, &mut self.burst);
        }
        end
    }

    fn take(&mut self, delta: Delta) -> Result<()> {
        self.begin_burst();
        let taken = self.assembler.push(&delta);
        if let Delta::Restart(restart) = &delta
            && taken.is_ok()
        {
            self.has_text = false;
            self.notes.restarted(restart);
        }
        if self.heard {
            self.burst.push(delta);
        }
        taken
    }

    #[inline]
    fn take_text(&mut self, mut text: Box<str>) -> Result<()> {
        self.begin_burst();
        if !self.has_text {
            // A reply does not begin with a blank line.
            if let Some(rest) = text.strip_prefix('\n') {
                text = rest.into();
            }
            self.has_text = !text.is_empty();
        }
        let taken = self.assembler.push_text(&text);
        if self.heard {
            // Made where it goes: a `push` would make it first and then copy what was just written.
            self.burst.extend(std::iter::once_with(|| Delta::Text(text)));
        }
        taken
    }

    #[inline]
    fn begin_burst(&mut self) {
        if !self.begun {
            (self.begun, self.moved) = (true, true);
            self.heard = self.site.emitter.is_heard();
            if self.heard {
                self.at = self.site.now();
            }
        }
    }
}
