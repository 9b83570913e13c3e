//! The pure parts: dates and the expansion of paths.

use entourage_core::Timestamp;

use super::{date, expand::Expander};

#[test]
fn ci03_days_are_those_of_the_calendar() {
    let day = |seconds: i64| date::utc(Timestamp::from_micros(seconds * 1_000_000));
    for (seconds, shown) in [
        (0, "1970-01-01"),
        (-1, "1969-12-31"),
        (86_399, "1970-01-01"),
        (951_782_400, "2000-02-29"),
        (951_868_800, "2000-03-01"),
        (1_709_164_800, "2024-02-29"),
        (1_767_225_599, "2025-12-31"),
        (1_767_225_600, "2026-01-01"),
        (4_107_542_400, "2100-03-01"),
        (4_107_542_399, "2100-02-28"),
        (-62_135_596_800, "0001-01-01"),
        (253_402_300_799, "9999-12-31"),
    ] {
        assert_eq!(day(seconds), shown, "{seconds}");
    }
    // No moment overflows.
    date::utc(Timestamp::from_micros(i64::MIN));
    date::utc(Timestamp::from_micros(i64::MAX));
}

#[test]
fn ci04_paths_are_expanded_once_and_only_where_they_say_so() {
    let lookup = |name: &str| match name {
        "HOME" => Some("/home/a".to_owned()),
        "DATA" => Some("$HOME/~".to_owned()),
        "EMPTY" => Some(String::new()),
        _ => None,
    };
    let expander = Expander::new(&lookup);
    for (path, expanded) in [
        ("~", Some("/home/a")),
        ("~/x", Some("/home/a/x")),
        ("~b/x", Some("~b/x")),
        ("a/~", Some("a/~")),
        ("$DATA/x", Some("$HOME/~/x")),
        ("a${HOME}b$HOME", Some("a/home/ab/home/a")),
        ("$HOME_DIR/x", None),
        ("$EMPTY/x", None),
        ("${NONE}", None),
        ("a$", Some("a$")),
        ("a$/b", Some("a$/b")),
        ("$1", Some("$1")),
        ("${HOME", Some("${HOME")),
        ("${a-b}$HOME", Some("${a-b}/home/a")),
        ("", None),
    ] {
        assert_eq!(expander.expand(path).as_deref(), expanded, "{path}");
    }
}
