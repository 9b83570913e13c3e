//! A text in YAML: plain, quoted, literal or folded. Pure.

use super::Flaw;

/// A value as it stands there: the text beside its key, and the lines below it, none of which ends in space.
#[derive(Debug)]
pub(super) struct Value<'a> {
    pub(super) line: usize,
    pub(super) first: &'a str,
    pub(super) below: Vec<(usize, &'a str)>,
}

/// The text of a value; empty where there is none.
pub(super) fn read(value: &Value<'_>) -> Result<String, Flaw> {
    let mut below = value.below.as_slice();
    // Comments and empty lines before the next key.
    while let Some(((_, line), before)) = below.split_last()
        && (line.is_empty() || line.starts_with('#'))
    {
        below = before;
    }
    if let Some((number, _)) = below.iter().find(|(_, line)| !line.is_empty() && !line.starts_with(' ')) {
        return Err(Flaw::new(
            *number,
            "the line belongs to a text and is not indented; indent it, or quote the text",
        ));
    }
    if let Some(header) = value.first.strip_prefix(['|', '>']) {
        return block(value.line, header, value.first.starts_with('>'), below);
    }
    let first = if value.first.starts_with('#') { "" } else { value.first };
    let lines =
        std::iter::once((value.line, first)).chain(below.iter().map(|(n, line)| (*n, line.trim_start())));
    let lines: Vec<_> = lines.skip_while(|(_, line)| line.is_empty()).collect();
    match lines.first() {
        None => Ok(String::new()),
        Some((number, line)) if line.starts_with('"') => double(*number, &lines),
        Some((number, line)) if line.starts_with('\'') => single(*number, &lines),
        Some(_) => plain(&lines),
    }
}

fn plain(lines: &[(usize, &str)]) -> Result<String, Flaw> {
    let mut folded = Folded::default();
    let mut is_over = false;
    for (at, (number, line)) in lines.iter().enumerate() {
        let refuse = |text: &str| Err(Flaw::new(*number, text));
        if is_over && !line.is_empty() {
            return refuse("the line comes after a comment, which ended the text; quote the text");
        }
        let text = without_comment(line);
        is_over |= text.len() < line.len();
        if at == 0 && is_indicator(text) {
            return refuse("the text begins with a character that has a meaning in YAML; quote the text");
        }
        if text.contains(": ") || text.contains(":\t") || text.ends_with(':') {
            return refuse("the text has a colon before a space; quote the text");
        }
        folded.push(text, false);
    }
    let text = folded.text;
    Ok(if matches!(text.as_str(), "~" | "null" | "Null" | "NULL") { String::new() } else { text })
}

fn is_indicator(text: &str) -> bool {
    let rest =
        |mark| text.strip_prefix(mark).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t']));
    text.starts_with(['[', ']', '{', '}', ',', '&', '*', '!', '|', '>', '%', '@', '`'])
        || ['-', '?', ':'].into_iter().any(rest)
}

/// The text before a comment, without the space between them.
fn without_comment(line: &str) -> &str {
    if line.starts_with('#') {
        return "";
    }
    let before = |mark: &str| line.split_once(mark).map_or(line, |(before, _)| before);
    let (one, other) = (before(" #"), before("\t#"));
    if one.len() < other.len() { one.trim_end() } else { other.trim_end() }
}

/// Lines that become one text: a line end is a space, and empty lines are line ends.
#[derive(Default)]
struct Folded {
    text: String,
    /// Number of empty lines since the last one with text.
    empty: usize,
    has_text: bool,
    /// True if the next line follows without a space.
    joins: bool,
}

impl Folded {
    /// Adds a line, which the next one follows without a space if it `joins` them.
    fn push(&mut self, line: &str, joins: bool) {
        if line.is_empty() && !joins {
            self.empty = self.empty.saturating_add(1);
            return;
        }
        if self.empty > 0 {
            self.text.push_str(&"\n".repeat(self.empty));
        } else if self.has_text && !self.joins {
            self.text.push(' ');
        }
        self.text.push_str(line);
        (self.empty, self.has_text, self.joins) = (0, true, joins);
    }
}

