//! Effects on this machine: performed here, recorded in the session's journal.

pub(crate) mod checks;
mod waits;

use std::{
    any::{Any, TypeId},
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    future::{poll_fn, ready},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
};

use entourage_core::{
    Error, ErrorKind, ErrorRecord, Result, SessionId, Timestamp,
    event::{self, ChildStarted, EffectKey, Event, Observed},
    message::Message,
    run::{Delegate, Effect, Effects, Observation, Pause, Performing, RunContext, Spawn},
    session::SessionState,
    team::Todo,
};
use futures_util::future::lazy;
use serde_json::Value;

use crate::{
    children::{
        child::{Below, ChildEnd, Kept, ended},
        pool::{Pool, Seat, refusal, too_many},
    },
    effects::{
        compaction::{Here, answer},
        model_call,
        site::{Given, Site},
        tool_call,
    },
};

/// Effects of one run.
pub(crate) struct LocalEffects {
    pub(crate) site: Arc<Site>,
    recorded: Arc<[Event]>,
    replay: Mutex<BTreeMap<u64, Recorded>>,
    children: Mutex<HashMap<SessionId, Below>>,
    /// Child sessions with several runs, once there are any.
    pub(crate) kept: OnceLock<Kept>,
    /// Slots of the children: the tree's pool, or this run's own when it is the root and has any.
    pool: OnceLock<Pool>,
    diverged: OnceLock<ErrorRecord>,
    /// The bounds of the run. No context of it is wider.
    given: Given,
    /// Keyed effects of this life, by their ordinals.
    performed: Mutex<BTreeSet<u64>>,
    /// The newest message whose calls were performed in this life, by the number of its event, and a bit for each call.
    claimed: Mutex<(u64, u128)>,
    /// The failure of the engine to give effects.
    unmade: OnceLock<Box<ErrorRecord>>,
    /// True once a child of this life came to rest without an end.
    left_open: Arc<AtomicBool>,
}

/// The recorded events of one keyed effect.
#[derive(Debug)]
pub(crate) struct Recorded {
    key: EffectKey,
    pub(crate) events: Vec<Event>,
}

impl LocalEffects {
    pub(crate) fn new(site: Arc<Site>, given: Given, recorded: Vec<Event>) -> Self {
        let mut replay: BTreeMap<u64, Recorded> = BTreeMap::new();
        for event in &recorded {
            if let Some(key) = event.effect_key() {
                let entry = replay.entry(key.ordinal).or_insert_with(|| Recorded { key, events: Vec::new() });
                entry.events.push(event.clone());
            }
        }
        Self {
            site,
            // An empty slice of its own would be an allocation.
            recorded: if recorded.is_empty() { Arc::default() } else { recorded.into() },
            replay: Mutex::new(replay),
            children: Mutex::default(),
            kept: OnceLock::new(),
            pool: OnceLock::new(),
            diverged: OnceLock::new(),
            given,
            performed: Mutex::default(),
            claimed: Mutex::default(),
            unmade: OnceLock::new(),
            left_open: Arc::default(),
        }
    }

    /// Sets the pool of a run below another one.
    pub(crate) fn seated(mut self, pool: Option<Pool>) -> Self {
        self.pool = pool.map(OnceLock::from).unwrap_or_default();
        self
    }

    pub(crate) fn pool(&self) -> &Pool {
        self.pool.get_or_init(|| Pool::new(self.site.env.sub_agents))
    }

