//! Figures that no call can have: they become unknown, never zero.

use entourage_core::provider::Delta;
use entourage_runtime::reply::Assembler;

use crate::wires::{WIRES, Wire};

fn decode(wire: Wire, body: &str) -> Vec<Delta> {
    wire.decode([body.as_bytes()]).into_iter().map(|delta| delta.unwrap()).collect()
}

#[test]
fn attack_05_absurd_figures_are_unknown_on_every_wire() {
    for wire in WIRES {
        for (figure, known, warned) in [
            ("0", Some(0), false),
            ("12.0", Some(12), false),
            ("999999999999", Some(999_999_999_999), false),
            ("1000000000000", None, true),
            ("9200000000000000000", None, true),
            ("18446744073709551615", None, true),
            ("99999999999999999999999", None, false),
            ("1e300", None, false),
            ("-1", None, false),
            ("-9200000000000000000", None, false),
            ("1.5", None, false),
            ("\"7\"", None, false),
            ("null", None, false),
            ("[1]", None, false),
        ] {
            for (input, output, expected) in
                [(figure, "2", (known, Some(2))), ("9", figure, (Some(9), known))]
            {
                let body = wire.open() + &wire.say("Hello");
                // The messages protocol reports the input at the start too, and a later figure is better.
                let body = body.replace(r#","usage":{"input_tokens":9}"#, "");
                let body = body + &wire.close_having_used(input, output);
                let deltas = decode(wire, &body);
                let mut assembler = Assembler::default();
                deltas.iter().for_each(|delta| assembler.push(delta).unwrap());
                let reply = assembler.finish().unwrap();
                assert_eq!((reply.usage.input, reply.usage.output), expected, "{wire:?}: {input} {output}");
                let warnings: Vec<_> = reply.warnings.iter().map(|warning| &*warning.subject).collect();
                assert_eq!(warnings, if warned { vec!["usage"] } else { vec![] }, "{wire:?}: {figure}");
            }
        }
    }
}

#[test]
fn attack_05_absurd_costs_are_unknown() {
    for (cost, known) in [
        ("999999", Some(999_999_000_000_000_000)),
        ("1000000", None),
        ("\"1000000\"", None),
        ("1e300", None),
        ("-1", None),
        ("\"NaN\"", None),
        ("0.5", Some(500_000_000_000)),
    ] {
        for (wire, body) in [
            (Wire::Chat, format!(r#"{{"choices":[],"usage":{{"prompt_tokens":1,"cost":{cost}}}}}"#)),
            (
                Wire::Responses,
                format!(
                    r#"{{"type":"response.completed","response":{{"usage":{{"input_tokens":1,"cost":{cost}}}}}}}"#
                ),
            ),
            (
                Wire::Messages,
                format!(r#"{{"type":"message_delta","usage":{{"input_tokens":1,"cost":{cost}}}}}"#),
            ),
        ] {
            let deltas = decode(wire, &wire.frame(&body));
            let usage = deltas.iter().rev().find_map(|delta| match delta {
                Delta::Usage(usage) => Some(**usage),
                _ => None,
            });
            let usage = usage.unwrap();
            assert_eq!(usage.cost.map(entourage_core::Money::as_pico), known, "{wire:?}: {cost}");
            assert_eq!(usage.input, Some(1));
        }
    }
}
