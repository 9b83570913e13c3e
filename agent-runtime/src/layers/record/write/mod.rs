//! Conversion of recorded calls into the recordings' format.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use entourage_core::{Error, ErrorKind, Result, Usage, provider::Delta};
use serde_json::{Map, Value, json};

use super::{
    asked::{Asked, scrubbed},
    expect::{Counting, Expected, object, usage},
    lock,
    scrub::Scrubber,
    tape::{End, Entry, Failed, Sent, Tape},
};

/// Version of this library's additions to the recordings' format.
pub(super) const FORMAT: u32 = 1;

/// Protocol of a call that crossed no wire.
const NO_WIRE: &str = "entourage";

/// One sequence of all calls, as JSON.
pub(super) fn sequence(id: &str, tapes: &[Arc<Mutex<Tape>>], scrubber: &Scrubber) -> Result<String> {
    let mut all = Sequence { scrubber, count: 0, interactions: Vec::new(), expected: Vec::new() };
    let mut providers = Vec::new();
    for tape in tapes {
        let tape = lock(tape);
        providers.push(tape.provider.clone());
        all.call(&tape)?;
    }
    let value = all.to_value(id, providers.first().map_or("", String::as_str));
    let text = serde_json::to_string_pretty(&value)
        .map_err(|error| Error::new(ErrorKind::Internal, "a recording cannot be written").caused_by(error))?;
    if scrubber.finds_registered(&text) {
        return Err(Error::new(
            ErrorKind::Internal,
            "a registered secret could not be removed, so no recording was made; do not register numbers or words of \
             the recording format",
        ));
    }
    Ok(text)
}

/// An interaction in the making.
type Fields = Vec<(&'static str, Value)>;

struct Sequence<'a> {
    scrubber: &'a Scrubber,
    count: usize,
    interactions: Vec<Value>,
    /// Summary of each call, and true if it crossed a wire.
    expected: Vec<(Expected, bool)>,
}

