//! The walk over all places of a workspace that are not ignored, with what stands there.

use std::{
    collections::HashMap,
    ffi::OsString,
    io::{self, Read},
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use cap_fs_ext::{DirExt, FollowSymlinks};
use cap_std::fs::{Dir, Metadata};

use super::tree::{Content, Entry, Name};
use crate::fs::{
    beside::is_beside,
    rules::{Rules, Verdict},
    seen::{Stamp, digest_of},
    workspace::Workspace,
};

/// Age from which on a file's times tell that it is the same as it was.
const SETTLED: Duration = Duration::from_secs(2);

/// Deepest nesting of directories that are looked into.
const DEEPEST: usize = 256;

/// The contents of files by their stamps, as they were read last.
#[derive(Debug, Default)]
pub(super) struct Known(HashMap<PathBuf, (Stamp, Content)>);

/// An entry on the disk.
#[derive(Debug)]
pub(in crate::fs) enum Found {
    Dir(u32),
    File(Metadata),
    Link,
    /// A place that the system does not allow to be looked at or into, or a directory that is nested too deep.
    Closed,
    /// A pipe, a socket or a device.
    Other,
}

/// Calls `visit` for each place below the root that is not ignored, a directory before what is in it. No link is
/// followed, and `.git` is no part of the tree. `rules_of` gives the rules of a directory, from those above it and a
/// test for the names in it; `counts` tells of a path that it is visited whatever they say.
pub(in crate::fs) fn scan(
    workspace: &Workspace,
    mut rules_of: impl FnMut(&Path, Option<Arc<Rules>>, &dyn Fn(&str) -> bool) -> io::Result<Arc<Rules>>,
    counts: impl Fn(&Path) -> bool,
    mut visit: impl FnMut(&Path, Found, &Dir) -> io::Result<()>,
) -> io::Result<()> {
    let root = workspace.dir().try_clone()?;
    let names = list(&root)?;
    let mut entered = Some((PathBuf::new(), root, names, None::<Arc<Rules>>));
    // Directories that are still to be entered, each with the one that holds it. They are opened one after another:
    // there may be more of them than this program may have open.
    let mut left: Vec<(PathBuf, u32, Rc<Dir>, Arc<Rules>)> = Vec::new();
    while let Some((at, dir, names, above)) = entered.take() {
        let dir = Rc::new(dir);
        let has = |name: &str| names.binary_search_by(|it| it.as_os_str().cmp(name.as_ref())).is_ok();
        let rules = rules_of(&at, above, &has)?;
        for name in names {
            if name == ".git" || is_beside(&name) {
                continue;
            }
            let path = at.join(&name);
            let meta = match dir.symlink_metadata(&name) {
                Ok(meta) => meta,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(_) => {
                    visit(&path, Found::Closed, &dir)?;
                    continue;
                }
            };
            if rules.judge(&path, meta.is_dir()) == Verdict::Ignore && !counts(&path) {
                continue;
            }
            if meta.is_dir() {
                left.push((path, mode(&meta), Rc::clone(&dir), Arc::clone(&rules)));
            } else if meta.is_file() {
                visit(&path, Found::File(meta), &dir)?;
            } else {
                let link = meta.is_symlink();
                visit(&path, if link { Found::Link } else { Found::Other }, &dir)?;
            }
        }
        drop(dir);
        while let Some((path, mode, holder, rules)) = left.pop() {
            match enter(&holder, &path)? {
                Entered::Opened(dir, names) => {
                    visit(&path, Found::Dir(mode), &holder)?;
                    entered = Some((path, dir, names, Some(rules)));
                    break;
                }
                Entered::Closed => visit(&path, Found::Closed, &holder)?,
                Entered::Gone => {}
            }
        }
    }
    Ok(())
}

enum Entered {
    Opened(Dir, Vec<OsString>),
    Closed,
    Gone,
}

/// Opens a directory, of which `holder` has the last part of `path`. The error is one of this program, as too many
/// open files: it tells nothing about the directory.
fn enter(holder: &Dir, path: &Path) -> io::Result<Entered> {
    if path.components().count() > DEEPEST {
        return Ok(Entered::Closed);
    }
    let name = Path::new(path.file_name().unwrap_or_default());
    let opened = holder.open_dir_nofollow(name).and_then(|dir| list(&dir).map(|names| (dir, names)));
    let error = match opened {
        Ok((dir, names)) => return Ok(Entered::Opened(dir, names)),
        Err(error) => error,
    };
    match holder.symlink_metadata(name) {
        Ok(meta) if meta.is_dir() && error.kind() != io::ErrorKind::PermissionDenied => Err(error),
        Ok(_) => Ok(Entered::Closed),
        Err(_) => Ok(Entered::Gone),
    }
}

/// The names in a directory, in order.
fn list(dir: &Dir) -> io::Result<Vec<OsString>> {
    let names = dir.entries()?.map(|entry| entry.map(|entry| entry.file_name()));
    let mut names: Vec<OsString> = names.collect::<io::Result<_>>()?;
    names.sort_unstable();
    Ok(names)
}

/// True for the name of an ignore file.
pub(super) fn is_rules(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == ".gitignore" || name == ".ignore")
}

