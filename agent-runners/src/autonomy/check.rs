//! The check between the end of the executor's work and the end of the task: one trait, one kind of check per level.
//! Pure.

use std::sync::Arc;

use entourage_core::{agent::Agent, message::Message, permission::Scope, run::Outcome};

use super::{Player, Verdict};

/// A check of the executor's work. All methods are pure: the loop of work and check does the rest.
pub(crate) trait Check: Send + Sync {
    /// Returns the role of the session that it works in, below the agent's own: `executor` for a question to the
    /// executor itself, else a role of its own.
    fn role(&self) -> &'static str;

    /// Returns the agent that answers. One run of it is one check; `executor` is the agent that worked.
    fn agent(&self, executor: &Player) -> Arc<dyn Agent>;

    /// Returns the agent that writes acceptance criteria before the work begins, in the checker's session. Default:
    /// none.
    fn criteria(&self) -> Option<Arc<dyn Agent>> {
        None
    }

    /// Returns the prompt for the agent of [`Check::criteria`], about what the user wants.
    fn criteria_prompt(&self, asked: &Asked) -> Message {
        Message::user(asked.request.text())
    }

    /// True when the executor's own phase says that the task is done: nobody is asked then, and [`Check::read`] is
    /// given that phase.
    fn is_claimed(&self) -> bool {
        false
    }

    /// Returns the messages inserted into the checker's conversation before the prompt when a check begins. Default:
    /// none.
    fn opening(&self, asked: &Asked) -> Vec<Message> {
        let _ = asked;
        Vec::new()
    }

    /// Returns the prompt of the check: a user message that is not blank. `summary` is the executor's, or a digest of
    /// its work when there is none; it may be blank.
    fn prompt(&self, asked: &Asked, summary: &str) -> Message;

    /// Returns the verdict of the check. Only called for a run that completed or was stopped by a limit of its own: a
    /// failure, a cancel and a pause never reach it. `work` holds the messages of the run without its prompt.
    ///
    /// A result that is no clear acceptance is a rejection. The reason of a rejection is the executor's feedback.
    fn read(&self, asked: &Asked, outcome: &Outcome, work: &[Arc<Message>]) -> Verdict;

    /// True when the executor summarizes before the check; otherwise the digest of its work is checked.
    fn needs_summary(&self) -> bool;

    /// Returns the upper bound of the checker's permissions. Default: those of the whole agent.
    fn scope(&self) -> Scope {
        Scope::all()
    }
}

/// The subject of a check.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// The prompt that the task began with.
    pub(crate) request: Arc<Message>,
    /// The user's messages since the last check of this session, oldest first: the request in the first check of a
    /// task, later what the user said after a cancel, if anything.
    pub(crate) said: Vec<Arc<Message>>,
    /// The acceptance criteria, one numbered line each, if any were written.
    pub(crate) criteria: Option<Arc<str>>,
    /// Number of the round of work and check, from 1.
    pub(crate) iteration: u32,
}
