//! Looks for a model server on this machine: one small blocking request, for loopback only.
//!
//! The async client cannot serve a synchronous constructor, and a blocking one would start a runtime of its own.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::models::choose;

const WAIT: Duration = Duration::from_millis(200);

/// Most bytes of an answer that are read.
const MAX_ANSWER: u64 = 1 << 20;

/// The answer of a model server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// One of its models, if it named any.
    pub(super) model: Option<Arc<str>>,
}

/// Asks `address` for its models; `None` if nothing listens there, or no model server does. Takes at most 200 ms to
/// connect and about 400 ms to read.
pub(super) fn ask(address: SocketAddr) -> Option<Answer> {
    if !address.ip().is_loopback() {
        return None;
    }
    let mut stream = TcpStream::connect_timeout(&address, WAIT).ok()?;
    stream.set_read_timeout(Some(WAIT)).ok()?;
    stream.set_write_timeout(Some(WAIT)).ok()?;
    // HTTP/1.0, so that the answer comes in one piece and the connection ends with it. And one write, so that no server
    // answers a part of the request.
    let request = format!("GET /v1/models HTTP/1.0\r\nHost: {address}\r\nAccept: application/json\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    read_answer(&read_all(&mut stream))
}

/// Reads until the end, the bound or the deadline.
fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let end = Instant::now() + 2 * WAIT;
    let mut answer = Vec::new();
    let mut limited = stream.take(MAX_ANSWER);
    let mut piece = [0; 4_096];
    while Instant::now() < end {
        match limited.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(n) => answer.extend(piece.iter().take(n)),
        }
    }
    answer
}

fn read_answer(answer: &[u8]) -> Option<Answer> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut status = head.split_ascii_whitespace();
    let http = status.next()?.starts_with("HTTP/1.");
    if !http || status.next()? != "200" {
        return None;
    }
    // Between the outer braces: a server may chunk the body without being asked to.
    let (_, rest) = body.split_once('{')?;
    let (inner, _) = rest.rsplit_once('}')?;
    let list = format!("{{{inner}}}");
    let model = choose(list.as_bytes());
    (model.is_some() || list.contains("\"data\"") || list.contains("\"models\"")).then_some(Answer { model })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_model_servers_count() {
        let model = |answer: &str| {
            read_answer(answer.as_bytes()).map(|answer| answer.model.as_deref().map(str::to_owned))
        };
        let ok = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n";
        assert_eq!(model(&format!("{ok}{{\"data\":[{{\"id\":\"q\"}}]}}")), Some(Some("q".into())));
        assert_eq!(
            model(&format!("{ok}17\r\n{{\"data\":[{{\"id\":\"q\"}}]}}\r\n0\r\n\r\n")),
            Some(Some("q".into()))
        );
        assert_eq!(model(&format!("{ok}{{\"object\":\"list\",\"data\":null}}")), Some(None));
        for other in [ok, "", "HTTP/1.1 404 Not Found\r\n\r\n{\"data\":[]}", "SSH-2.0\r\n\r\n{}"] {
            assert_eq!(model(other), None, "{other}");
        }
        assert_eq!(model(&format!("{ok}<html>{{}}</html>")), None);
        assert_eq!(ask(SocketAddr::from(([192, 0, 2, 1], 80))), None);
    }
}
