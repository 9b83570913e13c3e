//! A global allocator that counts on demand, and otherwise costs one relaxed load.
//!
//! Used by benches only, never by the library. Implementing `GlobalAlloc` is unsafe by definition; every call goes
//! straight to the system's allocator.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed},
};

/// The allocator, to be installed with `#[global_allocator]`.
#[derive(Debug, Clone, Copy)]
pub struct Counting;

static COUNTING: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);

/// Allocations during a piece of work.
#[derive(Debug, Clone, Copy)]
pub struct Counts {
    /// Allocations and reallocations.
    pub calls: u64,
    /// Bytes allocated and not freed.
    pub live: i64,
    /// The highest value of `live` during the work.
    pub peak: i64,
}

/// Counts the allocations of `work`, on all threads. Not for concurrent use.
pub fn count(work: impl FnOnce()) -> Counts {
    let (calls, live) = (CALLS.load(Relaxed), LIVE.load(Relaxed));
    PEAK.store(live, Relaxed);
    COUNTING.store(true, Relaxed);
    work();
    COUNTING.store(false, Relaxed);
    Counts {
        calls: CALLS.load(Relaxed) - calls,
        live: LIVE.load(Relaxed) - live,
        peak: PEAK.load(Relaxed) - live,
    }
}

fn note(grown: usize, shrunk: usize, call: bool) {
    if COUNTING.load(Relaxed) {
        CALLS.fetch_add(u64::from(call), Relaxed);
        let change = grown as i64 - shrunk as i64;
        let live = LIVE.fetch_add(change, Relaxed) + change;
        if change > 0 {
            PEAK.fetch_max(live, Relaxed);
        }
    }
}

// SAFETY: every method passes its arguments on to `System` unchanged and returns what that returns.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0, true);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note(0, layout.size(), false);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size, layout.size(), true);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(block, layout, size) }
    }
}
