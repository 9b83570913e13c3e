//! Runs of agents on a terminal: their events as lines, questions to the person in front of it, and Ctrl-C.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod answers;
mod desk;
mod follow;
mod input;
mod interrupt;
mod screen;
mod shown;
#[cfg(test)]
mod tests;

use std::{
    env, fmt,
    io::{self, BufRead, IsTerminal as _, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use input::Input;
use interrupt::Interrupts;
use screen::Screen;
use tokio::sync::watch;

/// A terminal: standard input and output, or others in a test. Cloning gives the same terminal.
///
/// It shows the events of a run, asks the person in front of it about calls that need approval (it is an
/// [`Approver`](entourage_core::permission::Approver)), about plans and about a model's questions, and cancels the
/// run at Ctrl-C. Questions come one after another; lines of a run wait while one is open.
///
/// No model and no file can paint over a question, or forge one with a name. Control characters and those that nobody
/// sees are marked by their numbers, and left out of the words of a model. A name takes one line, whatever is in it:
/// `a�{a}b` is one with a line break. Plans, and what is no line of a difference, are indented, and so is the rest of a
/// line that is wider than the terminal where it stands before a question about a call. Many blanks in a row are marked
/// there too.
///
/// ```no_run
/// use entourage_core::{Result, permission::Scope, provider::Model};
/// use entourage_runners::builtin;
/// use entourage_runtime::{Runtime, permission::Policy};
/// use entourage_terminal::Terminal;
///
/// async fn work(model: Model, task: &str) -> Result<()> {
///     let terminal = Terminal::new();
///     let agent = builtin::coder(model).build()?;
///     let runtime = Runtime::builder().policy(Policy::new()).approver(terminal.clone()).build();
///     let outcome = terminal.run(&runtime.session(), &agent, task).await?;
///     terminal.say(&outcome.to_string());
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct Terminal(Arc<Inner>);

struct Inner {
    screen: Mutex<Screen>,
    input: tokio::sync::Mutex<Input>,
    /// Questions that are open or wait for their turn.
    questions: watch::Sender<usize>,
    interrupts: Interrupts,
    /// True if somebody can answer.
    has_person: bool,
}

impl Terminal {
    /// Creates the terminal of this process. It shows colours if standard output is a terminal and `NO_COLOR` is not
    /// set. Questions are put off if standard input is no terminal.
    #[must_use]
    pub fn new() -> Self {
        let out = io::stdout();
        let colours = out.is_terminal() && env::var_os("NO_COLOR").is_none();
        let has_person = io::stdin().is_terminal();
        let screen = Screen::new(Box::new(out), colours, false);
        let screen = if io::stdout().is_terminal() { screen.folding(screen::columns) } else { screen };
        Self::with(
            screen,
            Input::new(|| Box::new(io::stdin().lock())).discarding(input::discard_typed),
            has_person,
        )
    }

    /// Creates a terminal whose person writes `input` and reads `output`, without colours: for tests. It shows the
    /// answers too, as a terminal does.
    ///
    /// `input` is read by a thread of its own, a line for each question. What it holds is taken for what the person
    /// will write, so a test gives the answers of all questions at once. A program whose users write while no question
    /// is open gives a reader that drops such lines.
    #[must_use]
    pub fn over(input: impl BufRead + Send + 'static, output: impl Write + Send + 'static) -> Self {
        Self::with(Screen::new(Box::new(output), false, true), Input::new(move || Box::new(input)), true)
    }

    fn with(screen: Screen, input: Input, has_person: bool) -> Self {
        let (screen, input) = (Mutex::new(screen), tokio::sync::Mutex::new(input));
        let (questions, interrupts) = (watch::Sender::new(0), Interrupts::default());
        Self(Arc::new(Inner { screen, input, questions, interrupts, has_person }))
    }

    fn screen(&self) -> MutexGuard<'_, Screen> {
        self.0.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if somebody is there to answer questions.
    #[must_use]
    pub fn has_person(&self) -> bool {
        self.0.has_person
    }

    /// Prints a line of the program.
    pub fn say(&self, line: &str) {
        self.screen().say(line);
    }

    /// Prints a line about a problem on standard error.
    pub fn complain(&self, problem: &str) {
        self.screen().complain(problem);
    }

    /// Prints a unified diff, coloured by line.
    pub fn diff(&self, diff: &str) {
        self.screen().diff(diff);
    }

    /// Shows a question and returns the answer's line, without white space around it; `None` at the end of input and
    /// where nobody is there to answer. Once a run was followed, also at Ctrl-C while none is.
    ///
    /// A line that was typed before the question, or for one whose future was dropped, does not answer this one: on a
    /// terminal of Unix the question is shown once nothing was typed for 200 ms, and what was typed until then is
    /// dropped, so the rest of a paste answers nothing. Of a reader of [`Terminal::over`], a line that was read before
    /// the question is dropped, and the next one answers.
    ///
    /// An answer ends with a line break: a line at which input ends is no answer. One of more than 64 KiB is cut, and
    /// ends with words that say so.
    pub async fn ask(&self, question: &str) -> Option<String> {
        if !self.0.has_person {
            return None;
        }
        self.turn().await.ask(question).await
    }

    /// Returns the next line that the person writes while no question is open, also one at which input ends; `None` at
    /// the end of input and, once a run was followed, at Ctrl-C while none is. The lines of a run are shown meanwhile.
    /// A question that comes goes first, and has the next line.
    pub async fn line(&self) -> Option<String> {
        let mut questions = self.0.questions.subscribe();
        loop {
            questions.wait_for(|open| *open == 0).await.ok()?;
            let mut input = self.0.input.lock().await;
            tokio::select! {
                line = input.line() => return line.map(|line| line.text),
                () = self.0.interrupts.pressed() => return None,
                asked = questions.wait_for(|open| *open > 0) => drop(asked.ok()?),
            }
        }
    }

    /// Waits for the turn to ask.
    async fn turn(&self) -> Turn<'_> {
        let waits = Waits::new(&self.0.questions);
        let input = self.0.input.lock().await;
        self.screen().hold();
        Turn { terminal: self, input, _waits: waits }
    }
}

/// Said to a person who types on and on while a question is to be put.
const LATE: &str = "a question follows once nothing is typed; what is typed until then is left out";

/// The turn to ask, for one question or for several that belong together. All other output waits until it is over, so
/// none comes between a question and what it is about.
struct Turn<'a> {
    terminal: &'a Terminal,
    input: tokio::sync::MutexGuard<'a, Input>,
    _waits: Waits<'a>,
}

