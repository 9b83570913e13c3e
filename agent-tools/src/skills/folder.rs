//! Folders of skills on the disk. Blocking.
//!
//! Everything below a folder is opened through a handle on it, name by name, and no link is followed. So the path of a
//! call is the file that it reads, however the tree changes meanwhile.

use std::{
    collections::BTreeMap,
    io,
    path::{Component, MAIN_SEPARATOR, Path, PathBuf},
    sync::Arc,
};

use cap_fs_ext::DirExt;
use cap_std::{ambient_authority, fs::Dir};
use entourage_core::tool::normal_path;

use super::{
    Skill,
    document::{self, Described},
};
use crate::held::{self, entries, shown};
pub(super) use crate::held::{Content, Fault};

/// The file that makes a folder a skill.
pub(super) const FILE: &str = "SKILL.md";
/// Most entries of a folder of skills, and of the folder of one skill with all that is below.
const ENTRIES: usize = 1_000;
/// Most levels of folders below that of a skill.
const LEVELS: usize = 8;

/// A folder of skills, held open.
#[derive(Debug)]
pub(super) struct Folder {
    dir: Dir,
    /// Its paths: with links resolved, and as it was given.
    paths: Vec<PathBuf>,
}

/// The skills of all folders by name, those of a later folder in place of earlier ones; and the problems.
pub(super) fn read(paths: &[PathBuf]) -> (BTreeMap<String, Skill>, Vec<String>) {
    let (mut skills, mut problems) = (BTreeMap::new(), Vec::new());
    for path in paths {
        match Folder::open(path) {
            Ok(folder) => Arc::new(folder).read(&mut skills, &mut problems),
            // A list names folders that a user may have.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => problems.push(format!(
                "`{}` cannot be opened as a folder of skills: {error}; name one that can be read",
                shown(path)
            )),
        }
    }
    (skills, problems)
}

impl Folder {
    fn open(path: &Path) -> io::Result<Self> {
        let real = std::fs::canonicalize(path)?;
        let dir = Dir::open_ambient_dir(&real, ambient_authority())?;
        // With `..` in it, a path cannot be shortened by name: the part before could be a link.
        let plain = !path.components().any(|part| part == Component::ParentDir);
        let given = std::path::absolute(path).ok().filter(|_| plain).map(|path| normal_path(&path));
        let mut paths = vec![real];
        paths.extend(given.filter(|given| !paths.contains(given)));
        Ok(Self { dir, paths })
    }

    fn read(self: &Arc<Self>, skills: &mut BTreeMap<String, Skill>, problems: &mut Vec<String>) {
        let path = self.paths.first().cloned().unwrap_or_default();
        let entries = match entries(&self.dir, &mut { ENTRIES }) {
            Ok(Some(entries)) => entries,
            Ok(None) => {
                let shown = shown(&path);
                problems.push(format!(
                    "`{shown}` has more than 1,000 entries, so no skill of it was read; split it"
                ));
                return;
            }
            Err(error) => {
                problems
                    .push(format!("`{}` cannot be listed: {error}; change its permissions", shown(&path)));
                return;
            }
        };
        for (name, kind) in entries {
            let at = path.join(&name);
            let name = name.to_string_lossy();
            if kind.is_symlink() {
                problems.push(format!(
                    "`{}` is a link, which is not followed; put a folder in its place",
                    shown(&at)
                ));
            } else if kind.is_dir() {
                let file = at.join(FILE);
                match self.describe(&name) {
                    Ok(Some((name, description))) => {
                        let skill = Skill::new(name.clone(), description, Arc::clone(self), None);
                        skills.insert(name, skill);
                    }
                    Ok(None) => {}
                    Err(problem) => problems.push(format!("`{}`: {problem}", shown(&file))),
                }
            } else if name == FILE {
                problems
                    .push(format!("`{}` lies in no folder of its own; name the folder above", shown(&at)));
            }
        }
    }

