//! Recovery of what a dead process left, and of runs whose questions were answered.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use entourage_core::{
    Error, ErrorKind, ErrorRecord, Result, RunId, SessionId, Timestamp,
    event::Event,
    permission::{Answer, ApprovalId},
    run::Pause,
    session::{OpenQuestion, ReadRange, SessionFilter, SessionInfo, SessionState, SessionStatus},
};
use futures_util::future::join_all;

use crate::{
    agents::Agents,
    env::Env,
    run::{
        end::{end_stored, is_title},
        execute::Admission,
        handle::RunHandle,
    },
    runtime::Runtime,
    session::{
        journal::{
            Journal,
            queued::{InQueue, queued_task},
        },
        live::{Entry, Live},
        questions::over_above,
        runs::{Life, open_run},
    },
};

/// The result of [`Runtime::recover`].
#[derive(Debug, Default)]
#[non_exhaustive]
#[must_use = "dropping the runs cancels them; await their outcomes or detach them"]
pub struct Recovery {
    /// The runs that continue in this process, each admitted in its session. Those that another process was faster with
    /// are not among them.
    pub resumed: Vec<RunHandle>,
    /// The sessions that were left as they are, although nobody else continues them.
    pub skipped: Vec<Skipped>,
    /// The sessions with open work that hold a live lease, with the time at which it ends: another process works there,
    /// or died just now. A time far ahead comes from a process whose clock was wrong; no recovery touches that session
    /// until then, and [`Session::resume`](crate::Session::resume) takes it over.
    pub leased: BTreeMap<SessionId, Timestamp>,
}

impl Recovery {
    /// Lets the runs continue without their handles.
    pub fn detach(self) {
        self.resumed.into_iter().for_each(RunHandle::detach);
    }
}

/// A session that was not recovered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Skipped {
    /// The session.
    pub session: SessionId,
    /// Name of the agent that would continue it; empty if that cannot be told.
    pub agent: Arc<str>,
    /// The reason that it was not recovered.
    pub reason: SkipReason,
}

/// The reason that a session was not recovered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SkipReason {
    /// No agent of this name was given.
    UnknownAgent,
    /// It cannot be read.
    Unreadable(ErrorRecord),
    /// Its run could not begin or continue, as when the store refused to write.
    Refused(ErrorRecord),
}

/// The recovery in which a run continues.
pub(crate) struct Recovering {
    pub(crate) agents: Agents,
    /// The session's open run when it was looked at: if that is another process' by now, it is left alone.
    pub(crate) seen: Life,
}

/// The work that is left in a session.
struct Left {
    run: RunId,
    agent: Arc<str>,
    admission: Admission,
    seen: Life,
}

impl Runtime {
    /// Continues what dead processes left in the store: runs without an end, each with the agent of its name among
    /// `agents`, and the prompts queued behind them. A run whose session has a live lease is not touched. Children
    /// continue with their roots.
    ///
    /// A paused run continues if it was answered since: a question of it, or of an agent below it, was decided, or the
    /// signal that it waits for came. A caller that answers and then resumes by itself while others recover may find
    /// that one of them was faster ([`ErrorKind::Conflict`], [`ErrorKind::Busy`]). Other paused runs are not touched.
    ///
    /// Runs below one that is over, or was abandoned, which older versions left open, end as cancelled.
    ///
    /// Several processes may recover one store: each run is admitted in one of them. This returns once that is settled
    /// for each. A dead process holds its leases for a while ([`RuntimeBuilder::lease`](crate::RuntimeBuilder::lease)):
    /// call this again after that time, or after the last one in [`Recovery::leased`].
    ///
    /// # Errors
    /// The store's, when it cannot list its sessions. Errors of one session alone are in [`Recovery`].
    pub async fn recover(&self, agents: &Agents) -> Result<Recovery> {
        let (mut found, mut begun) = (Recovery::default(), Vec::new());
        for status in [SessionStatus::Running, SessionStatus::Paused] {
            for info in self.sessions(&SessionFilter::all().with_status(status)).await? {
                let now = self.0.env.clock.now();
                if let Some(lease) = info.lease.filter(|lease| lease.is_live(now)) {
                    found.leased.insert(info.record.id, lease.until);
                    continue;
                }
                if info.record.parent.is_none() {
                    begun.extend(self.recover_session(info, agents, &mut found).await);
                } else if let Err(error) = self.end_left_behind(info.clone()).await {
                    let reason = SkipReason::Refused(error.record());
                    found.skipped.push(Skipped { session: info.record.id, agent: info.head.agent, reason });
                }
            }
        }
        let mut admitted = Vec::with_capacity(begun.len());
        for (agent, run) in begun {
            admitted.push(admission(agent, run));
        }
        for run in join_all(admitted).await {
            match run {
                Ok(run) => found.resumed.push(run),
                Err(skipped) => found.skipped.extend(skipped),
            }
        }
        Ok(found)
    }

