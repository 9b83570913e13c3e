//! Messages that join the conversation of a run while its agent works.

use std::sync::Arc;

use super::RunContext;
#[cfg(doc)]
use crate::ErrorKind;
use crate::{Result, message::Message};

impl RunContext {
    /// Adds a message of the program's own to the conversation, between two steps: the model reads it, and nobody sent
    /// it. A resumed run does not add a message again that it has recorded.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a message that is no user's, while a tool call waits for its result, and in a
    /// run that is over; [`ErrorKind::TooLarge`] for one that cannot be stored.
    pub fn remind(&self, message: impl Into<Message>) -> Result<()> {
        self.check_effects()?;
        self.effects().remind(self, Arc::new(message.into()))
    }

    /// Lets prompts that came while the agent worked join the conversation. An agent calls it between two steps, when
    /// no tool call of its last message waits for a result. Prompts that nobody lets in get a run of their own.
    ///
    /// # Errors
    /// Those of the effects; a run that is over lets nothing in, and that is no error.
    pub async fn steer(&self) -> Result<()> {
        self.check_effects()?;
        self.effects().steer(self).await
    }
}
