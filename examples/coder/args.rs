//! The command line, parsed before anything happens.

use std::{
    env,
    path::{Path, PathBuf},
};

use entourage::{SessionId, permission::Preset};

pub(crate) const USAGE: &str = "usage: coder [--dir DIR] [--mode read|ask|edit|full] [--model vendor:model] \
    [--state DIR] [--resume ID] [\"task\"]";

#[derive(Debug)]
pub(crate) enum Task {
    Given(String),
    /// Goes on with the session that is resumed.
    Continue,
    Demo,
}

#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) dir: PathBuf,
    pub(crate) mode: Preset,
    pub(crate) model: Option<String>,
    pub(crate) state: PathBuf,
    pub(crate) resume: Option<SessionId>,
    pub(crate) task: Task,
}

impl Args {
    /// Parses the arguments behind the program's name. The error is for people.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let (mut dir, mut mode, mut model, mut state, mut resume, mut task) = Default::default();
        while let Some(word) = words.next() {
            let place = match word.as_str() {
                "--dir" => &mut dir,
                "--mode" => &mut mode,
                "--model" => &mut model,
                "--state" => &mut state,
                "--resume" => &mut resume,
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
        let task = match task {
            Some(task) => Task::Given(task),
            None if resume.is_some() => Task::Continue,
            None => Task::Demo,
        };
        let usual = if matches!(task, Task::Demo) { Preset::Edit } else { Preset::Ask };
        Ok(Self {
            dir: dir.map_or_else(|| Path::new(".").to_owned(), PathBuf::from),
            mode: mode.map_or(Ok(usual), |name: String| name.parse()).map_err(text)?,
            model,
            state: state.map_or_else(usual_state, PathBuf::from),
            resume,
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
