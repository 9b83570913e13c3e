//! Reads a command line: which simple commands it holds, which files it opens, and if that is all there is to know.
//!
//! This is the grammar of bash, read strictly: what is not read with certainty makes the whole text unclear, and what
//! was found so far is kept. Everything here is pure, linear in the text, and bounded in depth.

mod compound;
mod expand;
mod grammar;
mod word;

use grammar::Parser;

/// Longest text that is read, in characters.
const LONGEST: usize = 65_536;
/// Most simple commands of one text.
const COMMANDS: usize = 200;
/// Deepest nesting of commands, substitutions and texts of other shells.
const DEEPEST: usize = 24;

/// A word of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    /// The text that the program gets; of a word that is not literal, the text as it is written.
    pub(super) text: String,
    /// True if the shell passes the text on as it is here.
    pub(super) literal: bool,
    /// True if only patterns of file names make it not literal.
    pub(super) glob: bool,
}

impl Word {
    /// The text, if it is the one that the program gets.
    pub(super) fn known(&self) -> Option<&str> {
        self.literal.then_some(self.text.as_str())
    }

    /// True if the program gets this as one argument, whatever its expansions are: all of it is in double quotes.
    pub(super) fn is_one(&self) -> bool {
        let quoted = self.text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        self.literal || quoted.is_some_and(|text| !text.contains(['"', '@', '\\']))
    }

    /// True for a parameter whose value is a number that the shell itself keeps.
    pub(super) fn is_number(&self) -> bool {
        let bare = self.text.trim_matches('"');
        ["$?", "$#", "$$", "$!"].contains(&bare)
    }

    /// The one spelling of this word.
    fn spelled(&self) -> String {
        let plain = |c: char| c.is_alphanumeric() || "_@%+=:,./-".contains(c);
        if !self.literal || !self.text.is_empty() && self.text.chars().all(plain) {
            return self.text.clone();
        }
        format!("'{}'", self.text.replace('\'', "'\\''"))
    }
}

/// The one spelling of a command: its words, joined by one space, quoted where needed.
pub(super) fn spelled(words: &[Word]) -> String {
    words.iter().map(Word::spelled).collect::<Vec<_>>().join(" ")
}

/// An assignment: `name=value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Assignment {
    pub(super) name: String,
    /// The whole word.
    pub(super) word: Word,
}

/// The direction of a redirection to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    In,
    Out,
    Both,
}

/// A redirection to or from a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Redirect {
    pub(super) direction: Direction,
    pub(super) target: Word,
}

/// A simple command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Simple {
    pub(super) assignments: Vec<Assignment>,
    pub(super) words: Vec<Word>,
    /// True if its input is a text of the command line or a pipe.
    pub(super) fed: bool,
}

/// The content of a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Script {
    pub(super) commands: Vec<Simple>,
    pub(super) redirects: Vec<Redirect>,
    /// Variables that it sets in other ways than by an assignment before a command.
    pub(super) sets: Vec<String>,
    /// Functions that it defines.
    pub(super) functions: Vec<String>,
    /// True if it was not understood to its end, or holds what no reading can foresee.
    pub(super) unclear: bool,
    /// True if it is simple commands joined by `|`, `&&` and `;` alone, without substitutions.
    pub(super) plain: bool,
    /// True if only bash reads it in this way.
    pub(super) bash_only: bool,
}

/// Reads `text`.
pub(super) fn parse(text: &str) -> Script {
    parse_at(text, 0)
}

/// Reads a text found `depth` levels deep in another one.
pub(super) fn parse_at(text: &str, depth: usize) -> Script {
    let mut script = Script { plain: true, ..Script::default() };
    if depth >= DEEPEST || text.chars().nth(LONGEST).is_some() || text.contains('\0') {
        return Script { unclear: true, ..script };
    }
    let chars: Vec<char> = text.chars().collect();
    let mut parser = Parser::new(&chars, depth, &mut script);
    if parser.program().is_err() {
        script.unclear = true;
    }
    script
}

#[cfg(test)]
mod tests;
