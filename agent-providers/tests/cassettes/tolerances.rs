//! Permitted differences between a recorded client and our encoder: named rules, each with its reason.
//!
//! Each rule has the number of known recordings that need it: a stale rule fails the test, and so does one that begins
//! to hide more.

use serde_json::{Map, Value};

use crate::{
    said::{Item, Piece},
    wires::Wire,
};

/// A reply of the model, and the results of its calls.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Turn {
    pub(crate) reply: Vec<Item>,
    pub(crate) results: Vec<Item>,
    /// The user's words after them, as JSON.
    pub(crate) after: String,
}

/// The wire and the body of a reply.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) wire: Wire,
    /// The body of the reply, as it came.
    pub(crate) body: &'a str,
}

impl Case<'_> {
    /// True if the text occurs in the reply.
    fn names(self, text: &str) -> bool {
        !text.is_empty() && self.body.contains(text)
    }
}

/// One difference between clients. The doc comment of its function has the reason.
pub(crate) struct Tolerance {
    pub(crate) name: &'static str,
    /// Number of turns of the known recordings that need it.
    pub(crate) needed: usize,
    /// Removes this difference from both sides: ours, then theirs.
    forgive: fn(Case<'_>, &mut Turn, &mut Turn),
}

const fn rule(name: &'static str, needed: usize, forgive: fn(Case<'_>, &mut Turn, &mut Turn)) -> Tolerance {
    Tolerance { name, needed, forgive }
}

/// All tolerances, in the order in which they are applied.
pub(crate) const TOLERANCES: &[Tolerance] = &[
    rule("thinking in tags", 3, thinking_in_tags),
    rule("reasoning left out", 8, reasoning_left_out),
    rule("reasoning that is not taken back", 1, reasoning_not_taken),
    rule("sealed reasoning left out", 2, sealed_left_out),
    rule("shown reasoning left out", 1, shown_left_out),
    rule("other base64", 15, other_base64),
    rule("last signature on the text before", 1, last_signature),
    rule("text beside calls left out", 1, text_left_out),
    rule("pieces of a stream lost", 3, pieces_lost),
    rule("other quotation marks and dashes", 5, other_quotes),
    rule("calls made up", 1, calls_made_up),
    rule("no ids", 15, no_ids),
    rule("ids of its own", 6, own_ids),
    rule("pieces of a result joined", 2, pieces_joined),
    rule("files after the results", 1, files_after),
    rule("words of an item left out", 2, words_left_out),
    rule("blocks left out", 2, blocks_left_out),
    rule("search in a form of its own", 2, own_search),
    rule("outputs of code left out", 1, outputs_left_out),
    rule("blocks spelled otherwise", 1, other_spelling),
    rule("blocks filled from elsewhere", 1, filled_blocks),
    rule("direct caller left out", 1, direct_caller),
];

/// Allows thinking in the text. Older local models think in their text; some clients extract that and send it back as
/// reasoning, and some put reasoning into tags themselves.
fn thinking_in_tags(_: Case<'_>, ours: &mut Turn, theirs: &mut Turn) {
    for turn in [ours, theirs] {
        let items = std::mem::take(&mut turn.reply);
        turn.reply = items
            .into_iter()
            .flat_map(|item| match &item {
                Item::Text(text) => match text.split_once("</think>") {
                    Some((thought, said)) => {
                        let thought = thought.trim().trim_start_matches("<think>").trim();
                        let proof = String::new();
                        let said = Some(said.trim()).filter(|said| !said.is_empty());
                        let said = said.map(|said| Item::Text(said.to_owned()));
                        let thought = Item::Reasoning { text: thought.to_owned(), proof };
                        std::iter::once(thought).chain(said).collect()
                    }
                    None => vec![item],
                },
                _ => vec![item],
            })
            .collect();
    }
}

fn is_reasoning(item: &Item) -> bool {
    matches!(item, Item::Reasoning { .. })
}

/// Allows turns without their reasoning. Many clients send none back, and services accept that.
fn reasoning_left_out(_: Case<'_>, ours: &mut Turn, theirs: &mut Turn) {
    if !theirs.reply.iter().any(is_reasoning) {
        ours.reply.retain(|item| !is_reasoning(item));
    }
}

/// Allows reasoning for services that are known to take none back. Some clients send it.
fn reasoning_not_taken(case: Case<'_>, _: &mut Turn, theirs: &mut Turn) {
    if matches!(case.wire, Wire::Chat(dialect) if !dialect.replays_reasoning) {
        theirs.reply.retain(|item| !is_reasoning(item));
    }
}

