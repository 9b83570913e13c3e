//! The difference of two texts, line by line. Pure.

use std::time::Duration;

use similar::{Algorithm, ChangeTag, TextDiff};

/// Most bytes of a diff that are kept.
const MOST: usize = 64 << 10;
/// Line behind a diff that is not whole. A line of a text begins with another character.
const CUT: &str = "(cut)\n";
/// Lines that are shown around a change.
const AROUND: usize = 3;
/// Bytes that are compared in one step.
const BLOCK: usize = 256;
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
        let (skipped, before, after) = changed_part(before, after);
        let diff =
            TextDiff::configure().algorithm(Algorithm::Patience).timeout(TIME).diff_lines(before, after);
        let count = |tag| diff.iter_all_changes().filter(|change| change.tag() == tag).count();
        let (added, removed) = (count(ChangeTag::Insert), count(ChangeTag::Delete));
        let full = diff.unified_diff().context_radius(AROUND).header(name, name).to_string();
        let mut text = String::new();
        for line in full.split_inclusive('\n') {
            if text.len().saturating_add(line.len()) > MOST {
                text.push_str(CUT);
                break;
            }
            match shifted(line, skipped) {
                Some(line) => text.push_str(&line),
                None => text.push_str(line),
            }
        }
        Self { text, added, removed }
    }
}

/// True for the text of a diff that is not whole.
#[cfg(feature = "lsp")]
pub(super) fn is_cut(text: &str) -> bool {
    text.strip_suffix(CUT).is_some_and(|before| before.ends_with('\n'))
}

/// Returns both texts without most of the lines that they begin and end with alike, and the number of lines that were
/// left out before. The lines that a diff shows around a change are kept.
fn changed_part<'t>(before: &'t str, after: &'t str) -> (usize, &'t str, &'t str) {
    let whole = (0, before, after);
    let (old, new) = (before.as_bytes(), after.as_bytes());
    // The library takes this for an end of a line too, where no other character follows.
    if [old, new].into_iter().any(|text| memchr::memchr(b'\r', text).is_some()) {
        return whole;
    }
    let alike = alike_at_start(old, new);
    let begin = lines_back(old.get(..alike).unwrap_or_default(), AROUND);
    let (Some(old), Some(new)) = (old.get(begin..), new.get(begin..)) else { return whole };
    let most = old.len().min(new.len()).saturating_sub(alike - begin);
    let alike = alike_at_end(old, new).min(most);
    let end = lines_on(old.get(old.len() - alike..).unwrap_or_default(), AROUND + 1);
    let part = |text: &'t str| text.get(begin..text.len().checked_sub(end)?);
    match (part(before), part(after)) {
        (Some(old), Some(new)) => {
            (memchr::memchr_iter(b'\n', before.as_bytes().get(..begin).unwrap_or_default()).count(), old, new)
        }
        _ => whole,
    }
}

/// The number of bytes with which both begin.
fn alike_at_start<'t>(old: &'t [u8], new: &'t [u8]) -> usize {
    let blocks = old.chunks_exact(BLOCK).zip(new.chunks_exact(BLOCK));
    let whole = blocks.take_while(|(a, b)| a == b).count() * BLOCK;
    let rest = |text: &'t [u8]| text.get(whole..).unwrap_or_default().iter();
    whole + rest(old).zip(rest(new)).take_while(|(a, b)| a == b).count()
}

/// The number of bytes with which both end.
fn alike_at_end<'t>(old: &'t [u8], new: &'t [u8]) -> usize {
    let blocks = old.rchunks_exact(BLOCK).zip(new.rchunks_exact(BLOCK));
    let whole = blocks.take_while(|(a, b)| a == b).count() * BLOCK;
    let rest = |text: &'t [u8]| text.get(..text.len().saturating_sub(whole)).unwrap_or_default().iter().rev();
    whole + rest(old).zip(rest(new)).take_while(|(a, b)| a == b).count()
}

