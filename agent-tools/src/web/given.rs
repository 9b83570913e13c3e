//! A client that the program gives, in place of the library's.

use std::{error::Error as StdError, fmt, future::Future, sync::Arc};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body::Body;
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};

pub(super) type BoxError = Box<dyn StdError + Send + Sync>;
pub(super) type Response = http::Response<UnsyncBoxBody<Bytes, BoxError>>;

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

    pub(super) async fn send(&self, request: http::Request<Bytes>) -> Result<Response, BoxError> {
        (self.0)(request).await
    }
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Given")
    }
}
