//! Control of a running graph, from any task of the process that runs it.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use entourage_core::{
    Error, ErrorKind, Result, RunId, SessionId, message::check_value, run::RunContext, team::Todo,
};
use entourage_runtime::RunHandle;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{Change, GraphReport, PlanTask, SkipAs, TaskGraph};

/// Commands that may queue for a run's loop; further callers wait.
const WAITING: usize = 16;

/// A command from outside to a run.
#[derive(Debug)]
pub(super) enum Command {
    Change(Change, oneshot::Sender<Result<()>>),
    Report(oneshot::Sender<GraphReport>),
    /// The supervisor is to be asked.
    Call,
    /// How many work now.
    Working(oneshot::Sender<usize>),
}

/// A run that can be changed: its id, and the way to its loop.
#[derive(Debug)]
struct Running {
    run: RunId,
    sender: mpsc::Sender<Command>,
}

/// The runs of a graph in this process, by session and in the order in which they began. Each of several runtimes may
/// have a session of the same id, with a run of its own.
#[derive(Debug, Default)]
pub(crate) struct Live {
    runs: Mutex<HashMap<SessionId, Vec<Running>>>,
    began: Notify,
}

impl Live {
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Vec<Running>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a run in `session`: it can be changed until the returned entry is dropped.
    pub(super) fn enter<'a>(
        &'a self,
        session: &'a SessionId,
        run: RunId,
    ) -> (mpsc::Receiver<Command>, Entry<'a>) {
        let (sender, commands) = mpsc::channel(WAITING);
        let running = Running { run, sender: sender.clone() };
        self.lock().entry(session.clone()).or_default().push(running);
        self.began.notify_waiters();
        (commands, Entry { live: self, session, sender })
    }

    /// Returns the way to the newest run in `session`, or the newest one of the id `of`.
    fn newest(&self, session: &SessionId, of: Option<RunId>) -> Option<mpsc::Sender<Command>> {
        let runs = self.lock();
        let mut runs = runs.get(session)?.iter().rev();
        runs.find(|it| of.is_none_or(|of| of == it.run)).map(|it| it.sender.clone())
    }
}

/// The registration of a run that can be changed.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    live: &'a Live,
    session: &'a SessionId,
    sender: mpsc::Sender<Command>,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut sessions = self.live.lock();
        let Some(runs) = sessions.get_mut(self.session) else { return };
        runs.retain(|it| !it.sender.same_channel(&self.sender));
        if runs.is_empty() {
            sessions.remove(self.session);
        }
    }
}

impl<O> TaskGraph<O> {
    /// Returns a control of whichever run of this graph runs in `session` when a method is called: the one that began
    /// last, where several runtimes have a session of this id. As for [`TaskGraph::control`], the running graph must be
    /// this one or a clone of it.
    #[must_use]
    pub fn control_in(&self, session: &SessionId) -> GraphControl {
        GraphControl::new(&self.inner.name, &self.inner.live, session, Of::Newest)
    }
}

/// Changes a graph while it runs. Cloning gives another control of the same run.
///
/// A change is applied between two steps of the scheduler, whole or not at all, and is stored when its method returns:
/// a resumed run knows of it. Dropping a method's future does not revoke a change that was already sent.
///
/// The methods of a control that [`TaskGraph::control`] returned wait until the run begins, also while it is queued.
///
/// All methods fail with [`ErrorKind::NotFound`] when the run ended, or the session has no run of the graph in this
/// process, and with [`ErrorKind::Cancelled`] when the run is being cancelled. A change that the store fails to take
/// returns the store's error, and the run ends with it. The change may be stored later; it takes effect then when the
/// run is resumed.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use entourage_runners::graph::{SkipAs, TaskGraph};
///
/// let graph = TaskGraph::builder("chores");
/// let wash = graph.step("wash", (), |()| async { std::future::pending().await });
/// # let _: entourage_runners::graph::Handle<String> = wash.clone();
/// graph.step("rest", (), |()| async { Ok("rested".to_owned()) }).after(&wash);
/// let graph = graph.build().unwrap();
///
/// let run = graph.start("Do it");
/// graph.control(&run).skip("wash", SkipAs::Satisfied).await.unwrap();
/// assert_eq!(run.outcome().await.unwrap().text, "rested");
/// # });
/// ```
#[derive(Clone)]
pub struct GraphControl {
    graph: Box<str>,
    live: Arc<Live>,
    session: SessionId,
    of: Of,
}

/// The run of a session that is controlled.
#[derive(Clone)]
enum Of {
    /// Whichever began last.
    Newest,
    /// The one of this id, while its graph runs.
    Run(RunId),
    /// The one of a handle, which may not have begun.
    Handle(Arc<Controlled>),
}

/// A run that may not have begun.
struct Controlled {
    /// Returns its id, which a resumed run gets when it begins.
    id: Box<dyn Fn() -> RunId + Send + Sync>,
    over: CancellationToken,
}

impl GraphControl {
    fn new(graph: &str, live: &Arc<Live>, session: &SessionId, of: Of) -> Self {
        Self { graph: graph.into(), live: Arc::clone(live), session: session.clone(), of }
    }

    /// Creates the control of the graph called `graph` that `cx`'s run runs, or will run, among those of `live`.
    pub(crate) fn within(graph: &str, live: &Arc<Live>, cx: &RunContext) -> Self {
        Self::new(graph, live, cx.session(), Of::Run(cx.run()))
    }

