//! A provider that plays a script and records its requests.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, Usage,
    message::{History, Role},
    provider::{CallContext, Delta, DeltaStream, FinishReason, Model, Provider, Request},
};
use entourage_runners::CheckedTask;
use futures_util::{StreamExt, stream};
use serde_json::Value;

use super::Gate;

/// One reply: the steps of its stream, in order.
#[derive(Debug, Clone, Default)]
pub struct Script(Vec<Beat>);

#[derive(Debug, Clone)]
enum Beat {
    Delta(Delta),
    Wait(Gate),
    Delay(Duration),
    Fail(ErrorKind, String),
    /// Refuses the call before anything is streamed.
    Refuse(ErrorKind, String),
}

impl Script {
    /// A reply that streams nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn beat(mut self, beat: Beat) -> Self {
        self.0.push(beat);
        self
    }

    /// Streams a delta.
    #[must_use]
    pub fn delta(self, delta: Delta) -> Self {
        self.beat(Beat::Delta(delta))
    }

    /// Streams text.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.delta(Delta::Text(text.into().into()))
    }

    /// Streams reasoning.
    #[must_use]
    pub fn reasoning(self, text: impl Into<String>) -> Self {
        self.delta(Delta::Reasoning(text.into().into()))
    }

    /// Streams a tool call whose arguments are `arguments`, sent as text in one piece.
    #[must_use]
    pub fn call(self, name: &str, arguments: &Value) -> Self {
        self.raw_call(name, &arguments.to_string())
    }

    /// Streams a tool call whose arguments are any text, valid JSON or not.
    #[must_use]
    pub fn raw_call(self, name: &str, arguments: &str) -> Self {
        let calls = self.0.iter().filter(|beat| matches!(beat, Beat::Delta(Delta::ToolCallStart(_))));
        let index = calls.fold(0, |count, _| count + 1);
        self.delta(Delta::tool_call(index, format!("call_{index}"), name))
            .delta(Delta::arguments(index, arguments))
    }

    /// Streams a usage report.
    #[must_use]
    pub fn usage(self, input: u64, output: u64) -> Self {
        self.delta(Delta::Usage(Box::new(Usage::new(input, output))))
    }

    /// Ends the reply with a finish.
    #[must_use]
    pub fn finish(self, reason: FinishReason) -> Self {
        self.delta(Delta::Finish(reason.into()))
    }

    /// Waits until the gate is open.
    #[must_use]
    pub fn wait(self, gate: &Gate) -> Self {
        self.beat(Beat::Wait(gate.clone()))
    }

    /// Waits for a time on tokio's clock.
    #[must_use]
    pub fn delay(self, time: Duration) -> Self {
        self.beat(Beat::Delay(time))
    }

    /// Ends the stream with an error.
    #[must_use]
    pub fn fail(self, kind: ErrorKind, text: impl Into<String>) -> Self {
        self.beat(Beat::Fail(kind, text.into()))
    }

    /// Refuses the call itself.
    #[must_use]
    pub fn refuse(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self::new().beat(Beat::Refuse(kind, text.into()))
    }

    pub(crate) fn into_stream(self) -> Result<DeltaStream> {
        if let Some(Beat::Refuse(kind, text)) = self.0.first() {
            return Err(Error::new(*kind, text.clone()).during("model.stream"));
        }
        // Consecutive plain deltas need no await in between.
        let play = stream::iter(self.0).then(|beat| async move {
            match beat {
                Beat::Delta(delta) => Some(Ok(delta)),
                Beat::Wait(gate) => {
                    gate.pass().await;
                    None
                }
                Beat::Delay(time) => {
                    tokio::time::sleep(time).await;
                    None
                }
                Beat::Fail(kind, text) | Beat::Refuse(kind, text) => {
                    Some(Err(Error::new(kind, text).during("model.stream")))
                }
            }
        });
        Ok(Box::pin(play.filter_map(std::future::ready)))
    }
}

/// A provider that plays scripts in order and records every request.
///
/// The test fails if more replies are requested than scripted, or if replies are left over. This is checked when the
/// value is dropped (or by [`ScriptedProvider::verify`]), even while models of it are in use. So keep the value as
/// long as its models: `ScriptedProvider::new().text("Hi").model()` drops it at once, and panics. A run that is killed
/// and resumed requests some replies again and others never: use [`ScriptedProvider::by_history`] there, which does
/// not check for left-over replies.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use entourage_runners::ReactAgent;
/// use entourage_runtime::AgentExt;
/// use entourage_testkit::{FakeTool, ScriptedProvider};
/// use serde_json::json;
///
/// let provider = ScriptedProvider::new().call("look", json!({})).text("I looked.");
/// let look = FakeTool::new("look").returning("a tree");
/// let agent = ReactAgent::builder("a", provider.model()).tool(look).build().unwrap();
/// assert_eq!(agent.ask("Look!").await.unwrap(), "I looked.");
/// assert_eq!(provider.requests()[1].messages.len(), 3);
/// # });
/// ```
pub struct ScriptedProvider(Arc<Inner>);

