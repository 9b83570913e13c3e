//! Bounds: agents at once, and the steps, the time, the budget and the permissions of each.

use std::{sync::Arc, time::Duration};

use entourage_core::{
    ErrorKind,
    budget::BudgetLimits,
    run::{Status, StopReason},
    session::SessionFilter,
    tool::{Access, Tool},
};
use entourage_runners::{
    AgentTool, ReactAgent,
    research::{Research, ResearchBuilder, Researcher},
};
use entourage_runtime::{AgentExt, DenyAll, permission::Policy};
use entourage_testkit::{self as testkit, FakeTool, Gate, Script, ScriptedProvider};
use serde_json::json;
use tokio::time::Instant;

use crate::worker::{Act, Worker, planner, recorded};

const WORK: Duration = Duration::from_millis(100);

/// Starts building research with this many equal tasks of a file searcher.
fn equal(count: usize, worker: &Worker) -> ResearchBuilder {
    let tasks = (1..=count).map(|n| (Researcher::FileSearcher, format!("part {n}")));
    Research::builder("research", ScriptedProvider::new().model())
        .planner(planner(tasks).model())
        .agent(Researcher::FileSearcher, worker.clone())
}

#[tokio::test(start_paused = true)]
async fn ai12_equal_tasks_take_the_time_of_one_for_each_ten() {
    for count in [1, 2, 5, 9, 10, 11, 20, 25, 50] {
        let worker = Worker::new(Act::Works(WORK));
        let research = equal(count, &worker).build().unwrap();
        let session = testkit::runtime().policy(Policy::allow_all()).build().session();
        let began = Instant::now();
        let outcome = session.start(&research, "What is there?").outcome().await.unwrap();
        let most = WORK.mul_f64(1.05) * u32::try_from(count.div_ceil(10)).unwrap();
        assert!(began.elapsed() <= most, "{count}: {:?}", began.elapsed());
        assert!(began.elapsed() >= WORK, "{count}: the clock runs while they work");
        assert_eq!(worker.most(), count.min(10));
        assert!(outcome.is_completed() && outcome.failed.is_empty(), "{count}: {outcome:?}");
        assert_eq!(recorded(&session).await.len(), 2 * count, "{count}");
    }
}

#[tokio::test(start_paused = true)]
async fn ai08_of_20_agents_16_have_a_result_and_4_a_typed_reason() {
    use Researcher::{DependencyMapper, DocReader, FileSearcher, PatternFinder, WebSearcher};
    // One more call would fail otherwise.
    let endless = (0..20).fold(ScriptedProvider::new(), |endless, _| endless.text("More."));
    let pays = ScriptedProvider::by_history().call("pay", json!({})).text("Paid.");
    let denied = ReactAgent::builder("denied", pays.model()).tool(FakeTool::new("pay")).build().unwrap();
    let good = Worker::new(Act::Works(WORK));
    let tasks = (1..=20).map(|n| {
        let kind = match n {
            3 => DependencyMapper,
            8 => DocReader,
            13 => WebSearcher,
            18 => PatternFinder,
            _ => FileSearcher,
        };
        (kind, format!("part {n}"))
    });
    let research = Research::builder("research", ScriptedProvider::new().model())
        .planner(planner(tasks).model())
        .agent(FileSearcher, good.clone())
        .agent(DependencyMapper, Worker::new(Act::Panics))
        .agent(DocReader, Worker::new(Act::Hangs))
        .agent(WebSearcher, denied)
        .agent(PatternFinder, Worker::new(Act::Asks(endless.model())))
        .task_limits(BudgetLimits::none().with_time(Duration::from_secs(5)))
        .build()
        .unwrap();
    let runtime = testkit::runtime().policy(Policy::allow_all().ask("pay")).approver(DenyAll).build();
    let session = runtime.session();
    let outcome = session.start(&research, "What is there?").outcome().await.unwrap();

    assert_eq!(outcome.status, Status::Completed);
    let failed: Vec<_> = outcome.failed.iter().map(|id| &**id).collect();
    assert_eq!(failed, ["3-dependency-mapper", "8-doc-reader", "13-web-searcher", "18-pattern-finder"]);
    let mut ends = recorded(&session).await;
    ends.retain(|progress| progress.outcome.is_some());
    ends.sort_by_key(|progress| progress.number);
    assert_eq!(ends.len(), 20);
    let mut results = 0;
    for end in ends {
        let outcome = end.outcome.as_ref().unwrap();
        match (end.number, &outcome.status) {
            (3, Status::Failed(error)) => {
                assert_eq!(error.kind, ErrorKind::Internal);
                assert!(error.message.contains("the lamp fell over"), "{error:?}");
            }
            (8, Status::Stopped(StopReason::Budget(exhausted))) => {
                assert!(exhausted.to_string().contains("time"), "{exhausted}");
            }
            (13, Status::Stopped(StopReason::Denied(tool))) => assert_eq!(tool, "pay"),
            (18, Status::Stopped(StopReason::Budget(_))) => assert_eq!(endless.count(), 20),
            (number, Status::Completed) => {
                assert_eq!(outcome.text, format!("did part {number}"));
                results += 1;
            }
            (number, status) => panic!("{number}: {status:?}"),
        }
    }
    assert_eq!(results, 16);
    let at = |number: usize| outcome.text.find(&format!("## {number}. part {number} ")).unwrap();
    assert!((1..=20).map(at).is_sorted(), "{}", outcome.text);
    assert!(outcome.text.contains("No answer: failed: the agent panicked"), "{}", outcome.text);
    assert_eq!(runtime.sessions(&SessionFilter::all()).await.unwrap().len(), 1 + 1 + 20);
    assert_eq!(good.working(), 0);
}

