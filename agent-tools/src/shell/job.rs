//! `job_output` and `job_kill`.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::tool::{
    Access, Footprint, Labels, Repeat, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec,
    schema_of,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;

use super::{Shell, bash::LONGEST, report, running::Running};

/// Time that a job has to end.
const ENDING: Duration = Duration::from_secs(5);
const GRACE: Duration = Duration::from_secs(30);

#[derive(Debug, Deserialize, JsonSchema)]
struct OutputArguments {
    /// The id of the job, as `bash` gave it.
    id: String,
    /// True to wait for its end, for 10 minutes at most. Default: false.
    #[serde(default)]
    wait: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct KillArguments {
    /// The id of the job, as `bash` gave it.
    id: String,
}

/// Shows a job.
#[derive(Debug)]
pub(super) struct JobOutput {
    spec: ToolSpec,
    shell: Shell,
}

impl JobOutput {
    pub(super) fn new(shell: Shell) -> Self {
        let text = "Shows what a job of `bash` has printed, and if it is running or completed.";
        let spec = ToolSpec::new("job_output", text, schema_of::<OutputArguments>())
            // Who may not use `bash` has no jobs to look at.
            .with_access(shell.settings.most() | Access::READ)
            .with_labels(shown_labels(&shell))
            .with_repeat(Repeat::Safe)
            .naming_subjects()
            .with_access_by_call()
            .with_timeout(LONGEST + GRACE);
        Self { spec: shell.confining(spec), shell }
    }
}

#[async_trait]
impl Tool for JobOutput {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn footprint(&self, _: &Value) -> Footprint {
        Footprint::new(Access::READ)
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let OutputArguments { id, wait } = input.parse()?;
        let job = self.shell.jobs.find(cx.session(), &id)?;
        if wait.unwrap_or(false) {
            tokio::select! {
                _ = timeout(LONGEST, job.wait()) => {}
                () = cx.cancellation().cancelled() => {}
            }
        }
        Ok(shown(&job, id.trim()))
    }
}

/// Ends a job.
#[derive(Debug)]
pub(super) struct JobKill {
    spec: ToolSpec,
    shell: Shell,
}

impl JobKill {
    pub(super) fn new(shell: Shell) -> Self {
        let text = "Ends a job of `bash` with all that it started.";
        let spec = ToolSpec::new("job_kill", text, schema_of::<KillArguments>())
            .with_access(Access::EXECUTE)
            .with_labels(shown_labels(&shell))
            .with_repeat(Repeat::Idempotent)
            .naming_subjects()
            .with_timeout(ENDING + GRACE);
        Self { spec: shell.confining(spec), shell }
    }
}

#[async_trait]
impl Tool for JobKill {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let KillArguments { id } = input.parse()?;
        let job = self.shell.jobs.find(cx.session(), &id)?;
        job.stop();
        let _ = timeout(ENDING, job.wait()).await;
        Ok(shown(&job, id.trim()))
    }
}

/// Labels of what jobs print: calls that show it only read, and it is what a command got from wherever it came.
fn shown_labels(shell: &Shell) -> Labels {
    let reaches_others = shell.settings.most().contains(Access::NETWORK);
    shell.settings.labels | if reaches_others { Labels::all() } else { Labels::PRIVATE }
}

fn shown(job: &Arc<Running>, id: &str) -> ToolOutput {
    let end = job.end();
    let all = job.output();
    let status = if end.is_some() { "completed" } else { "running" };
    let note = end.and_then(report::note).map(|note| format!(", {note}")).unwrap_or_default();
    let body = if all.is_empty() { "no output".to_owned() } else { all.show() };
    let text = format!("job {id}: {status}{note}\n{body}");
    ToolOutput::text(text).with_metadata(report::metadata(job, end, Some(id), all.lost_bytes()))
}
