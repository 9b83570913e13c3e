//! Endless input: the provider takes little of it, keeps less, and closes the connection.

use entourage_core::{ErrorKind, RetryStatus, provider::FinishReason};
use tokio::sync::Mutex;

use crate::{
    server::{Act, Fault, send},
    wires::{STREAM, WIRES, Wire},
};

/// Bytes that a server is ready to send.
const ENDLESS: usize = 200 << 20;

const MIB: usize = 1 << 20;

/// Lock for measuring the peak, which is the process's: one test at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// Growth of the memory peak, on systems that report it.
struct Growth(Option<usize>);

impl Growth {
    fn start() -> Self {
        // 5 sets the peak back to what is in use now.
        Self(std::fs::write("/proc/self/clear_refs", "5").ok().and_then(|()| status("VmRSS:")))
    }

    fn check(&self, most: usize, name: &str) {
        if let (Some(before), Some(peak)) = (self.0, status("VmHWM:")) {
            let grown = peak.saturating_sub(before);
            println!("{name}: grew by {} MiB at most", grown / MIB);
            assert!(grown < most, "{name}: grew by {grown} bytes");
        }
    }
}

fn status(field: &str) -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    Some(line.split_whitespace().nth(1)?.parse::<usize>().ok()? * 1_024)
}

fn flood(piece: impl Into<Vec<u8>>) -> Act {
    Act::Flood(piece.into(), ENDLESS)
}

#[tokio::test]
async fn attack_38_streams_that_never_end_are_left_within_bounds() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let growth = Growth::start();
    let ((large, permanent), x) = ((ErrorKind::TooLarge, RetryStatus::Permanent), vec![b'x'; 64 << 10]);
    for wire in WIRES {
        let text = wire.say(&"x".repeat(64 << 10));
        for (name, begin, piece, kind, taken) in [
            ("an endless line", wire.endless(), x.clone(), large, 32),
            ("endless text", &wire.open(), text.into_bytes(), large, 48),
            ("an endless body", "[", vec![b'['; 64 << 10], large, 32),
            ("an endless web page", "<html>", x.clone(), ErrorKind::Protocol, 16),
        ] {
            let acts = [send(format!("{STREAM}{begin}")), flood(piece)];
            let (error, outcome) = Fault::new(wire, name, acts).fail().await;
            assert_eq!((error.kind(), error.retry()), (kind, permanent), "{}: {error}", outcome.name);
            let seen = outcome.seen;
            assert!(seen.closed && seen.pushed < taken * MIB, "{}: took {}", outcome.name, seen.pushed);
            // The reader keeps the text, and messages keep it once more, in case it must be sent back unchanged.
            growth.check(192 * MIB, &outcome.name);
        }
    }
}

#[tokio::test]
async fn attack_38_what_only_keeps_a_connection_alive_is_not_kept() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let growth = Growth::start();
    for wire in WIRES {
        let said = wire.open() + &wire.say("Hello");
        for (name, before, bytes, after) in [
            ("20 MB before the reply", "", 20 * MIB, said.as_str()),
            ("200 MB inside the reply", &said, ENDLESS, ""),
        ] {
            let flood = Act::Flood(wire.keep_alive().into(), bytes);
            let acts = [send(STREAM.to_owned() + before), flood, send(after.to_owned() + &wire.close())];
            let outcome = Fault::new(wire, name, acts).run().await;
            assert!(outcome.result.is_ok(), "{}: {:?}", outcome.name, outcome.result);
            assert!(outcome.seen.pushed > bytes && outcome.text == "Hello", "{}", outcome.name);
            growth.check(32 * MIB, &outcome.name);
        }
    }
}

