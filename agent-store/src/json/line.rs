//! Encodes, parses and checks the lines of a session's file.
//!
//! The first line is the session's record. Each later line is one batch, or a change between batches (a lease, a seal).
//! It ends with the head after it, so the newest line holds all that lists show.

use std::borrow::Cow;

use entourage_core::{
    ErrorKind, RunId, Timestamp,
    session::{Batch, Columns, Lease, Row, SessionHead, SessionRecord},
};
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::value::RawValue;

use super::error::Failure;

/// The format that this version writes.
const FORMAT: u64 = 1;
/// Maximum length of a line in bytes. Bounds how much a reader takes in of a damaged file.
pub(super) const LONGEST: u64 = 256 << 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct First<'a> {
    format: u64,
    session: Cow<'a, SessionRecord>,
}

/// Returns the first line of a session's file, including its line feed.
pub(super) fn first(record: &SessionRecord) -> Result<Vec<u8>, Failure> {
    encode(&First { format: FORMAT, session: Cow::Borrowed(record) })
}

pub(super) fn parse_first(line: &[u8]) -> Result<SessionRecord, Failure> {
    #[derive(Deserialize)]
    struct Version {
        format: u64,
    }
    let broken = |error| Failure::damaged(format!("its first line names no session ({error})"));
    let Version { format } = serde_json::from_slice(line).map_err(broken)?;
    match format {
        FORMAT => {
            serde_json::from_slice::<First<'_>>(line).map(|first| first.session.into_owned()).map_err(broken)
        }
        0 => Err(Failure::damaged("its first line names format 0, which never was")),
        newer => Err(Failure::Newer(newer)),
    }
}

/// The state of a session after a line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct State {
    pub(super) head: SessionHead,
    pub(super) lease: Option<Lease>,
    /// True once the session has moved to another store; this file then only waits to be deleted.
    pub(super) sealed: bool,
}

/// A line to write. `after` and `seq` come first, because a search through the file reads only them.
#[derive(Serialize)]
struct Written<'a> {
    after: u64,
    seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    writer: Option<u64>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    events: &'a [WrittenEvent<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<Lease>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    sealed: bool,
    head: &'a SessionHead,
}

#[derive(Serialize)]
struct WrittenEvent<'a> {
    seq: u64,
    at: Timestamp,
    kind: Cow<'a, str>,
    run: RunId,
    agent: std::sync::Arc<str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    quoted: bool,
    body: &'a RawValue,
}

/// Returns a batch as a line, including its line feed.
pub(super) fn batch(expected: u64, batch: &Batch, lease: Option<Lease>) -> Result<Vec<u8>, Failure> {
    let bodies = batch.rows.iter().map(Row::body).collect::<Result<Vec<_>, _>>()?;
    let raw = bodies.iter().map(|body| Raw::of(body)).collect::<Result<Vec<_>, _>>()?;
    let events: Vec<WrittenEvent<'_>> = (batch.rows.iter().zip(&raw))
        .map(|(row, body)| {
            let Columns { seq, at, kind, run, agent, .. } = row.columns();
            WrittenEvent { seq, at, kind, run, agent, quoted: body.quoted(), body: body.json() }
        })
        .collect();
    encode(&Written {
        after: expected,
        seq: batch.head.seq,
        writer: Some(batch.writer),
        events: &events,
        lease,
        sealed: false,
        head: &batch.head,
    })
}

/// Returns a change between batches as a line, including its line feed.
pub(super) fn change(state: &State) -> Result<Vec<u8>, Failure> {
    let State { head, lease, sealed } = state;
    let (after, seq) = (head.seq, head.seq);
    encode(&Written { after, seq, writer: None, events: &[], lease: *lease, sealed: *sealed, head })
}

fn encode(line: &impl Serialize) -> Result<Vec<u8>, Failure> {
    let mut bytes = serde_json::to_vec(line).map_err(|error| {
        entourage_core::Error::new(ErrorKind::Internal, "a line does not serialize").caused_by(error)
    })?;
    bytes.push(b'\n');
    if bytes.len() as u64 > LONGEST {
        return Err(entourage_core::Error::new(
            ErrorKind::TooLarge,
            format!("a batch is larger than {} MiB; append it in parts", LONGEST >> 20),
        )
        .into());
    }
    Ok(bytes)
}

/// A body as it stands in a line.
enum Raw<'a> {
    Plain(&'a RawValue),
    /// The body in a JSON string, because it has line breaks, or space around it, which a line cannot keep.
    Quoted(Box<RawValue>),
}

