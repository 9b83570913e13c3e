//! The queries of `docs/teams.md` find what a cascade and a team recorded, the same on both engines.

use std::sync::Arc;

use entourage_core::{
    ErrorKind,
    provider::{Model, Size},
    run::Outcome,
    session::SharedStore,
};
use entourage_runners::{
    Cascade, ReactAgent,
    team::{Member, TaskType, Team},
};
use entourage_runtime::MemoryStore;
use entourage_testkit::{self as testkit, ScriptedProvider};
use serde_json::json;

use crate::{
    engines::{lite_of, normal},
    queries::check,
    seed::{id, model, process, reply},
};

/// Returns the blocks of the page that begin with this line, in order.
fn blocks(begin: &str) -> Vec<&'static str> {
    let rest = include_str!("../../../docs/teams.md").split(begin).skip(1);
    rest.filter_map(|rest| rest.split("```").next()).collect()
}

fn sessions() -> SharedStore {
    let store: SharedStore = Arc::new(MemoryStore::new());
    process(cascade(&store));
    process(team(&store));
    store
}

fn agent(name: &str, model: Model) -> ReactAgent {
    ReactAgent::builder(name, model).build().unwrap()
}

/// Three prompts: the small model will do for one; of the others the large one answers one, and nobody the last.
async fn cascade(store: &SharedStore) {
    let small = ScriptedProvider::named("south")
        .step(reply("Maybe 40.", 900, 100))
        .step(reply("Three.", 1_900, 100))
        .step(reply("Maybe 5.", 2_900, 100));
    let large = ScriptedProvider::named("north")
        .step(reply("There are 42.", 9_000, 1_000))
        .step(reply("Maybe 6.", 19_000, 1_000));
    let models = [model(&small, "small-1", true), model(&large, "large-1", true)];
    let sure = |answer: &Outcome| match answer.text.starts_with("Maybe") {
        true => Err("Be sure.".to_owned()),
        false => Ok(()),
    };
    let cascade = Cascade::of_models(&agent("counter", models[0].clone()), models)
        .verify(sure)
        .task_type(|_| TaskType::Analyze)
        .build()
        .unwrap();
    let runtime = testkit::runtime().shared_store(Arc::clone(store)).build();
    let session = runtime.session_with_id(id("counted"));
    for prompt in ["How many pears?", "And plums?", "And figs?"] {
        session.start(&cascade, prompt).outcome().await.unwrap();
    }
    // A cascade without a type or prices.
    let free = ScriptedProvider::named("east").step(reply("Hello.", 10, 10));
    let free = agent("greeter", model(&free, "free-1", false));
    let greets = Cascade::builder("greets").step(free).build().unwrap();
    runtime.session_with_id(id("greeted")).start(&greets, "Hello?").outcome().await.unwrap();
}

/// A small member fails at one of its two items, and a large one does it.
async fn team(store: &SharedStore) {
    let items = [("look", "summarize"), ("read", "summarize"), ("write", "code")];
    let items = items.map(|(id, kind)| json!({"id": id, "task": id, "type": kind}));
    let lead = ScriptedProvider::named("north")
        .step(reply(&json!({ "items": items }).to_string(), 1_000, 100))
        .step(reply("All is done.", 1_000, 100));
    let small = ScriptedProvider::named("south")
        .step(reply("Seen.", 400, 100))
        .fail(ErrorKind::Overloaded, "no room");
    let large = ScriptedProvider::named("north")
        .step(reply("Written.", 4_000, 1_000))
        .step(reply("Read.", 2_000, 1_000));
    let member = |name, model, size| Member::new(agent(name, model)).size(size);
    let team = Team::builder("crew", model(&lead, "lead-1", true))
        .member(member("scout", model(&small, "small-1", true), Size::S))
        .member(member("builder", model(&large, "large-1", true), Size::L))
        .build()
        .unwrap();
    let runtime = testkit::runtime().shared_store(Arc::clone(store)).build();
    runtime.session_with_id(id("crew")).start(&team, "Do it all.").outcome().await.unwrap();
}

#[tokio::test]
async fn lo11_the_documented_questions_about_sizes_find_the_same_on_both_engines() {
    let mut lite = lite_of(sessions).await;
    let (sqlite, postgres) = (blocks("```sql sqlite\n"), blocks("```sql postgres\n"));
    let row = |model: &str, task: Option<&str>, figures: [u32; 3], dollars: Option<f64>| {
        let [attempts, accepted, escalated] = figures;
        json!({"model": model, "task": task, "attempts": attempts, "accepted": accepted, "escalated": escalated, "dollars": dollars})
    };
    let attempts = json!([
        row("free-1", None, [1, 1, 0], None),
        row("large-1", Some("analyze"), [2, 1, 0], Some(0.03)),
        row("large-1", Some("code"), [1, 1, 0], Some(0.005)),
        row("large-1", Some("summarize"), [1, 1, 0], Some(0.003)),
        row("small-1", Some("analyze"), [3, 1, 2], Some(0.006)),
        row("small-1", Some("summarize"), [2, 1, 1], Some(0.0005)),
    ]);
    let refusal = |step: u32| json!({"agent": "counter", "step": step, "refused": "Be sure."});
    let expected = [attempts, json!([refusal(2), refusal(1), refusal(1)])];
    assert_eq!((sqlite.len(), postgres.len()), (expected.len(), expected.len()));
    for ((sqlite, postgres), expected) in sqlite.into_iter().zip(postgres).zip(expected) {
        check(&mut lite.db, [sqlite, postgres], &normal(expected)).await;
    }
}
