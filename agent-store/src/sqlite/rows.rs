//! Between the core's types and columns. Every number and name that comes from the database is checked.

use entourage_core::{
    Error, ErrorKind, Money, Result, RunId, SessionId, Timestamp, Usage,
    session::{Batch, Columns, Row, SessionHead, SessionInfo, SessionRecord, SessionStatus},
};
use sqlx::{
    Row as _, Sqlite,
    query::Query,
    sqlite::{SqliteArguments, SqliteRow},
};

use super::error::Failure;

type Statement<'q> = Query<'q, Sqlite, SqliteArguments>;

/// A batch as the tables take it. Making one is where a batch that does not fit is refused, before anything is written.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) create: Option<SessionRecord>,
    pub(super) expected: i64,
    pub(super) events: Vec<EncodedEvent>,
    /// The bits of the writer's number: SQLite has no unsigned integers.
    pub(super) writer: i64,
    head: EncodedHead,
}

#[derive(Debug)]
pub(super) struct EncodedEvent {
    seq: i64,
    columns: Columns,
    body: String,
}

#[derive(Debug)]
struct EncodedHead {
    seq: i64,
    messages: i64,
    usage: [Option<i64>; 5],
    cost: Option<i64>,
    head: SessionHead,
}

impl Encoded {
    pub(super) fn new(expected: u64, batch: Batch) -> Result<Self> {
        let encode = |row: &Row| {
            let columns = row.columns();
            Ok(EncodedEvent { seq: signed(columns.seq)?, body: row.body()?.into_owned(), columns })
        };
        Ok(Self {
            events: batch.rows.iter().map(encode).collect::<Result<_>>()?,
            expected: signed(expected)?,
            writer: batch.writer.cast_signed(),
            head: EncodedHead::new(batch.head)?,
            create: batch.create,
        })
    }

    /// The number of the newest event after the batch.
    pub(super) fn seq(&self) -> i64 {
        self.head.seq
    }

    /// Parameters 1 to 14: the session and its head.
    pub(super) fn bind_head<'q>(&self, statement: Statement<'q>, session: &SessionId) -> Statement<'q> {
        let EncodedHead { seq, messages, usage, cost, head } = &self.head;
        let [input, output, cache_read, cache_write, reasoning] = *usage;
        statement
            .bind(session.as_str())
            .bind(*seq)
            .bind(head.status.as_str())
            .bind(head.run.map(|run| run.to_string()))
            .bind(&*head.agent)
            .bind(&*head.title)
            .bind(*messages)
            .bind(input)
            .bind(output)
            .bind(cache_read)
            .bind(cache_write)
            .bind(reasoning)
            .bind(*cost)
            .bind(head.updated.as_micros())
    }
}

impl EncodedEvent {
    /// Parameters 3 to 8: the event, after session and writer.
    pub(super) fn bind(self, statement: Statement<'_>) -> Statement<'_> {
        statement
            .bind(self.seq)
            .bind(self.columns.at.as_micros())
            .bind(self.columns.kind)
            .bind(self.columns.run.to_string())
            .bind(self.columns.agent)
            .bind(self.body)
    }
}

impl EncodedHead {
    fn new(head: SessionHead) -> Result<Self> {
        let Usage { input, output, cache_read, cache_write, reasoning, .. } = head.usage;
        let tokens = |count: Option<u64>| count.map(signed).transpose();
        Ok(Self {
            seq: signed(head.seq)?,
            messages: signed(head.messages)?,
            usage: [
                tokens(input)?,
                tokens(output)?,
                tokens(cache_read)?,
                tokens(cache_write)?,
                tokens(reasoning)?,
            ],
            cost: head.cost.map(|cost| signed(cost.as_pico())).transpose()?,
            head,
        })
    }
}

fn signed(number: u64) -> Result<i64> {
    i64::try_from(number).map_err(|_| {
        Error::new(
            ErrorKind::TooLarge,
            "numbers in a database end at 9,223,372,036,854,775,807; this one is larger",
        )
        .during("store.append")
        .with("number", number.to_string())
    })
}

/// A window or a page may ask for more than a database can count: that is all of it.
pub(super) fn clamped(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// Reads `seq, at, kind, run, agent, body`.
pub(super) fn event(row: &SqliteRow) -> Result<Row, Failure> {
    let seq = unsigned("seq", row.try_get(0)?)?;
    let columns = Columns::new(
        seq,
        Timestamp::from_micros(row.try_get(1)?),
        row.try_get::<String, _>(2)?,
        run(row.try_get(3)?)?,
        row.try_get::<String, _>(4)?,
    );
    Ok(Row::stored(columns, row.try_get(5)?))
}

/// The columns that [`session`] reads, in its order.
pub(super) const SESSION_COLUMNS: &str = "id, parent, role, created, seq, status, run, agent, title, messages, \
     input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_pico, updated";

/// Reads [`SESSION_COLUMNS`].
pub(super) fn session(row: &SqliteRow) -> Result<SessionInfo, Failure> {
    let id = session_id(row.try_get(0)?)?;
    let created = Timestamp::from_micros(row.try_get(3)?);
    let mut record = SessionRecord::root(id, created);
    record.parent = row.try_get::<Option<&str>, _>(1)?.map(session_id).transpose()?;
    record.role = row.try_get(2)?;

    let status: &str = row.try_get(5)?;
    let tokens = |name: &'static str, index: usize| -> Result<Option<u64>, Failure> {
        row.try_get::<Option<i64>, _>(index)?.map(|count| unsigned(name, count)).transpose()
    };
    let mut head = SessionHead::default();
    head.seq = unsigned("seq", row.try_get(4)?)?;
    head.status =
        SessionStatus::from_name(status).ok_or_else(|| Failure::damaged(format!("status {status:?}")))?;
    head.run = row.try_get::<Option<&str>, _>(6)?.map(run).transpose()?;
    head.agent = row.try_get(7)?;
    head.title = row.try_get(8)?;
    head.messages = unsigned("messages", row.try_get(9)?)?;
    head.usage.input = tokens("input_tokens", 10)?;
    head.usage.output = tokens("output_tokens", 11)?;
    head.usage.cache_read = tokens("cache_read_tokens", 12)?;
    head.usage.cache_write = tokens("cache_write_tokens", 13)?;
    head.usage.reasoning = tokens("reasoning_tokens", 14)?;
    head.cost = tokens("cost_pico", 15)?.map(Money::from_pico);
    head.updated = Timestamp::from_micros(row.try_get(16)?);
    Ok(SessionInfo::new(record, head))
}

/// A number that is never negative.
pub(super) fn unsigned(column: &'static str, number: i64) -> Result<u64, Failure> {
    u64::try_from(number).map_err(|_| Failure::damaged(format!("{column} = {number}")))
}

fn run(text: &str) -> Result<RunId, Failure> {
    RunId::parse(text).map_err(|_| Failure::damaged("a run id that is no UUID"))
}

fn session_id(text: &str) -> Result<SessionId, Failure> {
    SessionId::new(text)
        .map_err(|_| Failure::damaged("a session id with other characters than those allowed"))
}