/// The link's target, of which `dir` holds the last part of `path`.
pub(super) fn link(dir: &Dir, path: &Path) -> io::Result<Entry> {
    let target = dir.read_link_contents(path.file_name().unwrap_or_default())?;
    Name::of(&target).map(|to| Entry::Link { to })
}

impl Known {
    /// The content of a file that stands in `dir`, from its metadata or by reading it, which `read` is given. `None` if
    /// it cannot be read.
    pub(super) fn content(
        &mut self,
        (dir, path, meta): (&Dir, &Path, &Metadata),
        largest: u64,
        read: impl FnOnce(Content, &[u8]) -> io::Result<()>,
        is_kept: impl Fn(Content) -> bool,
    ) -> io::Result<Option<Content>> {
        let stamp = Stamp::of_entry(meta);
        if let Some((_, content)) =
            self.0.get(path).filter(|(known, content)| *known == stamp && is_kept(*content))
        {
            return Ok(Some(*content));
        }
        let name = Path::new(path.file_name().unwrap_or_default());
        let Ok(Some(file)) = Workspace::open_file(dir, name, FollowSymlinks::No) else { return Ok(None) };
        let mut bytes = Vec::new();
        if file.take(largest.saturating_add(1)).read_to_end(&mut bytes).is_err() {
            return Ok(None);
        }
        if bytes.len() as u64 > largest {
            return Err(too_large(path));
        }
        let content = Content(digest_of(&bytes));
        if !is_kept(content) {
            read(content, &bytes)?;
        }
        let after = dir.symlink_metadata(name).ok().map(|meta| Stamp::of_entry(&meta));
        if stamp.is_older_than(SETTLED) && after.as_ref() == Some(&stamp) {
            self.0.insert(path.to_owned(), (stamp, content));
        } else {
            self.0.remove(path);
        }
        Ok(Some(content))
    }
}

pub(super) fn too_large(path: &Path) -> io::Error {
    let text = format!(
        "the workspace is larger than its snapshots may be, at `{}`; name in a file `.ignore` or `.gitignore` what need \
         not be kept, or allow more by `FileSnapshots::with_most`",
        path.display()
    );
    io::Error::new(io::ErrorKind::FileTooLarge, text)
}

/// The bits for reading, writing and running.
#[cfg(unix)]
pub(super) fn mode(meta: &Metadata) -> u32 {
    use cap_std::fs::PermissionsExt;
    meta.permissions().mode() & 0o777
}

#[cfg(not(unix))]
pub(super) fn mode(meta: &Metadata) -> u32 {
    if meta.permissions().readonly() { 0o444 } else { 0o644 }
}
