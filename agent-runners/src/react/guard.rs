//! Guards on the answers of an agent: the program's own code, which the text of each answer passes through. They judge
//! a text; the turn decides what follows.

use std::sync::Arc;

use entourage_core::{bound::shortened, message::Message, run::RunContext, tool::LayerVerdict};
use entourage_runtime::caught;

use crate::{
    react::{ReactAgent, ReactBuilder},
    typed::TOLD,
};

/// Refused answers of an agent without typed output that its model may repair.
pub(super) const REPAIRS: u32 = 1;

type Guard = dyn Fn(&mut String, &RunContext) -> LayerVerdict + Send + Sync;

/// The guards of an agent, in the order in which they are called.
#[derive(Clone, Default)]
pub(super) struct AnswerGuards(Vec<Arc<Guard>>);

/// Reason that a message is no answer.
pub(crate) enum Bar {
    /// The model is told, and may answer again.
    Refused(String),
    /// The run ends.
    Stopped(String),
}

impl AnswerGuards {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Passes a text through the guards, and returns what they made of it.
    ///
    /// # Errors
    /// The reason of the first guard that does not pass it.
    fn pass(&self, mut text: String, cx: &RunContext) -> Result<String, Bar> {
        for guard in &self.0 {
            match caught(|| guard(&mut text, cx)) {
                Ok(LayerVerdict::Pass | LayerVerdict::Allow(_)) => {}
                Ok(LayerVerdict::Refuse(reason)) => {
                    return Err(Bar::Refused(shortened(&reason, TOLD).into_owned()));
                }
                Ok(LayerVerdict::Stop(reason)) => return Err(Bar::Stopped(reason)),
                Ok(_) => {
                    return Err(Bar::Stopped("a guard gave a verdict that is not known here".to_owned()));
                }
                Err(panic) => return Err(Bar::Stopped(format!("a guard on answers panicked: {panic}"))),
            }
        }
        Ok(text)
    }
}

impl ReactBuilder {
    /// Adds a guard on answers, after those that were added before. It looks at the text that a run is about to end
    /// with, and may change it:
    ///
    /// - [`LayerVerdict::Pass`]: the text that it leaves is the outcome's, which a parent's model, a node of a graph
    ///   and the program get.
    /// - [`LayerVerdict::Refuse`]: the model is told why and answers again, once a run. The round is a step under the
    ///   agent's limits, and is recorded as an [`AnswerRefused`](crate::typed::AnswerRefused). After a second refusal
    ///   the run ends as stopped, with [`StopReason::Incomplete`](entourage_core::run::StopReason::Incomplete), which
    ///   holds the reason.
    /// - [`LayerVerdict::Stop`], and a panic: the run ends as stopped, with
    ///   [`StopReason::Condition`](entourage_core::run::StopReason::Condition).
    ///
    /// The outcome's text is one that all guards passed, or it is empty. So a guard is also asked about the text of a
    /// run that a tool, a limit of steps, a stop condition, loop detection or the end of a reply stopped; what it
    /// refuses then is left out, and the model is not asked again. A run that fails, is cancelled, or is cut off by a
    /// deadline or a budget has no text, which its record [`AnswersGuarded`](entourage_runtime::AnswersGuarded) says.
    /// The text of a run that gave none is empty.
    ///
    /// A guard sees answers, and not the conversation: there the model's message stays as the model said it, and
    /// observers have seen it while it streamed. In a pair or at a level of autonomy, the digest of an agent's work
    /// leaves out what a guarded agent said. The summary with which it calls the task complete is an answer: a refused
    /// one is told to the model by the tool's result, and what the guards make of it is recorded as the verdict.
    ///
    /// Of an agent with a typed answer ([`ReactBuilder::returns`]) a guard sees the value as JSON, after the
    /// validators. What it makes of it must be such a value too, or the run ends as stopped. Such an agent repairs as
    /// many answers as [`TypedBuilder::repairs`](crate::TypedBuilder::repairs) says, and a run without a value has no
    /// text.
    ///
    /// A guard must follow from the text and the context alone, since a resumed run asks it again. It adds nothing to
    /// the run by its context.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// use entourage_core::tool::LayerVerdict;
    /// use entourage_runners::ReactAgent;
    /// use entourage_runtime::AgentExt;
    /// use entourage_testkit::ScriptedProvider;
    ///
    /// let provider = ScriptedProvider::new().text("Call 555-0100.").text("Ask ada@example.com.");
    /// let agent = ReactAgent::builder("clerk", provider.model())
    ///     .guard_answers(|text, _| match text.contains("555") {
    ///         true => LayerVerdict::Refuse("give no phone number".to_owned()),
    ///         false => LayerVerdict::Pass,
    ///     })
    ///     .guard_answers(|text, _| {
    ///         *text = text.replace("ada@example.com", "the office");
    ///         LayerVerdict::Pass
    ///     })
    ///     .build()
    ///     .unwrap();
    /// assert_eq!(agent.ask("Whom can I ask?").await.unwrap(), "Ask the office.");
    /// # });
    /// ```
    pub fn guard_answers(
        mut self,
        guard: impl Fn(&mut String, &RunContext) -> LayerVerdict + Send + Sync + 'static,
    ) -> Self {
        self.more().guards.0.push(Arc::new(guard));
        self
    }
}

impl ReactAgent {
    /// True if guards look at the agent's answers.
    pub(crate) fn is_guarded(&self) -> bool {
        self.guards().is_some()
    }

    /// Returns the guards on the agent's answers, if it has any.
    pub(super) fn guards(&self) -> Option<&AnswerGuards> {
        self.0.more.as_ref().map(|more| &more.guards).filter(|guards| !guards.is_empty())
    }

    /// Passes a text that stands for an answer through the guards, if there are any, and returns what they made of it.
    ///
    /// # Errors
    /// The reason that it is no answer.
    pub(crate) fn passed(&self, text: String, cx: &RunContext) -> Result<String, Bar> {
        match self.guards() {
            Some(guards) => guards.pass(text, cx),
            None => Ok(text),
        }
    }

    /// Checks what a message answers with: a value as JSON text, or a text that the guards pass.
    ///
    /// # Errors
    /// The reason that it is no answer.
    pub(super) fn check(&self, message: &Message, cx: &RunContext) -> Result<String, Bar> {
        let Some(rule) = self.rule() else {
            return self.passed(message.first_text().unwrap_or_default().to_owned(), cx);
        };
        let value = rule.check(message, self.strategy(rule, cx), cx).map_err(Bar::Refused)?;
        let passed = self.passed(value.clone(), cx)?;
        if passed == value {
            return Ok(value);
        }
        let changed = |problem| Bar::Stopped(format!("a guard changed the answer, and {problem}"));
        rule.read(&passed, cx).map_err(changed)
    }

    /// Returns the message that tells the model why its answer was refused. The number of the round tells two refusals
    /// for one reason apart.
    pub(super) fn refusal(&self, round: u32, problem: &str, cx: &RunContext) -> Message {
        if let Some(rule) = self.rule() {
            return rule.refusal(round, problem, self.strategy(rule, cx));
        }
        let tries = REPAIRS.saturating_add(1);
        Message::user(format!(
            "Answer {round} of at most {tries} was refused: {problem}. Answer again without that."
        ))
    }
}
