//! Services that echo the secrets of a request: none appears in an error, warning or event.

use std::{error::Error as _, sync::Arc};

use entourage_core::{
    Error,
    provider::{CallContext, Delta, Provider},
};
use entourage_providers::{
    anthropic_messages::AnthropicMessages, gemini::Gemini, ollama::Ollama, openai_chat::OpenAiChat,
    openai_responses::OpenAiResponses,
};
use futures_util::StreamExt;
use serde_json::json;

use crate::{
    server::{request, send, serve},
    wires::{STREAM, WIRES, Wire},
};

/// A generator whose state a failed test prints as its seed.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % below
    }

    /// A key of characters that every escape writes differently.
    fn secret(&mut self) -> String {
        const SIGNS: &[u8] = b"abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMN23456789-_+/=.&\"\\<>%~";
        (0..20 + self.next(20)).map(|_| char::from(SIGNS[self.next(SIGNS.len())])).collect()
    }
}

/// The way in which a caller passes a secret.
#[derive(Debug, Clone, Copy)]
enum Given {
    Key,
    Bearer,
    Header,
    Query,
}

const GIVEN: [Given; 4] = [Given::Key, Given::Bearer, Given::Header, Given::Query];

fn provider(wire: Wire, url: &str, given: Given, secret: &str) -> Arc<dyn Provider> {
    macro_rules! build {
        ($builder:expr) => {{
            let builder = $builder.vendor_name("test");
            let builder = match given {
                Given::Key => builder.base_url(url).api_key(secret),
                Given::Bearer => builder.base_url(url).header("authorization", format!("Bearer {secret}")),
                Given::Header => builder.base_url(url).header("x-team", secret),
                Given::Query => {
                    let escaped: String = secret.bytes().map(|byte| format!("%{byte:02X}")).collect();
                    builder.base_url(format!("{url}?code={escaped}"))
                }
            };
            Arc::new(builder.build().unwrap())
        }};
    }
    match wire {
        Wire::Chat => build!(OpenAiChat::builder()),
        Wire::Responses => build!(OpenAiResponses::builder()),
        Wire::Messages => build!(AnthropicMessages::builder()),
        Wire::Gemini => build!(Gemini::builder()),
        Wire::Ollama => build!(Ollama::builder()),
    }
}

