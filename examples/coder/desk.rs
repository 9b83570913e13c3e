//! The terminal: lines of the run, and questions to the person in front of it.

use std::{
    env,
    io::{self, IsTerminal, Write as _},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use entourage::prelude::*;

const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// Standard output. Lines of a run wait while a question is open.
#[derive(Debug)]
pub(crate) struct Terminal {
    colours: bool,
    /// True while the last line has no end.
    open: Mutex<bool>,
}

impl Terminal {
    pub(crate) fn new() -> Self {
        let colours = io::stdout().is_terminal() && env::var_os("NO_COLOR").is_none();
        Self { colours, open: Mutex::new(false) }
    }

    /// Prints a line of the program.
    pub(crate) fn say(&self, line: &str) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        print(&mut open, &format!("{}\n", self.coloured(DIM, line)));
    }

    /// Prints a model's words as they come.
    pub(crate) fn text(&self, text: &str) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        put(&printable(text));
        *open = !text.ends_with('\n');
    }

    pub(crate) fn diff(&self, diff: &str) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = diff.lines().map(|line| match line.chars().next() {
            Some('+') => self.coloured(GREEN, line),
            Some('-') => self.coloured(RED, line),
            _ => line.to_owned(),
        });
        let text = lines.map(|line| line + "\n").collect::<String>();
        print(&mut open, &text);
    }

    fn coloured(&self, colour: &str, line: &str) -> String {
        let line = printable(line);
        if self.colours { format!("{colour}{line}{PLAIN}") } else { line }
    }

    /// Shows a question and reads the answer's line; `None` at the end of input.
    pub(crate) fn ask(&self, question: &str) -> Option<String> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        print(&mut open, question);
        let mut line = String::new();
        let read = io::stdin().read_line(&mut line).ok()?;
        (read > 0).then(|| line.trim().to_owned())
    }
}

/// Prints whole lines.
fn print(open: &mut bool, text: &str) {
    let end = if std::mem::take(open) { "\n" } else { "" };
    put(&format!("{end}{text}"));
}

/// A reader that has left, as `head` does, is no reason to stop the work.
fn put(text: &str) {
    let mut out = io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).ok();
}

/// Tells of a problem, on standard error.
pub(crate) fn complain(problem: &str) {
    writeln!(io::stderr(), "{}", printable(problem)).ok();
}

/// The text without characters that control a terminal: a model and a file must not paint over a question.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

/// Asks the person at the terminal about each call that needs it, one after another.
#[derive(Debug)]
pub(crate) struct Desk {
    terminal: Arc<Terminal>,
    one_at_a_time: tokio::sync::Mutex<()>,
}

impl Desk {
    pub(crate) fn new(terminal: Arc<Terminal>) -> Self {
        Self { terminal, one_at_a_time: tokio::sync::Mutex::default() }
    }
}

#[async_trait]
impl Approver for Desk {
    async fn decide(&self, request: &ApprovalRequest) -> Result<Decision> {
        let _one_at_a_time = self.one_at_a_time.lock().await;
        let subjects: Vec<_> = request.footprint.subjects().collect();
        self.terminal.say(&format!("{} wants {}: {}", request.agent, request.tool, subjects.join(", ")));
        match &request.preview {
            Some(preview) => self.terminal.diff(preview),
            None => self.terminal.say(request.arguments.as_str()),
        }
        if !io::stdin().is_terminal() {
            self.terminal.say("nobody is here to ask, so the run waits; go on with --resume on a terminal");
            return Ok(Decision::Later);
        }
        let terminal = Arc::clone(&self.terminal);
        let asked = tokio::task::spawn_blocking(move || decide(&terminal)).await;
        asked.map_err(|error| Error::new(ErrorKind::Internal, "the question broke off").caused_by(error))?
    }

    fn name(&self) -> Option<Arc<str>> {
        env::var("USER").ok().map(Into::into)
    }
}

/// Reads a decision from the terminal.
fn decide(terminal: &Terminal) -> Result<Decision> {
    loop {
        let answer = terminal.ask("[y]es, for the [s]ession, [a]lways, [e]dit, [n]o, or a reason: ");
        return Ok(match answer.as_deref() {
            None => Decision::Later,
            Some("y") => Decision::Allow,
            Some("s") => Decision::AllowSession,
            Some("a") => Decision::AllowAlways,
            Some("n") => Decision::Deny,
            Some("e") => {
                let text = terminal.ask("the arguments as JSON: ").unwrap_or_default();
                match serde_json::from_str(&text).ok().map(|value| Decision::edit(&value)) {
                    Some(Ok(edited)) => edited,
                    _ => continue,
                }
            }
            Some("") => continue,
            Some(reason) => Decision::refuse(reason),
        });
    }
}
