//! An engine that performs effects as a distributed one does.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, ErrorRecord, Result, SessionId, Timestamp,
    agent::AgentPart,
    event::{EffectKey, Event, Origin, Recorded},
    message::{Content, Message, deserialize_value},
    run::{Effect, Effects, Observation, Pause, Performing, RunContext, ToolCalls},
    session::SessionState,
    team::Todo,
    tool::{
        Footprint, Labels, Tool, ToolContext, ToolError, ToolInput, ToolLayer, ToolOutput, ToolSpec, Tools,
    },
};
use entourage_runtime::{
    Agents,
    engine::{Code, Engine, PartName, answer_from_json, answer_to_json, effect_to_json},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::crash::Life;

/// An engine that behaves as a distributed one does, within one process, for tests of agents and runners.
///
/// - Every effect and every answer crosses as JSON text, and so do the input and output of each tool call and each
///   recorded value.
/// - All code that a run calls (its model, its tools, its agents) is looked up by name in the [`Agents`] given here,
///   never taken from the effect. An agent that the runtime was given is only ever the one whose code asks.
/// - A journal has one effect at a time. Each child, and each call of a parallel batch, is an invocation of its own,
///   which its journal waits for.
/// - [`Distant::within`] a [`Life`] of the crash suite, the process may die before and after each of these steps.
///
/// The session's store is the log: what it holds is not performed again. A run whose code is not found fails with
/// [`ErrorKind::Config`], at the effect that needs it.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use entourage_runners::ReactAgent;
/// use entourage_runtime::Agents;
/// use entourage_testkit::{Distant, ScriptedProvider};
///
/// let greeter = |says: &str| {
///     let provider = ScriptedProvider::by_history().text(says);
///     ReactAgent::builder("greeter", provider.model()).build().unwrap()
/// };
/// let engine = Distant::new(Agents::new().with(greeter("Hello from elsewhere!")));
/// let runtime = entourage_testkit::runtime().effects(engine).build();
/// let outcome = runtime.session().start(&greeter("Hello from here!"), "Hi").outcome().await.unwrap();
/// assert_eq!(outcome.text, "Hello from elsewhere!");
/// # });
/// ```
pub struct Distant(Arc<Shared>);

struct Shared {
    agents: Agents,
    life: Option<Life>,
    /// The code of each invocation, by its session.
    invoked: Mutex<HashMap<SessionId, Code>>,
}

impl Distant {
    /// Creates an engine that finds code among `agents`.
    #[must_use]
    pub fn new(agents: Agents) -> Self {
        Self(Arc::new(Shared { agents, life: None, invoked: Mutex::default() }))
    }

    /// Lets the process die with `life`, at points before and after each step.
    #[must_use]
    pub fn within(self, life: Life) -> Self {
        Self(Arc::new(Shared { agents: self.0.agents.clone(), life: Some(life), invoked: Mutex::default() }))
    }
}

impl Engine for Distant {
    fn effects(&self, run: &Origin, local: Arc<dyn Effects>) -> Arc<dyn Effects> {
        let code = match self.0.invoked().get(&run.session) {
            Some(code) => code.clone(),
            // Nobody above invoked it: it was begun by its own name, whatever its session is below.
            None => {
                let own = run.agent.rsplit('/').next().unwrap_or_default();
                Code::new(self.0.agents.clone(), [PartName::new(own)])
            }
        };
        Arc::new(DistantEffects {
            shared: Arc::clone(&self.0),
            code,
            local,
            turn: tokio::sync::Mutex::default(),
        })
    }
}

impl Shared {
    fn invoked(&self) -> MutexGuard<'_, HashMap<SessionId, Code>> {
        self.invoked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one step of the engine: what is sent arrives, or the process has died.
    async fn step<T>(&self, step: impl Future<Output = T>) -> T {
        match &self.life {
            Some(life) => life.through(false, step).await,
            None => step.await,
        }
    }
}

/// Effects of one run.
struct DistantEffects {
    shared: Arc<Shared>,
    code: Code,
    local: Arc<dyn Effects>,
    /// Held by the journal's effect.
    turn: tokio::sync::Mutex<()>,
}

impl DistantEffects {
    async fn send(&self, cx: &RunContext, key: Option<EffectKey>, effect: Effect) -> Result<Observation> {
        let sent = effect_to_json(&effect)?;
        let invoked = invocation(cx, key, &effect)?;
        let (whole, cancel) = match &effect {
            Effect::Delegate(delegate) => (false, delegate.cancel.clone()),
            _ => (true, None),
        };
        drop(effect);
        let turn = if whole { Some(self.turn.lock().await) } else { None };
        if let Some((child, name)) = invoked {
            self.shared.invoked().insert(child, self.code.below(name));
        }
        let answered = self.shared.step(self.perform_there(cx, key, &sent, cancel)).await?;
        drop(turn);
        answer_from_json(&answered)?
    }

    /// Performs the effect where it arrives, and returns the answer's JSON.
    async fn perform_there(
        &self,
        cx: &RunContext,
        key: Option<EffectKey>,
        sent: &str,
        cancel: Option<CancellationToken>,
    ) -> Result<String> {
        let token = cx.cancellation().child_token();
        let effect = match self.code.effect(sent, token.clone())? {
            Effect::Tools(calls) => Effect::Tools(Box::new(self.apart(*calls)?)),
            effect => effect,
        };
        let mut performing = self.local.perform(cx, key, effect);
        let answer = match cancel {
            None => performing.await,
            Some(cancel) => tokio::select! {
                biased;
                answer = &mut performing => answer,
                () = cancel.cancelled() => {
                    token.cancel();
                    performing.await
                }
            },
        };
        answer_to_json(&answer)
    }

    /// Makes each of the calls an invocation of its own.
    fn apart(&self, mut calls: ToolCalls) -> Result<ToolCalls> {
        let apart = |tool: &Arc<dyn Tool>| {
            Arc::new(DistantTool { tool: Arc::clone(tool), shared: Arc::clone(&self.shared) })
                as Arc<dyn Tool>
        };
        calls.offered = Tools::new(calls.offered.iter().map(apart))?;
        Ok(calls)
    }
}

/// Returns the session of the child that the effect starts, and the name of its code.
fn invocation(
    cx: &RunContext,
    key: Option<EffectKey>,
    effect: &Effect,
) -> Result<Option<(SessionId, PartName)>> {
    Ok(match (effect, key) {
        (Effect::Delegate(delegate), _) => Some((delegate.child.clone(), PartName::of(&delegate.spawn))),
        (Effect::Spawn(spawn), Some(key)) => {
            let run = cx.read(|state| state.run().map(|run| run.seq)).unwrap_or_default();
            Some((cx.session().child(run, key.ordinal)?, PartName::of(spawn)))
        }
        _ => None,
    })
}

impl Effects for DistantEffects {
    fn perform<'a>(
        &'a self,
        cx: &'a RunContext,
        key: Option<EffectKey>,
        effect: Effect,
    ) -> Performing<'a, Observation> {
        Box::pin(self.send(cx, key, effect))
    }

    fn append(
        &self,
        cx: &RunContext,
        key: Option<EffectKey>,
        make: &mut dyn FnMut(&SessionState, u64) -> Result<Recorded>,
    ) -> Result<()> {
        let mut crossed = |state: &SessionState, seq| read(&text(&make(state, seq)?)?);
        self.local.append(cx, key, &mut crossed)
    }

    fn commit<'a>(&'a self, cx: &'a RunContext) -> Performing<'a, ()> {
        Box::pin(self.shared.step(self.local.commit(cx)))
    }

    fn steer<'a>(&'a self, cx: &'a RunContext) -> Performing<'a, ()> {
        self.local.steer(cx)
    }

    fn remind(&self, cx: &RunContext, message: Arc<Message>) -> Result<()> {
        self.local.remind(cx, read(&text(&message)?)?)
    }

    fn read(&self, read: &mut dyn FnMut(&SessionState)) {
        self.local.read(read);
    }

    fn recorded(&self) -> Arc<[Event]> {
        self.local.recorded()
    }

    fn replayed<'a>(&'a self, cx: &'a RunContext) -> Performing<'a, Vec<Recorded>> {
        self.local.replayed(cx)
    }

    fn todos(&self) -> Vec<Todo> {
        self.local.todos()
    }

    fn set_todos<'a>(&'a self, cx: &'a RunContext, todos: Vec<Todo>) -> Performing<'a, ()> {
        self.local.set_todos(cx, todos)
    }

    fn dep(&self, of: TypeId) -> Option<Arc<dyn Any + Send + Sync>> {
        self.local.dep(of)
    }

    fn time(&self) -> Timestamp {
        self.local.time()
    }

    fn check(&self) -> Result<()> {
        self.local.check()
    }

    fn is_pausing(&self) -> bool {
        self.local.is_pausing()
    }

    fn has_readers(&self) -> bool {
        self.local.has_readers()
    }

    fn is_stored(&self) -> bool {
        self.local.is_stored()
    }

    fn sub_agents(&self) -> usize {
        self.local.sub_agents()
    }

    fn show(&self, cx: &RunContext, shown: Event) {
        self.local.show(cx, shown);
    }
}

