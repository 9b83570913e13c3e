//! Faults of the connection itself: refused, reset, closed, silent, or carrying something other than HTTP.

use std::time::Duration;

use entourage_core::{
    ErrorKind, RetryStatus,
    provider::{CallContext, FinishReason, Layer},
};
use entourage_runtime::{
    layers::{Retry, Timeout},
    reply::ProviderExt,
};
use tokio::{net::TcpSocket, time::Instant};

use crate::{
    server::{Act, Fault, check_words, give_back, request, send, serve, serve_on},
    wires::{STREAM, WIRES, Wire},
};

/// A delay that is long enough to be noticed, and short enough to wait for.
const SHORT: Duration = Duration::from_millis(40);
/// Delays within which a machine passes on what is there, for [`patiently`].
const LONGER: [Duration; 3] = [Duration::from_millis(400), Duration::from_secs(4), Duration::from_secs(40)];

/// Tries `cell` with longer and longer limits until it gives `expected`.
///
/// A loaded machine may not pass on within a short limit what comes before the silence. A fault of the wire gives
/// another result with every limit.
async fn patiently<T: PartialEq + std::fmt::Debug>(
    expected: &T,
    cell: impl AsyncFn(Duration) -> (T, String),
) {
    for (i, limit) in LONGER.into_iter().enumerate() {
        let (got, shown) = cell(limit).await;
        if i + 1 == LONGER.len() {
            assert_eq!(got, *expected, "{shown}");
        } else if got == *expected {
            break;
        }
    }
}

fn hello(wire: Wire) -> String {
    [STREAM, &wire.open(), &wire.say("Hello")].concat()
}

#[tokio::test]
async fn a_refused_connection_names_the_address_and_the_fix() {
    for wire in WIRES {
        // Bound, so that nobody else takes the port, but not listening yet.
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap().to_string();
        let provider = wire.provider(&format!("http://{address}/v1"));
        let error = provider.complete(request(), &CallContext::new()).await.unwrap_err();
        check_words(&error, &format!("{wire:?}: refused"));
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Transport, RetryStatus::Permanent), "{wire:?}");
        assert!(error.message().contains(&address), "{error}");
        assert!(error.message().contains("is the server running?"), "{error}");

        // A layer that retries does not wait for a server that nobody starts, and its error says all of that once.
        tokio::time::pause();
        let begun = Instant::now();
        let retried = Retry::new().layer(wire.provider(&format!("http://{address}/v1")));
        let error = retried.complete(request(), &CallContext::new()).await.unwrap_err();
        assert_eq!(begun.elapsed(), Duration::ZERO, "{wire:?}");
        assert_eq!(format!("{error:?}").matches("is the server running?").count(), 1, "{error:?}");
        tokio::time::resume();

        let server = serve_on(socket.listen(8).unwrap(), vec![vec![send(wire.good())]]);
        provider.complete(request(), &CallContext::new()).await.unwrap();
        server.task.await.unwrap();
    }
}

#[tokio::test]
async fn a_connection_that_ends_before_the_answer_may_be_tried_again() {
    for wire in WIRES {
        for (name, acts) in [
            ("reset before the answer", vec![Act::Reset]),
            ("closed before the answer", vec![]),
            ("closed inside the headers", vec![send("HTTP/1.1 200 OK\r\nContent-Ty")]),
            ("reset inside the headers", vec![send("HTTP/1.1 200 OK\r\nContent-Ty"), Act::Reset]),
            ("no HTTP at all", vec![Act::Send(b"\x15\x03\x01\x00\x02\x02\x28".to_vec())]),
            ("a status that is none", vec![send("HTTP/1.1 9999 What\r\n\r\n")]),
        ] {
            let (error, outcome) = Fault::new(wire, name, acts).fail().await;
            let got = (error.kind(), error.retry(), outcome.begun);
            assert_eq!(
                got,
                (ErrorKind::Transport, RetryStatus::Temporary, false),
                "{}: {error}",
                outcome.name
            );
            assert!(error.message().contains("127.0.0.1"), "{error}");
        }
    }
}

