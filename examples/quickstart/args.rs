//! The command line: parsed before anything happens, and written again as the command that continues a session.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
};

use entourage::prelude::{SessionId, Workspace};

pub(crate) const USAGE: &str =
    "usage: quickstart [--dir DIR] [--sessions DIR] [--model vendor:model] [--resume ID] [\"question\"]";

const QUESTION: &str = "What is this project, and which file here is the longest?";

/// The question in an old session, if none is asked.
pub(crate) const GO_ON: &str = "Please go on.";

#[derive(Debug, Default)]
pub(crate) struct Args {
    dir: Option<PathBuf>,
    sessions: Option<PathBuf>,
    question: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) resume: Option<SessionId>,
    pub(crate) help: bool,
}

impl Args {
    /// Parses the arguments behind the program's name. The error is one line for people.
    pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut args = Self::default();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let word = word.into_string().map_err(|word| format!("{} is no Unicode", word.display()))?;
            match word.as_str() {
                "-h" | "--help" => args.help = true,
                "--dir" => args.dir = Some(value(&word, words.next())?.into()),
                "--sessions" => args.sessions = Some(value(&word, words.next())?.into()),
                "--model" => args.model = Some(text(&word, words.next())?),
                "--resume" => args.resume = Some(session(&text(&word, words.next())?)?),
                option if option.starts_with('-') => return Err(format!("there is no option `{option}`")),
                question if question.trim().is_empty() => return Err("the question is empty".to_owned()),
                _ if args.question.is_some() => {
                    return Err("one question at a time; put it in quotes".to_owned());
                }
                _ => args.question = Some(word),
            }
        }
        Ok(args)
    }

    /// The directory to explore, opened so that nothing outside it can be reached.
    pub(crate) fn workspace(&self) -> Result<Workspace, String> {
        let dir = self.dir.as_deref().unwrap_or(Path::new("."));
        Workspace::open(dir).map_err(|error| error.message().to_owned())
    }

    /// The directory of the sessions: beside the program, which cargo puts below `target`, so that no other directory
    /// is touched and `cargo clean` removes it.
    pub(crate) fn sessions(&self) -> PathBuf {
        let beside = || Some(env::current_exe().ok()?.with_file_name("quickstart-sessions"));
        self.sessions.clone().or_else(beside).unwrap_or_else(|| env::temp_dir().join("quickstart-sessions"))
    }

    /// The question to ask. In an old session the default is to continue.
    pub(crate) fn question(&self) -> &str {
        let default = if self.resume.is_some() { GO_ON } else { QUESTION };
        self.question.as_deref().unwrap_or(default)
    }

    pub(crate) fn has_question(&self) -> bool {
        self.question.is_some()
    }

    /// The command that continues `session`, options included.
    pub(crate) fn again(&self, session: &SessionId) -> String {
        let mut command = program();
        let dir = self.dir.as_ref().map(|dir| dir.display().to_string());
        let sessions = self.sessions.as_ref().map(|sessions| sessions.display().to_string());
        let options = [("--dir", dir), ("--sessions", sessions), ("--model", self.model.clone())];
        for (option, value) in options {
            if let Some(value) = value {
                command.push_str(&format!(" {option} {}", quoted(&value)));
            }
        }
        format!("{command} --resume {session}")
    }
}

fn value(option: &str, next: Option<OsString>) -> Result<OsString, String> {
    next.filter(|value| !value.is_empty()).ok_or_else(|| format!("{option} needs a value"))
}

fn text(option: &str, next: Option<OsString>) -> Result<String, String> {
    value(option, next)?.into_string().map_err(|value| format!("{} is no Unicode", value.display()))
}

fn session(id: &str) -> Result<SessionId, String> {
    SessionId::new(id).map_err(|error| error.message().to_owned())
}

/// The command that started this program: through cargo from its package's directory, or by its path.
fn program() -> String {
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    if package.is_some() && package == env::current_dir().ok() {
        return "cargo run --example quickstart --".to_owned();
    }
    quoted(&env::args().next().unwrap_or_else(|| "quickstart".to_owned()))
}

/// The word, quoted for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-:=@%+,".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}
