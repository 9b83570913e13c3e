//! Fold of deltas into a message, shared by every reader of a stream.

use std::{collections::HashSet, sync::Arc};

use crate::{
    Error, ErrorKind, ErrorRecord, Money, Result, Usage,
    base::{bound, is_free},
    message::{Message, Part, RawCall, Reasoning, Role, Signature, ToolCall, make_ids_unique, parsed_call},
};

use super::{Delta, Finish, FinishReason, Model, ResponseInfo, Restart, Warning};

/// Bounds of one reply.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct AssembleLimits {
    /// Bytes of text, reasoning, arguments and opaque blocks together. A block counts as the memory that it takes.
    pub bytes: usize,
    /// Bytes of one call's arguments.
    pub argument_bytes: usize,
    /// Number of tool calls.
    pub tool_calls: usize,
}

impl Default for AssembleLimits {
    /// 32 MiB in all, 8 MiB for the arguments of a call, 128 calls.
    fn default() -> Self {
        Self { bytes: 32 << 20, argument_bytes: 8 << 20, tool_calls: 128 }
    }
}

/// Maximum of warnings kept for one reply.
const MAX_WARNINGS: usize = 100;

/// Adds up the deltas of one reply.
///
/// ```
/// use entourage_core::provider::{Assembler, Delta, FinishReason};
///
/// let mut assembler = Assembler::default();
/// for delta in [Delta::Text("Hel".into()), Delta::Text("lo".into()), Delta::Finish(FinishReason::Stop.into())] {
///     assembler.push(&delta).unwrap();
/// }
/// let reply = assembler.finish().unwrap();
/// assert_eq!(reply.into_message().text(), "Hello");
/// ```
#[derive(Debug, Default)]
pub struct Assembler {
    limits: AssembleLimits,
    bytes: usize,
    parts: Vec<Piece>,
    /// Position in `parts` of each call, with the index that the wire uses for it.
    calls: Vec<(u32, usize)>,
    /// Number of calls beyond the bound, and their indices on the wire. Boxed, since a service rarely sends any.
    dropped: Option<Box<(usize, HashSet<u32>)>>,
    finish: Option<Finish>,
    usage: Usage,
    /// Usage of failed attempts. Boxed to keep the assembler small: most replies need one attempt.
    wasted: Option<Box<Usage>>,
    uncounted: bool,
    info: ResponseInfo,
    warnings: Vec<Warning>,
    restarts: Vec<Restart>,
}

#[derive(Debug)]
enum Piece {
    Done(Part),
    Call(RawCall),
}

impl Assembler {
    /// An assembler with bounds of its own.
    #[must_use]
    pub fn with_limits(limits: AssembleLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Adds one delta.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] when the reply outgrows its bounds, [`ErrorKind::Protocol`] when content follows the end
    /// or arguments come for a call that never began.
    #[inline]
    pub fn push(&mut self, delta: &Delta) -> Result<()> {
        match delta {
            Delta::Text(text) => self.push_text(text),
            Delta::Reasoning(text) => self.append(text, Kind::Reasoning),
            Delta::Refusal(text) => self.append(text, Kind::Refusal),
            Delta::ReasoningSignature(signature) => self.sign(signature),
            Delta::ToolCallStart(call) => self.start_call(call.index, &call.id, &call.name),
            Delta::ToolCallArguments { index, text } => self.extend_call(*index, text),
            Delta::Opaque(block) => {
                let memory = block.check().map_err(|flaw| flaw.sent("a block"))?;
                self.grow(memory)?;
                self.parts.push(Piece::Done(Part::Opaque((**block).clone())));
                Ok(())
            }
            Delta::Response(info) => {
                self.info.merge(short_info(info));
                Ok(())
            }
            // Several services send usage after the finish reason.
            Delta::Usage(usage) => {
                self.usage.merge(usage.plausible());
                Ok(())
            }
            Delta::Warning(warning) => {
                // Each attempt gives its own, often the same.
                let warning = short_warning(warning);
                if self.warnings.len() < MAX_WARNINGS && !self.warnings.contains(&warning) {
                    self.warnings.push(warning);
                }
                Ok(())
            }
            Delta::Restart(restart) => self.restart(restart),
            Delta::Finish(finish) => {
                self.not_finished()?;
                self.finish = Some(short_finish(finish));
                Ok(())
            }
        }
    }

