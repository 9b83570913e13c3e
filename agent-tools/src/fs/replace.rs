//! Replaces a text in a document: exactly, or by whole lines that differ in white space alone. Pure.

use std::{collections::HashMap, ops::Range};

use memchr::memmem;

use super::{document::plain, loose, save::LARGEST, text};

/// The text to replace, and the new one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change<'a> {
    pub(super) old: &'a str,
    pub(super) new: &'a str,
    /// True to replace each place; otherwise there must be one alone.
    pub(super) all: bool,
}

/// Parts of a text and what comes instead, in the order of the text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) parts: Vec<(Range<usize>, String)>,
    /// True if the lines were matched without regard to white space.
    pub(super) loosely: bool,
}

/// Finds the places to replace in `body`. The error is for the model.
pub(super) fn find(body: &str, change: Change<'_>) -> Result<Found, String> {
    let (old, new) = (plain(change.old), plain(change.new));
    if old == new {
        return Err("the old and the new text are equal, so nothing would change".to_owned());
    }
    let places: Vec<usize> = memmem::find_iter(body.as_bytes(), old.as_bytes()).take(PLACES + 1).collect();
    if !places.is_empty() {
        check_count(body, &places, change.all)?;
        check_size(body, places.len(), new.len())?;
        let part = |at: usize| (at..at.saturating_add(old.len()), new.clone().into_owned());
        return Ok(Found { parts: places.into_iter().map(part).collect(), loosely: false });
    }
    let lines = loose::Lines::of(body);
    let places = lines.places(&old);
    let depth =
        |place: &loose::Place| loose::first_indent(body.get(place.range.clone()).unwrap_or_default()).len();
    if places.is_empty() || places.iter().any(|place| depth(place) > loose::DEEPEST) {
        return Err(lines.hint(&old));
    }
    let starts: Vec<usize> = places.iter().map(|place| place.range.start).collect();
    check_count(body, &starts, change.all)?;
    // Each line may become deeper.
    let deeper = new.lines().count().saturating_mul(loose::DEEPEST);
    check_size(body, places.len(), new.len().saturating_add(deeper))?;
    let mut indented: HashMap<String, String> = HashMap::new();
    let parts = places.into_iter().map(|loose::Place { range, alike }| {
        let matched = body.get(range.clone()).unwrap_or_default();
        let depth = loose::first_indent(matched).to_owned();
        let new = match alike {
            true => &*new,
            false => indented.entry(depth).or_insert_with_key(|depth| lines.reindented(depth, &old, &new)),
        };
        let ends = matched.ends_with('\n');
        let new = match (ends, new.ends_with('\n')) {
            (true, false) if !new.is_empty() => format!("{new}\n"),
            (false, true) => new.trim_end_matches('\n').to_owned(),
            _ => new.to_owned(),
        };
        (range, new)
    });
    Ok(Found { parts: parts.collect(), loosely: true })
}

/// Most places of one change.
const PLACES: usize = 1_000_000;

/// Checks that so many new texts of this length make no file that is too large.
fn check_size(body: &str, places: usize, new: usize) -> Result<(), String> {
    let most = usize::try_from(LARGEST).unwrap_or(usize::MAX);
    if places > PLACES || body.len().saturating_add(places.saturating_mul(new)) > most {
        return Err("the file would become too large by it; change fewer places, or less of each".to_owned());
    }
    Ok(())
}

