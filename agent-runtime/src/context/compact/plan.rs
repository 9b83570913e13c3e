//! The plan of a compaction: messages to clear, to summarise and to keep. Works on estimates and does no I/O.

use std::sync::Arc;

use entourage_core::{
    context::{Clearing, Compaction, CompactionCause, estimate_tokens},
    message::{History, Message, Role},
    provider::Model,
    session::{cleared, reserve},
};

/// A conversation that is too large.
#[derive(Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) cause: CompactionCause,
    pub(crate) history: &'a History,
    /// Prompt of the open run.
    pub(crate) goal: Option<&'a Message>,
    /// True if the first message is a summary.
    pub(crate) summarised: bool,
    /// Estimated tokens of the history.
    pub(crate) tokens: u64,
    /// Tokens of the newest step and of later messages. Exceeds `tokens` by the instructions, the tools and the error
    /// of the estimate.
    pub(crate) used: u64,
    /// The model's window.
    pub(crate) window: Option<u64>,
    /// Ratio of real to estimated tokens, in per mille.
    pub(crate) permille: u64,
}

/// One way to make a conversation smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Clear results of at least `least` bytes in the oldest `before` messages.
    Clear { before: usize, least: u64 },
    /// Replace the oldest `older` messages by a summary.
    Summarise { older: usize },
}

/// Chooses how to make the conversation smaller. `None` when nothing can be removed.
pub(crate) fn plan(compaction: &Compaction, frame: &Frame<'_>) -> Option<Plan> {
    clearing(compaction, frame).or_else(|| summary_plan(compaction, frame))
}

/// Plans to clear outputs if that is enough: it must leave twice the reserve free. If the window is unknown or was
/// exceeded, it must halve the conversation.
fn clearing(compaction: &Compaction, frame: &Frame<'_>) -> Option<Plan> {
    let Clearing::Old { keep, least } = compaction.clearing() else { return None };
    if frame.cause == CompactionCause::Asked {
        return None;
    }
    let before = frame.history.len().saturating_sub(keep);
    let freed = frame.history.iter().take(before).map(|message| {
        let smaller = cleared(message, least);
        if Arc::ptr_eq(&smaller, message) {
            return 0;
        }
        estimate_tokens(message).saturating_sub(estimate_tokens(&smaller))
    });
    let freed = freed.fold(0, u64::saturating_add);
    let enough = match (frame.cause, frame.window) {
        (CompactionCause::Threshold, Some(window)) => {
            let room = reserve(window).saturating_mul(2);
            frame.used.saturating_sub(freed) <= window.saturating_sub(room)
        }
        _ => freed >= frame.tokens.div_ceil(2),
    };
    (freed > 0 && enough).then_some(Plan::Clear { before, least })
}

/// Plans a summary, without clearing.
pub(crate) fn summary_plan(compaction: &Compaction, frame: &Frame<'_>) -> Option<Plan> {
    let must = unanswered(frame);
    let wished = kept_from(compaction, frame, must);
    // What is kept must not be nearly all there is.
    let older = if gain(frame, wished).saturating_mul(5) < frame.tokens { must } else { wished };
    let old_summary = usize::from(frame.summarised);
    (older > old_summary && gain(frame, older) > 0).then_some(Plan::Summarise { older })
}

/// Tokens of the `older` oldest messages that an empty summary would free. The goal is never freed.
fn gain(frame: &Frame<'_>, older: usize) -> u64 {
    let old = frame.history.iter().take(older);
    let all = old.map(|message| estimate_tokens(message)).fold(0, u64::saturating_add);
    let shown = |goal: &Message| frame.history.iter().skip(older).any(|kept| **kept == *goal);
    let pinned = frame.goal.filter(|goal| !shown(goal)).map_or(0, estimate_tokens);
    all.saturating_sub(pinned)
}

/// Index of the first prompt at the end that has no reply yet, from the open run's own prompt on.
fn unanswered(frame: &Frame<'_>) -> usize {
    let mut from = frame.history.len();
    let Some(goal) = frame.goal else { return from };
    while let Some(message) = from.checked_sub(1).and_then(|place| frame.history.get(place))
        && message.role() == Role::User
    {
        from -= 1;
        if **message == *goal {
            break;
        }
    }
    // The summary in front is not a prompt.
    from.max(usize::from(frame.summarised)).min(frame.history.len())
}