    /// Adds text, like [`Delta::Text`].
    #[inline]
    pub(crate) fn push_text(&mut self, text: &str) -> Result<()> {
        match self.parts.last_mut() {
            // Nearly every delta comes this way.
            Some(Piece::Done(Part::Text(last)))
                if self.finish.is_none() && text.len() <= self.limits.bytes.saturating_sub(self.bytes) =>
            {
                self.bytes += text.len();
                last.push_str(text);
                Ok(())
            }
            _ => self.append(text, Kind::Text),
        }
    }

    /// The finished reply.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`], retryable, when no [`Delta::Finish`] came: the stream was cut off.
    pub fn finish(mut self) -> Result<Assembled> {
        match self.finish.take() {
            Some(finish) => Ok(self.end(finish)),
            None => Err(Self::cut_off()),
        }
    }

    /// The reply so far, ended for `reason`. For a reply that was cancelled or broke off.
    #[must_use]
    pub fn abort(self, reason: FinishReason) -> Assembled {
        self.end(Finish::new(reason))
    }

    /// True once [`Delta::Finish`] came.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    /// The error for a stream that ends without a finish.
    #[must_use]
    pub fn cut_off() -> Error {
        Error::new(
            ErrorKind::Protocol,
            "the model's reply broke off before its end; the connection was closed too early, try again",
        )
        .with_retry(crate::RetryStatus::Temporary)
        .during("model.stream")
    }

    fn end(self, finish: Finish) -> Assembled {
        Assembled {
            parts: self.parts,
            finish,
            usage: self.usage,
            wasted: self.wasted.map(|wasted| *wasted).unwrap_or_default(),
            uncounted: self.uncounted,
            info: self.info,
            warnings: self.warnings,
            restarts: self.restarts,
            dropped_calls: self.dropped.map_or(0, |dropped| dropped.0),
        }
    }

    fn not_finished(&self) -> Result<()> {
        match self.finish {
            None => Ok(()),
            Some(_) => Err(Error::new(
                ErrorKind::Protocol,
                "the model's service sent content after the end of its reply",
            )
            .during("model.stream")),
        }
    }

