//! Calls of deferred tools: each is resolved to the real tool before anything checks, judges or records it.
//!
//! Pure. It follows from the call and the offered tools alone, so a resumed run resolves as the first one did.

use std::sync::Arc;

use entourage_core::{
    bound,
    event::plain_line,
    message::{Arguments, Message, Part, ToolCall},
    permission::Scope,
    tool::{ToolSpec, Tools},
};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Names in an error, at most.
const NAMES: usize = 5;
/// Most bytes of a name that an error repeats. No tool has a longer one.
const NAME: usize = 64;

/// The arguments of a call of a deferred tool. The inner ones keep their text, as those of any call do.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<'a> {
    name: String,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

impl Written<'_> {
    /// Returns the tool and its arguments; `None` where they are no JSON object, also as a text of one, which models
    /// send in its place.
    fn read(arguments: &Arguments) -> Option<(String, Arguments)> {
        let written: Written<'_> = serde_json::from_str(arguments.as_str()).ok()?;
        let inner = match written.arguments.map(RawValue::get) {
            None | Some("null") => Arguments::empty(),
            Some(text) => match serde_json::from_str::<String>(text) {
                Ok(text) => Arguments::parse(text).ok()?,
                Err(_) => Arguments::parse(text).ok()?,
            },
        };
        Some((written.name, inner))
    }
}

/// True for a call of a tool that calls deferred ones.
fn is_of_caller(offered: &Tools, call: &ToolCall) -> bool {
    offered.get(&call.name).is_some_and(|tool| tool.spec().calls_deferred())
}

/// Returns the call of the real tool that `call` stands for; `None` for any other call, and for one that names no
/// deferred tool.
pub(crate) fn resolved(offered: &Tools, call: &ToolCall) -> Option<ToolCall> {
    if call.malformed.is_some() || !is_of_caller(offered, call) {
        return None;
    }
    let (name, arguments) = Written::read(&call.arguments)?;
    let tool = offered.get(&name).filter(|tool| tool.spec().is_deferred())?;
    Some(ToolCall::new(Arc::clone(&call.id), tool.spec().name(), arguments))
}

/// Returns a message with the calls that `message` stands for, at the same places; `None` when it stands for itself.
pub(crate) fn all_resolved(offered: &Tools, message: &Message) -> Option<Arc<Message>> {
    // Most messages have no such call, and cost no allocation.
    if !message.tool_calls().any(|call| is_of_caller(offered, call)) {
        return None;
    }
    let calls: Vec<_> = message.tool_calls().map(|call| (call, resolved(offered, call))).collect();
    calls.iter().any(|(_, resolved)| resolved.is_some()).then(|| {
        let parts = calls.into_iter().map(|(call, resolved)| resolved.unwrap_or_else(|| call.clone()));
        Arc::new(Message::new(message.role(), parts.map(Part::ToolCall).collect()))
    })
}

/// Returns the arguments that the model gave the tool `tool` by this call, which may be one of another tool.
pub(crate) fn written(call: &ToolCall, tool: &str) -> Arguments {
    let inner = || Written::read(&call.arguments).filter(|(name, _)| *name == *tool);
    let inner = if *call.name == *tool { None } else { inner() };
    inner.map_or_else(|| call.arguments.clone(), |(_, arguments)| arguments)
}

/// Returns the error, for the model, of a call by `caller` that stands for no deferred tool.
pub(crate) fn unresolved(offered: &Tools, caller: &ToolSpec, call: &ToolCall, scope: &Scope) -> String {
    let Some((name, _)) = Written::read(&call.arguments) else {
        return format!(
            "the arguments of `{}` are `name`, which is the name of a tool, and `arguments`, an object with what that \
             tool takes, and nothing else; {}",
            caller.name(),
            search(offered, scope)
        );
    };
    match offered.get(&name).filter(|tool| scope.offers(tool.spec())) {
        Some(_) => format!("`{name}` is no tool for `{}`; call it by its own name", caller.name()),
        None => unknown(offered, &name, scope),
    }
}

/// Returns the error, for the model, of a call of a tool that there is not, where some tools are deferred.
pub(crate) fn unknown(offered: &Tools, name: &str, scope: &Scope) -> String {
    let closest = closest(offered, name, scope).join(", ");
    let closest = if closest.is_empty() { closest } else { format!("; the closest names are: {closest}") };
    format!(
        "there is no tool `{}`{closest}; {}",
        plain_line(&bound::shortened(name, NAME)),
        search(offered, scope)
    )
}

