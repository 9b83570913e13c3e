//! A connection while it is used, and what becomes of it then.

use sqlx::{Database, Pool, pool::PoolConnection};

use super::Failure;

/// A connection in use. Unless it is given back it is closed, and the pool opens another one: what is left on it after an
/// error or in the middle of an operation is of no use to anybody.
pub(crate) struct Held<DB: Database> {
    connection: Option<PoolConnection<DB>>,
    /// Whether all data is gone with the connection, so that it is given back in any case.
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
    /// One that rests in the pool now.
    pub(crate) fn resting(pool: &Pool<DB>) -> Option<Self> {
        pool.try_acquire().map(|connection| Self { connection: Some(connection), only: false })
    }
}

#[cfg(feature = "sqlite")]
impl<DB: Database> Held<DB> {
    /// Passes on what a look came to. Where it failed, so may the next one on this connection.
    pub(crate) async fn settle<T>(self, result: Result<T, Failure>) -> Result<T, Failure> {
        match result {
            Err(Failure::Driver(_)) => self.close().await,
            _ => self.give_back(),
        }
        result
    }

    /// One that is never closed, because the data lives in it.
    pub(crate) fn only(mut self) -> Self {
        self.only = true;
        self
    }

    /// Closes the connection and waits for that, so that nothing of it is in the next one's way.
    pub(crate) async fn close(mut self) {
        if self.only {
            return self.give_back();
        }
        if let Some(connection) = self.connection.take() {
            // It is gone in any case.
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
