//! A store, a model and an observer that note what passes through them, in order.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use entourage::{
    prelude::*,
    provider::{DeltaStream, Request},
    session::{SessionInfo, SharedStore},
    testkit,
    tool::{ToolInput, ToolSpec},
};
use entourage_core::{
    run::Observer,
    session::{Batch, Lease, ReadRange, Row},
};
use futures_util::StreamExt;

use super::label;

/// A line of a sequence diagram.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Note {
    /// One append to the store, with the kinds of its events.
    Stored(Vec<String>),
    /// The last message of a request to the model.
    Asked(String),
    /// The texts and calls of a reply that ended.
    Replied(String),
    /// The events of one append were shown to the caller.
    Shown(usize),
    /// A tool began, with its arguments.
    Called(String),
    /// A tool ended.
    Returned(String),
    /// A remark over the whole width.
    Remark(String),
}

/// What happened, in order. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Notes(Arc<Mutex<Vec<Note>>>);

impl Notes {
    pub(super) fn add(&self, note: Note) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(note);
    }

    /// A runtime on `store` whose appends and events are noted.
    pub(super) fn runtime(&self, store: &SharedStore) -> Runtime {
        let store = Watched { inner: Arc::clone(store), notes: self.clone() };
        testkit::runtime().store(store).observer(Watched { inner: (), notes: self.clone() }).build()
    }

    /// `model`, each request noted.
    pub(super) fn model(&self, model: &Model) -> Model {
        let notes = self.clone();
        model.clone().layer(move |inner: Arc<dyn Provider>| -> Arc<dyn Provider> {
            Arc::new(Watched { inner, notes })
        })
    }

    /// `tool`, each call noted.
    pub(super) fn tool(&self, tool: impl Tool + 'static) -> Arc<dyn Tool> {
        Arc::new(Watched { inner: Arc::new(tool) as Arc<dyn Tool>, notes: self.clone() })
    }

    /// The notes as a sequence diagram.
    pub(super) fn sequence(&self) -> String {
        let mut lines = vec![
            "sequenceDiagram".to_owned(),
            "participant C as caller".to_owned(),
            "participant R as run".to_owned(),
            "participant S as store".to_owned(),
            "participant M as model".to_owned(),
            "participant T as tools".to_owned(),
        ];
        let notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut shown = 0;
        for note in notes.iter().chain([&Note::Shown(0)]) {
            if let Note::Shown(count @ 1..) = note {
                shown += count;
                continue;
            }
            if shown > 0 {
                lines.push(format!("R-->>C: {shown} {}", if shown == 1 { "event" } else { "events" }));
                shown = 0;
            }
            lines.extend(note.line());
        }
        lines.join("\n    ")
    }
}

impl Note {
    fn line(&self) -> Option<String> {
        Some(match self {
            Self::Stored(kinds) => format!("R->>S: {}", kinds.join(", ")),
            Self::Asked(last) => format!("R->>M: {}", label(last)),
            Self::Replied(reply) => format!("M-->>R: {}", label(reply)),
            Self::Called(call) => format!("R->>T: {}", label(call)),
            Self::Returned(result) => format!("T-->>R: {}", label(result)),
            Self::Remark(text) => format!("Note over C,T: {}", label(text)),
            Self::Shown(_) => return None,
        })
    }
}

#[derive(Debug)]
struct Watched<T> {
    inner: T,
    notes: Notes,
}

impl Observer for Watched<()> {
    fn on_event(&self, event: &Envelope) {
        if event.event.is_stored() {
            self.notes.add(Note::Shown(1));
        }
    }
}

#[async_trait]
impl SessionStore for Watched<SharedStore> {
    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        let kinds: Vec<_> = batch.rows.iter().map(|row| row.columns().kind.into_owned()).collect();
        if !kinds.is_empty() {
            self.notes.add(Note::Stored(kinds));
        }
        self.inner.append(session, expected, batch).await
    }

    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        self.inner.read(session, range).await
    }

    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        self.inner.query(filter).await
    }

    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()> {
        self.inner.lease(session, lease).await
    }

    fn largest_batch(&self) -> usize {
        self.inner.largest_batch()
    }

    async fn delete(&self, session: &SessionId) -> Result<u64> {
        self.inner.delete(session).await
    }
}

#[async_trait]
impl Provider for Watched<Arc<dyn Provider>> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn stream(&self, request: Request, cx: &CallContext) -> Result<DeltaStream> {
        let last = request.messages.last().map(|message| {
            let results: Vec<_> =
                message.tool_results().map(|it| format!("{}: {}", it.name, it.to_text())).collect();
            if results.is_empty() { message.text() } else { results.join("\n") }
        });
        self.notes.add(Note::Asked(last.unwrap_or_default()));
        let (notes, mut reply) = (self.notes.clone(), Vec::new());
        let note = move |delta: &Result<Delta>| match delta {
            Ok(Delta::Text(text)) => reply.push(text.to_string()),
            Ok(Delta::ToolCallStart(call)) => reply.push(format!("calls {}", call.name)),
            Ok(Delta::Finish(_)) => notes.add(Note::Replied(reply.join(", "))),
            _ => {}
        };
        Ok(self.inner.stream(request, cx).await?.inspect(note).boxed())
    }
}

#[async_trait]
impl Tool for Watched<Arc<dyn Tool>> {
    fn spec(&self) -> &ToolSpec {
        self.inner.spec()
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let name = self.spec().name().to_owned();
        self.notes.add(Note::Called(name.clone()));
        let result = self.inner.call(input, cx).await;
        self.notes.add(Note::Returned(format!("{name} is done")));
        result
    }
}