    pub(crate) fn children(&self) -> MutexGuard<'_, HashMap<SessionId, Below>> {
        lock(&self.children)
    }

    /// True while this run has children whose end was not observed.
    pub(crate) fn has_children(&self) -> bool {
        !self.children().is_empty()
    }

    /// True once a child of this life came to rest without an end: it paused, or its end could not be stored.
    pub(crate) fn left_open(&self) -> bool {
        self.left_open.load(Ordering::Relaxed)
    }

    /// Returns the mark of a child that came to rest without an end.
    pub(crate) fn mark_of_rest(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.left_open)
    }

    /// Waits until no child runs.
    pub(crate) async fn join_children(&self) {
        let left: Vec<_> = self.children().drain().collect();
        // The children may wait for this run's slot.
        self.pool.get().into_iter().for_each(Pool::rest);
        for (child, below) in left {
            let _ = ended(child, below.outcome).await;
        }
    }

    /// Notes that the engine failed to give effects.
    pub(crate) fn engine_failed(&self, error: &Error) {
        self.unmade.get_or_init(|| Box::new(error.record()));
    }

    /// Returns the error of a run whose agent never began.
    pub(crate) fn unbegun(&self) -> Error {
        self.unmade.get().map_or_else(Error::cancelled, |error| error.to_error())
    }

    /// Takes the recorded events of the effect, or of a value that is recorded; a second call gets none.
    fn take_recorded(&self, key: Option<EffectKey>, effect: Option<&Effect>) -> Result<Vec<Event>> {
        let Some(key) = key else { return Ok(Vec::new()) };
        let found = self.replay.lock().unwrap_or_else(PoisonError::into_inner).remove(&key.ordinal);
        match found {
            None => Ok(Vec::new()),
            Some(recorded) if recorded.key.digest == key.digest => Ok(recorded.events),
            Some(recorded) if effect.and_then(Effect::older_digest) == Some(recorded.key.digest) => {
                Ok(recorded.events)
            }
            Some(recorded) => {
                let asked = effect.map_or("a record".into(), checks::asked);
                Err(self.diverge(key, &asked, recorded.events.first().map_or("nothing", Event::kind)))
            }
        }
    }

    /// Returns the error of an agent that asked for something other than what is recorded. It gets nothing more: it is
    /// not the agent of this record.
    pub(crate) fn diverged(&self) -> Option<Error> {
        self.diverged.get().map(ErrorRecord::to_error)
    }

    /// Returns the error after which the run gets nothing more.
    pub(crate) fn stopped(&self) -> Option<Error> {
        self.diverged().or_else(|| self.site.lost())
    }

    /// Returns the end of a child.
    ///
    /// # Errors
    /// The error of a child whose end cannot be known.
    pub(crate) fn unless_lost(&self, end: ChildEnd) -> Result<ChildEnd> {
        match end.lost {
            Some(error) => Err(self.site.lose(*error)),
            None => Ok(end),
        }
    }

    pub(crate) fn observe(&self, key: Option<EffectKey>, value: Value) {
        if let Some(key) = key {
            self.site.note(Event::Observed(Arc::new(Observed::new(value, key))));
        }
    }

    async fn spawn(
        &self,
        cx: &RunContext,
        key: Option<EffectKey>,
        recorded: &[Event],
        spawn: Spawn,
    ) -> Result<Observation> {
        let key = key.ok_or_else(|| Error::new(ErrorKind::Unsupported, "a child needs a keyed effect"))?;
        let child = self.site.journal.session().child(self.site.run_seq(), key.ordinal)?;
        if let Some(refused) = observed(recorded) {
            return Err(too_many(&refused));
        }
        let seat = match self.is_observed(&child) {
            true => None,
            // A child that had a slot before a restart waits for another one.
            false => match self.seat(spawn.at_once && recorded.is_empty()) {
                Err(refused) => {
                    self.observe(Some(key), refused.clone());
                    return Err(too_many(&refused));
                }
                Ok(seat) => Some(seat),
            },
        };
        if recorded.is_empty() {
            let agent = spawn.agent.name().to_owned();
            let started = ChildStarted::new(child.clone(), agent, None, key);
            self.site.note(Event::ChildStarted(Arc::new(started)));
            // The parent's row comes first: no child exists that its parent does not know of.
            self.site.commit().await?;
        }
        if seat.is_some() {
            let mut delegate = Delegate::new(child.clone(), spawn);
            delegate.anew = recorded.is_empty();
            self.start_child(cx, Box::new(delegate), seat);
        }
        Ok(Observation::Spawned(child))
    }

    /// Returns a seat for a child. The error is the refusal to record, when there is no slot and the child may not
    /// wait.
    pub(crate) fn seat(&self, at_once: bool) -> Result<Seat, Value> {
        let pool = self.pool();
        if at_once {
            return pool.try_enter().ok_or_else(|| refusal(self.site.env.sub_agents));
        }
        Ok(pool.enter())
    }

    /// True when this run recorded the child's outcome before it was interrupted.
    fn is_observed(&self, child: &SessionId) -> bool {
        self.recorded.iter().any(|event| match event {
            Event::ChildFinished(end) => end.child.as_ref() == Some(child),
            _ => false,
        })
    }

    fn note<T: serde::Serialize + serde::de::DeserializeOwned>(
        &self,
        key: Option<EffectKey>,
        recorded: &[Event],
        make: impl FnOnce() -> T,
    ) -> Result<T> {
        let broken =
            |error| Error::new(ErrorKind::Corrupt, "a recorded observation cannot be read").caused_by(error);
        if let Some(value) = observed(recorded) {
            return serde_json::from_value(value).map_err(broken);
        }
        let made = make();
        self.observe(key, serde_json::to_value(&made).map_err(broken)?);
        Ok(made)
    }
}