/// Allows text of reasoning without its signature or sealed form. Some clients lose that.
fn sealed_left_out(_: Case<'_>, ours: &mut Turn, theirs: &mut Turn) {
    if !theirs.reply.iter().any(|item| matches!(item, Item::Reasoning { proof, .. } if !proof.is_empty())) {
        ours.reply.iter_mut().for_each(|item| {
            if let Item::Reasoning { proof, .. } = item {
                proof.clear();
            }
        });
        ours.reply.retain(|item| !matches!(item, Item::Reasoning { text, .. } if text.is_empty()));
    }
}

/// Allows the sealed form without the text. Some clients keep only that.
fn shown_left_out(_: Case<'_>, ours: &mut Turn, theirs: &mut Turn) {
    if !theirs.reply.iter().any(|item| matches!(item, Item::Reasoning { text, .. } if !text.is_empty())) {
        ours.reply.iter_mut().for_each(|item| {
            if let Item::Reasoning { text, .. } = item {
                text.clear();
            }
        });
        ours.reply.retain(|item| !matches!(item, Item::Reasoning { proof, .. } if proof.is_empty()));
    }
}

/// Allows signatures in the other alphabet of base64. Some clients decode and encode them; we keep them unchanged.
fn other_base64(_: Case<'_>, ours: &mut Turn, theirs: &mut Turn) {
    for item in ours.reply.iter_mut().chain(&mut theirs.reply) {
        if let Item::Reasoning { proof, .. } = item {
            *proof = proof.replace('-', "+").replace('_', "/");
        }
    }
}

/// Allows a last signature, on an empty part, to move to the text before it. We send it back in place.
fn last_signature(_: Case<'_>, ours: &mut Turn, theirs: &mut Turn) {
    for turn in [ours, theirs] {
        if let [.., text @ Item::Text(_), signature] = turn.reply.as_mut_slice()
            && is_reasoning(signature)
        {
            std::mem::swap(text, signature);
        }
    }
}

/// Allows a turn with calls without its text for the user. Some clients drop that.
fn text_left_out(_: Case<'_>, ours: &mut Turn, theirs: &mut Turn) {
    let calls = theirs.reply.iter().any(|item| matches!(item, Item::Call { .. }));
    if calls && !theirs.reply.iter().any(|item| matches!(item, Item::Text(_))) {
        ours.reply.retain(|item| !matches!(item, Item::Text(_)));
    }
}

/// Allows the loss of pieces of a streamed text. Some clients keep only the first one, or none.
fn pieces_lost(_: Case<'_>, ours: &mut Turn, theirs: &mut Turn) {
    let lost = |ours: &mut Vec<Item>, at: usize, all: &str, kept: &str| {
        if !kept.trim_end().is_empty() && all.ends_with(kept) || !kept.is_empty() && all.starts_with(kept) {
            match &mut ours[at] {
                Item::Text(text) | Item::Reasoning { text, .. } => kept.clone_into(text),
                _ => {}
            }
        }
    };
    for (at, kept) in theirs.reply.iter().enumerate() {
        match (ours.reply.get(at).cloned(), kept) {
            (Some(Item::Text(all)), Item::Text(kept)) => lost(&mut ours.reply, at, &all, kept),
            (Some(Item::Reasoning { text: all, .. }), Item::Reasoning { text: kept, .. }) => {
                lost(&mut ours.reply, at, &all, kept);
            }
            _ => {}
        }
    }
}

/// Allows other quotation marks. Some clients repair JSON that the model wrote into its text, and some recordings have
/// plain quotation marks and dashes in one of two places.
fn other_quotes(_: Case<'_>, ours: &mut Turn, theirs: &mut Turn) {
    fn replace(value: &mut Value) {
        match value {
            Value::String(text) => *text = ascii(text),
            Value::Array(all) => all.iter_mut().for_each(replace),
            Value::Object(fields) => fields.values_mut().for_each(replace),
            _ => {}
        }
    }
    for item in ours.reply.iter_mut().chain(&mut theirs.reply) {
        match item {
            Item::Text(text) => *text = ascii(text),
            Item::Block(block) => replace(block),
            _ => {}
        }
    }
}

fn ascii(text: &str) -> String {
    text.replace(['‘', '’', '“', '”', '"'], "'").replace(['–', '—'], "-")
}

