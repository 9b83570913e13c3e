//! The figures of a budget: its bounds, the charge of one call, the spend of many, and the bound that was reached.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use super::Money;

/// Bounds of a budget; `None` means no bound.
///
/// A model call reserves the most that it may use, until it ends and its use is known: its prompt, and the smaller of
/// [`Params::max_output`](crate::provider::Params) and its model's largest reply. A call that is not covered is refused
/// and does not wait. Agents that run in parallel need room for all their calls in flight at once, or a smaller
/// `max_output`.
///
/// # Calls without a known largest reply
/// Such a call is open-ended. It needs room for its prompt and 4,096 tokens, and reserves all that is left of the
/// tokens and the money, in each budget of the tree that bounds them. So no other model call is covered until it ends:
/// agents that run in parallel need a `max_output`.
///
/// # How far a bound may be exceeded
/// Bounds on calls are never exceeded. Tokens and money are exceeded by what is unknown before a call:
///
/// * the length of an open-ended reply, of one call at a time;
/// * the difference between the estimate of a prompt, (bytes + 3) / 4 tokens and 1,500 for each file, and what the
///   service counts;
/// * replies of a service that ignores the `max_output` that it was given, or gets another one by `Params::extra`;
/// * the attempts of each call in flight after its first, in a run's budget, also those of other models: a
///   `BudgetLayer` below the retries, on each model, reserves each attempt.
///
/// The excess counts as spent, and every later call is refused. A call whose end is unknown, because its process died
/// or its connection broke, counts as reserved, an open-ended one as its prompt and 4,096 tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct BudgetLimits {
    /// Bound on money. Calls of models without known prices are then refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub money: Option<Money>,
    /// Bound on input and output tokens together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Bound on model calls. A `BudgetLayer` counts each attempt, a run each call with all its attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_calls: Option<u64>,
    /// Bound on tool calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<u64>,
    /// Bound on the time since the budget was made, in all processes together. Time passes while the budget exists,
    /// also without calls; a run's time stands still while the run is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Duration>,
}

impl BudgetLimits {
    /// No bounds at all.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    super::setters! {
        /// The same with a bound on money.
        with_money(money: Money) => Some(money);
        /// The same with a bound on tokens.
        with_tokens(tokens: u64) => Some(tokens);
        /// The same with a bound on model calls.
        with_model_calls(model_calls: u64) => Some(model_calls);
        /// The same with a bound on tool calls.
        with_tool_calls(tool_calls: u64) => Some(tool_calls);
        /// The same with a bound on time.
        with_time(time: Duration) => Some(time);
    }

    pub(crate) fn less(&self, used: &Spend, elapsed: Duration) -> Self {
        let count = |limit: Option<u64>, used: u64| limit.map(|limit| limit.saturating_sub(used));
        Self {
            money: count(self.money.map(Money::as_pico), used.money.as_pico()).map(Money::from_pico),
            tokens: count(self.tokens, used.tokens),
            model_calls: count(self.model_calls, used.model_calls),
            tool_calls: count(self.tool_calls, used.tool_calls),
            time: self.time.map(|limit| limit.saturating_sub(elapsed)),
        }
    }

    pub(crate) fn narrowest(&self, other: &Self) -> Self {
        fn least<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
            match (a, b) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (some, None) | (None, some) => some,
            }
        }
        Self {
            money: least(self.money, other.money),
            tokens: least(self.tokens, other.tokens),
            model_calls: least(self.model_calls, other.model_calls),
            tool_calls: least(self.tool_calls, other.tool_calls),
            time: least(self.time, other.time),
        }
    }
}

impl fmt::Display for BudgetLimits {
    /// Writes each bound, as in `$0.5, 1200 tokens, 30 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |n: Option<u64>, what: &str| n.map(|n| format!("{n} {what}"));
        let bounds = [
            self.money.map(|money| money.to_string()),
            count(self.tokens, "tokens"),
            count(self.model_calls, "model calls"),
            count(self.tool_calls, "tool calls"),
            self.time.map(|time| format!("{} s", time.as_secs())),
        ];
        let bounds: Vec<_> = bounds.into_iter().flatten().collect();
        f.write_str(if bounds.is_empty() { "no bounds" } else { "" })?;
        f.write_str(&bounds.join(", "))
    }
}

/// The bound of a budget that was reached, and what remains of each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Exhausted {
    /// The bound: `money`, `tokens`, `model_calls`, `tool_calls` or `time`.
    pub bound: Box<str>,
    /// Remaining amount of each bound at that time, the narrowest in the tree: less than the call needed. `None` where
    /// nothing is bounded.
    pub remaining: BudgetLimits,
    /// Reservations of calls in flight at that time, where the bound was reached: not in `remaining`, and not spent
    /// yet.
    #[serde(default, skip_serializing_if = "Spend::is_nothing")]
    pub reserved: Spend,
    /// Amount of the bound that the call may use, for money and tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed: Option<Charge>,
}

