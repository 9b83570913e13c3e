//! Operations that complete without their caller, each in a task of its own.

use std::time::Duration;

use entourage_core::{Error, ErrorKind, RetryStatus};
use tokio::runtime::Handle;

/// Upper bound of the timeouts that builders accept.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3_600);

/// Runs an operation in a task of its own and waits for it. If the caller drops the future or no longer polls it, the
/// operation completes without it, and so keeps no connection and no transaction open.
pub(crate) async fn owned<T: Send + 'static, E: From<Error> + Send + 'static>(
    operation: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, E> {
    let runtime = Handle::try_current().map_err(|error| {
        Error::new(ErrorKind::InvalidInput, "the store needs Tokio; call it from within a Tokio runtime")
            .caused_by(error)
    })?;
    runtime.spawn(operation).await.unwrap_or_else(|error| {
        let text = if error.is_panic() {
            "the operation panicked, which is a defect of the store; it may have happened or not, so look before it is \
             tried again"
        } else {
            "the runtime was shut down in the middle of the operation; it happened completely or not at all, try it again"
        };
        let retry = if error.is_panic() { RetryStatus::Permanent } else { RetryStatus::Temporary };
        Err(Error::new(ErrorKind::Internal, text).with_retry(retry).caused_by(error).into())
    })
}

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        task::{Context, Poll, Waker},
    };

    use super::*;

    #[tokio::test]
    async fn a_panic_is_a_typed_error() {
        let error = owned::<(), Error>(async { panic!("on purpose") }).await.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Internal, RetryStatus::Permanent));
        assert!(error.to_string().contains("panicked"), "{error}");
    }

    #[test]
    fn a_runtime_that_ends_is_a_typed_error() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut waiting = Box::pin(owned::<(), Error>(pending()));
        let mut context = Context::from_waker(Waker::noop());
        {
            let _entered = runtime.enter();
            assert!(waiting.as_mut().poll(&mut context).is_pending());
        }
        drop(runtime);
        let Poll::Ready(ended) = waiting.as_mut().poll(&mut context) else { panic!("still waiting") };
        let error = ended.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Internal, RetryStatus::Temporary));
    }

    #[test]
    fn a_store_without_a_runtime_is_a_typed_error() {
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(ended) = Box::pin(owned::<(), Error>(async { Ok(()) })).as_mut().poll(&mut context)
        else {
            panic!("still waiting")
        };
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    #[tokio::test]
    async fn an_operation_that_is_dropped_goes_on() {
        let (tell, told) = tokio::sync::oneshot::channel();
        let mut waiting = Box::pin(owned(async move {
            tokio::task::yield_now().await;
            tell.send(()).map_err(|()| Error::new(ErrorKind::Internal, "nobody listens"))
        }));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(waiting);
        told.await.unwrap();
    }
}
