//! Decodes the bytes of a reply into deltas: a pure machine without a connection.
//!
//! It reads event streams and whole JSON bodies, since some services answer a streaming request with one. The deltas
//! must be the same wherever the bytes are cut.

use std::{borrow::Cow, collections::VecDeque, mem::take};

use entourage_core::{
    Error, ErrorKind, Result, Usage,
    provider::{Delta, Finish, FinishReason, ResponseInfo},
};

use super::{
    Dialect,
    calls::Calls,
    reasoning::{Open, THINKING},
    wire::{Choice, Chunk, Content, Said, WireUsage},
};
use crate::{
    framing::{Frame, Framing},
    http::{Failing, Failure},
    json::{self, Maybe},
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
    /// use entourage_providers::openai_chat::{OpenAiChatDecoder, Dialect};
    ///
    /// let mut decoder = OpenAiChatDecoder::new(Dialect::COMMON);
    /// decoder.push(b"data: {\"choices\":[{\"delta\":{\"content\":\"Hel");
    /// decoder.push(b"lo\"}}]}\n\n");
    /// assert_eq!(decoder.pop().unwrap().unwrap(), Delta::Text("Hello".into()));
    /// ```
    OpenAiChatDecoder(Reply)
}

impl OpenAiChatDecoder {
    /// A decoder for a service that speaks `dialect`.
    #[must_use]
    pub fn new(dialect: Dialect) -> Self {
        Self::reporting(dialect, Failing::default())
    }

    pub(crate) fn reporting(dialect: Dialect, failing: Failing) -> Self {
        Self::reading(Reply::new(dialect, failing))
    }
}

/// State of the reply so far.
#[derive(Debug)]
struct Reply {
    dialect: Dialect,
    failing: Failing,
    out: VecDeque<Result<Delta>>,
    calls: Calls,
    reasoning: Open,
    usage: Usage,
    id: Option<Box<str>>,
    model: Option<Box<str>>,
    raw_finish: Option<Box<str>>,
    /// True until the intake has asked for it.
    named_finish: bool,
    /// True once text, reasoning or a refusal came.
    has_content: bool,
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
            self.close(true);
        } else if frame.name == b"error" {
            self.failed(&Failure::from_body(frame.data));
        } else {
            self.json(frame.data, true);
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
        take(&mut self.named_finish)
    }

    fn is_done(&self) -> bool {
        self.ended
    }
}

impl Reply {
    fn new(dialect: Dialect, failing: Failing) -> Self {
        Self {
            dialect,
            failing,
            out: VecDeque::new(),
            calls: Calls::default(),
            reasoning: Open::default(),
            usage: Usage::default(),
            id: None,
            model: None,
            raw_finish: None,
            named_finish: false,
            has_content: false,
            ended: false,
        }
    }

    fn whole(&mut self, body: &[u8]) {
        let before = self.out.len();
        let choices = self.json(body, false);
        if choices {
            self.close(true);
        } else if self.out.iter().skip(before).all(Result::is_ok) {
            let text = "the model's service answered without a reply in it; check that the base URL is that of chat completions";
            self.out.push_back(Err(self.failing.error(ErrorKind::Protocol, text)));
        }
    }

    /// Takes in one JSON text. Returns true if it held a choice.
    fn json(&mut self, data: &[u8], streamed: bool) -> bool {
        let mut mended = String::new();
        let mut chunk = Chunk::default();
        match json::read_into(data, &mut mended, &mut chunk) {
            Ok(read) => self.chunk(&mut chunk, read, streamed),
            Err(error) => {
                self.out.push_back(Err(self.failing.unreadable(data, &error)));
                false
            }
        }
    }

    fn chunk(&mut self, chunk: &mut Chunk<'_>, data: &[u8], streamed: bool) -> bool {
        self.identify(take(&mut chunk.id).filled(), take(&mut chunk.model).filled());
        let found = chunk.choices.first.0.is_some();
        let mut failure = chunk.error.and_then(Failure::reported);
        if failure.is_none() && chunk.object.as_str() == "error" {
            failure = Some(Failure::from_body(data));
        }
        if let Maybe(Some(choice)) = &mut chunk.choices.first {
            failure = failure.or_else(|| choice.error.and_then(Failure::reported));
            self.choice(choice, streamed);
        }
        let groq = chunk.x_groq.0.as_ref().and_then(|groq| groq.usage.0.as_deref());
        for usage in [chunk.usage.0.as_deref(), groq].into_iter().flatten() {
            self.count(usage);
        }
        match failure {
            Some(failure) => self.failed(&failure),
            None if !found && !streamed => {
                // A refusal with status 200, in the shapes without `error`.
                let failure = Failure::from_body(data);
                if !failure.message.is_empty() {
                    self.failed(&failure);
                }
            }
            None => {}
        }
        found
    }

