//! Texts of models, tools and services as the screen shows them, and what a person means by an answer. Pure.

use std::iter;

use entourage_core::message::is_harmful;

/// Stands before a character that is not shown: `�{a}` is a line break, `�{a×3}` are three.
const MARK: char = '\u{fffd}';

/// Blanks in a row from which on they are marked: enough of them look like a new line.
const PADDING: usize = 8;

/// Returns a name as one line: that of a file, a command, a tool, an agent. No two names look alike because of what is
/// not shown in them.
pub(crate) fn name(text: &str) -> String {
    marked(text, |c, blanks, is_edge| match c {
        ' ' => is_edge || blanks >= PADDING,
        // A mark that the name itself holds.
        MARK => true,
        c => is_harmful(c) || c.is_whitespace() || is_unseen(c),
    })
}

/// Returns words of one line on which a person decides, such as arguments and steps of a plan. What follows them cannot
/// be pushed to where a line of the terminal begins.
pub(crate) fn asked(text: &str) -> String {
    marked(text, |c, blanks, _| is_harmful(c) || blanks >= PADDING)
}

/// Returns other words of one line, such as a reason.
pub(crate) fn line(text: &str) -> String {
    marked(text, |c, _, _| c != '\t' && is_harmful(c))
}

/// Returns a text that keeps its lines, as that of a program or a tool.
pub(crate) fn lines(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    marked(&text, |c, _, _| !matches!(c, '\n' | '\t') && is_harmful(c))
}

/// Returns a part of a model's words, which comes as it is written: what is not shown is left out.
pub(crate) fn words(text: &str) -> String {
    text.chars().filter(|c| matches!(c, '\n' | '\t') || !is_harmful(*c)).collect()
}

/// Returns a text of several lines that stands before a question. None of its lines begins as those of the terminal do.
pub(crate) fn indented(text: &str) -> String {
    let lines = text.lines().map(|line| if line.is_empty() { String::new() } else { format!("  {line}") });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns a text whose lines take at most so many columns. The rest of a longer line is on further ones, indented as a
/// [text](indented) that stands before a question.
pub(crate) fn folded(text: &str, columns: usize) -> String {
    const INDENT: &str = "  ";
    let columns = columns.max(20);
    let mut out = String::with_capacity(text.len());
    let mut column: usize = 0;
    for c in text.chars() {
        // No character takes more, but for a tab.
        let width = match c {
            '\t' => 8,
            c if c.is_ascii() => 1,
            _ => 2,
        };
        if c == '\n' {
            column = 0;
        } else if column.saturating_add(width) > columns {
            out.push('\n');
            out.push_str(INDENT);
            column = INDENT.len().saturating_add(width);
        } else {
            column = column.saturating_add(width);
        }
        out.push(c);
    }
    out
}

/// True for characters that nobody sees: the [harmful](is_harmful) ones, and those that texts need, which join others
/// or choose their form. Names need none.
fn is_unseen(c: char) -> bool {
    let is_needed = matches!(c,
        '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200c}'..='\u{200d}' | '\u{2800}' | '\u{fe00}'..='\u{fe0f}');
    is_needed || is_harmful(c) && !c.is_control()
}

/// Returns the columns that a character takes without ink, at most.
fn blank_columns(c: char) -> usize {
    match c {
        '\t' => 8,
        c => usize::from(c.is_whitespace() || is_unseen(c)),
    }
}

/// Marks the characters of a text for which `is_marked` says so. It is told how many columns of blanks are in a row
/// there, of whatever kinds, and whether the character begins or ends the text.
fn marked(text: &str, is_marked: impl Fn(char, usize, bool) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let (mut is_first, mut blanks) = (true, 0);
    while let Some(c) = chars.next() {
        match blank_columns(c) {
            0 => blanks = 0,
            width if blanks == 0 => {
                let row = chars.clone().map(blank_columns).take_while(|width| *width > 0);
                blanks = row.fold(width, usize::saturating_add);
            }
            // The row was counted at its first character.
            _ => {}
        }
        let mut count: usize = 1;
        while chars.next_if_eq(&c).is_some() {
            count = count.saturating_add(1);
        }
        match is_marked(c, blanks, is_first || chars.peek().is_none()) {
            false => out.extend(iter::repeat_n(c, count)),
            true if count == 1 => out.push_str(&format!("{MARK}{{{:x}}}", u32::from(c))),
            true => out.push_str(&format!("{MARK}{{{:x}×{count}}}", u32::from(c))),
        }
        is_first = false;
    }
    out
}

/// Returns the word that an answer is, as a whole or by its first letter, in whatever case.
pub(crate) fn chosen<'w>(answer: &str, words: &[&'w str]) -> Option<&'w str> {
    let is = |word: &str| answer.eq_ignore_ascii_case(word);
    words.iter().copied().find(|word| is(word) || word.get(..1).is_some_and(is))
}
