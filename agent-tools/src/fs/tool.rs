//! The one implementation of `Tool` that all operations here share: schema, footprint, thread, timeout.

use std::{
    io,
    marker::PhantomData,
    sync::{Arc, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind,
    tool::{
        Access, Footprint, Labels, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec, schema_of,
    },
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    sight::Sight,
    stop::{Stop, blocking},
    workspace::Workspace,
};

/// Time that the runtime waits beyond an operation's own limit, for a file system that does not answer.
const GRACE: Duration = Duration::from_secs(5);

/// The operation of a file tool. It runs on a thread that may block.
pub(super) trait Operation: Send + Sync + 'static {
    /// Arguments from the model. A path in them is called `path`.
    type Arguments: DeserializeOwned + JsonSchema + Send + 'static;
    const NAME: &'static str;
    const DESCRIPTION: &'static str;
    /// Access of a call; a change is one of the file at `path`.
    const ACCESS: Access = Access::READ;
    /// Time limit of a call.
    const TIME: Duration;
    /// Path that is read when the model names none.
    const WITHOUT_PATH: Option<&'static str>;

    fn run(sight: &Sight<'_>, arguments: Self::Arguments, stop: &Stop) -> Result<ToolOutput, ToolError>;

    /// Returns what the call would do. Changes nothing.
    fn preview(_: &Sight<'_>, _: Self::Arguments, _: &Stop) -> Result<Option<String>, ToolError> {
        Ok(None)
    }
}

/// The workspace of a tool, or the promise to open one.
#[derive(Debug, Clone)]
pub(super) struct Place(Arc<OnceLock<Workspace>>);

impl Place {
    pub(super) fn fixed(workspace: &Workspace) -> Self {
        Self(Arc::new(OnceLock::from(workspace.clone())))
    }

    /// The current directory at the time of the first use.
    pub(super) fn current() -> Self {
        Self(Arc::default())
    }

    fn workspace(&self) -> Result<&Workspace, Error> {
        if let Some(workspace) = self.0.get() {
            return Ok(workspace);
        }
        let opened = std::env::current_dir().map_err(no_directory).and_then(Workspace::open)?;
        Ok(self.0.get_or_init(|| opened))
    }
}

fn no_directory(error: io::Error) -> Error {
    Error::new(ErrorKind::NotFound, "there is no current directory; start the program in one that exists")
        .during("workspace.open")
        .caused_by(error)
}

/// An operation as a tool.
#[derive(Debug)]
pub(super) struct FileTool<O> {
    spec: ToolSpec,
    place: Place,
    operation: PhantomData<fn() -> O>,
}

impl<O: Operation> FileTool<O> {
    pub(super) fn shared(place: Place) -> Arc<dyn Tool> {
        let spec = ToolSpec::new(O::NAME, O::DESCRIPTION, schema_of::<O::Arguments>())
            .with_access(O::ACCESS)
            .with_labels(place.0.get().map_or(Labels::PRIVATE, Workspace::labels))
            .naming_subjects()
            .changing_files()
            .with_timeout(O::TIME + GRACE);
        Arc::new(Self { spec, place, operation: PhantomData })
    }
}

#[async_trait]
impl<O: Operation> Tool for FileTool<O> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let arguments: O::Arguments = input.parse()?;
        let (place, session, admission) = (self.place.clone(), cx.session().clone(), cx.admission());
        let judged = cx.footprint().writes.clone();
        blocking(O::TIME, move |stop| {
            let sight = Sight::new(place.workspace()?, &session, &admission).changing(judged);
            O::run(&sight, arguments, stop)
        })
        .await
    }

    async fn preview(&self, input: ToolInput, cx: &ToolContext<'_>) -> Option<String> {
        let arguments: O::Arguments = input.parse().ok()?;
        let (place, session, admission) = (self.place.clone(), cx.session().clone(), cx.admission());
        let judged = cx.footprint().writes.clone();
        let preview = blocking(O::TIME, move |stop| {
            let sight = Sight::new(place.workspace()?, &session, &admission).changing(judged);
            O::preview(&sight, arguments, stop)
        });
        match preview.await {
            Ok(preview) => preview,
            Err(ToolError::Tell(text)) => Some(format!("the call would fail: {text}")),
            Err(_) => None,
        }
    }

    /// Names the path as the workspace knows it, so that a rule cannot be evaded by spelling. Resolves links on the
    /// file system, which takes microseconds.
    fn footprint(&self, arguments: &Value) -> Footprint {
        let footprint = Footprint::new(O::ACCESS);
        let touching =
            if O::ACCESS.contains(Access::WRITE) { Footprint::writing } else { Footprint::reading };
        let Some(path) = arguments.get("path").and_then(Value::as_str).or(O::WITHOUT_PATH) else {
            return footprint;
        };
        match self.place.workspace() {
            Ok(workspace) => workspace.subjects(path).into_iter().fold(footprint, touching),
            Err(_) => touching(footprint, path.to_owned()),
        }
    }
}
