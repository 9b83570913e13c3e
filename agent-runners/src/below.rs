//! The ends of agents that run below a run.

use std::sync::Arc;

use entourage_core::{
    Error, ErrorKind, Money, Result, Usage,
    message::Message,
    run::{Delegate, Effect, Observation, Outcome, RunContext},
};

/// The end of the run of an agent below another one.
pub(crate) struct Below {
    pub(crate) outcome: Box<Outcome>,
    /// Messages of the run, without its prompt.
    pub(crate) work: Vec<Arc<Message>>,
    /// Tokens and cost of the run and all below it, if they were counted and can be read.
    total: Option<Box<Usage>>,
}

impl Below {
    /// Runs an agent below the run of `cx` to its end.
    ///
    /// # Errors
    /// A pause and a cancel of the run, the store's.
    pub(crate) async fn run(delegate: Delegate, cx: &RunContext) -> Result<Self> {
        let effect = Effect::Delegate(Box::new(delegate)).scoped(cx.scope());
        Self::of(cx.effects().perform(cx, None, effect).await?)
    }

    /// Reads the end from what the effects gave.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] for anything else.
    pub(crate) fn of(observed: Observation) -> Result<Self> {
        match observed {
            Observation::Child { outcome: Some(outcome), work, total, .. } => {
                Ok(Self { outcome, work, total })
            }
            _ => Err(Error::new(ErrorKind::Internal, "the effects gave no end of an agent that ran")),
        }
    }

    /// Returns tokens and cost: of all that ran, or else the tokens of the run's own calls. Figures that cannot be read
    /// are unknown, and no reason to fail.
    pub(crate) fn spent(&self) -> (Usage, Option<Money>) {
        match &self.total {
            Some(total) => (total.tokens(), total.cost),
            None => (self.outcome.usage, None),
        }
    }
}
