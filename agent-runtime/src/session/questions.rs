//! Questions that nothing waits for any more: the reason, for a caller who answers one.

use std::sync::Arc;

use entourage_core::{
    Error, ErrorKind, Result, RunId, SessionId,
    event::{Envelope, Event},
    permission::{ApprovalId, ApprovalRequest, Decision},
    run::Outcome,
    session::{ReadRange, SessionRecord, SharedStore},
};

use crate::{
    env::Env,
    session::journal::{Journal, windows::Windows},
};

/// Largest depth of sessions. No derived id is long enough for more.
const DEEPEST: usize = 240;

/// Returns the reason that a question is closed; `None` when it was never asked, or that cannot be told.
pub(super) async fn closed(env: &Env, session: &SessionId, id: &ApprovalId) -> Option<Error> {
    let history = History::of(env.store.as_ref()?, session, id).await.ok()?;
    history.error(id)
}

/// Returns the error for a question that is not open.
pub(super) fn unknown(id: &ApprovalId) -> Error {
    Error::new(ErrorKind::NotFound, "no such question is open in the session").with("approval", id.as_str())
}

/// Returns the error for a second answer that differs from the first.
pub(super) fn answered_otherwise(id: &ApprovalId, answered: &Decision) -> Error {
    let text = format!("the question was answered before: the call is {answered}; the first answer holds");
    Error::new(ErrorKind::Conflict, text).with("approval", id.as_str())
}

/// Returns the name of who gave the answer that holds, if it is stored.
pub(super) async fn decider(env: &Env, session: &SessionId, id: &ApprovalId) -> Option<Arc<str>> {
    History::of(env.store.as_ref()?, session, id).await.ok()?.by
}

/// Returns the question of this id as it was asked.
pub(super) async fn asked(
    env: &Env,
    session: &SessionId,
    id: &ApprovalId,
) -> Result<Option<Arc<ApprovalRequest>>> {
    match &env.store {
        Some(store) => Ok(History::of(store, session, id).await?.asked),
        None => Ok(None),
    }
}

/// The events of a question.
#[derive(Default)]
struct History {
    asked: Option<Arc<ApprovalRequest>>,
    run: Option<RunId>,
    decision: Option<Decision>,
    by: Option<Arc<str>>,
    end: Option<End>,
}

/// The end of the run that asked.
enum End {
    Ended(Box<Outcome>),
    Abandoned,
}

impl History {
    async fn of(store: &SharedStore, session: &SessionId, id: &ApprovalId) -> Result<Self> {
        let (mut history, mut windows) =
            (Self::default(), Windows::after(store, session, reply(session, id)));
        while let Some(rows) = windows.next().await? {
            for row in rows {
                let kind = row.columns().kind;
                if matches!(
                    &*kind,
                    "approval_requested" | "approval_decided" | "run_started" | "run_finished"
                ) && history.take(&row.into_envelope(session)?, id)
                {
                    return Ok(history);
                }
            }
        }
        Ok(history)
    }

    /// Takes in one event. Returns true once nothing more can happen to the question.
    fn take(&mut self, envelope: &Envelope, id: &ApprovalId) -> bool {
        let run = envelope.origin.run;
        match &envelope.event {
            Event::ApprovalRequested(request) if request.id == *id => {
                (self.run, self.asked) = (Some(run), Some(Arc::clone(request)));
            }
            Event::ApprovalDecided(answer) if answer.id == *id => {
                (self.decision, self.by) = (Some(answer.decision.clone()), answer.by.clone());
            }
            Event::RunFinished(end) if self.run == Some(run) => {
                self.end = Some(if end.abandoned {
                    End::Abandoned
                } else {
                    End::Ended(Box::new(end.outcome.clone()))
                });
            }
            // Older versions began a new run without ending the one before.
            Event::RunStarted(_) if self.run.is_some() => self.end = Some(End::Abandoned),
            _ => {}
        }
        self.end.is_some()
    }

    fn error(self, id: &ApprovalId) -> Option<Error> {
        let (run, end) = self.run.zip(self.end)?;
        let end = match end {
            End::Ended(outcome) => format!("is over ({})", outcome.status),
            End::Abandoned => "was abandoned for a newer prompt".to_owned(),
        };
        let answered = match self.decision {
            Some(decision) if !decision.is_open() => format!(", after the call was {decision}"),
            _ => String::new(),
        };
        let text = format!(
            "the run that asked this {end}{answered}, so nothing waits for an answer; start a run if the call is \
             still wanted"
        );
        let error = Error::new(ErrorKind::NotFound, text).with("approval", id.as_str());
        Some(error.with("run", run.to_string()))
    }
}

/// Returns the number of the event before the question's call, as its id tells; 0 if that cannot be told.
fn reply(session: &SessionId, id: &ApprovalId) -> u64 {
    let place = id.as_str().strip_prefix(session.as_str()).and_then(|rest| rest.strip_prefix('.'));
    let seq = place.and_then(|place| place.split_once("$$")).and_then(|(seq, _)| seq.parse().ok());
    seq.unwrap_or(0)
}

/// Refuses an answer in a session below a run that is over or was abandoned: nothing continues what waits there.
///
/// # Errors
/// [`ErrorKind::NotFound`]; the store's.
pub(super) async fn check_continued(env: &Env, journal: &Journal, id: &ApprovalId) -> Result<()> {
    let Some(above) = over_above(env, &journal.record).await? else { return Ok(()) };
    let text = "a run above the one that asked this is over, or was abandoned for a newer prompt, so nothing waits \
                for an answer; start a run if the call is still wanted";
    Err(Error::new(ErrorKind::NotFound, text).with("approval", id.as_str()).with("above", above.as_str()))
}

/// Returns the session above whose run is over, or was abandoned, although what is open here belongs to it; `None` when
/// there is none.
///
/// # Errors
/// The store's.
pub(crate) async fn over_above(env: &Env, record: &SessionRecord) -> Result<Option<SessionId>> {
    let Some(store) = &env.store else { return Ok(None) };
    let (mut below, mut parent) = (record.id.clone(), record.parent.clone());
    for _ in 0..DEEPEST {
        let Some(above) = parent else { break };
        let Some(info) = Journal::look_up(env, &above).await? else { break };
        let Some(open) = info.head.run else { return Ok(Some(above)) };
        // The event that names the child is one of the run that it belongs to.
        if let Some((_, named, _)) = below.origin() {
            let rows = store.read(&above, ReadRange::after(named.saturating_sub(1)).with_limit(1)).await?;
            if rows.first().is_some_and(|row| row.columns().run != open) {
                return Ok(Some(above));
            }
        }
        (below, parent) = (above, info.record.parent);
    }
    Ok(None)
}
