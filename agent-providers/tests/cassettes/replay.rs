//! Compares the encoding of a decoded reply with the recorded client's own repetition of it.

use entourage_core::{
    message::{Arguments, Content, Media, MediaSource, Message, Part, ToolCall, ToolResult},
    provider::{Params, Request},
};
use serde_json::json;

use crate::{
    recordings::{Interaction, Sequence},
    said::{Item, Piece, Said, Who, read},
    tolerances::{self, Case, Turn},
    wires::{Reply, Wire},
};

/// Results of the pairs of interactions.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) compared: usize,
    pub(crate) results: usize,
    /// The client did not send the reply back: it began a new conversation, or the service keeps it.
    pub(crate) not_sent: usize,
    /// One of the two was refused or failed, or they use different wires.
    pub(crate) not_comparable: usize,
    /// Number of uses of each tolerance.
    pub(crate) tolerated: std::collections::BTreeMap<&'static str, usize>,
    pub(crate) failures: Vec<String>,
}

impl Tally {
    pub(crate) fn sequence(&mut self, sequence: &Sequence, replies: &[Reply]) {
        let pairs = sequence.interactions.windows(2).zip(replies).enumerate();
        for (i, (pair, reply)) in pairs {
            let [asked, next] = pair else { continue };
            if asked.protocol != next.protocol || asked.status >= 400 || reply.error.is_some() {
                self.not_comparable += 1;
                continue;
            }
            let (before, after) = (read(asked.wire, &asked.request), read(next.wire, &next.request));
            let Some(theirs) = sent_back(&before, &after, reply) else {
                self.not_sent += 1;
                continue;
            };
            let ours = encoded(next, reply, &theirs);
            // On some wires, a message of reasoning alone is not allowed; the client made one up.
            if ours.reply.is_empty()
                && reply.message.parts().iter().all(|part| matches!(part, Part::Reasoning(_)))
            {
                self.not_sent += 1;
                continue;
            }
            self.compared += 1;
            self.results += theirs.results.len();
            let case = Case { wire: next.wire, body: std::str::from_utf8(&asked.body).unwrap() };
            match tolerances::reconcile(case, &ours, &theirs) {
                Ok(needed) => {
                    for rule in needed {
                        *self.tolerated.entry(rule).or_default() += 1;
                    }
                }
                Err(differing_turns) => {
                    let (ours, theirs) = *differing_turns;
                    let (ours, theirs) = differing(&format!("{ours:?}"), &format!("{theirs:?}"));
                    self.failures.push(format!(
                        "{}[{i}] is sent back as\n    {ours}\n  and the recorded client sent\n    {theirs}",
                        sequence.id
                    ));
                }
            }
        }
    }
}

/// The turn of `after` that corresponds to the reply: the part after all of `before`, else the turn with the reply's
/// calls, or its text.
fn sent_back(before: &Said, after: &Said, reply: &Reply) -> Option<Turn> {
    let rest = if after.len() > before.len() && after[..before.len()] == before[..] {
        after.get(before.len()..)
    } else {
        let at = after.iter().rposition(|(who, item)| *who == Who::Model && belongs(item, reply))?;
        let start = after[..at].iter().rposition(|(who, _)| *who != Who::Model).map_or(0, |last| last + 1);
        after.get(start..)
    };
    Some(turn(rest?)).filter(|turn| !turn.reply.is_empty())
}

fn belongs(item: &Item, reply: &Reply) -> bool {
    match item {
        Item::Call { id, name, arguments } => reply.message.tool_calls().any(|call| {
            !id.is_empty() && *call.id == **id
                || *call.name == **name && call.arguments.to_value() == *arguments
        }),
        Item::Text(text) => !text.trim().is_empty() && text.trim() == reply.message.text().trim(),
        _ => false,
    }
}

/// The first turn of the model in `said`, and the results that follow.
fn turn(said: &[(Who, Item)]) -> Turn {
    let mut rest = said.iter().peekable();
    let mut take = |who: Who| -> Vec<Item> {
        std::iter::from_fn(|| rest.next_if(|(speaker, _)| *speaker == who))
            .map(|(_, item)| item.clone())
            .collect()
    };
    let (reply, results) = (take(Who::Model), take(Who::Tool));
    Turn { reply, results, after: format!("{:?}", rest.collect::<Vec<_>>()) }
}

/// Excerpts of two texts around the first difference.
fn differing(one: &str, two: &str) -> (String, String) {
    let alike = one.chars().zip(two.chars()).take_while(|(one, two)| one == two).count();
    let part = |text: &str| text.chars().skip(alike.saturating_sub(60)).take(300).collect();
    (part(one), part(two))
}

/// The turn as our encoder writes it.
fn encoded(next: &Interaction, reply: &Reply, theirs: &Turn) -> Turn {
    let mut history = vec![Message::user("x"), reply.message.clone()];
    let results = results(&reply.message, theirs);
    if !results.is_empty() {
        history.push(Message::tool(results));
    }
    let mut params = Params::default();
    if next.wire == Wire::Responses && next.request["store"] != json!(false) {
        params.extra = Some(json!({"store": true}));
    }
    let model = next.path.rsplit('/').next().and_then(|last| last.split(':').next());
    let model = next.request["model"].as_str().or(model).unwrap_or("m");
    let request = Request::new(model, history.into_iter().collect()).with_params(params);
    let said = read(next.wire, &next.wire.encode(&request));
    turn(said.get(1..).unwrap_or_default())
}

/// The recorded results as results of our calls: those with the same id, or without ids the next with the same name.
fn results(message: &Message, theirs: &Turn) -> Vec<ToolResult> {
    let mut open: Vec<&ToolCall> = message.tool_calls().collect();
    let mut results = Vec::new();
    for item in &theirs.results {
        let Item::Result { id, name, content, is_error } = item else { continue };
        let by_id = open.iter().position(|call| !id.is_empty() && *call.id == **id);
        // An id made up by the client: takes the call in the same position.
        let place = theirs
            .reply
            .iter()
            .filter(|item| matches!(item, Item::Call { .. }))
            .position(|item| matches!(item, Item::Call { id: call, .. } if !id.is_empty() && call == id));
        let named = place.and_then(|place| message.tool_calls().nth(place));
        let in_place = || open.iter().position(|call| named.is_some_and(|named| named.id == call.id));
        let next = || open.iter().position(|call| id.is_empty() && (name.is_empty() || *call.name == **name));
        let call = match by_id.or_else(in_place).or_else(next) {
            Some(at) => open.remove(at).clone(),
            None => ToolCall::new(&**id, &**name, Arguments::empty()),
        };
        results.push(ToolResult::new(&call, content.iter().map(piece).collect(), *is_error));
    }
    results
}

fn piece(piece: &Piece) -> Content {
    match piece {
        Piece::Text(text) => Content::Text(text.clone()),
        Piece::File { mime, data } if data.starts_with("http") => {
            Content::Media(Media::new(mime, MediaSource::Url(data.clone())))
        }
        Piece::File { mime, data } => Content::Media(Media::new(mime, MediaSource::Base64(data.clone()))),
    }
}
