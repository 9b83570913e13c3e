//! The running calls of a step: one tool call, one question to the approver, and the set that awaits them.

use std::{
    borrow::Cow,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{OnceLock, atomic::AtomicU8},
    task::Poll,
    time::Duration,
};

use entourage_core::{
    Result, Timestamp,
    message::{Arguments, ToolCall},
    permission::{ApprovalRequest, Decision},
    tool::{Footprint, Labels, Repeat, Tool, ToolContext, ToolError, ToolInput, ToolOutput},
};
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::task::coop::unconstrained;
use tokio_util::sync::CancellationToken;

use crate::{
    Caught, caught,
    effects::{
        site::Site,
        snapshot::RootRun,
        stopwatch::passed,
        tool_bound,
        tool_judge::Open,
        tool_layers::{self, Held, has_layers},
    },
};

pub(super) struct Ready<'a> {
    pub(super) open: Open<'a>,
    /// Footprint of the call when it was judged.
    pub(super) footprint: Footprint,
    pub(super) exclusive: bool,
    pub(super) allowed_by: Cow<'static, str>,
    /// The arguments that an approver gave it in place of the model's.
    pub(super) edited: Option<Arguments>,
}

impl<'a> Ready<'a> {
    /// Asks a call for its footprint; nobody has allowed it yet.
    ///
    /// # Errors
    /// The text for the model, when the tool panics.
    pub(super) fn new(open: Open<'a>) -> Result<Self, String> {
        let footprint = caught(|| open.tool.footprint(&open.arguments))
            .map_err(|_| "the tool panicked when it was asked what the call touches".to_owned())?;
        let spec = open.tool.spec();
        let exclusive =
            spec.is_alone() || footprint.is_exclusive() || Footprint::new(spec.access()).is_exclusive();
        Ok(Self { open, footprint, exclusive, allowed_by: Cow::default(), edited: None })
    }

    /// True if its result comes from outside.
    pub(super) fn is_external(&self) -> bool {
        self.open.tool.spec().repeat() == Repeat::External
    }

    /// Names the rule or person that allows it.
    pub(super) fn allowed_by(self, allowed_by: Cow<'static, str>) -> Self {
        Self { allowed_by, ..self }
    }
}

/// The end of a tool call, or of a question about one.
pub(super) enum Done<'a> {
    Ran(Ran<'a>),
    Decided(Box<Decided<'a>>),
}

/// The end of a question about a call.
pub(super) struct Decided<'a> {
    pub(super) ready: Ready<'a>,
    pub(super) request: Box<ApprovalRequest>,
    pub(super) decision: Decision,
}

/// The end of a tool call.
pub(super) struct Ran<'a> {
    pub(super) call: &'a ToolCall,
    pub(super) edited: Option<Arguments>,
    pub(super) result: Result<ToolOutput, ToolError>,
    /// Labels of the result beside its own: the tool's, and those of an agent that it ran.
    pub(super) labels: Labels,
    /// The reason that layers refused it, before it ran.
    pub(super) held: Option<Held>,
    pub(super) ended: Timestamp,
    pub(super) time: Duration,
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

/// Runs a call to its end, to its time limit, or until `over` is cancelled. The future has its parts once each: an
/// `async fn` would hold its arguments a second time.
pub(super) fn run_tool<'c>(
    site: &'c Site,
    place: usize,
    ready: Ready<'c>,
    context: ToolContext<'c>,
    limit: Duration,
    over: Option<CancellationToken>,
) -> Running<'c> {
    let Ready { open: Open { call, tool, arguments, changed, began, .. }, edited, .. } = ready;
    let by_approver = edited.is_some() && !began;
    let (edited, mut arguments) = (edited.or(changed), Some(arguments));
    Box::pin(async move {
        // Outside of the call's time limit: a large workspace is no fault of the tool.
        if RootRun::is_kept(&site.env, context.footprint())
            && let Err(error) = Box::pin(site.root.keep(&site.env)).await
        {
            let (ended, time, labels) = (site.now(), Duration::ZERO, Labels::empty());
            return (
                place,
                Done::Ran(Ran { call, edited, result: Err(error), labels, held: None, ended, time }),
            );
        }
        let (started, held, read) = (site.now(), OnceLock::new(), AtomicU8::default());
        let input = ToolInput::new(arguments.take().unwrap_or_default());
        let run = Caught::new(|| match has_layers(site, tool) {
            true => {
                Box::pin(tool_layers::run(site, tool, input, &context, by_approver.then_some(&held), &read))
            }
            false => (**tool).call(input, &context),
        });
        let timed = in_time(site, limit, &context, run);
        let done = match over {
            None => Some(timed.await),
            Some(over) => Box::pin(over.run_until_cancelled_owned(timed)).await,
        };
        let result = checked(done, limit);
        let labels = tool.spec().labels_of(context.footprint()) | Labels::from_bits_retain(read.into_inner());
        let ended = site.now();
        let time = ended.since(started);
        (place, Done::Ran(Ran { call, edited, result, labels, held: held.into_inner(), ended, time }))
    })
}

/// Returns the result of a call: of its tool, of a panic, of its time limit, or of a turn that ended.
fn checked(
    done: Option<Option<Result<Result<ToolOutput, ToolError>, String>>>,
    limit: Duration,
) -> Result<ToolOutput, ToolError> {
    match done {
        Some(Some(Ok(result))) => result.map(tool_bound::checked),
        Some(Some(Err(panic))) => Err(ToolError::Tell(format!("the tool panicked: {panic}"))),
        None => Err(ToolError::tell("the call was stopped, since another call of its step ended the turn")),
        Some(None) => Err(ToolError::Tell(format!(
            "the call took longer than {} s and was stopped",
            limit.as_secs_f64()
        ))),
    }
}

/// Returns the output of `work`; `None` when it takes longer than `limit`, without the time in which somebody is asked
/// about what the agent does that the call runs. The timer is made only once there is something to wait for.
async fn in_time<F: Future + Unpin>(
    site: &Site,
    limit: Duration,
    cx: &ToolContext<'_>,
    mut work: F,
) -> Option<F::Output> {
    let clock = site.call_clocks.place(cx.run());
    let mut timer = None;
    poll_fn(|task| {
        if let Poll::Ready(done) = work.poll_unpin(task) {
            return Poll::Ready(Some(done));
        }
        // Work that uses up its task's budget with each poll does not keep it from being stopped.
        let timer = timer.get_or_insert_with(|| Box::pin(unconstrained(passed(limit, || clock.get()))));
        timer.as_mut().poll(task).map(|()| None)
    })
    .await
}