    /// The name and the description of the skill in a folder; `None` without a `SKILL.md`.
    fn describe(&self, folder: &str) -> Result<Option<(String, String)>, String> {
        let content = match self.content(folder, Path::new(FILE), document::LARGEST) {
            Ok(content) => content.start,
            Err(Fault::System(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(fault) => return Err(fault.to_string()),
        };
        document::read(folder, &content).map(|Described { name, description, .. }| Some((name, description)))
    }

    /// Paths of the folder of a skill: below `base` relative to it, as tools of a workspace name them, else absolute.
    pub(super) fn names(&self, skill: &str, base: Option<&Path>) -> Vec<String> {
        let full: Vec<_> = self.paths.iter().map(|path| path.join(skill)).collect();
        let below = |path: &PathBuf| Some(subject(path.strip_prefix(base?).ok()?));
        // Rules know a file of the workspace by the path that its links lead to.
        if let Some(real) = full.first().and_then(below) {
            return vec![real];
        }
        let mut names: Vec<_> =
            full.iter().map(|path| below(path).unwrap_or_else(|| subject(path))).collect();
        names.dedup();
        names
    }

    /// The first `most` bytes of a file of a skill, and one more where there is more.
    pub(super) fn content(&self, skill: &str, file: &Path, most: usize) -> Result<Content, Fault> {
        let Some(name) = file.file_name() else { return Err(Fault::NoFile) };
        let start = self.dir.open_dir_nofollow(skill).map_err(Fault::System)?;
        let mut above = file.parent().into_iter().flat_map(Path::components);
        let dir = above
            .try_fold(start, |dir, part| dir.open_dir_nofollow(part.as_os_str()))
            .map_err(Fault::System)?;
        held::content(&dir, Path::new(name), most)
    }

    /// The files in the folder of a skill, sorted, but for its `SKILL.md`; and if there may be more. Hidden entries,
    /// links and names that cannot be written in one line are left out.
    pub(super) fn beside(&self, skill: &str) -> (Vec<String>, bool) {
        let mut walk = Walk { files: Vec::new(), left: ENTRIES, has_more: false };
        if let Ok(dir) = self.dir.open_dir_nofollow(skill) {
            walk.enter(&dir, "", 0);
        }
        walk.files.retain(|file| file != FILE);
        walk.files.sort();
        (walk.files, walk.has_more)
    }
}

struct Walk {
    files: Vec<String>,
    /// Number of entries that may still be looked at.
    left: usize,
    has_more: bool,
}

impl Walk {
    fn enter(&mut self, dir: &Dir, prefix: &str, level: usize) {
        let Ok(Some(entries)) = entries(dir, &mut self.left) else {
            self.has_more = true;
            return;
        };
        for (name, kind) in entries {
            let Some(name) = name.to_str().filter(|name| document::line(name) == **name) else { continue };
            let path = format!("{prefix}{name}");
            if kind.is_file() {
                self.files.push(path);
            } else if kind.is_dir() && level < LEVELS {
                match dir.open_dir_nofollow(name) {
                    Ok(below) => self.enter(&below, &format!("{path}/"), level.saturating_add(1)),
                    Err(_) => self.has_more = true,
                }
            }
        }
    }
}

/// A path as rules and scopes know it.
fn subject(path: &Path) -> String {
    if path.as_os_str().is_empty() {
        return ".".to_owned();
    }
    path.to_string_lossy().replace(MAIN_SEPARATOR, "/")
}

/// A path that a model gives, below the folder of a skill; `None` if it leads elsewhere.
pub(super) fn inside(file: &str) -> Option<PathBuf> {
    let path = normal_path(Path::new(file));
    let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    (is_plain && !path.as_os_str().is_empty() && file.len() <= 4_096 && !file.contains('\0')).then_some(path)
}

/// The path of a file below that of the folder of a skill.
pub(super) fn below(folder: &str, file: &Path) -> String {
    let file = subject(file);
    if folder == "." { file } else { format!("{folder}/{file}") }
}
