//! The public crash suite, on the store in memory, with paused time.

#![allow(clippy::print_stdout)]

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use entourage_core::{
    SessionId,
    provider::Model,
    session::{Batch, Lease, ReadRange, Row, SessionFilter, SessionInfo, SessionStore},
    tool::{Access, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec},
};
use entourage_runners::ReactAgent;
use entourage_runtime::MemoryStore;
use entourage_runtime::permission::Policy;
use entourage_testkit::{
    FakeTool, ScriptedProvider,
    crash::{self, Life, Medium, Place, Scenario},
    scenarios,
};
use serde_json::json;

use crate::common::agent;

fn memory() -> Medium {
    Medium::memory()
        .tokio(|| tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build())
}

fn survives(scenario: &Scenario) {
    let report = crash::run(scenario, &memory());
    println!("{report}");
    report.assert();
}

#[test]
fn design_3_tool_loop() {
    survives(&scenarios::tool_loop());
}

#[test]
fn design_3_tools_in_parallel() {
    survives(&scenarios::tools_in_parallel());
}

#[test]
fn issue_13_handed_out_calls() {
    survives(&scenarios::handed_out());
}

#[test]
fn design_3_approvals() {
    survives(&scenarios::approvals());
}

#[test]
fn design_3_children() {
    survives(&scenarios::children());
}

#[test]
fn design_3_by_hand() {
    survives(&scenarios::by_hand());
}

#[test]
fn design_3_compaction() {
    survives(&scenarios::compaction());
}

#[test]
fn design_3_title() {
    survives(&scenarios::title());
}

#[test]
fn design_3_queue() {
    survives(&scenarios::queue());
}

#[test]
fn the_scenarios_do_what_they_are_for() {
    let facts = |scenario: &Scenario| format!("{:?}", crash::expected(scenario, &memory()).unwrap());
    let title = facts(&scenarios::title());
    assert!(title.contains("keeper titled A pear somewhere"), "{title}");
    assert!(title.contains("keeper/titler run_finished completed"), "{title}");
    let queue = facts(&scenarios::queue());
    assert!(queue.contains("waiter message_added Two, please."), "{queue}");
    assert!(queue.contains("waiter run_started A third one."), "{queue}");
}

#[test]
fn the_compaction_scenario_compacts() {
    let facts = format!("{:?}", crash::expected(&scenarios::compaction(), &memory()).unwrap());
    assert!(facts.contains("talker compacted"), "{facts}");
    assert!(facts.contains("Somebody counted"), "{facts}");
}

/// A scenario of one tool call, which a test breaks in one place.
fn broken(
    name: &str,
    agent: impl Fn(&Life) -> entourage_core::Result<ReactAgent> + Send + Sync + 'static,
) -> Scenario {
    Scenario::new(name, agent).prompt("Go").runtime(|it| it.policy(Policy::allow_all()).checkpoint_every(1))
}

fn script() -> Model {
    ScriptedProvider::by_history().call("pay", json!({})).text("Paid.").model()
}

fn pay() -> FakeTool {
    FakeTool::new("pay").access(Access::WRITE)
}

fn sound(life: &Life) -> entourage_core::Result<ReactAgent> {
    agent(life.model(&script())).tool(life.tool(pay())).build()
}

/// The fault report of a scenario that must fail.
fn found(scenario: &Scenario, medium: &Medium) -> String {
    let report = crash::run(scenario, medium);
    assert!(std::panic::catch_unwind(|| report.assert()).is_err(), "nothing was found: {report:#}");
    format!("{report:#}")
}

#[test]
fn a_sound_scenario_passes_and_the_report_says_so() {
    let report = crash::run(&broken("pay", sound), &memory());
    report.assert();
    assert!(report.points() > 20 && report.kills() > report.points());
    let (points, kills) = (report.points(), report.kills());
    assert_eq!(
        report.to_string(),
        format!("crash pay memory points {points} kills {kills} repeats 0 lost 0")
    );
}

#[test]
fn a_tool_or_a_model_that_is_not_watched_is_found() {
    let scenario = broken("tool", |life| agent(life.model(&script())).tool(pay()).build());
    assert!(found(&scenario, &memory()).contains("is it a `Life::tool`?"));
    let scenario = broken("model", |life| agent(script()).tool(life.tool(pay())).build());
    assert!(found(&scenario, &memory()).contains("is its model a `Life::model`?"));
}

#[test]
fn an_answer_that_depends_on_the_process_is_found() {
    let lives = AtomicUsize::new(0);
    let scenario = broken("answer", move |life| {
        let life_number = lives.fetch_add(1, Ordering::Relaxed).to_string();
        let provider = ScriptedProvider::by_history().call("pay", json!({})).text(life_number);
        agent(life.model(&provider.model())).tool(life.tool(pay())).build()
    });
    assert!(found(&scenario, &memory()).contains("it came to something else"));
}

