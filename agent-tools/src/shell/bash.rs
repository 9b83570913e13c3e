//! `bash`: runs a command line.

use std::{path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::tool::{
    Access, Footprint, Repeat, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec, schema_of,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use super::{
    Shell,
    confine::{self, Narrowed},
    judge::{FULL, judge},
    report, repository,
    running::{End, Running},
};
use crate::process::environment;

/// Longest time that a call waits for its command.
pub(super) const LONGEST: Duration = Duration::from_secs(600);
/// Time that the runtime waits beyond that.
const GRACE: Duration = Duration::from_secs(30);
/// Time in which a command that is started in the background may fail at once.
const INSTANT: Duration = Duration::from_secs(1);
/// Time between two reports of progress.
const PROGRESS: Duration = Duration::from_secs(1);
/// Longest command line, in characters.
const LINE: usize = 32_768;

const DESCRIPTION: &str = "Runs a command line with bash, without input, and returns its output, then its errors, then \
    an exit code that is not 0, then its working directory. Each call is a new shell in the workspace's root: use \
    `working_dir`, not `cd`, and nothing is kept from one call to the next. A command that takes longer than \
    `background_after` seconds goes on as a job: see `job_output` and `job_kill`. Start servers with \
    `run_in_background`: what a command leaves behind is killed when it ends. Simple commands that are written out are \
    easier to approve than variables, `eval` and generated text.";

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    /// The command line.
    command: String,
    /// The purpose, in a few words for the person who may be asked.
    #[serde(default)]
    #[allow(dead_code, reason = "it is for people who see the call")]
    description: Option<String>,
    /// The directory in which it runs, relative to the workspace's root. Default: the root.
    #[serde(default)]
    working_dir: Option<String>,
    /// True to return at once and let it go on as a job. Default: false.
    #[serde(default)]
    run_in_background: Option<bool>,
    /// Seconds after which it goes on as a job, at most 600. Default: 60.
    #[serde(default)]
    background_after: Option<f64>,
}

/// Runs command lines.
#[derive(Debug)]
pub(super) struct Bash {
    spec: ToolSpec,
    shell: Shell,
    narrowed: Narrowed,
}

impl Bash {
    pub(super) fn new(shell: Shell) -> Self {
        let spec = ToolSpec::new("bash", DESCRIPTION, schema_of::<Arguments>())
            .with_access(shell.settings.most() | Access::READ)
            .with_repeat(Repeat::Once)
            .naming_subjects()
            .with_access_by_call()
            .with_timeout(LONGEST + GRACE);
        let spec = shell.confining(spec);
        Self { spec, shell, narrowed: Narrowed::default() }
    }
}

/// Kills a command whose call is dropped before its end.
struct KillUnlessKept(Option<Arc<Running>>);

impl Drop for KillUnlessKept {
    fn drop(&mut self) {
        if let Some(running) = &self.0 {
            running.kill();
        }
    }
}

#[async_trait]
impl Tool for Bash {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let arguments: Arguments = input.parse()?;
        let line = arguments.command.trim();
        if line.is_empty() || line.contains('\0') || line.chars().nth(LINE).is_some() {
            return Err(ToolError::tell(format!(
                "a command is a text of 1 to {LINE} characters without NUL; write a longer one to a file and run that"
            )));
        }
        let background = arguments.run_in_background.unwrap_or(false);
        self.shell.jobs.check(background)?;
        let settings = &self.shell.settings;
        let inside = settings.inside(arguments.working_dir.as_deref())?;
        let (looking, place) = (Arc::clone(settings), inside.clone());
        let dir = tokio::task::spawn_blocking(move || looking.resolved(&place)).await??;

        let narrowed = |own| self.narrowed.of(own, cx.run().scope());
        let sandbox = settings.sandbox.as_ref().map(narrowed).transpose().map_err(ToolError::tell)?;
        let look = settings.look.clone().filter(|_| !cx.footprint().access.is_read_only());
        let after = match look {
            Some(look) => Some(tokio::task::spawn_blocking(move || look()).await?),
            None => None,
        };
        let only_reads = cx.footprint().access.is_read_only().then(|| settings.root());
        let vars = environment::scrubbed(std::env::vars_os(), &settings.added, only_reads);
        let started =
            confine::start(&self.shell.watchdog, &settings.program, sandbox.as_ref(), line, &dir, vars);
        let started = started.await;
        let running = match (started, &sandbox) {
            (Ok(started), _) => Running::new(started, settings.time_limit, settings.disk(), after),
            // No model can mend that, and without its sandbox nothing may run.
            (Err(error), Some(_)) => return Err(ToolError::Fatal(error)),
            (Err(error), None) => {
                let text = format!("the command could not be started: {error}; try a shorter one");
                return Err(ToolError::tell(text));
            }
        };
        let mut guard = KillUnlessKept(Some(Arc::clone(&running)));
        self.shell.jobs.watch(&running);

        let asked = arguments.background_after.and_then(|it| Duration::try_from_secs_f64(it).ok());
        let patience =
            if background { INSTANT } else { asked.unwrap_or(settings.background_after).min(LONGEST) };
        let output = match wait(&running, patience, cx).await {
            Some(end) => report::result(&running, Some(end), None, &dir),
            None => {
                let id = match self.shell.jobs.add(cx.session(), &running) {
                    Ok(id) => id,
                    Err(full) => {
                        running.kill();
                        return Err(full);
                    }
                };
                guard.0 = None;
                going_on(&running, &id, background, &dir)
            }
        };
        guard.0 = None;
        let labels = output.labels | settings.labels;
        Ok(with_judged(output, cx.footprint()).with_labels(labels))
    }

    fn footprint(&self, arguments: &Value) -> Footprint {
        let settings = &self.shell.settings;
        let text = arguments.get("command").and_then(Value::as_str).unwrap_or_default().trim();
        let dir = arguments.get("working_dir").and_then(Value::as_str);
        let judged = judge(text, settings.program.is_bash);
        let mut footprint = match settings.inside(dir).map(|inside| settings.canonical(inside)) {
            Ok(inside) => {
                let mut footprint = settings.without_links(judged.footprint(settings.root(), &inside));
                let reads = footprint.access.is_read_only();
                if reads
                    && judged.asks_git
                    && !repository::runs_nothing(settings.root(), &settings.root().join(&inside))
                {
                    footprint.access = FULL;
                }
                footprint
            }
            // The call will be an error result.
            Err(_) => judged.footprint(settings.root(), Path::new(dir.unwrap_or_default())),
        };
        footprint.access &= self.spec.access();
        footprint
    }
}

