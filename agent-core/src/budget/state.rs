//! The state of a budget that outlives a process.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::base::{BudgetLimits, Spend};

/// State of a budget as it is stored between processes: see [`super::Budget::state`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct BudgetState {
    /// Bounds of the budget.
    pub limits: BudgetLimits,
    /// Spend, including all budgets below.
    pub spent: Spend,
    /// Reservations of calls in flight; an open-ended call counts with its minimum. Their ends are unknown, so
    /// restoring counts them as spent.
    pub reserved: Spend,
    /// Time that has passed.
    pub elapsed: Duration,
    /// Spend by label.
    pub labels: BTreeMap<Arc<str>, Spend>,
}

impl BudgetState {
    /// Adds `spent` under `label`.
    pub fn add(&mut self, label: Arc<str>, spent: &Spend) {
        self.spent = self.spent.plus(spent);
        if *spent != Spend::default() {
            let account = self.labels.entry(label).or_default();
            *account = account.plus(spent);
        }
    }

    /// The same state with the reservations taken as spent, without a label.
    pub(super) fn settled(mut self) -> Self {
        let open = std::mem::take(&mut self.reserved);
        if open != Spend::default() {
            self.spent = self.spent.plus(&open);
            let account = self.labels.entry(Arc::default()).or_default();
            *account = account.plus(&open);
        }
        self
    }
}
