//! Replay of a recorded run, without the outside world: the agent's code runs, and its record answers every effect.
//!
//! Nothing is called and nothing is stored. The code sees what it saw then; if it does something other than what is
//! recorded, the replay ends and names the event.

mod door;
mod judge;

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use entourage_core::{
    Error, ErrorKind, Result, SessionId,
    agent::Agent,
    budget::BudgetState,
    event::{EffectKey, Envelope, Event, Recorded, ToolFinished},
    message::ToolCall,
    permission::Scope,
    run::{Delegate, Effect, ModelCall, Observation, Outcome, RunContext, Task, ToolCalls},
    session::{SessionRecord, SessionState},
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    Caught,
    children::{
        child::{ChildEnd, Turn as ChildTurn, recorded_end},
        pool::too_many,
    },
    deferred::all_resolved,
    deps::Deps,
    effects::{
        compaction,
        site::{Given, Site},
    },
    env::Env,
    replay::judge::judge,
    run::{
        budget,
        local::checks::name,
        watch::{panicked, stuck},
    },
    session::{
        delivery::emit::Emitter,
        journal::{
            Journal,
            script::{RecordedTime, Script, Stop, is_question, other_agent},
        },
    },
};

type Answer = Result<Observation, Stop>;

/// Answers effects from a record.
pub(crate) struct ReplayEffects {
    /// The runtime in which outcomes of child sessions are looked up.
    live: Arc<Env>,
    site: Arc<Site>,
    /// Events that this life found recorded.
    recorded: Arc<[Event]>,
    /// Children that this life started and did not see end.
    children: Mutex<HashSet<SessionId>>,
}

impl ReplayEffects {
    fn follow<T>(&self, follow: impl FnOnce(&mut Script, &mut SessionState) -> T) -> Result<T> {
        self.site.journal.follow(follow)
    }

    fn children(&self) -> MutexGuard<'_, HashSet<SessionId>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the recorded answer to an effect of a hand-written agent.
    fn keyed(&self, key: EffectKey, effect: &Effect) -> Answer {
        let asked = name(effect);
        let found = self.follow(|script, state| -> Result<Option<Event>, Stop> {
            let places = script.keyed(key.ordinal);
            let digest = |place: usize| script.event(place).and_then(Event::effect_key).map(|key| key.digest);
            let same = |known| known == key.digest || Some(known) == effect.older_digest();
            let is_it = |place: &usize| digest(*place).is_some_and(same);
            if let Some(other) = places.iter().find(|place| !is_it(place)) {
                return Err(Stop::Diverged(script.differs(*other, asked)));
            }
            let answers =
                |place: &&usize| script.event(**place).is_some_and(|event| is_answer(effect, event));
            let answer = places.iter().find(answers).copied();
            let until = answer.or(places.last().copied());
            if let Some(Err(place)) = until.map(|until| script.reach(state, &places, until)) {
                return Err(Stop::Diverged(script.differs(place, asked)));
            }
            match (answer, until) {
                (Some(place), _) => Ok(script.event(place).cloned()),
                // It had begun, and had no result when the run paused.
                (None, Some(_)) => script.pause_beside().map_or(Ok(None), |pause| Err(Stop::Told(pause))),
                (None, None) => Ok(None),
            }
        });
        let found = found.map_err(Stop::Told)??;
        match found {
            Some(event) => self.observe(effect, event),
            None => self.unrecorded(effect, asked),
        }
    }

    /// Returns the observation that an event holds.
    fn observe(&self, effect: &Effect, event: Event) -> Answer {
        let known = match event {
            Event::ModelFinished(reply) => return self.reply(reply),
            Event::ToolFinished(call) => return self.results(vec![call]),
            Event::ChildStarted(started) => {
                self.children().insert(started.child.clone());
                Observation::Spawned(started.child.clone())
            }
            Event::ChildFinished(end) => {
                if let Some(child) = &end.child {
                    self.children().remove(child);
                }
                Observation::Child {
                    child: end.child.clone(),
                    outcome: end.outcome.clone().map(Box::new),
                    work: Vec::new(),
                    total: None,
                }
            }
            Event::Observed(observed) => return read(effect, observed.value.clone()).map_err(Stop::Told),
            other => {
                let text = format!("a {} answers no effect", other.kind());
                return Err(Stop::Told(Error::new(ErrorKind::Internal, text)));
            }
        };
        Ok(known)
    }

