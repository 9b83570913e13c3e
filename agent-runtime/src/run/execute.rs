//! A run from admission to its end: whatever happens in between, the session is left consistent.

use std::{
    future::{Future, ready},
    sync::Arc,
    time::Duration,
};

use entourage_core::{
    Error, ErrorKind, Result, RunId, Timestamp,
    agent::Agent,
    budget::{Budget, BudgetState},
    event::{Event, MessageAdded, Origin, RunAbove},
    message::Message,
    permission::Scope,
    run::{Outcome, RunContext, Status, Task},
    session::SessionState,
    tool::Labels,
};
use futures_util::{FutureExt, future::Either};
use tokio_util::sync::CancellationToken;

use crate::{
    Caught, caught,
    children::pool::Pool,
    deps::Deps,
    effects::{
        site::{Given, Site, TodoList},
        snapshot::RootRun,
        stopwatch::Stopwatch,
        subtree::Subtree,
    },
    env::Env,
    own::is_own,
    run::{
        admit::{admit, opening, recorded},
        budget,
        end::{abandon, close, end_below, end_orphan},
        entitle::begin as begin_title,
        local::LocalEffects,
        misnamed,
        watch::{Cut, leased, run_agent},
    },
    session::{
        delivery::emit::Emitter,
        journal::{Journal, queued::InQueue, weight::check_message},
    },
};

/// Time for a cancelled run to unwind, and again for its last writes.
pub(crate) const CLEAN_UP: Duration = Duration::from_secs(5);

/// The way in which a run begins.
#[derive(Clone)]
pub(crate) enum Admission {
    /// A new prompt.
    Start(Task),
    /// A queued prompt, and its place in the stored queue.
    Queued(Task, Option<InQueue>),
    /// The session's unfinished run.
    Resume,
    /// The session's unfinished run, unless another process runs it.
    Recover,
}

/// The surroundings of a run, given by its caller.
pub(crate) struct Within {
    /// The agents above, joined by `/`.
    pub(crate) path: Option<Arc<str>>,
    pub(crate) scope: Scope,
    /// True if its calls answer rules that ask: see [`reads_unasked`](crate::permission::reads_unasked).
    pub(crate) reads_unasked: bool,
    pub(crate) cancel: CancellationToken,
    pub(crate) emitter: Emitter,
    /// Todo list to work on; `None` for its session's own.
    pub(crate) todos: Option<TodoList>,
    /// Budget of the run that starts it.
    pub(crate) budget: Option<Budget>,
    /// The id of a new run.
    pub(crate) run: Option<RunId>,
    /// Messages that join the conversation before the prompt of a new run.
    pub(crate) opening: Vec<Arc<Message>>,
    /// Title of its session, unless that has one.
    pub(crate) title: Option<Arc<str>>,
    /// Pool of its children's slots; `None` for a root, which has its own.
    pub(crate) pool: Option<Pool>,
    /// True if it was cancelled before it got a slot: its agent does not begin.
    pub(crate) unseated: bool,
    /// Counter of its model calls.
    pub(crate) subtree: Option<Arc<Subtree>>,
    /// The clock of the time limits that it is under.
    pub(crate) clock: Option<Arc<Stopwatch>>,
    /// The run of the root; `None` for a root.
    pub(crate) root: Option<Arc<RootRun>>,
    /// The run above; `None` for a root.
    pub(crate) above: Option<Arc<RunAbove>>,
    /// Labels of what the session above had read when this run was asked for.
    pub(crate) labels: Labels,
    /// True if the token was made for this run alone, so that its end may cancel it.
    pub(crate) owns_cancel: bool,
    /// The program's values for its agents and tools.
    pub(crate) deps: Deps,
}

/// Runs `agent` to its outcome. A failure is recorded, and then an `Err`.
///
/// The run is admitted, and its first event staged, before this returns; the rest happens as the future is polled. If
/// another process may be faster, the agent begins once that event is stored, unless it does nothing before its first
/// effect. A run that it takes the place of ends before it begins. The future is kept small, since it is part of every
/// run's task.
pub(crate) fn execute(
    env: Arc<Env>,
    journal: Arc<Journal>,
    agent: Arc<dyn Agent>,
    admission: Admission,
    within: Box<Within>,
) -> impl Future<Output = Result<Box<Outcome>>> + Send {
    match Admitted::new(env, journal, agent, admission, within) {
        Err(error) => Either::Left(ready(Err(error))),
        Ok(run) if run.takes_a_place() => Either::Right(Either::Left(run.begin_instead().boxed())),
        Ok(mut run) => {
            run.stage();
            match run.is_stored_first() {
                true => Either::Right(Either::Left(run.begin_stored().boxed())),
                false => Either::Right(Either::Right(run.begin(Vec::new(), BudgetState::default()).drive())),
            }
        }
    }
}

