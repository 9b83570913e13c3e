//! Attacks at the door of effects: wider contexts, effects that are given twice, code that is not what was meant.

use std::{
    any::{Any, TypeId},
    fmt,
    sync::Arc,
};

use async_trait::async_trait;
use entourage_core::{
    Digest, ErrorKind, Result,
    agent::{Agent, AgentPart},
    budget::BudgetLimits,
    event::{EffectKey, Event, Origin, Recorded},
    message::Message,
    permission::Scope,
    run::{Effect, Effects, Observation, Outcome, Performing, RunContext, Status, Task, ToolCalls, Waited},
    session::{SessionState, SessionStatus},
    team::Todo,
    tool::{Access, Repeat, Tool, ToolSpec, Tools},
};
use entourage_runners::from_fn::from_fn;
use entourage_runtime::engine::{Code, Engine, PartName, answer_from_json, answer_to_json, effect_to_json};
use entourage_testkit::{self as testkit, FakeTool, ScriptedProvider};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::common::{act, agent, memory, runtime_on, stored};

/// An engine that passes everything on, but for effects that run tools.
#[derive(Clone)]
struct Between(Arc<dyn Hook>);

#[async_trait]
trait Hook: Send + Sync {
    async fn tools(
        &self,
        local: &dyn Effects,
        cx: &RunContext,
        key: Option<EffectKey>,
        calls: ToolCalls,
    ) -> Result<Observation>;
}

impl fmt::Debug for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Between")
    }
}

impl Engine for Between {
    fn effects(&self, _: &Origin, local: Arc<dyn Effects>) -> Arc<dyn Effects> {
        Arc::new(Through(self.clone(), local))
    }
}

#[derive(Debug)]
struct Through(Between, Arc<dyn Effects>);

impl Effects for Through {
    fn perform<'a>(
        &'a self,
        cx: &'a RunContext,
        key: Option<EffectKey>,
        effect: Effect,
    ) -> Performing<'a, Observation> {
        match effect {
            Effect::Tools(calls) => Box::pin(async move { self.0.0.tools(&*self.1, cx, key, *calls).await }),
            other => self.1.perform(cx, key, other),
        }
    }

    fn append(
        &self,
        cx: &RunContext,
        key: Option<EffectKey>,
        make: &mut dyn FnMut(&SessionState, u64) -> Result<Recorded>,
    ) -> Result<()> {
        self.1.append(cx, key, make)
    }

    fn commit<'a>(&'a self, cx: &'a RunContext) -> Performing<'a, ()> {
        self.1.commit(cx)
    }

    fn steer<'a>(&'a self, cx: &'a RunContext) -> Performing<'a, ()> {
        self.1.steer(cx)
    }

    fn remind(&self, cx: &RunContext, message: Arc<Message>) -> Result<()> {
        self.1.remind(cx, message)
    }

    fn read(&self, read: &mut dyn FnMut(&SessionState)) {
        self.1.read(read);
    }

    fn recorded(&self) -> Arc<[Event]> {
        self.1.recorded()
    }

    fn replayed<'a>(&'a self, cx: &'a RunContext) -> Performing<'a, Vec<Recorded>> {
        self.1.replayed(cx)
    }

    fn todos(&self) -> Vec<Todo> {
        self.1.todos()
    }

    fn set_todos<'a>(&'a self, cx: &'a RunContext, todos: Vec<Todo>) -> Performing<'a, ()> {
        self.1.set_todos(cx, todos)
    }

    fn dep(&self, of: TypeId) -> Option<Arc<dyn Any + Send + Sync>> {
        self.1.dep(of)
    }

    fn time(&self) -> entourage_core::Timestamp {
        self.1.time()
    }

    fn check(&self) -> Result<()> {
        self.1.check()
    }

    fn is_pausing(&self) -> bool {
        self.1.is_pausing()
    }

    fn has_readers(&self) -> bool {
        self.1.has_readers()
    }

    fn is_stored(&self) -> bool {
        self.1.is_stored()
    }

    fn sub_agents(&self) -> usize {
        self.1.sub_agents()
    }

    fn show(&self, cx: &RunContext, shown: Event) {
        self.1.show(cx, shown);
    }
}

/// A context of the same run that its run never gave.
fn wider(cx: &RunContext) -> RunContext {
    let origin = Arc::new(Origin::new(cx.session().clone(), cx.run(), cx.agent()));
    RunContext::new(origin, None, Scope::all(), None, CancellationToken::new(), Arc::clone(cx.effects()))
}

