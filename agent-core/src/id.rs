//! Identifiers and timestamps: small newtypes, validated where they come from outside.

use std::{
    fmt,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

use crate::{Error, ErrorKind, Result, digest::Digest};

/// Longest session id in bytes. File systems end names at 255.
const MAX_SESSION_ID: usize = 240;

/// Names a session. Letters, digits and `. _ - $` only, so it is safe as a file name and in SQL.
///
/// A root's id is generated (UUID v7) or chosen by the caller. A child's is derived, never taken from a model:
/// `<parent id>.<sequence number>$$<index>`, where parent id and sequence number name the message (or the run)
/// that started it and the index is the position of the call in it.
///
/// ```
/// use entourage_core::SessionId;
///
/// let root = SessionId::new("review-42").unwrap();
/// let child = root.child(7, 0).unwrap();
/// assert_eq!(child.as_str(), "review-42.7$$0");
/// assert_eq!(child.origin(), Some(("review-42", 7, 0)));
/// assert!(SessionId::new("../../etc/passwd").is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(Arc<str>);

impl SessionId {
    /// Checks an id that came from outside.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when it is empty, longer than 240 bytes, `.` or `..`, or holds another character.
    pub fn new(id: impl AsRef<str>) -> Result<Self> {
        let id = id.as_ref();
        let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '$');
        if id.is_empty() || id.len() > MAX_SESSION_ID || id == "." || id == ".." || !id.chars().all(safe) {
            let shown: String = id.chars().take(60).collect();
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "a session id has 1 to {MAX_SESSION_ID} characters out of letters, digits and . _ - $; this one does not"
                ),
            )
            .with("id", format!("{shown:?}")));
        }
        Ok(Self(id.into()))
    }

    /// A new id (UUID v7: sorts by creation time).
    #[must_use]
    pub fn generate() -> Self {
        let mut buffer = Uuid::encode_buffer();
        Self((&*Uuid::now_v7().hyphenated().encode_lower(&mut buffer)).into())
    }

    /// The id of the session that call `index` of message `seq` starts below this one.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when the tree is so deep that the id grows over 240 bytes.
    pub fn child(&self, seq: u64, index: u64) -> Result<Self> {
        Self::new(format!("{}.{seq}$${index}", self.0))
    }

    /// The id of the session below this one that has this role, and in which one run follows another; siblings know
    /// each other's id by it (CW08).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when the tree is so deep that the id grows over 240 bytes.
    pub fn in_role(&self, role: &str) -> Result<Self> {
        Self::new(format!("{}$${role}", self.0))
    }

    /// The id of the session above and the role, when this id was derived by [`SessionId::in_role`].
    #[must_use]
    pub fn role(&self) -> Option<(&str, &str)> {
        let (parent, role) = self.0.rsplit_once("$$")?;
        role.starts_with(|c: char| c.is_ascii_alphabetic()).then_some((parent, role))
    }

    /// Parent id, sequence number and index, when this id was derived by [`SessionId::child`].
    #[must_use]
    pub fn origin(&self) -> Option<(&str, u64, u64)> {
        let (message, index) = self.0.rsplit_once("$$")?;
        let (parent, seq) = message.rsplit_once('.')?;
        Some((parent, seq.parse().ok()?, index.parse().ok()?))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({})", self.0)
    }
}

impl Serialize for SessionId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for SessionId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::new(text).map_err(de::Error::custom)
    }
}

/// Names a run: one prompt to one outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(Uuid);

impl RunId {
    /// A new id (UUID v7).
    #[must_use]
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }

    /// Reads an id written by `Display`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when the text is no UUID.
    pub fn parse(text: &str) -> Result<Self> {
        Uuid::parse_str(text).map(Self).map_err(|error| {
            Error::new(ErrorKind::InvalidInput, "a run id is a UUID").with("id", text).caused_by(error)
        })
    }

    /// The id of a run that event `seq` of this run starts: always the same, so that a replay makes it again.
    pub(crate) fn started_at(self, seq: u64) -> Self {
        const FORM: u128 = 0x8000_8000_0000_0000_0000;
        let digest = Digest::of([self.0.as_bytes().as_slice(), &seq.to_le_bytes()]).as_u128();
        // A UUID of version 8: what it is made of is its maker's business.
        Self(Uuid::from_u128(digest & !(0xf000_c000_0000_0000_0000) | FORM))
    }

    /// The id as a number, for stores that keep 128-bit keys.
    #[must_use]
    pub fn as_u128(self) -> u128 {
        self.0.as_u128()
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

/// Names a model call: all its attempts share it, and every event about it carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(Uuid);

impl RequestId {
    /// A new id (UUID v7), for a call outside any run.
    #[must_use]
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }

    /// The id of call `number` of a run: the same again when the run is resumed before the call has its reply.
    pub(crate) fn of(run: RunId, number: u64) -> Self {
        // The low bits of a run's id are random: ids of two runs meet no sooner than by chance.
        Self(Uuid::from_u128(run.as_u128().wrapping_add(u128::from(number))))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

/// A moment: microseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From microseconds since 1970-01-01 UTC.
    #[must_use]
    pub fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970-01-01 UTC.
    #[must_use]
    pub fn as_micros(self) -> i64 {
        self.0
    }

    /// The system's clock.
    #[must_use]
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    /// Time from `earlier` to this moment; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> std::time::Duration {
        std::time::Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// This moment moved on by `delay`.
    #[must_use]
    pub fn after(self, delay: std::time::Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(delay.as_micros()).unwrap_or(i64::MAX)))
    }
}

/// Where time comes from. Agents never read the system's clock themselves: see [`crate::run::RunContext::now`].
pub trait Clock: Send + Sync + fmt::Debug {
    /// The present moment.
    fn now(&self) -> Timestamp;
}

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
