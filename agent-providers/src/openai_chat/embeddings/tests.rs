//! Requests and replies of the wire, without a connection.

use entourage_core::{ErrorKind, RetryStatus};
use serde_json::{Value, json};

use super::{
    wire::{self, Form, batches, decode, encode},
    *,
};
use crate::http::Failing;

const PLAIN: Form = Form { dimensions: None, base64: false };

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn read(count: usize, body: &str) -> Result<Embeddings> {
    decode(body.as_bytes(), count, PLAIN, &Failing::default())
}

#[test]
fn a_request_has_only_what_was_set() {
    let body = |form| serde_json::from_slice::<Value>(&encode("m", &texts(&["a\"", ""]), form)).unwrap();
    assert_eq!(body(PLAIN), json!({"model": "m", "input": ["a\"", ""]}));
    assert_eq!(
        body(Form { dimensions: Some(8), base64: true }),
        json!({"model": "m", "input": ["a\"", ""], "dimensions": 8, "encoding_format": "base64"})
    );
}

#[test]
fn texts_are_cut_in_order_by_number_and_by_bytes() {
    let cut = |all: &[&str], most, bytes| {
        let all = texts(all);
        batches(&all, most, bytes).map(|batch| batch.join("|")).collect::<Vec<_>>()
    };
    assert_eq!(cut(&[], 2, 9), [""; 0]);
    assert_eq!(cut(&["a", "b", "c", "d", "e"], 2, 9), ["a|b", "c|d", "e"]);
    assert_eq!(cut(&["aaaa", "bbbb", "cc", "", "ddddd"], 9, 8), ["aaaa|bbbb", "cc||ddddd"]);
    // A text beyond the bound goes alone; the service says if it is too long.
    assert_eq!(cut(&["a", "0123456789", "b"], 9, 8), ["a", "0123456789", "b"]);
    let service = OpenAiChat::builder().base_url("http://127.0.0.1:9/v1").build().unwrap();
    let batch = |texts| service.embedder("m").with_batch(texts).batch;
    assert_eq!((batch(0), batch(7), batch(usize::MAX), service.embedder("m").batch), (1, 7, 2_048, 96));
    assert_eq!(service.embedder("m").with_dimensions(0).form.dimensions, None);
}

