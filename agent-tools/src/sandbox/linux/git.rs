//! The directories of Git to which a `.git` of the root leads, where they lie below the root too.

use std::{
    fs,
    io::Read,
    os::fd::OwnedFd,
    path::{Component, Path, PathBuf},
};

use super::tree::{self, Found, is_plain};

/// Most bytes of a file that names a directory of Git.
const NAMED: u64 = 4_096;

/// Finds the directories that `.git` names: as a link, as a file with `gitdir:`, by its `commondir`, or several of
/// these in a row.
pub(super) fn elsewhere(root: &Path, opened: &OwnedFd) -> Vec<PathBuf> {
    let git = Path::new(".git");
    let first = match tree::look(opened, git) {
        Ok(Found::Directory) => None,
        Ok(Found::File) => text(root, git).and_then(|text| {
            let named = text.strip_prefix("gitdir:")?.trim();
            below(root, Path::new(named))
        }),
        Ok(Found::Other) => fs::read_link(root.join(git)).ok().and_then(|target| below(root, &target)),
        Ok(Found::Nothing) | Err(_) => return Vec::new(),
    };
    let dir = first.as_deref().unwrap_or(git);
    let common = text(root, &dir.join("commondir")).and_then(|text| below(root, &dir.join(text.trim())));
    let found = first.iter().chain(&common).filter(|path| *path != git);
    found.cloned().collect()
}

fn text(root: &Path, path: &Path) -> Option<String> {
    let file =
        fs::File::open(root.join(path)).ok().filter(|file| file.metadata().is_ok_and(|it| it.is_file()))?;
    let mut text = String::new();
    file.take(NAMED).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The place below the root, relative to it, to which a path leads that may be relative to the root.
fn below(root: &Path, path: &Path) -> Option<PathBuf> {
    let path = root.join(path);
    let resolved = fs::canonicalize(&path).unwrap_or_else(|_| plain(&path));
    resolved.strip_prefix(root).ok().filter(|below| is_plain(below)).map(Path::to_owned)
}

/// The path without `.` and `..`, for one that does not exist.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}
