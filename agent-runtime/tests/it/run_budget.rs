//! Budgets of a run and of everything that it starts.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use entourage_core::{
    ErrorKind, Money, Result, SessionId,
    agent::Agent,
    budget::{Budget, BudgetLimits, Spend},
    event::Event,
    permission::Scope,
    provider::{FinishReason, Model},
    run::{Outcome, RunContext, Status, StopReason, Task, Waited},
    session::SessionFilter,
    tool::{Tool, Tools},
};
use entourage_runners::ReactAgent;
use entourage_runtime::permission::Policy;
use entourage_runtime::{Runtime, RuntimeBuilder, layers::BudgetLayer};
use entourage_testkit::{self as testkit, FakeTool, Gate, Script, ScriptedProvider};
use futures_util::future::BoxFuture;
use serde_json::json;

use crate::{
    common::{act, agent, assert_valid, memory, open_runtime, results, stored},
    layers_common::{priced, up_to},
};

const DOLLAR: Money = Money::from_pico(1_000_000_000_000);

pub(crate) fn none() -> BudgetLimits {
    BudgetLimits::none()
}

fn open() -> RuntimeBuilder {
    testkit::runtime().policy(Policy::allow_all())
}

pub(crate) fn go(limits: BudgetLimits) -> Task {
    Task::new("Go").with_budget(limits)
}

/// A model at 3 pico-dollars in and 15 out, whose replies have at most 20 tokens.
fn priced_model(provider: &ScriptedProvider) -> Model {
    provider.model().with_profile(priced(3, 15)).with_params(up_to(20))
}

/// An agent that looks `times` times, at something else each time, and then answers.
fn looker(times: u64) -> (ScriptedProvider, FakeTool, ReactAgent) {
    let calls = (0..times).fold(ScriptedProvider::by_history(), |it, n| it.call("look", json!({"n": n})));
    let provider = calls.text("Done.");
    let tool = FakeTool::new("look").echoing();
    let agent = agent(priced_model(&provider)).tool(tool.clone()).build().unwrap();
    (provider, tool, agent)
}

/// The bound that stopped the run, and the rest at that time.
#[track_caller]
pub(crate) fn stopped_by(outcome: &Outcome) -> (String, BudgetLimits) {
    match &outcome.status {
        Status::Stopped(StopReason::Budget(exhausted)) => (exhausted.bound.to_string(), exhausted.remaining),
        other => panic!("not stopped by a budget: {other}"),
    }
}

async fn run(agent: &ReactAgent, limits: BudgetLimits) -> Outcome {
    let session = open_runtime().session();
    let outcome = session.start(agent, go(limits)).outcome().await.unwrap();
    assert_valid(&session.history().await.unwrap());
    assert!(session.unfinished().await.unwrap().is_none());
    outcome
}

#[tokio::test]
async fn design_7_each_bound_ends_a_run_before_the_call_that_it_does_not_cover() {
    let cases = [
        (none().with_model_calls(2), "model_calls", 2, 2),
        (none().with_tool_calls(2), "tool_calls", 3, 2),
        // A call is set aside at its prompt and 20 more, and settled at 15.
        (none().with_tokens(65), "tokens", 2, 2),
        (none().with_money(Money::from_pico(600)), "money", 3, 3),
        (none().with_tokens(5), "tokens", 0, 0),
        (none().with_time(Duration::ZERO), "time", 0, 0),
    ];
    for (limits, name, model_calls, tool_calls) in cases {
        let (provider, tool, agent) = looker(9);
        let outcome = run(&agent, limits).await;
        let (bound, left) = stopped_by(&outcome);
        assert_eq!(
            (&*bound, provider.count(), tool.started()),
            (name, model_calls, tool_calls),
            "{limits:?}"
        );
        assert_eq!(outcome.steps as usize, model_calls);
        let used = u64::try_from(model_calls).unwrap();
        assert_eq!(left.tokens, limits.tokens.map(|limit| limit - 15 * used));
        assert_eq!(left.money, limits.money.map(|limit| Money::from_pico(limit.as_pico() - 105 * used)));
    }
}

