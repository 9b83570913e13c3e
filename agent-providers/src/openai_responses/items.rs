//! The items of a reply: assigns pieces to items, avoids repetitions, and keeps content that must be sent again.
//!
//! An item is announced, sent in pieces, and repeated whole when it is done; a service may leave out any two of these.
//! Each content is reported once here. Ids differ between the events of some services, so an item is identified by its
//! index.

use std::collections::{BTreeMap, VecDeque};

use entourage_core::{
    Error, ErrorKind, Result,
    message::{Opaque, Signature},
    provider::Delta,
};
use serde_json::{Map, Value, json};

use super::{
    NAME,
    wire::{Item, Piece},
};
use crate::json::{Raw, Text};

/// More items than this in one reply is an attack, not an answer.
const MAX_ITEMS: usize = 10_000;

/// Most bytes kept of arguments whose call has no name yet, and of blocks that only the service understands.
const MAX_WAITING: usize = 8 << 20;
const MAX_OPAQUE: usize = 64 << 20;

type Out = VecDeque<Result<Delta>>;

/// Position of a piece: item and part.
#[derive(Debug, Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) output: Option<u64>,
    pub(super) item: &'a str,
    pub(super) part: u64,
}

/// Kind of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    Text,
    Refusal,
    Summary,
    Reasoning,
}

#[derive(Debug, Default)]
pub(super) struct Items {
    all: BTreeMap<u64, Known>,
    calls: u32,
    waiting: usize,
    opaque: usize,
    refused: bool,
    /// The item of the last delta.
    last: Option<u64>,
}

/// State of an item.
#[derive(Debug, Default)]
struct Known {
    id: String,
    kind: String,
    /// The parts that came in pieces.
    said: Vec<(Said, u64)>,
    call: Option<u32>,
    /// Arguments that came before the name.
    waiting: String,
    has_arguments: bool,
    opened: bool,
    done: bool,
}

impl Items {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn has_calls(&self) -> bool {
        self.calls > 0
    }

    pub(super) fn has_refusal(&self) -> bool {
        self.refused
    }

    /// Takes in a piece of text, of a refusal or of reasoning.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] beyond 10,000 items.
    pub(super) fn say(&mut self, said: Said, at: &At<'_>, text: Text<'_>, out: &mut Out) -> Result<()> {
        let Some(text) = text.filled() else { return Ok(()) };
        let index = self.find(at)?;
        if let Some(item) = self.all.get_mut(&index)
            && item.said.last() != Some(&(said, at.part))
            && !item.said.contains(&(said, at.part))
            && item.said.len() < MAX_ITEMS
        {
            item.said.push((said, at.part));
        }
        self.emit(index, said, &text, out);
        Ok(())
    }

    /// Completes a part: its text is reported now if no piece of it was.
    ///
    /// # Errors
    /// Those of [`Items::say`].
    pub(super) fn said(&mut self, said: Said, at: &At<'_>, text: Text<'_>, out: &mut Out) -> Result<()> {
        let index = self.find(at)?;
        let known =
            self.all.get(&index).is_some_and(|item| item.done || item.said.contains(&(said, at.part)));
        if known { Ok(()) } else { self.say(said, at, text, out) }
    }

    /// Takes in more of a call's arguments.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] beyond 10,000 items, and beyond 8 MiB for calls that have no name yet.
    pub(super) fn arguments(&mut self, at: &At<'_>, text: &str, out: &mut Out) -> Result<()> {
        let index = self.find(at)?;
        let Some(item) = self.all.get_mut(&index).filter(|item| !text.is_empty() && !item.done) else {
            return Ok(());
        };
        item.has_arguments = true;
        if let Some(call) = item.call {
            self.last = Some(index);
            out.push_back(Ok(Delta::arguments(call, text)));
            return Ok(());
        }
        self.waiting = self.waiting.saturating_add(text.len());
        if self.waiting > MAX_WAITING {
            return Err(too_large("the model's service sent the arguments of a tool call without its name"));
        }
        item.waiting.push_str(text);
        Ok(())
    }

    /// Completes a call's arguments: they are reported now if no piece of them was.
    ///
    /// # Errors
    /// Those of [`Items::arguments`].
    pub(super) fn all_arguments(&mut self, at: &At<'_>, text: &str, out: &mut Out) -> Result<()> {
        let index = self.find(at)?;
        let known = self.all.get(&index).is_some_and(|item| item.has_arguments);
        if known { Ok(()) } else { self.arguments(at, text, out) }
    }

