//! The attempt to make the connection: one at a time, for all who wait. It ends with the last of them, and nothing is
//! left of it.

use std::{
    sync::{Arc, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};
use tokio::time::timeout;

use super::{Link, Live};
use crate::mcp::{McpState, client::Calls, handshake::Failure};

/// The connection, or the reason for the model that there is none.
type Made = Result<Arc<Live>, String>;
type Attempt = BoxFuture<'static, Made>;

/// Reason that an attempt came to nothing for which nobody waits.
pub(super) const GIVEN_UP: &str = "nobody waited for it any more; it is tried again when it is needed";
/// Longest time in which the process of an earlier connection ends, once it was killed.
const REST: Duration = Duration::from_secs(5);

/// The connection there is, and the attempt to make one.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) live: Option<Arc<Live>>,
    attempt: Option<WeakShared<Attempt>>,
    /// Number of the newest attempt.
    number: u64,
}

impl Slot {
    /// The attempt that somebody waits for.
    pub(super) fn running(&self) -> Option<Shared<Attempt>> {
        self.attempt.as_ref().and_then(WeakShared::upgrade)
    }

    /// True if the connection with these calls is the one there is.
    pub(super) fn is_on(&self, calls: &Arc<Calls>) -> bool {
        self.live.as_ref().is_some_and(|live| Arc::ptr_eq(&live.calls, calls))
    }

    #[cfg(test)]
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// True if this attempt is the newest one, and was not given up.
    pub(super) fn is_current(&self, number: u64) -> bool {
        self.number == number && self.attempt.is_some()
    }
}

/// An attempt, whose end is noted when this is dropped.
struct Running {
    link: Arc<Link>,
    number: u64,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut slot = self.link.slot();
        // Another one may have begun, as nobody waited for this.
        if slot.number == self.number {
            // Who comes from now on, comes too late for it.
            slot.attempt = None;
        }
        let mut shown = self.link.shown();
        if slot.attempt.is_none() && shown.state == McpState::Starting {
            shown.failed(GIVEN_UP, false);
        }
    }
}

impl Link {
    pub(super) fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the connection, made anew if it broke.
    ///
    /// # Errors
    /// The reason that there is none, for the model.
    pub(in crate::mcp) async fn live(self: &Arc<Self>) -> Made {
        let attempt = {
            let mut slot = self.slot();
            if self.server.is_disabled || *self.shut.borrow() {
                return Err(self.is_over());
            }
            match &slot.live {
                Some(live) if live.is_heard() => return Ok(Arc::clone(live)),
                _ => self.join(&mut slot),
            }
        };
        attempt.await
    }

    /// The attempt that runs, or a new one.
    fn join(self: &Arc<Self>, slot: &mut Slot) -> Shared<Attempt> {
        slot.running().unwrap_or_else(|| {
            slot.number = slot.number.wrapping_add(1);
            let running = || Running { link: Arc::clone(self), number: slot.number };
            let attempt = running().waited(running().made()).boxed().shared();
            slot.attempt = attempt.downgrade();
            attempt
        })
    }

    async fn made(self: &Arc<Self>, number: u64) -> Made {
        let mut shut = self.shut.subscribe();
        let made = async {
            // One that was given up may be in its last poll, with a server of its own.
            let _turn = self.attempts.lock().await;
            let live = self.slot().live.clone();
            if let Some(live) = live
                && live.answers().await
            {
                return Ok(live);
            }
            let broken = self.slot().live.take();
            if let Some(broken) = broken {
                broken.give_way();
            }
            self.shown().set(McpState::Starting);
            // What was started before ends before another one is started.
            let _ = timeout(REST, self.processes.closed()).await;
            self.connect_with_login(number).await.map_err(|failure| self.failed(failure))
        };
        tokio::select! {
            biased;
            _ = shut.wait_for(|shut| *shut) => Err(self.is_over()),
            made = made => made,
        }
    }
}

impl Running {
    /// Waits for the attempt. Its end is noted here, where the last who waits drops it before the task that performs it
    /// ends, and there, where nobody polls this any more.
    async fn waited(self, made: impl Future<Output = Made> + Send + 'static) -> Made {
        match self.link.driven(made).await {
            Ok(made) => made,
            Err(_) if *self.link.shut.borrow() => Err(self.link.is_over()),
            Err(reason) => Err(self.link.failed(Failure::Other(reason.to_owned()))),
        }
    }

    async fn made(self) -> Made {
        self.link.made(self.number).await
    }
}