#[tokio::test]
async fn design_7_the_outcome_and_its_event_say_which_limit_and_what_is_left() {
    let (_, _, agent) = looker(9);
    let limits = none().with_model_calls(2).with_tokens(10_000).with_money(DOLLAR);
    let mut run = open_runtime().session().start(&agent, go(limits));
    let events = crate::common::drain(&mut run).await;
    let outcome = run.outcome().await.unwrap();
    let text = "stopped: the budget's limit of model calls was reached; left: $0.99999999979, 9970 tokens, 0 model calls; raise the limit";
    assert_eq!(outcome.status.to_string(), text);
    assert!(events.last().unwrap().to_string().contains(text), "{}", events.last().unwrap());
    assert_eq!((outcome.steps, outcome.cost), (2, Some(Money::from_pico(210))));
    let stored = serde_json::to_value(&outcome).unwrap();
    assert_eq!(stored["status"]["stopped"]["budget"]["bound"], "model_calls");
    assert_eq!(stored["status"]["stopped"]["budget"]["remaining"]["tokens"], 9_970);
    assert_eq!(serde_json::from_value::<Outcome>(stored).unwrap(), outcome);
}

#[tokio::test]
async fn design_7_of_parallel_calls_only_those_that_are_covered_run() {
    let calls = || (0..5).map(|n| ("look", json!({"n": n})));
    let provider = ScriptedProvider::new().calls(calls());
    let tool = FakeTool::new("look").echoing();
    let agent = agent(provider.model()).tool(tool.clone()).build().unwrap();
    let session = open_runtime().session();
    let outcome = session.start(&agent, go(none().with_tool_calls(3))).outcome().await.unwrap();
    assert_eq!(stopped_by(&outcome).0, "tool_calls");
    assert_eq!((tool.started(), tool.finished()), (3, 3));
    let history = session.history().await.unwrap();
    assert_valid(&history);
    let told = results(history.get(2).unwrap());
    assert_eq!(told[2], "{\"n\":2}");
    assert!(
        told[3].starts_with("not run: stopped: the budget's limit of tool calls was reached"),
        "{told:?}"
    );
}

#[tokio::test]
async fn design_7_where_money_is_bounded_a_model_without_prices_is_refused() {
    let provider = ScriptedProvider::new();
    let agent = agent(provider.model()).build().unwrap();
    let session = open_runtime().session();
    let error = session.start(&agent, go(none().with_money(DOLLAR))).outcome().await.unwrap_err();
    assert_eq!((error.kind(), provider.count()), (ErrorKind::BudgetExceeded, 0));
    assert!(error.message().contains("give the model a profile with prices"), "{error}");
    assert!(error.exhausted().is_none());
}

#[tokio::test]
async fn design_7_a_runtimes_budget_is_for_the_runs_of_roots_whose_task_has_none() {
    let runtime = open().budget(none().with_model_calls(2)).build();
    let session = runtime.session();
    let (provider, _, agent) = looker(4);
    let outcome = session.start(&agent, "Go").outcome().await.unwrap();
    assert_eq!((stopped_by(&outcome).0.as_str(), provider.count()), ("model_calls", 2));
    // Each run has its own; the limits of a task take precedence.
    let provider = ScriptedProvider::new().text("One.").text("Two.");
    let answerer = crate::common::agent(provider.model()).build().unwrap();
    for _ in 0..2 {
        assert!(session.start(&answerer, "Go").outcome().await.unwrap().is_completed());
    }
    let outcome =
        runtime.session().start(&looker(4).2, go(none().with_model_calls(9))).outcome().await.unwrap();
    assert_eq!((outcome.steps, outcome.is_completed()), (5, true));
    // Unbounded is a budget too: it reports.
    let seen = Seen::default();
    let reporter = seen.agent(|cx| Box::pin(async move { Ok(format!("{}", cx.budget().is_some())) }));
    let outcome = runtime.session().start(&reporter, go(none())).outcome().await.unwrap();
    assert_eq!(outcome.text, "true");
    let bare = open_runtime().session().start(&reporter, "Go").outcome().await.unwrap();
    assert_eq!(bare.text, "false");
    let child = seen.agent(|cx| {
        let inner: Arc<dyn Agent> = Arc::new(looker(4).2);
        Box::pin(async move {
            let child = cx.spawn(inner, "Go").await?;
            match cx.wait_any(&[child], None).await? {
                Waited::Ended { outcome, .. } => Ok(outcome.status.to_string()),
                Waited::TimedOut => Ok("late".into()),
            }
        })
    });
    let outcome = runtime.session().start(&child, "Go").outcome().await.unwrap();
    assert!(outcome.text.contains("limit of model calls"), "children share their root's: {outcome}");
}

/// Keeps the budget of a run, to be read afterwards.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Option<Budget>>>);

impl Seen {
    pub(crate) fn agent(
        &self,
        body: impl for<'a> Fn(&'a RunContext) -> BoxFuture<'a, Result<String>> + Send + Sync + 'static,
    ) -> crate::common::Do {
        let seen = Arc::clone(&self.0);
        act(move |cx| {
            *seen.lock().unwrap() = cx.budget().cloned();
            body(cx)
        })
    }

    pub(crate) fn budget(&self) -> Budget {
        self.get().expect("a budget")
    }

    pub(crate) fn get(&self) -> Option<Budget> {
        self.0.lock().unwrap().clone()
    }
}

