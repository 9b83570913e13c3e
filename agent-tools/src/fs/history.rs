//! Versions of the files that sessions changed, so that a change can be undone.
//!
//! Contents lie by their digest in `contents/`, and each session has a list of its versions in `sessions/`. Both only
//! grow.

use std::{
    fmt,
    io::{self, Read, Write},
    path::Path,
};

use cap_std::{
    ambient_authority,
    fs::{Dir, File, OpenOptions},
};
use entourage_core::{Digest, Error, ErrorKind, SessionId};
use serde::{Deserialize, Serialize};

use super::seen::digest_of;

/// A content, and its digest.
pub(super) type Content<'a> = (&'a [u8], Digest);

/// The versions of files, in a directory of its own.
pub(super) struct History {
    contents: Dir,
    sessions: Dir,
}

/// A line of a session's list.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    path: String,
    /// Digest of a new version's content; `None` for one in which there was no file.
    #[serde(default)]
    digest: Option<String>,
    /// True if the session saw this content, and changed nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    seen: bool,
    /// True if the newest version was undone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    undone: bool,
}

impl History {
    /// Opens the directory, and creates it where it is missing.
    pub(super) fn open(dir: &Path) -> Result<Self, Error> {
        let open = || {
            std::fs::create_dir_all(dir)?;
            let dir = Dir::open_ambient_dir(dir, ambient_authority())?;
            let below = |name: &str| {
                dir.create_dir_all(name)?;
                dir.open_dir(name)
            };
            Ok(Self { contents: below("contents")?, sessions: below("sessions")? })
        };
        open().map_err(|error: io::Error| {
            let text = format!(
                "the history of files at `{}` cannot be opened: {error}; name a directory that can be written",
                dir.display()
            );
            Error::new(ErrorKind::Io, text).during("workspace.history").caused_by(error)
        })
    }

    /// Keeps a content, which has this digest. It is whole once it has its name.
    fn keep(&self, content: Content<'_>, beside: &str) -> io::Result<()> {
        self.put(content, beside, File::sync_data)
    }

    /// Keeps a content of which a crash may leave a part, until [`History::sync`].
    pub(super) fn keep_unsynced(&self, content: Content<'_>, beside: &str) -> io::Result<()> {
        self.put(content, beside, |_| Ok(()))
    }

    fn put(
        &self,
        (content, digest): Content<'_>,
        beside: &str,
        sync: impl FnOnce(&File) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.has(digest) {
            return Ok(());
        }
        let mut options = OpenOptions::new();
        let mut file = self.contents.open_with(beside, options.write(true).create_new(true))?;
        file.write_all(content)?;
        sync(&file)?;
        self.contents.rename(beside, &self.contents, digest.to_string())
    }

    /// True if a content is kept.
    pub(super) fn has(&self, digest: Digest) -> bool {
        self.contents.symlink_metadata(digest.to_string()).is_ok()
    }

    /// Returns once these contents, and `file` of the same file system, are on the disk.
    #[cfg(target_os = "linux")]
    #[allow(clippy::unused_self, reason = "elsewhere each content is named")]
    pub(super) fn sync(&self, file: &File, _: impl Iterator<Item = Digest>) -> io::Result<()> {
        // One call for all of them: a thousand would take seconds.
        Ok(rustix::fs::syncfs(file)?)
    }

