//! Fold of deltas into a message, shared by every reader of a stream.

use std::{collections::HashSet, sync::Arc};

use entourage_core::{
    Error, ErrorKind, ErrorRecord, Money, Result, RetryStatus, Usage, bound,
    budget::Failure,
    message::{Message, Part, Reasoning, Role, Signature, ToolCall},
    provider::{Delta, Finish, FinishReason, Model, RawCall, ResponseInfo, Restart, Warning},
};

use super::raw_call::{make_ids_unique, parsed_call};

/// Maximum of warnings kept for one reply.
const MAX_WARNINGS: usize = 100;

/// Adds up the deltas of one reply.
///
/// ```
/// use entourage_core::provider::{Delta, FinishReason};
/// use entourage_runtime::reply::Assembler;
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
    /// Number of deltas without content, in all attempts.
    without_content: usize,
    info: ResponseInfo,
    warnings: Vec<Warning>,
    restarts: Vec<Restart>,
}

#[derive(Debug, Clone)]
enum Piece {
    Done(Part),
    Call(RawCall),
}

impl Assembler {
    /// Maximum of deltas that add no content to the replies of one call: usage, response facts, warnings, empty texts,
    /// and tool calls beyond [`Assembler::MAX_CALLS`]. Some services report usage with each token of a reply.
    pub const MAX_WITHOUT_CONTENT: usize = 1_000_000;
    /// Maximum of restarts of one call. A retry every 2 minutes reaches it after 33 hours.
    pub const MAX_RESTARTS: usize = 1_000;
    /// Maximum of parts of one reply: texts, blocks of reasoning, refusals, opaque blocks and tool calls.
    pub const MAX_PARTS: usize = 100_000;
    /// Maximum of bytes of one reply: text, reasoning, arguments and opaque blocks. A block counts as the memory that
    /// it takes.
    pub const MAX_BYTES: usize = 32 << 20;
    /// Maximum of bytes of one call's arguments.
    pub const MAX_ARGUMENT_BYTES: usize = 8 << 20;
    /// Maximum of tool calls of one reply.
    pub const MAX_CALLS: usize = 128;

