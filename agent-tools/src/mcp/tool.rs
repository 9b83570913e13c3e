//! Calls of a server's tools.

use std::{pin::pin, sync::Arc};

use async_trait::async_trait;
use entourage_core::{
    bound,
    tool::{Repeat, Tool, ToolContext, ToolError, ToolInput, ToolLayer, ToolOutput, ToolSpec},
};
use rmcp::{
    model::{
        CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotification,
        CancelledNotificationParam, ClientRequest, CustomResult, InputRequest, InputRequiredResult,
        InputResponses, RequestId, ServerResult,
    },
    service::{PeerRequestOptions, ServiceError},
};
use serde_json::{Map, Value};

use super::{
    answer::Answer,
    content,
    declared::{Declared, Kind},
    elicit::{Asker, elicit},
    ends::Sent,
    handshake::wanted_for_call,
    link::{LOGINS, Link, Live},
    long, readable, salvage, unread,
};

/// Most times that a call is put again with answers to the server's questions.
const ROUNDS: usize = 16;

/// The reason that a call came to nothing.
#[derive(Debug)]
enum Failed {
    /// The server did not get a request, or knows nothing of the connection.
    Unsent,
    Answered(ServiceError),
}

impl Failed {
    fn error(&self) -> Option<&ServiceError> {
        match self {
            Self::Unsent => None,
            Self::Answered(error) => Some(error),
        }
    }

    /// True if the call can be made once more, on another connection.
    fn is_repeated(&self, repeat: Repeat) -> bool {
        match self {
            Self::Unsent => true,
            Self::Answered(error) => matches!(error, ServiceError::TransportClosed) && repeat == Repeat::Safe,
        }
    }
}

/// A tool of a server.
#[derive(Debug)]
pub(super) struct RemoteTool {
    pub(super) link: Arc<Link>,
    pub(super) declared: Arc<Declared>,
}

#[async_trait]
impl Tool for RemoteTool {
    fn spec(&self) -> &ToolSpec {
        &self.declared.spec
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let Value::Object(arguments) = input.arguments else {
            return Err(ToolError::tell("the arguments are no object"));
        };
        match self.perform_with_login(&arguments, cx).await? {
            Err(failed) if failed.is_repeated(self.declared.spec.repeat()) => {
                Box::pin(self.again(failed, &arguments, cx)).await
            }
            other => other.map_err(|error| self.told(&error)),
        }
    }

    fn layers(&self) -> &[Arc<dyn ToolLayer>] {
        &self.declared.layers
    }
}

impl RemoteTool {
    /// The connection, on which the tool is still what was judged.
    async fn live(&self) -> Result<Arc<Live>, ToolError> {
        let live = self.link.live().await.map_err(ToolError::Tell)?;
        match self.link.is_current(&self.declared) {
            true => Ok(live),
            false => Err(ToolError::tell(
                "the server changed this tool meanwhile; look at it again before you call it",
            )),
        }
    }

    /// Performs a call, and logs in where the server wants that before it does.
    async fn perform_with_login(
        &self,
        arguments: &Map<String, Value>,
        cx: &ToolContext<'_>,
    ) -> Result<Result<ToolOutput, Failed>, ToolError> {
        for round in 0..LOGINS {
            let seen = self.link.logins();
            let live = self.live().await?;
            let performed = self.perform(&live, arguments, cx).await;
            let wanted = performed.as_ref().err().and_then(Failed::error).and_then(wanted_for_call);
            match wanted.filter(|wanted| wanted.is_more || round == 0) {
                Some(wanted) => {
                    Box::pin(self.link.log_in_again(wanted, seen)).await.map_err(ToolError::Tell)?;
                }
                None => return Ok(performed),
            }
        }
        let live = self.live().await?;
        Ok(Box::pin(self.perform(&live, arguments, cx)).await)
    }

