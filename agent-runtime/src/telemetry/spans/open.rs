//! The open spans, by run, session and place of a call.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use entourage_core::{RequestId, RunId, SessionId, event::EffectKey, message::Message};
use tracing::Span;

/// Most runs with open spans. A run that dies without an end, for example when its store failed, stays until its
/// session goes on or it is the oldest.
const MOST: usize = 10_000;

#[derive(Default)]
pub(super) struct OpenRuns {
    /// Ids of runs sort by time: the first is the oldest.
    pub(super) runs: BTreeMap<RunId, OpenRun>,
    sessions: HashMap<SessionId, RunId>,
}

pub(super) struct OpenRun {
    session: SessionId,
    pub(super) span: Span,
    /// Sequence number of the event that began the run; 0 when that event was not seen.
    pub(super) seq: u64,
    /// Sequence number of the message whose calls are in flight; 0 when it was not seen.
    pub(super) calls: u64,
    pub(super) chats: HashMap<Option<RequestId>, Span>,
    /// Spans of tool calls by the place that names their child sessions: number of the message (or of the run) and
    /// index.
    pub(super) tools: HashMap<(u64, u64), Span>,
    /// True after a compaction.
    pub(super) compacted: bool,
    /// Messages that no model call was sent yet. Like `asked`, kept only when content is wanted.
    pub(super) unsaid: Vec<Arc<Message>>,
    /// The message whose calls are in flight.
    pub(super) asked: Option<Arc<Message>>,
}

impl OpenRun {
    pub(super) fn new(session: SessionId, span: Span) -> Self {
        Self {
            session,
            span,
            seq: 0,
            calls: 0,
            chats: HashMap::new(),
            tools: HashMap::new(),
            compacted: false,
            unsaid: Vec::new(),
            asked: None,
        }
    }

    /// The place of a call, unique within the run: number of the message (or of the run) and index.
    pub(super) fn place(&self, key: Option<EffectKey>, index: usize) -> (u64, u64) {
        let index = u64::try_from(index).unwrap_or(u64::MAX);
        match key {
            None => (self.calls, index),
            Some(key) => (self.seq, key.ordinal.saturating_add(index)),
        }
    }

    /// The call that started a child session.
    fn call(&self, seq: u64, index: u64) -> Option<&Span> {
        // No event has the number 0: such a session is not below a call.
        if seq == 0 {
            return None;
        }
        self.tools.get(&(seq, index)).or_else(|| self.tools.get(&(0, index)))
    }
}

impl OpenRuns {
    /// The span that started the session: a tool call, otherwise the run above.
    pub(super) fn parent(&self, session: &SessionId) -> Option<Span> {
        let above = |parent: &str| self.runs.get(self.sessions.get(&SessionId::new(parent).ok()?)?);
        if let Some((parent, _)) = session.role() {
            return above(parent).map(|run| run.span.clone());
        }
        let (parent, seq, index) = session.origin()?;
        let run = above(parent)?;
        Some(run.call(seq, index).unwrap_or(&run.span).clone())
    }

    /// Adds a run and returns those removed for it: an unfinished earlier run of the session, or the oldest of too
    /// many.
    pub(super) fn insert(&mut self, id: RunId, run: OpenRun) -> Vec<OpenRun> {
        let earlier = self.sessions.get(&run.session).copied();
        let mut lost: Vec<_> = earlier.and_then(|id| self.remove(id)).into_iter().collect();
        if self.runs.len() >= MOST
            && let Some(oldest) = self.runs.keys().next().copied()
        {
            lost.extend(self.remove(oldest));
        }
        self.sessions.insert(run.session.clone(), id);
        lost.extend(self.runs.insert(id, run));
        lost
    }

    pub(super) fn remove(&mut self, id: RunId) -> Option<OpenRun> {
        let run = self.runs.remove(&id)?;
        if self.sessions.get(&run.session) == Some(&id) {
            self.sessions.remove(&run.session);
        }
        Some(run)
    }
}
