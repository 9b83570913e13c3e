//! Models that are asked for session titles.

use entourage_core::{context::Instructions, provider::Model};

use crate::context::title;

/// Models that are asked for session titles.
///
/// The first run of a root session asks, in the background: it delays nothing and survives the run's cancel. The call
/// has a child session of its own with the role `title`, so its cost is part of the tree's totals only. If the process
/// dies, the call continues with the session's next run. Sessions below others are not titled.
///
/// The budget of a run ([`Task::with_budget`](entourage_core::run::Task::with_budget),
/// [`RuntimeBuilder::budget`](crate::RuntimeBuilder::budget)) does not cover the call. To bound it, give the model a
/// [`BudgetLayer`](crate::layers::BudgetLayer).
#[derive(Debug, Clone)]
pub struct Titles {
    pub(crate) models: Vec<Model>,
    pub(crate) instructions: Instructions,
}

impl Titles {
    /// Asks `model`: a small one will do.
    #[must_use]
    pub fn new(model: Model) -> Self {
        Self { models: vec![model], instructions: title::built_in() }
    }

    /// Replaces the built-in instructions, `entourage/title`. An answer is cut at 50 characters, whatever they say.
    #[must_use]
    pub fn with_instructions(mut self, instructions: impl Into<Instructions>) -> Self {
        self.instructions = instructions.into();
        self
    }

    /// Adds a model to ask when those before it failed or gave no complete reply.
    #[must_use]
    pub fn or(mut self, model: Model) -> Self {
        self.models.push(model);
        self
    }
}
