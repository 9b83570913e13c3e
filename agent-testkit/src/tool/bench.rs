//! One call of a tool under test: in a tree of its own, through a session, with everything allowed.

use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use entourage_core::{
    ErrorKind, Result,
    agent::{Agent, AgentPart},
    message::{Content, ToolResult},
    run::{Outcome, RunContext, Task},
    tool::{Footprint, Tool, ToolContext, ToolError, ToolInput, ToolLayer, ToolOutput, ToolSpec, Tools},
};
use entourage_runtime::{Runtime, permission::Policy};
use futures_util::FutureExt;
use serde_json::Value;
use tokio::sync::Notify;

use super::{
    Conformance,
    tree::{Look, Tree},
};

/// Time after which a call is dropped. A tool may take longer; the suite does not.
const PATIENCE: Duration = Duration::from_secs(3);
/// Time after which a call that nothing wakes is dropped, where it should be after a number of polls.
const SILENCE: Duration = Duration::from_millis(300);
/// Time in which a cancelled call must be over.
pub(super) const CANCEL: Duration = Duration::from_secs(1);

/// When the suite ends a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// Not before its own end, or the suite's patience is over.
    Never,
    /// After this many polls of the call's future, which is then dropped.
    After(usize),
    /// By a cancel of its run, once the call has begun.
    ByRun,
}

/// The end of a call.
#[derive(Debug)]
pub(super) enum End {
    Output(ToolOutput),
    Told(String),
    Fatal(ErrorKind, String),
    Panicked(String),
    /// The suite dropped the future, which took this long.
    Dropped(Duration),
}

/// A call as the tool saw it.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) footprint: Footprint,
    /// True if the preview of the call changed the tree.
    pub(super) preview_changed: bool,
    pub(super) preview_panicked: bool,
    pub(super) end: End,
}

/// A call and what it did to its tree.
#[derive(Debug, Default)]
pub(super) struct Call {
    /// The call as the tool saw it; `None` if it was not asked, since the arguments do not fit or a layer refused them.
    pub(super) seen: Option<Seen>,
    /// The result that a model would see; `None` without one.
    pub(super) result: Option<ToolResult>,
    /// The reason why one of the calls before it was refused.
    pub(super) unprepared: Option<String>,
    pub(super) before: Look,
    pub(super) after: Look,
    /// Time from the cancel of the run to its end.
    pub(super) ending: Option<Duration>,
}

/// A tool in a tree of its own.
pub(super) struct Bench<'a> {
    plan: &'a Conformance,
    pub(super) tree: Arc<Tree>,
    pub(super) tool: Arc<dyn Tool>,
    tools: Vec<Arc<dyn Tool>>,
    runtime: Runtime,
}

impl<'a> Bench<'a> {
    /// Makes the tool of `plan` anew.
    pub(super) fn new(plan: &'a Conformance) -> Self {
        let tree = Arc::new(Tree::new());
        let tools = (plan.make)(&tree.inside());
        let tool = tools.iter().find(|tool| tool.spec().name() == plan.name);
        let Some(tool) = tool.cloned() else {
            let names: Vec<_> = tools.iter().map(|tool| tool.spec().name()).collect();
            panic!("there is no tool `{}` among those that were made: {names:?}", plan.name);
        };
        let runtime = (plan.runtime)(crate::runtime().policy(Policy::allow_all())).build();
        Self { plan, tree, tool, tools, runtime }
    }

    /// Calls the tool in a session of its own, after the calls that come before.
    pub(super) async fn call(&self, arguments: &Value, cut: Cut) -> Call {
        let log = Arc::new(Log::default());
        let watched = Watched {
            inner: Arc::clone(&self.tool),
            tree: Arc::clone(&self.tree),
            log: Arc::clone(&log),
            cut,
        };
        let tools = self.tools.iter().map(|tool| {
            if Arc::ptr_eq(tool, &self.tool) { Arc::new(watched.clone()) } else { Arc::clone(tool) }
        });
        let tools = Tools::new(tools).unwrap_or_else(|error| panic!("the tools do not go together: {error}"));
        let caller = Caller {
            tools,
            before: self.plan.before.clone(),
            name: Arc::from(self.plan.name.as_str()),
            arguments: arguments.clone(),
            tree: Arc::clone(&self.tree),
            log: Arc::clone(&log),
        };
        let run = self.runtime.session().start(&caller, "call");
        let cancel = run.cancellation();
        let mut outcome = std::pin::pin!(run.outcome());
        let mut ending = None;
        if cut == Cut::ByRun {
            tokio::select! {
                _ = &mut outcome => {}
                () = log.begun.notified() => {
                    let began = Instant::now();
                    cancel.cancel();
                    // Longer than it may take, so that a call that never ends fails its case and no more.
                    let _ = tokio::time::timeout(CANCEL * 3, &mut outcome).await;
                    ending = Some(began.elapsed());
                }
            }
        } else {
            // The error of a run is the error of its call, which the log has.
            let _ = outcome.await;
        }
        let mut call = std::mem::take(&mut *log.call());
        call.ending = ending;
        call.after = self.tree.look();
        call
    }
}

