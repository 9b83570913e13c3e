//! A hand-written agent: it calls a model, starts children, waits, sleeps, takes notes, calls tools and waits for a
//! signal. And a world in which its life can be cut short anywhere.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Result, SessionId,
    agent::Agent,
    event::Event,
    message::{History, Message},
    provider::{FinishReason, Model},
    run::{Outcome, RunContext, Task, Waited},
    session::{SessionStatus, SharedStore},
    tool::{Access, Tool, Tools},
};
use entourage_runtime::Runtime;
use entourage_runtime::permission::Policy;
use entourage_testkit::{self as testkit, FakeTool, Script, ScriptedProvider};
use serde_json::json;

use crate::common::{LaterClock, agent, count, stored};

/// The captain. Its actions follow from its observations alone.
#[derive(Clone)]
pub(crate) struct Captain {
    model: Model,
    scouts: [Arc<dyn Agent>; 2],
    tools: Tools,
}

#[async_trait]
impl Agent for Captain {
    fn name(&self) -> &'static str {
        "captain"
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        let mut talk: History = [(*task.prompt).clone()].into_iter().collect();
        let plan = cx.call_model(&self.model, self.model.request(talk.clone())).await?;
        talk.push(Arc::clone(&plan.message));
        let [left, right] = &self.scouts;
        let mut children =
            vec![cx.spawn(Arc::clone(left), "left").await?, cx.spawn(Arc::clone(right), "right").await?];
        let born = cx.now().await?;
        let id = cx.new_id().await?;
        let mut found = Vec::new();
        while !children.is_empty() {
            match cx.wait_any(&children, Some(Duration::from_secs(3_600))).await? {
                Waited::Ended { index, outcome } => {
                    children.remove(index);
                    found.push(outcome.text);
                }
                Waited::TimedOut => found.push("nothing".into()),
            }
        }
        found.sort();
        cx.sleep(Duration::from_secs(30)).await?;
        let slept = cx.now().await?.since(born) >= Duration::from_secs(30);
        let measured = cx.call_tool(&self.tools, "measure", &json!({})).await?.to_text();
        let launched = cx.call_tool(&self.tools, "launch", &json!({})).await?.to_text();
        let go = cx.signal("go").await?;
        talk.push(Message::user(format!("{found:?} {measured} {go}")));
        let last = cx.call_model(&self.model, self.model.request(talk)).await?;
        let text = last.message.text();
        Ok(Outcome::completed(format!("{found:?} {slept} {measured} {launched} {go} {} {text}", id.len())))
    }
}

/// The captain with everything that it talks to, counted, for one process.
pub(crate) struct World {
    pub(crate) captain: Captain,
    pub(crate) planner: ScriptedProvider,
    pub(crate) scouts: [ScriptedProvider; 2],
    pub(crate) measure: FakeTool,
    pub(crate) launch: FakeTool,
}

impl World {
    pub(crate) fn new() -> Self {
        let planner = ScriptedProvider::by_history().text("Look both ways.").text("Home.");
        let scout = |text: &str, time: u64| {
            let script = Script::new().delay(Duration::from_secs(time)).text(text).usage(1, 1);
            ScriptedProvider::by_history().step(script.finish(FinishReason::Stop))
        };
        let scouts = [scout("trees", 20), scout("water", 10)];
        let measure = FakeTool::new("measure").taking(Duration::from_secs(1)).returning("7 m");
        let launch =
            FakeTool::new("launch").access(Access::EXECUTE).taking(Duration::from_secs(1)).returning("up");
        let tools = [measure.clone(), launch.clone()].map(|tool| Arc::new(tool) as Arc<dyn Tool>);
        let captain = Captain {
            model: planner.model(),
            scouts: [0, 1]
                .map(|n: usize| Arc::new(agent(scouts[n].model()).build().unwrap()) as Arc<dyn Agent>),
            tools: Tools::new(tools).unwrap(),
        };
        Self { captain, planner, scouts, measure, launch }
    }
}

pub(crate) fn session_id() -> SessionId {
    SessionId::new("voyage").unwrap()
}

/// A runtime of a process that begins `later` than the first.
pub(crate) fn runtime(store: &SharedStore, later: Duration) -> Runtime {
    let clock = LaterClock::new(later);
    testkit::runtime().policy(Policy::allow_all()).shared_store(Arc::clone(store)).clock(clock).build()
}

/// Does the next part of the voyage: starts it, sends the signal that it waits for, or resumes it. `None` if it is
/// over.
pub(crate) async fn advance(runtime: &Runtime, captain: &Captain) -> Option<Result<()>> {
    let session = runtime.session_with_id(session_id());
    let head = session.head().await.unwrap();
    Some(match (head.seq, head.status) {
        (0, _) => session.start(captain, "Explore!").outcome().await.map(drop),
        (_, SessionStatus::Idle) => return None,
        (_, SessionStatus::Paused) if !signalled(runtime).await => session.signal("go", json!("now")).await,
        (_, SessionStatus::Paused | SessionStatus::Running) => {
            session.resume(captain).outcome().await.map(drop)
        }
    })
}

async fn signalled(runtime: &Runtime) -> bool {
    count(&stored(runtime.store(), &session_id()).await, "signal_received") > 0
}

/// Runs the whole voyage undisturbed. Returns its outcome.
pub(crate) async fn one_life(store: &SharedStore) -> Outcome {
    for _ in 0..4 {
        let world = World::new();
        match advance(&runtime(store, Duration::ZERO), &world.captain).await {
            Some(step) => step.unwrap(),
            None => break,
        }
    }
    outcome(store).await
}

/// The outcome at the end of the voyage.
pub(crate) async fn outcome(store: &SharedStore) -> Outcome {
    match &stored(store, &session_id()).await.last().unwrap().event {
        Event::RunFinished(end) => end.outcome.clone(),
        other => panic!("the voyage is not over: {other:?}"),
    }
}

pub(crate) const OUTCOME: &str = "[\"trees\", \"water\"] true 7 m up \"now\" 36 Home.";
