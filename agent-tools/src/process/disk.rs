//! The free space of a file system while a child runs.

use std::{path::PathBuf, time::Duration};

use tokio::time::sleep;

/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(500);

/// A file system, by a place on it, and the bytes that stay free.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    pub(crate) place: PathBuf,
    pub(crate) floor: u64,
}

impl Disk {
    /// Waits until less than the floor is free; until half of what was free is used up, where that was less than the
    /// floor from the start. Never ends where the system does not tell.
    pub(crate) async fn full(self) {
        let Self { place, floor } = self;
        let mut least = None;
        loop {
            let looked = place.clone();
            let free = tokio::task::spawn_blocking(move || free(&looked)).await.ok().flatten();
            let Some(free) = free else { return std::future::pending().await };
            if free < *least.get_or_insert(if free < floor { free / 2 } else { floor }) {
                return;
            }
            sleep(PAUSE).await;
        }
    }
}

/// The bytes that this program's user can still write.
#[cfg(unix)]
fn free(place: &std::path::Path) -> Option<u64> {
    let found = rustix::fs::statvfs(place).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(not(unix))]
fn free(_: &std::path::Path) -> Option<u64> {
    None
}
