//! The debate, killed at every point, and read by a process that knows its records alone.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic and print")]

use std::sync::Arc;

use entourage_core::{
    Error, ErrorKind, Result, SessionId, provider::Model, session::SharedStore, tool::Access,
};
use entourage_outside::{Argument, Ballot, Debate};
use entourage_testkit::{
    FakeTool, MemoryStore, Policy, ReactAgent, Runtime, ScriptedProvider,
    crash::{self, Medium, Scenario},
};
use serde_json::json;

fn pear(provider: ScriptedProvider) -> ScriptedProvider {
    provider
        .text("Pears are sweet.")
        .call("note", json!({"text": "cost"}))
        .text("Pears cost less.")
        .text("Pears.")
}

fn plum(provider: ScriptedProvider) -> ScriptedProvider {
    provider.text("Plums are small.").text("Plums keep well.").text("Plums.")
}

fn juror(name: &str, model: Model) -> Result<ReactAgent> {
    ReactAgent::builder(name, model).build()
}

fn note() -> FakeTool {
    FakeTool::new("note").access(Access::WRITE)
}

/// Two sides, of which one writes with a tool that may not run twice, and three jurors.
fn debate() -> Scenario {
    let scenario = Scenario::new("debate", |life| {
        let model = |provider: ScriptedProvider| life.model(&provider.model());
        let new = ScriptedProvider::by_history;
        let one = ReactAgent::builder("pear", model(pear(new()))).tool(life.tool(note())).build()?;
        let two = juror("plum", model(plum(new())))?;
        let debate = Debate::new("debate", one, two)?
            .with_juror(juror("ann", model(new().text("pear")))?)
            .with_juror(juror("bob", model(new().text("It is plum, I think.")))?)
            .with_juror(juror("cid", model(new().text("pear")))?);
        Ok::<_, Error>(debate)
    });
    scenario
        .prompt("What shall we buy?")
        .runtime(|builder| builder.policy(Policy::allow_all()).checkpoint_every(3))
}

fn memory() -> Medium {
    Medium::memory()
        .tokio(|| tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build())
}

#[test]
fn a_debate_killed_at_every_point_comes_to_the_same_answer() {
    let undisturbed = format!("{:?}", crash::expected(&debate(), &memory()).unwrap());
    for fact in [
        r#"debate.argument {\"round\":1,\"side\":\"pear\",\"text\":\"Pears are sweet.\"}"#,
        r#"debate.argument {\"round\":3,\"side\":\"plum\",\"text\":\"Plums.\"}"#,
        r#"debate.ballot {\"by\":\"bob\",\"of\":\"plum\"}"#,
        "debate/pear tool_finished note",
        "debate run_finished completed",
    ] {
        assert!(undisturbed.contains(fact), "{fact}: {undisturbed}");
    }
    let report = crash::run(&debate(), &memory());
    println!("{report}");
    report.assert();
}

#[test]
fn a_debate_whose_effects_are_performed_elsewhere_comes_to_the_same_answer() {
    let here = format!("{:?}", crash::expected(&debate(), &memory()).unwrap());
    let there = format!("{:?}", crash::expected(&debate().distant(), &memory()).unwrap());
    assert_eq!(here, there);
    let report = crash::run(&debate().distant(), &memory());
    println!("{report}");
    report.assert();
}

#[tokio::test]
async fn another_process_reads_the_records() {
    let store: SharedStore = Arc::new(MemoryStore::new());
    let new = ScriptedProvider::by_history;
    let one = ReactAgent::builder("pear", pear(new()).model()).tool(note()).build().unwrap();
    let two = juror("plum", plum(new()).model()).unwrap();
    let debate = Debate::new("debate", one, two)
        .unwrap()
        .with_juror(juror("ann", new().text("both").model()).unwrap());
    let id = SessionId::new("fruit").unwrap();
    let runtime = Runtime::builder().shared_store(Arc::clone(&store)).policy(Policy::allow_all()).build();
    let session = runtime.session_with_id(id.clone());
    let outcome = session.start(debate, "What shall we buy?").outcome().await.unwrap();
    assert_eq!(outcome.text, "undecided");

    let other = Runtime::builder().shared_store(store).build();
    let events = other.open(&id).await.unwrap().events(0, usize::MAX).await.unwrap();
    let arguments: Vec<_> =
        events.iter().filter_map(|event| event.event.record::<Argument>().unwrap()).collect();
    let said: Vec<_> = arguments.iter().map(|it| (it.round, &*it.side)).collect();
    assert_eq!(said, [(1, "pear"), (1, "plum"), (2, "pear"), (2, "plum"), (3, "pear"), (3, "plum")]);
    assert_eq!(arguments[2].text, "Pears cost less.");
    let ballots: Vec<_> = events.iter().filter_map(|event| event.event.record::<Ballot>().unwrap()).collect();
    assert_eq!((ballots.len(), &*ballots[0].by, &ballots[0].of), (1, "ann", &None));
}

#[test]
fn two_sides_of_one_name_are_refused() {
    let one = juror("pear", ScriptedProvider::new().model()).unwrap();
    assert_eq!(Debate::new("debate", one.clone(), one).unwrap_err().kind(), ErrorKind::Config);
}
