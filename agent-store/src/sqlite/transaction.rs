//! Transactions that write. The driver's own are not used: they count what was begun, and SQLite rolls back by itself when
//! a disk is full or fails. From then on the count is wrong, and the connection begins nothing any more.

use std::sync::Arc;

use sqlx::{Sqlite, SqliteConnection};

use super::{
    error::Explain,
    place::{Connections, Place},
};
use crate::sql::{Failure, held::Held};

/// A transaction that holds the lock of writers. Dropped in the middle it ends with its connection.
pub(super) struct Transaction<'a> {
    place: &'a Place,
    connections: Arc<Connections>,
    held: Held<Sqlite>,
}

impl<'a> Transaction<'a> {
    /// Takes the lock at once: a transaction that reads first and then wants to write could fail in between.
    pub(super) async fn begin(place: &'a Place) -> Result<Self, Failure> {
        let (connections, held) = place.writer().await?;
        let mut transaction = Self { place, connections, held };
        match transaction.run("BEGIN IMMEDIATE").await {
            Ok(()) => Ok(transaction),
            // Others write. Nothing began.
            Err(failure) if failure.is_busy() => {
                transaction.held.give_back();
                Err(failure)
            }
            Err(failure) => Err(transaction.broken(failure).await),
        }
    }

    pub(super) fn db(&mut self) -> Result<&mut SqliteConnection, Failure> {
        self.held.connection()
    }

    /// Ends it: with `true`, everything is stored. After an error nothing is, and the connection is not used again, for
    /// nobody knows what SQLite did on it by itself.
    pub(super) async fn end<T>(mut self, result: Result<(T, bool), Failure>) -> Result<T, Failure> {
        let (value, commit) = match result {
            Ok(ended) => ended,
            Err(failure) => return Err(self.broken(failure).await),
        };
        match self.run(if commit { "COMMIT" } else { "ROLLBACK" }).await {
            Ok(()) => self.held.give_back(),
            Err(failure) => return Err(self.broken(failure).await),
        }
        if commit {
            self.place.check(&self.connections)?;
        }
        Ok(value)
    }

    async fn run(&mut self, sql: &'static str) -> Result<(), Failure> {
        sqlx::query(sql).execute(self.held.connection()?).await?;
        Ok(())
    }

    async fn broken(mut self, failure: Failure) -> Failure {
        // Fails when SQLite did it already.
        self.run("ROLLBACK").await.ok();
        self.held.close().await;
        failure
    }
}