    /// Performs a call once more, on another connection.
    async fn again(
        &self,
        failed: Failed,
        arguments: &Map<String, Value>,
        cx: &ToolContext<'_>,
    ) -> Result<ToolOutput, ToolError> {
        // One that failed while the call ran may be over, and is found to be by the next request alone.
        let most = if matches!(failed, Failed::Unsent) { 1 } else { 2 };
        for _ in 0..most {
            let live = self.live().await?;
            match self.perform(&live, arguments, cx).await {
                Err(Failed::Unsent) => {}
                other => return other.map_err(|error| self.told(&error)),
            }
        }
        // The server may have performed the call before.
        Err(self.told(&failed))
    }

    /// Performs a call until the server is shut down or its connection ends, whatever the call waits for.
    async fn perform(
        &self,
        live: &Live,
        arguments: &Map<String, Value>,
        cx: &ToolContext<'_>,
    ) -> Result<ToolOutput, Failed> {
        let sent = Sent::default();
        let work = pin!(self.perform_on(live, arguments, &sent, cx));
        let done = match self.link.until_shut(live.ended().or_done(work)).await {
            // A server that takes no request performs no call either.
            Err(ServiceError::TransportSend(error)) if live.takes_nothing(error.error.as_ref()) => {
                sent.take_back();
                Err(ServiceError::TransportClosed)
            }
            other => other,
        };
        // Those that only read tell nothing of it.
        let is_unsent = || matches!(self.declared.kind, Kind::Tool(_)) && !sent.is_any();
        done.map_err(|error| match error {
            ServiceError::TransportClosed if is_unsent() => Failed::Unsent,
            error => Failed::Answered(error),
        })
    }

    async fn perform_on(
        &self,
        live: &Live,
        arguments: &Map<String, Value>,
        sent: &Sent,
        cx: &ToolContext<'_>,
    ) -> Result<ToolOutput, ServiceError> {
        let text = |name: &str| arguments.get(name).and_then(Value::as_str).map(str::to_owned);
        let output = match &self.declared.kind {
            Kind::Tool(name) => self.call_tool(live, name, arguments, sent, cx).await.map(content::output_of),
            // Apart, so that calls of tools have no room for them.
            Kind::Resources => match text("uri") {
                Some(uri) => Box::pin(readable::read(live.peer(), uri)).await,
                None => Box::pin(readable::resources(live.peer())).await,
            },
            Kind::Prompts => match text("name") {
                Some(name) => Box::pin(readable::prompt(live.peer(), name, arguments.get("arguments"))).await,
                None => Box::pin(readable::prompts(live.peer())).await,
            },
        };
        if matches!(&output, Ok(_) | Err(ServiceError::McpError(_))) {
            live.hear();
        }
        output
    }

    /// Calls a tool of the server. Shows its progress, and answers its questions.
    async fn call_tool(
        &self,
        live: &Live,
        name: &str,
        arguments: &Map<String, Value>,
        sent: &Sent,
        cx: &ToolContext<'_>,
    ) -> Result<CallToolResult, ServiceError> {
        let mut answered = None;
        for _ in 0..ROUNDS {
            let mut params = CallToolRequestParams::new(name.to_owned()).with_arguments(arguments.clone());
            if let Some((state, answers)) = answered.take() {
                params.request_state = state;
                params.input_responses = Some(answers);
            }
            let mut request = CallToolRequest::new(params);
            request.extensions.insert(sent.clone());
            let request = ClientRequest::CallToolRequest(request);
            match ask(live, request, cx).await? {
                ServerResult::CallToolResult(result) => return Ok(result),
                ServerResult::InputRequiredResult(asked) => {
                    let state = asked.request_state.clone();
                    answered = Some((state, Box::pin(self.answers(live, asked, cx)).await?));
                }
                ServerResult::EmptyResult(_) | ServerResult::TaskAckResult(_) => {
                    return Ok(CallToolResult::success(Vec::new()));
                }
                ServerResult::CustomResult(CustomResult(value)) => {
                    return salvage::call(value);
                }
                _ => return Err(ServiceError::UnexpectedResponse),
            }
        }
        Err(ServiceError::InputRequiredRoundsExceeded { max_rounds: ROUNDS })
    }