/// A server that closes kept connections at any time, even while a request is in flight.
#[tokio::test]
async fn a_request_that_meets_a_closed_connection_is_sent_once_more() {
    for wire in WIRES {
        for (name, end) in [("closed", None), ("reset", Some(Act::Reset))] {
            let good = || send(wire.good_and_open());
            let dies = || [good(), Act::Read].into_iter().chain(end.clone()).collect::<Vec<_>>();
            let answers = vec![dies(), dies(), vec![], vec![send(wire.good())]];
            let server = serve(answers).await;
            let provider = wire.provider(&server.url);
            let ask = async || {
                let reply = provider.complete(request(), &CallContext::new()).await;
                give_back().await;
                reply
            };
            // The second call meets the end of the first connection, and is answered on the second.
            for _ in 0..2 {
                ask().await.unwrap();
            }
            // The third meets the end of the second, and then of the third, which is new: that is a failure.
            let error = ask().await.unwrap_err();
            check_words(&error, name);
            assert_eq!(
                (error.kind(), error.retry()),
                (ErrorKind::Transport, RetryStatus::Temporary),
                "{error}"
            );
            ask().await.unwrap();
            let seen = server.task.await.unwrap();
            let more: Vec<_> = seen.iter().map(|seen| seen.more).collect();
            assert_eq!(more, [1, 1, 0, 0], "{wire:?}: {name}");
        }
    }
}

#[tokio::test]
async fn a_connection_that_breaks_inside_the_stream_fails_after_what_came() {
    for wire in WIRES {
        let lengthy = hello(wire).replace("Connection: close", "Content-Length: 9999");
        let body = wire.open() + &wire.say("Hello");
        let chunked = STREAM.replace("Connection: close", "Transfer-Encoding: chunked");
        let chunked = format!("{chunked}{:x}\r\n{body}", body.len() + 7);
        for (name, acts) in [
            ("reset inside the stream", vec![send(hello(wire)), Act::AwaitText, Act::Reset]),
            ("closed before the length it announced", vec![send(lengthy)]),
            ("closed inside a chunk", vec![send(chunked)]),
        ] {
            let (error, outcome) = Fault::new(wire, name, acts).fail().await;
            let got = (error.kind(), error.retry(), outcome.text.as_str());
            assert_eq!(
                got,
                (ErrorKind::Transport, RetryStatus::Temporary, "Hello"),
                "{}: {error}",
                outcome.name
            );
        }
    }
}

#[tokio::test]
async fn a_stream_that_ends_too_early_was_cut_off_and_may_be_tried_again() {
    for wire in WIRES {
        let half_event = wire.say("more");
        let half_character = wire.say("Gr\u{fc}");
        let inside = half_character.find('\u{fc}').unwrap() + 1;
        for (name, end) in [
            ("closed between two events", &[][..]),
            ("closed inside an event", &half_event.as_bytes()[..half_event.len() - 8]),
            ("closed inside a character", &half_character.as_bytes()[..inside]),
        ] {
            let acts = [send(hello(wire)), Act::Send(end.to_vec())];
            let (error, outcome) = Fault::new(wire, name, acts).fail().await;
            let got = (error.kind(), error.retry(), outcome.text.as_str());
            assert_eq!(
                got,
                (ErrorKind::Protocol, RetryStatus::Temporary, "Hello"),
                "{}: {error}",
                outcome.name
            );
            assert!(error.message().contains("broke off"), "{error}");
        }
        let (error, outcome) = Fault::new(wire, "an empty body", [send(STREAM)]).fail().await;
        let got = (error.kind(), error.retry(), outcome.text.as_str());
        assert_eq!(got, (ErrorKind::Protocol, RetryStatus::Temporary, ""), "{}: {error}", outcome.name);
    }
}

