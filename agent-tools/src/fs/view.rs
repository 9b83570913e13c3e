//! `view`: lines of a text file, or an image.
//!
//! Reading stops after the section: a file of any size costs the section and the lines before it.

use std::{
    fmt::Write as _,
    io::{self, BufRead, BufReader, Read},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use entourage_core::{
    message::{Media, MediaSource},
    tool::{ToolError, ToolOutput},
};
use memchr::{memchr, memchr_iter};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{
    seen::{Known, Stamp, digest_of},
    sight::Sight,
    sniff,
    stop::{Halt, Stop, StopReader, halted},
    text,
    tool::Operation,
};

const LINES: u64 = 200;
/// Most bytes of a line that are shown.
const LINE: usize = 2_000;
/// Most bytes of all lines shown together.
const SECTION: usize = 200 << 10;
/// Most bytes of the result, numbers included: below the limit of a run for one result.
const RESULT: usize = 240 << 10;
const IMAGE: u64 = 5 << 20;
/// Most bytes that are skipped to find the end of a line, since one line could be the whole file.
const LONG_LINE: usize = 16 << 20;
const BUFFER: usize = 64 << 10;
/// Most bytes of a file that is read whole, so that a change of it is noticed by its content.
const READ_WHOLE: u64 = 1 << 20;

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Arguments {
    /// The file, relative to the workspace's root.
    path: String,
    /// Number of lines to skip. Default: 0, which begins at line 1.
    #[serde(default)]
    offset: Option<u64>,
    /// Maximum of lines to show. Default: 200.
    #[serde(default)]
    limit: Option<u64>,
}

#[derive(Debug)]
pub(super) struct View;

impl Operation for View {
    type Arguments = Arguments;
    const NAME: &'static str = "view";
    const DESCRIPTION: &'static str = "Shows the lines of a text file with their numbers, 200 at a time: `offset` and \
        `limit` choose which. Lines are cut at 2,000 bytes. Images (PNG, JPEG, GIF, WebP) of at most 5 MiB are shown \
        as images. For a directory use `ls`.";
    const TIME: Duration = Duration::from_secs(20);
    const WITHOUT_PATH: Option<&'static str> = None;

    fn run(sight: &Sight<'_>, arguments: Arguments, stop: &Stop) -> Result<ToolOutput, ToolError> {
        let offset = arguments.offset.unwrap_or(0);
        let limit = arguments.limit.unwrap_or(LINES);
        if limit == 0 {
            return Err(ToolError::tell("`limit` is 0, so nothing would be shown; give 1 or more"));
        }
        let place = sight.workspace().place(&arguments.path)?;
        let name = text::echo(&text::show(place.as_path()));
        if sight.look(&place)?.is_dir() {
            return Err(ToolError::tell(format!("`{name}` is a directory; list it with `ls`")));
        }
        let start = sight.start(&place)?;
        let opened = sight.open_named(&start).map_err(|error| sight.explain(&error, &place))?;
        let Some(file) = opened else {
            return Err(ToolError::tell(format!(
                "`{name}` is a pipe, a socket or a device, which cannot be viewed"
            )));
        };
        let metadata = file.metadata().map_err(|error| sight.explain(&error, &place))?;
        let (stamp, size) = (Stamp::of(&metadata), metadata.len());
        let seen = |known| sight.saw(&sight.resolved(&place), known);
        if size > READ_WHOLE {
            let shown = Section::new(&name, file, stop).show(size, offset, limit)?;
            seen(Known::Facts(stamp));
            return Ok(shown);
        }
        // What is shown and what is remembered must be the same content.
        let mut content = Vec::new();
        let limited = StopReader { inner: file, stop }.take(READ_WHOLE + 1).read_to_end(&mut content);
        limited.map_err(|error| fault(&name, stop, &error))?;
        let shown = Section::new(&name, content.as_slice(), stop).show(size, offset, limit)?;
        // It may have grown since it was opened.
        let whole = content.len() as u64 <= READ_WHOLE;
        seen(if whole { Known::Content(digest_of(&content)) } else { Known::Facts(stamp) });
        Ok(shown)
    }
}

fn fault(name: &str, stop: &Stop, error: &io::Error) -> ToolError {
    match stop.check() {
        Err(halt @ Halt::Dropped) => halted(halt, stop),
        Err(Halt::TimeOver) => ToolError::tell(format!(
            "stopped after {}: the lines lie too far into `{name}`; view an earlier part or search it with `grep`",
            stop.limit()
        )),
        Ok(()) => ToolError::tell(format!("`{name}` cannot be read: {error}")),
    }
}

struct Section<'a, R> {
    name: &'a str,
    reader: BufReader<StopReader<'a, R>>,
    stop: &'a Stop,
}

