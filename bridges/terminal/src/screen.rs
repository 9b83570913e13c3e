//! The output: lines, and the words of a model as they come.

use std::{
    io::{self, Write},
    mem,
    sync::{Mutex, PoisonError},
};

use crate::shown;

const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// Bytes that wait behind a question; what comes then is left out, with a line that says so.
const WAITING: usize = 256 * 1024;
const LEFT_OUT: &str = "… more was left out while the question was open\n";

pub(crate) struct Screen {
    out: Box<dyn Write + Send>,
    colours: bool,
    /// True if it shows the answers, which a terminal does by itself.
    echoes: bool,
    /// Returns the columns that there are now; `None` where nobody knows.
    columns: Option<fn() -> usize>,
    /// True while the last line has no end.
    is_open: bool,
    /// The output that waits behind questions, while it is somebody's turn to ask.
    behind: Option<String>,
}

impl Screen {
    pub(crate) fn new(out: Box<dyn Write + Send>, colours: bool, echoes: bool) -> Self {
        Self { out, colours, echoes, columns: None, is_open: false, behind: None }
    }

    pub(crate) fn folding(self, columns: fn() -> usize) -> Self {
        Self { columns: Some(columns), ..self }
    }

    /// Returns a text whose lines the terminal does not break by itself: what it broke would begin a line, and could
    /// pass for one of the terminal.
    pub(crate) fn folded(&self, text: &str) -> String {
        let text = shown::lines(text);
        self.columns.map_or_else(|| text.clone(), |columns| shown::folded(&text, columns()))
    }

    pub(crate) fn say(&mut self, line: &str) {
        let line = self.coloured(DIM, line);
        self.lines(&format!("{line}\n"));
    }

    pub(crate) fn complain(&mut self, problem: &str) {
        self.end_line();
        writeln!(io::stderr(), "{}", shown::lines(problem)).ok();
    }

    /// Prints a part of a text.
    pub(crate) fn text(&mut self, text: &str) {
        let text = shown::words(text);
        self.put(&text);
        self.is_open = if text.is_empty() { self.is_open } else { !text.ends_with('\n') };
    }

    pub(crate) fn diff(&mut self, diff: &str) {
        let lines = diff.lines().map(|line| match line.chars().next() {
            Some('+') => self.coloured(GREEN, line),
            Some('-') => self.coloured(RED, line),
            // Anything else is no part of a difference, and could pass for a line of the terminal.
            Some(' ' | '@' | '\\') | None => shown::lines(line),
            Some(_) => format!("  {}", shown::lines(line)),
        });
        let text = lines.map(|line| line + "\n").collect::<String>();
        self.lines(&text);
    }

    fn coloured(&self, colour: &str, line: &str) -> String {
        let line = shown::lines(line);
        if self.colours { format!("{colour}{line}{PLAIN}") } else { line }
    }

    /// Prints whole lines.
    fn lines(&mut self, text: &str) {
        self.end_line();
        self.put(text);
    }

    /// Ends the last line, if it has no end.
    pub(crate) fn end_line(&mut self) {
        if mem::take(&mut self.is_open) {
            self.put("\n");
        }
    }

    /// Lets all other output wait behind what the one whose turn it is prints.
    pub(crate) fn hold(&mut self) {
        self.end_line();
        self.behind = Some(String::new());
    }

    /// Prints what waited.
    pub(crate) fn release(&mut self) {
        let behind = self.behind.take().unwrap_or_default();
        self.put(&behind);
    }

    /// Prints at once what belongs to a question.
    pub(crate) fn at_once(&mut self, print: impl FnOnce(&mut Self)) {
        let (behind, is_open) = (self.behind.take(), mem::take(&mut self.is_open));
        print(self);
        (self.behind, self.is_open) = (behind, is_open);
    }

    /// A reader that has left, as `head` does, is no reason to stop the work.
    fn put(&mut self, text: &str) {
        match &mut self.behind {
            Some(behind) if behind.len() < WAITING => behind.push_str(text),
            Some(behind) if behind.ends_with(LEFT_OUT) => {}
            Some(behind) => behind.push_str(LEFT_OUT),
            None => {
                self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()).ok();
            }
        }
    }
}

/// Returns the columns of standard output.
pub(crate) fn columns() -> usize {
    #[cfg(unix)]
    if let Ok(size) = rustix::termios::tcgetwinsize(io::stdout())
        && size.ws_col > 0
    {
        return usize::from(size.ws_col);
    }
    80
}

/// A question on the screen.
pub(crate) struct Open<'a> {
    screen: &'a Mutex<Screen>,
    answer: Option<String>,
}

impl<'a> Open<'a> {
    pub(crate) fn new(screen: &'a Mutex<Screen>, question: &str) -> Self {
        let mut now = screen.lock().unwrap_or_else(PoisonError::into_inner);
        now.at_once(|screen| screen.lines(&shown::lines(question)));
        Self { screen, answer: None }
    }

    /// Ends the question with its answer.
    pub(crate) fn close(mut self, answer: Option<String>) -> Option<String> {
        self.answer.clone_from(&answer);
        answer
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let mut screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        let end = match &self.answer {
            Some(answer) if screen.echoes => shown::line(answer) + "\n",
            Some(_) => String::new(),
            // Nothing was written behind the question.
            None => "\n".to_owned(),
        };
        screen.at_once(|screen| screen.put(&end));
    }
}