    /// Ends the open run of a session below another one, if the run that it belongs to is over.
    async fn end_left_behind(&self, info: SessionInfo) -> Result<()> {
        let env = &self.0.env;
        if is_title(&info.record.id) || over_above(env, &info.record).await?.is_none() {
            return Ok(());
        }
        end_stored(env, info, true).await
    }

    async fn recover_session(
        &self,
        info: SessionInfo,
        agents: &Agents,
        found: &mut Recovery,
    ) -> Option<(Arc<str>, RunHandle)> {
        let session = self.session_with_id(info.record.id.clone()).0;
        if session.is_busy() {
            return None;
        }
        let mut skip = |agent, reason| {
            found.skipped.push(Skipped { session: info.record.id.clone(), agent, reason });
            None
        };
        let Left { run, agent, admission, seen } = match left(&session, &info).await {
            Ok(Some(left)) => left,
            Ok(None) => return None,
            Err(error) => return skip(info.head.agent, SkipReason::Unreadable(error.record())),
        };
        let Some(known) = agents.get(&agent) else { return skip(agent, SkipReason::UnknownAgent) };
        let entry = Entry::new(run, Arc::clone(known), &session.env.deps);
        let recovering = Recovering { agents: agents.clone(), seen };
        Some((agent, session.go_on(entry, admission, Some(recovering))))
    }

    /// Answers a question that paused a run, in any session, a child's too. To continue, resume the root of that
    /// session with [`Session::resume`](crate::Session::resume): it enters its children again. Another process may do
    /// so, days later.
    ///
    /// # Errors
    /// Those of [`Session::decide`](crate::Session::decide); [`ErrorKind::NotFound`] also for an id that names no
    /// session.
    pub async fn decide(&self, id: &ApprovalId, answer: impl Into<Answer>) -> Result<()> {
        let session = id.session().ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "no question has such an id").with("approval", id.as_str())
        })?;
        self.open(&session).await?.decide(id, answer).await
    }
}

/// Waits until the run is admitted; otherwise returns the entry to report, if any.
async fn admission(agent: Arc<str>, run: RunHandle) -> Result<RunHandle, Option<Skipped>> {
    let session = run.session().clone();
    run.admitted().await.map_err(|error| Skipped::new(session, agent, &error))
}

impl Skipped {
    /// Creates the entry of a session whose run was not admitted here; `None` when another process was faster.
    fn new(session: SessionId, agent: Arc<str>, error: &Error) -> Option<Self> {
        use ErrorKind::{Busy, Conflict, NotFound};
        let reason = SkipReason::Refused(error.record());
        (!matches!(error.kind(), Busy | Conflict | NotFound)).then_some(Self { session, agent, reason })
    }
}

