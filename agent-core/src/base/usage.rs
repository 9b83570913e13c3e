//! Tokens and money. Absent usage is `None`, never zero; money is an integer, so sums are exact.

use std::{
    fmt,
    iter::Sum,
    ops::{Add, AddAssign},
};

use serde::{Deserialize, Serialize};

use crate::base::{Error, ErrorKind, Result, take_absent};

/// Tokens of one model call or of many.
///
/// `input` counts cached tokens, `output` counts reasoning tokens. A wire normalises the figures of providers that
/// report them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Usage {
    /// Tokens of the prompt, cached ones included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<u64>,
    /// Tokens of the reply, reasoning included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
    /// Prompt tokens read from a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<u64>,
    /// Prompt tokens written to a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<u64>,
    /// Reply tokens spent on reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u64>,
    /// Cost as the provider reports it. It takes precedence over any computed figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Money>,
}

impl Usage {
    /// Returns these figures, or no tokens if a service reported zeros for want of figures.
    #[must_use]
    pub fn reported(self) -> Self {
        match (self.input.unwrap_or(0), self.output.unwrap_or(0)) {
            (0, 0) => Self { cost: self.cost, ..Self::default() },
            _ => self,
        }
    }

    /// Usage with the two figures that every provider reports.
    #[must_use]
    pub fn new(input: u64, output: u64) -> Self {
        Self { input: Some(input), output: Some(output), ..Self::default() }
    }

    /// True if the provider reported nothing.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }

    /// True if the service counted anything. Some services report all figures as 0 instead of leaving them out.
    pub(crate) fn is_counted(&self) -> bool {
        let Self { input, output, cache_read, cache_write, reasoning, cost } = *self;
        [input, output, cache_read, cache_write, reasoning].into_iter().flatten().any(|tokens| tokens > 0)
            || cost.is_some_and(|cost| cost > Money::default())
    }

    /// Input plus output, as far as known.
    #[must_use]
    pub fn total(&self) -> Option<u64> {
        plus(self.input, self.output)
    }

    /// The token counts alone, for sums whose cost is kept apart.
    #[must_use]
    pub fn tokens(self) -> Self {
        Self { cost: None, ..self }
    }

    /// The plausible figures: no service reports a trillion tokens or a million dollars for one call. Larger figures
    /// become unknown.
    #[must_use]
    pub fn plausible(self) -> Self {
        let tokens = |count: Option<u64>| count.filter(|count| *count < 1_000_000_000_000);
        Self {
            input: tokens(self.input),
            output: tokens(self.output),
            cache_read: tokens(self.cache_read),
            cache_write: tokens(self.cache_write),
            reasoning: tokens(self.reasoning),
            cost: self.cost.filter(|cost| cost.as_pico() < 1_000_000_000_000_000_000),
        }
    }

    /// Takes over each figure that `later` has. Streams report usage several times; the last report counts.
    pub fn merge(&mut self, later: Usage) {
        let earlier = std::mem::replace(self, later);
        take_absent!(self, earlier; input output cache_read cache_write reasoning cost);
    }
}

/// Maximum of a sum: a store's columns and a reader's numbers hold no larger one.
const MOST: u64 = i64::MAX.unsigned_abs();

fn plus(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b).min(MOST)),
        (some, None) | (None, some) => some.map(|count| count.min(MOST)),
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input = plus(self.input, other.input);
        self.output = plus(self.output, other.output);
        self.cache_read = plus(self.cache_read, other.cache_read);
        self.cache_write = plus(self.cache_write, other.cache_write);
        self.reasoning = plus(self.reasoning, other.reasoning);
        self.cost = match (self.cost, other.cost) {
            (Some(a), Some(b)) => Some(a + b),
            (some, None) | (None, some) => some.map(|cost| cost + Money::default()),
        };
    }
}

impl Add for Usage {
    type Output = Self;
    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl Sum for Usage {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::default(), Add::add)
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |n: Option<u64>| n.map_or_else(|| "unknown".to_owned(), |n| n.to_string());
        let cached = self.cache_read.filter(|n| *n > 0);
        let cached = cached.map_or_else(String::new, |n| format!(" ({n} cached)"));
        f.pad(&format!("{} in, {} out{cached}", show(self.input), show(self.output)))
    }
}

/// A dollar in pico-dollars.
const DOLLAR: u64 = 1_000_000_000_000;

/// A cent in pico-dollars.
const CENT: u64 = DOLLAR / 100;

/// An amount in pico-dollars (1e-12 USD), so that a price per million tokens times tokens is exact.
///
/// ```
/// use entourage_core::{Money, Prices, Usage};
///
/// // 3 USD per million tokens in, 15 USD per million out.
/// let prices = Prices::per_million_micros(3_000_000, 15_000_000);
/// assert_eq!(prices.cost(&Usage::new(1_000, 200)), Some(Money::usd("0.006").unwrap()));
/// assert_eq!(prices.cost(&Usage::new(1_000, 200)).unwrap().to_string(), "$0.006");
/// assert_eq!(Money::cents(200).to_string(), "$2");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Money(u64);

impl Money {
    /// Converts from pico-dollars.
    #[must_use]
    pub const fn from_pico(pico: u64) -> Self {
        Self(pico)
    }

    /// Converts from cents; more than the largest amount is the largest amount.
    #[must_use]
    pub const fn cents(cents: u64) -> Self {
        let pico = cents.saturating_mul(CENT);
        Self(if pico > MOST { MOST } else { pico })
    }

