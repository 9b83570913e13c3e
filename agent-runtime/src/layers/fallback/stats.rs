//! Statistics of a chain: usage of each model, and savings by the choice of models.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use entourage_core::{Money, Prices, Usage, provider::Profile};
use serde::{Deserialize, Serialize};

/// Statistics of a [`super::Fallback`], which can be read at any time. Cloning shares them.
#[derive(Clone, Default)]
pub struct FallbackStats(Arc<Mutex<Book>>);

#[derive(Debug, Default)]
struct Book {
    models: BTreeMap<(Arc<str>, Arc<str>), ModelUsage>,
    baseline: Money,
    compared: Money,
    incomparable: u64,
}

impl FallbackStats {
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Figures so far.
    #[must_use]
    pub fn report(&self) -> UsageReport {
        let book = self.lock();
        UsageReport {
            models: book.models.values().cloned().collect(),
            baseline: book.baseline,
            compared: book.compared,
            incomparable: book.incomparable,
        }
    }

    /// Adds a call that has ended.
    pub(super) fn add(&self, call: &Ended<'_>) {
        let mut book = self.lock();
        let name = (Arc::clone(call.provider), Arc::clone(call.model));
        let entry = book.models.entry(name).or_insert_with_key(|(provider, model)| ModelUsage {
            provider: Arc::clone(provider),
            model: Arc::clone(model),
            calls: 0,
            failures: 0,
            usage: Usage::default(),
            unpriced: 0,
        });
        entry.calls += 1;
        entry.failures += u64::from(call.failed);
        entry.usage += call.usage;
        if call.usage.is_unknown() && call.failed {
            return;
        }
        entry.unpriced += u64::from(call.usage.cost.is_none());
        // The baseline is computed from tokens, not from what the call's own service charged.
        let mut tokens = call.usage;
        tokens.cost = None;
        match (call.usage.cost, call.baseline.and_then(|prices| prices.cost(&tokens))) {
            (Some(cost), Some(baseline)) => {
                book.compared += cost;
                book.baseline += baseline;
            }
            _ => book.incomparable += 1,
        }
    }
}

impl fmt::Debug for FallbackStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report().fmt(f)
    }
}

/// A call that has ended.
pub(super) struct Ended<'a> {
    pub(super) provider: &'a Arc<str>,
    pub(super) model: &'a Arc<str>,
    pub(super) usage: Usage,
    pub(super) failed: bool,
    pub(super) baseline: Option<&'a Prices>,
}

/// Usage of one model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelUsage {
    /// Name of the service.
    pub provider: Arc<str>,
    /// The model's name there.
    pub model: Arc<str>,
    /// Number of calls, failed ones included.
    pub calls: u64,
    /// Number of calls that failed, or whose reply broke off or was dropped.
    pub failures: u64,
    /// Tokens and cost of all calls, as far as known.
    pub usage: Usage,
    /// Number of calls whose cost is unknown, and missing in `usage.cost`.
    pub unpriced: u64,
}

/// Usage of the models of a chain, and savings against asking a large model every time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UsageReport {
    /// Models that were asked, by provider and name.
    pub models: Vec<ModelUsage>,
    /// Cost of the comparable calls at the baseline prices.
    pub baseline: Money,
    /// Real cost of the comparable calls.
    pub compared: Money,
    /// Number of calls outside the comparison: their tokens, their cost or the baseline prices are unknown.
    pub incomparable: u64,
}

impl UsageReport {
    /// Savings against the baseline; 0 if the calls cost more.
    #[must_use]
    pub fn saved(&self) -> Money {
        Money::from_pico(self.baseline.as_pico().saturating_sub(self.compared.as_pico()))
    }

    /// Savings in whole percent of the baseline, rounded down; 0 when the baseline is 0.
    #[must_use]
    pub fn saved_percent(&self) -> u8 {
        let baseline = u128::from(self.baseline.as_pico());
        let percent = (u128::from(self.saved().as_pico()) * 100).checked_div(baseline).unwrap_or(0);
        u8::try_from(percent).unwrap_or(100)
    }
}

/// `usage` with its cost at the prices of `profile`. A local model without prices costs nothing.
pub(super) fn priced(profile: &Profile, local: bool, mut usage: Usage) -> Usage {
    let computed = || profile.prices.as_ref().and_then(|prices| prices.cost(&usage));
    usage.cost = usage.cost.or_else(computed).or((local && !usage.is_unknown()).then(Money::default));
    usage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ai06_percent_is_zero_without_a_baseline_and_never_negative() {
        let report = |baseline, compared| UsageReport {
            baseline: Money::from_pico(baseline),
            compared: Money::from_pico(compared),
            ..UsageReport::default()
        };
        assert_eq!((report(0, 0).saved_percent(), report(0, 5).saved_percent()), (0, 0));
        assert_eq!(report(3, 1).saved_percent(), 66);
        assert_eq!(report(3, 0).saved_percent(), 100);
        assert_eq!((report(3, 9).saved(), report(3, 9).saved_percent()), (Money::default(), 0));
        assert_eq!(report(u64::MAX, 1).saved_percent(), 99);
    }
}