#[tokio::test]
async fn a_break_after_the_end_loses_nothing() {
    for wire in WIRES {
        let good = wire.good().replace("Connection: close", "Content-Length: 9999");
        let mut ends = vec![("a break after the end", vec![send(good)])];
        if let Some(reason) = wire.reason() {
            let said = hello(wire) + &reason;
            let more = wire.say("more");
            let half = more.get(..more.len() - 8).unwrap();
            let broken = said.replace("Connection: close", "Content-Length: 9999");
            ends.push(("a break after the reason for the end", vec![send(broken)]));
            ends.push(("half an event after the reason for the end", vec![send(said + half)]));
        }
        for (name, acts) in ends {
            let outcome = Fault::new(wire, name, acts).run().await;
            let reply = outcome.result.unwrap();
            assert_eq!((reply.finish.reason, outcome.text.as_str()), (FinishReason::Stop, "Hello"), "{name}");
        }
    }
}

#[tokio::test]
async fn a_silent_server_is_left_in_time() {
    let total = || {
        let mut cx = CallContext::new();
        cx.timeout = Some(SHORT);
        cx
    };
    let first = || Timeout::new().with_first_delta(SHORT);
    for wire in WIRES {
        for (name, acts) in [
            ("silent before the answer", vec![Act::Hold]),
            ("silent inside the headers", vec![send("HTTP/1.1 200 OK\r\nContent-Ty"), Act::Hold]),
            ("silent before the stream", vec![send(STREAM), Act::Hold]),
            ("silent inside an event", vec![send(STREAM.to_owned() + wire.endless()), Act::Hold]),
        ] {
            let faults = [
                Fault::new(wire, format!("{name}, time of the call"), acts.clone()).called_with(total()),
                Fault::new(wire, format!("{name}, time of the first delta"), acts).within(first()),
            ];
            for fault in faults {
                let (error, outcome) = fault.fail().await;
                let got = (error.kind(), error.retry(), outcome.seen.closed);
                assert_eq!(
                    got,
                    (ErrorKind::Timeout, RetryStatus::Temporary, true),
                    "{}: {error}",
                    outcome.name
                );
            }
        }
        let expected = (ErrorKind::Timeout, RetryStatus::Temporary, "Hello".to_owned(), true);
        patiently(&expected, async |limit| {
            let fault = Fault::new(wire, "silent inside the stream", [send(hello(wire)), Act::Hold]);
            let (error, outcome) = fault.within(Timeout::new().with_idle(limit)).fail().await;
            let shown = format!("{}: {error}", outcome.name);
            ((error.kind(), error.retry(), outcome.text, outcome.seen.closed), shown)
        })
        .await;
    }
}

/// The known part of a refusal is worth more than the error that the rest did not come.
#[tokio::test]
async fn a_refusal_that_is_not_finished_in_time_is_still_a_refusal() {
    let failing = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 99\r\n\r\n{\"error";
    let ends = WIRES.map(async |wire| {
        patiently(&(ErrorKind::Overloaded, true), async |limit| {
            let mut cx = CallContext::new();
            cx.timeout = Some(limit);
            let acts = [send(failing), Act::Hold];
            let fault = Fault::new(wire, "silent inside a refusal, time of the call", acts);
            let (error, outcome) = fault.called_with(cx).fail().await;
            ((error.kind(), outcome.seen.closed), error.to_string())
        })
        .await;
    });
    futures_util::future::join_all(ends).await;
}

#[tokio::test]
async fn a_server_that_only_keeps_the_connection_alive_is_left_in_time() {
    for wire in WIRES {
        let forever = usize::MAX;
        for (name, acts) in [
            ("comments for ever", vec![send(STREAM), Act::Flood(wire.keep_alive().into(), forever)]),
            ("hints for ever", vec![Act::Flood(b"HTTP/1.1 103 Early Hints\r\n\r\n".to_vec(), forever)]),
        ] {
            let (error, outcome) =
                Fault::new(wire, name, acts).within(Timeout::new().with_first_delta(SHORT)).fail().await;
            let got = (error.kind(), error.retry(), outcome.seen.closed);
            assert_eq!(got, (ErrorKind::Timeout, RetryStatus::Temporary, true), "{}: {error}", outcome.name);
        }
    }
}
