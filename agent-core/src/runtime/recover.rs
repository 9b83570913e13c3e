//! Going on with what a dead process left, and with what waits for a decision.

use std::{collections::HashMap, fmt, sync::Arc};

use super::{
    Runtime,
    desk::{Entry, Shared},
};
use crate::{
    Error, ErrorKind, ErrorRecord, Result, RunId, SessionId,
    agent::Agent,
    permission::{ApprovalId, Decision},
    run::{Admission, RunHandle},
    session::{SessionFilter, SessionInfo, SessionStatus},
};

/// Agents by name: who may go on with the runs that a process left. Cloning shares it.
#[derive(Clone, Default)]
pub struct Agents(Arc<HashMap<String, Arc<dyn Agent>>>);

impl Agents {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same and `agent`, instead of any other of its name.
    #[must_use]
    pub fn with(mut self, agent: impl Agent + 'static) -> Self {
        Arc::make_mut(&mut self.0).insert(agent.name().to_owned(), Arc::new(agent));
        self
    }

    /// The agent of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Agent>> {
        self.0.get(name)
    }
}

impl fmt::Debug for Agents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// What [`Runtime::recover`] found.
#[derive(Debug, Default)]
#[non_exhaustive]
#[must_use = "dropping the runs cancels them; await their outcomes or detach them"]
pub struct Recovery {
    /// The runs that go on, each in its session. The outcome of one that another process was faster with is
    /// [`ErrorKind::Conflict`] or [`ErrorKind::Busy`].
    pub resumed: Vec<RunHandle>,
    /// The sessions that stay as they are.
    pub skipped: Vec<Skipped>,
}

impl Recovery {
    /// Lets the runs go on without their handles.
    pub fn detach(self) {
        self.resumed.into_iter().for_each(RunHandle::detach);
    }
}

/// A session that was not gone on with.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Skipped {
    /// Which.
    pub session: SessionId,
    /// Who would go on with it; empty if that cannot be told.
    pub agent: Arc<str>,
    /// Why not.
    pub reason: SkipReason,
}

/// Why a session was not gone on with.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SkipReason {
    /// No agent of this name was given.
    UnknownAgent,
    /// It cannot be read.
    Unreadable(ErrorRecord),
}

/// What there is to go on with in a session.
enum Left {
    Run(RunId, Arc<str>),
    Prompt(RunId, Arc<str>, Admission),
    Nothing,
}

impl Runtime {
    /// Goes on with what dead processes left in the store: runs that have no end, each by the agent of its name among
    /// `agents`, and behind them the prompts that were waiting. A run whose session somebody holds a lease of is not
    /// touched, and so is one that is paused; children go on with their roots.
    ///
    /// Several processes may recover one store: each run is admitted in one of them. A process that died holds its leases
    /// for a while ([`RuntimeBuilder::lease`](super::RuntimeBuilder::lease)): call this again after that time.
    ///
    /// # Errors
    /// The store's, when it cannot list its sessions. What concerns one session alone is told in [`Recovery`].
    pub async fn recover(&self, agents: &Agents) -> Result<Recovery> {
        let running = SessionFilter::roots().with_status(SessionStatus::Running);
        let mut found = Recovery::default();
        for info in self.sessions(&running).await? {
            let now = self.0.env.clock.now();
            if info.lease.is_none_or(|lease| !lease.is_live(now)) {
                self.recover_session(info, agents, &mut found).await;
            }
        }
        Ok(found)
    }

    async fn recover_session(&self, info: SessionInfo, agents: &Agents, found: &mut Recovery) {
        let session = self.session_with_id(info.record.id.clone()).0;
        if session.is_busy() {
            return;
        }
        let mut skip = |agent, reason| {
            found.skipped.push(Skipped { session: info.record.id.clone(), agent, reason });
        };
        let (run, agent, admission) = match left(&session, info.head.seq).await {
            Ok(Left::Run(run, agent)) => (run, agent, Admission::Recover),
            Ok(Left::Prompt(run, agent, admission)) => (run, agent, admission),
            Ok(Left::Nothing) => return,
            Err(error) => return skip(info.head.agent, SkipReason::Unreadable(error.record())),
        };
        match agents.get(&agent) {
            None => skip(agent, SkipReason::UnknownAgent),
            Some(agent) => {
                let entry = Entry::new(run, Arc::clone(agent));
                found.resumed.push(session.go_on(entry, admission, Some(agents.clone())));
            }
        }
    }

    /// Answers a question that paused a run, whichever session asked it; a child's too. To go on, resume the root of that
    /// session with [`Session::resume`](super::Session::resume): it enters its children again. Another process may do so, days later.
    ///
    /// # Errors
    /// Those of [`Session::decide`](super::Session::decide); [`ErrorKind::NotFound`] also for an id that names no session.
    pub async fn decide(&self, id: &ApprovalId, decision: Decision) -> Result<()> {
        let session = id.session().ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "no question has such an id").with("approval", id.as_str())
        })?;
        self.open(&session).await?.decide(id, decision).await
    }
}

async fn left(session: &Arc<Shared>, seq: u64) -> Result<Left> {
    session.forget_older(seq);
    let journal = session.journal(false).await?;
    Ok(journal.read(|state| {
        if state.head().status != SessionStatus::Running {
            return Left::Nothing;
        }
        if let Some(run) = state.run() {
            return Left::Run(run.id, Arc::clone(&run.agent));
        }
        let Some(first) = state.queue().first() else { return Left::Nothing };
        let queued = &first.queued;
        let run = if queued.steer { RunId::generate() } else { queued.run };
        let admission = Admission::Queued(queued.task(), Some(first.seq));
        Left::Prompt(run, Arc::clone(&queued.agent), admission)
    }))
}
