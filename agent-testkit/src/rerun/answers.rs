//! The answers that a rerun takes from the record of its original, and the layer that gives them to calls of tools.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, bound,
    message::Arguments,
    run::RunContext,
    tool::{
        Access, CallId, Footprint, LayerVerdict, NextCall, Repeat, ToolError, ToolLayer, ToolOutput, ToolSpec,
    },
};
use entourage_runners::TodoTool;
use serde_json::Value;

use super::{
    exact::canonical,
    read::{is_marked, is_refusal, written},
    transcript::{Transcript, TranscriptCall},
};

/// Most calls that a case names as its own.
const NAMED: usize = 1_000;

/// The result of a call that was marked.
pub(super) const MARKED: &str = "not performed: this is a rerun of a recorded session, in which there was no such \
    call, or it was answered already. Go on with what you know.";

/// The fate of a call of a tool that the original of a rerun did not make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Unmatched {
    /// It is not performed: the model gets an error result that says so, and the case counts it. Nothing that a tool
    /// does to the outside happens in such a rerun.
    #[default]
    Mark,
    /// It is performed, under the rules of the runtime.
    Perform,
}

/// A call that a rerun made and its original did not, or the other way around.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangedCall {
    /// Name of the tool.
    pub tool: String,
    /// Its arguments as JSON, cut at 16 KiB.
    pub arguments: String,
    /// True if it was performed; false if it was marked, refused, or left out.
    pub performed: bool,
}

impl ChangedCall {
    fn new(tool: &str, arguments: &str, performed: bool) -> Self {
        let arguments = bound::shortened(arguments, bound::TEXT).into_owned();
        Self { tool: tool.to_owned(), arguments, performed }
    }
}

impl fmt::Display for ChangedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.tool, self.arguments)
    }
}

/// What became of the calls of one rerun.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub(super) answered: u64,
    pub(super) marked: u64,
    pub(super) performed: u64,
    /// Calls that the rerun's runtime answered, and the original's had not; counted at the end.
    pub(super) refused: u64,
    /// Answers of the record that no call took; counted at the end.
    pub(super) left: u64,
    pub(super) missing: Vec<ChangedCall>,
    pub(super) changed: Vec<ChangedCall>,
}

impl Tally {
    /// Names a call that is new.
    fn name(&mut self, tool: &str, arguments: &str, performed: bool) {
        if self.changed.len() < NAMED {
            self.changed.push(ChangedCall::new(tool, arguments, performed));
        }
    }
}

/// The answers of one original. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Answers {
    unmatched: Unmatched,
    /// Names of tools that always run.
    running: Arc<[String]>,
    calls: Arc<[TranscriptCall]>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Unused answers by tool and arguments.
    unused: HashMap<(String, String), Unused>,
    /// Places of the calls whose answers were promised.
    answered: HashSet<Arc<str>>,
    /// The answer that each call of the rerun was promised; `None` for a call that has none.
    promised: HashMap<CallId, Option<usize>>,
    /// Calls of the rerun that were answered here, marked, or performed.
    reached: HashSet<CallId>,
    /// Answers that a call took.
    taken: HashSet<usize>,
    /// Names of tools that the rerun called, and that do not run by themselves.
    met: HashSet<String>,
    tally: Tally,
}

/// Answers to equal calls, oldest first.
#[derive(Debug, Default)]
struct Unused {
    open: VecDeque<usize>,
    /// Those of calls of agents below, where the call that ran the agent was answered.
    spare: VecDeque<usize>,
}

impl Unused {
    /// Takes the oldest answer, one that no other answer stands for if there is one.
    fn next(&mut self, calls: &[TranscriptCall], answered: &HashSet<Arc<str>>) -> Option<usize> {
        while let Some(place) = self.open.pop_front() {
            if calls.get(place).is_some_and(|call| is_below(answered, &call.place)) {
                self.spare.push_back(place);
            } else {
                return Some(place);
            }
        }
        self.spare.pop_front()
    }
}