impl Sequence<'_> {
    fn call(&mut self, tape: &Tape) -> Result<()> {
        let said = clean(&tape.deltas, self.scrubber)?;
        self.count += said.count;
        let failed = match &tape.end {
            End::Failed(failed) => Some(self.failed(failed)?),
            End::Open | End::Closed => None,
        };
        let mut expected = Expected::of(&said.deltas, self.scrubber);
        expected.error = failed.as_ref().map(error_value);
        let mut entries: Vec<Entry> = said.deltas.iter().cloned().map(Entry::Delta).collect();
        match failed {
            Some(error) => entries.push(Entry::Error { error }),
            None if matches!(tape.end, End::Open) => entries.push(Entry::Dropped { dropped: true }),
            None => {}
        }
        if let Some((last, earlier)) = tape.exchanges.split_last() {
            self.earlier(earlier, &said);
            let mut interaction = self.exchange(last, said.was_cut);
            interaction.push(("expect", expected.to_value(true, last.counting)));
            self.push(interaction, tape, &expected, &entries)?;
        } else {
            let (body, count) = scrubbed(&tape.request, self.scrubber)?;
            self.count += count;
            let status = failed_status(&expected).unwrap_or(200);
            let interaction = vec![
                ("protocol", NO_WIRE.into()),
                ("request", json!({"method": "", "path": "", "query": {}, "headers": {}, "body": body})),
                ("response", json!({"status": status, "headers": {}, "body": "", "base64": false})),
                ("expect", expected.to_value(false, Counting::default())),
            ];
            self.push(interaction, tape, &expected, &entries)?;
        }
        self.expected.push((expected, !tape.exchanges.is_empty()));
        Ok(())
    }

    fn push(
        &mut self,
        mut interaction: Fields,
        tape: &Tape,
        expected: &Expected,
        entries: &[Entry],
    ) -> Result<()> {
        let mut features = expected.features();
        features.push("stream".to_owned());
        if !tape.request.tools.is_empty() {
            features.push("tools-declared".to_owned());
        }
        features.sort();
        interaction.push(("features", features.into()));
        interaction.push(("asked", written(&Asked::of(&tape.request, self.scrubber)?)?));
        interaction.push(("deltas", written(entries)?));
        self.interactions.push(object(interaction));
        Ok(())
    }

    /// Adds attempts that another one followed. Their deltas are known if there is one restart for each.
    fn earlier(&mut self, exchanges: &[Sent], said: &Clean) {
        let deltas = &said.deltas;
        let attempts: Vec<_> = deltas.split(|delta| matches!(delta, Delta::Restart(_))).collect();
        let restarts = deltas.iter().filter_map(|delta| match delta {
            Delta::Restart(restart) => Some(restart.error.message.clone()),
            _ => None,
        });
        let messages: Vec<_> = restarts.collect();
        let told = messages.len() == exchanges.len();
        for (place, sent) in exchanges.iter().enumerate() {
            let attempt = attempts.get(place).filter(|_| told).copied().unwrap_or_default();
            let mut expected = Expected::of(attempt, self.scrubber);
            let status = sent.status.filter(|status| *status >= 400);
            let message = messages.get(place).filter(|_| told);
            expected.error = Some(json!({"status": status, "type": null, "code": null, "message": message}));
            let mut interaction = self.exchange(sent, said.was_cut);
            interaction.push(("expect", expected.to_value(true, sent.counting)));
            interaction.push(("features", expected.features().into()));
            self.interactions.push(object(interaction));
        }
    }

    fn exchange(&mut self, sent: &Sent, withhold: bool) -> Fields {
        let body = match serde_json::from_slice::<Value>(&sent.body) {
            Ok(mut body) => {
                self.count += self.scrubber.value(&mut body);
                body
            }
            Err(_) if sent.body.is_empty() => Value::Null,
            Err(_) => self.bytes(&sent.body).0,
        };
        let (answer, base64) = if withhold { (Value::from(""), false) } else { self.bytes(&sent.answer) };
        let why = withhold.then(|| ("withheld", "a secret was split over several deltas".into()));
        let request = [
            ("method", sent.method.clone().into()),
            ("path", self.text(&sent.path).into()),
            ("query", self.query(&sent.query)),
            ("headers", self.headers(&sent.headers)),
            ("body", body),
        ];
        let response = [
            ("status", sent.status.unwrap_or_default().into()),
            ("headers", self.headers(&sent.answer_headers)),
            ("body", answer),
            ("base64", base64.into()),
        ];
        vec![
            ("protocol", sent.protocol.clone().into()),
            ("request", object(request)),
            ("response", object(response.into_iter().chain(why))),
        ]
    }

    fn text(&mut self, text: &str) -> String {
        let (clean, count) = self.scrubber.text(text);
        self.count += count;
        clean
    }

    /// A body as text, or in base64 if it is not UTF-8.
    fn bytes(&mut self, bytes: &[u8]) -> (Value, bool) {
        if let Ok(text) = std::str::from_utf8(bytes) {
            return (self.text(text).into(), false);
        }
        let mut clean = Vec::with_capacity(bytes.len());
        for chunk in bytes.utf8_chunks() {
            clean.extend_from_slice(self.text(chunk.valid()).as_bytes());
            clean.extend_from_slice(chunk.invalid());
        }
        (base64(&clean).into(), true)
    }

    fn query(&mut self, query: &str) -> Value {
        let clean = self.text(query);
        let fields = clean.split('&').filter(|field| !field.is_empty()).map(|field| {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            (name.to_owned(), Value::from(value))
        });
        Value::Object(fields.collect())
    }

    fn headers(&mut self, headers: &[(String, String)]) -> Value {
        let mut kept = Map::new();
        for (name, value) in headers.iter().filter(|(name, _)| is_kept(name)) {
            let value = self.text(value);
            kept.insert(name.to_ascii_lowercase(), value.into());
        }
        Value::Object(kept)
    }

    fn failed(&mut self, failed: &Failed) -> Result<Failed> {
        let (clean, count) = scrubbed(failed, self.scrubber)?;
        self.count += count;
        serde_json::from_value(clean)
            .map_err(|error| Error::new(ErrorKind::Internal, "an error cannot be recorded").caused_by(error))
    }

    fn to_value(&self, id: &str, provider: &str) -> Value {
        let wire = self.expected.iter().any(|(_, wire)| *wire);
        let features: BTreeSet<_> = self
            .interactions
            .iter()
            .filter_map(|one| one["features"].as_array())
            .flatten()
            .cloned()
            .filter_map(|feature| feature.as_str().map(str::to_owned))
            .chain((self.interactions.len() > 1).then(|| "multi-step".to_owned()))
            .collect();
        let text: String = self.expected.iter().map(|(one, _)| one.text.as_str()).collect();
        let calls: Vec<Value> = self.expected.iter().flat_map(|(one, _)| one.tool_calls()).collect();
        let used: Usage = self.expected.iter().map(|(one, _)| one.usage).sum();
        let finish = self.expected.last().and_then(|(one, wire)| one.finish_reason(*wire));
        let protocol = self.interactions.first().map_or(&Value::Null, |one| &one["protocol"]);
        json!({
            "id": self.scrubber.text(id).0,
            "recorder": FORMAT,
            "protocol": protocol,
            "provider": self.scrubber.text(provider).0,
            "fidelity": if wire { "raw" } else { "none" },
            "features": features,
            "scrubbed_values": self.count,
            "interactions": self.interactions,
            "expect": {
                "text": self.scrubber.text(&text).0,
                "tool_calls": calls,
                "usage": (!used.is_unknown()).then(|| usage(&used, Counting::default())),
                "finish_reason": finish,
            },
        })
    }
}

