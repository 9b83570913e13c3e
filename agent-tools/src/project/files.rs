//! Context files: found, sorted, and read within bounds.
//!
//! Everything below a directory is opened through a handle on it, which refuses a link that leads out at the moment of
//! opening. Blocking.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read},
    path::{Component, Path, PathBuf},
    rc::Rc,
};

use cap_fs_ext::{DirExt, FollowSymlinks, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::{
    ambient_authority,
    fs::{Dir, OpenOptions},
};
use entourage_core::context::ContextFile;

use super::expand::Expander;

/// Most bytes of one file.
pub(super) const FILE: usize = 64 * 1024;

/// Most bytes of all files of a list.
pub(super) const TOTAL: usize = 256 * 1024;

/// Most files of a list.
pub(super) const COUNT: usize = 200;

/// Most entries that one walk looks at.
const ENTRIES: usize = 10_000;

/// Most levels of a walk.
const LEVELS: usize = 16;

/// Bounds of one walk.
struct Walk {
    entries: usize,
    /// Leaves out files that [`is_prose`] does not know.
    texts_alone: bool,
}

impl Walk {
    fn new(texts_alone: bool) -> Self {
        Self { entries: ENTRIES, texts_alone }
    }
}

/// A file to read: a handle on a directory, and the path from there.
struct Place {
    dir: Rc<Base>,
    /// Without links on the way.
    inside: PathBuf,
}

struct Base {
    dir: Dir,
    /// Canonical path of the directory, to recognise two paths of one file.
    canonical: PathBuf,
}

/// Reads the lists of one project.
pub(super) struct Files {
    root: PathBuf,
    project: Rc<Base>,
    /// Files that were read already, as real paths in lower case.
    seen: BTreeSet<String>,
}

impl Files {
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        Ok(Self { root: root.to_owned(), project: Rc::new(Base::open(root)?), seen: BTreeSet::new() })
    }

    /// The files that `paths` name and no earlier list did, by path.
    pub(super) fn read(&mut self, paths: &[String], expander: &Expander<'_>) -> Vec<ContextFile> {
        // Keyed by the path that is shown, so that the order of the system's listing does not matter.
        let mut places = BTreeMap::new();
        for path in paths.iter().filter_map(|path| expander.expand(path)) {
            // Missing and unreadable places are left out: a list names files that may exist.
            let _ = self.find(Path::new(&path), &mut places);
        }
        let mut files = Vec::new();
        let mut left = TOTAL;
        for (path, place) in places {
            if files.len() == COUNT || left == 0 {
                break;
            }
            let Some(key) = place.key().filter(|key| !self.seen.contains(key)) else { continue };
            let Some(content) = place.read(left.min(FILE)) else { continue };
            self.seen.insert(key);
            left = left.saturating_sub(content.len());
            files.push(ContextFile::new(path.to_string_lossy(), content));
        }
        files
    }

    fn find(&self, path: &Path, places: &mut BTreeMap<PathBuf, Place>) -> io::Result<()> {
        if path.is_absolute() {
            return find_absolute(path, places);
        }
        let inside = plain(path).ok_or(io::ErrorKind::InvalidInput)?;
        let shown = self.root.join(&inside);
        let at = if inside.as_os_str().is_empty() { Path::new(".") } else { &inside };
        let found = self.project.dir.metadata(at)?;
        // The real name is not resolved if it is a pipe: some systems open it for that.
        if !found.is_dir() && !found.is_file() {
            return Ok(());
        }
        let real = self.project.dir.canonicalize(at)?;
        // Whoever wrote the project made the link, which may give a secret the name of a text or of a folder of texts.
        let is_link = real != at && !inside.as_os_str().is_empty();
        if found.is_dir() {
            let canonical = self.project.canonical.join(&real);
            let base = Rc::new(Base { dir: self.project.dir.open_dir(&real)?, canonical });
            return walk(&base, &base.dir, Path::new(""), &shown, &mut Walk::new(is_link), places);
        }
        if !is_link || is_prose(&real) {
            places.entry(shown).or_insert(Place { dir: Rc::clone(&self.project), inside: real });
        }
        Ok(())
    }
}

/// Finds the files at an absolute path. The host wrote it, so links in it are followed wherever they lead.
fn find_absolute(path: &Path, places: &mut BTreeMap<PathBuf, Place>) -> io::Result<()> {
    let real = std::fs::canonicalize(path)?;
    let shown: PathBuf = path.components().collect();
    let found = std::fs::metadata(&real)?;
    if found.is_dir() {
        let base = Rc::new(Base::open(&real)?);
        return walk(&base, &base.dir, Path::new(""), &shown, &mut Walk::new(false), places);
    }
    let (true, Some(parent), Some(name)) = (found.is_file(), real.parent(), real.file_name()) else {
        return Ok(());
    };
    let dir = Rc::new(Base::open(parent)?);
    places.entry(shown).or_insert(Place { dir, inside: name.into() });
    Ok(())
}

