//! State that all runs of a runtime share.

use std::{sync::Arc, time::Duration};

use entourage_core::{
    Clock,
    budget::BudgetLimits,
    permission::{Approver, Policy},
    provider::Egress,
    session::SharedStore,
    tool::ToolLayer,
};
use tokio_util::task::TaskTracker;

use crate::{
    deps::Deps,
    engine::Engine,
    guards::PromptGuards,
    session::{
        delivery::{bus::Bus, emit::Watcher},
        journal::unstored::Unstored,
    },
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
}
