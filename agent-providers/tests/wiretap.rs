//! A recorder's view of a call on the wire, and the secrets that it must not contain.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic, in its helpers too")]

use std::{
    io::{Read, Write},
    net::TcpListener,
    thread::JoinHandle,
};

use entourage_core::provider::{CallContext, Model};
use entourage_providers::openai_chat::{Dialect, OpenAiChat, OpenAiChatDecoder};
use entourage_runtime::layers::{Recorder, Replay};
use entourage_runtime::reply::ProviderExt;
use serde_json::{Value, json};

const KEY: &str = "sk-live-0123456789abcdef";

/// Answers one request with `answer`. Returns the address, and the request.
fn serve(answer: String) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut piece = [0; 4_096];
        while !request.ends_with(b"]}") {
            let n = stream.read(&mut piece).unwrap();
            request.extend_from_slice(&piece[..n]);
        }
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(request).unwrap()
    });
    (url, server)
}

fn http(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
}

fn model(url: &str, recorder: &Recorder) -> Model {
    let service = OpenAiChat::builder().base_url(format!("{url}?api-key={KEY}&version=2")).api_key(KEY);
    service.header("x-team-token", "team-secret").build().unwrap().model("m").layer(recorder)
}

fn recorded(recorder: &Recorder) -> Value {
    let text = recorder.to_json("one").unwrap();
    for secret in [KEY, "team-secret", "session-cookie"] {
        assert!(!text.contains(secret), "{secret} is in the recording: {text}");
    }
    serde_json::from_str(&text).unwrap()
}

const STREAM: &str = concat!(
    "data: {\"id\":\"r1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hel\"}}]}\n\n",
    "data: {\"id\":\"r1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lo\"},\"finish_reason\":\"stop\"}]}\n\n",
    "data: [DONE]\n\n",
);

#[tokio::test]
async fn a_call_is_recorded_as_it_crossed_the_wire_without_credentials() {
    let headers = "content-type: text/event-stream\r\nx-request-id: req_1\r\nset-cookie: session-cookie\r\n";
    let (url, server) = serve(http("200 OK", headers, STREAM));
    let recorder = Recorder::new();
    let model = model(&url, &recorder);
    let request = model.request("Hi");
    let reply = model.provider().complete(request.clone(), &CallContext::new()).await.unwrap();
    assert_eq!(reply.into_message().text(), "Hello");
    assert!(server.join().unwrap().contains(KEY), "the key went to the service");

    let sequence = recorded(&recorder);
    let one = &sequence["interactions"][0];
    assert_eq!((&sequence["protocol"], &one["protocol"]), (&json!("openai-chat"), &json!("openai-chat")));
    assert_eq!(
        (&one["request"]["method"], &one["request"]["path"]),
        (&json!("POST"), &json!("/v1/chat/completions"))
    );
    assert_eq!(one["request"]["body"]["messages"][0]["content"], "Hi");
    assert_eq!(
        (&one["response"]["status"], &one["response"]["headers"]["x-request-id"]),
        (&json!(200), &json!("req_1"))
    );
    assert_eq!((&one["expect"]["text"], &one["expect"]["finish_reason"]), (&json!("Hello"), &json!("stop")));

    // The recorded body is what the decoder reads.
    let mut decoder = OpenAiChatDecoder::new(Dialect::COMMON);
    decoder.push(one["response"]["body"].as_str().unwrap().as_bytes());
    assert!(decoder.is_done());

    let replay = Replay::from_json(&sequence.to_string()).unwrap();
    let again = replay.provider().complete(request, &CallContext::new()).await.unwrap();
    assert_eq!(again.into_message().text(), "Hello");
}

#[tokio::test]
async fn a_refusal_is_recorded_with_its_status_and_body() {
    let body = format!("{{\"error\":{{\"message\":\"bad key {KEY}\",\"code\":\"invalid_api_key\"}}}}");
    let (url, server) = serve(http("401 Unauthorized", "content-type: application/json\r\n", &body));
    let recorder = Recorder::new().secret(KEY);
    let model = model(&url, &recorder);
    let request = model.request("Hi");
    let error = model.provider().complete(request, &CallContext::new()).await.unwrap_err();
    assert!(!format!("{error:?}").contains(KEY));
    server.join().unwrap();
    let sequence = recorded(&recorder);
    let one = &sequence["interactions"][0];
    assert_eq!(one["response"]["status"], 401);
    assert!(one["response"]["body"].as_str().unwrap().contains("invalid_api_key"));
    assert_eq!(one["expect"]["error"]["status"], 401);
}

#[tokio::test]
async fn attack_10_what_a_service_echoes_of_a_header_is_in_no_recording() {
    let secret = "correct-horse-battery";
    let escaped: String = secret.bytes().map(|byte| format!("\\u{byte:04x}")).collect();
    let body = format!(
        r#"{{"error":{{"message":"bad key {secret}, {escaped}, Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5","code":"c"}}}}"#
    );
    let (url, server) = serve(http("401 Unauthorized", &format!("x-request-id: {secret}\r\n"), &body));
    let recorder = Recorder::new();
    let service = OpenAiChat::builder().base_url(format!("{url}?code={secret}"));
    let service = service.header("authorization", format!("Bearer {secret}")).build().unwrap();
    let model = service.model("m").layer(&recorder);
    let error = model.provider().complete(model.request("Hi"), &CallContext::new()).await.unwrap_err();
    server.join().unwrap();
    let recording = recorder.to_json("one").unwrap();
    for spelled in [secret, &*escaped, &escaped.replace('\\', "\\\\"), "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5"] {
        assert!(!format!("{recording} {error:?}").contains(spelled), "{spelled}: {recording}");
    }
    assert!(recording.contains("bad key [key], [key], [key]"), "{recording}");
}
