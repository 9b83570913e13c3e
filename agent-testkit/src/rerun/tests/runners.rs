//! Runs of runners and of hand-written agents, and originals that were interrupted or resumed.

use async_trait::async_trait;
use entourage_core::{
    Result,
    permission::Decision,
    provider::Size,
    run::{Outcome, Pause, RunContext, Status, Task},
    tool::{Tool, Tools},
};
use entourage_runners::{
    DualAgent, person,
    planner::Planner,
    team::{Member, TaskType, Team, TeamMessage},
};
use entourage_runtime::Waiting;

use super::*;
use crate::rerun::answers::MARKED;

fn react(name: &str, provider: &ScriptedProvider, tool: &FakeTool) -> ReactAgent {
    ReactAgent::builder(name, provider.model()).tool(tool.clone()).build().unwrap()
}

#[tokio::test]
async fn calls_of_phases_are_answered() {
    let tool = send();
    let pair = || -> Arc<dyn Agent> {
        let executor = ScriptedProvider::by_history().call("send", to("Ada")).text("Sent.");
        let judge = ScriptedProvider::by_history().text("COMPLETE: it was sent.");
        let judge = ReactAgent::builder("judge", judge.model()).build().unwrap();
        let pair = DualAgent::builder("pair", react("worker", &executor, &tool), judge);
        Arc::new(pair.iterations(1).build().unwrap())
    };
    let original = recorded(&pair(), &["Send it"]).await;
    assert_eq!((original.calls.len(), original.calls[0].run, tool.started()), (1, 0, 1));
    let case = rerun(original, &pair(), Unmatched::Mark).await;
    assert_eq!((figures(&case), tool.started()), ([1, 0, 0, 0], 1));
    assert!(case.has_same_answers() && case.rerun.status() == case.original.status());
}

type Make = fn(&FakeTool) -> Arc<dyn Agent>;

/// A team of two, of which one writes to the other.
fn crew(look: &FakeTool) -> Arc<dyn Agent> {
    let item =
        |id: &str, kind: &str, after: &[&str]| json!({"id": id, "task": id, "type": kind, "after": after});
    let plan = json!({"items": [item("look", "summarize", &[]), item("write", "code", &["look"])]});
    let lead = ScriptedProvider::by_history().text(plan.to_string()).text("All is done.");
    let news = json!({"to": "writer", "type": "status", "text": "Found it."});
    let scout = ScriptedProvider::by_history()
        .call("send_message", news)
        .call("look", json!({}))
        .text("It is there.");
    let writer = ScriptedProvider::by_history().call("look", json!({})).text("Written.");
    let team = Team::builder("crew", lead.model())
        .member(Member::new(react("scout", &scout, look)).size(Size::S))
        .member(Member::new(react("writer", &writer, look)).size(Size::Xl).specialist_in([TaskType::Code]))
        .mailbox();
    Arc::new(team.build().unwrap())
}

fn assistant(look: &FakeTool) -> Arc<dyn Agent> {
    let step = json!({"number": 1, "description": "Look.", "executor_required": true, "tools": ["look"]});
    let plans =
        ScriptedProvider::by_history().call("final_answer", json!({"steps": [step]})).text("It is old.");
    let looks = ScriptedProvider::by_history()
        .call("look", json!({}))
        .call("reply", json!({"type": "question", "text": "Which one?"}))
        .call("reply", json!({"type": "complete", "text": "The old one."}));
    let tools = vec![Arc::new(look.clone()) as Arc<dyn Tool>];
    let planner = Planner::builder("assistant", plans.model()).executor(looks.model()).without_classifier();
    Arc::new(planner.tools(tools).build().unwrap())
}

#[tokio::test]
async fn teams_and_planners_go_on_by_their_own_tools() {
    let look = FakeTool::new("look").returning("a tree");
    let made: [Make; 2] = [crew, assistant];
    for (make, prompt) in made.into_iter().zip(["Do it all.", "First look, then sum up."]) {
        let before = look.started();
        let original = recorded(&make(&look), &[prompt]).await;
        let calls = u64::try_from(look.started() - before).unwrap();
        assert!(original.is_completed() && calls > 0, "{original:?}");
        let store = Arc::new(entourage_runtime::MemoryStore::new());
        let rerun = Rerun::of([original], make(&look)).runtime(crate::runtime().shared_store(store.clone()));
        let report = rerun.score("same calls", RerunCase::has_same_calls).run().await.unwrap();
        let case = &report.cases()[0];
        assert_eq!(
            (figures(case), look.started() - before),
            ([calls, 0, 0, 0], usize::try_from(calls).unwrap())
        );
        assert!(case.is_completed() && case.has_same_answers(), "{report}");
        // What members wrote came to the record of the rerun.
        let mail = case.rerun.calls.iter().any(|call| &*call.tool == "send_message" && !call.is_error);
        let runtime = crate::runtime().shared_store(store).build();
        let root = entourage_core::SessionId::new(case.rerun.session.as_str()).unwrap();
        let events = runtime.session_with_id(root).events(0, 10_000).await.unwrap();
        let sent = events.iter().filter_map(|it| it.event.record::<TeamMessage>().unwrap()).count();
        assert_eq!(sent, usize::from(mail));
    }
}