impl Turn<'_> {
    fn say(&self, line: &str) {
        self.terminal.screen().at_once(|screen| screen.say(&screen.folded(line)));
    }

    fn diff(&self, diff: &str) {
        self.terminal.screen().at_once(|screen| screen.diff(&screen.folded(diff)));
    }

    async fn ask(&mut self, question: &str) -> Option<String> {
        let terminal = self.terminal;
        let late = || terminal.screen().at_once(|screen| screen.say(LATE));
        // What was typed before answers something else, or nothing that was seen.
        tokio::select! {
            () = self.input.quiet(late) => {}
            () = terminal.0.interrupts.pressed() => return None,
        }
        let open = screen::Open::new(&terminal.0.screen, question);
        let answer = tokio::select! {
            answer = self.input.line() => answer,
            () = terminal.0.interrupts.pressed() => None,
        };
        // Without its end, nobody knows what the line would have become.
        open.close(answer.filter(|line| line.is_whole).map(|line| line.text))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.terminal.screen().release();
    }
}

/// A question that is open or waits for its turn.
struct Waits<'a>(&'a watch::Sender<usize>);

impl<'a> Waits<'a> {
    fn new(questions: &'a watch::Sender<usize>) -> Self {
        questions.send_modify(|open| *open += 1);
        Self(questions)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

impl Default for Terminal {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Terminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Terminal").field("has_person", &self.0.has_person).finish_non_exhaustive()
    }
}
