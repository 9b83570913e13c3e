//! The half of the kill tests that is killed: one process that works on one session of one SQLite file.
//!
//! Everything that really happens is written to a side log before and after it does. Each such line and each event is a
//! point: it is told on standard output, and the process can be made to stand still right there.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use entourage::{
    SessionId,
    agent::ReactAgent,
    event::{Envelope, Event},
    message::Role,
    permission::{ApprovalId, Decision, Policy},
    prelude::{Runtime, Session, SqliteStore},
    provider::{CallContext, Delta, DeltaStream, FinishReason, Model, Provider, Request},
    run::{Observer, Outcome},
    testkit::{Script, ScriptedProvider},
    tool::{Access, Repeat, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec},
};
use futures_util::StreamExt;
use serde_json::json;

pub(crate) const DIRECTORY: &str = "ENTOURAGE_TEST_DIRECTORY";
pub(crate) const ORDER: &str = "ENTOURAGE_TEST_ORDER";
pub(crate) const STAND_STILL_AT: &str = "ENTOURAGE_TEST_STAND_STILL_AT";
pub(crate) const ASK_ABOUT: &str = "ENTOURAGE_TEST_ASK_ABOUT";

/// What the model is told about a call whose process died.
pub(crate) const UNKNOWN: &str = "outcome is unknown";
/// A process whose parent died does not outlive it for long.
const LIFETIME: Duration = Duration::from_secs(60);

pub(crate) fn session_id() -> SessionId {
    SessionId::new("killed").unwrap()
}

pub(crate) fn database(directory: &Path) -> PathBuf {
    directory.join("sessions.db")
}

pub(crate) fn side_log(directory: &Path) -> PathBuf {
    directory.join("side.log")
}

/// Does what the environment says, and ends with one line that says how that went.
pub(crate) fn work(directory: &Path) {
    std::thread::spawn(|| {
        std::thread::sleep(LIFETIME);
        std::process::abort();
    });
    let points = Points::new(directory);
    // The test harness may have begun a line.
    println!();
    // One thread: who stands still holds back everything else.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let end = runtime.block_on(obey(directory, &points));
    println!("END {}", end.unwrap_or_else(|error| format!("error {}", error.kind().as_str())));
}

async fn obey(directory: &Path, points: &Points) -> entourage::Result<String> {
    let order = env::var(ORDER).unwrap();
    if order == "race cold" {
        wait_for_go();
    }
    let session = open(directory, points).await?;
    let agent = agent(points)?;
    let outcome = match order.split_once(' ').unwrap_or((&order, "")) {
        ("go", _) => match session.unfinished().await? {
            Some(_) => session.resume(&agent).outcome().await,
            None if session.history().await?.is_empty() => {
                session.start(&agent, "Do the work.").outcome().await
            }
            None => return Ok("over before".to_owned()),
        },
        ("race", how) => {
            if how == "warm" {
                // Both racers have read the session before either resumes it.
                assert!(session.unfinished().await?.is_some());
                wait_for_go();
            }
            session.resume(&agent).outcome().await
        }
        ("allow", id) => return decide(&session, id, Decision::Allow).await,
        ("deny", id) => return decide(&session, id, Decision::Deny).await,
        _ => panic!("no such order: {order}"),
    };
    outcome.map(|outcome| shown(&outcome))
}