/// A line without its end.
struct Line {
    bytes: Vec<u8>,
    /// True if it was longer than the bytes kept.
    cut: bool,
    /// True if its end was not found within the bytes that may be skipped.
    endless: bool,
}

impl<'a, R: Read> Section<'a, R> {
    fn new(name: &'a str, file: R, stop: &'a Stop) -> Self {
        let reader = BufReader::with_capacity(BUFFER, StopReader { inner: file, stop });
        Self { name, reader, stop }
    }

    fn show(mut self, size: u64, offset: u64, limit: u64) -> Result<ToolOutput, ToolError> {
        let head = self.head()?;
        match sniff::binary(&head) {
            Some(mime) => self.binary(mime, size),
            None => self.lines(offset, limit),
        }
    }

    fn fault(&self, error: &io::Error) -> ToolError {
        fault(self.name, self.stop, error)
    }

    fn buffer(&mut self) -> Result<&[u8], ToolError> {
        if let Err(error) = self.reader.fill_buf() {
            return Err(self.fault(&error));
        }
        Ok(self.reader.buffer())
    }

    /// The first bytes, which stay unread.
    fn head(&mut self) -> Result<Vec<u8>, ToolError> {
        let buffer = self.buffer()?;
        Ok(buffer.get(..sniff::HEAD).unwrap_or(buffer).to_vec())
    }

    fn binary(mut self, mime: &'static str, size: u64) -> Result<ToolOutput, ToolError> {
        let name = self.name;
        let bytes = text::count(usize::try_from(size).unwrap_or(usize::MAX), "byte", "bytes");
        if !mime.starts_with("image/") {
            return Err(ToolError::tell(format!(
                "`{name}` is no UTF-8 text ({mime}, {bytes}), so it cannot be viewed"
            )));
        }
        if !sniff::is_shown(mime) {
            return Err(ToolError::tell(format!(
                "`{name}` is an image ({mime}, {bytes}) of a type that cannot be shown; PNG, JPEG, GIF and WebP can"
            )));
        }
        let mut image = Vec::new();
        if size <= IMAGE {
            let read = self.reader.by_ref().take(IMAGE + 1).read_to_end(&mut image);
            read.map_err(|error| self.fault(&error))?;
        }
        // It may have grown since it was opened.
        if size > IMAGE || image.len() as u64 > IMAGE {
            return Err(ToolError::tell(format!(
                "`{name}` is an image ({mime}, {bytes}); at most 5 MiB can be shown"
            )));
        }
        let mut media = Media::new(mime, MediaSource::Base64(STANDARD.encode(&image)));
        media.name = Some(name.to_owned());
        let note = format!("`{name}` is an image ({mime}, {bytes}):");
        Ok(ToolOutput::text(note).with_media(media).with_metadata(json!({ "path": name, "mime": mime })))
    }

