//! The sessions of HTTP clients: how many there may be, and when an unused one ends.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{Stream, StreamExt, future::Either, stream};
use rmcp::{
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    transport::streamable_http_server::{
        SessionId, SessionManager,
        session::{
            ServerSseMessage,
            local::{LocalSessionManager, LocalSessionManagerError},
        },
    },
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use crate::in_flight::{InFlight, Tracked};

/// The sessions of rmcp, bounded. rmcp's own limit on idle ones would also end a session whose call is long and silent.
pub(crate) struct Sessions {
    inner: LocalSessionManager,
    free: Arc<Semaphore>,
    idle: Duration,
    used: Arc<Mutex<HashMap<SessionId, Use>>>,
}

struct Use {
    /// Streams to the client that are open.
    streams: usize,
    /// Time of the last request, or of the end of the last stream.
    at: Instant,
    in_flight: InFlight,
    _place: OwnedSemaphorePermit,
}

/// Failure of the session manager.
#[derive(Debug)]
pub(crate) enum SessionsError {
    Full,
    Inner(LocalSessionManagerError),
}

impl fmt::Display for SessionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("there are as many sessions as there may be"),
            Self::Inner(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SessionsError {}

impl From<LocalSessionManagerError> for SessionsError {
    fn from(error: LocalSessionManagerError) -> Self {
        Self::Inner(error)
    }
}

/// An open stream of a session: while there is one, the session is in use.
struct Open {
    id: SessionId,
    used: Arc<Mutex<HashMap<SessionId, Use>>>,
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(it) = locked(&self.used).get_mut(&self.id) {
            it.streams = it.streams.saturating_sub(1);
            it.at = Instant::now();
        }
    }
}

fn locked(used: &Mutex<HashMap<SessionId, Use>>) -> MutexGuard<'_, HashMap<SessionId, Use>> {
    used.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sessions {
    pub(crate) fn new(most: usize, idle: Duration) -> Self {
        let mut inner = LocalSessionManager::default();
        inner.session_config.keep_alive = None;
        let free = Arc::new(Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS)));
        Self { inner, free, idle, used: Arc::default() }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.free.available_permits() == 0
    }

    /// Ends the sessions that nobody used for long.
    pub(crate) async fn sweep(&self) {
        let is_idle = |it: &Use| it.streams == 0 && it.at.elapsed() >= self.idle;
        let idle: Vec<_> =
            locked(&self.used).iter().filter(|(_, it)| is_idle(it)).map(|(id, _)| id.clone()).collect();
        for id in idle {
            // A session that has ended by itself is closed as well.
            let _ = self.close_session(&id).await;
        }
    }

    fn touch(&self, id: &SessionId) {
        if let Some(it) = locked(&self.used).get_mut(id) {
            it.at = Instant::now();
        }
    }

    /// Returns the requests in flight of a session. One that has ended has none.
    fn in_flight(&self, id: &SessionId) -> InFlight {
        locked(&self.used).get(id).map(|it| it.in_flight.clone()).unwrap_or_default()
    }

    fn open(&self, id: &SessionId) -> Open {
        if let Some(it) = locked(&self.used).get_mut(id) {
            it.streams = it.streams.saturating_add(1);
        }
        Open { id: id.clone(), used: Arc::clone(&self.used) }
    }
}

/// Returns the stream, which keeps `open` as long as it lives.
fn held<S: Stream>(stream: S, open: Open) -> impl Stream<Item = S::Item> {
    stream.map(move |item| {
        let _ = &open;
        item
    })
}

