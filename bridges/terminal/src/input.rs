//! The input: a line for each question.

use std::{
    io::{self, BufRead, Read},
    sync::mpsc as blocking,
    thread,
    time::Duration,
};

use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};

/// Bytes of an answer's line; the rest of a longer one is left out.
const LONGEST: usize = 64 * 1024;

/// End of a line that was cut. With it no such line is the answer that its beginning would be.
pub(crate) const CUT: &str = "… (cut at 64 KiB)";

/// Time without input after which a question is put.
const QUIET: Duration = Duration::from_millis(200);
/// Time between two looks at what was typed. The system's queue of a terminal is full in less.
const STEP: Duration = Duration::from_millis(10);
/// Time after which the person is told why no question comes.
const PATIENCE: Duration = Duration::from_secs(1);

/// A line of input.
#[derive(Debug)]
pub(crate) struct Line {
    /// Its text, without white space around it.
    pub(crate) text: String,
    /// True if its end was written. Without it input ended, and nobody knows what would have followed.
    pub(crate) is_whole: bool,
}

/// Lines of a reader.
///
/// A read of a terminal cannot be taken back, and a runtime waits for those of its own threads. So a thread that nobody
/// waits for reads a line when one is asked for, and ends with its reader or at the first request after this was
/// dropped.
pub(crate) struct Input {
    open: Option<Box<dyn FnOnce() -> Box<dyn BufRead> + Send>>,
    reader: Option<Reader>,
    /// Removes what was typed and not read, where a person types. Returns true if there was a line of it.
    discard: Option<Box<dyn FnMut() -> bool + Send>>,
}

/// Removes what was typed on standard input and not read, if it is a terminal. Returns true if there was a line of it.
pub(crate) fn discard_typed() -> bool {
    #[cfg(unix)]
    {
        use rustix::{
            io::ioctl_fionread,
            termios::{QueueSelector, tcflush},
        };
        let was_typed = ioctl_fionread(io::stdin()).is_ok_and(|bytes| bytes > 0);
        // What is no terminal has lines that somebody wrote on purpose.
        tcflush(io::stdin(), QueueSelector::IFlush).is_ok() && was_typed
    }
    #[cfg(not(unix))]
    false
}

struct Reader {
    wanted: blocking::Sender<()>,
    lines: mpsc::Receiver<Option<Line>>,
    /// True while a line was asked for and not taken.
    is_reading: bool,
}

impl Input {
    pub(crate) fn new(open: impl FnOnce() -> Box<dyn BufRead> + Send + 'static) -> Self {
        Self { open: Some(Box::new(open)), reader: None, discard: None }
    }

    pub(crate) fn discarding(self, discard: impl FnMut() -> bool + Send + 'static) -> Self {
        Self { discard: Some(Box::new(discard)), ..self }
    }

    /// Removes what was typed and not taken, until nothing more comes: a paste is longer than the system's queue, which
    /// gets the rest of it bit by bit. Calls `tell` once if that takes long. Input that nobody types is left as it is.
    pub(crate) async fn quiet(&mut self, tell: impl FnOnce()) {
        let Self { reader, discard: Some(discard), .. } = self else { return };
        let (begun, mut tell) = (Instant::now(), Some(tell));
        let mut newest = begun;
        loop {
            let was_held = reader.as_mut().is_some_and(Reader::drop_held);
            if discard() || was_held {
                newest = Instant::now();
            }
            if newest.elapsed() >= QUIET {
                return;
            }
            if let Some(tell) = tell.take_if(|_| begun.elapsed() >= PATIENCE) {
                tell();
            }
            sleep(STEP).await;
        }
    }

    /// Returns the next line; `None` at the end of input.
    pub(crate) async fn line(&mut self) -> Option<Line> {
        if let Some(open) = self.open.take() {
            self.reader = Reader::start(open).ok();
        }
        self.reader.as_mut()?.line().await
    }

    /// True if a line was read that no question took.
    #[cfg(test)]
    pub(crate) fn holds_line(&self) -> bool {
        self.reader.as_ref().is_some_and(|reader| !reader.lines.is_empty())
    }
}

impl Reader {
    fn start(open: Box<dyn FnOnce() -> Box<dyn BufRead> + Send>) -> io::Result<Self> {
        let (wanted, wants) = blocking::channel();
        let (tell, lines) = mpsc::channel(1);
        thread::Builder::new().name("terminal input".to_owned()).spawn(move || {
            let mut input = open();
            while wants.recv().is_ok() {
                let line = read(&mut *input);
                let is_over = line.is_none();
                if tell.blocking_send(line).is_err() || is_over {
                    return;
                }
            }
        })?;
        Ok(Self { wanted, lines, is_reading: false })
    }

    /// Drops a line that came after its question was dropped. Returns true if there was one.
    fn drop_held(&mut self) -> bool {
        let was_held = self.is_reading && self.lines.try_recv().is_ok_and(|line| line.is_some());
        self.is_reading &= !was_held;
        was_held
    }

    async fn line(&mut self) -> Option<Line> {
        self.drop_held();
        if !self.is_reading {
            self.wanted.send(()).ok()?;
            self.is_reading = true;
        }
        let line = self.lines.recv().await.flatten();
        self.is_reading = false;
        line
    }
}

/// Reads a line of any length, and keeps its beginning. One that was cut says so at its end. `None` at the end of input
/// and at an error, whatever was read before that.
fn read(input: &mut dyn BufRead) -> Option<Line> {
    let mut line = piece(input)?;
    let mut is_whole = line.pop_if(|last| *last == b'\n').is_some();
    let is_cut = line.len() > LONGEST;
    line.truncate(LONGEST);
    while is_cut && !is_whole {
        let Some(rest) = piece(input) else { break };
        is_whole = rest.ends_with(b"\n");
    }
    let text = String::from_utf8_lossy(&line);
    let text = if is_cut { format!("{}{CUT}", text.trim_start()) } else { text.trim().to_owned() };
    Some(Line { text, is_whole })
}

/// Reads up to the end of a line, and not much more than is kept of one. `None` where nothing follows.
fn piece(input: &mut dyn BufRead) -> Option<Vec<u8>> {
    let (mut piece, most) = (Vec::new(), u64::try_from(LONGEST).unwrap_or(u64::MAX).saturating_add(1));
    let read = input.take(most).read_until(b'\n', &mut piece);
    (read.is_ok() && !piece.is_empty()).then_some(piece)
}
