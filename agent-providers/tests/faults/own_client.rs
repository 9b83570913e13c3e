//! A client of the program's own: it sees each call, and takes over neither the checks nor the bounds of the library.

use std::{
    convert::Infallible,
    future::{Future, pending},
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use entourage_core::{
    Error, ErrorKind, RetryStatus,
    provider::{CallContext, Delta, DeltaStream, Egress, Params, Profile, Provider},
};
use entourage_runtime::reply::ProviderExt;
use futures_util::StreamExt;
use http::{Request, Response};
use http_body_util::StreamBody;
use hyper::body::{Body, Frame};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::{
    server::{check_words, request, send, serve},
    wires::{HEADER, KEY, WIRES, Wire},
};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A provider of a service on another machine whose calls `client` takes.
fn asking<R, B, E>(
    wire: Wire,
    client: impl Fn(Request<Bytes>) -> R + Clone + Send + Sync + 'static,
) -> Arc<dyn Provider>
where
    R: Future<Output = Result<Response<B>, E>> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    E: Into<BoxError>,
{
    wire.asking("https://service.example/v1", client)
}

/// The error that a call ends with, which shows no secret.
async fn failed(provider: &dyn Provider, cx: &CallContext) -> Error {
    let error = provider.complete(request(), cx).await.unwrap_err();
    check_words(&error, "an own client");
    error
}

#[tokio::test]
async fn an_own_client_sees_each_call_and_answers_it() {
    for wire in WIRES {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let body = [wire.open(), wire.say("Hello"), wire.close()].concat();
        let provider = asking(wire, move |request| {
            seen.lock().unwrap().push(request);
            let body = body.clone();
            async { Ok::<_, Infallible>(Response::new(body)) }
        });
        for _ in 0..2 {
            let reply = provider.complete(request(), &CallContext::new()).await.unwrap();
            assert_eq!(reply.into_message().text(), "Hello", "{wire:?}");
        }
        let asked = asked.lock().unwrap();
        assert_eq!(asked.len(), 2);
        let (line, last) = (wire.request_line(), &asked[1]);
        let uri = last.uri().to_string().replacen("https://service.example", "", 1).to_lowercase();
        assert_eq!(format!("post {uri} http/1.1\r\n"), line);
        let (name, value) =
            wire.key_header().split_once(": ").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        let key = &last.headers()[&name];
        assert_eq!(key.to_str().unwrap().to_lowercase(), value);
        assert!(key.is_sensitive() && last.headers()["x-team"].is_sensitive(), "{wire:?}");
        assert!(String::from_utf8_lossy(last.body()).contains("Hi"), "{wire:?}");
    }
}

/// The limit on a reply in a request's body, whatever the wire calls it.
fn limit(body: &Value) -> Option<u64> {
    let names =
        ["max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens", "num_predict"];
    let fields = body.as_object()?;
    let below = || fields.values().find_map(limit);
    names.iter().find_map(|name| fields.get(*name)?.as_u64()).or_else(below)
}

#[tokio::test]
async fn no_service_is_asked_for_a_longer_reply_than_its_model_gives() {
    let cases = [
        (Some(16_000), Some(4_000), Some(4_000), 1),
        (Some(4_000), Some(4_000), Some(4_000), 0),
        (Some(300), Some(4_000), Some(300), 0),
        (Some(16_000), None, Some(16_000), 0),
        (Some(16_000), Some(0), Some(16_000), 0),
        (None, Some(4_000), None, 0),
        (Some(0), None, None, 0),
    ];
    for wire in WIRES {
        for (asked, gives, expected, warned) in cases {
            let sent = Arc::new(Mutex::new(None));
            let seen = Arc::clone(&sent);
            let body = [wire.open(), wire.say("Hello"), wire.close()].concat();
            let provider = asking(wire, move |request| {
                *seen.lock().unwrap() = limit(&serde_json::from_slice(request.body()).unwrap());
                let body = body.clone();
                async { Ok::<_, Infallible>(Response::new(body)) }
            });
            let (mut params, mut profile) = (Params::default(), Profile::default());
            (params.max_output, profile.max_output) = (asked, gives);
            let request = request().with_params(params).with_profile(profile);
            let mut deltas = provider.stream(request, &CallContext::new()).await.unwrap();
            let mut warnings = 0;
            while let Some(delta) = deltas.next().await {
                warnings += usize::from(matches!(delta.unwrap(), Delta::Warning(_)));
            }
            let sent = *sent.lock().unwrap();
            // This wire demands a limit.
            let sent = sent.filter(|_| wire != Wire::Messages || expected.is_some());
            assert_eq!((sent, warnings), (expected, warned), "{wire:?}, {asked:?} of {gives:?}");
        }
    }
}

/// The next text of a reply.
async fn text(deltas: &mut DeltaStream) -> Option<Delta> {
    while let Some(delta) = deltas.next().await {
        let delta = delta.unwrap();
        if matches!(delta, Delta::Text(_)) {
            return Some(delta);
        }
    }
    None
}

#[tokio::test]
async fn a_reply_of_an_own_client_is_read_piece_by_piece() {
    for wire in WIRES {
        let (pieces, body) = mpsc::unbounded_channel::<String>();
        let body = Arc::new(Mutex::new(Some(body)));
        let provider = asking(wire, move |_| {
            let body = body.lock().unwrap().take().unwrap();
            let pieces = futures_util::stream::unfold(body, |mut body| async move {
                let piece = Frame::data(Bytes::from(body.recv().await?));
                Some((Ok::<_, Infallible>(piece), body))
            });
            async { Ok::<_, Infallible>(Response::new(StreamBody::new(pieces))) }
        });
        let say = |text: String| pieces.send(text).unwrap();
        let mut deltas = provider.stream(request(), &CallContext::new()).await.unwrap();
        say(wire.open() + &wire.say("one"));
        assert_eq!(text(&mut deltas).await, Some(Delta::text("one")), "{wire:?}");
        say(wire.say("two"));
        assert_eq!(text(&mut deltas).await, Some(Delta::text("two")), "{wire:?}");
        // A body that nobody reads any more is dropped.
        drop(deltas);
        assert!(pieces.is_closed(), "{wire:?}");
    }
}

#[tokio::test]
async fn the_failure_of_an_own_client_is_a_typed_error_without_secrets() {
    let words = format!("no way with {KEY} and {HEADER}");
    let (plain, kind) = (words.clone(), io::ErrorKind::TimedOut);
    type Make = Arc<dyn Fn() -> BoxError + Send + Sync>;
    let cases: [(Make, ErrorKind, RetryStatus, bool); 5] = [
        (Arc::new(move || plain.clone().into()), ErrorKind::Transport, RetryStatus::Temporary, false),
        (Arc::new(move || io::Error::from(kind).into()), ErrorKind::Timeout, RetryStatus::Temporary, false),
        (
            Arc::new(|| io::Error::from(io::ErrorKind::ConnectionRefused).into()),
            ErrorKind::Transport,
            RetryStatus::Temporary,
            true,
        ),
        (
            Arc::new(move || Error::new(ErrorKind::Overloaded, words.clone()).into()),
            ErrorKind::Overloaded,
            RetryStatus::Temporary,
            false,
        ),
        (
            Arc::new(|| Error::new(ErrorKind::Config, "no client here").unsent().into()),
            ErrorKind::Config,
            RetryStatus::Permanent,
            true,
        ),
    ];
    for (make, kind, retry, unsent) in cases {
        let provider = asking(wire(), move |_| {
            let error = make();
            async { Err::<Response<String>, _>(error) }
        });
        let error = failed(&*provider, &CallContext::new()).await;
        assert_eq!((error.kind(), error.retry(), error.is_unsent()), (kind, retry, unsent), "{error:?}");
    }
}

fn wire() -> Wire {
    WIRES[0]
}

#[tokio::test]
async fn an_own_client_is_not_asked_for_a_host_that_the_call_may_not_ask() {
    let provider =
        asking(wire(), |_| async { panic!("it was asked") as Result<Response<String>, Infallible> });
    let error = failed(&*provider, &CallContext::new().with_egress(Egress::Loopback)).await;
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
}

#[tokio::test]
async fn attack_10_an_answer_of_an_own_client_that_leads_elsewhere_is_not_followed() {
    let provider = asking(wire(), |_| async {
        let mut answer = Response::new(format!("see {KEY}"));
        *answer.status_mut() = http::StatusCode::TEMPORARY_REDIRECT;
        answer.headers_mut().insert("location", "https://elsewhere.example/v1".parse().unwrap());
        Ok::<_, Infallible>(answer)
    });
    let error = failed(&*provider, &CallContext::new()).await;
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Transport, RetryStatus::Permanent), "{error}");
    assert!(error.message().contains("https://elsewhere.example"), "{error}");
}

