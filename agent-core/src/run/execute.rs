//! A run from admission to its end: whatever happens in between, the session is left in order.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use super::{
    Emitter, Journal, Outcome, RunContext, Status, StopReason, Task, context::Env, local::LocalEffects,
    tool_run::panic_text,
};
use crate::{
    Error, ErrorKind, Result, RunId, Timestamp,
    agent::{Agent, check_agent_name},
    event::{Event, Origin, RunFinished, RunPaused, RunResumed, RunStarted, ToolFinished},
    message::{Part, Role},
    permission::Scope,
    session::{Closing, ReadRange},
};

/// How long the last writes of a run may take after it was cancelled (CM14).
const CLEAN_UP: Duration = Duration::from_secs(5);

/// How a run comes to be.
pub(crate) enum Admission {
    /// A new prompt.
    Start(Task),
    /// The run that the session left unfinished.
    Resume,
}

/// What a run works within.
pub(crate) struct Within {
    /// The agents above, joined by `/`.
    pub(crate) path: Option<Arc<str>>,
    pub(crate) scope: Scope,
    pub(crate) cancel: CancellationToken,
    pub(crate) emitter: Emitter,
    /// The id of a new run.
    pub(crate) run: Option<RunId>,
    pub(crate) deadline: Option<Timestamp>,
}

/// Runs `agent` to its outcome. A failure is an `Err`, after it was recorded.
pub(crate) async fn execute(
    env: Arc<Env>,
    journal: Arc<Journal>,
    agent: Arc<dyn Agent>,
    admission: Admission,
    within: Within,
) -> Result<Outcome> {
    let (origin, task, event) = admit(&journal, &*agent, admission, &within)?;
    let resumed = matches!(event, Event::RunResumed(_));
    journal.stage(&origin, env.clock.now(), event);
    if resumed {
        // Of two processes that resume the same run one is admitted: the other's append conflicts here.
        Box::pin(journal.commit(&within.emitter)).await?;
    }
    let recorded = if resumed { Box::pin(recorded(&journal, &env)).await? } else { Vec::new() };
    journal.forget_recorded();
    let effects = Arc::new(LocalEffects::new(Arc::clone(&journal), recorded));
    let cx = RunContext::new(
        Arc::clone(&env),
        Arc::clone(&origin),
        within.scope,
        within.cancel.clone(),
        Arc::clone(&effects) as _,
        within.emitter.clone(),
        Arc::clone(&journal),
    );
    let (result, late) = run_agent(&*agent, task, &cx, within.deadline).await;
    drop(cx);
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
        Err(_) if late => Status::Stopped(StopReason::Deadline),
        Err(error) => match (error.kind(), error.pause()) {
            (_, Some(pause)) => Status::Paused(pause.clone()),
            (ErrorKind::Cancelled, _) => Status::Cancelled,
            _ => Status::Failed(error.record()),
        },
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

/// What the run recorded up to now: as found when the session was opened, else read from the store, since the run was
/// paused in this process.
async fn recorded(journal: &Journal, env: &Env) -> Result<Vec<Event>> {
    let found = journal.recorded();
    let Some(store) = env.store.as_ref().filter(|_| found.is_empty()) else { return Ok(found) };
    let started = journal.read(|state| state.run().map(|run| run.seq)).unwrap_or_default();
    let rows = store.read(journal.session(), ReadRange::after(started.saturating_sub(1))).await?;
    rows.into_iter().map(|row| Ok(row.into_envelope(journal.session())?.event)).collect()
}

fn admit(
    journal: &Journal,
    agent: &dyn Agent,
    admission: Admission,
    within: &Within,
) -> Result<(Arc<Origin>, Task, Event)> {
    let name: Arc<str> = agent.name().into();
    check_agent_name(&name)?;
    let path: Arc<str> = match &within.path {
        Some(above) => format!("{above}/{name}").into(),
        None => Arc::clone(&name),
    };
    let session = journal.session().clone();
    match admission {
        Admission::Start(task) => {
            check_prompt(&task)?;
            let run = within.run.unwrap_or_else(RunId::generate);
            let started = RunStarted::new(name, Arc::clone(&task.prompt));
            Ok((Arc::new(Origin::new(session, run, path)), task, Event::RunStarted(Arc::new(started))))
        }
        Admission::Resume => {
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
            let task = Task { prompt: run.prompt };
            let resumed = RunResumed { count: run.resumed + 1 };
            Ok((Arc::new(Origin::new(session, run.id, path)), task, Event::RunResumed(resumed)))
        }
    }
}

/// CM01: nothing is stored for a prompt that says nothing.
fn check_prompt(task: &Task) -> Result<()> {
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

/// Runs the agent; the second value tells whether its deadline passed.
async fn run_agent(
    agent: &dyn Agent,
    task: Task,
    cx: &RunContext,
    deadline: Option<Timestamp>,
) -> (Result<Outcome>, bool) {
    let mut run = std::pin::pin!(AssertUnwindSafe(agent.run(task, cx)).catch_unwind());
    let mut late = false;
    let ended = match deadline {
        None => run.await,
        Some(deadline) => {
            let mut over = Box::pin(tokio::time::sleep(deadline.since(cx.clock())));
            tokio::select! {
                biased;
                ended = &mut run => ended,
                () = &mut over => {
                    late = true;
                    cx.cancellation().cancel();
                    run.await
                }
            }
        }
    };
    let result = ended.unwrap_or_else(|panic| {
        Err(Error::new(ErrorKind::Internal, format!("the agent panicked: {}", panic_text(&*panic)))
            .with("agent", cx.agent()))
    });
    (result, late)
}

/// Answers every open call and records the end.
fn close(journal: &Journal, origin: &Arc<Origin>, env: &Env, outcome: &Outcome) {
    let now = env.clock.now();
    if let Status::Paused(pause) = &outcome.status {
        journal.stage(origin, now, Event::RunPaused(Arc::new(RunPaused { pause: pause.clone() })));
        return;
    }
    let text;
    let why = match &outcome.status {
        Status::Cancelled => Closing::Cancelled,
        Status::Failed(error) => Closing::Failed(&error.message),
        Status::Completed => Closing::Ended("the model ended its reply without waiting for its calls"),
        Status::Stopped(_) | Status::Paused(_) => {
            text = outcome.status.to_string();
            Closing::Ended(&text)
        }
    };
    let open = journal.read(|state| state.step().map(|step| step.close(why))).unwrap_or_default();
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
