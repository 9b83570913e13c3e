//! The requests of one client that have no answer yet, by their ids.
//!
//! rmcp keeps the later one of two requests of one id: a cancel would reach only that one, and of two answers one goes
//! astray.

use std::{
    collections::{HashMap, hash_map::Entry},
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rmcp::{
    ErrorData, RoleServer,
    model::{ClientNotification, GetExtensions, JsonRpcMessage, RequestId, ServerJsonRpcMessage},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};

#[derive(Debug, Clone, Default)]
pub(crate) struct InFlight(Arc<Mutex<HashMap<RequestId, Stage>>>);

#[derive(Debug, Clone, Copy)]
enum Stage {
    /// Not begun, or about to be answered.
    Waits,
    Runs,
    /// Runs, but its answer will not be sent.
    Cancelled,
}

/// A call that runs. Until this is dropped its id is taken, also if its client cancels it.
pub(crate) struct Running {
    all: InFlight,
    id: RequestId,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut all = self.all.locked();
        match all.get_mut(&self.id) {
            Some(Stage::Cancelled) => drop(all.remove(&self.id)),
            Some(stage) => *stage = Stage::Waits,
            None => {}
        }
    }
}

impl InFlight {
    fn locked(&self) -> MutexGuard<'_, HashMap<RequestId, Stage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a request.
    ///
    /// # Errors
    /// The answer to one whose id has another request in flight.
    pub(crate) fn admit(&self, id: &RequestId) -> Result<(), Box<ServerJsonRpcMessage>> {
        if let Entry::Vacant(entry) = self.locked().entry(id.clone()) {
            entry.insert(Stage::Waits);
            return Ok(());
        }
        let text = "a request of this id is in flight already; give each request an id of its own";
        Err(Box::new(JsonRpcMessage::error(ErrorData::invalid_request(text, None), Some(id.clone()))))
    }

    /// Notes that the call of a request runs.
    pub(crate) fn running(&self, id: &RequestId) -> Running {
        self.locked().insert(id.clone(), Stage::Runs);
        Running { all: self.clone(), id: id.clone() }
    }

    pub(crate) fn answered(&self, id: &RequestId) {
        self.locked().remove(id);
    }

    /// Notes that a client cancelled a request. It gets no answer any more.
    fn cancelled(&self, id: &RequestId) {
        let mut all = self.locked();
        match all.get_mut(id) {
            Some(stage @ (Stage::Runs | Stage::Cancelled)) => *stage = Stage::Cancelled,
            Some(Stage::Waits) => drop(all.remove(id)),
            None => {}
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
        match &message {
            JsonRpcMessage::Response(it) => self.in_flight.answered(&it.id),
            JsonRpcMessage::Error(it) => it.id.iter().for_each(|id| self.in_flight.answered(id)),
            _ => {}
        }
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let mut message = self.inner.receive().await?;
        match &mut message {
            JsonRpcMessage::Request(it) => {
                it.request.extensions_mut().insert(self.in_flight.clone());
            }
            JsonRpcMessage::Notification(it) => {
                if let ClientNotification::CancelledNotification(it) = &it.notification {
                    it.params.request_id.iter().for_each(|id| self.in_flight.cancelled(id));
                }
            }
            _ => {}
        }
        Some(message)
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.inner.close().await
    }
}