/// The facts about a call while it goes on.
#[derive(Debug, Default)]
struct Log {
    call: Mutex<Call>,
    begun: Notify,
}

impl Log {
    fn call(&self) -> MutexGuard<'_, Call> {
        self.call.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone)]
struct Caller {
    tools: Tools,
    before: Vec<(String, Value)>,
    name: Arc<str>,
    arguments: Value,
    tree: Arc<Tree>,
    log: Arc<Log>,
}

#[async_trait]
impl Agent for Caller {
    fn name(&self) -> &str {
        "caller"
    }

    async fn run(&self, _: Task, cx: &RunContext) -> Result<Outcome> {
        for (name, arguments) in &self.before {
            let result = cx.call_tool(&self.tools, name, arguments).await?;
            if result.is_error {
                self.log.call().unprepared =
                    Some(format!("`{name}` before it: {}", text_of(&result.content)));
            }
        }
        self.log.call().before = self.tree.look();
        let result = cx.call_tool(&self.tools, &self.name, &self.arguments).await?;
        self.log.call().result = Some(result);
        Ok(Outcome::completed("called"))
    }
}

/// The tool under test, watched.
#[derive(Clone)]
struct Watched {
    inner: Arc<dyn Tool>,
    tree: Arc<Tree>,
    log: Arc<Log>,
    cut: Cut,
}

#[async_trait]
impl Tool for Watched {
    fn spec(&self) -> &ToolSpec {
        self.inner.spec()
    }

    fn footprint(&self, arguments: &Value) -> Footprint {
        self.inner.footprint(arguments)
    }

    fn parts(&self) -> Vec<AgentPart> {
        self.inner.parts()
    }

    fn layers(&self) -> &[Arc<dyn ToolLayer>] {
        self.inner.layers()
    }

    async fn preview(&self, input: ToolInput, cx: &ToolContext<'_>) -> Option<String> {
        self.inner.preview(input, cx).await
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let before = self.tree.look();
        let preview = AssertUnwindSafe(self.inner.preview(input.clone(), cx)).catch_unwind().await;
        let preview_changed = self.tree.look() != before;
        self.log.begun.notify_one();
        let made = catch_unwind(AssertUnwindSafe(|| self.inner.call(input, cx)));
        let done = match made {
            Ok(call) => self.driven(call).await,
            Err(panic) => Done::Panicked(panic_text(panic.as_ref())),
        };
        let (end, result) = match done {
            Done::Ended(Ok(output)) => (End::Output(output.clone()), Ok(output)),
            Done::Ended(Err(ToolError::Tell(text))) => (End::Told(text.clone()), Err(ToolError::Tell(text))),
            Done::Ended(Err(ToolError::Fatal(error))) => {
                (End::Fatal(error.kind(), error.to_string()), Err(ToolError::Fatal(error)))
            }
            Done::Panicked(text) => (End::Panicked(text.clone()), Err(ToolError::Tell(text))),
            Done::Dropped(time) => (End::Dropped(time), Err(ToolError::tell("the suite dropped the call"))),
        };
        let footprint = cx.footprint().clone();
        let preview_panicked = preview.is_err();
        self.log.call().seen = Some(Seen { footprint, preview_changed, preview_panicked, end });
        result
    }
}

/// The end of a call's future.
enum Done {
    Ended(Result<ToolOutput, ToolError>),
    Panicked(String),
    Dropped(Duration),
}

type CallFuture<'a> = Pin<Box<dyn Future<Output = Result<ToolOutput, ToolError>> + Send + 'a>>;

impl Watched {
    /// Drives a call to its end, or to the moment at which the suite drops it.
    async fn driven(&self, call: CallFuture<'_>) -> Done {
        let mut call = Box::pin(AssertUnwindSafe(call).catch_unwind());
        let done = match self.cut {
            Cut::After(polls) => tokio::time::timeout(SILENCE, polled(&mut call, polls)).await.ok().flatten(),
            Cut::Never => tokio::time::timeout(PATIENCE, &mut call).await.ok(),
            Cut::ByRun => Some((&mut call).await),
        };
        match done {
            Some(Ok(ended)) => Done::Ended(ended),
            Some(Err(panic)) => Done::Panicked(panic_text(panic.as_ref())),
            None => {
                let began = Instant::now();
                drop(call);
                Done::Dropped(began.elapsed())
            }
        }
    }
}

/// Polls a future at most `polls` times; `None` if it is not ready by then.
async fn polled<F: Future + Unpin>(future: &mut F, polls: usize) -> Option<F::Output> {
    let mut left = polls;
    poll_fn(|task| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.poll_unpin(task) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            // Its last poll is followed by the drop at once, while its work goes on elsewhere.
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// The text of a panic.
pub(super) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}

/// The texts of a result, one after another.
pub(super) fn text_of(content: &[Content]) -> String {
    let texts =
        content.iter().filter_map(|piece| if let Content::Text(text) = piece { Some(&**text) } else { None });
    texts.collect::<Vec<_>>().join("\n")
}
