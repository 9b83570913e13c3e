//! Text that PostgreSQL cannot hold: it refuses the character NUL. Names and titles are stored with it escaped, so that
//! all text comes back as it was; bodies are JSON, which has an escape of its own.

use std::{borrow::Cow, sync::Arc};

use entourage_core::{Error, ErrorKind, Result};

use crate::sql::Failure;

/// Stands for NUL together with `0`, and for itself when doubled. A visible character, hardly ever in a text.
const MARK: char = '\u{2400}';

/// `text` as a column takes it.
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

/// What [`escape`] made a column of.
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

/// Refuses a body that is no JSON text for sure. Checked before anything is written.
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
