//! Progress of a call, as notifications to a client that asked for them.

use std::{fmt, future::pending, time::Duration};

use entourage_core::{
    SessionId,
    bound::{WORD, shortened},
    event::{Envelope, Event},
};
use futures_util::future::{BoxFuture, FutureExt};
use rmcp::{
    Peer, RoleServer,
    model::{ProgressNotificationParam, ProgressToken},
};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Time that a client has to read the last notifications of a call.
const FLUSH: Duration = Duration::from_secs(10);

/// The notifications of one call. One is sent at a time. A client that reads slowly misses steps in between, so nothing
/// piles up here.
pub(crate) struct Progress {
    client: Option<(Peer<RoleServer>, ProgressToken)>,
    steps: u32,
    sending: Option<BoxFuture<'static, ()>>,
    next: Option<String>,
    /// Cancelled once no notification is sent any more.
    ended: CancellationToken,
}

impl Progress {
    /// Creates the progress of a call; without a token, and once `ended` is cancelled, nothing is sent.
    pub(crate) fn new(
        peer: &Peer<RoleServer>,
        token: Option<ProgressToken>,
        ended: CancellationToken,
    ) -> Self {
        let client = token.map(|token| (peer.clone(), token));
        Self { client, steps: 0, sending: None, next: None, ended }
    }

    /// Reports an event of the call, if it is progress. `session` is that of the call; others are of agents below.
    pub(crate) fn see(&mut self, event: &Envelope, session: &SessionId) {
        if self.client.is_none() {
            return;
        }
        let is_below = event.origin.session != *session;
        let text = match &event.event {
            Event::Progress(progress) => progress.text.clone(),
            Event::ToolStarted(call) if is_below => format!("{}: {}", event.origin.agent, call.tool),
            Event::ApprovalRequested(question) => format!("asks whether `{}` may run", question.tool),
            _ => return,
        };
        self.tell(shortened(&text, WORD).into_owned());
    }

    fn tell(&mut self, text: String) {
        if self.sending.is_some() {
            self.next = Some(text);
            return;
        }
        let Some((peer, token)) = &self.client else { return };
        self.steps = self.steps.saturating_add(1);
        let step = ProgressNotificationParam::new(token.clone(), f64::from(self.steps)).with_message(text);
        let peer = peer.clone();
        // A client that is gone is no matter of the call.
        self.sending = Some(async move { peer.notify_progress(step).await.unwrap_or_default() }.boxed());
    }

    /// Waits until the notification in flight is sent, and begins with the next one. Pending without one. May be
    /// dropped at any time.
    pub(crate) async fn sent(&mut self) {
        match &mut self.sending {
            Some(sending) => sending.await,
            None => pending().await,
        }
        self.sending = None;
        if let Some(text) = self.next.take() {
            self.tell(text);
        }
    }

    /// Sends what is left, so that it arrives before the result. What its client does not read for long is dropped.
    pub(crate) async fn flush(mut self) {
        let ended = self.ended.clone();
        let all = async {
            while self.sending.is_some() {
                self.sent().await;
            }
        };
        ended.run_until_cancelled(timeout(FLUSH, all)).await;
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress").field("steps", &self.steps).finish_non_exhaustive()
    }
}
