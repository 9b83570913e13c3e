//! Connects to a database: check the options, connect once, prepare the tables, and only then hand out connections.

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use entourage_core::{Error, ErrorKind, Result};
use sqlx::{
    ConnectOptions, Connection, PgConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::time;

use super::{
    PostgresStore,
    error::{from_driver, no_answer},
    schema,
};
use crate::{
    owned::{LONGEST_WAIT, owned},
    sql::Failure,
};

const OPERATION: &str = "store.open";
/// Most connections of one store: the pool reserves room for each.
const MOST_CONNECTIONS: u32 = 1_024;

/// Idle time after which a connection is pinged before use. After a shorter one it is used unchecked; if it broke
/// meanwhile, the operation is retried.
const RESTED: Duration = Duration::from_secs(10);
/// Time that an answer may take beyond the server's own statement timeout.
const GRACE: Duration = Duration::from_secs(5);

/// Options of a [`PostgresStore`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `connect`"]
pub struct PostgresBuilder {
    url: String,
    schema: Option<String>,
    connections: u32,
    statement_timeout: Duration,
    connect_timeout: Duration,
}

impl PostgresBuilder {
    pub(super) fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            schema: None,
            connections: 10,
            statement_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
        }
    }

    /// Sets the schema of the tables; it is created if it does not exist. A name has 1 to 63 lower-case letters, digits
    /// and underscores, does not begin with a digit or `pg_`, and is not `information_schema`. Default: the first
    /// existing schema of the user's search path, as a rule `public`.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = Some(schema.into());
        self
    }

    /// Sets the maximum number of open connections. Default 10; 0 counts as 1, and at most 1,024 are opened. Further
    /// operations wait for a free connection, so few connections serve many sessions.
    pub fn connections(mut self, connections: u32) -> Self {
        self.connections = connections.clamp(1, MOST_CONNECTIONS);
        self
    }

    /// Sets how long the server may work on one statement. After that the statement is undone, and the error is
    /// temporary. Default 30 seconds, at least one millisecond, at most a day. Migrations are not bounded by it.
    pub fn statement_timeout(mut self, timeout: Duration) -> Self {
        self.statement_timeout = timeout.clamp(Duration::from_millis(1), LONGEST_WAIT);
        self
    }

    /// Sets the timeout for connecting, and for waiting for a free connection. Default 10 seconds, at most a day.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout.min(LONGEST_WAIT);
        self
    }

    /// Connects, and brings the tables up to date, creating them when there are none. Any number of processes may do so
    /// at once.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a malformed URL or schema name, [`ErrorKind::Transport`] or
    /// [`ErrorKind::Timeout`] when the server is not reached, [`ErrorKind::Authentication`] and
    /// [`ErrorKind::PermissionDenied`] when it does not let this user in, [`ErrorKind::NewerVersion`] for tables that a
    /// newer version of this library wrote, [`ErrorKind::Store`] for a schema of another program or a database that is
    /// not UTF-8. A schema that is refused is not changed. No error holds the password.
    pub async fn build(self) -> Result<PostgresStore> {
        let options = self.options()?;
        let connections = self.connections;
        let (timeout, patience) = (self.connect_timeout, self.statement_timeout.saturating_add(GRACE));
        let place: Arc<str> = Arc::from(place(&options, self.schema.as_deref()));
        let with = options.clone();
        owned(async move { self.ready(&with).await })
            .await
            .map_err(|failure| failure.into_error(from_driver).during(OPERATION).with("database", &*place))?;
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(timeout)
            .idle_timeout(None)
            .max_lifetime(None)
            .test_before_acquire(false)
            .before_acquire(|connection, about| {
                Box::pin(async move { Ok(about.idle_for < RESTED || connection.ping().await.is_ok()) })
            })
            .connect_lazy_with(options);
        Ok(PostgresStore::new(place, pool, patience))
    }

    async fn ready(&self, options: &PgConnectOptions) -> Result<(), Failure> {
        let connecting = time::timeout(self.connect_timeout, PgConnection::connect_with(options));
        let mut connection = connecting.await.map_err(|_| no_answer())??;
        schema::prepare(&mut connection, self.schema.as_deref()).await?;
        Ok(connection.close().await?)
    }

    fn options(&self) -> Result<PgConnectOptions> {
        check_schema(self.schema.as_deref())?;
        let options = parse(&self.url)?.disable_statement_logging();
        let options = match options.get_application_name() {
            Some(_) => options,
            None => options.application_name("entourage"),
        };
        let timeout = format!("{}ms", self.statement_timeout.as_millis());
        let options = options.options([
            ("statement_timeout", timeout.as_str()),
            // The statements rely on it: of two that want the same row, the second sees what the first one left.
            ("default_transaction_isolation", "read committed"),
        ]);
        Ok(match &self.schema {
            Some(schema) => options.options([("search_path", schema.as_str())]),
            None => options,
        })
    }
}

