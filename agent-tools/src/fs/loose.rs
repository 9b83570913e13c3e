//! Lines compared without regard to white space, and indentation. Pure.

use std::{
    collections::HashMap,
    fmt::Write as _,
    hash::{DefaultHasher, Hash, Hasher},
    ops::Range,
};

use super::text;

/// Most comparisons of lines that a hint may cost.
const EFFORT: usize = 20_000_000;
/// Most lines that a hint shows.
const SHOWN: usize = 20;
/// Most characters of a line that a hint shows.
const WIDTH: usize = 200;

/// A line without its end.
struct Line<'a> {
    text: &'a str,
    /// Place of the line in the text, its end included.
    place: Range<usize>,
    /// Hash of its words.
    words: u64,
    is_blank: bool,
}

/// The lines of a text, and its indentation.
pub(super) struct Lines<'a>(Vec<Line<'a>>, Unit);

/// Lines that have the words of others.
pub(super) struct Place {
    /// Their place in the text.
    pub(super) range: Range<usize>,
    /// True if they are indented by the same characters.
    pub(super) alike: bool,
}

impl<'a> Lines<'a> {
    pub(super) fn of(body: &'a str) -> Self {
        let mut from = 0_usize;
        let line = |text: &'a str| {
            let place = from..from.saturating_add(text.len());
            from = place.end;
            let text = text.strip_suffix('\n').unwrap_or(text);
            Line { text, place, words: words(text), is_blank: text.trim().is_empty() }
        };
        let lines: Vec<_> = body.split_inclusive('\n').map(line).collect();
        let unit = Unit::of(lines.iter().map(|line| line.text));
        Self(lines, unit)
    }

    /// Places of lines that have the words of `old`, none twice.
    pub(super) fn places(&self, old: &str) -> Vec<Place> {
        let old = Lines::of(old);
        // Blank lines are everywhere.
        if old.0.iter().all(|line| line.text.trim().is_empty()) {
            return Vec::new();
        }
        let (mut places, mut next) = (Vec::new(), 0);
        for at in self.found(&old) {
            let Some(window) = self.0.get(at..at.saturating_add(old.0.len())) else { continue };
            let pairs = || window.iter().zip(&old.0).filter(|(line, _)| !line.is_blank);
            if at < next || !pairs().all(|(line, old)| line.has_words_of(old)) {
                continue;
            }
            let alike = pairs().all(|(line, old)| indent(line.text) == indent(old.text));
            // Otherwise all lines are as many levels deeper, or less deep: it is other code that is nested otherwise.
            let mut moves = pairs().map(|(line, given)| self.1.level(line) - old.1.level(given));
            let first = moves.next();
            if !alike && moves.any(|levels| Some(levels) != first) {
                continue;
            }
            if let (Some(first), Some(last)) = (window.first(), window.last()) {
                places.push(Place { range: first.place.start..last.place.end, alike });
            }
            next = at.saturating_add(old.0.len());
        }
        places
    }

    /// The first lines of all windows whose words have the hashes of `old`: by the algorithm of Knuth, Morris and
    /// Pratt, whose time is linear in the lines of both.
    fn found(&self, old: &Lines<'_>) -> Vec<usize> {
        let words: Vec<u64> = old.0.iter().map(|line| line.words).collect();
        // Of each line, the longest beginning of `old` that ends there.
        let mut borders = vec![0_usize; words.len()];
        let fits = |length: usize, word: u64| words.get(length) == Some(&word);
        let shorter = |borders: &[usize], length: usize| {
            length.checked_sub(1).and_then(|last| borders.get(last)).copied().unwrap_or(0)
        };
        let advance = |borders: &[usize], mut length: usize, word: u64| {
            while length > 0 && !fits(length, word) {
                length = shorter(borders, length);
            }
            if fits(length, word) { length.saturating_add(1) } else { length }
        };
        let mut length = 0;
        for (place, word) in words.iter().enumerate().skip(1) {
            length = advance(&borders, length, *word);
            if let Some(border) = borders.get_mut(place) {
                *border = length;
            }
        }
        let (mut found, mut length) = (Vec::new(), 0);
        for (place, line) in self.0.iter().enumerate() {
            length = advance(&borders, length, line.words);
            if length == words.len() {
                found.push(place.saturating_add(1).saturating_sub(length));
                length = shorter(&borders, length);
            }
        }
        found
    }

    /// The new text at the depth of the matched lines, with the file's indentation.
    pub(super) fn reindented(&self, depth: &str, old: &str, new: &str) -> String {
        let of_file = &self.1;
        let given = Unit::of(old.lines().chain(new.lines()));
        let here = of_file.levels(depth).0;
        let (there, aligned) = given.levels(first_indent(old));
        let mut out = String::with_capacity(new.len());
        for line in new.split_inclusive('\n') {
            let text = line.trim_start_matches([' ', '\t']);
            if !text.trim().is_empty() {
                let indent = line.get(..line.len().saturating_sub(text.len())).unwrap_or_default();
                let (levels, rest) = given.levels(indent);
                let levels = levels.saturating_add(here).saturating_sub(there);
                (0..levels).for_each(|_| out.push_str(of_file.text()));
                (aligned..rest).for_each(|_| out.push(' '));
            }
            out.push_str(text);
        }
        out
    }

    /// The error for a text that is not found: with the lines that are most like it, if half of them are equal.
    pub(super) fn hint(&self, old: &str) -> String {
        let mut answer =
            "the old text is not in the file; view the file, and give the text exactly as it is there"
                .to_owned();
        let old = Lines::of(old);
        let count = old.0.len();
        let effort = self.0.len().saturating_mul(count);
        if count == 0 || count > self.0.len() || effort > EFFORT {
            return answer;
        }
        let alike = |window: &[Line<'_>]| {
            let pairs = window.iter().zip(&old.0);
            pairs.filter(|(line, old)| line.words == old.words && !line.is_blank).count()
        };
        // Of equal ones the first.
        let best = self.0.windows(count).enumerate().rev().max_by_key(|(_, window)| alike(window));
        let Some((at, window)) = best.filter(|(_, window)| alike(window).saturating_mul(2) >= count) else {
            return answer;
        };
        let _ = write!(
            answer,
            ". These lines are most like it, from line {}, with → for a tab and · for a space at the end:",
            at.saturating_add(1)
        );
        for line in window.iter().take(SHOWN) {
            let _ = write!(answer, "\n{}", visible(line.text));
        }
        if count > SHOWN {
            let _ = write!(answer, "\n({} more)", text::count(count - SHOWN, "line", "lines"));
        }
        answer
    }
}

