//! Decodes the bytes of a reply into deltas: a pure machine without a connection.
//!
//! It reads event streams and whole JSON bodies. The deltas must be the same wherever the bytes are cut. The content
//! of blocks is the business of `blocks`.

use std::{borrow::Cow, collections::VecDeque};

use entourage_core::{
    Error, ErrorKind, Result,
    provider::{Delta, Finish, FinishReason, ResponseInfo, Warning, WarningKind},
};

use super::{
    blocks::Blocks,
    usage::Tally,
    wire::{Event, Message, StopDetails, WireUsage},
};
use crate::{
    framing::{Frame, Framing},
    http::{Failing, Failure},
    json::{self, Maybe, Text},
    stream::{Reading, decoder},
};

decoder! {
    /// Decodes one reply.
    ///
    /// Memory: the event being read (at most 16 MiB), blocks that must be kept whole (at most 64 MiB in a reply), and
    /// the deltas not yet taken. Decoding continues after an error, so that a reader can still get the usage or the
    /// reason of a failed reply.
    ///
    /// ```
    /// use entourage_core::provider::Delta;
    /// use entourage_providers::anthropic_messages::AnthropicMessagesDecoder;
    ///
    /// let mut decoder = AnthropicMessagesDecoder::new();
    /// decoder.push(b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,");
    /// decoder.push(b"\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello\"}}\n\n");
    /// assert_eq!(decoder.pop().unwrap().unwrap(), Delta::Text("Hello".into()));
    /// ```
    AnthropicMessagesDecoder(Reply), new
}

/// State of the reply so far.
#[derive(Debug)]
struct Reply {
    failing: Failing,
    out: VecDeque<Result<Delta>>,
    blocks: Blocks,
    tally: Tally,
    raw_finish: Option<Box<str>>,
    /// True until the intake has asked for it.
    named_finish: bool,
    ended: bool,
    /// True once the caller was warned of unknown pieces of blocks.
    puzzled: bool,
}

impl Reading for Reply {
    fn framing() -> Framing {
        Framing::events_or_body()
    }

    fn frame(&mut self, frame: Frame<'_>) {
        if self.ended {
            return;
        }
        if frame.whole {
            self.body(frame.data);
        } else if frame.name == b"error" {
            self.failed(&Failure::from_body(frame.data));
        } else if frame.data == b"[DONE]" {
            // Not part of this wire, but some gateways append it to every stream.
            self.close(false);
        } else {
            let mut mended = String::new();
            match json::read::<Event<'_>>(frame.data, &mut mended) {
                Ok((event, _)) => self.event(event),
                Err(error) => self.out.push_back(Err(self.failing.unreadable(frame.data, &error))),
            }
        }
    }

    fn broken(&mut self, error: Error) {
        self.out.push_back(Err(self.failing.sign(error)));
    }

    fn end(&mut self) {
        self.close(false);
    }

    fn out(&mut self) -> &mut VecDeque<Result<Delta>> {
        &mut self.out
    }

    fn has_finish(&self) -> bool {
        self.raw_finish.is_some() || self.ended
    }

    fn takes_named_finish(&mut self) -> bool {
        std::mem::take(&mut self.named_finish)
    }

    fn is_done(&self) -> bool {
        self.ended
    }
}

impl Reply {
    fn new(failing: Failing) -> Self {
        Self {
            failing,
            out: VecDeque::new(),
            blocks: Blocks::default(),
            tally: Tally::default(),
            raw_finish: None,
            named_finish: false,
            ended: false,
            puzzled: false,
        }
    }