    /// Answers an effect that failed before anything was recorded, or was cut off.
    fn unrecorded(&self, effect: &Effect, asked: &str) -> Answer {
        if let Effect::WaitAny { children, .. } = effect
            && let Some(unknown) = children.iter().find(|child| !self.children().contains(*child))
        {
            let text = "this child was waited for already, or is no child of this run";
            return Err(Stop::Told(
                Error::new(ErrorKind::InvalidInput, text).with("child", unknown.as_str()),
            ));
        }
        Err(self.follow(|script, state| script.beyond(state, asked)).unwrap_or_else(Stop::Told))
    }

    fn reply(&self, reply: Arc<entourage_core::event::ModelFinished>) -> Answer {
        match &reply.error {
            Some(error) => Err(self.follow(|script, _| script.tell(error)).unwrap_or_else(Stop::Told)),
            None => Ok(Observation::Model(reply)),
        }
    }

    fn results(&self, mut results: Vec<Arc<ToolFinished>>) -> Answer {
        // The agent got the error of the first to fail.
        if let Some(error) = results.iter().find_map(|call| call.fatal.as_ref()) {
            return Err(self.follow(|script, _| script.tell(error)).unwrap_or_else(Stop::Told));
        }
        results.sort_by_key(|call| call.index);
        Ok(Observation::Tools(results))
    }

    /// Answers a step's model call.
    fn model(&self, call: &ModelCall) -> Answer {
        let reply = self.follow(|script, state| {
            let ours = |event: &Event| match event {
                Event::ModelStarted(started) => {
                    started.key.is_none()
                        && started.step == call.step
                        && started.provider == *call.model.provider_name()
                        && started.model == *call.model.name()
                }
                _ => false,
            };
            let asked = format!("step {} on `{}`", call.step, call.model.name());
            match script.peek() {
                Some((place, event)) if ours(event) => script.through(state, place),
                _ => return Err(script.beyond(state, &asked)),
            }
            loop {
                match script.peek() {
                    Some((place, Event::ModelFinished(reply))) if reply.key.is_none() => {
                        let reply = Arc::clone(reply);
                        script.through(state, place);
                        return Ok(reply);
                    }
                    Some((place, Event::ModelRestarted(_))) => script.through(state, place),
                    _ => return Err(script.beyond(state, &asked)),
                }
            }
        });
        self.reply(reply.map_err(Stop::Told)??)
    }

    /// Answers a step's tool calls.
    fn tools(&self, calls: &ToolCalls) -> Answer {
        let resolved = all_resolved(&calls.offered, &calls.message);
        let message = resolved.as_ref().unwrap_or(&calls.message);
        let asked: Vec<&ToolCall> = message.tool_calls().collect();
        let mut open: HashSet<usize> = calls.calls.iter().map(|call| call.index).collect();
        let mut results: Vec<Arc<ToolFinished>> = Vec::new();
        let cut = self.follow(|script, state| {
            while !open.is_empty() && script.ending(state).is_none() {
                let Some((place, event)) = script.peek() else { break };
                let known = match event {
                    Event::ToolStarted(call) if call.key.is_none() && open.contains(&call.index) => {
                        let of = asked.get(call.index);
                        of.is_some_and(|of| of.id == call.call && of.name == call.tool)
                            && calls.offered.get(&call.tool).is_some()
                    }
                    Event::ToolFinished(call) if call.key.is_none() && open.remove(&call.index) => {
                        let (of, result) = (asked.get(call.index), &call.result);
                        results.push(Arc::clone(call));
                        // A call that was cut short is answered by the name that the model wrote.
                        let written = calls.message.tool_calls().nth(call.index);
                        let mut both = of.copied().into_iter().chain(written);
                        both.any(|of| of.id == result.call && of.name == result.name)
                    }
                    Event::RunPaused(_) => break,
                    other => is_question(other),
                };
                if !known {
                    let names: Vec<_> = asked.iter().map(|call| &*call.name).collect();
                    return Some(Stop::Diverged(script.differs(place, &format!("its calls of {names:?}"))));
                }
                script.through(state, place);
            }
            // A run that was asked to pause does so even if no call is left.
            let pauses = matches!(script.peek(), Some((_, Event::RunPaused(_))));
            let failed = results.iter().any(|call| call.fatal.is_some());
            let waits = !open.is_empty() && !failed;
            (pauses || waits).then(|| script.beyond(state, "its calls"))
        });
        match cut.map_err(Stop::Told)? {
            Some(stop) => Err(stop),
            None => self.results(results),
        }
    }

