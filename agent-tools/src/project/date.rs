//! The date of a timestamp, in UTC.

use entourage_core::Timestamp;

const MICROS_OF_DAY: i64 = 86_400_000_000;

/// Formats the date as `2026-01-31`, in the Gregorian calendar. A year before 1 or after 9999 keeps its sign and its
/// digits.
pub(super) fn utc(at: Timestamp) -> String {
    let days = at.as_micros().div_euclid(MICROS_OF_DAY);
    // Counted from 0000-03-01, so that a leap day ends its year; 400 years have 146,097 days.
    let days = days.saturating_add(719_468);
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}