/// Runs scouts in parallel and reports the end of each.
pub(crate) fn leader(
    scouts: Vec<(Arc<dyn Agent>, Task)>,
) -> impl for<'a> Fn(&'a RunContext) -> BoxFuture<'a, Result<String>> + Send + Sync + 'static {
    move |cx| {
        let scouts = scouts.clone();
        Box::pin(async move {
            let mut children = Vec::new();
            for (scout, task) in scouts {
                children.push(cx.spawn(scout, task).await?);
            }
            let mut ended = Vec::new();
            while !children.is_empty() {
                if let Waited::Ended { index, outcome } = cx.wait_any(&children, None).await? {
                    children.remove(index);
                    ended.push(match outcome.status {
                        Status::Stopped(StopReason::Budget(exhausted)) => exhausted.bound.to_string(),
                        other => other.to_string(),
                    });
                }
            }
            ended.sort();
            Ok(ended.join(" "))
        })
    }
}

/// A provider whose calls wait at a gate, and which counts them.
fn gated(gate: &Gate) -> ScriptedProvider {
    let script = Script::new().wait(gate).text("Found.").usage(10, 5).finish(FinishReason::Stop);
    ScriptedProvider::by_history().step(script)
}

#[tokio::test]
async fn design_7_parallel_children_never_exceed_a_bound_together() {
    // A call is set aside at 21 to 22 tokens: of 10 at once, 4 are covered by 90.
    let gate = Gate::new();
    let provider = gated(&gate);
    let scout = || -> Arc<dyn Agent> { Arc::new(agent(priced_model(&provider)).build().unwrap()) };
    let scouts = (0..10).map(|_| (scout(), Task::new("Go"))).collect();
    let seen = Seen::default();
    let leader = seen.agent(leader(scouts));
    let run = open_runtime().session().start(&leader, go(none().with_tokens(90)));
    gate.arrived(4).await;
    let budget = seen.budget();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(provider.count(), 4);
    assert!(budget.reserved().tokens <= 90, "{budget:?}");
    gate.open();
    let outcome = run.outcome().await.unwrap();
    assert_eq!(outcome.text, format!("{} {}", ["completed"; 4].join(" "), ["tokens"; 6].join(" ")));
    assert_eq!((budget.spent().tokens, budget.reserved()), (60, Spend::default()));
}

#[tokio::test]
async fn design_7_a_child_that_finds_no_room_says_what_calls_under_way_have_set_aside() {
    let gate = Gate::new();
    let provider = gated(&gate);
    let scout = || -> Arc<dyn Agent> { Arc::new(agent(priced_model(&provider)).build().unwrap()) };
    let seen = Arc::new(Mutex::new(String::new()));
    let (told, opened) = (Arc::clone(&seen), gate.clone());
    let (first, second) = (scout(), scout());
    let lead = act(move |cx| {
        let (first, second, told, opened) =
            (Arc::clone(&first), Arc::clone(&second), Arc::clone(&told), opened.clone());
        Box::pin(async move {
            let first = cx.spawn(first, "Go").await?;
            opened.arrived(1).await;
            let second = cx.spawn(second, "Go").await?;
            let Waited::Ended { outcome, .. } = cx.wait_any(&[second], None).await? else { panic!() };
            *told.lock().unwrap() = outcome.to_string();
            opened.open();
            cx.wait_any(&[first], None).await.map(|_| String::new())
        })
    });
    // A call is set aside at its prompt, 1 token, and an output of 20.
    let session = open_runtime().session();
    session.start(&lead, go(none().with_tokens(30))).outcome().await.unwrap();
    assert_eq!(
        *seen.lock().unwrap(),
        "stopped: the budget's limit of tokens does not cover the next call, which may need 21 tokens; left: 9 tokens; \
         set aside for calls under way: 21 tokens; a smaller `max_output` sets less aside"
    );
}

