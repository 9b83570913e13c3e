//! The work of a session, from the first prompt to the end, whichever process continues it.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use entourage_core::{
    Error, ErrorKind, Result, SessionId,
    agent::Agent,
    event::Event,
    permission::{ApprovalId, Decision},
    run::{Pause, Task},
    session::{SessionStatus, SharedStore},
};
use entourage_runtime::{Agents, Runtime, RuntimeBuilder, Session, Titles, Waiting};
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::{Life, Note, Tree, Witness, tree::Log};
use crate::Distant;

type Build = dyn Fn(&Life) -> Result<Arc<dyn Agent>> + Send + Sync;
type Setup = dyn Fn(RuntimeBuilder) -> RuntimeBuilder + Send + Sync;
type MakeTitles = dyn Fn(&Life) -> Titles + Send + Sync;
type Drive = dyn for<'a> Fn(&'a DriveContext) -> BoxFuture<'a, Result<DriveStep>> + Send + Sync;

/// Work that any process can begin, or continue where another one died.
///
/// Each process builds its agent anew, from the watched parts of its [`Life`]. Its models must answer by the content
/// of the request, as [`ScriptedProvider::by_history`](crate::ScriptedProvider::by_history) does: a call that
/// was cut off is made again. Time may matter only if no answer depends on it.
///
/// Unless [`Scenario::driven`] says otherwise, the prompts are given one after another. A paused run gets its decision
/// or its signal in one process, and is resumed in another.
pub struct Scenario {
    name: String,
    build: Box<Build>,
    setup: Box<Setup>,
    titles: Option<Box<MakeTitles>>,
    prompts: Vec<Task>,
    decisions: Vec<(String, Decision)>,
    signals: Vec<(String, Value)>,
    results: Vec<(String, String)>,
    drive: Option<Box<Drive>>,
    distant: bool,
}

/// Progress after one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriveStep {
    /// More is to do, for this process or another one.
    More,
    /// Everything is done.
    Over,
}

/// The work as a process found it, with the means to continue it.
#[non_exhaustive]
pub struct DriveContext {
    /// A runtime on the watched store.
    pub runtime: Runtime,
    /// The agent, made for this life.
    pub agent: Arc<dyn Agent>,
    /// The session that the work is done in.
    pub session: Session,
    /// Everything stored of the session.
    pub tree: Tree,
}

