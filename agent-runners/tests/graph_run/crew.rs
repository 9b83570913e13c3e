//! Agents that act as a test scripts them, and a log of their actions.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, SessionId,
    agent::Agent,
    event::Envelope,
    run::{Outcome, RunContext, Status, StopReason, Task},
    session::SharedStore,
};
use entourage_runners::graph::{NodeEnd, NodeFinished};
use entourage_testkit::Gate;

use crate::common::stored;

/// Entries in the order in which they happened.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn note(&self, text: impl Into<String>) {
        self.0.lock().unwrap().push(text.into());
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, text: &str) -> usize {
        self.all().iter().filter(|it| *it == text).count()
    }

    fn place(&self, text: &str) -> usize {
        self.all().iter().position(|it| it == text).unwrap_or_else(|| panic!("no {text}: {:?}", self.all()))
    }

    pub(crate) fn assert_order(&self, before: &str, after: &str) {
        assert!(self.place(before) < self.place(after), "{before} before {after}: {:?}", self.all());
    }
}

/// An act of an agent on one task.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Fail(&'static str),
    End(Status),
    Panic,
    Wait(Gate),
    Hang,
    /// Waits, and ignores a cancel.
    Deaf(Gate),
    Sleep(Duration),
    /// Waits for a signal, and answers with it.
    Signal(&'static str),
}

/// A scripted agent. Its task begins with the id of its node. It performs the acts planned for the current attempt at
/// that node, in order, and otherwise answers `<id> done`.
#[derive(Debug, Clone)]
pub(crate) struct Hand {
    name: Arc<str>,
    pub(crate) log: Log,
    plan: Arc<Mutex<HashMap<String, VecDeque<Vec<Act>>>>>,
    /// Its parallel runs: the current number and the maximum.
    busy: Arc<Mutex<(usize, usize)>>,
}

impl Hand {
    pub(crate) fn new(name: &str) -> Self {
        Self::logging(name, &Log::default())
    }

    pub(crate) fn logging(name: &str, log: &Log) -> Self {
        Self { name: name.into(), log: log.clone(), plan: Arc::default(), busy: Arc::default() }
    }

    /// Plans the acts of the next attempt at `node` that has none yet.
    pub(crate) fn on(self, node: &str, acts: impl IntoIterator<Item = Act>) -> Self {
        let acts = acts.into_iter().collect();
        self.plan.lock().unwrap().entry(node.to_owned()).or_default().push_back(acts);
        self
    }

    pub(crate) fn most(&self) -> usize {
        self.busy.lock().unwrap().1
    }

    pub(crate) fn running(&self) -> usize {
        self.busy.lock().unwrap().0
    }

    fn enter(&self) -> Busy<'_> {
        let mut busy = self.busy.lock().unwrap();
        busy.0 += 1;
        busy.1 = busy.1.max(busy.0);
        Busy(self)
    }
}

struct Busy<'a>(&'a Hand);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.lock().unwrap().0 -= 1;
    }
}

#[async_trait]
impl Agent for Hand {
    fn name(&self) -> &str {
        &self.name
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        let _busy = self.enter();
        let prompt = task.prompt.text();
        let node = prompt.split_whitespace().next().unwrap().to_owned();
        self.log.note(format!("{node} starts"));
        self.log.note(format!("{} is asked: {prompt}", self.name));
        let acts = self.plan.lock().unwrap().get_mut(&node).and_then(VecDeque::pop_front);
        let mut answer = format!("{node} done");
        for act in acts.unwrap_or_default() {
            match act {
                Act::Fail(text) => return Err(Error::new(ErrorKind::Tool, text)),
                Act::End(status) => return Ok(Outcome::new(status)),
                Act::Panic => panic!("{node} panics"),
                Act::Wait(gate) => {
                    tokio::select! {
                        () = gate.pass() => {}
                        () = cx.cancellation().cancelled() => {
                            self.log.note(format!("{node} is cancelled"));
                            return Err(Error::cancelled());
                        }
                    }
                }
                Act::Hang => {
                    cx.cancellation().cancelled().await;
                    self.log.note(format!("{node} is cancelled"));
                    return Err(Error::cancelled());
                }
                Act::Deaf(gate) => gate.pass().await,
                Act::Sleep(time) => cx.sleep(time).await?,
                Act::Signal(name) => answer = cx.signal(name).await?.to_string(),
            }
        }
        self.log.note(format!("{node} ends"));
        Ok(Outcome::completed(answer))
    }
}

/// Returns the final end of each node, in words.
pub(crate) fn ends(events: &[Envelope]) -> BTreeMap<String, String> {
    let ends = events.iter().filter_map(|event| event.event.record::<NodeFinished>().unwrap());
    ends.map(|end| (end.node.to_string(), word(&end.end))).collect()
}

fn word(end: &NodeEnd) -> String {
    match end {
        NodeEnd::Completed(_) => "completed".to_owned(),
        NodeEnd::Failed(error) => format!("failed: {}", error.message),
        NodeEnd::Skipped(cause) => format!("skipped: {cause}"),
        NodeEnd::Cancelled => "cancelled".to_owned(),
        _ => unreachable!(),
    }
}

pub(crate) async fn stored_ends(store: &SharedStore, session: &SessionId) -> BTreeMap<String, String> {
    ends(&stored(store, session).await)
}

/// Returns the failed, cancelled and skipped tasks of a stopped run.
pub(crate) fn not_done(outcome: &Outcome) -> (Vec<String>, Vec<String>, Vec<String>) {
    let Status::Stopped(StopReason::Tasks { failed, cancelled, skipped }) = &outcome.status else {
        panic!("{outcome:?}");
    };
    let names = |names: &[Arc<str>]| names.iter().map(ToString::to_string).collect();
    let failed = failed.iter().map(|failed| failed.task.to_string()).collect();
    (failed, names(cancelled), names(skipped))
}

pub(crate) fn root() -> SessionId {
    SessionId::new("work").unwrap()
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
