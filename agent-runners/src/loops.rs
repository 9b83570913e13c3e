//! Loop detection for a run. Pure.
//!
//! The newest steps are kept as they are, shared with the history, and compared directly, not by a hash: different
//! steps are never confused. Most differ at first sight, so an ordinary step costs some tens of nanoseconds.

use std::{collections::VecDeque, sync::Arc};

use entourage_core::{
    event::ModelFinished,
    message::{Content, Message, ToolCall},
};

use crate::turn::CallState;

/// Settings of loop detection. Two guards, each on by default.
///
/// The first one refuses a call that is made for the third time in a row: it is not run and gets an error result that
/// says so. Calls are counted in their order, across steps. Equal neighbours in one message count once, since the model
/// has not seen the first one's result. A refusal resets the count, and the run continues.
///
/// The second one ends the run with [`LoopDetected`](entourage_core::run::StopReason::LoopDetected), when more than 5
/// of its last 10
/// steps made the same calls and got the same results. It judges once there are 10 steps. Refused calls count with the
/// error result that they got.
///
/// Two calls are the same when they name the same tool and their arguments are the same text, white space between JSON
/// tokens aside. Another order of keys, another spelling of a number or an escape makes another call: models that
/// repeat themselves repeat the exact text, and comparing values would require parsing each of them.
///
/// On resume the windows are rebuilt from the run's events. They begin anew at a checkpoint of the session, so a loop
/// in a resumed run may be found some steps later than in one that was never interrupted.
///
/// ```
/// use entourage_runners::{LoopDetection, ReactAgent};
/// # let model = entourage_testkit::ScriptedProvider::new().model();
///
/// let agent = ReactAgent::builder("clerk", model).loops(LoopDetection::off().with_repeats(5)).build();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoopDetection {
    /// Number of times in a row at which a call is refused, at least 2. `None`: never. Default 3.
    pub repeats: Option<u32>,
    /// Number of newest steps that are compared. Default 10.
    pub window: u32,
    /// The run ends when more than this many of them are equal; 0 counts as 1. `None`: never. Default 5.
    pub alike: Option<u32>,
}

impl LoopDetection {
    /// Turns both guards off.
    #[must_use]
    pub fn off() -> Self {
        Self { repeats: None, alike: None, ..Self::default() }
    }

    /// Refuses a call that is made for this many times in a row, at least 2.
    #[must_use]
    pub fn with_repeats(mut self, times: u32) -> Self {
        self.repeats = Some(times);
        self
    }

    /// Ends a run when more than `alike` of its newest `window` steps are equal, at least 1.
    #[must_use]
    pub fn with_steps(mut self, window: u32, alike: u32) -> Self {
        (self.window, self.alike) = (window, Some(alike));
        self
    }

    /// Turns the second guard off: no run ends for a loop.
    #[must_use]
    pub fn without_steps(mut self) -> Self {
        self.alike = None;
        self
    }
}

impl Default for LoopDetection {
    fn default() -> Self {
        Self { repeats: Some(3), window: 10, alike: Some(5) }
    }
}

/// The newest calls and steps of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Loops {
    pub(crate) settings: LoopDetection,
    /// The newest call: its message and its position there.
    last: Option<(Arc<Message>, usize)>,
    /// Number of times in a row that it was made.
    times: u32,
    steps: VecDeque<Step>,
}

/// A step that made calls.
#[derive(Debug, Clone)]
struct Step {
    number: u32,
    reply: Arc<ModelFinished>,
    calls: Vec<CallState>,
    /// Digest that is equal for equal steps: see `mark`.
    mark: u64,
    /// Number of the first step that was equal to this one.
    like: u32,
}

impl Loops {
    pub(crate) fn new(settings: LoopDetection) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Number of times in a row at which a call is refused; 0 if none is.
    pub(crate) fn most(&self) -> u32 {
        self.settings.repeats.map_or(0, |times| times.max(2))
    }

    pub(crate) fn forget(&mut self) {
        *self = Self::new(self.settings);
    }

    /// Records a message's calls and passes to `tell`, for each, `true` if it is a repetition to be refused.
    pub(crate) fn note_calls<T>(
        &mut self,
        message: &Arc<Message>,
        mut tell: impl FnMut(bool) -> T,
    ) -> Vec<T> {
        let most = self.most();
        if most == 0 {
            return message.tool_calls().map(|_| tell(false)).collect();
        }
        let before = self.last.take();
        let mut last = before.as_ref().and_then(|(message, place)| message.tool_calls().nth(*place));
        let mut newest = None;
        let calls = message.tool_calls().enumerate().map(|(place, call)| {
            if !last.is_some_and(|last| is_same(last, call)) {
                self.times = 1;
            } else if newest.is_none() {
                // Within a message the model has not seen the first one's result: it counts once.
                self.times += 1;
            }
            (last, newest) = (Some(call), Some(place));
            tell(self.times >= most)
        });
        let told = calls.collect();
        self.last = newest.filter(|_| self.times < most).map(|place| (Arc::clone(message), place));
        told
    }

