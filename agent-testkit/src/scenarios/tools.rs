//! Scenarios of one agent: its tools, its approvals, its children, its compactions.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Result, Usage,
    agent::{Agent, AgentPart},
    context::Compaction,
    message::{Arguments, History, Message},
    permission::{Decision, Scope},
    provider::{CallContext, Delta, DeltaStream, FinishReason, Model, Profile, Provider, Request},
    run::{Outcome, RunContext, Task, Waited},
    tool::{Access, Repeat, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec, Tools},
};
use entourage_runners::ReactAgent;
use entourage_runtime::permission::Policy;
use serde_json::json;

use crate::{ScriptedProvider, crash::Scenario};

/// One agent, three prompts; step by step, one tool of each kind of [`Repeat`].
#[must_use]
pub fn tool_loop() -> Scenario {
    let scenario = Scenario::new("tool-loop", |life| {
        let helper =
            ReactAgent::builder("helper", life.model(&ScriptedProvider::by_history().text("Found.").model()))
                .build()?;
        let provider = ScriptedProvider::by_history()
            .call("look", json!({}))
            .call("put", json!({"what": "a pear"}))
            .text("It is there.")
            .call("pay", json!({"sum": 3}))
            .text("It is paid.")
            .call("ask", json!({}))
            .text("All is done.");
        ReactAgent::builder("keeper", life.model(&provider.model()))
            .tool(life.tool(Deed::new("look", Access::READ, None, 1)))
            .tool(life.tool(Deed::new("put", Access::WRITE, Some(Repeat::Idempotent), 2)))
            .tool(life.tool(Deed::new("pay", Access::WRITE, None, 1)))
            .tool(life.tool(Asking::new("ask", helper)))
            .build()
    });
    let scenario = scenario.prompt("Put a pear there.").prompt("Pay for it.").prompt("Where is it?");
    scenario.runtime(|builder| builder.policy(Policy::allow_all()).checkpoint_every(4))
}

/// Tools that run in parallel, tools that run alone, and a non-repeatable one in between.
#[must_use]
pub fn tools_in_parallel() -> Scenario {
    let scenario = Scenario::new("parallel-tools", |life| {
        let deeds = [("near", 1), ("far", 3), ("pay", 1), ("put", 1), ("near", 0)];
        let provider = ScriptedProvider::by_history()
            .calls(deeds.map(|(name, place)| (name, json!({"place": place}))))
            .calls([("far", json!({})), ("near", json!({}))])
            .text("All is done.");
        ReactAgent::builder("worker", life.model(&provider.model()))
            .tool(life.tool(Deed::new("near", Access::READ, None, 1)))
            .tool(life.tool(Deed::new("far", Access::READ, None, 4)))
            .tool(life.tool(Deed::new("pay", Access::READ, Some(Repeat::Once), 2)))
            .tool(life.tool(Deed::new("put", Access::WRITE, Some(Repeat::Idempotent), 1)))
            .build()
    });
    let scenario = scenario.prompt("Do it all.");
    scenario.runtime(|builder| builder.policy(Policy::allow_all()).checkpoint_every(6))
}

/// Calls that wait for approval across processes: one is allowed, one is denied, and one waits in a grandchild.
#[must_use]
pub fn approvals() -> Scenario {
    let scenario = Scenario::new("approval", |life| {
        let scripted = |provider: ScriptedProvider| life.model(&provider.model());
        let leaf = ScriptedProvider::by_history().call("pay", json!({"sum": 3})).text("Paid.");
        let leaf = ReactAgent::builder("leaf", scripted(leaf))
            .tool(life.tool(Deed::new("pay", Access::WRITE, None, 1)))
            .build()?;
        let branch = ScriptedProvider::by_history().call("ask", json!({})).text("It is paid.");
        let branch = ReactAgent::builder("branch", scripted(branch))
            .tool(life.tool(Asking::new("ask", leaf)))
            .build()?;
        let provider = ScriptedProvider::by_history()
            .calls([("look", json!({})), ("put", json!({}))])
            .text("It is there.")
            .call("ask", json!({}))
            .text("It is paid.")
            .call("burn", json!({}));
        ReactAgent::builder("asker", scripted(provider))
            .tool(life.tool(Deed::new("look", Access::READ, None, 1)))
            .tool(life.tool(Deed::new("put", Access::WRITE, None, 1)))
            .tool(life.tool(Deed::new("burn", Access::WRITE, None, 1)))
            .tool(life.tool(Asking::new("ask", branch)))
            .build()
    });
    let policy = || Policy::allow_all().ask("put").ask("pay").ask("burn");
    scenario
        .prompt("Put it there.")
        .prompt("Have it paid.")
        .prompt("Burn it.")
        .decide("put", Decision::Allow)
        .decide("pay", Decision::Allow)
        .decide("burn", Decision::Deny)
        .runtime(move |builder| builder.policy(policy()).checkpoint_every(8))
}

