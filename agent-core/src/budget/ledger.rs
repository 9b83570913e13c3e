//! Ledger of a tree of budgets, as a pure machine: time is passed in, nothing waits.
//!
//! A charge is taken from a budget and from all above it, or from none of them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    BudgetState,
    shortage::{Short, Shortage},
};
use crate::{
    Money,
    base::{BudgetLimits, Charge, Spend},
};

/// Id of a budget within its tree.
pub(super) type NodeId = u64;

#[derive(Debug, Default)]
pub(super) struct Ledger {
    nodes: HashMap<NodeId, Node>,
    next: NodeId,
}

#[derive(Debug)]
struct Node {
    parent: Option<NodeId>,
    limits: BudgetLimits,
    spent: Spend,
    /// Reservations of calls in flight; an open-ended call counts with its minimum.
    held: Spend,
    /// Number of open-ended calls in flight: without a bound on tokens, and without a bound on money.
    open: (u64, u64),
    labels: BTreeMap<Arc<str>, Spend>,
    started: Instant,
    /// Time that passed before `started`, in earlier processes.
    before: Duration,
}

impl Node {
    fn elapsed(&self, now: Instant) -> Duration {
        self.before.saturating_add(now.saturating_duration_since(self.started))
    }

    /// Reservations of calls in flight. An open-ended call reserves all that is left of a bound.
    fn reserved(&self) -> Spend {
        let mut reserved = self.held;
        if let Some(limit) = self.limits.tokens.filter(|_| self.open.0 > 0) {
            reserved.tokens = reserved.tokens.max(limit.saturating_sub(self.spent.tokens));
        }
        if let Some(limit) = self.limits.money.filter(|_| self.open.1 > 0) {
            let left = limit.as_pico().saturating_sub(self.spent.money.as_pico());
            reserved.money = reserved.money.max(Money::from_pico(left));
        }
        reserved
    }

    fn remaining(&self, now: Instant) -> BudgetLimits {
        self.limits.less(&self.spent.plus(&self.reserved()), self.elapsed(now))
    }
}

/// Open ends of a charge, in tokens and in money: 1 if it may turn out higher.
fn open(charge: &Charge) -> (u64, u64) {
    (u64::from(charge.open_tokens), u64::from(charge.open_money))
}

impl Ledger {
    /// Adds a budget below `parent`, with the spend and reservations of `state` as spent.
    pub(super) fn open(&mut self, parent: Option<NodeId>, state: BudgetState, now: Instant) -> NodeId {
        let id = self.next;
        self.next += 1;
        let state = state.settled();
        let node = Node {
            parent,
            limits: state.limits,
            spent: state.spent,
            held: Spend::default(),
            open: (0, 0),
            labels: state.labels,
            started: now,
            before: state.elapsed,
        };
        self.nodes.insert(id, node);
        id
    }

    /// Forgets a budget without handles. Its spend stays with those above it.
    pub(super) fn close(&mut self, id: NodeId) {
        self.nodes.remove(&id);
    }

    fn path(&self, from: NodeId) -> impl Iterator<Item = &Node> {
        let step = |node: &&Node| node.parent.and_then(|parent| self.nodes.get(&parent));
        std::iter::successors(self.nodes.get(&from), step)
    }

    fn on_path(&mut self, from: NodeId, mut change: impl FnMut(&mut Node)) {
        let mut next = Some(from);
        while let Some(node) = next.and_then(|id| self.nodes.get_mut(&id)) {
            change(node);
            next = node.parent;
        }
    }

    /// Reserves `charge` in all budgets from `from` to the root, or returns the shortage.
    pub(super) fn reserve(
        &mut self,
        from: NodeId,
        charge: &Charge,
        now: Instant,
    ) -> Result<(), Box<Shortage>> {
        for node in self.path(from) {
            Short::check(&node.remaining(now), charge).map_err(|kind| {
                let Node { limits, spent, .. } = *node;
                let reserved = node.reserved();
                let (elapsed, remaining) = (node.elapsed(now), self.remaining(from, now));
                Box::new(Shortage { kind, limits, spent, reserved, elapsed, remaining })
            })?;
        }
        let (amount, open) = (Spend::of(charge), open(charge));
        self.on_path(from, |node| {
            node.held = node.held.plus(&amount);
            node.open = (node.open.0.saturating_add(open.0), node.open.1.saturating_add(open.1));
        });
        Ok(())
    }

    /// Releases `reserved` and charges `actual` instead, under `label`.
    pub(super) fn settle(&mut self, from: NodeId, reserved: &Charge, actual: &Charge, label: &Arc<str>) {
        let (held, amount, open) = (Spend::of(reserved), Spend::of(actual), open(reserved));
        self.on_path(from, |node| {
            node.held = node.held.minus(&held);
            node.open = (node.open.0.saturating_sub(open.0), node.open.1.saturating_sub(open.1));
            node.spent = node.spent.plus(&amount);
            if amount != Spend::default() {
                let account = node.labels.entry(Arc::clone(label)).or_default();
                *account = account.plus(&amount);
            }
        });
    }

    pub(super) fn spent(&self, id: NodeId) -> Spend {
        self.nodes.get(&id).map_or_else(Spend::default, |node| node.spent)
    }

    pub(super) fn reserved(&self, id: NodeId) -> Spend {
        self.nodes.get(&id).map_or_else(Spend::default, Node::reserved)
    }

    /// The narrowest remaining amounts between `id` and the root.
    pub(super) fn remaining(&self, id: NodeId, now: Instant) -> BudgetLimits {
        self.path(id).fold(BudgetLimits::default(), |least, node| least.narrowest(&node.remaining(now)))
    }

    pub(super) fn labels(&self, id: NodeId) -> BTreeMap<Arc<str>, Spend> {
        self.nodes.get(&id).map(|node| node.labels.clone()).unwrap_or_default()
    }

    pub(super) fn state(&self, id: NodeId, now: Instant) -> BudgetState {
        self.nodes.get(&id).map_or_else(BudgetState::default, |node| BudgetState {
            limits: node.limits,
            spent: node.spent,
            reserved: node.held,
            elapsed: node.elapsed(now),
            labels: node.labels.clone(),
        })
    }
}
