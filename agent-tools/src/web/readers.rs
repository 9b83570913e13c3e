//! Threads that read pages, each with a large stack.

use std::{
    fmt, io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Enough for the depth of a page, with the conversion's calls within one another.
const STACK: usize = 64 << 20;

/// Threads that wait for a page, at most, and the time for which each waits.
const KEPT: usize = 2;
const WAITS: Duration = Duration::from_secs(10);

/// Pages that are read at once, at most: so many small ones, and so many others. A small one takes a moment, and waits
/// for no other.
const AT_ONCE: usize = 4;

/// Most bytes of a small page.
const SMALL: usize = 256 << 10;

/// The turn of a page, kept until its thread is done with it.
pub(super) type Turn = OwnedSemaphorePermit;

/// Work on one page.
type Work = Box<dyn FnOnce() + Send>;

/// The threads that wait for work.
type Waiting = Mutex<Vec<Sender<Work>>>;

/// Gives each page a thread of its own. A thread that is done waits a while for the next page, since the memory of a
/// new one costs a third of a large page's time. Clones share the threads.
#[derive(Clone)]
pub(super) struct Readers {
    waiting: Arc<Waiting>,
    waits: Duration,
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

impl Default for Readers {
    fn default() -> Self {
        let turns = || Arc::new(Semaphore::new(AT_ONCE));
        Self { waiting: Arc::default(), waits: WAITS, small: turns(), large: turns() }
    }
}

impl Readers {
    /// Waits until few enough pages of about that size are read. The work must keep the turn to its end: a thread whose
    /// call was dropped still runs for a moment, and such calls must not pile up.
    ///
    /// # Errors
    /// None: the turns are never closed.
    pub(super) async fn turn(&self, bytes: usize) -> io::Result<Turn> {
        let turns = if bytes <= SMALL { &self.small } else { &self.large };
        Arc::clone(turns).acquire_owned().await.map_err(io::Error::other)
    }

    /// Has a thread do this work.
    ///
    /// # Errors
    /// That of a system without room for one more thread.
    pub(super) fn give(&self, mut work: Work) -> io::Result<()> {
        // Work is sent with the list locked: see `next`.
        let mut waiting = lock(&self.waiting);
        while let Some(reader) = waiting.pop() {
            match reader.send(work) {
                Ok(()) => return Ok(()),
                Err(refused) => work = refused.0,
            }
        }
        drop(waiting);
        let waiting = Arc::downgrade(&self.waiting);
        let waits = self.waits;
        let reads = move || {
            let mut next = Some(work);
            while let Some(work) = next {
                work();
                next = wait(&waiting, waits);
            }
        };
        thread::Builder::new().name("html".into()).stack_size(STACK).spawn(reads).map(drop)
    }
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readers").field("waiting", &lock(&self.waiting).len()).finish()
    }
}

/// Waits for the next page; `None` when the time is over, enough threads wait, or no client is left.
fn wait(waiting: &Weak<Waiting>, time: Duration) -> Option<Work> {
    let (sender, receiver) = channel();
    {
        let waiting = waiting.upgrade()?;
        let mut waiting = lock(&waiting);
        if waiting.len() >= KEPT {
            return None;
        }
        waiting.push(sender);
    }
    match receiver.recv_timeout(time) {
        Ok(work) => Some(work),
        Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => last(waiting, receiver),
    }
}

/// Takes the work that came in the last moment. Afterwards none can be sent: the receiver is dropped while the list is
/// locked.
fn last(waiting: &Weak<Waiting>, receiver: Receiver<Work>) -> Option<Work> {
    let waiting = waiting.upgrade()?;
    let _locked = lock(&waiting);
    let work = receiver.try_recv().ok();
    drop(receiver);
    work
}

fn lock(waiting: &Waiting) -> MutexGuard<'_, Vec<Sender<Work>>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashSet,
        sync::mpsc::{Receiver, channel},
        thread::{self, ThreadId},
    };

    use futures_util::FutureExt;

    use super::*;

    /// Has a thread tell its id, and then wait until the sender is dropped.
    fn busy(readers: &Readers) -> (Receiver<ThreadId>, Sender<()>) {
        let (tells, told) = channel();
        let (sender, gate) = channel::<()>();
        let work = move || {
            tells.send(thread::current().id()).unwrap();
            assert!(gate.recv().is_err(), "nothing is sent");
        };
        readers.give(Box::new(work)).unwrap();
        (told, sender)
    }

    /// Waits until so many threads wait.
    fn until_waiting(readers: &Readers, count: usize) {
        while lock(&readers.waiting).len() != count {
            thread::yield_now();
        }
    }

    #[test]
    fn cf03_pages_at_once_have_threads_of_their_own_and_later_ones_take_those() {
        let readers = Readers { waits: Duration::MAX, ..Readers::default() };
        let all: Vec<_> = (0..3).map(|_| busy(&readers)).collect();
        let ids: HashSet<_> = all.iter().map(|(told, _)| told.recv().unwrap()).collect();
        assert_eq!(ids.len(), 3);
        drop(all);
        until_waiting(&readers, KEPT);
        for _ in 0..3 {
            let (told, gate) = busy(&readers);
            assert!(ids.contains(&told.recv().unwrap()), "it is one of them");
            drop(gate);
            until_waiting(&readers, KEPT);
        }
    }

    #[tokio::test]
    async fn attack_46_few_pages_are_read_at_once_and_one_that_breaks_gives_its_turn_back() {
        let readers = Readers::default();
        let mut gates = Vec::new();
        for _ in 0..AT_ONCE {
            let turn = readers.turn(SMALL + 1).await.unwrap();
            let (sender, gate) = channel::<()>();
            let work = move || {
                let _turn = turn;
                assert!(gate.recv().is_err(), "nothing is sent");
                panic!("a page broke the reader");
            };
            readers.give(Box::new(work)).unwrap();
            gates.push(sender);
        }
        assert!(readers.turn(SMALL + 1).now_or_never().is_none());
        let small: Vec<_> = (0..AT_ONCE).map(|_| readers.turn(SMALL).now_or_never()).collect();
        assert!(small.iter().all(Option::is_some), "they wait for no large one");
        assert!(readers.turn(SMALL).now_or_never().is_none());
        gates.pop();
        assert!(readers.turn(SMALL + 1).await.is_ok());
    }

    #[test]
    fn cf03_work_that_panics_takes_its_thread_alone() {
        let readers = Readers::default();
        let (sender, gate) = channel::<()>();
        readers
            .give(Box::new(move || {
                let _sender = sender;
                panic!("a page broke the reader")
            }))
            .unwrap();
        assert!(gate.recv().is_err(), "it ended");
        let (told, _gate) = busy(&readers);
        assert!(told.recv().is_ok());
    }

    #[test]
    fn cf03_a_thread_ends_with_the_last_client_and_loses_no_work_at_its_time() {
        let waiting = Arc::new(Waiting::default());
        let weak = Arc::downgrade(&waiting);
        let (sender, receiver) = channel::<Work>();
        sender.send(Box::new(|| ())).unwrap();
        assert!(last(&weak, receiver).is_some(), "it came in the last moment");
        let (sender, receiver) = channel::<Work>();
        assert!(last(&weak, receiver).is_none());
        assert!(sender.send(Box::new(|| ())).is_err(), "whoever gives it takes another thread");
        let waits = thread::spawn(move || wait(&weak, Duration::MAX).is_none());
        while lock(&waiting).is_empty() {
            thread::yield_now();
        }
        drop(waiting);
        assert!(waits.join().unwrap());
    }
}
