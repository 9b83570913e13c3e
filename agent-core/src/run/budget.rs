//! What a run may use, with all that it starts: made when it begins, rebuilt from the store when it goes on.
//!
//! Nothing about it is stored but its bounds and what was set aside for each model call: the rest follows from the
//! events of the run's session and of those below it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::{Admission, Env, Journal, StopReason};
use crate::{
    Result, SessionId,
    event::Origin,
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
/// events. Calls that were cut off count as they were reserved.
///
/// # Errors
/// The store's. A session below that cannot be read is an error too: what it used is not known.
pub(super) async fn spent(env: &Env, journal: &Journal, origin: &Origin) -> Result<BudgetState> {
    let mut state = BudgetState::default();
    let run = journal.read(|state| {
        let run = state.run()?;
        Some((state.charged().minus(&run.spent_before), run.seq, run.ran))
    });
    let Some((own, seq, ran)) = run else { return Ok(state) };
    state.elapsed = Duration::from_micros(ran);
    state.add(Arc::clone(&origin.agent), &own);
    let Some(store) = &env.store else { return Ok(state) };
    let infos = store.query(&SessionFilter::tree(origin.session.clone())).await?;
    let tree: HashMap<_, _> = infos.iter().map(|info| (&info.record.id, info)).collect();
    for info in &infos {
        if !is_started_since(&origin.session, seq, &info.record.id) {
            continue;
        }
        if let Some(below) = Journal::find(env, &info.record.id).await? {
            state.add(path(&tree, origin, info).into(), &below.read(|state| state.charged()));
        }
    }
    Ok(state)
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
