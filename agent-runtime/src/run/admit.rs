//! Admission of a run: the checks before it begins, and what its session holds for it.

use std::{sync::Arc, time::Duration};

use entourage_core::{
    Error, ErrorKind, Result, RetryStatus, RunId, Timestamp,
    agent::Agent,
    event::{Event, Origin, RunResumed, RunStarted},
    message::{Message, Part, Role},
    run::Task,
    session::{ReadRange, SessionState},
};

use crate::{
    check_agent_name,
    env::Env,
    run::execute::{Admission, Within},
    session::journal::{Journal, queued::InQueue, weight::check_message},
};

/// Returns the messages that join the conversation before the prompt. An answer at their beginning is kept only if the
/// conversation ends with a user message without one.
pub(super) fn opening(journal: &Journal, messages: Vec<Arc<Message>>) -> impl Iterator<Item = Arc<Message>> {
    let waits = |state: &SessionState| state.history().last().is_some_and(|it| it.role() == Role::User);
    let answers = messages.first().is_some_and(|first| first.role() == Role::Assistant);
    let skipped = usize::from(answers && !journal.read(waits));
    messages.into_iter().skip(skipped)
}

/// Returns the events that the run recorded: as found when the session was opened, else read from the store, since the
/// run was paused in this process.
pub(super) async fn recorded(journal: &Journal, env: &Env) -> Result<Vec<Event>> {
    let found = journal.recorded();
    let Some(store) = env.store.as_ref().filter(|_| found.is_empty()) else { return Ok(found) };
    let from = journal.read(SessionState::run_window);
    let rows = store.read(journal.session(), ReadRange::after(from.saturating_sub(1))).await?;
    rows.into_iter().map(|row| Ok(row.into_envelope(journal.session())?.event)).collect()
}

pub(super) fn admit(
    journal: &Journal,
    agent: &dyn Agent,
    admission: Admission,
    within: &Within,
    now: Timestamp,
) -> Result<(Arc<Origin>, Task, Event)> {
    let name: Arc<str> = agent.name().into();
    check_agent_name(&name)?;
    let path: Arc<str> = match &within.path {
        Some(above) => [&**above, "/", &*name].concat().into(),
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
                // Below another run, another agent means that the code above differs.
                let kind = if within.path.is_some() { ErrorKind::Diverged } else { ErrorKind::Config };
                return Err(Error::new(
                    kind,
                    format!(
                        "the run was started by the agent `{}`; resume it with that one, not with `{name}`",
                        run.agent
                    ),
                )
                .with("session", session.as_str()));
            }
            let task = Task::of(run.prompt, run.budget, run.deadline);
            let resumed = RunResumed::new(run.resumed.saturating_add(1));
            Ok((Arc::new(Origin::new(session, run.id, path)), task, Event::RunResumed(resumed)))
        }
    }
}

fn start(
    journal: &Journal,
    name: Arc<str>,
    path: Arc<str>,
    task: Task,
    queued: Option<InQueue>,
    within: &Within,
    now: Timestamp,
) -> Result<(Arc<Origin>, Task, Event)> {
    check_prompt(&task)?;
    check_lease(journal, now)?;
    let session = journal.session().clone();
    let waits = |seq| journal.read(|state| state.queue().iter().any(|queued| queued.seq == seq));
    if queued.is_some_and(|queued| !journal.is_of(queued.created)) {
        return Err(Error::deleted(&session));
    }
    let queued = queued.map(|queued| queued.seq);
    if queued.is_some_and(|seq| !waits(seq)) {
        return Err(Error::new(
            ErrorKind::Conflict,
            "another process took the session over, and this queued prompt with it",
        )
        .with("session", session.as_str()));
    }
    let run = within.run.unwrap_or_else(RunId::generate);
    let mut started = RunStarted::new(name, Arc::clone(&task.prompt));
    (started.queued, started.budget, started.deadline) = (queued, task.budget, task.deadline);
    started.title.clone_from(&within.title);
    started.above.clone_from(&within.above);
    started.labels = within.labels | task.labels;
    Ok((Arc::new(Origin::new(session, run, path)), task, Event::RunStarted(Arc::new(started))))
}

/// Checks that no other process runs an agent in the session, as far as its lease tells.
pub(crate) fn check_lease(journal: &Journal, now: Timestamp) -> Result<()> {
    let Some(until) = journal.leased_elsewhere(now) else { return Ok(()) };
    let left = until.since(now).as_secs() + 1;
    Err(Error::new(
        ErrorKind::Busy,
        format!(
            "another process runs an agent in the session; its lease ends in {left} s unless it is renewed"
        ),
    )
    .with_retry(RetryStatus::Temporary)
    .with_retry_after(Duration::from_secs(left))
    .with("session", journal.session().as_str()))
}

/// Checks the prompt of a task. Every run does so before it stores anything.
///
/// # Errors
/// [`ErrorKind::EmptyPrompt`]; [`ErrorKind::InvalidInput`] for a message that is no user's, or that could not be stored
/// or read again.
pub fn check_prompt(task: &Task) -> Result<()> {
    if task.prompt.role() != Role::User {
        return Err(Error::new(ErrorKind::InvalidInput, "a prompt is a user message"));
    }
    if says_something(&task.prompt) {
        return check_message(&task.prompt);
    }
    Err(Error::new(ErrorKind::EmptyPrompt, "the prompt is empty; say what the agent should do"))
}

/// True for a message that holds more than blanks and files without words.
pub(crate) fn says_something(message: &Message) -> bool {
    message.parts().iter().any(|part| match part {
        Part::Text(text) => !text.trim().is_empty(),
        Part::Media(media) => media.mime.starts_with("text/"),
        _ => false,
    })
}
