//! Messages of the protocol as frames: a header with the length, and JSON.

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

use super::wire::plain;

/// Most bytes of one message.
pub(super) const LARGEST: usize = 16 << 20;
/// Most bytes of a line before a message, and of all lines between two messages.
const LINE: usize = 4 << 10;
const BETWEEN: usize = 64 << 10;

/// The messages that a server writes.
#[derive(Debug)]
pub(super) struct Frames<R>(BufReader<R>);

impl<R: AsyncRead + Unpin> Frames<R> {
    pub(super) fn of(reader: R) -> Self {
        Self(BufReader::with_capacity(64 << 10, reader))
    }

    /// Returns the content of the next message. Lines before it that are no header are passed over, since programs that
    /// start servers print some.
    ///
    /// # Errors
    /// The reason that there is none.
    pub(super) async fn next(&mut self) -> Result<Vec<u8>, String> {
        let length = self.length().await?;
        if length > LARGEST {
            return Err("it sent a message of more than 16 MiB".to_owned());
        }
        // Grows with what comes, since the length may be a lie.
        let mut content = Vec::new();
        let limit = u64::try_from(length).unwrap_or(u64::MAX);
        let read = (&mut self.0).take(limit).read_to_end(&mut content).await;
        match read {
            Ok(read) if read == length => Ok(content),
            Ok(_) => Err("it ended".to_owned()),
            Err(error) => Err(format!("its output cannot be read: {error}")),
        }
    }

    /// Reads a header.
    async fn length(&mut self) -> Result<usize, String> {
        let (mut length, mut between) = (None, 0_usize);
        let most = u64::try_from(LINE).unwrap_or(u64::MAX);
        loop {
            let mut line = Vec::new();
            let read = (&mut self.0).take(most).read_until(b'\n', &mut line).await;
            let read = read.map_err(|error| format!("its output cannot be read: {error}"))?;
            if read == 0 {
                return Err("it ended".to_owned());
            }
            between = between.saturating_add(read);
            if between > BETWEEN {
                return Err("its output is none of a language server: there is no header".to_owned());
            }
            let line = String::from_utf8_lossy(&line);
            let line = line.trim();
            match (line.is_empty(), length) {
                (true, Some(length)) => return Ok(length),
                (true, None) => {}
                (false, before) => {
                    let now = announced(line)?;
                    if before.is_some() && now.is_some() && now != before {
                        return Err("it sent a message of two lengths".to_owned());
                    }
                    length = now.or(before);
                }
            }
        }
    }
}

/// The length that a line of a header announces; `None` if it is another line.
fn announced(line: &str) -> Result<Option<usize>, String> {
    let Some((name, value)) = line.split_once(':') else { return Ok(None) };
    if !name.trim().eq_ignore_ascii_case("content-length") {
        return Ok(None);
    }
    let length = value.trim().parse();
    length.map(Some).map_err(|_| format!("it sent a message of the length `{}`", plain(value, 40)))
}

/// A message as it is sent.
pub(super) fn framed(message: &Value) -> Vec<u8> {
    let content = message.to_string();
    format!("Content-Length: {}\r\n\r\n{content}", content.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    async fn read(bytes: &[u8]) -> (Vec<String>, String) {
        let (mut frames, mut all) = (Frames::of(bytes), Vec::new());
        loop {
            match frames.next().await {
                Ok(content) => all.push(String::from_utf8(content).unwrap()),
                Err(reason) => return (all, reason),
            }
        }
    }

    #[tokio::test]
    async fn ce02_messages_are_read_whatever_stands_between_them() {
        let mut bytes =
            b"npm WARN old\n\nContent-Type: x\r\ncontent-length:2\r\nContent-Type: y\r\n\r\n{}".to_vec();
        bytes.extend(framed(&json!({"a": "é"})));
        let (all, reason) = read(&bytes).await;
        assert_eq!((all.len(), all[0].as_str(), all[1].as_str()), (2, "{}", r#"{"a":"é"}"#));
        assert_eq!(reason, "it ended");
    }

    #[tokio::test]
    async fn ce02_frames_are_bounded() {
        let endless = b"x".repeat(1 << 20);
        for (bytes, part) in [
            (&b"Content-Length: 17000000\r\n\r\n"[..], "more than 16 MiB"),
            (b"Content-Length: 99999999999999999999999\r\n\r\n", "of the length"),
            (b"Content-Length: -1\r\n\r\n", "of the length"),
            (b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x", "of two lengths"),
            (b"Content-Length: \xe2\x80\xae1\x1b\r\n\r\n", "of the length `1`"),
            (b"Content-Length: \xff\r\n\r\n", "of the length"),
            (b"Content-Length: 9\r\n\r\n{}", "it ended"),
            (b"Content-Length: 9\r\n", "it ended"),
            (&endless, "no header"),
            (&b"\n".repeat(100_000), "no header"),
        ] {
            let (all, reason) = read(bytes).await;
            assert!(all.is_empty() && reason.contains(part), "{part}: {reason}");
        }
    }
}