    /// Announces an item.
    ///
    /// # Errors
    /// Those of [`Items::say`].
    pub(super) fn added(&mut self, output: Option<u64>, raw: Raw<'_>, out: &mut Out) -> Result<()> {
        let Some(item) = raw.read::<Item<'_>>() else { return Ok(()) };
        let index = self.begin(output, item.id.as_str())?;
        if let Some(known) = self.all.get_mut(&index) {
            item.kind.as_str().clone_into(&mut known.kind);
        }
        self.open(index, &item, out);
        Ok(())
    }

    /// Completes an item.
    ///
    /// # Errors
    /// Those of [`Items::say`] and [`Items::arguments`], and for more than 64 MiB of blocks.
    pub(super) fn done(&mut self, output: Option<u64>, raw: Raw<'_>, out: &mut Out) -> Result<()> {
        let Some(item) = raw.read::<Item<'_>>() else { return Ok(()) };
        let at = At { output, item: item.id.as_str(), part: 0 };
        let index = if output.is_some() || self.find_id(at.item).is_some() {
            self.find(&at)?
        } else {
            self.begin(None, at.item)?
        };
        if self.all.get(&index).is_some_and(|known| known.done) {
            return Ok(());
        }
        self.complete(index, &item, raw, out)?;
        if let Some(known) = self.all.get_mut(&index) {
            known.done = true;
        }
        Ok(())
    }

    /// Takes in the item at this index of the final output. It counts if the stream did not complete it. Some services
    /// order the final output differently.
    ///
    /// # Errors
    /// Those of [`Items::done`].
    pub(super) fn left(&mut self, at: Option<u64>, raw: Raw<'_>, out: &mut Out) -> Result<()> {
        let Some(item) = raw.read::<Item<'_>>() else { return Ok(()) };
        let known = at.and_then(|at| self.all.get(&at));
        let open = known.is_some_and(|known| !known.done && known.kind == item.kind.as_str());
        if open { self.done(at, raw, out) } else { Ok(()) }
    }

    /// Starts the calls whose name never came; the core tells the model that there is no such tool.
    pub(super) fn give_up(&mut self, out: &mut Out) {
        let indexes: Vec<_> =
            self.all.iter().filter(|(_, item)| !item.waiting.is_empty()).map(|(at, _)| *at).collect();
        for index in indexes {
            self.start(index, "", "", out);
        }
    }

    fn find_id(&self, id: &str) -> Option<u64> {
        if id.is_empty() {
            return None;
        }
        self.all.iter().rev().find(|(_, item)| item.id == id).map(|(at, _)| *at)
    }

    /// Finds the item of a piece. An item that was never announced begins with it.
    fn find(&mut self, at: &At<'_>) -> Result<u64> {
        let index = at.output.or_else(|| self.find_id(at.item));
        let last = || self.all.keys().next_back().copied().filter(|_| at.item.is_empty());
        match index.or_else(last) {
            Some(index) if self.all.contains_key(&index) => Ok(index),
            Some(index) => self.begin(Some(index), at.item),
            None => self.begin(None, at.item),
        }
    }

    fn begin(&mut self, output: Option<u64>, id: &str) -> Result<u64> {
        let next = || self.all.keys().next_back().map_or(0, |last| last.saturating_add(1));
        let index = output.unwrap_or_else(next);
        if self.all.len() >= MAX_ITEMS {
            return Err(too_large("the model's service sent more than 10,000 items in one reply"));
        }
        let item = self.all.entry(index).or_default();
        if item.id.is_empty() {
            id.clone_into(&mut item.id);
        }
        Ok(index)
    }

    fn emit(&mut self, index: u64, said: Said, text: &str, out: &mut Out) {
        if text.is_empty() {
            return;
        }
        self.last = Some(index);
        out.push_back(Ok(match said {
            Said::Text => Delta::text(text),
            Said::Refusal => {
                self.refused = true;
                Delta::Refusal(text.into())
            }
            Said::Summary | Said::Reasoning => Delta::Reasoning(text.into()),
        }));
    }

