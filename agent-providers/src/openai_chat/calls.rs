//! Assembles tool calls from deltas: assigns each piece to its call.
//!
//! The wire has `index`; services leave it out, send 0 for every call, or repeat names. That is sorted out here. The
//! core judges if arguments are valid JSON.

use entourage_core::{Error, ErrorKind, Result, provider::Delta};
use serde::de::IgnoredAny;

use super::wire::{Function, WireCall};

/// More calls than this in one reply is an attack, not a plan; the core keeps far fewer.
const MAX_CALLS: usize = 10_000;

/// Most bytes of arguments kept for calls without a name yet.
const MAX_WAITING: usize = 8 << 20;

#[derive(Debug, Default)]
pub(super) struct Calls {
    all: Vec<Call>,
    waiting: usize,
}

#[derive(Debug)]
struct Call {
    wire_index: Option<u64>,
    id: String,
    /// Arguments that came before the name; `None` once the name came.
    unnamed: Option<String>,
    /// True if the first piece held the whole arguments, so that another named piece is another call.
    whole: bool,
}

impl Calls {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Takes in one entry of `tool_calls`.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] beyond 10,000 calls.
    pub(super) fn push(&mut self, call: WireCall<'_>, emit: &mut impl FnMut(Delta)) -> Result<()> {
        let mut function = call.function.0.unwrap_or_default();
        if let Some(input) = call.custom.0.and_then(|custom| custom.input.filled()) {
            // A kind of tool that is never offered: its input is not JSON, so the call is refused as malformed.
            function.arguments.0 = input;
        }
        let id = call.id.filled().filter(|id| id != "null").unwrap_or_default();
        self.piece(call.index.0, &id, function, emit)
    }

    /// Takes in a `function_call`, the predecessor of `tool_calls` on this wire.
    ///
    /// # Errors
    /// As for [`Calls::push`].
    pub(super) fn push_legacy(&mut self, function: Function<'_>, emit: &mut impl FnMut(Delta)) -> Result<()> {
        if function.name.as_str().is_empty() && function.arguments.0.is_empty() {
            return Ok(());
        }
        self.piece(Some(0), "", function, emit)
    }

    /// Starts the calls whose name never came; the core tells the model that there is no such tool.
    pub(super) fn finish(&mut self, emit: &mut impl FnMut(Delta)) {
        for (index, call) in self.all.iter_mut().enumerate() {
            if let Some(arguments) = call.unnamed.take() {
                start(index, &call.id, "", arguments, emit);
            }
        }
    }

    fn piece(
        &mut self,
        wire_index: Option<u64>,
        id: &str,
        function: Function<'_>,
        emit: &mut impl FnMut(Delta),
    ) -> Result<()> {
        let name = function.name.filled();
        let arguments = function.arguments.0;
        let at = match self.find(wire_index, id, name.is_some()) {
            Some(at) => at,
            None => self.begin(wire_index, id, &arguments)?,
        };
        let Some(call) = self.all.get_mut(at) else { return Ok(()) };
        if call.id.is_empty() {
            id.clone_into(&mut call.id);
        }
        match (&mut call.unnamed, name) {
            (Some(waiting), Some(name)) => {
                let mut text = std::mem::take(waiting);
                call.unnamed = None;
                text.push_str(&arguments);
                start(at, &call.id, &name, text, emit);
            }
            (Some(waiting), None) => {
                self.waiting = self.waiting.saturating_add(arguments.len());
                if self.waiting > MAX_WAITING {
                    return Err(too_large(
                        "the model's service sent the arguments of a tool call without its name",
                    ));
                }
                waiting.push_str(&arguments);
            }
            (None, _) if arguments.is_empty() => {}
            (None, _) => emit(Delta::arguments(number(at), &*arguments)),
        }
        Ok(())
    }

    /// The call that a piece continues, if any.
    fn find(&self, wire_index: Option<u64>, id: &str, named: bool) -> Option<usize> {
        let last = |fits: &dyn Fn(&Call) -> bool| self.all.iter().rposition(fits);
        let at = match wire_index {
            Some(_) => last(&|call| call.wire_index == wire_index),
            None if !id.is_empty() => last(&|call| call.id == id),
            None if named => None,
            None => self.all.len().checked_sub(1),
        }?;
        let call = self.all.get(at)?;
        let other_id = !id.is_empty() && !call.id.is_empty() && call.id != id;
        let begins_anew = named && call.unnamed.is_none() && (other_id || (id.is_empty() && call.whole));
        (!begins_anew).then_some(at)
    }

    fn begin(&mut self, wire_index: Option<u64>, id: &str, arguments: &str) -> Result<usize> {
        if self.all.len() >= MAX_CALLS {
            return Err(too_large("the model asked for more than 10,000 tool calls at once"));
        }
        let whole = arguments.ends_with('}') && serde_json::from_str::<IgnoredAny>(arguments).is_ok();
        self.all.push(Call { wire_index, id: id.to_owned(), unnamed: Some(String::new()), whole });
        Ok(self.all.len().saturating_sub(1))
    }
}

/// The index of a call as deltas carry it; [`MAX_CALLS`] keeps it far from the bound.
fn number(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

fn start(at: usize, id: &str, name: &str, arguments: String, emit: &mut impl FnMut(Delta)) {
    let index = number(at);
    emit(Delta::tool_call(index, id, name));
    if !arguments.is_empty() {
        emit(Delta::arguments(index, arguments));
    }
}

fn too_large(text: &'static str) -> Error {
    Error::new(ErrorKind::TooLarge, text).during("model.stream")
}
