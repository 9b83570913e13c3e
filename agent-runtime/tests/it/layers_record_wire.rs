//! Wire exchanges as a recording keeps them.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, Usage,
    provider::{
        CallContext, Delta, DeltaStream, Finish, FinishReason, Layer, Provider, Request, Restart,
        WireExchange, WireRequest, Wiretap,
    },
};
use entourage_runtime::layers::{Recorder, Replay};
use entourage_runtime::reply::ProviderExt;
use futures_util::stream;
use serde_json::json;

use crate::layers_record::{hear, parsed, request};

/// The script of a provider with a wire for one call.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// Status and body of each exchange, of which the last one counts.
    pub(crate) exchanges: Vec<(u16, Vec<u8>)>,
    pub(crate) deltas: Vec<Delta>,
    pub(crate) refuse: Option<Error>,
    pub(crate) fail: Option<Error>,
}

/// A provider that shows its exchanges to a wiretap.
#[derive(Debug)]
pub(crate) struct Wired(Mutex<VecDeque<Answer>>);

impl Wired {
    pub(crate) fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self(Mutex::new(answers.into_iter().collect()))
    }
}

fn headers(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[async_trait]
impl Provider for Wired {
    fn name(&self) -> &'static str {
        "acme"
    }

    async fn stream(&self, _: Request, cx: &CallContext) -> Result<DeltaStream> {
        let answer = self.0.lock().unwrap().pop_front().unwrap();
        for (status, body) in &answer.exchanges {
            let sent = headers(&[("content-type", "application/json"), ("authorization", "Bearer abc")]);
            let asked = json!({"prompt": "I am ada@example.org", "key_of_life": 42}).to_string();
            let request = WireRequest::post("acme-talk", "/v1/talk", asked.as_bytes())
                .with_query("alt=sse&key=abcd1234efgh")
                .with_headers(&sent)
                .counting_apart(true, false);
            let mut exchange = cx.wiretap.as_ref().unwrap().request(&request);
            // Random ids are hexadecimal, so what is looked for must not be.
            assert!(!format!("{cx:?}{exchange:?}").contains("ada@"), "no content in `Debug`");
            exchange.answer(
                *status,
                &headers(&[
                    ("content-type", "text/event-stream"),
                    ("x-request-id", "r-1"),
                    ("set-cookie", "a=b"),
                ]),
            );
            for piece in body.chunks(3) {
                exchange.body(piece);
            }
        }
        if let Some(error) = answer.refuse {
            return Err(error);
        }
        let items: Vec<_> = answer.deltas.into_iter().map(Ok).chain(answer.fail.map(Err)).collect();
        Ok(Box::pin(stream::iter(items)))
    }
}

fn says(text: &str, usage: Usage) -> Vec<Delta> {
    vec![
        Delta::text(text),
        Delta::Usage(Box::new(usage)),
        Delta::finish(Finish::from_wire(FinishReason::Stop, "end_turn")),
    ]
}

#[tokio::test]
async fn what_crosses_the_wire_is_kept_without_credentials() {
    let mut usage = Usage::new(100, 20);
    usage.cache_read = Some(60);
    let body = "data: {\"text\": \"write to ada@example.org, grüße\"}\n\n";
    let answer = Answer {
        exchanges: vec![(200, body.as_bytes().to_vec())],
        deltas: says("write to ada@example.org, grüße", usage),
        ..Answer::default()
    };
    let binary = Answer {
        exchanges: vec![(502, b"\xff\xfe ada@example.org".to_vec())],
        refuse: Some(Error::new(ErrorKind::Overloaded, "acme: broken").with("status", "502")),
        ..Answer::default()
    };
    let recorder = Recorder::new();
    let layered = (&recorder).layer(Arc::new(Wired::new([answer, binary])));
    hear(&*layered).await;
    hear(&*layered).await;
    let recording = recorder.to_json("wire").unwrap();
    let all = parsed(&recording);
    assert_eq!((&all["protocol"], &all["fidelity"]), (&json!("acme-talk"), &json!("raw")));
    let first = &all["interactions"][0];
    assert_eq!(
        first["request"],
        json!({
            "method": "POST", "path": "/v1/talk", "query": {"alt": "sse", "key": "xxxxxxxxxxxx"},
            "headers": {"content-type": "application/json"},
            "body": {"prompt": "I am xxxxxxxxxxxxxxx", "key_of_life": 42},
        })
    );
    assert_eq!(
        first["response"],
        json!({
            "status": 200, "headers": {"content-type": "text/event-stream", "x-request-id": "r-1"},
            "body": body.replace("ada@example.org", "xxxxxxxxxxxxxxx"), "base64": false,
        })
    );
    // The service leaves cached tokens out, so they are left out again.
    assert_eq!(first["expect"]["usage"]["input_tokens"], 40);
    assert_eq!(first["expect"]["finish_reason"], "end_turn");
    let second = &all["interactions"][1]["response"];
    assert_eq!((&second["status"], &second["base64"]), (&json!(502), &json!(true)));
    assert_eq!(second["body"], "//4geHh4eHh4eHh4eHh4eHh4");
    assert_eq!(all["interactions"][1]["expect"]["error"]["status"], 502);
    assert!(!recording.contains("ada@"));

    let replay = Replay::from_json(&recording).unwrap();
    assert_eq!(replay.complete(request(&["Hi."]), &CallContext::new()).await.unwrap().usage, usage);
}

