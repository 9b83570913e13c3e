//! Values of the program's own types: they reach all code of a run by their type, and nothing that is stored or shown.

use std::sync::Arc;

use async_trait::async_trait;
use entourage_core::{
    ErrorKind, Result,
    agent::Agent,
    run::{Outcome, RunContext, Task},
    session::SessionFilter,
    tool::{Access, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec},
};
use entourage_runners::{AgentTool, graph::TaskGraph};
use entourage_runtime::permission::Policy;
use entourage_runtime::{Agents, Runtime, RuntimeBuilder, Session};
use entourage_testkit::{self as testkit, Distant, Gate, ScriptedProvider};
use futures_util::StreamExt;
use serde_json::json;

use crate::common::{agent, memory, results};

/// Whose text is a secret: it must not be found anywhere.
#[derive(Debug)]
struct Tenant(&'static str);

fn said(cx: &RunContext) -> Result<String> {
    // Not the secret itself, which is looked for in the store.
    Ok(cx.deps::<Tenant>()?.0.to_uppercase())
}

/// Says whose run it is.
#[derive(Debug, Clone)]
struct Teller(&'static str);

#[async_trait]
impl Agent for Teller {
    fn name(&self) -> &str {
        self.0
    }

    async fn run(&self, _: Task, cx: &RunContext) -> Result<Outcome> {
        Ok(Outcome::completed(said(cx)?))
    }
}

/// Says whose call it is.
struct Whose(ToolSpec);

impl Whose {
    fn new() -> Self {
        let spec = ToolSpec::new("whose", "Says whose.", json!({"type": "object"}));
        Self(spec.with_access(Access::READ))
    }
}

#[async_trait]
impl Tool for Whose {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::text(cx.deps::<Tenant>()?.0.to_uppercase()))
    }
}

/// Says whose run it is, waits for a signal, and says it again.
struct Waiter;

#[async_trait]
impl Agent for Waiter {
    fn name(&self) -> &str {
        "waiter"
    }

    async fn run(&self, _: Task, cx: &RunContext) -> Result<Outcome> {
        let before = said(cx)?;
        cx.signal("go").await?;
        let child = cx.ask("below", Teller("below"), "Whose?").await?;
        Ok(Outcome::completed(format!("{before} {} {}", said(cx)?, child.text)))
    }
}

fn builder() -> RuntimeBuilder {
    testkit::runtime().policy(Policy::allow_all())
}

async fn text(session: &Session, agent: impl Agent + 'static) -> String {
    session.start(Arc::new(agent), "Go").outcome().await.unwrap().text
}

/// A graph of an agent with a tool, an agent as a tool and a sub-agent, and of an agent by hand.
fn whole(provider: &ScriptedProvider) -> TaskGraph {
    let model = agent(provider.model()).tool(Whose::new()).tool(AgentTool::new(Teller("below")));
    let graph = TaskGraph::builder("whole");
    let first = graph.agent("first", model.build().unwrap(), "Whose?");
    let last = graph.agent("last", Teller("last"), "Whose?").after(&first);
    graph.returning(&last).build().unwrap()
}

fn script() -> ScriptedProvider {
    let provider = ScriptedProvider::by_history();
    provider.call("whose", json!({})).call("agent", json!({"prompt": "Whose?"})).text("Done.")
}

#[tokio::test(start_paused = true)]
async fn a_value_reaches_tools_children_nodes_and_agents_by_hand_through_an_engine_too() {
    for elsewhere in [false, true] {
        let (here, there, store) = (script(), script(), memory());
        let mut runtime = builder().shared_store(Arc::clone(&store)).dep(Tenant("zaphod")).dep(7_u8);
        if elsewhere {
            runtime = runtime.effects(Distant::new(Agents::new().with(whole(&there))));
        }
        let shown = format!("{runtime:?}");
        let runtime = runtime.build();
        assert!(shown.contains("deps::Tenant") && !shown.contains("zaphod"), "{shown}");
        let session = runtime.session();
        assert_eq!(text(&session, whole(&here)).await, "ZAPHOD", "a node");
        let provider = if elsewhere { &there } else { &here };
        let sent = provider.requests();
        let told: Vec<_> = sent[2].messages.iter().flat_map(|message| results(message)).collect();
        assert_eq!(told, ["ZAPHOD", "ZAPHOD"], "a tool, and an agent below one; elsewhere: {elsewhere}");

        let infos = runtime.sessions(&SessionFilter::all()).await.unwrap();
        assert_eq!(infos.len(), 4);
        for info in infos {
            let below = runtime.open(&info.record.id).await.unwrap();
            let lines: Vec<_> = below.export().map(Result::unwrap).collect().await;
            let all = format!(
                "{info:?} {lines:?} {:?}",
                store.read(below.id(), entourage_core::session::ReadRange::all()).await
            );
            assert!(!all.contains("zaphod") && !all.contains("Tenant"), "{all}");
        }
        assert!(!format!("{runtime:?} {session:?}").contains("zaphod"));
    }
}

