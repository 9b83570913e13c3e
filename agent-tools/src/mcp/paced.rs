//! Streams of servers at an address, which say how soon they are asked for again.
//!
//! The library that asks does as it is told: at once, again and again, or never. Nor does it end a request with the
//! connection that the request belongs to.

use std::{collections::HashMap, error::Error, future::Future, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use http::{HeaderName, HeaderValue};
use rmcp::{
    model::{ClientJsonRpcMessage, RequestId, ServerJsonRpcMessage},
    transport::{
        common::client_side_sse::BoxedSseResponse,
        streamable_http_client::{
            StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
            StreamableHttpResponseLimits,
        },
    },
};
use tokio::time::timeout;

use super::{
    answer,
    asked::{Aside, Asked, Open},
    ends::Part,
    unread::{self, Seen},
};

/// Least and most milliseconds until a stream that ended is asked for again.
const SOONEST: u64 = 250;
const LATEST: u64 = 60_000;
/// Time in which a server is told that a session is over.
const FAREWELL: Duration = Duration::from_secs(2);

type Headers = HashMap<HeaderName, HeaderValue>;

/// The client below, with bounds on what its streams say. Its requests end with the connection; the farewell, which
/// comes after the end, has a time of its own.
#[derive(Debug, Clone)]
pub(super) struct Paced<C> {
    inner: C,
    part: Part,
    asked: Arc<Asked>,
}

impl<C> Paced<C> {
    pub(super) fn new(inner: C, part: Part) -> Self {
        Self { inner, part, asked: Arc::new(Asked::new()) }
    }

    /// Becomes the client of another connection.
    pub(super) fn serve(&mut self, part: Part) {
        (self.part, self.asked) = (part, Arc::new(Asked::new()));
    }
}

/// Performs a request until the connection is cut.
async fn asked<T, E: Error + Send + Sync + 'static>(
    part: &Part,
    request: impl Future<Output = Result<T, StreamableHttpError<E>>> + Send,
) -> Result<T, StreamableHttpError<E>> {
    part.perform(request).await.unwrap_or(Err(StreamableHttpError::TransportChannelClosed))
}

/// Bounds what a stream says, which answers the request of this id, or any. It is read no further while too many
/// requests of the server are open.
fn paced(
    stream: BoxedSseResponse,
    part: &Part,
    open: Arc<Open>,
    asked: Option<RequestId>,
) -> BoxedSseResponse {
    let cancelled = Arc::clone(&open);
    let looked = stream.flat_map(move |event| {
        let events = match event {
            Ok(mut event) => {
                event.retry = event.retry.map(|wait| wait.clamp(SOONEST, LATEST));
                let is_message = matches!(event.event.as_deref(), None | Some("" | "message"));
                let text = event.data.as_deref().filter(|_| is_message);
                match text.map_or(Seen::Passes, |text| unread::seen(text, asked.as_ref())) {
                    Seen::Instead(texts) => {
                        let with = |text| {
                            let mut event = event.clone();
                            event.data = Some(text);
                            (None, Ok(event))
                        };
                        texts.into_iter().map(with).collect()
                    }
                    Seen::Asks(id) => vec![(Some(id), Ok(event))],
                    Seen::Cancels(id) => {
                        cancelled.cancel(&id);
                        vec![(None, Ok(event))]
                    }
                    Seen::Passes => vec![(None, Ok(event))],
                }
            }
            Err(error) => vec![(None, Err(error))],
        };
        stream::iter(events)
    });
    let bounded = looked.then(move |(asks, mut event)| {
        let open = Arc::clone(&open);
        async move {
            if let (Some(id), Ok(event)) = (asks, &mut event)
                && !open.enter(&id).await
            {
                // Two with one id cannot be told apart. The place in the stream counts all the same.
                event.data = None;
            }
            event
        }
    });
    bounded.take_until(part.cut()).boxed()
}

/// The error of a stream that was asked for. The library below asks again and again for one that was broken off, also
/// where the server has refused that: a call would wait for its answer until its limit.
fn resumed<E: Error + Send + Sync + 'static>(
    error: StreamableHttpError<E>,
    is_resumed: bool,
) -> StreamableHttpError<E> {
    match is_resumed && answer::is_refused(&error) {
        true => StreamableHttpError::ServerDoesNotSupportSse,
        false => error,
    }
}

/// The answer to the request of this id in the body of a response.
fn answered<E: Error + Send + Sync + 'static>(
    mut message: ServerJsonRpcMessage,
    asked: &RequestId,
) -> Result<ServerJsonRpcMessage, StreamableHttpError<E>> {
    if let ServerJsonRpcMessage::Error(error) = &mut message {
        // A server that could not read the request names none, or makes up an id.
        error.id = Some(asked.clone());
    }
    match unread::answers(&message).as_ref() == Some(asked) {
        true => Ok(message),
        // Nothing else would come.
        false => {
            let text = "what it answered is no answer to the request";
            Err(StreamableHttpError::UnexpectedServerResponse(text.into()))
        }
    }
}

