//! Settings that are read again before each step, and conditions that end a run after one.

use std::sync::{Arc, Mutex};

use entourage_core::{
    ErrorKind, Money, Prices,
    context::Instructions,
    event::Event,
    message::Message,
    permission::Decision,
    provider::{FinishReason, Model, ModelSource, Params, Profile, ToolChoice},
    run::{Limits, Pause, Status, StopReason},
    tool::{Access, Tool, Tools, Toolset},
};
use entourage_runners::{Prepared, Step, StopWhen};
use entourage_runtime::permission::Policy;
use entourage_runtime::{AgentExt, Mode};
use entourage_testkit::{FakeTool, Gate, Script, ScriptedProvider};
use serde_json::json;

use crate::common::{agent, memory, open_runtime, results};

fn offered(provider: &ScriptedProvider) -> Vec<Vec<String>> {
    let names = |request: &entourage_core::provider::Request| {
        request.tools.iter().map(|spec| spec.name().to_owned()).collect()
    };
    provider.requests().iter().map(names).collect()
}

#[tokio::test]
async fn cm17_a_hook_changes_what_each_step_sends() {
    let first = ScriptedProvider::named("first").call("look", json!({}));
    let second = ScriptedProvider::named("second").call("write", json!({})).text("Done.");
    let other = second.model();
    let hook = move |step: &Step, plan: &mut Prepared| match step.number {
        1 => plan.tool_choice = ToolChoice::Required,
        2 => {
            plan.model = other.clone();
            plan.tools = plan.tools.keep(|spec| spec.name() == "look");
            plan.instructions = "Only look.".into();
            plan.push(Message::user("by the way"));
        }
        _ => {
            plan.model = other.clone();
            plan.tools = Tools::none();
        }
    };
    let (look, write) = (FakeTool::new("look"), FakeTool::new("write"));
    let agent = agent(first.model()).tool(look).tool(write.clone()).prepare(hook).build().unwrap();
    let session = open_runtime().session();
    session.start(&agent, "Go").outcome().await.unwrap();

    assert_eq!(offered(&first), [["look", "write"]]);
    assert_eq!(first.requests()[0].tool_choice, ToolChoice::Required);
    let sent = second.requests();
    assert_eq!(offered(&second), [vec!["look".to_owned()], vec![]]);
    assert_eq!(
        (&*sent[0].instructions, sent[0].messages.last().unwrap().text().as_str()),
        ("Only look.", "by the way")
    );
    assert_eq!(sent[0].tool_choice, ToolChoice::Auto, "a change lasts one step");
    assert_eq!(write.started(), 0, "what a step did not offer is not run");
    assert!(results(sent[1].messages.last().unwrap())[0].contains("there is no tool `write`"));
    assert!(!session.history().await.unwrap().iter().any(|message| message.text() == "by the way"));
}

fn usd(text: &str) -> Money {
    Money::usd(text).unwrap()
}

async fn stopped_by(condition: StopWhen) -> (Status, u32, usize) {
    let looks = Script::new().text("Hm.").reasoning("so").call("look", &json!({})).usage(40, 10);
    let provider = ScriptedProvider::by_history()
        .step(Script::new().call("other", &json!({})).usage(30, 20).finish(FinishReason::ToolCalls))
        .step(looks.finish(FinishReason::ToolCalls))
        .call("last", json!({}))
        .text("Done.");
    let tools = ["look", "other", "last"].map(FakeTool::new);
    let prices = Prices::per_million_micros(1_000_000, 1_000_000);
    let model = Model::new(provider.provider(), "one").with_profile(Profile::default().with_prices(prices));
    let mut builder = agent(model).stop_when([condition]);
    for tool in &tools {
        builder = builder.tool(tool.clone());
    }
    let outcome = open_runtime().session().start(&builder.build().unwrap(), "Go").outcome().await.unwrap();
    assert_eq!(provider.count(), outcome.steps as usize);
    (outcome.status, outcome.steps, tools.iter().map(FakeTool::finished).sum())
}

