//! A list in YAML: `[a, b]`, or lines `- a` below the key. Pure.

use super::{
    Flaw,
    scalar::{self, Value},
};

/// The entries of a list, each one text; `None` for a value that is no list.
pub(super) fn read(value: &Value<'_>) -> Option<Result<Vec<String>, Flaw>> {
    if value.first.starts_with('[') {
        return Some(flow(value));
    }
    let is_empty = value.first.is_empty() || value.first.starts_with('#');
    let first = value.below.iter().find(|(_, line)| !is_passed_over(line));
    let is_block = first.is_some_and(|(_, line)| item(line).is_some());
    (is_empty && is_block).then(|| block(&value.below))
}

fn is_passed_over(line: &str) -> bool {
    line.is_empty() || line.trim_start().starts_with('#')
}

/// The text behind the dash of a line.
fn item(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix('-')?;
    (rest.is_empty() || rest.starts_with([' ', '\t'])).then(|| rest.trim())
}

fn block(below: &[(usize, &str)]) -> Result<Vec<String>, Flaw> {
    let lines = below.iter().filter(|(_, line)| !is_passed_over(line));
    lines
        .map(|&(number, line)| match item(line) {
            Some(text) => entry(number, text),
            None => {
                Err(Flaw::new(number, "the line is no entry of the list above it; write `- ` and one text"))
            }
        })
        .collect()
}

fn flow(value: &Value<'_>) -> Result<Vec<String>, Flaw> {
    let lines = std::iter::once(value.first).chain(value.below.iter().map(|(_, line)| line.trim_start()));
    let text = lines.collect::<Vec<_>>().join(" ");
    let number = value.line;
    let open = || Flaw::new(number, "the list has no end; close it with `]`");
    let mut entries = Vec::new();
    let (mut start, mut quote, mut is_blank) = (1_usize, None, true);
    for (at, c) in text.char_indices().skip(1) {
        match (quote, c) {
            (Some(mark), c) if mark == c => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') if is_blank => quote = Some(c),
            (None, ',' | ']') => {
                let part = text.get(start..at).unwrap_or_default().trim();
                // A comma before the end is no entry, and neither is nothing at all.
                if !(part.is_empty() && c == ']') {
                    entries.push(entry(number, part)?);
                }
                start = at.saturating_add(1);
                if c == ']' {
                    let rest = text.get(start..).unwrap_or_default().trim();
                    let is_over = rest.is_empty() || rest.starts_with('#');
                    return if is_over {
                        Ok(entries)
                    } else {
                        Err(Flaw::new(
                            number,
                            "there is more behind the list; put each key in a line of its own",
                        ))
                    };
                }
            }
            (None, '[' | '{' | '}') => {
                return Err(Flaw::new(
                    number,
                    "the list holds something else than texts; quote it, or use TOML",
                ));
            }
            (None, _) => {}
        }
        // A quote opens a text only where it begins an entry.
        is_blank = quote.is_none() && (c == ',' || is_blank && c.is_whitespace());
    }
    Err(open())
}

fn entry(line: usize, text: &str) -> Result<String, Flaw> {
    let read = scalar::read(&Value { line, first: text, below: Vec::new() })?;
    if read.trim().is_empty() {
        return Err(Flaw::new(line, "the list has an empty entry; remove it"));
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::super::Parts;

    fn list(text: &str) -> Option<Result<Vec<String>, usize>> {
        let text = format!("---\nkey:{text}\n---\n");
        let parts = Parts::parse(&text).unwrap();
        parts.entries[0].list().map(|it| it.map_err(|flaw| flaw.line))
    }

    #[test]
    fn ce05_lists_of_front_matter_are_read_as_yaml_has_them() {
        for (given, entries) in [
            (" []", &[][..]),
            (" [view, grep]", &["view", "grep"]),
            (" [ \"a, b\", 'c]', d ] # why", &["a, b", "c]", "d"]),
            (" [a,\n  b,\n  ]", &["a", "b"]),
            ("\n- view\n- grep # looks\n", &["view", "grep"]),
            (" # tools\n\n  - \"view\"\n  # no more\n  - 'mcp_*'", &["view", "mcp_*"]),
        ] {
            let expected: Vec<_> = entries.iter().map(|it| (*it).to_owned()).collect();
            assert_eq!(list(given), Some(Ok(expected)), "{given}");
        }
        for (given, line) in [
            (" [a", 2),
            (" [a]]", 2),
            (" [a] b", 2),
            (" [a, [b]]", 2),
            (" [{a: b}]", 2),
            (" [a,, b]", 2),
            (" [*]", 2),
            (" [a: b]", 2),
            (" [\"a]", 2),
            ("\n- a\n- - b", 4),
            ("\n- a: b", 3),
            ("\n-\n- b", 3),
            ("\n- a\n  b", 4),
        ] {
            assert_eq!(list(given), Some(Err(line)), "{given}");
        }
        for text in [" view", "\n", " \"[a]\"", " |\n  - a"] {
            assert_eq!(list(text), None, "{text}");
        }
    }

    #[test]
    fn attack_46_a_list_is_read_once_whatever_its_quotes_and_blanks() {
        // Looking at an entry from its beginning at each quote would take days.
        let (blanks, quotes) = (" ".repeat(4 << 20), "'".repeat(4 << 20));
        for text in [
            format!(" [{blanks}a{quotes}]"),
            format!(" [{blanks}''{quotes}]"),
            format!(" [{blanks}\"\"{quotes}]"),
            format!(" [{blanks}{}]", "'a' ".repeat(1 << 20)),
        ] {
            assert!(list(&text).is_some());
        }
        assert_eq!(list(&format!(" [{}a]", "'', ".repeat(1 << 18))), Some(Err(2)));
    }
}
