//! The value of a typed agent while it streams: a fold over the events of its run.

mod reader;

use entourage_core::{event::Event, provider::Delta};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::reader::Reader;
use crate::typed::{
    Strategy,
    rule::FINAL_ANSWER,
    shape::{FIELD, Shape},
};

/// The growing value of a [`TypedAgent`](crate::TypedAgent)'s run. It holds what is certain so far: a number is left
/// out until its last digit came, and a field until its value began. The last value is the run's own.
///
/// Feed it with the events of the run. A new model call, and a new attempt at one, begins anew: a refused answer is not
/// a part of the next one. Its work is in proportion to the text that streams, wherever that is cut. A text that is no
/// JSON, or nests deeper than 64 levels, only stops the growth until the run ends.
///
/// ```
/// use entourage_core::{event::Event, provider::Delta};
/// use entourage_runners::typed::Partial;
/// use serde_json::json;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Report {
///     summary: Option<String>,
///     people: Option<u32>,
/// }
///
/// let mut partial = Partial::of::<Report>();
/// let mut grows = |text: &str| partial.apply(&Event::Delta(Delta::text(text)));
/// assert!(grows("{\"summary\": \"Drafts a"));
/// assert!(grows("re lost\", \"people\": 1"));
/// assert!(!grows("2"), "more digits may come");
/// assert_eq!(partial.value(), Some(&json!({"summary": "Drafts are lost"})));
/// assert_eq!(partial.read::<Report>().unwrap().people, None);
/// ```
#[derive(Debug, Clone)]
pub struct Partial {
    /// True if the value is the one field of the object that streams.
    wrapped: bool,
    source: Source,
    reader: Reader,
    /// The run's own value.
    last: Option<Value>,
}

/// The place of the answer in the reply that streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Text,
    /// The arguments of the call of this index.
    Call(u32),
    /// Nowhere, until the next model call.
    None,
}

impl Partial {
    /// Creates the fold for a run whose value is a `T`.
    #[must_use]
    pub fn of<T: JsonSchema>() -> Self {
        let wrapped = Shape::of::<T>(Strategy::Tool).is_wrapped();
        Self { wrapped, source: Source::Text, reader: Reader::default(), last: None }
    }

    /// Leaves a text out until its last character came, for types that do not take every text, such as enums.
    #[must_use]
    pub fn with_whole_texts(mut self) -> Self {
        self.reader = Reader::of_whole_texts();
        self
    }

    /// Takes in an event of the run. Returns true if the value is another one now.
    pub fn apply(&mut self, event: &Event) -> bool {
        match event {
            Event::ModelStarted(call) if call.key.is_none() => self.begin(),
            Event::Delta(delta) => self.delta(delta),
            Event::CompactionStarted(_) => {
                // The summary of a conversation streams too.
                self.source = Source::None;
                false
            }
            Event::RunFinished(end) if end.outcome.is_completed() => {
                let before = self.value().cloned();
                self.last = serde_json::from_str(&end.outcome.text).ok();
                self.value() != before.as_ref()
            }
            _ => false,
        }
    }

    /// Returns the value so far; `None` before anything of it came.
    #[must_use]
    pub fn value(&self) -> Option<&Value> {
        match (&self.last, self.reader.value()) {
            (Some(last), _) => Some(last),
            (None, Some(value)) if self.wrapped => value.get(FIELD),
            (None, value) => value,
        }
    }

    /// Returns the value so far as a `T` with fields that may be absent; `None` before anything of it came, and for a
    /// `T` that needs more than there is. It reads the whole value.
    #[must_use]
    pub fn read<T: DeserializeOwned>(&self) -> Option<T> {
        T::deserialize(self.value()?).ok()
    }

    /// True once the run completed with this value.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.last.is_some()
    }

    fn delta(&mut self, delta: &Delta) -> bool {
        match delta {
            Delta::Text(text) if self.source == Source::Text => self.push(text),
            Delta::ToolCallStart(call) if *call.name == *FINAL_ANSWER && self.source == Source::Text => {
                let began = self.begin();
                self.source = Source::Call(call.index);
                began
            }
            Delta::ToolCallArguments { index, text } if self.source == Source::Call(*index) => {
                self.push(text)
            }
            Delta::Restart(_) => self.begin(),
            _ => false,
        }
    }

    fn begin(&mut self) -> bool {
        let had = self.value().is_some();
        self.source = Source::Text;
        self.reader.reset();
        self.last = None;
        had
    }

    fn push(&mut self, text: &str) -> bool {
        // A value around the answer may grow without it.
        let had = self.value().is_some();
        let grew = self.reader.push(text);
        grew && (had || self.value().is_some())
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use entourage_core::{
        Error, ErrorKind,
        event::RunFinished,
        provider::Restart,
        run::{Outcome, Status},
    };
    use serde_json::json;

    use super::*;

    fn text(text: &str) -> Event {
        Event::Delta(Delta::text(text))
    }

    #[test]
    fn the_answer_is_found_in_the_text_and_in_the_final_call() {
        let mut partial = Partial::of::<Vec<u8>>();
        assert!(!partial.apply(&text("I think {it} is {\"val")));
        assert!(partial.apply(&text("ue\": [1, 2")));
        assert_eq!(partial.value(), Some(&json!([1])));
        // A call of another tool is none, and what was said before the final one is not the answer.
        assert!(!partial.apply(&Event::Delta(Delta::tool_call(0, "a", "grep"))));
        assert!(!partial.apply(&Event::Delta(Delta::arguments(0, "{\"value\": [7, 7]}"))));
        assert!(partial.apply(&Event::Delta(Delta::tool_call(1, "b", FINAL_ANSWER))));
        assert_eq!(partial.value(), None);
        assert!(!partial.apply(&Event::Delta(Delta::arguments(0, "{\"value\": [7]}"))));
        assert!(partial.apply(&Event::Delta(Delta::arguments(1, "{\"value\": [3, 4"))));
        assert_eq!(partial.value(), Some(&json!([3])));
    }

    #[test]
    fn an_attempt_that_failed_leaves_nothing_behind() {
        let mut partial = Partial::of::<Vec<u8>>();
        assert!(partial.apply(&text("{\"value\": [1, ")));
        let error = Error::new(ErrorKind::Transport, "cut off").record();
        let restart = Restart::new(2, error, Duration::ZERO);
        assert!(partial.apply(&Event::Delta(Delta::Restart(Box::new(restart)))));
        assert_eq!(partial.value(), None);
        assert!(partial.apply(&text("{\"value\": [5, ")));
        assert_eq!(partial.value(), Some(&json!([5])));
    }

    #[test]
    fn the_last_value_is_that_of_the_outcome() {
        let ended = |outcome| Event::RunFinished(Arc::new(RunFinished::new(outcome, false)));
        let mut partial = Partial::of::<Vec<u8>>();
        assert!(partial.apply(&text("{\"value\": [1, 2]}")));
        assert!(!partial.apply(&ended(Outcome::new(Status::Cancelled))) && !partial.is_complete());
        assert!(!partial.apply(&ended(Outcome::completed("[1,2]"))), "it is the same");
        assert!(partial.is_complete());
        assert_eq!(partial.read::<Vec<u8>>(), Some(vec![1, 2]));
    }
}