/// Most characters of an indentation that is changed.
pub(super) const DEEPEST: usize = 200;

impl Line<'_> {
    fn has_words_of(&self, other: &Line<'_>) -> bool {
        self.words == other.words && self.text.split_whitespace().eq(other.text.split_whitespace())
    }
}

fn words(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.split_whitespace().for_each(|word| word.hash(&mut hasher));
    hasher.finish()
}

/// Indentation of the first line that is not blank.
pub(super) fn first_indent(text: &str) -> &str {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    indent(line)
}

fn indent(line: &str) -> &str {
    let rest = line.trim_start_matches([' ', '\t']);
    line.get(..line.len().saturating_sub(rest.len())).unwrap_or_default()
}

fn visible(line: &str) -> String {
    let kept = line.trim_end_matches(' ');
    let spaces = line.len().saturating_sub(kept.len());
    let shown: String = kept.chars().take(WIDTH).map(|c| if c == '\t' { '→' } else { c }).collect();
    shown + &"·".repeat(spaces.min(WIDTH))
}

/// One level of indentation.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Unit(String);

impl Unit {
    /// The unit that most lines fit.
    fn of<'a>(lines: impl Iterator<Item = &'a str>) -> Self {
        let (mut tabs, mut spaces) = (0_usize, 0_usize);
        let mut steps: HashMap<usize, usize> = HashMap::new();
        let mut last = 0_usize;
        for line in lines.filter(|line| !line.trim().is_empty()) {
            let indent = indent(line);
            if indent.starts_with('\t') {
                tabs = tabs.saturating_add(1);
            } else if !indent.is_empty() {
                spaces = spaces.saturating_add(1);
            }
            // One space is alignment.
            let step = indent.len().abs_diff(last);
            if !indent.contains('\t') && (2..=8).contains(&step) {
                let count = steps.entry(step).or_default();
                *count = count.saturating_add(1);
            }
            last = indent.len();
        }
        if tabs > spaces {
            return Self("\t".to_owned());
        }
        let common = steps.into_iter().max_by_key(|(step, count)| (*count, std::cmp::Reverse(*step)));
        Self(" ".repeat(common.map_or(4, |(step, _)| step)))
    }

    fn text(&self) -> &str {
        &self.0
    }

    fn level(&self, line: &Line<'_>) -> i64 {
        i64::try_from(self.levels(indent(line.text)).0).unwrap_or(i64::MAX)
    }

    /// Levels of an indentation, and the spaces that are left. A tab is a level.
    fn levels(&self, indent: &str) -> (usize, usize) {
        let tabs = indent.matches('\t').count();
        let spaces = indent.len().saturating_sub(tabs);
        let width = if self.0 == "\t" { 4 } else { self.0.len().max(1) };
        (tabs.saturating_add(spaces / width), spaces % width)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_unit_is_the_most_common_step() {
        for (body, unit) in [
            ("a\n\tb\n\t\tc\n", "\t"),
            ("a\n  b\n    c\n", "  "),
            ("a\n    b\n        c\n   x\n", "    "),
            ("a\n", "    "),
            ("   a\n   b\n", "   "),
        ] {
            assert_eq!(Unit::of(body.lines()).text(), unit, "{body:?}");
        }
    }

    proptest! {
        #[test]
        fn loose_places_are_whole_lines_in_order_and_have_the_words(
            body in "([ \t]{0,3}[ab]?[ \t]?[ab]?\n?){0,12}", old in "([ \t]{0,2}[ab]?\n?){0,3}",
        ) {
            let places = Lines::of(&body).places(&old);
            let mut end = 0;
            for Place { range: place, .. } in places {
                prop_assert!(place.start >= end && place.end > place.start);
                prop_assert!(place.start == 0 || body.get(..place.start).unwrap().ends_with('\n'));
                prop_assert!(place.end == body.len() || body.get(..place.end).unwrap().ends_with('\n'));
                let words = |text: &str| text.lines().map(|line| {
                    line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
                }).collect::<Vec<_>>();
                prop_assert_eq!(words(body.get(place.clone()).unwrap()), words(&old));
                end = place.end;
            }
        }
    }
}
