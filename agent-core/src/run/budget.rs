//! What a run may use, with all that it starts: made when it begins, rebuilt from the store when it goes on.
//!
//! Nothing about it is stored but its bounds and what was set aside for each model call: the rest follows from the
//! events of the run's session and of those below it.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use super::{
    Admission, Env, Journal, StopReason,
    since::{Began, since},
};
use crate::{
    Result, RunId, SessionId,
    event::{Event, Origin},
    layers::{Budget, BudgetLimits, BudgetState, Exhausted},
    session::{SessionFilter, SessionInfo},
};

/// The admission of a run, with the runtime's bounds where a root's task has none.
pub(super) fn bounded(mut admission: Admission, env: &Env, is_root: bool) -> Admission {
    if let Admission::Start(task) | Admission::Queued(task, _) = &mut admission
        && is_root
    {
        task.budget = task.budget.or(env.budget);
    }
    admission
}

/// The budget of a run: its own within the one above, or the one above, or none at all.
///
/// `spent` is what the run used in earlier lives. The budget above has that already.
pub(super) fn open(
    limits: Option<BudgetLimits>,
    mut spent: BudgetState,
    above: Option<Budget>,
    agent: &Arc<str>,
) -> Option<Budget> {
    let budget = match (limits, above) {
        (None, above) => above,
        (Some(limits), above) => {
            spent.limits = limits;
            Some(match above {
                Some(above) => above.restore_child(spent),
                None => Budget::restore(spent),
            })
        }
    };
    budget.map(|budget| budget.labelled(Arc::clone(agent)))
}

/// What the open run of a session, and all that it started, used up to now: each session counted once, from its own
/// events. Calls that were cut off count as they were reserved. A session that has one run after the other counts from the
/// first one that this run began.
///
/// # Errors
/// The store's. A session below that cannot be read is an error too: what it used is not known.
pub(super) async fn spent(
    env: &Env,
    journal: &Journal,
    origin: &Origin,
    recorded: &[Event],
) -> Result<BudgetState> {
    let mut state = BudgetState::default();
    let run = journal.read(|state| {
        let run = state.run()?;
        let phases = state.progress().map(|_| phases(run.id, run.seq, state.head().seq));
        Some((state.charged().minus(&run.spent_before), run.seq, run.ran, phases))
    });
    let Some((own, seq, ran, phases)) = run else { return Ok(state) };
    state.elapsed = Duration::from_micros(ran);
    state.add(Arc::clone(&origin.agent), &own);
    let Some(store) = &env.store else { return Ok(state) };
    let infos = store.query(&SessionFilter::tree(origin.session.clone())).await?;
    let tree: HashMap<_, _> = infos.iter().map(|info| (&info.record.id, info)).collect();
    let mut begun = vec![(&origin.session, seq)];
    let known: Vec<_> = infos.iter().map(|info| &info.record.id).collect();
    for (child, began) in lasting(origin, recorded, phases.as_ref(), &known) {
        let Some(info) = tree.get(child) else { continue };
        if let Some((spent, seq)) = since(store, child, info.head.seq, began).await? {
            state.add(path(&tree, origin, info).into(), &spent);
            begun.push((child, seq));
        }
    }
    for info in &infos {
        if !begun.iter().any(|(above, seq)| is_started_since(above, *seq, &info.record.id)) {
            continue;
        }
        if let Some(below) = Journal::find(env, &info.record.id).await? {
            state.add(path(&tree, origin, info).into(), &below.read(|state| state.charged()));
        }
    }
    Ok(state)
}

/// The sessions below in which one run follows another, and the runs there that belong to this one.
fn lasting<'a>(
    origin: &Origin,
    recorded: &'a [Event],
    phases: Option<&'a HashSet<RunId>>,
    known: &[&'a SessionId],
) -> Vec<(&'a SessionId, Began<'a>)> {
    let mut found: Vec<_> =
        followed(recorded).into_iter().map(|(child, first)| (child, Began::Run(first))).collect();
    let in_role = |id: &SessionId| id.role().is_some_and(|(above, _)| above == origin.session.as_str());
    if let Some(phases) = phases {
        let roles = known.iter().filter(|id| in_role(id));
        found.extend(roles.map(|child| (*child, Began::AnyOf(phases))));
    }
    found
}

/// The sessions below in which an agent written by hand had one run after the other, each with the first of them.
fn followed(recorded: &[Event]) -> Vec<(&SessionId, RunId)> {
    let (mut found, mut known) = (Vec::new(), HashSet::new());
    for event in recorded {
        if let Event::ChildStarted(started) = event
            && let Some(run) = started.run
            && known.insert(&started.child)
        {
            found.push((&started.child, run));
        }
    }
    found
}

/// The ids of all phases that a run began or may begin until event `newest` of its session.
fn phases(run: RunId, seq: u64, newest: u64) -> HashSet<RunId> {
    (seq..=newest).map(|seq| run.started_at(seq)).collect()
}

/// Whether `below` was started by `session`, by an event from `seq` on, or by something that was.
fn is_started_since(session: &SessionId, seq: u64, below: &SessionId) -> bool {
    let rest = below.as_str().strip_prefix(session.as_str()).and_then(|rest| rest.strip_prefix('.'));
    let first = rest.and_then(|rest| rest.split_once("$$")).and_then(|(first, _)| first.parse::<u64>().ok());
    first.is_some_and(|first| first >= seq)
}

/// The agents from the root down to the one of `below`.
fn path(tree: &HashMap<&SessionId, &SessionInfo>, origin: &Origin, below: &SessionInfo) -> String {
    let above = |info: &&SessionInfo| {
        let parent = info.record.parent.as_ref().filter(|parent| **parent != origin.session)?;
        tree.get(parent).copied()
    };
    let mut names: Vec<&str> =
        std::iter::successors(Some(below), above).map(|info| &*info.head.agent).collect();
    names.push(&origin.agent);
    names.reverse();
    names.join("/")
}

/// How long the run may still go on.
pub(super) fn time_left(budget: Option<&Budget>) -> Option<Duration> {
    budget?.remaining().time
}

/// Why a run that was late ends: its budget's time is over, or its deadline passed.
pub(super) fn late(budget: Option<&Budget>) -> StopReason {
    let remaining = budget.map(Budget::remaining).unwrap_or_default();
    if remaining.time.is_some_and(|left| left.is_zero()) {
        return Exhausted::new("time", remaining).into();
    }
    StopReason::Deadline
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn design_7_a_run_pays_for_what_it_started_and_for_nothing_else() {
        let id = |text: &str| SessionId::new(text).unwrap();
        for (session, seq, below, counts) in [
            ("work", 5, "work.5$$0", true),
            ("work", 5, "work.9$$3.1$$0", true),
            ("work", 5, "work.4$$0", false),
            ("work", 5, "work.4$$0.9$$0", false),
            ("work", 5, "work", false),
            ("work", 5, "work.other", false),
            ("work", 5, "work2.7$$0", false),
            ("a.b$$1", 2, "a.b$$1.2$$0", true),
            ("a.b$$1", 2, "a.b$$1.1$$0", false),
            // A title is made beside the runs.
            ("work", 1, "work.0$$0", false),
        ] {
            assert_eq!(is_started_since(&id(session), seq, &id(below)), counts, "{below}");
        }
    }
}
