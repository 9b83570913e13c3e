//! The places of a workspace as they stand, to tell what changed between two looks.

use std::{collections::BTreeMap, io, path::PathBuf};

use serde::Serialize;

use super::{
    rules::Rules,
    seen::Stamp,
    snapshots::{Found, scan},
    workspace::Workspace,
};

/// Most places of a workspace that are looked at, and most that are listed.
const MOST: usize = 50_000;
const LISTED: usize = 100;

/// The places of a workspace that are not ignored, with what tells another content.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Places(BTreeMap<PathBuf, Option<Stamp>>);

/// The places that differ between two looks, by their paths below the root.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Changes {
    created: Vec<String>,
    modified: Vec<String>,
    deleted: Vec<String>,
    /// Number of those that are not listed.
    more: usize,
}

impl Places {
    /// Looks at a workspace. `None` if it cannot be read, or has too many places. Blocks.
    pub(crate) fn of(workspace: &Workspace) -> Option<Self> {
        Self::up_to(workspace, MOST).ok()
    }

    fn up_to(workspace: &Workspace, most: usize) -> io::Result<Self> {
        let mut places = BTreeMap::new();
        let rules = |dir: &std::path::Path, above, has: &dyn Fn(&str) -> bool| {
            Ok(Rules::read(workspace, dir, above, has))
        };
        scan(
            workspace,
            rules,
            |_| false,
            |path, found, dir| {
                let stamp = match found {
                    Found::File(meta) => Some(Stamp::of_entry(&meta)),
                    Found::Link => {
                        let meta = path.file_name().and_then(|name| dir.symlink_metadata(name).ok());
                        meta.map(|meta| Stamp::of_entry(&meta))
                    }
                    Found::Dir(_) | Found::Closed | Found::Other => None,
                };
                places.insert(path.to_owned(), stamp);
                if places.len() > most { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(()) }
            },
        )?;
        Ok(Self(places))
    }

    /// Tells what is different in a later look.
    pub(crate) fn changes_to(&self, later: &Self) -> Changes {
        let mut changes = Changes::default();
        let mut listed = 0;
        let mut list = |to: &mut Vec<String>, path: &PathBuf| {
            listed += 1;
            if listed <= LISTED {
                to.push(path.to_string_lossy().into_owned());
            } else {
                changes.more += 1;
            }
        };
        for (path, now) in &later.0 {
            match self.0.get(path) {
                None => list(&mut changes.created, path),
                Some(before) if before != now => list(&mut changes.modified, path),
                Some(_) => {}
            }
        }
        for path in self.0.keys().filter(|path| !later.0.contains_key(*path)) {
            list(&mut changes.deleted, path);
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issue_14_too_many_places_are_unknown_and_too_many_changes_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(dir.path()).unwrap();
        let before = Places::of(&workspace).unwrap();
        for number in 0..LISTED + 5 {
            std::fs::write(dir.path().join(format!("{number:04}")), "").unwrap();
        }
        let after = Places::of(&workspace).unwrap();
        let changes = before.changes_to(&after);
        assert_eq!((changes.created.len(), changes.more), (LISTED, 5));
        assert_eq!(after.changes_to(&after), Changes::default());
        assert!(Places::up_to(&workspace, 10).is_err());
    }
}