fn writer() -> (FakeTool, Tools) {
    let write = FakeTool::new("write").access(Access::WRITE);
    let tools = Tools::new([Arc::new(write.clone()) as Arc<dyn Tool>]).unwrap();
    (write, tools)
}

#[tokio::test]
async fn attack_20_no_context_is_wider_than_its_run() {
    let (write, tools) = writer();
    let provider = ScriptedProvider::new();
    let child = {
        let (tools, model) = (tools.clone(), provider.model());
        act(move |cx| {
            let (tools, model) = (tools.clone(), model.clone());
            Box::pin(async move {
                let wide = wider(cx);
                for error in [
                    wide.call_tool(&tools, "write", &json!({})).await.unwrap_err(),
                    wide.call_model(&model, model.request("x")).await.unwrap_err(),
                    wide.spawn(act(|_| Box::pin(async { Ok(String::new()) })), "x").await.unwrap_err(),
                ] {
                    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
                }
                // A context of its own that narrows works.
                let refused = cx.narrowed(&Scope::none()).call_tool(&tools, "write", &json!({})).await?;
                assert!(refused.is_error);
                Ok("held".to_owned())
            })
        })
    };
    let root = act(move |cx| {
        let child = child.clone();
        Box::pin(async move {
            let below = cx.spawn_in(child, Task::new("go"), Scope::read_only()).await?;
            let Waited::Ended { outcome, .. } = cx.wait_any(&[below], None).await? else { panic!("no end") };
            Ok(outcome.text)
        })
    });
    let session = runtime_on(&memory()).session();
    let outcome = session.start(&root, "Go").outcome().await.unwrap();
    assert_eq!((&*outcome.text, write.started()), ("held", 0));
}

#[tokio::test]
async fn attack_20_no_context_is_free_of_its_runs_budget() {
    let provider = ScriptedProvider::new();
    let model = provider.model();
    let root = act(move |cx| {
        let model = model.clone();
        Box::pin(async move {
            let error = wider(cx).call_model(&model, model.request("x")).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
            Ok("paid".to_owned())
        })
    });
    let task = Task::new("Go").with_budget(BudgetLimits::default().with_model_calls(3));
    let outcome = runtime_on(&memory()).session().start(&root, task).outcome().await.unwrap();
    assert_eq!(outcome.text, "paid");
}

#[tokio::test]
async fn attack_12_a_keyed_effect_that_is_given_twice_is_performed_once() {
    let store = memory();
    let root = act(|cx| {
        Box::pin(async move {
            let key = Some(EffectKey::new(90, Digest::of([b"id".as_slice()])));
            let first = cx.effects().perform(cx, key, Effect::NewId).await;
            let second = cx.effects().perform(cx, key, Effect::NewId).await;
            assert!(first.is_ok());
            assert_eq!(second.unwrap_err().kind(), ErrorKind::Diverged);
            Ok(String::new())
        })
    });
    let session = runtime_on(&store).session();
    drop(session.start(&root, "Go").outcome().await);
    let events = stored(&store, session.id()).await;
    assert_eq!(events.iter().filter(|it| matches!(it.event, Event::Observed(_))).count(), 1);
}

#[tokio::test]
async fn attack_12_calls_that_are_delivered_twice_at_once_or_in_one_effect_run_once() {
    struct AtOnce;
    struct Copies;
    struct None;

    #[async_trait]
    impl Hook for AtOnce {
        async fn tools(
            &self,
            local: &dyn Effects,
            cx: &RunContext,
            key: Option<EffectKey>,
            calls: ToolCalls,
        ) -> Result<Observation> {
            let again = Effect::Tools(Box::new(calls.clone()));
            let (one, two) = tokio::join!(
                local.perform(cx, key, Effect::Tools(Box::new(calls))),
                local.perform(cx, key, again)
            );
            one.or(two)
        }
    }

    #[async_trait]
    impl Hook for Copies {
        async fn tools(
            &self,
            local: &dyn Effects,
            cx: &RunContext,
            key: Option<EffectKey>,
            mut calls: ToolCalls,
        ) -> Result<Observation> {
            calls.calls = vec![calls.calls[0]; 1_000];
            local.perform(cx, key, Effect::Tools(Box::new(calls))).await
        }
    }

    #[async_trait]
    impl Hook for None {
        async fn tools(
            &self,
            local: &dyn Effects,
            cx: &RunContext,
            key: Option<EffectKey>,
            mut calls: ToolCalls,
        ) -> Result<Observation> {
            calls.calls.clear();
            local.perform(cx, key, Effect::Tools(Box::new(calls))).await
        }
    }

    for (hook, most) in [(Arc::new(AtOnce) as Arc<dyn Hook>, 1), (Arc::new(Copies), 0), (Arc::new(None), 0)] {
        let store = memory();
        let pay = FakeTool::new("pay").access(Access::WRITE);
        let provider = ScriptedProvider::by_history().call("pay", json!({})).text("Paid.");
        let agent = agent(provider.model()).tool(pay.clone()).build().unwrap();
        let builder = testkit::runtime().shared_store(Arc::clone(&store));
        let builder = builder.policy(entourage_runtime::permission::Policy::allow_all());
        let session = builder.effects(Between(hook)).build().session();
        let error = session.start(&agent, "Pay").outcome().await.unwrap_err();
        assert_eq!((error.kind(), pay.started()), (ErrorKind::Diverged, most), "{error}");
    }
}

