//! Identifiers and timestamps: small newtypes, validated when they come from outside.

use std::{
    collections::hash_map::RandomState,
    fmt,
    hash::BuildHasher,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Deserializer, Serialize, de};
use uuid::Uuid;

use crate::{Digest, Error, ErrorKind, Result};

/// Maximum length of a session id in bytes. File systems end names at 255.
const MAX_SESSION_ID: usize = 240;

/// Levels of sessions below a root.
const MAX_DEPTH: usize = 40;

/// Id of a session. Letters, digits and `. _ - $` only, so it is safe as a file name and in SQL.
///
/// A root's id is generated (UUID v7) or chosen by the caller. A child's is derived, never taken from a model:
/// `<parent id>.<sequence number>$$<index>`, where parent id and sequence number name the message (or the run)
/// that started it and the index is the position of the call in it.
///
/// ```
/// use entourage_core::SessionId;
///
/// let root: SessionId = "review-42".parse().unwrap();
/// let child = root.child(7, 0).unwrap();
/// assert_eq!(child.as_str(), "review-42.7$$0");
/// assert_eq!(child.origin(), Some(("review-42", 7, 0)));
/// assert!(SessionId::new("../../etc/passwd").is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct SessionId(Arc<str>);

impl SessionId {
    /// Checks an id that came from outside: 1 to 240 ASCII letters, ASCII digits and `.`, `_`, `-`, `$`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when it is empty, longer than 240 bytes, `.` or `..`, or holds another character,
    /// such as a letter with an accent.
    pub fn new(id: impl AsRef<str>) -> Result<Self> {
        let id = id.as_ref();
        let safe = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'$');
        if matches!(id, "" | "." | "..") || id.len() > MAX_SESSION_ID || !id.as_bytes().iter().all(safe) {
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
        Self((&*new_uuid().hyphenated().encode_lower(&mut buffer)).into())
    }

    /// The id of the session that call `index` of message `seq` starts below this one.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when the tree grows more than 40 levels deep, or its id over 240 bytes.
    pub fn child(&self, seq: u64, index: u64) -> Result<Self> {
        self.below(format!("{}.{seq}$${index}", self.0))
    }

    fn below(&self, id: String) -> Result<Self> {
        // Only a long id can be that deep.
        let deep = || self.0.len() >= 2 * MAX_DEPTH && self.0.matches("$$").count() >= MAX_DEPTH;
        if id.len() > MAX_SESSION_ID || deep() {
            let text = format!(
                "agents nest at most {MAX_DEPTH} levels below a root session, and fewer where ids are long; look for an agent that starts itself again and again"
            );
            return Err(Error::new(ErrorKind::InvalidInput, text).with("session", self.as_str()));
        }
        // This id is valid, and so is what its callers add.
        Ok(Self(id.into()))
    }

    /// The id of the session in this role below this one. Its runs follow each other; siblings derive each other's id
    /// by role.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when the role is not an ASCII letter followed by ASCII letters, ASCII digits, `_`
    /// and `-`, or the tree is more than 40 levels deep, or the id grows over 240 bytes.
    pub fn in_role(&self, role: &str) -> Result<Self> {
        let rest = role.strip_prefix(|c: char| c.is_ascii_alphabetic());
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if !rest.is_some_and(|rest| rest.bytes().all(fits)) {
            let shown: String = role.chars().take(60).collect();
            let text = "a role is a letter followed by letters, digits, _ and -; this one is not";
            return Err(Error::new(ErrorKind::InvalidInput, text).with("role", format!("{shown:?}")));
        }
        self.below([&*self.0, "$$", role].concat())
    }

    /// The parent's id and the role, if this id was derived by [`SessionId::in_role`].
    #[must_use]
    pub fn role(&self) -> Option<(&str, &str)> {
        let (parent, role) = self.0.rsplit_once("$$")?;
        role.starts_with(|c: char| c.is_ascii_alphabetic()).then_some((parent, role))
    }

