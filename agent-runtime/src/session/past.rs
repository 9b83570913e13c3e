//! The past of a session: its events in windows, its state at an earlier moment, forks from there, replays of its runs.

use std::sync::Arc;

use entourage_core::{
    Error, ErrorKind, Result, RunId, SessionId, Timestamp,
    agent::{Agent, IntoAgent},
    event::{Checkpoint, Envelope, Event, Forked, Origin},
    run::Outcome,
    session::{ReadRange, Row, SessionFilter, SessionRecord, SessionState, SharedStore},
};
use futures_util::{Stream, StreamExt, stream};

use crate::{
    replay::{Recording, replay},
    runtime::RuntimeBuilder,
    session::{
        Session,
        below::below,
        delivery::emit::Emitter,
        journal::{
            Journal,
            fold::Fold,
            script::RecordedTime,
            windows::{WINDOW, Windows},
        },
    },
};

/// A moment of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Moment {
    /// After the event of this number; 0 is before the first one.
    Event(u64),
    /// After all that happened up to this time.
    Time(Timestamp),
}

impl Moment {
    fn includes(self, row: &Row) -> bool {
        match self {
            Self::Event(seq) => row.seq() <= seq,
            Self::Time(time) => row.columns().at <= time,
        }
    }
}

impl Session {
    /// Returns stored events, from number `after` + 1 on, at most `limit` of them.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for a session that is not stored, the store's.
    pub async fn events(&self, after: u64, limit: usize) -> Result<Vec<Envelope>> {
        let rows = self.store()?.read(self.id(), ReadRange::after(after).with_limit(limit)).await?;
        rows.into_iter().map(|row| row.into_envelope(self.id())).collect()
    }

