//! Going back: what prompts changed outside of a session is restored, and the conversation continues from before them.

use std::sync::Arc;

use entourage_core::{
    Error, ErrorKind, Result, RunId,
    session::{Restored, Snapshots},
};
use tokio_util::sync::CancellationToken;

use crate::session::{
    Moment, Session,
    below::refuse_below,
    journal::{apart::apart, windows::Windows},
};

/// The result of [`Session::rewind`] and [`Session::restore`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Rewound {
    /// The session to go on with.
    pub session: Session,
    /// The places that were restored.
    pub restored: Restored,
    /// The snapshot of what there was before: [`Session::restore`] with it takes this back.
    pub before: RunId,
}

impl Session {
    /// Goes back to before the prompt of `run`: restores what that run, all after it and the agents below them changed,
    /// and returns a new session whose conversation ends before that prompt. Nothing is deleted: this session stays as
    /// it is, and what there was is kept as a snapshot of its own.
    ///
    /// It restores all that the runtime's [`snapshots`](crate::RuntimeBuilder::snapshots) keep, such as the files of a
    /// directory; also what others changed there since. For the conversation the contract of [`Session::fork`] holds.
    ///
    /// It is done whole: if the new session cannot be stored, what there was is put back. Dropping the future takes
    /// nothing back. After a crash in between, call it again.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a runtime without snapshots: use [`Session::fork`] there;
    /// [`ErrorKind::NotFound`] when the session has no such run, [`ErrorKind::Busy`] while a run is active,
    /// [`ErrorKind::InvalidInput`] for a session below another one; those of the snapshots, the store's.
    pub async fn rewind(&self, run: RunId) -> Result<Rewound> {
        let session = self.clone();
        apart(&self.env().tasks, Box::pin(async move { session.back(run, true).await })).await
    }

    /// Restores what `run`, all after it and the agents below them changed, and leaves the conversation as it is: an
    /// agent is not told. With the [`before`](Rewound::before) of an earlier result it takes that back.
    ///
    /// # Errors
    /// As [`Session::rewind`].
    pub async fn restore(&self, run: RunId) -> Result<Rewound> {
        let session = self.clone();
        apart(&self.env().tasks, Box::pin(async move { session.back(run, false).await })).await
    }

    async fn back(&self, run: RunId, forks: bool) -> Result<Rewound> {
        let env = self.env();
        let snapshots = env.snapshots.as_ref().ok_or_else(|| {
            let text = "the runtime keeps no snapshots; give it some when it is built, or fork the session, which \
                        leaves files as they are";
            Error::new(ErrorKind::Unsupported, text)
        })?;
        let _active = self.0.claim(RunId::generate(), &CancellationToken::new(), false).await?;
        let journal = self.0.journal(false).await?;
        refuse_below(env, &journal).await?;
        journal.check_unleased(env.clock.now())?;
        let (first, mut runs) = self.runs_from(run).await?;
        if first.is_none() {
            if forks {
                return Err(no_run(self, run));
            }
            // A snapshot that an earlier call left.
            runs.push(run);
        }
        let before = RunId::generate();
        snapshots.take(self.id(), before).await?;
        let restored = snapshots.restore(self.id(), &runs).await?;
        if first.is_none() && restored.run.is_none() {
            return Err(no_run(self, run));
        }
        let session = match first.filter(|_| forks) {
            None => self.clone(),
            Some(first) => match self.forked_before(first).await {
                Ok(session) => session,
                Err(error) => return Err(self.put_back(snapshots, before, error).await),
            },
        };
        Ok(Rewound { session, restored, before })
    }

    /// Returns a session with the conversation before event `first`; an empty one if there was none.
    async fn forked_before(&self, first: u64) -> Result<Session> {
        match first.saturating_sub(1) {
            0 => self.sibling(entourage_core::SessionId::generate()),
            last => self.fork(Moment::Event(last)).await,
        }
    }

    /// Restores what there was before a rewind that failed with `error`, and returns that.
    async fn put_back(&self, snapshots: &Arc<dyn Snapshots>, before: RunId, error: Error) -> Error {
        match snapshots.restore(self.id(), &[before]).await {
            Ok(_) => error,
            Err(failed) => {
                error.with("not_put_back", failed.to_string()).with("restore_with", before.to_string())
            }
        }
    }

    /// Returns the number of the event with which `run` began, if the session has it, and the ids of that run and all
    /// after it, in order.
    async fn runs_from(&self, run: RunId) -> Result<(Option<u64>, Vec<RunId>)> {
        let (mut first, mut runs) = (None, Vec::new());
        let mut windows = Windows::after(self.store()?, self.id(), 0);
        while let Some(rows) = windows.next().await? {
            for row in rows.iter().filter(|row| row.columns().kind == "run_started") {
                if first.is_none() && row.columns().run == run {
                    first = Some(row.seq());
                }
                if first.is_some() {
                    runs.push(row.columns().run);
                }
            }
        }
        Ok((first, runs))
    }
}

fn no_run(session: &Session, run: RunId) -> Error {
    Error::new(ErrorKind::NotFound, "the session has no such run, and no snapshot is kept of it")
        .with("session", session.id().as_str())
        .with("run", run.to_string())
}
