//! A client that the program gives, in place of the library's.

use std::{
    error::Error as StdError,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_util::{Stream, future::BoxFuture};
use http_body::Body;
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use tokio::task::coop;

pub(super) type BoxError = Box<dyn StdError + Send + Sync>;
type Response = http::Response<UnsyncBoxBody<Bytes, BoxError>>;

type Sender = dyn Fn(http::Request<Bytes>) -> BoxFuture<'static, Result<Response, BoxError>> + Send + Sync;

/// A function that sends requests. Clones share it.
#[derive(Clone)]
pub(super) struct Given(Arc<Sender>);

impl Given {
    pub(super) fn new<R, B, E>(client: impl Fn(http::Request<Bytes>) -> R + Send + Sync + 'static) -> Self
    where
        R: Future<Output = Result<http::Response<B>, E>> + Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
        E: Into<BoxError>,
    {
        Self(Arc::new(move |request| {
            let answer = client(request);
            Box::pin(async move {
                let answer = answer.await.map_err(Into::into)?;
                Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
            })
        }))
    }

    pub(super) async fn send(
        &self,
        request: http::Request<Bytes>,
    ) -> Result<http::Response<Pieces>, BoxError> {
        Ok((self.0)(request).await?.map(Pieces))
    }
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Given")
    }
}

/// The body of an answer.
///
/// A client may have pieces ready at every poll, for ever, and of no bytes. So each costs some of the task's budget:
/// others go on meanwhile, and the time of the call runs.
pub(super) struct Pieces(UnsyncBoxBody<Bytes, BoxError>);

impl Stream for Pieces {
    type Item = Result<Bytes, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let turn = ready!(coop::poll_proceed(cx));
        let frame = ready!(Pin::new(&mut self.0).poll_frame(cx));
        turn.made_progress();
        // Trailers are the end.
        Poll::Ready(frame.and_then(|frame| frame.map(|frame| frame.into_data().ok()).transpose()))
    }
}