/// A run that may begin.
struct Admitted {
    env: Arc<Env>,
    journal: Arc<Journal>,
    agent: Arc<dyn Agent>,
    origin: Arc<Origin>,
    task: Task,
    resumed: bool,
    /// Its first event; `None` once that is staged.
    first: Option<Event>,
    /// Time of that event.
    at: Timestamp,
    within: Box<Within>,
}

impl Admitted {
    fn new(
        env: Arc<Env>,
        journal: Arc<Journal>,
        agent: Arc<dyn Agent>,
        admission: Admission,
        mut within: Box<Within>,
    ) -> Result<Self> {
        let now = env.clock.now();
        let admission = budget::bounded(admission, &env, within.path.is_none());
        within.opening.iter().try_for_each(|message| check_message(message))?;
        let (origin, task, event) = admit(&journal, &*agent, admission, &within, now)?;
        if within.path.is_some() {
            within.emitter = within.emitter.below();
        }
        within.emitter.settle_run(origin.run);
        let resumed = matches!(event, Event::RunResumed(_));
        Ok(Self { env, journal, agent, origin, task, resumed, first: Some(event), at: now, within })
    }

    /// True if the session has an open run that a new one takes the place of.
    fn takes_a_place(&self) -> bool {
        !self.resumed && self.journal.read(|state| state.run().is_some())
    }

    /// Stages the run's first events, and holds its session's lease.
    fn stage(&mut self) {
        let Some(first) = self.first.take() else { return };
        let Self { env, journal, origin, at: now, .. } = self;
        journal.hold_lease(env.lease);
        if !self.resumed {
            for message in opening(journal, std::mem::take(&mut self.within.opening)) {
                let added = MessageAdded::new(message, None);
                journal.stage(origin, *now, Event::MessageAdded(Arc::new(added)));
            }
        }
        journal.stage(origin, *now, first);
    }

    /// Begins once the open run, and what waits below it, has ended. What is below ends first: until the open run has
    /// ended, the next prompt finds what is left to end.
    async fn begin_instead(mut self) -> Result<Box<Outcome>> {
        end_below(&self.env, &self.journal, &self.within.emitter, Duration::ZERO, true).await?;
        abandon(&self.journal, &self.origin, &self.env);
        self.at = self.env.clock.now();
        self.stage();
        self.begin_stored().await
    }

    /// True if the agent begins only once the run's first event is stored, so that no other process was faster. A run
    /// below an admitted one belongs to that one's process alone.
    fn is_stored_first(&self) -> bool {
        let contested = self.env.store.is_some() && self.within.path.is_none();
        let does_something = || !self.agent.begins_with_an_effect();
        // Queued prompts may join the run at once, and only a stored run can be joined.
        let awaited = || self.within.emitter.session().is_some_and(|session| session.is_awaited());
        self.resumed || contested && (does_something() || awaited())
    }

    /// Begins once the first event is stored: of two processes that come at once one is admitted, and the other's
    /// append conflicts.
    async fn begin_stored(self) -> Result<Box<Outcome>> {
        self.journal.commit(&self.within.emitter).await?;
        if self.resumed {
            return self.go_on().await;
        }
        self.begin(Vec::new(), BudgetState::default()).drive().await
    }

    /// Continues from the record of the run's earlier lives.
    async fn go_on(self) -> Result<Box<Outcome>> {
        let recorded = recorded(&self.journal, &self.env).await?;
        let spent = match self.task.budget {
            Some(_) => budget::spent(&self.env, &self.journal, &self.origin, &recorded).await?,
            None => BudgetState::default(),
        };
        self.begin(recorded, spent).drive().await
    }

