//! Engines: what crosses to another process comes back as it was, and code that is not found by name is refused.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, RunId, SessionId, Timestamp,
    agent::{Agent, AgentPart, IntoAgent},
    context::{Compaction, CompactionCause},
    event::Origin,
    message::{Arguments, History, Message, Part, Role, ToolCall},
    permission::Scope,
    provider::{Model, OutputFormat, Params, RawCall, Request, ToolChoice},
    run::{
        Delegate, Effect, Effects, Limits, ModelCall, Observation, Outcome, Pause, PendingCall, RunContext,
        Spawn, Status, StopReason, Task, ToolCalls,
    },
    tool::{Access, Repair, Repeat, Tool, ToolSpec, Tools},
};
use entourage_runners::from_fn::from_fn;
use entourage_runtime::{
    Agents, Titles,
    engine::{Code, Engine, PartName, answer_from_json, answer_to_json, effect_to_json},
};
use entourage_testkit::{self as testkit, Distant, ReactAgent, ScriptedProvider};
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// An agent that is nothing but its name and its parts.
#[derive(Clone)]
struct Named(&'static str, Vec<AgentPart>);

#[async_trait]
impl Agent for Named {
    fn name(&self) -> &str {
        self.0
    }

    fn parts(&self) -> Vec<AgentPart> {
        self.1.clone()
    }

    async fn run(&self, _: Task, _: &RunContext) -> Result<Outcome> {
        Ok(Outcome::completed(""))
    }
}

#[derive(Debug)]
struct Mended;

impl Repair for Mended {
    fn repair(&self, call: &RawCall, _: &str, _: &Tools) -> Option<RawCall> {
        Some(call.clone())
    }
}

fn model(name: &str) -> Model {
    Model::new(Arc::clone(ScriptedProvider::new().model().provider()), name)
}

/// A tool with nothing left at its default.
fn tool(name: &str) -> Arc<dyn Tool> {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let spec = ToolSpec::new(name, "Counts.", schema)
        .with_access(Access::READ)
        .with_repeat(Repeat::Safe)
        .with_timeout(Duration::from_secs(7))
        .alone();
    Arc::new(from_fn(spec, |_| async { Ok("counted") }))
}

fn set(tool: Arc<dyn Tool>) -> Tools {
    Tools::new([tool]).unwrap()
}

fn code(parts: Vec<AgentPart>) -> Code {
    Code::new(Agents::new().with(Named("boss", parts)), [PartName::new("boss")])
}

fn child(name: &str) -> SessionId {
    SessionId::new(name).unwrap()
}

#[test]
fn every_effect_comes_back_as_it_was() {
    let (large, small) = (model("large"), model("small"));
    let tools = set(tool("count"));
    let helper = Named("helper", Vec::new());
    let code = code(vec![
        AgentPart::Model(large.clone().into()),
        AgentPart::Model(small.clone().into()),
        AgentPart::Tools(tools.clone()),
        AgentPart::Repair(Arc::new(Mended)),
        AgentPart::agent(helper.clone()),
        AgentPart::Agent { name: "second helper".into(), agent: helper.clone().into_agent() },
    ]);
    let request = Request::new("large", History::from(Message::user("How many?")))
        .with_instructions("Count.")
        .with_tool_choice(ToolChoice::Tool("count".into()))
        .with_output(OutputFormat::Json)
        .with_params(Params::default().with_max_output(9).with_temperature(0.25));
    let mut call = ModelCall::new(large.clone(), request, tools.clone());
    (call.step, call.silence) = (3, Duration::from_millis(1_250));
    (call.repair, call.template) = (Some(Arc::new(Mended) as _), Some("counting".into()));
    let asks = ToolCall::new("c1", "count", Arguments::from(&json!({"n": u64::MAX})));
    let message = Arc::new(Message::new(Role::Assistant, vec![Part::ToolCall(asks)]));
    let mut pending = PendingCall::new(0);
    (pending.started, pending.repeated, pending.late) = (true, 3, true);
    let spawn = |task: &str| Spawn::new(helper.clone().into_agent(), Task::new(task));
    let mut whole =
        Delegate::new(child("below"), spawn("Go.").with_part("second helper").with_title("Going"))
            .run(RunId::generate())
            .opening(vec![Arc::new(Message::user("Before."))])
            .cancelled_by(CancellationToken::new())
            .within(Some(Duration::from_secs(5)))
            .part_of_run()
            .counted();
    (whole.anew, whole.lasting) = (true, true);
    let compaction =
        Compaction::new().with_model(small).keep_messages(3).clear_outputs(1, 2_048).with_focus("figures");
    let compact = |compaction: Compaction| Effect::Compact {
        compaction: Box::new(compaction),
        model: large.clone(),
        cause: CompactionCause::Overflow,
        silence: Duration::from_secs(2),
    };
    let effects = [
        Effect::Model(Box::new(call)),
        Effect::Model(Box::new(ModelCall::new(
            large.clone(),
            Request::new("large", History::default()),
            Tools::none(),
        ))),
        Effect::Tools(Box::new(ToolCalls::new(message, vec![pending], tools, Limits::default()))),
        Effect::Spawn(Box::new(spawn("Go.").with_role("scout").with_scope(Scope::none()).sharing_todos())),
        Effect::Delegate(Box::new(whole)),
        Effect::Delegate(Box::new(Delegate::new(child("plain"), spawn("Go.")))),
        Effect::WaitAny { children: vec![child("a"), child("b")], timeout: Some(Duration::from_nanos(1)) },
        Effect::WaitAny { children: Vec::new(), timeout: None },
        Effect::Signal { name: "\u{1f} \"ready\"".into() },
        Effect::Sleep(Duration::MAX),
        Effect::Now,
        Effect::NewId,
        compact(compaction),
        compact(Compaction::new().without_clearing()),
    ];
    for effect in effects {
        let sent = effect_to_json(&effect).unwrap();
        let made = code.effect(&sent, CancellationToken::new()).unwrap();
        assert_eq!(effect_to_json(&made).unwrap(), sent);
        match (effect, made) {
            (Effect::Model(one), Effect::Model(other)) => {
                assert_eq!(one.request, other.request);
                assert_eq!(one.repair.is_some(), other.repair.is_some());
                assert!(Arc::ptr_eq(one.model.provider(), other.model.provider()));
            }
            (Effect::Tools(one), Effect::Tools(other)) => {
                assert_eq!((one.calls, one.message, one.limits), (other.calls, other.message, other.limits));
                assert!(
                    one.offered.iter().zip(other.offered.iter()).all(|(one, other)| Arc::ptr_eq(one, other))
                );
            }
            (Effect::Delegate(one), Effect::Delegate(other)) => {
                assert_eq!(one.cancel.is_some(), other.cancel.is_some());
                assert_eq!((one.limit, one.anew, one.lasting), (other.limit, other.anew, other.lasting));
                assert_eq!((one.counted, one.part_of_run), (other.counted, other.part_of_run));
            }
            (one, other) => assert_eq!(std::mem::discriminant(&one), std::mem::discriminant(&other)),
        }
    }
}

#[test]
fn every_answer_comes_back_as_it_was() {
    let mut outcome = Outcome::completed("done");
    outcome.status = Status::Stopped(StopReason::Steps(3));
    let observations = [
        Observation::Tools(Vec::new()),
        Observation::Spawned(child("below")),
        Observation::Child {
            child: Some(child("below")),
            outcome: Some(Box::new(outcome)),
            work: vec![Arc::new(Message::user("Before."))],
            total: None,
        },
        Observation::Child { child: None, outcome: None, work: Vec::new(), total: None },
        Observation::Signal(json!({"deep": [null, 1.5, u64::MAX]})),
        Observation::Slept,
        Observation::Now(Timestamp::from_micros(1_764_000_000_123_456)),
        Observation::Id("01J".into()),
        Observation::Compacted(true),
    ];
    for observation in observations {
        let text = answer_to_json(&Ok(observation.clone())).unwrap();
        assert_eq!(answer_from_json(&text).unwrap().unwrap(), observation);
    }
    let error = || Error::new(ErrorKind::RateLimited, "slow down").with("host", "there");
    let text = answer_to_json(&Err(error())).unwrap();
    assert_eq!(answer_from_json(&text).unwrap().unwrap_err().record(), error().record());
    let until = Some(Timestamp::from_micros(7));
    let pause = Pause::Signal { name: "ready".into(), until };
    let text = answer_to_json(&Err(Error::paused(pause.clone()))).unwrap();
    assert_eq!(answer_from_json(&text).unwrap().unwrap_err().pause(), Some(&pause));
}

#[test]
fn what_is_no_effect_or_answer_is_refused() {
    let code = code(Vec::new());
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for text in ["", "{}", "null", "\"now", "\"later\"", "{\"sleep\":{\"time\":-1}}", &deep] {
        let refused = code.effect(text, CancellationToken::new());
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Protocol, "{text:.40}");
        assert_eq!(answer_from_json(text).unwrap_err().kind(), ErrorKind::Protocol, "{text:.40}");
    }
}

