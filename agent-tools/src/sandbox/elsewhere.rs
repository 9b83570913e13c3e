//! The stand-in for the sandbox on systems that have none: each start is a typed error.

use std::{ffi::OsString, path::PathBuf, sync::Arc};

use entourage_core::{Error, ErrorKind};
use tokio::process::{Child, Command};

use super::{Enforced, resolved::Base, settings::Settings};

#[derive(Debug)]
pub(super) struct Prepared(std::convert::Infallible);

#[derive(Debug, Default)]
pub(super) struct Shared;

#[derive(Debug)]
pub(super) struct Watch;

impl Watch {
    #[allow(clippy::unused_self, reason = "no watch is ever made here")]
    pub(super) fn restore(&self) -> Result<Vec<PathBuf>, Error> {
        Ok(Vec::new())
    }
}

#[derive(Debug, Clone)]
pub(super) struct Keeper;

#[allow(clippy::unused_self, reason = "no keeper is ever made here")]
impl Keeper {
    pub(super) fn end_all(&self) -> bool {
        true
    }

    #[cfg(feature = "shell")]
    pub(super) fn order_end(&self) {}
}

#[allow(clippy::unused_async, reason = "it awaits where there is a sandbox")]
pub(super) async fn prepare(_: &Settings, _: &Arc<Base>) -> Result<Prepared, Error> {
    Err(Error::new(
        ErrorKind::Unsupported,
        "there is no sandbox for this system, only for Linux on x86-64 and arm64; run the command on such a machine, \
         or start it without a sandbox",
    ))
}

#[allow(clippy::unused_async, reason = "it awaits where there is a sandbox")]
pub(super) async fn spawn(
    _: &Settings,
    prepared: &Arc<Prepared>,
    _: OsString,
    _: impl FnOnce(&mut Command) -> &mut Command,
) -> Result<(Child, Enforced), Error> {
    match prepared.0 {}
}

pub(super) fn kill_tree(_: u32) {}
