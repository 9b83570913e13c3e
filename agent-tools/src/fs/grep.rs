//! `grep`: lines that match a regular expression.
//!
//! The engine's time is linear in the text, its size is bounded, and files are streamed: no pattern and no file can
//! take more than a bounded amount of memory.

use std::{
    cmp::Reverse,
    fmt::Write as _,
    io::{self, Read},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use entourage_core::tool::{ToolError, ToolOutput};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    glob::Pattern,
    level::{Include, Kind, Walk},
    path::Inside,
    sight::{Sight, Start},
    stop::{Halt, Stop, StopReader, halted},
    text,
    tool::Operation,
};

const MATCHES: usize = 100;
const COLUMNS: usize = 500;
/// Longest pattern, in bytes.
const LONGEST: usize = 4_096;
/// Largest compiled pattern, in bytes.
const COMPILED: usize = 8 << 20;
const NESTING: u32 = 100;
/// The longest line that is searched, in bytes.
const LINE: usize = 16 << 20;
/// Bytes of a file that are searched where they are read. The libraries look for binary data in as many.
const SMALL: u64 = 64 << 10;

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Arguments {
    /// The regular expression, matched line by line.
    pattern: String,
    /// The file or directory to search, relative to the workspace's root. Default: the root.
    #[serde(default)]
    path: Option<String>,
    /// A pattern of the files to search, such as `*.rs` or `src/**/*.{js,ts}`. Default: all files.
    #[serde(default)]
    include: Option<String>,
    /// True if the pattern is plain text instead of a regular expression. Default: false.
    #[serde(default)]
    literal_text: Option<bool>,
}

#[derive(Debug)]
pub(super) struct Grep;

impl Operation for Grep {
    type Arguments = Arguments;
    const NAME: &'static str = "grep";
    const DESCRIPTION: &'static str = "Searches files for lines that match a regular expression, at most 100 lines, \
        those of the newest file first. Hidden and binary files and what ignore files name are left out. To find files \
        by name use `glob`.";
    const TIME: Duration = Duration::from_secs(5);
    const WITHOUT_PATH: Option<&'static str> = Some(".");

    fn run(sight: &Sight<'_>, arguments: Arguments, stop: &Stop) -> Result<ToolOutput, ToolError> {
        let matcher = matcher(&arguments.pattern, arguments.literal_text.unwrap_or(false))?;
        let ws = sight.workspace();
        let include =
            arguments.include.as_deref().map(|text| Pattern::parse(text, ws.roots())).transpose()?;
        let place = ws.place(arguments.path.as_deref().unwrap_or("."))?;
        let kind = sight.look(&place)?;
        let start = sight.start(&place)?;
        let mut search = Search::new(sight, &start, stop);
        let ended = if kind.is_dir() {
            search.tree(&matcher, include.as_ref())
        } else if kind.is_file() {
            search.one(&matcher, &place)?
        } else {
            let name = text::echo(&text::show(place.as_path()));
            return Err(ToolError::tell(format!(
                "`{name}` is a pipe, a socket or a device, which cannot be searched"
            )));
        };
        match ended {
            Err(halt @ Halt::Dropped) => return Err(halted(halt, stop)),
            Err(Halt::TimeOver) => search.late = true,
            Ok(()) => {}
        }
        Ok(ToolOutput::text(search.show()))
    }
}

fn matcher(pattern: &str, literal: bool) -> Result<RegexMatcher, ToolError> {
    if pattern.is_empty() {
        return Err(ToolError::tell("the pattern is empty; say what to search for"));
    }
    if pattern.len() > LONGEST {
        return Err(ToolError::tell("the pattern is longer than 4,096 bytes; use a shorter one"));
    }
    RegexMatcherBuilder::new()
        .fixed_strings(literal)
        .line_terminator(Some(b'\n'))
        .size_limit(COMPILED)
        .dfa_size_limit(COMPILED)
        .nest_limit(NESTING)
        .build(pattern)
        .map_err(|error| {
            let help = if literal { "" } else { "; for plain text set `literal_text`" };
            ToolError::tell(format!("the pattern cannot be used: {error}{help}"))
        })
}

/// The matching lines of one file.
struct Matches {
    path: PathBuf,
    lines: Vec<(u64, String)>,
}

struct Search<'a> {
    sight: &'a Sight<'a>,
    start: &'a Start,
    stop: &'a Stop,
    searcher: Searcher,
    /// The beginning of the newest file.
    read: Vec<u8>,
    found: Vec<Matches>,
    total: usize,
    more: bool,
    late: bool,
    unreadable: usize,
    /// True if the only file of the call is binary.
    binary: bool,
}

impl<'a> Search<'a> {
    fn new(sight: &'a Sight<'a>, start: &'a Start, stop: &'a Stop) -> Self {
        let searcher = SearcherBuilder::new()
            .line_number(true)
            .heap_limit(Some(LINE))
            .binary_detection(BinaryDetection::quit(0))
            .build();
        let found = Vec::new();
        Self {
            sight,
            start,
            stop,
            searcher,
            read: Vec::with_capacity(64 << 10),
            found,
            total: 0,
            more: false,
            late: false,
            unreadable: 0,
            binary: false,
        }
    }