    fn begin(self, recorded: Vec<Event>, spent: BudgetState) -> Run {
        let Self { env, journal, agent, origin, task, resumed, within, .. } = self;
        journal.forget_recorded();
        begin_title(&env, &journal, &origin, &task.prompt, &within.emitter);
        let given = Given {
            scope: within.scope,
            // A token of its own: the run's end cancels what the run left behind, and not a token that others have.
            cancel: if within.owns_cancel { within.cancel } else { within.cancel.child_token() },
            budget: budget::open(task.budget, spent, within.budget, &origin.agent),
        };
        let mut site = Site::new(env, journal, origin, within.emitter);
        (site.subtree, site.clock) = (within.subtree, within.clock);
        (site.deps, site.reads_unasked) = (within.deps, within.reads_unasked);
        if let Some(root) = within.root {
            site.root = root;
        }
        if let Some(todos) = within.todos {
            site.todos = todos;
        }
        let effects =
            Arc::new(LocalEffects::new(Arc::new(site), given.clone(), recorded).seated(within.pool));
        let local = Arc::clone(&effects) as _;
        let mut unmade = false;
        let seen = match &effects.site.env.engine {
            Some(engine) if !is_own(&*agent) => {
                let (origin, fallback) = (&effects.site.origin, Arc::clone(&local));
                caught(|| engine.effects(origin, local)).unwrap_or_else(|panic| {
                    let text = format!("the engine panicked when it was asked for effects: {panic}");
                    effects.engine_failed(&Error::new(ErrorKind::Internal, text));
                    unmade = true;
                    fallback
                })
            }
            _ => local,
        };
        let cx = effects.site.context(given, seen);
        Run { agent, task: Some(task).filter(|_| !unmade), cx, effects, resumed, unseated: within.unseated }
    }
}

/// An admitted run whose agent begins next.
struct Run {
    agent: Arc<dyn Agent>,
    /// `None` once the agent has it.
    task: Option<Task>,
    cx: RunContext,
    effects: Arc<LocalEffects>,
    resumed: bool,
    unseated: bool,
}