/// Sends by hand, and says what came of it.
#[derive(Clone)]
struct ByHand(Tools);

#[async_trait]
impl Agent for ByHand {
    fn name(&self) -> &str {
        "by-hand"
    }

    async fn run(&self, _: Task, cx: &RunContext) -> Result<Outcome> {
        Ok(Outcome::completed(cx.call_tool(&self.0, "send", &to("Ada")).await?.to_text()))
    }
}

#[tokio::test]
async fn calls_of_hand_written_agents_have_no_arguments_in_the_record_and_are_marked() {
    let tool = send();
    let tools = Tools::new([Arc::new(tool.clone()) as Arc<dyn Tool>]).unwrap();
    let by_hand: Arc<dyn Agent> = Arc::new(ByHand(tools));
    let original = recorded(&by_hand, &["Send it"]).await;
    assert_eq!((original.answer(), tool.started(), &original.calls[0].arguments), ("sent", 1, &None));
    let case = rerun(original.clone(), &by_hand, Unmatched::Mark).await;
    assert_eq!((figures(&case), case.rerun.answer(), tool.started()), ([0, 1, 0, 0], MARKED, 1));
    let case = rerun(original, &by_hand, Unmatched::Perform).await;
    assert_eq!((figures(&case), case.rerun.answer(), tool.started()), ([0, 0, 1, 0], "sent", 2));
}

#[tokio::test]
async fn a_person_is_answered_from_the_record() {
    let ada: Arc<dyn Agent> = Arc::new(person("ada"));
    let runtime = open();
    let session = runtime.session();
    session.start(Arc::clone(&ada), "May it be published?").outcome().await.unwrap();
    let pending = runtime.pending().await.unwrap();
    let Waiting::Call { id, .. } = &pending[0].waits_for else { panic!() };
    runtime.answer(id, "Tomorrow.").await.unwrap();
    session.resume(Arc::clone(&ada)).outcome().await.unwrap();
    let original = transcript(&runtime, &session).await;
    let case = rerun(original, &ada, Unmatched::Mark).await;
    assert_eq!((figures(&case), case.rerun.answer()), ([1, 0, 0, 0], "Tomorrow."), "{case:?}");
}

#[tokio::test]
async fn an_interrupted_call_answers_none_and_a_resumed_one_is_one() {
    let hangs = send().hanging();
    let old = ScriptedProvider::new().call("send", to("Ada"));
    let runtime = open();
    let session = runtime.session();
    let run = session.start(agent(&old, [hangs.clone()]), "Send it");
    while hangs.running() == 0 {
        tokio::task::yield_now().await;
    }
    run.cancel();
    run.outcome().await.unwrap();
    let cancelled = transcript(&runtime, &session).await;
    assert_eq!((cancelled.status(), cancelled.calls.len()), (Some(&Status::Cancelled), 1));
    let tool = send();
    let new = ScriptedProvider::new().call("send", to("Ada")).text("Not sent.");
    let case = rerun(cancelled, &agent(&new, [tool.clone()]), Unmatched::Mark).await;
    assert_eq!((figures(&case), tool.started()), ([0, 1, 0, 0], 0));

    let old = ScriptedProvider::new().call("send", to("Ada")).text("Sent.");
    let runtime = crate::runtime().build();
    let session = runtime.session();
    let clerk = agent(&old, [tool.clone()]);
    let waits = session.start(Arc::clone(&clerk), "Send it").outcome().await.unwrap();
    let Status::Paused(Pause::Approval(id)) = waits.status else { panic!("{waits}") };
    session.decide(&id, Decision::Allow).await.unwrap();
    session.resume(clerk).outcome().await.unwrap();
    let original = transcript(&runtime, &session).await;
    assert_eq!((original.runs.len(), original.calls.len(), original.steps), (1, 1, 2));
    assert!(original.is_completed());
    let new = ScriptedProvider::new().call("send", to("Ada")).text("Sent.");
    let case = rerun(original, &agent(&new, [tool.clone()]), Unmatched::Perform).await;
    assert_eq!((figures(&case), tool.started()), ([1, 0, 0, 0], 1));
}

#[tokio::test]
async fn a_rerun_that_is_dropped_is_cancelled() {
    let hangs = send().hanging();
    let old = ScriptedProvider::new().text("Hello!");
    let original = recorded(&agent(&old, []), &["Hi"]).await;
    let new = ScriptedProvider::new().call("send", to("Ada"));
    let runtime = crate::runtime().policy(Policy::allow_all());
    let rerun =
        Rerun::of([original], agent(&new, [hangs.clone()])).unmatched(Unmatched::Perform).runtime(runtime);
    let mut run = Box::pin(rerun.score("ran", |_: &RerunCase| true).run());
    while hangs.running() == 0 {
        tokio::select! {
            biased;
            ended = &mut run => panic!("{ended:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
    drop(run);
    while hangs.running() > 0 {
        tokio::task::yield_now().await;
    }
}
