//! Prompt templates: their text, and the record of the template that was used.

#![cfg(feature = "templates")]

use entourage_core::{
    ErrorKind, SessionId,
    context::{ContextFile, GitFacts, Instructions, PromptFacts},
    event::{Envelope, Event},
    provider::Model,
};
use entourage_runners::{Prepared, ReactAgent, Step};
use entourage_runtime::{
    context::{PromptTemplate, Templates},
    telemetry::Telemetry,
};
use entourage_testkit::{FakeTool, ScriptedProvider};
use serde_json::json;

use crate::common::{
    Fault, FaultyStore, agent, memory, open_runtime, process, runtime_on, stored, until_killed,
};

const CODER: &str = "\
You are {{ model }} at {{ provider }}, in {{ working_dir }} on {{ platform }}. Today is {{ date }}.
{% if git %}
Branch {{ git.branch }}
{{ git.status }}
{% for commit in git.commits %}
- {{ commit }}
{% endfor %}
{% endif %}
{% for file in global_context_files + context_files %}
<file path=\"{{ file.path }}\">
{{ file.content }}
</file>
{% endfor %}
{{ skills }}
{% if config.verbose %}
Explain what you do.
{% endif %}
";

fn facts() -> PromptFacts {
    PromptFacts::new()
        .with_model("large-1")
        .with_provider("scripted")
        .with_working_dir(r"C:\work\site")
        .with_platform("windows")
        .with_date("2026-01-02")
        .with_context_files([ContextFile::new(r"C:\work\site\AGENTS.md", "Use tabs.")])
        .with_global_context_files([ContextFile::new("/home/a/notes.md", "Be kind & <brief>.")])
        .with_skills("Skills: none.")
        .with_config(json!({"verbose": true}))
}

fn coder(version: u32, source: &str) -> PromptTemplate {
    PromptTemplate::new("coder", version, source).unwrap()
}

#[test]
fn ci03_a_prompt_is_rendered_from_facts_alone() {
    let git = GitFacts::new("main", [" M src/a.rs", "?? b"], ["abc Third", "abb Second", "aba First"]);
    let template = coder(3, CODER);
    let expected = "\
You are large-1 at scripted, in C:/work/site on windows. Today is 2026-01-02.
Branch main
 M src/a.rs
?? b
- abc Third
- abb Second
- aba First
<file path=\"/home/a/notes.md\">
Be kind & <brief>.
</file>
<file path=\"C:/work/site/AGENTS.md\">
Use tabs.
</file>
Skills: none.
Explain what you do.
";
    let rendered = template.render(&facts().with_git(git.clone())).unwrap();
    assert_eq!(rendered.text(), expected);
    assert_eq!(rendered, template.render(&facts().with_git(git)).unwrap());
}

#[test]
fn ci03_outside_a_repository_there_is_no_git_block() {
    let rendered = coder(3, CODER).render(&facts().with_git(None)).unwrap();
    assert!(rendered.text().contains("2026-01-02.\n<file") && !rendered.text().contains("Branch"));
}

#[test]
fn ci03_a_missing_variable_is_an_error_and_no_empty_text() {
    let without = PromptFacts::new().with_model("large-1").with_provider("scripted");
    let error = coder(3, CODER).render(&without).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.message().starts_with("line 1 of the template asks for `working_dir`"), "{error}");
    assert!(error.to_string().contains("coder@3#"), "{error}");
}

#[tokio::test]
async fn ci03_a_services_prefix_is_said_first() {
    let provider = ScriptedProvider::new().text("Hi.");
    let instructions = coder(1, "Write code.").render(&facts()).unwrap().prefixed("You are an agent.");
    let id = instructions.template().unwrap().to_owned();
    let agent = agent(provider.model()).instructions(instructions).build().unwrap();
    let store = memory();
    let session = runtime_on(&store).session();
    session.start(&agent, "Hello").outcome().await.unwrap();
    assert_eq!(&*provider.requests()[0].instructions, "You are an agent.\n\nWrite code.");
    assert_eq!(templates(&stored(&store, session.id()).await), [Some(id)]);
}