fn single(number: usize, lines: &[(usize, &str)]) -> Result<String, Flaw> {
    let mut folded = Folded::default();
    lines.iter().for_each(|(_, line)| folded.push(line, false));
    let mut chars = folded.text.chars().skip(1).peekable();
    let mut text = String::new();
    while let Some(c) = chars.next() {
        match c {
            '\'' if chars.next_if_eq(&'\'').is_some() => text.push('\''),
            '\'' => return closed(number, text, &chars.collect::<String>()),
            c => text.push(c),
        }
    }
    Err(Flaw::new(number, "the quoted text has no end; close it with `'`"))
}

fn double(number: usize, lines: &[(usize, &str)]) -> Result<String, Flaw> {
    let mut folded = Folded::default();
    for (_, line) in lines {
        // A backslash at the end of a line joins it with the next one.
        let escapes = line.chars().rev().take_while(|c| *c == '\\').count();
        match line.strip_suffix('\\') {
            Some(line) if escapes % 2 == 1 => folded.push(line, true),
            _ => folded.push(line, false),
        }
    }
    let mut chars = folded.text.chars().skip(1);
    let mut text = String::new();
    while let Some(c) = chars.next() {
        match c {
            '"' => return closed(number, text, &chars.collect::<String>()),
            '\\' => text.push(escaped(&mut chars).ok_or_else(|| {
                Flaw::new(number, "the quoted text has an unknown escape; write `\\\\` for a backslash")
            })?),
            c => text.push(c),
        }
    }
    Err(Flaw::new(number, "the quoted text has no end; close it with `\"`"))
}

fn closed(number: usize, text: String, rest: &str) -> Result<String, Flaw> {
    let rest = rest.trim_start_matches([' ', '\t']);
    if rest.is_empty() || rest.starts_with('#') {
        return Ok(text);
    }
    Err(Flaw::new(number, "there is more behind the quoted text; put all of it between the quotes"))
}

fn escaped(chars: &mut impl Iterator<Item = char>) -> Option<char> {
    let code = match chars.next()? {
        c @ ('"' | '\\' | '/' | ' ') => return Some(c),
        'n' => return Some('\n'),
        't' => return Some('\t'),
        'r' => return Some('\r'),
        '0' => 0,
        'a' => 0x07,
        'b' => 0x08,
        'v' => 0x0b,
        'f' => 0x0c,
        'e' => 0x1b,
        'N' => 0x85,
        '_' => 0xa0,
        'L' => 0x2028,
        'P' => 0x2029,
        'x' => hex(chars, 2)?,
        'u' => hex(chars, 4)?,
        'U' => hex(chars, 8)?,
        _ => return None,
    };
    char::from_u32(code)
}

fn hex(chars: &mut impl Iterator<Item = char>, digits: usize) -> Option<u32> {
    (0..digits).try_fold(0_u32, |code, _| code.checked_mul(16)?.checked_add(chars.next()?.to_digit(16)?))
}

fn block(number: usize, header: &str, folds: bool, below: &[(usize, &str)]) -> Result<String, Flaw> {
    let marks = without_comment(header).trim_end();
    let digits: String = marks.chars().filter(char::is_ascii_digit).collect();
    let others: String = marks.chars().filter(|c| !c.is_ascii_digit()).collect();
    let given = match (digits.as_str(), others.as_str()) {
        ("", "" | "+" | "-") => None,
        ("1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9", "" | "+" | "-") => digits.parse::<usize>().ok(),
        _ => {
            return Err(Flaw::new(
                number,
                "the text begins in the next line; leave `|` or `>` alone in this one",
            ));
        }
    };
    let spaces = |line: &str| line.chars().take_while(|c| *c == ' ').count();
    let found = below.iter().find(|(_, line)| !line.is_empty()).map(|(_, line)| spaces(line));
    let indent = " ".repeat(given.or(found).unwrap_or(1));
    let (mut text, mut empty, mut was_more) = (String::new(), 0_usize, None);
    for (number, line) in below {
        if line.is_empty() {
            empty = empty.saturating_add(1);
            continue;
        }
        let Some(line) = line.strip_prefix(&indent) else {
            return Err(Flaw::new(
                *number,
                "the line is indented less than the first line of its text; align them",
            ));
        };
        let is_more = line.starts_with([' ', '\t']);
        let ends = match was_more {
            None => empty,
            Some(false) if folds && !is_more => empty,
            Some(_) => empty.saturating_add(1),
        };
        match ends {
            0 if was_more.is_some() => text.push(' '),
            ends => text.push_str(&"\n".repeat(ends)),
        }
        text.push_str(line);
        (empty, was_more) = (0, Some(is_more));
    }
    Ok(text)
}
