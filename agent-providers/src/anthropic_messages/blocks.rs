//! The blocks of a reply: text, thinking, calls, and those that only the service understands.
//!
//! A block begins, is extended and stops; in a whole body each block begins with its full content. Content that must
//! be replayed unchanged is kept until its block stops, within bounds.

use entourage_core::{
    Error, ErrorKind, Result,
    message::{Opaque, Signature, parse_value},
    provider::{Delta, Warning, WarningKind},
};
use serde_json::{Map, Value, json};

use super::{
    NAME,
    wire::{self, WireDelta},
};
use crate::json::{Maybe, Raw};

/// More calls than this in one reply is an attack, not a plan; the core keeps far fewer.
const MAX_CALLS: u32 = 10_000;

/// Most blocks that are open at once. The service closes each before it opens the next.
const MAX_OPEN: usize = 1_000;

/// Most bytes of one reply that are kept to be replayed unchanged. The core counts only what it can read.
const MAX_KEPT: usize = 64 << 20;

#[derive(Debug, Default)]
pub(super) struct Blocks {
    open: Vec<(Option<u64>, Block)>,
    calls: u32,
    kept: usize,
}

#[derive(Debug)]
enum Block {
    Text {
        /// The text so far, in case citations follow.
        said: String,
        citations: Vec<Value>,
    },
    Thinking {
        signature: String,
    },
    Redacted,
    Call {
        index: u32,
        /// The arguments of the block's start, used unless pieces follow.
        input: Option<Box<str>>,
    },
    Opaque {
        block: Map<String, Value>,
        input: String,
    },
}

impl Blocks {
    /// True if the reply holds a call of one of our tools.
    pub(super) fn called(&self) -> bool {
        self.calls > 0
    }

    /// Begins a block. An open block under the same index stops.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] beyond the bounds of a reply.
    pub(super) fn start(
        &mut self,
        index: Option<u64>,
        raw: Raw<'_>,
        emit: &mut impl FnMut(Delta),
    ) -> Result<()> {
        self.stop(index, emit);
        if self.open.len() >= MAX_OPEN {
            return Err(too_large("more than 1,000 blocks of the model's reply are open at once"));
        }
        let Some(Maybe(Some(block))) = raw.read::<Maybe<wire::Block<'_>>>() else { return Ok(()) };
        let block = match block.kind.as_str() {
            "text" => self.text(block, emit)?,
            "thinking" => {
                if let Some(text) = block.thinking.filled() {
                    emit(Delta::Reasoning(text.into()));
                }
                Block::Thinking { signature: block.signature.as_str().to_owned() }
            }
            "redacted_thinking" => {
                let item = json!({"type": "redacted_thinking"});
                emit(Delta::signature(Signature::new(NAME, block.data.as_str()).with_item(item)));
                Block::Redacted
            }
            "tool_use" => self.call(&block, emit)?,
            _ => {
                let Some(Value::Object(fields)) = raw.block()? else { return Ok(()) };
                self.keep(raw.get().map_or(0, str::len))?;
                Block::Opaque { block: fields, input: String::new() }
            }
        };
        self.open.push((index, block));
        Ok(())
    }

    fn text(&mut self, block: wire::Block<'_>, emit: &mut impl FnMut(Delta)) -> Result<Block> {
        let said = block.text.as_str().to_owned();
        if let Some(text) = block.text.filled() {
            self.keep(text.len())?;
            emit(Delta::Text(text.into()));
        }
        let mut citations = Vec::new();
        for raw in block.citations.0 {
            self.keep(raw.get().map_or(0, str::len))?;
            citations.extend(raw.value());
        }
        Ok(Block::Text { said, citations })
    }

    fn call(&mut self, block: &wire::Block<'_>, emit: &mut impl FnMut(Delta)) -> Result<Block> {
        if self.calls >= MAX_CALLS {
            return Err(too_large("the model asked for more than 10,000 tool calls at once"));
        }
        let index = self.calls;
        self.calls = self.calls.saturating_add(1);
        // A call made by code of the service, not by the model itself, must say so when it is replayed.
        let caller =
            block.caller.value().filter(|caller| caller.get("type").is_some_and(|kind| kind != "direct"));
        if let Some(caller) = caller {
            let item = json!({"type": "tool_use", "caller": caller});
            emit(Delta::signature(Signature::new(NAME, "").with_item(item)));
        }
        emit(Delta::tool_call(index, block.id.as_str(), block.name.as_str()));
        let input = block.input.get().filter(|input| input.starts_with('{') && !is_empty_object(input));
        Ok(Block::Call { index, input: input.map(Into::into) })
    }

