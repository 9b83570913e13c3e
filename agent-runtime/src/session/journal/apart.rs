//! Operations that end without their caller: a future that is kept and not polled blocks nobody.
//!
//! It is polled once where it begins, which suffices for a store in memory. If it is not done then, it continues in a
//! task of its own.

use std::{future::poll_fn, task::Poll};

use entourage_core::{Error, ErrorKind, Result};
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use crate::{caught::panic_text, session::delivery::nest::Nest};

/// Runs `work`, which continues also when this future is dropped after its first poll.
///
/// # Errors
/// Those of `work`; [`ErrorKind::Internal`] when it panicked, or the tokio runtime ended.
pub(crate) async fn apart<T: Send + 'static>(
    tasks: &TaskTracker,
    mut work: BoxFuture<'static, Result<T>>,
) -> Result<T> {
    if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await {
        return done;
    }
    // Outside of tokio nothing else would poll it: its caller has to.
    let Ok(tokio) = Handle::try_current() else { return work.await };
    let ended = tasks.spawn_on(Nest::inherited(work), &tokio).await;
    ended.unwrap_or_else(|failed| Err(unanswered(failed)))
}

fn unanswered(failed: tokio::task::JoinError) -> Error {
    let text = match failed.try_into_panic() {
        Ok(panic) => format!("the store panicked: {}", panic_text(panic)),
        Err(_) => {
            "the tokio runtime ended, and nobody knows what the store did; open the session again".into()
        }
    };
    Error::new(ErrorKind::Internal, text)
}
