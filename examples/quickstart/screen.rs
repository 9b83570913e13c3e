//! The run's events as lines on standard output. On a terminal the last line shows what the run waits for; elsewhere
//! the output is plain text.

use std::{
    collections::HashMap,
    env,
    io::{self, IsTerminal, Stdout, Write},
    sync::Arc,
    time::Instant,
};

use entourage::{
    event::{Envelope, Event, ModelFinished, ToolFinished},
    message::Message,
    provider::Delta,
};

/// Most characters of a call's arguments that are shown.
const ARGUMENTS: usize = 70;
/// Moves the cursor to the start of its line and clears the line.
const CLEAR: &str = "\r\x1b[K";
/// First character of each line by the program itself. A model's text has it replaced, so it cannot pass for
/// such a line.
const MARK: char = '▸';

#[derive(Debug)]
pub(crate) struct Screen {
    out: Stdout,
    /// True if the output is a terminal that understands escape codes.
    live: bool,
    at_line_start: bool,
    /// True if the model has said anything since its last call.
    pub(crate) has_answer: bool,
    waiting: Option<(String, Instant)>,
    drawn: bool,
    ticks: usize,
    /// Arguments of the known calls, by the call's id.
    arguments: HashMap<Arc<str>, String>,
}

impl Screen {
    pub(crate) fn new() -> Self {
        let out = io::stdout();
        let live = out.is_terminal() && env::var_os("TERM").is_some_and(|term| term != "dumb");
        Self {
            out,
            live,
            at_line_start: true,
            has_answer: false,
            waiting: None,
            drawn: false,
            ticks: 0,
            arguments: HashMap::new(),
        }
    }

    pub(crate) fn show(&mut self, event: &Envelope) -> io::Result<()> {
        match &event.event {
            Event::ModelStarted(call) => {
                self.has_answer = false;
                self.wait(&format!("waiting for {}", call.model));
            }
            Event::Delta(Delta::Text(text) | Delta::Refusal(text)) => self.text(text)?,
            Event::ModelFinished(reply) => self.reply(reply)?,
            Event::ToolStarted(call) => self.wait(&format!("{} runs", call.tool)),
            Event::ToolFinished(call) => self.tool(call)?,
            Event::WarningRaised(warning) => {
                self.line(&format!("{MARK} warning: {}", shortened(&warning.text, 300)))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Prints one line of the program.
    pub(crate) fn line(&mut self, line: &str) -> io::Result<()> {
        self.clear()?;
        if !self.at_line_start {
            writeln!(self.out)?;
        }
        self.at_line_start = true;
        writeln!(self.out, "{}", printable(line))
    }

    /// Prints text as it comes, piece by piece.
    pub(crate) fn text(&mut self, text: &str) -> io::Result<()> {
        let text = printable(text).replace(MARK, ">");
        let Some(last) = text.chars().last() else { return Ok(()) };
        self.clear()?;
        self.has_answer = true;
        self.at_line_start = last == '\n';
        write!(self.out, "{text}")?;
        self.out.flush()
    }

    /// Updates the line that shows what the run waits for. Called at intervals.
    pub(crate) fn tick(&mut self) -> io::Result<()> {
        let Some((what, since)) = self.waiting.as_ref().filter(|_| self.live && self.at_line_start) else {
            return Ok(());
        };
        let wheel = ["|", "/", "-", "\\"].get(self.ticks % 4).unwrap_or(&"");
        write!(self.out, "{CLEAR}{wheel} {what}, {} s", since.elapsed().as_secs())?;
        self.drawn = true;
        self.ticks += 1;
        self.out.flush()
    }

    /// Remembers the arguments of the calls that `message` makes.
    pub(crate) fn note_calls(&mut self, message: &Message) {
        for call in message.tool_calls() {
            self.arguments.insert(Arc::clone(&call.id), shortened(call.arguments.as_str(), ARGUMENTS));
        }
    }

    fn reply(&mut self, reply: &ModelFinished) -> io::Result<()> {
        self.note_calls(&reply.message);
        self.waiting = None;
        self.clear()?;
        if self.at_line_start {
            return Ok(());
        }
        self.at_line_start = true;
        writeln!(self.out)
    }

    fn tool(&mut self, call: &ToolFinished) -> io::Result<()> {
        let result = &call.result;
        let arguments = self.arguments.get(&result.call).map_or("", String::as_str);
        let text = result.to_text();
        let came = if result.is_error {
            format!("failed: {}", shortened(&text, ARGUMENTS))
        } else {
            format!("{} in {} ms", size(text.len()), call.micros / 1_000)
        };
        let line = format!("{MARK} {} {arguments} -> {came}", result.name);
        self.line(&line)
    }

    fn wait(&mut self, what: &str) {
        self.waiting = Some((shortened(what, 50), Instant::now()));
    }

    fn clear(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.drawn) { write!(self.out, "{CLEAR}") } else { Ok(()) }
    }
}

/// The text without control characters and those that reorder or hide text: a model or a file must not steer the
/// terminal, nor disguise its text.
fn printable(text: &str) -> String {
    let hides = |c: char| {
        matches!(c, '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}')
            || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e0fff}')
    };
    text.chars().filter(|c| matches!(c, '\n' | '\t') || !c.is_control() && !hides(*c)).collect()
}

/// The first `most` characters, on one line.
fn shortened(text: &str, most: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= most {
        return line;
    }
    line.chars().take(most).chain("...".chars()).collect()
}

fn size(bytes: usize) -> String {
    if bytes < 1_024 {
        format!("{bytes} bytes")
    } else {
        format!("{}.{} KiB", bytes / 1_024, bytes % 1_024 * 10 / 1_024)
    }
}
