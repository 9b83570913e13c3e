//! The sandbox of one run: no wider than the scope of that run.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Mutex, PoisonError},
};

use entourage_core::{
    permission::Scope,
    tool::{Access, Footprint, ToolSpec},
};
use serde_json::Value;

use super::{Sandbox, settings::Network};

/// Most scopes for which a sandbox of their own is kept.
const SCOPES: usize = 16;

/// Sandboxes of runs whose scope is narrower than the sandbox of the shell. Each is prepared once.
#[derive(Debug, Default)]
pub(crate) struct Narrowed(Mutex<Vec<(Scope, Sandbox)>>);

impl Narrowed {
    /// The sandbox for the commands of a run.
    ///
    /// # Errors
    /// The text for the model: the places that the sandbox opens beyond the run's scope.
    pub(crate) fn of(&self, own: &Sandbox, scope: &Scope, base: &Path) -> Result<Sandbox, String> {
        if scope.roots().is_none() && scope.hosts().is_none() {
            return Ok(own.clone());
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, sandbox)) = known.iter().find(|(known, _)| known == scope) {
            return Ok(sandbox.clone());
        }
        let sandbox = own.within(scope, base)?;
        if known.len() >= SCOPES {
            known.remove(0);
        }
        known.push((scope.clone(), sandbox.clone()));
        Ok(sandbox)
    }
}

impl Sandbox {
    /// The same sandbox with at most the hosts of `scope`. What it opens of the file system must lie within the roots
    /// of `scope`, which are named as from `base`; system directories are left out of that.
    ///
    /// # Errors
    /// The text for the model: what the sandbox opens beyond the scope.
    fn within(&self, scope: &Scope, base: &Path) -> Result<Self, String> {
        let settings = &self.settings;
        if let Some(roots) = scope.roots() {
            if settings.level.root().is_none() {
                return Err(beyond("all files", "paths", roots));
            }
            if settings.unix_sockets {
                return Err(beyond("the sockets of services", "paths", roots));
            }
            // The start tells which place cannot be resolved.
            let Ok(places) = self.base.places(settings) else { return Ok(self.clone()) };
            let probe = ToolSpec::new("sandbox", "", Value::Null).with_access(Access::READ).naming_subjects();
            let held = Scope::all().with_roots(roots);
            for path in places.all() {
                let named = path.strip_prefix(base).unwrap_or(path);
                let footprint = Footprint::new(Access::READ).reading(named.to_string_lossy());
                if held.admits(&probe, &footprint).is_err() {
                    return Err(beyond(&format!("`{}`", path.display()), "paths", roots));
                }
            }
        }
        let Some(hosts) = scope.hosts() else { return Ok(self.clone()) };
        if settings.unix_sockets {
            return Err(beyond("the sockets of services", "hosts", hosts));
        }
        let held = match &settings.network {
            Network::None => return Ok(self.clone()),
            Network::Hosts(own) => own.narrow(&Scope::all().with_hosts(hosts)),
            Network::All => Scope::all().with_hosts(hosts),
        };
        let is_same = matches!(&settings.network, Network::Hosts(own) if *own == held);
        Ok(if is_same { self.clone() } else { self.with_hosts_of(&held) })
    }
}

fn beyond(opened: &str, what: &str, held: &BTreeSet<String>) -> String {
    let held = held.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    format!(
        "the sandbox of `bash` opens {opened} to commands, and this agent's scope holds these {what} only: {held}"
    )
}
