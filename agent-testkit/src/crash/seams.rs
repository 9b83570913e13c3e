//! The seams at which a life is watched and cut: around its store, its models and its tools.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use async_trait::async_trait;
use entourage_core::{
    Result, SessionId,
    agent::AgentPart,
    message::ToolResult,
    provider::{CallContext, Delta, DeltaStream, Provider, Request},
    session::{Batch, Lease, ReadRange, Row, SessionFilter, SessionInfo, SessionStore, SharedStore},
    tool::{Footprint, Tool, ToolContext, ToolError, ToolInput, ToolLayer, ToolOutput, ToolSpec},
};
use futures_util::Stream;
use serde_json::Value;

use super::{
    UNKNOWN,
    life::{Life, Note, Working},
};

#[derive(Debug)]
pub(super) struct WatchedTool {
    tool: Arc<dyn Tool>,
    life: Life,
}

impl WatchedTool {
    pub(super) fn new(tool: Arc<dyn Tool>, life: Life) -> Self {
        Self { tool, life }
    }
}

#[async_trait]
impl Tool for WatchedTool {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let (spec, key) = (self.tool.spec(), cx.idempotency_key());
        self.life.note(Note::Called {
            key: key.clone(),
            tool: spec.name().to_owned(),
            repeat: spec.repeat(),
        });
        let _working = self.life.working();
        let call = async {
            let result = self.tool.call(input, cx).await;
            self.life.note(Note::Returned { key });
            result
        };
        self.life.through(true, call).await
    }

    fn footprint(&self, arguments: &Value) -> Footprint {
        self.tool.footprint(arguments)
    }

    async fn preview(&self, input: ToolInput, cx: &ToolContext<'_>) -> Option<String> {
        self.tool.preview(input, cx).await
    }

    fn parts(&self) -> Vec<AgentPart> {
        self.tool.parts()
    }

    fn layers(&self) -> &[Arc<dyn ToolLayer>] {
        self.tool.layers()
    }
}

#[derive(Debug)]
pub(super) struct WatchedProvider {
    provider: Arc<dyn Provider>,
    life: Life,
}

impl WatchedProvider {
    pub(super) fn new(provider: Arc<dyn Provider>, life: Life) -> Self {
        Self { provider, life }
    }
}

#[async_trait]
impl Provider for WatchedProvider {
    fn name(&self) -> &str {
        self.provider.name()
    }

    async fn stream(&self, request: Request, cx: &CallContext) -> Result<DeltaStream> {
        let results = request.messages.iter().flat_map(|message| message.tool_results());
        let unknown = results.filter(|result| is_unknown(result)).count();
        self.life.note(Note::Asked { request: cx.request, unknown });
        let working = self.life.working();
        let stream = self.life.through(true, self.provider.stream(request, cx)).await?;
        Ok(Box::pin(WatchedStream { stream, life: self.life.clone(), _working: working }))
    }
}

/// True if the result says that the outcome of the call is unknown.
pub(super) fn is_unknown(result: &ToolResult) -> bool {
    result.is_error && result.to_text().contains(UNKNOWN)
}

struct WatchedStream {
    stream: DeltaStream,
    life: Life,
    _working: Working,
}

impl Stream for WatchedStream {
    type Item = Result<Delta>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.life.is_dead() {
            return Poll::Pending;
        }
        let polled = self.stream.as_mut().poll_next(cx);
        if self.life.goes_on() { polled } else { Poll::Pending }
    }
}

/// A watched store. Only the first wait of an operation is a point, since the number of polls is random.
#[derive(Debug)]
pub(super) struct WatchedStore {
    store: SharedStore,
    life: Life,
}

impl WatchedStore {
    pub(super) fn new(store: SharedStore, life: Life) -> Self {
        Self { store, life }
    }
}

#[async_trait]
impl SessionStore for WatchedStore {
    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        self.life.through(false, self.store.append(session, expected, batch)).await
    }

    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        self.life.through(false, self.store.read(session, range)).await
    }

    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        self.life.through(false, self.store.query(filter)).await
    }

    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()> {
        self.life.through(false, self.store.lease(session, lease)).await
    }

    async fn delete(&self, session: &SessionId) -> Result<u64> {
        self.life.through(false, self.store.delete(session)).await
    }
}