    fn choice(&mut self, choice: &mut Choice<'_>, streamed: bool) {
        let nothing_yet = !self.has_content && self.calls.is_empty();
        let said = match (&mut choice.delta, &mut choice.message) {
            // In a stream, a message beside the deltas repeats them; in a whole body, a delta beside it is empty.
            (Maybe(Some(delta)), _) if streamed => Some(delta),
            (_, Maybe(Some(message))) if !streamed || nothing_yet => Some(&mut **message),
            (Maybe(delta), _) => delta.as_mut(),
        };
        if let Some(said) = said
            && let Err(error) = self.said(said)
        {
            self.out.push_back(Err(error));
        }
        if let Some(reason) = take(&mut choice.finish_reason).filled() {
            self.raw_finish = Some(reason.into());
            self.named_finish = true;
        }
    }

    fn said(&mut self, said: &mut Said<'_>) -> Result<()> {
        let fields = [
            ("reasoning_content", &mut said.reasoning_content),
            ("reasoning", &mut said.reasoning),
            ("thinking", &mut said.thinking),
        ];
        let thought = fields.into_iter().find_map(|(name, text)| Some((name, take(text).filled()?)));
        if let Some((field, text)) = thought {
            self.think(field, text);
        }
        for detail in &said.reasoning_details.0 {
            self.reasoning.detail(detail, &mut self.out);
        }
        match take(&mut said.content) {
            Content::Absent => {}
            Content::Text(text) => self.say(text, Delta::Text),
            Content::Pieces(pieces) => {
                for piece in pieces {
                    self.think(THINKING, piece.thinking.into_text());
                    self.say(piece.text.filled().unwrap_or_default(), Delta::Text);
                }
            }
        }
        if let Some(text) = take(&mut said.refusal).filled() {
            self.say(text, Delta::Refusal);
        }
        if said.function_call.0.is_some() || !said.tool_calls.0.is_empty() {
            self.reasoning.close(&mut self.out);
        }
        let out = &mut self.out;
        let mut emit = |delta| out.push_back(Ok(delta));
        if let Some(function) = said.function_call.0.take() {
            self.calls.push_legacy(*function, &mut emit)?;
        }
        take(&mut said.tool_calls.0).into_iter().try_for_each(|call| self.calls.push(call, &mut emit))
    }

    fn say(&mut self, text: Cow<'_, str>, delta: impl FnOnce(Box<str>) -> Delta) {
        if !text.is_empty() {
            self.has_content = true;
            self.reasoning.close(&mut self.out);
            self.out.push_back(Ok(delta(text.into())));
        }
    }

    fn think(&mut self, field: &'static str, text: Cow<'_, str>) {
        if !text.is_empty() {
            self.has_content = true;
            self.reasoning.text(field);
            self.out.push_back(Ok(Delta::Reasoning(text.into())));
        }
    }

    fn identify(&mut self, id: Option<Cow<'_, str>>, model: Option<Cow<'_, str>>) {
        let news = (self.id.is_none() && id.is_some()) || (self.model.is_none() && model.is_some());
        if news {
            self.id = self.id.take().or(id.map(Into::into));
            self.model = self.model.take().or(model.map(Into::into));
            self.out.push_back(Ok(Delta::Response(Box::new(ResponseInfo::new(
                self.id.clone(),
                self.model.clone(),
            )))));
        }
    }

    fn count(&mut self, wire: &WireUsage) {
        let mut merged = self.usage;
        merged.merge(super::usage::usage(wire));
        if merged != self.usage {
            self.usage = merged;
            self.out.push_back(Ok(Delta::Usage(Box::new(merged))));
        }
    }

    fn failed(&mut self, failure: &Failure) {
        self.out.push_back(Err(self.failing.refused(failure, None)));
    }

    /// The end of the reply. `marked` says that the service itself marked it, with `[DONE]` or the end of a JSON body.
    fn close(&mut self, marked: bool) {
        if self.ended {
            return;
        }
        self.reasoning.close(&mut self.out);
        let out = &mut self.out;
        self.calls.finish(&mut |delta| out.push_back(Ok(delta)));
        let called = !self.calls.is_empty();
        let finish = match self.raw_finish.take() {
            Some(raw) => {
                let mut reason = reason(&raw);
                if reason == FinishReason::Stop && called && self.dialect.stop_means_tool_calls {
                    reason = FinishReason::ToolCalls;
                }
                Finish::from_wire(reason, raw)
            }
            None if marked && called => Finish::new(FinishReason::ToolCalls),
            None if marked && self.has_content => Finish::new(FinishReason::Stop),
            None => return,
        };
        self.ended = true;
        self.out.push_back(Ok(Delta::Finish(Box::new(finish))));
    }
}

fn reason(raw: &str) -> FinishReason {
    match raw {
        "stop" => FinishReason::Stop,
        "tool_calls" | "function_call" => FinishReason::ToolCalls,
        "length" => FinishReason::Length,
        "content_filter" => FinishReason::ContentFilter,
        "error" => FinishReason::Error,
        _ => FinishReason::Other,
    }
}
