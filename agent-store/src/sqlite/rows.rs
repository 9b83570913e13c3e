//! Converts between the core's types and columns. Checks every number and name that comes from the database.

use entourage_core::{
    Result, SessionId, Timestamp,
    session::{Batch, Columns, Row, SessionRecord},
};
use sqlx::{Row as _, Sqlite, sqlite::SqliteRow};

use crate::sql::{Failure, HeadColumns, LeaseColumns, run, signed, unsigned, write};

type Statement<'q> = write::Statement<'q, Sqlite>;

/// A batch in the types of the tables. `new` refuses a batch that does not fit, before anything is written.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) create: Option<SessionRecord>,
    pub(super) expected: i64,
    /// Creation time of the session that the batch is for.
    pub(super) created: Option<i64>,
    pub(super) events: Vec<EncodedEvent>,
    /// The bits of the writer's number: SQLite has no unsigned integers.
    pub(super) writer: i64,
    head: HeadColumns,
    lease: Option<LeaseColumns>,
}

#[derive(Debug)]
pub(super) struct EncodedEvent {
    seq: i64,
    columns: Columns,
    body: String,
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
            created: batch.created.map(Timestamp::as_micros),
            writer: batch.writer.cast_signed(),
            head: HeadColumns::new(batch.head)?,
            lease: batch.lease.map(LeaseColumns::new).transpose()?,
            create: batch.create,
        })
    }

    /// The number of the newest event after the batch.
    pub(super) fn seq(&self) -> i64 {
        self.head.seq
    }

    /// Binds parameters 1 to 18: see [`HeadColumns::bind`].
    pub(super) fn bind_head<'q>(&'q self, statement: Statement<'q>, session: &'q SessionId) -> Statement<'q> {
        self.head.bind(statement, session, self.lease, |text| text.into())
    }
}

impl EncodedEvent {
    /// Binds parameters 3 to 8: the event, after session and writer.
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
