//! The tree of files around a tool under test: a directory for the tool, and sentinels beside it.

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

/// Name of the tool's directory in the tree.
const INSIDE: &str = "inside";
/// Size of the two large files, in bytes: larger than a tool's result may be.
const LARGE: usize = 300 << 10;
/// Size of files that are read anew at each look.
const SMALL: u64 = 64 << 10;

/// Files of the tree that hold a text of their own, by which their content is recognised in a result.
const MARKED: &[&str] = &[
    "inside/a.txt",
    "inside/big.txt",
    "inside/long.txt",
    "inside/src/lib.rs",
    "inside/src/deep/note.md",
    "inside-too/a.txt",
    "outside/secret.txt",
    "outside/deep/more.txt",
];

/// A tree of its own in the directory for temporary files. Dropping it removes it.
#[derive(Debug)]
pub(super) struct Tree {
    root: PathBuf,
    /// Large files as they were read last. A tree is looked at often.
    large: Mutex<BTreeMap<PathBuf, Large>>,
}

#[derive(Debug)]
struct Large {
    bytes: u64,
    changed: SystemTime,
    content: Arc<[u8]>,
}

/// The content of a tree at a moment, by paths relative to its root.
#[derive(Clone, PartialEq, Eq, Default)]
pub(super) struct Look(pub(super) BTreeMap<String, Entry>);

/// One entry of a tree.
#[derive(Clone, Eq)]
pub(super) enum Entry {
    Directory,
    File { content: Arc<[u8]>, read_only: bool },
    Link(PathBuf),
    Other,
}

impl Tree {
    pub(super) fn new() -> Self {
        let temporary = std::env::temp_dir();
        let temporary = worked(fs::canonicalize(&temporary), &temporary);
        let root = (0_u32..)
            .map(|number| temporary.join(format!("entourage-tool-{}-{number}", std::process::id())))
            .find(|path| match fs::create_dir(path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
                made => {
                    worked(made, path);
                    true
                }
            });
        let tree = Self { root: root.unwrap_or(temporary), large: Mutex::default() };
        for directory in ["inside/src/deep", "inside-too", "outside/deep"] {
            let path = tree.root.join(directory);
            worked(fs::create_dir_all(&path), &path);
        }
        for file in MARKED {
            tree.write(file, content_of(file).as_bytes());
        }
        tree.write("inside/bytes.bin", &(0..=255).collect::<Vec<u8>>());
        tree.link("a.txt", "inside/link");
        tree.link("../outside", "inside/out");
        tree.link("../outside/secret.txt", "inside/out.txt");
        tree
    }

    /// The directory of the tool.
    pub(super) fn inside(&self) -> PathBuf {
        self.root.join(INSIDE)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    fn write(&self, file: &str, content: &[u8]) {
        let path = self.root.join(file);
        worked(fs::write(&path, content), &path);
    }

    #[cfg(unix)]
    fn link(&self, target: &str, link: &str) {
        let path = self.root.join(link);
        worked(std::os::unix::fs::symlink(target, &path), &path);
    }

    /// Links need a right of their own on other systems; the suite does without.
    #[cfg(not(unix))]
    #[allow(clippy::unused_self, reason = "it is a method where there are links")]
    fn link(&self, _: &str, _: &str) {}

    /// Reads the whole tree. An entry that goes away meanwhile is left out.
    pub(super) fn look(&self) -> Look {
        let mut look = Look::default();
        let mut open = vec![self.root.clone()];
        while let Some(directory) = open.pop() {
            for path in fs::read_dir(&directory).into_iter().flatten().flatten().map(|entry| entry.path()) {
                let Some(entry) = self.entry(&path) else { continue };
                if entry == Entry::Directory {
                    open.push(path.clone());
                }
                look.0.insert(self.named(&path), entry);
            }
        }
        look
    }

    fn entry(&self, path: &Path) -> Option<Entry> {
        let metadata = fs::symlink_metadata(path).ok()?;
        Some(if metadata.is_dir() {
            Entry::Directory
        } else if metadata.is_symlink() {
            Entry::Link(fs::read_link(path).ok()?)
        } else if metadata.is_file() {
            Entry::File {
                content: self.content(path, &metadata),
                read_only: metadata.permissions().readonly(),
            }
        } else {
            Entry::Other
        })
    }

    fn content(&self, path: &Path, metadata: &fs::Metadata) -> Arc<[u8]> {
        let read = || Arc::from(fs::read(path).unwrap_or_default());
        let (bytes, Ok(changed)) = (metadata.len(), metadata.modified()) else { return read() };
        if bytes < SMALL {
            return read();
        }
        let mut large = self.large.lock().unwrap_or_else(PoisonError::into_inner);
        match large.get(path).filter(|known| (known.bytes, known.changed) == (bytes, changed)) {
            Some(known) => Arc::clone(&known.content),
            None => {
                let content = read();
                large.insert(path.to_owned(), Large { bytes, changed, content: Arc::clone(&content) });
                content
            }
        }
    }

    fn named(&self, path: &Path) -> String {
        path.strip_prefix(&self.root)
            .unwrap_or(path)
            .to_string_lossy()
            .replace(std::path::MAIN_SEPARATOR, "/")
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Directory, Self::Directory) | (Self::Other, Self::Other) => true,
            (Self::Link(one), Self::Link(other)) => one == other,
            (Self::File { content: one, read_only: is }, Self::File { content: other, read_only: was }) => {
                is == was && (Arc::ptr_eq(one, other) || one == other)
            }
            _ => false,
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // What cannot be removed stays for the system to clean up.
        let _ = fs::remove_dir_all(&self.root);
    }
}

impl Look {
    /// The paths whose entries differ, in order.
    pub(super) fn differences<'a>(&'a self, other: &'a Self) -> Vec<&'a str> {
        let mut paths: Vec<_> = self.0.keys().chain(other.0.keys()).map(String::as_str).collect();
        paths.sort_unstable();
        paths.dedup();
        paths.retain(|path| self.0.get(*path) != other.0.get(*path));
        paths
    }
}

impl fmt::Debug for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The path of an entry relative to the tool's directory; `None` outside of it.
pub(super) fn below_inside(path: &str) -> Option<&str> {
    path.strip_prefix(INSIDE).and_then(|rest| rest.strip_prefix('/'))
}

/// The marked files whose content is in a text, by their paths in the tree.
pub(super) fn shown(text: &str) -> impl Iterator<Item = &'static str> {
    MARKED.iter().copied().filter(move |file| text.contains(&mark(file)))
}

fn mark(file: &str) -> String {
    let word: String = file.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
    // A name alone is no sign of the content.
    format!("MARK_{word}_MARK")
}

fn content_of(file: &str) -> String {
    let mark = mark(file);
    match file {
        "inside/big.txt" => {
            let line = "A line among many.\n";
            format!("{mark}\n{}", line.repeat(LARGE / line.len()))
        }
        "inside/long.txt" => format!("{mark} {}", "word ".repeat(LARGE / 5)),
        _ => format!("{mark}\nThe second line.\n"),
    }
}

fn worked<T>(result: io::Result<T>, path: &Path) -> T {
    result.unwrap_or_else(|error| panic!("the suite cannot prepare `{}`: {error}", path.display()))
}
