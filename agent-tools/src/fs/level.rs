//! Directory reading: one level with its ignore rules applied, and the walk over all files below a place.
//!
//! Links are named and never followed; each directory is opened through the workspace's handle. Entries that the rules
//! of the call hide are left out here, for every tool that walks.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use cap_std::fs::{DirEntry, FileType};

use super::{
    rules::{Rules, Verdict},
    sight::{Sight, Start},
    stop::{Halt, Stop},
};

/// Type of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Dir,
    Link,
    /// A pipe, a socket or a device.
    Special,
}

impl From<FileType> for Kind {
    fn from(kind: FileType) -> Self {
        if kind.is_dir() {
            Self::Dir
        } else if kind.is_file() {
            Self::File
        } else if kind.is_symlink() {
            Self::Link
        } else {
            Self::Special
        }
    }
}

fn kind(entry: &DirEntry) -> Option<Kind> {
    match entry.file_type().map(Kind::from) {
        // Some file systems do not tell the type in the listing.
        Ok(Kind::Special) | Err(_) => entry.metadata().ok().map(|metadata| metadata.file_type().into()),
        Ok(kind) => Some(kind),
    }
}

/// An entry that is neither hidden nor ignored.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
    /// Modification time, for files, if requested and known.
    pub(super) modified: Option<SystemTime>,
}

/// Options for reading directories.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Include {
    pub(super) hidden: bool,
    /// True to read the modification times of files.
    pub(super) times: bool,
}

/// Entries of one directory by name, with the rules that hold below it.
#[derive(Debug)]
pub(super) struct Level {
    pub(super) rules: Arc<Rules>,
    pub(super) entries: Vec<Entry>,
}

impl Level {
    /// Reads `dir`, which is the start or a directory below it. `above` are the rules of the directories above.
    /// `Ok(None)` if the system does not allow it or `dir` is no longer a directory. Only the start may be a link,
    /// within the root, since the model named it.
    pub(super) fn read(
        sight: &Sight<'_>,
        start: &Start,
        dir: &Path,
        above: Option<Arc<Rules>>,
        include: Include,
        stop: &Stop,
    ) -> Result<Option<Self>, Halt> {
        stop.check()?;
        let Ok(listing) = sight.open_dir(start, dir).and_then(|dir| dir.entries()) else { return Ok(None) };
        let mut found: Vec<(OsString, Kind, Option<SystemTime>)> = Vec::new();
        for entry in listing {
            stop.check()?;
            let Ok(entry) = entry else { continue };
            let Some(kind) = kind(&entry) else { continue };
            let asked = include.times && kind == Kind::File;
            let modified = asked.then(|| entry.metadata().ok()?.modified().ok()).flatten();
            found.push((entry.file_name(), kind, modified.map(cap_std::time::SystemTime::into_std)));
        }
        found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let has = |name: &str| found.binary_search_by(|(it, ..)| it.as_os_str().cmp(name.as_ref())).is_ok();
        let rules = Rules::read(sight.workspace(), dir, above, has);
        let entries = found
            .into_iter()
            .filter_map(|(name, kind, modified)| {
                let path = dir.join(&name);
                let hidden = name.as_encoded_bytes().starts_with(b".") && !include.hidden;
                let shown = match rules.judge(&path, kind == Kind::Dir) {
                    Verdict::Ignore => false,
                    Verdict::Keep => true,
                    Verdict::Silent => !hidden,
                };
                (shown && sight.shows(start, &path, kind)).then_some(Entry { path, kind, modified })
            })
            .collect();
        Ok(Some(Self { rules, entries }))
    }
}

/// Iterates over all entries below a place that are not directories, by name, depth first.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    sight: &'a Sight<'a>,
    start: &'a Start,
    stop: &'a Stop,
    include: Include,
    left: Vec<(Entry, Arc<Rules>)>,
    /// Directories that could not be read.
    pub(super) unreadable: usize,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        sight: &'a Sight<'a>,
        start: &'a Start,
        include: Include,
        stop: &'a Stop,
    ) -> Result<Self, Halt> {
        let mut walk = Self { sight, start, stop, include, left: Vec::new(), unreadable: 0 };
        let above = Rules::above(sight.workspace(), &start.path);
        let level = Level::read(sight, start, &start.path, above, include, stop)?;
        walk.push(level);
        Ok(walk)
    }

    fn push(&mut self, level: Option<Level>) {
        match level {
            Some(Level { rules, entries }) => {
                self.left.extend(entries.into_iter().rev().map(|entry| (entry, Arc::clone(&rules))));
            }
            None => self.unreadable += 1,
        }
    }

    /// The next entry that is not a directory.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Halt> {
        while let Some((entry, rules)) = self.left.pop() {
            self.stop.check()?;
            if entry.kind != Kind::Dir {
                return Ok(Some(entry));
            }
            // The internal files of a repository are not part of the tree, even where hidden names are shown.
            if entry.path.file_name().is_some_and(|name| name == ".git") {
                continue;
            }
            let level =
                Level::read(self.sight, self.start, &entry.path, Some(rules), self.include, self.stop)?;
            self.push(level);
        }
        Ok(None)
    }
}
