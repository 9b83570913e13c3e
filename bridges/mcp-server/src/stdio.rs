//! The standard streams of this process, in a way that keeps no process.
//!
//! tokio has threads for what it cannot poll, as the sockets that Node gives to its children, and the end of a runtime
//! waits for them: a client that reads nothing would keep the server for ever. Nothing waits for the threads here.

use std::{
    io::{self, ErrorKind, Read, Write},
    mem,
    pin::Pin,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker, ready},
    thread,
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::mpsc,
};

/// Bytes that are read or written at once.
const PART: usize = 64 << 10;

/// Time until a stream that has nothing to give, or no room, is tried again.
const PAUSE: Duration = Duration::from_millis(10);

pub(crate) type Reading = Box<dyn AsyncRead + Send + Unpin>;
pub(crate) type Writing = Box<dyn AsyncWrite + Send + Unpin>;

/// Opens the standard input and output.
///
/// # Errors
/// When no thread can be started.
pub(crate) fn open() -> io::Result<(Reading, Writing)> {
    #[cfg(unix)]
    let (read, write) = {
        // These are open file descriptions of their own, so that the process's own streams stay as they are. There is
        // none for what is no pipe, nor on systems without this directory.
        let pipe = tokio::net::unix::pipe::OpenOptions::new;
        let read = pipe().open_receiver("/proc/self/fd/0").ok().map(|it| Box::new(it) as Reading);
        let write = pipe().open_sender("/proc/self/fd/1").ok().map(|it| Box::new(it) as Writing);
        (read, write)
    };
    #[cfg(not(unix))]
    let (read, write) = (None, None);
    let read = match read {
        Some(read) => read,
        None => Box::new(Input::new(io::stdin())?),
    };
    let write = match write {
        Some(write) => write,
        None => Box::new(Output::new(io::stdout())?),
    };
    Ok((read, write))
}

/// An input that a thread of its own reads.
struct Input {
    parts: mpsc::Receiver<io::Result<Bytes>>,
    part: Bytes,
}

impl Input {
    fn new(read: impl Read + Send + 'static) -> io::Result<Self> {
        let (send, parts) = mpsc::channel(1);
        thread::Builder::new().name("mcp-input".to_owned()).spawn(move || all_parts(read, &send))?;
        Ok(Self { parts, part: Bytes::new() })
    }
}

/// Performs what is done again while a stream has nothing to give or no room, and is one that says so instead of
/// waiting: whoever else has it may have set that.
fn patient<T>(mut perform: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match perform() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(PAUSE),
            done => return done,
        }
    }
}

fn all_parts(mut read: impl Read, send: &mpsc::Sender<io::Result<Bytes>>) {
    let mut buffer = vec![0; PART];
    loop {
        let part = match patient(|| read.read(&mut buffer)) {
            Ok(0) => return,
            Ok(count) => Ok(Bytes::copy_from_slice(buffer.get(..count).unwrap_or_default())),
            Err(error) => Err(error),
        };
        let failed = part.is_err();
        if send.blocking_send(part).is_err() || failed {
            return;
        }
    }
}

impl AsyncRead for Input {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.part.is_empty() {
            match ready!(self.parts.poll_recv(cx)) {
                Some(part) => self.part = part?,
                None => return Poll::Ready(Ok(())),
            }
        }
        let count = buf.remaining().min(self.part.len());
        let part = self.part.split_to(count);
        buf.put_slice(&part);
        Poll::Ready(Ok(()))
    }
}

