//! A run from admission to its end: whatever happens in between, the session is left in order.

use std::{any::Any, future::Future, panic::AssertUnwindSafe, sync::Arc, task::Poll, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use tokio_util::sync::CancellationToken;

use super::{
    Emitter, Journal, Outcome, RunContext, Status, Task, TodoList, budget,
    context::{Env, Given},
    local::LocalEffects,
    pool::Pool,
    tool_run::panic_text,
};
use crate::{
    Error, ErrorKind, Result, RunId, Timestamp,
    agent::{Agent, check_agent_name},
    event::{Event, MessageAdded, Origin, RunFinished, RunPaused, RunResumed, RunStarted, ToolFinished},
    layers::{Budget, BudgetState},
    message::{Message, Part, Role, ToolResult},
    permission::Scope,
    runtime::begin_title,
    session::{Closing, ReadRange, SessionState},
};

/// How long a run that was cancelled may take to unwind, and its last writes after that (CM14).
pub(crate) const CLEAN_UP: Duration = Duration::from_secs(5);

/// How a run comes to be.
pub(crate) enum Admission {
    /// A new prompt.
    Start(Task),
    /// A prompt that waited, and the number of the event that says so.
    Queued(Task, Option<u64>),
    /// The run that the session left unfinished.
    Resume,
    /// The same, unless somebody runs it.
    Recover,
}

/// What a run works within.
pub(crate) struct Within {
    /// The agents above, joined by `/`.
    pub(crate) path: Option<Arc<str>>,
    pub(crate) scope: Scope,
    pub(crate) cancel: CancellationToken,
    pub(crate) emitter: Emitter,
    /// Whose list of what is to be done is worked on; `None` for its session's own.
    pub(crate) todos: Option<TodoList>,
    /// What the run that starts it may use.
    pub(crate) budget: Option<Budget>,
    /// The id of a new run.
    pub(crate) run: Option<RunId>,
    /// What joins the conversation before the prompt of a new run.
    pub(crate) opening: Vec<Arc<Message>>,
    /// What its children are seated in; `None` for a root, which has its own.
    pub(crate) pool: Option<Pool>,
    /// It was cancelled before there was a place for it: its agent does not begin.
    pub(crate) unseated: bool,
}

/// Runs `agent` to its outcome. A failure is an `Err`, after it was recorded.
pub(crate) async fn execute(
    env: Arc<Env>,
    journal: Arc<Journal>,
    agent: Arc<dyn Agent>,
    admission: Admission,
    mut within: Within,
) -> Result<Outcome> {
    let now = env.clock.now();
    let admission = budget::bounded(admission, &env, within.path.is_none());
    let (origin, task, event) = admit(&journal, &*agent, admission, &within, now)?;
    if within.path.is_some() {
        within.emitter = within.emitter.below();
    }
    within.emitter.settle_run(origin.run);
    let resumed = matches!(event, Event::RunResumed(_));
    journal.hold_lease(env.lease);
    if !resumed {
        for message in opening(&journal, std::mem::take(&mut within.opening)) {
            let added = MessageAdded { message, queued: None };
            journal.stage(&origin, now, Event::MessageAdded(Arc::new(added)));
        }
    }
    journal.stage(&origin, now, event);
    if resumed {
        // Of two processes that resume the same run one is admitted: the other's append conflicts here.
        Box::pin(journal.commit(&within.emitter)).await?;
    }
    let recorded = if resumed { Box::pin(recorded(&journal, &env)).await? } else { Vec::new() };
    journal.forget_recorded();
    let spent = match task.budget {
        Some(_) if resumed => Box::pin(budget::spent(&env, &journal, &origin)).await?,
        _ => BudgetState::default(),
    };
    let budget = budget::open(task.budget, spent, within.budget, &origin.agent);
    begin_title(&env, &journal, &origin, &task.prompt, &within.emitter);
    let effects = Arc::new(LocalEffects::new(Arc::clone(&journal), recorded).seated(within.pool.take()));
    let cx = RunContext::new(
        Arc::clone(&env),
        Arc::clone(&origin),
        Given {
            scope: within.scope,
            cancel: within.cancel.clone(),
            emitter: within.emitter.clone(),
            todos: within.todos.unwrap_or_else(|| TodoList::new(&journal, &origin)),
            budget: budget.clone(),
        },
        Arc::clone(&effects) as _,
        Arc::clone(&journal),
    );
    let (result, cut) = match within.unseated {
        true => (Err(Error::cancelled()), None),
        false => run_agent(&*agent, task, &cx, &journal).await,
    };
    drop(cx);
    let result = match cut {
        Some(Cut::Fenced(ref error)) => Err(error.record().to_error()),
        _ => result,
    };
    // No child outlives its parent's run: a pause waits for what is under way, any other end cancels it.
    if effects.has_children() {
        if !matches!(&result, Err(error) if error.pause().is_some() || error.kind() == ErrorKind::Diverged) {
            within.cancel.cancel();
        }
        Box::pin(effects.join_children()).await;
    }
    drop(effects);
    // The run stays open: with the code that started it, it can still be resumed.
    if let Err(error) = &result
        && resumed
        && error.kind() == ErrorKind::Diverged
    {
        return result;
    }
    let status = match &result {
        Ok(outcome) => outcome.status.clone(),
        Err(_) if matches!(cut, Some(Cut::Late)) => Status::Stopped(budget::late(budget.as_ref())),
        Err(error) => Status::of(error),
    };
    let outcome = match result {
        Ok(outcome) => Ok(outcome),
        Err(error) => {
            let mut outcome = journal.spent();
            outcome.status = status.clone();
            if matches!(status, Status::Failed(_)) { Err((outcome, error)) } else { Ok(outcome) }
        }
    };
    let (outcome, error) = match outcome {
        Ok(outcome) => (outcome, None),
        Err((outcome, error)) => (outcome, Some(error)),
    };
    close(&journal, &origin, &env, &outcome);
    // Between two prompts that were accepted here nobody else is to step in.
    let awaited = || within.emitter.desk().is_some_and(|desk| desk.is_awaited());
    if matches!(outcome.status, Status::Paused(_)) || !awaited() {
        journal.release_lease();
    }
    // Only a cancelled run is pressed for time: others wait for their store.
    let committed = if within.cancel.is_cancelled() {
        Box::pin(tokio::time::timeout(CLEAN_UP, journal.commit(&within.emitter))).await
    } else {
        Ok(journal.commit(&within.emitter).await)
    };
    match (error, committed) {
        (Some(error), _) => Err(error),
        (None, Ok(Ok(()))) => match &outcome.status {
            Status::Failed(error) => Err(error.to_error()),
            _ => Ok(outcome),
        },
        (None, Ok(Err(error))) => Err(error),
        (None, Err(_)) => {
            Err(Error::new(ErrorKind::Timeout, "the store did not take the run's last events in time")
                .during("store.append"))
        }
    }
}

/// What joins the conversation before the prompt. An answer at its beginning is for a message that was left without one.
fn opening(journal: &Journal, messages: Vec<Arc<Message>>) -> impl Iterator<Item = Arc<Message>> {
    let waits = |state: &SessionState| state.history().last().is_some_and(|it| it.role() == Role::User);
    let answers = messages.first().is_some_and(|first| first.role() == Role::Assistant);
    let skipped = usize::from(answers && !journal.read(waits));
    messages.into_iter().skip(skipped)
}

/// What the run recorded up to now: as found when the session was opened, else read from the store, since the run was
/// paused in this process.
async fn recorded(journal: &Journal, env: &Env) -> Result<Vec<Event>> {
    let found = journal.recorded();
    let Some(store) = env.store.as_ref().filter(|_| found.is_empty()) else { return Ok(found) };
    let from = journal.read(SessionState::run_window);
    let rows = store.read(journal.session(), ReadRange::after(from.saturating_sub(1))).await?;
    rows.into_iter().map(|row| Ok(row.into_envelope(journal.session())?.event)).collect()
}

fn admit(
    journal: &Journal,
    agent: &dyn Agent,
    admission: Admission,
    within: &Within,
    now: Timestamp,
) -> Result<(Arc<Origin>, Task, Event)> {
    let name: Arc<str> = agent.name().into();
    check_agent_name(&name)?;
    let path: Arc<str> = match &within.path {
        Some(above) => format!("{above}/{name}").into(),
        None => Arc::clone(&name),
    };
    let session = journal.session().clone();
    match admission {
        Admission::Start(task) => start(journal, name, path, task, None, within, now),
        Admission::Queued(task, queued) => start(journal, name, path, task, queued, within, now),
        Admission::Resume | Admission::Recover => {
            if matches!(admission, Admission::Recover) {
                check_lease(journal, now)?;
            }
            let run = journal.read(|state| state.run().cloned());
            let run = run.ok_or_else(|| {
                Error::new(ErrorKind::NotFound, "the session has no unfinished run; start one")
                    .with("session", session.as_str())
            })?;
            if run.agent != name {
                return Err(Error::new(
                    ErrorKind::Config,
                    format!(
                        "the run was started by the agent `{}`; resume it with that one, not with `{name}`",
                        run.agent
                    ),
                )
                .with("session", session.as_str()));
            }
            let task = Task { prompt: run.prompt, budget: run.budget, deadline: run.deadline };
            let resumed = RunResumed { count: run.resumed + 1 };
            Ok((Arc::new(Origin::new(session, run.id, path)), task, Event::RunResumed(resumed)))
        }
    }
}

fn start(
    journal: &Journal,
    name: Arc<str>,
    path: Arc<str>,
    task: Task,
    queued: Option<u64>,
    within: &Within,
    now: Timestamp,
) -> Result<(Arc<Origin>, Task, Event)> {
    check_prompt(&task)?;
    check_lease(journal, now)?;
    let session = journal.session().clone();
    let waits = |seq| journal.read(|state| state.queue().iter().any(|queued| queued.seq == seq));
    if queued.is_some_and(|seq| !waits(seq)) {
        return Err(Error::new(
            ErrorKind::Conflict,
            "another process took the session over, and this queued prompt with it; open it again",
        )
        .with("session", session.as_str()));
    }
    let run = within.run.unwrap_or_else(RunId::generate);
    let mut started = RunStarted::new(name, Arc::clone(&task.prompt));
    (started.queued, started.budget, started.deadline) = (queued, task.budget, task.deadline);
    Ok((Arc::new(Origin::new(session, run, path)), task, Event::RunStarted(Arc::new(started))))
}

/// Nobody else runs an agent in the session, as far as its lease tells.
pub(crate) fn check_lease(journal: &Journal, now: Timestamp) -> Result<()> {
    let Some(until) = journal.leased_elsewhere(now) else { return Ok(()) };
    let left = until.since(now).as_secs() + 1;
    Err(Error::new(
        ErrorKind::Busy,
        format!(
            "another process runs an agent in the session; its lease ends in {left} s unless it is renewed"
        ),
    )
    .with("session", journal.session().as_str()))
}

/// CM01: nothing is stored for a prompt that says nothing.
pub(crate) fn check_prompt(task: &Task) -> Result<()> {
    let says = |part: &Part| match part {
        Part::Text(text) => !text.trim().is_empty(),
        Part::Media(media) => media.mime.starts_with("text/"),
        _ => false,
    };
    if task.prompt.role() != Role::User {
        return Err(Error::new(ErrorKind::InvalidInput, "a prompt is a user message"));
    }
    if task.prompt.parts().iter().any(says) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::EmptyPrompt, "the prompt is empty; say what the agent should do"))
}

