//! Lines of a server over pipes that are too long for a message.
//!
//! Such a line is left out by its reader, so a call would wait for an answer that has come. Here the answer is followed
//! by an error with its id. If it is not known who waits for a line, the connection ends.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, ReadBuf};

/// Code of the error for an answer that is too long.
pub(super) const CODE: i32 = -32_016;

/// The short members of an answer.
const ID: &str = "\"id\"";
const VERSION: &str = "\"jsonrpc\"";
const NUMBER: &str = "\"2.0\"";

/// Bytes of a line, at its beginning or at its end, in which its id stands.
const ENDS: usize = 128;

/// The output of a server.
#[derive(Debug)]
pub(super) struct Lines<R> {
    inner: R,
    /// Most bytes of a line, its end included.
    most: usize,
    length: usize,
    head: Vec<u8>,
    tail: Vec<u8>,
    /// The bytes that are read next.
    next: Vec<u8>,
    is_over: bool,
}

impl<R> Lines<R> {
    pub(super) fn new(inner: R, most: usize) -> Self {
        Self { inner, most, length: 0, head: Vec::new(), tail: Vec::new(), next: Vec::new(), is_over: false }
    }

    /// Takes note of a part of a line. Returns true at the end of one that is too long.
    fn pass(&mut self, part: &[u8]) -> bool {
        let room = ENDS.saturating_sub(self.head.len());
        self.head.extend(part.iter().take(room));
        self.length = self.length.saturating_add(part.len());
        // Others have no use for their end.
        if self.length > self.most.saturating_sub(ENDS) {
            self.tail.extend(part);
            self.tail.drain(..self.tail.len().saturating_sub(ENDS));
        }
        part.ends_with(b"\n") && self.length > self.most
    }

    /// Takes note of what was read. Returns the number of its bytes that come before an error.
    fn look(&mut self, read: &[u8]) -> Option<usize> {
        let (mut seen, mut cut) = (0_usize, None);
        for part in read.split_inclusive(|byte| *byte == b'\n') {
            seen = seen.saturating_add(part.len());
            if self.pass(part) {
                // There is no second one: it would be longer than what is read at once.
                match Line::of(&self.head, &self.tail) {
                    Line::Asks => {}
                    Line::Answers(id) => {
                        self.next.extend(refusal(id, self.most).bytes());
                        cut = cut.or(Some(seen));
                    }
                    Line::Unknown => {
                        self.is_over = true;
                        cut = cut.or(Some(seen));
                    }
                }
            }
            if part.ends_with(b"\n") {
                self.length = 0;
                self.head.clear();
                self.tail.clear();
            }
        }
        cut
    }
}

/// The kind of a line that is too long.
enum Line {
    /// The answer to the request of this id.
    Answers(u64),
    /// A notice or a request, for which nobody waits here.
    Asks,
    Unknown,
}

impl Line {
    fn of(head: &[u8], tail: &[u8]) -> Self {
        let (head, tail) = (String::from_utf8_lossy(head), String::from_utf8_lossy(tail));
        Self::read(&head, &tail).unwrap_or(Self::Unknown)
    }

    /// Reads the short members at the beginning, in any order, up to the long one. An id after that is among the last
    /// members of the message: only what stands right before the end of the line is sure to be no part of the long one.
    fn read(head: &str, tail: &str) -> Option<Self> {
        let (mut rest, mut first) = (after(head, "{")?, None);
        loop {
            if let Some(version) = value(rest, VERSION) {
                rest = after(after(version, NUMBER)?, ",")?;
            } else if let Some(id) = value(rest, ID).filter(|_| first.is_none()) {
                let end = id.find(|c: char| !c.is_ascii_digit())?;
                let (id, behind) = id.split_at_checked(end)?;
                // One of another form is not ours, and an error would be for nobody.
                first = Some(id.parse().ok()?);
                rest = after(behind, ",")?;
            } else {
                break;
            }
        }
        if value(rest, "\"method\"").is_some() {
            return Some(Self::Asks);
        }
        value(rest, "\"result\"").or_else(|| value(rest, "\"error\""))?;
        first.or_else(|| last_id(tail)).map(Self::Answers)
    }
}

/// Returns the id of the request that a line answers, as far as its beginning and its end tell.
pub(super) fn answered(line: &str) -> Option<u64> {
    match Line::read(line, line) {
        Some(Line::Answers(id)) => Some(id),
        _ => None,
    }
}

/// Returns what follows a token.
fn after<'a>(text: &'a str, token: &str) -> Option<&'a str> {
    Some(text.trim_start().strip_prefix(token)?.trim_start())
}

/// Returns what follows a name and its colon.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    after(after(text, name)?, ":")
}