impl<'a> Raw<'a> {
    fn of(body: &'a str) -> Result<Self, Failure> {
        let broken = |error: serde_json::Error| {
            entourage_core::Error::new(ErrorKind::InvalidInput, "the body of an event is no JSON")
                .caused_by(error)
        };
        let plain: &RawValue = serde_json::from_str(body).map_err(broken)?;
        if plain.get().len() == body.len() && !body.contains(['\n', '\r']) {
            return Ok(Self::Plain(plain));
        }
        Ok(Self::Quoted(serde_json::value::to_raw_value(body).map_err(broken)?))
    }

    fn quoted(&self) -> bool {
        matches!(self, Self::Quoted(_))
    }

    fn json(&self) -> &RawValue {
        match self {
            Self::Plain(json) => json,
            Self::Quoted(json) => json,
        }
    }
}

/// A line as it is read. `E` is the form of its events: parsed, or skipped.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line<E> {
    pub(super) after: u64,
    pub(super) seq: u64,
    pub(super) writer: Option<u64>,
    #[serde(default)]
    events: Option<E>,
    lease: Option<Lease>,
    #[serde(default)]
    sealed: bool,
    pub(super) head: SessionHead,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stored<'a> {
    seq: u64,
    at: Timestamp,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    run: RunId,
    #[serde(borrow)]
    agent: Cow<'a, str>,
    #[serde(default)]
    quoted: bool,
    #[serde(borrow)]
    body: &'a RawValue,
}

impl Line<IgnoredAny> {
    /// Parses a line except for its events.
    pub(super) fn skim(line: &[u8]) -> Result<Self, Failure> {
        let line: Self = serde_json::from_slice(line).map_err(|error| broken(&error))?;
        line.check()?;
        Ok(line)
    }
}

impl<'a> Line<Vec<Stored<'a>>> {
    pub(super) fn parse(line: &'a [u8]) -> Result<Self, Failure> {
        let line: Self = serde_json::from_slice(line).map_err(|error| broken(&error))?;
        line.check()?;
        let events = line.events.as_deref().unwrap_or_default();
        let numbered = (line.after.saturating_add(1)..=line.seq).eq(events.iter().map(|event| event.seq));
        if !numbered {
            return Err(Failure::damaged(format!(
                "the line of events {} to {} does not hold them",
                line.after.saturating_add(1),
                line.seq
            )));
        }
        Ok(line)
    }

    /// Returns the events with a number greater than `after`.
    pub(super) fn rows(self, after: u64) -> impl Iterator<Item = Result<Row, Failure>> {
        let events = self.events.into_iter().flatten();
        events.filter(move |event| event.seq > after).map(Stored::into_row)
    }
}

impl<E> Line<E> {
    fn check(&self) -> Result<(), Failure> {
        if self.after <= self.seq && self.head.seq == self.seq {
            return Ok(());
        }
        Err(Failure::damaged(format!(
            "a line goes from event {} to {} and its head is at {}",
            self.after, self.seq, self.head.seq
        )))
    }

    pub(super) fn into_state(self) -> State {
        State { head: self.head, lease: self.lease, sealed: self.sealed }
    }
}

impl Stored<'_> {
    fn into_row(self) -> Result<Row, Failure> {
        let body = if self.quoted {
            serde_json::from_str(self.body.get()).map_err(|error| broken(&error))?
        } else {
            self.body.get().to_owned()
        };
        let columns = Columns::new(self.seq, self.at, self.kind.into_owned(), self.run, self.agent);
        Ok(Row::stored(columns, body))
    }
}

fn broken(error: &serde_json::Error) -> Failure {
    Failure::damaged(format!("a line is not what this store writes ({error})"))
}

/// Returns `after` and `seq`, with which a line begins, and reads no further. `None` if it is spelled otherwise.
pub(super) fn numbers(line: &[u8]) -> Option<(u64, u64)> {
    let (after, rest) = number(line.strip_prefix(b"{\"after\":")?)?;
    let (seq, _) = number(rest.strip_prefix(b",\"seq\":")?)?;
    (after <= seq).then_some((after, seq))
}

/// Length in bytes of a prefix that is enough for [`numbers`].
pub(super) const NUMBERS: usize = 64;

fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit())?;
    let (digits, rest) = text.split_at_checked(end)?;
    Some((str::from_utf8(digits).ok()?.parse().ok()?, rest))
}