/// What cut a run short from outside.
enum Cut {
    /// Its deadline passed, or its budget's time.
    Late,
    /// Another process has the session now.
    Fenced(Error),
    /// It was cancelled, and did not come to its end in time: its store hangs, or its agent does not listen.
    Stuck,
}

/// Runs the agent, keeps its session's lease meanwhile, and cancels it when something cuts it short.
async fn run_agent(
    agent: &dyn Agent,
    task: Task,
    cx: &RunContext,
    journal: &Journal,
) -> (Result<Outcome>, Option<Cut>) {
    let deadline = task.deadline;
    let mut run = std::pin::pin!(AssertUnwindSafe(agent.run(task, cx)).catch_unwind());
    let mut cut = None;
    let mut watch: Option<BoxFuture<'_, Cut>> = None;
    let ended = std::future::poll_fn(|task| {
        loop {
            if let Poll::Ready(ended) = run.as_mut().poll(task) {
                return Poll::Ready(Some(ended));
            }
            // Made only once there is something to wait for: a run that never waits needs no timers.
            let watching = watch.get_or_insert_with(|| Box::pin(watch_over(cx, journal, deadline)));
            match std::task::ready!(watching.as_mut().poll(task)) {
                Cut::Stuck => return Poll::Ready(None),
                reason => {
                    cut = Some(reason);
                    cx.cancellation().cancel();
                    watch = Some(Box::pin(async {
                        stuck(cx).await;
                        Cut::Stuck
                    }));
                }
            }
        }
    })
    .await;
    let result = ended.unwrap_or_else(|| Ok(Err(Error::cancelled())));
    (result.unwrap_or_else(|panic| Err(panicked(&*panic, cx.agent()))), cut)
}

