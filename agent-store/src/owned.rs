//! Operations that come to their end without their caller.

use entourage_core::{Error, ErrorKind, Result};

/// Runs `work` in a task of its own from the first poll on. A caller that goes away, or polls no more, then neither stops
/// it nor leaves a lock in its hands that others wait for.
pub(crate) async fn owned<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    tokio::spawn(work).await.map_err(|error| {
        Error::new(ErrorKind::Internal, "the runtime stopped while the store was in use; see the cause")
            .caused_by(error)
    })?
}