#[tokio::test]
async fn cm17_each_condition_ends_the_run_after_its_steps_tools_ran() {
    for (condition, steps) in [
        (StopWhen::steps(1), 1),
        (StopWhen::steps(2), 2),
        (StopWhen::tool_called("look"), 2),
        (StopWhen::tool_called("last"), 3),
        (StopWhen::custom("text", |reply| !reply.message.text().is_empty()), 2),
        (StopWhen::custom("a later step", |reply| reply.step > 1), 2),
        (StopWhen::cost(usd("0.00005")), 1),
        (StopWhen::cost(usd("0.000051")), 2),
        (StopWhen::finish(FinishReason::ToolCalls), 1),
        (StopWhen::tokens(50), 1),
        (StopWhen::tokens(51), 2),
        (StopWhen::tokens(101), 3),
    ] {
        let (status, made, tools) = stopped_by(condition.clone()).await;
        assert_eq!(status, Status::Stopped(StopReason::Condition(condition.to_string())));
        assert_eq!((made, tools), (steps, steps as usize), "{condition:?}");
    }
    let cheap = StopWhen::cost(usd("1"));
    for never in
        [StopWhen::steps(9), StopWhen::tool_called("none"), StopWhen::custom("never", |_| false), cheap]
    {
        assert_eq!(stopped_by(never).await, (Status::Completed, 4, 3));
    }
}

#[derive(Debug)]
struct Swap(Mutex<Model>);

impl ModelSource for Swap {
    fn model(&self) -> Model {
        self.0.lock().unwrap().clone()
    }
}

#[derive(Debug)]
struct Changing(Mutex<Tools>);

impl Toolset for Changing {
    fn tools(&self) -> Tools {
        self.0.lock().unwrap().clone()
    }
}

#[tokio::test]
async fn cm18_model_and_tools_are_read_again_before_each_step() {
    let gate = Gate::new();
    let look = FakeTool::new("look").behind(&gate);
    let fixed = |tools: Vec<FakeTool>| {
        Tools::new(tools.into_iter().map(|tool| Arc::new(tool) as Arc<dyn Tool>)).unwrap()
    };
    let (old, new) =
        (ScriptedProvider::named("old").call("look", json!({})), ScriptedProvider::named("new").text("Hi."));
    let model = Arc::new(Swap(Mutex::new(old.model())));
    let set =
        Arc::new(Changing(Mutex::new(fixed(vec![FakeTool::new("zeta"), look, FakeTool::new("alpha")]))));
    let agent = entourage_runners::ReactAgent::builder("a", Arc::clone(&model))
        .toolset(Arc::clone(&set))
        .build()
        .unwrap();
    let run = open_runtime().session().start(&agent, "Go");
    gate.arrived(1).await;
    *model.0.lock().unwrap() = new.model();
    *set.0.lock().unwrap() = fixed(vec![FakeTool::new("new")]);
    gate.open();
    assert_eq!(run.outcome().await.unwrap().text, "Hi.");
    assert_eq!(offered(&old), [["alpha", "look", "zeta"]], "sorted by name");
    assert_eq!(offered(&new), [["new"]]);
}

async fn params_sent(own: Option<Params>, defaults: Params) -> Params {
    let provider = ScriptedProvider::new().text("Hi.");
    let mut builder = agent(provider.model().with_params(defaults));
    if let Some(own) = own {
        builder = builder.params(own);
    }
    builder.build().unwrap().ask("Go").await.unwrap();
    (*provider.requests()[0].params).clone()
}

fn params(temperature: Option<f64>, top_k: Option<u32>, max_output: Option<u64>) -> Params {
    let mut params = Params::default();
    (params.temperature, params.top_k, params.max_output) = (temperature, top_k, max_output);
    params
}

#[tokio::test]
async fn cm18_a_setting_wins_over_the_models_default_and_zero_is_no_limit() {
    let none = || params(None, None, None);
    for (own, defaults, sent) in [
        (None, none(), none()),
        (None, params(Some(0.5), None, Some(100)), params(Some(0.5), None, Some(100))),
        (
            Some(params(Some(0.1), None, None)),
            params(Some(0.5), Some(7), Some(100)),
            params(Some(0.1), Some(7), Some(100)),
        ),
        (
            Some(params(Some(0.0), None, Some(5))),
            params(Some(0.5), None, Some(100)),
            params(Some(0.0), None, Some(5)),
        ),
        (Some(params(None, None, Some(0))), none(), none()),
        (Some(params(None, None, Some(0))), params(None, None, Some(0)), none()),
        (None, params(None, None, Some(0)), none()),
    ] {
        let label = format!("{own:?} over {defaults:?}");
        assert_eq!(params_sent(own, defaults).await, sent, "{label}");
    }
}

