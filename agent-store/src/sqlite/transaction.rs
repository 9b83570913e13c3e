//! Write transactions. The driver's own are not used: they count nesting, and SQLite rolls back by itself when a disk
//! is full or fails. From then on the count is wrong, and the connection can begin no transaction.

use std::sync::Arc;

use sqlx::{Sqlite, SqliteConnection};

use super::{
    error::Explain,
    place::{Connections, Place},
};
use crate::sql::{Failure, held::Held};

/// A transaction that holds the write lock. If it is dropped before its `end`, its connection is closed.
pub(super) struct Transaction<'a> {
    place: &'a Place,
    connections: Arc<Connections>,
    held: Held<Sqlite>,
}

impl<'a> Transaction<'a> {
    /// Begins a transaction that takes the write lock at once. One that reads first could fail to get it later.
    pub(super) async fn begin(place: &'a Place) -> Result<Self, Failure> {
        let (connections, held) = place.writer().await?;
        let mut transaction = Self { place, connections, held };
        match transaction.run("BEGIN IMMEDIATE").await {
            Ok(()) => Ok(transaction),
            // Another connection writes, and no transaction was begun.
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

    /// Commits with `true`, and rolls back with `false`. After a failure nothing is stored, and the connection is
    /// closed, as its state is unknown: SQLite may have ended the transaction by itself.
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
        // Fails if SQLite has rolled back by itself.
        self.run("ROLLBACK").await.ok();
        self.held.close().await;
        failure
    }
}
