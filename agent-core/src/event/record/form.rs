//! The two forms of a recorded value: as an agent made it, and as a store has it.

use std::{
    any::Any,
    borrow::Cow,
    fmt,
    marker::PhantomData,
    sync::{Arc, OnceLock},
};

use serde::{Deserialize, Serialize, de, ser};
use serde_json::value::RawValue;

use super::{Record, Recorded};
use crate::{
    Error, ErrorKind, Result, RunId, SessionId,
    base::{EffectKey, bound::is_readable, json},
    event::versions,
};

/// A record of any type. The value itself is behind the pointer: one allocation.
pub(super) trait Live: fmt::Debug + Send + Sync {
    fn kind(&self) -> &'static str;
    fn version(&self) -> u32;
    fn link(&self) -> Option<(&SessionId, Option<RunId>)>;
    fn line(&self) -> String;
    fn weight(&self) -> Result<usize>;
    fn write(&self, out: &mut Vec<u8>) -> serde_json::Result<()>;
    fn equals(&self, other: &Recorded) -> bool;
    fn shared(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

impl<T: Record> Live for T {
    fn kind(&self) -> &'static str {
        Column::<T>::TEXT
    }
    fn version(&self) -> u32 {
        T::VERSION
    }
    fn link(&self) -> Option<(&SessionId, Option<RunId>)> {
        self.child()
    }
    fn line(&self) -> String {
        self.summary()
    }
    fn weight(&self) -> Result<usize> {
        self.weigh()
    }
    fn write(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        serde_json::to_writer(out, self)
    }
    fn equals(&self, other: &Recorded) -> bool {
        matches!(other.get::<T>(), Ok(Some(other)) if *other == *self)
    }
    fn shared(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

#[derive(Debug, Clone)]
pub(super) enum Form {
    Live(Arc<dyn Live>),
    Held(Arc<Held>),
}

/// A value that was read from a store, or that has a key.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) key: Option<EffectKey>,
    pub(super) stored: Option<Stored>,
    /// The value in its type, once that is known.
    pub(super) live: OnceLock<Arc<dyn Live>>,
}

#[derive(Debug)]
pub(super) struct Stored {
    pub(super) kind: Cow<'static, str>,
    pub(super) version: u32,
    pub(super) value: Box<RawValue>,
    pub(super) child: Option<Link<'static>>,
}

/// The child that a value names.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Link<'a> {
    pub(super) session: Cow<'a, SessionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) run: Option<RunId>,
}

impl Form {
    pub(super) fn live(&self) -> Option<&Arc<dyn Live>> {
        match self {
            Self::Live(live) => Some(live),
            Self::Held(held) => held.live.get(),
        }
    }

    pub(super) fn stored(&self) -> Option<&Stored> {
        match self {
            Self::Live(_) => None,
            Self::Held(held) => held.stored.as_ref(),
        }
    }

    /// Writes the value as JSON.
    pub(super) fn write(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        match (self.stored(), self.live()) {
            (None, Some(live)) => live.write(out),
            (stored, _) => {
                out.extend(stored.map_or("null", |stored| stored.value.get()).bytes());
                Ok(())
            }
        }
    }
}

const RECORD: &str = "record:";
pub(super) const KEEP: &str = "keep:";

/// Bytes of the longest name.
const NAME: usize = 100;

/// True for a namespace and a name.
const fn is_name(name: &str) -> bool {
    let (mut rest, mut dots, mut before) = (name.as_bytes(), 0, b'.');
    while let [first, after @ ..] = rest {
        match *first {
            b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' => {}
            b'.' if before != b'.' => dots += 1,
            _ => return false,
        }
        (before, rest) = (*first, after);
    }
    dots > 0 && before != b'.' && name.len() <= NAME
}

/// The kind of a type as stored. The compiler makes the text, so that no row does.
struct Column<T>(PhantomData<T>);

impl<T: Record> Column<T> {
    const PREFIX: &'static str = if T::KEPT { KEEP } else { RECORD };
    const BYTES: &'static [u8; NAME + RECORD.len()] = &{
        assert!(
            is_name(T::KIND),
            "a record's KIND must be `namespace.name`, at most 100 bytes in lower case"
        );
        let mut bytes = [0; NAME + RECORD.len()];
        let (prefix, rest) = bytes.split_at_mut(Self::PREFIX.len());
        prefix.copy_from_slice(Self::PREFIX.as_bytes());
        rest.split_at_mut(T::KIND.len()).0.copy_from_slice(T::KIND.as_bytes());
        bytes
    };
    const TEXT: &'static str =
        match str::from_utf8(Self::BYTES.split_at(Self::PREFIX.len() + T::KIND.len()).0) {
            Ok(text) => text,
            Err(_) => T::KIND,
        };
}