/// Returns the text of the refusal, which says what to do.
fn refused<T>(result: Result<T>) -> String {
    let Err(error) = result else { panic!("it was found") };
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    error.to_string()
}

#[test]
fn code_without_a_name_of_its_own_is_refused() {
    let helper = |part| Named("helper", vec![part]);
    let one = || AgentPart::Tools(set(tool("count")));
    let nobody = Code::new(Agents::new(), [PartName::new("boss")]);
    assert!(refused(nobody.agent().map(|_| ())).contains("`boss`"));
    assert!(refused(Code::new(Agents::new(), []).agent().map(|_| ())).contains("Agents"));
    let empty = code(Vec::new());
    assert!(refused(empty.model("scripted", "large")).contains("`scripted:large`"));
    assert!(refused(empty.tools(&["count".into()])).contains("Agent::parts"));
    assert!(empty.repair().unwrap().is_none());
    assert!(empty.tools(&[]).unwrap().is_empty());

    let twice = code(vec![
        one(),
        one(),
        AgentPart::Model(model("large").into()),
        AgentPart::Model(model("large").into()),
        AgentPart::Repair(Arc::new(Mended)),
        AgentPart::Repair(Arc::new(Mended)),
        AgentPart::agent(helper(one())),
        AgentPart::agent(helper(one())),
    ]);
    for text in [
        refused(twice.tools(&["count".into()])),
        refused(twice.model("scripted", "large")),
        refused(twice.repair()),
        refused(twice.below(PartName::new("helper")).agent().map(|_| ())),
    ] {
        assert!(text.contains("a name of its own"), "{text}");
    }

    // The same code may be listed as often as it is used.
    let (tools, large) = (set(tool("count")), model("large"));
    let part = || vec![AgentPart::Tools(tools.clone()), AgentPart::Model(large.clone().into())];
    let listed = code([part(), part()].concat());
    assert_eq!(listed.tools(&["count".into()]).unwrap().iter().count(), 1);
    assert!(Arc::ptr_eq(listed.model("scripted", "large").unwrap().provider(), large.provider()));
}