/// A tool whose calls are invocations of their own.
struct DistantTool {
    tool: Arc<dyn Tool>,
    shared: Arc<Shared>,
}

#[async_trait]
impl Tool for DistantTool {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let sent = text(&input.arguments).map_err(ToolError::Fatal)?;
        let called = async {
            let Plain(arguments) = read(&sent)?;
            let input = ToolInput::new(arguments);
            text(&Called::of(self.tool.call(input, cx).await))
        };
        let answered = self.shared.step(called).await.and_then(|text| read::<Called>(&text));
        answered.map_err(ToolError::Fatal)?.result()
    }

    fn footprint(&self, arguments: &Value) -> Footprint {
        self.tool.footprint(arguments)
    }

    async fn preview(&self, input: ToolInput, cx: &ToolContext<'_>) -> Option<String> {
        self.tool.preview(input, cx).await
    }

    fn parts(&self) -> Vec<AgentPart> {
        self.tool.parts()
    }

    fn layers(&self) -> &[Arc<dyn ToolLayer>] {
        self.tool.layers()
    }
}

/// A value with any keys, those of the serializer among them.
#[derive(Deserialize)]
struct Plain(#[serde(deserialize_with = "deserialize_value")] Value);

/// The answer of a tool, as it crosses.
#[derive(Serialize, Deserialize)]
enum Called {
    Done { content: Vec<Content>, is_error: bool, stop_turn: bool, metadata: Option<String>, labels: Labels },
    Tell(String),
    Fatal { error: ErrorRecord, pause: Option<Pause> },
}

impl Called {
    fn of(result: Result<ToolOutput, ToolError>) -> Self {
        match result {
            Ok(ToolOutput { content, is_error, stop_turn, metadata, labels, .. }) => {
                let metadata = metadata.map(|metadata| metadata.to_string());
                Self::Done { content, is_error, stop_turn, metadata, labels }
            }
            Err(ToolError::Tell(text)) => Self::Tell(text),
            Err(ToolError::Fatal(error)) => {
                Self::Fatal { error: error.record(), pause: error.pause().cloned() }
            }
        }
    }

    fn result(self) -> Result<ToolOutput, ToolError> {
        match self {
            Self::Done { content, is_error, stop_turn, metadata, labels } => {
                let mut output = ToolOutput::default();
                (output.content, output.is_error, output.labels) = (content, is_error, labels);
                let metadata =
                    metadata.map(|text| read::<Plain>(&text)).transpose().map_err(ToolError::Fatal)?;
                (output.stop_turn, output.metadata) = (stop_turn, metadata.map(|Plain(metadata)| metadata));
                Ok(output)
            }
            Self::Tell(text) => Err(ToolError::Tell(text)),
            Self::Fatal { pause: Some(pause), .. } => Err(ToolError::Fatal(Error::paused(pause))),
            Self::Fatal { error, pause: None } => Err(ToolError::Fatal(error.to_error())),
        }
    }
}

fn text(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| broken().caused_by(error))
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| broken().caused_by(error))
}

fn broken() -> Error {
    Error::new(ErrorKind::Internal, "a value does not cross as JSON")
}

impl fmt::Debug for Distant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Distant").field(&self.0.agents).finish()
    }
}

impl fmt::Debug for DistantEffects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistantEffects").field("path", &self.code.path()).finish_non_exhaustive()
    }
}
