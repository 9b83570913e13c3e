//! The directories of Git to which a `.git` of the root leads, where they lie below the root too, and the links on the
//! way.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::Read,
    os::fd::OwnedFd,
    path::{Component, Path, PathBuf},
};

use rustix::fs::{Mode, OFlags};

use super::tree::{self, Found, is_plain};

/// Most bytes of a file that names a directory of Git.
const NAMED: u64 = 4_096;

/// Most links that are followed, as many as the system follows.
const LINKS: usize = 40;

/// The part of the workspace that decides where Git's directory is.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    pub(super) directories: Vec<PathBuf>,
    /// Links that lead there. A command that turns one gives `.git` another directory.
    pub(super) links: Vec<PathBuf>,
}

impl Elsewhere {
    /// Finds the directories that `.git` names: as a link, as a file with `gitdir:`, by its `commondir`, or several of
    /// these in a row.
    pub(super) fn of(root: &Path, opened: &OwnedFd) -> Self {
        let git = Path::new(".git");
        let mut found = Self::default();
        let named = match tree::look(opened, git) {
            Ok(Found::Directory | Found::Other) => Some(git.to_owned()),
            Ok(Found::File) => text(&root.join(git))
                .and_then(|text| Some(PathBuf::from(text.strip_prefix("gitdir:")?.trim()))),
            Ok(Found::Nothing) | Err(_) => None,
        };
        let Some(named) = named else { return found };
        let at = found.follow(root, &root.join(named));
        if let Some(common) = text(&at.join("commondir")) {
            found.follow(root, &at.join(common.trim()));
        }
        found.directories.retain(|path| path != git);
        found.links.retain(|path| path != git);
        found
    }

    /// Follows an absolute path, and returns where it leads.
    fn follow(&mut self, root: &Path, path: &Path) -> PathBuf {
        let mut at = PathBuf::from("/");
        let mut left: VecDeque<PathBuf> = parts(path).collect();
        let mut links = 0;
        while let Some(part) = left.pop_front() {
            match part.components().next() {
                Some(Component::ParentDir) => drop(at.pop()),
                Some(Component::RootDir) => at = PathBuf::from("/"),
                Some(Component::Normal(_)) => {
                    at.push(part);
                    let Ok(target) = fs::read_link(&at) else { continue };
                    self.links.extend(below(root, &at));
                    links += 1;
                    if links > LINKS {
                        return at;
                    }
                    at.pop();
                    parts(&target).rev().for_each(|part| left.push_front(part));
                }
                _ => {}
            }
        }
        self.directories.extend(below(root, &at));
        at
    }
}

fn parts(path: &Path) -> impl DoubleEndedIterator<Item = PathBuf> {
    path.components().map(|part| PathBuf::from(part.as_os_str()))
}

fn below(root: &Path, path: &Path) -> Option<PathBuf> {
    path.strip_prefix(root).ok().filter(|below| is_plain(below)).map(Path::to_owned)
}

fn text(path: &Path) -> Option<String> {
    // A pipe must not make this wait.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    let mut text = String::new();
    file.metadata().is_ok_and(|it| it.is_file()).then(|| file.take(NAMED).read_to_string(&mut text))?.ok()?;
    Some(text)
}