/// An output that a thread of its own writes, one part after another.
struct Output(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    part: Vec<u8>,
    /// True while a part is being written.
    writes: bool,
    failed: Option<ErrorKind>,
    /// Waits until everything is written.
    waits: Option<Waker>,
    /// True once nothing more comes.
    ends: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_all(&self, mut write: impl Write) {
        while let Some(part) = self.next() {
            let written = all_of(&part, &mut write).and_then(|()| patient(|| write.flush()));
            let waits = {
                let mut state = self.state();
                state.writes = false;
                state.failed = written.err().map(|error| error.kind());
                state.waits.take()
            };
            waits.into_iter().for_each(Waker::wake);
        }
    }

    /// Waits for a part; `None` once no more comes.
    fn next(&self) -> Option<Vec<u8>> {
        let is_idle = |state: &mut State| state.part.is_empty() && !state.ends && state.failed.is_none();
        let mut state =
            self.changed.wait_while(self.state(), is_idle).unwrap_or_else(PoisonError::into_inner);
        if state.part.is_empty() || state.failed.is_some() {
            return None;
        }
        state.writes = true;
        Some(mem::take(&mut state.part))
    }
}

fn all_of(mut part: &[u8], write: &mut impl Write) -> io::Result<()> {
    while !part.is_empty() {
        match patient(|| write.write(part))? {
            0 => return Err(ErrorKind::WriteZero.into()),
            count => part = part.get(count..).unwrap_or_default(),
        }
    }
    Ok(())
}

impl Output {
    fn new(write: impl Write + Send + 'static) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let its = Arc::clone(&shared);
        thread::Builder::new().name("mcp-output".to_owned()).spawn(move || its.write_all(write))?;
        Ok(Self(shared))
    }

    /// Waits until everything is written.
    fn poll_idle(&self, cx: &Context<'_>) -> Poll<io::Result<MutexGuard<'_, State>>> {
        let mut state = self.0.state();
        if let Some(kind) = state.failed {
            return Poll::Ready(Err(kind.into()));
        }
        if state.writes || !state.part.is_empty() {
            state.waits = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(state))
    }
}

impl AsyncWrite for Output {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = ready!(self.poll_idle(cx))?;
        let part = buf.get(..PART).unwrap_or(buf);
        state.part.extend_from_slice(part);
        self.0.changed.notify_one();
        Poll::Ready(Ok(part.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_idle(cx).map_ok(drop)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.0.state().ends = true;
        self.0.changed.notify_one();
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::{os::unix::net::UnixStream, sync::mpsc::channel};

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        runtime::Runtime,
        time::timeout,
    };

    use super::*;

    #[tokio::test]
    async fn bytes_arrive_in_order_and_ends_and_failures_are_told() {
        // Streams that wait, and that say that they would have to.
        for says_so in [false, true] {
            let (ours, theirs) = UnixStream::pair().unwrap();
            ours.set_nonblocking(says_so).unwrap();
            theirs.set_nonblocking(says_so).unwrap();
            let mut input = Input::new(ours.try_clone().unwrap()).unwrap();
            let mut output = Output::new(theirs.try_clone().unwrap()).unwrap();
            let sent: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
            let (mut all, expected) = (Vec::new(), sent.clone());
            let writing = async {
                output.write_all(&sent).await.unwrap();
                output.flush().await.unwrap();
                theirs.shutdown(std::net::Shutdown::Write).unwrap();
            };
            let (read, ()) = tokio::join!(input.read_to_end(&mut all), writing);
            assert!(read.unwrap() == expected.len() && all == expected);
            drop((input, ours));
            // The thread of the input has seen the end, so that nobody reads any more.
            let failed = async { while output.write_all(b"more").await.and(output.flush().await).is_ok() {} };
            timeout(Duration::from_secs(60), failed).await.unwrap();
        }
    }

    #[test]
    fn a_stream_that_is_stuck_keeps_no_runtime() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (done, ended) = channel();
        thread::spawn(move || {
            let runtime = Runtime::new().unwrap();
            let mut input = Input::new(ours.try_clone().unwrap()).unwrap();
            let mut output = Output::new(ours).unwrap();
            runtime.spawn(async move { input.read_u8().await });
            let writing = runtime.spawn(async move { while output.write_all(&[0; PART]).await.is_ok() {} });
            // Once the socket is full, nothing moves.
            runtime.block_on(async { timeout(Duration::from_millis(200), writing).await }).unwrap_err();
            drop(runtime);
            done.send(()).unwrap();
        });
        ended.recv_timeout(Duration::from_secs(60)).unwrap();
        drop(theirs);
    }
}
