//! Versions of the files that sessions changed, so that a change can be undone.
//!
//! Contents lie by their digest in `contents/`, and each session has a list of its versions in `sessions/`. Both only
//! grow. A change is written to the list before it is made, and once it is made: when a program dies in between, the
//! content of the file tells which of both it was.

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

use super::{
    beside::{Beside, Durability, Names, sweep},
    private,
    seen::digest_of,
};

/// A content, and its digest.
pub(super) type Content<'a> = (&'a [u8], Digest);

/// The versions of files, in a directory of its own.
pub(super) struct History {
    contents: Dir,
    sessions: Dir,
    /// For contents that are not whole yet.
    beside: Dir,
    names: Names,
}

/// A line of a session's list.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Made(Made),
    /// Programs that do not know it ignore it.
    Planned {
        planned: Planned,
    },
}

/// A change that is about to be made.
#[derive(Debug, Serialize, Deserialize)]
struct Planned {
    path: String,
    /// Digest of the content that there will be; `None` for no file.
    #[serde(default)]
    digest: Option<String>,
    /// True if the newest version will be undone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    undone: bool,
    /// True if it was not made after all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    given_up: bool,
}

/// A change that was made, or a content that was seen.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Made {
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
    /// Opens the directory, and creates it where it is missing. Nobody else can look into what it holds.
    pub(super) fn open(dir: &Path) -> Result<Self, Error> {
        let open = || {
            private::create_all(dir)?;
            let dir = Dir::open_ambient_dir(dir, ambient_authority())?;
            let below = |name: &str| private::open(&dir, name);
            let (contents, sessions, beside) = (below("contents")?, below("sessions")?, below("beside")?);
            sweep(&beside);
            Ok(Self { contents, sessions, beside, names: Names::default() })
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
    fn keep(&self, content: Content<'_>) -> io::Result<()> {
        self.put(content, Durability::Synced)
    }

    /// Keeps a content of which a loss of power may leave a part, until [`History::sync`].
    pub(super) fn keep_unsynced(&self, content: Content<'_>) -> io::Result<()> {
        self.put(content, Durability::Later)
    }

    fn put(&self, (content, digest): Content<'_>, durability: Durability) -> io::Result<()> {
        if self.has(digest) {
            return Ok(());
        }
        let beside = Beside::write(&self.names, &self.beside, content, None, durability)?;
        beside.replace(&self.contents, Path::new(&digest.to_string()))
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
    ) -> io::Result<usize> {
        before.map_or(Ok(()), |before| self.keep(before))?;
        self.keep(after)?;
        let before = before.map(|(_, digest)| digest);
        let versions = self.settled(session, path, before)?;
        let planned = Line::planned(path, Some(after.1), false);
        if versions.last() == Some(&before) {
            self.add(session, &[planned], true)?;
            return Ok(versions.len());
        }
        self.add(session, &[Line::made(path, before), planned], true)?;
        Ok(versions.len().saturating_add(1))
    }

    /// Adds the version that a change made, which [`before`](Self::before) announced.
    pub(super) fn changed(&self, session: &SessionId, path: &str, after: Digest) -> io::Result<()> {
        self.add(session, &[Line::made(path, Some(after))], false)
    }

    /// Announces that the newest version is taken back, so that the file has the content `before`.
    pub(super) fn undoing(&self, session: &SessionId, path: &str, before: Option<Digest>) -> io::Result<()> {
        self.add(session, &[Line::planned(path, before, true)], true)
    }

    /// Takes the newest version back.
    pub(super) fn undone(&self, session: &SessionId, path: &str) -> io::Result<()> {
        self.add(session, &[Line::undone(path)], false)
    }

    /// Takes an announcement back: the change failed, and the file has the content `current`. If it has the announced
    /// content later, somebody else wrote that.
    pub(super) fn gave_up(&self, session: &SessionId, path: &str, current: Option<Digest>) -> io::Result<()> {
        match self.fold(session, path)?.planned {
            Some((digest, _)) if digest != current => {
                let planned = Planned { path: path.to_owned(), digest: None, undone: false, given_up: true };
                self.add(session, &[Line::Planned { planned }], false)
            }
            _ => Ok(()),
        }
    }

    /// Notes the content of a file that a session saw.
    pub(super) fn saw(&self, session: &SessionId, path: &str, digest: Digest) -> io::Result<()> {
        let made = Made { seen: true, ..Made::new(path, Some(digest)) };
        // What was seen and is not stored is viewed again.
        self.add(session, &[Line::Made(made)], false)
    }

    /// Returns the content of a file that a session saw last, or left there.
    pub(super) fn seen(&self, session: &SessionId, path: &str) -> io::Result<Option<Digest>> {
        self.fold(session, path).map(|told| told.seen)
    }

    /// Returns the versions of a file that a session changed, oldest first; `None` for one without a file. `current` is
    /// its content now: if the program died at the last change and this is its result, the change was made.
    pub(super) fn settled(
        &self,
        session: &SessionId,
        path: &str,
        current: Option<Digest>,
    ) -> io::Result<Vec<Option<Digest>>> {
        let mut told = self.fold(session, path)?;
        if let Some((digest, undone)) = told.planned
            && digest == current
        {
            let made = Made { undone, ..Made::new(path, if undone { None } else { digest }) };
            self.add(session, &[Line::Made(made.clone())], true)?;
            told.take(made)?;
        }
        Ok(told.versions)
    }

    /// Folds a session's lines about a file.
    fn fold(&self, session: &SessionId, path: &str) -> io::Result<Told> {
        let mut told = Told::default();
        for line in self.lines(session)? {
            match line {
                Line::Made(made) if made.path == path => told.take(made)?,
                Line::Made(_) => {}
                Line::Planned { planned } if planned.path != path => {}
                Line::Planned { planned } if planned.given_up => told.planned = None,
                Line::Planned { planned } => {
                    told.planned = Some((planned.digest.map(digest).transpose()?, planned.undone));
                }
            }
        }
        Ok(told)
    }

    fn lines(&self, session: &SessionId) -> io::Result<Vec<Line>> {
        let mut list = String::new();
        match self.sessions.open(name(session)) {
            Ok(mut file) => file.read_to_string(&mut list).map(drop)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        // A process that died may have left a part of a line.
        Ok(list.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// Adds lines; with `lasting` they survive the loss of power.
    fn add(&self, session: &SessionId, lines: &[Line], lasting: bool) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = self.sessions.open_with(name(session), options.append(true).create(true))?;
        // After a part of a line a new one begins.
        let mut text = String::from("\n");
        for line in lines {
            text.push_str(&serde_json::to_string(line).map_err(io::Error::other)?);
            text.push('\n');
        }
        file.write_all(text.as_bytes())?;
        if lasting { file.sync_data() } else { Ok(()) }
    }
}

/// What a session's lines tell of a file.
#[derive(Debug, Default)]
struct Told {
    versions: Vec<Option<Digest>>,
    /// The content that the session saw last.
    seen: Option<Digest>,
    /// The change of which is not told that it was made: the content that it makes, and if it is an undo.
    planned: Option<(Option<Digest>, bool)>,
}

impl Told {
    fn take(&mut self, made: Made) -> io::Result<()> {
        self.seen = made.digest.map(digest).transpose()?;
        if made.seen {
            return Ok(());
        }
        self.planned = None;
        if made.undone {
            self.versions.pop();
            self.seen = self.versions.last().copied().flatten();
        } else {
            self.versions.push(self.seen);
        }
        Ok(())
    }
}

fn name(session: &SessionId) -> String {
    format!("{}.jsonl", Digest::of([session.as_str().as_bytes()]))
}

/// Reads a digest as it is written in a file.
pub(super) fn digest(text: String) -> io::Result<Digest> {
    serde_json::from_value(text.into()).map_err(io::Error::other)
}

impl Line {
    /// A version with this content.
    fn made(path: &str, digest: Option<Digest>) -> Self {
        Self::Made(Made::new(path, digest))
    }

    fn undone(path: &str) -> Self {
        Self::Made(Made { undone: true, ..Made::new(path, None) })
    }

    fn planned(path: &str, digest: Option<Digest>, undone: bool) -> Self {
        let digest = digest.map(|digest| digest.to_string());
        Self::Planned { planned: Planned { path: path.to_owned(), digest, undone, given_up: false } }
    }
}

impl Made {
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
            let version = history.before(&session, "a", (before, after.unwrap())).unwrap();
            history.changed(&session, "a", after.unwrap().1).unwrap();
            version
        };
        assert_eq!(change(Some("one"), "two"), 1);
        assert_eq!(change(Some("outside"), "three"), 3);
        assert_eq!(change(Some("three"), "two"), 4);
        let history = History::open(dir.path()).unwrap();
        let versions = history.fold(&session, "a").unwrap().versions;
        let content = |digest: &Option<Digest>| history.content(digest.unwrap()).unwrap();
        let contents: Vec<_> = versions.iter().map(content).collect();
        assert_eq!(contents, [b"one".as_slice(), b"two", b"outside", b"three", b"two"]);
        history.undone(&session, "a").unwrap();
        assert_eq!(history.fold(&session, "a").unwrap().versions.len(), 4);
        assert_eq!(history.fold(&session, "b").unwrap().versions, []);
        assert_eq!(history.fold(&SessionId::new("other").unwrap(), "a").unwrap().versions, []);
    }

    #[cfg(unix)]
    #[test]
    fn issue_14_nobody_else_can_look_into_the_directories_of_a_history() {
        use std::{fs, os::unix::fs::PermissionsExt};
        let above = tempfile::tempdir().unwrap();
        let mode = |name: &str| fs::metadata(above.path().join(name)).unwrap().permissions().mode() & 0o7777;
        let names = ["contents", "sessions", "beside"];
        for (dir, own, left) in [("new/history", 0o700, None), ("old", 0o755, Some(0o2777))] {
            if let Some(left) = left {
                for name in names.map(|name| format!("{dir}/{name}")).iter().map(String::as_str).chain([dir])
                {
                    fs::create_dir_all(above.path().join(name)).unwrap();
                    let mode = if name == dir { own } else { left };
                    fs::set_permissions(above.path().join(name), PermissionsExt::from_mode(mode)).unwrap();
                }
            }
            History::open(&above.path().join(dir)).unwrap();
            assert_eq!(mode(dir), own, "the program's own directory stays as it is");
            for name in names {
                assert_eq!(mode(&format!("{dir}/{name}")), 0o700, "{dir}/{name}");
            }
        }
    }

    #[test]
    fn a_part_of_a_line_and_a_damaged_content_are_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let (session, history) = (SessionId::new("s").unwrap(), History::open(dir.path()).unwrap());
        history.before(&session, "a", (None, told(b"one"))).unwrap();
        history.changed(&session, "a", digest_of(b"one")).unwrap();
        let list = dir.path().join("sessions").join(name(&session));
        let text = std::fs::read_to_string(&list).unwrap();
        std::fs::write(&list, format!("{text}\n{{\"path\":\"a\",\"dig")).unwrap();
        let contents = (Some(told(b"one")), told(b"two"));
        assert_eq!(history.before(&session, "a", contents).unwrap(), 2);
        history.changed(&session, "a", digest_of(b"two")).unwrap();
        let kept = history.fold(&session, "a").unwrap().versions;
        assert_eq!(kept[0], None);
        std::fs::write(dir.path().join("contents").join(kept[1].unwrap().to_string()), "other").unwrap();
        assert_eq!(history.content(kept[1].unwrap()).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn issue_14_a_change_at_which_the_program_died_was_made_if_the_file_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let (session, history) = (SessionId::new("s").unwrap(), History::open(dir.path()).unwrap());
        let [one, two, three] = [&b"one"[..], b"two", b"three"].map(told);
        let settled = |current: Content<'_>| history.settled(&session, "a", Some(current.1)).unwrap();
        history.before(&session, "a", (Some(one), two)).unwrap();
        assert_eq!(settled(one), [Some(one.1)], "it died before the change");
        assert_eq!(settled(two), [one, two].map(|it| Some(it.1)), "it died after it");
        assert_eq!(settled(two).len(), 2, "once");
        assert_eq!(history.before(&session, "a", (Some(two), three)).unwrap(), 2);
        history.changed(&session, "a", three.1).unwrap();
        history.undoing(&session, "a", Some(two.1)).unwrap();
        assert_eq!(settled(three).len(), 3, "it died before the undo");
        assert_eq!(settled(two).len(), 2, "it died after it");
        assert_eq!(settled(two).len(), 2, "once");
        let list = fs_text(&dir.path().join("sessions").join(name(&session)));
        assert_eq!(list.matches("planned").count(), 3);
        history.before(&session, "a", (Some(two), three)).unwrap();
        history.gave_up(&session, "a", Some(three.1)).unwrap();
        assert_eq!(settled(three).len(), 3, "it said that it failed, and the file has the content");
        history.before(&session, "a", (Some(three), one)).unwrap();
        history.gave_up(&session, "a", Some(three.1)).unwrap();
        assert_eq!(settled(one).len(), 3, "somebody else wrote the same later");
        assert_eq!(std::fs::read_dir(dir.path().join("beside")).unwrap().count(), 0);
    }

    fn fs_text(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap()
    }
}