impl fmt::Debug for PostgresBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, schema, connections, statement_timeout, connect_timeout } = self;
        f.debug_struct("PostgresBuilder")
            .field("database", &parse(url).ok().map(|options| place(&options, schema.as_deref())))
            .field("connections", connections)
            .field("statement_timeout", statement_timeout)
            .field("connect_timeout", connect_timeout)
            .finish()
    }
}

/// Parses a URL. An error does not repeat the faulty part, which may belong to the password.
fn parse(url: &str) -> Result<PgConnectOptions> {
    let refused = |text: &'static str| Error::new(ErrorKind::InvalidInput, text).during(OPERATION);
    let form =
        || refused("this is no URL of a database; write it as `postgres://user:password@host:5432/database`");
    let (scheme, rest) = url.split_once("://").ok_or_else(form)?;
    if !matches!(scheme, "postgres" | "postgresql") {
        return Err(form());
    }
    // One of these in a password ends the host's part early, and the rest of it would be taken for the database.
    if rest.split_once(['/', '?', '#']).is_some_and(|(_, rest)| rest.contains('@')) {
        return Err(refused(
            "in the URL, an `@` follows the host; write `/`, `?`, `#` and `@` of a password or name as `%2F`, `%3F`, \
             `%23` and `%40`",
        ));
    }
    PgConnectOptions::from_str(url).map_err(|_| form())
}

fn check_schema(schema: Option<&str>) -> Result<()> {
    let fits = |schema: &str| {
        (1..=63).contains(&schema.len())
            && schema.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            && !schema.starts_with(|c: char| c.is_ascii_digit())
            && !schema.starts_with("pg_")
            && schema != "information_schema"
    };
    match schema {
        Some(schema) if !fits(schema) => Err(Error::new(
            ErrorKind::InvalidInput,
            "the name of a schema has 1 to 63 lower-case letters, digits and underscores, begins neither with a digit \
             nor with `pg_`, and is not `information_schema`; choose another one",
        )
        .during(OPERATION)
        .with("schema", schema.chars().take(64).collect::<String>())),
        _ => Ok(()),
    }
}

/// Returns the name of the database for messages, never with a user or a password.
fn place(options: &PgConnectOptions, schema: Option<&str>) -> String {
    let host = match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    };
    let database = options.get_database().unwrap_or_default();
    match schema {
        Some(schema) => format!("{host}/{database}, schema {schema}"),
        None => format!("{host}/{database}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_url_that_cannot_be_read_is_repeated() {
        for url in [
            "",
            "hunter2",
            "postgres:hunter2",
            "mysql://me:hunter2@host/db",
            "postgres://me:hunter2@host:port/db",
            "postgres://me:12/hunter2@host/db",
            "postgres://me:12?hunter2@host/db",
            "postgres://me:12#hunter2@host/db",
            "postgres://me:hunter2@host/db?sslmode=hunter2",
            "postgres://me@host/db?port=hunter2",
        ] {
            let builder = PostgresStore::builder(url);
            assert!(!format!("{builder:?}").contains("hunter2"), "{builder:?}");
            let error = builder.build().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
            assert!(!format!("{error:?} {error} {:?}", error.record()).contains("hunter2"), "{error:?}");
        }
    }

    #[test]
    fn debug_names_the_database_and_no_password() {
        let builder = PostgresStore::builder("postgres://me:hunter2@db.example:5433/team?password=hunter2");
        let shown = format!("{:?}", builder.schema("agents"));
        assert!(
            shown.contains("db.example:5433/team, schema agents") && !shown.contains("hunter2"),
            "{shown}"
        );
    }

    #[test]
    fn attack_05_a_schema_is_a_plain_name() {
        let long = "x".repeat(64);
        for schema in [
            "",
            "a b",
            "a\"b",
            "A",
            "1a",
            "pg_temp",
            "information_schema",
            "a;b",
            "a,b",
            "a-b",
            "é",
            "a\0",
            "$user",
            &long,
        ] {
            let error = check_schema(Some(schema)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{schema}");
        }
        for schema in ["a", "_a1", "team_2", "x".repeat(63).as_str()] {
            check_schema(Some(schema)).unwrap();
        }
    }
}
