//! The use of a request, as far as it is known before it is sent. Pure.

use super::tally;
use crate::{Money, Prices, Usage, base::Charge, provider::Request};

/// Minimum output that an open-ended call needs room for: neither the request nor the model's profile bounds it.
const DEFAULT_OUTPUT: u64 = 4_096;

impl Charge {
    /// Upper bound for `request`, as far as it is known before it is sent: see
    /// [`BudgetLayer`](crate::layers::BudgetLayer).
    #[must_use]
    pub fn of_request(request: &Request) -> Self {
        Forecast::new(request, None).charge()
    }
}

/// Expected use of a request. Kept to fill in the figures that its reply does not report.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Forecast {
    pub(crate) usage: Usage,
    pub(crate) input: u64,
    pub(crate) output: u64,
    money: Option<Money>,
    /// True if it may use more tokens, and true if it may cost more.
    open: (bool, bool),
}

impl Forecast {
    pub(crate) fn new(request: &Request, expected: Option<u64>) -> Self {
        let asked = request.params.max_output.filter(|max| *max > 0);
        let most = asked.or(request.profile.max_output);
        let output = match expected {
            Some(expected) => most.map_or(expected, |most| most.min(expected)),
            None => most.unwrap_or(DEFAULT_OUTPUT),
        };
        let input = tally::input_tokens(request);
        let mut usage = Usage::new(input, output);
        // Marked tokens are written to the cache at worst, which may cost more than sending them.
        usage.cache_write = request.params.cache.map(|_| input);
        let money = request.profile.prices.as_ref().and_then(|prices| prices.cost(&usage));
        let unknown = most.or(expected).is_none();
        let paid = request.profile.prices.as_ref().is_none_or(Prices::charges_output);
        Self { usage, input, output, money, open: (unknown, unknown && paid) }
    }

    pub(crate) fn charge(&self) -> Charge {
        let charge = Charge::model_call(self.input.saturating_add(self.output), self.money);
        Charge { open_tokens: self.open.0, open_money: self.open.1, ..charge }
    }
}
