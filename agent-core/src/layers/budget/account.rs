//! What the calls of a session come to, as its events tell. A budget that is opened again starts from here.
//!
//! The driver settles each call with the same function, so what is left after a restart is what was left before it.

use serde::{Deserialize, Serialize};

use super::{Charge, Spend, layer::Failure};
use crate::{
    ErrorRecord, RequestId,
    context::estimate_tokens,
    event::{Event, ModelFinished},
    layers::tally,
};

/// The charges of a session, a fold over its events. Calls that were cut off count as they were reserved.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Account {
    spent: Spend,
    /// Model calls under way, with what is set aside for them. Asked again, a call keeps its id.
    open: Vec<(RequestId, Charge)>,
}

impl Account {
    /// What was spent, with what is set aside for calls whose end is not known.
    pub(crate) fn spent(&self) -> Spend {
        self.open.iter().fold(self.spent, |sum, (_, reserved)| sum.plus(&Spend::of(reserved)))
    }

    /// Takes in one stored event. Model calls that were made without a budget are passed over.
    pub(crate) fn apply(&mut self, event: &Event) {
        match event {
            Event::ModelStarted(call) => {
                let Some((request, reserved)) = call.request.zip(call.reserved) else { return };
                // The same call again: nobody knows how the first one ended.
                if let Some(lost) = self.take(request) {
                    self.charge(&lost);
                }
                self.open.push((request, reserved));
            }
            Event::ModelFinished(reply) => {
                if let Some(reserved) = reply.request.and_then(|request| self.take(request)) {
                    self.charge(&reply_charge(&reserved, reply));
                }
            }
            Event::ToolStarted(_) => self.charge(&Charge::tool_call()),
            Event::RunStarted(_) | Event::RunFinished(_) => {
                self.spent = self.spent();
                self.open.clear();
            }
            _ => {}
        }
    }

    fn take(&mut self, request: RequestId) -> Option<Charge> {
        let place = self.open.iter().position(|(id, _)| *id == request)?;
        Some(self.open.swap_remove(place).1)
    }

    fn charge(&mut self, charge: &Charge) {
        self.spent = self.spent.plus(&Spend::of(charge));
    }
}

/// What a model call that ended is charged, all its attempts together, where `reserved` was set aside for it.
///
/// As [`BudgetLayer`](super::BudgetLayer) does it, as far as an event tells: what was reported; of a reply that broke off
/// at least what came; a missing figure as reserved; a refusal costs one call, and what never left nothing.
pub(crate) fn reply_charge(reserved: &Charge, reply: &ModelFinished) -> Charge {
    let usage = tally::reported(reply.usage + reply.wasted);
    let came = estimate_tokens(&reply.message);
    if let Some(error) = reply.error.as_ref().filter(|_| usage.is_unknown() && came == 0) {
        return match failure(error) {
            Failure::NotSent => Charge::nothing(),
            Failure::Refused => Charge { model_calls: 1, ..Charge::nothing() },
            Failure::Unknown => *reserved,
        };
    }
    let known = usage.total().unwrap_or(0);
    let told = usage.output.unwrap_or(0);
    let (Some(_), Some(_)) = (usage.input, usage.output) else {
        let money = reply.cost.max(reserved.money);
        return Charge { money, ..Charge::model_call(known.max(reserved.tokens), None) };
    };
    if reply.error.is_none() || told >= came {
        return Charge::model_call(known, reply.cost.or(reserved.money));
    }
    Charge::model_call(known.saturating_add(came.saturating_sub(told)), reply.cost.max(reserved.money))
}

fn failure(error: &ErrorRecord) -> Failure {
    match &error.exhausted {
        // Time may be used up before a call or within it.
        Some(exhausted) if &*exhausted.bound == "time" => Failure::Unknown,
        _ => Failure::of_kind(error.kind),
    }
}
