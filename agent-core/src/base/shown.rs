//! Display of text from models, tools and services in terminals and logs. Such text cannot control a terminal, hide
//! what it says, or pass for a line of another author. Pure.

use std::fmt::{self, Write};

/// A writer for text from models, tools and services, which removes or escapes characters that control a terminal or
/// hide text.
#[allow(missing_debug_implementations, reason = "a formatter has none")]
pub struct Shown<'a, 'b> {
    out: &'a mut fmt::Formatter<'b>,
    /// True to keep line breaks and tabs and drop harmful characters; false for one line with escapes.
    keep_layout: bool,
}

impl<'a, 'b> Shown<'a, 'b> {
    /// Creates a writer of one line.
    pub fn line(out: &'a mut fmt::Formatter<'b>) -> Self {
        Self { out, keep_layout: false }
    }

    /// Creates a writer that keeps the layout. Each line after the first is indented.
    pub fn layout(out: &'a mut fmt::Formatter<'b>) -> Self {
        Self { out, keep_layout: true }
    }
}

impl Write for Shown<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if !holds_harmful(text) {
            return self.out.write_str(text);
        }
        text.chars().try_for_each(|c| match c {
            c if !is_harmful(c) => self.out.write_char(c),
            '\n' if self.keep_layout => self.out.write_str("\n  "),
            '\t' if self.keep_layout => self.out.write_char(c),
            _ if self.keep_layout => Ok(()),
            '\n' | '\r' | '\t' => self.out.write_char(' '),
            c => write!(self.out, "{}", c.escape_unicode()),
        })
    }
}

/// The text on one line, without characters that control a terminal or hide text.
pub fn plain_line(text: &str) -> String {
    let blank = |c: char| if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') { ' ' } else { c };
    let visible: String = text.chars().map(blank).filter(|c| !is_harmful(*c)).collect();
    visible.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// True if the text holds a harmful character.
pub(crate) fn holds_harmful(text: &str) -> bool {
    // Most texts are printable ASCII, which takes one pass without branches.
    let plain = text.bytes().fold(true, |plain, byte| plain & matches!(byte, b' '..=b'~'));
    !plain && text.contains(is_harmful)
}

/// True for control characters, and those that reorder text or cannot be seen, without joiners and the selectors of
/// forms, which texts need. They are Unicode's `Default_Ignorable_Code_Point`, version 16, and a few that fonts leave
/// blank.
pub fn is_harmful(c: char) -> bool {
    c.is_control() || is_unseen(c)
}

fn is_unseen(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{180e}' | '\u{200b}' | '\u{200e}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{13430}'..='\u{13440}' | '\u{16fe4}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d159}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn characters_that_nobody_sees_are_harmful() {
        let unseen = [
            '\u{ad}'..='\u{ad}',
            '\u{fff0}'..='\u{fffb}',
            '\u{13430}'..='\u{13440}',
            '\u{16fe4}'..='\u{16fe4}',
            '\u{1bca0}'..='\u{1bca3}',
            '\u{1d159}'..='\u{1d159}',
            '\u{1d173}'..='\u{1d17a}',
            '\u{e0000}'..='\u{e0fff}',
        ];
        for c in unseen.into_iter().flatten() {
            assert!(is_harmful(c), "{:x}", u32::from(c));
        }
        // Joiners, selectors of forms, and characters with ink.
        for c in "\u{200c}\u{200d}\u{fe0f}\u{180b}\u{fffd}\u{1d15a}a é".chars() {
            assert!(!is_harmful(c), "{:x}", u32::from(c));
        }
    }

    proptest! {
        #[test]
        fn the_quick_look_at_a_text_finds_what_the_slow_one_finds(text in "[ -~é\\n\\u{7f}\\u{200b}\\u{202e}]{0,12}") {
            prop_assert_eq!(holds_harmful(&text), text.contains(is_harmful));
        }
    }
}
