//! The views of a team's records, and the questions of `docs/teams.md` to them: the same on both engines.

use std::{sync::Arc, time::Duration};

use entourage_core::{
    ErrorKind,
    provider::{FinishReason, Size},
    session::SharedStore,
};
use entourage_runners::{
    ReactAgent,
    team::{Member, TaskType, Team, VIEWS},
};
use entourage_runtime::{MemoryStore, Runtime, permission::Policy};
use entourage_testkit::{self as testkit, Gate, Script, ScriptedProvider};
use serde_json::{Value, json};

use crate::{
    both::{Both, questions},
    seed::{calls, id, model, process, reply},
};

fn sessions() -> SharedStore {
    let store: SharedStore = Arc::new(MemoryStore::new());
    process(site(&store));
    process(killed(&store));
    store
}

fn runtime(store: &SharedStore) -> Runtime {
    testkit::runtime().shared_store(Arc::clone(store)).policy(Policy::allow_all()).build()
}

fn item(id: &str, kind: &str, after: &[&str]) -> Value {
    json!({"id": id, "task": format!("Do {id}."), "type": kind, "after": after})
}

fn plan(items: &[Value]) -> Script {
    reply(&json!({ "items": items }).to_string(), 1_000, 100)
}

fn steps(steps: &Value) -> Script {
    reply(&json!({ "steps": steps }).to_string(), 300, 20)
}

fn sends(messages: &[Value], input: u64) -> Script {
    let messages: Vec<_> = messages.iter().map(|message| ("send_message", message.clone())).collect();
    calls(&messages, input, 10)
}

fn later(seconds: u64, text: &str, [input, output]: [u64; 2]) -> Script {
    let script = Script::new().delay(Duration::from_secs(seconds)).text(text);
    script.usage(input, output).finish(FinishReason::Stop)
}

fn member(name: &str, model: entourage_core::provider::Model, size: Size) -> Member {
    Member::new(ReactAgent::builder(name, model).build().unwrap()).size(size)
}

/// One item escalates, and one fails for good, in whose place the lead adds another one. Members write to each other.
async fn site(store: &SharedStore) {
    let lead = ScriptedProvider::named("north")
        .step(plan(&[
            item("look", "summarize", &[]),
            item("tests", "summarize", &["draw", "write"]),
            item("write", "code", &["look"]),
            item("check", "review", &["write"]),
            item("draw", "design", &[]),
            item("print", "edit", &["draw"]),
            item("post", "chat", &["tests"]),
        ]))
        .step(steps(&json!([
            {"do": "add", "task": {"id": "probe", "task": "Probe it.", "agent": "scout"}},
            {"do": "reassign", "task": "print", "to": "scout"},
        ])))
        .step(reply("The site stands, untested.", 2_000, 50));
    let small = ScriptedProvider::named("south")
        .step(sends(
            &[
                json!({"to": "builder", "type": "status", "text": "It is in a.rs."}),
                json!({"to": "builder", "type": "request", "text": "Is it done?"}),
            ],
            400,
        ))
        .step(later(2, "Seen.", [450, 90]))
        .fail(ErrorKind::Overloaded, "no room")
        .step(reply("Printed.", 200, 20))
        .step(reply("Probed.", 210, 20));
    let medium = ScriptedProvider::named("west")
        .step(later(4, "Drawn.", [600, 40]))
        .fail(ErrorKind::InvalidInput, "no tools")
        .step(sends(&[json!({"to": "builder", "type": "response", "of": "m3", "text": "The old one."})], 700))
        .step(reply("It is good.", 800, 30));
    let large = ScriptedProvider::named("north")
        .step(sends(&[json!({"to": "eve", "type": "request", "text": "Which style?"})], 3_000))
        .step(later(9, "Written.", [4_000, 1_000]))
        .fail(ErrorKind::InvalidInput, "no luck");
    let team = Team::builder("crew", model(&lead, "large-1", true))
        .member(member("scout", model(&small, "small-1", true), Size::S))
        .member(member("eve", model(&medium, "medium-1", true), Size::M).specialist_in([TaskType::Review]))
        .member(member("builder", model(&large, "large-1", true), Size::L))
        .mailbox()
        .at_once(1)
        .build()
        .unwrap();
    let outcome =
        runtime(store).session_with_id(id("site")).start(&team, "Build a site.").outcome().await.unwrap();
    assert_eq!(outcome.text, "The site stands, untested.", "{outcome}");
}

/// A process that dies while a member works.
async fn killed(store: &SharedStore) {
    let gate = Gate::new();
    let lead = ScriptedProvider::named("north")
        .step(plan(&[item("one", "code", &[]), item("two", "code", &["one"])]));
    let large = ScriptedProvider::named("north").step(Script::new().wait(&gate).text("Never."));
    let team = Team::builder("crew", model(&lead, "large-1", true))
        .member(member("builder", model(&large, "large-1", false), Size::L))
        .build()
        .unwrap();
    let run = runtime(store).session_with_id(id("stopped")).start(&team, "Do both.").outcome();
    tokio::select! {
        () = gate.arrived(1) => {}
        ended = run => panic!("the run must not end: {ended:?}"),
    }
}

fn changed() -> SharedStore {
    let store: SharedStore = Arc::new(MemoryStore::new());
    process(given_up(&store));
    process(tried_again(&store));
    store
}

