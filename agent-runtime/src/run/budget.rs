//! The budget of a run and of all that it starts: opened when the run begins, rebuilt from the store when it resumes.
//!
//! Only its bounds and the reservation of each model call are stored. The rest follows from the events of the run's
//! session and of those below it.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use entourage_core::{
    Result, RunId, SessionId,
    budget::{Budget, BudgetLimits, BudgetState, Exhausted},
    event::{Event, Origin},
    run::StopReason,
    session::{SessionFilter, SessionInfo},
};

use crate::{
    env::Env,
    run::execute::Admission,
    session::journal::{
        Journal,
        since::{Began, since},
    },
};

/// Returns the admission with the runtime's bounds, if it is a root's new task without bounds.
pub(super) fn bounded(mut admission: Admission, env: &Env, is_root: bool) -> Admission {
    if let Admission::Start(task) | Admission::Queued(task, _) = &mut admission
        && is_root
    {
        task.budget = task.budget.or(env.budget);
    }
    admission
}

/// Opens the budget of a run: its own within the one above, or the one above, or none at all.
///
/// `spent` is the spend of the run's earlier lives, which the budget above already contains.
pub(crate) fn open(
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

/// Returns the spend of a session's open run and of all that it started. Each session counts once, from its own events.
/// Calls that were cut off count as reserved. A session with several runs counts from the first one that this run
/// began.
///
/// # Errors
/// The store's. A session below that cannot be read is an error too, since its spend is unknown.
pub(super) async fn spent(
    env: &Env,
    journal: &Journal,
    origin: &Origin,
    recorded: &[Event],
) -> Result<BudgetState> {
    let mut state = BudgetState::default();
    let run = journal.read(|state| {
        let run = state.run()?;
        // An agent that keeps values may have begun runs that its newest checkpoint left out.
        let begun = (!state.kept().is_empty()).then(|| derived(run.id, run.seq, state.head().seq));
        Some((state.charged().minus(&run.spent_before), run.seq, run.ran, begun))
    });
    let Some((own, seq, ran, derived)) = run else { return Ok(state) };
    state.elapsed = Duration::from_micros(ran);
    state.add(Arc::clone(&origin.agent), &own);
    let Some(store) = &env.store else { return Ok(state) };
    let infos = store.query(&SessionFilter::tree(origin.session.clone())).await?;
    let tree: HashMap<_, _> = infos.iter().map(|info| (&info.record.id, info)).collect();
    let mut begun = vec![(&origin.session, seq)];
    let known: Vec<_> = infos.iter().map(|info| &info.record.id).collect();
    for (child, began) in lasting(origin, recorded, derived.as_ref(), &known) {
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

/// Returns the child sessions with several runs, and the runs there that belong to this one.
fn lasting<'a>(
    origin: &Origin,
    recorded: &'a [Event],
    derived: Option<&'a HashSet<RunId>>,
    known: &[&'a SessionId],
) -> Vec<(&'a SessionId, Began<'a>)> {
    // The oldest of the derived runs may be one that is not in `recorded`.
    let is_derived = |run: &RunId| derived.is_some_and(|derived| derived.contains(run));
    let named = followed(recorded).into_iter().filter(|(_, first)| !is_derived(first));
    let mut found: Vec<_> = named.map(|(child, first)| (child, Began::Run(first))).collect();
    let in_role = |id: &SessionId| id.role().is_some_and(|(above, _)| above == origin.session.as_str());
    if let Some(derived) = derived {
        let roles = known.iter().copied().filter(|id| in_role(id));
        let others: Vec<_> = roles.filter(|id| !found.iter().any(|(named, _)| named == id)).collect();
        found.extend(others.into_iter().map(|child| (child, Began::AnyOf(derived))));
    }
    found
}

/// Returns the child sessions with several runs that an agent's record names, each with the first of them.
fn followed(recorded: &[Event]) -> Vec<(&SessionId, RunId)> {
    let (mut found, mut known) = (Vec::new(), HashSet::new());
    for event in recorded {
        let begun = match event {
            Event::ChildStarted(started) => Some((&started.child, started.run)),
            Event::Recorded(value) => value.child(),
            _ => None,
        };
        if let Some((child, Some(run))) = begun
            && known.insert(child)
        {
            found.push((child, run));
        }
    }
    found
}

/// Returns the ids of all runs that a run began or may begin by its events until `newest`.
fn derived(run: RunId, seq: u64, newest: u64) -> HashSet<RunId> {
    (seq..=newest).map(|seq| run.started_at(seq)).collect()
}

/// True when `below` was started by `session`, with an event from `seq` on, or by a session that was.
fn is_started_since(session: &SessionId, seq: u64, below: &SessionId) -> bool {
    let rest = below.as_str().strip_prefix(session.as_str()).and_then(|rest| rest.strip_prefix('.'));
    let first = rest.and_then(|rest| rest.split_once("$$")).and_then(|(first, _)| first.parse::<u64>().ok());
    first.is_some_and(|first| first >= seq)
}

/// Returns the agents from the root down to the one of `below`, joined by `/`.
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

/// Returns the time that the run has left; `None` without a bound.
pub(super) fn time_left(budget: Option<&Budget>) -> Option<Duration> {
    budget?.remaining().time
}

/// Returns the reason that a late run stops: its budget's time is over, or its deadline passed.
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
