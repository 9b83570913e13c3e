//! Words: quotes, escapes, and where a word ends.

use super::{
    Word,
    grammar::{Parser, Stop},
};

/// Characters that end an unquoted word.
pub(super) const ENDS: &str = " \t\n;&|<>()";

/// A word while it is read.
#[derive(Debug, Default)]
pub(super) struct Reading {
    text: String,
    expanded: bool,
    glob: bool,
    pub(super) quoted: bool,
}

impl Parser<'_> {
    /// Reads one word; the cursor is at its first character. The flag tells if any of it was quoted.
    pub(super) fn word(&mut self) -> Result<(Word, bool), Stop> {
        let start = self.at;
        let mut read = Reading::default();
        while let Some(c) = self.peek(0) {
            match c {
                '<' | '>' if self.peek(1) == Some('(') && self.at == start => {
                    self.process_substitution()?;
                    read.expanded = true;
                }
                // In the middle of a word it depends on what is before it.
                '<' | '>' if self.peek(1) == Some('(') => return Err(Stop),
                _ if ENDS.contains(c) => break,
                '\'' => self.single(&mut read)?,
                '"' => {
                    self.at += 1;
                    read.quoted = true;
                    self.double(&mut read)?;
                }
                '\\' => self.escaped(&mut read)?,
                '$' => self.dollar(&mut read, false)?,
                '`' => {
                    self.backquoted()?;
                    read.expanded = true;
                }
                _ => {
                    self.at += 1;
                    self.plain_char(c, start, &mut read);
                }
            }
        }
        if self.at == start {
            return Err(Stop);
        }
        Ok((self.finish(start, &read), read.quoted))
    }

    fn plain_char(&mut self, c: char, start: usize, read: &mut Reading) {
        match c {
            '*' | '?' | '[' => read.glob = true,
            '~' => read.expanded |= self.at == start + 1 || read.text.ends_with(['=', ':']),
            '{' if !self.is_lone_pair() => {
                read.expanded = true;
                self.script.bash_only = true;
            }
            _ => {}
        }
        read.text.push(c);
    }

    /// True if `{}`, whose first half was read, expands to itself: with more braces or a comma it may begin a list.
    fn is_lone_pair(&self) -> bool {
        let rest = self.chars.get(self.at..).unwrap_or_default();
        let mut word = rest.iter().take_while(|c| !ENDS.contains(**c));
        word.next() == Some(&'}') && !word.any(|c| "{},'\"\\$`".contains(*c))
    }

    fn finish(&self, start: usize, read: &Reading) -> Word {
        let written: String = self.chars.get(start..self.at).unwrap_or_default().iter().collect();
        // A lone bracket is the command, or an argument.
        let glob = read.glob && written != "[";
        let literal = !read.expanded && !glob;
        let text = if literal { read.text.clone() } else { written };
        Word { text, literal, glob: glob && !read.expanded }
    }

    fn single(&mut self, read: &mut Reading) -> Result<(), Stop> {
        self.at += 1;
        read.quoted = true;
        while let Some(c) = self.next() {
            if c == '\'' {
                return Ok(());
            }
            self.newline_in_quotes(c)?;
            read.text.push(c);
        }
        Err(Stop)
    }

    /// A here-document that is still to come begins after the next line end, and shells differ on which.
    fn newline_in_quotes(&self, c: char) -> Result<(), Stop> {
        if c == '\n' && !self.pending.is_empty() { Err(Stop) } else { Ok(()) }
    }

    fn escaped(&mut self, read: &mut Reading) -> Result<(), Stop> {
        self.at += 1;
        match self.next() {
            None => Err(Stop),
            Some('\n') => {
                if self.pending.is_empty() {
                    Ok(())
                } else {
                    Err(Stop)
                }
            }
            Some(c) => {
                read.quoted = true;
                read.text.push(c);
                Ok(())
            }
        }
    }

    /// Reads to the closing quote; the cursor is behind the opening one.
    pub(super) fn double(&mut self, read: &mut Reading) -> Result<(), Stop> {
        while let Some(c) = self.peek(0) {
            match c {
                '"' => {
                    self.at += 1;
                    return Ok(());
                }
                '$' => self.dollar(read, true)?,
                '`' => {
                    self.backquoted()?;
                    read.expanded = true;
                }
                '\\' => {
                    self.at += 1;
                    match self.next().ok_or(Stop)? {
                        '\n' if self.pending.is_empty() => {}
                        '\n' => return Err(Stop),
                        c if "$`\"\\".contains(c) => read.text.push(c),
                        c => read.text.extend(['\\', c]),
                    }
                }
                _ => {
                    self.newline_in_quotes(c)?;
                    self.at += 1;
                    read.text.push(c);
                }
            }
        }
        Err(Stop)
    }

    fn dollar(&mut self, read: &mut Reading, in_quotes: bool) -> Result<(), Stop> {
        match self.peek(1) {
            // Where this is joined, it may begin any expansion.
            Some('\\') if self.peek(2) == Some('\n') => Err(Stop),
            Some('\'') if !in_quotes => self.ansi(read),
            Some('"') if !in_quotes => Err(Stop),
            _ => {
                if self.expansion(in_quotes)? {
                    read.expanded = true;
                } else {
                    self.at += 1;
                    read.text.push('$');
                }
                Ok(())
            }
        }
    }

    /// `$'…'`. Escapes that make bytes by number are not read: they need not be text.
    fn ansi(&mut self, read: &mut Reading) -> Result<(), Stop> {
        self.at += 2;
        self.script.bash_only = true;
        read.quoted = true;
        while let Some(c) = self.next() {
            match c {
                '\'' => return Ok(()),
                '\\' => read.text.push(match self.next().ok_or(Stop)? {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    'a' => '\u{7}',
                    'b' => '\u{8}',
                    'e' | 'E' => '\u{1b}',
                    'f' => '\u{c}',
                    'v' => '\u{b}',
                    c if "\\'\"?".contains(c) => c,
                    _ => return Err(Stop),
                }),
                _ => {
                    self.newline_in_quotes(c)?;
                    read.text.push(c);
                }
            }
        }
        Err(Stop)
    }
}
