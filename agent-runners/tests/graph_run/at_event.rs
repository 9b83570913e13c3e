//! An observer that does something to a session at one of its events.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use entourage_core::event::{Envelope, Observer};
use entourage_runtime::Session;

/// Does something to a session at one of its events.
#[derive(Clone)]
pub(crate) struct AtEvent(Arc<Inner>);

struct Inner {
    /// Events before it; the largest number once it was there.
    left: AtomicUsize,
    session: OnceLock<Session>,
    act: fn(&Session),
}

impl AtEvent {
    pub(crate) fn new(number: usize, act: fn(&Session)) -> Self {
        Self(Arc::new(Inner { left: AtomicUsize::new(number), session: OnceLock::new(), act }))
    }

    pub(crate) fn watch(&self, session: &Session) {
        assert!(self.0.session.set(session.clone()).is_ok());
    }

    /// True if there were as many events.
    pub(crate) fn was_reached(&self) -> bool {
        self.0.left.load(SeqCst) == usize::MAX
    }
}

impl fmt::Debug for AtEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AtEvent")
    }
}

impl Observer for AtEvent {
    fn on_event(&self, _: &Envelope) {
        let Inner { left, session, act } = &*self.0;
        match left.load(SeqCst) {
            usize::MAX => {}
            0 => {
                left.store(usize::MAX, SeqCst);
                act(session.get().unwrap());
            }
            more => left.store(more - 1, SeqCst),
        }
    }
}
