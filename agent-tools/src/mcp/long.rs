//! Lines of a server over pipes that are too long for a message.
//!
//! The library below leaves such a line out and tells nobody, so a call would wait for an answer that has come. Here
//! the answer is followed by an error with its id. Of another line nobody knows who waits for it: the connection ends.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, ReadBuf};

/// Code of the error for an answer that is too long.
pub(super) const CODE: i32 = -32_016;

/// Bytes of a line in which its id stands.
const HEAD: usize = 128;

/// The output of a server.
#[derive(Debug)]
pub(super) struct Lines<R> {
    inner: R,
    /// Most bytes of a line, its end included.
    most: usize,
    length: usize,
    head: Vec<u8>,
    /// What is read next.
    next: Vec<u8>,
    is_over: bool,
}

impl<R> Lines<R> {
    pub(super) fn new(inner: R, most: usize) -> Self {
        Self { inner, most, length: 0, head: Vec::new(), next: Vec::new(), is_over: false }
    }

    /// Takes note of a part of a line. Returns true at the end of one that is too long.
    fn pass(&mut self, part: &[u8]) -> bool {
        let room = HEAD.saturating_sub(self.head.len());
        self.head.extend(part.iter().take(room));
        self.length = self.length.saturating_add(part.len());
        part.ends_with(b"\n") && self.length > self.most
    }

    /// Takes note of what was read. Returns the number of its bytes that come before an error.
    fn look(&mut self, read: &[u8]) -> Option<usize> {
        let (mut seen, mut cut) = (0_usize, None);
        for part in read.split_inclusive(|byte| *byte == b'\n') {
            seen = seen.saturating_add(part.len());
            if self.pass(part) {
                // There is no second one: it would be longer than what is read at once.
                cut = cut.or(Some(seen));
                match refusal(&self.head, self.most) {
                    Some(error) => self.next.extend(error.bytes()),
                    None => self.is_over = true,
                }
            }
            if part.ends_with(b"\n") {
                self.length = 0;
                self.head.clear();
            }
        }
        cut
    }
}

/// Returns the error in place of an answer that begins like this; `None` if it is none of ours.
fn refusal(head: &[u8], most: usize) -> Option<String> {
    let head = String::from_utf8_lossy(head);
    let key = |text: &str, key: &str| Some(text.trim_start().strip_prefix(key)?.trim_start().to_owned());
    let value = |text: &str, name: &str| key(&key(text, &format!("\"{name}\""))?, ":");
    let mut rest = key(&head, "{")?;
    if let Some(after) = value(&rest, "jsonrpc") {
        rest = key(&key(&after, "\"2.0\"")?, ",")?;
    }
    rest = value(&rest, "id")?;
    let id: u64 = rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
    // A request of the server has an id of its own.
    let rest = key(rest.trim_start_matches(|c: char| c.is_ascii_digit()), ",")?;
    if value(&rest, "result").is_none() && value(&rest, "error").is_none() {
        return None;
    }
    let text = format!("its answer has more than {} MiB", most >> 20);
    Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{CODE},"message":"{text}"}}}}"#) + "\n")
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
        for head in ["\"jsonrpc\":\"2.0\",\"id\":7", " \"jsonrpc\" : \"2.0\" , \"id\" : 7 ", "\"id\":7"] {
            for kind in ["result", "error"] {
                let answer = format!("{{{head},\"{kind}\":\"{long}\"}}\n");
                let error = format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":7,\"error\":{{\"code\":{CODE},\"message\":\"its answer has more than 0 MiB\"}}}}\n"
                );
                let lines = [short, &answer, short, short].concat();
                assert_eq!(read(&lines).await, [short, &answer, &error, short, short].concat());
            }
        }
    }

    #[tokio::test]
    async fn another_line_that_is_too_long_ends_the_connection() {
        let long = "x".repeat(64);
        let short = "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n";
        for line in [
            format!("{{\"id\":7,\"method\":\"{long}\",\"result\":1}}\n"),
            format!("{{\"result\":\"{long}\",\"id\":7}}\n"),
            format!("{{\"id\":\"7\",\"result\":\"{long}\"}}\n"),
            format!("{{\"id\":-7,\"result\":\"{long}\"}}\n"),
            format!("{long}\u{fffd}\n"),
        ] {
            assert_eq!(read(&[short, &line, short].concat()).await, [short, &line].concat());
        }
        // Nothing is said of a line that never ends.
        assert_eq!(read(&long).await, long);
    }
}
