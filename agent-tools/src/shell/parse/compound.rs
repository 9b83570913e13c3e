//! Compound commands: groups, conditions, loops, choices, tests, functions.

use super::{
    Simple,
    grammar::{Parser, Stop},
};

/// Comparisons whose operands are expressions.
const ARITHMETIC: [&str; 6] = ["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];

impl Parser<'_> {
    pub(super) fn compound(&mut self, bare: &str) -> Result<(), Stop> {
        if self.peek(0) == Some('(') {
            self.at += 1;
            // Arithmetic.
            if self.peek(0) == Some('(') {
                return Err(Stop);
            }
            return self.list_until_paren();
        }
        self.at += bare.chars().count();
        match bare {
            "{" => self.list(&["}"], false).map(|_| ()),
            "if" => {
                self.list(&["then"], false)?;
                loop {
                    match self.list(&["elif", "else", "fi"], false)? {
                        "elif" => drop(self.list(&["then"], false)?),
                        "else" => {}
                        _ => return Ok(()),
                    }
                }
            }
            "while" | "until" => {
                self.list(&["do"], false)?;
                self.list(&["done"], false).map(|_| ())
            }
            "for" => self.for_loop(),
            "case" => self.case(),
            "[[" => self.test(),
            "function" => {
                self.script.bash_only = true;
                self.blanks();
                let name = self.function_name();
                self.blanks();
                if self.peek(0) == Some('(') {
                    self.empty_parens()?;
                }
                self.function(name)
            }
            _ => Err(Stop),
        }
    }

    fn for_loop(&mut self) -> Result<(), Stop> {
        self.blanks();
        let name = self.name();
        if name.is_empty() {
            return Err(Stop);
        }
        self.script.sets.push(name);
        self.blanks_and_lines()?;
        if self.bare() == "in" {
            self.at += 2;
            loop {
                self.blanks();
                match self.peek(0) {
                    Some(';' | '\n') => break,
                    _ => drop(self.word()?),
                }
            }
        }
        self.blanks();
        if self.peek(0) == Some(';') {
            self.at += 1;
        }
        self.blanks_and_lines()?;
        self.expect("do")?;
        self.list(&["done"], false).map(|_| ())
    }

    fn case(&mut self) -> Result<(), Stop> {
        self.blanks();
        self.word()?;
        self.blanks_and_lines()?;
        self.expect("in")?;
        loop {
            self.blanks_and_lines()?;
            if self.bare() == "esac" {
                self.at += 4;
                return Ok(());
            }
            if self.peek(0) == Some('(') {
                self.at += 1;
                self.blanks();
            }
            loop {
                self.word()?;
                self.blanks();
                match self.next() {
                    Some('|') => self.blanks(),
                    Some(')') => break,
                    _ => return Err(Stop),
                }
            }
            if self.list(&[";;", "esac"], false)? == "esac" {
                return Ok(());
            }
        }
    }

    /// `[[ … ]]`. Its operands of comparisons are expressions, which may hold commands: only numbers are read there.
    fn test(&mut self) -> Result<(), Stop> {
        self.script.bash_only = true;
        let (mut computes, mut all_known) = (false, true);
        loop {
            let before = self.at;
            self.blanks_and_lines()?;
            // In patterns this begins no comment.
            if self.chars.get(before..self.at).unwrap_or_default().contains(&'#') {
                return Err(Stop);
            }
            match self.peek(0) {
                Some('(' | ')' | '<' | '>') if self.peek(1) != Some('(') => {
                    self.at += 1;
                    if self.peek(0) == Some('#') {
                        return Err(Stop);
                    }
                }
                Some('&' | '|') if self.peek(1) == self.peek(0) => self.at += 2,
                _ => {
                    let (word, quoted) = self.word()?;
                    match word.text.as_str() {
                        "]]" if !quoted => break,
                        "-v" | "-R" => return Err(Stop),
                        "!" => {}
                        text if ARITHMETIC.contains(&text) => computes = true,
                        text => {
                            let digits = text.strip_prefix('-').unwrap_or(text);
                            let number = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit());
                            all_known &= word.is_number() || word.literal && number;
                        }
                    }
                }
            }
        }
        if computes && !all_known { Err(Stop) } else { Ok(()) }
    }

    fn function_name(&mut self) -> String {
        let mut name = String::new();
        while let Some(c) = self.peek(0).filter(|c| c.is_ascii_alphanumeric() || "_-.:".contains(*c)) {
            name.push(c);
            self.at += 1;
        }
        name
    }

    fn empty_parens(&mut self) -> Result<(), Stop> {
        self.at += 1;
        self.blanks();
        if self.next() == Some(')') { Ok(()) } else { Err(Stop) }
    }

    /// The body of a function.
    fn function(&mut self, name: String) -> Result<(), Stop> {
        self.blanks_and_lines()?;
        if name.is_empty() || !matches!(self.peek(0), Some('{' | '(')) {
            return Err(Stop);
        }
        self.script.functions.push(name);
        self.command(false)
    }

    /// `name ()` and its body.
    pub(super) fn function_after(&mut self, simple: &Simple) -> Result<(), Stop> {
        let ([name], [], false) = (&simple.words[..], &simple.assignments[..], simple.fed) else {
            return Err(Stop);
        };
        let named = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
        let name = name.known().filter(|name| name.chars().all(named)).ok_or(Stop)?.to_owned();
        self.script.plain = false;
        self.empty_parens()?;
        self.deeper(|it| it.function(name))
    }
}