#[tokio::test]
async fn refusals_and_sizes_are_judged_whoever_asks() {
    let refused = asking(wire(), |_| async {
        let mut answer = Response::new(format!(r#"{{"error":{{"message":"slow down, {KEY}"}}}}"#));
        *answer.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
        answer.headers_mut().insert("retry-after", "7".parse().unwrap());
        Ok::<_, Infallible>(answer)
    });
    let error = failed(&*refused, &CallContext::new()).await;
    assert_eq!((error.kind(), error.retry_after()), (ErrorKind::RateLimited, Some(Duration::from_secs(7))));

    let read = Arc::new(Mutex::new(0_usize));
    let counted = Arc::clone(&read);
    let flood = asking(wire(), move |_| {
        let counted = Arc::clone(&counted);
        let pieces = futures_util::stream::repeat_with(move || {
            *counted.lock().unwrap() += 1 << 20;
            Ok::<_, Infallible>(Frame::data(Bytes::from(vec![b'x'; 1 << 20])))
        });
        async { Ok::<_, Infallible>(Response::new(StreamBody::new(pieces))) }
    });
    assert_eq!(failed(&*flood, &CallContext::new()).await.kind(), ErrorKind::TooLarge);
    assert!(*read.lock().unwrap() <= 64 << 20, "{read:?}");
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_call_holds_for_an_own_client() {
    let mut cx = CallContext::new();
    cx.timeout = Some(Duration::from_secs(5));
    let mute = asking(wire(), |_| pending::<Result<Response<String>, Infallible>>());
    assert_eq!(failed(&*mute, &cx).await.kind(), ErrorKind::Timeout);

    let stuck = asking(wire(), |_| async {
        let first = Frame::data(Bytes::from(wire().open() + &wire().say("Hello")));
        let body =
            futures_util::stream::iter([Ok::<_, Infallible>(first)]).chain(futures_util::stream::pending());
        Ok::<_, Infallible>(Response::new(StreamBody::new(body)))
    });
    let begun = tokio::time::Instant::now();
    assert_eq!(failed(&*stuck, &cx).await.kind(), ErrorKind::Timeout);
    assert_eq!(begun.elapsed().as_secs(), 5);
}

/// A body with a piece ready at every poll: `first`, and then `next` for ever.
fn ready(
    first: impl Into<Bytes>,
    next: impl Fn() -> Frame<Bytes>,
) -> Response<impl Body<Data = Bytes, Error = Infallible>> {
    let (polls, mut first) = (AtomicUsize::new(0), Some(first.into()));
    Response::new(StreamBody::new(futures_util::stream::repeat_with(move || {
        assert!(polls.fetch_add(1, Ordering::Relaxed) < 1_000_000, "nobody else had a turn");
        Ok(first.take().map_or_else(&next, Frame::data))
    })))
}

#[tokio::test(start_paused = true)]
async fn attack_38_a_body_that_is_always_ready_lets_time_pass_and_others_go_on() {
    let mut cx = CallContext::new();
    cx.timeout = Some(Duration::from_secs(5));
    for wire in WIRES {
        for piece in [String::new(), wire.keep_alive()] {
            let piece = Bytes::from(piece);
            let provider = asking(wire, move |_| {
                let piece = piece.clone();
                async move { Ok::<_, Infallible>(ready(wire.open(), move || Frame::data(piece.clone()))) }
            });
            let (error, ()) =
                tokio::join!(failed(&*provider, &cx), tokio::time::advance(Duration::from_secs(5)));
            assert_eq!(error.kind(), ErrorKind::Timeout, "{wire:?}: {error}");
        }
        // Trailers are the end, and pieces of nothing after the reply are not waited for.
        for is_ended in [true, false] {
            let provider = asking(wire, move |_| async move {
                let whole = [wire.open(), wire.say("Hello"), wire.close()].concat();
                Ok::<_, Infallible>(ready(whole, move || match is_ended {
                    true => Frame::trailers(http::HeaderMap::new()),
                    false => Frame::data(Bytes::new()),
                }))
            });
            let reply = provider.complete(request(), &CallContext::new()).await.unwrap();
            assert_eq!(reply.into_message().text(), "Hello", "{wire:?}");
        }
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_is_a_transport_error() {
    let broken = asking(wire(), |_| async {
        let pieces = [Ok(Frame::data(Bytes::from(wire().say("Hello")))), Err(io::Error::other(KEY))];
        Ok::<_, Infallible>(Response::new(StreamBody::new(futures_util::stream::iter(pieces))))
    });
    let error = failed(&*broken, &CallContext::new()).await;
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Transport, RetryStatus::Temporary), "{error}");
}

#[tokio::test]
async fn a_client_of_reqwest_is_one_line() {
    let server = serve(vec![vec![send(wire().good())]]).await;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let tls = tls.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
    let client = reqwest::Client::builder().no_proxy().tls_backend_preconfigured(tls).build().unwrap();
    let answered = move |request: Request<Bytes>| {
        let client = client.clone();
        async move { client.execute(request.try_into()?).await.map(Response::from) }
    };
    let provider = wire().asking(&server.url, answered.clone());
    provider.complete(request(), &CallContext::new()).await.unwrap();
    let seen = server.task.await.unwrap().remove(0);
    assert!(seen.request.to_lowercase().contains(&wire().key_header()), "{}", seen.request);

    // Its errors are told apart like those of the library's own client.
    let error = failed(&*wire().asking(&server.url, answered), &CallContext::new()).await;
    assert!(error.is_unsent() && error.message().contains("is the server running?"), "{error}");
}
