//! Changing a graph while it runs, from any task of the process that runs it.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{mpsc, oneshot};

use super::{Change, GraphReport, Inner, PlanTask, SkipAs, TaskGraph};
use crate::{Error, ErrorKind, Result, SessionId, bound, team::Todo};

/// Changes that may wait for a run's loop; whoever asks for more waits as well.
const WAITING: usize = 16;

/// What a run is asked from outside.
#[derive(Debug)]
pub(super) enum Command {
    Change(Change, oneshot::Sender<Result<()>>),
    Report(oneshot::Sender<GraphReport>),
}

/// The runs of a graph that are under way in this process.
#[derive(Debug, Default)]
pub(crate) struct Live(Mutex<HashMap<SessionId, mpsc::Sender<Command>>>);

impl Live {
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, mpsc::Sender<Command>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run in `session` can be changed until what this returns is dropped.
    pub(super) fn enter<'a>(&'a self, session: &'a SessionId) -> (mpsc::Receiver<Command>, Entry<'a>) {
        let (sender, commands) = mpsc::channel(WAITING);
        self.lock().insert(session.clone(), sender.clone());
        (commands, Entry { live: self, session, sender })
    }
}

/// A run that can be changed.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    live: &'a Live,
    session: &'a SessionId,
    sender: mpsc::Sender<Command>,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut runs = self.live.lock();
        if runs.get(self.session).is_some_and(|sender| sender.same_channel(&self.sender)) {
            runs.remove(self.session);
        }
    }
}

impl<O> TaskGraph<O> {
    /// What changes the run of this graph in `session` while it is under way. The graph, or a clone of it, must be the one
    /// that runs: another one that was built in the same way knows nothing of its runs.
    #[must_use]
    pub fn control(&self, session: &SessionId) -> GraphControl {
        GraphControl { graph: Arc::clone(&self.inner), session: session.clone() }
    }
}

/// Changes a run of a graph while it is under way (LO13). Cloning gives another one for the same run.
///
/// A change is made between two steps of the scheduler, whole or not at all, and is stored when its method returns: a
/// run that is resumed knows of it. Dropping a method's future does not take a change back that was handed over.
///
/// All of its methods fail with [`ErrorKind::NotFound`] when the session has no run of the graph under way in this
/// process, or when that ended meanwhile, and with [`ErrorKind::Cancelled`] when the run is being cancelled.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use entourage_core::{ErrorKind, graph::{SkipAs, TaskGraph}};
///
/// let graph = TaskGraph::builder("chores");
/// let wash = graph.step("wash", (), |()| async { std::future::pending().await });
/// # let _: entourage_core::graph::Handle<String> = wash.clone();
/// graph.step("rest", (), |()| async { Ok("rested".to_owned()) }).after(&wash);
/// let graph = graph.build().unwrap();
///
/// let run = graph.start("Do it");
/// let control = graph.control(run.session());
/// // The run begins by itself; until then there is nothing to change.
/// while control.skip("wash", SkipAs::Satisfied).await.is_err_and(|error| error.kind() == ErrorKind::NotFound) {
///     tokio::task::yield_now().await;
/// }
/// assert_eq!(run.outcome().await.unwrap().text, "rested");
/// # });
/// ```
#[derive(Clone)]
pub struct GraphControl {
    graph: Arc<Inner>,
    session: SessionId,
}

impl GraphControl {
    /// The session of the run.
    #[must_use]
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// The node is not to be run, or not on; `dependents` says what those that need it make of it. One that runs is
    /// stopped: it holds its slot until it has unwound.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when it is over or being stopped, or when a step that takes its value cannot do
    /// without and `dependents` is [`SkipAs::Satisfied`].
    pub async fn skip(&self, node: &str, dependents: SkipAs) -> Result<()> {
        self.change(Change::Skip { node: node.into(), dependents }).await
    }

    /// Another agent of the graph is to work on the node: one that a node names, or one that the builder was given for
    /// this. An attempt that runs is stopped, and the other agent begins anew.
    ///
    /// It may do what the node's scope admits, and all scopes of the nodes that the graph was built with for it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when the graph does not know the agent, [`ErrorKind::InvalidInput`] when the node is
    /// completed, being stopped, or no agent's.
    pub async fn reassign(&self, node: &str, agent: &str) -> Result<()> {
        self.change(Change::Reassign { node: node.into(), agent: agent.into() }).await
    }

    /// A further task for an agent of the graph. What it depends on may be over already.
    ///
    /// The agent may do what the scopes of all nodes admit that the graph was built with for it, and the task's own
    /// ([`PlanTask::within`]): one that is narrowed at a node is no wider here. An agent without a node is as wide as the
    /// graph's own run.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when its id is taken or is none, when it says nothing, or when it depends on a node or
    /// names an agent that the graph does not have; [`GraphError::of`](super::GraphError::of) lists what is wrong.
    pub async fn add(&self, task: PlanTask) -> Result<()> {
        self.change(task.change()).await
    }

    /// A node that failed, or was skipped or cancelled, is tried again, with all its attempts; nodes that were skipped
    /// because of it are pending again. Of a map the items are tried again that gave nothing.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] in any other state, and when something that it needs gave nothing: that one is to be
    /// tried again first.
    pub async fn retry(&self, node: &str) -> Result<()> {
        self.change(Change::Retry { node: node.into() }).await
    }

    /// The node is stopped, or never started, and counts as cancelled: what needs it is skipped.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when it is over or being stopped.
    pub async fn cancel(&self, node: &str) -> Result<()> {
        self.change(Change::Cancel { node: node.into() }).await
    }

    /// How far the run is now, node by node.
    ///
    /// # Errors
    /// As of all.
    pub async fn report(&self) -> Result<GraphReport> {
        let (tell, told) = oneshot::channel();
        self.send(Command::Report(tell)).await?;
        told.await.map_err(|_| self.ended())
    }

    /// The run as a list of what is to be done (R32): a view of the graph, changed through this alone.
    ///
    /// # Errors
    /// As of all.
    pub async fn todos(&self) -> Result<Vec<Todo>> {
        Ok(self.report().await?.todos())
    }

    async fn change(&self, change: Change) -> Result<()> {
        bound::check(&change, bound::VALUE).map_err(|flaw| flaw.refused("the change"))?;
        let (tell, told) = oneshot::channel();
        self.send(Command::Change(change, tell)).await?;
        told.await.map_err(|_| self.ended())?
    }

    async fn send(&self, command: Command) -> Result<()> {
        let sender = self.graph.live.lock().get(&self.session).cloned().ok_or_else(|| self.ended())?;
        sender.send(command).await.map_err(|_| self.ended())
    }

    fn ended(&self) -> Error {
        Error::new(
            ErrorKind::NotFound,
            "the graph is not under way in this session; start or resume it here, or read what is stored of it",
        )
        .with("session", self.session.as_str())
    }
}

impl fmt::Debug for GraphControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphControl")
            .field("graph", &self.graph.name)
            .field("session", &self.session)
            .finish()
    }
}
