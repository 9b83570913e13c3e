//! Blocking work that ends with the call it belongs to.
//!
//! A thread cannot be killed, so work checks [`Stop`] often: before each directory entry and each read.

use std::{
    io::{self, Read},
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use entourage_core::tool::ToolError;

/// The reason why work has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Halt {
    /// The call was dropped.
    Dropped,
    /// The time limit has passed.
    TimeOver,
}

/// A check that tells blocking work to continue or stop.
#[derive(Debug, Clone)]
pub(super) struct Stop {
    dropped: Arc<AtomicBool>,
    time: Duration,
    /// `None` if it is beyond the range of the clock.
    deadline: Option<Instant>,
}

impl Stop {
    pub(super) fn new(dropped: Arc<AtomicBool>, time: Duration) -> Self {
        Self { dropped, time, deadline: Instant::now().checked_add(time) }
    }

    #[cfg(test)]
    pub(super) fn after(time: Duration) -> Self {
        Self::new(Arc::default(), time)
    }

    /// Ok while work may continue.
    pub(super) fn check(&self) -> Result<(), Halt> {
        if self.dropped.load(Ordering::Relaxed) {
            Err(Halt::Dropped)
        } else if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            Err(Halt::TimeOver)
        } else {
            Ok(())
        }
    }

    /// The time limit, for texts.
    pub(super) fn limit(&self) -> String {
        format!("{} s", self.time.as_secs_f32())
    }
}

/// A reader that fails once work has to stop.
#[derive(Debug)]
pub(super) struct StopReader<'a, R> {
    pub(super) inner: R,
    pub(super) stop: &'a Stop,
}

impl<R: Read> Read for StopReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // Not `Interrupted`: readers would retry for ever.
        self.stop.check().map_err(|_| io::Error::other("stopped"))?;
        self.inner.read(buffer)
    }
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` on a thread that may block, for at most about `time`. Dropping the future stops it.
pub(super) async fn blocking<T: Send + 'static>(
    time: Duration,
    work: impl FnOnce(&Stop) -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let dropped = Arc::new(AtomicBool::new(false));
    let _guard = SetOnDrop(Arc::clone(&dropped));
    // The time runs from the moment a thread is free.
    let task = tokio::task::spawn_blocking(move || {
        let stop = Stop::new(dropped, time);
        stop.check().map_err(|halt| halted(halt, &stop))?;
        work(&stop)
    });
    task.await.unwrap_or_else(|_| {
        Err(ToolError::tell("the tool broke off; this is a defect in it, try another way"))
    })
}

/// Calls `work` on another thread while `own` runs on this one; here as well where no thread is to be had.
pub(super) fn meanwhile<T: Send, U>(work: impl Fn() -> T + Sync, own: impl FnOnce() -> U) -> (T, U) {
    thread::scope(|scope| {
        let started = thread::Builder::new().spawn_scoped(scope, &work);
        let own = own();
        match started {
            Ok(started) => (started.join().unwrap_or_else(|panic| resume_unwind(panic)), own),
            Err(_) => (work(), own),
        }
    })
}

/// The error result of work that has nothing to show when it is stopped.
pub(super) fn halted(halt: Halt, stop: &Stop) -> ToolError {
    match halt {
        Halt::Dropped => ToolError::tell("the call was cancelled"),
        Halt::TimeOver => ToolError::tell(format!("stopped after {}; ask for less", stop.limit())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn dropping_the_call_ends_the_work() {
        let (started, on_start) = tokio::sync::oneshot::channel();
        let (ended, on_end) = mpsc::channel();
        let call = blocking(Duration::MAX, move |stop| {
            let _ = started.send(());
            while stop.check().is_ok() {
                thread::yield_now();
            }
            let _ = ended.send(stop.check());
            Ok(())
        });
        tokio::select! {
            _ = call => panic!("it ended by itself"),
            started = on_start => started.unwrap(),
        }
        assert_eq!(on_end.recv_timeout(Duration::from_secs(30)).unwrap(), Err(Halt::Dropped));
    }

    #[tokio::test]
    async fn no_time_and_a_panic_are_error_results() {
        let late = blocking(Duration::ZERO, |_| Ok(())).await;
        assert!(
            matches!(&late, Err(ToolError::Tell(text)) if text.contains("stopped after 0 s")),
            "{late:?}"
        );
        let broken = blocking(Duration::MAX, |_| -> Result<(), ToolError> { panic!("on purpose") }).await;
        assert!(matches!(&broken, Err(ToolError::Tell(text)) if text.contains("defect")), "{broken:?}");
    }

    #[test]
    fn a_reader_fails_once_stopped() {
        let stop = Stop::after(Duration::ZERO);
        let error = StopReader { inner: &b"x"[..], stop: &stop }.read(&mut [0]).unwrap_err();
        assert_ne!(error.kind(), io::ErrorKind::Interrupted);
    }
}
