//! DESIGN section 7: what the phases of a task spent counts in every life of its run, and what earlier runs in the same
//! sessions spent does not.

use entourage_core::{
    agent::DualAgent,
    layers::BudgetLimits,
    run::{Outcome, Status, StopReason, Task},
    session::SharedStore,
    testkit::ScriptedProvider,
};

use crate::{
    common::{Fault, FaultyStore, memory, process, runtime_on, until_killed},
    pair::{done, pair, session},
};

/// Two tasks: the first is accepted at once, the second would need two rounds.
fn fresh() -> (DualAgent, [ScriptedProvider; 2]) {
    let works = ScriptedProvider::by_history()
        .text("I wrote it.")
        .text("Summary one.")
        .text("I wrote more.")
        .text("Summary two.")
        .text("I tested it.")
        .text("Summary three.");
    let checks = ScriptedProvider::by_history()
        .text("never")
        .call("task_complete", done("I saw it."))
        .text("never")
        .text("Test it.")
        .call("task_complete", done("It is tested."));
    (pair(&works, &checks), [works, checks])
}

fn calls(providers: &[ScriptedProvider; 2]) -> usize {
    providers.iter().map(ScriptedProvider::count).sum()
}

const CALLS: usize = 3;

async fn second_task(store: &SharedStore, agent: &DualAgent) -> Outcome {
    let task = Task::new("Write more.").within(BudgetLimits::none().with_model_calls(CALLS as u64));
    session(&runtime_on(store)).start(agent, task).outcome().await.unwrap()
}

/// What the second process makes of it.
async fn resumed(store: &SharedStore, agent: &DualAgent) -> Option<Outcome> {
    let work = session(&runtime_on(store));
    match work.unfinished().await.unwrap() {
        Some(_) => Some(work.resume(agent).outcome().await.unwrap()),
        None => None,
    }
}

#[test]
fn design_7_a_budget_of_phases_holds_over_a_death_at_every_append() {
    let mut deaths = 0;
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        for at in 0.. {
            let inner = memory();
            let (agent, _) = fresh();
            let first =
                process(async { session(&runtime_on(&inner)).start(&agent, "Write it.").outcome().await });
            assert!(first.unwrap().is_completed());

            let faulty = FaultyStore::new(&inner, at, fault);
            let killed = faulty.killed.clone();
            let (agent, providers) = fresh();
            let lived = process(until_killed(second_task(&(faulty as SharedStore), &agent), &killed));
            let (again, others) = fresh();
            let survived = lived.is_some();
            let ended = lived.or_else(|| process(resumed(&inner, &again)));
            let label = format!("{fault:?} at append {at}");
            let made = calls(&providers) + calls(&others);
            assert!(made <= CALLS, "{label}: {made} calls");
            if let Some(outcome) = ended {
                let Status::Stopped(StopReason::Budget(exhausted)) = &outcome.status else {
                    panic!("{label}: {outcome}")
                };
                assert_eq!(&*exhausted.bound, "model_calls", "{label}");
                // A call that a death cut off counts as it was reserved, whether the service was asked or not.
                assert!(made >= CALLS - 1, "{label}: {made} calls");
            }
            if survived {
                break;
            }
            deaths += 1;
        }
    }
    assert!(deaths >= 20, "{deaths}");
}
