//! Queues of each session's writers, and bounds on the writers at work. A session that somebody else keeps locked
//! blocks its own waiters alone.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, Weak},
    time::Duration,
};

use entourage_core::{Result, SessionId};
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

use super::{JsonStore, directory::Directory, error::Failure};

/// Maximum number of sessions that are written at once, and of those that wait for another process's lock; the others
/// wait without holding a thread.
const ROOM: usize = 64;

#[derive(Debug)]
pub(super) struct Turns {
    sessions: std::sync::Mutex<HashMap<SessionId, Weak<Mutex<()>>>>,
    quick: Arc<Semaphore>,
    patient: Arc<Semaphore>,
}

impl Default for Turns {
    fn default() -> Self {
        let room = || Arc::new(Semaphore::new(ROOM));
        Self { sessions: std::sync::Mutex::default(), quick: room(), patient: room() }
    }
}

impl Turns {
    /// Waits for this process's other writers of the session.
    pub(super) async fn of(&self, session: &SessionId) -> OwnedMutexGuard<()> {
        self.line(session).lock_owned().await
    }

    fn line(&self, session: &SessionId) -> Arc<Mutex<()>> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = sessions.get(session).and_then(Weak::upgrade) {
            return line;
        }
        // Before the table grows, queues that nobody waits in are removed.
        if sessions.len() == sessions.capacity() {
            sessions.retain(|_, line| line.strong_count() > 0);
        }
        let line = Arc::default();
        sessions.insert(session.clone(), Arc::downgrade(&line));
        line
    }

    async fn room(of: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
        // It is never closed.
        Arc::clone(of).acquire_owned().await.ok()
    }
}

impl JsonStore {
    /// Runs `work` on a session's file, and gives it the time to wait for the file's lock: first none, so that a file
    /// which somebody else keeps locked does not block other sessions; then the lock timeout.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        operation: &'static str,
        session: SessionId,
        turns: impl Send + Sync + 'static,
        work: impl Fn(&Directory, Duration) -> Result<T, Failure> + Send + Sync + 'static,
    ) -> Result<T> {
        let (turns, work) = (Arc::new(turns), Arc::new(work));
        let held = (Arc::clone(&turns), Turns::room(&self.0.turns.quick).await);
        let at_once = Arc::clone(&work);
        let attempt = self.on(operation, session.clone(), held, move |directory| {
            match at_once(directory, Duration::ZERO) {
                Err(Failure::Locked) => Ok(None),
                done => done.map(Some),
            }
        });
        if let Some(done) = attempt.await? {
            return Ok(done);
        }
        let held = (turns, Turns::room(&self.0.turns.patient).await);
        self.on(operation, session, held, move |directory| work(directory, directory.patience)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_that_nobody_stands_in_are_forgotten() {
        let turns = Turns::default();
        let kept = turns.of(&SessionId::new("kept").unwrap()).await;
        for n in 0..10_000 {
            drop(turns.of(&SessionId::new(format!("s{n}")).unwrap()).await);
        }
        let sessions = turns.sessions.lock().unwrap();
        assert!(sessions.len() < 100, "{}", sessions.len());
        assert!(sessions.contains_key(&SessionId::new("kept").unwrap()));
        drop(kept);
    }
}
