//! The sandbox of one run: no wider than the scope of that run.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Mutex, PoisonError},
};

use entourage_core::permission::Scope;

use super::{Sandbox, settings::Network};

/// Most sets of hosts for which a sandbox of their own is kept.
const SETS: usize = 16;

/// Sandboxes of runs whose scope has fewer hosts than the sandbox of the shell. Each is prepared once.
#[derive(Debug, Default)]
pub(crate) struct Narrowed(Mutex<Vec<(BTreeSet<String>, Sandbox)>>);

impl Narrowed {
    /// The sandbox for the commands of a run, which was admitted with all that [`Sandbox::reached`] names.
    ///
    /// # Errors
    /// The text for the model: what the sandbox opens beyond the run's scope.
    pub(crate) fn of(&self, own: &Sandbox, scope: &Scope) -> Result<Sandbox, String> {
        let Some(hosts) = scope.hosts() else { return Ok(own.clone()) };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, sandbox)) = known.iter().find(|(known, _)| known == hosts) {
            return Ok(sandbox.clone());
        }
        let sandbox = own.within(hosts)?;
        if known.len() >= SETS {
            known.remove(0);
        }
        known.push((hosts.clone(), sandbox.clone()));
        Ok(sandbox)
    }
}

impl Sandbox {
    /// All paths that commands can reach, system directories aside, as subjects from `base`: `/` where these are not
    /// known. Blocks for the time of a few file system calls.
    pub(crate) fn reached(&self, base: &Path) -> Vec<String> {
        let (settings, everything) = (&self.settings, || vec!["/".to_owned()]);
        if settings.level.root().is_none() || settings.unix_sockets {
            return everything();
        }
        let Ok(places) = self.base.places(settings) else { return everything() };
        let named = |path: &Path| match path.strip_prefix(base) {
            Ok(below) if below.as_os_str().is_empty() => ".".to_owned(),
            Ok(below) => below.to_string_lossy().into_owned(),
            Err(_) => path.to_string_lossy().into_owned(),
        };
        places.all().map(named).collect()
    }

    /// The same sandbox with at most these hosts.
    fn within(&self, hosts: &BTreeSet<String>) -> Result<Self, String> {
        let settings = &self.settings;
        if settings.unix_sockets {
            let held = hosts.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(format!(
                "the sandbox of `bash` opens the sockets of services to commands, and this agent's scope holds these \
                 hosts only: {held}"
            ));
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
