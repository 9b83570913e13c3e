//! Running a graph: a [`TaskGraph`] is an agent like any other, with a pure machine driven by one loop.

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
use entourage_core::{
    Error, Result,
    agent::{Agent, AgentPart},
    event::Event,
    run::{Outcome, RunContext, Status, Task},
};
use entourage_runtime::{RunHandle, Session, unanswered};

use self::{change::refusal, drive::Drive, machine::Machine};
use super::{
    GraphControl, GraphReport, Inner, Output, TaskGraph, records::NAMESPACE, schedule::Refused,
    work::read_output,
};

pub(crate) use topology::Shape;

/// Runs the graph as an [`Agent`]: in a session of a [`Runtime`](entourage_runtime::Runtime), which stores the run, or
/// as a node of another graph. [`TaskGraph::ask`], [`TaskGraph::run`] and [`TaskGraph::start`] run it in memory alone.
///
/// - A node starts as soon as its dependencies and the limits allow. When slots are scarce, the node with the longest
///   expected path to the end of the graph goes first, then the one added first.
/// - A node's output is stored before a dependent starts. A resumed run never runs a completed node again. An attempt
///   that was in flight is continued when an agent makes it; a step of the program runs once more. So a step that
///   changes something outside must tolerate repetition; a step with effects of its own, each recorded, is an [`Agent`]
///   written by hand.
/// - A resumed graph must be the one that began: otherwise the outcome is `ErrorKind::Diverged`, which names the
///   differences, and the run stays open.
/// - A resumed run first shows what it found: an [`Event::Progress`], which is not stored, for the nodes that are over
///   and for each node whose attempt continues. [`GraphControl::report`] has all of it as values.
/// - A panic of the program's code is a failure of its node.
/// - A node's time limit starts anew when its attempt continues after a restart or a pause. The time limit and the
///   attempts of a map apply to each of its items.
/// - An agent that waits for an answer releases its slot, and the others continue. When nothing else is left the run
///   ends as paused; resumed, it continues in the same sessions.
/// - The run completes with the output node's text, or with the texts of the nodes that no other depends on, each under
///   its id. Otherwise [`StopReason::Tasks`](entourage_core::run::StopReason) lists the tasks that failed and those
///   that were not run because of that. When the output was reached all the same, [`Outcome::failed`] lists the failed
///   tasks.
/// - When cancelled, it stops the running nodes, waits until they have unwound, and cancels the rest.
#[async_trait]
impl<O: 'static> Agent for TaskGraph<O> {
    fn name(&self) -> &str {
        &self.inner.name
    }

    fn begins_with_an_effect(&self) -> bool {
        true
    }

    fn parts(&self) -> Vec<AgentPart> {
        self.inner.parts()
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        run(&self.inner, &task, cx).await?.0
    }
}

impl<O: Output> TaskGraph<O> {
    /// Runs the graph in memory, and returns its result, whether or not every node completed.
    ///
    /// Dropping the future cancels the run. It must be awaited within a tokio runtime.
    ///
    /// # Errors
    /// A cancel, and errors that keep the graph from running at all: an empty prompt, no tokio runtime, a
    /// deadline that has passed.
    pub async fn run(&self, prompt: impl Into<Task>) -> Result<GraphRun<O>> {
        let kept = Kept { graph: Arc::clone(&self.inner), ended: Arc::default() };
        let outcome = Session::ephemeral().start(&kept, prompt).outcome().await?;
        let ended = kept.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(machine) = ended else {
            return Err(unanswered(outcome.status));
        };
        let output = match self.inner.output {
            Some(output) => machine.slots.get(output).map(|value| value.get()).transpose()?,
            None if outcome.is_completed() => Some(Arc::new(read_output(&outcome.text)?)),
            None => None,
        };
        Ok(GraphRun { output, outcome, machine })
    }

    /// Runs the graph in memory, and returns its output.
    ///
    /// # Errors
    /// Those of [`TaskGraph::run`]; [`ErrorKind::Paused`](entourage_core::ErrorKind::Paused); when it did not complete,
    /// [`ErrorKind::Stopped`](entourage_core::ErrorKind::Stopped), whose [`Error::stop_reason`] lists the failed tasks.
    pub async fn ask(&self, prompt: impl Into<Task>) -> Result<Arc<O>> {
        let run = self.run(prompt).await?;
        match (run.output, run.outcome.status) {
            (Some(output), Status::Completed) => Ok(output),
            (_, status) => Err(unanswered(status)),
        }
    }