    fn lines(mut self, offset: u64, limit: u64) -> Result<ToolOutput, ToolError> {
        if self.buffer()?.is_empty() {
            return Ok(ToolOutput::text(format!("`{}` is empty", self.name)));
        }
        let skipped = self.skip(offset)?;
        if skipped < offset {
            let lines = text::count(usize::try_from(skipped).unwrap_or(usize::MAX), "line", "lines");
            return Err(ToolError::tell(format!("`{}` has {lines}; give a lower `offset`", self.name)));
        }
        let mut shown = Shown { number: offset, ..Shown::default() };
        while shown.lines < limit {
            let Some(line) = self.next_line(LINE, LONG_LINE)? else { break };
            shown.push(&line, self.name)?;
            if line.endless {
                return Ok(shown.finish(self.name, Rest::Unreachable));
            }
        }
        if shown.lines == 0 {
            let lines = text::count(usize::try_from(offset).unwrap_or(usize::MAX), "line", "lines");
            return Err(ToolError::tell(format!("`{}` has {lines}; give a lower `offset`", self.name)));
        }
        let rest = if self.buffer()?.is_empty() { Rest::None } else { Rest::More };
        Ok(shown.finish(self.name, rest))
    }

    /// Skips lines, and returns how many there were. A last line need not have an end.
    fn skip(&mut self, lines: u64) -> Result<u64, ToolError> {
        let (mut left, mut is_open) = (lines, false);
        while left > 0 {
            let buffer = self.buffer()?;
            let Some(last) = buffer.last() else {
                left -= u64::from(is_open);
                break;
            };
            is_open = *last != b'\n';
            let ends = memchr_iter(b'\n', buffer).count() as u64;
            let used = if ends < left {
                buffer.len()
            } else {
                // The end of the last line to skip lies in this buffer.
                let before = usize::try_from(left - 1).unwrap_or(usize::MAX);
                memchr_iter(b'\n', buffer).nth(before).map_or(buffer.len(), |end| end + 1)
            };
            left = left.saturating_sub(ends);
            self.reader.consume(used);
        }
        Ok(lines - left)
    }

