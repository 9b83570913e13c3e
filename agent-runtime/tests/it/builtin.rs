//! The agents and prompts that the library brings, and their replacement by a program's own.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use entourage_core::{
    SessionId,
    context::{Compaction, Instructions},
    event::{Envelope, Event},
    provider::FinishReason,
    session::{SessionFilter, SharedStore},
    tool::Access,
};
use entourage_runners::{AgentTool, DualAgent, ReactAgent, builtin};
use entourage_runtime::{Runtime, Titles};
use entourage_testkit::{self as testkit, FakeTool, Script, ScriptedProvider};
use serde_json::json;

use crate::common::{agent, memory, open_runtime, runtime_on, settled, stored};

/// Changes with the words of a prompt, as its version then must.
const RELEASED: [&str; 25] = [
    "entourage/coder@1#",
    "entourage/task@1#",
    "entourage/init@1#",
    "entourage/plan@1#",
    "entourage/judge@1#",
    "entourage/criteria@1#",
    "entourage/discriminator@1#",
    "entourage/fetch@1#",
    "entourage/team-lead@2#",
    "entourage/scout@1#",
    "entourage/builder@1#",
    "entourage/reviewer@1#",
    "entourage/task-manager@1#",
    "entourage/research-plan@1#",
    "entourage/file-searcher@1#",
    "entourage/pattern-finder@1#",
    "entourage/dependency-mapper@1#",
    "entourage/doc-reader@1#",
    "entourage/web-searcher@1#",
    "entourage/planner@1#",
    "entourage/planner-steps@1#",
    "entourage/planner-strategy@1#",
    "entourage/executor@1#",
    "entourage/title@1#",
    "entourage/summary@1#",
];

fn template(name: &str) -> String {
    let prompts = builtin::prompts();
    let found = prompts.iter().filter_map(|prompt| prompt.template()).find(|id| id.starts_with(name));
    found.unwrap().to_owned()
}

/// The templates of a session's model calls, and of those below it.
async fn templates(store: &SharedStore, root: &SessionId) -> Vec<Option<String>> {
    let mut all = Vec::new();
    for info in store.query(&SessionFilter::tree(root.clone())).await.unwrap() {
        all.extend(stored(store, &info.record.id).await);
    }
    let template = |event: &Envelope| match &event.event {
        Event::ModelStarted(call) => Some(call.template.as_ref().map(|id| id.to_string())),
        _ => None,
    };
    all.iter().filter_map(template).collect()
}

#[test]
fn cw17_each_built_in_prompt_has_one_id_that_tells_its_words() {
    let prompts = builtin::prompts();
    let ids: Vec<_> = prompts.iter().map(|prompt| prompt.template().unwrap()).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), RELEASED.len());
    for (id, released) in ids.iter().zip(RELEASED) {
        assert!(id.starts_with(released) && id.len() == released.len() + 12, "{id} {released}");
    }
    assert!(prompts.iter().all(|prompt| prompt.text().len() > 100));
}

#[tokio::test(start_paused = true)]
async fn cw17_prompts_of_titles_and_summaries_are_recorded_and_replaced() {
    let own = |text: &str| Instructions::from_template(text, "mine@7");
    for replaced in [false, true] {
        let store = memory();
        let small = ScriptedProvider::new().step(Script::new().text("A title").finish(FinishReason::Stop));
        let titles = Titles::new(small.model());
        let titles = if replaced { titles.with_instructions(own("Name it.")) } else { titles };
        let runtime: Runtime = testkit::runtime().shared_store(Arc::clone(&store)).titles(titles).build();
        let provider = ScriptedProvider::new()
            .step(Script::new().text("a".repeat(8_000)).finish(FinishReason::Stop))
            .step(Script::new().text("A summary.").finish(FinishReason::Stop));
        let agent = agent(provider.model()).build().unwrap();
        let session = runtime.session();
        session.start(&agent, "One").outcome().await.unwrap();
        let compaction = Compaction::new().keep_messages(0).with_focus("the ship");
        let compaction = if replaced { compaction.with_prompt(own("Sum it up.")) } else { compaction };
        assert!(session.compact(&compaction, &provider.model()).await.unwrap());
        // The clock stands still until the title is there.
        tokio::time::sleep(Duration::from_secs(1)).await;

        let asked = provider.requests()[1].messages.last().unwrap().text();
        assert_eq!(asked.starts_with("Sum it up."), replaced, "{asked}");
        assert!(asked.contains("the ship"), "{asked}");
        assert_eq!(&*small.requests()[0].instructions == "Name it.", replaced);
        let mut told = templates(&store, session.id()).await;
        told.sort();
        let expected = match replaced {
            true => [None, Some("mine@7".to_owned()), Some("mine@7".to_owned())],
            false => [None, Some(template("entourage/summary")), Some(template("entourage/title"))],
        };
        assert_eq!(told, expected);
    }
}

#[tokio::test]
async fn cw17_the_instructions_of_a_discriminator_are_replaced() {
    let worker = ScriptedProvider::new().text("Done.").text("It is done.");
    let checker = ScriptedProvider::new().call("task_complete", json!({"summary": "It is so."}));
    let executor = ReactAgent::builder("executor", worker.model()).build().unwrap();
    let discriminator =
        ReactAgent::builder("checker", checker.model()).instructions("I am strict.").build().unwrap();
    let dual = DualAgent::builder("pair", &executor, &discriminator)
        .discriminator_instructions(Instructions::from_template("Look twice.", "mine@1"))
        .build()
        .unwrap();
    open_runtime().session().start(&dual, "Do it").outcome().await.unwrap();
    assert_eq!(&*checker.requests()[0].instructions, "Look twice.\n\nI am strict.");
}

#[tokio::test]
async fn issue_14_a_task_agent_changes_nothing_whatever_its_tools_are() {
    let edit = FakeTool::new("edit").access(Access::WRITE);
    let run = FakeTool::new("bash").access(Access::EXECUTE);
    let below = ScriptedProvider::new()
        .calls([("edit", json!({})), ("bash", json!({})), ("look", json!({}))])
        .text("It is in a.rs:1.");
    let searcher = builtin::task(below.model())
        .tool(FakeTool::new("look"))
        .tool(edit.clone())
        .tool(run.clone())
        .build()
        .unwrap();
    let provider = ScriptedProvider::new().call("agent", json!({"prompt": "Where is it?"})).text("There.");
    let coder =
        builtin::coder(provider.model()).tool(edit.clone()).tool(AgentTool::new(&searcher)).build().unwrap();
    let store = memory();
    let session = runtime_on(&store).session();
    let outcome = session.start(&coder, "Find it").outcome().await.unwrap();
    assert_eq!((&*outcome.text, edit.started(), run.started()), ("There.", 0, 0));
    let offered: Vec<_> = below.requests()[0].tools.iter().map(|tool| tool.name().to_owned()).collect();
    assert_eq!(offered, ["look"]);
    let told = settled(&stored(&store, session.id()).await);
    assert!(told.iter().any(|(_, text)| text.contains("a.rs:1")), "{told:?}");
    let told = templates(&store, session.id()).await;
    assert!(
        told.contains(&Some(template("entourage/coder"))) && told.contains(&Some(template("entourage/task")))
    );
}
