//! Calls that were refused in the original, and in the rerun; agents below; reasons of scores that fail.

use async_trait::async_trait;
use entourage_core::{
    Result,
    permission::{ApprovalRequest, Approver, Decision},
    run::RunContext,
    tool::{LayerVerdict, ToolLayer, ToolSpec},
};
use entourage_runners::{AgentTool, layered};
use entourage_runtime::{RuntimeBuilder, Waiting};

use super::*;
use crate::rerun::{Score, answers::MARKED};

#[derive(Debug)]
struct Says(Decision);

#[async_trait]
impl Approver for Says {
    async fn decide(&self, _: &ApprovalRequest) -> Result<Decision> {
        Ok(self.0.clone())
    }
}

#[derive(Debug)]
struct Layer(LayerVerdict);

#[async_trait]
impl ToolLayer for Layer {
    async fn before(&self, _: &ToolSpec, _: &mut Value, _: &RunContext) -> Result<LayerVerdict> {
        Ok(self.0.clone())
    }
}

type Surroundings = (&'static str, fn() -> RuntimeBuilder, &'static str);

/// Ways to refuse a call, and what the model is told.
fn refusing() -> Vec<Surroundings> {
    vec![
        ("denies", || crate::runtime().approver(Says(Decision::Deny)), "refused by the approver"),
        (
            "refuses",
            || crate::runtime().approver(Says(Decision::refuse("not today"))),
            "refused by the approver: not today",
        ),
        (
            "asks back",
            || crate::runtime().approver(Says(Decision::Ask("Who?".into()))),
            "not run: the approver asks: Who?\nAnswer, and call the tool again if the call is still wanted.",
        ),
        ("rule", || crate::runtime().policy(Policy::new().deny("send")), "refused by the rule `deny send`"),
        (
            "layer refuses",
            || crate::runtime().tool_layer(Layer(LayerVerdict::Refuse("not today".into()))),
            "not run: not today",
        ),
        (
            "layer stops",
            || crate::runtime().tool_layer(Layer(LayerVerdict::Stop("not today".into()))),
            "not run: not today",
        ),
    ]
}

fn replies() -> ScriptedProvider {
    // A refusal may end the turn.
    ScriptedProvider::by_history().call("send", to("Ada")).text("It was refused.")
}

#[tokio::test]
async fn a_refusal_is_an_answer_whoever_refused() {
    for (case, surroundings, text) in refusing() {
        let tool = send();
        let runtime = surroundings().build();
        let session = runtime.session();
        session.start(agent(&replies(), [tool.clone()]), "Send it").outcome().await.unwrap();
        let original = transcript(&runtime, &session).await;
        assert_eq!(original.calls[0].text(), text, "{case}");
        for unmatched in [Unmatched::Mark, Unmatched::Perform] {
            let new = replies();
            let rerun = rerun(original.clone(), &agent(&new, [tool.clone()]), unmatched).await;
            assert_eq!((figures(&rerun), rerun.same_calls()), ([1, 0, 0, 0], Ok(())), "{case}");
            assert_eq!((rerun.rerun.calls[0].text(), tool.started()), (text.to_owned(), 0), "{case}");
        }
        // The runtime of the rerun may refuse it too, before the record is asked.
        let again = Rerun::of([original], agent(&replies(), [tool.clone()])).runtime(surroundings());
        let report = again.score("same calls", RerunCase::same_calls).run().await.unwrap();
        assert_eq!((report.passed(), tool.started()), (1, 0), "{case}: {report}");
    }
}

#[tokio::test]
async fn a_refusal_that_came_later_or_from_the_agents_own_layer_is_one_too() {
    let tool = send();
    let runtime = crate::runtime().build();
    let session = runtime.session();
    let old = replies();
    let clerk = agent(&old, [tool.clone()]);
    session.start(Arc::clone(&clerk), "Send it").outcome().await.unwrap();
    let pending = session.pending().await.unwrap();
    let Waiting::Approval(question) = &pending[0].waits_for else { panic!("{pending:?}") };
    session.decide(&question.id, Decision::refuse("not today").by("ada")).await.unwrap();
    session.resume(clerk).outcome().await.unwrap();
    let original = transcript(&runtime, &session).await;
    let case = rerun(original, &agent(&replies(), [tool.clone()]), Unmatched::Mark).await;
    assert_eq!((figures(&case), case.has_same_answers()), ([1, 0, 0, 0], true), "{case:?}");

    let clerk = |service: &ScriptedProvider| -> Arc<dyn Agent> {
        let layered = layered(tool.clone(), Layer(LayerVerdict::Refuse("not today".into())));
        Arc::new(ReactAgent::builder("clerk", service.model()).tool(layered).build().unwrap())
    };
    let case =
        rerun(recorded(&clerk(&replies()), &["Send it"]).await, &clerk(&replies()), Unmatched::Mark).await;
    assert_eq!((case.same_calls(), case.rerun.calls[0].text()), (Ok(()), "not run: not today".to_owned()));
    assert_eq!(tool.started(), 0);
}

