//! Landlock: rules on files, signals and sockets that a thread takes on, and every process that it starts.

use std::{os::fd::OwnedFd, path::PathBuf};

use entourage_core::{Error, ErrorKind};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope, make_bitflags,
};
use rustix::{
    fs::{FileType, Mode, OFlags},
    thread::{CapabilitySet, CapabilitySets},
};

use super::places::{self, Open};
use crate::sandbox::{
    resolved::{Place, Places},
    settings::{Level, Network, Settings},
};

/// The newest interface that was tested here. Rights of newer ones stay as they are.
const TESTED: ABI = ABI::V7;

/// Capabilities that root keeps: work on files of several owners, and becoming another user.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::NET_BIND_SERVICE);

/// Rules that the kernel took on.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) abi: u32,
    pub(super) gaps: Vec<String>,
}

/// The rules of a sandbox. Without `best_effort`, a kernel that lacks a part of them is an error.
pub(super) fn rules(settings: &Settings, found: &Places, temp: &Place) -> Result<RulesetCreated, Error> {
    if let Network::Hosts(_) = settings.network {
        let message =
            "Landlock cannot keep commands to some hosts; install bubblewrap for that, or leave out `hosts`";
        return Err(Error::new(ErrorKind::Unsupported, message).during("sandbox.prepare"));
    }
    let level = if settings.best_effort { CompatLevel::BestEffort } else { CompatLevel::HardRequirement };
    let missing = |error: landlock::RulesetError| {
        let hint = if settings.best_effort {
            "update the kernel, or install bubblewrap"
        } else {
            "update it, install bubblewrap, or accept a part with `best_effort`"
        };
        let message = format!("this kernel does not enforce all of Landlock that the sandbox needs; {hint}");
        Error::new(ErrorKind::Unsupported, message).during("sandbox.prepare").caused_by(error)
    };
    let mut ruleset =
        Ruleset::default().set_compatibility(level).scope(Scope::from_all(TESTED)).map_err(missing)?;
    if settings.network == Network::None {
        ruleset = ruleset.handle_access(AccessNet::from_all(TESTED)).map_err(missing)?;
    }
    let Some(root) = &found.root else { return ruleset.create().map_err(missing) };
    ruleset = ruleset.handle_access(AccessFs::from_all(TESTED)).map_err(missing)?;
    let mut created = ruleset.create().map_err(missing)?;
    let mut grant = |opened: OwnedFd, access| -> Result<(), Error> {
        let is_directory = rustix::fs::fstat(&opened)
            .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory);
        let access = if is_directory { access } else { access & AccessFs::from_file(TESTED) };
        (&mut created).add_rule(PathBeneath::new(opened, access)).map(drop).map_err(missing)
    };
    for (path, access) in of_the_system(settings) {
        if let Ok(opened) = rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            grant(opened, access)?;
        }
    }
    let (read, write) = (AccessFs::from_read(TESTED), write());
    let at_root = if matches!(settings.level, Level::WorkspaceWrite(_)) { write } else { read };
    let reading = found.reading.iter().map(|place| (place, read));
    let writing = found.writing.iter().map(|place| (place, write));
    for (place, access) in [(root, at_root), (temp, write)].into_iter().chain(reading).chain(writing) {
        grant(place.open(OFlags::PATH)?, access)?;
    }
    Ok(created)
}

fn write() -> BitFlags<AccessFs> {
    AccessFs::from_all(TESTED) & !make_bitflags!(AccessFs::{MakeChar | MakeBlock | IoctlDev})
}

/// Places of the system with their rights. One that is missing is left out.
fn of_the_system(settings: &Settings) -> Vec<(PathBuf, BitFlags<AccessFs>)> {
    let read = AccessFs::from_read(TESTED);
    let device = make_bitflags!(AccessFs::{ReadFile | WriteFile | Truncate | IoctlDev});
    let system = places::PROGRAMS.iter().chain(places::MACHINE).chain(&["/proc"]);
    let mut places: Vec<_> = system.map(|path| (PathBuf::from(path), read)).collect();
    places.extend(Open::etc().paths.into_iter().map(|path| (path, read)));
    places.push((PathBuf::from("/etc"), AccessFs::ReadDir.into()));
    places.extend(places::DEVICES.iter().map(|path| (PathBuf::from(path), device)));
    if settings.network == Network::All {
        places.extend(places::resolver().map(|path| (path, read)));
    }
    places
}

/// Confines the calling thread, for good.
pub(super) fn restrict(rules: RulesetCreated, best_effort: bool) -> Result<Held, Error> {
    drop_capabilities().map_err(|error| {
        Error::new(ErrorKind::Io, "the rights of root could not be given up").caused_by(error)
    })?;
    let status = rules.restrict_self().map_err(|error| {
        Error::new(ErrorKind::Io, "the kernel refused the rules of the sandbox").caused_by(error)
    })?;
    let abi = match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => effective_abi as u32,
        _ => 0,
    };
    let enough = match status.ruleset {
        RulesetStatus::FullyEnforced => true,
        RulesetStatus::PartiallyEnforced => best_effort,
        RulesetStatus::NotEnforced => false,
    };
    if !enough || !status.no_new_privs {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "the kernel enforces the sandbox's rules only in part ({:?}); nothing was started",
                status.ruleset
            ),
        ));
    }
    let gaps = [
        (3, "files that the command may not write can be truncated"),
        (5, "devices can be controlled"),
        (6, "processes outside of the sandbox can be signalled, and abstract sockets reached"),
    ];
    let gaps = gaps.iter().filter(|(since, _)| abi < *since).map(|(_, gap)| (*gap).to_owned()).collect();
    Ok(Held { abi, gaps })
}

/// Root's rights over the system would outlive the rules on files: reading memory, devices, other processes.
fn drop_capabilities() -> rustix::io::Result<()> {
    let held = rustix::thread::capabilities(None)?;
    if held.permitted.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().difference(KEPT).iter() {
            // The kernel may not know the newest ones.
            match rustix::thread::remove_capability_from_bounding_set(capability) {
                Ok(()) | Err(rustix::io::Errno::INVAL) => {}
                Err(error) => return Err(error),
            }
        }
    }
    rustix::thread::clear_ambient_capability_set()?;
    let (effective, permitted) = (held.effective.intersection(KEPT), held.permitted.intersection(KEPT));
    let sets = CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets)
}