fn written<T: serde::Serialize + ?Sized>(value: &T) -> Result<Value> {
    serde_json::to_value(value)
        .map_err(|error| Error::new(ErrorKind::Internal, "a reply cannot be recorded").caused_by(error))
}

fn error_value(failed: &Failed) -> Value {
    let status = failed.named("status").and_then(|status| status.parse::<u16>().ok());
    json!({"status": status, "type": null, "code": failed.named("code"), "message": failed.message})
}

fn failed_status(expected: &Expected) -> Option<u64> {
    expected.error.as_ref()?.get("status")?.as_u64()
}

/// True for headers that describe a body, name a request, or state limits.
fn is_kept(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    matches!(name.as_str(), "accept" | "content-type" | "retry-after" | "retry-after-ms" | "x-should-retry")
        || ["request-id", "correlation-id", "-version"].iter().any(|end| name.ends_with(end))
        || (name.contains("ratelimit-") && !name.ends_with("-key"))
}

/// Scrubbed deltas of a reply.
struct Clean {
    deltas: Vec<Delta>,
    count: usize,
    /// True if a secret was split over several deltas. The body is then withheld, since a scrub would miss it there.
    was_cut: bool,
}

/// Scrubs the joined text of a reply's deltas, and splits it again in the same lengths.
fn clean(deltas: &[Delta], scrubber: &Scrubber) -> Result<Clean> {
    let mut out = Clean { deltas: Vec::with_capacity(deltas.len()), count: 0, was_cut: false };
    let mut pieces: Vec<Option<String>> = vec![None; deltas.len()];
    for run in runs(deltas) {
        let texts: Vec<&str> = run.iter().filter_map(|place| deltas.get(*place).and_then(text)).collect();
        let (whole, count) = scrubber.text(&texts.concat());
        out.count += count;
        let apart: String = texts.iter().map(|text| scrubber.text(text).0).collect();
        out.was_cut |= apart != whole;
        let mut signs = whole.chars();
        for (place, text) in run.iter().zip(texts) {
            if let Some(piece) = pieces.get_mut(*place) {
                *piece = Some(signs.by_ref().take(text.chars().count()).collect());
            }
        }
    }
    for (delta, piece) in deltas.iter().zip(pieces) {
        out.deltas.push(match piece {
            Some(piece) => with_text(delta, &piece),
            None => {
                let (value, count) = scrubbed(delta, scrubber)?;
                out.count += count;
                serde_json::from_value(value).map_err(|error| {
                    Error::new(ErrorKind::Internal, "a delta cannot be recorded").caused_by(error)
                })?
            }
        });
    }
    Ok(out)
}

fn text(delta: &Delta) -> Option<&str> {
    match delta {
        Delta::Text(text) | Delta::Reasoning(text) | Delta::Refusal(text) => Some(text),
        Delta::ToolCallArguments { text, .. } => Some(text),
        _ => None,
    }
}

fn with_text(delta: &Delta, text: &str) -> Delta {
    match delta {
        Delta::Reasoning(_) => Delta::Reasoning(text.into()),
        Delta::Refusal(_) => Delta::Refusal(text.into()),
        Delta::ToolCallArguments { index, .. } => Delta::arguments(*index, text),
        _ => Delta::text(text),
    }
}

/// Positions of the text deltas, grouped by the text of the message that they belong to.
fn runs(deltas: &[Delta]) -> Vec<Vec<usize>> {
    let mut runs: Vec<Vec<usize>> = Vec::new();
    let mut open: Option<(std::mem::Discriminant<Delta>, usize)> = None;
    let mut calls: BTreeMap<u32, usize> = BTreeMap::new();
    for (place, delta) in deltas.iter().enumerate() {
        let run = match delta {
            Delta::Text(_) | Delta::Reasoning(_) | Delta::Refusal(_) => {
                let kind = std::mem::discriminant(delta);
                let run = open.filter(|(last, _)| *last == kind).map_or(runs.len(), |(_, run)| run);
                open = Some((kind, run));
                run
            }
            Delta::ToolCallArguments { index, .. } => *calls.entry(*index).or_insert(runs.len()),
            Delta::ToolCallStart(call) => {
                calls.remove(&call.index);
                open = None;
                continue;
            }
            Delta::ReasoningSignature(_) | Delta::Opaque(_) | Delta::Restart(_) => {
                open = None;
                continue;
            }
            _ => continue,
        };
        match runs.get_mut(run) {
            Some(run) => run.push(place),
            None => runs.push(vec![place]),
        }
    }
    runs
}

fn base64(bytes: &[u8]) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let sign = |bits: u32| SIGNS.get((bits & 63) as usize).map_or('=', |sign| char::from(*sign));
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| group.get(at).copied().map_or(0, u32::from);
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4_usize {
            out.push(if at <= group.len() { sign(bits >> (18 - 6 * at)) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests;
