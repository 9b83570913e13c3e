//! Names and numbers as written in results. Pure.

use std::path::{Component, Path};

/// Longest echo of a model's input, in characters.
const ECHO: usize = 200;

/// A name or path from outside as one harmless line: control characters replaced, the rest cut.
pub(super) fn echo(text: &str) -> String {
    let mut shown: String = text.chars().take(ECHO).map(harmless).collect();
    if text.chars().nth(ECHO).is_some() {
        shown.push('…');
    }
    shown
}

/// A relative path with `/` between its parts; `.` for the root. Control characters and what is not Unicode are
/// replaced.
pub(super) fn show(path: &Path) -> String {
    subject(path).chars().map(harmless).collect()
}

/// A relative path as rules and grants know it: like [`show`], with its control characters. Two files whose names
/// differ in these alone are two subjects.
pub(super) fn subject(path: &Path) -> String {
    let parts = path.components().filter(|part| matches!(part, Component::Normal(_)));
    let parts: Vec<_> = parts.map(|part| part.as_os_str().to_string_lossy()).collect();
    if parts.is_empty() { ".".to_owned() } else { parts.join("/") }
}

// A line break in a file's name would forge another entry of a list.
fn harmless(c: char) -> char {
    if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }
}

/// A number with its noun, such as `1 file` or `2,000 files`.
pub(super) fn count(n: usize, one: &str, many: &str) -> String {
    format!("{} {}", grouped(n), if n == 1 { one } else { many })
}

fn grouped(n: usize) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names() {
        assert_eq!(count(1, "match", "matches"), "1 match");
        assert_eq!(count(1_234_567, "match", "matches"), "1,234,567 matches");
        assert_eq!(count(100, "match", "matches"), "100 matches");
        assert_eq!(show(Path::new("")), ".");
        assert_eq!(show(Path::new("a/b\nc")), "a/b\u{fffd}c");
        assert_eq!(
            (subject(Path::new("")).as_str(), subject(Path::new("a//b\nc/")).as_str()),
            (".", "a/b\nc")
        );
        assert_eq!(echo(&"é".repeat(300)).chars().count(), 201);
    }
}
