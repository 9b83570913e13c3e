//! The cost of a call as a service reports it, kept exact.

use entourage_core::Money;
use serde::{Deserialize, Deserializer};

use super::Raw;

/// Decimals of a dollar in a pico-dollar.
const PICO: i64 = 12;

/// An amount in dollars: a number, or a text with one. It is parsed from its decimal digits, never through a float;
/// digits beyond a pico-dollar are dropped. A negative or too large amount counts as absent.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Dollars(pub(crate) Option<Money>);

impl<'de> Deserialize<'de> for Dollars {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Raw::deserialize(deserializer)?;
        Ok(Self(raw.get().and_then(|text| pico(text.trim_matches('"'))).map(Money::from_pico)))
    }
}

fn pico(text: &str) -> Option<u64> {
    let (number, exponent) = match text.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, exponent.parse::<i64>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: String = [whole, fraction].concat();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let shift = exponent.checked_add(PICO)?.checked_sub(i64::try_from(fraction.len()).ok()?)?;
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    let kept = i64::try_from(digits.len()).ok()?.checked_add(shift)?;
    if kept <= 0 {
        return Some(0);
    }
    if kept > 20 {
        return None;
    }
    let kept = usize::try_from(kept).ok()?;
    let digits: String = digits.chars().chain(std::iter::repeat('0')).take(kept).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::pico;

    #[test]
    fn amounts_are_exact_to_the_pico_dollar() {
        for (text, amount) in [
            ("0", Some(0)),
            ("1", Some(1_000_000_000_000)),
            ("4.05e-05", Some(40_500_000)),
            ("0.025265", Some(25_265_000_000)),
            ("0.000000000001", Some(1)),
            ("1e-13", Some(0)),
            ("0.1234567890129", Some(123_456_789_012)),
            ("1.5E+2", Some(150_000_000_000_000)),
            ("18446744.073709551615", Some(u64::MAX)),
            ("18446744.073709551616", None),
            ("1e300", None),
            ("-1", None),
            ("1e99999999999999999999", None),
            ("", None),
            (".", None),
            ("null", None),
            ("{}", None),
        ] {
            assert_eq!(pico(text), amount, "{text}");
        }
    }
}
