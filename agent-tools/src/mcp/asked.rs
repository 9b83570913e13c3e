//! What a server at an address asks of this program, and the messages to it for which nobody waits: the answers to
//! that, and notices that a call was cancelled.
//!
//! The library below reads on while its answers are not taken, and sends one such message after another. Here a server
//! with too many open requests is read no further, as one over pipes is, and no message waits for another one.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rmcp::model::{ClientJsonRpcMessage, ClientNotification, RequestId};
use tokio::{
    select,
    sync::{Notify, Semaphore},
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};

use super::ends::Part;

/// Requests of a server that are open at once.
const OPEN: usize = 32;
/// Longest time in which a request counts as open. Most are answered at once. What a person is asked may take longer,
/// of which there is one at a time; and some are never answered, as their call ended.
const LONGEST: Duration = Duration::from_secs(60);
/// Messages that are sent at once, and those that may wait. A notice that finds more of them is left out.
const SENT: usize = 32;
const WAITING: usize = 256;
/// Time in which a server takes one message.
const TIME: Duration = Duration::from_secs(5);

/// The requests of one connection's server, and the messages to it.
#[derive(Debug)]
pub(super) struct Asked {
    open: Arc<Open>,
    turns: Arc<Semaphore>,
    /// They end with the connection.
    tasks: Mutex<JoinSet<()>>,
}

/// The requests that were read and not answered yet.
#[derive(Debug, Default)]
pub(super) struct Open {
    since: Mutex<HashMap<RequestId, Instant>>,
    room: Notify,
}

impl Open {
    fn since(&self) -> MutexGuard<'_, HashMap<RequestId, Instant>> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room for a request. Returns false for one with the id of another that is open.
    pub(super) async fn enter(&self, id: &RequestId) -> bool {
        loop {
            // It hears of what happens from now on.
            let room = self.room.notified();
            let oldest = {
                let mut since = self.since();
                let now = Instant::now();
                since.retain(|_, begun| now.duration_since(*begun) < LONGEST);
                if since.contains_key(id) {
                    return false;
                }
                if since.len() < OPEN {
                    since.insert(id.clone(), now);
                    return true;
                }
                since.values().min().copied().unwrap_or(now)
            };
            select! {
                () = room => {}
                () = sleep_until(oldest + LONGEST) => {}
            }
        }
    }

    fn leave(&self, id: &RequestId) {
        self.since().remove(id);
        self.room.notify_waiters();
    }
}

/// A request whose answer is sent. It is open until this is dropped.
struct Answered(Arc<Open>, RequestId);

impl Drop for Answered {
    fn drop(&mut self) {
        self.0.leave(&self.1);
    }
}

/// The kind of a message for which nobody waits.
pub(super) enum Aside {
    Answer(Option<RequestId>),
    /// A call was cancelled.
    Notice,
}

impl Aside {
    pub(super) fn of(message: &ClientJsonRpcMessage) -> Option<Self> {
        match message {
            ClientJsonRpcMessage::Response(answer) => Some(Self::Answer(Some(answer.id.clone()))),
            ClientJsonRpcMessage::Error(error) => Some(Self::Answer(error.id.clone())),
            ClientJsonRpcMessage::Notification(notice) => {
                let is_cancel = matches!(notice.notification, ClientNotification::CancelledNotification(_));
                is_cancel.then_some(Self::Notice)
            }
            ClientJsonRpcMessage::Request(_) => None,
        }
    }
}

impl Asked {
    pub(super) fn new() -> Self {
        Self { open: Arc::default(), turns: Arc::new(Semaphore::new(SENT)), tasks: Mutex::default() }
    }

    pub(super) fn open(&self) -> Arc<Open> {
        Arc::clone(&self.open)
    }

    /// Sends a message, and returns at once. An answer always has room: there are no more than open requests.
    pub(super) fn send<T>(
        &self,
        aside: Aside,
        part: Part,
        sending: impl Future<Output = T> + Send + 'static,
    ) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        let answered = match aside {
            Aside::Answer(id) => id.map(|id| Answered(self.open(), id)),
            Aside::Notice if tasks.len() >= WAITING => {
                tracing::warn!("an MCP server takes no notices that calls were cancelled; one is left out");
                return;
            }
            Aside::Notice => None,
        };
        let turns = Arc::clone(&self.turns);
        tasks.spawn(async move {
            let _answered = answered;
            let sent = async {
                // Nobody closes it.
                let _turn = turns.acquire().await;
                // Not taken in time is not taken: who asked finds that out.
                drop(timeout(TIME, sending).await);
            };
            part.perform(sent).await;
        });
    }
}
