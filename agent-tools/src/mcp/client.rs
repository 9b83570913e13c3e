//! This side of a connection: what a server may ask of its client, and what it tells about its calls.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use entourage_core::{bound, permission::Approver};
use rmcp::{
    ClientHandler,
    model::{
        ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
        ElicitationCapability, ErrorData, FormElicitationCapability, Implementation,
        ProgressNotificationParam, ProgressToken, ProtocolVersion, UrlElicitationCapability,
    },
    service::{NotificationContext, RequestContext, RoleClient},
};
use tokio::sync::{Notify, watch};

use super::{
    content,
    elicit::{Asker, elicit},
};

/// Reports of progress that wait to be shown; more than these are left out.
const REPORTS: usize = 16;

/// Answers a server.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) server: String,
    pub(super) calls: Arc<Calls>,
    /// Told when the server's tools changed.
    pub(super) changed: Arc<Notify>,
    pub(super) approver: Option<Arc<dyn Approver>>,
    /// Held while the user is asked.
    pub(super) asks: Arc<tokio::sync::Mutex<()>>,
}

/// The calls that run on one connection.
#[derive(Debug, Default)]
pub(super) struct Calls(Mutex<HashMap<ProgressToken, Call>>);

#[derive(Debug)]
struct Call {
    progress: Arc<Reports>,
    /// The run that asks, if questions are answered, and what ends with the call.
    asks: Option<(Asker, watch::Receiver<()>)>,
}

/// Reports of the progress of one call. A channel would be most of what a call allocates, and few calls report.
#[derive(Debug, Default)]
pub(super) struct Reports {
    waiting: Mutex<Vec<String>>,
    told: Notify,
}

impl Reports {
    fn add(&self, text: String) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Progress that nobody has time for is left out.
        if waiting.len() < REPORTS {
            waiting.push(text);
            drop(waiting);
            self.told.notify_one();
        }
    }

    /// Waits until there may be some.
    pub(super) async fn told(&self) {
        self.told.notified().await;
    }

    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One running call, until this is dropped.
pub(super) struct Open {
    calls: Arc<Calls>,
    token: ProgressToken,
    _alive: Option<watch::Sender<()>>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.calls.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.token);
    }
}

impl Calls {
    /// Notes a call, with what collects its reports of progress.
    pub(super) fn open(self: &Arc<Self>, token: ProgressToken, asker: Option<Asker>) -> (Open, Arc<Reports>) {
        let reports = Arc::<Reports>::default();
        let (alive, asks) = asker
            .map(|asker| {
                let (sender, alive) = watch::channel(());
                (sender, (asker, alive))
            })
            .unzip();
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.insert(token.clone(), Call { progress: Arc::clone(&reports), asks });
        drop(calls);
        (Open { calls: Arc::clone(self), token, _alive: alive }, reports)
    }

    /// The run that a question of the server is about: that of the calls which run now, if they are all of one run.
    fn asker(&self) -> Option<(Asker, watch::Receiver<()>)> {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut others = calls.values().filter_map(|call| call.asks.as_ref());
        let first = others.next()?;
        let is_one = others.all(|(asker, _)| asker.is_of_run(&first.0));
        is_one.then(|| first.clone())
    }

    fn report(&self, token: &ProgressToken, text: String) {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(call) = calls.get(token) {
            call.progress.add(text);
        }
    }
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = self.approver.is_some().then(|| {
            let form = ElicitationCapability::new().with_form(FormElicitationCapability::default());
            form.with_url(UrlElicitationCapability::default())
        });
        // The version that `initialize` names; the newer ones have no such request.
        ClientConfig::new(capabilities, Implementation::new("entourage", env!("CARGO_PKG_VERSION")))
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        // One question at a time: a person answers no flood of them.
        let (Some(approver), Some((asker, mut alive)), Ok(_turn)) =
            (&self.approver, self.calls.asker(), self.asks.try_lock())
        else {
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        };
        tokio::select! {
            answer = elicit(&self.server, request, &asker, &**approver) => Ok(answer),
            // The call has ended, so nothing is asked for it.
            _ = alive.changed() => Ok(ElicitResult::new(ElicitationAction::Cancel)),
        }
    }

    async fn on_progress(&self, report: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let share = match report.total {
            Some(total) => format!("{} of {total}", report.progress),
            None => report.progress.to_string(),
        };
        let text = match report.message {
            Some(message) => format!("{share}: {}", content::told(&message, bound::WORD)),
            None => share,
        };
        self.calls.report(&report.progress_token, text);
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }
}
