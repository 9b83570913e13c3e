//! The walk over all places of a workspace that are not ignored, with what stands there.

use std::{
    collections::HashMap,
    ffi::OsString,
    io::{self, Read},
    path::{Path, PathBuf},
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

/// Deepest nesting of directories.
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
    Other,
}

/// Calls `visit` for each place below the root that is not ignored, a directory before what is in it. No link is
/// followed, and `.git` is no part of the tree. `rules_of` gives the rules of a directory, from those above it and a
/// test for the names in it.
pub(in crate::fs) fn scan(
    workspace: &Workspace,
    mut rules_of: impl FnMut(&Path, Option<Arc<Rules>>, &dyn Fn(&str) -> bool) -> io::Result<Arc<Rules>>,
    mut visit: impl FnMut(&Path, Found, &Dir) -> io::Result<()>,
) -> io::Result<()> {
    let root = workspace.dir().try_clone()?;
    let mut left = vec![(PathBuf::new(), root, None::<Arc<Rules>>)];
    while let Some((at, dir, above)) = left.pop() {
        if at.components().count() > DEEPEST {
            return Err(io::Error::other(format!("`{}` is nested too deep to be kept", at.display())));
        }
        let mut names: Vec<OsString> = Vec::new();
        for entry in dir.entries()? {
            names.push(entry?.file_name());
        }
        names.sort_unstable();
        let has = |name: &str| names.binary_search_by(|it| it.as_os_str().cmp(name.as_ref())).is_ok();
        let rules = rules_of(&at, above, &has)?;
        for name in names {
            if name == ".git" || is_beside(&name) {
                continue;
            }
            let path = at.join(&name);
            let Ok(meta) = dir.symlink_metadata(&name) else { continue };
            if rules.judge(&path, meta.is_dir()) == Verdict::Ignore {
                continue;
            }
            if meta.is_dir() {
                match dir.open_dir_nofollow(&name) {
                    Ok(below) => {
                        visit(&path, Found::Dir(mode(&meta)), &dir)?;
                        left.push((path, below, Some(Arc::clone(&rules))));
                    }
                    Err(_) => visit(&path, Found::Other, &dir)?,
                }
            } else if meta.is_file() {
                visit(&path, Found::File(meta), &dir)?;
            } else {
                let link = meta.is_symlink();
                visit(&path, if link { Found::Link } else { Found::Other }, &dir)?;
            }
        }
    }
    Ok(())
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
