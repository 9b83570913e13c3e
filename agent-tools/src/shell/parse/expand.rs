//! Expansions: parameters, substitutions, arithmetic, here-documents.
//!
//! Arithmetic evaluates the values of variables as expressions, which may hold commands. So only numbers are read.

use super::{
    grammar::{Parser, Stop},
    parse_at,
};

/// True if `text` is an expression of numbers alone.
fn is_number(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_digit() || " +-*/%()".contains(c))
}

impl Parser<'_> {
    /// Reads an expansion at `$`. Returns false, without moving, where the dollar is a plain character.
    pub(super) fn expansion(&mut self, in_quotes: bool) -> Result<bool, Stop> {
        match self.peek(1) {
            Some('(') if self.peek(2) == Some('(') => self.arithmetic(),
            Some('(') => {
                self.at += 2;
                self.substitution().map(|()| true)
            }
            Some('{') => {
                self.at += 2;
                self.parameter(in_quotes).map(|()| true)
            }
            Some('[') => Err(Stop),
            Some(c) if c.is_ascii_digit() || "@*#?-$!".contains(c) => {
                self.at += 2;
                Ok(true)
            }
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                self.at += 1;
                self.name();
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// The characters of a name at the cursor.
    pub(super) fn name(&mut self) -> String {
        let mut name = String::new();
        while let Some(c) = self.peek(0).filter(|c| c.is_ascii_alphanumeric() || *c == '_') {
            name.push(c);
            self.at += 1;
        }
        name
    }

    fn arithmetic(&mut self) -> Result<bool, Stop> {
        self.at += 3;
        self.script.plain = false;
        let mut text = String::new();
        let mut open = 0_usize;
        while let Some(c) = self.next() {
            match c {
                '(' => open += 1,
                ')' if open > 0 => open -= 1,
                ')' => {
                    let closed = self.next() == Some(')') && is_number(&text);
                    return if closed { Ok(true) } else { Err(Stop) };
                }
                _ => {}
            }
            text.push(c);
        }
        Err(Stop)
    }

    /// Reads commands to the closing parenthesis; the cursor is behind the opening one.
    fn substitution(&mut self) -> Result<(), Stop> {
        self.script.plain = false;
        let outer = std::mem::take(&mut self.pending);
        let start = self.at;
        self.within += 1;
        self.deeper(|it| it.list_until_paren())?;
        self.within -= 1;
        let read = self.chars.get(start..self.at).unwrap_or_default();
        let pair = |a, b| read.windows(2).any(|it| *it == [a, b]);
        // What bash prints of a substitution, to read it again, is not always what it read.
        let twice = pair('\\', '\n') && pair('<', '<');
        if twice || !self.pending.is_empty() || read.contains(&'\n') && !outer.is_empty() {
            return Err(Stop);
        }
        self.pending = outer;
        Ok(())
    }

    pub(super) fn process_substitution(&mut self) -> Result<(), Stop> {
        self.script.bash_only = true;
        self.at += 2;
        self.substitution()
    }

    /// Commands in backquotes. With an escape in them, what they are depends on what is around them.
    pub(super) fn backquoted(&mut self) -> Result<(), Stop> {
        self.script.plain = false;
        self.at += 1;
        let mut text = String::new();
        loop {
            match self.next().ok_or(Stop)? {
                '`' => break,
                '\\' => return Err(Stop),
                '\n' if !self.pending.is_empty() => return Err(Stop),
                c => text.push(c),
            }
        }
        let inner = parse_at(&text, self.depth + 1);
        self.script.join(inner);
        Ok(())
    }

    /// Reads to the closing brace; the cursor is behind `${`.
    fn parameter(&mut self, in_quotes: bool) -> Result<(), Stop> {
        if self.peek(0) == Some('#') && self.peek(1) != Some('}') {
            self.at += 1;
        }
        let name = self.name();
        if name.is_empty() {
            // A special parameter. `!` reads a variable's value as a name, with its own expansions.
            let special = self.next().filter(|c| "@*#?-$".contains(*c));
            special.ok_or(Stop)?;
        }
        if self.peek(0) == Some('[') {
            self.script.bash_only = true;
            self.at += 1;
            let mut index = String::new();
            while let Some(c) = self.next().filter(|c| *c != ']') {
                index.push(c);
            }
            if index != "@" && index != "*" && !is_number(&index) {
                return Err(Stop);
            }
        }
        let two: String = [self.peek(0), self.peek(1)].into_iter().flatten().collect();
        match self.next().ok_or(Stop)? {
            '}' => return Ok(()),
            '-' | '+' | '?' | '#' | '%' => {}
            '/' | '^' | ',' => self.script.bash_only = true,
            '=' => self.script.sets.push(name),
            ':' if two == ":=" => {
                self.at += 1;
                self.script.sets.push(name);
            }
            ':' if [":-", ":+", ":?"].contains(&two.as_str()) => self.at += 1,
            ':' => return self.slice(),
            // `@` would expand the value as a prompt, with its commands.
            _ => return Err(Stop),
        }
        self.alternative(in_quotes)
    }

    /// The numbers of `${x:1:2}`.
    fn slice(&mut self) -> Result<(), Stop> {
        self.script.bash_only = true;
        while let Some(c) = self.next() {
            match c {
                '}' => return Ok(()),
                c if c.is_ascii_digit() || ": -".contains(c) => {}
                _ => return Err(Stop),
            }
        }
        Err(Stop)
    }

    /// The word of `${x:-word}`. Quotes in it mean different things inside and outside of quotes.
    fn alternative(&mut self, in_quotes: bool) -> Result<(), Stop> {
        while let Some(c) = self.peek(0) {
            match c {
                '}' => {
                    self.at += 1;
                    return Ok(());
                }
                '\'' | '"' | '`' | '\\' | '{' | '\n' => return Err(Stop),
                '<' | '>' if self.peek(1) == Some('(') => return Err(Stop),
                '$' if matches!(self.peek(1), Some('\'' | '"' | '\\')) => return Err(Stop),
                '$' => {
                    let start = self.at;
                    let expanded = self.deeper(|it| it.expansion(in_quotes))?;
                    self.at += usize::from(!expanded);
                    // Bash joins lines here in one place and not in the other.
                    if self.chars.get(start..self.at).unwrap_or_default().contains(&'\\') {
                        return Err(Stop);
                    }
                }
                _ => self.at += 1,
            }
        }
        Err(Stop)
    }

    /// The bodies of the here-documents of the line that just ended.
    pub(super) fn here_documents(&mut self) -> Result<(), Stop> {
        for document in std::mem::take(&mut self.pending) {
            loop {
                if self.at >= self.chars.len() {
                    return Err(Stop);
                }
                let end = self.line_end(self.at);
                let line: String = self.chars.get(self.at..end).unwrap_or_default().iter().collect();
                let bare = if document.strip_tabs { line.trim_start_matches('\t') } else { line.as_str() };
                if bare == document.delimiter {
                    self.at = end.saturating_add(1).min(self.chars.len());
                    break;
                }
                // In a substitution such a line ends the document as well, if there is a parenthesis in it.
                if self.depth > 0 && bare.starts_with(&document.delimiter) {
                    return Err(Stop);
                }
                if document.quoted {
                    self.at = end.saturating_add(1);
                    continue;
                }
                if line.ends_with('\\') {
                    return Err(Stop);
                }
                self.here_line(end)?;
                self.at = end.saturating_add(1);
            }
        }
        Ok(())
    }

    fn line_end(&self, from: usize) -> usize {
        let rest = self.chars.get(from..).unwrap_or_default();
        rest.iter().position(|c| *c == '\n').map_or(self.chars.len(), |length| from + length)
    }

    /// Expansions of one line. One that goes over the line's end is not read.
    fn here_line(&mut self, end: usize) -> Result<(), Stop> {
        while self.at < end {
            match self.peek(0) {
                Some('\\') => self.at += 2,
                Some('`') => self.backquoted()?,
                Some('$') => {
                    let expanded = self.deeper(|it| it.expansion(true))?;
                    self.at += usize::from(!expanded);
                }
                _ => self.at += 1,
            }
        }
        if self.at > end { Err(Stop) } else { Ok(()) }
    }
}
