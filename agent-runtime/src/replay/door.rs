//! The effects of a replay, as its agent's code sees them.

use std::{
    any::{Any, TypeId},
    future::pending,
    sync::Arc,
};

use entourage_core::{
    Error, Result, Timestamp,
    event::{EffectKey, Event, Recorded},
    message::Message,
    run::{Effect, Effects, Observation, Performing, RunContext},
    session::SessionState,
    team::Todo,
};

use crate::{
    effects::site::Site,
    replay::{ReplayEffects, Stop},
};

impl ReplayEffects {
    /// Returns the values that come next, and goes on behind them. Where none comes next, returns the error with which
    /// the run ended or paused there. Waits for ever if its process died there, and if the record continues otherwise,
    /// which ends the replay.
    async fn values(&self) -> Result<Vec<Recorded>> {
        self.site.life.check()?;
        let stop = self.follow(|script, state| {
            let values = script.records(state);
            if values.is_empty() { Err(script.beyond(state, "more work of its own")) } else { Ok(values) }
        })?;
        match stop {
            Ok(values) => Ok(values),
            Err(stop) => match self.halt(stop)? {
                Some(error) => Err(error),
                None => pending().await,
            },
        }
    }

    /// Returns the error that the agent is told. `None` if the replay of this life, or of the run, is over: nothing is
    /// waited for any more.
    ///
    /// # Errors
    /// Those of the journal.
    pub(super) fn halt(&self, stop: Stop) -> Result<Option<Error>> {
        self.follow(|script, _| match stop {
            Stop::Told(error) => Some(error),
            Stop::Cut => {
                script.over().cancel();
                None
            }
            Stop::Diverged(flaw) => {
                script.diverge(flaw);
                None
            }
        })
    }

    async fn told(&self, cx: &RunContext, key: Option<EffectKey>, effect: Effect) -> Result<Observation> {
        self.site.life.check()?;
        let answer = self.answer(cx, key, &effect).await;
        // As in the recorded run: nothing but the end followed.
        if self.follow(|script, state| script.is_cancelled(state))? {
            cx.cancellation().cancel();
        }
        match answer {
            Ok(observation) => Ok(observation),
            Err(stop) => match self.halt(stop)? {
                Some(error) => Err(error),
                None => pending().await,
            },
        }
    }
}

impl Effects for ReplayEffects {
    fn perform<'a>(
        &'a self,
        cx: &'a RunContext,
        key: Option<EffectKey>,
        effect: Effect,
    ) -> Performing<'a, Observation> {
        Box::pin(self.told(cx, key, effect))
    }

    fn append(
        &self,
        cx: &RunContext,
        key: Option<EffectKey>,
        make: &mut dyn FnMut(&SessionState, u64) -> Result<Recorded>,
    ) -> Result<()> {
        let Site { journal, life, origin, .. } = &*self.site;
        match key {
            None => journal.append(life, origin, self.site.now(), make),
            Some(key) => {
                life.check()?;
                self.record(cx, key, make)
            }
        }
    }

    fn commit<'a>(&'a self, _: &'a RunContext) -> Performing<'a, ()> {
        Box::pin(self.site.commit())
    }

    fn steer<'a>(&'a self, _: &'a RunContext) -> Performing<'a, ()> {
        self.site.fold_prompts()
    }

    fn remind(&self, _: &RunContext, message: Arc<Message>) -> Result<()> {
        self.site.remind(&self.recorded, message)
    }

    fn read(&self, read: &mut dyn FnMut(&SessionState)) {
        self.site.read(read);
    }

    fn recorded(&self) -> Arc<[Event]> {
        Arc::clone(&self.recorded)
    }

    fn replayed<'a>(&'a self, _: &'a RunContext) -> Performing<'a, Vec<Recorded>> {
        Box::pin(self.values())
    }

    fn todos(&self) -> Vec<Todo> {
        self.site.todos()
    }

    fn set_todos<'a>(&'a self, _: &'a RunContext, todos: Vec<Todo>) -> Performing<'a, ()> {
        Box::pin(self.site.set_todos(todos))
    }

    fn dep(&self, of: TypeId) -> Option<Arc<dyn Any + Send + Sync>> {
        self.site.deps.get(of)
    }

    fn time(&self) -> Timestamp {
        self.site.now()
    }

    fn check(&self) -> Result<()> {
        self.site.life.check()
    }

    fn is_pausing(&self) -> bool {
        self.site.journal.paused_here()
    }

    fn has_readers(&self) -> bool {
        true
    }

    fn is_stored(&self) -> bool {
        true
    }

    fn sub_agents(&self) -> usize {
        self.site.env.sub_agents
    }

    fn show(&self, _: &RunContext, _: Event) {}
}
