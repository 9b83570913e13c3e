//! Makes the workspace what a snapshot says it was.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use cap_std::fs::{Dir, Metadata, Permissions};
use entourage_core::session::Restored;

use super::{
    scan::{Found, Known, link, mode, scan},
    store::Contents,
    tree::{Entry, Tree},
};
use crate::fs::{
    beside::{Beside, Durability},
    rules::Rules,
    text,
    workspace::Workspace,
};

/// The present state of a place.
enum Now {
    Dir(u32),
    File {
        same: bool,
        mode: u32,
    },
    Link(Option<Entry>),
    /// A place that is not looked at or into.
    Closed,
    /// A pipe, a socket or a device.
    Other,
}

/// Restores a tree. Called again after an error, it goes on with what is not restored yet.
pub(super) fn restore(
    workspace: &Workspace,
    tree: &Tree,
    contents: &mut Contents<'_>,
    (known, largest): (&mut Known, u64),
) -> io::Result<Restored> {
    open_up(workspace, tree);
    let now = look(workspace, tree, contents, (known, largest))?;
    let mut restored = Restored::default();
    // What is new, and what has become something else; what is in a directory goes before it.
    for (path, now) in now.iter().rev() {
        let goes = match (now, tree.0.get(path)) {
            (Now::Closed, _) | (Now::Other, None) | (_, Some(Entry::Other)) => false,
            // What is in a directory that could not be read is not new because the snapshot does not have it.
            (_, None) => !path.ancestors().any(|above| matches!(tree.0.get(above), Some(Entry::Other))),
            (Now::Other, Some(_)) => true,
            (Now::Dir(_), Some(was)) => !matches!(was, Entry::Dir { .. }),
            (_, Some(was)) => matches!(was, Entry::Dir { .. }),
        };
        if goes {
            let is_new = !tree.0.contains_key(path);
            if remove(workspace, path, now, is_new)? && is_new {
                restored.removed.push(text::show(path));
            }
        }
    }
    let mut modes = Vec::new();
    for (path, was) in &tree.0 {
        let changed = match (was, now.get(path)) {
            (Entry::Other, _) | (_, Some(Now::Closed)) => false,
            (Entry::Dir { mode }, Some(Now::Dir(now))) => {
                if mode != now {
                    modes.push((path, *mode));
                }
                mode != now
            }
            (Entry::Dir { mode }, _) => {
                let (dir, name) = above(workspace, path)?;
                match dir.create_dir(name) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    made => made?,
                }
                modes.push((path, *mode));
                true
            }
            (Entry::File { mode, .. }, Some(Now::File { same: true, mode: now })) => {
                if mode != now {
                    set_mode(workspace, path, *mode)?;
                }
                mode != now
            }
            (Entry::File { mode, content }, _) => {
                let (dir, name) = above(workspace, path)?;
                let bytes = contents.read(*content)?;
                Beside::write(workspace.names(), &dir, &bytes, permissions(*mode), Durability::Synced)?
                    .replace(&dir, name)?;
                true
            }
            (Entry::Link { .. }, Some(Now::Link(Some(now)))) if now == was => false,
            (Entry::Link { to }, _) => {
                linked(workspace, path, &to.path()?)?;
                true
            }
        };
        if changed {
            restored.written.push(text::show(path));
        }
    }
    // At last: a directory that nobody may write to could not be filled.
    for (path, mode) in modes.into_iter().rev() {
        set_mode(workspace, path, mode)?;
    }
    restored.removed.sort_unstable();
    Ok(restored)
}

/// Lets the owner into the directories that were open to him.
fn open_up(workspace: &Workspace, tree: &Tree) {
    const OWN: u32 = 0o700;
    for (path, was) in &tree.0 {
        let Entry::Dir { mode: was } = was else { continue };
        let now = above(workspace, path).and_then(|(dir, name)| dir.symlink_metadata(name));
        if was & OWN == OWN && now.is_ok_and(|now| now.is_dir() && mode(&now) & OWN != OWN) {
            // What cannot be opened is left as it is.
            drop(set_mode(workspace, path, *was));
        }
    }
}