#[tokio::test(start_paused = true)]
async fn ai08_an_agent_that_never_ends_by_itself_has_20_steps() {
    // Each call differs, so that loop detection has nothing to find.
    let endless = (0..30).fold(ScriptedProvider::by_history(), |endless, n| {
        endless.step(
            Script::new()
                .text(format!("Step {n}."))
                .call("grep", &json!({ "n": n }))
                .finish(entourage_core::provider::FinishReason::ToolCalls),
        )
    });
    let grep = FakeTool::new("grep").echoing();
    let research = Research::builder("research", endless.model())
        .without_planner()
        .tools((grep.clone(),))
        .build()
        .unwrap();
    let session = testkit::runtime().policy(Policy::allow_all()).build().session();
    let outcome = session.start(&research, "How does it work?").outcome().await.unwrap();
    assert_eq!(endless.count(), 20);
    let Status::Stopped(StopReason::Tasks { failed, .. }) = &outcome.status else { panic!("{outcome:?}") };
    assert_eq!(failed[0].error, "stopped: the limit of 20 steps was reached");
    assert!(research.ask("How does it work?").await.unwrap_err().kind() == ErrorKind::Stopped);
}

#[tokio::test(start_paused = true)]
async fn ai08_each_kind_is_shown_the_tools_of_its_scope() {
    let tools = [("grep", Access::READ), ("web_search", Access::NETWORK), ("edit", Access::WRITE)]
        .map(|(name, access)| Arc::new(FakeTool::new(name).access(access)) as Arc<dyn Tool>);
    for kind in Researcher::ALL {
        let looks = ScriptedProvider::new().text("Seen.");
        let research = Research::builder("research", looks.model())
            .planner(planner([(kind, "Look.".to_owned())]).model())
            .tools(tools.clone())
            .build()
            .unwrap();
        assert_eq!(research.ask("What is there?").await.unwrap(), "Seen.");
        let request = &looks.requests()[0];
        let shown: Vec<_> = request.tools.iter().map(|spec| spec.name().to_owned()).collect();
        let expected: &[&str] =
            if kind == Researcher::WebSearcher { &["grep", "web_search"] } else { &["grep"] };
        assert_eq!(shown, expected, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn ai03_the_agents_of_a_research_in_plan_mode_ask_nobody() {
    for (plans, told) in [(true, "Seen."), (false, "No answer: stopped")] {
        let looks = ScriptedProvider::by_history().call("view", json!({})).text("Seen.");
        let two = [1, 2].map(|n| (Researcher::DocReader, format!("part {n}")));
        let research = Research::builder("research", looks.model())
            .planner(planner(two).model())
            .tools((FakeTool::new("view").access(Access::READ),))
            .build()
            .unwrap();
        let large =
            ScriptedProvider::by_history().call("agent", json!({"prompt": "What is there?"})).text("Done.");
        let lead = ReactAgent::builder("lead", large.model()).tool(AgentTool::new(research)).build().unwrap();
        let lead = if plans { lead.plan_first().unwrap() } else { lead };
        let runtime = testkit::runtime().policy(Policy::new().ask("view")).approver(DenyAll);
        let session = runtime.auto_approve_readers().build().session();
        assert_eq!(session.start(&lead, "Go").outcome().await.unwrap().text, "Done.");
        let heard = large.requests()[1].messages.last().unwrap().tool_results().next().unwrap().to_text();
        assert!(heard.contains(told), "{plans}: {heard}");
    }
}

#[tokio::test(start_paused = true)]
async fn ai08_a_cancel_ends_all_agents_and_begins_no_other() {
    let worker = Worker::new(Act::Hangs);
    let research = equal(25, &worker).build().unwrap();
    let session = testkit::runtime().policy(Policy::allow_all()).build().session();
    let run = session.start(&research, "What is there?");
    let gate = Gate::new();
    let open = gate.clone();
    // The clock moves on only when every agent waits.
    tokio::spawn(async move {
        tokio::time::sleep(WORK).await;
        open.open();
    });
    gate.pass().await;
    assert_eq!(worker.working(), 10);
    session.cancel();
    let status = run.outcome().await.map(|outcome| outcome.status);
    assert_eq!(status.unwrap(), Status::Cancelled);
    assert_eq!((worker.working(), worker.most()), (0, 10));
    let progress = recorded(&session).await;
    assert_eq!(progress.last().map(|it| (it.total, it.done, it.active)), Some((25, 0, 10)));
}
