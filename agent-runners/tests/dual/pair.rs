//! A pair of scripted agents, and queries about its sessions.

use entourage_core::{
    SessionId,
    event::Envelope,
    message::{History, Message, Role},
    session::SharedStore,
    tool::Access,
};
use entourage_runners::{
    DualAgent, DualBuilder, ReactAgent,
    checked::{PhaseFinished, PhaseStarted},
};
use entourage_runtime::{Runtime, Session};
use entourage_testkit::{FakeTool, ScriptedProvider};
use serde_json::{Value, json};

use crate::common::stored;

pub(crate) fn root() -> SessionId {
    SessionId::new("work").unwrap()
}

pub(crate) fn child(role: &str) -> SessionId {
    root().in_role(role).unwrap()
}

pub(crate) fn done(summary: &str) -> Value {
    json!({ "summary": summary })
}

pub(crate) fn executor(provider: &ScriptedProvider) -> ReactAgent {
    ReactAgent::builder("coder", provider.model())
        .instructions("You write code.")
        .tool(FakeTool::new("write").access(Access::WRITE).returning("written"))
        .build()
        .unwrap()
}

pub(crate) fn checker(provider: &ScriptedProvider) -> ReactAgent {
    ReactAgent::builder("reviewer", provider.model())
        .instructions("You know the language well.")
        .tool(FakeTool::new("look").returning("a file"))
        .build()
        .unwrap()
}

pub(crate) fn builder(works: &ScriptedProvider, checks: &ScriptedProvider) -> DualBuilder {
    DualAgent::builder("pair", executor(works), checker(checks))
}

pub(crate) fn pair(works: &ScriptedProvider, checks: &ScriptedProvider) -> DualAgent {
    builder(works, checks).build().unwrap()
}

pub(crate) fn session(runtime: &Runtime) -> Session {
    runtime.session_with_id(root())
}

/// Creates an executor that needs two rounds, and a checker that rejects the first.
pub(crate) fn two_rounds() -> (ScriptedProvider, ScriptedProvider) {
    let works = ScriptedProvider::named("one")
        .text("I wrote it.")
        .text("Summary one.")
        .text("I tested it.")
        .text("Summary two.");
    let checks = ScriptedProvider::named("two").text("Test it.").call("task_complete", done("It is tested."));
    (works, checks)
}

/// The same for runs that are resumed: each script finds its place from the conversation.
pub(crate) fn two_rounds_by_history() -> (ScriptedProvider, ScriptedProvider) {
    let works = ScriptedProvider::by_history()
        .text("I wrote it.")
        .text("Summary one.")
        .text("I tested it.")
        .text("Summary two.");
    let checks = ScriptedProvider::by_history().text("Test it.").call("task_complete", done("It is tested."));
    (works, checks)
}

/// Formats a conversation: a letter for the role, and the text.
pub(crate) fn told<'a>(messages: impl IntoIterator<Item = &'a std::sync::Arc<Message>>) -> Vec<String> {
    messages.into_iter().map(|message| line(message)).collect()
}

fn line(message: &Message) -> String {
    let who = match message.role() {
        Role::User => "U",
        Role::Assistant => "A",
        Role::Tool => "T",
        Role::System => "S",
    };
    let mut line = format!("{who}: {}", message.text());
    for call in message.tool_calls() {
        line.push_str(&format!("[{}]", call.name));
    }
    for result in message.tool_results() {
        line.push_str(&format!("<{}>", result.to_text()));
    }
    line
}

pub(crate) async fn conversation(runtime: &Runtime, role: &str) -> History {
    runtime.open(&child(role)).await.unwrap().history().await.unwrap()
}

/// Returns the rounds and phases as recorded: `1 execute`, and `1 check rejected` for their ends.
pub(crate) async fn phases(store: &SharedStore) -> Vec<String> {
    stored(store, &root()).await.iter().filter_map(phase).collect()
}

fn phase(event: &Envelope) -> Option<String> {
    if let Some(it) = event.event.record::<PhaseStarted>().unwrap() {
        return Some(format!("{} {}", it.iteration, name(it.phase)));
    }
    let it = event.event.record::<PhaseFinished>().unwrap()?;
    let verdict = match &it.verdict {
        Some(verdict) if verdict.accepted => "accepted".to_owned(),
        Some(_) => "rejected".to_owned(),
        None => it.outcome.status.to_string().split([':', ' ']).next().unwrap().to_owned(),
    };
    Some(format!("{} {} {verdict}", it.iteration, name(it.phase)))
}

fn name(phase: entourage_runners::Phase) -> String {
    serde_json::to_value(phase).unwrap().as_str().unwrap().to_owned()
}

/// Each script finds its place from the conversation, in its first session and after a cancel.
#[tokio::test(start_paused = true)]
async fn attack_29_a_script_by_history_begins_with_its_first_reply_in_each_role() {
    use crate::common::{memory, runtime_on};
    use entourage_core::provider::FinishReason;
    use entourage_testkit::{Gate, Script};
    for read_only in [false, true] {
        let (works, checks) = two_rounds_by_history();
        let agent = builder(&works, &checks);
        let agent = if read_only { agent.read_only() } else { agent }.build().unwrap();
        let runtime = runtime_on(&memory());
        let outcome = session(&runtime).start(&agent, "Write it.").outcome().await.unwrap();
        assert_eq!((outcome.is_completed(), outcome.text.as_str()), (true, "Summary two."));
        assert_eq!((works.count(), checks.count()), (4, 2));
    }
    // An unanswered report, and the user's next prompt: neither is a reply.
    let gate = Gate::new();
    let held = Script::new().wait(&gate).text("Test it.").finish(FinishReason::Stop);
    let works = (0..6).fold(ScriptedProvider::by_history(), |works, n| works.text(format!("Said {n}.")));
    let checks = ScriptedProvider::by_history().step(held).call("task_complete", done("Seen."));
    let runtime = runtime_on(&memory());
    let (agent, work) = (pair(&works, &checks), session(&runtime));
    let run = work.start(&agent, "Write it.");
    gate.arrived(1).await;
    run.cancel();
    run.outcome().await.unwrap();
    gate.open();
    let outcome = work.start(&agent, "Not like this.").outcome().await.unwrap();
    assert!(outcome.is_completed(), "{outcome}");
    let checked = told(&conversation(&runtime, "discriminator").await);
    let own = checked.iter().filter(|line| *line == "A: Test it." || *line == "A: [task_complete]").count();
    assert_eq!(own, 2, "{checked:?}");
}