#[test]
fn an_agent_below_is_a_part_before_it_is_one_of_the_set() {
    let worker = |name| Named("worker", vec![AgentPart::Model(model(name).into())]);
    let boss = Named("boss", vec![AgentPart::agent(worker("part"))]);
    let agents = Agents::new().with(boss).with(worker("set")).with(Named("other", Vec::new()));
    let found = |path: [&str; 2]| {
        let code = Code::new(agents.clone(), path.map(PartName::new));
        ["part", "set"].into_iter().find(|name| code.model("scripted", name).is_ok())
    };
    assert_eq!(found(["boss", "worker"]), Some("part"));
    assert_eq!(found(["other", "worker"]), Some("set"));
}

/// Counts the runs that it is asked for, and performs everything here.
#[derive(Debug, Clone, Default)]
struct Asked(Arc<Mutex<Vec<String>>>);

impl Engine for Asked {
    fn effects(&self, run: &Origin, local: Arc<dyn Effects>) -> Arc<dyn Effects> {
        self.0.lock().unwrap().push(run.agent.to_string());
        local
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_gives_effects_to_the_runs_of_the_program_alone() {
    let asked = Asked::default();
    let titler = ScriptedProvider::new().text("Fruit");
    let titles = Titles::new(titler.model());
    let runtime = testkit::runtime().effects(asked.clone()).titles(titles).build();
    let provider = ScriptedProvider::new().text("Pears.").text("They were bought.").text("Plums.");
    let agent = ReactAgent::builder("buyer", provider.model()).build().unwrap();
    let session = runtime.session();
    session.start(&agent, "Buy pears. ".repeat(100)).outcome().await.unwrap();
    // The clock stands still until nothing else is left to do.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(titler.count(), 1);
    session.compact(&Compaction::new().keep_messages(0), &provider.model()).await.unwrap();
    session.start(&agent, "Buy plums.").outcome().await.unwrap();
    assert_eq!(*asked.0.lock().unwrap(), ["buyer", "buyer"], "neither the title's run nor the summary's");
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_code_is_not_found_fails_before_its_first_effect() {
    let provider = ScriptedProvider::by_history().text("Here.");
    let agent = ReactAgent::builder("greeter", provider.model()).build().unwrap();
    let runtime = testkit::runtime().effects(Distant::new(Agents::new())).build();
    let error = runtime.session().start(&agent, "Hi").outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert_eq!(provider.count(), 0);
}