    fn grow(&mut self, bytes: usize) -> Result<()> {
        self.not_finished()?;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.limits.bytes {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!(
                    "the model's reply is larger than {} bytes; lower its output limit",
                    self.limits.bytes
                ),
            )
            .during("model.stream"));
        }
        Ok(())
    }

    fn append(&mut self, text: &str, kind: Kind) -> Result<()> {
        self.grow(text.len())?;
        match (self.parts.last_mut(), kind) {
            (Some(Piece::Done(Part::Text(last))), Kind::Text)
            | (Some(Piece::Done(Part::Refusal(last))), Kind::Refusal) => last.push_str(text),
            (Some(Piece::Done(Part::Reasoning(last))), Kind::Reasoning) if last.signature.is_none() => {
                last.text.push_str(text);
            }
            _ if text.is_empty() => {}
            (_, Kind::Text) => self.parts.push(Piece::Done(Part::Text(text.to_owned()))),
            (_, Kind::Refusal) => self.parts.push(Piece::Done(Part::Refusal(text.to_owned()))),
            (_, Kind::Reasoning) => {
                self.parts
                    .push(Piece::Done(Part::Reasoning(Reasoning { text: text.to_owned(), signature: None })));
            }
        }
        Ok(())
    }

    /// Drops the content of the failed attempt and keeps its usage.
    fn restart(&mut self, restart: &Restart) -> Result<()> {
        self.not_finished()?;
        // A refused attempt cost nothing; one that broke off did, even if its tokens were not counted.
        self.uncounted |= self.usage.is_unknown() && !(self.parts.is_empty() && is_free(&restart.error));
        self.bytes = 0;
        self.parts.clear();
        self.calls.clear();
        self.dropped = None;
        **self.wasted.get_or_insert_default() += std::mem::take(&mut self.usage);
        self.info = ResponseInfo::default();
        self.restarts.push(restart.clone());
        Ok(())
    }

    fn sign(&mut self, signature: &Signature) -> Result<()> {
        let item = signature.item.as_ref().map(|item| bound::check(item, bound::VALUE));
        let item = item.transpose().map_err(|flaw| flaw.sent("a block of reasoning"))?;
        self.grow(signature.data.len().saturating_add(item.unwrap_or(0)))?;
        match self.parts.last_mut() {
            Some(Piece::Done(Part::Reasoning(last))) if last.signature.is_none() => {
                last.signature = Some(Box::new(signature.clone()));
            }
            _ => self.parts.push(Piece::Done(Part::Reasoning(Reasoning {
                text: String::new(),
                signature: Some(Box::new(signature.clone())),
            }))),
        }
        Ok(())
    }

    fn start_call(&mut self, index: u32, id: &Arc<str>, name: &Arc<str>) -> Result<()> {
        self.grow(id.len() + name.len())?;
        if self.calls.len() >= self.limits.tool_calls {
            let (count, wires) = &mut **self.dropped.get_or_insert_default();
            *count = count.saturating_add(1);
            wires.insert(index);
            return Ok(());
        }
        self.calls.push((index, self.parts.len()));
        self.parts.push(Piece::Call(RawCall {
            // Too long an id is replaced, and a name that no tool can have is refused with its call.
            id: if id.len() > bound::ID { Arc::default() } else { Arc::clone(id) },
            name: if name.len() > bound::WORD {
                bound::shortened(name, bound::WORD).into()
            } else {
                Arc::clone(name)
            },
            arguments: String::new(),
        }));
        Ok(())
    }

    fn extend_call(&mut self, index: u32, text: &str) -> Result<()> {
        self.grow(text.len())?;
        // Calls beyond the bound came after those within it.
        if self.dropped.as_ref().is_some_and(|dropped| dropped.1.contains(&index)) {
            return Ok(());
        }
        let place = self.calls.iter().rev().find(|(wire, _)| *wire == index).map(|(_, place)| *place);
        match place.and_then(|place| self.parts.get_mut(place)) {
            Some(Piece::Call(call)) => {
                if call.arguments.len().saturating_add(text.len()) > self.limits.argument_bytes {
                    return Err(Error::new(
                        ErrorKind::TooLarge,
                        format!(
                            "the arguments of a call of `{}` are larger than {} bytes",
                            call.name, self.limits.argument_bytes
                        ),
                    )
                    .during("model.stream"));
                }
                call.arguments.push_str(text);
                Ok(())
            }
            _ => Err(Error::new(
                ErrorKind::Protocol,
                "the model's service sent arguments for a call that never began",
            )
            .with("index", index.to_string())
            .during("model.stream")),
        }
    }
}

// These texts are kept in events, often several times each, so they are cut to short bounds.

fn short_info(info: &ResponseInfo) -> ResponseInfo {
    let mut info = info.clone();
    for text in [&mut info.id, &mut info.model, &mut info.request].into_iter().flatten() {
        bound::shorten(text, bound::WORD);
    }
    info
}

fn short_warning(warning: &Warning) -> Warning {
    let mut warning = warning.clone();
    bound::shorten(&mut warning.subject, bound::WORD);
    bound::shorten(&mut warning.text, bound::TEXT);
    warning
}

fn short_finish(finish: &Finish) -> Finish {
    let mut finish = finish.clone();
    finish.raw.iter_mut().for_each(|raw| bound::shorten(raw, bound::WORD));
    finish
}

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Reasoning,
    Refusal,
}

/// A reply assembled from its deltas.
#[derive(Debug)]
#[non_exhaustive]
pub struct Assembled {
    parts: Vec<Piece>,
    /// Reason for the end of the reply.
    pub finish: Finish,
    /// Tokens of the attempt that gave this reply, as far as the service reported them.
    pub usage: Usage,
    /// Tokens of the failed attempts before it, as far as the service reported them.
    pub wasted: Usage,
    /// True if a failed attempt may have cost something and did not report its tokens.
    pub uncounted: bool,
    /// Facts that the service reported about the response as a whole.
    pub info: ResponseInfo,
    /// Settings, tools and parts that could not be honoured.
    pub warnings: Vec<Warning>,
    /// Restarts before this reply, each with the error of the attempt before it.
    pub restarts: Vec<Restart>,
    /// Number of calls beyond the bound, which were left out.
    pub dropped_calls: usize,
}

