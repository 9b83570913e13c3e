//! Escapes the character NUL, which PostgreSQL refuses in text. Names and titles are stored escaped, so every text is
//! read back unchanged; bodies are JSON, which has an escape of its own.

use std::{borrow::Cow, sync::Arc};

use entourage_core::{Error, ErrorKind, Result};

use crate::sql::Failure;

/// The escape character: followed by `0` it stands for NUL, doubled for itself. It is visible and rare in texts.
const MARK: char = '\u{2400}';

/// Returns `text` as a column stores it.
pub(super) fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', MARK]) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\0' => escaped.extend([MARK, '0']),
            MARK => escaped.extend([MARK, MARK]),
            other => escaped.push(other),
        }
    }
    Cow::Owned(escaped)
}

/// Returns the text that [`escape`] turned into `column`. A stray escape character is damage.
pub(super) fn unescape(column: &str) -> Result<Arc<str>, Failure> {
    if !column.contains(MARK) {
        return Ok(column.into());
    }
    let mut text = String::with_capacity(column.len());
    let mut characters = column.chars();
    while let Some(character) = characters.next() {
        text.push(match character {
            MARK => match characters.next() {
                Some('0') => '\0',
                Some(MARK) => MARK,
                _ => return Err(Failure::damaged("text with a stray U+2400")),
            },
            other => other,
        });
    }
    Ok(text.into())
}

/// Refuses a body with the character NUL, which no JSON text holds. Called before anything is written.
pub(super) fn check_body(body: &str) -> Result<()> {
    if body.contains('\0') {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            "an event's body is JSON text, which never holds the character NUL; write it as \\u0000",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back_and_none_holds_nul() {
        let texts = ["", "plain", "\0", "\0\0", "␀", "␀0", "␀␀", "\0␀0␀\0", "a\0b é🚀 \u{1}\u{7f}", "0␀"];
        let mut columns = Vec::new();
        for text in texts {
            let column = escape(text).into_owned();
            assert!(!column.contains('\0'), "{text:?}");
            assert_eq!(&*unescape(&column).unwrap(), text);
            columns.push(column);
        }
        columns.sort();
        columns.dedup();
        assert_eq!(columns.len(), texts.len(), "no two texts share a column's value");
        assert!(matches!(escape("plain"), Cow::Borrowed(_)));
    }

    #[test]
    fn what_was_never_written_is_damage() {
        for column in ["␀", "a␀", "␀1", "␀␀␀"] {
            assert!(matches!(unescape(column), Err(Failure::Damaged(_))), "{column}");
        }
    }
}