    /// Extends a block. Returns false if the kind of the piece is unknown.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] beyond the bounds of a reply.
    pub(super) fn extend(
        &mut self,
        index: Option<u64>,
        delta: WireDelta<'_>,
        emit: &mut impl FnMut(Delta),
    ) -> Result<bool> {
        let at = self.open.iter().rposition(|(open, _)| *open == index);
        let block = at.and_then(|at| self.open.get_mut(at)).map(|(_, block)| block);
        let growth = match (delta.kind.as_str(), block) {
            ("text_delta", block) => {
                let text = delta.text.filled().unwrap_or_default();
                let growth = text.len();
                if let Some(Block::Text { said, .. }) = block {
                    said.push_str(&text);
                }
                if !text.is_empty() {
                    emit(Delta::Text(text.into()));
                }
                growth
            }
            ("thinking_delta", _) => {
                if let Some(text) = delta.thinking.filled() {
                    emit(Delta::Reasoning(text.into()));
                }
                0
            }
            (_, Some(block)) => match block.extend(delta, emit) {
                Some(growth) => growth,
                None => return Ok(false),
            },
            (_, None) => return Ok(false),
        };
        self.keep(growth)?;
        Ok(true)
    }

    /// Stops the block under `index`, if there is one.
    pub(super) fn stop(&mut self, index: Option<u64>, emit: &mut impl FnMut(Delta)) {
        if let Some(at) = self.open.iter().rposition(|(open, _)| *open == index) {
            let (_, block) = self.open.remove(at);
            block.complete(emit);
        }
    }

    /// Stops all blocks at the end of the reply.
    pub(super) fn stop_all(&mut self, emit: &mut impl FnMut(Delta)) {
        for (_, block) in std::mem::take(&mut self.open) {
            block.complete(emit);
        }
    }

    fn keep(&mut self, bytes: usize) -> Result<()> {
        self.kept = self.kept.saturating_add(bytes);
        if self.kept > MAX_KEPT {
            return Err(too_large("the model's reply is larger than 67108864 bytes; lower its output limit"));
        }
        Ok(())
    }
}

impl Block {
    /// Extends the block. Returns its growth in bytes, or `None` if the piece does not belong to such a block.
    fn extend(&mut self, delta: WireDelta<'_>, emit: &mut impl FnMut(Delta)) -> Option<usize> {
        match (delta.kind.as_str(), self) {
            ("signature_delta", Self::Thinking { signature }) => {
                if let Some(whole) = delta.signature.filled() {
                    *signature = whole.into_owned();
                }
                Some(signature.len())
            }
            ("input_json_delta", Self::Call { index, input }) => {
                if let Some(piece) = delta.partial_json.filled() {
                    *input = None;
                    emit(Delta::arguments(*index, piece));
                }
                Some(0)
            }
            ("input_json_delta", Self::Opaque { input, .. }) => {
                let piece = delta.partial_json.filled().unwrap_or_default();
                input.push_str(&piece);
                Some(piece.len())
            }
            ("citations_delta", Self::Text { citations, .. }) => {
                citations.push(delta.citation.value()?);
                delta.citation.get().map(str::len)
            }
            ("compaction_delta", Self::Opaque { block, .. }) => {
                let fields = [("content", delta.content), ("encrypted_content", delta.encrypted_content)];
                let mut growth = 0_usize;
                for (name, raw) in fields {
                    if let (Some(value), Some(json)) = (raw.value(), raw.get()) {
                        growth = growth.saturating_add(json.len());
                        block.insert(name.to_owned(), value);
                    }
                }
                Some(growth)
            }
            _ => None,
        }
    }

    fn complete(self, emit: &mut impl FnMut(Delta)) {
        match self {
            Self::Text { said, citations } if !citations.is_empty() => {
                let block = json!({"type": "text", "text": said, "citations": citations});
                emit(Delta::Opaque(Box::new(Opaque::new(NAME, block))));
            }
            Self::Thinking { signature } if !signature.is_empty() => {
                emit(Delta::signature(Signature::new(NAME, signature)));
            }
            Self::Call { index, input: Some(input) } => emit(Delta::arguments(index, input)),
            Self::Opaque { mut block, input } => {
                if !input.is_empty() {
                    match parse_value(&input) {
                        Ok(input) => {
                            block.insert("input".to_owned(), input);
                        }
                        Err(_) => {
                            let text = "the service called a tool of its own with arguments that are no JSON, or cannot be kept; they were left out";
                            emit(Delta::Warning(Box::new(Warning::new(WarningKind::Reply, "input", text))));
                        }
                    }
                }
                emit(Delta::Opaque(Box::new(Opaque::new(NAME, Value::Object(block)))));
            }
            Self::Text { .. } | Self::Thinking { .. } | Self::Redacted | Self::Call { .. } => {}
        }
    }
}

fn is_empty_object(json: &str) -> bool {
    json.strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
        .is_some_and(|inner| inner.trim().is_empty())
}

fn too_large(text: &'static str) -> Error {
    Error::new(ErrorKind::TooLarge, text).during("model.stream")
}