/// Calls that are handed out: two at once and one that must run alone, in a tool call of the root, beside tools that
/// may not run twice, with arguments of an approver.
#[must_use]
pub fn handed_out() -> Scenario {
    let scenario = Scenario::new("handed-out", |life| {
        let scripted = |provider: ScriptedProvider| life.model(&provider.model());
        let click = |access| {
            let spec = ToolSpec::new("click", "Clicks.", json!({"type": "object"})).with_access(access);
            entourage_runners::external(spec)
        };
        let leaf = ScriptedProvider::by_history()
            .calls([("click", json!({"on": "a"})), ("pay", json!({})), ("click", json!({"on": "b"}))])
            .text("I clicked and paid.");
        let leaf = ReactAgent::builder("leaf", scripted(leaf))
            .tool(life.tool(Deed::new("pay", Access::READ, Some(Repeat::Once), 1)))
            .tool(click(Access::READ))
            .build()?;
        let root = ScriptedProvider::by_history()
            .calls([("send", json!({})), ("click", json!({"on": "c"})), ("put", json!({}))])
            .text("All is done.");
        ReactAgent::builder("root", scripted(root))
            .tool(life.tool(Asking::new("send", leaf)))
            .tool(click(Access::WRITE))
            .tool(life.tool(Deed::new("put", Access::WRITE, None, 1)))
            .build()
    });
    let edit = Arguments::parse(r#"{"on": "d"}"#).map_or(Decision::Deny, Decision::Edit);
    scenario
        .prompt("Click it.")
        .decide("put", edit)
        .result("click", "Clicked.")
        .runtime(|builder| builder.policy(Policy::allow_all().ask("put")).checkpoint_every(8))
}

/// Agents in tool calls, on two levels, two of them at once.
#[must_use]
pub fn children() -> Scenario {
    let scenario = Scenario::new("child-session", |life| {
        let scripted = |provider: ScriptedProvider| life.model(&provider.model());
        let leaf = ScriptedProvider::by_history()
            .calls([("look", json!({})), ("pay", json!({}))])
            .text("I have seen it and paid.");
        let leaf = ReactAgent::builder("leaf", scripted(leaf))
            .tool(life.tool(Deed::new("look", Access::READ, None, 1)))
            .tool(life.tool(Deed::new("pay", Access::WRITE, None, 1)))
            .build()?;
        let branch = ScriptedProvider::by_history().call("send", json!({})).text("They have been there.");
        let branch = ReactAgent::builder("branch", scripted(branch))
            .tool(life.tool(Asking::new("send", leaf)))
            .build()?;
        let twig =
            ReactAgent::builder("twig", scripted(ScriptedProvider::by_history().text("Nothing."))).build()?;
        let root = ScriptedProvider::by_history()
            .calls([("send", json!({"to": "the lake"})), ("peek", json!({}))])
            .text("All are back.");
        ReactAgent::builder("root", scripted(root))
            .tool(life.tool(Asking::new("send", branch)))
            .tool(life.tool(Asking::new("peek", twig)))
            .build()
    });
    let scenario = scenario.prompt("Send somebody.");
    scenario.runtime(|builder| builder.policy(Policy::allow_all()).checkpoint_every(3))
}

/// A hand-written agent: it calls a model, starts children and waits for them, sleeps, calls tools and waits for a
/// signal.
#[must_use]
pub fn by_hand() -> Scenario {
    let scenario = Scenario::new("hand-written", |life| {
        let scripted = |provider: ScriptedProvider| life.model(&provider.model());
        let scout = |name: &str, text| {
            let model = scripted(ScriptedProvider::by_history().text(text));
            Ok::<_, entourage_core::Error>(
                Arc::new(ReactAgent::builder(name, model).build()?) as Arc<dyn Agent>
            )
        };
        Ok(Captain {
            model: scripted(ScriptedProvider::by_history().text("Look both ways.").text("Home.")),
            scouts: [scout("scout-left", "Trees.")?, scout("scout-right", "Water.")?],
            tools: Tools::new([
                life.tool(Deed::new("measure", Access::READ, None, 1)),
                life.tool(Deed::new("launch", Access::EXECUTE, None, 1)),
            ])?,
        })
    });
    let scenario = scenario.prompt("Explore!").signal("go", json!("now"));
    scenario.runtime(|builder| builder.policy(Policy::allow_all()).checkpoint_every(5))
}

/// A conversation that outgrows its model's window twice, and is summarised by a model in a child session.
#[must_use]
pub fn compaction() -> Scenario {
    let scenario = Scenario::new("compaction", |life| {
        let profile = Profile::default().with_context_window(WINDOW);
        let model = |teller: Teller| {
            let name = format!("{teller:?}").to_lowercase();
            life.model(&Model::new(Arc::new(teller), name).with_profile(profile.clone()))
        };
        ReactAgent::builder("talker", model(Teller::Answers))
            .compaction(Compaction::new().with_model(model(Teller::Summarises)).keep_messages(2))
            .build()
    });
    let prompt = |number: u32| format!("Number {number}. {}", "It goes on and on. ".repeat(60));
    let scenario = (1..=8).fold(scenario, |scenario, number| scenario.prompt(prompt(number)));
    scenario.runtime(|builder| builder.checkpoint_every(4))
}

/// Context window in tokens. A prompt of this scenario and its answer take about a quarter.
const WINDOW: u64 = 2_400;

/// A model that answers by the last message alone, whatever was left out before.
#[derive(Debug)]
enum Teller {
    Answers,
    Summarises,
}

#[async_trait]
impl Provider for Teller {
    fn name(&self) -> &'static str {
        "teller"
    }

    async fn stream(&self, request: Request, _: &CallContext) -> Result<DeltaStream> {
        let asked = request.messages.last().map(|message| message.text()).unwrap_or_default();
        let text = match self {
            Self::Answers => format!("{asked} So be it."),
            Self::Summarises => "Somebody counted, and it was long.".to_owned(),
        };
        let tokens = |text: &str| u64::try_from(text.len() / 4).unwrap_or(u64::MAX);
        let input = request.messages.iter().map(|message| tokens(&message.text())).sum();
        let usage = Usage::new(input, tokens(&text));
        let deltas = [
            Delta::Text(text.into()),
            Delta::Usage(Box::new(usage)),
            Delta::Finish(FinishReason::Stop.into()),
        ];
        Ok(Box::pin(futures_util::stream::iter(deltas.map(Ok))))
    }
}