    /// Creates the control of a run of the graph called `graph`, which is or will be among those of `live`.
    pub(crate) fn of_run(graph: &str, live: &Arc<Live>, run: &RunHandle) -> Self {
        let (id, over) = run.watched();
        let of = Controlled { id: Box::new(id), over };
        Self::new(graph, live, run.session(), Of::Handle(Arc::new(of)))
    }

    /// The session of the run.
    #[must_use]
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Skips the node; `dependents` says how that affects the nodes that need it. A running attempt is stopped, and
    /// holds its slot until it has unwound. A node that failed is skipped with [`SkipAs::Satisfied`] alone: what was
    /// skipped for the failure goes on without its value.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when the node is over otherwise, or is being stopped, or when `dependents` is
    /// [`SkipAs::Satisfied`] and a step requires its value.
    pub async fn skip(&self, node: &str, dependents: SkipAs) -> Result<()> {
        self.change(Change::Skip { node: node.into(), dependents }).await
    }

    /// Gives the node to another agent of the graph: one that a node names, or one that the builder was given for this.
    /// A running attempt is stopped, and the other agent starts over. A node that failed, was skipped or was cancelled
    /// is retried by the other agent, as [`GraphControl::retry`] does.
    ///
    /// The agent may do what the node's scope admits, narrowed by the scopes of all nodes that the graph was built with
    /// for that agent.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when the graph does not know the agent, [`ErrorKind::InvalidInput`] when the node is
    /// completed, being stopped, or no agent's, and when it is over and a node that it needs gave no value: retry that
    /// one first.
    pub async fn reassign(&self, node: &str, agent: &str) -> Result<()> {
        self.change(Change::Reassign { node: node.into(), agent: agent.into() }).await
    }

    /// Adds a task for an agent of the graph. Its dependencies may be over already.
    ///
    /// The agent's permissions are those that the scopes of all nodes built for it admit, narrowed by the task's own
    /// ([`PlanTask::with_scope`]): an agent that is narrowed at a node is no wider here. An agent without a node has
    /// the permissions of the graph's own run.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when the id is taken or invalid, when the task is empty, or when it depends on a
    /// node or names an agent that the graph does not have; [`GraphError::of`](super::GraphError::of) lists the
    /// problems.
    pub async fn add(&self, task: PlanTask) -> Result<()> {
        self.change(task.change()).await
    }

    /// Retries a node that failed, was skipped or was cancelled, with all its attempts. Nodes that were skipped because
    /// of it are pending again. Of a map, only the items without a value are retried.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] in any other state, and when a node that it needs gave no value: retry that one
    /// first.
    pub async fn retry(&self, node: &str) -> Result<()> {
        self.change(Change::Retry { node: node.into() }).await
    }

    /// Stops the node, or never starts it; it counts as cancelled, and nodes that need it are skipped.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when it is over or being stopped.
    pub async fn cancel(&self, node: &str) -> Result<()> {
        self.change(Change::Cancel { node: node.into() }).await
    }

    /// Returns the current state of the run, node by node.
    ///
    /// # Errors
    /// Those of every method.
    pub async fn report(&self) -> Result<GraphReport> {
        let (tell, told) = oneshot::channel();
        self.send(Command::Report(tell)).await?;
        told.await.map_err(|_| self.ended())
    }

    /// Returns the run as a todo list: a view of the graph, which can be changed only through this control.
    ///
    /// # Errors
    /// Those of every method.
    pub async fn todos(&self) -> Result<Vec<Todo>> {
        Ok(self.report().await?.todos())
    }

    async fn change(&self, change: Change) -> Result<()> {
        check_value(&change, "the change")?;
        let (tell, told) = oneshot::channel();
        self.send(Command::Change(change, tell)).await?;
        told.await.map_err(|_| self.ended())?
    }

    /// Has the supervisor asked, whatever the nodes do.
    pub(crate) async fn call_supervisor(&self) -> Result<()> {
        self.send(Command::Call).await
    }

    /// Returns how many attempts run now; a supervisor that is asked is one more.
    pub(crate) async fn working(&self) -> Result<usize> {
        let (tell, told) = oneshot::channel();
        self.send(Command::Working(tell)).await?;
        told.await.map_err(|_| self.ended())
    }

    async fn send(&self, command: Command) -> Result<()> {
        let sender = loop {
            let began = self.live.began.notified();
            if let Some(sender) = self.running() {
                break sender;
            }
            let Of::Handle(of) = &self.of else { return Err(self.ended()) };
            tokio::select! {
                biased;
                () = of.over.cancelled() => return Err(self.ended()),
                () = began => {}
            }
        };
        sender.send(command).await.map_err(|_| self.ended())
    }

    fn running(&self) -> Option<mpsc::Sender<Command>> {
        let of = match &self.of {
            Of::Newest => None,
            Of::Run(run) => Some(*run),
            Of::Handle(of) => Some((of.id)()),
        };
        self.live.newest(&self.session, of)
    }

    fn ended(&self) -> Error {
        Error::new(
            ErrorKind::NotFound,
            "the graph is not running in this session; start or resume it here, or read its stored events",
        )
        .with("session", self.session.as_str())
    }
}

impl fmt::Debug for GraphControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphControl").field("graph", &self.graph).field("session", &self.session).finish()
    }
}