fn check_count(body: &str, places: &[usize], all: bool) -> Result<(), String> {
    if all || places.len() == 1 {
        return Ok(());
    }
    let mut lines: Vec<usize> = Vec::new();
    let (mut line, mut from) = (1_usize, 0);
    for at in places.iter().take(10) {
        line += body.get(from..*at).unwrap_or_default().matches('\n').count();
        from = *at;
        lines.push(line);
    }
    let shown: Vec<String> = lines.iter().map(ToString::to_string).collect();
    let more = if places.len() > lines.len() { " and others" } else { "" };
    Err(format!(
        "the old text is found in {}, at lines {}{more}; give more of the lines around it, so that it is found in one \
         place alone, or set `replace_all`",
        text::count(places.len(), "place", "places"),
        shown.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(body: &str, old: &str, new: &str, all: bool) -> Result<(String, bool), String> {
        let found = find(body, Change { old, new, all })?;
        let mut document = super::super::document::Document::read(body);
        document.replace(&found.parts);
        Ok((document.written(), found.loosely))
    }

    #[test]
    fn cx06_a_text_is_replaced_where_it_is_found_once() {
        let ok = |body, old, new, all| replaced(body, old, new, all).unwrap().0;
        assert_eq!(ok("let a = 1;\nlet b = 2;\n", "a = 1", "a = 3", false), "let a = 3;\nlet b = 2;\n");
        assert_eq!(ok("x x x", "x", "yy", true), "yy yy yy");
        assert_eq!(ok("aaa", "aa", "b", true), "ba", "places do not overlap");
        assert_eq!(ok("a\nb\nc\n", "b\n", "", false), "a\nc\n");
        assert_eq!(ok("é→ü", "→", "-", false), "é-ü");
        let error = replaced("x\nx\nx", "x", "y", false).unwrap_err();
        assert!(error.contains("3 places, at lines 1, 2, 3;") && error.contains("replace_all"), "{error}");
        let error = replaced(&"x\n".repeat(20), "x", "y", false).unwrap_err();
        assert!(error.contains("20 places") && error.contains("10 and others"), "{error}");
        let error = replaced("x", "x", "x", false).unwrap_err();
        assert!(error.contains("equal"), "{error}");
    }

    #[test]
    fn cx07_lines_that_differ_in_white_space_are_replaced_and_indented_as_the_file_is() {
        for (body, old, new, expected) in [
            // The model writes spaces, the file has tabs.
            (
                "fn f() {\n\tif a {\n\t\tb();\n\t}\n}\n",
                "    if a {\n        b();\n    }\n",
                "    if a {\n        c();\n        d();\n    }\n",
                "fn f() {\n\tif a {\n\t\tc();\n\t\td();\n\t}\n}\n",
            ),
            // It forgot the depth.
            (
                "mod m {\n    fn f() {\n        g();\n    }\n}\n",
                "fn f() {\n    g();\n}",
                "fn f() {\n    h();\n}",
                "mod m {\n    fn f() {\n        h();\n    }\n}\n",
            ),
            // Two spaces against four.
            (
                "a:\n  b:\n    c: 1\n",
                "a:\n    b:\n        c: 1\n",
                "a:\n    b:\n        c: 2\n",
                "a:\n  b:\n    c: 2\n",
            ),
            // Trailing space, and runs of spaces within a line.
            ("x  =  1 \ny = 2\n", "x = 1\n", "x = 3\n", "x = 3\ny = 2\n"),
            // The last line has no end.
            ("\tlast", "  last\n", "  new\n", "\tnew"),
            // Where the lines are indented alike, the new ones are as they were given.
            ("a:\n  b\nx:\n\techo a \n", "\techo a\n", "\techo b\n", "a:\n  b\nx:\n\techo b\n"),
            (" * one \n", " * one\n", " * uno\n", " * uno\n"),
            // A blank line has no indentation.
            ("\ta();\n\tb();\n", "    a();\n    b();\n", "    a();\n\n    b();\n", "\ta();\n\n\tb();\n"),
        ] {
            assert_eq!(replaced(body, old, new, false).unwrap(), (expected.to_owned(), true), "{body:?}");
        }
    }

    #[test]
    fn cx07_white_space_is_no_match_within_a_line_and_blank_lines_match_nothing() {
        for (body, old) in [("foo( a, b );\n", "foo(a, b)"), ("a\n\nb\n", "   \n"), ("abc def\n", "bc  def")]
        {
            let error = replaced(body, old, "x", false).unwrap_err();
            assert!(error.contains("not in the file"), "{body:?}: {error}");
        }
    }

    #[test]
    fn cx07_several_loose_places_are_refused_unless_all_are_meant() {
        let error = replaced("\ta b\n\tc\n  a  b\n", "a   b\n", "x\n", false).unwrap_err();
        assert!(error.contains("2 places, at lines 1, 3;"), "{error}");
        let (all, loosely) = replaced("\ta b\n\tc\n\ta b\n", " a b \n", " x\n", true).unwrap();
        assert_eq!((&*all, loosely), ("\tx\n\tc\n\tx\n", true));
    }

    #[test]
    fn attack_46_a_change_that_would_fill_the_memory_is_refused() {
        let (body, new) = ("x".repeat(1 << 20), "y".repeat(100_000));
        for (old, new) in [("x", &*new), ("x", "yyyyyyyyyyyyyyyyyyyyyyyy")] {
            let error = replaced(&body, old, new, true).unwrap_err();
            assert!(error.contains("too large"), "{error}");
        }
        let lines = "  a b\n".repeat(100_000);
        let error = replaced(&lines, "a  b", &"y".repeat(1_000), true).unwrap_err();
        assert!(error.contains("too large"), "{error}");
    }

    #[test]
    fn cx07_the_nearest_lines_are_shown_with_visible_white_space() {
        let body = "fn f() {\n\tone();\n\ttwo(); \n\tthree();\n}\n";
        let error = replaced(body, "    one();\n    2();\n    three();\n", "x", false).unwrap_err();
        assert!(error.contains("not in the file") && error.contains("line 2"), "{error}");
        assert!(error.contains("→one();") && error.contains("→two();·"), "{error}");
        let error = replaced(body, "nothing\nlike\nthis\n", "x", false).unwrap_err();
        assert!(!error.contains("line "), "{error}");
    }
}
