//! A session of a store as a transcript. Reads events in windows, and writes nothing.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use entourage_core::{
    Error, ErrorKind, Money, RequestId, Result, RunId, SessionId, Timestamp,
    bound::EVENT,
    event::{Checkpoint, EffectKey, Envelope, Event, ModelFinished, RunStarted, ToolFinished, ToolStarted},
    message::{Arguments, Message, Part, ToolCall, json_bytes},
    run::Status,
    session::{ReadRange, SessionFilter, SharedStore},
    tool::Labels,
};
use entourage_runtime::telemetry::Telemetry;
use serde_json::Value;

use super::{
    answers::MARKED,
    lines::{MOST, too_much},
    transcript::{Transcript, TranscriptCall, TranscriptRun},
};

/// Events that are read at once.
const WINDOW: usize = 500;

pub(super) async fn read(store: &SharedStore, id: &str) -> Result<Transcript> {
    let info = Telemetry::new(Arc::clone(store)).resolve(id).await?;
    if info.record.parent.is_some() {
        let text = "this session is below another one, and runs within that alone; name the root of its tree";
        return Err(Error::new(ErrorKind::InvalidInput, text).with("session", info.record.id.as_str()));
    }
    let root = info.record.id;
    let mut tree: Vec<SessionId> = store
        .query(&SessionFilter::tree(root.clone()))
        .await?
        .into_iter()
        .map(|info| info.record.id)
        .collect();
    // A child's id begins with its parent's, so that each comes after the session above it.
    tree.sort();
    let mut scan = Scan::new(&root);
    for session in tree.iter().filter(|session| !is_title(session)) {
        scan.enter(session.as_str().strip_prefix(root.as_str()).unwrap_or_default());
        let mut after = 0;
        loop {
            let rows = store.read(session, ReadRange::after(after).with_limit(WINDOW)).await?;
            let is_last = rows.len() < WINDOW;
            for row in rows {
                after = row.seq();
                // A checkpoint repeats the events before it, unless the session begins with it.
                if after == 1 || row.columns().kind != "checkpoint" {
                    scan.apply(&row.into_envelope(session)?)?;
                }
            }
            if is_last {
                break;
            }
        }
    }
    Ok(scan.finish())
}

/// True for the session in which a title is made: no event of its parent asked for it.
fn is_title(session: &SessionId) -> bool {
    session.origin().is_some_and(|(_, seq, index)| (seq, index) == (0, 0))
}

struct Scan {
    read: Transcript,
    /// Each call, with the time at which it began.
    calls: Vec<(Timestamp, TranscriptCall)>,
    /// The run of the root that each run belongs to.
    runs: HashMap<RunId, usize>,
    cost: Option<Money>,
    is_root: bool,
    /// The part of the session's id that its root's has not.
    below: String,
    /// Bytes that it holds, about.
    bytes: usize,
    /// The newest reply with calls, of the session that is being read, and its number.
    asking: Option<(u64, Arc<Message>)>,
    /// The event that began the run that is being read.
    began: u64,
    /// Its calls without a result: their ids, and places in `calls`.
    open: Vec<(Arc<str>, usize)>,
    /// Its model calls without a reply.
    asked: HashSet<RequestId>,
}

impl Scan {
    fn new(root: &SessionId) -> Self {
        let mut read = Transcript::new(root.as_str());
        root.as_str().clone_into(&mut read.session);
        Self {
            read,
            calls: Vec::new(),
            runs: HashMap::new(),
            cost: Some(Money::default()),
            is_root: true,
            below: String::new(),
            bytes: 0,
            asking: None,
            began: 0,
            open: Vec::new(),
            asked: HashSet::new(),
        }
    }

    /// Begins with a session, whose id this ends behind its root's.
    fn enter(&mut self, below: &str) {
        self.leave();
        self.is_root = below.is_empty();
        below.clone_into(&mut self.below);
    }

    fn leave(&mut self) {
        if !self.asked.is_empty() {
            self.cost = None;
        }
        self.asked.clear();
        self.open.clear();
        self.asking = None;
    }

    fn finish(mut self) -> Transcript {
        self.leave();
        // Stable: calls of one moment stay in the order of their session.
        self.calls.sort_by_key(|(at, call)| (call.run, *at));
        self.read.calls = self.calls.into_iter().map(|(_, call)| call).collect();
        self.read.cost = self.cost;
        self.read
    }

