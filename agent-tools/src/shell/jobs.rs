//! The jobs of a shell: commands that go on after the call that began them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use entourage_core::{SessionId, tool::ToolError};
use tokio::time::Instant;

use super::running::Running;

/// Most jobs that are kept.
pub(super) const MOST: usize = 50;
/// Time for which a job that ended is kept.
const KEPT: Duration = Duration::from_secs(8 * 3_600);
/// Time that all commands together have to end when the shell is closed.
const CLOSING: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Job {
    session: SessionId,
    running: Arc<Running>,
}

#[derive(Debug, Default)]
struct Table {
    jobs: BTreeMap<u32, Job>,
    last: u32,
    /// All commands, those of calls that wait for them as well.
    active: Vec<Weak<Running>>,
    closed: bool,
}

/// The jobs of one shell. Dropping it kills them.
#[derive(Debug, Default)]
pub(super) struct Jobs(Mutex<Table>);

impl Jobs {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses a new command when the shell is closed, or a new job when there is no room for it.
    pub(super) fn check(&self, job: bool) -> Result<(), ToolError> {
        let mut table = self.table();
        if table.closed {
            return Err(ToolError::tell("the shell was closed; no further command can run"));
        }
        if job { table.make_room() } else { Ok(()) }
    }

    /// Keeps sight of a command that a call waits for.
    pub(super) fn watch(&self, running: &Arc<Running>) {
        let mut table = self.table();
        table.active.retain(|it| it.upgrade().is_some_and(|it| it.end().is_none()));
        table.active.push(Arc::downgrade(running));
        if table.closed {
            running.kill();
        }
    }

    /// Makes a command a job of `session`, and returns its id.
    pub(super) fn add(&self, session: &SessionId, running: &Arc<Running>) -> Result<String, ToolError> {
        let mut table = self.table();
        table.make_room()?;
        table.last = table.last.saturating_add(1);
        let id = table.last;
        table.jobs.insert(id, Job { session: session.clone(), running: Arc::clone(running) });
        Ok(format!("{id:03X}"))
    }

    /// Returns the job `id` of `session`. That of another session is as unknown as one that never was.
    pub(super) fn find(&self, session: &SessionId, id: &str) -> Result<Arc<Running>, ToolError> {
        let mut table = self.table();
        table.forget_old();
        let known = |id: &str| {
            let number = u32::from_str_radix(id, 16).ok().filter(|number| format!("{number:03X}") == id)?;
            table.jobs.get(&number).filter(|job| job.session == *session)
        };
        known(id.trim()).map(|job| Arc::clone(&job.running)).ok_or_else(|| {
            let id: String = id.chars().take(20).collect();
            ToolError::tell(format!(
                "there is no job `{id}` of this session; jobs end with the program that runs them, and are forgotten 8 \
                 hours after their end: start the command again with `bash`"
            ))
        })
    }

    fn all(&self, close: bool) -> Vec<Arc<Running>> {
        let mut table = self.table();
        table.closed |= close;
        let jobs = table.jobs.values().map(|job| Arc::clone(&job.running));
        jobs.chain(table.active.iter().filter_map(Weak::upgrade)).filter(|it| it.end().is_none()).collect()
    }

    /// Kills all commands, and waits until they have ended, for a bounded time.
    pub(super) async fn close(&self) {
        let all = self.all(true);
        all.iter().for_each(|running| running.kill());
        let ended = async {
            for running in &all {
                running.wait().await;
            }
        };
        let _ = tokio::time::timeout(CLOSING, ended).await;
    }
}

impl Table {
    fn forget_old(&mut self) {
        let now = Instant::now();
        self.jobs.retain(|_, job| {
            job.running.end().is_none_or(|end| now.saturating_duration_since(end.at) < KEPT)
        });
    }

    /// Forgets the oldest job that ended, if there are too many.
    fn make_room(&mut self) -> Result<(), ToolError> {
        self.forget_old();
        if self.jobs.len() < MOST {
            return Ok(());
        }
        let ended = self.jobs.iter().find(|(_, job)| job.running.end().is_some()).map(|(id, _)| *id);
        let id = ended.ok_or_else(|| {
            ToolError::tell(format!("{MOST} jobs are running, which is the most; end one with `job_kill`"))
        })?;
        self.jobs.remove(&id);
        Ok(())
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.all(true).iter().for_each(|running| running.kill());
    }
}
