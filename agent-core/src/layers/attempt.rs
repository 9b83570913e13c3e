//! What layers that ask more than once share: how long a call is of use, how its next attempt begins, and what of a
//! reply counts as shown. Nothing here decides whether to ask again.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::time::{Instant, Sleep};

use crate::{
    Error, Result,
    provider::{CallContext, Delta, DeltaStream, Provider, Request},
};

/// An attempt on its way to its first delta.
pub(super) type Opening = BoxFuture<'static, Result<DeltaStream>>;

/// One model call as a layer keeps it between attempts.
#[derive(Debug, Clone)]
pub(super) struct Call {
    request: Request,
    cx: CallContext,
    deadline: Option<Instant>,
    /// The attempt that goes on, counted over all layers of the call.
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

    /// Whether an attempt that begins `delay` from now would come too late.
    pub(super) fn is_over_in(&self, delay: Duration) -> bool {
        self.deadline.is_some_and(|end| end.saturating_duration_since(Instant::now()) <= delay)
    }

    /// Begins the attempt that [`Call::attempt`] names, once `delay` is over; a cancel ends the wait.
    pub(super) fn open(&self, provider: Arc<dyn Provider>, delay: Duration) -> Opening {
        // Made here and not in the future: the wait begins with the failure, however late the reader comes back.
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

/// Whether a reader who shows what comes would show something for this.
pub(super) fn is_output(delta: &Delta) -> bool {
    match delta {
        Delta::Text(text) | Delta::Reasoning(text) | Delta::Refusal(text) => !text.is_empty(),
        Delta::ReasoningSignature(_)
        | Delta::ToolCallStart(_)
        | Delta::ToolCallArguments { .. }
        | Delta::Opaque(_)
        | Delta::Finish(_) => true,
        Delta::Response(_) | Delta::Usage(_) | Delta::Warning(_) | Delta::Restart(_) => false,
    }
}
