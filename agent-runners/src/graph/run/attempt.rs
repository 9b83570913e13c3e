//! One attempt at a node: a step of the program, or an agent in a session of its own. It always ends, whatever happens
//! in it.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use entourage_core::{
    Error, ErrorKind, ErrorRecord, Result, SessionId,
    agent::Agent,
    run::{Delegate, Outcome, RunContext, Spawn, Status, StopReason},
};
use entourage_runtime::{Caught, check_prompt};
use tokio_util::sync::CancellationToken;

use super::{
    super::{AgentWork, Attempting, Beside, Inputs, NodeValue, StepFn, section, work::with_text},
    machine::{guarded, panicked},
    track::{Attempt, Ended, Spent},
};
use crate::below::Below;

/// Role of the sessions of nodes.
const ROLE: &str = "node";

/// A step that has begun.
pub(super) struct Step {
    future: Caught<'static, Result<NodeValue>>,
}

impl Step {
    /// Begins the step. Most steps never wait: they end here, and need no entry among the futures that are waited for.
    ///
    /// # Errors
    /// The begun step, when it has to wait.
    pub(super) async fn begin(step: &StepFn, inputs: &Inputs) -> Result<Attempt, Self> {
        let mut begun = Self { future: Caught::new(|| step(inputs)) };
        let first = poll_fn(|task| Poll::Ready(Pin::new(&mut begun.future).poll(task))).await;
        match first {
            Poll::Ready(ended) => Ok(outcome_of(ended)),
            Poll::Pending => Err(begun),
        }
    }

    /// Waits for the step's end. At its time limit, or when it is stopped, the step is dropped.
    pub(super) async fn end(self, limit: Option<Duration>, stop: CancellationToken) -> Ended {
        let late = async {
            match limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        Ended::new(tokio::select! {
            biased;
            () = stop.cancelled() => Attempt::Cancelled,
            ended = self.future => outcome_of(ended),
            () = late => Attempt::Failed(timed_out(limit)),
        })
    }
}

fn outcome_of(ended: Result<Result<NodeValue>, String>) -> Attempt {
    match ended {
        Ok(Ok(value)) => Attempt::Done(value),
        Ok(Err(error)) => Attempt::Failed(error),
        Err(panic) => Attempt::Failed(panicked("the step", &panic)),
    }
}

fn timed_out(limit: Option<Duration>) -> Error {
    let limit = limit.unwrap_or_default();
    Error::new(ErrorKind::Timeout, format!("the attempt took longer than {limit:?} and was stopped"))
}

/// An attempt by an agent.
pub(super) struct Worker {
    pub(super) work: AgentWork,
    /// Id of its node.
    pub(super) node: Arc<str>,
    pub(super) agent: Arc<dyn Agent>,
    /// The agent's name among the parts of the graph, if that is not its own.
    pub(super) part: Option<Arc<str>>,
    pub(super) child: SessionId,
    pub(super) beside: Option<Arc<dyn Beside>>,
    pub(super) inputs: Inputs,
    pub(super) limit: Option<Duration>,
    /// Reason why the previous attempt failed, when the node escalates to a larger agent.
    pub(super) reason: Option<ErrorRecord>,
    pub(super) stop: CancellationToken,
}

impl Worker {
    /// Runs the agent to its end. At its time limit, or when it is stopped, waits until the agent has unwound.
    pub(super) async fn run(&self, cx: &RunContext) -> Ended {
        let ended = self.attempt(cx).await;
        if let Some(beside) = &self.beside
            && let Some(end) = ended.result.end()
        {
            beside.ended(cx, &self.node, &end);
        }
        ended
    }

    async fn attempt(&self, cx: &RunContext) -> Ended {
        let made = guarded("making the task", || (self.work.task)(&self.inputs));
        let briefed = made.and_then(|task| match &self.beside {
            Some(beside) => {
                let (node, agent, child) = (&*self.node, self.agent.name(), &self.child);
                beside.brief(task, Attempting { node, agent, child, cx })
            }
            None => Ok(task),
        });
        let task = match briefed.and_then(|task| check_prompt(&task).map(|()| task)) {
            Ok(task) => task,
            Err(error) => return Ended::new(Attempt::Failed(error)),
        };
        let task = match &self.reason {
            Some(reason) => {
                let mut text = "An attempt before this one failed:".to_owned();
                section(&mut text, "failure", "", &reason.message);
                with_text(task, &text)
            }
            None => task,
        };
        let mut spawn =
            Spawn::new(Arc::clone(&self.agent), task).with_scope(self.work.scope.clone()).with_role(ROLE);
        spawn.part.clone_from(&self.part);
        let delegate = Delegate::new(self.child.clone(), spawn)
            .cancelled_by(self.stop.clone())
            .within(self.limit)
            .counted();
        let ended = Below::run(delegate, cx).await;
        let asked = || self.stop.is_cancelled() || cx.cancellation().is_cancelled();
        let late = self.limit.is_some() && !asked();
        match ended {
            Ok(ended) => {
                let (usage, cost) = ended.spent();
                Ended { result: self.result(&ended.outcome, late), spent: Spent { usage, cost } }
            }
            Err(error) => Ended::new(match error.pause() {
                Some(pause) => Attempt::Paused(pause.clone()),
                None => Attempt::Broken(error),
            }),
        }
    }

    fn result(&self, outcome: &Outcome, late: bool) -> Attempt {
        match &outcome.status {
            Status::Completed => match guarded("reading the answer", || (self.work.read)(outcome)) {
                Ok(value) => Attempt::Done(value),
                Err(error) => Attempt::Failed(error),
            },
            Status::Cancelled if late => Attempt::Failed(timed_out(self.limit)),
            Status::Cancelled => Attempt::Cancelled,
            Status::Paused(pause) => Attempt::Paused(pause.clone()),
            // Its own code or settings changed: its run stays open, and so does this one.
            Status::Failed(error) if error.kind == ErrorKind::Diverged => Attempt::Broken(error.to_error()),
            Status::Failed(error) => Attempt::Failed(error.to_error()),
            Status::Stopped(reason) => Attempt::Failed(stopped(reason)),
            _ => Attempt::Failed(Error::new(ErrorKind::Internal, "the agent's run ended in an unknown way")),
        }
    }
}

/// Returns the error for a run that was stopped. The next attempt's agent is told it: advice for people has no place in
/// it.
fn stopped(reason: &StopReason) -> Error {
    Error::new(ErrorKind::Stopped, format!("stopped: {reason}")).with_stop_reason(reason.clone())
}