#[test]
fn cw17_changed_text_needs_another_version() {
    let mut known = Templates::new();
    known.register(coder(1, "Write code.")).unwrap();
    known.register(coder(1, "Write code.")).unwrap();
    known.register(coder(2, "Write short code.")).unwrap();
    let error = known.register(coder(1, "Write good code.")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(
        error.message().contains("raise the version") && error.message().contains("version 3"),
        "{error}"
    );
    assert_eq!(known.get("coder").unwrap().source(), "Write short code.");
    let first = coder(1, "Write code.");
    assert_eq!(known.get(first.id()).unwrap().source(), "Write code.", "the refused text is nowhere");
    // The id is what records hold: it may never change for the same words.
    assert_eq!(first.id(), "coder@1#ce575b3a2022");
}

/// The template of every model call, in order.
fn templates(events: &[Envelope]) -> Vec<Option<String>> {
    let started = events.iter().filter_map(|event| match &event.event {
        Event::ModelStarted(started) => Some(started.template.as_deref().map(str::to_owned)),
        _ => None,
    });
    started.collect()
}

fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

fn templated(model: Model, instructions: Instructions) -> ReactAgent {
    agent(model).tool(FakeTool::new("look")).instructions(instructions).build().unwrap()
}

#[tokio::test]
async fn cw17_every_call_and_every_trace_names_the_template() {
    let store = memory();
    let provider = ScriptedProvider::by_history().call("look", json!({})).text("Done.");
    let instructions = coder(7, "Work in {{ working_dir }}.").render(&facts()).unwrap();
    let used = instructions.template().map(str::to_owned);
    let agent = templated(provider.model(), instructions);
    runtime_on(&store).session_with_id(id("s")).start(&agent, "Go").outcome().await.unwrap();
    let events = stored(&store, &id("s")).await;
    assert_eq!(templates(&events), [used.clone(), used.clone()]);
    let trace = Telemetry::new(std::sync::Arc::clone(&store)).trace("s").await.unwrap();
    let traced: Vec<_> =
        trace.model_calls.iter().map(|call| call.template.as_deref().map(str::to_owned)).collect();
    assert_eq!(traced, [used.clone(), used]);
    assert_eq!(&*provider.requests()[1].instructions, "Work in C:/work/site.");
}

#[tokio::test]
async fn cw17_plain_text_names_no_template_and_takes_an_earlier_one_away() {
    let store = memory();
    let provider = ScriptedProvider::new().text("Hi.");
    let made = coder(1, "Write code.").render(&facts()).unwrap();
    let agent = agent(provider.model()).instructions(made).instructions("Be brief.").build().unwrap();
    runtime_on(&store).session_with_id(id("s")).start(&agent, "Go").outcome().await.unwrap();
    assert_eq!(templates(&stored(&store, &id("s")).await), [None]);
}

#[tokio::test]
async fn cw17_a_hook_that_replaces_the_words_replaces_the_id() {
    let provider = ScriptedProvider::by_history()
        .call("look", json!({}))
        .call("look", json!({}))
        .call("look", json!({}))
        .text("Done.");
    let (own, other) = (coder(1, "Write code."), coder(2, "Read code."));
    let (made, replaced) = (own.render(&facts()).unwrap(), other.render(&facts()).unwrap());
    let hook = move |step: &Step, plan: &mut Prepared| match step.number {
        2 => plan.instructions = "Only look.".into(),
        3 => plan.instructions = replaced.clone(),
        _ => {}
    };
    let look = FakeTool::new("look");
    let agent = agent(provider.model()).tool(look).instructions(made).prepare(hook).build().unwrap();
    let runtime = open_runtime();
    let session = runtime.session();
    session.start(&agent, "Go").outcome().await.unwrap();
    let seen = templates(&stored(runtime.store(), session.id()).await);
    let own = Some(own.id().to_owned());
    assert_eq!(seen, [own.clone(), None, Some(other.id().to_owned()), own]);
}

#[test]
fn cw17_a_resumed_run_names_the_template_that_it_then_uses() {
    let inner = memory();
    // The process dies when the reply would be stored.
    let faulty = FaultyStore::new(&inner, 1, Fault::HangBefore);
    let killed = faulty.killed.clone();
    let (before, after) = (coder(1, "Write code."), coder(2, "Write short code."));
    let life = |template: &PromptTemplate| {
        let provider = ScriptedProvider::by_history().call("look", json!({})).text("Done.");
        templated(provider.model(), template.render(&facts()).unwrap())
    };
    process(until_killed(
        async {
            let agent = life(&before);
            runtime_on(&(faulty as _)).session_with_id(id("s")).start(&agent, "Go").outcome().await.unwrap();
        },
        &killed,
    ));
    let (old, new) = (Some(before.id().to_owned()), Some(after.id().to_owned()));
    let seen = process(async {
        assert_eq!(templates(&stored(&inner, &id("s")).await), std::slice::from_ref(&old));
        let agent = life(&after);
        runtime_on(&inner).session_with_id(id("s")).resume(&agent).outcome().await.unwrap();
        templates(&stored(&inner, &id("s")).await)
    });
    assert_eq!(seen, [old, new.clone(), new]);
}
