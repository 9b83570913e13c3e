//! The use of a request, as far as it is known before it is sent. Pure.

use entourage_core::{Money, Prices, Usage, budget::Charge, provider::Request};

use super::estimate::input_tokens;

/// Minimum output that an open-ended call needs room for: neither the request nor the model's profile bounds it.
const DEFAULT_OUTPUT: u64 = 4_096;

/// Expected use of a request. Kept to fill in the figures that its reply does not report.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Forecast {
    /// Expected tokens, in the terms of the model's prices.
    pub usage: Usage,
    /// Tokens of the input.
    pub input: u64,
    /// Tokens of the reply at most, or those expected.
    pub output: u64,
    money: Option<Money>,
    /// True if it may use more tokens, and true if it may cost more.
    open: (bool, bool),
}

impl Forecast {
    /// Estimates the use of `request`, whose reply is expected to take `expected` tokens; `None` for its upper bound:
    /// what was asked for, and no more than the model gives.
    #[must_use]
    pub fn new(request: &Request, expected: Option<u64>) -> Self {
        let asked = request.params.max_output.filter(|max| *max > 0);
        let gives = request.profile.max_output.filter(|max| *max > 0);
        let most = asked.into_iter().chain(gives).min();
        let output = match expected {
            Some(expected) => most.map_or(expected, |most| most.min(expected)),
            None => most.unwrap_or(DEFAULT_OUTPUT),
        };
        let input = input_tokens(request);
        let mut usage = Usage::new(input, output);
        // Marked tokens are written to the cache at worst, which may cost more than sending them.
        usage.cache_write = request.params.cache.map(|_| input);
        let money = request.profile.prices.as_ref().and_then(|prices| prices.cost(&usage));
        let unknown = most.or(expected).is_none();
        let paid = request.profile.prices.as_ref().is_none_or(Prices::charges_output);
        Self { usage, input, output, money, open: (unknown, unknown && paid) }
    }

    /// Returns the charge to reserve.
    #[must_use]
    pub fn charge(&self) -> Charge {
        let mut charge = Charge::model_call(self.input.saturating_add(self.output), self.money);
        (charge.open_tokens, charge.open_money) = self.open;
        charge
    }
}