/// The lead skips the item that failed.
async fn given_up(store: &SharedStore) {
    let lead = ScriptedProvider::named("north")
        .step(plan(&[item("bad", "code", &[]), item("next", "code", &["bad"])]))
        .step(steps(&json!([{"do": "skip", "task": "bad"}])))
        .step(reply("A half of it.", 100, 10));
    let large =
        ScriptedProvider::named("north").fail(ErrorKind::InvalidInput, "no").step(reply("Done.", 100, 10));
    let team = Team::builder("crew", model(&lead, "large-1", true))
        .member(member("builder", model(&large, "large-1", true), Size::L))
        .build()
        .unwrap();
    runtime(store).session_with_id(id("given")).start(&team, "Do both.").outcome().await.unwrap();
}

/// The item that failed is to be tried again, and waits for the member when the process dies.
async fn tried_again(store: &SharedStore) {
    let gate = Gate::new();
    let lead = ScriptedProvider::named("north")
        .step(plan(&[item("bad", "code", &[]), item("next", "code", &["bad"]), item("other", "code", &[])]))
        .step(steps(&json!([])));
    let large = ScriptedProvider::named("north")
        .fail(ErrorKind::InvalidInput, "no")
        .step(Script::new().wait(&gate).text("Never."));
    let team = Team::builder("crew", model(&lead, "large-1", true))
        .member(member("builder", model(&large, "large-1", false), Size::L))
        .build()
        .unwrap();
    let run = runtime(store).session_with_id(id("tried")).start(&team, "Do all.");
    let control = team.control(&run);
    let retried = async {
        gate.arrived(1).await;
        control.retry("bad").await.unwrap();
    };
    tokio::select! {
        () = retried => {}
        ended = run.outcome() => panic!("the run must not end: {ended:?}"),
    }
}

/// Rows of each view, without what differs from run to run.
const VIEWS_OF_SITE: [(&str, &str); 4] = [
    (
        "team_items",
        "SELECT item, type, after, members, added, status, result, error, attempts, (started_at - planned_at) / 1000000 AS waited, \
         cost_pico / 1000000 AS cost FROM team_items WHERE session = 'site' ORDER BY seq, item",
    ),
    (
        "team_attempts",
        "SELECT item, attempt, member, conversation, model, status, escalated, error, input_tokens, output_tokens, micros \
         FROM team_attempts WHERE session = 'site' ORDER BY seq",
    ),
    (
        "team_messages",
        "SELECT agent, message, sender, recipient, kind, text, answers, (delivered_at - at) / 1000000 AS waited \
         FROM team_messages ORDER BY seq",
    ),
    ("team_changes", "SELECT session, kind, item, member, task FROM team_changes ORDER BY seq"),
];

#[tokio::test]
async fn lo09_lo11_lo13_the_views_of_a_team_are_the_same_on_both_engines() {
    let mut both = Both::of(sessions, VIEWS, "the views of a team").await;
    both.expect_each(&VIEWS_OF_SITE, include_str!("crew.json")).await;
}

#[tokio::test]
async fn lo11_the_documented_questions_about_teams_find_the_same_on_both_engines() {
    let mut both = Both::of(sessions, VIEWS, "the questions about teams").await;
    both.expect_each(&questions(include_str!("../../../docs/teams.md")), include_str!("crew_questions.json"))
        .await;
}

#[tokio::test]
async fn lo13_the_views_tell_of_a_changed_plan_what_its_reports_tell() {
    let mut both = Both::of(changed, VIEWS, "the views of a changed plan").await;
    let items = "SELECT session, item, status, error, attempts FROM team_items ORDER BY session, seq, item";
    let rows = json!([
        {"session": "given", "item": "bad", "status": "skipped", "error": "skipped on request", "attempts": 1},
        {"session": "given", "item": "next", "status": "completed", "error": null, "attempts": 1},
        {"session": "tried", "item": "bad", "status": "pending", "error": null, "attempts": 1},
        {"session": "tried", "item": "next", "status": "pending", "error": null, "attempts": 0},
        {"session": "tried", "item": "other", "status": "running", "error": null, "attempts": 1},
    ]);
    both.expect(items, &rows).await;
    let attempts = "SELECT session, item, attempt, status FROM team_attempts ORDER BY session, seq";
    let rows = json!([
        {"session": "given", "item": "bad", "attempt": 1, "status": "failed"},
        {"session": "given", "item": "next", "attempt": 1, "status": "completed"},
        {"session": "tried", "item": "bad", "attempt": 1, "status": "failed"},
        {"session": "tried", "item": "other", "attempt": 1, "status": "running"},
    ]);
    both.expect(attempts, &rows).await;
}

#[tokio::test]
async fn lo12_costs_that_no_column_takes_are_the_largest_that_one_takes() {
    let mut both = Both::of(sessions, VIEWS, "large costs of teams").await;
    both.run(
        "UPDATE events SET body = replace(body, '\"cost\":0', '\"cost\":9000000000000000000') \
         WHERE kind = 'record:graph.node_finished' AND body LIKE '%\"node\":\"tests\"%'",
    )
    .await;
    let sql = "SELECT CAST(cost_pico AS TEXT) || '/' AS cost FROM team_items WHERE session = 'site' AND item = 'tests'";
    both.expect(sql, &json!([{"cost": "9223372036854775807/"}])).await;
    for (_, sql) in questions(include_str!("../../../docs/teams.md")) {
        both.run(sql).await;
    }
}

#[tokio::test]
async fn bo09_odd_records_of_teams_hide_no_others() {
    let kinds = [
        "record:team.planned",
        "record:team.message",
        "record:team.delivered",
        "record:graph.node_started",
        "record:graph.node_finished",
        "record:graph.changed",
    ];
    let mut both = Both::of(sessions, VIEWS, "odd records of teams").await;
    both.survives(&kinds, VIEWS).await;
    let sql = "SELECT item, status FROM team_items WHERE session = 'site' AND item = 'write'";
    both.expect(sql, &json!([{"item": "write", "status": "completed"}])).await;
}