async fn left(session: &Arc<Live>, info: &SessionInfo) -> Result<Option<Left>> {
    let journal = session.journal(false).await?;
    let seen = open_run(&journal);
    let (status, begun) = journal.read(|state| (state.head().status, state.run().map_or(0, |run| run.seq)));
    match status {
        SessionStatus::Idle => return Ok(None),
        SessionStatus::Paused if !is_answered(&session.env, info, begun).await? => return Ok(None),
        SessionStatus::Paused | SessionStatus::Running => {}
    }
    Ok(journal.read(|state| {
        if let Some(run) = state.run() {
            let agent = Arc::clone(&run.agent);
            return Some(Left { run: run.id, agent, admission: Admission::Recover, seen });
        }
        let first = state.queue().first()?;
        let queued = &first.queued;
        let run = if queued.steer { RunId::generate() } else { queued.run };
        let place = InQueue { seq: first.seq, created: info.record.created };
        let admission = Admission::Queued(queued_task(queued), Some(place));
        Some(Left { run, agent: Arc::clone(&queued.agent), admission, seen })
    }))
}

/// True when the paused run of a root, which event `begun` started, got an answer since: itself, or through a session
/// below it.
async fn is_answered(env: &Env, root: &SessionInfo, begun: u64) -> Result<bool> {
    let Some(store) = &env.store else { return Ok(false) };
    let root = (&root.record.id, begun);
    let paused = SessionFilter::tree(root.0.clone()).with_status(SessionStatus::Paused);
    let paused = store.query(&paused).await?.into_iter().map(|info| (info.record.id.clone(), info));
    let paused: HashMap<_, _> = paused.collect();
    for (id, info) in &paused {
        // As a rule nothing came after the pause, and the session need not be read.
        let newest = ReadRange::after(info.head.seq.saturating_sub(1)).with_limit(1);
        let rows = store.read(id, newest).await?;
        let Some(row) = rows.into_iter().next() else { continue };
        let now = env.clock.now();
        let goes_on = match row.columns().kind == "run_paused" {
            true => match row.into_envelope(id)?.event {
                Event::RunPaused(paused) => is_due(&paused.pause, now),
                _ => false,
            },
            false => open(env, info).await?.read(|state| state.is_answered() || is_over(state, now)),
        };
        if goes_on && is_part_of_it(env, root, &paused, info).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// True when a pause has ended by itself.
fn is_due(pause: &Pause, now: Timestamp) -> bool {
    pause.until().is_some_and(|until| until <= now)
}

/// True when a wait of a paused run has ended by itself: its pause's, or that of a question which somebody put off.
fn is_over(state: &SessionState, now: Timestamp) -> bool {
    let is_decided = |question: &OpenQuestion| {
        let OpenQuestion { request, .. } = question;
        state.approval(&request.id, request.digest).is_some_and(|decision| !decision.at(now).is_open())
    };
    let pause = state.run().and_then(|run| run.pause.as_ref());
    pause.is_some_and(|pause| is_due(pause, now)) || state.questions().iter().any(is_decided)
}

/// True when a paused session belongs to the root's open run. Sessions below a run that was abandoned, or has ended,
/// stay as they were left.
async fn is_part_of_it(
    env: &Env,
    (root, begun): (&SessionId, u64),
    paused: &HashMap<SessionId, SessionInfo>,
    mut below: &SessionInfo,
) -> Result<bool> {
    // No chain is longer, whatever the store says.
    for _ in 0..=paused.len() {
        if below.record.id == *root {
            return Ok(true);
        }
        let above = below.record.parent.as_ref().and_then(|parent| paused.get(parent));
        let Some(above) = above else { return Ok(false) };
        let begun = match above.record.id == *root {
            true => begun,
            false => open(env, above).await?.read(|state| state.run().map_or(0, |run| run.seq)),
        };
        if below.record.id.origin().is_some_and(|(_, started, _)| started < begun) {
            return Ok(false);
        }
        below = above;
    }
    Ok(false)
}

async fn open(env: &Env, info: &SessionInfo) -> Result<Arc<Journal>> {
    Journal::read_from_store(env, info.clone()).await
}