/// Allows calls that the model never made, with results: some clients insert them to show it search results.
fn calls_made_up(case: Case<'_>, ours: &mut Turn, theirs: &mut Turn) {
    let made_up =
        |item: &Item| matches!(item, Item::Call { name, .. } if !case.names(&format!("\"{name}\"")));
    let mut ids = Vec::new();
    while let Some(at) = theirs.reply.iter().position(made_up) {
        if let Item::Call { id, .. } = theirs.reply.remove(at) {
            ids.push(id);
        }
        // The stand-in for its signature.
        if at > 0 && is_reasoning(&theirs.reply[at - 1]) {
            theirs.reply.remove(at - 1);
        }
    }
    for turn in [ours, theirs] {
        turn.results.retain(|item| !matches!(item, Item::Result { id, .. } if ids.contains(id)));
    }
}

fn ids(turn: &mut Turn) -> impl Iterator<Item = &mut String> {
    turn.reply.iter_mut().chain(&mut turn.results).filter_map(|item| match item {
        Item::Call { id, .. } | Item::Result { id, .. } => Some(id),
        _ => None,
    })
}

/// Allows other ids. Some wires do not need them: results are in the order of the calls. Some clients leave out the
/// ids that came, and some send ids where none came.
fn no_ids(case: Case<'_>, ours: &mut Turn, theirs: &mut Turn) {
    let optional = matches!(case.wire, Wire::Gemini | Wire::Ollama);
    if optional && !ids(theirs).any(|id| case.names(id)) {
        ids(ours).chain(ids(theirs)).for_each(String::clear);
    }
}

/// Allows ids of the client's own, made from the response's id or an item's. Only the assignment of results matters:
/// each id is replaced by the position of its call. Ours are the original ones, if any came.
fn own_ids(case: Case<'_>, ours: &mut Turn, theirs: &mut Turn) {
    if ids(ours).any(|id| !case.names(id)) && ids(theirs).any(|id| case.names(id)) {
        return;
    }
    for turn in [ours, theirs] {
        let calls = turn.reply.iter().filter_map(|item| match item {
            Item::Call { id, .. } => Some(id.clone()),
            _ => None,
        });
        let calls: Vec<_> = calls.collect();
        for id in ids(turn) {
            if let Some(place) = calls.iter().position(|call| call == id) {
                *id = format!("call {place}");
            }
        }
    }
}

/// Allows a result in pieces on wires where ours is one text.
fn pieces_joined(_: Case<'_>, ours: &mut Turn, theirs: &mut Turn) {
    for item in ours.results.iter_mut().chain(&mut theirs.results) {
        let Item::Result { content, .. } = item else { continue };
        let mut joined: Vec<Piece> = Vec::new();
        for piece in std::mem::take(content) {
            match (joined.last_mut(), piece) {
                (Some(Piece::Text(before)), Piece::Text(text)) => *before = format!("{before}\n{text}"),
                (_, piece) => joined.push(piece),
            }
        }
        *content = joined;
    }
}

/// Allows files in a result. Ours are in the next user message, and a line in the result says so.
fn files_after(_: Case<'_>, ours: &mut Turn, theirs: &mut Turn) {
    for (ours_at, theirs_at) in ours.results.iter_mut().zip(&mut theirs.results) {
        let (Item::Result { content, .. }, Item::Result { content: theirs_at, .. }) = (ours_at, theirs_at)
        else {
            continue;
        };
        let mut moved = 0;
        theirs_at.retain(|piece| match piece {
            Piece::File { data, .. } if ours.after.contains(data) => {
                moved += 1;
                false
            }
            _ => true,
        });
        for piece in content.iter_mut().filter(|_| moved > 0) {
            if let Piece::Text(text) = piece {
                let kept = text.lines().filter(|line| !line.ends_with(": see the next message of the user]"));
                *text = kept.collect::<Vec<_>>().join("\n");
            }
        }
    }
}

/// Allows the loss of a message's phase or a call's namespace, which some clients do not know.
fn words_left_out(_: Case<'_>, ours: &mut Turn, theirs: &mut Turn) {
    if !theirs.reply.iter().any(|item| matches!(item, Item::Note(_))) {
        ours.reply.retain(|item| !matches!(item, Item::Note(_)));
    }
}

fn kind(item: &Item) -> Option<&Value> {
    match item {
        Item::Block(block) => block.get("type"),
        _ => None,
    }
}

