//! Streams of servers at an address, which say how soon they are asked for again.
//!
//! The library that asks does as it is told: at once, again and again, or never.

use std::{collections::HashMap, sync::Arc};

use futures_util::StreamExt;
use http::{HeaderName, HeaderValue};
use rmcp::{
    model::ClientJsonRpcMessage,
    transport::{
        common::client_side_sse::BoxedSseResponse,
        streamable_http_client::{
            StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
            StreamableHttpResponseLimits,
        },
    },
};

/// Least and most milliseconds until a stream that ended is asked for again.
const SOONEST: u64 = 250;
const LATEST: u64 = 60_000;

type Headers = HashMap<HeaderName, HeaderValue>;

/// The client below, with bounds on what its streams say.
#[derive(Debug, Clone)]
pub(super) struct Paced<C>(pub(super) C);

fn paced(stream: BoxedSseResponse) -> BoxedSseResponse {
    let stream = stream.map(|event| {
        event.map(|mut event| {
            event.retry = event.retry.map(|wait| wait.clamp(SOONEST, LATEST));
            event
        })
    });
    stream.boxed()
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
        let answer =
            self.0.post_message_with_response_limits(uri, message, session, token, headers, limits).await?;
        Ok(match answer {
            StreamableHttpPostResponse::Sse(stream, session) => {
                StreamableHttpPostResponse::Sse(paced(stream), session)
            }
            other => other,
        })
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<(), StreamableHttpError<C::Error>> {
        self.0.delete_session(uri, session, token, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<BoxedSseResponse, StreamableHttpError<C::Error>> {
        Ok(paced(self.0.get_stream(uri, session, last, token, headers).await?))
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
        let stream = self.0.get_stream_with_max_sse_event_size(uri, session, last, token, headers, most);
        Ok(paced(stream.await?))
    }
}