    /// Returns once these contents, and `file`, are on the disk.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn sync(&self, file: &File, mut contents: impl Iterator<Item = Digest>) -> io::Result<()> {
        contents.try_for_each(|digest| self.contents.open(digest.to_string())?.sync_data())?;
        file.sync_data()
    }

    /// Returns a content that was kept.
    pub(super) fn content(&self, digest: Digest) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        self.contents.open(digest.to_string())?.read_to_end(&mut content)?;
        match digest_of(&content) == digest {
            true => Ok(content),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, "the kept content is damaged")),
        }
    }

    /// Keeps the content of a file before it is changed, as a version unless it is the newest one, and the content that
    /// it will have. Returns the number of that version, from 1; 0 is the content before the first change.
    pub(super) fn before(
        &self,
        session: &SessionId,
        path: &str,
        (before, after): (Option<Content<'_>>, Content<'_>),
        beside: &str,
    ) -> io::Result<usize> {
        before.map_or(Ok(()), |before| self.keep(before, beside))?;
        self.keep(after, beside)?;
        let before = before.map(|(_, digest)| digest);
        let versions = self.versions(session, path)?;
        if versions.last() == Some(&before) {
            return Ok(versions.len());
        }
        self.add(session, &Line::new(path, before))?;
        Ok(versions.len().saturating_add(1))
    }

    /// Adds the version that a change made.
    pub(super) fn changed(&self, session: &SessionId, path: &str, after: Digest) -> io::Result<()> {
        self.add(session, &Line::new(path, Some(after)))
    }

    /// Takes the newest version back.
    pub(super) fn undone(&self, session: &SessionId, path: &str) -> io::Result<()> {
        self.add(session, &Line { undone: true, ..Line::new(path, None) })
    }

    /// Notes the content of a file that a session saw.
    pub(super) fn saw(&self, session: &SessionId, path: &str, digest: Digest) -> io::Result<()> {
        self.add(session, &Line { seen: true, ..Line::new(path, Some(digest)) })
    }

    /// Returns the content of a file that a session saw last, or left there.
    pub(super) fn seen(&self, session: &SessionId, path: &str) -> io::Result<Option<Digest>> {
        self.fold(session, path).map(|(_, seen)| seen)
    }

    /// Returns the versions of a file that a session changed, oldest first; `None` for one without a file.
    pub(super) fn versions(&self, session: &SessionId, path: &str) -> io::Result<Vec<Option<Digest>>> {
        self.fold(session, path).map(|(versions, _)| versions)
    }

    /// Folds a session's lines about a file: its versions, and the content that the session saw last.
    fn fold(&self, session: &SessionId, path: &str) -> io::Result<(Vec<Option<Digest>>, Option<Digest>)> {
        let (mut versions, mut seen) = (Vec::new(), None);
        for line in self.lines(session, path)? {
            seen = line.digest.map(digest).transpose()?;
            if line.undone {
                versions.pop();
                seen = versions.last().copied().flatten();
            } else if !line.seen {
                versions.push(seen);
            }
        }
        Ok((versions, seen))
    }

    fn lines(&self, session: &SessionId, path: &str) -> io::Result<Vec<Line>> {
        let mut list = String::new();
        match self.sessions.open(name(session)) {
            Ok(mut file) => file.read_to_string(&mut list).map(drop)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        // A process that died may have left a part of a line.
        let lines = list.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
        Ok(lines.filter(|line| line.path == path).collect())
    }

    fn add(&self, session: &SessionId, line: &Line) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = self.sessions.open_with(name(session), options.append(true).create(true))?;
        let text = serde_json::to_string(line).map_err(io::Error::other)?;
        // After a part of a line a new one begins.
        file.write_all(format!("\n{text}\n").as_bytes())?;
        // What was seen and is not stored is viewed again.
        if line.seen { Ok(()) } else { file.sync_data() }
    }
}

fn name(session: &SessionId) -> String {
    format!("{}.jsonl", Digest::of([session.as_str().as_bytes()]))
}

fn digest(text: String) -> io::Result<Digest> {
    serde_json::from_value(text.into()).map_err(io::Error::other)
}

impl Line {
    /// A version with this content.
    fn new(path: &str, digest: Option<Digest>) -> Self {
        let digest = digest.map(|digest| digest.to_string());
        Self { path: path.to_owned(), digest, seen: false, undone: false }
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("History").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(content: &[u8]) -> (&[u8], Digest) {
        (content, digest_of(content))
    }

    #[test]
    fn cd04_versions_are_counted_from_0_and_a_change_from_outside_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let session = SessionId::new("s").unwrap();
        let change = |before: Option<&str>, after: &str| {
            let history = History::open(dir.path()).unwrap();
            let [before, after] = [before, Some(after)].map(|text| text.map(|text| told(text.as_bytes())));
            let version = history.before(&session, "a", (before, after.unwrap()), "beside").unwrap();
            history.changed(&session, "a", after.unwrap().1).unwrap();
            version
        };
        assert_eq!(change(Some("one"), "two"), 1);
        assert_eq!(change(Some("outside"), "three"), 3);
        assert_eq!(change(Some("three"), "two"), 4);
        let history = History::open(dir.path()).unwrap();
        let versions = history.versions(&session, "a").unwrap();
        let content = |digest: &Option<Digest>| history.content(digest.unwrap()).unwrap();
        let contents: Vec<_> = versions.iter().map(content).collect();
        assert_eq!(contents, [b"one".as_slice(), b"two", b"outside", b"three", b"two"]);
        history.undone(&session, "a").unwrap();
        assert_eq!(history.versions(&session, "a").unwrap().len(), 4);
        assert_eq!(history.versions(&session, "b").unwrap(), []);
        assert_eq!(history.versions(&SessionId::new("other").unwrap(), "a").unwrap(), []);
    }

    #[test]
    fn a_part_of_a_line_and_a_damaged_content_are_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let (session, history) = (SessionId::new("s").unwrap(), History::open(dir.path()).unwrap());
        history.before(&session, "a", (None, told(b"one")), "beside").unwrap();
        history.changed(&session, "a", digest_of(b"one")).unwrap();
        let list = dir.path().join("sessions").join(name(&session));
        let text = std::fs::read_to_string(&list).unwrap();
        std::fs::write(&list, format!("{text}\n{{\"path\":\"a\",\"dig")).unwrap();
        let contents = (Some(told(b"one")), told(b"two"));
        assert_eq!(history.before(&session, "a", contents, "beside").unwrap(), 2);
        history.changed(&session, "a", digest_of(b"two")).unwrap();
        let kept = history.versions(&session, "a").unwrap();
        assert_eq!(kept[0], None);
        std::fs::write(dir.path().join("contents").join(kept[1].unwrap().to_string()), "other").unwrap();
        assert_eq!(history.content(kept[1].unwrap()).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