impl Scenario {
    /// Work with this name, done by the agent that `build` makes for each process.
    pub fn new<A: Agent + 'static>(
        name: impl Into<String>,
        build: impl Fn(&Life) -> Result<A> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            build: Box::new(move |life| Ok(Arc::new(build(life)?) as _)),
            setup: Box::new(|builder| builder),
            titles: None,
            prompts: Vec::new(),
            decisions: Vec::new(),
            signals: Vec::new(),
            results: Vec::new(),
            drive: None,
            distant: false,
        }
    }

    /// Adds a prompt, given when the run before it has ended.
    #[must_use]
    pub fn prompt(mut self, prompt: impl Into<Task>) -> Self {
        self.prompts.push(prompt.into());
        self
    }

    /// Configures the runtime of each process: policy, `checkpoint_every` and the like. Do not change its store, clock
    /// and observers.
    #[must_use]
    pub fn runtime(
        mut self,
        setup: impl Fn(RuntimeBuilder) -> RuntimeBuilder + Send + Sync + 'static,
    ) -> Self {
        self.setup = Box::new(setup);
        self
    }

    /// Gives the session a title, with models of each process's [`Life`]. A process must not end while such a model is
    /// in flight, so [`Scenario::driven`] has to wait for the title.
    #[must_use]
    pub fn titles(mut self, make: impl Fn(&Life) -> Titles + Send + Sync + 'static) -> Self {
        self.titles = Some(Box::new(make));
        self
    }

    /// Sets the decision for a run that pauses for a call of `tool`. Without a decision the scenario cannot continue.
    #[must_use]
    pub fn decide(mut self, tool: impl Into<String>, decision: Decision) -> Self {
        self.decisions.push((tool.into(), decision));
        self
    }

    /// Sets the value to send to a run that pauses for the signal `name`.
    #[must_use]
    pub fn signal(mut self, name: impl Into<String>, value: Value) -> Self {
        self.signals.push((name.into(), value));
        self
    }

    /// Sets the result of each call of the [external](entourage_runners::external) tool `tool`.
    #[must_use]
    pub fn result(mut self, tool: impl Into<String>, text: impl Into<String>) -> Self {
        self.results.push((tool.into(), text.into()));
        self
    }

    /// Replaces the prompts, decisions and signals above by `drive`, which is called in each process until it returns
    /// [`DriveStep::Over`]. It must decide by the stored state alone. An error fails the scenario.
    #[must_use]
    pub fn driven(
        mut self,
        drive: impl for<'a> Fn(&'a DriveContext) -> BoxFuture<'a, Result<DriveStep>> + Send + Sync + 'static,
    ) -> Self {
        self.drive = Some(Box::new(drive));
        self
    }

    /// Lets a [`Distant`] engine perform the effects: each process builds the agent twice, and all code that its runs
    /// call is looked up by name in the other one.
    #[must_use]
    pub fn distant(mut self) -> Self {
        self.distant = true;
        self.name.push_str("-distant");
        self
    }

    /// Name of the scenario.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Does the next part of the work in session `root`, as one process does: begins it, continues it, or answers a
    /// paused run.
    ///
    /// # Errors
    /// The run's or the store's; [`ErrorKind::Config`] if a run waits for an answer that the scenario does not have,
    /// and [`ErrorKind::Internal`] if a call is in flight after the run's end.
    pub async fn step(&self, life: &Life, root: &SessionId) -> Result<DriveStep> {
        let tree = Tree::load(life.unwatched_store(), root).await?;
        for (session, log) in tree.iter() {
            let seq = log.info.head.seq;
            if let Some(digest) = tree.digest(session, seq) {
                life.note(Note::Found { session: session.clone(), seq, digest });
            }
        }
        let agent = (self.build)(life)?;
        let builder = (self.setup)(life.runtime());
        let builder = match &self.titles {
            Some(titles) => builder.titles(titles(life)),
            None => builder,
        };
        let builder = if self.distant {
            let elsewhere = Agents::new().with((self.build)(life)?);
            builder.effects(Distant::new(elsewhere).within(life.clone()))
        } else {
            builder
        };
        let runtime = builder.build();
        let session = runtime.session_with_id(root.clone());
        let cx = DriveContext { runtime, agent, session, tree };
        let step = match &self.drive {
            Some(drive) => drive(&cx).await?,
            None => self.advance(&cx).await?,
        };
        match life.alive() {
            0 => Ok(step),
            count => Err(Error::new(
                ErrorKind::Internal,
                format!("{count} calls of models or tools are under way after the run's end"),
            )),
        }
    }

    /// Replays all runs of session `root` and returns the faults: an outcome other than the recorded one, or any
    /// effect of the replay.
    pub(super) async fn replays(&self, store: &SharedStore, root: &SessionId) -> Result<Vec<String>> {
        let (tree, quiet) = (Tree::load(store, root).await?, Arc::new(Quiet::default()));
        let life = Life::new(Arc::clone(store), Arc::clone(&quiet) as _);
        let agent = (self.build)(&life)?;
        let session =
            super::super::runtime().shared_store(Arc::clone(store)).build().session_with_id(root.clone());
        let mut faults = Vec::new();
        for event in tree.get(root).map_or(&[][..], |log| &log.events) {
            let Event::RunFinished(end) = &event.event else { continue };
            let run = event.origin.run;
            match session.replay(&agent, run).await {
                Ok(outcome) if outcome == end.outcome => {}
                other => faults.push(format!("run {run} of {root} replays as {other:?}, and was {end:?}")),
            }
        }
        faults.extend(quiet.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..));
        Ok(faults)
    }

    async fn advance(&self, cx: &DriveContext) -> Result<DriveStep> {
        let DriveContext { agent, session, tree, .. } = cx;
        let root = tree.get(session.id());
        match root.map(|log| log.info.head.status) {
            Some(SessionStatus::Paused) => {
                if !self.answer(cx).await? {
                    session.resume(agent).outcome().await?;
                }
            }
            Some(SessionStatus::Running) => drop(session.resume(agent).outcome().await?),
            Some(SessionStatus::Idle) | None => {
                let runs = root.map_or(0, |log| log.count("run_started"));
                let Some(prompt) = self.prompts.get(runs) else { return Ok(DriveStep::Over) };
                session.start(agent, prompt.clone()).outcome().await?;
            }
        }
        Ok(DriveStep::More)
    }

    /// Gives one paused run the answer it waits for; false if none is left.
    async fn answer(&self, cx: &DriveContext) -> Result<bool> {
        for (id, log) in cx.tree.iter() {
            let Some(wait) = log.waits_for() else { continue };
            let session = cx.runtime.session_with_id(id.clone());
            match wait {
                Wait::Decision(approval, tool) => {
                    let decision = find(&self.decisions, tool)?;
                    session.decide(approval, decision.clone()).await?;
                }
                // The runs above are paused for the same signal: it goes to the lowest one that waits for it.
                Wait::Signal(_) if cx.tree.is_waiting_below(id) => continue,
                Wait::Signal(name) => session.signal(name, find(&self.signals, name)?.clone()).await?,
            }
            return Ok(true);
        }
        for wait in cx.session.pending().await? {
            if let Waiting::Call { id, call } = wait.waits_for {
                cx.runtime.answer(&id, find(&self.results, &call.name)?.clone()).await?;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn find<'a, T>(answers: &'a [(String, T)], name: &str) -> Result<&'a T> {
    let found = answers.iter().find(|(it, _)| it == name).map(|(_, answer)| answer);
    found.ok_or_else(|| {
        Error::new(
            ErrorKind::Config,
            format!("the scenario does not say what is answered to `{name}`; add it"),
        )
    })
}

/// The answer that a paused run waits for.
enum Wait<'a> {
    Decision(&'a ApprovalId, &'a str),
    Signal(&'a str),
}

impl Log {
    fn count(&self, kind: &str) -> usize {
        self.events.iter().filter(|event| event.event.kind() == kind).count()
    }

    fn waits_for(&self) -> Option<Wait<'_>> {
        let place = self.events.iter().rposition(|it| matches!(it.event, Event::RunPaused(_)))?;
        let (before, since) = self.events.split_at(place);
        let Event::RunPaused(paused) = &since.first()?.event else { return None };
        if self.info.head.status != SessionStatus::Paused {
            return None;
        }
        match &paused.pause {
            Pause::Approval(id) => {
                let tool = before.iter().find_map(|it| match &it.event {
                    Event::ApprovalRequested(request) if request.id == *id => Some(&*request.tool),
                    _ => None,
                })?;
                let answered = |it: &Event| matches!(it, Event::ApprovalDecided(answer) if answer.id == *id);
                let open = !since.iter().any(|it| answered(&it.event));
                open.then_some(Wait::Decision(id, tool))
            }
            Pause::Signal { name, .. } => {
                let sent = |it: &Event| matches!(it, Event::SignalReceived(signal) if signal.name == *name);
                let open = !since.iter().any(|it| sent(&it.event));
                open.then_some(Wait::Signal(name))
            }
            // Nothing is waited for, or nothing that is known here.
            _ => None,
        }
    }
}

impl Tree {
    fn is_waiting_below(&self, session: &SessionId) -> bool {
        self.iter().any(|(_, log)| {
            log.info.record.parent.as_ref() == Some(session) && log.info.head.status == SessionStatus::Paused
        })
    }
}

/// A witness that reports every note as a fault.
#[derive(Debug, Default)]
struct Quiet(Mutex<Vec<String>>);

impl Witness for Quiet {
    fn note(&self, note: Note) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(format!("a replay did this: {note:?}"));
    }

    fn point(&self) -> bool {
        false
    }
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scenario").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for DriveContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriveContext").field("session", &self.session).finish_non_exhaustive()
    }
}