#[tokio::test]
async fn an_engine_that_panics_ends_its_run_as_failed() {
    #[derive(Debug)]
    struct Broken;

    impl Engine for Broken {
        fn effects(&self, _: &Origin, _: Arc<dyn Effects>) -> Arc<dyn Effects> {
            panic!("no engine today")
        }
    }

    let store = memory();
    let session = testkit::runtime().shared_store(Arc::clone(&store)).effects(Broken).build().session();
    let agent = act(|_| Box::pin(async { Ok("never".to_owned()) }));
    let error = session.start(&agent, "Go").outcome().await.unwrap_err();
    assert!(error.kind() == ErrorKind::Internal && error.message().contains("no engine today"), "{error}");
    assert_eq!(session.unfinished().await.unwrap(), None);
    assert_eq!(session.head().await.unwrap().status, SessionStatus::Idle);
    let again = runtime_on(&store).open(session.id()).await.map(drop);
    assert!(again.is_ok());
}

#[test]
fn attack_04_a_value_with_a_key_of_the_serializer_crosses_as_it_is() {
    for inner in ["\"[1,2]\"", "\"]\"", "3"] {
        let value: Value = serde_json::from_str("{}").unwrap();
        let mut value = value.as_object().unwrap().clone();
        value.insert("$serde_json::private::RawValue".to_owned(), serde_json::from_str(inner).unwrap());
        let signal = Observation::Signal(Value::Object(value));
        let answer = answer_from_json(&answer_to_json(&Ok(signal.clone())).unwrap()).unwrap().unwrap();
        assert_eq!(answer, signal, "{inner}");
    }
}

/// An agent that is nothing but its parts.
#[derive(Clone)]
struct Parts(Vec<AgentPart>);

#[async_trait]
impl Agent for Parts {
    fn name(&self) -> &str {
        "boss"
    }

    fn parts(&self) -> Vec<AgentPart> {
        self.0.clone()
    }

    async fn run(&self, _: Task, _: &RunContext) -> Result<Outcome> {
        Ok(Outcome::new(Status::Completed))
    }
}

#[test]
fn attack_17_code_of_the_same_name_does_not_take_the_place_of_what_was_offered() {
    let look = |access| {
        let spec = ToolSpec::new("look", "Looks.", json!({"type": "object"})).with_access(access);
        Tools::new([
            Arc::new(from_fn(spec.with_repeat(Repeat::Safe), |_| async { Ok("seen") })) as Arc<dyn Tool>
        ])
        .unwrap()
    };
    let (own, narrow) = (look(Access::ALL), look(Access::NONE));
    let agents = entourage_runtime::Agents::new().with(Parts(vec![AgentPart::Tools(own.clone())]));
    let code = Code::new(agents, [PartName::new("boss")]);
    let effect = |tools: &Tools| {
        let message = Arc::new(Message::assistant("look"));
        Effect::Tools(Box::new(ToolCalls::new(message, Vec::new(), tools.clone(), Default::default())))
    };
    let json = |tools| effect_to_json(&effect(tools)).unwrap();
    assert!(code.effect(&json(&own), CancellationToken::new()).is_ok());
    let error = code.effect(&json(&narrow), CancellationToken::new()).unwrap_err();
    assert!(error.kind() == ErrorKind::Config && error.message().contains("another one"), "{error}");
}
