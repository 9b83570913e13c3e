//! The sandbox in front of commands, if there is one.

#[cfg(feature = "sandbox")]
pub(super) use crate::sandbox::{Enforced, Sandbox};

#[cfg(not(feature = "sandbox"))]
pub(super) use without::{Enforced, Sandbox};

/// Types of which no value exists: without the feature no shell has a sandbox.
#[cfg(not(feature = "sandbox"))]
mod without {
    use std::{ffi::OsStr, path::PathBuf};

    use entourage_core::Error;
    use tokio::process::{Child, Command};

    #[derive(Debug, Clone)]
    pub(crate) enum Sandbox {}

    #[derive(Debug, Clone, serde::Serialize)]
    pub(crate) enum Enforced {}

    impl Sandbox {
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
        #[allow(clippy::unused_async, reason = "the one of the feature awaits")]
        pub(crate) async fn restore(&self) -> Result<Vec<PathBuf>, Error> {
            match *self {}
        }
    }
}
