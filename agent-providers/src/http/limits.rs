//! Response headers about the account's limits, in the spellings that services use.

use std::time::{Duration, SystemTime};

use entourage_core::provider::{RateLimits, RateWindow};
use reqwest::header::HeaderMap;

use super::headers::text;

/// Header names of one limit: the allowed number, the remaining number, the time of the reset.
type Names = [&'static str; 3];

const REQUESTS: &[Names] = &[
    ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"],
    [
        "anthropic-ratelimit-requests-limit",
        "anthropic-ratelimit-requests-remaining",
        "anthropic-ratelimit-requests-reset",
    ],
    ["x-ratelimit-limit-req-minute", "x-ratelimit-remaining-req-minute", "x-ratelimit-reset-req-minute"],
    ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"],
];

const TOKENS: &[Names] = &[
    ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"],
    [
        "anthropic-ratelimit-tokens-limit",
        "anthropic-ratelimit-tokens-remaining",
        "anthropic-ratelimit-tokens-reset",
    ],
    [
        "x-ratelimit-limit-tokens-minute",
        "x-ratelimit-remaining-tokens-minute",
        "x-ratelimit-reset-tokens-minute",
    ],
];

const INPUT_TOKENS: &[Names] = &[[
    "anthropic-ratelimit-input-tokens-limit",
    "anthropic-ratelimit-input-tokens-remaining",
    "anthropic-ratelimit-input-tokens-reset",
]];

const OUTPUT_TOKENS: &[Names] = &[[
    "anthropic-ratelimit-output-tokens-limit",
    "anthropic-ratelimit-output-tokens-remaining",
    "anthropic-ratelimit-output-tokens-reset",
]];

/// The limits that the headers state; `None` when they state none.
pub(crate) fn limits(headers: &HeaderMap, now: SystemTime) -> Option<RateLimits> {
    let mut limits = RateLimits::default();
    limits.requests = window(headers, REQUESTS, now);
    limits.tokens = window(headers, TOKENS, now);
    limits.input_tokens = window(headers, INPUT_TOKENS, now);
    limits.output_tokens = window(headers, OUTPUT_TOKENS, now);
    (limits != RateLimits::default()).then_some(limits)
}

/// The first spelling with a readable value; spellings are never mixed.
fn window(headers: &HeaderMap, spellings: &[Names], now: SystemTime) -> RateWindow {
    let read = |[limit, remaining, reset]: &Names| {
        let count = |name| text(headers, name)?.parse().ok().filter(|count| *count <= MOST);
        let mut window = RateWindow::default();
        window.limit = count(limit);
        window.remaining = count(remaining);
        window.reset = text(headers, reset).and_then(|text| until(text, now)).and_then(plausible);
        (window != RateWindow::default()).then_some(window)
    };
    spellings.iter().find_map(read).unwrap_or_default()
}

/// More than any account has in a window; larger figures are ignored.
const MOST: u64 = 1_000_000_000_000;

/// Returns a wait of at most 100 years. A longer one counts as unknown.
pub(super) fn plausible(wait: Duration) -> Option<Duration> {
    Some(wait).filter(|wait| *wait <= Duration::from_secs(100 * 366 * 86_400))
}

/// Numbers above these are seconds or milliseconds since 1970, as some services send them; no limit takes 30 years to
/// reset.
const EPOCH_SECONDS: f64 = 1e9;
const EPOCH_MILLIS: f64 = 1e12;

/// Time until `text`: a span (`6m0s`, `20ms`, `1.5`) or a point in time.
fn until(text: &str, now: SystemTime) -> Option<Duration> {
    let since_1970 = |time: Duration| {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        time.saturating_sub(now)
    };
    if let Ok(number) = text.parse::<f64>() {
        let seconds = if number >= EPOCH_MILLIS { number / 1_000.0 } else { number };
        let time = Duration::try_from_secs_f64(seconds).ok()?;
        return Some(if number >= EPOCH_SECONDS { since_1970(time) } else { time });
    }
    span(text).or_else(|| rfc3339(text).map(since_1970))
}

/// Parses a span such as `1m30.5s`, `20ms`, `1h0m2s`; a number alone is seconds.
pub(crate) fn span(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    if rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Duration::try_from_secs_f64(rest.parse().ok()?).ok();
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at_checked(number_end)?;
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at_checked(unit_end)?;
        let seconds = match unit {
            "d" => 86_400.0,
            "h" => 3_600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" | "μs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        let piece = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
        total = total.checked_add(piece)?;
        rest = tail;
    }
    Some(total)
}

/// Parses an RFC 3339 time from 1970 to 9999 into its distance from 1970, such as `2026-01-23T03:04:28Z` or
/// `2026-01-23T04:04:28.5+01:00`.
fn rfc3339(text: &str) -> Option<Duration> {
    let (date, rest) = text.split_at_checked(10)?;
    let (time, rest) = rest.strip_prefix(['T', 't', ' '])?.split_at_checked(8)?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let digits = rest.strip_prefix('.').map_or(0, |rest| rest.bytes().take_while(u8::is_ascii_digit).count());
    let (fraction, zone) =
        if digits == 0 { ("", rest) } else { rest.split_at_checked(digits.checked_add(1)?)? };
    // A leap second counts as the one after it.
    if year < 1970 || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = days(year, month, day)?.checked_mul(86_400)?;
    let seconds = seconds.checked_add(hour.checked_mul(3_600)?.checked_add(minute.checked_mul(60)?)?)?;
    let seconds = seconds.checked_add(second)?;
    let seconds = match zone {
        "Z" | "z" => seconds,
        _ => {
            let [hours, minutes] = numbers(zone.strip_prefix(['+', '-'])?, ':', [2, 2])?;
            let offset = hours.checked_mul(3_600)?.checked_add(minutes.checked_mul(60)?)?;
            if zone.starts_with('+') { seconds.checked_sub(offset)? } else { seconds.checked_add(offset)? }
        }
    };
    let fraction = if fraction.is_empty() { 0.0 } else { format!("0{fraction}").parse().ok()? };
    Duration::from_secs(seconds).checked_add(Duration::try_from_secs_f64(fraction).ok()?)
}

/// Parses exactly `N` numbers of these widths between separators.
fn numbers<const N: usize>(text: &str, separator: char, widths: [usize; N]) -> Option<[u64; N]> {
    let mut pieces = text.split(separator);
    let mut all = [0; N];
    for (number, width) in all.iter_mut().zip(widths) {
        let piece = pieces.next()?;
        if piece.len() != width || !piece.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *number = piece.parse().ok()?;
    }
    pieces.next().is_none().then_some(all)
}

/// Days from 1970 to a date of the Gregorian calendar.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let lengths = [31, if leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let before = usize::try_from(month.checked_sub(1)?).ok()?;
    if day == 0 || day > *lengths.get(before)? {
        return None;
    }
    let years: u64 = (1970..year).map(|year| if leap(year) { 366 } else { 365 }).sum();
    let months: u64 = lengths.iter().take(before).sum();
    years.checked_add(months)?.checked_add(day.checked_sub(1)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SystemTime {
        SystemTime::UNIX_EPOCH + rfc3339(text).unwrap()
    }

    #[test]
    fn times_are_read_as_their_distance_from_1970() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0.0),
            ("2000-02-29T12:34:56Z", 951_827_696.0),
            ("2026-01-23T03:04:28Z", 1_769_137_468.0),
            ("2026-01-23T04:04:28.5+01:00", 1_769_137_468.5),
            ("2026-01-22 22:04:28.250-05:00", 1_769_137_468.25),
            ("2024-12-31t23:59:60z", 1_735_689_600.0),
            ("9999-12-31T23:59:59Z", 253_402_300_799.0),
        ] {
            assert_eq!(rfc3339(text).map(|time| time.as_secs_f64()), Some(seconds), "{text}");
        }
        for nonsense in [
            "",
            "2026-01-23",
            "2026-01-23T03:04:28",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2025-02-29T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-23T24:00:00Z",
            "2026-01-23T03:04:28.Z",
            "2026-01-23T03:04:28+1:00",
            "+026-01-23T03:04:28Z",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+01:00",
            "2026-01-2éT03:04:28Z",
        ] {
            assert_eq!(rfc3339(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn waits_come_as_spans_seconds_or_times() {
        let now = at("2026-01-23T03:04:00Z");
        for (text, millis) in [
            ("6m0s", 360_000),
            ("1s", 1_000),
            ("12ms", 12),
            ("1m30.5s", 90_500),
            ("1h0m2s", 3_602_000),
            ("2d", 172_800_000),
            ("0", 0),
            ("60", 60_000),
            ("0.25", 250),
            ("2026-01-23T03:04:28Z", 28_000),
            ("2026-01-23T03:03:00Z", 0),
            ("1769137450", 10_000),
            ("1769137450000", 10_000),
        ] {
            assert_eq!(until(text, now), Some(Duration::from_millis(millis)), "{text}");
        }
        for nonsense in
            ["", "soon", "1x", "s", "-5", "NaN", "1e400", "1.2.3s", "9999999999999999999999d", "5m-1s"]
        {
            assert_eq!(until(nonsense, now), None, "{nonsense}");
        }
        assert_eq!(span("34.074824224s"), Some(Duration::from_nanos(34_074_824_224)));
    }

    #[test]
    fn every_spelling_of_limits_is_read() {
        let now = at("2026-02-09T22:09:50Z");
        let read = |headers: &[(&'static str, &str)]| {
            let map = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            limits(&map.collect(), now)
        };
        let window = |limit, remaining, reset: Option<u64>| {
            let mut window = RateWindow::default();
            (window.limit, window.remaining) = (limit, remaining);
            window.reset = reset.map(Duration::from_millis);
            window
        };
        let openai = read(&[
            ("x-ratelimit-limit-requests", "5000"),
            ("x-ratelimit-remaining-requests", "4999"),
            ("x-ratelimit-reset-requests", "12ms"),
            ("x-ratelimit-limit-tokens", "800000"),
            ("x-ratelimit-remaining-tokens", "799945"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ])
        .unwrap();
        assert_eq!(openai.requests, window(Some(5_000), Some(4_999), Some(12)));
        assert_eq!(openai.tokens, window(Some(800_000), Some(799_945), Some(360_000)));
        assert_eq!((openai.input_tokens, openai.output_tokens), Default::default());
        let anthropic = read(&[
            ("anthropic-ratelimit-requests-limit", "4000"),
            ("anthropic-ratelimit-requests-remaining", "3999"),
            ("anthropic-ratelimit-requests-reset", "2026-02-09T22:09:57Z"),
            ("anthropic-ratelimit-tokens-remaining", "2400000"),
            ("anthropic-ratelimit-input-tokens-limit", "2000000"),
            ("anthropic-ratelimit-output-tokens-reset", "2026-02-09T22:09:58Z"),
        ])
        .unwrap();
        assert_eq!(anthropic.requests, window(Some(4_000), Some(3_999), Some(7_000)));
        assert_eq!(anthropic.tokens, window(None, Some(2_400_000), None));
        assert_eq!(anthropic.input_tokens, window(Some(2_000_000), None, None));
        assert_eq!(anthropic.output_tokens, window(None, None, Some(8_000)));
        let others = read(&[
            ("x-ratelimit-limit-req-minute", "5"),
            ("x-ratelimit-remaining-tokens-minute", "74932"),
            ("x-ratelimit-remaining", "1"),
        ])
        .unwrap();
        assert_eq!(others.requests, window(Some(5), None, None));
        assert_eq!(others.tokens, window(None, Some(74_932), None));
        assert_eq!(read(&[("x-ratelimit-remaining", "0")]).unwrap().requests, window(None, Some(0), None));
        assert_eq!(read(&[("x-ratelimit-limit-requests", "many"), ("x-request-id", "r")]), None);
    }
}
