//! File names of sessions. Ids that differ only in case get names that differ on every file system, and no name is one
//! that a system reserves.

use entourage_core::{Digest, SessionId};

const PREFIX: &str = "s-";
/// Ends the name of a session's file.
const SUFFIX: &str = ".jsonl";
/// Maximum length of an escaped id that is spelled out. Leaves room for the endings of files set aside, within 255
/// bytes.
const LONGEST: usize = 180;
/// Number of characters of a longer id that its name begins with, for people.
const SHOWN: usize = 60;

/// Returns the name of a session's file: the id in lower case, with `+` before each letter that was a capital. A longer
/// id is cut and followed by a digest; the file's first line has the whole id.
pub(super) fn file_name(session: &SessionId) -> String {
    let id = session.as_str();
    let escaped = escape(id);
    if escaped.len() <= LONGEST {
        return format!("{PREFIX}{escaped}{SUFFIX}");
    }
    let start: String = id.chars().take(SHOWN).collect();
    format!("{PREFIX}{}~{}{SUFFIX}", escape(&start), Digest::of([id.as_bytes()]))
}

/// Meaning of a name in the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Name {
    /// A session's file, with the id if the name spells it out.
    Session(Option<SessionId>),
    /// Another file of this store: a lock, a note, an unfinished session, or something set aside.
    Own,
    /// Not a file of this store.
    Foreign,
}

pub(super) fn judge(name: &str) -> Name {
    let rest = name.strip_prefix(PREFIX).unwrap_or_default();
    // No name of this store ends in the suffix unless it is a session's, whatever the id holds.
    if let Some(stem) = rest.strip_suffix(SUFFIX) {
        if stem.contains('~') {
            return Name::Session(None);
        }
        return unescape(stem).map_or(Name::Foreign, |id| Name::Session(Some(id)));
    }
    let ending = rest.rsplit_once(SUFFIX).map_or("", |(_, ending)| ending);
    let numbered = |number: &str| number.chars().all(|c| c.is_ascii_digit() || c == '-');
    let aside = [TORN, DAMAGED].into_iter().any(|kind| ending.strip_prefix(kind).is_some_and(numbered));
    if [LOCK, MOVING, LABEL, ARCHIVE].contains(&name) || ending == NEW || ending == COPIED || aside {
        Name::Own
    } else {
        Name::Foreign
    }
}

/// Returns the session of a note; `None` if this is no note, `Some(None)` if the name does not spell the id out.
#[cfg(feature = "hybrid")]
pub(super) fn noted(name: &str) -> Option<Option<SessionId>> {
    match judge(name.strip_suffix(COPIED)?) {
        Name::Session(session) => Some(session),
        _ => None,
    }
}

/// File whose lock is the directory's lock.
pub(super) const LOCK: &str = ".lock";
/// File whose lock is the leave to move or delete sessions. Held for longer than the directory's.
pub(super) const MOVING: &str = ".moving";
/// The file that tells the directory from others.
pub(super) const LABEL: &str = ".store";
/// The file that says that sessions of the directory may be in an archive.
pub(super) const ARCHIVE: &str = ".archive";
/// Added to the name of a session that is being created.
pub(super) const NEW: &str = ".new";
/// Added to the name of a session to name its note: an archive has a copy of it, which does not count.
pub(super) const COPIED: &str = ".copied";
/// Added, with a number, to the name of a file of torn bytes.
pub(super) const TORN: &str = ".torn-";
/// Added, with a number, to the name of a file that cannot be read.
pub(super) const DAMAGED: &str = ".damaged-";

fn escape(id: &str) -> String {
    let mut escaped = String::with_capacity(id.len());
    for c in id.chars() {
        if c.is_ascii_uppercase() {
            escaped.push('+');
        }
        escaped.push(c.to_ascii_lowercase());
    }
    escaped
}

fn unescape(stem: &str) -> Option<SessionId> {
    let (mut id, mut chars) = (String::with_capacity(stem.len()), stem.chars());
    while let Some(c) = chars.next() {
        match c {
            '+' => id.push(chars.next().filter(char::is_ascii_lowercase)?.to_ascii_uppercase()),
            c if c.is_ascii_uppercase() => return None,
            c => id.push(c),
        }
    }
    SessionId::new(id).ok()
}
