//! A child until its end: it is waited for, asked to end, and killed with its whole group.

use std::{future::Future, process::ExitStatus, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Child,
    sync::Notify,
    time::{Instant, sleep_until, timeout},
};

use super::{disk::Disk, group::Group};

/// Time for which output of a child that ended is waited for.
const DRAIN: Duration = Duration::from_millis(500);
const BUFFER: usize = 16 * 1024;

/// The bounds of a child.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    /// Time after which its group is killed.
    pub(crate) time: Duration,
    /// Time that it has to end by itself when it is asked to.
    pub(crate) grace: Duration,
    /// The file system that it must not fill.
    pub(crate) disk: Option<Disk>,
}

/// The end of a child.
#[derive(Debug)]
pub(crate) struct Ended {
    /// `None` if it could not be waited for.
    pub(crate) status: Option<ExitStatus>,
    /// The reason that it was stopped.
    pub(crate) aborted: Option<&'static str>,
}

/// Waits for the end of `child`, which leads `group`, while `io` moves what it reads and writes. `stop` asks it to end.
/// The rest of its group is killed.
pub(crate) async fn drive(
    mut child: Child,
    group: &Group,
    stop: &Notify,
    bounds: Bounds,
    io: impl Future<Output = ()>,
) -> Ended {
    tokio::pin!(io);
    let far = Duration::from_secs(86_400 * 365);
    let mut deadline = Instant::now() + bounds.time.min(far);
    let (mut aborted, mut moved) = (None, false);
    let full = full(bounds.disk);
    tokio::pin!(full);
    let status = loop {
        tokio::select! {
            () = &mut io, if !moved => moved = true,
            status = child.wait() => break status.ok(),
            () = stop.notified(), if aborted.is_none() => {
                aborted = Some("it was stopped");
                group.ask_to_end();
                deadline = Instant::now() + bounds.grace;
            }
            () = &mut full, if aborted.is_none() => {
                aborted = Some("the disk is nearly full");
                group.kill();
                let _ = child.start_kill();
                deadline = Instant::now() + bounds.grace;
            }
            () = sleep_until(deadline) => {
                aborted = aborted.or(Some("its time was over"));
                group.kill();
                let _ = child.start_kill();
                deadline = Instant::now() + bounds.grace;
            }
        }
    };
    // A program at the end of a pipe may still have something to say; one that was left behind may hold the pipe open.
    if !moved {
        moved = timeout(DRAIN, &mut io).await.is_ok();
    }
    group.close();
    if !moved {
        let _ = timeout(DRAIN, &mut io).await;
    }
    Ended { status, aborted }
}

/// Waits until the file system is nearly full, for ever if it is not looked at.
async fn full(disk: Option<Disk>) {
    match disk {
        Some(disk) => disk.full().await,
        None => std::future::pending().await,
    }
}

/// Gives `feed` what comes from a pipe, up to its end.
pub(crate) async fn pump(from: Option<impl AsyncRead + Unpin>, mut feed: impl FnMut(&[u8])) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; BUFFER];
    while let Ok(read) = from.read(&mut buffer).await
        && read > 0
    {
        feed(buffer.get(..read).unwrap_or_default());
    }
}
