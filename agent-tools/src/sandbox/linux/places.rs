//! The places of the system that a command may read.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::sandbox::settings::Settings;

/// Directories with programs and libraries; those that are links lead into others of them.
pub(super) const PROGRAMS: &[&str] =
    &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"];

/// Facts about the machine that language runtimes look at.
pub(super) const MACHINE: &[&str] =
    &["/sys/devices/system/cpu", "/sys/fs/cgroup", "/sys/kernel/mm/transparent_hugepage"];

/// Devices without state.
pub(super) const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Names in `/etc` that are secret even where their permissions are wrong.
const SECRET: &[&str] = &[
    "shadow",
    "shadow-",
    "gshadow",
    "gshadow-",
    "sudoers",
    "sudoers.d",
    "krb5.keytab",
    "wireguard",
    "kubernetes",
];

const DEPTH: usize = 8;
const ENTRIES: usize = 20_000;

/// A place that not every user may read.
#[derive(Debug)]
pub(super) struct Closed {
    pub(super) path: PathBuf,
    pub(super) is_directory: bool,
}

/// The entries of a directory that every user may read.
#[derive(Debug, Default)]
pub(super) struct Open {
    /// Files, and directories of which everything may be read; none lies below another.
    pub(super) paths: Vec<PathBuf>,
    /// The rest, links left out; none lies below another.
    pub(super) closed: Vec<Closed>,
}

impl Open {
    /// Walks through `/etc`. Permissions alone do not keep root, or a member of a group, from its secrets.
    pub(super) fn etc() -> Self {
        let mut open = Self::default();
        walk(Path::new("/etc"), 0, &mut ENTRIES.clone(), &mut open);
        open
    }

    fn close(&mut self, path: PathBuf, is_directory: bool) {
        self.closed.push(Closed { path, is_directory });
    }
}

/// Adds what may be read of a directory; returns whether that is all of it.
fn walk(directory: &Path, depth: usize, left: &mut usize, open: &mut Open) -> bool {
    let before = open.paths.len();
    let Ok(entries) = fs::read_dir(directory) else {
        open.close(directory.to_owned(), true);
        return false;
    };
    let mut whole = true;
    for entry in entries.flatten() {
        *left = left.saturating_sub(1);
        let (path, name) = (entry.path(), entry.file_name());
        let secret = depth == 0 && SECRET.iter().any(|one| name == *one);
        let Ok(found) = entry.metadata() else { continue };
        if found.is_symlink() {
            continue;
        }
        let shown = !secret && *left > 0;
        if found.is_dir() && shown && found.mode() & 0o005 == 0o005 && depth < DEPTH {
            whole &= walk(&path, depth + 1, left, open);
        } else if found.is_file() && shown && found.mode() & 0o004 != 0 {
            open.paths.push(path);
        } else {
            open.close(path, found.is_dir());
            whole = false;
        }
    }
    if whole && depth > 0 {
        open.paths.truncate(before);
        open.paths.push(directory.to_owned());
    }
    whole
}

/// The files that tell which name servers to ask, where `/etc/resolv.conf` is a link to them.
pub(super) fn resolver() -> impl Iterator<Item = PathBuf> {
    fs::canonicalize("/etc/resolv.conf").into_iter().filter(|path| !path.starts_with("/etc"))
}

/// The directories of a `PATH` that a command of a sandbox may read.
pub(super) fn readable_path(settings: &Settings, path: &OsStr) -> OsString {
    let Some(root) = settings.level.root() else { return path.to_owned() };
    let added = settings.reading.iter().chain(&settings.writing).map(PathBuf::as_path);
    let readable: Vec<PathBuf> = PROGRAMS
        .iter()
        .map(Path::new)
        .chain(added)
        .chain([root])
        .filter_map(|path| fs::canonicalize(path).ok())
        .collect();
    let kept = std::env::split_paths(path).filter(|directory| {
        fs::canonicalize(directory)
            .is_ok_and(|directory| readable.iter().any(|path| directory.starts_with(path)))
    });
    std::env::join_paths(kept).unwrap_or_else(|_| path.to_owned())
}
