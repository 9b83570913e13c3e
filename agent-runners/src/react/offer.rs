//! The tools shown to the model: those that the agent's scope can ever admit.

use std::sync::Arc;

use entourage_core::{
    permission::Scope,
    provider::{Request, ToolChoice},
    tool::ToolSpec,
};

/// The tools of the step before, and the part of them that was shown.
///
/// Reused from step to step, since wires cache the encoded list by its address.
#[derive(Default)]
pub(super) struct Offer {
    of: Option<Specs>,
    shown: Specs,
}

type Specs = Arc<[ToolSpec]>;

impl Offer {
    /// Restricts the request's tools to those that `scope` admits. The agent keeps the others: a call of one is
    /// answered with what the scope lacks, not with "there is no such tool".
    pub(super) fn restrict(&mut self, request: &mut Request, scope: &Scope) {
        if scope.is_all() {
            return;
        }
        if !self.of.as_ref().is_some_and(|of| Arc::ptr_eq(of, &request.tools)) {
            self.of = Some(Arc::clone(&request.tools));
            self.shown = match request.tools.iter().all(|tool| scope.offers(tool)) {
                true => Arc::clone(&request.tools),
                false => request.tools.iter().filter(|tool| scope.offers(tool)).cloned().collect(),
            };
        }
        request.tools = Arc::clone(&self.shown);
        let shown = &self.shown;
        // A service refuses a request that requires a tool which is not in it.
        let met = match &request.tool_choice {
            ToolChoice::Auto | ToolChoice::None => true,
            ToolChoice::Required => !shown.is_empty(),
            ToolChoice::Tool(name) => shown.iter().any(|tool| tool.name() == name),
            _ => false,
        };
        if !met {
            request.tool_choice = ToolChoice::Auto;
        }
    }
}