    /// Answers a child whose id follows from its place in the parent, from the record of its own session.
    async fn delegate(&self, delegate: &Delegate) -> Answer {
        // A child's end that could not be stored, or read, was no answer: the run failed with it.
        let cut = self.follow(|script, state| {
            let is_cut = script.peek().is_none() || script.is_cut_short(state);
            is_cut.then(|| script.beyond(state, "a child"))
        });
        if let Some(stop) = cut.map_err(Stop::Told)? {
            return Err(stop);
        }
        let turn = delegate.run.map_or(ChildTurn::Only, ChildTurn::Of);
        let ended = recorded_end(&self.live, &delegate.child, turn).await.map_err(Stop::Told)?;
        self.follow(|script, state| {
            let end = match (script.peek(), ended) {
                (Some((_, Event::RunPaused(_))), _) => return Err(script.beyond(state, "a child")),
                (_, Some(end)) => end,
                // It failed before anything of it was stored.
                (Some((_, Event::CompactionFailed(failed))), None) => {
                    ChildEnd::lost(&failed.error.to_error())
                }
                (_, None) => return Err(script.beyond(state, "a child")),
            };
            let child = Some(delegate.child.clone());
            Ok(Observation::Child { child, outcome: Some(end.outcome), work: end.work, total: None })
        })
        .unwrap_or_else(|error| Err(Stop::Told(error)))
    }

    /// Compares the value that an agent records as its effect with the recorded one.
    fn record(
        &self,
        cx: &RunContext,
        key: EffectKey,
        make: &mut dyn FnMut(&SessionState, u64) -> Result<Recorded>,
    ) -> Result<()> {
        let known = self.follow(|script, state| {
            let made = Event::Recorded(make(state, state.head().seq).map_err(Stop::Told)?);
            let places = script.keyed(key.ordinal);
            let Some(place) = places.first().copied() else {
                return Err(script.beyond(state, made.kind()));
            };
            if script.event(place) != Some(&made) {
                return Err(Stop::Diverged(script.differs(place, made.kind())));
            }
            let reached = script.reach(state, &places, place);
            reached.map_err(|other| Stop::Diverged(script.differs(other, made.kind())))
        })?;
        if self.follow(|script, state| script.is_cancelled(state))? {
            cx.cancellation().cancel();
        }
        match known {
            Ok(()) => Ok(()),
            Err(stop) => self.halt(stop)?.map_or(Ok(()), Err),
        }
    }

    async fn answer(&self, cx: &RunContext, key: Option<EffectKey>, effect: &Effect) -> Answer {
        match (key, effect) {
            // It follows from the record again, which its own effect answers.
            (key, Effect::Compact { compaction, model, cause, silence }) => {
                let (compaction, model) = (compaction.clone(), model.clone());
                let compacted = compaction::answer(
                    compaction::Here { site: &self.site, cx, local: self },
                    key,
                    compaction,
                    model,
                    *cause,
                    *silence,
                );
                Box::pin(compacted).await.map_err(Stop::Told)
            }
            (Some(key), effect) => self.keyed(key, effect),
            (None, Effect::Delegate(delegate)) => Box::pin(self.delegate(delegate)).await,
            (None, Effect::Model(call)) => self.model(call),
            (None, Effect::Tools(calls)) => self.tools(calls),
            (None, _) => Err(Stop::Told(Error::new(ErrorKind::Unsupported, "this needs a keyed effect"))),
        }
    }
}

impl fmt::Debug for ReplayEffects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayEffects").field("session", self.site.journal.session()).finish_non_exhaustive()
    }
}

/// True when the event holds the effect's observation.
fn is_answer(effect: &Effect, event: &Event) -> bool {
    match effect {
        Effect::Model(_) => matches!(event, Event::ModelFinished(_)),
        Effect::Tools(_) => matches!(event, Event::ToolFinished(_)),
        Effect::Spawn(_) => matches!(event, Event::ChildStarted(_) | Event::Observed(_)),
        Effect::WaitAny { .. } => matches!(event, Event::ChildFinished(_)),
        Effect::Delegate(_) => matches!(event, Event::ChildFinished(_) | Event::Observed(_)),
        Effect::Signal { .. } | Effect::Sleep(_) | Effect::Now | Effect::NewId => {
            matches!(event, Event::Observed(_))
        }
        _ => false,
    }
}