/// Collects the regular files below `dir`, which lies at `inside` of `base` and is shown as `shown`.
fn walk(
    base: &Rc<Base>,
    dir: &Dir,
    inside: &Path,
    shown: &Path,
    bounds: &mut Walk,
    places: &mut BTreeMap<PathBuf, Place>,
) -> io::Result<()> {
    let mut entries = Vec::new();
    for entry in dir.entries()? {
        // A directory that is too large contributes nothing: the order in which the system lists its entries is
        // arbitrary.
        let left = bounds.entries.checked_sub(1);
        bounds.entries = left.unwrap_or(0);
        if left.is_none() {
            return Ok(());
        }
        let Ok(entry) = entry else { continue };
        let (name, Ok(kind)) = (entry.file_name(), entry.file_type()) else { continue };
        if !name.to_string_lossy().starts_with('.') && (kind.is_dir() || kind.is_file()) {
            entries.push((name, kind.is_dir()));
        }
    }
    // Sorted, so that the bound always falls on the same directory.
    entries.sort();
    for (name, is_dir) in entries {
        let (inside, shown) = (inside.join(&name), shown.join(&name));
        if !is_dir {
            if bounds.texts_alone && !is_prose(&inside) {
                continue;
            }
            let place = Place { dir: Rc::clone(base), inside };
            places.entry(shown).or_insert(place);
        } else if inside.components().count() < LEVELS
            && let Ok(below) = dir.open_dir_nofollow(&name)
        {
            let _ = walk(base, &below, &inside, &shown, bounds, places);
        }
    }
    Ok(())
}

impl Base {
    fn open(path: &Path) -> io::Result<Self> {
        let canonical = std::fs::canonicalize(path)?;
        Ok(Self { dir: Dir::open_ambient_dir(&canonical, ambient_authority())?, canonical })
    }

    fn real(&self, at: &Path) -> io::Result<PathBuf> {
        Ok(self.canonical.join(self.dir.canonicalize(at)?))
    }
}

impl Place {
    /// The key that two paths of one file share. `None` if nothing exists there.
    fn key(&self) -> Option<String> {
        let real = self.dir.real(&self.inside).ok()?;
        let plain: PathBuf = real.components().collect();
        Some(plain.to_string_lossy().to_lowercase())
    }

    /// The text of at most `most` bytes of the file. `None` if it is unreadable, binary or not a regular file.
    fn read(&self, most: usize) -> Option<String> {
        let dir = &self.dir.dir;
        // Opening a device can have an effect.
        if !dir.symlink_metadata(&self.inside).ok()?.is_file() {
            return None;
        }
        // If it became a pipe since, opening must not wait for a writer.
        let mut options = OpenOptions::new();
        options.read(true).nonblock(true).follow(FollowSymlinks::No);
        let file = dir.open_with(&self.inside, &options).ok()?;
        let size = file.metadata().ok().filter(cap_std::fs::Metadata::is_file)?.len();
        let mut bytes = Vec::new();
        file.take(most as u64).read_to_end(&mut bytes).ok()?;
        if bytes.contains(&0) {
            return None;
        }
        let cut = size > bytes.len() as u64 && bytes.len() == most;
        if cut {
            // Cut at a character boundary.
            let whole = std::str::from_utf8(&bytes).map_or_else(
                |error| if error.error_len().is_none() { error.valid_up_to() } else { bytes.len() },
                str::len,
            );
            bytes.truncate(whole);
        }
        let mut text = String::from_utf8_lossy(&bytes).into_owned();
        if cut {
            text.push_str(&format!(
                "\n[cut: the file has {size} bytes, these are the first {}]",
                bytes.len()
            ));
        }
        Some(text)
    }
}

/// True if a file's name ends as those of texts do. Others of a project may hold secrets, which rules keep from its
/// agents.
pub(crate) fn is_prose(path: &Path) -> bool {
    let end = path.extension().map(|end| end.to_string_lossy().to_ascii_lowercase());
    end.is_some_and(|end| ["md", "mdx", "txt", "rst", "adoc"].contains(&&*end))
}

/// The path without `.`, with `..` resolved by name; `None` if it climbs out.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => out.push(name),
            Component::ParentDir if out.pop() => {}
            _ => return None,
        }
    }
    Some(out)
}
