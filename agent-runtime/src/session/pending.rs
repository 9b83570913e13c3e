//! Input from outside that sessions wait for: a list of it, and the results of calls that were handed out.

use std::sync::Arc;

use entourage_core::{
    Error, ErrorKind, Result, RunId, SessionId, Timestamp,
    event::{Event, ToolFinished},
    message::{ToolCall, ToolResult},
    permission::ApprovalRequest,
    run::{Limits, Pause},
    session::{OpenCall, SessionFilter, SessionInfo, SessionState, SessionStatus},
    tool::{CallId, IntoToolOutput, Labels, ToolError, ToolOutput},
};

use crate::{
    deferred::written,
    effects::tool_bound::{bounded, checked, other_arguments},
    runtime::Runtime,
    session::{
        Session,
        form::AnswerForm,
        journal::{Journal, apart::apart, windows::Windows},
        questions::over_above,
    },
};

/// Something that a session waits for.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Pending {
    /// The session that waits.
    pub session: SessionId,
    /// The session that its user sees, which is the one to resume.
    pub root: SessionId,
    /// The agent that waits: its own name.
    pub agent: Arc<str>,
    /// The run that waits.
    pub run: RunId,
    /// Time since which it waits.
    pub since: Timestamp,
    /// The input that it waits for.
    pub waits_for: Waiting,
}

/// The input that a session waits for.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Waiting {
    /// A decision about a call: see [`Session::decide`].
    Approval(Arc<ApprovalRequest>),
    /// The result of a call that was handed out: see [`Session::answer`].
    Call {
        /// The call's id.
        id: CallId,
        /// Its tool and arguments.
        call: ToolCall,
    },
    /// A signal: see [`Session::signal`].
    Signal {
        /// Its name.
        name: String,
        /// Time at which the wait ends by itself.
        until: Option<Timestamp>,
    },
    /// To be resumed: it was asked to pause, or its input has come.
    Resume,
}

impl Session {
    /// Returns what this session and those below it wait for from outside, oldest first.
    ///
    /// Questions that an approver is being asked at this moment are among it. A session below a run that is over waits
    /// for nothing.
    ///
    /// # Errors
    /// The store's.
    pub async fn pending(&self) -> Result<Vec<Pending>> {
        let Some(store) = &self.env().store else {
            return self.read(|state| waiting(self.id(), state)).await;
        };
        let mut found = Vec::new();
        for info in store.query(&SessionFilter::tree(self.id().clone())).await? {
            found.extend(self.waits_in(&info).await?);
        }
        found.sort_by_key(|it| it.since);
        Ok(found)
    }

    async fn waits_in(&self, info: &SessionInfo) -> Result<Vec<Pending>> {
        if info.head.status == SessionStatus::Idle || over_above(self.env(), &info.record).await?.is_some() {
            return Ok(Vec::new());
        }
        let id = &info.record.id;
        let session = if id == self.id() { self.clone() } else { self.sibling(id.clone())? };
        session.read(|state| waiting(id, state)).await
    }

    /// Gives the result of a call that was handed out (see `entourage_runners::external`), by this session or by one
    /// below it; [`Session::resume`] then continues the run, in this process or another one. In a session below
    /// another one, resume its root.
    ///
    /// The first result holds. It is bounded by the default [`Limits`], since the agent's own are not known here, and
    /// no layer of the tool sees it: check what comes from outside before you give it. A [`ToolError::Tell`] is an
    /// error result, which the model is told. Dropping the future takes nothing back.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when no such call is open, [`ErrorKind::Conflict`] when it has a result,
    /// [`ErrorKind::InvalidInput`] for a result without the form that the agent asked for
    /// ([`AnswerForm`](crate::AnswerForm)): the call stays open. [`ErrorKind::Busy`] while a run is active, a
    /// [`ToolError::Fatal`] of the output, the store's.
    pub async fn answer(&self, call: &CallId, output: impl IntoToolOutput) -> Result<()> {
        let output = match output.into_output() {
            Ok(output) => checked(output),
            Err(ToolError::Tell(text)) => ToolOutput::error(text),
            Err(ToolError::Fatal(error)) => return Err(error),
        };
        let output = bounded(output, &Limits::default());
        let (session, id) = (self.holding(call.session()).await?, call.clone());
        let work = async move {
            match session.written(|journal| answered(journal, &id, &output)).await {
                Err(error) if error.kind() == ErrorKind::NotFound && session.has_result(&id).await => {
                    Err(settled(&id))
                }
                written => written,
            }
        };
        apart(&self.env().tasks, Box::pin(work)).await
    }
}

impl Session {
    /// True if this call of a hand-written agent, of the open run, has its result. Only the record tells.
    async fn has_result(&self, id: &CallId) -> bool {
        let open = self.read(|state| state.run().map(|run| (run.id, run.seq))).await;
        let (Ok(Some((run, seq))), Some(store)) = (open, &self.env().store) else { return false };
        let mut windows = Windows::after(store, self.id(), seq);
        while let Ok(Some(rows)) = windows.next().await {
            for row in rows.into_iter().filter(|row| row.columns().kind == "tool_finished") {
                let Ok(envelope) = row.into_envelope(self.id()) else { continue };
                let Event::ToolFinished(finished) = envelope.event else { continue };
                let place = finished.key.and_then(|key| usize::try_from(key.ordinal).ok());
                if place.is_some_and(|place| CallId::new(self.id(), run, seq, place) == *id) {
                    return true;
                }
            }
        }
        false
    }
}