    fn apply(&mut self, envelope: &Envelope) -> Result<()> {
        match &envelope.event {
            Event::Checkpoint(checkpoint) if self.is_root => self.begin(checkpoint),
            Event::RunStarted(started) => {
                self.began = envelope.seq;
                self.start(envelope.origin.run, started);
            }
            Event::MessageAdded(added) if self.is_root && added.queued.is_some() => self.join(&added.message),
            Event::ModelStarted(started) => self.asked.extend(started.request),
            Event::ModelFinished(reply) => self.reply(envelope.seq, reply),
            Event::ToolStarted(started) => self.claim(envelope, started),
            Event::ToolFinished(finished) => self.settle(envelope, finished),
            Event::RunPaused(paused) if self.is_root => {
                self.newest(|run| run.status = Some(Status::Paused(paused.pause.clone())));
            }
            Event::RunResumed(_) if self.is_root => self.newest(|run| run.status = None),
            Event::RunFinished(end) if self.is_root => self.newest(|run| {
                run.answer.clone_from(&end.outcome.text);
                run.status = Some(end.outcome.status.clone());
            }),
            _ => {}
        }
        let count = self.read.given.len() + self.read.runs.len() + self.calls.len();
        match count > MOST || self.bytes > EVENT {
            true => Err(too_much().with("session", self.read.session.clone())),
            false => Ok(()),
        }
    }

    fn newest(&mut self, change: impl FnOnce(&mut TranscriptRun)) {
        if let Some(run) = self.read.runs.last_mut() {
            change(run);
        }
    }

    /// Takes over the conversation that the session began with, without what only a model's service understands.
    fn begin(&mut self, checkpoint: &Checkpoint) {
        let kept = |part: &&Part| !matches!(part, Part::Reasoning(_) | Part::Opaque(_));
        let plain = |message: &Arc<Message>| {
            let parts = message.parts().iter().filter(kept).cloned().collect();
            Arc::new(Message::new(message.role(), parts))
        };
        self.read.given = checkpoint.state.history().iter().map(plain).collect();
    }

    fn start(&mut self, run: RunId, started: &RunStarted) {
        if !self.is_root {
            let above = started.above.as_ref().and_then(|above| self.runs.get(&above.run));
            let above = above.copied().unwrap_or_default();
            self.runs.insert(run, above);
            return;
        }
        self.runs.insert(run, self.read.runs.len());
        self.bytes = self.bytes.saturating_add(json_bytes(&started.prompt, EVENT));
        self.read.runs.push(TranscriptRun {
            agent: Arc::clone(&started.agent),
            prompt: Arc::clone(&started.prompt),
            labels: started.labels,
            answer: String::new(),
            status: None,
        });
    }

    /// Adds a prompt that joined the run to the run's own.
    fn join(&mut self, message: &Message) {
        self.newest(|run| {
            let parts = run.prompt.parts().iter().chain(message.parts());
            run.prompt = Arc::new(Message::new(run.prompt.role(), parts.cloned().collect()));
        });
    }

    fn reply(&mut self, seq: u64, reply: &ModelFinished) {
        if let Some(request) = &reply.request {
            self.asked.remove(request);
        }
        self.read.steps = self.read.steps.saturating_add(1);
        self.read.usage += (reply.usage + reply.wasted).tokens();
        self.cost = self.cost.zip(reply.cost).map(|(sum, cost)| sum + cost);
        if reply.message.tool_calls().next().is_some() {
            self.asking = Some((seq, Arc::clone(&reply.message)));
            self.open.clear();
        }
    }