#[tokio::test(start_paused = true)]
async fn the_handles_value_wins_for_what_goes_through_it() {
    let runtime = builder().dep(Tenant("runtime")).dep(Tenant("later")).build();
    let session = runtime.session();
    let (one, two) = (session.with_dep(Tenant("one")), session.with_dep(Tenant("two")));
    assert_eq!(text(&session, Teller("t")).await, "LATER", "of two values the later one");
    assert_eq!(text(&one, Teller("t")).await, "ONE");
    assert_eq!(text(&one.with_dep(Tenant("again")), Teller("t")).await, "AGAIN");
    assert_eq!(text(&one.with_dep(1_u8).clone(), Teller("t")).await, "ONE");

    // Queued behind a run of another handle.
    let gate = Gate::new();
    let provider = ScriptedProvider::new().call("look", json!({})).text("Done.");
    let look = testkit::FakeTool::new("look").behind(&gate);
    let first = one.start(&agent(provider.model()).tool(look).build().unwrap(), "Go");
    gate.arrived(1).await;
    let queued = two.start(Teller("t"), "Go");
    let plain = session.start(Teller("t"), "Go");
    gate.open();
    first.outcome().await.unwrap();
    assert_eq!(queued.outcome().await.unwrap().text, "TWO");
    assert_eq!(plain.outcome().await.unwrap().text, "LATER");
    let fork = two.fork(entourage_runtime::Moment::Event(1)).await.unwrap();
    assert_eq!(text(&fork, Teller("t")).await, "TWO", "a fork keeps the handle's");
    assert_eq!(text(&Session::ephemeral().with_dep(Tenant("short")), Teller("t")).await, "SHORT");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_goes_on_in_another_process_has_the_values_given_there() {
    let store = memory();
    let on = |tenant| builder().shared_store(Arc::clone(&store)).dep(Tenant(tenant)).build();
    let begun = |of: Runtime| async move {
        let session = of.session().with_dep(Tenant("handle"));
        assert!(session.start(Waiter, "Go").outcome().await.unwrap().text.is_empty());
        session.signal("go", json!(1)).await.unwrap();
        session.id().clone()
    };
    let (one, two) = (begun(on("first")).await, begun(on("first")).await);

    let runtime = on("second");
    let again = runtime.open(&one).await.unwrap();
    let outcome = again.with_dep(Tenant("third")).resume(Waiter).outcome().await.unwrap();
    assert_eq!(outcome.text, "THIRD THIRD THIRD");
    let run = again.events(0, 1).await.unwrap()[0].origin.run;
    let replayed = again.with_dep(Tenant("third")).replay(Waiter, run).await.unwrap();
    assert_eq!(replayed.text, "THIRD THIRD THIRD", "a replay has those of its handle");

    let recovered = runtime.recover(&Agents::new().with(Waiter)).await.unwrap();
    assert_eq!(recovered.resumed.len(), 1);
    for run in recovered.resumed {
        assert_eq!(*run.session(), two);
        assert_eq!(run.outcome().await.unwrap().text, "SECOND SECOND SECOND");
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_that_is_missing_fails_the_run_and_the_model_is_not_asked_to_mend_it() {
    let provider = ScriptedProvider::by_history().call("whose", json!({})).text("Mended.");
    let react = agent(provider.model()).tool(Whose::new()).build().unwrap();
    // A shared value is another type.
    let runtime = builder().dep(Arc::new(Tenant("ada"))).build();
    let by_tool = runtime.session().start(&react, "Go").outcome().await.unwrap_err();
    let by_hand = runtime.session().start(Teller("t"), "Go").outcome().await.unwrap_err();
    assert_eq!(provider.count(), 1);
    for error in [by_tool, by_hand] {
        assert_eq!(error.kind(), ErrorKind::Config);
        let text = error.to_string();
        for part in ["it::deps::Tenant`", "`RuntimeBuilder::dep`", "`Session::with_dep`"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
