//! The protocol's requests, answered from what is served.

use std::sync::{Arc, OnceLock};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, Implementation, InitializeRequestParams, InitializeResult,
        ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, SubscriptionFilter, Tool,
    },
    service::{NotificationContext, RequestContext, SubscriptionContext},
};
use tokio::runtime::Handle;
use tokio_util::task::{AbortOnDropHandle, task_tracker::TaskTrackerToken};

use crate::{
    bounds::MANY_LISTEN, call::Call, changes, conversation::Conversation, in_flight::Admitted, offer,
    progress::Progress, served::Served,
};

/// Answers the requests of one client.
pub(crate) struct Handler {
    served: Arc<Served>,
    /// The conversation of a client that opened a session.
    own: OnceLock<Own>,
    /// The conversation of one that did not: newer clients send requests that stand alone.
    shared: Arc<Conversation>,
    /// Tells the client of changes; ends with the session.
    telling: OnceLock<AbortOnDropHandle<()>>,
}

/// A conversation of one client, whose questions are closed when it is dropped.
struct Own {
    conversation: Arc<Conversation>,
    served: Arc<Served>,
    /// The server waits for it.
    _token: TaskTrackerToken,
}

impl Own {
    fn new(conversation: Arc<Conversation>, served: &Arc<Served>) -> Self {
        Self { conversation, served: Arc::clone(served), _token: served.running.token() }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // Without a runtime the process ends, and leaves them.
        if let Ok(runtime) = Handle::try_current() {
            let conversation = Arc::clone(&self.conversation);
            self.served.running.spawn_on(async move { conversation.close().await }, &runtime);
        }
    }
}

impl Handler {
    pub(crate) fn new(served: Arc<Served>, shared: Arc<Conversation>) -> Self {
        Self { served, own: OnceLock::new(), shared, telling: OnceLock::new() }
    }

    /// Creates the handler of the only client, whose conversation is this one however it begins.
    pub(crate) fn of_one(served: Arc<Served>, conversation: Arc<Conversation>) -> Self {
        let own = Own::new(Arc::clone(&conversation), &served);
        Self { own: OnceLock::from(own), ..Self::new(served, conversation) }
    }
}

/// Returns the answer to a request that its client cancelled before it began, which is not sent.
fn cancelled() -> ErrorData {
    ErrorData::internal_error("the request was cancelled before it began", None)
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        let info = Implementation::new(self.served.name.clone(), self.served.version.clone());
        let config = ServerConfig::new(capabilities).with_server_info(info);
        match &self.served.instructions {
            Some(instructions) => config.with_instructions(instructions.clone()),
            None => config,
        }
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let failed = |error| ErrorData::internal_error(format!("the session cannot begin: {error}"), None);
        let conversation = Conversation::new(&self.served).map_err(failed)?;
        self.own.get_or_init(|| Own::new(conversation, &self.served));
        context.peer.set_peer_info(request.clone());
        self.negotiate_initialize(&request)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.telling.get_or_init(|| changes::tell(self.served.changes.clone(), context.peer));
    }

    fn accepted_subscription_filter(&self, _: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::builder().tools_list_changed().build())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let request = context.request_context();
        if !request.extensions.get::<Admitted>().is_none_or(|it| it.begin(&request.ct)) {
            return Err(cancelled());
        }
        let Ok(_place) = self.served.listeners.try_acquire() else {
            return Err(ErrorData::internal_error(MANY_LISTEN, None));
        };
        let unheard = &self.served.unheard;
        changes::tell_subscriber(self.served.changes.clone(), &context, unheard).await;
        Ok(())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.served.offered().map(|spec| offer::tool(&spec)).collect()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.served.offered().find(|spec| spec.name() == name).map(|spec| offer::tool(&spec))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let _running = self.served.running.token();
        let admitted = context.extensions.get::<Admitted>();
        if !admitted.is_none_or(|it| it.begin(&context.ct)) {
            return Err(cancelled());
        }
        let call = Call { name: request.name.into_owned(), arguments: offer::arguments(request.arguments) };
        let ended = admitted.map(Admitted::ended).unwrap_or_default();
        let progress = Progress::new(&context.peer, context.meta.get_progress_token(), ended);
        let conversation = self.own.get().map_or(&self.shared, |own| &own.conversation);
        let mut result = std::pin::pin!(conversation.call(&self.served, call, progress, &context.ct));
        let result = tokio::select! {
            biased;
            result = &mut result => result,
            () = self.served.over.cancelled() => {
                // Its client may keep the connection, and read nothing.
                context.ct.cancel();
                result.await
            }
        };
        Ok(result.into())
    }
}
