//! Limits of a command's processes, set by the shell that becomes the command.
//!
//! A limit that this program sets on the child comes too late for a child that forks at once. A limit that it sets on
//! itself holds for all of its threads. The shell sets its own, and nothing of the command has run by then.

use std::ffi::OsStr;

use entourage_core::{Error, ErrorKind};
use tokio::process::Command;

use crate::sandbox::settings::Settings;

pub(super) const SHELL: &str = "/bin/sh";

/// The commands of the shell that set the limits; empty without limits. Where one fails, the command does not start.
pub(super) fn script(settings: &Settings) -> String {
    let mut script = String::new();
    if let Some(bytes) = settings.memory {
        script.push_str(&format!("ulimit -v {} || exit 126; ", bytes / 1024));
    }
    if let Some(bytes) = settings.file_size {
        script.push_str(&format!("ulimit -f {} || exit 126; ", bytes / 512));
    }
    if let Some(count) = settings.processes {
        // The letter differs between shells, and some end at one that they do not know.
        script.push_str(&format!(
            "if (ulimit -u {count}) 2>/dev/null; then ulimit -u {count}; else ulimit -p {count}; fi || exit 126; "
        ));
    }
    script
}

/// Refuses variables that would run code of the command's before the limits are set, or outside of the sandbox.
pub(super) fn check_variables(command: &Command) -> Result<(), Error> {
    let early = |name: &OsStr| {
        let name = name.to_string_lossy();
        ["LD_", "BASH_FUNC_", "DYLD_"].iter().any(|start| name.starts_with(start))
            || ["ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS", "PS4", "GLIBC_TUNABLES", "IFS"].contains(&&*name)
    };
    match command.as_std().get_envs().find(|(name, value)| value.is_some() && early(name)) {
        None => Ok(()),
        Some((name, _)) => Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "the variable `{}` would act before the sandbox does; set it by the command's own script, such as \
                 `env {0}=… program`",
                name.to_string_lossy()
            ),
        )),
    }
}