impl<C: StreamableHttpClient + Sync> StreamableHttpClient for Paced<C> {
    type Error = C::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<C::Error>> {
        let limits = StreamableHttpResponseLimits::default();
        self.post_message_with_response_limits(uri, message, session, token, headers, limits).await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<C::Error>> {
        if let Some(aside) = Aside::of(&message) {
            let inner = self.inner.clone();
            self.asked.send(aside, self.part.clone(), async move {
                // The body says nothing.
                drop(
                    inner
                        .post_message_with_response_limits(uri, message, session, token, headers, limits)
                        .await,
                );
            });
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        let id = match &message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let request =
            self.inner.post_message_with_response_limits(uri, message, session, token, headers, limits);
        Ok(match (asked(&self.part, request).await?, id) {
            (StreamableHttpPostResponse::Sse(stream, session), id) => {
                StreamableHttpPostResponse::Sse(paced(stream, &self.part, self.asked.open(), id), session)
            }
            (StreamableHttpPostResponse::Json(message, session), Some(id)) => {
                StreamableHttpPostResponse::Json(answered(message, &id)?, session)
            }
            (other, _) => other,
        })
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<(), StreamableHttpError<C::Error>> {
        let farewell = timeout(FAREWELL, self.inner.delete_session(uri, session, token, headers));
        farewell.await.unwrap_or(Err(StreamableHttpError::TransportChannelClosed))
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<BoxedSseResponse, StreamableHttpError<C::Error>> {
        let is_resumed = last.is_some();
        let stream = self.inner.get_stream(uri, session, last, token, headers);
        let stream = asked(&self.part, stream).await.map_err(|error| resumed(error, is_resumed))?;
        Ok(paced(stream, &self.part, self.asked.open(), None))
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        token: Option<String>,
        headers: Headers,
        most: usize,
    ) -> Result<BoxedSseResponse, StreamableHttpError<C::Error>> {
        let is_resumed = last.is_some();
        let stream = self.inner.get_stream_with_max_sse_event_size(uri, session, last, token, headers, most);
        let stream = asked(&self.part, stream).await.map_err(|error| resumed(error, is_resumed))?;
        Ok(paced(stream, &self.part, self.asked.open(), None))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        io,
        sync::{Mutex, MutexGuard},
    };

    use futures_util::Stream;
    use rmcp::{
        model::{CancelledNotification, CancelledNotificationParam, ClientNotification, ClientRequest},
        service::{ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService},
        transport::{
            StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig,
        },
    };
    use serde_json::{Value, json};
    use tokio::time::{Instant, sleep, timeout};

    use super::*;
    use crate::mcp::ends::{Hold, hold};

    /// A server that asks on its own stream, on those of calls, or not at all.
    #[derive(Clone)]
    struct Server {
        asks: u64,
        /// True if requests of the server come with the answer to a call.
        with_calls: bool,
        /// True if the server cancels each request at once.
        cancels: bool,
        /// True if it takes what is sent aside.
        takes: bool,
        seen: Arc<Mutex<Seen>>,
    }

    #[derive(Default)]
    struct Seen {
        asked: u64,
        answers: usize,
        notices: usize,
    }

    type Event = <BoxedSseResponse as Stream>::Item;

    fn event(message: &Value) -> Event {
        fn empty<T: Default, E>() -> Result<T, E> {
            Ok(T::default())
        }

        let mut event: Event = empty();
        if let Ok(event) = &mut event {
            event.data = Some(message.to_string());
        }
        event
    }

    impl Server {
        fn seen(&self) -> MutexGuard<'_, Seen> {
            self.seen.lock().unwrap()
        }

        /// Its requests, each with an id of its own.
        fn questions(&self) -> BoxedSseResponse {
            let server = self.clone();
            let events = (0..self.asks).flat_map(move |id| {
                server.seen().asked += 1;
                let ping = json!({"jsonrpc": "2.0", "id": format!("p{id}"), "method": "ping"});
                let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
                    "params": {"requestId": format!("p{id}")}});
                [Some(ping), server.cancels.then_some(cancel)].into_iter().flatten().map(|it| event(&it))
            });
            stream::iter(events).boxed()
        }

        async fn taken(&self) -> StreamableHttpPostResponse {
            if !self.takes {
                pending::<()>().await;
            }
            StreamableHttpPostResponse::Accepted
        }
    }

    impl StreamableHttpClient for Server {
        type Error = io::Error;

        async fn post_message(
            &self,
            _: Arc<str>,
            message: ClientJsonRpcMessage,
            _: Option<Arc<str>>,
            _: Option<String>,
            _: Headers,
        ) -> Result<StreamableHttpPostResponse, StreamableHttpError<io::Error>> {
            let asked = match message {
                ClientJsonRpcMessage::Request(asked) => asked,
                ClientJsonRpcMessage::Notification(notice) => {
                    if matches!(notice.notification, ClientNotification::CancelledNotification(_)) {
                        self.seen().notices += 1;
                        return Ok(self.taken().await);
                    }
                    return Ok(StreamableHttpPostResponse::Accepted);
                }
                ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_) => {
                    self.seen().answers += 1;
                    return Ok(self.taken().await);
                }
            };
            let begins = matches!(asked.request, ClientRequest::InitializeRequest(_));
            let result = match begins {
                true => json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                    "serverInfo": {"name": "fake", "version": "1"}}),
                false => json!({"tools": []}),
            };
            let answer = json!({"jsonrpc": "2.0", "id": asked.id, "result": result});
            if self.with_calls && !begins {
                let answer = stream::iter([event(&answer)]);
                return Ok(StreamableHttpPostResponse::Sse(self.questions().chain(answer).boxed(), None));
            }
            let answer = serde_json::from_value(answer).unwrap();
            Ok(StreamableHttpPostResponse::Json(answer, begins.then(|| "s".to_owned())))
        }

        async fn delete_session(
            &self,
            _: Arc<str>,
            _: Arc<str>,
            _: Option<String>,
            _: Headers,
        ) -> Result<(), StreamableHttpError<io::Error>> {
            Ok(())
        }

        async fn get_stream(
            &self,
            _: Arc<str>,
            _: Option<Arc<str>>,
            _: Option<String>,
            _: Option<String>,
            _: Headers,
        ) -> Result<BoxedSseResponse, StreamableHttpError<io::Error>> {
            let asks = if self.with_calls { stream::empty().boxed() } else { self.questions() };
            Ok(asks.chain(stream::pending()).boxed())
        }
    }

    async fn connected(
        asks: u64,
        with_calls: bool,
        takes: bool,
    ) -> (Server, RunningService<RoleClient, ()>, Hold) {
        connect(Server { asks, with_calls, cancels: false, takes, seen: Arc::default() }).await
    }

    async fn connect(server: Server) -> (Server, RunningService<RoleClient, ()>, Hold) {
        let (hold, part) = hold();
        let config = StreamableHttpClientTransportConfig::with_uri("http://fake");
        let transport = StreamableHttpClientTransport::with_client(Paced::new(server.clone(), part), config);
        let client = ().serve_with_lifecycle(transport, ClientLifecycleMode::Initialize).await.unwrap();
        (server, client, hold)
    }

    #[tokio::test(start_paused = true)]
    async fn attack_38_a_server_that_takes_no_answers_is_read_no_further_and_calls_go_on() {
        let (server, client, hold) = connected(10_000, false, false).await;
        for _ in 0..60 {
            sleep(Duration::from_secs(1)).await;
            client.list_tools(None).await.unwrap();
        }
        // Each answer has its time.
        let Seen { asked, answers, .. } = *server.seen();
        assert!((64..1_000).contains(&asked) && (64..1_000).contains(&answers), "{asked} {answers}");
        let since = Instant::now();
        client.cancel().await.unwrap();
        drop(hold);
        assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_the_server_cancels_are_in_nobodys_way() {
        for (with_calls, takes) in [(false, true), (true, true), (true, false)] {
            let server = Server { asks: 1_000, with_calls, cancels: true, takes, seen: Arc::default() };
            let since = Instant::now();
            let (server, client, _hold) = connect(server).await;
            client.list_tools(None).await.unwrap();
            sleep(Duration::from_secs(1)).await;
            client.list_tools(None).await.unwrap();
            let (took, asked) = (since.elapsed(), server.seen().asked);
            assert!(
                took < Duration::from_secs(2) && asked >= 1_000,
                "{with_calls} {takes}: {asked} {took:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn attack_38_a_server_that_takes_answers_gets_all_of_them() {
        for with_calls in [false, true] {
            let (server, client, _hold) = connected(1_000, with_calls, true).await;
            client.list_tools(None).await.unwrap();
            sleep(Duration::from_secs(1)).await;
            let Seen { asked, answers, .. } = *server.seen();
            assert_eq!((asked, answers), (1_000, 1_000), "{with_calls}");
        }
        // Where it takes none, the call alone waits.
        let (server, client, _hold) = connected(1_000, true, false).await;
        assert!(timeout(Duration::from_secs(1), client.list_tools(None)).await.is_err());
        let asked = server.seen().asked;
        assert!(asked < 64, "{asked}");
    }

    #[tokio::test(start_paused = true)]
    async fn no_notice_of_a_cancelled_call_waits_for_another_one() {
        let (server, client, _hold) = connected(0, false, false).await;
        let told = |id| {
            let about = CancelledNotificationParam::new(Some(RequestId::Number(id)), None);
            client.send_notification(CancelledNotification::new(about).into())
        };
        let since = Instant::now();
        for id in 0..1_000 {
            told(id).await.unwrap();
        }
        assert_eq!(since.elapsed(), Duration::ZERO);
        sleep(Duration::from_secs(60)).await;
        // More than may wait are left out.
        assert_eq!(server.seen().notices, 256);
        told(1_000).await.unwrap();
        sleep(Duration::from_millis(1)).await;
        assert_eq!(server.seen().notices, 257);
    }
}