#[tokio::test]
async fn what_the_runtime_answered_itself_answers_no_call() {
    // No such tool; arguments that do not fit; the same call again and again.
    let tool = FakeTool::new("send").requiring(&["to"]);
    let old = || {
        let old = ScriptedProvider::by_history().call("nothing", json!({})).call("send", json!({"to": 1}));
        (0..9).fold(old, |old, _| old.call("send", to("Ada"))).text("Done.")
    };
    let original = recorded(&agent(&old(), [tool.clone()]), &["Send it"]).await;
    let unanswered = |call: &&crate::rerun::TranscriptCall| !call.is_answered;
    let texts: Vec<_> = original.calls.iter().filter(unanswered).map(|call| call.text()).collect();
    for beginning in ["there is no tool `nothing`", "the arguments of `send` do not fit", "not run: you made"]
    {
        assert!(texts.iter().any(|text| text.starts_with(beginning)), "{beginning}: {texts:?}");
    }
    let ran = original.calls.iter().filter(|call| call.is_answered).count();
    assert_eq!(ran, tool.started(), "{texts:?}");
}

/// Reruns one session in this runtime, and returns the number of refused calls, and whether the calls are the same.
async fn refused(original: &Transcript, agent: Arc<dyn Agent>, runtime: RuntimeBuilder) -> (u64, bool) {
    let plan = Rerun::of([original.clone()], agent).runtime(runtime);
    let report = plan.score("same calls", RerunCase::same_calls).run().await.unwrap();
    let case = &report.cases()[0];
    assert_eq!(case.marked + case.performed + case.refused, case.changed.len() as u64, "{case:?}");
    (case.refused, case.has_same_calls())
}

