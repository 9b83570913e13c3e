//! Layers that allow a call: what a rule asks about passes, and nothing else does. Layers that are asked once.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use entourage_core::{
    Result, SessionId,
    event::{Event, ToolStarted},
    permission::{Decision, RuleEffect, Scope},
    run::{RunContext, Status},
    session::SharedStore,
    tool::{Access, CallId, LayerVerdict, NextCall, Tool, ToolError, ToolLayer, ToolOutput, ToolSpec, Tools},
};
use entourage_runners::layered;
use entourage_runtime::{Runtime, RuntimeBuilder, Waiting, permission::Policy};
use entourage_testkit::{self as testkit, Gate, ScriptedProvider};
use serde_json::{Value, json};

use crate::common::{Write, act, agent, assert_valid, memory, process, settled, stored, until_killed};

pub(crate) type Before = fn(&mut Value) -> LayerVerdict;

/// A layer that notes the calls that it is asked about and runs around.
#[derive(Debug, Clone)]
pub(crate) struct Layer {
    before: Before,
    once: bool,
    asked: Arc<Mutex<Vec<CallId>>>,
    around: Arc<Mutex<Vec<CallId>>>,
}

impl Layer {
    pub(crate) fn new(before: Before) -> Self {
        Self { before, once: false, asked: Arc::default(), around: Arc::default() }
    }

