//! What must hold of a session whose workers were killed, judged by what they left.

use std::collections::{BTreeMap, BTreeSet};

use entourage::{event::Event, message::Role, session::SessionState};

use crate::{
    process::{Ended, Left},
    worker::{UNKNOWN, completes},
};

/// Tools that must not run twice.
const ONCE: [&str; 2] = ["pay", "tip"];

/// Faults found. All zero, or the library lost something.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Faults {
    /// Starts of what was completed for good before a kill.
    pub(crate) repeats: usize,
    /// Events that were shown or stored before a kill and are not in the log afterwards as they were.
    pub(crate) lost: usize,
}

/// Compares what was there when a worker was killed with what is there later.
pub(crate) fn compare(killed: &Ended, then: &Left, later: &Left) -> Faults {
    let missing = then.rows.iter().enumerate().filter(|(at, row)| later.rows.get(*at) != Some(row)).count();
    let unstored = killed.shown().filter(|(seq, kind)| {
        let row = usize::try_from(*seq).ok().and_then(|seq| then.rows.get(seq.checked_sub(1)?));
        row.is_none_or(|(columns, _)| columns.kind != *kind)
    });
    let completed = completed(then);
    assert_eq!(later.log.get(..then.log.len()), Some(&then.log[..]), "the side log itself was changed");
    let since = &later.log[then.log.len()..];
    let repeated = since.iter().filter(|line| completed.iter().any(|done| line.starts_with(done)));
    Faults { repeats: repeated.count(), lost: missing + unstored.count() }
}

fn completed(left: &Left) -> BTreeSet<String> {
    let mut message = 0;
    let mut completed = BTreeSet::new();
    for envelope in &left.events {
        if matches!(envelope.event, Event::ModelFinished(_)) {
            message = envelope.seq;
        }
        completed.extend(completes(&envelope.event, message));
    }
    completed
}

/// Judges a log that is complete.
pub(crate) fn judge(left: &Left) {
    numbers(left);
    let count = |kind: &str| left.events.iter().filter(|it| it.event.kind() == kind).count();
    assert_eq!((count("run_started"), count("run_finished")), (1, 1));
    assert_eq!(left.events.last().unwrap().event.kind(), "run_finished");
    resumes(left);
    once(left);
    idempotent(left);
    conversation(left);
}

fn numbers(left: &Left) {
    let numbers: Vec<_> = left.events.iter().map(|it| it.seq).collect();
    assert_eq!(numbers, (1..=left.events.len() as u64).collect::<Vec<_>>());
    let runs: BTreeSet<_> = left.events.iter().map(|it| it.origin.run.to_string()).collect();
    assert_eq!(runs.len(), 1, "a resumed run keeps its id");
}

fn resumes(left: &Left) {
    let counts: Vec<_> = left
        .events
        .iter()
        .filter_map(|it| if let Event::RunResumed(resumed) = &it.event { Some(resumed.count) } else { None })
        .collect();
    assert!(counts.iter().copied().eq(1..=u32::try_from(counts.len()).unwrap()), "{counts:?}");
}

/// Each tool of the kind ran at most once, and where nobody knows whether it did, the model was told so.
fn once(left: &Left) {
    let mut unknown = 0;
    for tool in ONCE {
        let starts = left.log.iter().filter(|line| line.ends_with(&format!(" {tool}"))).collect::<Vec<_>>();
        let did = |what: &str| starts.iter().filter(|line| line.starts_with(what)).count();
        assert!(did("start tool") <= 1 && did("effect") <= 1, "{tool} ran twice: {starts:?}");
        let results: Vec<_> = left
            .events
            .iter()
            .filter_map(|it| match &it.event {
                Event::ToolFinished(call) if *call.result.name == *tool => Some(&call.result),
                _ => None,
            })
            .collect();
        let [result] = &results[..] else { panic!("{tool} has {} results", results.len()) };
        if result.is_error {
            assert!(result.to_text().contains(UNKNOWN), "{tool}: {}", result.to_text());
            unknown += 1;
        } else {
            assert_eq!(did("end tool"), 1, "{tool} has a result that nobody made");
        }
    }
    let told = left.log.iter().rfind(|line| line.starts_with("start model")).unwrap();
    assert!(told.ends_with(&format!("told {unknown}")), "{told}, and {unknown} calls are unknown");
}

/// A call that runs again does so under the same key.
fn idempotent(left: &Left) {
    let starts = left.log.iter().filter_map(|line| line.strip_prefix("start tool ")?.split_once(' '));
    let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (key, name) in starts {
        names.entry(name).or_default().insert(key);
    }
    for (name, keys) in names {
        // The script calls `look` in two steps.
        assert!(keys.len() <= if name == "look" { 2 } else { 1 }, "{name} ran as {keys:?}");
    }
}

/// One reply for each step and one result for each call, in order.
fn conversation(left: &Left) {
    let mut state = SessionState::default();
    left.events.iter().for_each(|envelope| state.apply(envelope));
    let messages: Vec<_> = state.history().iter().collect();
    let roles: Vec<_> = messages.iter().map(|message| message.role()).collect();
    let (user, assistant, tool) = (Role::User, Role::Assistant, Role::Tool);
    assert_eq!(roles, [user, assistant, tool, assistant, tool, assistant, tool, assistant, tool, assistant]);
    for pair in messages.windows(2) {
        let calls: Vec<_> = pair[0].tool_calls().map(|call| &call.name).collect();
        let results: Vec<_> = pair[1].tool_results().map(|result| &result.name).collect();
        assert_eq!(calls, results);
    }
}
