//! A session and its descendants as a store holds them, and the facts that must not depend on crashes.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use entourage_core::{
    Digest, Error, ErrorKind, Result, SessionId, Timestamp,
    event::{Envelope, Event, Recorded},
    message::{History, Role, parse_value},
    run::Outcome,
    session::{ReadRange, SessionFilter, SessionInfo, SessionState, SharedStore},
    tool::idempotency_key,
};
use serde_json::Value;

use super::seams::is_unknown;

/// A session and its descendants, with all events.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    sessions: BTreeMap<SessionId, Log>,
}

/// One session of a [`Tree`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Log {
    /// The session as lists show it.
    pub info: SessionInfo,
    /// Its events, oldest first.
    pub events: Vec<Envelope>,
    /// `digests[n]` covers the first `n` events.
    digests: Vec<Digest>,
}

impl Tree {
    /// Reads the tree below `root`; empty when there is no such session.
    ///
    /// # Errors
    /// The store's; [`ErrorKind::Corrupt`] when events are missing or doubled.
    pub async fn load(store: &SharedStore, root: &SessionId) -> Result<Self> {
        let mut sessions = BTreeMap::new();
        for info in store.query(&SessionFilter::tree(root.clone())).await? {
            let id = info.record.id.clone();
            let log = Log::load(store, info).await?;
            sessions.insert(id, log);
        }
        Ok(Self { sessions })
    }

    /// The session of this id.
    #[must_use]
    pub fn get(&self, session: &SessionId) -> Option<&Log> {
        self.sessions.get(session)
    }

    /// All sessions, by id.
    pub fn iter(&self) -> impl Iterator<Item = (&SessionId, &Log)> {
        self.sessions.iter()
    }

    /// Digest of the first `seq` events of a session, with their order; `None` if it has fewer.
    #[must_use]
    pub fn digest(&self, session: &SessionId, seq: u64) -> Option<Digest> {
        let log = self.sessions.get(session)?;
        log.digests.get(usize::try_from(seq).ok()?).copied()
    }

    /// Outcome of the newest run of `session`; `None` while it has not ended.
    #[must_use]
    pub fn outcome(&self, session: &SessionId) -> Option<&Outcome> {
        match &self.sessions.get(session)?.events.last()?.event {
            Event::RunFinished(end) => Some(&end.outcome),
            _ => None,
        }
    }

    /// Opens each session anew, from its newest checkpoint on, and names those whose state differs from the fold over
    /// all their events.
    /// their events add up to.
    ///
    /// # Errors
    /// The store's.
    pub async fn reopened(&self, store: &SharedStore) -> Result<Vec<String>> {
        let runtime = super::super::runtime().shared_store(Arc::clone(store)).build();
        let mut differ = Vec::new();
        for (id, log) in &self.sessions {
            if runtime.open(id).await?.state().await? != log.fold().0 {
                differ.push(format!("{id} opens with a state that differs from the fold of its events"));
            }
        }
        Ok(differ)
    }

    /// Lasting facts, as a bag of lines. It leaves out additions of a crash (a resume, a model call or claim that was
    /// cut off, a repeated question, a prompt that had to wait) and values that differ from run to run (ids and
    /// times).
    pub(super) fn facts(&self) -> BTreeMap<String, usize> {
        let mut facts = BTreeMap::new();
        for event in self.sessions.values().flat_map(|log| &log.events) {
            if let Some(fact) = fact(event) {
                *facts.entry(fact).or_insert(0) += 1;
            }
        }
        facts
    }
}

impl Log {
    async fn load(store: &SharedStore, info: SessionInfo) -> Result<Self> {
        let id = &info.record.id;
        let mut events = Vec::new();
        let mut digests = vec![Digest::of([])];
        for (expected, row) in (1..).zip(store.read(id, ReadRange::all()).await?) {
            if row.seq() != expected {
                let text = format!("event {} stands where event {expected} belongs", row.seq());
                return Err(Error::new(ErrorKind::Corrupt, text).with("session", id.as_str()));
            }
            let last = digests.last().map(ToString::to_string).unwrap_or_default();
            let kind = row.columns().kind;
            digests.push(Digest::of([last.as_bytes(), kind.as_bytes(), row.body()?.as_bytes()]));
            events.push(row.into_envelope(id)?);
        }
        Ok(Self { info, events, digests })
    }