#[tokio::test]
async fn a_new_call_that_the_runtime_answers_is_new() {
    let (tool, wipe) = (send().requiring(&["to"]), FakeTool::new("wipe").access(Access::WRITE));
    let making = |calls: &[(&'static str, Value)]| -> Arc<dyn Agent> {
        let script = calls
            .iter()
            .cloned()
            .fold(ScriptedProvider::by_history(), |script, (name, with)| script.call(name, with));
        agent(&script.text("Done."), [tool.clone(), wipe.clone()])
    };
    let all: fn() -> RuntimeBuilder = || crate::runtime().policy(Policy::allow_all());
    let ruled = || crate::runtime().policy(Policy::allow_all().deny("wipe"));
    let layered = || {
        let refuses = Layer(LayerVerdict::Refuse("not today".into()));
        crate::runtime().policy(Policy::allow_all()).tool_layer(refuses)
    };
    let ada = || ("send", to("Ada"));
    let none = || ("nothing", json!({}));
    let wrong = || ("send", json!({"nobody": 1}));
    let wipes = || ("wipe", json!({}));
    type Case = (Vec<(&'static str, Value)>, Vec<(&'static str, Value)>, fn() -> RuntimeBuilder, (u64, bool));
    let cases: Vec<(&str, Case)> = vec![
        ("no such tool", (vec![ada()], vec![ada(), none()], all, (1, false))),
        ("wrong arguments", (vec![ada()], vec![ada(), wrong(), wrong()], all, (2, false))),
        ("a rule", (vec![ada()], vec![ada(), wipes()], ruled, (1, false))),
        ("as often", (vec![none(), wrong(), ada()], vec![ada(), none(), wrong()], all, (0, true))),
        ("more often", (vec![none(), wrong(), ada()], vec![ada(), none(), wrong(), none()], all, (1, false))),
        ("less often", (vec![none(), wrong(), ada()], vec![ada()], all, (0, true))),
        ("one layer", (vec![ada()], vec![ada()], layered, (0, true))),
        (
            "one layer, more often",
            (vec![ada()], vec![ada(), ada(), ("send", to("Bob"))], layered, (2, false)),
        ),
    ];
    for (case, (before, now, runtime, expected)) in cases {
        let first = runtime().build();
        let session = first.session();
        session.start(making(&before), "Send it").outcome().await.unwrap();
        let original = transcript(&first, &session).await;
        let started = tool.started();
        assert_eq!(refused(&original, making(&now), runtime()).await, expected, "{case}");
        // Every answer is in the record.
        assert_eq!(refused(&original, making(&before), all()).await, (0, true), "{case}");
        assert_eq!((tool.started(), wipe.started()), (started, 0), "{case}");
    }
    // Performed before, and refused now: there is no such tool.
    let original = recorded(&making(&[ada()]), &["Send it"]).await;
    let without = ScriptedProvider::by_history().call("send", to("Ada")).text("Done.");
    assert_eq!(refused(&original, agent(&without, [wipe.clone()]), all()).await, (1, false));
    let performing = Rerun::of([original], making(&[ada(), wipes()])).unmatched(Unmatched::Perform);
    let report = performing.runtime(ruled()).score("same calls", RerunCase::same_calls).run().await.unwrap();
    assert_eq!((figures(&report.cases()[0]), report.cases()[0].refused), ([1, 0, 0, 0], 1));
    assert!(report.to_string().contains("1 same, 1 refused") && report.passed() == 0, "{report}");
    assert!(report.to_string().contains("new: wipe {}"), "{report}");
}

#[tokio::test]
async fn the_answer_of_an_agent_stands_for_all_calls_below_it() {
    let (tool, look) = (send(), FakeTool::new("look").returning("a tree"));
    let ask = |prompt: &str| json!({"prompt": prompt});
    let lead = |prompts: [&str; 2]| -> Arc<dyn Agent> {
        let calls = || [("agent", ask(prompts[0])), ("agent", ask(prompts[1])), ("look", json!({}))];
        let top = ScriptedProvider::by_history().calls(calls()).text("Done.").calls(calls()).text("Done.");
        let middle = ScriptedProvider::by_history().call("agent", ask("Deeper")).text("Asked.");
        let low = ScriptedProvider::by_history().call("send", to("Ada")).text("Sent.");
        let low = ReactAgent::builder("low", low.model()).tool(tool.clone()).build().unwrap();
        let middle = ReactAgent::builder("middle", middle.model()).tool(AgentTool::new(low)).build().unwrap();
        let top = ReactAgent::builder("lead", top.model()).tool(AgentTool::new(middle)).tool(look.clone());
        Arc::new(top.build().unwrap())
    };
    let original = recorded(&lead(["a", "b"]), &["Go", "Again"]).await;
    assert_eq!((original.calls.len(), tool.started()), (14, 4));
    // In a file, too, and in one of an earlier version nothing is known.
    let file = original.to_jsonl().unwrap();
    assert_eq!(Transcript::from_jsonl(&file).unwrap(), original);
    // Two prompts, each with two agents and a look, answered by the record; four calls below each.
    let case = rerun(original.clone(), &lead(["a", "b"]), Unmatched::Mark).await;
    assert_eq!((figures(&case), case.same_calls()), ([6, 0, 0, 0], Ok(())), "{case:?}");
    let mut older = original.clone();
    older.calls.iter_mut().for_each(|call| call.place = "".into());
    let case = rerun(older, &lead(["a", "b"]), Unmatched::Mark).await;
    assert_eq!(figures(&case), [6, 0, 0, 8]);
    // Another prompt for the second agent: that one runs, and the record answers what it asks of the agent below it.
    let case = rerun(original, &lead(["a", "c"]), Unmatched::Mark).await;
    assert_eq!(figures(&case), [6, 0, 2, 2], "{case:?}");
    let missing: Vec<_> = case.missing.iter().map(ToString::to_string).collect();
    assert_eq!(missing, [r#"agent {"prompt":"b"}"#, r#"agent {"prompt":"b"}"#]);
    assert_eq!(tool.started(), 4);
}

#[tokio::test]
async fn a_score_that_fails_names_the_call_and_the_answer() {
    let tool = send();
    let old = ScriptedProvider::new().calls([("send", to("Ada")), ("send", to("Bob"))]).text("Sent.");
    let original = recorded(&agent(&old, [tool.clone()]), &["Send it"]).await;
    let new = ScriptedProvider::new()
        .calls([("send", to("Eve")), ("send", to("Eve")), ("send", to("Bob"))])
        .text("Sent to Eve.");
    let report = Rerun::of([original], agent(&new, [tool]))
        .score("same calls", RerunCase::same_calls)
        .score("same answers", RerunCase::same_answers)
        .run()
        .await
        .unwrap();
    let case = &report.cases()[0];
    let reason = r#"new: send {"to":"Eve"} and 1 more; left out: send {"to":"Ada"}"#;
    assert_eq!(case.scores[0].1, Score::Fail(reason.to_owned()));
    assert_eq!(case.scores[1].1, Score::Fail(r#"answer 1: "Sent to Eve.""#.to_owned()));
    assert!(report.to_string().contains(reason), "{report}");
    assert_eq!(case.rerun.calls[0].text(), MARKED);
}