    /// Reads an amount in dollars, such as `2`, `2.00` or `$0.000003`, with at most 12 decimals.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for anything else, and for more than the largest amount.
    pub fn usd(text: &str) -> Result<Self> {
        Self::read(text).ok_or_else(|| {
            let text = "an amount of money is digits with at most 12 decimals, such as `2.50`, and at most $9 million";
            Error::new(ErrorKind::InvalidInput, text)
        })
    }

    fn read(text: &str) -> Option<Self> {
        let text = text.strip_prefix('$').unwrap_or(text);
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(decimals) || decimals.len() > 12 {
            return None;
        }
        let dollars = whole.parse::<u64>().ok()?.checked_mul(DOLLAR)?;
        let fraction = format!("{decimals:0<12}").parse::<u64>().ok()?;
        dollars.checked_add(fraction).filter(|pico| *pico <= MOST).map(Self)
    }

    /// The amount in pico-dollars.
    #[must_use]
    pub const fn as_pico(self) -> u64 {
        self.0
    }
}

impl Add for Money {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0).min(MOST))
    }
}

impl AddAssign for Money {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Money {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::default(), Add::add)
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fraction = format!("{:012}", self.0 % DOLLAR);
        let fraction = fraction.trim_end_matches('0');
        let dot = if fraction.is_empty() { "" } else { "." };
        f.pad(&format!("${}{dot}{fraction}", self.0 / DOLLAR))
    }
}

/// Prices of a model in pico-dollars per token, which is micro-dollars per million tokens.
///
/// ```
/// use entourage_core::{Money, PriceTier, Prices, Usage};
///
/// let mut prices = Prices::per_million_micros(1_250_000, 10_000_000);
/// prices.tiers.push(PriceTier::above(200_000, 2_500_000, 15_000_000));
/// assert_eq!(prices.cost(&Usage::new(200_000, 0)), Some(Money::from_pico(250_000_000_000)));
/// assert_eq!(prices.cost(&Usage::new(200_001, 0)), Some(Money::from_pico(500_002_500_000)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Prices {
    /// Price of a prompt token that is neither read from a cache nor written to one.
    pub input: u64,
    /// Price of a reply token.
    pub output: u64,
    /// Price of a prompt token read from a cache; `None` means the input price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<u64>,
    /// Price of a prompt token written to a cache; `None` means the input price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<u64>,
    /// Prices of calls with longer prompts. The highest bound that a prompt exceeds sets the prices of the whole call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<PriceTier>,
}

/// Prices of calls whose prompt exceeds a number of tokens, in the unit of [`Prices`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PriceTier {
    /// Number of prompt tokens, cached ones included, above which the tier applies.
    pub above: u64,
    /// Input price, as in [`Prices`].
    pub input: u64,
    /// Output price, as in [`Prices`].
    pub output: u64,
    /// Price of a token read from a cache, as in [`Prices`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<u64>,
    /// Price of a token written to a cache, as in [`Prices`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<u64>,
}

impl PriceTier {
    /// A tier for prompts of more than `above` tokens.
    #[must_use]
    pub const fn above(above: u64, input: u64, output: u64) -> Self {
        Self { above, input, output, cache_read: None, cache_write: None }
    }
}

impl Prices {
    /// Prices in micro-dollars per million tokens: 3 USD per million is `3_000_000`.
    #[must_use]
    pub const fn per_million_micros(input: u64, output: u64) -> Self {
        Self { input, output, cache_read: None, cache_write: None, tiers: Vec::new() }
    }

    /// Prices of a service that is paid for otherwise, or free: every call costs 0, which is known.
    #[must_use]
    pub const fn flat_rate() -> Self {
        Self::per_million_micros(0, 0)
    }

    /// True if every call costs 0, however many tokens it takes.
    #[must_use]
    pub fn is_flat_rate(&self) -> bool {
        *self == Self::flat_rate()
    }

    /// Cost of `usage`: the provider's own figure if it gave one. `None` if input or output is unknown, since a guess
    /// would be taken for a fact.
    #[must_use]
    pub fn cost(&self, usage: &Usage) -> Option<Money> {
        if usage.cost.is_some() {
            return usage.cost;
        }
        let (input, output) = (usage.input?, usage.output?);
        let read = usage.cache_read.unwrap_or(0).min(input);
        let write = usage.cache_write.unwrap_or(0).min(input.saturating_sub(read));
        let plain = input.saturating_sub(read).saturating_sub(write);
        let tier = self.tier(input);
        let parts = [
            (plain, tier.input),
            (read, tier.cache_read.unwrap_or(tier.input)),
            (write, tier.cache_write.unwrap_or(tier.input)),
            (output, tier.output),
        ];
        Some(parts.into_iter().map(|(tokens, price)| Money(tokens.saturating_mul(price))).sum())
    }

    /// True if a longer reply costs more.
    pub fn charges_output(&self) -> bool {
        self.output > 0 || self.tiers.iter().any(|tier| tier.output > 0)
    }

    fn tier(&self, input: u64) -> PriceTier {
        let exceeded = self.tiers.iter().filter(|tier| input > tier.above);
        let base = PriceTier {
            above: 0,
            input: self.input,
            output: self.output,
            cache_read: self.cache_read,
            cache_write: self.cache_write,
        };
        exceeded.max_by_key(|tier| tier.above).copied().unwrap_or(base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cc03_zeros_are_no_report() {
        let mut zeros = Usage::new(0, 0);
        zeros.cost = Some(Money::from_pico(3));
        assert_eq!(zeros.reported(), Usage { cost: zeros.cost, ..Usage::default() });
        assert_eq!(Usage::new(7, 0).reported(), Usage::new(7, 0));
    }
}
