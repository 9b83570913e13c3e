//! Converts between the core's types and PostgreSQL's columns.

use entourage_core::{
    Error, Result, SessionId, Timestamp,
    session::{Batch, Columns, Row, SessionRecord},
};
use sqlx::{Postgres, Row as _, postgres::PgRow};

use super::text::{check_body, escape, unescape};
use crate::sql::{Failure, HeadColumns, LeaseColumns, clamped, run, signed, unsigned, write};

type Statement<'q> = write::Statement<'q, Postgres>;

/// A batch in the types of the tables. `new` refuses a batch that does not fit, before anything is written.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) create: Option<SessionRecord>,
    pub(super) expected: i64,
    /// Creation time of the session that the batch is for.
    pub(super) created: Option<i64>,
    /// The bits of the writer's number: PostgreSQL has no unsigned integers.
    pub(super) writer: i64,
    head: HeadColumns,
    pub(super) lease: Option<LeaseColumns>,
    events: Events,
}

/// The events as one list for each column, so that one statement inserts them all.
#[derive(Debug, Default)]
struct Events {
    at: Vec<i64>,
    kind: Vec<String>,
    run: Vec<String>,
    agent: Vec<String>,
    body: Vec<String>,
}

impl Encoded {
    pub(super) fn new(expected: u64, batch: Batch) -> Result<Self> {
        Ok(Self {
            events: Events::new(&batch.rows)?,
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

    /// Returns the number of events.
    pub(super) fn len(&self) -> i64 {
        clamped(self.events.at.len())
    }

    /// Binds parameters 1 to 18: see [`HeadColumns::bind`].
    pub(super) fn bind_head<'q>(&'q self, statement: Statement<'q>, session: &'q SessionId) -> Statement<'q> {
        self.head.bind(statement, session, self.lease, escape)
    }

    /// Binds seven parameters: the number before the first event, the writer, and the columns of the events.
    pub(super) fn bind_events<'q>(&'q self, statement: Statement<'q>) -> Statement<'q> {
        let Events { at, kind, run, agent, body } = &self.events;
        statement
            .bind(self.expected)
            .bind(self.writer)
            .bind(at.as_slice())
            .bind(kind.as_slice())
            .bind(run.as_slice())
            .bind(agent.as_slice())
            .bind(body.as_slice())
    }
}

impl Events {
    fn new(rows: &[Row]) -> Result<Self> {
        let mut events = Self::default();
        for row in rows {
            let Columns { seq, at, kind, run, agent, .. } = row.columns();
            let body = row.body()?;
            check_body(&body).map_err(|error: Error| error.with("event", seq.to_string()))?;
            events.at.push(at.as_micros());
            events.kind.push(escape(&kind).into_owned());
            events.run.push(run.to_string());
            events.agent.push(escape(&agent).into_owned());
            events.body.push(body.into_owned());
        }
        Ok(events)
    }
}

/// Reads `seq, at, kind, run, agent, body`.
pub(super) fn event(row: &PgRow) -> Result<Row, Failure> {
    let columns = Columns::new(
        unsigned("seq", row.try_get(0)?)?,
        Timestamp::from_micros(row.try_get(1)?),
        unescape(row.try_get(2)?)?.to_string(),
        run(row.try_get(3)?)?,
        unescape(row.try_get(4)?)?,
    );
    Ok(Row::stored(columns, row.try_get(5)?))
}