    /// Returns the place of a call, a new one for the first event of a call.
    fn place(
        &mut self,
        envelope: &Envelope,
        (id, tool): (&Arc<str>, &Arc<str>),
        (index, key): (usize, Option<EffectKey>),
    ) -> usize {
        let known = self.open.iter().rev().find(|(open, place)| {
            open == id && self.calls.get(*place).is_some_and(|(_, call)| call.tool == *tool)
        });
        if let Some((_, place)) = known {
            return *place;
        }
        let asking = self.asking.as_ref().filter(|_| key.is_none());
        let asked = asking.and_then(|(_, message)| message.tool_calls().find(|call| call.id == *id));
        // As the session of an agent that the call runs is named.
        let (seq, first) = match (key, asking) {
            (Some(key), _) => (self.began, key.ordinal),
            (None, asking) => (asking.map(|(seq, _)| *seq).unwrap_or_default(), 0),
        };
        let index = first.saturating_add(u64::try_from(index).unwrap_or(u64::MAX));
        let place = format!("{}.{seq}$${index}", self.below);
        let call = TranscriptCall {
            run: self.runs.get(&envelope.origin.run).copied().unwrap_or_default(),
            agent: Arc::clone(&envelope.origin.agent),
            place: place.trim_start_matches('.').into(),
            tool: Arc::clone(tool),
            arguments: asked.map(|call| written(call, tool)),
            content: Vec::new(),
            is_error: false,
            is_answered: false,
            stop_turn: false,
            metadata: None,
            labels: Labels::empty(),
            fatal: None,
        };
        self.open.push((Arc::clone(id), self.calls.len()));
        self.calls.push((envelope.at, call));
        self.calls.len().saturating_sub(1)
    }

    fn claim(&mut self, envelope: &Envelope, started: &ToolStarted) {
        let place = self.place(envelope, (&started.call, &started.tool), (started.index, started.key));
        // A call of a hand-written agent has no message, and sometimes its arguments here.
        if let Some((_, call)) = self.calls.get_mut(place)
            && call.arguments.is_none()
        {
            call.arguments.clone_from(&started.edited);
        }
    }

    fn settle(&mut self, envelope: &Envelope, finished: &ToolFinished) {
        let ToolFinished { index, result, key, .. } = finished;
        let place = self.place(envelope, (&result.call, &result.name), (*index, *key));
        self.open.retain(|(_, open)| *open != place);
        let Some((_, call)) = self.calls.get_mut(place) else { return };
        call.content.clone_from(&finished.result.content);
        (call.is_error, call.stop_turn) = (finished.result.is_error, finished.stop_turn);
        let (content, data) = (json_bytes(&call.content, EVENT), json_bytes(&finished.metadata, EVENT));
        self.bytes = self.bytes.saturating_add(content).saturating_add(data);
        (call.labels, call.metadata) = (finished.labels, finished.metadata.clone());
        call.fatal.clone_from(&finished.fatal);
        // The runtime's own errors took no time and have no label: no such tool, wrong arguments, an interrupted call.
        let by_runtime = call.is_error && finished.micros == 0 && finished.labels.is_empty();
        let is_answered = finished.denied || finished.fatal.is_some() || !by_runtime || is_refusal(call);
        call.is_answered = is_answered && !is_marked(call);
    }
}

/// True for a call that a rerun marked.
pub(super) fn is_marked(call: &TranscriptCall) -> bool {
    call.is_error && call.text() == MARKED
}

/// Beginnings of the results of calls that a rule, an approver or a layer refused.
const REFUSALS: [&str; 2] = ["refused by ", "not run: "];

/// Beginnings of results that begin like refusals. The runtime said so itself, and says so again where it is true.
const NO_REFUSALS: [&str; 5] = [
    "not run: you made this very call ",
    "not run: what it touches changed ",
    "not run: the approver gave it other arguments, ",
    "not run: a layer changed its arguments, ",
    "not run: a layer would change ",
];

/// True for a result as a call has that was refused: no event says so of a refusal after which the run went on.
pub(super) fn is_refusal(call: &TranscriptCall) -> bool {
    let text = call.text();
    let begins = |beginnings: &[&str]| beginnings.iter().any(|beginning| text.starts_with(beginning));
    call.is_error && call.labels.is_empty() && begins(&REFUSALS) && !begins(&NO_REFUSALS)
}

/// Returns the arguments that the model gave the tool `tool` by this call, which may be one of a tool that calls
/// deferred ones by `name` and `arguments`.
pub(super) fn written(call: &ToolCall, tool: &str) -> Arguments {
    let inner = || {
        let mut outer = call.arguments.to_value();
        match (outer.get("name")?.as_str()? == tool, outer.get_mut("arguments")?.take()) {
            (true, Value::String(text)) => Arguments::parse(text).ok(),
            (true, inner @ Value::Object(_)) => Some(Arguments::from(&inner)),
            _ => None,
        }
    };
    let inner = if *call.name == *tool { None } else { inner() };
    inner.unwrap_or_else(|| call.arguments.clone())
}
