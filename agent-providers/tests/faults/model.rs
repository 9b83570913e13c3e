//! Models out of control: too many calls, incomplete calls, absurd arguments and counts.

use entourage_core::{ErrorKind, RetryStatus, provider::FinishReason};
use entourage_runtime::reply::Assembled;

use crate::{
    server::{Fault, send},
    wires::{STREAM, WIRES, Wire},
};

async fn reply(wire: Wire, name: &str, said: &str) -> Assembled {
    let body = [STREAM, &wire.open(), said].concat();
    let outcome = Fault::new(wire, name, [send(body)]).run().await;
    outcome.result.unwrap_or_else(|error| panic!("{}: {error}", outcome.name))
}

#[tokio::test]
async fn attack_46_a_stream_that_ends_inside_a_call_was_cut_off() {
    for wire in WIRES {
        let call = wire.call(0, "{\"path\":\"/etc\"}");
        let cut = if wire.cuts_arguments() { wire.call(0, "{\"path\":\"/e") } else { call };
        let body = [STREAM, &wire.open(), &wire.say("Hello"), &cut].concat();
        let (error, outcome) = Fault::new(wire, "cut off inside a call", [send(body)]).fail().await;
        let got = (error.kind(), error.retry(), outcome.text.as_str());
        assert_eq!(got, (ErrorKind::Protocol, RetryStatus::Temporary, "Hello"), "{}: {error}", outcome.name);
    }
}

#[tokio::test]
async fn attack_46_ten_thousand_calls_are_few_calls_and_a_number() {
    for wire in WIRES {
        let calls: String = (0..10_000).map(|index| wire.call(index, "{}")).collect();
        if wire == Wire::Messages {
            // Its blocks end one by one; so many open ones are refused.
            let body = [STREAM, &wire.open(), &calls, &wire.close()].concat();
            let (error, _) = Fault::new(wire, "10,000 open calls", [send(body)]).fail().await;
            assert_eq!(
                (error.kind(), error.retry()),
                (ErrorKind::TooLarge, RetryStatus::Permanent),
                "{error}"
            );
            continue;
        }
        let name = "10,000 calls";
        let body = [STREAM, &wire.open(), &calls, &wire.close()].concat();
        let outcome = Fault::new(wire, name, [send(body)]).run().await;
        match outcome.result {
            Ok(reply) => {
                let dropped = reply.dropped_calls;
                let kept = reply.into_message().tool_calls().count();
                assert_eq!((kept, dropped), (128, 10_000 - 128), "{}", outcome.name);
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::TooLarge, "{}: {error}", outcome.name),
        }
    }
}

#[tokio::test]
async fn attack_46_arguments_of_any_depth_and_form_harm_nobody() {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(5_000), "]".repeat(5_000));
    for wire in WIRES {
        for (name, arguments) in [
            ("deep arguments", deep.as_str()),
            ("arguments with huge numbers", "{\"n\":123456789012345678901234567890,\"m\":1e300}"),
            ("arguments that are no object", "[1,2]"),
        ] {
            let body = [STREAM, &wire.open(), &wire.call(0, arguments), &wire.close()].concat();
            let outcome = Fault::new(wire, name, [send(body)]).run().await;
            match outcome.result {
                Ok(reply) => {
                    let message = reply.into_message();
                    let calls: Vec<_> = message.tool_calls().collect();
                    assert_eq!(calls.len(), 1, "{}", outcome.name);
                    let readable = name.contains("huge");
                    assert_eq!(calls[0].malformed.is_none(), readable, "{}: {:?}", outcome.name, calls[0]);
                }
                Err(error) => {
                    println!("{}: {error}", outcome.name);
                    assert_eq!((error.kind(), name), (ErrorKind::Protocol, "deep arguments"), "{error}");
                    assert!(!wire.cuts_arguments(), "{error}");
                }
            }
        }
        if wire.cuts_arguments() {
            for arguments in ["{\"a\": NaN}", "{\"a\":", "no", "{\"a\":1}}"] {
                let said = wire.call(0, arguments) + &wire.close();
                let reply = reply(wire, "arguments that are no JSON", &said).await;
                let message = reply.into_message();
                assert!(message.tool_calls().all(|call| call.malformed.is_some()), "{wire:?} {arguments}");
                assert_eq!(message.tool_calls().count(), 1);
            }
        }
    }
}

#[tokio::test]
async fn attack_46_counts_that_make_no_sense_are_unknown() {
    for wire in WIRES {
        for (input, output) in [
            ("-5", "-1"),
            ("99999999999999999999999", "1e400"),
            ("\"many\"", "[]"),
            ("null", "{}"),
            ("18446744073709551615", "18446744073709551615"),
            ("0.5", "true"),
        ] {
            let said = wire.say("Hello") + &wire.close_having_used(input, output);
            let body = [STREAM, &wire.open(), &said].concat();
            let outcome = Fault::new(wire, format!("usage {input}, {output}"), [send(body)]).run().await;
            match outcome.result {
                Ok(reply) => {
                    assert_eq!(reply.finish.reason, FinishReason::Stop, "{}", outcome.name);
                    let usage = reply.usage;
                    let known = usage.output.is_none_or(|tokens| tokens == u64::MAX || tokens == 0);
                    assert!(known, "{}: {usage:?}", outcome.name);
                    // Adding it up must not overflow.
                    let sum = usage + usage;
                    assert!(sum.output.is_none_or(|tokens| tokens == u64::MAX || tokens == 0), "{sum:?}");
                }
                // A number beyond the range of floats is not JSON to every reader.
                Err(error) => assert_eq!((error.kind(), output), (ErrorKind::Protocol, "1e400"), "{error}"),
            }
        }
    }
}