    /// Reports the facts that must precede an item's first piece: the name of a call, and words that have to be sent
    /// again with it.
    fn open(&mut self, index: u64, item: &Item<'_>, out: &mut Out) {
        match item.kind.as_str() {
            "message" => self.keep(index, "message", "phase", item.phase.as_str(), out),
            "function_call" if !item.name.as_str().is_empty() => {
                self.keep(index, "function_call", "namespace", item.namespace.as_str(), out);
                self.start(index, item.call_id.as_str(), item.name.as_str(), out);
            }
            _ => {}
        }
    }

    /// Keeps a word that belongs to the next part, as the signature of a reasoning without text.
    fn keep(&mut self, index: u64, kind: &str, name: &str, word: &str, out: &mut Out) {
        let opened = self.all.get_mut(&index).is_some_and(|item| std::mem::replace(&mut item.opened, true));
        if !opened && !word.is_empty() {
            let item = json!({"type": kind, name: word});
            out.push_back(Ok(Delta::signature(Signature::new(NAME, "").with_item(item))));
        }
    }

    fn start(&mut self, index: u64, id: &str, name: &str, out: &mut Out) {
        let call = self.calls;
        let Some(item) = self.all.get_mut(&index).filter(|item| item.call.is_none()) else { return };
        item.call = Some(call);
        let waiting = std::mem::take(&mut item.waiting);
        self.calls = call.saturating_add(1);
        self.last = Some(index);
        out.push_back(Ok(Delta::tool_call(call, id, name)));
        if !waiting.is_empty() {
            out.push_back(Ok(Delta::arguments(call, waiting)));
        }
    }

    fn complete(&mut self, index: u64, item: &Item<'_>, raw: Raw<'_>, out: &mut Out) -> Result<()> {
        let silent = self.all.get(&index).is_none_or(|known| known.said.is_empty());
        match item.kind.as_str() {
            "message" => {
                self.open(index, item, out);
                for Piece { text, refusal } in item.content.0.iter().filter(|_| silent) {
                    self.emit(index, Said::Text, text.as_str(), out);
                    self.emit(index, Said::Refusal, refusal.as_str(), out);
                }
            }
            "reasoning" => self.reasoned(index, silent, item, raw, out),
            "function_call" => {
                self.open(index, item, out);
                self.start(index, item.call_id.as_str(), item.name.as_str(), out);
                return self.all_arguments(
                    &At { output: Some(index), item: "", part: 0 },
                    &item.arguments.0,
                    out,
                );
            }
            "custom_tool_call" => {
                // A kind of tool that is never offered: its input is not an object, so the call is refused as
                // malformed.
                self.start(index, item.call_id.as_str(), item.name.as_str(), out);
                let input = Value::from(item.input.as_str()).to_string();
                return self.all_arguments(&At { output: Some(index), item: "", part: 0 }, &input, out);
            }
            _ => return self.opaque(index, raw, out),
        }
        Ok(())
    }

    fn reasoned(&mut self, index: u64, silent: bool, item: &Item<'_>, raw: Raw<'_>, out: &mut Out) {
        for piece in item.summary.0.iter().chain(&item.content.0).filter(|_| silent) {
            self.emit(index, Said::Reasoning, piece.text.as_str(), out);
        }
        let sealed = item.encrypted_content.as_str();
        // Reasoning that ends after its result can no longer be signed in place; without a seal nothing is lost.
        if sealed.is_empty() && self.last.is_some_and(|last| last != index) && !silent {
            return;
        }
        let mut block = match raw.value() {
            Some(Value::Object(block)) => block,
            _ => Map::new(),
        };
        block.remove("encrypted_content");
        let signature = Signature::new(NAME, sealed).with_item(Value::Object(block));
        self.last = Some(index);
        out.push_back(Ok(Delta::signature(signature)));
    }

    fn opaque(&mut self, index: u64, raw: Raw<'_>, out: &mut Out) -> Result<()> {
        self.opaque = self.opaque.saturating_add(raw.get().map_or(0, str::len));
        if self.opaque > MAX_OPAQUE {
            return Err(too_large("the model's service sent more than 64 MiB of results of its own tools"));
        }
        if let Some(block) = raw.block()? {
            self.last = Some(index);
            out.push_back(Ok(Delta::Opaque(Box::new(Opaque::new(NAME, block)))));
        }
        Ok(())
    }
}

fn too_large(text: &'static str) -> Error {
    Error::new(ErrorKind::TooLarge, text).during("model.stream")
}
