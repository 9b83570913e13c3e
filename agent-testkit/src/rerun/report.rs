//! The results of a rerun, and their table.

use std::fmt;

use entourage_core::{Money, Usage};

use super::{case::RerunCase, table};

/// Results of a [`Rerun`](super::Rerun). `Display` is a table: a line for each case, then the number of cases and
/// passes, the pass rate with its interval, steps and cost; then a line for each score that failed.
#[derive(Debug, Clone)]
#[must_use = "a report does nothing until `assert`"]
pub struct RerunReport {
    cases: Vec<RerunCase>,
}

/// The figures of all cases together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sums {
    pub(super) steps: u64,
    pub(super) cost: Option<Money>,
}

impl RerunReport {
    pub(super) fn new(cases: Vec<RerunCase>) -> Self {
        Self { cases }
    }

    /// The cases, in the order in which their sessions were given.
    #[must_use]
    pub fn cases(&self) -> &[RerunCase] {
        &self.cases
    }

    /// Number of cases that passed.
    #[must_use]
    pub fn passed(&self) -> usize {
        self.cases.iter().filter(|case| case.passes()).count()
    }

    /// Part of the cases that passed, from 0 to 1.
    #[must_use]
    pub fn pass_rate(&self) -> f64 {
        self.passed() as f64 / self.cases.len().max(1) as f64
    }

    /// Bounds of the pass rate with 95 % confidence, from 0 to 1: see [`wilson`].
    #[must_use]
    pub fn interval(&self) -> (f64, f64) {
        wilson(self.passed(), self.cases.len())
    }

    /// Number of model calls of the reruns, those of agents below included.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.sums(false).steps
    }

    /// Tokens of the reruns, as far as services reported them.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.cases.iter().map(|case| case.rerun.usage).sum()
    }

    /// Cost of the reruns; `None` when the cost of any model call is unknown. Calls that scores make are not in it.
    #[must_use]
    pub fn cost(&self) -> Option<Money> {
        self.sums(false).cost
    }

    pub(super) fn sums(&self, of_originals: bool) -> Sums {
        let none = Sums { steps: 0, cost: Some(Money::default()) };
        let all = self.cases.iter().map(|case| if of_originals { &case.original } else { &case.rerun });
        all.fold(none, |sums, it| Sums {
            steps: sums.steps.saturating_add(it.steps),
            cost: sums.cost.zip(it.cost).map(|(sum, cost)| sum + cost),
        })
    }

    /// Fails the test if a case failed.
    ///
    /// # Panics
    /// If a case failed, with the table.
    #[track_caller]
    pub fn assert(&self) {
        assert!(self.passed() == self.cases.len(), "{self}");
    }
}

impl fmt::Display for RerunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        table::write(self, f)
    }
}

/// Returns the bounds of a rate with 95 % confidence, when `passed` of `cases` independent cases passed: the score
/// interval of E. B. Wilson, "Probable inference, the law of succession, and statistical inference", Journal of the
/// American Statistical Association 22 (1927), p. 209 to 212. Without a case they are 0 and 1.
///
/// It holds for cases that were drawn at random. A set that was picked by hand says nothing about other sessions.
///
/// ```
/// use entourage_testkit::rerun::wilson;
///
/// let (low, high) = wilson(8, 10);
/// assert_eq!(format!("{low:.3} to {high:.3}"), "0.490 to 0.943");
/// ```
#[must_use]
pub fn wilson(passed: usize, cases: usize) -> (f64, f64) {
    /// Quantile of the normal distribution at 97.5 %.
    const Z: f64 = 1.959_963_984_540_054;
    if cases == 0 {
        return (0.0, 1.0);
    }
    let cases_f = cases as f64;
    let rate = passed.min(cases) as f64 / cases_f;
    let square = Z * Z;
    let scale = 1.0 + square / cases_f;
    let center = (rate + square / (2.0 * cases_f)) / scale;
    let spread = rate * (1.0 - rate) / cases_f + square / (4.0 * cases_f * cases_f);
    let half = Z * spread.sqrt() / scale;
    // At the ends the formula gives 0 and 1, which rounding misses.
    let low = if passed == 0 { 0.0 } else { (center - half).max(0.0) };
    let high = if passed >= cases { 1.0 } else { (center + half).min(1.0) };
    (low, high)
}
