//! The fold: attempts and their cost, and the bounds of what adds no content.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Prices,
    message::Opaque,
    provider::{CallContext, DeltaStream, Profile, Provider, Request, WarningKind},
};

use super::*;

/// A service that refuses every call.
#[derive(Debug)]
struct Mute;

#[async_trait]
impl Provider for Mute {
    fn name(&self) -> &str {
        "mute"
    }

    async fn stream(&self, _: Request, _: &CallContext) -> Result<DeltaStream> {
        Err(Error::new(ErrorKind::Unsupported, "no call was expected"))
    }
}

#[test]
fn a_restart_voids_what_came_but_not_what_it_used() {
    let mut assembler = Assembler::default();
    let error = Error::new(ErrorKind::Overloaded, "busy").record();
    for delta in [
        Delta::Warning(Box::new(Warning::new(WarningKind::Setting, "top_k", "left out"))),
        Delta::Response(Box::new(ResponseInfo::new(Some("a".into()), None))),
        Delta::text("Hel"),
        Delta::tool_call(0, "1", "look"),
        Delta::arguments(0, "{"),
        Delta::Usage(Box::new(Usage::new(10, 2))),
        Delta::Restart(Box::new(Restart::new(2, error, Duration::ZERO))),
        Delta::text("Hello"),
        Delta::Usage(Box::new(Usage::new(10, 5))),
        Delta::Finish(FinishReason::Stop.into()),
    ] {
        assembler.push(&delta).unwrap();
    }
    let reply = assembler.finish().unwrap();
    assert_eq!((reply.usage, reply.wasted), (Usage::new(10, 5), Usage::new(10, 2)));
    assert_eq!((reply.info.id.clone(), reply.warnings.len(), reply.restarts.len()), (None, 1, 1));
    let message = reply.into_message();
    assert_eq!(message.parts(), [Part::Text("Hello".into())]);
}

#[test]
fn cc03_an_attempt_that_broke_off_uncounted_makes_the_cost_unknown() {
    let profile = Profile::default().with_prices(Prices::per_million_micros(1, 1));
    let model = Model::new(Arc::new(Mute), "mute").with_profile(profile);
    let cost = |before: &[Delta]| {
        let mut assembler = Assembler::default();
        let restart = Restart::new(2, Error::new(ErrorKind::Overloaded, "busy").record(), Duration::ZERO);
        let end = [
            Delta::Restart(Box::new(restart)),
            Delta::Usage(Box::new(Usage::new(3, 4))),
            Delta::finish(FinishReason::Stop),
        ];
        before.iter().chain(&end).for_each(|delta| assembler.push(delta).unwrap());
        assembler.finish().unwrap().cost(&model).map(Money::as_pico)
    };
    assert_eq!(cost(&[]), Some(7));
    assert_eq!(cost(&[Delta::text("Hel")]), None);
    assert_eq!(cost(&[Delta::text("Hel"), Delta::Usage(Box::new(Usage::new(1, 1)))]), Some(9));
}

/// Pushes the deltas of `make` until one is refused. Returns the number of those before it, and the error.
fn flood(make: impl Fn(u32) -> Delta) -> (usize, Error) {
    let mut assembler = Assembler::default();
    let mut pushed = 0;
    // Content is bounded by its bytes.
    for number in 0..50_000_000 {
        match assembler.push(&make(number)) {
            Ok(()) => pushed += 1,
            Err(error) => return (pushed, error),
        }
    }
    panic!("the flood has no end");
}

fn warning() -> Delta {
    Delta::Warning(Box::new(Warning::new(WarningKind::Other, "top_k", "left out")))
}

#[test]
fn every_flood_of_deltas_without_content_is_refused_at_the_bound() {
    type Make = fn(u32) -> Delta;
    let most = Assembler::MAX_WITHOUT_CONTENT;
    let cases: [(&str, Make, usize); 9] = [
        ("usage", |_| Delta::Usage(Box::new(Usage::new(1, 1))), most),
        ("response facts", |_| Delta::Response(Box::default()), most),
        ("warnings", |_| warning(), most),
        ("empty text", |_| Delta::text(""), most),
        ("empty reasoning", |_| Delta::Reasoning("".into()), most),
        ("empty refusals", |_| Delta::Refusal("".into()), most),
        // The first has content.
        ("empty text after text", |n| Delta::text(if n == 0 { "Hello" } else { "" }), most + 1),
        (
            "empty arguments",
            |n| if n == 0 { Delta::tool_call(0, "a", "b") } else { Delta::arguments(0, "") },
            most + 1,
        ),
        ("calls beyond the bound", |n| Delta::tool_call(n, "", "b"), most + 128),
    ];
    for (name, make, expected) in cases {
        let (pushed, error) = flood(make);
        assert_eq!((pushed, error.kind()), (expected, ErrorKind::Protocol), "{name}: {error}");
        assert!(error.message().contains("1000000 deltas without content"), "{name}: {error}");
        assert!(error.message().contains("correct the provider or layer"), "{name}: {error}");
    }
}

#[test]
fn a_restart_gives_no_more_deltas_without_content_and_has_a_bound_itself() {
    let restart = |n: u32| {
        let error = Error::new(ErrorKind::Overloaded, "busy").record();
        Delta::Restart(Box::new(Restart::new(n, error, Duration::ZERO)))
    };
    let (pushed, error) = flood(restart);
    assert_eq!((pushed, error.kind()), (Assembler::MAX_RESTARTS, ErrorKind::Protocol), "{error}");
    assert!(error.message().contains("more than 1000 restarts"), "{error}");
    assert!(error.message().contains("lower the retries"), "{error}");

    let (pushed, error) = flood(|n| if n % 2 == 0 { Delta::text("x") } else { restart(n) });
    assert_eq!((pushed, error.kind()), (2 * Assembler::MAX_RESTARTS + 1, ErrorKind::Protocol), "{error}");

    let (pushed, _) = flood(|n| if n % 2_000 == 0 { restart(n) } else { Delta::text("") });
    assert!((1_000_000..1_001_000).contains(&pushed), "{pushed}");
}

#[test]
fn parts_that_take_more_memory_than_bytes_are_refused_at_their_bound() {
    type Make = fn(u32) -> Delta;
    let opaque = |n: u32| Delta::Opaque(Box::new(Opaque::new("w", serde_json::json!(n))));
    let cases: [(&str, Make); 3] = [
        ("blocks", opaque),
        ("signatures", |_| Delta::signature(Signature::new("", ""))),
        ("text and reasoning", |n| if n % 2 == 0 { Delta::text("x") } else { Delta::Reasoning("x".into()) }),
    ];
    for (name, make) in cases {
        let (pushed, error) = flood(make);
        assert_eq!((pushed, error.kind()), (Assembler::MAX_PARTS, ErrorKind::TooLarge), "{name}: {error}");
        assert!(error.message().contains("100000 parts"), "{name}: {error}");
    }
}

#[test]
fn usage_with_every_token_of_the_longest_replies_is_no_flood() {
    let mut assembler = Assembler::default();
    for tokens in 0..250_000 {
        assembler.push(&Delta::text("word ")).unwrap();
        assembler.push(&Delta::Usage(Box::new(Usage::new(10, tokens)))).unwrap();
        assembler.push(&Delta::text("")).unwrap();
    }
    assembler.push(&Delta::finish(FinishReason::Stop)).unwrap();
    assert_eq!(assembler.finish().unwrap().usage.output, Some(249_999));
}