impl LocalEffects {
    async fn perform_other(
        &self,
        cx: &RunContext,
        key: Option<EffectKey>,
        recorded: Vec<Event>,
        effect: Effect,
    ) -> Result<Observation> {
        match effect {
            Effect::Spawn(spawn) => self.spawn(cx, key, &recorded, *spawn).await,
            Effect::WaitAny { children, timeout } => {
                self.wait_any(cx, key, &recorded, children, timeout).await
            }
            Effect::Sleep(time) => self.sleep(cx, key, &recorded, time).await,
            // The others have futures of their own.
            _ => Err(unperformed()),
        }
    }

    fn perform_now(
        &self,
        key: Option<EffectKey>,
        recorded: &[Event],
        effect: &Effect,
    ) -> Result<Observation> {
        match effect {
            Effect::Signal { name } => self.signal(key, recorded, name),
            Effect::Now => self.note(key, recorded, || self.site.now()).map(Observation::Now),
            Effect::NewId => self
                .note(key, recorded, || entourage_core::RunId::generate().to_string())
                .map(Observation::Id),
            _ => Err(unperformed()),
        }
    }
}

fn unperformed() -> Error {
    Error::new(ErrorKind::Internal, "this runtime does not perform this effect")
}

impl Effects for LocalEffects {
    // Each effect's future is a box of its own size: the model call's is by far the largest.
    fn perform<'a>(
        &'a self,
        cx: &'a RunContext,
        key: Option<EffectKey>,
        effect: Effect,
    ) -> Performing<'a, Observation> {
        if let Err(over) = self.site.life.check().and_then(|()| cx.effects().check()) {
            return Box::pin(ready(Err(over)));
        }
        if matches!(effect, Effect::Model(_) | Effect::Tools(_)) && self.site.emitter.is_pausing() {
            return Box::pin(ready(Err(Error::paused(Pause::Asked))));
        }
        if let Some(error) = self.stopped() {
            return Box::pin(ready(Err(error)));
        }
        let checked = self.check_given(cx).and_then(|()| key.map_or(Ok(()), |key| self.check_first(key)));
        let recorded = match checked.and_then(|()| self.take_recorded(key, Some(&effect))) {
            Ok(recorded) => recorded,
            Err(error) => return Box::pin(ready(Err(error))),
        };
        let life = &self.site.life;
        match effect {
            Effect::Model(call) => match model_call::recalled(recorded) {
                Some(answer) => Box::pin(ready(answer)),
                None => Box::pin(life.outlasts(model_call::perform(&self.site, cx, key, call))),
            },
            Effect::Tools(calls) => {
                if let Err(error) =
                    if key.is_some() { checks::check_listed(&calls) } else { self.check_open(&calls) }
                {
                    return Box::pin(ready(Err(error)));
                }
                // As a rule it is the context's own, or none.
                let (within, own) = (&calls.scope, cx.scope());
                if !within.is_all() && within != own && !within.contains(own) {
                    return Box::pin(life.outlasts(async move {
                        let cx = cx.narrowed(&calls.scope);
                        tool_call::perform(&self.site, &cx, key, recorded, calls).await
                    }));
                }
                Box::pin(life.outlasts(tool_call::perform(&self.site, cx, key, recorded, calls)))
            }
            Effect::Delegate(delegate) => match key {
                Some(key) => Box::pin(life.outlasts(self.delegate_once(cx, key, recorded, delegate))),
                None => Box::pin(life.outlasts(self.delegate(cx, delegate))),
            },
            Effect::Compact { compaction, model, cause, silence } => {
                let compacted = answer(
                    Here { site: &self.site, cx, local: self },
                    key,
                    compaction,
                    model,
                    cause,
                    silence,
                );
                Box::pin(life.outlasts(compacted))
            }
            // They wait for nothing, so their future is small.
            other @ (Effect::Signal { .. } | Effect::Now | Effect::NewId) => {
                Box::pin(life.outlasts(lazy(move |_| self.perform_now(key, &recorded, &other))))
            }
            other => Box::pin(life.outlasts(self.perform_other(cx, key, recorded, other))),
        }
    }

    fn append(
        &self,
        cx: &RunContext,
        key: Option<EffectKey>,
        make: &mut dyn FnMut(&SessionState, u64) -> Result<event::Recorded>,
    ) -> Result<()> {
        let Site { journal, life, origin, .. } = &*self.site;
        life.check().and_then(|()| cx.effects().check())?;
        self.stopped().map_or(Ok(()), Err)?;
        let known = self.take_recorded(key, None)?;
        let (Some(key), Some(Event::Recorded(known))) = (key, known.first()) else {
            return journal.append(life, origin, self.site.now(), make);
        };
        let made = journal.read(|state| make(state, state.head().seq))?;
        if made == *known {
            return Ok(());
        }
        Err(self.diverge(key, &format!("the record `{}`", made.kind()), known.kind()))
    }

    fn commit<'a>(&'a self, _: &'a RunContext) -> Performing<'a, ()> {
        self.site.commit_boxed()
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

    fn replayed<'a>(&'a self, _: &'a RunContext) -> Performing<'a, Vec<event::Recorded>> {
        // A future without a size, and so without an allocation.
        Box::pin(poll_fn(|_| Poll::Ready(Ok(Vec::new()))))
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
        self.site.emitter.is_pausing()
    }

    fn has_readers(&self) -> bool {
        self.site.env.store.is_some() || self.site.emitter.is_heard()
    }

    fn is_stored(&self) -> bool {
        self.site.env.store.is_some()
    }

    fn sub_agents(&self) -> usize {
        self.site.env.sub_agents
    }

    fn show(&self, _: &RunContext, shown: Event) {
        self.site.show(shown);
    }
}

impl fmt::Debug for LocalEffects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalEffects").field("session", self.site.journal.session()).finish_non_exhaustive()
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the recorded end of a child.
pub(crate) fn child_end(recorded: &[Event]) -> Option<Observation> {
    recorded.iter().find_map(|event| match event {
        Event::ChildFinished(end) => Some(Observation::Child {
            child: end.child.clone(),
            outcome: end.outcome.clone().map(Box::new),
            work: Vec::new(),
            total: None,
        }),
        _ => None,
    })
}

pub(crate) fn observed(recorded: &[Event]) -> Option<Value> {
    recorded.iter().find_map(|event| match event {
        Event::Observed(observed) => Some(observed.value.clone()),
        _ => None,
    })
}