    /// Parent id, sequence number and index, if this id was derived by [`SessionId::child`].
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
        f.pad(&self.0)
    }
}

impl std::str::FromStr for SessionId {
    type Err = Error;

    fn from_str(id: &str) -> Result<Self> {
        Self::new(id)
    }
}

impl<'de> Deserialize<'de> for SessionId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// Id of a run: one prompt to one outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(Uuid);

impl RunId {
    /// A new id (UUID v7).
    #[must_use]
    pub fn generate() -> Self {
        Self(new_uuid())
    }

    /// Reads an id written by `Display`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when the text is not a UUID.
    pub fn parse(text: &str) -> Result<Self> {
        Uuid::parse_str(text).map(Self).map_err(|error| {
            Error::new(ErrorKind::InvalidInput, "a run id is a UUID").with("id", text).caused_by(error)
        })
    }

    /// The id of a run that event `seq` of this run starts. It is always the same, so that a replay derives it again.
    ///
    /// It is as random as this run's id: ids of two runs, or of two places in one, collide only by chance, in 122 bits.
    #[must_use]
    pub fn started_at(self, seq: u64) -> Self {
        const FORM: u128 = 0x8000_8000_0000_0000_0000;
        let (high, low) = self.0.as_u64_pair();
        let first = mixed(high ^ mixed(seq));
        let second = mixed(low ^ first);
        let mix = u128::from(mixed(first ^ second)) << 64 | u128::from(second);
        // A UUID of version 8, whose content is up to its maker.
        Self(Uuid::from_u128(mix & !(0xf000_c000_0000_0000_0000) | FORM))
    }

    /// True if the id was derived by [`RunId::started_at`].
    pub fn is_derived(self) -> bool {
        self.0.get_version_num() == 8
    }

    /// The id as a number, for stores that keep 128-bit keys.
    #[must_use]
    pub fn as_u128(self) -> u128 {
        self.0.as_u128()
    }
}

