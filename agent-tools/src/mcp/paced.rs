//! Streams of servers at an address, which say how soon they are asked for again.
//!
//! The library that asks does as it is told: at once, again and again, or never. Nor does it end a request with the
//! connection that the request belongs to.

use std::{collections::HashMap, future::Future, sync::Arc, time::Duration};

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

use super::{ends::Part, unread};

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
    pub(super) inner: C,
    pub(super) part: Part,
}

/// Performs a request until the connection is cut.
async fn asked<T, E: std::error::Error + Send + Sync + 'static>(
    part: &Part,
    request: impl Future<Output = Result<T, StreamableHttpError<E>>> + Send,
) -> Result<T, StreamableHttpError<E>> {
    part.perform(request).await.unwrap_or(Err(StreamableHttpError::TransportChannelClosed))
}

/// Bounds what a stream says, which answers the request of this id, or any.
fn paced(stream: BoxedSseResponse, part: &Part, asked: Option<RequestId>) -> BoxedSseResponse {
    let stream = stream.take_until(part.cut()).flat_map(move |event| {
        let events = match event {
            Ok(mut event) => {
                event.retry = event.retry.map(|wait| wait.clamp(SOONEST, LATEST));
                let is_message = matches!(event.event.as_deref(), None | Some("" | "message"));
                let text = event.data.as_deref().filter(|_| is_message);
                match text.and_then(|text| unread::instead(text, asked.as_ref())) {
                    Some(texts) => {
                        let with = |text| {
                            let mut event = event.clone();
                            event.data = Some(text);
                            Ok(event)
                        };
                        texts.into_iter().map(with).collect()
                    }
                    None => vec![Ok(event)],
                }
            }
            Err(error) => vec![Err(error)],
        };
        stream::iter(events)
    });
    stream.boxed()
}

/// The answer to the request of this id in the body of a response.
fn answered<E: std::error::Error + Send + Sync + 'static>(
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
        let id = match &message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let request =
            self.inner.post_message_with_response_limits(uri, message, session, token, headers, limits);
        Ok(match (asked(&self.part, request).await?, id) {
            (StreamableHttpPostResponse::Sse(stream, session), id) => {
                StreamableHttpPostResponse::Sse(paced(stream, &self.part, id), session)
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
        let stream = self.inner.get_stream(uri, session, last, token, headers);
        Ok(paced(asked(&self.part, stream).await?, &self.part, None))
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
        let stream = self.inner.get_stream_with_max_sse_event_size(uri, session, last, token, headers, most);
        Ok(paced(asked(&self.part, stream).await?, &self.part, None))
    }
}
