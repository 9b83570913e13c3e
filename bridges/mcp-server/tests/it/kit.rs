//! Servers, clients and tools of these tests.

use std::sync::Arc;

use async_trait::async_trait;
use entourage_core::{
    Result,
    tool::{Access, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec, Tools},
};
use entourage_mcp_server::ToolServer;
use entourage_testkit::Gate;
use rmcp::{
    ClientHandler, RoleClient,
    model::{
        CallToolRequestParams, CallToolResult, ClientRequest, ProgressNotificationParam, ProtocolVersion,
        Request, ServerResult,
    },
    service::{
        ClientLifecycleMode, ClientServiceExt, NotificationContext, PeerRequestOptions, RequestHandle,
        RunningService,
    },
};
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};

/// Kept by a client that was told of a change of the tools.
pub(crate) const CHANGED: &str = "the tools changed";

/// A client that keeps the messages of progress.
pub(crate) struct Listener(pub(crate) mpsc::UnboundedSender<(f64, String)>);

impl ClientHandler for Listener {
    async fn on_progress(&self, step: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let _ = self.0.send((step.progress, step.message.unwrap_or_default()));
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        let _ = self.0.send((0.0, CHANGED.to_owned()));
    }
}

pub(crate) struct Client {
    pub(crate) service: RunningService<RoleClient, Listener>,
    pub(crate) progress: mpsc::UnboundedReceiver<(f64, String)>,
    /// The server; `None` for one over HTTP.
    pub(crate) serving: Option<JoinHandle<Result<()>>>,
}

/// The ways in which a client may begin.
pub(crate) fn lifecycles() -> [ClientLifecycleMode; 2] {
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    [ClientLifecycleMode::Initialize, ClientLifecycleMode::Discover { preferred_versions }]
}

/// Connects a client to a server in this process.
pub(crate) async fn connect(server: ToolServer) -> Client {
    connect_by(server, ClientLifecycleMode::Initialize).await
}

pub(crate) async fn connect_by(server: ToolServer, lifecycle: ClientLifecycleMode) -> Client {
    let (here, there) = tokio::io::duplex(64 << 10);
    let (read, write) = tokio::io::split(there);
    let serving = Some(tokio::spawn(server.serve_io(read, write)));
    let (sender, progress) = mpsc::unbounded_channel();
    let service = Listener(sender).serve_with_lifecycle(here, lifecycle).await.unwrap();
    Client { service, progress, serving }
}

impl Client {
    pub(crate) async fn call(&self, name: &str, arguments: Value) -> CallToolResult {
        self.service.call_tool(params(name, &arguments)).await.unwrap()
    }

    /// Calls a tool, and returns its text and if it is an error.
    pub(crate) async fn text(&self, name: &str, arguments: Value) -> (String, bool) {
        told(&self.call(name, arguments).await)
    }

    /// Begins a call without waiting for its result.
    pub(crate) async fn begin(&self, name: &str, arguments: Value) -> RequestHandle<RoleClient> {
        let request = ClientRequest::CallToolRequest(Request::new(params(name, &arguments)));
        self.service.send_cancellable_request(request, PeerRequestOptions::no_options()).await.unwrap()
    }

    pub(crate) async fn names(&self) -> Vec<String> {
        self.service.list_all_tools().await.unwrap().into_iter().map(|tool| tool.name.into_owned()).collect()
    }

    /// Closes the connection and waits for the server to end.
    pub(crate) async fn close(self) {
        self.service.cancel().await.unwrap();
        if let Some(serving) = self.serving {
            serving.await.unwrap().unwrap();
        }
    }
}

pub(crate) async fn result(handle: RequestHandle<RoleClient>) -> (String, bool) {
    match handle.await_response().await.unwrap() {
        ServerResult::CallToolResult(result) => told(&result),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn params(name: &str, arguments: &Value) -> CallToolRequestParams {
    CallToolRequestParams::new(name.to_owned()).with_arguments(arguments.as_object().unwrap().clone())
}

pub(crate) fn told(result: &CallToolResult) -> (String, bool) {
    let texts: Vec<_> = result.content.iter().map(|it| it.as_text().unwrap().text.clone()).collect();
    (texts.join("\n"), result.is_error.unwrap_or_default())
}

pub(crate) fn tools<const N: usize>(tools: [Arc<dyn Tool>; N]) -> Tools {
    Tools::new(tools).unwrap()
}

/// A tool that reports steps, and ends when the gate opens; it counts its futures that are alive.
#[derive(Debug, Clone)]
pub(crate) struct Steps {
    spec: ToolSpec,
    times: u32,
    is_slow: bool,
    pub(crate) gate: Gate,
    alive: Arc<watch::Sender<usize>>,
}

impl Steps {
    pub(crate) fn new() -> Self {
        let spec =
            ToolSpec::new("steps", "Takes steps.", json!({"type": "object"})).with_access(Access::READ);
        Self { spec, times: 1, is_slow: false, gate: Gate::new(), alive: Arc::new(watch::Sender::new(0)) }
    }

    /// Reports as many steps.
    pub(crate) fn times(self, times: u32) -> Self {
        Self { times, ..self }
    }

    /// Reports steps for ever, each when others had their turn.
    pub(crate) fn for_ever(self) -> Self {
        Self { times: u32::MAX, is_slow: true, ..self }
    }

    /// Waits until as many of its futures are alive.
    pub(crate) async fn alive(&self, count: usize) {
        self.alive.subscribe().wait_for(|alive| *alive == count).await.unwrap();
    }

    pub(crate) fn is_alive(&self) -> bool {
        *self.alive.borrow() > 0
    }
}

/// Counts a call as alive until its future is dropped.
struct Alive<'a>(&'a watch::Sender<usize>);

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|alive| *alive -= 1);
    }
}

#[async_trait]
impl Tool for Steps {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, _: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        self.alive.send_modify(|alive| *alive += 1);
        let _alive = Alive(&self.alive);
        for _ in 0..self.times {
            cx.progress("half");
            if self.is_slow {
                tokio::task::yield_now().await;
            }
        }
        self.gate.pass().await;
        Ok(ToolOutput::text("done"))
    }
}