    /// The fold over all events, and its faults: checkpoints that differ from the fold before them.
    pub(super) fn fold(&self) -> (SessionState, Vec<String>) {
        let (mut state, mut faults) = (SessionState::default(), Vec::new());
        for event in &self.events {
            if let Event::Checkpoint(checkpoint) = &event.event
                && checkpoint.forked.is_none()
                && checkpoint.state != state
            {
                let session = &self.info.record.id;
                faults.push(format!(
                    "checkpoint {} of {session} is not what the events before it add up to",
                    event.seq
                ));
            }
            state.apply(event);
        }
        (state, faults)
    }

    /// Faults of the session when nothing is in flight in it.
    pub(super) fn faults(&self) -> Vec<String> {
        let (state, mut faults) = self.fold();
        let session = &self.info.record.id;
        let head = &self.info.head;
        if head != state.head() {
            faults.push(format!("the head of {session} is {head:?}, and its events give {:?}", state.head()));
        }
        if head.run.is_some() {
            faults.push(format!("a run of {session} has no end"));
        }
        if let Some(lease) = self.info.lease.filter(|lease| lease.until != Timestamp::default()) {
            faults.push(format!("the lease of {session} was not given back: {lease:?}"));
        }
        if let Err(fault) = valid(state.history()) {
            faults.push(format!("{session}: {fault}"));
        }
        faults
    }
}

/// Checks the rule of every service: after a message with calls there is one tool message that answers each of them
/// once, in call order, and there is no other tool message.
fn valid(history: &History) -> Result<(), String> {
    let mut open: Vec<String> = Vec::new();
    for message in history.iter() {
        let answers: Vec<_> = message.tool_results().map(|result| result.call.to_string()).collect();
        if message.role() == Role::Tool && (answers.is_empty() || answers != open) {
            return Err(format!("the calls {open:?} are answered by {answers:?}"));
        }
        if message.role() != Role::Tool && !(open.is_empty() && answers.is_empty()) {
            return Err(format!("the calls {open:?} are not answered"));
        }
        open = message.tool_calls().map(|call| call.id.to_string()).collect();
    }
    if open.is_empty() { Ok(()) } else { Err(format!("the calls {open:?} are not answered")) }
}

fn fact(envelope: &Envelope) -> Option<String> {
    let path = &envelope.origin.agent;
    let what = match &envelope.event {
        Event::RunStarted(run) => run.prompt.text(),
        Event::ModelFinished(reply) => {
            let calls: Vec<_> = reply
                .message
                .tool_calls()
                .map(|call| format!(" {}{}", call.name, call.arguments.as_str()))
                .collect();
            let failed = reply.error.as_ref().map(|error| error.kind);
            format!("{}{} {:?} {failed:?}", reply.message.text(), calls.concat(), reply.finish.reason)
        }
        Event::ToolFinished(call) => {
            let unknown = if is_unknown(&call.result) { "unknown" } else { "known" };
            format!("{} {} {unknown}: {}", call.result.name, call.result.is_error, call.result.to_text())
        }
        Event::ApprovalDecided(answer) => format!("{:?}", answer.decision),
        Event::ChildStarted(child) => child.agent.clone(),
        Event::ChildFinished(child) => {
            child.outcome.as_ref().map_or("nobody".to_owned(), |it| format!("{} {}", it.status, it.text))
        }
        Event::SignalReceived(signal) => format!("{} {}", signal.name, signal.value),
        Event::MessageAdded(added) => added.message.text(),
        Event::Compacted(compacted) => format!("{} {}", compacted.summary.text(), compacted.kept),
        Event::Titled(titled) => titled.title.to_string(),
        Event::TodosChanged(changed) => format!("{:?}", changed.todos),
        Event::Recorded(value) => recorded(value),
        Event::RunFinished(end) => {
            let Outcome { status, text, steps, usage, .. } = &end.outcome;
            format!("{status} {steps} {usage} {text}")
        }
        Event::Observed(_)
        | Event::PromptDropped(_)
        | Event::OutputsCleared(_)
        | Event::CompactionFailed(_) => String::new(),
        _ => return None,
    };
    Some(format!("{path} {} {what}", envelope.event.kind()))
}