#[tokio::test]
async fn design_7_a_child_has_at_most_what_is_left_above_and_the_parent_sees_how_it_ended() {
    let (narrow, wide) = (looker(9), looker(9));
    let task = |calls| go(none().with_model_calls(calls));
    let scouts: Vec<(Arc<dyn Agent>, Task)> =
        vec![(Arc::new(narrow.2.clone()), task(2)), (Arc::new(wide.2.clone()), task(100))];
    let seen = Seen::default();
    let leader = seen.agent(leader(scouts));
    let session = open_runtime().session();
    let outcome = session.start(&leader, go(none().with_model_calls(7))).outcome().await.unwrap();
    // The parent goes on: it has calls of its own kind to make, or none.
    assert_eq!((outcome.text.as_str(), outcome.is_completed()), ("model_calls model_calls", true));
    assert_eq!((narrow.0.count(), wide.0.count()), (2, 5));
    let report = seen.budget().report();
    assert_eq!(report.keys().map(|agent| &**agent).collect::<Vec<_>>(), ["doer/tester"]);
    assert_eq!(report["doer/tester"].model_calls, 7);
}

#[tokio::test]
async fn design_7_the_report_per_agent_is_the_trees_totals() {
    let (provider, tool) = (ScriptedProvider::by_history().text("Plan."), FakeTool::new("measure"));
    let model = priced_model(&provider);
    let tools = Tools::new([Arc::new(tool) as Arc<dyn Tool>]).unwrap();
    let inner: Vec<(Arc<dyn Agent>, Task)> = vec![(Arc::new(looker(2).2), Task::new("Go"))];
    let middle = Seen::default().agent(leader(inner));
    let seen = Seen::default();
    let root = seen.agent(move |cx| {
        let (model, tools, middle) = (model.clone(), tools.clone(), middle.clone());
        Box::pin(async move {
            cx.call_model(&model, model.request("?")).await?;
            cx.call_tool(&tools, "measure", &json!({})).await?;
            leader(vec![(Arc::new(middle), go(none().with_model_calls(50)))])(cx).await
        })
    });
    let store = memory();
    let runtime = open().shared_store(Arc::clone(&store)).build();
    let outcome = runtime.session().start(&root, go(none())).outcome().await.unwrap();
    assert!(outcome.is_completed(), "{outcome}");
    let budget = seen.budget();
    let report = budget.report();
    assert_eq!(
        report.keys().map(|agent| &**agent).collect::<Vec<_>>(),
        ["doer", "doer/doer/tester"],
        "the one in between called nothing"
    );
    let mut told = Spend::default();
    for info in store.query(&SessionFilter::all()).await.unwrap() {
        let events = stored(&store, &info.record.id).await;
        let Some(spend) = report.get(&*events[0].origin.agent) else { continue };
        let tools = events.iter().filter(|it| matches!(it.event, Event::ToolStarted(_))).count();
        assert_eq!(Some(spend.money), info.head.cost, "{}", events[0]);
        assert_eq!(Some(spend.tokens), info.head.usage.total(), "{}", events[0]);
        assert_eq!(usize::try_from(spend.tool_calls).unwrap(), tools, "{}", events[0]);
        told.tokens += spend.tokens;
        told.money += spend.money;
        told.model_calls += spend.model_calls;
        told.tool_calls += spend.tool_calls;
    }
    assert_eq!(told, budget.spent());
    assert_eq!((told.model_calls, told.tool_calls), (4, 3));
}

#[tokio::test(start_paused = true)]
async fn design_7_a_budget_layer_inside_the_model_stops_the_run_as_well() {
    let provider = ScriptedProvider::new().call("look", json!({}));
    let own = Budget::new(none().with_model_calls(1));
    let model = provider.model().layer(BudgetLayer::new(&own, "tester"));
    let agent = agent(model).tool(FakeTool::new("look")).build().unwrap();
    let session = open_runtime().session();
    let outcome = session.start(&agent, "Go").outcome().await.unwrap();
    let (bound, left) = stopped_by(&outcome);
    assert_eq!((&*bound, left.model_calls, outcome.steps), ("model_calls", Some(0), 2));
    assert_valid(&session.history().await.unwrap());
    // So does its time, within a reply.
    let reply = Script::new().text("Well").delay(Duration::from_secs(60)).finish(FinishReason::Stop);
    let provider = ScriptedProvider::new().step(reply);
    let own = Budget::new(none().with_time(Duration::from_secs(10)));
    let agent =
        crate::common::agent(provider.model().layer(BudgetLayer::new(&own, "tester"))).build().unwrap();
    let outcome = open_runtime().session().start(&agent, "Go").outcome().await.unwrap();
    assert_eq!((stopped_by(&outcome).0.as_str(), outcome.text.as_str()), ("time", "Well"));
}

