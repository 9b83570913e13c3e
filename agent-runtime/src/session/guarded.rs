//! Prompts that may enter a session: those that passed the guards of the runtime, and those that are stored.

use std::sync::Arc;

use entourage_core::{
    Error, ErrorKind, Result,
    event::PromptQueued,
    message::{Message, Role},
    run::Task,
};

use crate::{
    caught,
    env::Env,
    run::admit::{check_prompt, says_something},
    session::journal::{queued::queued_task, weight::check_message},
};

/// A task whose prompt may enter a session. A session's queue takes no other.
pub(super) struct Guarded(Task);

impl Guarded {
    /// Passes the prompt of `task` through the guards. Must not be called under a lock: guards are the program's code.
    ///
    /// # Errors
    /// Those of the guards, of [`check_prompt`], and of [`passed`].
    pub(super) fn new(env: &Env, mut task: Task) -> Result<Self> {
        if !env.guards.is_empty() {
            check_prompt(&task)?;
            task.prompt = passed(env, task.prompt)?;
        }
        Ok(Self(task))
    }

    /// The task of a prompt that is stored: it passed the guards when it came.
    pub(super) fn stored(queued: &PromptQueued) -> Self {
        Self(queued_task(queued))
    }

    pub(super) fn task(&self) -> &Task {
        &self.0
    }

    pub(super) fn into_task(self) -> Task {
        self.0
    }
}

/// Passes a user message through the guards.
///
/// # Errors
/// Those of the guards; [`ErrorKind::Internal`] for one that panics; [`ErrorKind::InvalidInput`],
/// [`ErrorKind::EmptyPrompt`] or [`ErrorKind::TooLarge`] for one that makes no prompt of a prompt.
pub(super) fn passed(env: &Env, message: Arc<Message>) -> Result<Arc<Message>> {
    if env.guards.is_empty() {
        return Ok(message);
    }
    // A given conversation may hold files without a word.
    let said = says_something(&message);
    let mut message = Arc::unwrap_or_clone(message);
    for guard in env.guards.iter() {
        let panicked =
            |panic| Err(refused(ErrorKind::Internal, format!("a guard on prompts panicked: {panic}")));
        message = caught(|| guard(message)).unwrap_or_else(panicked)?;
        if message.role() != Role::User {
            return Err(refused(ErrorKind::InvalidInput, "a guard on prompts gave no user message"));
        }
        if said && !says_something(&message) {
            return Err(refused(ErrorKind::EmptyPrompt, "a guard on prompts left nothing of the prompt"));
        }
        check_message(&message)?;
    }
    Ok(Arc::new(message))
}

fn refused(kind: ErrorKind, text: impl Into<String>) -> Error {
    Error::new(kind, text.into()).during("prompt.guard")
}