fn wait_for_go() {
    println!("READY");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

async fn decide(session: &Session, id: &str, decision: Decision) -> entourage::Result<String> {
    session.decide(&ApprovalId::from(id), decision).await?;
    Ok("decided".to_owned())
}

pub(crate) fn shown(outcome: &Outcome) -> String {
    format!("{} | {} | {} | {}", outcome.status, outcome.text, outcome.steps, outcome.usage)
}

async fn open(directory: &Path, points: &Points) -> entourage::Result<Session> {
    let policy = match env::var(ASK_ABOUT) {
        Ok(tool) => Policy::allow_all().ask(&tool),
        Err(_) => Policy::allow_all(),
    };
    let runtime = Runtime::builder()
        .store(SqliteStore::open(database(directory)).await?)
        .policy(policy)
        .observer(points.clone())
        .build();
    Ok(runtime.session_with_id(session_id()))
}

fn agent(points: &Points) -> entourage::Result<ReactAgent> {
    let provider = Logged { inner: script(), points: points.clone() };
    let tool = |name, access, repeat, pause| LoggedTool::new(points, name, access, repeat, pause);
    ReactAgent::builder("worker", Model::new(Arc::new(provider), "scripted"))
        .tool(tool("look", Access::READ, None, 1))
        .tool(tool("read_a", Access::READ, None, 1))
        .tool(tool("read_b", Access::READ, None, 3))
        .tool(tool("read_c", Access::READ, None, 2))
        .tool(tool("pay", Access::WRITE, None, 1))
        .tool(tool("charge", Access::WRITE, Some(Repeat::Idempotent), 1))
        .tool(tool("tip", Access::WRITE, Some(Repeat::Once), 1))
        .build()
}

/// The same reply again for the same step, whatever the tools answered.
fn script() -> ScriptedProvider {
    let calls = |names: &[&str]| {
        let script = names.iter().fold(Script::new(), |script, name| {
            script.call(name, &json!({ "name": name })).delay(Duration::from_millis(1))
        });
        script.usage(10, 5).finish(FinishReason::ToolCalls)
    };
    ScriptedProvider::by_history()
        .step(calls(&["look"]))
        .step(calls(&["read_a", "read_b", "read_c"]))
        .step(calls(&["pay"]))
        .step(calls(&["look", "charge", "tip"]))
        .step(
            Script::new()
                .text("The work")
                .delay(Duration::from_millis(1))
                .text(" is done.")
                .usage(10, 5)
                .finish(FinishReason::Stop),
        )
}

/// Counts what happens and tells it. Cloning shares the count.
#[derive(Debug, Clone)]
struct Points(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    count: AtomicUsize,
    stand_still_at: Option<usize>,
    log: PathBuf,
}

impl Points {
    fn new(directory: &Path) -> Self {
        let stand_still_at = env::var(STAND_STILL_AT).ok().map(|point| point.parse().unwrap());
        Self(Arc::new(Inner { count: AtomicUsize::new(0), stand_still_at, log: side_log(directory) }))
    }

    fn reach(&self, what: &str) {
        let point = self.0.count.fetch_add(1, Ordering::Relaxed) + 1;
        println!("AT {point} {what}");
        while self.0.stand_still_at == Some(point) {
            std::thread::park();
        }
    }

    fn log(&self, line: &str) {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(&self.0.log).unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
        self.reach(line);
    }
}

impl Observer for Points {
    fn on_event(&self, envelope: &Envelope) {
        let kind = if envelope.event.is_stored() { "stored" } else { "streamed" };
        self.reach(&format!("{kind} {} {}", envelope.seq, envelope.event.kind()));
    }
}

#[derive(Debug)]
struct Logged {
    inner: ScriptedProvider,
    points: Points,
}

#[async_trait]
impl Provider for Logged {
    fn name(&self) -> &str {
        "scripted"
    }

    async fn stream(&self, request: Request, cx: &CallContext) -> entourage::Result<DeltaStream> {
        let replies = request.messages.iter().filter(|message| message.role() == Role::Assistant);
        let step = replies.count() + 1;
        let results = request.messages.iter().flat_map(|message| message.tool_results());
        let unknown = results.filter(|result| result.to_text().contains(UNKNOWN)).count();
        self.points.log(&format!("start model {step} told {unknown}"));
        let stream = self.inner.provider().stream(request, cx).await?;
        let points = self.points.clone();
        Ok(Box::pin(stream.inspect(move |delta| {
            if matches!(delta, Ok(Delta::Finish(_))) {
                points.log(&format!("end model {step}"));
            }
        })))
    }
}

#[derive(Debug)]
struct LoggedTool {
    spec: ToolSpec,
    pause: Duration,
    points: Points,
}

impl LoggedTool {
    fn new(points: &Points, name: &str, access: Access, repeat: Option<Repeat>, millis: u64) -> Self {
        let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
        let spec = ToolSpec::new(name, "Works.", schema).with_access(access);
        let spec = repeat.into_iter().fold(spec, ToolSpec::with_repeat);
        Self { spec, pause: Duration::from_millis(millis), points: points.clone() }
    }
}

#[async_trait]
impl Tool for LoggedTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, _: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let (key, name) = (cx.idempotency_key(), self.spec.name());
        self.points.log(&format!("start tool {key} {name}"));
        tokio::time::sleep(self.pause).await;
        if !self.spec.access().is_read_only() {
            self.points.log(&format!("effect {name}"));
        }
        self.points.log(&format!("end tool {key} {name}"));
        Ok(ToolOutput::text(format!("{name} has worked")))
    }
}

/// What an event leaves completed for good, in the words of the side log. `message` is the number of the newest reply.
pub(crate) fn completes(event: &Event, message: u64) -> Option<String> {
    match event {
        Event::ModelFinished(reply) => Some(format!("start model {} ", reply.step)),
        Event::ToolFinished(call) => {
            Some(format!("start tool {}.{message}$${} ", session_id().as_str(), call.index))
        }
        _ => None,
    }
}