#[test]
fn vectors_are_put_in_the_order_of_the_texts() {
    for body in [
        r#"{"data":[{"index":0,"embedding":[1,0.5]},{"index":1,"embedding":[-2e0,3]}]}"#,
        r#"{"data":[{"index":1,"embedding":[-2,3]},{"index":0,"embedding":[1,0.5]}],"error":null,"model":7}"#,
        r#"{"data":[{"index":1.0,"embedding":[-2,3]},{"embedding":[1,0.5]}],"object":"list","usage":{}}"#,
        // 1.0, 0.5 and -2.0, 3.0 in four bytes each.
        r#"{"data":[{"index":0,"embedding":"AACAPwAAAD8="},{"index":1,"embedding":"AAAAwAAAQEA"}]}"#,
        r#"{"data":[{"index":0,"embedding":"AACAPwAAAD8\u003d"},{"index":1,"embedding":[-2,3]}]}"#,
    ] {
        let read = read(2, body).unwrap();
        assert_eq!(read.vectors, [[1.0, 0.5], [-2.0, 3.0]], "{body}");
        assert!(read.usage.is_unknown(), "{body}");
    }
    let lone = read(1, r#"{"data":{"embedding":[1]}}"#).unwrap();
    assert_eq!(lone.vectors, [[1.0]]);
}

#[test]
fn replies_that_do_not_answer_the_texts_are_refused() {
    let one = |embedding: &str| format!(r#"{{"data":[{{"index":0,"embedding":{embedding}}}]}}"#);
    let two = |a: &str, b: &str| format!(r#"{{"data":[{a},{b}]}}"#);
    let (first, second) = (r#"{"index":0,"embedding":[1,2]}"#, r#"{"index":1,"embedding":[1,2]}"#);
    for (count, body, says) in [
        (3, two(first, second), "2 vectors for 3 texts"),
        (1, two(first, second), "text 1, and has 1 texts"),
        (2, two(first, first), "two vectors for text 0"),
        (2, two(r#"{"embedding":[1]}"#, r#"{"embedding":[1]}"#), "two vectors for text 0"),
        (2, two(first, r#"{"index":18446744073709551615,"embedding":[1,2]}"#), "has 2 texts"),
        (2, two(first, "null"), "1 vectors for 2 texts"),
        (2, two(first, r#"{"index":1,"embedding":[1]}"#), "of 2 and of 1 numbers"),
        (1, one("[]"), "not a list of finite"),
        (1, one("\"\""), "not a list of finite"),
        (1, one("null"), "not a list of finite"),
        (1, one("[1,null]"), "not a list of finite"),
        (1, one("[1,\"2\"]"), "not a list of finite"),
        (1, one("[[1,2]]"), "not a list of finite"),
        (1, one("[1e39]"), "not a list of finite"),
        (1, one("[-1e300]"), "not a list of finite"),
        (1, one("\"AACAPwA\""), "not a list of finite"),
        (1, one("\"AADAfw==\""), "not a list of finite"),
        (1, one("\"AACAfw==\""), "not a list of finite"),
        (1, one("\"no base64!\""), "not a list of finite"),
        (1, one("[NaN]"), "no JSON"),
        (1, one("[Infinity]"), "no JSON"),
        (1, "<html></html>".to_owned(), "no JSON"),
        (1, "null".to_owned(), "no JSON"),
        (1, "{}".to_owned(), "without vectors"),
        (1, "[]".to_owned(), "without vectors"),
        (1, r#"{"data":[]}"#.to_owned(), "without vectors"),
        (1, r#"{"data":"x","embedding":[1]}"#.to_owned(), "without vectors"),
    ] {
        let error = read(count, &body).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{body}: {error}");
        assert!(error.message().contains(says), "{body}: {error}");
    }
    let cut = read(1, r#"{"data":[{"index":0,"embedding":[1,"#).unwrap_err();
    assert_eq!((cut.kind(), cut.retry()), (ErrorKind::Protocol, RetryStatus::Temporary), "{cut}");
    let many = format!(r#"{{"data":[{}]}}"#, vec!["{}"; 20_001].join(","));
    assert_eq!(read(1, &many).unwrap_err().kind(), ErrorKind::TooLarge);
}

#[test]
fn a_failure_with_status_200_is_the_services_own() {
    for (body, kind) in [
        (r#"{"error":{"message":"slow down","code":429}}"#, ErrorKind::RateLimited),
        (
            r#"{"error":{"message":"no","type":"server_error"},"data":[{"index":0,"embedding":[1]}]}"#,
            ErrorKind::Overloaded,
        ),
        (r#"{"object":"error","message":"no such model","code":404}"#, ErrorKind::NotFound),
        (r#"{"detail":"input is too long"}"#, ErrorKind::ContextOverflow),
        (r#"[{"error":{"message":"no","code":401}}]"#, ErrorKind::Authentication),
    ] {
        let error = read(1, body).unwrap_err();
        assert_eq!(error.kind(), kind, "{body}: {error}");
    }
    assert_eq!(read(1, r#"{"error":"","data":[{"embedding":[1]}]}"#).unwrap().vectors, [[1.0]]);
}

#[test]
fn a_length_that_was_not_asked_for_is_refused() {
    let body = r#"{"data":[{"index":0,"embedding":[1,2]}]}"#;
    let read = |dimensions| {
        decode(body.as_bytes(), 1, Form { dimensions: Some(dimensions), base64: false }, &Failing::default())
    };
    assert_eq!(read(2).unwrap().vectors, [[1.0, 2.0]]);
    let error = read(3).unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unsupported, RetryStatus::Permanent), "{error}");
}

#[test]
fn tokens_that_are_not_reported_are_unknown() {
    let used = |usage: &str| {
        let body = format!(r#"{{"data":[{{"embedding":[1]}}],"usage":{usage}}}"#);
        read(1, &body).unwrap().usage
    };
    assert_eq!(used(r#"{"prompt_tokens":7,"total_tokens":7}"#), Usage::new(7, 0));
    assert_eq!(used(r#"{"total_tokens":7}"#), Usage::new(7, 0));
    assert_eq!(
        used(r#"{"prompt_tokens":7,"completion_tokens":0,"cost":0.5}"#).cost.unwrap().as_pico(),
        500_000_000_000
    );
    for none in
        ["null", "{}", "[]", "7", r#"{"prompt_tokens":0,"total_tokens":0}"#, r#"{"prompt_tokens":-1}"#]
    {
        assert!(used(none).is_unknown(), "{none}");
    }
    let sum = |all: &[Usage]| wire::sum(all.iter().copied());
    assert_eq!(sum(&[Usage::new(7, 0), Usage::new(2, 0)]), Usage::new(9, 0));
    assert!(sum(&[Usage::new(7, 0), Usage::default()]).is_unknown());
}

#[test]
fn debug_output_has_no_key() {
    let service =
        OpenAiChat::builder().base_url("http://127.0.0.1:9/v1?key=sk-secret-1").api_key("sk-secret-2");
    let shown = format!("{:?}", service.header("x-team", "sk-secret-3").build().unwrap().embedder("m"));
    assert!(!shown.contains("secret") && shown.contains("\"m\""), "{shown}");
}