    /// Answers what the server has to know before it can go on.
    async fn answers(
        &self,
        live: &Live,
        asked: InputRequiredResult,
        cx: &ToolContext<'_>,
    ) -> Result<InputResponses, ServiceError> {
        let approver = live.approver().ok_or(ServiceError::UnexpectedResponse)?;
        let mut answers = InputResponses::new();
        for (key, request) in asked.input_requests.unwrap_or_default() {
            // No other question is among what this client says that it answers.
            let InputRequest::Elicitation(request) = request else {
                return Err(ServiceError::UnexpectedResponse);
            };
            let server = &self.link.server.name;
            let answer = elicit(server, request.params, &Asker::of(cx), &**approver).await;
            let answer = serde_json::to_value(answer).map_err(|_| ServiceError::UnexpectedResponse)?;
            answers.insert(key, answer);
        }
        Ok(answers)
    }

    /// What the model is told of a failure.
    fn told(&self, failed: &Failed) -> ToolError {
        let server = &self.link.server.name;
        let Failed::Answered(error) = failed else {
            return ToolError::Tell(format!(
                "the MCP server `{server}` did not take the call, and performed nothing"
            ));
        };
        ToolError::Tell(match error {
            ServiceError::McpError(error) if error.code.0 == long::CODE => {
                let text = content::told(&error.message, bound::TEXT);
                format!("the MCP server `{server}` answered, but {text} and was not read; ask for less")
            }
            ServiceError::McpError(error) if error.code.0 == unread::CODE => {
                let text = content::told(&error.message, bound::TEXT);
                format!(
                    "the MCP server `{server}` answered, but {text}. So the outcome of the call is unknown; find out \
                     before you repeat it"
                )
            }
            ServiceError::McpError(error) => {
                let text = content::told(&error.message, bound::TEXT);
                format!("the MCP server `{server}` refused the call: {text} (code {})", error.code.0)
            }
            error if wanted_for_call(error).is_some_and(|wanted| wanted.is_more) => {
                format!(
                    "the MCP server `{server}` refused the call: it wants more rights than the user granted"
                )
            }
            error if wanted_for_call(error).is_some() => self.link.wants_login(),
            ServiceError::TransportClosed => format!(
                "the MCP server `{server}` ended while the call ran, so its outcome is unknown; find out before you \
                 repeat it"
            ),
            other => match Answer::of_call(other) {
                Some(answer) if answer.is_refusal() => {
                    format!("the MCP server `{server}` refused the call with {answer}, and performed nothing")
                }
                Some(answer) => format!(
                    "the MCP server `{server}` answered with {answer}, so the outcome of the call is unknown; find out \
                     before you repeat it"
                ),
                None => {
                    let (text, next) = match other {
                        ServiceError::TransportSend(error) => (
                            error.error.to_string(),
                            ". So the outcome of the call is unknown; find out before you repeat it",
                        ),
                        other => (other.to_string(), ""),
                    };
                    let text = self.link.server.told(&text, bound::WORD);
                    format!("the MCP server `{server}` gave no usable answer: {text}{next}")
                }
            },
        })
    }
}

/// Sends a request of a call. The server is told when the future is dropped.
async fn ask(
    live: &Live,
    request: ClientRequest,
    cx: &ToolContext<'_>,
) -> Result<ServerResult, ServiceError> {
    let peer = live.peer();
    let handle = peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await?;
    let mut cancel = Cancel { live, id: Some(handle.id.clone()) };
    // Without one who answers them there are no questions.
    let asker = live.approver().map(|_| Asker::of(cx));
    let (_open, reports) = live.calls.open(handle.progress_token.clone(), asker);
    let answer = handle.await_response();
    tokio::pin!(answer);
    loop {
        let answered = tokio::select! {
            biased;
            answer = &mut answer => Some(answer),
            () = reports.told() => None,
        };
        reports.take().into_iter().for_each(|report| cx.progress(report));
        if let Some(answer) = answered {
            cancel.id = None;
            return answer;
        }
    }
}

