//! Opens a database: inspect, judge, prepare, and only then hand out connections.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use entourage_core::{Error, ErrorKind, Result};
use sqlx::{
    Connection, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous},
};
use tokio::{task, time};

use super::{
    SqliteStore,
    error::Explain,
    file::{FileId, Found, create, gone, inspect, unreadable},
    place::{Connections, Of, Place},
    schema::{self, Label},
    version, views,
};
use crate::{
    Durability,
    owned::{LONGEST_WAIT, owned},
    sql::Failure,
};

const OPERATION: &str = "store.open";
/// Timeout of a caller that waits for a connection inside this process.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause between attempts to take the lock that SQLite does not wait for by itself.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Options of a [`SqliteStore`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `open`"]
pub struct SqliteBuilder {
    path: PathBuf,
    busy_timeout: Duration,
    durability: Durability,
    readers: u32,
}

impl SqliteBuilder {
    pub(super) fn new(path: impl AsRef<Path>) -> Self {
        Self {
            path: path.as_ref().to_owned(),
            busy_timeout: Duration::from_secs(5),
            durability: Durability::default(),
            readers: 4,
        }
    }

    /// Sets how long an operation waits for another process that writes to the same file. Default 5 seconds, at most a
    /// day.
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout.min(LONGEST_WAIT);
        self
    }

    /// Sets the failures that a returned append survives. Default [`Durability::PowerLoss`].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets the number of connections that read, besides the one that writes. Default 4; 0 counts as 1, and at most 64
    /// are opened.
    pub fn readers(mut self, readers: u32) -> Self {
        self.readers = readers.clamp(1, 64);
        self
    }

    /// Opens the database, creating the file (not its directory) when there is none, and brings its tables up to date.
    /// Only this user may read a file that is created; the mode of one that is there stays as it is.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for a file that is no SQLite database or was cut short, [`ErrorKind::NewerVersion`] for
    /// one that a newer version wrote, [`ErrorKind::Store`] for one that cannot be opened, belongs to another program
    /// or stays locked (the last is worth a retry), [`ErrorKind::Config`] when the program is linked with an SQLite
    /// that may damage a file of several connections. A file that is refused is not changed.
    pub async fn build(self) -> Result<SqliteStore> {
        self.opened(Purpose::Make).await
    }

    /// Opens an existing database and writes nothing.
    #[cfg(feature = "hybrid")]
    pub(crate) async fn open_to_look(self) -> Result<SqliteStore> {
        self.opened(Purpose::Look).await
    }

    /// Returns a store that opens its database when it is first used; the database must exist then. While it cannot be
    /// opened, every operation fails with the error of opening it.
    #[cfg(feature = "hybrid")]
    pub(crate) fn open_later(self) -> Result<SqliteStore> {
        let path: Arc<Path> = Arc::from(self.absolute()?);
        let none = pool(1).connect_lazy_with(self.options(&path, Access::Look));
        let connections = Connections::new(Of::Nothing, none.clone(), none);
        Ok(SqliteStore::new(Place::new(path, Some((self, Purpose::Use)), connections)))
    }

    fn absolute(&self) -> Result<PathBuf> {
        std::path::absolute(&self.path).map_err(|error| {
            Error::new(ErrorKind::InvalidInput, "this is no path; name a file")
                .during(OPERATION)
                .caused_by(error)
        })
    }

    async fn opened(self, purpose: Purpose) -> Result<SqliteStore> {
        let at: Arc<Path> = Arc::from(self.absolute()?);
        let path = Arc::clone(&at);
        let opening = owned(async move {
            let connections = self.connections(&path, purpose).await?;
            let again = if purpose == Purpose::Make { Purpose::Use } else { purpose };
            Ok(SqliteStore::new(Place::new(path, Some((self, again)), connections)))
        });
        opening.await.map_err(|failure: Failure| failure.explain(OPERATION, &at))
    }

    /// Opens connections to the database at `path`, for a purpose.
    pub(super) async fn connections(&self, path: &Path, purpose: Purpose) -> Result<Connections, Failure> {
        let found = look(path.to_owned()).await?;
        if found == Found::Database {
            self.admit_alone(path).await?;
        }
        if purpose == Purpose::Look && found == Found::Database {
            let file = FileId::of(path).map_err(unreadable)?;
            let looking = pool(1).connect_lazy_with(self.options(path, Access::Look));
            return Ok(Connections::new(Of::File(file), looking.clone(), looking));
        }
        version::check().await?;
        match found {
            Found::Database => self.admit(path).await?,
            Found::Nothing if purpose == Purpose::Make => make(path.to_owned()).await?,
            Found::Nothing => return Err(gone().into()),
        }
        let file = FileId::of(path).map_err(unreadable)?;
        self.ready(path).await?;
        let writer = pool(1).connect_lazy_with(self.options(path, Access::Write));
        let readers = pool(self.readers).connect_lazy_with(self.options(path, Access::Read));
        Ok(Connections::new(Of::File(file), writer, readers))
    }

    async fn ready(&self, path: &Path) -> Result<(), Failure> {
        let mut connection = self.connect(path, Access::Write).await?;
        self.prepare(&mut connection).await?;
        Ok(connection.close().await?)
    }

    /// Judges an existing file without the log beside it, even if it is damaged or in use. SQLite would read that log
    /// as part of the file and finally write it over the file, also if it is another file's log.
    async fn admit_alone(&self, path: &Path) -> Result<(), Failure> {
        // An immutable file is read without its log. A writable schema admits a file that is incomplete without that
        // log. Nothing is written.
        let alone = self.options(path, Access::Look).immutable(true).pragma("writable_schema", "ON");
        let mut connection = SqliteConnection::connect_with(&alone).await?;
        let label = Label::of_header(&mut connection).await;
        connection.close().await.ok();
        Ok(label?.judge()?)
    }

    /// Judges an existing database, with the log beside it, through a connection that cannot change it.
    async fn admit(&self, path: &Path) -> Result<(), Failure> {
        let label = async {
            let mut connection = self.connect(path, Access::Look).await?;
            let label = Label::read(&mut connection).await;
            // An error of the close does not matter: nothing was written.
            connection.close().await.ok();
            label
        };
        match label.await {
            Ok(label) => Ok(label.judge()?),
            // A process died while it wrote. Opening for writing rolls that back, and `prepare` judges again.
            Err(failure) if failure.needs_writer() => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Brings an open database up to date.
    async fn prepare(&self, connection: &mut SqliteConnection) -> Result<(), Failure> {
        let label = Label::read(connection).await?;
        label.judge()?;
        self.log_ahead(connection).await?;
        if schema::pending(label).is_empty() { Ok(()) } else { migrate(connection).await }
    }

    /// Turns the write-ahead log on: readers then never wait for the writer. The setting stays with the file.
    async fn log_ahead(&self, connection: &mut SqliteConnection) -> Result<(), Failure> {
        let deadline = time::Instant::now() + self.busy_timeout;
        loop {
            // The switch needs exclusive access to the file, and SQLite does not wait for that.
            let mode = sqlx::query_scalar::<_, String>("PRAGMA journal_mode = WAL")
                .fetch_one(&mut *connection)
                .await;
            match mode.map_err(Failure::from) {
                Ok(mode) if mode.eq_ignore_ascii_case("wal") => return Ok(()),
                Ok(mode) => {
                    return Err(Error::new(
                        ErrorKind::Store,
                        "the file system cannot hold a write-ahead log; put the database on a local disk",
                    )
                    .with("journal_mode", mode)
                    .into());
                }
                Err(failure) if failure.is_busy() && time::Instant::now() < deadline => {
                    time::sleep(LOCK_PAUSE).await;
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    async fn connect(&self, path: &Path, access: Access) -> Result<SqliteConnection, Failure> {
        Ok(SqliteConnection::connect_with(&self.options(path, access)).await?)
    }

    fn options(&self, path: &Path, access: Access) -> SqliteConnectOptions {
        let synchronous = match self.durability {
            Durability::PowerLoss => SqliteSynchronous::Full,
            Durability::ProcessDeath => SqliteSynchronous::Normal,
        };
        let options = quiet(SqliteConnectOptions::new())
            .filename(path)
            .busy_timeout(self.busy_timeout)
            .foreign_keys(true);
        match access {
            Access::Look => options.read_only(true),
            Access::Read => options.pragma("query_only", "ON"),
            Access::Write => options.synchronous(synchronous),
        }
    }
}

/// Purpose of opening a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Use the database, and create it if there is none.
    Make,
    /// Use an existing database.
    Use,
    /// Only read a database on which the caller has another store open.
    #[cfg_attr(not(feature = "hybrid"), allow(dead_code, reason = "only an archive is looked at like this"))]
    Look,
}

/// Access rights of a connection.
#[derive(Clone, Copy)]
pub(super) enum Access {
    Look,
    Read,
    Write,
}

impl SqliteStore {
    /// Opens a database in memory, which is gone with the store. For trying out SQL; tests of agents want the core's
    /// `MemoryStore`.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when there is no memory for it.
    pub async fn in_memory() -> Result<Self> {
        let path: Arc<Path> = Arc::from(Path::new(":memory:"));
        let failed = |failure: Failure| failure.explain(OPERATION, &path);
        // The one connection holds the data, so it must never be replaced: `pool` sets no maximum age.
        let options = quiet(SqliteConnectOptions::new()).in_memory(true).foreign_keys(true);
        let pool = pool(1).connect_with(options).await.map_err(Failure::from).map_err(failed)?;
        let mut connection = pool.acquire().await.map_err(Failure::from).map_err(failed)?;
        migrate(&mut connection).await.map_err(failed)?;
        drop(connection);
        let connections = Connections::new(Of::Memory, pool.clone(), pool);
        Ok(Self::new(Place::new(Arc::clone(&path), None, connections)))
    }
}

async fn look(path: PathBuf) -> Result<Found> {
    blocking(move || inspect(&path)).await
}

async fn make(path: PathBuf) -> Result<()> {
    blocking(move || create(&path)).await
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    task::spawn_blocking(work).await.map_err(|error| {
        Error::new(ErrorKind::Internal, "the runtime stopped while the store was opened").caused_by(error)
    })?
}

/// Applies the pending migrations in one transaction. Reads the label again under the lock, because another process may
/// have migrated meanwhile.
async fn migrate(connection: &mut SqliteConnection) -> Result<(), Failure> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let label = Label::read(&mut transaction).await?;
    label.judge()?;
    let pending = schema::pending(label);
    if !pending.is_empty() {
        // Their texts are for the tables as they were.
        views::drop_all(&mut transaction).await?;
    }
    for sql in pending {
        sqlx::raw_sql(*sql).execute(&mut *transaction).await?;
    }
    Ok(transaction.commit().await?)
}

/// Returns options of a pool whose connections live as long as the store: no background task watches their age.
fn pool(connections: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(connections)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .acquire_timeout(QUEUE_TIMEOUT)
}

/// Turns off the driver's log of every statement; the errors hold what matters.
fn quiet(options: SqliteConnectOptions) -> SqliteConnectOptions {
    use sqlx::ConnectOptions;
    options.disable_statement_logging()
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.path()).finish_non_exhaustive()
    }
}
