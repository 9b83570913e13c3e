//! Decodes the bytes of a reply into deltas: a pure machine without a connection.
//!
//! It reads event streams, the array of chunks that the service sends if events are not requested, and the single body
//! of a reply that is not streamed. The deltas must be the same wherever the bytes are cut.

use std::collections::VecDeque;

use entourage_core::{
    Error, ErrorKind, Result, Usage,
    provider::{Delta, Finish, FinishReason, ResponseInfo, Warning, WarningKind},
};

use super::{
    parts::Parts,
    wire::{Candidate, Chunk, Feedback, WireUsage},
};
use crate::{
    framing::{Frame, Framing},
    http::{Failing, Failure},
    json::{self, RawList, Text},
    stream::{Reading, decoder},
};

decoder! {
    /// Decodes one reply.
    ///
    /// Memory: the event being read (at most 16 MiB) and the deltas not yet taken. Decoding continues after an error,
    /// so that a reader can still get the usage or the reason of a failed reply.
    ///
    /// ```
    /// use entourage_core::provider::Delta;
    /// use entourage_providers::gemini::GeminiDecoder;
    ///
    /// let mut decoder = GeminiDecoder::new();
    /// decoder.push(b"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hel");
    /// decoder.push(b"lo\"}]}}]}\r\n\r\n");
    /// assert_eq!(decoder.pop().unwrap().unwrap(), Delta::Text("Hello".into()));
    /// ```
    GeminiDecoder(Reply), new
}