    /// Records a step whose calls have their results. Returns true when the run is to end for it.
    pub(crate) fn note_step(
        &mut self,
        number: u32,
        reply: &Arc<ModelFinished>,
        calls: Vec<CallState>,
    ) -> bool {
        let Some(alike) = self.settings.alike else { return false };
        let window = self.settings.window;
        while self.steps.front().is_some_and(|step| step.number.saturating_add(window) <= number) {
            self.steps.pop_front();
        }
        let mark = mark(&calls);
        let mut step = Step { number, reply: Arc::clone(reply), calls, mark, like: number };
        // Newest first: in a loop the newest is equal, and nothing more is compared.
        if let Some(found) = self.steps.iter().rev().find(|other| other.is_like(&step)) {
            step.like = found.like;
        }
        let like = step.like;
        self.steps.push_back(step);
        let found = self.steps.iter().filter(|step| step.like == like).count();
        number >= window && u32::try_from(found).is_ok_and(|found| found > alike.max(1))
    }
}

impl Step {
    fn is_like(&self, other: &Self) -> bool {
        let same_result = |(a, b): (&CallState, &CallState)| match (a.result(), b.result()) {
            (Some(a), Some(b)) => a.is_error == b.is_error && a.content == b.content,
            (a, b) => a.is_none() && b.is_none(),
        };
        let mut asked = self.reply.message.tool_calls().zip(other.reply.message.tool_calls());
        self.mark == other.mark
            && self.calls.len() == other.calls.len()
            && asked.all(|(a, b)| is_same(a, b))
            && self.calls.iter().zip(&other.calls).all(same_result)
    }
}

/// Returns a digest from the lengths and the last bytes of the results. It tells most steps apart, so that few are
/// compared.
fn mark(calls: &[CallState]) -> u64 {
    let pieces = calls.iter().filter_map(CallState::result).flat_map(|result| &result.content);
    let add = |mark: u64, more: u64| mark.wrapping_mul(31).wrapping_add(more);
    pieces.fold(0, |mark, piece| {
        let text = if let Content::Text(text) = piece { text.as_str() } else { "" };
        text.bytes().rev().take(8).fold(add(mark, text.len() as u64), |mark, byte| add(mark, byte.into()))
    })
}

fn is_same(a: &ToolCall, b: &ToolCall) -> bool {
    a.name == b.name && a.malformed == b.malformed && is_same_json(a.arguments.as_str(), b.arguments.as_str())
}

/// True when two JSON texts differ only in the white space between their tokens.
fn is_same_json(a: &str, b: &str) -> bool {
    if a == b {
        return true;
    }
    // If both differ at bytes that are not white space, no layout makes them equal: most texts differ so.
    match a.bytes().zip(b.bytes()).find(|(a, b)| a != b) {
        Some((a, b)) if !is_space(a) && !is_space(b) => false,
        _ => tokens(a).eq(tokens(b)),
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

/// The bytes of a JSON text without the white space between its tokens.
fn tokens(text: &str) -> impl Iterator<Item = u8> {
    let (mut quoted, mut escaped) = (false, false);
    text.bytes().filter(move |byte| {
        let kept = quoted || !is_space(*byte);
        if escaped {
            escaped = false;
        } else if quoted && *byte == b'\\' {
            escaped = true;
        } else if *byte == b'"' {
            quoted = !quoted;
        }
        kept
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cm16_white_space_between_tokens_makes_no_other_call() {
        for (a, b, same) in [
            (r#"{"a":1}"#, "{ \"a\" :\n\t1 }", true),
            (r#"{"a":"x y"}"#, r#"{"a":"xy"}"#, false),
            (r#"{"a":"\" b"}"#, r#"{"a": "\" b"}"#, true),
            (r#"{"a":"\" b"}"#, r#"{"a":"\"b"}"#, false),
            (r#"{"a":"\\"} "#, r#"{"a":"\\"}"#, true),
            (r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#, false),
            (r#"{"a":1}"#, r#"{"a":1.0}"#, false),
            (r#"{"a":1}"#, r#"{"a":12}"#, false),
        ] {
            assert_eq!(is_same_json(a, b), same, "{a} {b}");
        }
    }

    proptest! {
        /// Any layout of a value is equal, and equal texts have equal values.
        #[test]
        fn cm16_the_same_text_has_the_same_value(a in "[a-c \"\\\\{}:,]{0,6}", b in "[a-c \"\\\\{}:,]{0,6}") {
            let [a, b] = [a, b].map(|text| serde_json::json!({ "k": text, "l": [text, 1] }));
            let pretty = serde_json::to_string_pretty(&a).unwrap();
            prop_assert!(is_same_json(&a.to_string(), &pretty));
            prop_assert_eq!(is_same_json(&b.to_string(), &pretty), a == b);
        }
    }
}