/// Returns what comes before a name and its colon.
fn before<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let text = text.trim_end().strip_suffix(':')?.trim_end().strip_suffix(name)?.trim_end();
    text.ends_with(',').then_some(text)
}

/// Returns the id, if nothing but the version comes after it in a message.
fn last_id(tail: &str) -> Option<u64> {
    let text = tail.trim_end().strip_suffix('}')?.trim_end();
    let version = text.strip_suffix(NUMBER).and_then(|text| before(text, VERSION));
    let text = version.map_or(Some(text), |text| text.strip_suffix(','))?.trim_end();
    let behind = text.trim_end_matches(|c: char| c.is_ascii_digit());
    let id = text.strip_prefix(behind)?.parse().ok()?;
    before(behind, ID).map(|_| id)
}

/// Returns the error after an answer that is too long.
fn refusal(id: u64, most: usize) -> String {
    let text = format!("its answer has more than {} MiB", most >> 20);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{CODE},"message":"{text}"}}}}"#) + "\n"
}

impl<R: AsyncRead + Unpin> AsyncRead for Lines<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = &mut *self;
        if !this.next.is_empty() {
            let count = this.next.len().min(buf.remaining());
            let now: Vec<_> = this.next.drain(..count).collect();
            buf.put_slice(&now);
            return Poll::Ready(Ok(()));
        }
        if this.is_over {
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        let read = buf.filled().get(before..).unwrap_or_default().to_vec();
        if let Some(cut) = this.look(&read) {
            if !this.is_over {
                this.next.extend(read.into_iter().skip(cut));
            }
            buf.set_filled(before.saturating_add(cut));
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    /// Reads in pieces of all sizes.
    async fn read(lines: &str) -> String {
        let mut all: Option<String> = None;
        for size in 1..60 {
            let mut from = Lines::new(lines.as_bytes(), 64);
            let (mut piece, mut text) = (vec![0; size], Vec::new());
            loop {
                match from.read(&mut piece).await.unwrap() {
                    0 => break,
                    count => text.extend(&piece[..count]),
                }
            }
            let text = String::from_utf8(text).unwrap();
            assert_eq!(*all.get_or_insert_with(|| text.clone()), text, "{size}");
        }
        all.unwrap()
    }

    #[tokio::test]
    async fn an_answer_that_is_too_long_is_followed_by_an_error() {
        let long = "x".repeat(64);
        let short = "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n";
        for head in [
            "\"jsonrpc\":\"2.0\",\"id\":7",
            " \"jsonrpc\" : \"2.0\" , \"id\" : 7 ",
            "\"id\":7",
            "\"id\":7,\"jsonrpc\":\"2.0\"",
        ] {
            for kind in ["result", "error"] {
                let answers = [
                    format!("{{{head},\"{kind}\":\"{long}\"}}\n"),
                    format!("{{\"{kind}\":\"{long}\",{head}}}\r\n"),
                ];
                let error = format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":7,\"error\":{{\"code\":{CODE},\"message\":\"its answer has more than 0 MiB\"}}}}\n"
                );
                for answer in answers {
                    let lines = [short, &answer, short, short].concat();
                    assert_eq!(read(&lines).await, [short, &answer, &error, short, short].concat());
                }
            }
        }
    }

    #[tokio::test]
    async fn another_line_that_is_too_long_ends_the_connection() {
        let long = "x".repeat(64);
        let short = "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n";
        for line in [
            format!("{{\"result\":{{\"a\":\"{long}\",\"id\":7}}}}\n"),
            format!("{{\"result\":{{\"{long}\\\",\\\"id\":7}}\n"),
            format!("{{\"result\":{{\"a\":\"{long}\",\"id\":7,\"jsonrpc\":\"2.0\"}}}}\n"),
            format!("{{\"result\":\"{long}\\\",\\\"id\\\":7,\\\"jsonrpc\\\":\\\"2.0\"}}\n"),
            format!("{{\"id\":\"7\",\"result\":\"{long}\"}}\n"),
            format!("{{\"id\":-7,\"result\":\"{long}\"}}\n"),
            format!("{long}\u{fffd}\n"),
        ] {
            assert_eq!(read(&[short, &line, short].concat()).await, [short, &line].concat());
        }
        // For these nobody waits.
        for line in [
            format!("{{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":\"{long}\"}}\n"),
            format!("{{\"id\":7,\"method\":\"{long}\",\"result\":1}}\n"),
            format!("{{\"method\":\"{long}\",\"id\":7}}\n"),
        ] {
            let lines = [short, &line, short].concat();
            assert_eq!(read(&lines).await, lines);
        }
        // Nothing is said of a line that never ends.
        assert_eq!(read(&long).await, long);
    }
}
