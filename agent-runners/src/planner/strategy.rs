//! The strategy for a request: an answer, some work, or a plan. Pure.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Least operations of a plan.
const PLAN: u32 = 3;

/// Most words of a request that needs no plan.
const WORDS: usize = 50;

/// Words that put operations in an order.
const SEQUENCE: &[&str] =
    &["after", "afterwards", "finally", "first", "lastly", "next", "subsequently", "then"];

/// Strategy of a [`Planner`](super::Planner) for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "The strategy for a request.")]
#[serde(rename_all = "snake_case")]
pub enum PlannerStrategy {
    /// A direct answer, without tools.
    Simple,
    /// One or two operations, which the planner does with its own tools.
    ToolUse,
    /// Three operations or more, or such as depend on each other: a plan.
    Complex,
}

impl fmt::Display for PlannerStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Simple => "simple",
            Self::ToolUse => "tool_use",
            Self::Complex => "complex",
        })
    }
}

/// The classification of a request, as a model gives it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub(super) struct Analysis {
    /// simple: no tools, a direct answer. tool_use: one or two operations. complex: three or more, or a sequence.
    pub(super) strategy: PlannerStrategy,
    /// The reason, in one sentence.
    #[serde(default)]
    pub(super) reasoning: String,
    /// Number of operations, such as a file that is read or changed.
    #[serde(default)]
    pub(super) estimated_operations: u32,
    /// True if tools are needed.
    #[serde(default)]
    pub(super) needs_tools: bool,
    /// True if parts can be given to other agents.
    #[serde(default)]
    pub(super) needs_executors: bool,
}

impl Analysis {
    /// Returns the strategy that fits the counts: they decide where the answer contradicts itself.
    pub(super) fn normalised(&self) -> PlannerStrategy {
        let uses_tools = self.needs_tools || self.needs_executors;
        match (self.strategy, self.estimated_operations) {
            (_, PLAN..) => PlannerStrategy::Complex,
            (PlannerStrategy::Simple, _) if !uses_tools => PlannerStrategy::Simple,
            (_, 0) if !uses_tools => PlannerStrategy::Simple,
            _ => PlannerStrategy::ToolUse,
        }
    }
}

/// Returns the strategy by the words of a request, for one that no model classified.
pub(super) fn by_words(prompt: &str) -> PlannerStrategy {
    let words = || prompt.split_whitespace();
    let plain = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    let in_sequence = || words().any(|word| SEQUENCE.contains(&plain(word).as_str()));
    if words().nth(WORDS).is_some() || in_sequence() {
        PlannerStrategy::Complex
    } else {
        PlannerStrategy::ToolUse
    }
}

#[cfg(test)]
mod tests {
    use super::{PlannerStrategy::*, *};

    #[test]
    fn bo03_the_counts_decide_where_an_answer_contradicts_itself() {
        for (strategy, estimated_operations, needs_tools, expected) in [
            (Simple, 0, false, Simple),
            (Simple, 1, false, Simple),
            (Simple, 1, true, ToolUse),
            (Simple, 3, true, Complex),
            (ToolUse, 0, false, Simple),
            (ToolUse, 0, true, ToolUse),
            (ToolUse, 2, true, ToolUse),
            (ToolUse, 3, true, Complex),
            (Complex, 0, false, Simple),
            (Complex, 1, true, ToolUse),
            (Complex, 2, false, ToolUse),
            (Complex, 3, false, Complex),
            (Complex, u32::MAX, true, Complex),
        ] {
            let (reasoning, needs_executors) = (String::new(), false);
            let analysis =
                Analysis { strategy, reasoning, estimated_operations, needs_tools, needs_executors };
            assert_eq!(analysis.normalised(), expected, "{analysis:?}");
        }
    }

    #[test]
    fn bo03_the_words_decide_without_a_model() {
        for (prompt, expected) in [
            ("Where is the lease?", ToolUse),
            ("Read a, then write b", Complex),
            ("FIRST look, I will tell you more", Complex),
            ("Look at it. Finally, sum up.", Complex),
            ("What does the authentication do?", ToolUse),
            ("", ToolUse),
        ] {
            assert_eq!(by_words(prompt), expected, "{prompt}");
        }
        assert_eq!(by_words(&"word ".repeat(50)), ToolUse);
        assert_eq!(by_words(&"word ".repeat(51)), Complex);
    }
}