/// State of the reply so far.
#[derive(Debug)]
struct Reply {
    failing: Failing,
    out: VecDeque<Result<Delta>>,
    parts: Parts,
    /// The latest token counts. Each report stands for itself: a figure that it leaves out is not taken from the one
    /// before.
    counted: WireUsage,
    input: Option<u64>,
    id: Option<Box<str>>,
    model: Option<Box<str>>,
    raw_finish: Option<Box<str>>,
    /// True until the intake has asked for it.
    named_finish: bool,
    /// True if the prompt was refused, so there are no candidates.
    blocked: bool,
    ended: bool,
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
            self.whole(frame.data);
        } else if frame.data == b"[DONE]" {
            // Gateways that also speak other wires append their mark.
            self.close(true);
        } else {
            let mut mended = String::new();
            match json::read(frame.data, &mut mended) {
                Ok((chunk, data)) => {
                    self.chunk(chunk, data);
                }
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
        self.raw_finish.is_some() || self.blocked || self.ended
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
            parts: Parts::default(),
            counted: WireUsage::default(),
            input: None,
            id: None,
            model: None,
            raw_finish: None,
            named_finish: false,
            blocked: false,
            ended: false,
        }
    }

    /// Takes in one JSON body: a chunk, or an array of them.
    fn whole(&mut self, body: &[u8]) {
        let before = self.out.len();
        let mut mended = String::new();
        let mut answered = false;
        match json::read::<RawList<'_>>(body, &mut mended) {
            Ok((chunks, _)) => {
                for raw in chunks.0 {
                    if let (Some(chunk), Some(text)) = (raw.read(), raw.get()) {
                        answered |= self.chunk(chunk, text.as_bytes());
                    }
                }
            }
            Err(error) => self.out.push_back(Err(self.failing.unreadable(body, &error))),
        }
        if answered {
            self.close(true);
        } else if self.out.iter().skip(before).all(Result::is_ok) {
            let failure = Failure::from_body(body);
            if failure.message.is_empty() {
                let text = "the model's service answered without a reply in it; check the base URL, it often ends in /v1beta";
                self.out.push_back(Err(self.failing.error(ErrorKind::Protocol, text)));
            } else {
                self.failed(&failure);
            }
        }
    }

    /// Takes in one chunk. Returns true if it held an answer.
    fn chunk(&mut self, chunk: Chunk<'_>, data: &[u8]) -> bool {
        self.identify(chunk.response_id, chunk.model_version);
        if let Some(usage) = chunk.usage_metadata.0 {
            self.count(usage);
        }
        let answer = chunk.candidates.0.into_iter().find(|candidate| candidate.index.0.unwrap_or(0) == 0);
        let mut answered = answer.is_some();
        if let Some(candidate) = answer {
            self.candidate(candidate);
        }
        if let Some(feedback) = chunk.prompt_feedback.0 {
            answered |= self.feedback(feedback);
        }
        if let Some(failure) = chunk.error.and_then(Failure::reported) {
            let failure = if failure.message.is_empty() { Failure::from_body(data) } else { failure };
            self.failed(&failure);
        }
        answered
    }

    fn candidate(&mut self, candidate: Candidate<'_>) {
        for part in candidate.content.0.into_iter().flat_map(|content| content.parts.0) {
            if let Err(error) = self.parts.push(part, &mut self.out) {
                self.broken(error);
            }
        }
        if let Some(reason) = candidate.finish_reason.filled() {
            if let Some(message) = candidate.finish_message.filled()
                && !matches!(&*reason, "STOP" | "MAX_TOKENS")
            {
                self.note("finishReason", &format!("the reply ended with {reason}: {message}"));
            }
            self.raw_finish = Some(reason.into());
            self.named_finish = true;
        }
    }

    /// Handles feedback on the prompt. Returns true if the prompt was refused.
    fn feedback(&mut self, feedback: Feedback<'_>) -> bool {
        let Some(reason) = feedback.block_reason.filled() else { return false };
        let why = feedback.block_reason_message.filled().unwrap_or_default();
        let colon = if why.is_empty() { "" } else { ": " };
        self.note("promptFeedback", &format!("the prompt was blocked with {reason}{colon}{why}"));
        self.blocked = true;
        true
    }

    fn note(&mut self, subject: &str, text: &str) {
        let warning = Warning::new(WarningKind::Reply, subject, self.failing.quote(text));
        self.out.push_back(Ok(Delta::Warning(Box::new(warning))));
    }

    fn identify(&mut self, id: Text<'_>, model: Text<'_>) {
        let (id, model) = (id.filled(), model.filled());
        let news = (self.id.is_none() && id.is_some()) || (self.model.is_none() && model.is_some());
        if news {
            self.id = self.id.take().or(id.map(Into::into));
            self.model = self.model.take().or(model.map(Into::into));
            let info = ResponseInfo::new(self.id.clone(), self.model.clone());
            self.out.push_back(Ok(Delta::Response(Box::new(info))));
        }
    }

    /// Reports the prompt's tokens at once and the others at the end: a later report may revise them, and readers add
    /// up all reports.
    fn count(&mut self, wire: WireUsage) {
        let counts = [wire.prompt_token_count, wire.candidates_token_count, wire.thoughts_token_count];
        if counts.iter().all(|count| count.0.is_none()) {
            return;
        }
        self.counted = wire;
        if wire.prompt_token_count.0 != self.input {
            self.input = wire.prompt_token_count.0;
            let mut usage = Usage::default();
            usage.input = self.input;
            self.out.push_back(Ok(Delta::Usage(Box::new(usage))));
        }
    }

    fn tell_usage(&mut self) {
        let usage = usage(&self.counted);
        if !usage.is_unknown() {
            self.out.push_back(Ok(Delta::Usage(Box::new(usage))));
        }
    }

    fn failed(&mut self, failure: &Failure) {
        self.out.push_back(Err(self.failing.refused(failure, None)));
    }

    /// Ends the reply. `marked` is true if it was complete: a whole body, or one with an end mark.
    fn close(&mut self, marked: bool) {
        if self.ended {
            return;
        }
        self.tell_usage();
        let called = self.parts.calls() > 0;
        let finish = match self.raw_finish.take() {
            Some(raw) => Finish::from_wire(reason(&raw, called), raw),
            None if self.blocked => Finish::new(FinishReason::ContentFilter),
            None if marked && called => Finish::new(FinishReason::ToolCalls),
            None if marked && self.parts.has_content() => Finish::new(FinishReason::Stop),
            None => return,
        };
        self.ended = true;
        self.out.push_back(Ok(Delta::Finish(Box::new(finish))));
    }
}

/// Converts the counts. The wire's candidates exclude thoughts. Without a count of candidates, the output is unknown.
fn usage(wire: &WireUsage) -> Usage {
    let mut usage = Usage::default();
    usage.input = wire.prompt_token_count.0;
    usage.reasoning = wire.thoughts_token_count.0;
    usage.cache_read = wire.cached_content_token_count.0;
    let said = wire.candidates_token_count.0;
    usage.output = said.and_then(|said| said.checked_add(usage.reasoning.unwrap_or(0)));
    usage
}

fn reason(raw: &str, called: bool) -> FinishReason {
    match raw {
        // The service also uses this for calls; and a call of an unknown tool gets its answer like any other.
        "STOP" | "UNEXPECTED_TOOL_CALL" if called => FinishReason::ToolCalls,
        "STOP" => FinishReason::Stop,
        "MAX_TOKENS" => FinishReason::Length,
        "SAFETY"
        | "RECITATION"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "MODEL_ARMOR"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION" => FinishReason::ContentFilter,
        "MALFORMED_FUNCTION_CALL"
        | "MALFORMED_RESPONSE"
        | "UNEXPECTED_TOOL_CALL"
        | "TOO_MANY_TOOL_CALLS"
        | "MISSING_THOUGHT_SIGNATURE" => FinishReason::Error,
        _ => FinishReason::Other,
    }
}
