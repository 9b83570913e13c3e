//! Lists, pipelines, compound and simple commands, redirections.

use super::{Assignment, COMMANDS, DEEPEST, Direction, Redirect, Script, Simple, Word, word::ENDS};

/// The text is not read further: it is no valid command line, or more than this reader knows.
#[derive(Debug)]
pub(super) struct Stop;

/// A here-document whose body is still to come.
#[derive(Debug)]
pub(super) struct HereDocument {
    pub(super) delimiter: String,
    pub(super) quoted: bool,
    pub(super) strip_tabs: bool,
}

/// Words with a meaning of their own where a command begins.
const RESERVED: [&str; 22] = [
    "!", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if",
    "in", "select", "then", "time", "until", "while", "{", "}",
];

pub(super) struct Parser<'a> {
    pub(super) chars: &'a [char],
    pub(super) at: usize,
    pub(super) depth: usize,
    pub(super) pending: Vec<HereDocument>,
    /// Substitutions around the cursor.
    pub(super) within: usize,
    pub(super) script: &'a mut Script,
}

impl Script {
    /// Adds what an inner text holds.
    pub(super) fn join(&mut self, inner: Self) {
        self.commands.extend(inner.commands);
        self.redirects.extend(inner.redirects);
        self.sets.extend(inner.sets);
        self.functions.extend(inner.functions);
        self.unclear |= inner.unclear;
        self.bash_only |= inner.bash_only;
        self.plain = false;
    }
}

impl<'a> Parser<'a> {
    pub(super) fn new(chars: &'a [char], depth: usize, script: &'a mut Script) -> Self {
        Self { chars, at: 0, depth, pending: Vec::new(), within: 0, script }
    }

    pub(super) fn program(&mut self) -> Result<(), Stop> {
        self.list(&[], false)?;
        if self.pending.is_empty() { Ok(()) } else { Err(Stop) }
    }

    pub(super) fn list_until_paren(&mut self) -> Result<(), Stop> {
        self.list(&[], true).map(|_| ())
    }