/// Allows the loss of some kinds of blocks of the service's own tools.
fn blocks_left_out(_: Case<'_>, ours: &mut Turn, theirs: &mut Turn) {
    let sent =
        |item: &Item| kind(item).is_none() || theirs.reply.iter().any(|other| kind(other) == kind(item));
    ours.reply.retain(sent);
}

fn blocks<'a>(ours: &'a mut Turn, theirs: &'a mut Turn, kind: &str) -> Vec<&'a mut Map<String, Value>> {
    let items = ours.reply.iter_mut().chain(&mut theirs.reply).filter_map(|item| match item {
        Item::Block(Value::Object(block)) => Some(block),
        _ => None,
    });
    items.filter(|block| block.get("type").is_some_and(|own| own == kind)).collect()
}

/// Allows a converted search for tools: some clients read it into a form of their own and write it from that.
fn own_search(_: Case<'_>, ours: &mut Turn, theirs: &mut Turn) {
    for block in blocks(ours, theirs, "tool_search_call") {
        block.retain(|key, _| ["id", "type"].contains(&key.as_str()));
    }
}

/// Allows the service's code without its outputs.
fn outputs_left_out(_: Case<'_>, ours: &mut Turn, theirs: &mut Turn) {
    for block in blocks(ours, theirs, "code_interpreter_call") {
        block.remove("outputs");
    }
}

/// Allows blocks as a library spells them: names in snake case, and empty objects for absent values.
fn other_spelling(_: Case<'_>, ours: &mut Turn, theirs: &mut Turn) {
    for item in ours.reply.iter_mut().chain(&mut theirs.reply) {
        if let Item::Block(block) = item {
            *block = spelled(block);
        }
    }
}

/// Allows a search block that was filled with the sources of the reply.
fn filled_blocks(_: Case<'_>, ours: &mut Turn, theirs: &mut Turn) {
    for (ours, theirs) in ours.reply.iter().zip(&mut theirs.reply) {
        if let (Item::Block(ours), Item::Block(theirs)) = (ours, theirs)
            && let (Some(_), Some(fields)) = (ours.get("tool_response"), theirs.get_mut("tool_response"))
            && let Some(fields) = fields.as_object_mut()
        {
            fields.retain(|key, _| ours["tool_response"].get(key).is_some());
        }
    }
}

fn spelled(value: &Value) -> Value {
    let Value::Object(fields) = value else { return value.clone() };
    let snake = |key: &str| {
        let letters = key.chars().map(|c| match c {
            'A'..='Z' => format!("_{}", c.to_ascii_lowercase()),
            c => c.to_string(),
        });
        letters.collect::<String>()
    };
    let kept = fields.iter().filter(|(_, value)| **value != Value::Object(Map::new()));
    kept.map(|(key, value)| (snake(key), spelled(value))).collect::<Map<_, _>>().into()
}

/// Allows a block without the note that the model itself called it, which is the default.
fn direct_caller(_: Case<'_>, ours: &mut Turn, theirs: &mut Turn) {
    for item in ours.reply.iter_mut().chain(&mut theirs.reply) {
        if let Item::Block(Value::Object(block)) = item
            && block.get("caller").and_then(|caller| caller.get("type")).is_some_and(|kind| kind == "direct")
        {
            block.remove("caller");
        }
    }
}

fn same(ours: &Turn, theirs: &Turn) -> bool {
    (&ours.reply, &ours.results) == (&theirs.reply, &theirs.results)
}

/// The tolerances that are needed to make the two equal, or the two if they differ all the same.
pub(crate) fn reconcile(
    case: Case<'_>,
    ours: &Turn,
    theirs: &Turn,
) -> Result<Vec<&'static str>, Box<(Turn, Turn)>> {
    let forgiven = |rules: &[&Tolerance]| {
        let (mut ours, mut theirs) = (ours.clone(), theirs.clone());
        for rule in rules {
            (rule.forgive)(case, &mut ours, &mut theirs);
        }
        (ours, theirs)
    };
    let mut rules: Vec<&Tolerance> = TOLERANCES.iter().collect();
    let (at_best, as_sent) = forgiven(&rules);
    if !same(&at_best, &as_sent) {
        return Err(Box::new((at_best, as_sent)));
    }
    for at in (0..rules.len()).rev() {
        let rule = rules.remove(at);
        let (ours, theirs) = forgiven(&rules);
        if !same(&ours, &theirs) {
            rules.insert(at, rule);
        }
    }
    Ok(rules.iter().map(|rule| rule.name).collect())
}