impl Assembled {
    /// Cost of the call with all its attempts, at the prices of `model`. `None` when a part of it is unknown. After a
    /// switch to another model only reported costs count, since the prices of `model` do not apply.
    #[must_use]
    pub fn cost(&self, model: &Model) -> Option<Money> {
        self.cost_after(model, None)
    }

    /// The cost of a call whose last attempt failed with `error`, if it did.
    pub(crate) fn cost_after(&self, model: &Model, error: Option<&ErrorRecord>) -> Option<Money> {
        let moved = self.restarts.iter().any(|restart| restart.model.is_some());
        let price = |usage: &Usage| if moved { usage.cost } else { model.cost(usage) };
        let nothing = self.parts.is_empty() && self.usage.is_unknown() && error.is_some_and(is_free);
        let last = if nothing { Some(Money::default()) } else { price(&self.usage) };
        let cost = last.filter(|_| !self.uncounted)?;
        if self.wasted.is_unknown() { Some(cost) } else { Some(cost + price(&self.wasted)?) }
    }

    /// The message, with `check` turning each raw call into a part.
    pub fn into_message_with(self, mut check: impl FnMut(RawCall) -> ToolCall) -> Message {
        let mut parts: Vec<Part> = self
            .parts
            .into_iter()
            .map(|piece| match piece {
                Piece::Done(part) => part,
                Piece::Call(call) => Part::ToolCall(check(call)),
            })
            .collect();
        make_ids_unique(&mut parts);
        Message::new(Role::Assistant, parts)
    }

    /// The message; arguments that are no JSON object are marked as malformed.
    #[must_use]
    pub fn into_message(self) -> Message {
        self.into_message_with(parsed_call)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::provider::WarningKind;

    #[test]
    fn a_restart_voids_what_came_but_not_what_it_used() {
        let mut assembler = Assembler::default();
        let error = Error::new(ErrorKind::Overloaded, "busy").record();
        for delta in [
            Delta::Warning(Box::new(Warning::new(WarningKind::Setting, "top_k", "left out"))),
            Delta::Response(Box::new(ResponseInfo::new(Some("a".into()), None))),
            Delta::text("Hel"),
            Delta::tool_call(0, "1", "look"),
            Delta::arguments(0, "{"),
            Delta::Usage(Box::new(Usage::new(10, 2))),
            Delta::Restart(Box::new(Restart::new(2, error, Duration::ZERO))),
            Delta::text("Hello"),
            Delta::Usage(Box::new(Usage::new(10, 5))),
            Delta::Finish(FinishReason::Stop.into()),
        ] {
            assembler.push(&delta).unwrap();
        }
        let reply = assembler.finish().unwrap();
        assert_eq!((reply.usage, reply.wasted), (Usage::new(10, 5), Usage::new(10, 2)));
        assert_eq!((reply.info.id.clone(), reply.warnings.len(), reply.restarts.len()), (None, 1, 1));
        let message = reply.into_message();
        assert_eq!(message.parts(), [Part::Text("Hello".into())]);
    }

    #[test]
    fn cc03_an_attempt_that_broke_off_uncounted_makes_the_cost_unknown() {
        let provider = crate::testkit::ScriptedProvider::new();
        let prices = Some(crate::Prices::per_million_micros(1, 1));
        let profile = crate::provider::Profile { prices, ..crate::provider::Profile::default() };
        let model = provider.model().with_profile(profile);
        let cost = |before: &[Delta]| {
            let mut assembler = Assembler::default();
            let restart = Restart::new(2, Error::new(ErrorKind::Overloaded, "busy").record(), Duration::ZERO);
            let end = [
                Delta::Restart(Box::new(restart)),
                Delta::Usage(Box::new(Usage::new(3, 4))),
                Delta::finish(FinishReason::Stop),
            ];
            before.iter().chain(&end).for_each(|delta| assembler.push(delta).unwrap());
            assembler.finish().unwrap().cost(&model).map(Money::as_pico)
        };
        assert_eq!(cost(&[]), Some(7));
        assert_eq!(cost(&[Delta::text("Hel")]), None);
        assert_eq!(cost(&[Delta::text("Hel"), Delta::Usage(Box::new(Usage::new(1, 1)))]), Some(9));
    }
}