struct Inner {
    name: &'static str,
    by_history: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    scripts: VecDeque<Script>,
    requests: Vec<Request>,
    overrun: usize,
    done: usize,
}

impl ScriptedProvider {
    /// A provider without replies.
    #[must_use]
    pub fn new() -> Self {
        Self::named("scripted")
    }

    /// A provider with this name, to tell several apart.
    #[must_use]
    pub fn named(name: &'static str) -> Self {
        Self(Arc::new(Inner { name, by_history: false, state: Mutex::default() }))
    }

    /// A provider that derives its position from the request instead of counting calls: the same step gets the same
    /// reply again, as a resumed run needs. The position is the number of model replies in the conversation, in a
    /// session of any role. Messages that were put into a discriminator's mouth do not count as replies. Left-over
    /// replies are not checked.
    #[must_use]
    pub fn by_history() -> Self {
        Self(Arc::new(Inner { name: "scripted", by_history: true, state: Mutex::default() }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Adds a reply.
    #[must_use]
    pub fn step(self, script: Script) -> Self {
        self.lock().scripts.push_back(script);
        self
    }

    /// Adds a reply of text, with usage 10 in, 5 out.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.step(Script::new().text(text).usage(10, 5).finish(FinishReason::Stop))
    }

    /// Adds a reply of one tool call, with usage 10 in, 5 out.
    #[must_use]
    #[allow(clippy::needless_pass_by_value)]
    pub fn call(self, name: &str, arguments: Value) -> Self {
        self.calls([(name, arguments)])
    }

    /// Adds a reply of several tool calls, with usage 10 in, 5 out.
    #[must_use]
    pub fn calls<'a>(self, calls: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        let script =
            calls.into_iter().fold(Script::new(), |script, (name, arguments)| script.call(name, &arguments));
        self.step(script.usage(10, 5).finish(FinishReason::ToolCalls))
    }

    /// Adds a call that is refused.
    #[must_use]
    pub fn fail(self, kind: ErrorKind, text: impl Into<String>) -> Self {
        self.step(Script::refuse(kind, text))
    }

    /// The model to give to agents.
    #[must_use]
    pub fn model(&self) -> Model {
        Model::new(self.provider(), "scripted")
    }

    /// The provider to give to models and layers.
    #[must_use]
    pub fn provider(&self) -> Arc<dyn Provider> {
        Arc::clone(&self.0) as _
    }

    /// Requests so far.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.lock().requests.clone()
    }

    /// Number of calls so far.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock().requests.len()
    }

    /// Panics if more replies were requested than scripted, or if replies are left over.
    pub fn verify(&self) {
        if let Err(text) = self.check() {
            panic!("{text}");
        }
    }

    fn check(&self) -> Result<(), String> {
        let state = self.lock();
        let left = state.scripts.len().saturating_sub(state.done);
        if state.overrun > 0 {
            return Err(format!(
                "the scripted provider `{}` was asked {} times too often",
                self.0.name, state.overrun
            ));
        }
        if left > 0 && !self.0.by_history {
            return Err(format!(
                "{left} replies of the scripted provider `{}` were never asked for; keep it until its models are done, or \
                 use `ScriptedProvider::by_history` where replies may stay",
                self.0.name
            ));
        }
        Ok(())
    }
}

/// Number of assistant messages in a conversation that a model wrote.
fn replies(messages: &History) -> usize {
    let before = std::iter::once(None).chain(messages.iter().map(Some));
    let pairs = before.zip(messages).filter(|(_, message)| message.role() == Role::Assistant);
    pairs
        .filter(|(before, message)| !CheckedTask::is_made_up(before.map(|before| &**before), message))
        .count()
}

impl Default for ScriptedProvider {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for ScriptedProvider {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.verify();
        }
    }
}

impl fmt::Debug for ScriptedProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScriptedProvider({}, {} asked)", self.name, self.lock().requests.len())
    }
}

#[async_trait]
impl Provider for Inner {
    fn name(&self) -> &str {
        self.name
    }

    async fn stream(&self, request: Request, _: &CallContext) -> Result<DeltaStream> {
        let script = {
            let mut state = self.lock();
            let place = if self.by_history { replies(&request.messages) } else { state.requests.len() };
            state.requests.push(request);
            let script = state.scripts.get(place).cloned();
            match script {
                Some(_) => state.done += 1,
                None => state.overrun += 1,
            }
            script
        };
        let script = script.ok_or_else(|| {
            Error::new(ErrorKind::Internal, "the scripted provider was asked for more replies than it has")
        })?;
        script.into_stream()
    }
}
