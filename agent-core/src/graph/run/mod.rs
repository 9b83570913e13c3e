//! Running a graph: a [`TaskGraph`] is an agent like any other, pure below and driven by one loop.

mod attempt;
mod change;
mod drive;
mod end;
mod machine;
mod map;
mod recall;
mod report;
mod topology;
mod track;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;

use self::{change::refusal, drive::Drive, machine::Machine};
use super::{GraphReport, Inner, Output, TaskGraph, schedule::Refused, work::read_output};
use crate::{
    Error, ErrorKind, Result,
    agent::Agent,
    run::{Outcome, RunContext, RunHandle, Script, Status, Task, beyond},
    runtime::Session,
};

pub(crate) use topology::Shape;

/// # Running
/// A graph is an [`Agent`]: give it to a session of a [`Runtime`](crate::Runtime), which stores its run, or to another
/// graph as a node. [`TaskGraph::ask`], [`TaskGraph::run`] and [`TaskGraph::start`] run it in memory alone.
///
/// - What can be started is, as far as the limits allow; when slots are scarce what most of the graph waits for goes
///   first, then what was added first (LO07).
/// - What a node gave is stored before a node that depends on it is started. A run that is resumed never runs a node
///   again that is done; an attempt that was in flight is gone on with when an agent makes it, and a step of the program
///   runs once more. So a step that changes something outside should bear being repeated; one that needs effects of
///   its own, each recorded, is an [`Agent`] written by hand.
/// - A resumed graph must be the one that began: else the outcome is [`ErrorKind::Diverged`] and says what differs, and
///   the run stays open.
/// - A panic of the program's code is a failure of its node.
/// - A node's time limit counts anew when its attempt is gone on with after a restart or a pause. The limit and the
///   attempts of a map are those of each of its items.
/// - An agent that waits for somebody gives its slot back, and the others go on. When nothing else is left the run ends
///   as paused; resumed, it goes on in the same sessions.
/// - The run completes with the output node's text, or with the texts of the nodes that no other one depends on, each
///   under its id. When that cannot be, [`StopReason::Tasks`](crate::run::StopReason) says which tasks failed and which
///   were not run for it; [`Outcome::failed`] names those that failed where the output was reached all the same.
/// - Cancelled, it stops what runs, waits until that has unwound, and the rest is cancelled.
#[async_trait]
impl<O: 'static> Agent for TaskGraph<O> {
    fn name(&self) -> &str {
        &self.inner.name
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        run(&self.inner, &task, cx).await?.0
    }
}

impl<O: Output> TaskGraph<O> {
    /// Runs the graph in memory, and returns all that came of it, whether or not every node was done.
    ///
    /// Dropping the future cancels the run. It must be awaited within a tokio runtime.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`], and what keeps a graph from being run at all: an empty prompt, no tokio runtime.
    pub async fn run(&self, prompt: impl Into<Task>) -> Result<GraphRun<O>> {
        let kept = Kept { graph: Arc::clone(&self.inner), ended: Arc::default() };
        let outcome = Session::ephemeral().start(&kept, prompt).outcome().await?;
        let ended = kept.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(machine) = ended else {
            return Err(match outcome.status {
                Status::Cancelled => Error::cancelled(),
                status => Error::new(ErrorKind::Tool, format!("the graph did not begin: {status}")),
            });
        };
        let output = match self.inner.output {
            Some(output) => machine.slots.get(output).map(|value| value.get()).transpose()?,
            None if outcome.is_completed() => Some(Arc::new(read_output(&outcome.text)?)),
            None => None,
        };
        Ok(GraphRun { output, outcome, machine })
    }

    /// Runs the graph in memory, and returns what it comes to.
    ///
    /// # Errors
    /// Those of [`TaskGraph::run`]; [`ErrorKind::Paused`], and [`ErrorKind::Tool`] with the tasks that failed, when it did
    /// not come to its end.
    pub async fn ask(&self, prompt: impl Into<Task>) -> Result<Arc<O>> {
        let run = self.run(prompt).await?;
        match (run.output, run.outcome.status) {
            (Some(output), Status::Completed) => Ok(output),
            (_, Status::Paused(pause)) => Err(Error::paused(pause)),
            (_, status) => Err(Error::new(ErrorKind::Tool, format!("the graph came to no end: {status}"))),
        }
    }

    /// Runs the graph in memory: a stream of events and an outcome.
    pub fn start(&self, prompt: impl Into<Task>) -> RunHandle {
        Session::ephemeral().start(self, prompt)
    }
}

/// What came of a run of a graph in memory.
#[non_exhaustive]
pub struct GraphRun<O> {
    /// What the graph returns; `None` when it did not come to that.
    pub output: Option<Arc<O>>,
    /// How the run ended.
    pub outcome: Outcome,
    machine: Box<Machine>,
}

impl<O> GraphRun<O> {
    /// Every node, in the order in which they were added: how it ended, its attempts, time and cost.
    #[must_use]
    pub fn report(&self) -> GraphReport {
        self.machine.report()
    }
}

impl<O> fmt::Debug for GraphRun<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphRun").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}

/// A graph whose values are kept beyond its run.
#[derive(Clone)]
struct Kept {
    graph: Arc<Inner>,
    ended: Arc<Mutex<Option<Box<Machine>>>>,
}

#[async_trait]
impl Agent for Kept {
    fn name(&self) -> &str {
        &self.graph.name
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        let (outcome, machine) = run(&self.graph, &task, cx).await?;
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(machine));
        outcome
    }
}

/// Runs the graph from its start, or on from where its record ends. The outer error is of a run that did not begin.
async fn run(graph: &Arc<Inner>, task: &Task, cx: &RunContext) -> Result<(Result<Outcome>, Machine)> {
    let mut machine = Machine::new(graph, task, cx.env().sub_agents)?;
    if cx.journal().is_replaying() {
        return Ok((replay(&mut machine, cx).await, machine));
    }
    let begun = machine.recall(&cx.effects().recorded(), cx.clock())?;
    let (commands, entry) = graph.live.enter(cx.session());
    let mut drive = Drive::new(cx, machine, commands);
    if !begun {
        drive.record(Machine::started);
    }
    let ended = Box::pin(drive.run()).await;
    drop(entry);
    let machine = drive.machine;
    Ok((ended.map(|()| machine.outcome()), machine))
}

/// A recorded run once more: its scheduler makes the record again, or the graph is another one. Steps and agents are as
/// little called as models are.
async fn replay(machine: &mut Machine, cx: &RunContext) -> Result<Outcome> {
    let mut events = cx.effects().recorded();
    events.extend(cx.journal().follow(Script::of_graph)?);
    machine.recall(&events, cx.clock())?;
    if machine.schedule.is_over() {
        return Ok(machine.outcome());
    }
    Err(beyond(cx.journal(), "its next task").await)
}

/// Why a graph cannot be scheduled, with its own names.
fn refused(graph: &Inner, refused: &Refused) -> Error {
    let id = |place: usize| graph.nodes.get(place).map_or_else(|| Arc::from(""), |node| Arc::clone(&node.id));
    refusal(refused, id)
}
