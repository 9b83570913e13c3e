//! State that all runs of a runtime share.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use entourage_core::{
    Clock, Digest, SessionId,
    budget::BudgetLimits,
    permission::{Approver, Grants},
    provider::Egress,
    session::{SharedStore, Snapshots},
    tool::ToolLayer,
};
use tokio_util::task::TaskTracker;

use crate::{
    caught,
    deps::Deps,
    engine::Engine,
    guards::PromptGuards,
    permission::Policy,
    session::{
        delivery::{bus::Bus, emit::Watcher},
        journal::unstored::Unstored,
    },
    texts::Texts,
    titles::Titles,
};

/// State that all runs of a runtime share.
#[derive(Debug)]
pub(crate) struct Env {
    /// `None`: nothing is stored, since nobody could read it.
    pub(crate) store: Option<SharedStore>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Guards on prompts.
    pub(crate) guards: PromptGuards,
    pub(crate) policy: Policy,
    pub(crate) approver: Option<Arc<dyn Approver>>,
    /// Keeper of what approvers allowed always.
    pub(crate) grants: Option<Arc<dyn Grants>>,
    /// Keeper of what prompts change, as it was before.
    pub(crate) snapshots: Option<Arc<dyn Snapshots>>,
    /// Sessions in which nothing is asked about.
    pub(crate) auto_approved: Mutex<HashSet<SessionId>>,
    /// Layers around all tools, the outermost first.
    pub(crate) tool_layers: Vec<Arc<dyn ToolLayer>>,
    pub(crate) observers: Arc<[Watcher]>,
    pub(crate) egress: Egress,
    pub(crate) deps: Deps,
    pub(crate) tasks: TaskTracker,
    pub(crate) bus: Bus,
    pub(crate) unstored: Unstored,
    /// Prompts that may wait in one session.
    pub(crate) queue: usize,
    /// Events that a subscriber may lag behind.
    pub(crate) event_buffer: usize,
    /// Bounds of a root's run whose task has none.
    pub(crate) budget: Option<BudgetLimits>,
    pub(crate) titles: Option<Titles>,
    /// Source of the effects that agents see; `None` for those of this process.
    pub(crate) engine: Option<Arc<dyn Engine>>,
    /// Id of the runtime, which owns its leases.
    pub(crate) owner: u64,
    /// Time after which a lease expires unless it is renewed.
    pub(crate) lease: Duration,
    /// Smallest number of events between two checkpoints of a session.
    pub(crate) checkpoint_every: u64,
    /// Agents that may run at once below one root's run.
    pub(crate) sub_agents: usize,
    /// True if agents that only read, below one that only looks, ask nobody.
    pub(crate) readers_unasked: bool,
    pub(crate) texts: Texts,
}

impl Env {
    /// Returns what grants a call that a rule asks about, if anything does. `granted` says if its session does.
    pub(crate) fn granted(&self, session: &SessionId, grant: Digest, granted: bool) -> Option<&'static str> {
        if self.unwatched().contains(session) {
            return Some("auto-approved session");
        }
        self.granted_by_approver(grant, granted)
    }

    /// Returns the answer of an approver that holds for more than one call.
    pub(crate) fn granted_by_approver(&self, grant: Digest, granted: bool) -> Option<&'static str> {
        if granted {
            return Some("approver, for the session");
        }
        let always = self.grants.as_ref().is_some_and(|it| caught(|| it.holds(grant)).unwrap_or(false));
        always.then_some("approver, always")
    }

    pub(crate) fn auto_approve(&self, session: &SessionId, on: bool) {
        let mut sessions = self.unwatched();
        if on {
            sessions.insert(session.clone());
        } else {
            sessions.remove(session);
        }
    }

    fn unwatched(&self) -> MutexGuard<'_, HashSet<SessionId>> {
        self.auto_approved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
