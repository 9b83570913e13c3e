//! Pairs of agents that are no `ReactAgent`: the executor's answer is its report, the checker's answer the verdict.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use entourage_core::{
    ErrorKind, Result,
    agent::Agent,
    provider::FinishReason,
    run::{Outcome, RunContext, StopReason, Task},
};
use entourage_runners::{
    Autonomy, AutonomyLevel, DualAgent, ReactAgent, Verdict,
    graph::TaskGraph,
    typed::{OutcomeExt, Strategy},
};
use entourage_runtime::{AgentExt, Runtime};
use entourage_testkit::{Script, ScriptedProvider};

/// Answers with each of its texts in turn, and keeps what it was asked.
#[derive(Clone)]
struct Says {
    name: &'static str,
    texts: Arc<Mutex<Vec<String>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Says {
    fn new(name: &'static str, texts: &[&str]) -> Self {
        let texts = texts.iter().rev().map(|text| (*text).to_owned()).collect();
        Self { name, texts: Arc::new(Mutex::new(texts)), asked: Arc::default() }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

#[async_trait]
impl Agent for Says {
    fn name(&self) -> &str {
        self.name
    }

    async fn run(&self, task: Task, _: &RunContext) -> Result<Outcome> {
        self.asked.lock().unwrap().push(task.prompt.text());
        Ok(Outcome::completed(self.texts.lock().unwrap().pop().expect("one more answer")))
    }
}

fn verdict(verdict: Verdict) -> String {
    Outcome::from(verdict).text
}

#[tokio::test]
async fn any_two_agents_are_a_pair() {
    let works = Says::new("works", &["I planted one tree.", "I planted both trees."]);
    let checks = Says::new(
        "checks",
        &[
            &verdict(Verdict::rejected("One is missing.")),
            &format!("```json\n{}\n```", verdict(Verdict::accepted("I counted two."))),
        ],
    );
    let pair = DualAgent::builder("pair", &works, Arc::new(checks.clone())).build().unwrap();
    let session = Runtime::in_memory().session();
    let outcome = session.start(&pair, "Plant two trees.").outcome().await.unwrap();
    assert_eq!((outcome.is_completed(), &*outcome.text), (true, "I planted both trees."));
    assert_eq!(works.asked(), ["Plant two trees.", "One is missing."]);
    let asked = checks.asked();
    assert_eq!(asked.len(), 2, "{asked:?}");
    for (asked, report) in asked.iter().zip(["I planted one tree.", "I planted both trees."]) {
        assert!(asked.contains("Plant two trees.") && asked.contains(report), "{asked}");
    }
    let events = session.events(0, 1_000).await.unwrap();
    let phases = events.iter().filter(|event| event.event.kind() == "keep:checked.phase_finished").count();
    assert_eq!(phases, 4, "nobody was asked for a summary");
}

#[tokio::test]
async fn an_answer_that_is_not_one_verdict_and_nothing_else_rejects() {
    let yes = verdict(Verdict::accepted("Seen."));
    for answer in [
        "Yes, all of it is done.",
        "accepted",
        "",
        "{\"accepted\": \"true\", \"reason\": \"Seen.\"}",
        "{\"accepted\": true, \"accepted\": false, \"reason\": \"Seen.\"}",
        "{\"accepted\": false, \"accepted\": true, \"reason\": \"Seen.\"}",
        "{\"accepted\": true, \"reason\": \"No.\", \"reason\": \"Seen.\"}",
        "{\"accepted\": false, \"reason\": \" \"}",
        "{\"accepted\": true}",
        &format!("{yes} {yes}"),
        &format!("It would read {yes}"),
        &format!("{yes}\nBut I did not look."),
        &format!("[{yes}]"),
    ] {
        let (works, checks) = (Says::new("works", &["Done."]), Says::new("checks", &[answer]));
        let pair = DualAgent::builder("pair", works, checks).iterations(1).build().unwrap();
        let error = pair.ask("Plant.").await.unwrap_err();
        assert!(matches!(error.stop_reason(), Some(StopReason::Incomplete { .. })), "{answer}: {error}");
    }
    let (works, checks) = (Says::new("works", &["Done."]), Says::new("checks", &[&yes]));
    let pair = DualAgent::builder("pair", works, checks).iterations(1).requires_evidence().build().unwrap();
    let error = pair.ask("Plant.").await.unwrap_err();
    assert!(error.message().contains("without evidence"), "{error}");
}

#[tokio::test]
async fn a_graph_checks_what_a_model_did_at_every_level_that_has_a_checker() {
    let works =
        ScriptedProvider::new().text("Here.").text("I planted it.").text("Here.").text("I planted it.");
    let executor = ReactAgent::builder("works", works.model()).build().unwrap();
    let graph = TaskGraph::builder("checks");
    let look = graph.step("look", (), |()| async { Ok(verdict(Verdict::accepted("It stands."))) });
    let graph = graph.returning(&look).build().unwrap();
    let agent = Autonomy::builder("levels", &executor).discriminator(&graph).build().unwrap();
    for level in [AutonomyLevel::Verified, AutonomyLevel::Dual] {
        assert_eq!(agent.at(level).unwrap().ask("Plant.").await.unwrap(), "I planted it.");
    }
    let error = agent.with_model("discriminator", works.model()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");

    let asked = Says::new("works", &["I planted one.", "No. One is missing.", "I planted two.", "Yes."]);
    let agent = Autonomy::builder("levels", &asked).level(AutonomyLevel::Prompted).build().unwrap();
    assert_eq!(agent.ask("Plant two.").await.unwrap(), "I planted two.");
    let claims = Autonomy::builder("levels", &asked).until_task_complete().build();
    assert_eq!(claims.unwrap_err().kind(), ErrorKind::Config);
}

#[tokio::test]
async fn the_value_of_a_typed_executor_is_that_of_the_pair() {
    let works = ScriptedProvider::new().text("Two?").text("[2]").text("[1, 2]");
    let checks = ScriptedProvider::named("other")
        .text(r#"{"accepted": false, "reason": "One is missing."}"#)
        .text(r#"{"accepted": true, "reason": "I counted two."}"#);
    let executor = ReactAgent::builder("works", works.model()).returns::<Vec<u8>>().build().unwrap();
    // A typed checker answers with the verdict that any checker answers with.
    let checker = ReactAgent::builder("checks", checks.model()).returns::<Decided>().build().unwrap();
    let pair = DualAgent::builder("pair", executor, checker).build().unwrap();
    let outcome = pair.start("Plant two trees.").outcome().await.unwrap();
    assert_eq!(outcome.value::<Vec<u8>>().unwrap(), [1, 2]);
}

#[tokio::test]
async fn a_typed_verdict_with_a_field_that_is_given_twice_accepts_nothing() {
    let verdict = r#"{"accepted": false, "accepted": true, "reason": "I counted two."}"#;
    for strategy in [Strategy::Prompt, Strategy::Tool] {
        let works = Says::new("works", &["Done."]);
        let reply = || match strategy {
            Strategy::Tool => Script::new().raw_call("final_answer", verdict).finish(FinishReason::ToolCalls),
            _ => Script::new().text(format!("```json\n{verdict}\n```")).finish(FinishReason::Stop),
        };
        let checks = ScriptedProvider::new().step(reply()).step(reply());
        let checker = ReactAgent::builder("checks", checks.model()).returns::<Decided>().strategy(strategy);
        let pair = DualAgent::builder("pair", works, checker.build().unwrap()).iterations(1).build().unwrap();
        let error = pair.ask("Plant.").await.unwrap_err();
        assert!(matches!(error.stop_reason(), Some(StopReason::Incomplete { .. })), "{strategy:?}: {error}");
        let told = checks.requests()[1].messages.last().unwrap().text();
        assert!(told.contains("the field `accepted` is given twice"), "{strategy:?}: {told}");
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[allow(dead_code, reason = "only its schema counts")]
struct Decided {
    accepted: bool,
    reason: String,
}