/// Waits for the end of a command, for at most `patience`; `None` when it goes on. When the run is cancelled it is
/// killed.
async fn wait(running: &Running, patience: Duration, cx: &ToolContext<'_>) -> Option<End> {
    let mut ticks = interval_at(Instant::now() + PROGRESS, PROGRESS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let patience = sleep(patience);
    tokio::pin!(patience);
    let mut shown = String::new();
    loop {
        tokio::select! {
            biased;
            end = running.wait() => return end,
            () = cx.cancellation().cancelled() => {
                running.kill();
                return running.wait().await;
            }
            () = &mut patience => return None,
            _ = ticks.tick() => {
                let line = running.last_line();
                if line != shown {
                    cx.progress(line.clone());
                    shown = line;
                }
            }
        }
    }
}

fn going_on(running: &Running, id: &str, asked: bool, dir: &Path) -> ToolOutput {
    let mut output = report::result(running, None, Some(id), dir);
    let how =
        if asked { "it runs in the background" } else { "it takes longer, and goes on in the background" };
    let note = format!(
        "job {id}: {how}. `job_output` shows what it prints, and waits for its end with `wait`; `job_kill` ends it. So \
         far:\n"
    );
    output.content.insert(0, entourage_core::message::Content::Text(note));
    output
}

/// Adds what was judged to the metadata.
fn with_judged(mut output: ToolOutput, footprint: &Footprint) -> ToolOutput {
    if let Some(Value::Object(map)) = &mut output.metadata {
        map.insert("judged".to_owned(), json!(footprint));
    }
    output
}
