//! Streams of servers at an address, which say how soon they are asked for again.
//!
//! The library that asks does as it is told: at once, again and again, or never. Nor does it end a request with the
//! connection that the request belongs to.

use std::{
    collections::HashMap,
    error::Error,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

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
use tokio::time::{Instant, timeout};

use super::{
    answer::Answer,
    asked::{Aside, Asked, Open},
    ends::Part,
    unread::{self, Seen},
};

/// Least and most milliseconds until a stream that ended is asked for again.
const SOONEST: u64 = 250;
const LATEST: u64 = 60_000;
/// Time after which a server that is not reached is asked for its streams no more.
const UNREACHED: Duration = Duration::from_secs(30);
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
    /// The time since which no stream could be asked for.
    unreached: Arc<Mutex<Option<Instant>>>,
}

impl<C> Paced<C> {
    pub(super) fn new(inner: C, part: Part) -> Self {
        Self { inner, part, asked: Arc::new(Asked::new()), unreached: Arc::default() }
    }

    /// Becomes the client of another connection.
    pub(super) fn serve(&mut self, part: Part) {
        (self.part, self.asked, self.unreached) = (part, Arc::new(Asked::new()), Arc::default());
    }

    /// Looks at what came of asking for a stream. The library below asks again and again for one that was broken off,
    /// also where the server refuses that, or is not there: a call would wait for its answer until its limit.
    fn resumed<T, E: Error + Send + Sync + 'static>(
        &self,
        got: Result<T, StreamableHttpError<E>>,
        is_resumed: bool,
    ) -> Result<T, StreamableHttpError<E>> {
        let mut unreached = self.unreached.lock().unwrap_or_else(PoisonError::into_inner);
        let Err(error) = got else {
            *unreached = None;
            return got;
        };
        let is_over = match Answer::read(&error) {
            Some(answer) => {
                *unreached = None;
                answer.is_same_again()
            }
            None => unreached.get_or_insert_with(Instant::now).elapsed() >= UNREACHED,
        };
        if is_resumed && is_over {
            self.part.deaf.note();
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        Err(error)
    }

    /// Returns the stream that the server gives for this request.
    async fn streamed<E: Error + Send + Sync + 'static>(
        &self,
        request: impl Future<Output = Result<BoxedSseResponse, StreamableHttpError<E>>> + Send,
        is_resumed: bool,
    ) -> Result<BoxedSseResponse, StreamableHttpError<E>> {
        let stream = self.resumed(asked(&self.part, request).await, is_resumed)?;
        Ok(paced(stream, &self.part, self.asked.open(), None))
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
        self.streamed(self.inner.get_stream(uri, session, last, token, headers), is_resumed).await
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
        self.streamed(
            self.inner.get_stream_with_max_sse_event_size(uri, session, last, token, headers, most),
            is_resumed,
        )
        .await
    }
}

#[cfg(test)]
mod tests;
