//! Tools with scripted behaviour, and gates that make races deterministic.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::watch;

use entourage_core::{
    Error, ErrorKind, Result,
    agent::Agent,
    message::ToolResult,
    run::{Outcome, RunContext, Task},
    tool::{Access, Repeat, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec, Tools},
};
use entourage_runtime::permission::Policy;

/// A gate that holds back every caller until the test opens it.
#[derive(Debug, Clone)]
pub struct Gate(Arc<watch::Sender<(bool, usize)>>);

impl Gate {
    /// A closed gate.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new((false, 0))))
    }

    /// Opens the gate, for callers that wait and for later ones.
    pub fn open(&self) {
        self.0.send_modify(|(open, _)| *open = true);
    }

    /// Waits until `count` callers in total have arrived.
    pub async fn arrived(&self, count: usize) {
        let _ = self.0.subscribe().wait_for(|(_, arrived)| *arrived >= count).await;
    }

    /// Arrives, and waits until the gate is open.
    pub async fn pass(&self) {
        self.0.send_modify(|(_, arrived)| *arrived += 1);
        let _ = self.0.subscribe().wait_for(|(open, _)| *open).await;
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

/// A tool with scripted behaviour and counters. Clones share the counters.
#[derive(Debug, Clone)]
pub struct FakeTool {
    spec: ToolSpec,
    act: Act,
    gate: Option<Gate>,
    delay: Duration,
    stats: Arc<Stats>,
}

#[derive(Debug, Default)]
struct Stats {
    started: AtomicUsize,
    finished: AtomicUsize,
    running: AtomicUsize,
    most: AtomicUsize,
}

#[derive(Debug, Clone)]
enum Act {
    Return(ToolOutput),
    Echo,
    Tell(String),
    Fatal(ErrorKind, String),
    Panic(String),
    Hang,
}

impl FakeTool {
    /// A tool that reads and returns "ok".
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            spec: ToolSpec::new(name, "A tool of a test.", json!({"type": "object"}))
                .with_access(Access::READ),
            act: Act::Return(ToolOutput::text("ok")),
            gate: None,
            delay: Duration::ZERO,
            stats: Arc::default(),
        }
    }

    /// Declares access.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.spec = self.spec.with_access(access);
        self
    }

    /// Declares how calls may be repeated.
    #[must_use]
    pub fn repeat(mut self, repeat: Repeat) -> Self {
        self.spec = self.spec.with_repeat(repeat);
        self
    }

    /// Declares required string arguments.
    #[must_use]
    pub fn requiring(mut self, keys: &[&str]) -> Self {
        let properties: serde_json::Map<_, _> =
            keys.iter().map(|key| ((*key).to_owned(), json!({"type": "string"}))).collect();
        let schema = json!({"type": "object", "properties": properties, "required": keys});
        let access = self.spec.access();
        self.spec = ToolSpec::new(self.spec.name(), self.spec.description(), schema).with_access(access);
        self
    }

    /// Sets the timeout of a call.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.spec = self.spec.with_timeout(limit);
        self
    }

    fn acting(mut self, act: Act) -> Self {
        self.act = act;
        self
    }

    /// Returns this text.
    #[must_use]
    pub fn returning(self, text: impl Into<String>) -> Self {
        self.acting(Act::Return(ToolOutput::text(text)))
    }

    /// Returns this output.
    #[must_use]
    pub fn giving(self, output: ToolOutput) -> Self {
        self.acting(Act::Return(output))
    }

    /// Returns its arguments as JSON.
    #[must_use]
    pub fn echoing(self) -> Self {
        self.acting(Act::Echo)
    }

    /// Fails with an error that the model can correct.
    #[must_use]
    pub fn telling(self, text: impl Into<String>) -> Self {
        self.acting(Act::Tell(text.into()))
    }

    /// Fails with an error that the host must correct.
    #[must_use]
    pub fn failing(self, kind: ErrorKind, text: impl Into<String>) -> Self {
        self.acting(Act::Fatal(kind, text.into()))
    }

    /// Panics with this text.
    #[must_use]
    pub fn panicking(self, text: impl Into<String>) -> Self {
        self.acting(Act::Panic(text.into()))
    }

    /// Never returns.
    #[must_use]
    pub fn hanging(self) -> Self {
        self.acting(Act::Hang)
    }

    /// Makes each call pass this gate first.
    #[must_use]
    pub fn behind(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    /// Makes each call take this long on tokio's clock.
    #[must_use]
    pub fn taking(mut self, time: Duration) -> Self {
        self.delay = time;
        self
    }

    /// Number of calls that began.
    #[must_use]
    pub fn started(&self) -> usize {
        self.stats.started.load(Ordering::SeqCst)
    }

    /// Number of calls that ended.
    #[must_use]
    pub fn finished(&self) -> usize {
        self.stats.finished.load(Ordering::SeqCst)
    }

    /// Number of calls in flight.
    #[must_use]
    pub fn running(&self) -> usize {
        self.stats.running.load(Ordering::SeqCst)
    }

    /// Highest number of calls that were in flight at once.
    #[must_use]
    pub fn most_at_once(&self) -> usize {
        self.stats.most.load(Ordering::SeqCst)
    }
}

