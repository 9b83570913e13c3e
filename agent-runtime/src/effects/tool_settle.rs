//! The results of a step's calls: of those that ran, of those that did not, and of the step as a whole.

use std::sync::Arc;

use entourage_core::{
    Error, ErrorKind, Result, Timestamp,
    event::{Event, ToolFinished},
    message::{ToolCall, ToolResult},
    run::Observation,
    tool::{Repeat, ToolError, ToolOutput},
};

use crate::effects::{
    tool_ask::soonest,
    tool_bound::{bounded, other_arguments},
    tool_call::Step,
    tool_judge::Checked,
    tool_layers::Held,
    tool_run::Ran,
};

impl Step<'_> {
    /// Returns the results, in the order of the calls.
    pub(super) fn end(&mut self) -> Result<Observation> {
        if let Some(error) = self.fatal.take().or(self.exhausted.take()) {
            return Err(error);
        }
        if let Some(pause) = self.pause.take() {
            return Err(Error::paused(soonest(self.site, pause)));
        }
        self.results.sort_by_key(|call| call.index);
        Ok(Observation::Tools(std::mem::take(&mut self.results)))
    }

    /// Answers the calls without a result when a refusal, or a tool, ended the turn. Those that had not begun are not
    /// run, and nothing waits any more for those that were handed out.
    pub(super) fn settle_rest(&mut self, slots: &mut [Option<Checked<'_>>]) {
        let why = match &self.ended {
            _ if self.denied => "leave for another call was refused".to_owned(),
            Some(tool) if self.fatal.is_none() => format!("`{tool}` ended the turn"),
            _ => return,
        };
        for (place, slot) in slots.iter_mut().enumerate() {
            match slot.take() {
                Some(Checked::Settled { call, text, .. }) => self.settle_unrun(place, call, text, false),
                Some(Checked::Open(open)) => {
                    self.settle_unrun(place, open.call, format!("not run, since {why}"), false);
                }
                None => {}
            }
        }
        let message = Arc::clone(&self.calls.message);
        for place in std::mem::take(&mut self.without_result) {
            let Some(call) = message.tool_calls().nth(self.index(place)) else { continue };
            let why = format!("its result is unknown and no longer waited for, since {why}");
            self.settle_unrun(place, call, why, false);
        }
    }

    pub(super) fn settle_unrun(&mut self, place: usize, call: &ToolCall, text: String, denied: bool) {
        self.denied |= denied;
        let mut finished = ToolFinished::new(0, Arc::new(ToolResult::error(call, text)));
        (finished.stop_turn, finished.denied, finished.key) = (denied, denied, self.key);
        self.finish(place, self.site.now(), finished);
    }

    pub(super) fn settle(&mut self, place: usize, ran: Ran<'_>) {
        let Ran { call, edited, result, labels, held, ended: at, time } = ran;
        if let Some(Held { text, stops }) = held {
            return self.settle_unrun(place, call, text, stops);
        }
        // The call stays open, until its run is resumed.
        if let Err(ToolError::Fatal(error)) = &result
            && let Some(pause) = error.pause()
        {
            self.pause.get_or_insert_with(|| pause.clone());
            return;
        }
        if let Some(error) = self.diverged_below(call) {
            self.fatal.get_or_insert(error);
            return;
        }
        let (output, fatal) = match result {
            Ok(output) => (output, None),
            Err(ToolError::Tell(text)) => (ToolOutput::error(text), None),
            Err(ToolError::Fatal(error)) => {
                (ToolOutput::error(format!("the tool failed: {}", error.message())), Some(error))
            }
        };
        let mut output = bounded(output, &self.calls.limits);
        if let Some(arguments) = edited {
            output.content.insert(0, other_arguments(&arguments));
        }
        let result = ToolResult::new(call, output.content, output.is_error);
        if output.stop_turn {
            self.ended.get_or_insert_with(|| Arc::clone(&call.name));
        }
        let mut finished = ToolFinished::new(0, Arc::new(result));
        (finished.stop_turn, finished.metadata) = (output.stop_turn, output.metadata);
        finished.labels = output.labels | labels;
        finished.micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        (finished.fatal, finished.key) = (fatal.as_ref().map(Error::record), self.key);
        self.finish(place, at, finished);
        self.fatal = self.fatal.take().or(fatal);
    }

    /// Returns the reason that a call of a `Repeat::Resume` tool stays open: an agent below the run diverged, maybe the
    /// call's own. The tool's result then does not count.
    fn diverged_below(&self, call: &ToolCall) -> Option<Error> {
        let lost = self.site.lost().filter(|lost| lost.kind() == ErrorKind::Diverged)?;
        let tool = self.calls.offered.get(&call.name)?;
        (tool.spec().repeat() == Repeat::Resume).then_some(lost)
    }

    fn finish(&mut self, place: usize, at: Timestamp, mut finished: ToolFinished) {
        finished.index = self.index(place);
        let finished = Arc::new(finished);
        self.site.note_at(at, Event::ToolFinished(Arc::clone(&finished)));
        self.results.push(finished);
    }
}