#[tokio::test]
async fn cm18_what_cannot_work_is_refused_when_the_agent_is_built() {
    let provider = ScriptedProvider::new();
    let kind = |builder: entourage_runners::ReactBuilder| builder.build().unwrap_err().kind();
    let mut limits = Limits::default();
    limits.steps = 0;
    assert_eq!(kind(agent(provider.model()).limits(limits)), ErrorKind::Config);
    assert_eq!(
        kind(agent(provider.model()).tool(FakeTool::new("a")).tool(FakeTool::new("a"))),
        ErrorKind::Config
    );
    assert_eq!(kind(agent(provider.model()).tool(FakeTool::new("a b"))), ErrorKind::Config);
    for name in ["", "a b", "../x", &"x".repeat(65)] {
        let builder = entourage_runners::ReactAgent::builder(name, provider.model());
        assert_eq!(kind(builder), ErrorKind::Config, "{name}");
    }
}

/// The texts of the instructions that a run sent, of a hook that looks at all that a step shows. With `paused`, the run
/// waits for an approval in its first step, and goes on in another process.
async fn instructed(paused: bool) -> Vec<String> {
    let store = memory();
    let runtime = || {
        let policy = if paused { Policy::new() } else { Policy::allow_all() };
        let builder = entourage_testkit::runtime().policy(policy).shared_store(Arc::clone(&store));
        builder.dep("Ada").build()
    };
    let write = |step: &Step| {
        let (messages, mode) = step.run.read(|state| (state.history().len(), state.mode().cloned()));
        let (todos, who) = (step.run.todos().len(), step.run.deps::<&str>()?);
        Ok(format!("{who}: step {}, {messages} messages, {todos} todos, mode {}", step.number, mode.unwrap()))
    };
    let list = json!({"todos": [{"content": "Write", "status": "pending", "active_form": "Writing"}]});
    let script =
        || ScriptedProvider::by_history().call("write", json!({})).call("todos", list.clone()).text("Done.");
    let made = |provider: &ScriptedProvider| {
        let tool = FakeTool::new("write").access(Access::WRITE);
        let agent = agent(provider.model()).instructions("Fixed.").instructions_with(write);
        agent.tool(tool).tool(entourage_runners::TodoTool::new()).build().unwrap()
    };
    let (one, two) = (script(), script());
    let session = runtime().session();
    session.set_mode("plan", &[Mode::new("plan", "Plan")]).await.unwrap();
    let outcome = session.start(&made(&one), "Go").outcome().await.unwrap();
    if paused {
        let Status::Paused(Pause::Approval(asked)) = outcome.status else { panic!("{outcome:?}") };
        let again = runtime().open(session.id()).await.unwrap();
        again.decide(&asked, Decision::Allow).await.unwrap();
        again.resume(&made(&two)).outcome().await.unwrap();
    }
    let sent = one.requests().into_iter().chain(two.requests());
    sent.map(|request| request.instructions.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_resumed_run_sends_the_same_instructions_of_each_step() {
    let whole = instructed(false).await;
    let text = |step, messages, todos| {
        format!("Fixed.\n\nAda: step {step}, {messages} messages, {todos} todos, mode plan")
    };
    assert_eq!(whole, [text(1, 1, 0), text(2, 3, 0), text(3, 5, 1)]);
    assert_eq!(instructed(true).await, whole);
}

#[tokio::test(start_paused = true)]
async fn instructions_of_a_step_are_rendered_joined_and_fail_the_run_by_their_error() {
    let provider = ScriptedProvider::new().text("Hi.");
    let fixed = Instructions::from_template("Fixed.", "one@1");
    let agent_ = agent(provider.model())
        .prepare(|_: &Step, plan: &mut Prepared| {
            assert_eq!(plan.instructions.template(), Some("one@1 two@1"));
        })
        .instructions(fixed)
        .instructions_with(|step| match step.number {
            1 => Ok(Instructions::from_template("More.", "two@1")),
            _ => Ok("".into()),
        })
        .build()
        .unwrap();
    let session = open_runtime().session();
    session.start(&agent_, "Go").outcome().await.unwrap();
    assert_eq!(&*provider.requests()[0].instructions, "Fixed.\n\nMore.");
    let events = session.events(0, 99).await.unwrap();
    let template = events.iter().find_map(|event| match &event.event {
        Event::ModelStarted(call) => call.template.clone(),
        _ => None,
    });
    assert_eq!(template.as_deref(), Some("one@1 two@1"));

    let none = ScriptedProvider::new();
    let lacks = agent(none.model()).instructions_with(|step| Ok(*step.run.deps::<&str>()?)).build().unwrap();
    let error = open_runtime().session().start(&lacks, "Go").outcome().await.unwrap_err();
    assert_eq!((error.kind(), none.count()), (ErrorKind::Config, 0), "{error}");
}
