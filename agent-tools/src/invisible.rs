//! Characters that a model reads and a person does not see.
//!
//! What the core shows to people keeps joiners and the selectors of emoji. A description from outside needs neither.

/// True for characters of no width, of direction and of tags, and for variants of others.
pub(crate) fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// A text from outside as one harmless line: white space is a single space, and characters that nobody sees are left
/// out, since a model reads them.
pub(crate) fn line(text: &str) -> String {
    let words = text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .map(|word| word.chars().filter(|c| !is_invisible(*c)).collect::<String>());
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// A text for a model, without characters that nobody sees, with `\n` as its line ends.
#[cfg(feature = "project")]
pub(crate) fn visible(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    text.chars().filter(|c| matches!(c, '\n' | '\t') || !(c.is_control() || is_invisible(*c))).collect()
}

/// The first characters of a text, with a mark where more follow.
#[cfg(any(feature = "agents", feature = "lsp", feature = "skills"))]
pub(crate) fn shortened(text: &str, most: usize) -> String {
    let mut kept: String = text.chars().take(most).collect();
    if text.chars().nth(most).is_some() {
        kept.push('…');
    }
    kept
}