struct Captain {
    model: Model,
    scouts: [Arc<dyn Agent>; 2],
    tools: Tools,
}

#[async_trait]
impl Agent for Captain {
    fn name(&self) -> &'static str {
        "captain"
    }

    fn parts(&self) -> Vec<AgentPart> {
        let scouts = self.scouts.iter().map(|scout| AgentPart::agent(Arc::clone(scout)));
        let own = [AgentPart::Model(self.model.clone().into()), AgentPart::Tools(self.tools.clone())];
        own.into_iter().chain(scouts).collect()
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        let mut talk: History = [(*task.prompt).clone()].into_iter().collect();
        let plan = cx.call_model(&self.model, self.model.request(talk.clone())).await?;
        talk.push(Arc::clone(&plan.message));
        let born = cx.now().await?;
        let mut children = Vec::new();
        for (scout, way) in self.scouts.iter().zip(["left", "right"]) {
            children.push(cx.spawn(Arc::clone(scout), way).await?);
        }
        let id = cx.new_id().await?;
        let mut found = Vec::new();
        while !children.is_empty() {
            if let Waited::Ended { index, outcome } = cx.wait_any(&children, None).await? {
                children.remove(index);
                found.push(outcome.text);
            }
        }
        found.sort();
        let time = Duration::from_millis(3);
        cx.sleep(time).await?;
        let slept = cx.now().await?.since(born) >= time;
        let measured = cx.call_tool(&self.tools, "measure", &json!({})).await?.to_text();
        let launched = cx.call_tool(&self.tools, "launch", &json!({})).await?.to_text();
        let go = cx.signal("go").await?;
        talk.push(Message::user(format!("{found:?} {measured} {go}")));
        let last = cx.call_model(&self.model, self.model.request(talk)).await?.message.text();
        Ok(Outcome::completed(format!("{found:?} {slept} {measured} {launched} {go} {} {last}", id.len())))
    }
}

/// A tool that yields a few times before its effect is done.
#[derive(Debug)]
pub(super) struct Deed {
    spec: ToolSpec,
    waits: usize,
}

impl Deed {
    pub(super) fn new(name: &str, access: Access, repeat: Option<Repeat>, waits: usize) -> Self {
        let spec = ToolSpec::new(name, "Does something.", json!({"type": "object"})).with_access(access);
        Self { spec: repeat.into_iter().fold(spec, ToolSpec::with_repeat), waits }
    }
}

#[async_trait]
impl Tool for Deed {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, input: ToolInput, _: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        for _ in 0..self.waits {
            tokio::task::yield_now().await;
        }
        Ok(ToolOutput::text(format!("{} is done with {}", self.spec.name(), input.arguments)))
    }
}

/// A tool that runs another agent, and after a restart continues the same one.
#[derive(Debug)]
struct Asking {
    spec: ToolSpec,
    agent: ReactAgent,
}

impl Asking {
    fn new(name: &str, agent: ReactAgent) -> Self {
        let spec = ToolSpec::new(name, "Asks somebody.", json!({"type": "object"}))
            .with_access(Access::DELEGATE)
            .with_repeat(Repeat::Resume);
        Self { spec, agent }
    }
}

#[async_trait]
impl Tool for Asking {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn parts(&self) -> Vec<AgentPart> {
        vec![AgentPart::agent(&self.agent)]
    }

    async fn call(&self, _: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let agent = Arc::new(self.agent.clone());
        let outcome = cx.run_agent(agent, "Go and see.", Scope::all()).await?;
        Ok(ToolOutput::text(format!("{}: {}", outcome.status, outcome.text)))
    }
}
