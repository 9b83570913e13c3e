//! Checks of effects before they are performed: the bounds of their context, and that each is performed once.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use entourage_core::{
    Error, ErrorKind, Result,
    event::EffectKey,
    run::{Effect, PendingCall, RunContext, Spawn, ToolCalls},
};

use super::{LocalEffects, lock};
use crate::effects::site::Given;

impl LocalEffects {
    /// Checks that a context has no more than the run was given: anybody can make one.
    pub(super) fn check_given(&self, cx: &RunContext) -> Result<()> {
        let Given { scope, budget, .. } = &self.given;
        let fits = cx.scope() == scope || scope.narrow(cx.scope()) == *cx.scope();
        let pays = match (budget, cx.budget()) {
            (None, None) => true,
            (Some(own), Some(other)) => own.is(other),
            _ => false,
        };
        if fits && pays {
            return Ok(());
        }
        let text =
            "the context has more than its run was given; use the run's own context, which can only narrow";
        Err(Error::new(ErrorKind::PermissionDenied, text)
            .with("session", self.site.journal.session().as_str()))
    }

    /// Checks that a keyed effect was not performed before in this life.
    pub(super) fn check_first(&self, key: EffectKey) -> Result<()> {
        match lock(&self.performed).insert(key.ordinal) {
            true => Ok(()),
            false => Err(self.given_twice("the effect was performed before")),
        }
    }

    /// Returns the error of an agent that asks for something else where it recorded an event of this kind. It gets
    /// nothing more.
    pub(super) fn diverge(&self, key: EffectKey, asked: &str, recorded: &str) -> Error {
        let text = format!(
            "the agent asks for {asked} that its journal does not have at this place, which holds another \
             `{recorded}`; run it with the code and the settings that started it, or start a new run"
        );
        let error = Error::new(ErrorKind::Diverged, text)
            .with("effect", key.ordinal.to_string())
            .with("recorded", recorded.to_owned())
            .with("session", self.site.journal.session().as_str());
        self.diverged.get_or_init(|| error.record()).to_error()
    }

    fn given_twice(&self, what: &str) -> Error {
        let text = format!(
            "{what}: each is performed once in a life of its run; resume the run, which goes on from its record"
        );
        let error =
            Error::new(ErrorKind::Diverged, text).with("session", self.site.journal.session().as_str());
        self.diverged.get_or_init(|| error.record()).to_error()
    }

    /// Checks that calls of the conversation go on from where its record ends. An effect that was dropped, and is
    /// performed again in the same life of its run, would run a tool twice.
    pub(super) fn check_open(&self, calls: &ToolCalls) -> Result<()> {
        let waits = self.site.read(|state| {
            let step = state.step()?;
            let is_it = Arc::ptr_eq(&step.message, &calls.message) || step.message == calls.message;
            let open = |call: &PendingCall| {
                let open = step.results.get(call.index).is_some_and(Option::is_none);
                open && (call.started || step.started.get(call.index).is_some_and(|started| !started))
            };
            (is_it && !calls.calls.is_empty() && calls.calls.iter().all(open)).then_some(step.seq)
        });
        match waits {
            Some(seq) if self.claim(seq, &calls.calls) => Ok(()),
            _ => Err(self.given_twice("the calls are not those that wait for results")),
        }
    }

    /// Notes that calls are performed in this life. Returns false if one of them was before.
    fn claim(&self, seq: u64, calls: &[PendingCall]) -> bool {
        let mut claimed = lock(&self.claimed);
        if claimed.0 != seq {
            *claimed = (seq, 0);
        }
        calls.iter().all(|call| {
            // A message has at most 128 calls.
            let bit = u32::try_from(call.index).ok().and_then(|index| 1_u128.checked_shl(index)).unwrap_or(0);
            let is_new = claimed.1 & bit == 0;
            claimed.1 |= bit;
            is_new
        })
    }
}

/// Returns what an effect asks for, in words, with the name of what it is asked of.
pub(super) fn asked(effect: &Effect) -> Cow<'static, str> {
    match effect {
        Effect::Model(call) => format!("a call of the model `{}`", call.model.name()).into(),
        Effect::Spawn(spawn) => task_of(spawn),
        Effect::Delegate(delegate) => task_of(&delegate.spawn),
        Effect::Signal { name } => format!("the signal `{name}`").into(),
        other => name(other).into(),
    }
}

/// Returns the name of an effect's kind, for errors.
pub(crate) fn name(effect: &Effect) -> &'static str {
    match effect {
        Effect::Model(_) => "a model call",
        Effect::Tools(_) => "tool calls",
        Effect::Spawn(_) => "a new child",
        Effect::Delegate(_) => "a child",
        Effect::WaitAny { .. } => "a wait for children",
        Effect::Signal { .. } => "a wait for a signal",
        Effect::Sleep(_) => "a sleep",
        Effect::Now => "a look at the clock",
        Effect::NewId => "a new id",
        Effect::Compact { .. } => "a compaction",
        _ => "another effect",
    }
}

fn task_of(spawn: &Spawn) -> Cow<'static, str> {
    format!("a task of the agent `{}`", spawn.agent.name()).into()
}

/// Checks that a keyed effect names its calls, each once.
pub(super) fn check_listed(calls: &ToolCalls) -> Result<()> {
    let mut seen = BTreeSet::new();
    if !calls.calls.is_empty() && calls.calls.iter().all(|call| seen.insert(call.index)) {
        return Ok(());
    }
    let text =
        "an effect of tool calls names the calls of its message that it runs, at least one and each once";
    Err(Error::new(ErrorKind::InvalidInput, text))
}