/// Looks at all places that the snapshot's ignore files do not name.
fn look(
    workspace: &Workspace,
    tree: &Tree,
    contents: &mut Contents<'_>,
    (known, largest): (&mut Known, u64),
) -> io::Result<BTreeMap<PathBuf, Now>> {
    let mut now = BTreeMap::new();
    // The ignore files are the snapshot's: what a run did to those on the disk hides nothing from its undoing.
    let mut text = |path: &Path| match tree.0.get(path) {
        Some(Entry::File { content, .. }) => contents.read(*content).map(Some),
        _ => Ok(None),
    };
    let rules_of = |dir: &Path, above, _: &dyn Fn(&str) -> bool| {
        let (plain, git) = (text(&dir.join(".ignore"))?, text(&dir.join(".gitignore"))?);
        // A repository that came since does not end the rules of the one around it.
        let is_repository = tree.0.contains_key(&dir.join(".git"));
        Ok(Rules::of_texts(dir, above, (plain.as_deref(), git.as_deref()), is_repository))
    };
    let is_kept = |path: &Path| tree.0.contains_key(path);
    scan(workspace, rules_of, is_kept, |path, found, dir| {
        let found = match found {
            Found::Closed => Now::Closed,
            Found::Dir(mode) => Now::Dir(mode),
            Found::Link => Now::Link(link(dir, path).ok()),
            Found::Other => Now::Other,
            Found::File(meta) => {
                let was = match tree.0.get(path) {
                    // The mode of a file with other names is theirs too: it is replaced, and they are not.
                    Some(Entry::File { mode: was, .. }) if has_names(&meta) && mode(&meta) != *was => None,
                    Some(Entry::File { content, .. }) => Some(*content),
                    _ => None,
                };
                let same = match was {
                    // What is too large is not what was kept.
                    Some(was) => known
                        .content((dir, path, &meta), largest, |_, _| Ok(()), |_| true)
                        .is_ok_and(|now| now == Some(was)),
                    None => false,
                };
                Now::File { same, mode: mode(&meta) }
            }
        };
        now.insert(path.to_owned(), found);
        Ok(())
    })?;
    Ok(now)
}

/// True for a file that has other names, which may lie outside of the root.
#[cfg(unix)]
fn has_names(meta: &Metadata) -> bool {
    use cap_std::fs::MetadataExt;
    meta.nlink() > 1
}

#[cfg(not(unix))]
fn has_names(_: &Metadata) -> bool {
    false
}

/// Removes what stands at a place. Returns false for a directory that holds something which is ignored, and stays.
fn remove(workspace: &Workspace, path: &Path, now: &Now, is_new: bool) -> io::Result<bool> {
    let (dir, name) = above(workspace, path)?;
    let gone = match now {
        // Where there was something else, all that is in it is new.
        Now::Dir(_) if !is_new => dir.remove_dir_all(name),
        Now::Dir(_) => match dir.remove_dir(name) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => return Ok(false),
            removed => removed,
        },
        _ => dir.remove_file(name),
    };
    match gone {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        gone => gone.map(|()| true),
    }
}

/// Makes a link in the place of what stands there.
fn linked(workspace: &Workspace, path: &Path, target: &Path) -> io::Result<()> {
    let (dir, name) = above(workspace, path)?;
    let beside = workspace.names().next();
    #[cfg(unix)]
    dir.symlink_contents(target, &beside)?;
    #[cfg(not(unix))]
    dir.symlink_file(target, &beside)?;
    let replaced = dir.rename(&beside, &dir, name);
    if replaced.is_err() {
        drop(dir.remove_file(&beside));
    }
    replaced
}

/// The directory that holds a place, opened without following links, and the place's name in it.
fn above<'p>(workspace: &Workspace, path: &'p Path) -> io::Result<(Dir, &'p Path)> {
    let dir = workspace.open_plain(path.parent().unwrap_or(Path::new("")))?;
    Ok((dir, Path::new(path.file_name().unwrap_or_default())))
}

/// Sets the mode of what stands at a place, which is no link.
fn set_mode(workspace: &Workspace, path: &Path, to: u32) -> io::Result<()> {
    let (dir, name) = above(workspace, path)?;
    match permissions(to) {
        Some(permissions) if !dir.symlink_metadata(name)?.is_symlink() => {
            dir.set_permissions(name, permissions)
        }
        _ => Ok(()),
    }
}

#[cfg(unix)]
#[allow(clippy::unnecessary_wraps, reason = "other systems have no modes")]
fn permissions(mode: u32) -> Option<Permissions> {
    use cap_std::fs::PermissionsExt;
    Some(Permissions::from_mode(mode))
}

#[cfg(not(unix))]
fn permissions(_: u32) -> Option<Permissions> {
    None
}
