//! Sessions in a PostgreSQL database: the operations of a store.
//!
//! Nothing here decides whether a database may be used (`open`, `schema`), knows how a value is spelled in a column
//! (`rows`, `text`) or reads a result code (`error`).

mod append;
mod error;
mod open;
mod read;
mod rows;
mod schema;
mod text;
mod views;

pub use open::PostgresBuilder;

use std::{fmt, pin::pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, RetryStatus, SessionId,
    session::{Batch, Lease, ReadRange, Row, SessionFilter, SessionInfo, SessionStore},
};
use sqlx::{Connection, PgConnection, PgPool, Postgres};
use tokio::time;

use error::{Remedy, breaks_connection, from_driver, no_answer};
use rows::Encoded;

use crate::{
    owned::owned,
    sql::{Failure, LeaseColumns, held::Held, views::ViewSet},
};

/// Maximum number of attempts when others are in the way or the connection breaks.
const ATTEMPTS: u32 = 5;
/// Pause before the second attempt; each further one waits twice as long.
const PAUSE: Duration = Duration::from_millis(5);
/// Interval at which a waiter for a new connection looks for one that was given back.
const GLANCE: Duration = Duration::from_millis(50);

/// Keeps sessions in a PostgreSQL database, version 13 or later.
///
/// Any number of stores in any number of processes may use the same tables: of writers that race, one wins, the others
/// get [`ErrorKind::Conflict`]. Readers see whole batches and never wait for a writer. Each append is one statement and
/// one round trip.
///
/// # Durability
/// The server decides, by its settings `fsync` and `synchronous_commit`. With both `on`, the default, an append that
/// returned survives the death of this process, of the server and a power cut; with `synchronous_standby_names` set it
/// is on the standby too. With `synchronous_commit = off` a crash of the server may undo the last appends (never half
/// of one). The store takes what is configured for the server, the database or the user; to choose for its connections
/// alone, add `?options[synchronous_commit]=on` to the URL.
///
/// # Broken connections
/// An operation whose connection breaks is retried on another one. That is safe: a batch whose commit succeeded and
/// whose answer was lost is recognised by its writer and numbers, and not stored twice. If the server stays away the
/// error is temporary, and the same batch may be sent again at any time.
///
/// # Proxies
/// The store prepares statements and sets options of its sessions, so it wants the server itself or a proxy that keeps
/// one server connection for each of the store's.
///
/// # Cancel safety
/// Once polled, an operation completes without its caller, entirely or not at all. A future that is dropped or no
/// longer polled blocks no other operation.
///
/// ```no_run
/// # async fn example() -> entourage_core::Result<()> {
/// use entourage_core::session::{SessionFilter, SessionStore};
/// use entourage_store::PostgresStore;
///
/// let store = PostgresStore::builder("postgres://team@localhost/team").schema("agents").build().await?;
/// for session in store.query(&SessionFilter::roots().page(0, 20)).await? {
///     println!("{} {}", session.record.id, session.head.title);
/// }
/// store.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PostgresStore {
    place: Arc<str>,
    pool: PgPool,
    /// Timeout of one attempt, the server's own timeout included.
    patience: Duration,
}

impl PostgresStore {
    /// Connects with the default options to the database at `url`, such as `postgres://user:password@host/database`;
    /// see [`PostgresBuilder::build`].
    ///
    /// What the URL leaves out comes from the environment (`PGHOST`, `PGUSER`, `PGPASSWORD` ...) and the password file,
    /// as for other programs of PostgreSQL. `sslmode` and the certificates are parameters of the URL.
    ///
    /// # Errors
    /// As [`PostgresBuilder::build`].
    pub async fn connect(url: impl Into<String>) -> Result<Self> {
        Self::builder(url).build().await
    }

    /// Returns the options for the database at `url`.
    pub fn builder(url: impl Into<String>) -> PostgresBuilder {
        PostgresBuilder::new(url)
    }

    /// Waits for operations in flight and closes all connections, for all clones of this store. Dropping the last clone
    /// closes them too, without waiting.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    /// Installs views for plain SQL, such as those of a runner (`VIEWS.postgres` of its module): the name of their
    /// set, its version, and the name and the `SELECT` of each view. A text may read the tables, the views of the
    /// store and earlier views of its set. Returns the version that is there then.
    ///
    /// Call it after each opening: it does nothing if the set is there, and takes the place of an older version, or
    /// of other texts of the same one. A newer version, of another program, stays. A migration of the tables drops
    /// installed views, until the next call.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](entourage_core::ErrorKind::InvalidInput) for a name of a view that does not
    /// begin with its set's and an underscore, and for a text that the database does not take;
    /// [`ErrorKind::Conflict`](entourage_core::ErrorKind::Conflict) if something else has the name of a view, or a
    /// view of yours reads one that is to be replaced. All views are installed, or nothing changes.
    pub async fn install_views(
        &self,
        set: &'static str,
        version: u32,
        views: &'static [(&'static str, &'static str)],
    ) -> Result<u32> {
        let set = Arc::new(ViewSet::new(set, version, views)?);
        self.attempt(&set, |db, set| Box::pin(views::install(db, set)))
            .await
            .map_err(|failure| self.explain(failure, "store.install_views"))
    }

    fn new(place: Arc<str>, pool: PgPool, patience: Duration) -> Self {
        Self { place, pool, patience }
    }