/// Fields of records that hold ids of runs, calls and sessions.
const IDS: [&str; 4] = ["run", "call", "child", "place"];

/// A record of a phase or a node without its ids, its times and its digest, which contains results of tools; any other
/// one without its ids.
fn recorded(value: &Recorded) -> String {
    let json = value.json().map_err(|error| error.to_string());
    let json = json.and_then(|json| parse_value(&json).map_err(|error| error.to_string()));
    let (Ok(record) | Err(record)) = json.map_err(Value::from);
    let text = |value: &Value, name: &str| shown(value.get(name));
    if record.get("node").is_some() {
        let begun = format!("{} {}", text(&record, "node"), text(&record, "attempt"));
        let Some(end) = record.get("end") else { return format!("{begun} {}", text(&record, "agent")) };
        return format!("{begun} {} {}", ended(end), text(&record, "usage"));
    }
    if let Some(change) = record.get("change") {
        return change.to_string();
    }
    if record.get("phase").is_none() {
        let mut record = record;
        if let Some(fields) = record.as_object_mut() {
            fields.retain(|name, _| !IDS.contains(&name.as_str()));
        }
        return record.to_string();
    }
    let begun = format!("{} {}", text(&record, "iteration"), text(&record, "phase"));
    let Some(outcome) = record.get("outcome") else { return begun };
    let verdict = record.get("verdict").map(|it| (text(it, "accepted") == "true", text(it, "reason")));
    format!("{begun} {} {} {verdict:?}", text(outcome, "status"), text(outcome, "text"))
}

fn shown(value: Option<&Value>) -> String {
    let value = value.unwrap_or(&Value::Null);
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

/// The end of a node: one word, or a word and its reason or value. Of an error only the message.
fn ended(end: &Value) -> String {
    let Some((word, of)) = end.as_object().and_then(|end| end.iter().next()) else { return shown(Some(end)) };
    let what = if word == "failed" { of.get("message") } else { Some(of) };
    format!("{word}: {}", shown(what))
}

/// The claim of a tool call, with the events that claimed and settled it.
#[derive(Debug, Default)]
pub(super) struct Claim<'a> {
    pub(super) claimed: u64,
    pub(super) repeat: Option<entourage_core::tool::Repeat>,
    pub(super) settled: Option<u64>,
    pub(super) result: Option<&'a entourage_core::event::ToolFinished>,
}

impl Log {
    /// The tool calls that were claimed or settled, by their idempotency key.
    pub(super) fn claims(&self) -> HashMap<String, Claim<'_>> {
        let id = &self.info.record.id;
        let (mut message, mut run, mut named) = (0, 0, None);
        let mut claims: HashMap<String, Claim<'_>> = HashMap::new();
        for envelope in &self.events {
            let seq = envelope.seq;
            let key = |effect: Option<entourage_core::event::EffectKey>, index: usize| match effect {
                None => idempotency_key(id, named, message, index),
                Some(effect) => {
                    let ordinal = usize::try_from(effect.ordinal).unwrap_or(usize::MAX);
                    idempotency_key(id, named, run, ordinal.saturating_add(index))
                }
            };
            match &envelope.event {
                Event::RunStarted(started) => {
                    (run, named) = (seq, started.named_by_run.then_some(envelope.origin.run));
                }
                Event::ModelFinished(reply) if reply.key.is_none() => message = seq,
                Event::ToolStarted(call) => {
                    let claim = claims.entry(key(call.key, call.index)).or_default();
                    if claim.claimed == 0 {
                        (claim.claimed, claim.repeat) = (seq, Some(call.repeat));
                    }
                }
                Event::ToolFinished(call) => {
                    let claim = claims.entry(key(call.key, call.index)).or_default();
                    (claim.settled, claim.result) = (Some(seq), Some(&**call));
                }
                _ => {}
            }
        }
        claims
    }
}