impl Run {
    #[expect(
        clippy::manual_async_fn,
        reason = "an async fn keeps what it is given twice, and every run pays for it"
    )]
    fn drive(mut self) -> impl Future<Output = Result<Box<Outcome>>> + Send {
        async move {
            let (outcome, error) = {
                let (result, cut) = match self.task.take().filter(|_| !self.unseated) {
                    None => (Err(self.effects.unbegun()), None),
                    Some(task) => {
                        let deadline = task.deadline;
                        if self.cx.parent().is_none() {
                            misnamed::warn(&self.effects.site, &*self.agent);
                        }
                        let work = Caught::new(|| (*self.agent).run(task, &self.cx));
                        run_agent(work, deadline, &self.cx, &self.effects.site).await
                    }
                };
                let result = self.unless_stopped(result);
                // Work that the agent left behind does nothing more.
                self.end_life();
                // No child outlives its parent's run.
                if self.effects.has_children() {
                    self.stop_children(&result);
                    Box::pin(leased(&self.effects.site, self.effects.join_children())).await;
                }
                // Nothing of it would be stored, and what the agent made of that is no end of the run.
                if let Some(error) = self.effects.site.journal.overtaken() {
                    return Err(self.leave_open(error).await);
                }
                if self.leaves_runs_below(&result, cut.as_ref())
                    && let Err(error) = self.end_below().await
                {
                    return Err(self.leave_open(error).await);
                }
                match self.conclude(result, cut) {
                    Ok(concluded) => concluded,
                    Err(error) => return Err(self.leave_open(error).await),
                }
            };
            let pressed = self.cx.cancellation().is_cancelled();
            self.cx.cancellation().cancel();
            match (error, self.commit(pressed).await) {
                (Some(error), _) | (None, Err(error)) => Err(error),
                (None, Ok(())) => match outcome.status {
                    Status::Failed(ref error) => Err(error.to_error()),
                    _ => Ok(outcome),
                },
            }
        }
    }

    /// Ends the run's contexts: each effect through them is refused from now on.
    fn end_life(&self) {
        self.effects.site.end(self.cx.cancellation().is_cancelled());
    }

    /// Returns the agent's result. If its effects stopped the run, returns their error instead, whatever the agent made
    /// of it.
    fn unless_stopped(&self, result: Result<Box<Outcome>>) -> Result<Box<Outcome>> {
        let lost = || self.effects.site.lost().filter(|_| !self.cx.cancellation().is_cancelled());
        self.effects.diverged().or_else(lost).map_or(result, Err)
    }

    /// Leaves the run open. Stores what ended beside a child that diverged; an agent that diverged itself leaves
    /// nothing.
    async fn leave_open(&self, error: Error) -> Error {
        let Site { env, journal, emitter, root, .. } = &*self.effects.site;
        let below = !emitter.is_of_root();
        if below {
            journal.release_lease();
        }
        if below && journal.overtaken().is_some() {
            // If the store fails now, the session's next stop or new run ends it.
            drop(tokio::time::timeout(CLEAN_UP, Box::pin(end_orphan(env, journal.session(), root))).await);
        }
        // If the store fails now, that work is done again, and the lease expires.
        if self.effects.site.lost().is_some() && self.effects.diverged().is_none() {
            drop(Box::pin(self.commit(self.cx.cancellation().is_cancelled())).await);
        }
        if below && journal.keeps_lease() {
            let returned = journal.return_lease(emitter);
            drop(tokio::time::timeout(CLEAN_UP, Box::pin(returned)).await);
        }
        error
    }

    /// Stores the run's end. Only a cancelled run is `pressed` for time: others wait for their store.
    async fn commit(&self, pressed: bool) -> Result<()> {
        let Site { journal, emitter, .. } = &*self.effects.site;
        let commit = journal.commit(emitter);
        if !pressed {
            return commit.await;
        }
        Box::pin(tokio::time::timeout(CLEAN_UP, commit)).await.unwrap_or_else(|_| {
            let text = "the store did not take the run's last events in time";
            Err(Error::new(ErrorKind::Timeout, text).during("store.append"))
        })
    }

    /// Cancels the children, unless the run paused or diverged: then it waits for them.
    fn stop_children(&self, result: &Result<Box<Outcome>>) {
        let waits = |error: &Error| error.pause().is_some() || error.kind() == ErrorKind::Diverged;
        if !matches!(result, Err(error) if waits(error)) {
            self.cx.cancellation().cancel();
        }
    }

    /// True when this is the run's end, and runs below it may be open that nobody continues then: those that paused,
    /// and those of an earlier life that this one did not come to again.
    fn leaves_runs_below(&self, result: &Result<Box<Outcome>>, cut: Option<&Cut>) -> bool {
        let waits = match (result, cut) {
            (_, Some(Cut::Fenced(_))) => true,
            (Ok(outcome), _) => matches!(outcome.status, Status::Paused(_)),
            (Err(error), _) if self.resumed && error.kind() == ErrorKind::Diverged => true,
            (Err(error), cut) => error.pause().is_some() && !matches!(cut, Some(Cut::Late)),
        };
        !waits && (self.resumed || self.effects.left_open())
    }

    async fn end_below(&self) -> Result<()> {
        let Site { env, journal, emitter, .. } = &*self.effects.site;
        let ending = end_below(env, journal, emitter, env.lease, false);
        if !self.cx.cancellation().is_cancelled() {
            return Box::pin(ending).await;
        }
        Box::pin(tokio::time::timeout(CLEAN_UP, ending)).await.unwrap_or_else(|_| {
            let text = "the store did not take the ends of the runs below in time";
            Err(Error::new(ErrorKind::Timeout, text).during("store.append"))
        })
    }

    /// Stages the run's end. Returns its outcome, and the error if it failed.
    ///
    /// # Errors
    /// The error of a run without an end: it stays open, and the code that started it can still resume it.
    fn conclude(
        &self,
        result: Result<Box<Outcome>>,
        cut: Option<Cut>,
    ) -> Result<(Box<Outcome>, Option<Error>)> {
        let Site { env, journal, origin, emitter, .. } = &*self.effects.site;
        let late = matches!(cut, Some(Cut::Late));
        let result = match cut {
            Some(Cut::Fenced(error)) => Err(error),
            _ => result,
        };
        let (mut outcome, error) = match result {
            Ok(mut outcome) => {
                journal.read(|state| state.run().into_iter().for_each(|run| run.count(&mut outcome)));
                (outcome, None)
            }
            Err(error) if self.resumed && error.kind() == ErrorKind::Diverged => return Err(error),
            Err(error) => {
                let mut outcome = Box::new(journal.spent());
                outcome.status = match late {
                    true => Status::Stopped(budget::late(self.cx.budget())),
                    false => Status::of(&error),
                };
                let failed = matches!(outcome.status, Status::Failed(_));
                (outcome, failed.then_some(error))
            }
        };
        self.effects.site.read_labelled(outcome.labels);
        outcome.labels |= journal.read(SessionState::labels);
        close(journal, origin, env, &outcome);
        // No other process is to come between two prompts that were accepted here.
        let awaited = || emitter.session().is_some_and(|session| session.is_awaited());
        if matches!(outcome.status, Status::Paused(_)) || !awaited() {
            journal.release_lease();
        }
        Ok((outcome, error))
    }
}

impl Drop for Run {
    /// Ends the run's contexts, however the run ended, and keeps the results that its store did not take.
    fn drop(&mut self) {
        self.end_life();
        self.cx.cancellation().cancel();
        if self.effects.diverged().is_none() {
            let Site { env, journal, .. } = &*self.effects.site;
            journal.results().into_iter().for_each(|results| env.unstored.keep(results));
        }
    }
}
