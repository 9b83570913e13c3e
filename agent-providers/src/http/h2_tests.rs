//! HTTP/2 streams that a service resets, and connections that go away. The frames are written by hand on a loopback
//! listener. A caller's client speaks HTTP/2 over TLS only; here it does without.

use std::sync::Arc;

use entourage_runtime::reply::{Assembled, Assembler};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

use super::*;
use crate::{
    openai_chat::{Dialect, OpenAiChatDecoder},
    stream::Deltas,
};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

/// The flag `END_STREAM`, and `ACK` of settings.
const LAST: u8 = 1;
const END_HEADERS: u8 = 4;

const NO_ERROR: u32 = 0;
const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;
const ENHANCE_YOUR_CALM: u32 = 11;

/// An action of the server once it has a request.
#[derive(Debug, Clone, Copy)]
enum Act {
    /// Sends status 200.
    Head,
    Say(&'static str),
    /// Sends the last piece of the body.
    Last(&'static str),
    AwaitText,
    Reset(u32),
    /// Announces the last stream that is still served, and the reason.
    GoAway(u32, u32),
    Close,
}

use Act::{AwaitText, Close, GoAway, Head, Last, Reset, Say};

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The next frame: kind, flags and stream.
async fn next(stream: &mut TcpStream) -> Option<(u8, u8, u32)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut payload).await.ok()?;
    Some((head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]])))
}

/// Answers the requests, over all connections, with one of `answers` each.
async fn serve(listener: TcpListener, answers: Vec<Vec<Act>>, text: Arc<Notify>) {
    let mut answers = answers.into_iter();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_exact(&mut [0; 24]).await.unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        while let Some((kind, flags, id)) = next(&mut stream).await {
            match kind {
                SETTINGS if flags & LAST == 0 => {
                    stream.write_all(&frame(SETTINGS, LAST, 0, &[])).await.unwrap();
                }
                DATA | HEADERS if flags & LAST != 0 => {
                    let acts = answers.next().expect("no answer is left");
                    if !perform(&mut stream, id, acts, &text).await {
                        break;
                    }
                }
                _ => {}
            }
        }
    }
}

/// Performs the actions. Returns true if the connection stays open.
async fn perform(stream: &mut TcpStream, id: u32, acts: Vec<Act>, text: &Notify) -> bool {
    for act in acts {
        let bytes = match act {
            Head => frame(HEADERS, END_HEADERS, id, &[0x88]),
            Say(body) => frame(DATA, 0, id, body.as_bytes()),
            Last(body) => frame(DATA, LAST, id, body.as_bytes()),
            Reset(code) => frame(RST_STREAM, 0, id, &code.to_be_bytes()),
            GoAway(last, code) => frame(GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat()),
            AwaitText => {
                text.notified().await;
                continue;
            }
            Close => return false,
        };
        if stream.write_all(&bytes).await.is_err() {
            return false;
        }
    }
    true
}

const HELLO: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"}}]}\n\n";
const STOP: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

/// The text received, and the end of the reply.
async fn call(answers: &[&[Act]]) -> (String, Result<Assembled>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    let text = Arc::new(Notify::new());
    let answers = answers.iter().map(|acts| acts.to_vec()).collect();
    let server = tokio::spawn(serve(listener, answers, Arc::clone(&text)));
    let settings = Settings { base_url, vendor: "test".to_owned(), h2: true, ..Settings::default() };
    let endpoint = Endpoint::new(settings).unwrap();
    let mut said = String::new();
    let ended = async {
        let reply = endpoint.post(Target::path(&["chat"]), b"{}".to_vec(), &CallContext::new()).await?;
        let mut deltas = Deltas::new(reply, OpenAiChatDecoder::new(Dialect::COMMON), []);
        let mut assembler = Assembler::default();
        while let Some(delta) = deltas.next().await {
            let delta = delta?;
            if let Delta::Text(piece) = &delta {
                said.push_str(piece);
                text.notify_one();
            }
            assembler.push(&delta)?;
        }
        assembler.finish()
    }
    .await;
    server.abort();
    (said, ended)
}

#[tokio::test]
async fn a_good_reply_over_http2_is_read() {
    let (text, ended) = call(&[&[Head, Say(HELLO), Say(STOP), Last(DONE)]]).await;
    assert_eq!((text.as_str(), ended.is_ok()), ("Hello", true), "{ended:?}");
}

#[tokio::test]
async fn a_stream_that_is_reset_before_its_answer_may_be_tried_again() {
    for code in [1, INTERNAL_ERROR, CANCEL, ENHANCE_YOUR_CALM] {
        for acts in [vec![Reset(code)], vec![GoAway(0, INTERNAL_ERROR)], vec![Close]] {
            let (_, ended) = call(&[&acts]).await;
            let error = ended.unwrap_err();
            let got = (error.kind(), error.retry());
            assert_eq!(got, (ErrorKind::Transport, RetryStatus::Temporary), "{acts:?}: {error:?}");
        }
    }
}

/// The service reports that it did not process the request.
#[tokio::test]
async fn a_request_that_was_refused_unseen_is_sent_again() {
    let good: &[Act] = &[Head, Say(HELLO), Say(STOP), Last(DONE)];
    for refused in [&[Reset(REFUSED_STREAM)][..], &[GoAway(0, NO_ERROR)]] {
        let (text, ended) = call(&[refused, good]).await;
        assert_eq!((text.as_str(), ended.is_ok()), ("Hello", true), "{refused:?}: {ended:?}");
    }
}

#[tokio::test]
async fn a_reset_in_the_middle_of_a_reply_may_be_tried_again() {
    for end in [
        &[Reset(INTERNAL_ERROR)][..],
        &[Reset(ENHANCE_YOUR_CALM)],
        // These two end the body silently; only the missing end of the reply shows it.
        &[Reset(CANCEL)],
        &[Reset(NO_ERROR)],
        &[GoAway(0, INTERNAL_ERROR), Close],
        &[Close],
    ] {
        let acts = [&[Head, Say(HELLO), AwaitText][..], end].concat();
        let (text, ended) = call(&[&acts]).await;
        let error = ended.unwrap_err();
        let kinds = [ErrorKind::Transport, ErrorKind::Protocol];
        assert!(kinds.contains(&error.kind()), "{end:?}: {error:?}");
        assert_eq!((error.retry(), text.as_str()), (RetryStatus::Temporary, "Hello"), "{end:?}: {error:?}");
        assert!(error.message().contains("broke off"), "{end:?}: {error}");
    }
}

#[tokio::test]
async fn a_service_that_goes_away_may_finish_the_reply_first() {
    // The server keeps reading: a connection that is closed over unread bytes is reset.
    let acts = [Head, Say(HELLO), AwaitText, GoAway(1, NO_ERROR), Say(STOP), Last(DONE)];
    let (text, ended) = call(&[&acts]).await;
    assert_eq!((text.as_str(), ended.is_ok()), ("Hello", true), "{ended:?}");
}

#[tokio::test]
async fn a_reset_after_the_end_of_a_reply_loses_nothing() {
    for end in [&[Reset(INTERNAL_ERROR)][..], &[Reset(NO_ERROR)], &[GoAway(0, INTERNAL_ERROR)], &[Close]] {
        for said in [&[Say(STOP)][..], &[Say(STOP), Say(DONE)]] {
            let acts = [&[Head, Say(HELLO)], said, &[AwaitText], end].concat();
            let (text, ended) = call(&[&acts]).await;
            assert_eq!((text.as_str(), ended.is_ok()), ("Hello", true), "{acts:?}: {ended:?}");
        }
    }
}
