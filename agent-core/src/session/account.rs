//! Charges of a session's calls, as a fold over its events. A budget that is opened again starts from here.
//!
//! The driver settles each call with the same function, so a restart does not change what is left.

use serde::{Deserialize, Serialize};

use crate::{
    RequestId,
    base::{Charge, Failure, Spend},
    event::ModelFinished,
    message::estimate_tokens,
};

/// Charges of a session, a fold over its events. A call that was cut off counts as reserved.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Account {
    pub(super) spent: Spend,
    /// Model calls in flight, with their reservations. A call that is made again keeps its id.
    pub(super) open: Vec<(RequestId, Charge)>,
}

impl Account {
    /// Spend of the session, with the reservations of calls whose end is unknown.
    pub fn spent(&self) -> Spend {
        self.open.iter().fold(self.spent, |sum, (_, reserved)| sum.plus(&Spend::of(reserved)))
    }

    pub(super) fn take(&mut self, request: RequestId) -> Option<Charge> {
        let place = self.open.iter().position(|(id, _)| *id == request)?;
        Some(self.open.swap_remove(place).1)
    }

    pub(super) fn charge(&mut self, charge: &Charge) {
        self.spent = self.spent.plus(&Spend::of(charge));
    }
}

/// Charge for a model call that ended, all its attempts together, given its reservation.
///
/// Like `BudgetLayer`, as far as an event tells: reported figures; for a reply that broke off at least what arrived; a
/// missing figure as reserved; one call for a refusal; nothing for a call that was never sent.
pub fn reply_charge(reserved: &Charge, reply: &ModelFinished) -> Charge {
    let usage = (reply.usage + reply.wasted).reported();
    let came = estimate_tokens(&reply.message);
    if let Some(error) = reply.error.as_ref().filter(|_| usage.is_unknown() && came == 0) {
        return match Failure::of_record(error) {
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
