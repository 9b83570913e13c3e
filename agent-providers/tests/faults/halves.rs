//! Characters that a service splits into two escapes, in two deltas.

use entourage_core::{
    Result,
    provider::{Delta, FinishReason},
};
use proptest::prelude::*;

use crate::wires::{WIRES, Wire};

/// The position of a text in a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Text,
    Reasoning,
    Arguments,
}

const PLACES: [Place; 3] = [Place::Text, Place::Reasoning, Place::Arguments];

/// Placeholder for a text that is written by hand.
const HERE: &str = "@@";

fn piece(wire: Wire, place: Place) -> String {
    match place {
        Place::Text => wire.say(HERE),
        Place::Arguments => wire.arguments(0, HERE),
        Place::Reasoning => wire.frame(match wire {
            Wire::Chat => r#"{"choices":[{"delta":{"reasoning_content":"@@"}}]}"#,
            Wire::Responses => r#"{"type":"response.reasoning_text.delta","output_index":0,"delta":"@@"}"#,
            Wire::Messages => {
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"@@"}}"#
            }
            Wire::Gemini => r#"{"candidates":[{"content":{"parts":[{"text":"@@","thought":true}]}}]}"#,
            Wire::Ollama => r#"{"message":{"content":"","thinking":"@@"},"done":false}"#,
        }),
    }
}

fn escaped(units: &[u16]) -> String {
    units.iter().map(|unit| format!("\\u{unit:04x}")).collect()
}

/// A reply with these pieces.
fn reply(wire: Wire, place: Place, pieces: &[&[u16]]) -> String {
    let mut reply = wire.open();
    if place == Place::Arguments {
        if !wire.cuts_arguments() {
            // The whole is JSON of the frame itself.
            let all: String = pieces.iter().map(|units| escaped(units)).collect();
            let call = wire.call(0, r#"{"x":"@@"}"#).replace(HERE, &all);
            return reply + &call + &wire.close();
        }
        reply += &wire.call(0, "");
    }
    for units in pieces {
        reply += &piece(wire, place).replace(HERE, &escaped(units));
    }
    reply + &wire.close()
}

fn said(wire: Wire, place: Place, deltas: &[Result<Delta>]) -> String {
    let mut said = String::new();
    let mut finishes = 0;
    for delta in deltas {
        match delta.as_ref().unwrap() {
            Delta::Text(text) if place == Place::Text => said += text,
            Delta::Reasoning(text) if place == Place::Reasoning => said += text,
            Delta::ToolCallArguments { text, .. } if place == Place::Arguments => said += text,
            Delta::Finish(finish) => {
                finishes += 1;
                assert_ne!(finish.reason, FinishReason::Error);
            }
            _ => {}
        }
    }
    assert_eq!(finishes, 1, "{wire:?}: {deltas:?}");
    if place == Place::Arguments && !wire.cuts_arguments() {
        let value: serde_json::Value = serde_json::from_str(&said).unwrap();
        return value["x"].as_str().unwrap().to_owned();
    }
    said
}

#[test]
fn attack_40_a_character_in_two_deltas_is_that_character() {
    for wire in WIRES {
        for place in PLACES {
            for (pieces, expected) in [
                (&[&[0xd83d_u16][..], &[0xde00]][..], "😀"),
                (&[&[0x41, 0xd83d], &[0xde00, 0x42]], "A😀B"),
                (&[&[0xd83d], &[0x41], &[0xde00]], "\u{fffd}A\u{fffd}"),
                (&[&[0xd83d], &[0xd83d, 0xde00], &[0xde00]], "\u{fffd}😀\u{fffd}"),
                (&[&[0x41, 0xd83d]], "A\u{fffd}"),
            ] {
                let body = reply(wire, place, pieces);
                let deltas = wire.decode([body.as_bytes()]);
                assert_eq!(said(wire, place, &deltas), expected, "{wire:?} {place:?}: {body}");
            }
        }
    }
}

#[test]
fn attack_40_halves_in_names_ids_and_errors_cost_no_reply() {
    for wire in WIRES {
        let call = wire.call(0, "{}").replace(r#""name":"f""#, r#""name":"f\ud83d\\\ud83d\ude00""#);
        let body = wire.open() + &call + &wire.close();
        let deltas = wire.decode([body.as_bytes()]);
        let name = deltas.iter().find_map(|delta| match delta.as_ref().unwrap() {
            Delta::ToolCallStart(call) => Some(call.name.to_string()),
            _ => None,
        });
        assert_eq!(name.as_deref(), Some("f\u{fffd}\\😀"), "{wire:?}");

        let failure = wire.failure(HERE).replace(HERE, r"slow\ud83d down");
        let body = wire.open() + &failure;
        let deltas = wire.decode([body.as_bytes()]);
        let error = deltas.into_iter().find_map(Result::err).unwrap();
        assert!(error.message().contains("slow\u{fffd} down"), "{wire:?}: {error}");
    }
}

#[test]
fn attack_40_a_half_that_the_end_of_the_stream_leaves_alone_is_still_said() {
    for wire in WIRES {
        let body = wire.open() + &wire.say(HERE).replace(HERE, r"A\ud83d");
        let deltas = wire.decode([body.as_bytes()]);
        let text: String = deltas
            .iter()
            .filter_map(|delta| match delta {
                Ok(Delta::Text(text)) => Some(&**text),
                _ => None,
            })
            .collect();
        assert_eq!(text, "A\u{fffd}", "{wire:?}");
    }
}

/// UTF-16 with many halves of characters.
fn units() -> impl Strategy<Value = Vec<u16>> {
    let unit = prop_oneof![
        0x20_u16..0x7f,
        Just(0x5c),
        Just(0x22),
        0xd800_u16..0xdc00,
        0xdc00_u16..0xe000,
        Just(0xfdd0),
        any::<u16>(),
    ];
    prop::collection::vec(unit, 1..24)
}

proptest! {
    #[test]
    fn attack_40_any_units_cut_anywhere_decode_to_their_text(
        units in units(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        bytes in 1usize..40,
        text in any::<String>(),
    ) {
        for units in [units, text.encode_utf16().collect()] {
            if units.is_empty() {
                continue;
            }
            let mut places: Vec<_> = cuts.iter().map(|cut| cut.index(units.len())).collect();
            places.extend([0, units.len()]);
            places.sort_unstable();
            places.dedup();
            let pieces: Vec<_> = places.windows(2).map(|pair| &units[pair[0]..pair[1]]).collect();
            for wire in WIRES {
                for place in PLACES {
                    let body = reply(wire, place, &pieces);
                    let deltas = wire.decode([body.as_bytes()]);
                    prop_assert_eq!(said(wire, place, &deltas), String::from_utf16_lossy(&units), "{:?} {:?}", wire, place);
                    let cut = wire.decode(body.as_bytes().chunks(bytes));
                    prop_assert_eq!(format!("{cut:?}"), format!("{deltas:?}"));
                }
            }
        }
    }
}
