//! The start of a command, behind the sandbox, if there is one.

use std::{ffi::OsString, path::Path, sync::Arc};

use entourage_core::Error;
use tokio::process::{Child, Command};

use super::watchdog::{self, Care, Watchdog};
use crate::process::{group::Group, spawn::Program};
#[cfg(feature = "sandbox")]
pub(super) use crate::sandbox::{Enforced, Narrowed, Sandbox};

#[cfg(not(feature = "sandbox"))]
pub(super) use without::{Enforced, Narrowed, Sandbox};

/// A child, its group, and what a sandbox holds for it.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) child: Child,
    pub(super) group: Group,
    pub(super) enforced: Option<Enforced>,
    /// Ends it where this program is killed.
    pub(super) care: Care,
}

/// Starts `text` in `dir` with the environment `vars` alone, as the leader of a process group.
///
/// # Errors
/// Those of the system, and of the sandbox: then the command has not begun.
pub(super) async fn start(
    watchdog: &Arc<Watchdog>,
    program: &Program,
    sandbox: Option<&Sandbox>,
    text: &str,
    dir: &Path,
    vars: Vec<(OsString, OsString)>,
) -> Result<Started, Error> {
    let set = |command: &mut Command| {
        watchdog::gate(command, program);
        program.set(command, text, dir, vars).stdin(watchdog::held_back());
    };
    let (mut child, enforced) = match sandbox {
        None => {
            let mut command = program.command();
            set(&mut command);
            (command.spawn().map_err(Error::from)?, None)
        }
        Some(sandbox) => {
            let started = sandbox.spawn(&program.path, |command| {
                set(command);
                command
            });
            let (child, enforced) = started.await?;
            (child, Some(enforced))
        }
    };
    let group = Group::of(&child);
    let care = watchdog.release(program, &mut child).inspect_err(|_| group.kill())?;
    Ok(Started { child, group, enforced, care })
}

/// Types of which no value exists: without the feature no shell has a sandbox.
#[cfg(not(feature = "sandbox"))]
mod without {
    use std::{
        ffi::OsStr,
        path::{Path, PathBuf},
    };

    use entourage_core::{Error, permission::Scope};
    use tokio::process::{Child, Command};

    #[derive(Debug, Clone)]
    pub(crate) enum Sandbox {}

    #[derive(Debug, Clone, serde::Serialize)]
    pub(crate) enum Enforced {}

    #[derive(Debug, Default)]
    pub(crate) struct Narrowed(());

    impl Narrowed {
        #[allow(clippy::unused_self, reason = "the one of the feature keeps sandboxes")]
        pub(crate) fn of(&self, own: &Sandbox, _: &Scope) -> Result<Sandbox, String> {
            match *own {}
        }
    }

    impl Sandbox {
        pub(crate) fn reached(&self, _: &Path) -> Vec<String> {
            match *self {}
        }

        pub(crate) fn is_without_network(&self) -> bool {
            match *self {}
        }

        #[allow(clippy::unused_async, reason = "the one of the feature awaits")]
        pub(crate) async fn spawn(
            &self,
            _: impl AsRef<OsStr>,
            _: impl FnOnce(&mut Command) -> &mut Command,
        ) -> Result<(Child, Enforced), Error> {
            match *self {}
        }
    }

    impl Enforced {
        pub(crate) fn refused(&self) -> Vec<String> {
            match *self {}
        }

        pub(crate) fn replaced(&self) -> Vec<PathBuf> {
            match *self {}
        }

        pub(crate) fn order_end(&self) {
            match *self {}
        }

        #[allow(clippy::unused_async, reason = "the one of the feature awaits")]
        pub(crate) async fn restore(&self) -> Result<Vec<PathBuf>, Error> {
            match *self {}
        }
    }
}