    fn body(&mut self, data: &[u8]) {
        let mut mended = String::new();
        match json::read::<Maybe<Message<'_>>>(data, &mut mended) {
            Ok((Maybe(Some(message)), read))
                if message.kind.as_str() == "error" || message.error.is_some() =>
            {
                self.failed(&Failure::from_body(read));
            }
            Ok((Maybe(Some(message)), _)) if message.kind.as_str() == "message" => {
                self.message(message);
                self.close(true);
            }
            Ok(_) => {
                let text = "the model's service answered without a message in it; check that the base URL is that of the messages protocol";
                self.out.push_back(Err(self.failing.error(ErrorKind::Protocol, text)));
            }
            Err(error) => self.out.push_back(Err(self.failing.unreadable(data, &error))),
        }
    }

    fn event(&mut self, event: Event<'_>) {
        let Event { kind, index, message, content_block, delta, usage, error } = event;
        let out = &mut self.out;
        let mut emit = |delta| out.push_back(Ok(delta));
        let done = match kind.as_str() {
            "content_block_delta" => match delta.0 {
                Some(delta) => self.blocks.extend(index.0, delta, &mut emit),
                None => Ok(true),
            },
            "content_block_start" => self.blocks.start(index.0, content_block, &mut emit).map(|()| true),
            "content_block_stop" => {
                self.blocks.stop(index.0, &mut emit);
                Ok(true)
            }
            "message_start" => {
                if let Some(message) = message.0 {
                    self.message(message);
                }
                Ok(true)
            }
            "message_delta" => {
                self.count(usage);
                if let Some(delta) = delta.0 {
                    self.stopped(delta.stop_reason, delta.stop_details);
                }
                Ok(true)
            }
            "message_stop" => {
                self.close(true);
                Ok(true)
            }
            _ => {
                if let Some(failure) = error.and_then(Failure::reported) {
                    self.failed(&failure);
                }
                // Pings, and kinds of events that may be added later.
                Ok(true)
            }
        };
        match done {
            Ok(true) => {}
            Ok(false) => self.puzzle(),
            Err(error) => self.broken(error),
        }
    }

    fn message(&mut self, message: Message<'_>) {
        let boxed = |text: Text<'_>| text.filled().map(Box::<str>::from);
        let info = ResponseInfo::new(boxed(message.id), boxed(message.model));
        if info != ResponseInfo::default() {
            self.out.push_back(Ok(Delta::Response(Box::new(info))));
        }
        self.count(message.usage);
        for block in message.content.0 {
            let out = &mut self.out;
            let mut emit = |delta| out.push_back(Ok(delta));
            let begun = self.blocks.start(None, block, &mut emit);
            self.blocks.stop(None, &mut emit);
            if let Err(error) = begun {
                self.broken(error);
            }
        }
        self.stopped(message.stop_reason, message.stop_details);
    }

    fn stopped(&mut self, reason: Text<'_>, details: Maybe<StopDetails<'_>>) {
        let Some(reason) = reason.filled() else { return };
        let explanation = details.0.and_then(|details| details.explanation.filled());
        if let Some(text) = explanation.filter(|_| reason == "refusal") {
            self.out.push_back(Ok(Delta::Refusal(text.into())));
        }
        self.raw_finish = Some(Cow::into_owned(reason).into());
        self.named_finish = true;
    }

    fn count(&mut self, usage: Maybe<WireUsage>) {
        let before = self.tally;
        if let Some(usage) = usage.0 {
            self.tally.take(&usage);
        }
        if self.tally != before {
            self.out.push_back(Ok(Delta::Usage(Box::new(self.tally.usage()))));
        }
    }

    fn puzzle(&mut self) {
        if !std::mem::replace(&mut self.puzzled, true) {
            let text = "the service sent pieces of a kind that is not known here; they were left out";
            let warning = Warning::new(WarningKind::Reply, "content_block_delta", text);
            self.out.push_back(Ok(Delta::Warning(Box::new(warning))));
        }
    }

    fn failed(&mut self, failure: &Failure) {
        self.out.push_back(Err(self.failing.refused(failure, None)));
    }

    /// Ends the reply. `marked` is true if the service itself marked the end, with its last event or the end of a
    /// body.
    fn close(&mut self, marked: bool) {
        if self.ended || !(marked || self.raw_finish.is_some()) {
            return;
        }
        let out = &mut self.out;
        self.blocks.stop_all(&mut |delta| out.push_back(Ok(delta)));
        let finish = match self.raw_finish.take() {
            // A call that nobody answers would be lost without a word.
            Some(raw) if &*raw == "end_turn" && self.blocks.called() => {
                Finish::from_wire(FinishReason::ToolCalls, raw)
            }
            Some(raw) => Finish::from_wire(reason(&raw), raw),
            None if self.blocks.called() => Finish::new(FinishReason::ToolCalls),
            None => Finish::new(FinishReason::Stop),
        };
        self.ended = true;
        self.out.push_back(Ok(Delta::finish(finish)));
    }
}

fn reason(raw: &str) -> FinishReason {
    match raw {
        "end_turn" | "stop_sequence" => FinishReason::Stop,
        "tool_use" => FinishReason::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
        "refusal" => FinishReason::Refusal,
        _ => FinishReason::Other,
    }
}