    pub(super) fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at.saturating_add(ahead)).copied()
    }

    pub(super) fn next(&mut self) -> Option<char> {
        let c = self.peek(0)?;
        self.at += 1;
        Some(c)
    }

    fn starts_with(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(i, c)| self.peek(i) == Some(c))
    }

    pub(super) fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Stop>) -> Result<T, Stop> {
        if self.depth >= DEEPEST {
            return Err(Stop);
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    pub(super) fn blanks(&mut self) {
        loop {
            match self.peek(0) {
                Some(' ' | '\t') => self.at += 1,
                // Where a here-document is due, a joined line is refused by the word that follows.
                Some('\\') if self.peek(1) == Some('\n') && self.pending.is_empty() => self.at += 2,
                Some('#') => {
                    while self.peek(0).is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    pub(super) fn blanks_and_lines(&mut self) -> Result<(), Stop> {
        loop {
            self.blanks();
            if self.peek(0) != Some('\n') {
                return Ok(());
            }
            self.at += 1;
            self.script.plain = false;
            let due = self.pending.len();
            self.here_documents()?;
            // Bash prints what it read of a substitution and reads that again. Commands after a document may be joined.
            if due > 0 && self.within > 0 {
                while matches!(self.peek(0), Some(' ' | '\t' | '\n')) {
                    self.at += 1;
                }
                if due > 1 || self.peek(0) != Some(')') {
                    return Err(Stop);
                }
            }
        }
    }

    /// The characters up to the end of the word at the cursor, as they are written.
    pub(super) fn bare(&self) -> String {
        let rest = self.chars.get(self.at..).unwrap_or_default();
        rest.iter().take(16).take_while(|c| !ENDS.contains(**c)).collect()
    }

    pub(super) fn expect(&mut self, word: &str) -> Result<(), Stop> {
        if self.bare() != word {
            return Err(Stop);
        }
        self.at += word.chars().count();
        Ok(())
    }

    /// Commands up to one of the words of `until`, which is read and returned, or up to a parenthesis or the end.
    pub(super) fn list(&mut self, until: &[&'static str], paren: bool) -> Result<&'static str, Stop> {
        loop {
            self.blanks_and_lines()?;
            match self.peek(0) {
                None if until.is_empty() && !paren => return Ok(""),
                None => return Err(Stop),
                Some(')') if paren => {
                    self.at += 1;
                    return Ok(")");
                }
                Some(';') => return self.case_end(until),
                _ => {}
            }
            let bare = self.bare();
            if let Some(word) = until.iter().find(|word| **word == bare) {
                self.at += word.len();
                return Ok(word);
            }
            self.and_or()?;
            self.blanks();
            match self.peek(0) {
                Some(';') if matches!(self.peek(1), Some(';' | '&')) => return self.case_end(until),
                Some(';') => self.at += 1,
                Some('&') => {
                    self.at += 1;
                    self.script.plain = false;
                }
                None | Some('\n' | ')') => {}
                Some(_) => return Err(Stop),
            }
        }
    }

    fn case_end(&mut self, until: &[&'static str]) -> Result<&'static str, Stop> {
        if !until.contains(&";;") {
            return Err(Stop);
        }
        let ends = [";;&", ";;", ";&"];
        let end = ends.into_iter().find(|end| self.starts_with(end)).ok_or(Stop)?;
        self.at += end.len();
        Ok(";;")
    }

    fn and_or(&mut self) -> Result<(), Stop> {
        self.pipeline()?;
        loop {
            self.blanks();
            if !self.starts_with("&&") && !self.starts_with("||") {
                return Ok(());
            }
            self.script.plain &= self.starts_with("&&");
            self.at += 2;
            self.blanks_and_lines()?;
            self.pipeline()?;
        }
    }

    fn pipeline(&mut self) -> Result<(), Stop> {
        loop {
            match self.bare().as_str() {
                "!" => self.at += 1,
                "time" => {
                    self.script.bash_only = true;
                    self.at += 4;
                    self.blanks();
                    if self.bare() == "-p" {
                        self.at += 2;
                        self.blanks();
                    }
                    if self.peek(0) == Some('-') {
                        return Err(Stop);
                    }
                }
                _ => break,
            }
            self.script.plain = false;
            self.blanks();
        }
        self.command(false)?;
        loop {
            self.blanks();
            if self.peek(0) != Some('|') || self.peek(1) == Some('|') {
                return Ok(());
            }
            self.at += 1;
            if self.peek(0) == Some('&') {
                self.at += 1;
                self.script.bash_only = true;
                self.script.plain = false;
            }
            self.blanks_and_lines()?;
            self.command(true)?;
        }
    }

    pub(super) fn command(&mut self, fed: bool) -> Result<(), Stop> {
        let first = self.script.commands.len();
        let bare = self.bare();
        let compound = RESERVED.contains(&bare.as_str()) || self.peek(0) == Some('(');
        if !compound {
            return self.simple(fed);
        }
        self.script.plain = false;
        self.deeper(|it| it.compound(&bare))?;
        let mut simple = Simple::default();
        loop {
            self.blanks();
            if !self.redirect(&mut simple)? {
                break;
            }
        }
        // What feeds the whole feeds each command in it.
        for command in self.script.commands.iter_mut().skip(first) {
            command.fed |= fed || simple.fed;
        }
        Ok(())
    }

    fn simple(&mut self, fed: bool) -> Result<(), Stop> {
        let mut simple = Simple { fed, ..Simple::default() };
        let mut anything = false;
        loop {
            self.blanks();
            match self.peek(0) {
                None | Some('\n' | ';' | '|' | ')') => break,
                Some('&') if self.peek(1) != Some('>') => break,
                Some('(') => return self.function_after(&simple),
                _ => {}
            }
            anything = true;
            if self.redirect(&mut simple)? || simple.words.is_empty() && self.assignment(&mut simple)? {
                continue;
            }
            let start = self.at;
            let (word, quoted) = self.word()?;
            // Once joined, it may be an assignment, a reserved word or a descriptor.
            let joined =
                self.chars.get(start..self.at).unwrap_or_default().windows(2).any(|it| it == ['\\', '\n']);
            if joined && (simple.words.is_empty() || matches!(self.peek(0), Some('<' | '>'))) {
                return Err(Stop);
            }
            // A descriptor in a variable.
            if word.text.starts_with('{') && matches!(self.peek(0), Some('<' | '>')) {
                return Err(Stop);
            }
            if simple.words.is_empty() && !quoted && RESERVED.contains(&word.text.as_str()) {
                return Err(Stop);
            }
            simple.words.push(word);
            if simple.words.len() == 1 && self.peek(0) == Some('(') {
                return self.function_after(&simple);
            }
        }
        if !anything || self.script.commands.len() >= COMMANDS {
            return Err(Stop);
        }
        if simple.words.is_empty() {
            self.script.plain = false;
        }
        if !simple.words.is_empty() || !simple.assignments.is_empty() {
            self.script.commands.push(simple);
        }
        Ok(())
    }

    /// Reads an assignment, if there is one at the cursor.
    fn assignment(&mut self, simple: &mut Simple) -> Result<bool, Stop> {
        let start = self.at;
        let name = self.name();
        let plus = usize::from(self.peek(0) == Some('+'));
        let is_one = !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit());
        let follows = self.peek(plus);
        if !is_one || follows != Some('=') {
            let indexed = is_one && follows == Some('[');
            self.at = start;
            return if indexed { Err(Stop) } else { Ok(false) };
        }
        self.script.plain = false;
        self.script.bash_only |= plus == 1;
        if self.peek(plus + 1) == Some('(') {
            self.at += plus + 2;
            self.script.bash_only = true;
            self.script.sets.push(name);
            self.array()?;
            return Ok(true);
        }
        self.at = start;
        let (word, _) = self.word()?;
        simple.assignments.push(Assignment { name, word });
        Ok(true)
    }

    fn array(&mut self) -> Result<(), Stop> {
        let start = self.at;
        loop {
            self.blanks_and_lines()?;
            match self.peek(0) {
                // Where an array is in a substitution, bash reads its escapes twice.
                Some(')') if self.chars.get(start..self.at).unwrap_or_default().contains(&'\\') => {
                    return Err(Stop);
                }
                Some(')') => {
                    self.at += 1;
                    return Ok(());
                }
                // An index is an expression.
                Some('[') => return Err(Stop),
                _ => drop(self.word()?),
            }
        }
    }

    /// Reads a redirection, if there is one at the cursor.
    fn redirect(&mut self, simple: &mut Simple) -> Result<bool, Stop> {
        let rest = self.chars.get(self.at..).unwrap_or_default();
        let digits = rest.iter().take_while(|c| c.is_ascii_digit()).count();
        let both = digits == 0 && self.starts_with("&>");
        let first = self.peek(digits);
        if !both && (!matches!(first, Some('<' | '>')) || digits == 0 && self.peek(1) == Some('(')) {
            return Ok(false);
        }
        self.at += digits + usize::from(both);
        self.script.bash_only |= both;
        let operators = ["<<<", "<<-", "<<", "<&", "<>", "<", ">>", ">|", ">&", ">"];
        let operator = operators.into_iter().find(|it| self.starts_with(it)).ok_or(Stop)?;
        if both && !matches!(operator, ">" | ">>") {
            return Err(Stop);
        }
        self.at += operator.len();
        self.blanks();
        if self.peek(0) == Some('#') {
            return Err(Stop);
        }
        let (target, quoted) = self.word()?;
        match operator {
            "<<<" => {
                self.script.bash_only = true;
                self.script.plain = false;
                simple.fed = true;
            }
            "<<" | "<<-" => {
                self.script.plain = false;
                simple.fed = true;
                let delimiter = target.known().filter(|it| !it.contains('\n')).ok_or(Stop)?.to_owned();
                self.pending.push(HereDocument { delimiter, quoted, strip_tabs: operator == "<<-" });
            }
            "<&" | ">&" if is_descriptor(&target) => {}
            "<&" => return Err(Stop),
            // Bash expands these targets twice.
            ">&" | ">" | ">>" if (both || operator == ">&") && !is_plain(&target) => return Err(Stop),
            _ => {
                let direction = match operator {
                    "<" => Direction::In,
                    "<>" => Direction::Both,
                    _ => Direction::Out,
                };
                simple.fed |= direction != Direction::Out;
                self.script.bash_only |= operator == ">&";
                self.script.redirects.push(Redirect { direction, target });
            }
        }
        Ok(true)
    }
}

/// True for a name that no expansion changes.
fn is_plain(target: &Word) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "_@%+=:,./-".contains(c);
    target.known().is_some_and(|text| text.chars().all(plain) && !text.starts_with('-'))
}

/// True for what follows `>&` to copy, move or close a descriptor.
fn is_descriptor(target: &Word) -> bool {
    let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    target.known().is_some_and(|text| digits(text.strip_suffix('-').unwrap_or(text)))
}
