//! Decodes the bytes of a reply into deltas: a pure machine without a connection.
//!
//! It reads JSON lines, and the single body of a reply that was not streamed, which is a line that ends itself. The
//! deltas must be the same wherever the bytes are cut.

use std::{borrow::Cow, collections::VecDeque};

use entourage_core::{
    Error, ErrorKind, Result, Usage,
    provider::{Delta, Finish, FinishReason, ResponseInfo},
};

use super::{
    MADE_ID,
    wire::{Line, Said, WireCall},
};
use crate::{
    framing::{Frame, Framing},
    http::{Failing, Failure},
    json::{self, Text},
    stream::{Reading, decoder},
};

/// More calls than this in one reply is an attack, not a plan; the core keeps far fewer.
const MAX_CALLS: u32 = 10_000;

decoder! {
    /// Decodes one reply.
    ///
    /// Memory: the line being read (at most 16 MiB) and the deltas not yet taken. Decoding continues after an error,
    /// so that a reader can still get the usage or the reason of a failed reply.
    ///
    /// ```
    /// use entourage_core::provider::Delta;
    /// use entourage_providers::ollama::OllamaDecoder;
    ///
    /// let mut decoder = OllamaDecoder::new();
    /// decoder.push(b"{\"message\":{\"role\":\"assistant\",\"content\":\"Hel");
    /// decoder.push(b"lo\"},\"done\":false}\n");
    /// assert_eq!(decoder.pop().unwrap().unwrap(), Delta::Text("Hello".into()));
    /// ```
    OllamaDecoder(Reply), new
}

/// State of the reply so far.
#[derive(Debug)]
struct Reply {
    failing: Failing,
    out: VecDeque<Result<Delta>>,
    usage: Usage,
    model: Option<Box<str>>,
    calls: u32,
    /// True once any JSON was read; `answered` once any of it was this wire's.
    read: bool,
    answered: bool,
    ended: bool,
}

impl Reading for Reply {
    fn framing() -> Framing {
        Framing::lines_or_body()
    }

    fn frame(&mut self, frame: Frame<'_>) {
        if self.ended {
            return;
        }
        self.read = true;
        let mut mended = String::new();
        match json::read(frame.data, &mut mended) {
            Ok((line, data)) => self.line(line, data),
            Err(error) => {
                self.answered = true;
                self.out.push_back(Err(self.failing.unreadable(frame.data, &error)));
            }
        }
    }

    fn broken(&mut self, error: Error) {
        self.answered = true;
        self.out.push_back(Err(self.failing.sign(error)));
    }

    /// Ends the input. JSON of another wire is not a reply that was cut off.
    fn end(&mut self) {
        if self.read && !self.answered {
            self.answered = true;
            let text = "the model's service answered without a reply in it; check that the base URL is that of Ollama's own interface, without /v1";
            self.out.push_back(Err(self.failing.error(ErrorKind::Protocol, text)));
        }
    }

    fn out(&mut self) -> &mut VecDeque<Result<Delta>> {
        &mut self.out
    }

    fn has_finish(&self) -> bool {
        self.ended
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
            usage: Usage::default(),
            model: None,
            calls: 0,
            read: false,
            answered: false,
            ended: false,
        }
    }

    fn line(&mut self, line: Line<'_>, data: &[u8]) {
        self.identify(line.model);
        let done = line.done.is_true();
        self.answered |= line.done.0.is_some() || line.message.0.is_some();
        if let Some(failure) = line.error.and_then(Failure::reported) {
            self.answered = true;
            let failure = if failure.message.is_empty() { Failure::from_body(data) } else { failure };
            self.out.push_back(Err(self.failing.refused(&failure, None)));
        }
        self.say(line.thinking.filled(), Delta::Reasoning);
        self.say(line.response.filled(), Delta::Text);
        if let Some(said) = line.message.0 {
            self.said(said);
        }
        let mut usage = self.usage;
        usage.input = line.prompt_eval_count.0.or(usage.input);
        usage.output = line.eval_count.0.or(usage.output);
        if usage != self.usage {
            self.usage = usage;
            self.out.push_back(Ok(Delta::Usage(Box::new(usage))));
        }
        if done {
            self.close(line.done_reason.filled());
        }
    }

    fn said(&mut self, said: Said<'_>) {
        self.say(said.thinking.filled(), Delta::Reasoning);
        self.say(said.content.filled(), Delta::Text);
        for call in said.tool_calls.0 {
            if self.calls >= MAX_CALLS {
                let text = "the model asked for more than 10,000 tool calls at once";
                self.broken(Error::new(ErrorKind::TooLarge, text));
                return;
            }
            self.call(call);
        }
    }

    /// Takes in a call, which is always whole. Its `index` means nothing: some servers count it from 0 in every line.
    fn call(&mut self, call: WireCall<'_>) {
        let function = call.function.0.unwrap_or_default();
        let index = self.calls;
        self.calls = index.saturating_add(1);
        let id = call.id.filled().unwrap_or_else(|| format!("{MADE_ID}{index}").into());
        self.out.push_back(Ok(Delta::tool_call(index, &*id, function.name.as_str())));
        if let Some(arguments) = function.arguments.get() {
            self.out.push_back(Ok(Delta::arguments(index, arguments)));
        }
    }

    fn say(&mut self, text: Option<Cow<'_, str>>, delta: impl FnOnce(Box<str>) -> Delta) {
        if let Some(text) = text {
            self.out.push_back(Ok(delta(text.into())));
        }
    }

    fn identify(&mut self, model: Text<'_>) {
        if self.model.is_none()
            && let Some(model) = model.filled()
        {
            self.model = Some(model.into());
            let info = ResponseInfo::new(None, self.model.clone());
            self.out.push_back(Ok(Delta::Response(Box::new(info))));
        }
    }

    fn close(&mut self, reason: Option<Cow<'_, str>>) {
        let called = self.calls > 0;
        let finish = match reason {
            Some(raw) => Finish::from_wire(finish_reason(&raw, called), raw),
            // Servers of 2024 report only that they are done.
            None if called => Finish::new(FinishReason::ToolCalls),
            None => Finish::new(FinishReason::Stop),
        };
        self.ended = true;
        self.out.push_back(Ok(Delta::Finish(Box::new(finish))));
    }
}

fn finish_reason(raw: &str, called: bool) -> FinishReason {
    match raw {
        "stop" | "tool_calls" if called => FinishReason::ToolCalls,
        "stop" => FinishReason::Stop,
        "length" => FinishReason::Length,
        _ => FinishReason::Other,
    }
}
