//! The steps of earlier plans whose requests were not met, as a run is told of them. Pure.

use entourage_core::{
    event::plain_line,
    message::{Message, Part},
};

use super::{
    StepReport, StepStatus,
    budget::shares,
    past::Earlier,
    report::{is_kept, marked_listing},
};
use crate::graph::section;

/// Most tokens of other requests, which share them.
const REQUESTS: usize = 1_000;

/// Says how a run goes on with steps that ended, if it makes no plan.
const WITHOUT_PLAN: &str =
    "do not repeat steps that are completed, and look before you do again what may be done in part.";

/// Steps of plans, by request, in the order in which the plans were made.
#[derive(Debug, Default)]
pub(super) struct Before {
    /// Steps for the request of this run.
    own: Vec<StepReport>,
    /// Other requests, with their steps.
    others: Vec<(String, Vec<StepReport>)>,
}

impl Before {
    pub(super) fn new(steps: Vec<Earlier>) -> Self {
        let mut before = Self::default();
        for Earlier { step, of } in steps {
            match (of, before.others.last_mut()) {
                (None, _) => before.own.push(step),
                (Some(request), Some((last, steps))) if *last == request => steps.push(step),
                (Some(request), _) => before.others.push((request, vec![step])),
            }
        }
        before
    }

    /// Returns the steps for this request.
    pub(super) fn own(&self) -> &[StepReport] {
        &self.own
    }

    /// Returns the greatest number of a step; 0 without one.
    pub(super) fn highest(&self) -> u32 {
        self.all().map(|step| step.number).max().unwrap_or_default()
    }

    /// Returns all steps.
    pub(super) fn all(&self) -> impl Iterator<Item = &StepReport> {
        self.others.iter().flat_map(|(_, steps)| steps).chain(&self.own)
    }

    /// True if one of these numbers is of a step for another request that is completed.
    pub(super) fn is_needed(&self, mut numbers: impl Iterator<Item = u32>) -> bool {
        let steps = || self.others.iter().flat_map(|(_, steps)| steps);
        numbers
            .any(|number| steps().any(|step| step.number == number && step.status == StepStatus::Completed))
    }

    /// Takes what the other requests did for this one, which goes on with them. Returns false without another request.
    pub(super) fn take_over(&mut self) -> bool {
        let goes_on = !self.others.is_empty();
        let others = std::mem::take(&mut self.others).into_iter().flat_map(|(_, steps)| steps);
        let own = others.filter(is_kept).chain(std::mem::take(&mut self.own));
        self.own = own.collect();
        goes_on
    }

    /// Adds the steps of the newest plan for this request. What the plan before it left undone is no more to be done.
    pub(super) fn add(&mut self, newest: Vec<StepReport>) {
        self.own.retain(is_kept);
        self.own.extend(newest);
    }

    /// Returns the share of a budget that the results of each request have.
    fn share(&self, budget: usize) -> usize {
        let requests = self.others.len().saturating_add(usize::from(!self.own.is_empty()));
        budget.checked_div(requests).unwrap_or(budget)
    }

    /// Tells of the steps for this request; empty without one.
    pub(super) fn listing(&self, budget: usize) -> String {
        marked_listing(&self.own, self.share(budget))
    }

    /// Tells of the other requests, for a plan; empty without one.
    pub(super) fn for_plan(&self, budget: usize) -> String {
        self.of_others("do not repeat steps that are completed, name them in `depends_on` where their results are needed, and set \
             `goes_on`.", budget)
    }

    /// Returns a prompt that tells of these steps, for a run that makes no plan.
    pub(super) fn tell(&self, prompt: &Message, budget: usize) -> Message {
        let mut text = String::new();
        if !self.own.is_empty() {
            text.push_str("\n\nPlans for this request ended with these steps:\n\n");
            text.push_str(&self.listing(budget));
            text.push_str("\n\nIf you go on with them, ");
            text.push_str(WITHOUT_PLAN);
        }
        text.push_str(&self.of_others(WITHOUT_PLAN, budget));
        let prompt = prompt.clone();
        if text.is_empty() { prompt } else { prompt.with(Part::Text(text)) }
    }

    fn of_others(&self, how: &str, budget: usize) -> String {
        let mut text = String::new();
        let requests = shares(self.others.iter().map(|(request, _)| request.as_str()), REQUESTS);
        for (request, (_, steps)) in requests.iter().zip(&self.others) {
            text.push_str("\n\nAn earlier request of the user was not met. It was:");
            section(&mut text, "earlier-request", "", &plain_line(request));
            text.push_str("\n\nIts plans ended with these steps:\n\n");
            text.push_str(&marked_listing(steps, self.share(budget)));
        }
        if !text.is_empty() {
            text.push_str("\n\nKeep that in mind only if the new request goes on with it. If it does, ");
            text.push_str(how);
        }
        text
    }
}
