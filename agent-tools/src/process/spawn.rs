//! Turns a command line into the command of a child that leads a process group of its own.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Stdio,
};

use tokio::process::Command;

/// The program that reads command lines.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) is_bash: bool,
    /// The program `setsid`, where there is one.
    setsid: Option<PathBuf>,
}

impl Program {
    /// Finds bash, or a plain shell, in the absolute entries of `path` and the usual places.
    pub(crate) fn find(path: Option<OsString>) -> Option<Self> {
        let entries = path.map(|path| std::env::split_paths(&path).collect::<Vec<_>>()).unwrap_or_default();
        let usual = ["/bin", "/usr/bin"].map(PathBuf::from);
        let dirs: Vec<_> = entries.into_iter().filter(|entry| entry.is_absolute()).chain(usual).collect();
        ["bash", "sh"].into_iter().find_map(|name| {
            let name = format!("{name}{}", std::env::consts::EXE_SUFFIX);
            let path = dirs.iter().map(|dir| dir.join(&name)).find(|file| file.is_file())?;
            let setsid = dirs.iter().map(|dir| dir.join("setsid")).find(|file| cfg!(unix) && file.is_file());
            Some(Self { path, is_bash: name.starts_with("bash"), setsid })
        })
    }

    /// Returns the command of this shell as the leader of a process group; [`set`](Self::set) adds all but the program.
    ///
    /// Where it can, it leads a session as well, which has no terminal: so no program waits for a person there, or
    /// types for one.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(self.setsid.as_ref().unwrap_or(&self.path));
        if self.setsid.is_some() {
            command.arg(&self.path);
        } else {
            // With `setsid` this would cost the process its number: who leads a group cannot begin a session.
            #[cfg(unix)]
            command.process_group(0);
        }
        command
    }

    /// Adds what runs `text` in `dir` with the environment `vars` alone. Variables that the command has stay.
    pub(crate) fn set<'c>(
        &self,
        command: &'c mut Command,
        text: &str,
        dir: &Path,
        vars: Vec<(OsString, OsString)>,
    ) -> &'c mut Command {
        let kept = command.as_std().get_envs();
        // The search path is the one of `vars`: it may leave out what a sandbox can read.
        let own = vars.iter().any(|(name, _)| name == "PATH");
        let kept = kept.filter(|(name, _)| !(own && *name == "PATH"));
        let kept = kept.filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
        let kept: Vec<_> = kept.collect();
        if self.is_bash {
            command.args(["--noprofile", "--norc"]);
        }
        // Without the dashes a text that begins with one would be an option.
        command.args(["-c", "--", text]).current_dir(dir).env_clear().envs(vars).envs(kept);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true)
    }
}
