//! The input of a client over pipes, of which a part is read ahead.
//!
//! While answers wait for their reader, no further message is taken. The end of the input is behind those that were not
//! taken, so it would not be seen.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::io::{AsyncRead, DuplexStream, ReadBuf};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

/// Bytes that are read ahead.
const AHEAD: usize = 64 << 10;
/// Time that calls have to answer after the end of the input. It is that of rmcp, which sees the end later.
const GRACE: Duration = Duration::from_secs(5);

/// The bytes of an input.
pub(crate) struct Ahead {
    read: DuplexStream,
    _reading: AbortOnDropHandle<()>,
}

impl Ahead {
    /// Begins to read. Some time after the end of the input, `over` is cancelled.
    pub(crate) fn new(mut input: impl AsyncRead + Send + Unpin + 'static, over: CancellationToken) -> Self {
        let (read, mut write) = tokio::io::duplex(AHEAD);
        let reading = tokio::spawn(async move {
            // An input that fails has ended.
            let _ = tokio::io::copy(&mut input, &mut write).await;
            drop(write);
            tokio::time::sleep(GRACE).await;
            over.cancel();
        });
        Self { read, _reading: AbortOnDropHandle::new(reading) }
    }
}

impl AsyncRead for Ahead {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.read).poll_read(cx, buf)
    }
}