fn percent(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

fn html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Answers that hold the secret, each in another place.
fn answers(wire: Wire, secret: &str, random: &mut Random) -> Vec<String> {
    let http = |head: &str, body: &str| format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n{body}");
    let stream = |frames: &str| format!("{STREAM}{}{frames}", wire.open());
    let long = "x".repeat(1_000 - 30 - random.next(secret.len() + 20));
    vec![
        http("401 Unauthorized", &wire.refusal(&format!("Incorrect API key provided: {secret}."))),
        http("400 Bad Request", &wire.refusal(&format!("{long}{secret} is wrong"))),
        http(
            "401 Unauthorized",
            &json!({"error": {"message": "no", "type": secret, "code": secret}}).to_string(),
        ),
        http(
            "401 Unauthorized",
            &json!({"message": format!("Bearer {secret}"), "request_id": secret}).to_string(),
        ),
        http("403 Forbidden", &json!({"detail": [{"input": {"authorization": secret}}]}).to_string()),
        http("403 Forbidden", &format!("<html>{}</html>", html(secret))),
        http("403 Forbidden", &format!("no access for {}", html(secret))),
        http("404 Not Found", &format!("no such page: /v1?key={}", percent(secret))),
        http("500 Oops", &format!("{{\"error\": {}", json!(format!("broken {secret}")))),
        // Cut by the reader, inside the secret.
        http("500 Oops", &format!("{}{secret}", " ".repeat((64 << 10) - 1 - random.next(secret.len() - 1)))),
        http(&format!("429 Slow\r\nx-request-id: {secret}"), "slow"),
        http(&format!("302 Found\r\nLocation: https://{secret}.example/"), ""),
        http(&format!("200 OK\r\nContent-Encoding: {secret}"), "x"),
        stream(&wire.failure(&format!("the key {secret} is spent"))),
        stream(&wire.frame(&format!("{{\"broken {secret}"))),
        stream(&wire.frame(&format!("{{broken {}}}", json!(secret)))),
        http("200 OK", &format!("no access with {secret}")),
        http("200 OK", &json!({"message": secret}).to_string()),
        http("200 OK", &json!([secret]).to_string()),
    ]
}

/// Everything that an error shows, with its causes.
fn shown(error: &Error) -> String {
    let mut shown =
        format!("{error}\n{error:?}\n{error:#?}\n{}", serde_json::to_string(&error.record()).unwrap());
    let mut cause = error.source();
    while let Some(error) = cause {
        shown += &format!("\n{error}\n{error:?}");
        cause = error.source();
    }
    shown
}

/// Checks that neither the secret nor most of it appears, in any spelling.
fn check(shown: &str, secret: &str, what: &str) {
    let lower = shown.to_lowercase();
    let start: String = secret.chars().take(8).collect();
    for spelled in [secret.to_owned(), start.clone(), json!(start).to_string(), percent(&start), html(&start)]
    {
        let spelled = spelled.trim_matches('"').to_lowercase();
        assert!(!lower.contains(&spelled), "{what}: {spelled} is in {shown}");
    }
}

#[tokio::test]
async fn attack_10_no_secret_that_a_service_echoes_is_in_an_error() {
    let mut random = Random(10);
    for wire in WIRES {
        for given in GIVEN {
            let seed = random.0;
            let secret = random.secret();
            let answers = answers(wire, &secret, &mut random);
            let server = serve(answers.iter().map(|answer| vec![send(answer.clone())]).collect()).await;
            let provider = provider(wire, &server.url, given, &secret);
            assert!(!format!("{provider:?}").contains(&secret), "{provider:?}");
            for (place, answer) in answers.iter().enumerate() {
                let what = format!("{wire:?}, {given:?}, seed {seed}, answer {place}: {answer}");
                let mut seen = String::new();
                let mut failed = false;
                match provider.stream(request(), &CallContext::new()).await {
                    Err(error) => (seen, failed) = (shown(&error), true),
                    Ok(mut stream) => {
                        while let Some(item) = stream.next().await {
                            match item {
                                Err(error) => (seen, failed) = (seen + &shown(&error), true),
                                // The model's own words are not redacted.
                                Ok(Delta::Text(_)) => {}
                                Ok(delta) => seen += &format!("{delta:?}"),
                            }
                        }
                    }
                }
                let plain = answer.starts_with("HTTP/1.1 200 OK\r\nConnection");
                assert!(failed || plain, "{what}: no error");
                check(&seen, &secret, &what);
            }
            server.task.abort();
        }
    }
}

#[tokio::test]
async fn attack_10_what_a_service_says_beside_its_reply_holds_no_secret() {
    let secret = "correct-horse-battery";
    for wire in WIRES {
        let body = [wire.open(), wire.say("Hello"), wire.close()].concat();
        let model = json!({"model": secret, "id": secret}).to_string();
        let fields = model.trim_matches(['{', '}']);
        let body = match wire {
            Wire::Gemini => body.replace(
                "{\"candidates\"",
                &format!("{{\"modelVersion\":\"{secret}\",\"responseId\":\"{secret}\",\"promptFeedback\":{{\"blockReason\":\"{secret}\"}},\"candidates\""),
            ),
            Wire::Chat => body.replace("{\"choices\"", &format!("{{{fields},\"choices\"")),
            Wire::Ollama => body.replace("{\"message\"", &format!("{{{fields},\"message\"")).replace("\"stop\"", &format!("\"{secret}\"")),
            Wire::Responses | Wire::Messages => body.replace("\"id\":\"r\",\"model\":\"m\"", fields),
        };
        assert!(body.contains(secret));
        let head = format!("HTTP/1.1 200 OK\r\nx-request-id: {secret}\r\nConnection: close\r\n\r\n");
        let server = serve(vec![vec![send(head + &body)]]).await;
        let provider = provider(wire, &server.url, Given::Bearer, secret);
        let mut stream = provider.stream(request(), &CallContext::new()).await.unwrap();
        let mut seen = String::new();
        while let Some(item) = stream.next().await {
            seen += &format!("{item:?}\n");
        }
        assert!(
            !seen.contains(secret) && seen.contains("[key]") && seen.contains("Hello"),
            "{wire:?}: {seen}"
        );
    }
}