    fn tree(&mut self, matcher: &RegexMatcher, include: Option<&Pattern>) -> Result<(), Halt> {
        let mut files: Vec<(Reverse<Option<SystemTime>>, PathBuf)> = Vec::new();
        let Self { sight, start, stop, .. } = *self;
        let mut walk = Walk::new(sight, start, Include { hidden: false, times: true }, stop)?;
        loop {
            let next = walk.next();
            self.unreadable = walk.unreadable;
            let Some(entry) = next? else { break };
            let wanted = include.is_none_or(|pattern| pattern.is_match(&entry.path, &start.path));
            if wanted && entry.kind == Kind::File {
                files.push((Reverse(entry.modified), entry.path));
            }
        }
        // Files of equal time are ordered by path, so that the same tree gives the same answer.
        files.sort_unstable();
        for (_, path) in files {
            if self.more {
                break;
            }
            match sight.open_file(start, &path) {
                Ok(Some(file)) => drop(self.file(matcher, &path, file)?),
                // It is no longer a file.
                Ok(None) => {}
                Err(_) => self.unreadable += 1,
            }
        }
        Ok(())
    }

    fn one(&mut self, matcher: &RegexMatcher, place: &Inside) -> Result<Result<(), Halt>, ToolError> {
        let opened = self.sight.open_named(self.start);
        let Some(file) = opened.map_err(|error| self.sight.explain(&error, place))? else {
            return Ok(Ok(()));
        };
        Ok(self.file(matcher, place.names(), file).map(|binary| self.binary = binary))
    }

    /// Searches one file. Returns true if it is binary.
    fn file(&mut self, matcher: &RegexMatcher, path: &Path, file: std::fs::File) -> Result<bool, Halt> {
        let room = MATCHES - self.total;
        let mut lines = Lines { room, found: Vec::new(), more: false, binary: false };
        let mut reader = StopReader { inner: file, stop: self.stop };
        self.read.clear();
        let ended = match (&mut reader).take(SMALL).read_to_end(&mut self.read) {
            Err(error) => Err(error),
            Ok(read) if u64::try_from(read).is_ok_and(|read| read < SMALL) => {
                self.searcher.search_slice(matcher, &self.read, &mut lines)
            }
            Ok(_) => self.searcher.search_reader(matcher, self.read.chain(reader), &mut lines),
        };
        // The number of matches before a file turns out to be binary is arbitrary.
        if !lines.binary && !lines.found.is_empty() {
            self.total += lines.found.len();
            self.found.push(Matches { path: path.to_owned(), lines: lines.found });
        }
        self.more |= lines.more && !lines.binary;
        self.stop.check()?;
        self.unreadable += usize::from(ended.is_err());
        Ok(lines.binary)
    }

    fn show(&self) -> String {
        let mut out = if self.total == 0 {
            if self.binary { "the file is binary and was not searched" } else { "no line matches" }.to_owned()
        } else {
            let lines = text::count(self.total, "line matches", "lines match");
            format!("{lines} in {}", text::count(self.found.len(), "file", "files"))
        };
        for file in &self.found {
            let _ = write!(out, "\n\n{}", text::show(&file.path));
            for (number, line) in &file.lines {
                let _ = write!(out, "\n{number:>6}\t{line}");
            }
        }
        let gap = if self.total == 0 { "\n" } else { "\n\n" };
        if self.more {
            let _ =
                write!(out, "{gap}(cut at 100 lines, there are more; narrow `pattern`, `path` or `include`)");
        }
        if self.late {
            let limit = self.stop.limit();
            let _ = write!(
                out,
                "{gap}(stopped after {limit} before all was searched; narrow `path` or `include`)"
            );
        }
        if let Some(line) = self.sight.left_out() {
            let _ = write!(out, "{gap}{line}");
        }
        if self.unreadable > 0 {
            let places = text::count(self.unreadable, "file or directory", "files or directories");
            let _ = write!(out, "{gap}({places} could not be searched)");
        }
        out
    }
}

/// Collects matching lines until there is no more room.
struct Lines {
    room: usize,
    found: Vec<(u64, String)>,
    more: bool,
    binary: bool,
}

impl Sink for Lines {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        if self.found.len() >= self.room {
            self.more = true;
            return Ok(false);
        }
        self.found.push((found.line_number().unwrap_or_default(), cut(found.bytes())));
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> io::Result<bool> {
        self.binary = true;
        Ok(false)
    }
}

fn cut(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // No character is longer than four bytes, so this holds all columns that are shown.
    let part = line.get(..COLUMNS * 4).unwrap_or(line);
    let text = String::from_utf8_lossy(part);
    let mut shown: String = text.chars().take(COLUMNS).collect();
    if part.len() < line.len() || text.chars().nth(COLUMNS).is_some() {
        shown.push('…');
    }
    shown
}
