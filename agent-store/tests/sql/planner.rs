//! The relations of a planner's records, and the queries of `docs/planner.md`: the same on both engines.

use std::{sync::Arc, time::Duration};

use entourage_core::{
    message::Message,
    provider::FinishReason,
    session::{ReadRange, SessionFilter, SharedStore},
    tool::Access,
};
use entourage_runners::planner::{Planner, PlannerBuilder, StepExecution, VIEWS};
use entourage_runtime::{MemoryStore, Runtime, permission::Policy};
use entourage_testkit::{self as testkit, FakeTool, Gate, Script, ScriptedProvider};
use serde_json::{Value, json};

use crate::{
    both::{Both, questions},
    seed::{calls, id, model, process, reply},
};

fn sessions() -> SharedStore {
    let store: SharedStore = Arc::new(MemoryStore::new());
    process(lease(&store));
    process(greeting(&store));
    process(unsure(&store));
    process(killed(&store));
    store
}

fn runtime(store: &SharedStore) -> Runtime {
    testkit::runtime().shared_store(Arc::clone(store)).policy(Policy::allow_all()).build()
}

fn planner(plans: &ScriptedProvider, looks: &ScriptedProvider) -> PlannerBuilder {
    let view = FakeTool::new("view").access(Access::READ).returning("a tree");
    let edit = FakeTool::new("edit").access(Access::WRITE).returning("written");
    Planner::builder("assistant", model(plans, "large-1", true))
        .executor(model(looks, "small-1", true))
        .executors_at_once(1)
        .tools((view, edit))
}

fn step(number: u32, description: &str, depends_on: &[u32]) -> Value {
    json!({
        "number": number, "type": "read", "description": description, "executor_required": true, "tools": ["view"],
        "depends_on": depends_on,
    })
}

fn steps(steps: &[Value]) -> Script {
    calls(&[("final_answer", json!({ "steps": steps }))], 1_000, 100)
}

fn says(kind: &str, text: &str, [input, output]: [u64; 2]) -> Script {
    calls(&[("reply", json!({ "type": kind, "text": text }))], input, output)
}

fn after(seconds: u64, kind: &str, text: &str, [input, output]: [u64; 2]) -> Script {
    let script = Script::new().delay(Duration::from_secs(seconds));
    script
        .call("reply", &json!({ "type": kind, "text": text }))
        .usage(input, output)
        .finish(FinishReason::ToolCalls)
}

/// Two plans. In the first an executor asks, one gives up, and what depends on it is skipped.
async fn lease(store: &SharedStore) {
    let note =
        json!({"number": 3, "type": "edit", "description": "Note it.", "tools": ["edit"], "depends_on": [1]});
    let plans = ScriptedProvider::named("north")
        .step(steps(&[
            step(1, "Find the lease.", &[]),
            step(2, "Find its tests.", &[]),
            note,
            step(4, "Count them.", &[2]),
        ]))
        .step(reply("The one of runs.", 500, 10))
        .step(calls(&[("edit", json!({}))], 700, 20))
        .step(reply("Noted.", 800, 5))
        .step(steps(&[step(5, "Find any tests.", &[1])]))
        .step(reply("It is in watch.rs, and noted.", 2_000, 50));
    let looks = ScriptedProvider::named("south")
        .step(after(3, "question", "Which lease?", [100, 10]))
        .step(calls(&[("view", json!({}))], 120, 5))
        .step(says("complete", "In watch.rs.", [140, 10]))
        .step(after(1, "error", "There are no tests.", [90, 8]))
        .step(calls(&[("view", json!({}))], 80, 4))
        .step(after(5, "complete", "In tests/lease.rs.", [95, 6]));
    let planner = planner(&plans, &looks).without_classifier().build().unwrap();
    let session = runtime(store).session_with_id(id("lease"));
    let outcome = session.start(&planner, "First find the lease, then note it.").outcome().await.unwrap();
    assert_eq!(outcome.text, "It is in watch.rs, and noted.");
}

/// A request that needs no plan.
async fn greeting(store: &SharedStore) {
    let analysis = json!({"strategy": "simple", "reasoning": "A greeting.", "estimated_operations": 0});
    let plans = ScriptedProvider::named("north").step(reply("Hello.", 30, 2));
    let looks = ScriptedProvider::named("south").step(reply(&analysis.to_string(), 60, 5));
    let planner = planner(&plans, &looks).build().unwrap();
    let session = runtime(store).session_with_id(id("greeting"));
    assert_eq!(session.start(&planner, "Good morning!").outcome().await.unwrap().text, "Hello.");
}

/// The planner asks the user, and goes on with the answer. Its step is denied what it needs.
async fn unsure(store: &SharedStore) {
    let plans = ScriptedProvider::named("north")
        .step(calls(&[("view", json!({}))], 200, 5))
        .step(calls(&[("final_answer", json!({"questions": ["Which project?"]}))], 250, 10))
        .step(steps(&[step(1, "Look at the small one.", &[])]))
        .step(reply("Nothing is there.", 300, 4));
    let looks = ScriptedProvider::named("south").step(says("error", "It is empty.", [70, 3]));
    let planner = planner(&plans, &looks).without_classifier().max_replans(0).build().unwrap();
    let session = runtime(store).session_with_id(id("unsure"));
    let asked = session.start(&planner, "First look at the project, then sum up.").outcome().await.unwrap();
    assert!(asked.text.contains("Which project?"), "{asked}");
    let outcome = session.start(&planner, Message::user("The small one.")).outcome().await.unwrap();
    assert!(!outcome.is_completed() && outcome.text == "Nothing is there.", "{outcome}");
}

