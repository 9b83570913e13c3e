//! Shared parts of layers that make several attempts: the deadline of a call, the start of its next attempt, and the
//! deltas that count as output. Nothing here decides if another attempt is made.

use std::{sync::Arc, time::Duration};

use entourage_core::{
    Error, Result,
    provider::{CallContext, Delta, DeltaStream, Provider, Request},
};
use futures_util::future::BoxFuture;
use tokio::time::{Instant, Sleep};

/// An attempt that has no stream yet.
pub(super) type Opening = BoxFuture<'static, Result<DeltaStream>>;

/// One model call, as a layer keeps it between attempts.
#[derive(Debug, Clone)]
pub(super) struct Call {
    request: Request,
    cx: CallContext,
    deadline: Option<Instant>,
    /// Number of the current attempt, counted over all layers of the call.
    pub(super) attempt: u32,
}

impl Call {
    /// A call that begins now.
    pub(super) fn new(request: Request, cx: &CallContext) -> Self {
        let deadline = cx.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        Self { request, cx: cx.clone(), deadline, attempt: cx.attempt }
    }

    pub(super) fn cx(&self) -> &CallContext {
        &self.cx
    }

    /// True if an attempt that begins `delay` from now would begin after the deadline.
    pub(super) fn is_over_in(&self, delay: Duration) -> bool {
        self.deadline.is_some_and(|end| end.saturating_duration_since(Instant::now()) <= delay)
    }

    /// Begins attempt number [`Call::attempt`] after `delay`. A cancel ends the wait.
    pub(super) fn open(&self, provider: Arc<dyn Provider>, delay: Duration) -> Opening {
        // Created here and not in the future: the wait begins with the failure, however late the reader polls.
        let wait = (!delay.is_zero()).then(|| tokio::time::sleep(delay));
        let Self { request, cx, deadline, attempt } = self.clone();
        Box::pin(async move {
            pause(wait, &cx).await?;
            let mut cx = cx.with_attempt(attempt);
            if let Some(end) = deadline {
                cx.timeout = Some(end.saturating_duration_since(Instant::now()));
            }
            provider.stream(request, &cx).await
        })
    }
}

async fn pause(wait: Option<Sleep>, cx: &CallContext) -> Result<()> {
    let Some(wait) = wait else { return Ok(()) };
    tokio::select! {
        biased;
        () = cx.cancel.cancelled() => Err(Error::cancelled()),
        () = wait => Ok(()),
    }
}

/// True for a delta that shows a reader some output.
pub(super) fn is_output(delta: &Delta) -> bool {
    match delta {
        Delta::Text(text) | Delta::Reasoning(text) | Delta::Refusal(text) => !text.is_empty(),
        Delta::ReasoningSignature(_)
        | Delta::ToolCallStart(_)
        | Delta::ToolCallArguments { .. }
        | Delta::Opaque(_)
        | Delta::Finish(_) => true,
        _ => false,
    }
}
