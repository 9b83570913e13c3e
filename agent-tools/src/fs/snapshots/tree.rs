//! The content of a snapshot, place by place: pure data, and its form as JSON.

use std::{
    collections::BTreeMap,
    io,
    path::{Component, Path, PathBuf},
};

use entourage_core::Digest;
use serde::{Deserialize, Serialize};

/// A snapshot: its places by path. A directory comes before what is in it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tree(pub(super) BTreeMap<PathBuf, Entry>);

/// The state of a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub(super) enum Entry {
    Dir {
        mode: u32,
    },
    File {
        mode: u32,
        content: Content,
    },
    Link {
        to: Name,
    },
    /// A pipe, a socket, a device, or what the system does not allow to be read. It is left as it is.
    Other,
}

/// The digest of a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Content(pub(super) Digest);

/// A path in a form that JSON can hold: as text, or as the digits of its bytes where it is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Name {
    Text(String),
    Bytes { hex: String },
}

#[derive(Serialize, Deserialize)]
struct Line {
    path: Name,
    #[serde(flatten)]
    entry: Entry,
}

#[derive(Serialize, Deserialize)]
struct Written {
    version: u32,
    entries: Vec<Line>,
}

const VERSION: u32 = 1;

impl Tree {
    pub(super) fn to_json(&self) -> io::Result<Vec<u8>> {
        let lines =
            self.0.iter().map(|(path, entry)| Ok(Line { path: Name::of(path)?, entry: entry.clone() }));
        let written = Written { version: VERSION, entries: lines.collect::<io::Result<_>>()? };
        serde_json::to_vec(&written).map_err(io::Error::other)
    }

    pub(super) fn from_json(json: &[u8]) -> io::Result<Self> {
        let written: Written = serde_json::from_slice(json).map_err(damaged)?;
        if written.version != VERSION {
            return Err(damaged("a newer version of this library wrote it"));
        }
        let entries = written.entries.into_iter().map(|line| {
            let path = line.path.path()?;
            // A place below the root, whatever the file says, and none from which git runs something.
            let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
            let of_git = path.iter().any(|name| name.eq_ignore_ascii_case(".git"));
            let is_place = plain && (!of_git || line.entry == Entry::Other);
            is_place
                .then_some((path, line.entry))
                .ok_or_else(|| damaged("it names a place that it cannot have kept"))
        });
        Ok(Self(entries.collect::<io::Result<_>>()?))
    }

    /// The contents of its files.
    pub(super) fn contents(&self) -> impl Iterator<Item = Content> {
        self.0.values().filter_map(|entry| match entry {
            Entry::File { content, .. } => Some(*content),
            _ => None,
        })
    }
}

fn damaged(why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the kept snapshot is damaged: {why}"))
}

impl Name {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        match path.to_str() {
            Some(text) => Ok(Self::Text(text.to_owned())),
            None => bytes_of(path).map(|hex| Self::Bytes { hex }),
        }
    }

    pub(super) fn path(&self) -> io::Result<PathBuf> {
        match self {
            Self::Text(text) => Ok(PathBuf::from(text)),
            Self::Bytes { hex } => path_of(hex),
        }
    }
}

#[cfg(unix)]
fn bytes_of(path: &Path) -> io::Result<String> {
    use std::os::unix::ffi::OsStrExt;
    Ok(path.as_os_str().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(unix)]
fn path_of(hex: &str) -> io::Result<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let digits: Vec<char> = hex.chars().collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).map_err(damaged);
    let bytes: Vec<u8> = digits.chunks(2).map(byte).collect::<io::Result<_>>()?;
    Ok(std::ffi::OsString::from_vec(bytes).into())
}

#[cfg(not(unix))]
fn bytes_of(path: &Path) -> io::Result<String> {
    let text = format!("the name of `{}` is no Unicode, so it cannot be kept; rename it", path.display());
    Err(io::Error::new(io::ErrorKind::Unsupported, text))
}

#[cfg(not(unix))]
fn path_of(_: &str) -> io::Result<PathBuf> {
    Err(damaged("it is of another system"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_22_a_snapshot_that_names_a_place_of_git_is_damaged() {
        for path in [".git/hooks/x", "sub/.git/config", ".GIT/config", ".git"] {
            let json = format!(r#"{{"version":1,"entries":[{{"path":"{path}","kind":"dir","mode":493}}]}}"#);
            assert_eq!(
                Tree::from_json(json.as_bytes()).unwrap_err().kind(),
                io::ErrorKind::InvalidData,
                "{path}"
            );
        }
        // The mark of a repository, of which nothing is kept.
        let mark = r#"{"version":1,"entries":[{"path":"sub/.git","kind":"other"}]}"#;
        assert_eq!(Tree::from_json(mark.as_bytes()).unwrap().0.len(), 1);
    }

    #[test]
    fn cw18_a_snapshot_that_names_a_place_outside_is_damaged() {
        for path in ["../x", "/etc/x", "a/../../x", "."] {
            let json = format!(r#"{{"version":1,"entries":[{{"path":"{path}","kind":"other"}}]}}"#);
            assert_eq!(
                Tree::from_json(json.as_bytes()).unwrap_err().kind(),
                io::ErrorKind::InvalidData,
                "{path}"
            );
        }
        assert!(Tree::from_json(br#"{"version":2,"entries":[]}"#).is_err());
        assert!(Tree::from_json(b"{").is_err());
    }
}