/// A tool that calls the inner tool twice.
#[derive(Debug)]
struct Twice(Arc<dyn Tool>);

#[async_trait]
impl Tool for Twice {
    fn spec(&self) -> &ToolSpec {
        self.0.spec()
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        self.0.call(input.clone(), cx).await?;
        self.0.call(input, cx).await
    }
}

#[test]
fn a_call_that_runs_twice_is_found() {
    let scenario = broken("twice", |life| agent(life.model(&script())).tool(Twice(life.tool(pay()))).build());
    let found = found(&scenario, &memory());
    assert!(found.contains("`pay` may not be repeated, and ran 2 times"), "{found}");
}

/// A flaw of a store.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Flaw {
    /// Loses the last append when a process dies.
    Forgets,
    /// Loses claims of tool calls when a process dies.
    LosesClaims,
    /// Alters checkpoints.
    BendsCheckpoints,
}

#[derive(Debug)]
struct Flawed {
    inner: Mutex<Arc<MemoryStore>>,
    log: Mutex<Vec<(SessionId, u64, Batch)>>,
    flaw: Flaw,
}

impl Flawed {
    fn medium(flaw: Flaw) -> Medium {
        let made = Medium::new(format!("{flaw:?}"), move || {
            let store = Arc::new(Self { inner: Mutex::default(), log: Mutex::default(), flaw });
            Place::new(move || {
                let store = Arc::clone(&store);
                async move {
                    store.revive().await?;
                    Ok(store)
                }
            })
        });
        made.tokio(|| tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build())
    }

    fn inner(&self) -> Arc<MemoryStore> {
        Arc::clone(&self.inner.lock().unwrap())
    }

    /// Opens the store after a death, unless the last batch ended the run.
    async fn revive(&self) -> entourage_core::Result<()> {
        let mut log = self.log.lock().unwrap().clone();
        let claims = |batch: &Batch| batch.rows.iter().any(|row| row.columns().kind == "tool_started");
        let ends = |batch: &Batch| batch.rows.iter().any(|row| row.columns().kind == "run_finished");
        let Some((_, _, last)) = log.last() else { return Ok(()) };
        let forgets = match self.flaw {
            Flaw::Forgets => !ends(last),
            Flaw::LosesClaims => claims(last),
            Flaw::BendsCheckpoints => false,
        };
        if forgets {
            log.pop();
        }
        let fresh = Arc::new(MemoryStore::new());
        for (session, expected, batch) in &log {
            fresh.append(session, *expected, batch.clone()).await?;
        }
        *self.inner.lock().unwrap() = fresh;
        *self.log.lock().unwrap() = log;
        Ok(())
    }
}

#[async_trait]
impl SessionStore for Flawed {
    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> entourage_core::Result<u64> {
        let seq = self.inner().append(session, expected, batch.clone()).await?;
        self.log.lock().unwrap().push((session.clone(), expected, batch));
        Ok(seq)
    }

    async fn read(&self, session: &SessionId, range: ReadRange) -> entourage_core::Result<Vec<Row>> {
        let mut rows = self.inner().read(session, range).await?;
        if self.flaw == Flaw::BendsCheckpoints {
            for row in &mut rows {
                let columns = row.columns();
                if columns.kind == "checkpoint" {
                    let body = row.body()?.replacen("\"tokens\":", "\"tokens\":1", 1);
                    *row = Row::stored(columns, body);
                }
            }
        }
        Ok(rows)
    }

    async fn query(&self, filter: &SessionFilter) -> entourage_core::Result<Vec<SessionInfo>> {
        self.inner().query(filter).await
    }

    async fn lease(&self, session: &SessionId, lease: Lease) -> entourage_core::Result<()> {
        self.inner().lease(session, lease).await
    }

    async fn delete(&self, session: &SessionId) -> entourage_core::Result<u64> {
        self.inner().delete(session).await
    }
}

#[test]
fn a_store_that_forgets_is_found() {
    let scenario = broken("pay", sound);
    let forgets = found(&scenario, &Flawed::medium(Flaw::Forgets));
    assert!(forgets.contains("was shown and is not stored"), "{forgets}");
    let claims = found(&scenario, &Flawed::medium(Flaw::LosesClaims));
    assert!(claims.contains("`pay` ran as ") && claims.contains(", which the log does not know"), "{claims}");
}

#[test]
fn a_checkpoint_that_is_not_the_fold_is_found() {
    let found = found(&broken("pay", sound), &Flawed::medium(Flaw::BendsCheckpoints));
    assert!(found.contains("is not what the events before it add up to"), "{found}");
}
