//! Version check of the linked SQLite. Up to 3.51.2 a checkpoint could miss that another connection had restarted the
//! log; committed data was lost, or the database damaged. This store opens several connections, so it refuses such a
//! library.

use entourage_core::{Error, ErrorKind};
use sqlx::{Connection, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::sql::Failure;

/// The first version without the error.
const SOUND: [u32; 3] = [3, 51, 3];
/// Older release lines with the fix, each from this version on.
const MENDED: [[u32; 3]; 2] = [[3, 44, 6], [3, 50, 7]];

/// Refuses an SQLite that may damage a database. Called before any file is touched.
pub(super) async fn check() -> Result<(), Failure> {
    let mut connection = SqliteConnection::connect_with(&SqliteConnectOptions::new().in_memory(true)).await?;
    let version: String = sqlx::query_scalar("SELECT sqlite_version()").fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(judge(&version)?)
}

fn judge(version: &str) -> Result<(), Error> {
    if is_sound(version) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Config,
        "this program is linked with an SQLite that can damage a file which several connections use; raise SQLite to \
         3.51.3 or later: `libsqlite3-sys` 0.37 or later brings one along, unless it is told to link the system's",
    )
    .with("sqlite_version", version.chars().take(32).collect::<String>()))
}

fn is_sound(version: &str) -> bool {
    let Some(version) = parse(version) else { return false };
    let [major, minor, _] = version;
    let is_mended =
        |first: &[u32; 3]| matches!(first, [a, b, _] if (*a, *b) == (major, minor)) && version >= *first;
    version >= SOUND || MENDED.iter().any(is_mended)
}

/// Parses the three numbers of a version and ignores the rest.
fn parse(version: &str) -> Option<[u32; 3]> {
    let mut numbers = version.split(['.', ' ', '-']).map(|part| part.parse().ok());
    Some([numbers.next()??, numbers.next()??, numbers.next()??])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_sqlite_that_may_damage_a_shared_log_is_refused() {
        for version in [
            "3.51.3", "3.51.10", "3.52.0", "3.53.1", "3.100.0", "4.0.0", "10.0.0", "3.50.7", "3.50.12",
            "3.44.6",
        ] {
            judge(version).unwrap();
        }
        for version in [
            "3.51.2", "3.51.0", "3.9.0", "3.50.6", "3.49.9", "3.45.3", "3.44.5", "3.43.9", "2.99.9",
            "3.7.17", "", "3", "3.51", "x.y.z",
        ] {
            let error = judge(version).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{version}");
            assert!(error.to_string().contains("raise SQLite to 3.51.3"), "{error}");
        }
    }

    #[tokio::test]
    async fn the_sqlite_of_this_build_is_sound() {
        check().await.unwrap();
        const { assert!(libsqlite3_sys::SQLITE_VERSION_NUMBER >= 3_051_003) };
    }
}
