//! Tests of pieces, headers and bodies.

use super::*;
use entourage_core::provider::FinishReason;

#[test]
fn base64_is_padded() {
    for (bytes, text) in [
        (b"".as_slice(), ""),
        (b"f", "Zg=="),
        (b"fo", "Zm8="),
        (b"foo", "Zm9v"),
        (b"foob", "Zm9vYg=="),
        (b"\xff\xfe\xfd", "//79"),
    ] {
        assert_eq!(base64(bytes), text);
    }
}

#[test]
fn a_secret_in_pieces_is_taken_out_of_each() {
    let mut scrubber = Scrubber::default();
    scrubber.register("hunter-ü");
    let deltas = [
        Delta::text("say hun"),
        Delta::arguments(0, "{\"k\":\"hu"),
        Delta::text("ter"),
        Delta::arguments(0, "nter-"),
        Delta::text("-ü!"),
        Delta::arguments(0, "ü\"}"),
        Delta::finish(FinishReason::Stop),
    ];
    let out = clean(&deltas, &scrubber).unwrap();
    assert_eq!(
        out.deltas,
        [
            Delta::text("say xxx"),
            Delta::arguments(0, "{\"k\":\"xx"),
            Delta::text("xxx"),
            Delta::arguments(0, "xxxxx"),
            Delta::text("xx!"),
            Delta::arguments(0, "x\"}"),
            Delta::finish(FinishReason::Stop),
        ]
    );
    assert!(out.was_cut);
    assert_eq!(out.count, 2);
}

#[test]
fn texts_of_different_parts_are_not_joined() {
    let mut scrubber = Scrubber::default();
    scrubber.register("ab");
    let deltas = [
        Delta::text("a"),
        Delta::Reasoning("b".into()),
        Delta::text("a"),
        Delta::tool_call(0, "i", "n"),
        Delta::text("b"),
    ];
    let out = clean(&deltas, &scrubber).unwrap();
    assert_eq!(out.deltas, deltas);
    assert!(!out.was_cut);
}

#[test]
fn headers_that_are_not_known_to_be_harmless_are_left_out() {
    for name in [
        "Content-Type",
        "retry-after",
        "x-request-id",
        "request-id",
        "x-ratelimit-remaining-tokens",
        "ratelimit-reset",
        "api-version",
    ] {
        assert!(is_kept(name), "{name}");
    }
    for name in [
        "authorization",
        "x-api-key",
        "cookie",
        "set-cookie",
        "x-organization",
        "x-ratelimit-key",
        "user-agent",
        "date",
    ] {
        assert!(!is_kept(name), "{name}");
    }
}