    pub(crate) fn once(before: Before) -> Self {
        Self { once: true, ..Self::new(before) }
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

#[async_trait]
impl ToolLayer for Layer {
    async fn before(&self, _: &ToolSpec, arguments: &mut Value, cx: &RunContext) -> Result<LayerVerdict> {
        self.asked.lock().unwrap().push(cx.call().unwrap());
        Ok((self.before)(arguments))
    }

    fn is_once(&self) -> bool {
        self.once
    }

    async fn around(&self, next: NextCall<'_>) -> Result<ToolOutput, ToolError> {
        self.around.lock().unwrap().push(next.context().run().call().unwrap());
        next.run().await
    }
}

fn pass(_: &mut Value) -> LayerVerdict {
    LayerVerdict::Pass
}

pub(crate) fn allow(_: &mut Value) -> LayerVerdict {
    LayerVerdict::Allow("only tests".to_owned())
}

fn elsewhere(arguments: &mut Value) -> LayerVerdict {
    arguments["path"] = json!("secret/x");
    LayerVerdict::Pass
}

fn elsewhere_and_allow(arguments: &mut Value) -> LayerVerdict {
    elsewhere(arguments);
    allow(arguments)
}

pub(crate) fn on(store: &SharedStore, policy: Policy) -> RuntimeBuilder {
    testkit::runtime().shared_store(Arc::clone(store)).policy(policy)
}

pub(crate) fn provider(paths: &[&str]) -> ScriptedProvider {
    let calls: Vec<_> = paths.iter().map(|path| ("write", json!({"path": path}))).collect();
    ScriptedProvider::by_history().calls(calls).text("Done.")
}

pub(crate) async fn begun(store: &SharedStore, session: &SessionId) -> Vec<Arc<ToolStarted>> {
    let events = stored(store, session).await.into_iter();
    events.filter_map(|it| if let Event::ToolStarted(call) = it.event { Some(call) } else { None }).collect()
}

pub(crate) async fn asked(store: &SharedStore, session: &SessionId) -> usize {
    let events = stored(store, session).await;
    events.iter().filter(|it| matches!(it.event, Event::ApprovalRequested(_))).count()
}

pub(crate) async fn decide(runtime: &Runtime, decision: Decision) {
    let pending = runtime.pending().await.unwrap().remove(0);
    let Waiting::Approval(question) = pending.waits_for else { panic!("{pending:?}") };
    runtime.decide(&question.id, decision).await.unwrap();
}

#[tokio::test]
async fn ce03_an_allow_answers_a_rule_that_asks_and_the_record_has_its_reason() {
    for paths in [&["a"][..], &["a", "b"]] {
        let (store, write, layer) = (memory(), Write::new().idempotent(), Layer::new(allow));
        let agent = agent(provider(paths).model()).tool(write.clone()).build().unwrap();
        // Nobody can be asked: a question would pause the run.
        let session = on(&store, Policy::new().ask("write")).tool_layer(layer.clone()).build().session();
        assert!(session.start(&agent, "Go").outcome().await.unwrap().is_completed());
        assert_eq!(write.paths(), paths);
        let begun = begun(&store, session.id()).await;
        assert!(begun.iter().all(|call| call.allowed_by == "layer: only tests"), "{begun:?}");
        assert_eq!((begun.len(), asked(&store, session.id()).await), (paths.len(), 0));
        let ids = layer.asked.lock().unwrap().clone();
        assert_eq!(ids, *layer.around.lock().unwrap(), "both see the id of the call");
        assert_eq!(ids.iter().collect::<std::collections::HashSet<_>>().len(), paths.len());
    }
}

#[tokio::test]
async fn ce03_an_allow_covers_its_call_alone_and_widens_nothing() {
    let read = Scope::none().with_access(Access::READ);
    let asks = || Policy::new().ask("write");
    let strict = || asks().restricted_by(Policy::allow_all().deny("write").named("project"));
    let asking = || asks().restricted_by(Policy::allow_all().ask("write").named("project"));
    for (policy, scope, before, wrote) in [
        (asks(), Scope::all(), allow as Before, Some("a")),
        (asks().deny("write:a"), Scope::all(), allow, None),
        (Policy::new().deny("*"), Scope::all(), allow, None),
        (strict(), Scope::all(), allow, None),
        (asking(), Scope::all(), allow, Some("a")),
        (Policy::new().otherwise(RuleEffect::Deny), Scope::all(), allow, None),
        (asks(), read, allow, None),
        (asks(), Scope::all().with_roots(["b"]), allow, None),
        // What the layer itself left is judged.
        (asks().deny("write:secret/*"), Scope::all(), elsewhere_and_allow, None),
        (asks().deny("write:a"), Scope::all(), elsewhere_and_allow, Some("secret/x")),
    ] {
        let (store, write) = (memory(), Write::new().idempotent());
        let shown = format!("{policy:?} {scope:?}");
        let agent = agent(provider(&["a"]).model()).tool(write.clone()).scope(scope).build().unwrap();
        let session = on(&store, policy).tool_layer(Layer::new(before)).build().session();
        session.start(&agent, "Go").outcome().await.unwrap();
        assert_eq!(write.paths(), Vec::from_iter(wrote), "{shown}");
        assert_valid(&session.history().await.unwrap());
    }
}

#[tokio::test]
async fn ce03_a_rule_that_allows_is_named_and_not_the_layer() {
    let (store, write) = (memory(), Write::new().idempotent());
    let agent = agent(provider(&["a"]).model()).tool(write.clone()).build().unwrap();
    let runtime = on(&store, Policy::new().allow("write")).tool_layer(Layer::new(allow)).build();
    let session = runtime.session();
    session.start(&agent, "Go").outcome().await.unwrap();
    assert_eq!(begun(&store, session.id()).await[0].allowed_by, "allow write");
}

#[tokio::test]
async fn ce03_a_later_layer_that_changes_the_call_takes_the_allow_back() {
    for (inner, passes) in
        [(pass as Before, true), (elsewhere, false), (elsewhere_and_allow, true), (allow, true)]
    {
        let (store, write) = (memory(), Write::new().idempotent());
        let tool = layered(write.clone(), Layer::new(inner));
        let agent = agent(provider(&["a"]).model()).tool(tool).build().unwrap();
        let runtime = on(&store, Policy::new().ask("write")).tool_layer(Layer::new(allow)).build();
        let outcome = runtime.session().start(&agent, "Go").outcome().await.unwrap();
        assert_eq!(outcome.is_completed(), passes, "{outcome}");
        assert_eq!(write.paths().len(), usize::from(passes));
    }
}

#[tokio::test]
async fn ce03_a_person_who_refuses_is_heard_before_a_layer_that_allows() {
    let (store, write) = (memory(), Write::new().idempotent());
    let agent = agent(provider(&["a"]).model()).tool(write.clone()).build().unwrap();
    let runtime = on(&store, Policy::new().ask("write")).build();
    let session = runtime.session();
    session.start(&agent, "Go").outcome().await.unwrap();
    decide(&runtime, Decision::Deny).await;
    let later = on(&store, Policy::new().ask("write")).tool_layer(Layer::new(allow)).build();
    later.open(session.id()).await.unwrap().resume(&agent).outcome().await.unwrap();
    assert_eq!(write.paths(), [""; 0]);
}

/// Leaves the first call that it is asked about as it is, and changes its mind after that.
fn moody(arguments: &mut Value) -> LayerVerdict {
    match arguments["path"].as_str() {
        Some("a") => {
            arguments["path"] = json!("b");
            LayerVerdict::Pass
        }
        _ => LayerVerdict::Stop("not this one".to_owned()),
    }
}

#[tokio::test]
async fn ce03_a_call_that_waits_for_an_answer_is_not_asked_about_again_by_a_layer_that_is_asked_once() {
    let edit = |path: &str| Decision::edit(&json!({"path": path})).unwrap();
    for (once, decision, wrote, asked) in [
        (true, Decision::Allow, Some("b"), 1),
        // The arguments of an approver are new.
        (true, edit("z"), None, 2),
        (false, Decision::Allow, Some("b"), 2),
        (true, Decision::Deny, None, 1),
    ] {
        let (store, write) = (memory(), Write::new().idempotent());
        let agent = agent(provider(&["a"]).model()).tool(write.clone()).build().unwrap();
        let layer = if once { Layer::once(moody) } else { Layer::new(moody) };
        let runtime = || on(&store, Policy::new().ask("write")).tool_layer(layer.clone()).build();
        let session = runtime().session();
        let outcome = session.start(&agent, "Go").outcome().await.unwrap();
        assert!(matches!(outcome.status, Status::Paused(_)), "{outcome}");
        let later = runtime();
        decide(&later, decision.clone()).await;
        later.open(session.id()).await.unwrap().resume(&agent).outcome().await.unwrap();
        assert_eq!((write.paths(), layer.asked()), (Vec::from_iter(wrote.map(str::to_owned)), asked));
        assert_valid(&later.open(session.id()).await.unwrap().history().await.unwrap());
    }
}

#[test]
fn ce03_a_call_that_began_keeps_its_allow_and_its_arguments_when_its_process_dies() {
    for once in [true, false] {
        let (store, gate) = (memory(), Gate::new());
        let (layer, write) = (Layer::once(elsewhere_and_allow), Write::new().idempotent().behind(&gate));
        let id = SessionId::new("work").unwrap();
        let world = |layer: Layer| {
            let agent = agent(provider(&["a"]).model()).tool(write.clone()).build().unwrap();
            (on(&store, Policy::new().ask("write")).tool_layer(layer).build(), agent)
        };
        process(async {
            let (runtime, agent) = world(layer.clone());
            let session = runtime.session_with_id(id.clone());
            assert!(until_killed(session.start(&agent, "Go").outcome(), &gate).await.is_none());
        });
        gate.open();
        process(async {
            // By now it would leave everything to the rules.
            let second = if once { Layer { before: pass, ..layer.clone() } } else { Layer::new(pass) };
            let (runtime, agent) = world(second);
            let session = runtime.open(&id).await.unwrap();
            let outcome = session.resume(&agent).outcome().await.unwrap();
            let begun = begun(&store, &id).await;
            if once {
                assert!(outcome.is_completed(), "{outcome}");
                assert!(begun.iter().all(|call| call.allowed_by == "layer: only tests"), "{begun:?}");
                assert_eq!(write.paths(), ["secret/x"]);
                assert!(settled(&stored(&store, &id).await)[0].1.starts_with("Run with other arguments"));
                assert_valid(&session.history().await.unwrap());
            } else {
                assert!(matches!(outcome.status, Status::Paused(_)), "{outcome}");
            }
        });
        assert_eq!(layer.asked(), 1);
    }
}

#[test]
fn ce03_a_hand_written_agents_call_is_recalled_by_its_own_record() {
    let (store, gate) = (memory(), Gate::new());
    let (layer, write) = (Layer::once(elsewhere_and_allow), Write::new().idempotent().behind(&gate));
    let id = SessionId::new("work").unwrap();
    let world = |layer: Layer| {
        let tools = Tools::new([Arc::new(write.clone()) as Arc<dyn Tool>]).unwrap();
        let agent = act(move |cx| {
            let tools = tools.clone();
            Box::pin(async move {
                cx.call_tool(&tools, "write", &json!({"path": "a"})).await?;
                Ok(cx.call_tool(&tools, "write", &json!({"path": "b"})).await?.to_text())
            })
        });
        (on(&store, Policy::new().ask("write")).tool_layer(layer).build(), agent)
    };
    process(async {
        let (runtime, agent) = world(layer.clone());
        let session = runtime.session_with_id(id.clone());
        assert!(until_killed(session.start(&agent, "Go").outcome(), &gate).await.is_none());
    });
    gate.open();
    assert_eq!(layer.asked(), 1);
    process(async {
        let (runtime, agent) = world(layer.clone());
        let session = runtime.open(&id).await.unwrap();
        assert!(session.resume(&agent).outcome().await.unwrap().is_completed());
    });
    assert_eq!((write.paths(), layer.asked()), (vec!["secret/x".to_owned(); 2], 2));
}

#[tokio::test]
async fn ce03_a_replay_asks_no_layer() {
    let (store, write, layer) = (memory(), Write::new().idempotent(), Layer::once(allow));
    let agent = agent(provider(&["a"]).model()).tool(write.clone()).build().unwrap();
    let runtime = on(&store, Policy::new().ask("write")).tool_layer(layer.clone()).build();
    let session = runtime.session();
    session.start(&agent, "Go").outcome().await.unwrap();
    let run = session.events(0, 1).await.unwrap()[0].origin.run;
    assert_eq!(session.replay(&agent, run).await.unwrap().text, "Done.");
    assert_eq!((layer.asked(), write.paths().len()), (1, 1));
}
