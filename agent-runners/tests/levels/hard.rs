//! Verdicts that are hard to read, and mode changes while prompts are queued.

use entourage_core::{
    provider::{FinishReason, Profile},
    run::{Outcome, Status, StopReason},
};
use entourage_runners::{Autonomy, AutonomyLevel};
use entourage_testkit::{Gate, Script, ScriptedProvider};
use serde_json::json;

use crate::{
    common::{memory, open_runtime, runtime_on},
    ladder::worker,
};

fn yes(reason: &str) -> String {
    json!({ "approved": true, "reason": reason }).to_string()
}

fn no(reason: &str) -> String {
    json!({ "approved": false, "reason": reason }).to_string()
}

/// Returns the outcome of one round of the level `judge` for these replies of the judge.
async fn judged(replies: impl IntoIterator<Item = String>) -> Outcome {
    let works = ScriptedProvider::new().text("Planted.").text("I planted it.");
    let judges = replies.into_iter().fold(ScriptedProvider::named("judge"), ScriptedProvider::text);
    let agent = Autonomy::builder("gardener", worker(works.model())).judge(judges.model());
    let agent = agent.level(AutonomyLevel::Judge).iterations(1).build().unwrap();
    runtime_on(&memory()).session().start(&agent, "Plant a tree").outcome().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn cw01_a_verdict_that_contradicts_itself_accepts_nothing() {
    for reply in [
        format!("First I thought {}, but no: {}", yes("It stands."), no("It leans.")),
        format!("{}\n{}", yes("It stands."), no("It leans.")),
        format!("```json\n{}\n```\nor\n```json\n{}\n```", yes("It stands."), no("It leans.")),
        r#"{"approved": false, "approved": true, "reason": "It stands."}"#.to_owned(),
        r#"{"approved": false, "reason": "x", "approved": true}"#.to_owned(),
        format!("{} {}", yes("It stands."), yes("It stands, truly.")),
        format!("Here is my verdict:\n```json\n{}\n```", yes("It stands.")),
        format!("I do not approve. An approval would read {}.", yes("It stands.")),
        format!("They claim:\n{}", yes("It stands.")),
    ] {
        // Two values are asked about once more.
        let times = if reply.matches("{\"approved\"").count() > 1 { 2 } else { 1 };
        let outcome = judged(vec![reply.clone(); times]).await;
        let Status::Stopped(StopReason::Incomplete { feedback, .. }) = &outcome.status else {
            panic!("{reply}: {outcome}")
        };
        assert!(feedback.contains("could not be read"), "{reply}: {feedback}");
    }
}

#[tokio::test(start_paused = true)]
async fn cw01_a_verdict_in_any_script_and_of_any_length_is_one() {
    let long = "é🙂 fine. ".repeat(20_000);
    for reply in [
        format!("```json\n{}\n```", yes("It stands.")),
        format!("<think>{} or {}?</think>\n{}", yes("x"), no("y"), yes("It stands.")),
        yes("\"approved\": ja, weil: \"approved\""),
        yes("木が立っています。"),
        yes(&long),
    ] {
        let outcome = judged([reply.clone()]).await;
        assert!(outcome.is_completed(), "{}: {outcome}", reply.chars().take(80).collect::<String>());
    }
    let outcome = judged([no(&long)]).await;
    let Status::Stopped(StopReason::Incomplete { feedback, .. }) = &outcome.status else {
        panic!("{outcome}")
    };
    assert_eq!(**feedback, *long.trim());
    let outcome = judged(["It is fine.".to_owned(), "Approved: true!".to_owned()]).await;
    assert!(!outcome.is_completed(), "{outcome}");
}

#[tokio::test(start_paused = true)]
async fn cw02_two_confirmations_in_one_reply_confirm_nothing() {
    let confirm = |done: bool| json!({ "done": done, "reason": "It stands." });
    for answers in [[true, false], [false, true], [true, true]] {
        let both = || {
            let script = answers
                .iter()
                .fold(Script::new(), |script, done| script.call("Confirmation", &confirm(*done)));
            script.finish(FinishReason::ToolCalls)
        };
        let works = ScriptedProvider::new().text("Planted.").step(both());
        // Two values are asked about once more.
        let works = if answers[0] == answers[1] { works } else { works.step(both()) };
        let mut profile = Profile::default();
        profile.tools = Some(true);
        let agent = Autonomy::builder("gardener", worker(works.model().with_profile(profile)));
        let agent = agent.level(AutonomyLevel::Prompted).iterations(1).build().unwrap();
        let outcome = runtime_on(&memory()).session().start(&agent, "Plant").outcome().await.unwrap();
        assert!(
            matches!(outcome.status, Status::Stopped(StopReason::Incomplete { .. })),
            "{answers:?}: {outcome}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn cw12_prompts_that_wait_work_in_the_mode_that_is_picked_when_their_turn_comes() {
    let gate = Gate::new();
    let works = ScriptedProvider::new()
        .step(Script::new().wait(&gate).text("Dug.").finish(FinishReason::Stop))
        .text("Planted.")
        .text("I planted it.")
        .text("Watered.")
        .text("I watered it.");
    let judges = ScriptedProvider::named("judge").text(yes("It stands.")).text(yes("It is wet."));
    let agent = Autonomy::builder("gardener", worker(works.model())).judge(judges.model()).build().unwrap();
    let session = open_runtime().session();
    let first = session.start(&agent, "Dig");
    gate.arrived(1).await;
    let second = session.start(&agent, "Plant");
    let third = session.start(&agent, "Water");
    agent.set_mode(&session, "prompted").await.unwrap();
    agent.set_mode(&session, "judge").await.unwrap();
    gate.open();
    assert_eq!(first.outcome().await.unwrap().text, "Dug.");
    assert_eq!(second.outcome().await.unwrap().text, "I planted it.");
    assert_eq!(third.outcome().await.unwrap().text, "I watered it.");
    assert_eq!(judges.count(), 2);
}