#[tokio::test]
async fn attack_38_refusals_and_headers_that_never_end_are_left_within_bounds() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let growth = Growth::start();
    let (x, bomb) = (vec![b'x'; 64 << 10], vec![0; 64 << 10]);
    let header = format!("x-more: {}\r\n", "x".repeat(1_000));
    let temporary = RetryStatus::Temporary;
    for wire in WIRES {
        let overloaded = (ErrorKind::Overloaded, temporary);
        let transport = (ErrorKind::Transport, temporary);
        let invalid = (ErrorKind::InvalidInput, RetryStatus::Permanent);
        let gzip = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n";
        for (name, head, piece, expected) in [
            ("an endless refusal", "HTTP/1.1 400 Bad Request\r\n\r\n", x.clone(), invalid),
            ("an endless failure", "HTTP/1.1 502 Bad Gateway\r\n\r\n<html>", x.clone(), overloaded),
            (
                "an endless compressed reply",
                gzip,
                bomb.clone(),
                (ErrorKind::Protocol, RetryStatus::Permanent),
            ),
            ("endless headers", "HTTP/1.1 200 OK\r\n", header.clone().into_bytes(), transport),
            ("an endless header", "HTTP/1.1 200 OK\r\nx-long: ", x.clone(), transport),
            ("an endless status", "HTTP/1.1 200 ", x.clone(), transport),
            (
                "endless redirect",
                "HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n",
                x.clone(),
                (ErrorKind::Transport, RetryStatus::Permanent),
            ),
        ] {
            let (error, outcome) = Fault::new(wire, name, [send(head), flood(piece)]).fail().await;
            assert_eq!((error.kind(), error.retry()), expected, "{}: {error}", outcome.name);
            let seen = outcome.seen;
            assert!(seen.closed && seen.pushed < 16 * MIB, "{}: took {}", outcome.name, seen.pushed);
            growth.check(32 * MIB, &outcome.name);
        }
    }
}

/// Arguments of 50 MB, in pieces where the wire has pieces.
#[tokio::test]
async fn attack_46_arguments_of_fifty_megabytes_are_refused() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let growth = Growth::start();
    let piece = "x".repeat(1 << 20);
    for wire in WIRES {
        let begin = [STREAM, &wire.open()].concat();
        let acts = if wire.cuts_arguments() {
            let more = wire.arguments(0, &piece);
            vec![send(begin + &wire.call(0, "{\"a\":\"")), Act::Flood(more.into_bytes(), 50 << 20)]
        } else {
            let call = wire.call(0, "{\"a\":\"");
            let call = call.split_once("{\"a\":\"").unwrap().0.to_owned();
            vec![send(begin + &call + "{\"a\":\""), Act::Flood(piece.clone().into_bytes(), 50 << 20)]
        };
        let (error, outcome) = Fault::new(wire, "arguments of 50 MB", acts).fail().await;
        assert_eq!((error.kind(), error.retry()), (ErrorKind::TooLarge, RetryStatus::Permanent), "{error}");
        assert!(outcome.seen.closed, "{}", outcome.name);
        growth.check(96 * MIB, &outcome.name);
    }
}

/// Frames without content, endless calls and parts, and lists that are small on the wire and large in memory.
#[tokio::test]
async fn attack_38_frames_that_say_nothing_or_too_much_are_left_within_bounds() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let growth = Growth::start();
    for wire in WIRES {
        let nothing = wire.frame(match wire {
            Wire::Chat => r#"{"choices":[]}"#,
            Wire::Responses => r#"{"type":"response.in_progress"}"#,
            Wire::Messages => r#"{"type":"ping"}"#,
            Wire::Gemini => r#"{"candidates":[]}"#,
            Wire::Ollama => r#"{"message":{"content":""},"done":false}"#,
        });
        let list = wire.frame(match wire {
            Wire::Chat => r#"{"choices":[{"delta":{"tool_calls":["@@"]}}]}"#,
            Wire::Responses => {
                r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":["@@"]}}"#
            }
            Wire::Messages => {
                r#"{"type":"content_block_start","index":5,"content_block":{"type":"text","text":"","citations":["@@"]}}"#
            }
            Wire::Gemini => r#"{"candidates":[{"content":{"parts":["@@"]}}]}"#,
            Wire::Ollama => r#"{"message":{"tool_calls":["@@"]},"done":false}"#,
        });
        let (head, tail) = list.split_once("\"@@\"").unwrap();
        let items = Act::Flood("{},".repeat(10_000).into_bytes(), 12 * MIB);
        let begin = [STREAM, &wire.open()].concat();
        let calls: String = (0..12_000).map(|index| wire.call(index, "{}")).collect();
        for (name, acts) in [
            ("frames that say nothing", vec![send(begin.clone()), flood(nothing.repeat(1_000))]),
            (
                "a list of four million items",
                vec![send(begin.clone() + head), items, send(format!("{{}}{tail}{}", wire.close()))],
            ),
            ("12,000 calls", vec![send(begin.clone() + &calls + &wire.close())]),
        ] {
            let outcome = Fault::new(wire, name, acts).run().await;
            match &outcome.result {
                Err(error) => assert_eq!(
                    (error.kind(), error.retry()),
                    (ErrorKind::TooLarge, RetryStatus::Permanent),
                    "{}: {error}",
                    outcome.name
                ),
                // An unreadable item does not count.
                Ok(_) => assert!(name.starts_with("a list"), "{}", outcome.name),
            }
            growth.check(96 * MIB, &outcome.name);
        }
    }
}

