//! The running calls of a step: one tool call, one question to the approver, and the set that awaits them.

use std::{
    borrow::Cow,
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use entourage_core::{
    Result, Timestamp,
    message::ToolCall,
    permission::{ApprovalRequest, Decision},
    tool::{Footprint, Tool, ToolContext, ToolError, ToolInput, ToolOutput},
};
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use serde_json::Value;
use tokio::task::coop::unconstrained;

use crate::{Caught, effects::site::Site};

pub(super) struct Ready<'a> {
    pub(super) call: &'a ToolCall,
    pub(super) tool: &'a Arc<dyn Tool>,
    pub(super) arguments: Value,
    /// Footprint of the call when it was judged.
    pub(super) footprint: Footprint,
    pub(super) exclusive: bool,
    /// Number of questions about it so far.
    pub(super) asked: u8,
    pub(super) allowed_by: Cow<'static, str>,
}

/// The end of a tool call, or of a question about one.
pub(super) enum Done<'a> {
    Ran { call: &'a ToolCall, result: Result<ToolOutput, ToolError>, ended: Timestamp, time: Duration },
    Decided { ready: Ready<'a>, request: Box<ApprovalRequest>, decision: Decision },
}

/// The calls that run. Most steps have one, which then needs no queue.
#[derive(Default)]
pub(super) struct RunningCalls<'a> {
    one: Option<Running<'a>>,
    more: Option<FuturesUnordered<Running<'a>>>,
}

impl<'a> RunningCalls<'a> {
    pub(super) fn push(&mut self, call: Running<'a>) {
        match &mut self.more {
            None if self.one.is_none() => self.one = Some(call),
            more => {
                let more = more.get_or_insert_default();
                more.extend(self.one.take());
                more.push(call);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.one.is_none() && self.more.as_ref().is_none_or(FuturesUnordered::is_empty)
    }

    /// Waits for the next call to end; `None` when none runs.
    pub(super) async fn next(&mut self) -> Option<(usize, Done<'a>)> {
        if let Some(one) = &mut self.one {
            let done = one.await;
            self.one = None;
            return Some(done);
        }
        self.more.as_mut()?.next().await
    }
}

pub(super) type Running<'a> = Pin<Box<dyn Future<Output = (usize, Done<'a>)> + Send + 'a>>;

pub(super) async fn run_tool<'c>(
    site: &Site,
    place: usize,
    call: &'c ToolCall,
    tool: &Arc<dyn Tool>,
    input: ToolInput,
    context: ToolContext<'_>,
    limit: Duration,
) -> (usize, Done<'c>) {
    let started = site.now();
    let run = Caught::new(|| (**tool).call(input, &context));
    let result = match in_time(limit, run).await {
        Some(Ok(result)) => result.map(ToolOutput::checked),
        Some(Err(panic)) => Err(ToolError::Tell(format!("the tool panicked: {panic}"))),
        None => Err(ToolError::Tell(format!(
            "the call took longer than {} s and was stopped",
            limit.as_secs_f64()
        ))),
    };
    let ended = site.now();
    (place, Done::Ran { call, result, ended, time: ended.since(started) })
}

/// Returns the output of `work`; `None` when it takes longer than `limit`. The timer is made only once there is
/// something to wait for.
async fn in_time<F: Future + Unpin>(limit: Duration, mut work: F) -> Option<F::Output> {
    let mut timer = None;
    poll_fn(|task| {
        if let Poll::Ready(done) = work.poll_unpin(task) {
            return Poll::Ready(Some(done));
        }
        // Work that uses up its task's budget with each poll does not keep it from being stopped.
        let timer = timer.get_or_insert_with(|| Box::pin(unconstrained(tokio::time::sleep(limit))));
        timer.as_mut().poll(task).map(|()| None)
    })
    .await
}

/// Asks the approver. An error or a panic is a refusal; without an approver the decision is `Later`.
pub(super) async fn ask<'c>(
    site: &Site,
    place: usize,
    ready: Ready<'c>,
    request: Box<ApprovalRequest>,
) -> (usize, Done<'c>) {
    let decision = match &site.env.approver {
        None => Decision::Later,
        Some(approver) => {
            let _one_at_a_time = site.asking.lock().await;
            match Caught::new(|| approver.decide(&request)).await {
                Ok(Ok(decision)) => decision,
                Ok(Err(_)) | Err(_) => Decision::Deny,
            }
        }
    };
    (place, Done::Decided { ready, request, decision })
}
