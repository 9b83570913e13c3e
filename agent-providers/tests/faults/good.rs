//! Success on the connection, on every wire: the request, the shown exchange, and the end of connections.

use std::time::Duration;

use crate::{
    server::{Act, give_back, request, send, serve},
    wires::{Chat, HEADER, Messages, OllamaChat, Responses, STREAM, WIRES, Wire},
};
use entourage_core::{
    ErrorKind,
    provider::{CallContext, Delta, Egress, FinishReason},
};
use entourage_runtime::reply::ProviderExt;
use futures_util::StreamExt;

#[tokio::test]
async fn a_reply_streams_and_the_request_is_as_it_should_be() {
    for wire in WIRES {
        let server = serve(vec![vec![send(wire.good())]]).await;
        let reply = wire.provider(&server.url).complete(request(), &CallContext::new()).await.unwrap();
        assert_eq!((reply.usage.input, reply.usage.output), (Some(9), Some(2)), "{wire:?}");
        assert_eq!(
            (reply.finish.reason, reply.into_message().text().as_str()),
            (FinishReason::Stop, "Hello")
        );
        let sent = server.task.await.unwrap().remove(0).request;
        let (head, body) = sent.split_once("\r\n\r\n").unwrap();
        let head = head.to_lowercase();
        assert!(head.starts_with(wire.request_line()), "{head}");
        for line in [
            &wire.key_header(),
            "content-type: application/json",
            &format!("x-team: {HEADER}"),
            "user-agent: entourage/",
        ] {
            assert!(head.contains(line), "{wire:?}: {line} is missing in {head}");
        }
        assert_eq!(head.contains("anthropic-version: "), wire == Messages, "{head}");
        assert!(!head.contains("accept-encoding"), "{head}");
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        let said = match wire {
            Chat | Messages | OllamaChat => &body["messages"][0]["content"],
            Responses => &body["input"][0]["content"],
            Wire::Gemini => &body["contents"][0]["parts"][0]["text"],
        };
        assert!(said.to_string().contains("\"Hi\""), "{wire:?}: {body}");
        let streams = body["stream"] == true || wire.request_line().contains("stream");
        assert!(streams, "{wire:?}: {body}");
    }
}

#[tokio::test]
async fn what_the_headers_say_comes_first() {
    for wire in WIRES {
        let more =
            "x-request-id: req-7\r\nx-ratelimit-remaining-tokens: 9\r\nx-ratelimit-reset-tokens: 6m0s\r\n";
        let answer = wire.good().replacen("Connection", &format!("{more}Connection"), 1);
        let server = serve(vec![vec![send(answer)]]).await;
        let provider = wire.provider(&server.url);
        let mut stream = provider.stream(request(), &CallContext::new()).await.unwrap();
        let first = stream.next().await.unwrap().unwrap();
        let Delta::Response(info) = first else { panic!("{first:?}") };
        assert_eq!(info.request.as_deref(), Some("req-7"));
        let tokens = info.limits.as_ref().unwrap().tokens;
        assert_eq!(
            (tokens.limit, tokens.remaining, tokens.reset),
            (None, Some(9), Some(Duration::from_secs(360)))
        );
        while stream.next().await.is_some() {}
        server.task.await.unwrap();
    }
}

#[tokio::test]
async fn egress_is_asked_before_anything_connects() {
    for wire in WIRES {
        let near = wire.provider("http://127.0.0.1:9/v1");
        let cx = CallContext::new().with_egress(Egress::Forbidden);
        let error = near.complete(request(), &cx).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        let far = wire.without_key("https://model.example/v1");
        let cx = CallContext::new().with_egress(Egress::Loopback);
        let error = far.complete(request(), &cx).await.unwrap_err();
        assert!(error.message().contains("model.example"), "{error}");
    }
}

#[tokio::test]
async fn dropping_the_stream_closes_the_connection() {
    for wire in WIRES {
        let begin = [STREAM, &wire.open(), &wire.say("Hello")].concat();
        let server = serve(vec![vec![send(begin), Act::Hold]]).await;
        let mut stream = wire.provider(&server.url).stream(request(), &CallContext::new()).await.unwrap();
        loop {
            if stream.next().await.unwrap().unwrap() == Delta::Text("Hello".into()) {
                break;
            }
        }
        drop(stream);
        assert!(server.task.await.unwrap()[0].closed, "{wire:?}");
    }
}

#[tokio::test]
async fn a_connection_is_used_again_after_a_reply() {
    for wire in WIRES {
        let good = || send(wire.good_and_open());
        // One connection only: a second one would never be accepted.
        let server = serve(vec![vec![good(), Act::Read, good(), Act::Read, good()]]).await;
        let provider = wire.provider(&server.url);
        for _ in 0..3 {
            provider.complete(request(), &CallContext::new()).await.unwrap();
            give_back().await;
        }
        assert_eq!(server.task.await.unwrap()[0].more, 2, "{wire:?}");
    }
}

#[tokio::test]
async fn a_model_that_nobody_named_is_asked_for_once() {
    for wire in WIRES {
        let Some((line, list)) = wire.models() else { continue };
        let list = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{list}");
        let server = serve(vec![vec![send(list)], vec![send(wire.good())], vec![send(wire.good())]]).await;
        let provider = wire.without_key(&server.url);
        for name in ["default", ""] {
            let mut request = request();
            request.model = name.into();
            provider.complete(request, &CallContext::new()).await.unwrap();
        }
        let seen = server.task.await.unwrap();
        assert!(seen[0].request.starts_with(line), "{}", seen[0].request);
        assert!(seen[1..].iter().all(|seen| seen.request.contains("\"model\":\"qwen3\"")));
    }
}
