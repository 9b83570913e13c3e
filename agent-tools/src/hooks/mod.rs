//! [`Hooks`]: programs of the user that are asked before a tool call.
//!
//! A hook is a command line of a TOML text. It reads the call as JSON, and its exit code and output say whether the
//! call may run. Nothing of a call becomes part of a command line.

mod answer;
mod config;
mod run;

use std::{
    collections::VecDeque,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use entourage_core::{
    Digest, Error, ErrorKind, Result,
    message::Content,
    run::RunContext,
    tool::{CallId, LayerVerdict, NextCall, ToolError, ToolLayer, ToolOutput, ToolSpec},
};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::process::spawn::Program;
use answer::{Decision, Merged};
use config::Hook;

/// Most calls for which it is kept what hooks said of them.
const KEPT: usize = 1_024;

/// Programs that are asked before each tool call of a root run, as a layer for `RuntimeBuilder::tool_layer`.
///
/// ```
/// use entourage_runtime::Runtime;
/// use entourage_tools::Hooks;
///
/// # fn main() -> entourage_core::Result<()> {
/// let hooks = Hooks::from_toml(
///     r#"
///     [[hooks]]
///     tools = "bash|write"
///     command = "~/bin/check-call"
///     timeout = 5
///     "#,
/// )?;
/// let runtime = Runtime::builder().tool_layer(hooks).build();
/// # let _ = runtime;
/// # Ok(())
/// # }
/// ```
///
/// # Trust
/// A hook is a program with all rights of the user. Load the user's own file alone: the hooks of a project's file are
/// programs of strangers.
///
/// # Contract
/// - The hooks whose `tools` matches the whole name of the tool run side by side, each command once for a call. A hook
///   runs by `bash` or `sh`, in a process group of its own, without secrets in its environment. After `timeout` seconds
///   (1 to 600, 30 by default) the group is asked to end, and 1 second later killed. A cancel kills it at once. A
///   program that leaves the group is not found.
/// - A hook reads one JSON object: `event` (`before_tool`), `session`, `agent`, `tool`, `call_id`, `arguments` and
///   `cwd`.
/// - Exit code 0 with one JSON object on standard output is an answer, of which all fields are optional: `decision`
///   (`"allow"`, `"deny"` or `"none"`), `halt`, `reason`, `context`, and `arguments`, fields that replace those of the
///   call. Exit code 2 denies the call, and 49 denies it and halts; standard error has the reason.
/// - Anything else is ignored, with a warning of `tracing`: another exit code, a hook that takes too long, output that
///   is no such object or has more than 64 KiB. So a hook that fails stops no call; what must not be is denied by a
///   rule.
/// - Answers are merged in the order of the text: one that denies wins over one that allows, and both over none; one
///   that halts is enough; of fields given twice the last counts. An allow holds for what all of them leave.
/// - A denied call does not run, and the run continues. A halt ends the turn, and the call does not run. An allowed
///   call is not asked about; what the scope or a rule denies stays denied. What the answers left of the arguments is
///   checked, judged, shown and run. The model is shown `context` beside the call's result.
/// - Hooks are asked once about a call ([`ToolLayer::is_once`]): a replay, and a resumed run whose call was judged, do
///   not ask again. Arguments that an approver gave are asked about. A `context` is kept by this process alone, and
///   only for calls that run here.
/// - Calls of agents below another are not asked about, be it the agent of a tool or a node of a graph.
#[derive(Clone)]
pub struct Hooks {
    settings: Arc<Settings>,
    kept: Arc<Mutex<VecDeque<Kept>>>,
}

#[derive(Debug, Clone)]
struct Settings {
    hooks: Vec<Hook>,
    program: Program,
    dir: PathBuf,
}

/// The answer of hooks to a call that they let pass.
struct Kept {
    call: CallId,
    /// Digest of the arguments that they were asked about.
    asked: Digest,
    merged: Merged,
}

impl Hooks {
    /// Reads hooks from TOML: a list `[[hooks]]` of tables with `command`, and if you like `tools`, a regular
    /// expression for whole names of tools, `timeout`, in seconds, and `name`, which records and warnings show in place
    /// of the command. They run in the current directory.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a key that is not known, a value that is not valid, more than 64 hooks or a
    /// command of more than 8 KiB; [`ErrorKind::TooLarge`] for more than 256 KiB; [`ErrorKind::Config`] if this machine
    /// has neither `bash` nor `sh`; [`ErrorKind::Io`] without a current directory.
    pub fn from_toml(text: &str) -> Result<Self> {
        let hooks = config::read(text).map_err(|error| error.during("hooks.from_toml"))?;
        let program = Program::find(std::env::var_os("PATH")).ok_or_else(|| {
            Error::new(ErrorKind::Config, "there is neither `bash` nor `sh`; install one")
                .during("hooks.from_toml")
        })?;
        let settings = Settings { hooks, program, dir: std::env::current_dir()? };
        Ok(Self { settings: Arc::new(settings), kept: Arc::default() })
    }

    /// The same hooks in another directory. A hook cannot be started in one that does not exist, and is ignored.
    #[must_use]
    pub fn in_dir(mut self, dir: impl AsRef<Path>) -> Self {
        let settings = Arc::make_mut(&mut self.settings);
        settings.dir = settings.dir.join(dir);
        self
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what was said of a call with these arguments.
    fn known(&self, call: &CallId, asked: Digest) -> Option<Merged> {
        let kept = self.kept();
        kept.iter().find(|kept| kept.call == *call && kept.asked == asked).map(|kept| kept.merged.clone())
    }

    /// Keeps what was said of a call, in place of what was said of it before.
    fn keep(&self, said: Kept) {
        let mut kept = self.kept();
        kept.retain(|kept| kept.call != said.call);
        if kept.len() >= KEPT {
            kept.pop_front();
        }
        kept.push_back(said);
    }

    /// Returns what the hooks read of a call.
    fn input(&self, tool: &str, arguments: &Value, call: &CallId, cx: &RunContext) -> String {
        let input = json!({
            "event": "before_tool",
            "session": cx.session().as_str(),
            "agent": cx.agent(),
            "tool": tool,
            "call_id": call.as_str(),
            "arguments": arguments,
            "cwd": self.settings.dir.to_string_lossy(),
        });
        input.to_string()
    }

    /// Asks the hooks that are for `tool`, and merges what they say.
    async fn ask(&self, tool: &str, input: &[u8]) -> Merged {
        let Settings { hooks, program, dir } = &*self.settings;
        let mut asked: Vec<&Hook> = Vec::new();
        for hook in hooks.iter().filter(|hook| hook.is_for(tool)) {
            if !asked.iter().any(|other| other.command == hook.command) {
                asked.push(hook);
            }
        }
        let answers = join_all(asked.iter().map(|hook| run::ask(hook, program, dir, input))).await;
        let named = asked.into_iter().zip(answers).filter_map(|(hook, answer)| match answer {
            Ok(answer) => Some((&hook.name, answer)),
            Err(why) => {
                tracing::warn!(hook = %hook.name, tool, "a hook was ignored: {why}");
                None
            }
        });
        answer::merge(named)
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Commands may hold secrets.
        f.debug_struct("Hooks").field("hooks", &self.settings.hooks.len()).finish_non_exhaustive()
    }
}

#[async_trait]
impl ToolLayer for Hooks {
    async fn before(&self, spec: &ToolSpec, arguments: &mut Value, cx: &RunContext) -> Result<LayerVerdict> {
        let tool = spec.name();
        let Some(call) = cx.call().filter(|_| cx.parent().is_none()) else { return Ok(LayerVerdict::Pass) };
        if !self.settings.hooks.iter().any(|hook| hook.is_for(tool)) {
            return Ok(LayerVerdict::Pass);
        }
        let asked = Digest::of([tool.as_bytes(), arguments.to_string().as_bytes()]);
        let merged = match self.known(&call, asked) {
            Some(merged) => merged,
            None => {
                let input = self.input(tool, arguments, &call, cx);
                tokio::select! {
                    biased;
                    () = cx.cancellation().cancelled() => return Err(Error::cancelled()),
                    merged = self.ask(tool, input.as_bytes()) => merged,
                }
            }
        };
        if merged.halt {
            return Ok(LayerVerdict::Stop(merged.refusal()));
        }
        if merged.decision == Decision::Deny {
            return Ok(LayerVerdict::Refuse(merged.refusal()));
        }
        if let Value::Object(fields) = arguments {
            fields.extend(merged.arguments.clone());
        }
        let verdict = match merged.decision {
            Decision::Allow => LayerVerdict::Allow(merged.allowed()),
            _ => LayerVerdict::Pass,
        };
        self.keep(Kept { call, asked, merged });
        Ok(verdict)
    }

    fn is_once(&self) -> bool {
        true
    }

    async fn around(&self, next: NextCall<'_>) -> Result<ToolOutput, ToolError> {
        let call = next.context().run().call();
        let is_it = |kept: &Kept| Some(&kept.call) == call.as_ref();
        let note = self.kept().iter().find(|kept| is_it(kept)).and_then(|kept| kept.merged.note());
        let result = next.run().await;
        // A fatal error may be a pause, after which the call goes on.
        if !matches!(result, Err(ToolError::Fatal(_))) {
            self.kept().retain(|kept| !is_it(kept));
        }
        let Some(note) = note else { return result };
        match result {
            Ok(mut output) => {
                output.content.push(Content::Text(note));
                Ok(output)
            }
            Err(ToolError::Tell(text)) => Err(ToolError::Tell(format!("{text}\n\n{note}"))),
            Err(fatal) => Err(fatal),
        }
    }
}
