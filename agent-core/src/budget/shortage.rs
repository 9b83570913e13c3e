//! Refusals of a charge, with the figures that explain them.

use std::{fmt, time::Duration};

use crate::{
    Error, ErrorKind, Money,
    base::{BudgetLimits, Charge, Exhausted, Spend},
};

/// The bound that a charge breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Short {
    Price,
    Money(Money),
    Tokens(u64),
    ModelCalls,
    ToolCalls,
    Time,
}

impl Short {
    /// Checks that the amounts of `left` cover `charge`.
    pub(super) fn check(left: &BudgetLimits, charge: &Charge) -> Result<(), Self> {
        let over = |left: Option<u64>, wanted: u64| left.is_some_and(|left| wanted > left);
        if let Some(left) = left.money {
            match charge.money {
                None => return Err(Self::Price),
                Some(money) if money > left => return Err(Self::Money(money)),
                Some(_) => {}
            }
        }
        if over(left.tokens, charge.tokens) {
            return Err(Self::Tokens(charge.tokens));
        }
        if over(left.model_calls, charge.model_calls) {
            return Err(Self::ModelCalls);
        }
        if over(left.tool_calls, charge.tool_calls) {
            return Err(Self::ToolCalls);
        }
        if left.time.is_some_and(|left| left.is_zero()) {
            return Err(Self::Time);
        }
        Ok(())
    }

    /// Name of the bound; `None` if the price is unknown.
    fn bound(self) -> Option<&'static str> {
        Some(match self {
            Self::Price => return None,
            Self::Money(_) => "money",
            Self::Tokens(_) => "tokens",
            Self::ModelCalls => "model_calls",
            Self::ToolCalls => "tool_calls",
            Self::Time => "time",
        })
    }
}

/// A refusal, with the figures that explain it.
#[derive(Debug)]
pub(super) struct Shortage {
    pub(super) kind: Short,
    pub(super) limits: BudgetLimits,
    pub(super) spent: Spend,
    pub(super) reserved: Spend,
    pub(super) elapsed: Duration,
    /// Remaining amounts in the narrowest budgets of the tree.
    pub(super) remaining: BudgetLimits,
}

impl Shortage {
    pub(super) fn into_error(self) -> Error {
        let error = Error::new(ErrorKind::BudgetExceeded, self.to_string()).during("budget.reserve");
        match self.kind.bound() {
            Some(bound) => {
                let needed = match self.kind {
                    Short::Money(money) => Some(Charge { money: Some(money), ..Charge::nothing() }),
                    Short::Tokens(tokens) => Some(Charge { tokens, ..Charge::nothing() }),
                    _ => None,
                };
                let exhausted = Exhausted::new(bound, self.remaining);
                error.with_exhausted(Exhausted { reserved: self.reserved, needed, ..exhausted })
            }
            None => error,
        }
    }

    fn sum<T: fmt::Display>(what: &str, limit: Option<T>, spent: T, reserved: T, wanted: T) -> String {
        let limit = limit.map_or_else(String::new, |limit| limit.to_string());
        format!(
            "the budget of {limit}{what} does not cover this call: {spent} spent, {reserved} set aside for calls under \
             way, up to {wanted} asked for; raise the limit, or set a smaller `max_output`: what a call sets aside, and \
             without it all that is left"
        )
    }

    fn calls(what: &str, limit: Option<u64>) -> String {
        format!(
            "the budget's {} {what} calls are used up; raise the limit or end the run",
            limit.unwrap_or(0)
        )
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limits, spent, reserved, .. } = self;
        let text = match self.kind {
            Short::Price => "the budget has a limit in money and this model's price is unknown; \
                             give the model a profile with prices or limit tokens instead"
                .into(),
            Short::Money(wanted) => Self::sum("", limits.money, spent.money, reserved.money, wanted),
            Short::Tokens(wanted) => {
                Self::sum(" tokens", limits.tokens, spent.tokens, reserved.tokens, wanted)
            }
            Short::ModelCalls => Self::calls("model", limits.model_calls),
            Short::ToolCalls => Self::calls("tool", limits.tool_calls),
            Short::Time => format!(
                "the budget's time of {:?} is used up ({} s passed); raise the limit or end the run",
                limits.time.unwrap_or_default(),
                self.elapsed.as_secs()
            ),
        };
        f.write_str(&text)
    }
}
