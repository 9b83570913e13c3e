//! Levels of a text in TOML, counted before it is read. Pure.
//!
//! The reader bounds brackets and the parts of a key, each alone. A text that has many of both makes values so deep
//! that dropping them uses up the stack, which ends the process.

use toml_parser::{Source, lexer::TokenKind};

/// Most levels: of brackets, and of the parts of the keys on the way there.
const LEVELS: usize = 32;

/// Returns the line, from 1, on which a text is nested deeper than a file may be; `None` for a text that is not,
/// whether it can be read or not.
pub(crate) fn too_deep(text: &str) -> Option<usize> {
    let mut levels = Levels { begins: true, ..Levels::default() };
    let at = Source::new(text).lex().find_map(|token| {
        levels.see(token.kind());
        (levels.count() > LEVELS).then(|| token.span().start())
    })?;
    Some(text.get(..at).unwrap_or_default().matches('\n').count().saturating_add(1))
}

#[derive(Default)]
struct Levels {
    /// Those of the tables that the newest header names.
    header: usize,
    /// The brackets that are open, each with its kind and the dots before it.
    open: Vec<(TokenKind, usize)>,
    /// Dots before the open brackets, all together.
    before: usize,
    /// Dots since the newest bracket or comma. One within a number counts too.
    dots: usize,
    /// True where a header can begin, and within one.
    begins: bool,
    in_header: bool,
}

impl Levels {
    fn count(&self) -> usize {
        self.open.len().saturating_add(self.header).saturating_add(self.before).saturating_add(self.dots)
    }

    fn see(&mut self, token: TokenKind) {
        use TokenKind::{
            Comma, Comment, Dot, LeftCurlyBracket, LeftSquareBracket, Newline, RightCurlyBracket,
            RightSquareBracket, Whitespace,
        };
        match token {
            Dot => self.dots = self.dots.saturating_add(1),
            Comma => self.dots = 0,
            Newline if self.open.is_empty() => {
                if self.in_header {
                    self.header = self.dots.saturating_add(1);
                }
                (self.dots, self.begins, self.in_header) = (0, true, false);
                return;
            }
            LeftSquareBracket if self.begins => (self.header, self.in_header) = (0, true),
            LeftSquareBracket | RightSquareBracket if self.in_header => {}
            LeftSquareBracket | LeftCurlyBracket => {
                self.open.push((token, self.dots));
                (self.before, self.dots) = (self.before.saturating_add(self.dots), 0);
            }
            RightSquareBracket => self.close(LeftSquareBracket),
            RightCurlyBracket => self.close(LeftCurlyBracket),
            Whitespace | Comment => return,
            _ => {}
        }
        self.begins = false;
    }

    /// A bracket that closes another kind closes none: a text that cannot be read counts as too deep sooner.
    fn close(&mut self, kind: TokenKind) {
        if let Some((_, dots)) = self.open.pop_if(|(open, _)| *open == kind) {
            (self.before, self.dots) = (self.before.saturating_sub(dots), dots);
        }
    }
}