/// A process that dies while an executor works.
async fn killed(store: &SharedStore) {
    let gate = Gate::new();
    let plans =
        ScriptedProvider::named("north").step(steps(&[step(1, "Wait.", &[]), step(2, "Go on.", &[1])]));
    let looks = ScriptedProvider::named("south").step(Script::new().wait(&gate).text("Never."));
    let planner = planner(&plans, &looks).without_classifier().build().unwrap();
    let run =
        runtime(store).session_with_id(id("killed")).start(&planner, "First wait, then go on.").outcome();
    tokio::select! {
        () = gate.arrived(1) => {}
        ended = run => panic!("the run must not end: {ended:?}"),
    }
}

/// Rows of each relation, without what differs from run to run.
const RELATIONS: [(&str, &str); 6] = [
    (
        "planner_plans",
        "SELECT session, agent, round, user_message, strategy, reasoning, by_words, questions, status, \
         (finished_at - created_at) / 1000000 AS seconds FROM planner_plans ORDER BY session, seq",
    ),
    (
        "planner_steps",
        "SELECT session, round, step, type, performer, tools, depends_on, optional, status, result, error, conversation \
         FROM planner_steps ORDER BY session, round, step",
    ),
    (
        "planner_executions",
        "SELECT conversation, executor, task, tools, status, success, result, error, input_tokens, output_tokens, \
         cost_pico / 1000000 AS cost, micros, tool_calls, messages FROM planner_executions ORDER BY session, round, step",
    ),
    (
        "planner_conversations",
        "SELECT session, parent, agent, round, step, kind, planner, executor, \
         substr(initial_context, 1, 20) AS initial_context, status, messages FROM planner_conversations ORDER BY session",
    ),
    (
        "planner_messages",
        "SELECT session, turn, sender, role, kind, substr(text, 1, 20) AS text, tool_calls, input_tokens, output_tokens, model \
         FROM planner_messages WHERE parent = 'lease' AND session <> 'lease$$planner' ORDER BY session, seq",
    ),
    (
        "planner_agents",
        "SELECT session, type, round, step, agent, model, substr(system_prompt, 1, 20) AS system_prompt, permission, status, \
         input_tokens, output_tokens, cost_pico / 1000000 AS cost, CASE WHEN tools LIKE '%\"edit\"%' THEN 1 ELSE 0 END AS edits \
         FROM planner_agents WHERE parent IN ('greeting', 'lease') ORDER BY session",
    ),
];

#[tokio::test]
async fn bo09_the_five_relations_of_a_planner_are_the_same_on_both_engines() {
    let mut both = Both::of(sessions, VIEWS, "the relations of a planner").await;
    both.expect_each(&RELATIONS, include_str!("planner.json")).await;
}

#[tokio::test]
async fn bo09_the_documented_questions_about_plans_find_the_same_on_both_engines() {
    let mut both = Both::of(sessions, VIEWS, "the questions about plans").await;
    let questions = questions(include_str!("../../../docs/planner.md"));
    both.expect_each(&questions, include_str!("planner_questions.json")).await;
}

/// The events of all sessions, folded in Rust.
async fn folded(store: &SharedStore) -> Value {
    let mut events = Vec::new();
    for info in store.query(&SessionFilter::all()).await.unwrap() {
        let id = info.record.id;
        let rows = store.read(&id, ReadRange::all()).await.unwrap();
        events.extend(rows.into_iter().map(|row| row.into_envelope(&id).unwrap()));
    }
    let mut steps = StepExecution::of(&events).unwrap();
    steps.sort_by(|a, b| a.session.as_str().cmp(b.session.as_str()));
    let row = |step: &StepExecution| {
        json!({
            "conversation": step.session.as_str(), "step": step.number, "status": step.status,
            "performer": step.agent, "input_tokens": step.usage.input, "output_tokens": step.usage.output,
            "micros": u64::try_from(step.time.as_micros()).unwrap(), "tool_calls": step.tool_calls,
            "messages": step.messages,
        })
    };
    steps.iter().map(row).collect()
}

#[tokio::test]
async fn bo09_bo11_the_figures_of_steps_are_those_of_the_fold() {
    let store = tokio::task::spawn_blocking(sessions).await.unwrap();
    let expected = folded(&store).await;
    assert_eq!(expected.as_array().unwrap().len(), 6);
    let mut both = Both::of(sessions, VIEWS, "the figures of steps").await;
    // Those of a step that has not ended are unknown here, and nothing there.
    let sql = "SELECT conversation, step, status, performer, input_tokens, output_tokens, coalesce(micros, 0) AS micros, \
               tool_calls, messages FROM planner_executions ORDER BY conversation";
    both.expect(sql, &expected).await;
}

#[tokio::test]
async fn bo09_odd_records_hide_no_others() {
    let kinds = [
        "run_started",
        "record:planner.progress",
        "record:planner.message",
        "record:graph.node_started",
        "record:graph.node_finished",
        "tool_finished",
    ];
    let mut both = Both::of(sessions, VIEWS, "odd records of planners").await;
    both.survives(&kinds, VIEWS).await;
    let sql = "SELECT step, status FROM planner_steps WHERE session = 'lease' AND round = 2";
    both.expect(sql, &json!([{"step": 5, "status": "completed"}])).await;
}