/// The tool and the arguments of a call, as they are compared.
fn key(call: &TranscriptCall, arguments: &Arguments) -> (String, String) {
    (call.tool.to_string(), canonical(arguments.as_str()))
}

impl Answers {
    pub(super) fn new(calls: &[TranscriptCall], unmatched: Unmatched, running: Arc<[String]>) -> Self {
        let mut state = State::default();
        let answers = Self { unmatched, running, calls: calls.into(), state: Arc::default() };
        for (place, call, arguments) in answers.recorded() {
            state.unused.entry(key(call, arguments)).or_default().open.push_back(place);
        }
        Self { state: Arc::new(Mutex::new(state)), ..answers }
    }

    /// The calls of the record that can answer one.
    fn recorded(&self) -> impl Iterator<Item = (usize, &TranscriptCall, &Arguments)> {
        let counts = |call: &TranscriptCall| call.is_answered && !self.runs_by_name(&call.tool);
        let calls = self.calls.iter().enumerate().filter(move |(_, call)| counts(call));
        calls.filter_map(|(place, call)| Some((place, call, call.arguments.as_ref()?)))
    }

    /// Returns the figures of a rerun that is over.
    pub(super) fn tally(&self, rerun: &Transcript) -> Tally {
        let state = self.lock();
        // The record has no specs: a call of such a name was one of the run's own, unless the rerun met another tool.
        let counts = |call: &TranscriptCall| state.met.contains(&*call.tool) || !is_like_the_runs_own(call);
        let taken = self.calls.iter().enumerate().filter(|(place, _)| state.taken.contains(place));
        let answered: HashSet<_> = taken.map(|(_, call)| Arc::clone(&call.place)).collect();
        let reached: HashSet<_> =
            state.reached.iter().filter_map(|id| place_of(id, &rerun.session)).collect();
        // No answer was asked for: the rerun's own runtime refused them, or answered them itself.
        let by_runtime = |call: &&TranscriptCall| !reached.contains(&*call.place) && !is_marked(call);
        let by_runtime: Vec<_> = rerun.calls.iter().filter(by_runtime).collect();

        let mut again = counted(by_runtime.iter().copied());
        let left = self.recorded().filter(|(place, call, _)| {
            // The answer of an agent stands for its own calls.
            let is_left = !state.taken.contains(place) && counts(call) && !is_below(&answered, &call.place);
            is_left && !(is_refusal(call) && takes_one(&mut again, &way(call)))
        });
        let mut tally = state.tally.clone();
        for (_, call, arguments) in left {
            tally.left = tally.left.saturating_add(1);
            if tally.missing.len() < NAMED {
                tally.missing.push(ChangedCall::new(&call.tool, arguments.as_str(), false));
            }
        }
        let untaken = self.calls.iter().enumerate().filter(|(place, _)| !state.taken.contains(place));
        let by_both = |call: &&TranscriptCall| is_refusal(call) || !call.is_answered && !is_marked(call);
        let mut before = counted(untaken.map(|(_, call)| call).filter(by_both));
        for call in by_runtime.into_iter().filter(|call| counts(call) && !self.runs_by_name(&call.tool)) {
            if !takes_one(&mut before, &way(call)) {
                tally.refused = tally.refused.saturating_add(1);
                tally.name(&call.tool, call.arguments.as_ref().map_or("", Arguments::as_str), false);
            }
        }
        tally
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True for a tool that runs in every rerun.
    fn runs(&self, spec: &ToolSpec) -> bool {
        // Known by its declaration: a user's tool may have any name.
        spec.is_of_run() || self.runs_by_name(spec.name())
    }

    fn runs_by_name(&self, tool: &str) -> bool {
        self.running.iter().any(|name| name == tool)
    }

    /// Notes that the call got past the runtime's own checks and rules.
    fn reach(&self, id: &CallId) {
        self.lock().reached.insert(id.clone());
    }

    /// Promises the call the oldest unused answer to its arguments, and the same one each time that it is asked for.
    /// Returns true if there is one.
    fn promise(&self, id: &CallId, tool: &str, arguments: &str) -> bool {
        let mut state = self.lock();
        if let Some(promised) = state.promised.get(id) {
            return promised.is_some();
        }
        state.met.insert(tool.to_owned());
        let key = (tool.to_owned(), canonical(arguments));
        let State { unused, answered, .. } = &mut *state;
        let found = unused.get_mut(&key).and_then(|unused| unused.next(&self.calls, answered));
        let place = found.and_then(|found| self.calls.get(found)).map(|call| Arc::clone(&call.place));
        state.answered.extend(place.filter(|place| !place.is_empty()));
        state.promised.insert(id.clone(), found);
        found.is_some()
    }

    /// Returns the answer that the call was promised.
    fn take(&self, id: &CallId) -> Option<&TranscriptCall> {
        let mut state = self.lock();
        let place = state.promised.get(id).copied().flatten()?;
        state.tally.answered = state.tally.answered.saturating_add(1);
        state.taken.insert(place);
        self.calls.get(place)
    }

    /// Counts a call without an answer.
    fn changed(&self, tool: &str, arguments: &str, performed: bool) {
        let mut state = self.lock();
        let tally = &mut state.tally;
        let count = if performed { &mut tally.performed } else { &mut tally.marked };
        *count = count.saturating_add(1);
        tally.name(tool, arguments, performed);
    }

    /// Returns the result of a call that was handed out; `None` for one that waits for somebody to perform it.
    pub(super) fn handed_out(
        &self,
        id: &CallId,
        tool: &str,
        arguments: &str,
    ) -> Option<Result<ToolOutput, ToolError>> {
        match self.take(id) {
            Some(call) => {
                self.reach(id);
                Some(output(call))
            }
            None if self.unmatched == Unmatched::Mark => {
                self.reach(id);
                self.changed(tool, arguments, false);
                Some(Ok(ToolOutput::error(MARKED)))
            }
            None => None,
        }
    }
}

fn output(call: &TranscriptCall) -> Result<ToolOutput, ToolError> {
    if let Some(fatal) = &call.fatal {
        return Err(ToolError::Fatal(fatal.to_error()));
    }
    let mut output = ToolOutput::default();
    output.content.clone_from(&call.content);
    (output.is_error, output.stop_turn) = (call.is_error, call.stop_turn);
    (output.labels, output.metadata) = (call.labels, call.metadata.clone());
    Ok(output)
}

/// Names of the tools that declare that they work on the record of their own run, and of the answer of a typed agent.
const OF_THE_RUN: [&str; 5] = [TodoTool::NAME, "final_answer", "reply", "send_message", "task_complete"];

/// End of the name of the tool that finds deferred ones, before which a prefix may stand.
const FINDS: &str = "find_tools";

/// True for a call of the record as one of the run's own tools makes it: those touch nothing, so it has no labels.
fn is_like_the_runs_own(call: &TranscriptCall) -> bool {
    (OF_THE_RUN.contains(&&*call.tool) || call.tool.ends_with(FINDS)) && call.labels.is_empty()
}

/// A call without an answer of the record, as it is compared: its tool and arguments, and true if it was refused. All
/// other ways in which a runtime answers a call itself are one.
type Way = (String, String, bool);

fn way(call: &TranscriptCall) -> Way {
    let arguments = call.arguments.as_ref().map(|arguments| canonical(arguments.as_str()));
    (call.tool.to_string(), arguments.unwrap_or_default(), is_refusal(call))
}

fn counted<'a>(calls: impl Iterator<Item = &'a TranscriptCall>) -> HashMap<Way, usize> {
    let mut counted = HashMap::new();
    calls.for_each(|call| *counted.entry(way(call)).or_default() += 1);
    counted
}