    /// Runs `operation` in a task of its own, and retries it if others were in its way or its connection broke. So it
    /// must be safe to repeat after a success whose answer was lost.
    async fn attempt<A, T>(&self, with: &Arc<A>, operation: Operation<A, T>) -> Result<T, Failure>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
    {
        let (store, with) = (self.clone(), Arc::clone(with));
        owned(async move { store.attempts(&*with, operation).await }).await
    }

    async fn attempts<A: Sync, T>(&self, with: &A, operation: Operation<A, T>) -> Result<T, Failure> {
        let mut result = self.once(taken(&self.pool).await, with, operation).await;
        let mut pause = PAUSE;
        for _ in 1..ATTEMPTS {
            if !result.as_ref().is_err_and(|failure| Remedy::of(failure) != Remedy::Tell) {
                break;
            }
            time::sleep(pause).await;
            pause = pause.saturating_mul(2);
            result = self.once(tested(&self.pool).await, with, operation).await;
        }
        result
    }

    async fn once<A, T>(
        &self,
        held: Result<Held<Postgres>, Failure>,
        with: &A,
        operation: Operation<A, T>,
    ) -> Result<T, Failure> {
        let mut held = held?;
        let Ok(result) = time::timeout(self.patience, operation(held.connection()?, with)).await else {
            return Err(no_answer());
        };
        if !result.as_ref().is_err_and(breaks_connection) {
            held.give_back();
        }
        result
    }

    fn explain(&self, failure: Failure, operation: &'static str) -> Error {
        failure.into_error(from_driver).during(operation).with("database", &*self.place)
    }
}

fn unsteady() -> Error {
    Error::new(ErrorKind::Store, "others deleted and created the session all the time; try again")
        .with_retry(RetryStatus::Temporary)
}

/// An operation on one connection. A function and its arguments instead of a closure: the future then borrows nothing
/// but them.
type Operation<A, T> = for<'a> fn(&'a mut PgConnection, &'a A) -> Running<'a, T>;
type Running<'a, T> = std::pin::Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// Takes a connection that answers a ping. Others are closed: after a restart of the server those may be all that were
/// idle in the pool.
async fn tested(pool: &PgPool) -> Result<Held<Postgres>, Failure> {
    for _ in 0..pool.options().get_max_connections() {
        let mut held = taken(pool).await?;
        if held.connection()?.ping().await.is_ok() {
            return Ok(held);
        }
    }
    taken(pool).await
}

/// Takes a connection of the pool. A waiter for a new one, for which the server may have no room, takes one that others
/// gave back meanwhile.
async fn taken(pool: &PgPool) -> Result<Held<Postgres>, Failure> {
    let mut taking = pin!(Held::take(pool));
    loop {
        if let Ok(taken) = time::timeout(GLANCE, &mut taking).await {
            return taken;
        }
        if let Some(resting) = Held::resting(pool) {
            return Ok(resting);
        }
    }
}

#[async_trait]
impl SessionStore for PostgresStore {
    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        const OPERATION: &str = "store.append";
        let of_session = |error: Error| error.during(OPERATION).with("session", session.as_str());
        batch.check(session, expected)?;
        let batch = Arc::new((session.clone(), Encoded::new(expected, batch).map_err(of_session)?));
        for _ in 0..ATTEMPTS {
            let appended = self
                .attempt(&batch, |db, (session, batch)| Box::pin(append::append(db, session, batch)))
                .await
                .map_err(|failure| self.explain(failure, OPERATION).with("session", session.as_str()))?;
            if let Some(appended) = appended {
                return appended.told(OPERATION, session, expected);
            }
        }
        Err(of_session(unsteady()))
    }

    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        const OPERATION: &str = "store.read";
        let window = Arc::new((session.clone(), range));
        match self.attempt(&window, |db, (session, range)| Box::pin(read::window(db, session, *range))).await
        {
            Ok(Some(rows)) => Ok(rows),
            Ok(None) => Err(Error::no_session(session).during(OPERATION)),
            Err(failure) => Err(self.explain(failure, OPERATION).with("session", session.as_str())),
        }
    }

    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        self.attempt(&Arc::new(filter.clone()), |db, filter| Box::pin(read::list(db, filter)))
            .await
            .map_err(|failure| self.explain(failure, "store.query"))
    }

    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()> {
        const OPERATION: &str = "store.lease";
        let of_session = |error: Error| error.during(OPERATION).with("session", session.as_str());
        let asked = Arc::new((session.clone(), LeaseColumns::new(lease).map_err(of_session)?));
        for _ in 0..ATTEMPTS {
            let leased = self
                .attempt(&asked, |db, (session, lease)| Box::pin(append::take_lease(db, session, *lease)))
                .await
                .map_err(|failure| self.explain(failure, OPERATION).with("session", session.as_str()))?;
            if let Some(leased) = leased {
                return leased.told(OPERATION, session);
            }
        }
        Err(of_session(unsteady()))
    }

    async fn delete(&self, session: &SessionId) -> Result<u64> {
        self.attempt(&Arc::new(session.clone()), |db, session| Box::pin(read::remove(db, session)))
            .await
            .map_err(|failure| self.explain(failure, "store.delete").with("session", session.as_str()))
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("database", &self.place).finish_non_exhaustive()
    }
}