#[tokio::test]
async fn design_7_what_a_call_is_charged_follows_from_how_it_ended() {
    let cut = |script: Script| ScriptedProvider::new().step(script);
    // 1 token of prompt and 20 are set aside, at 303 pico-dollars.
    let cases = [
        ("finished", cut(Script::new().text("Hi").usage(10, 5).finish(FinishReason::Stop)), (15, 105, 1)),
        ("finished, unreported", cut(Script::new().text("Hi").finish(FinishReason::Stop)), (21, 303, 1)),
        (
            "broken off",
            cut(Script::new().text("Hi").usage(10, 5).fail(ErrorKind::Transport, "gone")),
            (15, 105, 1),
        ),
        ("broken off early", cut(Script::new().text("Hi").fail(ErrorKind::Transport, "gone")), (21, 303, 1)),
        ("refused", cut(Script::refuse(ErrorKind::RateLimited, "slow down")), (0, 0, 1)),
        ("never left", cut(Script::refuse(ErrorKind::Config, "no address")), (0, 0, 0)),
        ("unknown", cut(Script::refuse(ErrorKind::Timeout, "silence")), (21, 303, 1)),
    ];
    for (name, provider, (tokens, pico, calls)) in cases {
        let model = priced_model(&provider);
        let seen = Seen::default();
        let caller = seen.agent(move |cx| {
            let model = model.clone();
            Box::pin(async move {
                let prompt = entourage_core::message::Message::user("Go");
                drop(cx.call_model(&model, model.request(prompt)).await);
                Ok("called".into())
            })
        });
        let session = open_runtime().session();
        session.start(&caller, go(none().with_tokens(100))).outcome().await.unwrap();
        let mut expected = Spend::default();
        (expected.tokens, expected.money, expected.model_calls) = (tokens, Money::from_pico(pico), calls);
        assert_eq!((seen.budget().spent(), seen.budget().reserved()), (expected, Spend::default()), "{name}");
    }
}

#[tokio::test]
async fn design_7_a_cancelled_call_costs_what_was_set_aside() {
    let gate = Gate::new();
    let provider = gated(&gate);
    let scout: Arc<dyn Agent> = Arc::new(agent(priced_model(&provider)).build().unwrap());
    let seen = Seen::default();
    let leader = seen.agent(leader(vec![(scout, Task::new("Go"))]));
    let run = open_runtime().session().start(&leader, go(none().with_tokens(100)));
    gate.arrived(1).await;
    run.cancel();
    assert_eq!(run.outcome().await.unwrap().status, Status::Cancelled);
    assert_eq!((seen.budget().spent().tokens, seen.budget().reserved()), (21, Spend::default()));
}

#[tokio::test]
async fn design_7_a_tool_that_runs_an_agent_is_on_the_same_budget() {
    struct Ask(entourage_core::tool::ToolSpec, Arc<dyn Agent>, Arc<AtomicUsize>);
    #[async_trait::async_trait]
    impl Tool for Ask {
        fn spec(&self) -> &entourage_core::tool::ToolSpec {
            &self.0
        }
        async fn call(
            &self,
            _: entourage_core::tool::ToolInput,
            cx: &entourage_core::tool::ToolContext<'_>,
        ) -> Result<entourage_core::tool::ToolOutput, entourage_core::tool::ToolError> {
            let outcome = cx.run_agent(Arc::clone(&self.1), "Look", Scope::all()).await?;
            self.2.fetch_add(1, Ordering::SeqCst);
            Ok(entourage_core::tool::ToolOutput::text(outcome.status.to_string()))
        }
    }
    let (inner, _, scout) = looker(9);
    let spec = entourage_core::tool::ToolSpec::new("ask", "Asks a scout.", json!({"type": "object"}))
        .with_access(entourage_core::tool::Access::NONE);
    let ended = Arc::new(AtomicUsize::new(0));
    let provider = ScriptedProvider::new().call("ask", json!({}));
    let ask = Ask(spec, Arc::new(scout), Arc::clone(&ended));
    let asker = agent(priced_model(&provider)).tool(ask).build().unwrap();
    let session = open_runtime().session();
    let outcome = session.start(&asker, go(none().with_model_calls(4))).outcome().await.unwrap();
    assert_eq!((stopped_by(&outcome).0.as_str(), inner.count(), provider.count()), ("model_calls", 3, 1));
    assert_eq!(ended.load(Ordering::SeqCst), 1);
    let history = session.history().await.unwrap();
    assert!(
        results(history.get(2).unwrap())[0].contains("limit of model calls"),
        "the tool saw how it ended"
    );
}

/// A runtime for tests in other files.
pub(crate) fn runtime(store: &entourage_core::session::SharedStore) -> Runtime {
    open().shared_store(Arc::clone(store)).build()
}

pub(crate) fn id() -> SessionId {
    SessionId::new("work").unwrap()
}
