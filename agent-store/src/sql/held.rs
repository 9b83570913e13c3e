//! Guards a connection in use: it returns to the pool only if it is given back.

use sqlx::{Database, Pool, pool::PoolConnection};

use super::Failure;

/// A connection in use. Unless it is given back it is closed, and the pool opens another one: after an error, or in the
/// middle of an operation, its state is of no use to anybody.
pub(crate) struct Held<DB: Database> {
    connection: Option<PoolConnection<DB>>,
    /// True if the data lives in the connection, which is then given back in any case.
    only: bool,
}

impl<DB: Database> Held<DB> {
    pub(crate) async fn take(pool: &Pool<DB>) -> Result<Self, Failure> {
        Ok(Self { connection: Some(pool.acquire().await?), only: false })
    }

    pub(crate) fn connection(&mut self) -> Result<&mut DB::Connection, Failure> {
        self.connection.as_deref_mut().ok_or_else(|| sqlx::Error::PoolClosed.into())
    }

    pub(crate) fn give_back(mut self) {
        drop(self.connection.take());
    }
}

#[cfg(feature = "postgres")]
impl<DB: Database> Held<DB> {
    /// Takes a connection that is idle in the pool now, if there is one.
    pub(crate) fn resting(pool: &Pool<DB>) -> Option<Self> {
        pool.try_acquire().map(|connection| Self { connection: Some(connection), only: false })
    }
}

#[cfg(feature = "sqlite")]
impl<DB: Database> Held<DB> {
    /// Returns the result of a read. Closes the connection after a driver's error, which could repeat on it.
    pub(crate) async fn settle<T>(self, result: Result<T, Failure>) -> Result<T, Failure> {
        match result {
            Err(Failure::Driver(_)) => self.close().await,
            _ => self.give_back(),
        }
        result
    }

    /// Marks the connection as never to be closed, because the data lives in it.
    pub(crate) fn only(mut self) -> Self {
        self.only = true;
        self
    }

    /// Closes the connection and waits for that, so that it does not block the next one. Gives it back if the data
    /// lives in it.
    pub(crate) async fn close(mut self) {
        if self.only {
            return self.give_back();
        }
        if let Some(connection) = self.connection.take() {
            // The connection is gone in any case.
            connection.close().await.ok();
        }
    }
}

impl<DB: Database> Drop for Held<DB> {
    fn drop(&mut self) {
        if !self.only {
            drop(self.connection.take().map(PoolConnection::detach));
        }
    }
}