/// Returns the place of a call of this session, or of one below it, as its transcript has it.
fn place_of<'a>(id: &'a CallId, session: &str) -> Option<&'a str> {
    let (below, _) = id.as_str().strip_prefix(session)?.rsplit_once('-')?;
    Some(below.trim_start_matches('.'))
}

/// Takes one from a count; false if it is 0.
fn takes_one(counts: &mut HashMap<Way, usize>, way: &Way) -> bool {
    let left = counts.get_mut(way).and_then(|count| Some((count.checked_sub(1)?, count)));
    left.map(|(less, count)| *count = less).is_some()
}

/// True for the place of a call that an agent made which one of these calls ran, itself or through agents between.
fn is_below(calls: &HashSet<Arc<str>>, place: &str) -> bool {
    place
        .match_indices(['.', '$'])
        .any(|(end, _)| place.get(..end).is_some_and(|above| calls.contains(above)))
}

/// True for a tool that does nothing but run an agent, whose own calls come here too.
fn is_agent(spec: &ToolSpec) -> bool {
    spec.access() == Access::DELEGATE && spec.repeat() == Repeat::Resume
}

/// True for a call that says of itself that it touches no more than `access`, whatever its tool declares.
fn is_within(access: Access, call: &Footprint) -> bool {
    access.contains(call.access) && call.subjects().next().is_none() && !call.unclear
}