/// Index of the first message that is kept word for word. A call and its results are one unit.
fn kept_from(compaction: &Compaction, frame: &Frame<'_>, must: usize) -> usize {
    let room = match (frame.cause, frame.window) {
        (CompactionCause::Threshold | CompactionCause::Asked, Some(window)) if window > 0 => {
            (window / 4).saturating_mul(1_000) / frame.permille.max(1_000)
        }
        _ => frame.tokens / 4,
    };
    let len = frame.history.len();
    let (mut from, mut taken) = (must, 0_u64);
    let mut place = must;
    while let Some(message) = place.checked_sub(1).and_then(|before| frame.history.get(before)) {
        place -= 1;
        taken = taken.saturating_add(estimate_tokens(message));
        let asks_more = match compaction.kept_messages() {
            Some(most) => len - place <= most,
            // The newest step, unless a prompt came after it.
            None => from == len,
        };
        if taken > room || !asks_more {
            break;
        }
        if message.role() != Role::Tool {
            from = place;
        }
    }
    from
}

/// Room for the summary's own model call, in real tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    /// For the conversation.
    pub(crate) input: u64,
    /// For the reply; `None` leaves it to the model.
    pub(crate) output: Option<u64>,
}

impl Room {
    /// Room in the window of `model` beside an instruction of `instruction` tokens.
    pub(crate) fn of(model: &Model, frame: &Frame<'_>, instruction: u64) -> Self {
        let own = model.profile().context_window.filter(|window| *window > 0);
        let Some(window) = own.or(frame.window.filter(|window| *window > 0)) else {
            // The service said that all of it is too much.
            let overflow = frame.cause == CompactionCause::Overflow;
            let input = if overflow { frame.tokens / 2 } else { u64::MAX };
            return Self { input, output: None };
        };
        let limits = [model.params().max_output, model.profile().max_output];
        let limits = limits.into_iter().flatten().filter(|limit| *limit > 0);
        let output = limits.fold((window / 8).clamp(1, MOST_OUTPUT), u64::min);
        // A reserve for tokens outside the estimate: roles, ids, separators.
        let taken = output.saturating_add(instruction).saturating_add(window / 32);
        Self { input: window.saturating_sub(taken), output: Some(output) }
    }

    /// Estimated tokens that fit at attempt number `attempt`, from 0. Each attempt halves them.
    pub(crate) fn estimated(&self, permille: u64, attempt: u32) -> u64 {
        let input = self.input.checked_shr(attempt).unwrap_or(0);
        u64::try_from(u128::from(input) * 1_000 / u128::from(permille.max(1_000))).unwrap_or(u64::MAX)
    }
}