#[tokio::test]
async fn attack_38_deep_nesting_is_refused_or_passed_over() {
    let _alone = ONE_AT_A_TIME.lock().await;
    for wire in WIRES {
        for deep in [100_000, 5_000_000] {
            let nested = format!("{}{}", "[".repeat(deep), "]".repeat(deep));
            let frame = wire.say("@@").replace("\"@@\"", &nested);
            let acts = [send([STREAM, &wire.open(), &frame, &wire.close()].concat())];
            let outcome = Fault::new(wire, format!("{deep} arrays in each other"), acts).run().await;
            if let Err(error) = &outcome.result {
                assert_eq!(error.kind(), ErrorKind::Protocol, "{}: {error}", outcome.name);
            }
        }
    }
}

/// More than a service has to say once its reply is over.
#[tokio::test]
async fn floods_after_the_finish_are_left_soon_and_lose_nothing() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let growth = Growth::start();
    for wire in WIRES {
        let used = |tokens: u32| match wire {
            Wire::Chat => format!(r#"{{"choices":[],"usage":{{"prompt_tokens":{tokens}}}}}"#),
            Wire::Responses => format!(
                r#"{{"type":"response.completed","response":{{"usage":{{"input_tokens":{tokens}}}}}}}"#
            ),
            Wire::Messages => format!(r#"{{"type":"message_delta","usage":{{"input_tokens":{tokens}}}}}"#),
            Wire::Gemini => format!(r#"{{"usageMetadata":{{"promptTokenCount":{tokens}}}}}"#),
            Wire::Ollama => format!(r#"{{"prompt_eval_count":{tokens},"done":true}}"#),
        };
        let used = wire.frame(&used(1)) + &wire.frame(&used(2));
        let said = [STREAM, &wire.open(), &wire.say("Hello")].concat();
        for (end, finish) in [("the reason", wire.reason()), ("the end", Some(wire.close()))] {
            let Some(finish) = finish else { continue };
            for (name, piece) in [
                ("text", wire.say("more").repeat(100)),
                ("usage", used.repeat(100)),
                ("the reason again", finish.repeat(100)),
                ("nothing", wire.frame("{}").repeat(100)),
                ("what keeps a connection alive", wire.keep_alive()),
                ("a line", "x".repeat(64 << 10)),
                ("JSON without end", "[".repeat(64 << 10)),
            ] {
                let acts = [send(said.clone() + &finish), flood(piece)];
                let outcome = Fault::new(wire, format!("{name} after {end}"), acts).run().await;
                let Ok(reply) = &outcome.result else { panic!("{}: {:?}", outcome.name, outcome.result) };
                assert_eq!(reply.finish.reason, FinishReason::Stop, "{}", outcome.name);
                assert!(outcome.text.starts_with("Hello"), "{}: {}", outcome.name, outcome.text);
                let seen = outcome.seen;
                // The rest lies in the buffers of the system.
                assert!(seen.closed && seen.pushed < 16 * MIB, "{}: took {}", outcome.name, seen.pushed);
                growth.check(32 * MIB, &outcome.name);
            }
        }
    }
}

/// Some services name the finish reason in each frame, before the end.
#[tokio::test]
async fn a_finish_reason_with_each_piece_of_a_long_reply_cuts_nothing() {
    let pieces = 20_000;
    for (wire, frame) in [
        (Wire::Chat, r#"{"choices":[{"delta":{"content":"more "},"finish_reason":"stop"}]}"#),
        (Wire::Gemini, r#"{"candidates":[{"content":{"parts":[{"text":"more "}]},"finishReason":"STOP"}]}"#),
    ] {
        let body = wire.frame(frame).repeat(pieces) + &wire.close();
        let outcome =
            Fault::new(wire, "a reason with each piece", [send(STREAM.to_owned() + &body)]).run().await;
        assert_eq!(outcome.text.len(), pieces * 5, "{}", outcome.name);
        assert_eq!(outcome.result.unwrap().usage.output, Some(2));
    }
}
