//! The content of a step's request, and the hook that changes it.

use std::sync::Arc;

use entourage_core::{
    Result,
    context::Instructions,
    message::{History, Message},
    provider::{Model, ToolChoice},
    run::RunContext,
    tool::Tools,
};

/// A step that is about to be made.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Step {
    /// Number of the step in the run, from 1.
    pub number: u32,
    /// The run, to read from: its [`deps`](RunContext::deps), todo list, mode and state. A hook performs and records
    /// nothing.
    pub run: RunContext,
}

/// The content of a step's request. A [`Prepare`] hook changes it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Prepared {
    /// The model.
    pub model: Model,
    /// System instructions. A replaced text has no template, so none is recorded for the step.
    pub instructions: Instructions,
    /// The conversation. Messages added here are sent, and not stored.
    pub messages: History,
    /// The tools; `Tools::none()` disables them, [`Tools::keep`] picks some.
    pub tools: Tools,
    /// Tool choice: the model may, must or must not call a tool.
    pub tool_choice: ToolChoice,
}

impl Prepared {
    /// Adds a message for this step only.
    pub fn push(&mut self, message: Message) {
        self.messages.push(message);
    }
}

/// A hook that changes each request before it is sent. The change must follow from its arguments alone, so that a
/// resumed run sends the same.
pub trait Prepare: Send + Sync {
    /// Changes `plan` for `step`.
    fn prepare(&self, step: &Step, plan: &mut Prepared);
}

impl<F: Fn(&Step, &mut Prepared) + Send + Sync> Prepare for F {
    fn prepare(&self, step: &Step, plan: &mut Prepared) {
        self(step, plan);
    }
}

/// Makes the part of a step's instructions that differs from step to step.
pub(super) type Instruct = Arc<dyn Fn(&Step) -> Result<Instructions> + Send + Sync>;

/// Returns both instructions, one after the other. Records name both templates.
pub(crate) fn joined(first: &Instructions, second: &Instructions) -> Instructions {
    let both = [first, second];
    let texts: Vec<_> = both.iter().map(|one| one.text()).filter(|text| !text.is_empty()).collect();
    let templates: Vec<_> = both.iter().filter_map(|one| one.template()).collect();
    let template = Some(templates.join(" ").into()).filter(|ids: &Arc<str>| !ids.is_empty());
    Instructions::new(texts.join("\n\n").into(), template)
}
