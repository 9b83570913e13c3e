//! The difference of two texts, line by line. Pure.

use std::time::Duration;

use similar::{Algorithm, ChangeTag, TextDiff};

/// Most bytes of a diff that are kept.
const MOST: usize = 64 << 10;
/// Time after which a difference is no longer the smallest.
const TIME: Duration = Duration::from_millis(200);

/// A unified diff, and its numbers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Diff {
    /// The text, whole lines of at most 64 KiB together.
    pub(super) text: String,
    pub(super) added: usize,
    pub(super) removed: usize,
}

impl Diff {
    pub(super) fn of(name: &str, before: &str, after: &str) -> Self {
        let diff =
            TextDiff::configure().algorithm(Algorithm::Patience).timeout(TIME).diff_lines(before, after);
        let count = |tag| diff.iter_all_changes().filter(|change| change.tag() == tag).count();
        let (added, removed) = (count(ChangeTag::Insert), count(ChangeTag::Delete));
        let full = diff.unified_diff().context_radius(3).header(name, name).to_string();
        let mut text = String::new();
        for line in full.split_inclusive('\n') {
            if text.len().saturating_add(line.len()) > MOST {
                text.push_str("(cut)\n");
                break;
            }
            text.push_str(line);
        }
        Self { text, added, removed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_shows_the_lines_around_and_is_bounded() {
        let diff = Diff::of("a.rs", "a\nb\nc\n", "a\nx\ny\nc\n");
        assert_eq!(diff.text, "--- a.rs\n+++ a.rs\n@@ -1,3 +1,4 @@\n a\n-b\n+x\n+y\n c\n");
        assert_eq!((diff.added, diff.removed), (2, 1));
        let long: String = (0..20_000).map(|n| format!("line {n}\n")).collect();
        let diff = Diff::of("long", "", &long);
        assert!(diff.text.len() < MOST + 10 && diff.text.ends_with("(cut)\n"), "{}", diff.text.len());
        assert_eq!(diff.added, 20_000);
    }
}