/// A bijection in which each bit of the result depends on all bits of `word`: the finalizer of SplitMix64 (Steele, Lea
/// and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014), with the step before it so that 0 is not
/// fixed.
fn mixed(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// A new UUID of version 7.
pub(crate) fn new_uuid() -> Uuid {
    uuid_at(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(), random())
}

/// The UUID of version 7 of this time: milliseconds, their fraction to a quarter of a microsecond (RFC 9562, section
/// 6.2, method 3), and 62 random bits.
fn uuid_at(since: Duration, random: u64) -> Uuid {
    let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    let fraction = u128::from(since.subsec_nanos() % 1_000_000) * 4_096 / 1_000_000;
    let [_, _, _, _, _, _, rest @ ..] = (fraction << 64 | u128::from(random)).to_be_bytes();
    uuid::Builder::from_unix_timestamp_millis(millis, &rest).into_uuid()
}

/// A random number, no secret: std's hash of nothing under a key of its own, which is seeded by the operating system
/// once a thread. A generator of random numbers would be five crates more.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(())
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

/// Id of a model call. All its attempts share it, and every event about it carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(Uuid);

impl RequestId {
    /// A new id (UUID v7), for a call outside any run.
    #[must_use]
    pub fn generate() -> Self {
        Self(new_uuid())
    }

    /// The id of call `number` of a run: the same again if the run is resumed before the call has its reply.
    pub fn of(run: RunId, number: u64) -> Self {
        // The low bits of a run's id are random, so ids of two runs collide only by chance.
        Self(Uuid::from_u128(run.as_u128().wrapping_add(u128::from(number))))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

/// A point in time: microseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Converts from microseconds since 1970-01-01 UTC.
    #[must_use]
    pub fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970-01-01 UTC.
    #[must_use]
    pub fn as_micros(self) -> i64 {
        self.0
    }

    /// Reads the system's clock.
    #[must_use]
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    /// Time from `earlier` to this moment; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The point in time `delay` after this one.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(delay.as_micros()).unwrap_or(i64::MAX)))
    }
}

/// Source of time. Agents never read the system's clock themselves: see [`crate::run::RunContext::now`].
pub trait Clock: Send + Sync + fmt::Debug {
    /// The current time.
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

/// Key of an effect of a hand-written agent: its ordinal in the run and the digest of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EffectKey {
    /// Position among the effects of the run, from 0.
    pub ordinal: u64,
    /// Digest of the effect's request.
    pub digest: Digest,
}

impl EffectKey {
    /// The key of effect number `ordinal`.
    #[must_use]
    pub fn new(ordinal: u64, digest: Digest) -> Self {
        Self { ordinal, digest }
    }
}

/// A run that asked for one in a session below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunAbove {
    /// The run that asked.
    pub run: RunId,
    /// Run of its session's first event, which no other session of the same id has.
    pub first: RunId,
    /// Time at which its session was created.
    pub created: Timestamp,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_below_a_root_are_valid_and_of_bounded_depth_however_short() {
        let mut id = SessionId::new("r").unwrap();
        for depth in 0..MAX_DEPTH {
            id = if depth % 2 == 0 { id.in_role("x") } else { id.child(1, 0) }.unwrap();
            assert_eq!(SessionId::new(id.as_str()).unwrap(), id);
        }
        assert!(id.in_role("x").is_err() && id.child(1, 0).is_err(), "{id}");
        for role in ["", "1", "é", "a.b", "a$", "aé"] {
            assert!(SessionId::new("r").unwrap().in_role(role).is_err(), "{role}");
        }
    }

    #[test]
    fn ids_that_follow_from_a_run_and_a_number_are_all_different() {
        let first = RunId::generate();
        let neighbours = (0..100).map(|step| RunId(Uuid::from_u128(first.as_u128() ^ 1 << step)));
        let made: Vec<RunId> =
            neighbours.flat_map(|run| (0..1_000).map(move |seq| run.started_at(seq))).collect();
        assert_eq!(made.iter().collect::<HashSet<_>>().len(), made.len());
        assert!(
            made.iter().all(|id| id.0.get_version_num() == 8 && id.0.get_variant() == uuid::Variant::RFC4122)
        );
        assert_eq!(first.started_at(7), first.started_at(7));
    }

    #[test]
    fn generated_ids_are_of_version_7_and_differ_across_threads() {
        let made = std::thread::scope(|scope| {
            let some = || (0..5_000).map(|_| RunId::generate().0).collect::<Vec<_>>();
            let threads = [(); 4].map(|()| scope.spawn(some));
            threads.map(|thread| thread.join().unwrap()).concat()
        });
        assert_eq!(made.iter().collect::<HashSet<_>>().len(), made.len());
        let form = |id: &Uuid| (id.get_version_num(), id.get_variant());
        assert!(made.iter().all(|id| form(id) == (7, uuid::Variant::RFC4122)));
        // Every bit takes both values.
        let all = made.iter().fold(u128::MAX, |all, id| all & id.as_u128());
        let any = made.iter().fold(0, |any, id| any | id.as_u128());
        let random = u128::from(u64::MAX >> 2);
        assert_eq!((all & random, any & random), (0, random));
    }

    #[test]
    fn generated_ids_sort_by_their_time() {
        let first = Duration::from_micros(1_795_405_651_999_990);
        for micros in 0..2_000 {
            let at = first + Duration::from_micros(micros);
            let (one, next) = (uuid_at(at, u64::MAX), uuid_at(at + Duration::from_micros(1), 0));
            assert!(one < next && one.get_version_num() == 7, "{one} {next}");
            assert_eq!(one.as_u128() >> 80, at.as_millis());
        }
    }

    // The reference sequence of the generator that starts with 0.
    #[test]
    fn words_are_mixed_as_published() {
        assert_eq!(mixed(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mixed(0x9e37_79b9_7f4a_7c15), 0x6e78_9e6a_a1b9_65f4);
    }
}