    /// The next line. Keeps `keep` bytes of it and skips at most about `pass`; `None` at the end of the file.
    fn next_line(&mut self, keep: usize, pass: usize) -> Result<Option<Line>, ToolError> {
        let mut line = Line { bytes: Vec::new(), cut: false, endless: false };
        let mut passed = 0_usize;
        loop {
            let buffer = self.buffer()?;
            if buffer.is_empty() {
                break if passed == 0 { Ok(None) } else { Ok(Some(line)) };
            }
            let end = memchr(b'\n', buffer);
            let part = buffer.get(..end.unwrap_or(buffer.len())).unwrap_or_default();
            let room = keep.saturating_sub(line.bytes.len());
            line.bytes.extend_from_slice(part.get(..room).unwrap_or(part));
            // A trailing carriage return is not text.
            line.cut |= part.len() > room && part.get(room..) != Some(b"\r");
            let used = part.len() + usize::from(end.is_some());
            passed = passed.saturating_add(used);
            self.reader.consume(used);
            if end.is_some() {
                break Ok(Some(line));
            }
            if passed > pass {
                line.endless = true;
                break Ok(Some(line));
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Rest {
    None,
    More,
    /// The section lies behind a line too long to skip.
    Unreachable,
}

#[derive(Default)]
struct Shown {
    text: String,
    /// Number of the last line shown, from 1.
    number: u64,
    lines: u64,
    /// Bytes that count towards the section's limit.
    bytes: usize,
    cut: usize,
}

impl Shown {
    fn push(&mut self, line: &Line, name: &str) -> Result<(), ToolError> {
        self.number += 1;
        self.lines += 1;
        let mut bytes = line.bytes.as_slice();
        if self.number == 1 {
            bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
        }
        let content = match std::str::from_utf8(bytes) {
            Ok(content) if !content.contains('\0') => content,
            // The cut may split a character.
            Err(error) if line.cut && error.error_len().is_none() => bytes
                .get(..error.valid_up_to())
                .and_then(|valid| std::str::from_utf8(valid).ok())
                .unwrap_or_default(),
            _ => {
                return Err(ToolError::tell(format!(
                    "`{name}` is no UTF-8 text from line {} on (application/octet-stream), so it cannot be viewed there",
                    self.number
                )));
            }
        };
        let content = content.strip_suffix('\r').unwrap_or(content);
        self.bytes += content.len() + 1;
        if self.bytes > SECTION || self.text.len() > RESULT {
            return Err(ToolError::tell(format!(
                "this section of `{name}` is larger than 200 KiB; view less of it with `offset` and `limit`"
            )));
        }
        let mark = if line.cut { "…" } else { "" };
        self.cut += usize::from(line.cut);
        let _ = writeln!(self.text, "{:>6}\t{content}{mark}", self.number);
        Ok(())
    }

    fn finish(mut self, name: &str, rest: Rest) -> ToolOutput {
        if self.cut > 0 {
            let lines = text::count(self.cut, "line was", "lines were");
            let _ = writeln!(self.text, "({lines} cut at 2,000 bytes)");
        }
        let _ = match rest {
            Rest::None => Ok(()),
            Rest::More => writeln!(self.text, "(more lines follow; go on with offset {})", self.number),
            Rest::Unreachable => {
                writeln!(
                    self.text,
                    "(line {} is longer than 16 MiB; what follows it is not shown)",
                    self.number
                )
            }
        };
        let metadata =
            json!({ "path": name, "first_line": self.number - self.lines + 1, "lines": self.lines });
        ToolOutput::text(self.text.trim_end_matches('\n')).with_metadata(metadata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(file: impl Read, offset: u64, limit: u64) -> Result<String, String> {
        let stop = Stop::after(Duration::from_secs(60));
        match Section::new("f", file, &stop).lines(offset, limit) {
            Ok(output) => Ok(output.content[0].as_text()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// A reader that never ends: a test that ends shows that the reading is bounded.
    struct Endless(&'static [u8]);

    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            buffer.iter_mut().zip(self.0.iter().cycle()).for_each(|(to, from)| *to = *from);
            Ok(buffer.len() / self.0.len() * self.0.len())
        }
    }

    #[test]
    fn cx09_a_file_without_end_costs_what_is_shown() {
        let shown = lines(Endless(b"abc\n"), 3, 2).unwrap();
        assert_eq!(shown, "     4\tabc\n     5\tabc\n(more lines follow; go on with offset 5)");
        let shown = lines(Endless(b"x"), 0, 200).unwrap();
        assert!(shown.contains("line 1 is longer than 16 MiB"), "{}", shown.len());
        assert!(shown.len() < 2_200, "{}", shown.len());
        let error = lines(Endless(b"\n"), 0, u64::MAX).unwrap_err();
        assert!(error.contains("larger than 200 KiB") && error.contains("offset"), "{error}");
    }

    #[test]
    fn cx09_ends_of_lines_wherever_the_buffer_ends() {
        /// A reader that returns one byte per read.
        struct Drip(&'static [u8]);
        impl Read for Drip {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let n = self.0.len().min(1);
                buffer[..n].copy_from_slice(&self.0[..n]);
                self.0 = &self.0[n..];
                Ok(n)
            }
        }
        for text in [&b"\xef\xbb\xbfa\r\n\r\n\xc3\xa9"[..], b"a\n\n\xc3\xa9\n"] {
            let expected = "     1\ta\n     2\t\n     3\té";
            assert_eq!(lines(text, 0, 9).unwrap(), expected);
            // A byte order mark is recognised once the line is whole.
            assert_eq!(lines(Drip(text), 0, 9).unwrap(), expected);
            assert_eq!(lines(text, 2, 9).unwrap(), "     3\té");
            let error = lines(text, 3, 9).unwrap_err();
            assert!(error.contains("has 3 lines"), "{error}");
            assert_eq!(lines(text, 99, 9).unwrap_err(), error);
        }
    }
}