/// Answers the calls of a rerun from the record of its original, which the run has as a value of its own.
#[derive(Debug)]
pub(super) struct FromRecord;

#[async_trait]
impl ToolLayer for FromRecord {
    async fn before(&self, spec: &ToolSpec, arguments: &mut Value, cx: &RunContext) -> Result<LayerVerdict> {
        let answers = cx.deps::<Answers>()?;
        if answers.runs(spec) {
            return Ok(LayerVerdict::Pass);
        }
        let id = cx.call().ok_or_else(|| Error::new(ErrorKind::Internal, "a call has no id"))?;
        let nothing_happens = answers.promise(&id, spec.name(), &as_written(cx, &id, spec.name(), arguments))
            || answers.unmatched == Unmatched::Mark && !is_agent(spec);
        Ok(match nothing_happens {
            true => LayerVerdict::Allow("a rerun answers it, and performs nothing".to_owned()),
            false => LayerVerdict::Pass,
        })
    }

    async fn around(&self, next: NextCall<'_>) -> Result<ToolOutput, ToolError> {
        let answers = next.context().deps::<Answers>()?;
        let (spec, footprint) = (next.spec(), next.context().footprint());
        if let Some(id) = next.context().run().call() {
            answers.reach(&id);
        }
        if answers.runs_by_name(spec.name()) || spec.is_of_run() && is_within(Access::NONE, footprint) {
            return next.run().await;
        }
        let promised = next.context().run().call().and_then(|id| answers.take(&id).map(output));
        if let Some(output) = promised {
            return output;
        }
        let runs_agent = is_agent(spec) && is_within(Access::DELEGATE, footprint);
        let performs = answers.unmatched == Unmatched::Perform || runs_agent;
        let (cx, tool) = (next.context().run(), spec.name());
        let arguments = match cx.call() {
            Some(id) => as_written(cx, &id, tool, next.arguments()),
            None => next.arguments().to_string(),
        };
        answers.changed(tool, &arguments, performs);
        if performs { next.run().await } else { Ok(ToolOutput::error(MARKED)) }
    }
}

/// Returns the arguments of a call as its model wrote them: a parsed number has lost the digits that no float holds.
/// Those of a call that no model made, or that others changed, as they are.
fn as_written(cx: &RunContext, id: &CallId, tool: &str, arguments: &Value) -> String {
    let parsed = arguments.to_string();
    // The id ends with the call's place in its message and the run.
    let place = id.as_str().rsplit_once("$$").and_then(|(_, end)| end.split_once('-')?.0.parse().ok());
    let asked = place.and_then(|place: usize| {
        let history = cx.history();
        let newest = (0..history.len()).rev().filter_map(|index| history.get(index));
        let message = newest.into_iter().find(|message| message.tool_calls().next().is_some())?;
        message.tool_calls().nth(place).map(|call| written(call, tool))
    });
    asked
        .filter(|asked| canonical(&asked.to_value().to_string()) == canonical(&parsed))
        .map_or(parsed, |asked| asked.as_str().to_owned())
}
