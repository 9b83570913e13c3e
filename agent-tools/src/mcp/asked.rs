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
/// Messages that are sent at once, and those that wait. If as many wait, only answers to open requests are taken.
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
    requests: Mutex<HashMap<RequestId, Request>>,
    room: Notify,
}

#[derive(Debug)]
struct Request {
    begun: Instant,
    /// True while its answer is sent.
    is_answered: bool,
}

impl Open {
    fn requests(&self) -> MutexGuard<'_, HashMap<RequestId, Request>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room for a request. Returns false for one with the id of another that is open.
    pub(super) async fn enter(&self, id: &RequestId) -> bool {
        loop {
            // It hears of what happens from now on.
            let room = self.room.notified();
            let oldest = {
                let mut requests = self.requests();
                let now = Instant::now();
                requests.retain(|_, request| now.duration_since(request.begun) < LONGEST);
                if requests.contains_key(id) {
                    return false;
                }
                if requests.len() < OPEN {
                    requests.insert(id.clone(), Request { begun: now, is_answered: false });
                    return true;
                }
                requests.values().map(|request| request.begun).min().unwrap_or(now)
            };
            select! {
                () = room => {}
                () = sleep_until(oldest + LONGEST) => {}
            }
        }
    }

    /// Notes that the server wants no answer any more. One that is sent already takes its room until that has ended.
    pub(super) fn cancel(&self, id: &RequestId) {
        if self.requests().get(id).is_some_and(|request| !request.is_answered) {
            self.leave(id);
        }
    }

    /// Notes that a request is answered. Returns false for one that is not open.
    fn answer(&self, id: &RequestId) -> bool {
        let mut requests = self.requests();
        let request = requests.get_mut(id);
        request.map(|request| request.is_answered = true).is_some()
    }

    fn leave(&self, id: &RequestId) {
        self.requests().remove(id);
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

    /// Sends a message, and returns at once. The answer to an open request always has room.
    pub(super) fn send<T>(
        &self,
        aside: Aside,
        part: Part,
        sending: impl Future<Output = T> + Send + 'static,
    ) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        let answered = match aside {
            Aside::Answer(Some(id)) if self.open.answer(&id) => Some(Answered(self.open(), id)),
            Aside::Answer(_) | Aside::Notice if tasks.len() >= WAITING => {
                tracing::warn!("an MCP server takes no messages; one that it does not wait for is left out");
                return;
            }
            Aside::Answer(_) | Aside::Notice => None,
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_cancelled_leaves_unless_its_answer_is_sent() {
        let open = Open::default();
        let id = |id: usize| RequestId::Number(i64::try_from(id).unwrap());
        for number in 0..OPEN {
            assert!(open.enter(&id(number)).await);
        }
        assert_eq!(open.enter(&id(OPEN)).now_or_never(), None);
        open.cancel(&id(0));
        assert!(open.enter(&id(OPEN)).await && !open.answer(&id(0)));
        assert!(open.answer(&id(1)));
        open.cancel(&id(1));
        assert_eq!(open.enter(&id(0)).now_or_never(), None);
        open.leave(&id(1));
        assert!(open.enter(&id(0)).await);
        // Nor for ever.
        assert!(open.enter(&id(1)).await);
    }
}