    /// Adds one delta.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] when the content outgrows its bounds; [`ErrorKind::Protocol`] when content follows the
    /// end, arguments come for a call that never began, or deltas without content or restarts never end.
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
                let memory = bound::check(&*block.data, bound::VALUE).map_err(|flaw| flaw.sent("a block"))?;
                self.grow(memory)?;
                self.add(Piece::Done(Part::Opaque((**block).clone())))
            }
            Delta::Response(info) => {
                self.count_without_content()?;
                self.info.merge(short_info(info));
                Ok(())
            }
            // Several services send usage after the finish reason.
            Delta::Usage(usage) => {
                self.count_without_content()?;
                self.usage.merge(usage.plausible());
                Ok(())
            }
            Delta::Warning(warning) => {
                self.count_without_content()?;
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
            // A kind that this version does not know.
            _ => self.count_without_content(),
        }
    }

    /// Adds text, like [`Delta::Text`].
    #[inline]
    pub fn push_text(&mut self, text: &str) -> Result<()> {
        match self.parts.last_mut() {
            // Nearly every delta comes this way. An empty one does not: it wraps to the largest length.
            Some(Piece::Done(Part::Text(last)))
                if self.finish.is_none()
                    && text.len().wrapping_sub(1) < Self::MAX_BYTES.saturating_sub(self.bytes) =>
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
        .with_retry(RetryStatus::Temporary)
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

    /// Counts a delta that adds nothing to the reply.
    fn count_without_content(&mut self) -> Result<()> {
        self.without_content = self.without_content.saturating_add(1);
        let what = "deltas without content; correct the provider or layer that sends them";
        within(self.without_content, Self::MAX_WITHOUT_CONTENT, ErrorKind::Protocol, what)
    }

    fn add(&mut self, part: Piece) -> Result<()> {
        self.parts.push(part);
        let what = "parts; correct the provider that cuts it into so many";
        within(self.parts.len(), Self::MAX_PARTS, ErrorKind::TooLarge, what)
    }

    /// Counts the bytes of a delta that belongs to the content.
    fn grow(&mut self, bytes: usize) -> Result<()> {
        self.not_finished()?;
        if bytes == 0 {
            return self.count_without_content();
        }
        self.bytes = self.bytes.saturating_add(bytes);
        within(self.bytes, Self::MAX_BYTES, ErrorKind::TooLarge, "bytes; lower its output limit")
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
            (_, Kind::Text) => self.add(Piece::Done(Part::Text(text.to_owned())))?,
            (_, Kind::Refusal) => self.add(Piece::Done(Part::Refusal(text.to_owned())))?,
            (_, Kind::Reasoning) => {
                self.add(Piece::Done(Part::Reasoning(Reasoning::new(text, None))))?;
            }
        }
        Ok(())
    }

    /// Drops the content of the failed attempt and keeps its usage.
    fn restart(&mut self, restart: &Restart) -> Result<()> {
        self.not_finished()?;
        let what = "restarts; lower the retries of the model's layers";
        within(self.restarts.len().saturating_add(1), Self::MAX_RESTARTS, ErrorKind::Protocol, what)?;
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
        let bytes = signature.wire.len().saturating_add(signature.data.len());
        self.grow(bytes.saturating_add(item.unwrap_or(0)))?;
        match self.parts.last_mut() {
            Some(Piece::Done(Part::Reasoning(last))) if last.signature.is_none() => {
                last.signature = Some(Box::new(signature.clone()));
            }
            _ => {
                let reasoning = Reasoning::new(String::new(), Some(signature.clone()));
                self.add(Piece::Done(Part::Reasoning(reasoning)))?;
            }
        }
        Ok(())
    }

    fn start_call(&mut self, index: u32, id: &Arc<str>, name: &Arc<str>) -> Result<()> {
        self.grow(id.len() + name.len())?;
        if self.calls.len() >= Self::MAX_CALLS {
            let (count, wires) = &mut **self.dropped.get_or_insert_default();
            *count = count.saturating_add(1);
            wires.insert(index);
            return self.count_without_content();
        }
        self.calls.push((index, self.parts.len()));
        // Too long an id is replaced, and a name that no tool can have is refused with its call.
        let id = if id.len() > bound::ID { Arc::default() } else { Arc::clone(id) };
        let long = name.len() > bound::WORD;
        let name = if long { bound::shortened(name, bound::WORD).into() } else { Arc::clone(name) };
        self.add(Piece::Call(RawCall::new(id, name, "")))
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
                if call.arguments.len().saturating_add(text.len()) > Self::MAX_ARGUMENT_BYTES {
                    let text = format!(
                        "the arguments of a call of `{}` are larger than {} bytes",
                        call.name,
                        Self::MAX_ARGUMENT_BYTES
                    );
                    return Err(Error::new(ErrorKind::TooLarge, text).during("model.stream"));
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

/// Returns the error for `count` of a reply above `most`; `what` names them and the next step.
fn within(count: usize, most: usize, kind: ErrorKind, what: &str) -> Result<()> {
    if count <= most {
        return Ok(());
    }
    Err(Error::new(kind, format!("the model's reply has more than {most} {what}")).during("model.stream"))
}

// These texts are kept in events, often several times each, so they are cut to short bounds.

fn short_info(info: &ResponseInfo) -> ResponseInfo {
    let mut info = info.clone();
    for text in [&mut info.id, &mut info.model, &mut info.request].into_iter().flatten() {
        shorten(text, bound::WORD);
    }
    info
}

fn short_warning(warning: &Warning) -> Warning {
    let mut warning = warning.clone();
    shorten(&mut warning.subject, bound::WORD);
    shorten(&mut warning.text, bound::TEXT);
    warning
}

fn short_finish(finish: &Finish) -> Finish {
    let mut finish = finish.clone();
    finish.raw.iter_mut().for_each(|raw| shorten(raw, bound::WORD));
    finish
}

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Reasoning,
    Refusal,
}

/// A reply assembled from its deltas.
#[derive(Debug, Clone)]
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
    pub fn cost_after(&self, model: &Model, error: Option<&ErrorRecord>) -> Option<Money> {
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

/// True if an attempt that failed so and gave nothing cost nothing: it never left, or was refused before any token.
fn is_free(error: &ErrorRecord) -> bool {
    Failure::of_record(error) != Failure::Unknown
}

/// Shortens a text in place.
fn shorten(text: &mut Box<str>, most: usize) {
    if text.len() > most {
        *text = bound::shortened(text, most).into();
    }
}

#[cfg(test)]
#[path = "assemble_tests.rs"]
mod tests;