/// Counts a call as running until it is dropped.
struct Running<'a>(&'a Stats);

impl<'a> Running<'a> {
    fn new(stats: &'a Stats) -> Self {
        stats.started.fetch_add(1, Ordering::SeqCst);
        let now = stats.running.fetch_add(1, Ordering::SeqCst) + 1;
        stats.most.fetch_max(now, Ordering::SeqCst);
        Self(stats)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Tool for FakeTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, input: ToolInput, _: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let _running = Running::new(&self.stats);
        if let Some(gate) = &self.gate {
            gate.pass().await;
        }
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        let output = match &self.act {
            Act::Return(output) => Ok(output.clone()),
            Act::Echo => Ok(ToolOutput::text(input.arguments.to_string())),
            Act::Tell(text) => Err(ToolError::Tell(text.clone())),
            Act::Fatal(kind, text) => Err(ToolError::Fatal(Error::new(*kind, text.clone()))),
            Act::Panic(text) => panic!("{text}"),
            Act::Hang => std::future::pending().await,
        };
        self.stats.finished.fetch_add(1, Ordering::SeqCst);
        output
    }
}

/// Runs one call of `tool` as an agent would, with everything allowed, and returns the result that a model would see.
///
/// # Errors
/// A fatal tool error.
pub async fn run_tool(tool: impl Tool + 'static, arguments: Value) -> Result<ToolResult> {
    #[derive(Clone)]
    struct OneCall(Tools, Arc<str>, Value);

    #[async_trait]
    impl Agent for OneCall {
        fn name(&self) -> &str {
            "one-call"
        }

        async fn run(&self, _: Task, cx: &RunContext) -> Result<Outcome> {
            let result = cx.call_tool(&self.0, &self.1, &self.2).await?;
            Ok(Outcome::completed(serde_json::to_string(&result).map_err(|error| {
                Error::new(ErrorKind::Internal, "a tool's result does not serialize").caused_by(error)
            })?))
        }
    }

    let name = Arc::from(tool.spec().name());
    let agent = OneCall(Tools::new([Arc::new(tool) as Arc<dyn Tool>])?, name, arguments);
    let runtime = super::runtime().policy(Policy::allow_all()).build();
    let outcome = runtime.session().start(&agent, "call").outcome().await?;
    serde_json::from_str(&outcome.text)
        .map_err(|error| Error::new(ErrorKind::Corrupt, "a tool's result cannot be read").caused_by(error))
}

/// Checks that the description and the schema of a tool hold only words for a model: no code block, no link of a
/// documentation, and no id of a table's row, such as two capitals with two digits.
///
/// A schema takes over the doc comments of its type, the part for programmers included.
///
/// # Panics
/// If they hold one of these.
#[track_caller]
pub fn assert_plain_words(spec: &ToolSpec) {
    assert_plain_text(&format!("{}\n{}", spec.description(), spec.schema()));
}

/// Checks that a text holds only words for a model: see [`assert_plain_words`].
///
/// # Panics
/// If it holds something else.
#[track_caller]
pub fn assert_plain_text(text: &str) {
    assert!(!text.contains("```") && !text.contains("[`"), "{text}");
    let is_row = |word: &str| {
        let digits = word.trim_start_matches(|c: char| c.is_ascii_uppercase());
        word.len() == 4 && digits.len() == 2 && digits.chars().all(|c| c.is_ascii_digit())
    };
    let row = text.split(|c: char| !c.is_ascii_alphanumeric()).find(|word| is_row(word));
    assert_eq!(row, None, "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_programmers_are_told_from_words_for_a_model() {
        let about = |text: &str| ToolSpec::new("look", text, json!({"description": text}));
        for good in
            ["Looks at `a.rs`, at most 100 lines.", "UTF8 or AB123 or 4 GB", "See [1] and ab12, A123."]
        {
            assert_plain_words(&about(good));
        }
        for bad in ["```\nlet a = 1;\n```", "See [`Tool`].", "Rows AB12.", "(CM04)"] {
            let spec = about(bad);
            assert!(std::panic::catch_unwind(move || assert_plain_words(&spec)).is_err(), "{bad}");
        }
    }
}
