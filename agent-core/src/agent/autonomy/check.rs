//! What stands between "the executor is done" and "the task is done": one trait, a kind of check per level.

use std::sync::Arc;

use super::Verdict;
use crate::{
    agent::{Agent, ReactAgent},
    message::Message,
    permission::Scope,
    run::Outcome,
};

/// Who checks the executor's work, and how. All of it is pure: the loop of work and check does the rest.
pub(crate) trait Check: Send + Sync {
    /// The role of the session that it works in, below the agent's own: `executor` for a question to the executor
    /// itself, else a role of its own.
    fn role(&self) -> &'static str;

    /// Who answers. One run of it is one check; `executor` is who worked.
    fn agent(&self, executor: &ReactAgent) -> Arc<dyn Agent>;

    /// Who writes down what counts as done before the work begins, in the checker's session. Default: nobody.
    fn criteria(&self) -> Option<Arc<dyn Agent>> {
        None
    }

    /// What is asked of whoever [`Check::criteria`] names, about what the user wants.
    fn criteria_prompt(&self, asked: &Asked) -> Message {
        Message::user(asked.request.text())
    }

    /// Whether the executor's own turn says that it is done: then nobody is asked, and [`Check::read`] is given that turn.
    fn is_claimed(&self) -> bool {
        false
    }

    /// What joins the checker's conversation before the prompt, when a check begins. Default: nothing.
    fn opening(&self, asked: &Asked) -> Vec<Message> {
        let _ = asked;
        Vec::new()
    }

    /// What the checker is asked: a user message that is not blank. `summary` is the executor's, or a digest of its work
    /// when there is none; it may be blank.
    fn prompt(&self, asked: &Asked, summary: &str) -> Message;

    /// What the check came to. Is only called for a run that completed or was stopped by a bound of its own: a failure,
    /// a cancel and a pause never reach it. `work` is what was said in the run, its prompt aside.
    ///
    /// What is no clear acceptance is a rejection. The reason of a rejection is what the executor hears.
    fn read(&self, asked: &Asked, outcome: &Outcome, work: &[Arc<Message>]) -> Verdict;

    /// Whether the executor is asked to sum up before the check; else the digest of its work is taken.
    fn needs_summary(&self) -> bool;

    /// What the checker may do, at most. Default: what the whole agent may.
    fn scope(&self) -> Scope {
        Scope::all()
    }
}

/// What a check is about.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// What the user wants: the prompt that the task began with.
    pub(crate) request: Arc<Message>,
    /// What the user said since the last check of this session began, oldest first: in the first check of a task that is
    /// the request; later what the user said after a cancel, if anything.
    pub(crate) said: Vec<Arc<Message>>,
    /// What counts as done, a numbered line each, when that was written down.
    pub(crate) criteria: Option<Arc<str>>,
    /// Which round of work and check, from 1.
    pub(crate) iteration: u32,
}
