//! Budgets of phases: what the phases of a task spent counts in every life of its run, and what earlier runs in the
//! same sessions spent does not.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use entourage_core::{
    Result, SessionId,
    budget::BudgetLimits,
    provider::FinishReason,
    run::{Outcome, Status, StopReason, Task},
    session::{Batch, Lease, ReadRange, Row, SessionFilter, SessionInfo, SessionStore, SharedStore},
};
use entourage_runners::DualAgent;
use entourage_runtime::Runtime;
use entourage_runtime::permission::Policy;
use entourage_testkit::{self as testkit, Gate, Script, ScriptedProvider};

use crate::{
    common::{Fault, FaultyStore, memory, process, until_killed},
    pair::{done, pair, session},
};

/// Creates a pair for two tasks: the first is accepted at once, the second would need two rounds.
fn fresh() -> (DualAgent, [ScriptedProvider; 2]) {
    let works = ScriptedProvider::by_history()
        .text("I wrote it.")
        .text("Summary one.")
        .text("I wrote more.")
        .text("Summary two.")
        .text("I tested it.")
        .text("Summary three.");
    let checks = ScriptedProvider::by_history()
        .call("task_complete", done("I saw it."))
        .text("Test it.")
        .call("task_complete", done("It is tested."));
    (pair(&works, &checks), [works, checks])
}

fn calls(providers: &[ScriptedProvider; 2]) -> usize {
    providers.iter().map(ScriptedProvider::count).sum()
}

const CALLS: usize = 3;

fn runtime(store: &SharedStore, checkpoint_every: u64) -> Runtime {
    let builder = testkit::runtime().policy(Policy::allow_all()).shared_store(Arc::clone(store));
    builder.checkpoint_every(checkpoint_every).build()
}

async fn second_task(store: &SharedStore, agent: &DualAgent, every: u64) -> Outcome {
    let task = Task::new("Write more.").with_budget(BudgetLimits::none().with_model_calls(CALLS as u64));
    session(&runtime(store, every)).start(agent, task).outcome().await.unwrap()
}

/// Resumes the task in a second process; `None` when nothing is unfinished.
async fn resumed(store: &SharedStore, agent: &DualAgent, every: u64) -> Option<Outcome> {
    let work = session(&runtime(store, every));
    match work.unfinished().await.unwrap() {
        Some(_) => Some(work.resume(agent).outcome().await.unwrap()),
        None => None,
    }
}

#[test]
fn design_7_a_budget_of_phases_holds_over_a_death_at_every_append() {
    // Phases before a checkpoint count, too.
    for every in [512, 1] {
        holds_over_a_death_at_every_append(every);
    }
}

fn holds_over_a_death_at_every_append(every: u64) {
    let mut deaths = 0;
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        for at in 0.. {
            let inner = memory();
            let (agent, _) = fresh();
            let first = process(async {
                session(&runtime(&inner, every)).start(&agent, "Write it.").outcome().await
            });
            assert!(first.unwrap().is_completed());

            let faulty = FaultyStore::new(&inner, at, fault);
            let killed = faulty.killed.clone();
            let (agent, providers) = fresh();
            let lived = process(until_killed(second_task(&(faulty as SharedStore), &agent, every), &killed));
            let (again, others) = fresh();
            let survived = lived.is_some();
            let ended = lived.or_else(|| process(resumed(&inner, &again, every)));
            let label = format!("{fault:?} at append {at}, checkpoints every {every}");
            let made = calls(&providers) + calls(&others);
            assert!(made <= CALLS, "{label}: {made} calls");
            if let Some(outcome) = ended {
                let Status::Stopped(StopReason::Budget(exhausted)) = &outcome.status else {
                    panic!("{label}: {outcome}")
                };
                assert_eq!(&*exhausted.bound, "model_calls", "{label}");
                // A call cut off by a crash counts with its reservation, whether or not the service was called.
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

/// Counts the rows that it returns.
#[derive(Debug)]
struct CountingStore(SharedStore, AtomicUsize);

#[async_trait]
impl SessionStore for CountingStore {
    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        self.0.append(session, expected, batch).await
    }

    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        let rows = self.0.read(session, range).await?;
        self.1.fetch_add(rows.len(), Ordering::SeqCst);
        Ok(rows)
    }

    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        self.0.query(filter).await
    }

    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()> {
        self.0.lease(session, lease).await
    }

    async fn delete(&self, session: &SessionId) -> Result<u64> {
        self.0.delete(session).await
    }
}

/// Creates a pair that accepts `tasks` tasks at once, and whose executor waits at the gate in the next one.
fn lasting(tasks: usize, gate: &Gate) -> DualAgent {
    let (mut works, mut checks) = (ScriptedProvider::by_history(), ScriptedProvider::by_history());
    for _ in 0..tasks {
        works = works.text("Done.").text("It is done.");
        checks = checks.call("task_complete", done("Seen."));
    }
    works = works.step(Script::new().wait(gate).text("Done.").finish(FinishReason::Stop)).text("It is done.");
    pair(&works, &checks.call("task_complete", done("Seen.")))
}

/// Returns the number of rows that a resume reads when a process died in the task after `tasks` others.
fn rows_read_by_a_resume(tasks: usize, limits: Option<BudgetLimits>) -> usize {
    let (inner, gate) = (memory(), Gate::new());
    let task = || {
        let mut task = Task::new("Write.");
        task.budget = limits;
        task
    };
    process(async {
        let work = session(&runtime(&inner, 16));
        let agent = lasting(tasks, &gate);
        for _ in 0..tasks {
            let outcome = work.start(&agent, task()).outcome().await.unwrap();
            assert!(outcome.is_completed(), "{outcome}");
        }
        work.start(&agent, task()).detach();
        gate.arrived(1).await;
    });
    let counting = Arc::new(CountingStore(inner, AtomicUsize::new(0)));
    let store = Arc::clone(&counting) as SharedStore;
    process(async {
        gate.open();
        let outcome = session(&runtime(&store, 16)).resume(&lasting(tasks, &gate)).outcome().await.unwrap();
        assert!(outcome.is_completed(), "{outcome}");
    });
    counting.1.load(Ordering::SeqCst)
}

#[test]
fn attack_20_a_resumed_task_reads_as_much_of_an_old_session_as_of_a_young_one() {
    // Opening a session reads as much as its conversation is long; the budget adds only a few windows.
    let limits = BudgetLimits::none().with_model_calls(1_000);
    let more = |tasks| rows_read_by_a_resume(tasks, Some(limits)) - rows_read_by_a_resume(tasks, None);
    let [young, old] = [60, 240].map(more);
    assert!(old <= young && young <= 3 * 256, "{young} rows grew to {old}");
}