pub(super) fn panicked(panic: &(dyn Any + Send), agent: &str) -> Error {
    let text = format!("the agent panicked: {}", panic_text(panic));
    Error::new(ErrorKind::Internal, text).with("agent", agent)
}

/// Ends when a run that was cancelled has had its time to unwind.
pub(super) async fn stuck(cx: &RunContext) {
    cx.cancellation().cancelled().await;
    tokio::time::sleep(CLEAN_UP).await;
}

async fn watch_over(cx: &RunContext, journal: &Journal, deadline: Option<Timestamp>) -> Cut {
    let over = async {
        let left = deadline.map(|deadline| deadline.since(cx.clock()));
        match left.into_iter().chain(budget::time_left(cx.budget())).min() {
            Some(left) => tokio::time::sleep(left).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = over => Cut::Late,
        error = keep_lease(cx, journal) => Cut::Fenced(error),
        () = stuck(cx) => Cut::Stuck,
    }
}

/// Renews the lease whenever a third of its time went by without a commit; ends when another process has it.
async fn keep_lease(cx: &RunContext, journal: &Journal) -> Error {
    let time = cx.env().lease;
    if cx.env().store.is_none() {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep((time / 3).max(Duration::from_millis(1))).await;
        // A store that fails now may be back before the lease ends.
        if let Err(error) = journal.renew_lease(cx.clock(), time).await
            && error.kind() == ErrorKind::Conflict
        {
            return error;
        }
    }
}

/// Answers every open call and records the end.
pub(crate) fn close(journal: &Journal, origin: &Arc<Origin>, env: &Env, outcome: &Outcome) {
    let now = env.clock.now();
    if let Status::Paused(pause) = &outcome.status {
        journal.stage(origin, now, Event::RunPaused(Arc::new(RunPaused { pause: pause.clone() })));
        return;
    }
    let open = journal.read(|state| open_results(state, &outcome.status));
    for (index, result) in open {
        let finished = ToolFinished {
            index,
            result: Arc::new(result),
            stop_turn: false,
            denied: false,
            metadata: None,
            micros: 0,
            fatal: None,
            key: None,
        };
        journal.stage(origin, now, Event::ToolFinished(Arc::new(finished)));
    }
    journal.stage(origin, now, Event::RunFinished(Arc::new(RunFinished { outcome: outcome.clone() })));
}

/// What a run's end with this status gives the calls that have no result.
pub(super) fn open_results(state: &SessionState, status: &Status) -> Vec<(usize, ToolResult)> {
    let text;
    let why = match status {
        Status::Cancelled => Closing::Cancelled,
        Status::Failed(error) => Closing::Failed(&error.message),
        Status::Completed => Closing::Ended("the model ended its reply without waiting for its calls"),
        Status::Stopped(_) | Status::Paused(_) => {
            text = status.to_string();
            Closing::Ended(&text)
        }
    };
    state.step().map(|step| step.close(why)).unwrap_or_default()
}
