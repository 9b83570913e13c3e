//! The input of a client over pipes, of which a part is read ahead.
//!
//! While answers wait for their reader, no further message is taken. The end of the input is behind those that were not
//! taken, so it would not be seen.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf},
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

/// Bytes that are read ahead.
const AHEAD: usize = 64 << 10;
/// Time that calls have to answer after the end of the input. It is that of rmcp, which sees the end later.
const GRACE: Duration = Duration::from_secs(5);

/// Bytes that are read at once.
const PART: usize = 8 << 10;
/// Time that a client may read nothing while what it sends waits for that. Its end cannot be seen meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);

/// The bytes of an input.
pub(crate) struct Ahead {
    read: DuplexStream,
    _reading: AbortOnDropHandle<()>,
}

impl Ahead {
    /// Begins to read. At the end of the input `ended` is cancelled, and some time later `over`. A client that sends,
    /// and reads nothing of what is `written` to it for long, has left.
    pub(crate) fn new(
        mut input: impl AsyncRead + Send + Unpin + 'static,
        written: Written,
        ended: CancellationToken,
        over: CancellationToken,
    ) -> Self {
        let (read, mut write) = tokio::io::duplex(AHEAD);
        let reading = tokio::spawn(async move {
            pass(&mut input, &mut write, &written).await;
            drop(write);
            ended.cancel();
            sleep(GRACE).await;
            over.cancel();
        });
        Self { read, _reading: AbortOnDropHandle::new(reading) }
    }
}

/// Passes the input on, until it ends or its client has left. An input that fails has ended.
async fn pass(input: &mut (impl AsyncRead + Unpin), write: &mut DuplexStream, written: &Written) {
    let mut part = vec![0; PART];
    while let Ok(read @ 1..) = input.read(&mut part).await {
        let mut left = part.get(..read).unwrap_or_default();
        while !left.is_empty() {
            let before = written.count();
            match timeout(PATIENCE, write.write(left)).await {
                Ok(Ok(taken)) => left = left.get(taken..).unwrap_or_default(),
                Err(_) if written.count() != before => {}
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }
}

/// Bytes that were written so far.
#[derive(Clone, Default)]
pub(crate) struct Written(Arc<AtomicUsize>);

impl Written {
    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// The output below, whose bytes are counted.
pub(crate) struct Counted<W> {
    pub(crate) output: W,
    pub(crate) written: Written,
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Counted<W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.output).poll_write(cx, buf))?;
        self.written.0.fetch_add(count, Ordering::Relaxed);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.output).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.output).poll_shutdown(cx)
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