    /// Returns the graph's output from the outcome of a run of it: in a session, resumed or not, and in any process
    /// that builds the graph again.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// use entourage_runners::graph::TaskGraph;
    /// use entourage_runtime::Runtime;
    ///
    /// let graph = TaskGraph::builder("count");
    /// let words = graph.step("words", graph.input(), |text| async move { Ok(text.split(' ').count()) });
    /// let graph = graph.returning(&words).build()?;
    ///
    /// let outcome = Runtime::in_memory().session().start(&graph, "one two").outcome().await?;
    /// assert_eq!(graph.output(&outcome)?, 2);
    /// # Ok::<_, entourage_core::Error>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// When the run did not complete: its error, [`ErrorKind::Stopped`](entourage_core::ErrorKind::Stopped), a cancel,
    /// or [`ErrorKind::Paused`](entourage_core::ErrorKind::Paused). For the outcome of another agent
    /// [`ErrorKind::Corrupt`](entourage_core::ErrorKind::Corrupt).
    pub fn output(&self, outcome: &Outcome) -> Result<O> {
        match &outcome.status {
            Status::Completed => read_output(&outcome.text),
            Status::Paused(pause) => Err(Error::paused(pause.clone())),
            status => Err(unanswered(status.clone())),
        }
    }

    /// Runs the graph in memory, and returns the run: a stream of events and an outcome.
    pub fn start(&self, prompt: impl Into<Task>) -> RunHandle {
        Session::ephemeral().start(self, prompt)
    }
}

impl<O> TaskGraph<O> {
    /// Runs the graph within a run of another agent, and returns its outcome with the report of every node. The outer
    /// error is of a run that did not begin.
    pub(crate) async fn run_reported(
        &self,
        task: &Task,
        cx: &RunContext,
    ) -> Result<(Result<Outcome>, GraphReport)> {
        let (outcome, machine) = run(&self.inner, task, cx).await?;
        Ok((outcome, machine.report()))
    }

    /// Returns a control of this run, which may not have begun yet. The agent that runs must be this graph or a clone
    /// of it: another graph, though built in the same way, knows nothing of its runs.
    #[must_use]
    pub fn control(&self, run: &RunHandle) -> GraphControl {
        let (id, over) = run.watched();
        GraphControl::new(&self.inner, run.session(), id, over)
    }
}

/// Result of a graph's run in memory.
#[non_exhaustive]
pub struct GraphRun<O> {
    /// Output of the graph; `None` when it was not reached.
    pub output: Option<Arc<O>>,
    /// Outcome of the run.
    pub outcome: Outcome,
    machine: Box<Machine>,
}

impl<O> GraphRun<O> {
    /// Returns the report of every node, in the order in which they were added: its end, attempts, time and cost.
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

/// A graph whose outputs are kept beyond its run.
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

    fn parts(&self) -> Vec<AgentPart> {
        self.graph.parts()
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        let (outcome, machine) = run(&self.graph, &task, cx).await?;
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(machine));
        outcome
    }
}

/// Runs the graph from its start, or from the end of its record. The outer error is of a run that did not begin.
///
/// The records of a replay must be those that the scheduler allows, else the graph is another one. A replayed run is
/// over with its record, so neither steps nor agents are called.
async fn run(graph: &Arc<Inner>, task: &Task, cx: &RunContext) -> Result<(Result<Outcome>, Machine)> {
    let effects = cx.effects();
    effects.check()?;
    let mut machine = Machine::new(graph, task, effects.sub_agents())?;
    let mut recorded = machine.recall(&cx.records(NAMESPACE), effects.time())?;
    while !machine.schedule.is_over() {
        let replayed = effects.replayed(cx).await?;
        if replayed.is_empty() {
            break;
        }
        recorded.extend(machine.recall(&replayed, effects.time())?);
    }
    let begun = machine.go_on(&recorded, effects.time());
    for shown in machine.found().filter(|_| begun) {
        effects.show(cx, Event::Progress(Arc::new(shown)));
    }
    if machine.schedule.is_over() && machine.told.is_empty() {
        return Ok((Ok(machine.outcome()), machine));
    }
    let (commands, entry) = graph.live.enter(cx.session(), cx.run());
    let mut drive = Drive::new(cx, machine, commands);
    if !begun {
        drive.record_begin();
    }
    let ended = Box::pin(drive.run()).await;
    drop(entry);
    let machine = drive.machine;
    Ok((ended.map(|()| machine.outcome()), machine))
}

/// Returns the error of a graph that cannot be scheduled, with its ids.
fn refused(graph: &Inner, refused: &Refused) -> Error {
    let id = |place: usize| graph.nodes.get(place).map_or_else(|| Arc::from(""), |node| Arc::clone(&node.id));
    refusal(refused, id)
}