/// The beginning of the line that is `lines` above the last one.
fn lines_back(text: &[u8], lines: usize) -> usize {
    memchr::memrchr_iter(b'\n', text).nth(lines).map_or(0, |at| at + 1)
}

/// The number of bytes behind the first `lines` ends of lines.
fn lines_on(text: &[u8], lines: usize) -> usize {
    memchr::memchr_iter(b'\n', text).nth(lines.saturating_sub(1)).map_or(0, |at| text.len() - at - 1)
}

/// The header of a hunk that begins `skipped` lines later; `None` for any other line.
fn shifted(line: &str, skipped: usize) -> Option<String> {
    let (old, new) = line.strip_prefix("@@ -")?.split_once(" @@")?.0.split_once(" +")?;
    let moved = |range: &str| {
        let (from, rest) = range.split_at(range.find(',').unwrap_or(range.len()));
        Some(format!("{}{rest}", from.parse::<usize>().ok()? + skipped))
    };
    Some(format!("@@ -{} +{} @@\n", moved(old)?, moved(new)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    proptest! {
        /// Byte by byte is the reference.
        #[test]
        fn cx06_what_is_alike_is_found_by_blocks_as_by_bytes(
            (old, new) in (0..2_000_usize, 0..2_000_usize),
            changed in prop::collection::vec(0..2_000_usize, 0..3),
        ) {
            let (old, mut new) = (vec![0; old], vec![0; new]);
            for at in changed {
                new.get_mut(at).into_iter().for_each(|byte| *byte = 1);
            }
            let start = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
            let end = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
            prop_assert_eq!((alike_at_start(&old, &new), alike_at_end(&old, &new)), (start, end));
        }

        /// The whole texts are the reference.
        #[test]
        fn cx06_what_is_alike_changes_nothing_in_a_diff(
            lines in prop::collection::vec(0_u32..400, 0..60),
            edits in prop::collection::vec((any::<prop::sample::Index>(), 0_u32..400, 0..3_u8), 0..4),
            (ends_before, ends_after) in any::<(bool, bool)>(),
        ) {
            let mut changed = lines.clone();
            for (at, line, kind) in edits {
                let at = at.index(changed.len() + 1);
                match kind {
                    0 => changed.insert(at, line),
                    1 if at < changed.len() => changed[at] = line,
                    _ if at < changed.len() => drop(changed.remove(at)),
                    _ => {}
                }
            }
            let text = |lines: &[u32], ends: bool| {
                let joined = lines.iter().map(|line| format!("é{line}")).collect::<Vec<_>>().join("\n");
                if ends { joined + "\n" } else { joined }
            };
            let (before, after) = (text(&lines, ends_before), text(&changed, ends_after));
            let diff = Diff::of("x", &before, &after);
            prop_assert_eq!(applied(&before, &diff.text), after);
        }
    }

    /// The text after a diff was applied, by the numbers of its hunks.
    fn applied(before: &str, diff: &str) -> String {
        let old: Vec<&str> = before.split_inclusive('\n').collect();
        let (mut out, mut at, mut shown) = (String::new(), 0, false);
        for line in diff.split_inclusive('\n').skip(2) {
            let (sign, rest) = line.split_at(1);
            let before = std::mem::replace(&mut shown, sign != "-");
            match sign {
                "@" => {
                    let range = rest.strip_prefix("@ -").unwrap().split_once(' ').unwrap().0;
                    let (from, count) = range.split_once(',').unwrap_or((range, "1"));
                    let from = from.parse::<usize>().unwrap() - usize::from(count != "0");
                    out.extend(old[at..from].iter().copied());
                    at = from;
                }
                "\\" if before => drop(out.pop()),
                "\\" => {}
                "+" => out.push_str(rest),
                _ => {
                    assert_eq!(old[at].trim_end(), rest.trim_end());
                    if sign == " " {
                        out.push_str(rest);
                    }
                    at += 1;
                }
            }
        }
        out.extend(old[at..].iter().copied());
        out
    }
}
