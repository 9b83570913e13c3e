//! Values that agents record: typed where they are made and read, JSON where they are stored.

mod form;

use std::{borrow::Cow, fmt, sync::Arc};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, DeserializeOwned},
    ser,
};
use serde_json::{Value, value::RawValue};

use crate::{
    Error, ErrorKind, Result, RunId, SessionId,
    base::{
        EffectKey,
        bound::{EVENT, check},
        json,
    },
    message::Message,
};
use form::{Form, Held, KEEP, Live};

/// A typed value that an agent records in its session.
///
/// [`RunContext::record`](crate::run::RunContext::record) and [`append`](crate::run::RunContext::append) make an
/// [`Event::Recorded`](super::Event::Recorded) of it; [`Recorded::get`] reads it back.
///
/// ```
/// use entourage_core::event::{Event, Record, Recorded};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize)]
/// struct Vote {
///     round: u32,
///     agreed: bool,
/// }
///
/// impl Record for Vote {
///     const KIND: &'static str = "debate.vote";
/// }
///
/// let event = Event::Recorded(Recorded::new(Vote { round: 1, agreed: true }));
/// assert_eq!(event.kind(), "record:debate.vote");
///
/// // The row in a store, and the event that another process reads from it.
/// let row = event.to_json()?;
/// assert_eq!(row, r#"{"v":1,"value":{"round":1,"agreed":true}}"#);
/// let read = Event::from_json("record:debate.vote", &row)?;
/// assert!(read.record::<Vote>()?.is_some_and(|vote| vote.agreed));
/// # Ok::<(), entourage_core::Error>(())
/// ```
///
/// # Contract
/// - A value equals what is read back from its JSON, and a kind belongs to one type.
/// - The JSON of a version stays readable: a new field has a default. Any other change needs a new
///   [`VERSION`](Self::VERSION) and an [`upgrade`](Self::upgrade).
pub trait Record: Serialize + DeserializeOwned + fmt::Debug + PartialEq + Send + Sync + 'static {
    /// Namespace and name, such as `debate.vote`: at most 100 bytes of `a-z`, `0-9`, `_`, `-` and `.`. Anything else
    /// does not compile.
    const KIND: &'static str;

    /// Version of the JSON. A value of a newer version is refused with [`ErrorKind::NewerVersion`].
    const VERSION: u32 = 1;

    /// True if the session's state keeps the values until the task is over: see [`Kept`].
    const KEPT: bool = false;

    /// Returns the value in one line for people.
    fn summary(&self) -> String {
        Self::KIND.to_owned()
    }

    /// Returns the session of a child that begins with this value, and its run if that session has several. What the
    /// run spends then counts for the one that recorded it, also after a restart.
    fn child(&self) -> Option<(&SessionId, Option<RunId>)> {
        None
    }

    /// Reads the JSON of an older version.
    ///
    /// # Errors
    /// An error for JSON that is not of that version.
    fn upgrade(version: u32, value: Value) -> serde_json::Result<Self> {
        let _ = version;
        // As text, which each type is read from anyway: a reader of a `Value` would be compiled beside that for each.
        serde_json::from_str(&value.to_string())
    }

    /// Checks that the value can be stored and read again, and returns about how many bytes it takes. By default the
    /// value is serialized for that, read back and compared. A type that equals what is read back, whatever it holds,
    /// can save that work with a `weigh` of its own.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] or [`ErrorKind::TooLarge`] for a value that cannot be stored, or that is another one
    /// when it is read: a number that is not finite, for example.
    fn weigh(&self) -> Result<usize> {
        let bytes = weigh_plain(self)?;
        form::check_read_back(self)?;
        Ok(bytes)
    }
}

/// [`Record::weigh`] of a value that equals what is read back, whatever it holds: words and counts alone, for example.
///
/// # Errors
/// Those of [`Record::weigh`].
pub fn weigh_plain(record: &impl Record) -> Result<usize> {
    check(record, EVENT).map_err(|flaw| flaw.refused("the record"))
}

/// A recorded value of any type. Cloning shares it. It becomes JSON when a store or another reader asks.
#[derive(Debug, Clone)]
pub struct Recorded(Form);

impl Recorded {
    /// Wraps a value, unserialized.
    #[must_use]
    pub fn new<T: Record>(value: impl Into<Arc<T>>) -> Self {
        Self(Form::Live(value.into()))
    }

    /// Wraps the value of a hand-written agent's effect.
    pub(crate) fn keyed<T: Record>(value: T, key: EffectKey) -> Self {
        let live: Arc<dyn Live> = Arc::new(value);
        Self(Form::Held(Arc::new(Held { key: Some(key), stored: None, live: live.into() })))
    }

    /// Returns the kind as stored: the name behind `record:` or `keep:`.
    #[must_use]
    pub fn kind(&self) -> &str {
        match self.0.stored() {
            Some(stored) => &stored.kind,
            None => self.0.live().map_or("", |live| live.kind()),
        }
    }