    /// Streams the whole session as lines of JSON, one per event, oldest first, as [`Envelope`] serializes. Holds a
    /// window of events in memory, never all of them.
    ///
    /// The stream ends after its first error.
    pub fn export(&self) -> impl Stream<Item = Result<String>> + Send + '_ {
        let windows = stream::try_unfold(Some(0), move |after| async move {
            let Some(after) = after else { return Ok(None) };
            let events = self.events(after, WINDOW).await?;
            let next = events.last().filter(|_| events.len() == WINDOW).map(|last| last.seq);
            Ok(Some((events, next)))
        });
        windows.flat_map(|window: Result<Vec<Envelope>>| {
            let lines: Vec<Result<String>> = match window {
                Ok(events) => events.iter().map(line).collect(),
                Err(error) => vec![Err(error)],
            };
            stream::iter(lines)
        })
    }

    /// Returns the session's state at `moment`: the fold of the events up to then.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for a session that is not stored, the store's.
    pub async fn state_at(&self, moment: Moment) -> Result<SessionState> {
        let store = self.store()?;
        let mut found = store.query(&SessionFilter::id(self.id().clone())).await?;
        let info = found.pop().ok_or_else(|| Error::no_session(self.id()))?;
        // The newest checkpoint saves reading the events before it, unless the moment is among them.
        let checkpoint = match moment {
            Moment::Event(seq) if seq >= info.head.checkpoint => info.head.checkpoint,
            _ => 0,
        };
        let fold = Fold::newest(store, self.id(), checkpoint, |row| moment.includes(row)).await?;
        Ok(fold.state)
    }

    /// Creates a session that begins with this one's state at `moment` and continues independently.
    ///
    /// It has the conversation, the title and the todo list. It has no open run: calls without a result get one that
    /// says so, and queued prompts stay behind. Its totals begin at zero, since earlier spend counts where it was
    /// spent.
    ///
    /// # Errors
    /// As [`Session::state_at`]; [`ErrorKind::InvalidInput`] for a moment before the first event, and for a session
    /// below another one: a root of its own would have neither the scope nor the budget that its agents were given.
    pub async fn fork(&self, moment: Moment) -> Result<Session> {
        let found = Journal::look_up(self.env(), self.id()).await?;
        if let Some(parent) = found.and_then(|info| info.record.parent) {
            return Err(below(self.env(), self.id(), &parent).await);
        }
        let state = self.state_at(moment).await?;
        let seq = state.head().seq;
        if seq == 0 {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "the session had no events then; fork it at a later moment or start a new one",
            )
            .with("session", self.id().as_str()));
        }
        let env = self.env();
        let id = SessionId::generate();
        let agent = Arc::clone(&state.head().agent);
        let journal = Journal::create(env, SessionRecord::root(id.clone(), env.clock.now()));
        let origin = Arc::new(Origin::new(id.clone(), RunId::generate(), agent));
        let forked = Some(Forked::new(self.id().clone(), seq));
        let checkpoint = Checkpoint::new(state.forked(), forked, false);
        journal.stage(&origin, env.clock.now(), Event::Checkpoint(Arc::new(checkpoint)));
        journal.commit(&Emitter::new(None, env)).await?;
        self.sibling(id)
    }

    /// Replays run `run` with `agent`, and returns the outcome, which is the recorded one. Every effect is answered
    /// from the record: no model, tool, approver or child is called, and nothing is stored. So a run can be inspected
    /// with a debugger, and changed code can be compared with what older code did.
    ///
    /// A run that was killed or paused, and then resumed, is replayed process by process, each from the agent's top to
    /// the end of its record. A failed run gives an outcome of that status, a waiting one a paused outcome.
    ///
    /// Calls are matched by step, service, model, tool and id; those of hand-written agents by all that decides what
    /// they do. Requests of a `ReactAgent` are not compared: changed instructions are
    /// noticed only once they lead to other calls. Holds the run's events in memory. What the agent itself charges to
    /// [`RunContext::budget`](entourage_core::run::RunContext::budget) is not counted again.
    ///
    /// # Errors
    /// - [`ErrorKind::Diverged`]: the agent does something other than what is recorded, or more; names the event.
    /// - [`ErrorKind::Unfinished`]: the agent agrees with all that is recorded, and the record has no end, since the
    ///   process died or the run is active.
    /// - [`ErrorKind::NotFound`] when the session is not stored or has no such run, the store's.
    pub async fn replay<Form>(&self, agent: impl IntoAgent<Form>, run: RunId) -> Result<Outcome> {
        self.replay_shared(agent.into_agent(), run).await
    }

    async fn replay_shared(&self, agent: Arc<dyn Agent>, run: RunId) -> Result<Outcome> {
        let store = self.store()?;
        let mut found = store.query(&SessionFilter::id(self.id().clone())).await?;
        let info = found.pop().ok_or_else(|| Error::no_session(self.id()))?;
        let events = run_events(store, self.id(), run).await?;
        let Some(first) = events.first() else {
            return Err(Error::new(ErrorKind::NotFound, "the session has no such run")
                .with("session", self.id().as_str())
                .with("run", run.to_string()));
        };
        let before = Box::pin(self.state_at(Moment::Event(first.seq.saturating_sub(1)))).await?;
        let time = RecordedTime::default();
        let offline = Arc::new(RuntimeBuilder::default().clock(time.clone()).env());
        let live = Arc::clone(self.env());
        let recording =
            Recording { record: info.record, before, events, live, offline, time, deps: self.1.clone() };
        Box::pin(replay(recording, agent)).await
    }

    pub(super) fn store(&self) -> Result<&SharedStore> {
        self.env().store.as_ref().ok_or_else(|| Error::no_session(self.id()))
    }
}

fn line(envelope: &Envelope) -> Result<String> {
    serde_json::to_string(envelope)
        .map_err(|error| Error::new(ErrorKind::Internal, "an event does not serialize").caused_by(error))
}

/// Returns the events of a run from its start on, with those that others stored meanwhile; empty for no such run.
async fn run_events(store: &SharedStore, id: &SessionId, run: RunId) -> Result<Vec<Envelope>> {
    let (mut events, mut windows) = (Vec::new(), Windows::after(store, id, 0));
    while let Some(rows) = windows.next().await? {
        for row in rows {
            let columns = row.columns();
            let starts = columns.kind == "run_started";
            if events.is_empty() && !(starts && columns.run == run) {
                continue;
            }
            if starts && !events.is_empty() {
                return Ok(events);
            }
            events.push(row.into_envelope(id)?);
            if columns.kind == "run_finished" {
                return Ok(events);
            }
        }
    }
    Ok(events)
}
