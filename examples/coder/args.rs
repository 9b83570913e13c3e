//! The command line, parsed before anything happens.

use std::{
    env, fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use entourage::{RunId, SessionId, permission::Preset};

pub(crate) const USAGE: &str = "usage: coder [--dir DIR] [--mode read|plan|ask|edit|full] [--model vendor:model] \
    [--state DIR] [--lsp] [--resume ID [--rewind RUN]] [\"task\"]";

/// What `--help` shows behind the usage.
pub(crate) const HELP: &str = "\
--lsp tells the language servers that are on the PATH of each change, and has tools that ask them: rust-analyzer, \
basedpyright, pyright, gopls, clangd, typescript-language-server. They run outside of the sandbox, and many run code of the \
project: use it where you trust the project.";

#[derive(Debug)]
pub(crate) enum Task {
    Given(String),
    /// Goes on with the session that is resumed.
    Continue,
    /// Only takes back what `--rewind` names.
    Rewind,
    Demo,
}

/// The rights of the agent, and whether it presents a plan first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mode {
    pub(crate) preset: Preset,
    pub(crate) plans: bool,
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if name == "plan" {
            // Who approves a plan approves its changes of files.
            return Ok(Self { preset: Preset::Edit, plans: true });
        }
        let preset = name
            .parse()
            .map_err(|_| format!("there is no mode `{name}`; use read, plan, ask, edit or full"))?;
        Ok(Self { preset, plans: false })
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.plans { "plan" } else { self.preset.name() })
    }
}

#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) dir: PathBuf,
    pub(crate) mode: Mode,
    pub(crate) model: Option<String>,
    pub(crate) state: PathBuf,
    /// True to use language servers.
    pub(crate) lsp: bool,
    pub(crate) resume: Option<SessionId>,
    /// The run whose prompt is taken back, with all that came after it.
    pub(crate) rewind: Option<RunId>,
    pub(crate) task: Task,
}

impl Args {
    /// Parses the arguments behind the program's name. The error is for people.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let (mut dir, mut mode, mut model, mut state, mut resume, mut rewind, mut task) = Default::default();
        let mut lsp = false;
        while let Some(word) = words.next() {
            let place = match word.as_str() {
                "--dir" => &mut dir,
                "--mode" => &mut mode,
                "--model" => &mut model,
                "--state" => &mut state,
                "--resume" => &mut resume,
                "--rewind" => &mut rewind,
                "--lsp" => {
                    lsp = true;
                    continue;
                }
                option if option.starts_with('-') => return Err(format!("there is no option `{option}`")),
                _ if word.trim().is_empty() => return Err("the task is empty".to_owned()),
                _ => {
                    task = Some(word);
                    continue;
                }
            };
            let value: Option<String> = words.next();
            *place = Some(value.ok_or_else(|| format!("{word} needs a value"))?);
        }
        let text = |error: entourage::Error| error.message().to_owned();
        let resume = resume.map(SessionId::new).transpose().map_err(text)?;
        let rewind = rewind.map(|run: String| RunId::parse(&run)).transpose().map_err(text)?;
        if rewind.is_some() && resume.is_none() {
            return Err("--rewind takes a run of the session that --resume names".to_owned());
        }
        let task = match task {
            Some(task) => Task::Given(task),
            None if rewind.is_some() => Task::Rewind,
            None if resume.is_some() => Task::Continue,
            None => Task::Demo,
        };
        let preset = if matches!(task, Task::Demo) { Preset::Edit } else { Preset::Ask };
        Ok(Self {
            dir: dir.map_or_else(|| Path::new(".").to_owned(), PathBuf::from),
            mode: mode.map_or(Ok(Mode { preset, plans: false }), |name: String| name.parse())?,
            model,
            state: state.map_or_else(usual_state, PathBuf::from),
            lsp,
            resume,
            rewind,
            task,
        })
    }
}

/// The user's folder for state, else one for temporary files.
fn usual_state() -> PathBuf {
    let own = env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || Some(env::home_dir()?.join(".local/state"));
    own.or_else(home).unwrap_or_else(env::temp_dir).join("entourage-coder")
}
