//! A client that the program gives, in place of the library's.

use std::{
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
use tokio::{
    task::coop,
    time::{Instant, Sleep, sleep_until, timeout_at},
};

use super::transport::{Answer, BoxError, Fault, Outgoing};

type Response = http::Response<UnsyncBoxBody<Bytes, BoxError>>;
type Sender = dyn Fn(http::Request<Bytes>) -> BoxFuture<'static, Result<Response, BoxError>> + Send + Sync;

/// A function that sends requests. Clones share it.
#[derive(Clone)]
pub(crate) struct Given(Arc<Sender>);

impl Given {
    #[allow(dead_code, reason = "no wire may be compiled in")]
    pub(crate) fn new<R, B, E>(client: impl Fn(http::Request<Bytes>) -> R + Send + Sync + 'static) -> Self
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

    /// Lets the client send a request. The time is kept here: the client need not know it.
    pub(super) async fn send(&self, asked: Outgoing) -> Result<Answer, Fault> {
        let ends = asked.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let sent = (self.0)(request(asked)?);
        let answer = match ends {
            Some(ends) => timeout_at(ends, sent).await.map_err(|_| Fault::late())?,
            None => sent.await,
        };
        let (parts, body) = answer.map_err(Fault::given)?.into_parts();
        let late = ends.map(|ends| Box::pin(sleep_until(ends)));
        let body = Box::pin(Pieces { body, late });
        Ok(Answer { status: parts.status, headers: parts.headers, body })
    }
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Given")
    }
}

fn request(asked: Outgoing) -> Result<http::Request<Bytes>, Fault> {
    let Outgoing { method, url, headers, body, .. } = asked;
    let uri = http::Uri::try_from(url.as_str()).map_err(|error| Fault::unsent(error.into()))?;
    let mut request = http::Request::new(Bytes::from(body.unwrap_or_default()));
    (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) = (method, uri, headers);
    Ok(request)
}

/// The body of an answer, until the time of its call has passed.
///
/// A client may have pieces ready at every poll, for ever, and of no bytes. So the time is asked first, and each piece
/// costs some of the task's budget: others go on meanwhile, a cancel and timeouts around the call among them.
struct Pieces {
    body: UnsyncBoxBody<Bytes, BoxError>,
    late: Option<Pin<Box<Sleep>>>,
}

impl Stream for Pieces {
    type Item = Result<Bytes, Fault>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.late.as_mut().is_some_and(|late| late.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(Some(Err(Fault::late())));
        }
        let turn = ready!(coop::poll_proceed(cx));
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        turn.made_progress();
        // Trailers are the end.
        Poll::Ready(
            frame
                .and_then(|frame| frame.map(|frame| frame.into_data().ok()).transpose())
                .map(|piece| piece.map_err(Fault::given)),
        )
    }
}
