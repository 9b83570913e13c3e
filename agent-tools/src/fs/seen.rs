//! Files as each session saw them, so that none overwrites what it does not know.

use std::{
    collections::HashMap,
    fs::Metadata,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use entourage_core::{Digest, SessionId};

/// Most files that are remembered, of all sessions together. Of a file that was forgotten the tools say that it must be
/// viewed first.
const MOST: usize = 10_000;

/// Facts by which another content of a file is noticed without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp {
    len: u64,
    modified: Option<SystemTime>,
    /// Device, number and time of the last change of any kind, where the system has them.
    identity: Option<(u64, u64, i64, i64)>,
}

impl Stamp {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self { len: metadata.len(), modified: metadata.modified().ok(), identity: identity(metadata) }
    }

    /// The facts about an entry that was not opened.
    pub(super) fn of_entry(metadata: &cap_std::fs::Metadata) -> Self {
        let modified = metadata.modified().ok().map(cap_std::time::SystemTime::into_std);
        Self { len: metadata.len(), modified, identity: identity_of_entry(metadata) }
    }

    /// True if both are known to be of one file, under whatever names.
    #[cfg(feature = "lsp")]
    pub(super) fn is_of_same_file(&self, other: &Self) -> bool {
        let place = |it: &Self| it.identity.map(|(device, number, ..)| (device, number));
        place(self).is_some() && place(self) == place(other)
    }

    /// True if the content has not changed for so long that a change would show by these facts.
    pub(super) fn is_older_than(&self, age: Duration) -> bool {
        self.modified.is_some_and(|at| SystemTime::now().duration_since(at).is_ok_and(|it| it > age))
    }
}

#[cfg(unix)]
#[allow(clippy::unnecessary_wraps, reason = "other systems have none")]
fn identity(metadata: &Metadata) -> Option<(u64, u64, i64, i64)> {
    use std::os::unix::fs::MetadataExt;
    Some((metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec()))
}

#[cfg(unix)]
#[allow(clippy::unnecessary_wraps, reason = "other systems have none")]
fn identity_of_entry(metadata: &cap_std::fs::Metadata) -> Option<(u64, u64, i64, i64)> {
    use cap_std::fs::MetadataExt;
    Some((metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec()))
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> Option<(u64, u64, i64, i64)> {
    None
}

#[cfg(not(unix))]
fn identity_of_entry(_: &cap_std::fs::Metadata) -> Option<(u64, u64, i64, i64)> {
    None
}

/// A file as a session saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Known {
    /// By its content.
    Content(Digest),
    /// By the facts about it, if it was too large to be read for its content.
    Facts(Stamp),
}

impl Known {
    /// True if a file with this content is the one that was seen. A change of times alone is none.
    pub(super) fn is(&self, stamp: &Stamp, content: Digest) -> bool {
        match self {
            Self::Content(digest) => *digest == content,
            Self::Facts(facts) => facts == stamp,
        }
    }
}

/// Digest of a content.
pub(super) fn digest_of(content: &[u8]) -> Digest {
    Digest::of([content])
}

/// The files that sessions have seen, by their resolved path below the root.
#[derive(Debug, Default)]
pub(super) struct Seen(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    files: HashMap<SessionId, HashMap<PathBuf, (Known, u64)>>,
    count: usize,
    /// Number of the last note.
    last: u64,
}

impl Seen {
    pub(super) fn get(&self, session: &SessionId, path: &Path) -> Option<Known> {
        self.table().files.get(session)?.get(path).map(|(known, _)| known.clone())
    }

    pub(super) fn note(&self, session: &SessionId, path: &Path, known: Known) {
        let mut table = self.table();
        table.last = table.last.saturating_add(1);
        let entry = (known, table.last);
        let files = table.files.entry(session.clone()).or_default();
        if files.insert(path.to_owned(), entry).is_none() {
            table.count = table.count.saturating_add(1);
        }
        if table.count > MOST {
            table.forget();
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Forgets the older half.
    fn forget(&mut self) {
        let mut notes: Vec<u64> =
            self.files.values().flat_map(|files| files.values().map(|(_, at)| *at)).collect();
        let half = notes.len() / 2;
        let (_, middle, _) = notes.select_nth_unstable(half);
        let middle = *middle;
        self.files.retain(|_, files| {
            files.retain(|_, (_, at)| *at >= middle);
            !files.is_empty()
        });
        self.count = self.files.values().map(HashMap::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(len: u64) -> Known {
        Known::Facts(Stamp { len, modified: None, identity: None })
    }

    #[test]
    fn cd05_sessions_do_not_share_what_they_saw_and_the_oldest_is_forgotten() {
        let seen = Seen::default();
        let [above, below] = ["s", "s$$1"].map(|id| SessionId::new(id).unwrap());
        seen.note(&above, Path::new("a"), known(1));
        assert_eq!(seen.get(&above, Path::new("a")), Some(known(1)));
        assert_eq!(seen.get(&below, Path::new("a")), None);
        seen.note(&above, Path::new("a"), known(2));
        assert_eq!(seen.get(&above, Path::new("a")), Some(known(2)));
        for n in 0..MOST {
            seen.note(&below, Path::new(&n.to_string()), known(0));
        }
        assert_eq!(seen.get(&above, Path::new("a")), None);
        assert_eq!(seen.get(&below, Path::new(&(MOST - 1).to_string())), Some(known(0)));
        let table = seen.table();
        assert_eq!(table.count, table.files.values().map(HashMap::len).sum::<usize>());
        assert!(table.count <= MOST, "{}", table.count);
    }

    #[test]
    fn cx05_content_decides_where_it_is_known_and_else_the_facts_of_the_file() {
        let [a, b] = [b"a", b"b"].map(|content| digest_of(content));
        let stamp = Stamp { len: 1, modified: None, identity: None };
        let other = Stamp { modified: Some(SystemTime::UNIX_EPOCH), ..stamp.clone() };
        let by_digest = Known::Content(a);
        assert!(by_digest.is(&other, a), "touched, and the same");
        assert!(!by_digest.is(&stamp, b), "changed within the grain of the clock");
        assert!(known(1).is(&stamp, b) && !known(1).is(&other, a));
    }
}
