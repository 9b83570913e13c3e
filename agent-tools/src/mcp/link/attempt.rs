//! The attempt to make the connection: one at a time, for all who wait.
//!
//! No task drives it. Those who wait do, so that it ends with the last of them, and nothing is left of it.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, MutexGuard, PoisonError},
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};

use super::{Link, Live};
use crate::mcp::{McpState, handshake::Failure};

/// The connection, or the reason for the model that there is none.
type Made = Result<Arc<Live>, String>;
type Attempt = BoxFuture<'static, Made>;

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
}

/// Notes that an attempt was given up, when it is dropped before its end.
struct GivenUp<'a> {
    link: &'a Link,
    number: u64,
    has_ended: bool,
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let slot = self.link.slot();
        // Another one may have begun, which the state is about.
        let mut shown = self.link.shown();
        if slot.number == self.number && shown.state == McpState::Starting {
            shown.failed("nobody waited for it any more; it is tried again when it is needed", false);
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
            let attempt = Arc::clone(self).attempt(slot.number).boxed().shared();
            slot.attempt = attempt.downgrade();
            attempt
        })
    }

    async fn attempt(self: Arc<Self>, number: u64) -> Made {
        let mut given_up = GivenUp { link: &self, number, has_ended: false };
        // The program's own code is called for a login, and others wait for this.
        let made = AssertUnwindSafe(self.made()).catch_unwind().await;
        let made = made.unwrap_or_else(|_| {
            Err(self.failed(Failure::Login("this program panicked while it logged in".to_owned())))
        });
        given_up.has_ended = true;
        // Who comes from now on, comes too late for this one.
        self.slot().attempt = None;
        made
    }

    async fn made(self: &Arc<Self>) -> Made {
        let mut shut = self.shut.subscribe();
        let made = async {
            let live = self.slot().live.clone();
            if let Some(live) = live
                && live.answers().await
            {
                return Ok(live);
            }
            // What it started ends before another one is.
            let broken = self.slot().live.take();
            drop(broken);
            self.shown().set(McpState::Starting);
            self.connect_with_login().await.map_err(|failure| self.failed(failure))
        };
        tokio::select! {
            biased;
            _ = shut.wait_for(|shut| *shut) => Err(self.is_over()),
            made = made => made,
        }
    }
}