    /// Returns the kind for a column.
    pub(crate) fn column(&self) -> Cow<'static, str> {
        match self.0.stored() {
            Some(stored) => stored.kind.clone(),
            None => Cow::Borrowed(self.0.live().map_or("", |live| live.kind())),
        }
    }

    /// Returns the namespace and the name: [`Record::KIND`].
    #[must_use]
    pub fn name(&self) -> &str {
        self.kind().split_once(':').map_or("", |(_, name)| name)
    }

    /// True if the session's state keeps the value: see [`Kept`].
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.kind().starts_with(KEEP)
    }

    /// Returns the value as `T`; `None` if it is of another kind. It is parsed at most once.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for JSON that is no `T`, [`ErrorKind::NewerVersion`] for a newer version.
    pub fn get<T: Record>(&self) -> Result<Option<Arc<T>>> {
        if self.name() != T::KIND {
            return Ok(None);
        }
        if let Some(value) = self.0.live().and_then(|live| Arc::clone(live).shared().downcast().ok()) {
            return Ok(Some(value));
        }
        let version = self.0.stored().map_or(T::VERSION, |stored| stored.version);
        let value = Arc::new(form::read::<T>(version, &self.json()?)?);
        if let Form::Held(held) = &self.0 {
            held.live.get_or_init(|| Arc::clone(&value) as _);
        }
        Ok(Some(value))
    }

    /// Returns the value as JSON text.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a value that does not serialize.
    pub fn json(&self) -> Result<Cow<'_, str>> {
        match self.0.stored() {
            Some(stored) => Ok(Cow::Borrowed(stored.value.get())),
            None => form::text(|out| self.0.write(out)).map(Cow::Owned).map_err(unwritten),
        }
    }

    /// Returns the value in one line for people. A value from a store whose type nothing in this process asked for is
    /// shown as its name and its JSON.
    #[must_use]
    pub fn summary(&self) -> String {
        match (self.0.live(), self.0.stored()) {
            (Some(live), _) => live.line(),
            (None, stored) => format!("{} {}", self.name(), stored.map_or("", |stored| stored.value.get())),
        }
    }

    /// Returns the child that the value names, see [`Record::child`].
    #[must_use]
    pub fn child(&self) -> Option<(&SessionId, Option<RunId>)> {
        match self.0.stored() {
            Some(stored) => stored.child.as_ref().map(|link| (&*link.session, link.run)),
            None => self.0.live()?.link(),
        }
    }

    /// Returns the key of the effect that recorded the value; `None` if it was appended without one.
    #[must_use]
    pub fn key(&self) -> Option<EffectKey> {
        match &self.0 {
            Form::Live(_) => None,
            Form::Held(held) => held.key,
        }
    }

    /// Checks the value and returns about how many bytes it takes, see [`Record::weigh`].
    pub fn weigh(&self) -> Result<usize> {
        match (self.0.stored(), self.0.live()) {
            (None, Some(live)) => live.weight(),
            (stored, _) => Ok(stored.map_or(0, |stored| stored.value.get().len())),
        }
    }

    /// Returns the stored form.
    pub(super) fn body(&self) -> Result<String> {
        form::text(|out| form::write(self, out)).map_err(unwritten)
    }

    /// Returns the stored form as JSON.
    pub(super) fn raw(&self) -> Result<Box<RawValue>> {
        RawValue::from_string(self.body()?).map_err(unwritten)
    }

    /// Reads the stored form; `None` for a kind that is no record's.
    pub(super) fn stored(kind: &str, body: &str) -> Option<Result<Self>> {
        Some(form::stored(kind, body)?.map(|held| Self(Form::Held(Arc::new(held)))))
    }
}

fn unwritten(error: serde_json::Error) -> Error {
    Error::new(ErrorKind::InvalidInput, "the record does not serialize as JSON; use text as map keys")
        .caused_by(error)
}

/// Two values are equal in their type or as JSON: the type may be unknown here, or leave something out of its JSON.
impl PartialEq for Recorded {
    fn eq(&self, other: &Self) -> bool {
        let equals = |one: &Self, other: &Self| one.0.live().is_some_and(|live| live.equals(other));
        let parsed = |it: &Self| it.json().ok().and_then(|text| json::parse(&text).ok());
        self.name() == other.name()
            && self.key() == other.key()
            && (equals(self, other)
                || equals(other, self)
                || parsed(self).is_some_and(|one| parsed(other) == Some(one)))
    }
}

/// Checkpoints hold the kind and the stored form.
impl Serialize for Recorded {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.kind(), self.raw().map_err(ser::Error::custom)?).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Recorded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (kind, body) = <(Cow<'_, str>, Box<RawValue>)>::deserialize(deserializer)?;
        let read = Self::stored(&kind, body.get());
        read.ok_or_else(|| de::Error::custom(format!("`{kind}` is no record")))?.map_err(de::Error::custom)
    }
}

/// A part of [what a session's state keeps](crate::session::SessionState::kept) for the agent of its task.
///
/// The first part is the prompt of the run that recorded the first value; each later run of the same agent adds its
/// prompt. All parts are dropped when a run finishes, when another agent starts a run, and in a fork. A run that is
/// abandoned for another prompt leaves them. Each checkpoint repeats them, so an agent keeps little.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kept {
    /// Prompt of a run.
    Prompt(Arc<Message>),
    /// A value of a type that is [`Record::KEPT`].
    Value(Recorded),
}
