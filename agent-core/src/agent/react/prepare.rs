//! What is sent in a step, and the hook that changes it.

use crate::{
    context::Instructions,
    message::{History, Message},
    provider::{Model, ToolChoice},
    tool::Tools,
};

/// A step that is about to be made.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Step {
    /// Its number in the run, from 1.
    pub number: u32,
}

/// What will be sent in a step. A [`Prepare`] hook changes it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Prepared {
    /// The model.
    pub model: Model,
    /// System instructions. Another text has no template, and none is recorded for the step.
    pub instructions: Instructions,
    /// The conversation. What is added here is sent, and not stored.
    pub messages: History,
    /// The tools; `Tools::none()` disables them, [`Tools::keep`] picks some.
    pub tools: Tools,
    /// Whether the model may, must or must not call one.
    pub tool_choice: ToolChoice,
}

impl Prepared {
    /// Adds a message for this step only.
    pub fn push(&mut self, message: Message) {
        self.messages.push(message);
    }
}

/// Changes what is sent, step by step. Must follow from its arguments, so that a resumed run sends the same.
pub trait Prepare: Send + Sync {
    /// Changes `plan` for `step`.
    fn prepare(&self, step: &Step, plan: &mut Prepared);
}

impl<F: Fn(&Step, &mut Prepared) + Send + Sync> Prepare for F {
    fn prepare(&self, step: &Step, plan: &mut Prepared) {
        self(step, plan);
    }
}
