//! The messages between a planner and an executor, and their types. Pure.

use std::{fmt, sync::Arc};

use entourage_core::{
    Result, RunId, SessionId, Usage,
    event::{Record, plain_line, weigh_plain},
    run::StopReason,
};
use serde::{Deserialize, Serialize};

/// Type of a message between a planner and an executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StepMessageKind {
    /// The planner gives a step to the executor.
    TaskAssignment,
    /// The executor asks the planner.
    Question,
    /// The planner answers, or tells the executor to go on.
    Clarification,
    /// The executor tells how far it is.
    ProgressUpdate,
    /// The executor gives a part of the result. The default of what it says.
    PartialResult,
    /// The executor gives the result, which ends the conversation.
    TaskComplete,
    /// The executor gives up, which ends the conversation as failed.
    Error,
}

impl StepMessageKind {
    /// True if the executor says it, false if the planner does.
    #[must_use]
    pub fn is_by_executor(self) -> bool {
        !matches!(self, Self::TaskAssignment | Self::Clarification)
    }

    /// Returns the serialized name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TaskAssignment => "task_assignment",
            Self::Question => "question",
            Self::Clarification => "clarification",
            Self::ProgressUpdate => "progress_update",
            Self::PartialResult => "partial_result",
            Self::TaskComplete => "task_complete",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for StepMessageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A message between a planner and the executor of a step, as a recorded value of the step's session.
///
/// To the executor the planner's messages are the user's, and its own the assistant's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StepMessage {
    /// Number of the executor's turn that it begins or ends, from 1.
    pub turn: u32,
    /// Most turns of the conversation.
    pub most: u32,
    /// Its type.
    pub kind: StepMessageKind,
    /// Its text.
    pub text: Arc<str>,
    /// The session of the agent that is given the message and answers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<SessionId>,
    /// The run in which it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Results of tools that the speaker had since the message before.
    #[serde(default)]
    pub tool_calls: u32,
    /// Tokens of the speaker's model calls since the message before.
    #[serde(default, skip_serializing_if = "Usage::is_unknown")]
    pub usage: Usage,
    /// The reason of an error after which nobody may try again: a refusal, or the end of what bounds the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Box<StopReason>>,
}

/// Most bytes of a text that is kept without a look at it.
const PLAIN: usize = 64 * 1024;

impl Record for StepMessage {
    const KIND: &'static str = "planner.message";

    fn summary(&self) -> String {
        plain_line(&format!("turn {} of {}, {}: {}", self.turn, self.most, self.kind, self.text))
    }

    fn child(&self) -> Option<(&SessionId, Option<RunId>)> {
        self.child.as_ref().map(|child| (child, self.run))
    }

    /// A text within this is read back as it is, and no bound is near.
    fn weigh(&self) -> Result<usize> {
        if self.text.len() <= PLAIN { Ok(self.text.len()) } else { weigh_plain(self) }
    }
}

/// Returns the type and the text of an executor's message that was no call of `reply`: a marker word that begins the
/// first line with a colon decides. Words anywhere else decide nothing.
pub(super) fn by_marker(text: &str) -> (StepMessageKind, &str) {
    let text = text.trim();
    let marked = text.split_once(':').and_then(|(word, rest)| Some((marker(word)?, rest.trim())));
    marked.unwrap_or((StepMessageKind::PartialResult, text))
}

fn marker(word: &str) -> Option<StepMessageKind> {
    // The longest marker has 15 letters.
    let word = word.get(..16).is_none().then(|| word.trim().to_ascii_lowercase().replace([' ', '-'], "_"))?;
    kind_of(&word)
}

/// Returns the kind that an executor's word names.
pub(super) fn kind_of(word: &str) -> Option<StepMessageKind> {
    Some(match word {
        "question" => StepMessageKind::Question,
        "progress" | "progress_update" => StepMessageKind::ProgressUpdate,
        "partial" | "partial_result" => StepMessageKind::PartialResult,
        "complete" | "task_complete" => StepMessageKind::TaskComplete,
        "error" => StepMessageKind::Error,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{StepMessageKind::*, *};

    #[test]
    fn bo08_a_marker_word_at_the_beginning_decides_and_no_other_word() {
        for (text, kind, rest) in [
            ("no errors, task complete", PartialResult, "no errors, task complete"),
            ("failed tests: 0", PartialResult, "failed tests: 0"),
            ("I failed: no such file", PartialResult, "I failed: no such file"),
            ("The log says:\nerror: no space", PartialResult, "The log says:\nerror: no space"),
            ("Is it done?", PartialResult, "Is it done?"),
            ("error", PartialResult, "error"),
            ("", PartialResult, ""),
            ("ERROR: no such file", Error, "no such file"),
            ("  task complete: it is in a.rs", TaskComplete, "it is in a.rs"),
            ("TASK_COMPLETE:\nIn a.rs: line 3", TaskComplete, "In a.rs: line 3"),
            ("Progress-Update: half", ProgressUpdate, "half"),
            ("partial: a", PartialResult, "a"),
            ("Question: which?", Question, "which?"),
            ("Question about errors: which?", PartialResult, "Question about errors: which?"),
            ("ﬁnding ünterwegs: ß", PartialResult, "ﬁnding ünterwegs: ß"),
            ("clarification: x", PartialResult, "clarification: x"),
        ] {
            assert_eq!(by_marker(text), (kind, rest), "{text:?}");
        }
    }

    #[test]
    fn bo08_names_and_speakers() {
        let all =
            [TaskAssignment, Question, Clarification, ProgressUpdate, PartialResult, TaskComplete, Error];
        for kind in all {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
            assert_eq!(kind_of(kind.as_str()).is_some(), kind.is_by_executor(), "{kind}");
        }
    }
}