impl Runtime {
    /// Returns what all sessions wait for from outside, oldest first: see [`Session::pending`]. The view `pending` of
    /// the SQL stores has the same rows.
    ///
    /// # Errors
    /// The store's.
    pub async fn pending(&self) -> Result<Vec<Pending>> {
        let mut found = Vec::new();
        for status in [SessionStatus::Paused, SessionStatus::Running] {
            for info in self.sessions(&SessionFilter::all().with_status(status)).await? {
                found.extend(self.session_with_id(info.record.id.clone()).waits_in(&info).await?);
            }
        }
        found.sort_by_key(|it| it.since);
        Ok(found)
    }

    /// Gives the result of a call that was handed out, in any session, a child's too: see [`Session::answer`].
    ///
    /// # Errors
    /// Those of [`Session::answer`]; [`ErrorKind::NotFound`] also for an id that names no session.
    pub async fn answer(&self, call: &CallId, output: impl IntoToolOutput) -> Result<()> {
        let session = call.session().ok_or_else(|| unknown(call))?;
        self.open(&session).await?.answer(call, output).await
    }
}

fn unknown(call: &CallId) -> Error {
    let text = "no such call is open; `Session::pending` lists those that are";
    Error::new(ErrorKind::NotFound, text).with("call", call.as_str())
}

fn settled(call: &CallId) -> Error {
    Error::new(ErrorKind::Conflict, "the call has a result; the first one holds").with("call", call.as_str())
}

fn answered(journal: &Journal, id: &CallId, output: &ToolOutput) -> Result<Option<Event>> {
    let open = journal.read(|state| state.external().iter().find(|call| call.id == *id).cloned());
    let Some(OpenCall { index, call, key, .. }) = open else {
        let place = |state: &SessionState| {
            let (step, run) = (state.step()?, state.run()?);
            let ended = step.results.iter().enumerate().filter(|(_, result)| result.is_some());
            let mut ids = ended.map(|(index, _)| CallId::new(&journal.record.id, run.id, step.seq, index));
            ids.find(|ended| ended == id)
        };
        return Err(match journal.read(place) {
            Some(_) => settled(id),
            None => unknown(id),
        });
    };
    let output = output.clone();
    let result = ToolResult::new(&call, output.content, output.is_error);
    journal.read(|state| AnswerForm::check(state, &result))?;
    let asked = |state: &SessionState| {
        let step = state.step().filter(|_| key.is_none())?;
        step.message.tool_calls().nth(index).map(|asked| written(asked, &call.name))
    };
    let result = match journal.read(asked) {
        Some(asked) if asked != call.arguments => {
            let mut told = vec![other_arguments(&call.arguments)];
            told.extend(result.content);
            ToolResult::new(&call, told, result.is_error)
        }
        _ => result,
    };
    let mut finished = ToolFinished::new(index, Arc::new(result));
    (finished.stop_turn, finished.metadata, finished.key) = (output.stop_turn, output.metadata, key);
    // Nobody here knows where it comes from.
    finished.labels = Labels::all();
    Ok(Some(Event::ToolFinished(Arc::new(finished))))
}

/// The input that the open run of a session waits for.
fn waiting(session: &SessionId, state: &SessionState) -> Vec<Pending> {
    let Some(run) = state.run() else { return Vec::new() };
    let root = root(session);
    let pending = |since, waits_for| Pending {
        session: session.clone(),
        root: root.clone(),
        agent: Arc::clone(&run.agent),
        run: run.id,
        since,
        waits_for,
    };
    let questions = state.questions().iter();
    let questions = questions.map(|it| pending(it.since, Waiting::Approval(Arc::clone(&it.request))));
    let calls = state
        .external()
        .iter()
        .map(|it| pending(it.since, Waiting::Call { id: it.id.clone(), call: it.call.clone() }));
    let updated = state.head().updated;
    let other = match &run.pause {
        Some(Pause::Signal { name, until }) if !run.answered => {
            Some(Waiting::Signal { name: name.clone(), until: *until })
        }
        Some(Pause::Asked) => Some(Waiting::Resume),
        Some(_) if run.answered => Some(Waiting::Resume),
        _ => None,
    };
    questions.chain(calls).chain(other.map(|other| pending(updated, other))).collect()
}

/// The session that the tree of a session begins with, as its id tells.
fn root(session: &SessionId) -> SessionId {
    let mut root = session.clone();
    loop {
        let above = root.origin().map(|(above, ..)| above).or_else(|| root.role().map(|(above, _)| above));
        let Some(Ok(above)) = above.map(SessionId::new) else { return root };
        root = above;
    }
}
