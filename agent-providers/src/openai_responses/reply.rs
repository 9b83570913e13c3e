//! Interprets the frames of a reply: events and whole bodies, identity, usage, failures and the end.
//!
//! `items` interprets the items of a reply.

use std::{borrow::Cow, collections::VecDeque};

use entourage_core::{
    Error, ErrorKind, Result, Usage,
    provider::{Delta, Finish, FinishReason, ResponseInfo},
};

use super::{
    items::{At, Items, Said},
    wire::{Event, Response},
};
use crate::{
    framing::{Frame, Framing},
    http::{Failing, Failure},
    json::{self, Count, Raw},
    stream::Reading,
};

/// State of the reply so far.
#[derive(Debug)]
pub(super) struct Reply {
    failing: Failing,
    out: VecDeque<Result<Delta>>,
    items: Items,
    usage: Usage,
    id: Option<Box<str>>,
    model: Option<Box<str>>,
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
            // Only some services send it, after the event that ends the reply; alone it still marks an end.
            self.marked();
        } else if frame.name == b"error" {
            self.failed(&Failure::from_body(frame.data));
        } else {
            self.event_text(frame.data);
        }
    }

    fn broken(&mut self, error: Error) {
        self.out.push_back(Err(self.failing.sign(error)));
    }

    /// Ends the input before the end of the reply: reports calls that still wait for a name.
    fn end(&mut self) {
        if !self.ended {
            self.items.give_up(&mut self.out);
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
    pub(super) fn new(failing: Failing) -> Self {
        Self {
            failing,
            out: VecDeque::new(),
            items: Items::default(),
            usage: Usage::default(),
            id: None,
            model: None,
            ended: false,
        }
    }

    fn whole(&mut self, body: &[u8]) {
        let mut mended = String::new();
        match json::read::<Response<'_>>(body, &mut mended) {
            Ok((response, read)) => {
                if response.object.as_str() == "response" || !response.output.0.is_empty() {
                    self.response(response, "");
                    return;
                }
                let mut failure = Failure::from_body(read);
                if failure.message.is_empty() {
                    failure = response.error.and_then(Failure::reported).unwrap_or_default();
                }
                if failure == Failure::default() {
                    let text = "the model's service answered without a response in it; check that the base URL is that of responses";
                    self.out.push_back(Err(self.failing.error(ErrorKind::Protocol, text)));
                } else {
                    self.failed(&failure);
                }
            }
            Err(error) => self.out.push_back(Err(self.failing.unreadable(body, &error))),
        }
    }

    fn event_text(&mut self, data: &[u8]) {
        let mut mended = String::new();
        match json::read::<Event<'_>>(data, &mut mended) {
            Ok((event, read)) => {
                if let Err(error) = self.event(event, read) {
                    self.broken(error);
                }
            }
            Err(error) => self.out.push_back(Err(self.failing.unreadable(data, &error))),
        }
    }

    fn event(&mut self, event: Event<'_>, data: &[u8]) -> Result<()> {
        let kind = event.kind.as_str().strip_prefix("response.").unwrap_or(event.kind.as_str());
        match kind {
            "created" | "in_progress" | "queued" => {
                if let Some(response) = event.response.read::<Response<'_>>() {
                    self.identify(response.id.filled(), response.model.filled());
                }
            }
            "completed" | "incomplete" | "failed" | "cancelled" => {
                let word = kind.to_owned();
                self.response(event.response.read().unwrap_or_default(), &word);
            }
            "error" => self.failed(&Failure::from_body(data)),
            "output_item.added" => self.items.added(event.output_index.0, event.item, &mut self.out)?,
            "output_item.done" => self.items.done(event.output_index.0, event.item, &mut self.out)?,
            _ if event.error.is_some() => {
                if let Some(failure) = event.error.and_then(Failure::reported) {
                    self.failed(&failure);
                }
            }
            _ => self.piece(event)?,
        }
        Ok(())
    }

    /// Takes in a piece of an item, or a complete part of it. Other events only report progress.
    fn piece(&mut self, event: Event<'_>) -> Result<()> {
        let kind = event.kind.as_str().strip_prefix("response.").unwrap_or(event.kind.as_str());
        let Some((what, how)) = kind.rsplit_once('.') else { return Ok(()) };
        let (items, out) = (&mut self.items, &mut self.out);
        let item = event.item_id.as_str();
        let at = |part: Count| At { output: event.output_index.0, item, part: part.0.unwrap_or(0) };
        let (said, part, whole) = match what {
            "output_text" => (Said::Text, event.content_index, event.text),
            "refusal" => (Said::Refusal, event.content_index, event.refusal),
            "reasoning_summary_text" => (Said::Summary, event.summary_index, event.text),
            "reasoning_text" => (Said::Reasoning, event.content_index, event.text),
            "function_call_arguments" if how == "delta" => {
                return items.arguments(&at(Count(None)), event.delta.as_str(), out);
            }
            "function_call_arguments" if how == "done" => {
                return items.all_arguments(&at(Count(None)), &event.arguments.0, out);
            }
            _ => return Ok(()),
        };
        match how {
            "delta" => items.say(said, &at(part), event.delta, out),
            "done" => items.said(said, &at(part), whole, out),
            _ => Ok(()),
        }
    }

    /// Takes in the response as a whole: at the end of a stream, where most of it is known, or instead of one.
    fn response(&mut self, response: Response<'_>, event: &str) {
        self.identify(response.id.filled(), response.model.filled());
        if let Some(usage) = response.usage.0 {
            self.count(usage.usage());
        }
        let status = response.status.filled().unwrap_or(Cow::Borrowed(event));
        if let Some(failure) = response.error.and_then(Failure::reported) {
            return self.failed(&failure);
        }
        if status == "failed" {
            return self.failed(&Failure::default());
        }
        if let Err(error) = self.output(&response.output.0) {
            self.broken(error);
        }
        let reason = response.incomplete_details.0.unwrap_or_default();
        self.close(&status, reason.reason.as_str());
    }

    /// Takes from the final output the content that the stream did not have.
    fn output(&mut self, output: &[Raw<'_>]) -> Result<()> {
        let all_is_new = self.items.is_empty();
        for (at, item) in output.iter().enumerate() {
            let at = u64::try_from(at).ok();
            if all_is_new {
                self.items.done(at, *item, &mut self.out)?;
            } else {
                self.items.left(at, *item, &mut self.out)?;
            }
        }
        Ok(())
    }

    fn identify(&mut self, id: Option<Cow<'_, str>>, model: Option<Cow<'_, str>>) {
        let is_news = |known: &Option<Box<str>>, said: &Option<Cow<'_, str>>| {
            said.is_some() && known.as_deref() != said.as_deref()
        };
        if is_news(&self.id, &id) || is_news(&self.model, &model) {
            self.id = id.map(Into::into).or(self.id.take());
            self.model = model.map(Into::into).or(self.model.take());
            let info = ResponseInfo::new(self.id.clone(), self.model.clone());
            self.out.push_back(Ok(Delta::Response(Box::new(info))));
        }
    }

    fn count(&mut self, usage: Usage) {
        let mut merged = self.usage;
        merged.merge(usage);
        if merged != self.usage {
            self.usage = merged;
            self.out.push_back(Ok(Delta::Usage(Box::new(merged))));
        }
    }

    fn failed(&mut self, failure: &Failure) {
        self.out.push_back(Err(self.failing.refused(failure, None)));
    }

    fn marked(&mut self) {
        self.items.give_up(&mut self.out);
        let reason = if self.items.has_calls() {
            FinishReason::ToolCalls
        } else if self.items.has_refusal() {
            FinishReason::Refusal
        } else if self.items.is_empty() {
            return;
        } else {
            FinishReason::Stop
        };
        self.ended = true;
        self.out.push_back(Ok(Delta::finish(reason)));
    }

    fn close(&mut self, status: &str, why: &str) {
        self.items.give_up(&mut self.out);
        let reason = match (status, why) {
            ("completed" | "", _) if self.items.has_calls() => FinishReason::ToolCalls,
            ("completed" | "", _) if self.items.has_refusal() => FinishReason::Refusal,
            ("completed" | "", _) => FinishReason::Stop,
            ("incomplete", "max_output_tokens" | "max_tokens" | "length") => FinishReason::Length,
            ("incomplete", "content_filter") => FinishReason::ContentFilter,
            _ => FinishReason::Other,
        };
        let finish = if status.is_empty() { Finish::new(reason) } else { Finish::from_wire(reason, status) };
        self.ended = true;
        self.out.push_back(Ok(Delta::finish(finish)));
    }
}