/// Output tokens that suffice for any summary, and for the reasoning before it.
const MOST_OUTPUT: u64 = 16_384;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::context::{compact::fit::fitted, repair::repair};
    use entourage_core::message::{Arguments, ToolCall, ToolResult};

    fn call(id: usize) -> ToolCall {
        ToolCall::new(format!("call_{id}"), "look", Arguments::from(&json!({"n": id})))
    }

    /// A step of an agent: calls, and results of the given sizes in bytes.
    fn step(results: &[usize]) -> Vec<Message> {
        let calls = results.iter().enumerate().map(|(id, _)| call(id));
        let asks = calls.clone().fold(Message::assistant("Let me look."), |message, call| {
            message.with(entourage_core::message::Part::ToolCall(call))
        });
        let answers = calls.zip(results).map(|(call, size)| ToolResult::text(&call, "x".repeat(*size)));
        vec![asks, Message::tool(answers)]
    }

    fn conversation() -> impl Strategy<Value = History> {
        let piece = prop_oneof![
            (0_usize..400).prop_map(|size| vec![Message::user("p".repeat(size + 1))]),
            (0_usize..400).prop_map(|size| vec![Message::assistant("a".repeat(size + 1))]),
            prop::collection::vec(0_usize..20_000, 1..4).prop_map(|results| step(&results)),
        ];
        prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.into_iter().flatten().collect())
    }

    fn tokens(history: &History) -> u64 {
        history.iter().map(|message| estimate_tokens(message)).sum()
    }

    fn frame<'a>(history: &'a History, goal: Option<&'a Message>, window: Option<u64>) -> Frame<'a> {
        let tokens = tokens(history);
        let cause = CompactionCause::Threshold;
        Frame { cause, history, goal, summarised: false, tokens, used: tokens, window, permille: 1_000 }
    }

    fn slice(history: &History, from: usize, to: usize) -> History {
        history.iter().skip(from).take(to - from).cloned().collect()
    }

    proptest! {
        #[test]
        fn cs02_no_plan_parts_a_call_from_its_results(
            history in conversation(),
            cause in prop_oneof![
                Just(CompactionCause::Threshold), Just(CompactionCause::Overflow), Just(CompactionCause::Asked),
            ],
            window in prop::option::of(0_u64..60_000),
            keep in prop::option::of(0_usize..20),
            goal in prop::option::of(0_usize..24),
            summarised: bool,
            permille in 0_u64..5_000,
        ) {
            let goal = goal.and_then(|place| history.get(place)).filter(|it| it.role() == Role::User);
            let base = frame(&history, goal.map(|goal| &**goal), window);
            let frame = Frame { cause, summarised, permille, ..base };
            let compaction = keep.map_or_else(Compaction::new, |most| Compaction::new().keep_messages(most));
            let Some(chosen) = plan(&compaction, &frame) else { return Ok(()) };
            match chosen {
                Plan::Clear { before, least } => {
                    let clear = |(place, message): (usize, &Arc<Message>)| {
                        if place < before { cleared(message, least) } else { Arc::clone(message) }
                    };
                    let smaller: History = history.iter().enumerate().map(clear).collect();
                    prop_assert!(tokens(&smaller) < tokens(&history));
                    prop_assert_eq!(repair(&smaller), smaller);
                }
                Plan::Summarise { older } => {
                    prop_assert!(older > 0 && older <= history.len());
                    let (old, kept) = (slice(&history, 0, older), slice(&history, older, history.len()));
                    prop_assert_eq!(repair(&old), old);
                    prop_assert_eq!(repair(&kept), kept.clone());
                    // An unanswered prompt is kept, or is the goal, which the summary holds.
                    if let Some(goal) = goal && history.last() == Some(goal) {
                        prop_assert!(kept.last() == Some(goal) || summarised && history.len() == 1);
                    }
                }
            }
        }

        #[test]
        fn what_the_summary_is_made_of_fits_and_is_whole(
            history in conversation(),
            most in 0_u64..20_000,
            goal in prop::option::of("[a-zé ]{0,3000}"),
        ) {
            let goal = goal.map(Message::user);
            match fitted(&history, most, goal.as_ref()) {
                Some(input) => {
                    prop_assert!(tokens(&input) <= most, "{} > {most}", tokens(&input));
                    prop_assert_eq!(repair(&input), input.clone());
                    if tokens(&history) <= most {
                        prop_assert_eq!(input, history);
                    }
                }
                None => prop_assert!(history.is_empty() || tokens(&history) > most),
            }
        }
    }

    #[test]
    fn the_newest_step_stays_when_there_is_room() {
        let mut history: History =
            [Message::user("Go"), Message::assistant("a".repeat(4_000))].into_iter().collect();
        history.extend(step(&[400]));
        let goal = Message::user("Go");
        let plan = |window, keep: Option<usize>, history: &History| {
            let compaction = keep.map_or_else(Compaction::new, |most| Compaction::new().keep_messages(most));
            summary_plan(&compaction, &frame(history, Some(&goal), window))
        };
        let older = |older| Some(Plan::Summarise { older });
        assert_eq!(plan(Some(8_000), None, &history), older(2));
        assert_eq!(plan(Some(8_000), Some(0), &history), older(4));
        assert_eq!(plan(Some(8_000), Some(1), &history), older(4), "half a step is none");
        assert_eq!(plan(Some(8_000), Some(2), &history), older(2));
        assert_eq!(plan(Some(400), None, &history), older(4), "no room for it");
        let alone: History = [goal.clone()].into_iter().collect();
        assert_eq!(plan(Some(1), None, &alone), None, "a prompt alone cannot be made smaller");
        history.push(Message::user("And then?"));
        assert_eq!(plan(Some(8_000), Some(0), &history), older(4), "what nobody answered stays");
    }

    #[test]
    fn clearing_alone_must_free_enough() {
        let mut history: History = [Message::user("Go")].into_iter().collect();
        for _ in 0..8 {
            history.extend(step(&[4_000]));
        }
        // About 8,000 tokens, of which the oldest 4 steps hold half: they leave 4,100.
        let plan = |window| plan(&Compaction::new(), &frame(&history, None, Some(window)));
        assert_eq!(plan(8_000), Some(Plan::Clear { before: 9, least: 1_024 }));
        assert_eq!(plan(6_000), Some(Plan::Summarise { older: 15 }), "60% of 6,000 is less than is left");
        let kept = crate::context::compact::plan::plan(
            &Compaction::new().without_clearing(),
            &frame(&history, None, Some(8_000)),
        );
        assert_eq!(kept, Some(Plan::Summarise { older: 15 }));
    }
}