#[tokio::test]
async fn attempts_that_failed_are_kept_beside_the_one_that_counts() {
    let error = Error::new(ErrorKind::Overloaded, "acme: no room");
    let mut deltas =
        vec![Delta::text("Hel"), Delta::Restart(Box::new(Restart::new(2, error.record(), Duration::ZERO)))];
    deltas.extend(says("Hello.", Usage::new(1, 1)));
    let exchanges = vec![(200, b"broken".to_vec()), (200, b"whole".to_vec())];
    let recorder = Recorder::new();
    let layered = (&recorder).layer(Arc::new(Wired::new([Answer {
        exchanges,
        deltas: deltas.clone(),
        ..Answer::default()
    }])));
    hear(&*layered).await;
    let recording = recorder.to_json("attempts").unwrap();
    let all = parsed(&recording);
    assert_eq!(all["interactions"].as_array().unwrap().len(), 2);
    let first = &all["interactions"][0];
    assert_eq!(first["expect"]["error"]["message"], "acme: no room");
    assert_eq!(first["expect"]["text"], "Hel");
    assert_eq!(first["response"]["body"], "broken");
    assert_eq!(all["interactions"][1]["expect"]["text"], "Hello.");
    assert_eq!(all["expect"]["text"], "Hello.");

    let replay = Replay::from_json(&recording).unwrap();
    assert_eq!(replay.remaining(), 1);
    assert_eq!(hear(&replay).await.0, deltas);
}

#[tokio::test]
async fn a_body_in_which_a_secret_was_cut_is_withheld() {
    let exchanges = vec![(200, b"data: horse\n\ndata: shoe\n\n".to_vec())];
    let mut deltas = vec![Delta::text("horse")];
    deltas.extend(says("shoe", Usage::new(1, 1)));
    let recorder = Recorder::new().secret("horseshoe");
    let layered =
        (&recorder).layer(Arc::new(Wired::new([Answer { exchanges, deltas, ..Answer::default() }])));
    hear(&*layered).await;
    let recording = recorder.to_json("cut").unwrap();
    assert!(!recording.contains("horse") && !recording.contains("shoe"), "{recording}");
    let response = &parsed(&recording)["interactions"][0]["response"];
    assert_eq!((&response["body"], response["withheld"].is_string()), (&json!(""), true));
}

/// A wiretap that counts what it is shown.
#[derive(Debug, Default)]
struct Count(Arc<AtomicUsize>);

impl Wiretap for Count {
    fn request(&self, _: &WireRequest<'_>) -> Box<dyn WireExchange> {
        Box::new(Self(Arc::clone(&self.0)))
    }
}

impl WireExchange for Count {
    fn answer(&mut self, _: u16, _: &[(String, String)]) {}

    fn body(&mut self, piece: &[u8]) {
        self.0.fetch_add(piece.len(), Ordering::SeqCst);
    }
}

#[tokio::test]
async fn whoever_else_looks_at_the_wire_still_sees_it() {
    let answer = || Answer {
        exchanges: vec![(200, b"12345".to_vec())],
        deltas: says("a", Usage::new(1, 1)),
        ..Answer::default()
    };
    let (inner, outer) = (Recorder::new(), Recorder::new());
    let layered = (&outer).layer((&inner).layer(Arc::new(Wired::new([answer()]))));
    let count = Arc::new(Count::default());
    let cx = CallContext::new().with_wiretap(count.clone());
    layered.complete(request(&["Hi."]), &cx).await.unwrap();
    assert_eq!(count.0.load(Ordering::SeqCst), 5);
    for recorder in [inner, outer] {
        assert_eq!(parsed(&recorder.to_json("a").unwrap())["interactions"][0]["response"]["body"], "12345");
    }
}