/// Tells the server that nobody waits for a call any more.
struct Cancel<'a> {
    live: &'a Live,
    id: Option<RequestId>,
}

impl Drop for Cancel<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let (peer, ended) = (self.live.peer().clone(), self.live.ended());
        let notice = CancelledNotification::new(CancelledNotificationParam::new(
            Some(id),
            Some("the call was cancelled".to_owned()),
        ));
        self.live.runtime.spawn(async move {
            let told = pin!(peer.send_notification(notice.into()));
            ended.or_done(told).await
        });
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::future::pending;

    use entourage_core::{
        Result,
        agent::Agent,
        run::{Outcome, RunContext, Task},
        tool::Tools,
    };
    use entourage_runtime::{AllowAll, Runtime, permission::Policy};
    use serde_json::json;

    use super::*;
    use crate::mcp::{McpLifecycle, McpServer};

    /// Calls a tool on a connection that ended when the call had it, and once more.
    #[derive(Debug)]
    struct Late(RemoteTool, std::path::PathBuf);

    #[async_trait]
    impl Tool for Late {
        fn spec(&self) -> &ToolSpec {
            self.0.spec()
        }

        async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
            let live = self.0.live().await?;
            std::fs::write(&self.1, "").map_err(|error| ToolError::tell(error.to_string()))?;
            let never = pin!(pending::<Result<(), ServiceError>>());
            assert!(live.ended().or_done(never).await.is_err());
            let performed = self.0.perform(&live, &Map::new(), cx).await;
            assert!(matches!(performed, Err(Failed::Unsent)), "{performed:?}");
            self.0.call(input, cx).await
        }
    }

    #[derive(Clone)]
    struct Caller(Tools);

    #[async_trait]
    impl Agent for Caller {
        fn name(&self) -> &str {
            "caller"
        }

        async fn run(&self, _: Task, cx: &RunContext) -> Result<Outcome> {
            let result = cx.call_tool(&self.0, "mcp_files_write", &json!({})).await?;
            Ok(Outcome::completed(result.to_text()))
        }
    }

    #[tokio::test]
    async fn a_call_that_comes_too_late_for_its_connection_is_not_unknown() {
        const SCRIPT: &str = r#"answer() { printf '{"jsonrpc":"2.0","id":%s,"result":{%s}}\n' "$id" "$1"; }
            while read -r line; do
                id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
                case "$line" in
                    *'"initialize"'*)
                        about='"capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}'
                        answer "\"protocolVersion\":\"2025-06-18\",$about" ;;
                    *'"tools/list"'*)
                        first=$(mkdir "$0.first" 2>/dev/null && echo yes)
                        answer '"tools":[{"name":"write","inputSchema":{"type":"object"}}]'
                        if [ "$first" ]; then
                            while ! [ -e "$0" ]; do sleep 0.01; done
                            exec sleep 600 >&-
                        fi ;;
                    *'"tools/call"'*) answer '"content":[{"type":"text","text":"good"}]' ;;
                esac
            done"#;
        let dir = tempfile::tempdir().unwrap();
        let close = dir.path().join("close");
        let server = McpServer::command("files", "sh", ["-c", SCRIPT, close.to_str().unwrap()])
            .with_lifecycle(McpLifecycle::Initialize);
        let link = Arc::new(Link::new(server, Arc::default(), None, tokio::runtime::Handle::current()));
        link.live().await.unwrap();
        let declared = link.tools().remove(0);
        let late = Late(RemoteTool { link: Arc::clone(&link), declared }, close);
        let runtime = Runtime::builder().approver(AllowAll).policy(Policy::allow_all()).build();
        let caller = Caller(Tools::new([Arc::new(late) as Arc<dyn Tool>]).unwrap());
        let outcome = runtime.session().start(&caller, "go").outcome().await.unwrap();
        assert_eq!(outcome.text, "good");
        link.shut_down().await;
    }
}