impl SessionManager for Sessions {
    type Error = SessionsError;
    type Transport = Tracked<<LocalSessionManager as SessionManager>::Transport>;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        self.sweep().await;
        let place = Arc::clone(&self.free).try_acquire_owned().map_err(|_| SessionsError::Full)?;
        let (id, transport) = self.inner.create_session().await?;
        let in_flight = InFlight::default();
        let new = Use { streams: 0, at: Instant::now(), in_flight: in_flight.clone(), _place: place };
        locked(&self.used).insert(id.clone(), new);
        Ok((id, Tracked::new(transport, in_flight)))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        Ok(self.inner.initialize_session(id, message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        Ok(self.inner.has_session(id).await?)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        // rmcp would give the calls some time to answer, but their streams end here.
        let ended = locked(&self.used).remove(id);
        ended.iter().for_each(|it| it.in_flight.cancel_all());
        Ok(self.inner.close_session(id).await?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let (open, in_flight) = (self.open(id), self.in_flight(id));
        // Before rmcp sees it, which would send the answer to the first one here. If this future is dropped, the
        // message and its place are too.
        let message = match in_flight.admit(message) {
            Ok(message) => message,
            Err(refusal) => {
                let refusal = ServerSseMessage::from_message(*refusal);
                return Ok(Either::Left(stream::iter([refusal])));
            }
        };
        Ok(Either::Right(held(self.inner.create_stream(id, message).await?, open)))
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Self::Error> {
        self.touch(id);
        Ok(self.inner.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let open = self.open(id);
        Ok(held(self.inner.create_standalone_stream(id).await?, open))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let open = self.open(id);
        Ok(held(self.inner.resume(id, last_event_id).await?, open))
    }
}

#[cfg(test)]
mod tests {
    use rmcp::{
        ErrorData,
        model::{GetExtensions, JsonRpcMessage, NumberOrString},
        transport::Transport,
    };
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::in_flight::Admitted;

    #[tokio::test(start_paused = true)]
    async fn sessions_are_bounded_and_idle_ones_end() {
        let sessions = Sessions::new(2, Duration::from_secs(60));
        let (one, _transport) = sessions.create_session().await.unwrap();
        tokio::time::advance(Duration::from_secs(40)).await;
        let (two, _other) = sessions.create_session().await.unwrap();
        assert!(sessions.is_full());
        assert!(matches!(sessions.create_session().await, Err(SessionsError::Full)));

        // The first is in use until its stream ends, however long that takes.
        let open = sessions.open(&one);
        tokio::time::advance(Duration::from_secs(59)).await;
        sessions.touch(&two);
        tokio::time::advance(Duration::from_secs(59)).await;
        sessions.sweep().await;
        assert!(sessions.has_session(&one).await.unwrap() && sessions.has_session(&two).await.unwrap());
        tokio::time::advance(Duration::from_secs(1)).await;
        let (three, _third) = sessions.create_session().await.unwrap();
        assert!(!sessions.has_session(&two).await.unwrap(), "a new session takes the place of an idle one");

        drop(open);
        tokio::time::advance(Duration::from_secs(59)).await;
        sessions.touch(&three);
        sessions.sweep().await;
        assert!(sessions.has_session(&one).await.unwrap());
        tokio::time::advance(Duration::from_secs(1)).await;
        sessions.sweep().await;
        assert!(!sessions.has_session(&one).await.unwrap() && sessions.has_session(&three).await.unwrap());
        assert!(!sessions.is_full());
    }

    fn message(text: &str) -> ClientJsonRpcMessage {
        serde_json::from_str(text).unwrap()
    }

    fn ping(id: usize) -> ClientJsonRpcMessage {
        message(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#))
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_given_up_on_its_way_leaves_its_id_free() {
        let sessions = Sessions::new(2, Duration::from_secs(60));
        let (id, mut transport) = sessions.create_session().await.unwrap();
        let begin = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18",
            "capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}"#;
        let answer = async {
            transport.receive().await.unwrap();
            let error = ErrorData::internal_error("none", None);
            transport.send(JsonRpcMessage::error(error, Some(NumberOrString::Number(0)))).await.unwrap();
        };
        let (begun, ()) = tokio::join!(sessions.initialize_session(&id, message(begin)), answer);
        begun.unwrap();
        // Nobody receives, so that the way is blocked some requests later.
        let mut given_up = 0;
        for n in 1..100 {
            let stream = sessions.create_stream(&id, ping(n));
            if tokio::time::timeout(Duration::from_secs(1), stream).await.is_err() {
                given_up += 1;
                assert!(sessions.in_flight(&id).admit(ping(n)).is_ok(), "{n}");
            }
        }
        assert!(given_up > 10, "{given_up}");
        // What is received stays taken, and ends with the session.
        let Some(JsonRpcMessage::Request(received)) = transport.receive().await else {
            panic!("a request is on its way")
        };
        let in_flight = sessions.in_flight(&id);
        assert!(in_flight.admit(ping(1)).is_err());
        let stop = CancellationToken::new();
        let admitted = received.request.extensions();
        assert!(admitted.get::<Admitted>().unwrap().begin(&stop));
        sessions.close_session(&id).await.unwrap();
        assert!(stop.is_cancelled());
    }
}
