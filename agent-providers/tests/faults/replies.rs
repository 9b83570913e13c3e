//! Accepted replies with faults: compressed, cut in odd places, failing half-way.

use entourage_core::{
    ErrorKind, RetryStatus,
    provider::{CallContext, FinishReason},
};
use entourage_runtime::reply::ProviderExt;

use crate::{
    server::{Act, Fault, request, send, serve},
    wires::{KEY, OllamaChat, STREAM, WIRES},
};

/// `Hello`, compressed by gzip.
const GZIP: &[u8] = &[
    0x1f, 0x8b, 0x08, 0, 0, 0, 0, 0, 0, 0x03, 0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0, 0x82, 0x89, 0xd1, 0xf7,
    0x05, 0, 0, 0,
];

#[tokio::test]
async fn attack_38_what_was_compressed_unasked_is_an_error_and_never_text() {
    for wire in WIRES {
        let head = |status: &str, coding: &str| {
            send(format!(
                "HTTP/1.1 {status}\r\n{coding}Content-Length: {}\r\nConnection: close\r\n\r\n",
                GZIP.len()
            ))
        };
        for (name, coding, word) in [
            ("gzip, and says so", "Content-Encoding: gzip\r\n", "gzip"),
            ("brotli, and says so", "content-encoding: br\r\n", "br"),
            ("gzip, and does not say so", "", "compressed"),
        ] {
            let acts = [head("200 OK", coding), Act::Send(GZIP.to_vec())];
            let (error, outcome) = Fault::new(wire, name, acts).fail().await;
            let got = (error.kind(), error.retry(), outcome.text.as_str());
            assert_eq!(got, (ErrorKind::Protocol, RetryStatus::Permanent, ""), "{}: {error}", outcome.name);
            assert!(error.message().contains(word), "{error}");
            assert!(error.message().contains("turn compression off in the proxy"), "{error}");
        }
        let acts = [head("503 Service Unavailable", "Content-Encoding: gzip\r\n"), Act::Send(GZIP.to_vec())];
        let (error, _) = Fault::new(wire, "503, compressed", acts).fail().await;
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Overloaded, RetryStatus::Temporary));
        assert!(error.message().contains("compressed (gzip)") && error.message().is_ascii(), "{error}");
        let plain = wire.good().replace("Connection", "Content-Encoding: identity\r\nConnection");
        assert!(Fault::new(wire, "identity", [send(plain)]).run().await.result.is_ok());
    }
}

#[tokio::test]
async fn characters_split_over_chunks_arrive_whole() {
    for wire in WIRES {
        let body = [STREAM, &wire.open(), &wire.say("Gr\u{fc}\u{df}e \u{1f980}"), &wire.close()].concat();
        let acts: Vec<_> = body.as_bytes().iter().map(|byte| Act::Send(vec![*byte])).collect();
        let outcome = Fault::new(wire, "one byte at a time", acts).run().await;
        assert_eq!(outcome.result.unwrap().finish.reason, FinishReason::Stop);
        assert_eq!(outcome.text, "Gr\u{fc}\u{df}e \u{1f980}", "{}", outcome.name);
    }
}

#[tokio::test]
async fn broken_characters_cost_themselves_only() {
    for wire in WIRES {
        let mut body = [STREAM, &wire.open(), &wire.say("a\u{fc}b"), &wire.close()].concat().into_bytes();
        let at = body.iter().position(|byte| *byte == 0xc3).unwrap();
        body[at] = 0xff;
        let outcome = Fault::new(wire, "broken UTF-8", [Act::Send(body)]).run().await;
        assert!(outcome.result.is_ok(), "{}", outcome.name);
        assert_eq!(outcome.text, "a\u{fffd}\u{fffd}b", "{}", outcome.name);
    }
}

#[tokio::test]
async fn a_line_of_a_mebibyte_is_a_line() {
    for wire in WIRES {
        let long = "x".repeat(1 << 20);
        let body = [STREAM, &wire.open(), &wire.say(&long), &wire.close()].concat();
        let outcome = Fault::new(wire, "a line of 1 MiB", [send(body)]).run().await;
        assert!(outcome.result.is_ok(), "{}", outcome.name);
        assert_eq!(outcome.text.len(), long.len(), "{}", outcome.name);
    }
}

#[tokio::test]
async fn an_error_inside_a_stream_ends_it_with_the_services_words() {
    for wire in WIRES {
        let failure = wire.failure(&format!("slow down, {KEY}"));
        let body = [STREAM, &wire.open(), &wire.say("Hello"), &failure, &wire.close()].concat();
        let (error, outcome) = Fault::new(wire, "an error after text", [send(body)]).fail().await;
        // Ollama's words hold no code.
        let expected = match wire {
            OllamaChat => (ErrorKind::Protocol, RetryStatus::Permanent),
            _ => (ErrorKind::RateLimited, RetryStatus::Temporary),
        };
        assert_eq!((error.kind(), error.retry()), expected, "{}: {error}", outcome.name);
        assert_eq!(outcome.text, "Hello", "{}", outcome.name);
        assert!(error.message().contains("slow down, [key]"), "{error}");
    }
}

#[tokio::test]
async fn what_is_no_json_ends_a_stream_and_is_quoted_without_keys() {
    for wire in WIRES {
        let broken = wire.frame(&format!("{{oops {KEY}}}"));
        let body = [STREAM, &wire.open(), &wire.say("Hello"), &broken, &wire.close()].concat();
        let (error, outcome) = Fault::new(wire, "no JSON after text", [send(body)]).fail().await;
        let got = (error.kind(), error.retry(), outcome.text.as_str());
        assert_eq!(got, (ErrorKind::Protocol, RetryStatus::Permanent, "Hello"), "{}: {error}", outcome.name);
        assert!(error.message().contains("oops [key]"), "{error}");
    }
}

#[tokio::test]
async fn a_reply_that_was_not_streamed_is_understood() {
    for wire in WIRES {
        let head = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
        let server = serve(vec![vec![send(format!("{head}{}", wire.whole()))]]).await;
        let reply = wire.provider(&server.url).complete(request(), &CallContext::new()).await.unwrap();
        assert_eq!(
            (reply.finish.reason, reply.into_message().text().as_str()),
            (FinishReason::Stop, "Hello"),
            "{wire:?}"
        );
        server.task.await.unwrap();

        // JSON of another service.
        let fault =
            Fault::new(wire, "200 with somebody else's JSON", [send(format!("{head}{{\"ok\":true}}\n"))]);
        let (error, _) = fault.fail().await;
        assert_eq!(
            (error.kind(), error.retry()),
            (ErrorKind::Protocol, RetryStatus::Permanent),
            "{wire:?}: {error}"
        );
        assert!(error.message().contains("base URL"), "{error}");
    }
}
