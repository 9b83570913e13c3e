//! A command while it runs: a task reads its output, waits for its end, and kills its whole group when asked to.

use std::{
    path::PathBuf,
    process::ExitStatus,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use serde_json::Value;
use tokio::{
    process::Child,
    sync::{Notify, watch},
    time::Instant,
};

use super::{
    confine::{Enforced, Started},
    output::{Cut, Stream},
    watchdog::Care,
};
use crate::process::{
    disk::Disk,
    drive::{self, Bounds, Ended, pump},
    group::Group,
};

/// Time that a command has to end by itself when it is asked to.
const GRACE: Duration = Duration::from_secs(2);

/// Most paths of which a command's report says that they were taken back.
const SHOWN: usize = 20;

/// A look at what a command changed, once it has ended. Blocks.
pub(super) type After = Box<dyn FnOnce() -> Value + Send>;

/// The end of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    pub(super) code: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) took: Duration,
    pub(super) at: Instant,
    /// The reason that it was stopped.
    pub(super) aborted: Option<&'static str>,
}

#[derive(Debug, Default)]
struct Streams {
    out: Stream,
    err: Stream,
}

/// A command that was started.
#[derive(Debug)]
pub(super) struct Running {
    streams: Mutex<Streams>,
    group: Group,
    stop: Notify,
    ended: watch::Sender<Option<End>>,
    started: Instant,
    /// The confinement by a sandbox.
    pub(super) enforced: Option<Enforced>,
    /// The changes that the sandbox took back, for the model; set before the end.
    restored: OnceLock<String>,
    /// The places that it changed, for programs; set before the end.
    changed: OnceLock<Value>,
}

impl Running {
    /// Watches over what was started, which ends after `limit` at the latest.
    pub(super) fn new(started: Started, limit: Duration, disk: Disk, after: Option<After>) -> Arc<Self> {
        let Started { child, group, enforced, care } = started;
        let running = Arc::new(Self {
            streams: Mutex::default(),
            group,
            stop: Notify::new(),
            ended: watch::Sender::new(None),
            started: Instant::now(),
            enforced,
            restored: OnceLock::new(),
            changed: OnceLock::new(),
        });
        let bounds = Bounds { time: limit, grace: GRACE, disk: Some(disk) };
        tokio::spawn(drive(child, Arc::clone(&running), bounds, (care, after)));
        running
    }

    /// Returns what the sandbox took back of the command's changes, once it has ended.
    pub(super) fn restored(&self) -> Option<&str> {
        self.restored.get().map(String::as_str)
    }

    /// Returns the places that it changed, once it has ended, if they are looked at.
    pub(super) fn changed(&self) -> Option<&Value> {
        self.changed.get()
    }

    /// Returns its end, once it has ended.
    pub(super) fn end(&self) -> Option<End> {
        *self.ended.borrow()
    }

    /// Waits for its end.
    pub(super) async fn wait(&self) -> Option<End> {
        let mut ended = self.ended.subscribe();
        ended.wait_for(Option::is_some).await.ok().and_then(|end| *end)
    }

    /// Kills its group at once.
    pub(super) fn kill(&self) {
        self.group.kill();
        #[cfg(not(unix))]
        self.stop.notify_one();
    }

    /// Asks it to end, and kills its group if it does not.
    pub(super) fn stop(&self) {
        self.stop.notify_one();
    }

    pub(super) fn took(&self) -> Duration {
        self.end().map_or_else(|| self.started.elapsed(), |end| end.took)
    }

    /// Its output, then its errors.
    pub(super) fn output(&self) -> Cut {
        let streams = self.streams();
        let mut all = streams.out.text.clone();
        if !all.is_empty() && !all.ends_line() && !streams.err.text.is_empty() {
            all.push_str("\n");
        }
        all.append(&streams.err.text);
        all
    }

    /// The line that it printed last, of its output before its errors.
    pub(super) fn last_line(&self) -> String {
        let streams = self.streams();
        let line = streams.out.text.last_line();
        if line.is_empty() { streams.err.text.last_line() } else { line }
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Kills the group if the task is dropped, as it is when its runtime shuts down.
struct KillOnDrop(Arc<Running>);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if self.0.end().is_none() {
            self.0.group.close();
            if let Some(enforced) = &self.0.enforced {
                enforced.order_end();
            }
            self.0.ended.send_if_modified(|end| {
                let lost = end.is_none();
                if lost {
                    let (took, at) = (self.0.started.elapsed(), Instant::now());
                    *end =
                        Some(End { code: None, signal: None, took, at, aborted: Some("its runtime ended") });
                }
                lost
            });
        }
    }
}

async fn drive(
    mut child: Child,
    running: Arc<Running>,
    bounds: Bounds,
    (care, after): (Care, Option<After>),
) {
    // Its care ends once nothing of it is left, however that comes.
    let _care = care;
    let _guard = KillOnDrop(Arc::clone(&running));
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let pumps = async {
        tokio::join!(
            pump(out, |bytes| running.streams().out.feed(bytes)),
            pump(err, |bytes| running.streams().err.feed(bytes)),
        );
    };
    let Ended { status, aborted } = drive::drive(child, &running.group, &running.stop, bounds, pumps).await;
    {
        let mut streams = running.streams();
        streams.out.end();
        streams.err.end();
    }
    if let Some(text) = restored(running.enforced.as_ref()).await {
        let _ = running.restored.set(text);
    }
    if let Some(after) = after
        && let Ok(changed) = tokio::task::spawn_blocking(after).await
    {
        let _ = running.changed.set(changed);
    }
    let (code, signal) = status.map_or((None, None), |status| (status.code(), signal_of(status)));
    let (took, at) = (running.started.elapsed(), Instant::now());
    running.ended.send_replace(Some(End { code, signal, took, at, aborted }));
}

/// Takes back what the command changed where only people write, and tells of that.
async fn restored(enforced: Option<&Enforced>) -> Option<String> {
    let enforced = enforced?;
    let back = match enforced.restore().await {
        Ok(paths) => (!paths.is_empty())
            .then(|| format!("taken back, since commands may not change them: {}", names(&paths))),
        Err(error) => Some(format!("changes of protected paths could not be taken back: {error}")),
    };
    let replaced = enforced.replaced();
    let replaced = (!replaced.is_empty()).then(|| {
        let names = names(&replaced);
        format!("the command was ended, since another program replaced what it may not change: {names}")
    });
    let all: Vec<String> = replaced.into_iter().chain(back).collect();
    (!all.is_empty()).then(|| all.join("\n"))
}

/// The first of these paths, and the number of the others.
fn names(paths: &[PathBuf]) -> String {
    let shown = paths.iter().take(SHOWN);
    let shown: Vec<_> = shown.map(|path| format!("`{}`", path.to_string_lossy().escape_debug())).collect();
    let more = paths.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

#[cfg(unix)]
fn signal_of(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
fn signal_of(_: ExitStatus) -> Option<i32> {
    None
}