#[derive(Deserialize)]
struct Body {
    v: u32,
    value: Box<RawValue>,
    key: Option<EffectKey>,
    child: Option<Link<'static>>,
}

/// The child in a row of version 0.1, which holds the value alone.
#[derive(Deserialize)]
struct Named {
    child: Option<SessionId>,
    run: Option<RunId>,
}

/// Reads the stored form; `None` for a kind that is no record's.
pub(super) fn stored(kind: &str, body: &str) -> Option<Result<Held>> {
    let old = versions::renamed(kind);
    let name = kind.strip_prefix(RECORD).or_else(|| kind.strip_prefix(KEEP));
    if old.is_none() && !name.is_some_and(is_name) {
        return None;
    }
    let read = || match old {
        _ if !is_readable(body) => Err(de::Error::custom("it nests too deep")),
        None => serde_json::from_str::<Body>(body),
        Some(_) => {
            let Named { child, run } = serde_json::from_str(body)?;
            let child = child.map(|session| Link { session: Cow::Owned(session), run });
            Ok(Body { v: 1, value: serde_json::from_str(body)?, key: None, child })
        }
    };
    Some(read().map_err(|error| corrupt(kind, error)).map(|Body { v: version, value, key, child }| {
        let kind = old.map_or_else(|| Cow::Owned(kind.to_owned()), Cow::Borrowed);
        Held { key, stored: Some(Stored { kind, version, value, child }), live: OnceLock::new() }
    }))
}

/// Reads JSON of a version as `T`.
pub(super) fn read<T: Record>(version: u32, text: &str) -> Result<T> {
    if version > T::VERSION {
        let known = T::VERSION;
        return Err(versions::newer(&format!(
            "version {version} of `{}` is stored, and {known} is known here",
            T::KIND
        )));
    }
    let upgraded = || json::parse(text).and_then(|value| T::upgrade(version, value));
    let read = if version == T::VERSION { serde_json::from_str(text) } else { upgraded() };
    read.map_err(|error| corrupt(T::KIND, error))
}

/// Checks that the value is the same when it is read again.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] if it is not.
pub(super) fn check_read_back<T: Record>(value: &T) -> Result<()> {
    let read =
        text(|out| serde_json::to_writer(out, value)).and_then(|json| serde_json::from_str::<T>(&json));
    let found = match read {
        Ok(read) if read == *value => return Ok(()),
        Ok(_) => "its JSON gives another value".to_owned(),
        Err(error) => format!("its JSON cannot be read: {error}"),
    };
    let text = format!(
        "the record `{}` would be lost: {found}; use finite numbers, and let no field be left out that has no default",
        T::KIND
    );
    Err(Error::new(ErrorKind::InvalidInput, text))
}

/// Returns the JSON text that `write` writes.
pub(super) fn text(write: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>) -> serde_json::Result<String> {
    let mut out = Vec::new();
    write(&mut out)?;
    String::from_utf8(out).map_err(ser::Error::custom)
}

/// Writes the stored form.
pub(super) fn write(of: &Recorded, out: &mut Vec<u8>) -> serde_json::Result<()> {
    let live = of.0.live().map_or(1, |live| live.version());
    let version = of.0.stored().map_or(live, |stored| stored.version);
    out.extend_from_slice(b"{\"v\":");
    serde_json::to_writer(&mut *out, &version)?;
    out.extend_from_slice(b",\"value\":");
    of.0.write(out)?;
    if let Some(key) = of.key() {
        out.extend(b",\"key\":");
        serde_json::to_writer(&mut *out, &key)?;
    }
    if let Some((session, run)) = of.child() {
        out.extend(b",\"child\":");
        serde_json::to_writer(&mut *out, &Link { session: Cow::Borrowed(session), run })?;
    }
    out.push(b'}');
    Ok(())
}

fn corrupt(kind: &str, error: serde_json::Error) -> Error {
    let text = "a recorded value cannot be read";
    Error::new(ErrorKind::Corrupt, text).with("kind", kind.to_owned()).caused_by(error)
}