fn read(effect: &Effect, value: Value) -> Result<Observation> {
    let broken =
        |error| Error::new(ErrorKind::Corrupt, "a recorded observation cannot be read").caused_by(error);
    Ok(match effect {
        Effect::Now => Observation::Now(serde_json::from_value(value).map_err(broken)?),
        Effect::NewId => Observation::Id(serde_json::from_value(value).map_err(broken)?),
        Effect::Sleep(_) => Observation::Slept,
        Effect::Spawn(_) | Effect::Delegate(_) => return Err(too_many(&value)),
        _ => Observation::Signal(value),
    })
}

/// The input of a replay.
pub(crate) struct Recording {
    pub(crate) record: SessionRecord,
    /// State of the session before the run.
    pub(crate) before: SessionState,
    /// The events from the run's first on.
    pub(crate) events: Vec<Envelope>,
    /// The runtime that has the session, where children are looked up.
    pub(crate) live: Arc<Env>,
    /// An empty runtime, on the recorded time.
    pub(crate) offline: Arc<Env>,
    pub(crate) time: RecordedTime,
    pub(crate) deps: Deps,
}

/// Replays the record with `agent`.
///
/// # Errors
/// [`ErrorKind::Diverged`], [`ErrorKind::Unfinished`], the store's.
pub(crate) async fn replay(recording: Recording, agent: Arc<dyn Agent>) -> Result<Outcome> {
    let Recording { record, before, events, live, offline, time, deps } = recording;
    let journal = Journal::replaying(&offline, record, before, Script::new(events, time));
    let first = journal.follow(|script, _| script.started().cloned())?;
    let Some(Envelope { origin, seq, event: Event::RunStarted(started), .. }) = first else {
        return Err(Error::new(ErrorKind::Internal, "a recorded run does not begin with its start"));
    };
    if *started.agent != *agent.name() {
        return Err(other_agent(agent.name(), &started.agent, &origin, seq));
    }
    let mut task = Task::new("");
    task.prompt = Arc::clone(&started.prompt);
    (task.budget, task.deadline) = (started.budget, started.deadline);
    while let Some(recorded) = journal.follow(Script::begin)? {
        let (env, journal_, origin_) = (Arc::clone(&offline), Arc::clone(&journal), Arc::clone(&origin));
        let emitter = Emitter::new(None, &offline).of_replay(origin.run);
        let mut site = Site::new(env, journal_, origin_, emitter);
        site.deps = deps.clone();
        let site = Arc::new(site);
        let given = Given {
            scope: Scope::all(),
            cancel: CancellationToken::new(),
            budget: budget::open(task.budget, BudgetState::default(), None, &origin.agent),
        };
        let (live, recorded) = (Arc::clone(&live), recorded.into());
        let effects = ReplayEffects { live, site: Arc::clone(&site), recorded, children: Mutex::default() };
        let cx = site.context(given, Arc::new(effects) as _);
        let ended = Box::pin(live_again(&*agent, task.clone(), &cx, &journal)).await;
        site.end(cx.cancellation().is_cancelled());
        cx.cancellation().cancel();
        let ended = ended?;
        if let Some(outcome) = journal.follow(|script, state| judge(script, state, ended))?? {
            return Ok(outcome);
        }
    }
    Err(journal.follow(|script, _| script.unfinished())?)
}

/// Runs one life of the run; `None` when its process died before the agent came to an end.
async fn live_again(
    agent: &dyn Agent,
    task: Task,
    cx: &RunContext,
    journal: &Journal,
) -> Result<Option<Result<Outcome>>> {
    let (over, cancelled) = journal.follow(|script, state| (script.over(), script.is_cancelled(state)))?;
    // The recorded run was cancelled before its first effect.
    if cancelled {
        cx.cancellation().cancel();
    }
    let run = Caught::new(|| agent.run(task, cx));
    tokio::select! {
        biased;
        () = over.cancelled() => Ok(None),
        ended = run => Ok(Some(ended.unwrap_or_else(|panic| Err(panicked(&panic, cx.agent()))))),
        () = stuck(cx) => Ok(Some(Err(Error::cancelled()))),
    }
}