impl Exhausted {
    /// The bound with this name was reached, with nothing reserved.
    #[must_use]
    pub fn new(bound: impl Into<Box<str>>, remaining: BudgetLimits) -> Self {
        Self { bound: bound.into(), remaining, reserved: Spend::default(), needed: None }
    }

    /// Amount that the call may use, where more than nothing is left of the bound.
    fn call(&self) -> Option<String> {
        let needed = self.needed?;
        match &*self.bound {
            "tokens" if self.remaining.tokens != Some(0) => Some(format!("{} tokens", needed.tokens)),
            "money" if self.remaining.money != Some(Money::default()) => {
                needed.money.map(|money| money.to_string())
            }
            _ => None,
        }
    }

    /// Reserved amount of the bound, with advice on how to reserve less.
    fn set_aside(&self) -> Option<String> {
        let Spend { money, tokens, model_calls, tool_calls, .. } = self.reserved;
        let less = "a smaller `max_output` sets less aside";
        Some(match &*self.bound {
            "tokens" if tokens > 0 => format!("{tokens} tokens; {less}"),
            "money" if money != Money::default() => format!("{money}; {less}"),
            "model_calls" if model_calls > 0 => format!("{model_calls} model calls"),
            "tool_calls" if tool_calls > 0 => format!("{tool_calls} tool calls"),
            _ => return None,
        })
    }
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.call() {
            Some(needed) => write!(
                f,
                "the budget's limit of {} does not cover the next call, which may need {needed}; left: {}",
                self.bound, self.remaining
            )?,
            None => write!(
                f,
                "the budget's limit of {} was reached; left: {}",
                self.bound.replace('_', " "),
                self.remaining
            )?,
        }
        match self.set_aside() {
            Some(amount) => write!(f, "; set aside for calls under way: {amount}"),
            None if self.call().is_some() => {
                f.write_str("; raise the limit, or set a smaller `max_output`, which sets less aside")
            }
            None => f.write_str("; raise the limit"),
        }
    }
}

/// Use of one call: an upper bound before it, or the real figures after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Charge {
    /// Cost; `None` if no price is known.
    pub money: Option<Money>,
    /// Input and output tokens together.
    pub tokens: u64,
    /// Number of model calls.
    pub model_calls: u64,
    /// Number of tool calls.
    pub tool_calls: u64,
    /// True if it may use more tokens than this, since its largest reply is unknown. Its reservation takes all tokens
    /// that are left.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open_tokens: bool,
    /// True if it may cost more than this for the same reason. False if output costs nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open_money: bool,
}

impl Charge {
    /// A charge of zero, at a known price of 0.
    #[must_use]
    pub fn nothing() -> Self {
        Self { money: Some(Money::default()), ..Self::default() }
    }

    /// One model call of that many tokens.
    #[must_use]
    pub fn model_call(tokens: u64, money: Option<Money>) -> Self {
        Self { money, tokens, model_calls: 1, ..Self::default() }
    }

    /// One model call that its service refused: it cost nothing.
    #[must_use]
    pub fn refused_call() -> Self {
        Self { model_calls: 1, ..Self::nothing() }
    }

    /// One tool call without other cost.
    #[must_use]
    pub fn tool_call() -> Self {
        Self { tool_calls: 1, ..Self::nothing() }
    }

    /// The same call with an unknown largest reply, so that it may use more tokens and cost more.
    #[must_use]
    pub fn open_ended(mut self) -> Self {
        (self.open_tokens, self.open_money) = (true, true);
        self
    }
}

/// Amounts that were spent or are reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Spend {
    /// Money, as far as prices are known.
    pub money: Money,
    /// Input and output tokens together.
    pub tokens: u64,
    /// Number of model calls.
    pub model_calls: u64,
    /// Number of tool calls.
    pub tool_calls: u64,
    /// Number of calls whose cost is unknown, and missing in `money`.
    pub unpriced: u64,
}

impl Spend {
    pub(crate) fn of(charge: &Charge) -> Self {
        Self {
            money: charge.money.unwrap_or_default(),
            tokens: charge.tokens,
            model_calls: charge.model_calls,
            tool_calls: charge.tool_calls,
            unpriced: u64::from(charge.money.is_none()),
        }
    }

    pub(crate) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn plus(&self, other: &Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    /// Returns the sum without `other`, never below 0.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        self.each(other, u64::saturating_sub)
    }

    fn each(&self, other: &Self, with: fn(u64, u64) -> u64) -> Self {
        Self {
            money: Money::from_pico(with(self.money.as_pico(), other.money.as_pico())),
            tokens: with(self.tokens, other.tokens),
            model_calls: with(self.model_calls, other.model_calls),
            tool_calls: with(self.tool_calls, other.tool_calls),
            unpriced: with(self.unpriced, other.unpriced),
        }
    }
}
