//! The requests of one client that have no answer yet, by their ids.
//!
//! rmcp keeps the later one of two requests of one id: a cancel would reach only that one, and of two answers one goes
//! astray. It also drops the answer of a cancelled request without a word, so nobody would know when the id is free. So
//! cancels end here: rmcp answers each request that it receives, and what was cancelled is dropped on its way out.
//!
//! An id is taken from the admission of its request until the request is dropped on the way to rmcp, its answer comes
//! by, or its handler panics.
//!
//! rmcp sends nothing but answers once it has seen the end of the input, so a subscription that it has not acknowledged
//! by then would never begin, and keep the connection. So it sees the end behind those.

#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, hash_map::Entry},
    future::{Future, ready},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use futures_util::future::Either;
use rmcp::{
    ErrorData, RoleServer,
    model::{
        ClientNotification, ClientRequest, GetExtensions, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
    },
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

#[derive(Debug, Clone, Default)]
pub(crate) struct InFlight(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    requests: Mutex<Requests>,
    /// Cancelled once nothing more is received. rmcp then sends answers only.
    ended: CancellationToken,
    /// Tells that a request began, or is there no more.
    moved: Notify,
}

#[derive(Debug, Default)]
struct Requests {
    by_id: HashMap<RequestId, Request>,
    /// Requests that were admitted so far.
    admitted: u64,
    /// True once the client has left. Nothing begins any more.
    left: bool,
}

#[derive(Debug)]
struct Request {
    /// Tells requests of one id from each other.
    number: u64,
    /// True once rmcp has it, and will answer.
    received: bool,
    /// True for a subscription that rmcp has, and that has not begun.
    opens: bool,
    cancelled: bool,
    /// Cancels what began.
    stop: Option<CancellationToken>,
}

/// A request that was admitted, as it travels with its message.
#[derive(Debug, Clone)]
pub(crate) struct Admitted(Arc<Place>);

#[derive(Debug)]
struct Place {
    all: InFlight,
    id: RequestId,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut requests = self.all.locked();
        if let Some(it) = requests.own(self)
            && (!it.received || thread::panicking())
        {
            requests.by_id.remove(&self.id);
        }
        drop(requests);
        self.all.0.moved.notify_waiters();
    }
}

impl Requests {
    /// Returns the request that has this place, while its id is taken.
    fn own(&mut self, place: &Place) -> Option<&mut Request> {
        self.by_id.get_mut(&place.id).filter(|it| it.number == place.number)
    }

    fn begin(&mut self, place: &Place, stop: &CancellationToken) -> bool {
        let left = self.left;
        let Some(it) = self.own(place) else { return false };
        it.opens = false;
        let begins = !it.cancelled && !left;
        if begins {
            it.stop = Some(stop.clone());
        }
        begins
    }
}

impl Admitted {
    fn received(&self, is_subscription: bool) {
        if let Some(it) = self.0.all.locked().own(&self.0) {
            (it.received, it.opens) = (true, is_subscription);
        }
    }

    /// Notes that what was requested begins, and is cancelled by `stop`. False if it must not begin.
    pub(crate) fn begin(&self, stop: &CancellationToken) -> bool {
        let begins = self.0.all.locked().begin(&self.0, stop);
        self.0.all.0.moved.notify_waiters();
        begins
    }

    /// Returns the token that is cancelled once rmcp sends nothing but answers.
    pub(crate) fn ended(&self) -> CancellationToken {
        self.0.all.0.ended.clone()
    }
}

impl InFlight {
    fn locked(&self) -> MutexGuard<'_, Requests> {
        self.0.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a message: a request gets its place.
    ///
    /// # Errors
    /// The answer to a request whose id has another one in flight.
    pub(crate) fn admit(
        &self,
        mut message: RxJsonRpcMessage<RoleServer>,
    ) -> Result<RxJsonRpcMessage<RoleServer>, Box<ServerJsonRpcMessage>> {
        if let JsonRpcMessage::Request(it) = &mut message {
            let Some(place) = self.place(&it.id) else {
                let text = "a request of this id is in flight already; give each request an id of its own";
                let error = ErrorData::invalid_request(text, None);
                return Err(Box::new(JsonRpcMessage::error(error, Some(it.id.clone()))));
            };
            it.request.extensions_mut().insert(place);
        }
        Ok(message)
    }

    fn place(&self, id: &RequestId) -> Option<Admitted> {
        let mut requests = self.locked();
        let number = requests.admitted.wrapping_add(1);
        let Entry::Vacant(free) = requests.by_id.entry(id.clone()) else { return None };
        free.insert(Request { number, received: false, opens: false, cancelled: false, stop: None });
        requests.admitted = number;
        Some(Admitted(Arc::new(Place { all: self.clone(), id: id.clone(), number })))
    }

    /// Cancels a request. It gets no answer any more.
    fn cancel(&self, id: &RequestId) {
        let stop = self.locked().by_id.get_mut(id).and_then(|it| {
            it.cancelled = true;
            it.stop.take()
        });
        // Not while the lock is held: this wakes what was cancelled.
        stop.iter().for_each(CancellationToken::cancel);
    }

    /// Cancels all requests of a client that has left, now and later.
    pub(crate) fn cancel_all(&self) {
        let stops: Vec<_> = {
            let mut requests = self.locked();
            requests.left = true;
            requests.by_id.values_mut().filter_map(|it| it.stop.take()).collect()
        };
        stops.iter().for_each(CancellationToken::cancel);
    }

    /// Notes the answer of a request. False if nobody wants it.
    fn answer(&self, id: &RequestId) -> bool {
        let answered = self.locked().by_id.remove(id);
        self.0.moved.notify_waiters();
        !answered.is_some_and(|it| it.cancelled)
    }

    /// Waits until each subscription that rmcp has is acknowledged, or answered.
    async fn opened(&self) {
        loop {
            let moved = self.0.moved.notified();
            if !self.locked().by_id.values().any(|it| it.opens) {
                return;
            }
            moved.await;
        }
    }
}

/// The transport below, whose answers and cancels are noted. What it receives was admitted before.
pub(crate) struct Tracked<T> {
    inner: T,
    in_flight: InFlight,
}

impl<T> Tracked<T> {
    pub(crate) fn new(inner: T, in_flight: InFlight) -> Self {
        Self { inner, in_flight }
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Tracked<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        let answered = match &message {
            JsonRpcMessage::Response(it) => Some(&it.id),
            JsonRpcMessage::Error(it) => it.id.as_ref(),
            _ => None,
        };
        match answered {
            Some(id) if !self.in_flight.answer(id) => Either::Left(ready(Ok(()))),
            _ => Either::Right(self.inner.send(message)),
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let Some(message) = self.inner.receive().await else {
                self.in_flight.opened().await;
                self.in_flight.0.ended.cancel();
                return None;
            };
            match &message {
                JsonRpcMessage::Request(it) => {
                    let is_subscription = matches!(it.request, ClientRequest::SubscriptionsListenRequest(_));
                    let admitted = it.request.extensions().get::<Admitted>();
                    admitted.iter().for_each(|it| it.received(is_subscription));
                }
                JsonRpcMessage::Notification(it) => {
                    if let ClientNotification::CancelledNotification(it) = &it.notification {
                        it.params.request_id.iter().for_each(|id| self.in_flight.cancel(id));
                        continue;
                    }
                }
                _ => {}
            }
            return Some(message);
        }
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.inner.close().await
    }
}