/// Returns the next step of a model that does not know a tool's name.
fn search(offered: &Tools, scope: &Scope) -> String {
    let mut finders = offered.specs().iter().filter(|spec| spec.finds_deferred() && scope.offers(spec));
    finders.next().map_or_else(
        || "call one that you know of".to_owned(),
        |finder| format!("search with `{}` for the tool that you need", finder.name()),
    )
}

/// Returns the names that are most like `name`, the best first, of tools that `scope` does not hide.
fn closest<'a>(offered: &'a Tools, name: &str, scope: &Scope) -> Vec<&'a str> {
    let wanted: Vec<char> = name.chars().take(NAME).flat_map(char::to_lowercase).collect();
    let wanted_words: Vec<_> = words(&wanted).collect();
    let specs = offered.iter().map(|tool| tool.spec());
    let shown = specs.filter(|spec| scope.offers(spec) && !spec.calls_deferred());
    let mut ranked: Vec<_> = shown
        .filter_map(|spec| {
            let name: Vec<char> = spec.name().chars().take(NAME).flat_map(char::to_lowercase).collect();
            let shared = words(&name).filter(|word| wanted_words.contains(word)).count();
            let apart = distance(&wanted, &name);
            let is_like = shared > 0 || apart.saturating_mul(3) <= wanted.len().max(name.len());
            is_like.then_some((std::cmp::Reverse(shared), apart, spec.name()))
        })
        .collect();
    ranked.sort_unstable();
    ranked.into_iter().take(NAMES).map(|(_, _, name)| name).collect()
}

fn words(name: &[char]) -> impl Iterator<Item = &[char]> {
    name.split(|c| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// Returns the number of characters to insert, remove or replace to make one text of the other.
fn distance(one: &[char], other: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (place, c) in one.iter().enumerate() {
        let (mut left, mut above_left) = (place + 1, place);
        for (cell, d) in row.iter_mut().zip([None].into_iter().chain(other.iter().map(Some))) {
            let above = *cell;
            if let Some(d) = d {
                left = (above_left + usize::from(c != d)).min(above + 1).min(left + 1);
            }
            (*cell, above_left) = (left, above);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chars(text: &str) -> Vec<char> {
        text.chars().collect()
    }

    #[test]
    fn the_inner_arguments_keep_their_text() {
        for (outer, inner) in [
            (r#"{"name":"t","arguments":{ "b":1.0,  "a":1e2 }}"#, Some(r#"{ "b":1.0,  "a":1e2 }"#)),
            (r#"{"arguments":{},"name":"t"}"#, Some("{}")),
            (r#"{"name":"t","arguments":"{\"a\": 1}"}"#, Some(r#"{"a": 1}"#)),
            (r#"{"name":"t","arguments":""}"#, Some("{}")),
            (r#"{"name":"t"}"#, Some("{}")),
            (r#"{"name":"t","arguments":{},"name":"u"}"#, None),
            (r#"{"name":"t","arguments":{},"x":1}"#, None),
            (r#"{"name":"t","arguments":[]}"#, None),
            (r#"{"name":"t","arguments":"\"{}\""}"#, None),
            (r#"{"name":["t"],"arguments":{}}"#, None),
        ] {
            let call = ToolCall::new("c", "use_tool", Arguments::parse(outer).unwrap());
            let read = Written::read(&call.arguments);
            assert_eq!(read.as_ref().map(|(_, arguments)| arguments.as_str()), inner, "{outer}");
            let shown = written(&call, "t");
            assert_eq!(shown.as_str(), inner.unwrap_or(outer), "{outer}");
            assert_eq!(written(&call, "use_tool").as_str(), outer);
            assert_eq!(written(&call, "other").as_str(), outer);
        }
        let deep =
            format!(r#"{{"name":"t","arguments":"{{\"a\":{}1{}}}"}}"#, "[".repeat(200), "]".repeat(200));
        assert!(Written::read(&Arguments::parse(deep).unwrap()).is_none());
    }

    #[test]
    fn the_distance_counts_edits() {
        for (one, other, edits) in
            [("", "", 0), ("", "abc", 3), ("abc", "abc", 0), ("kitten", "sitting", 3), ("ab", "ba", 2)]
        {
            assert_eq!(distance(&chars(one), &chars(other)), edits, "{one} {other}");
        }
    }

    proptest! {
        #[test]
        fn the_distance_is_one(one in "[ab]{0,8}", other in "[ab]{0,8}", third in "[ab]{0,8}") {
            let [one, other, third] = [one, other, third].map(|text| chars(&text));
            let apart = distance(&one, &other);
            prop_assert_eq!(apart, distance(&other, &one));
            prop_assert_eq!(apart == 0, one == other);
            prop_assert!(apart <= distance(&one, &third) + distance(&third, &other));
            prop_assert!(apart <= one.len().max(other.len()));
        }
    }
}
