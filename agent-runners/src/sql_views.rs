//! Views for plain SQL over what runners record: texts, which a store installs. Nothing here speaks to a database.

/// A set of views over the records of a runner, for the engines that stores of sessions have.
///
/// `SqliteStore::install_views` and `PostgresStore::install_views` take its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SqlViews {
    /// Name of the set. The name of each view begins with it and an underscore.
    pub set: &'static str,
    /// Version of the texts: it rises when they change. A version keeps the columns of those before it.
    pub version: u32,
    /// Names and texts for SQLite. A text is a `SELECT`, which may read the views before it.
    pub sqlite: &'static [(&'static str, &'static str)],
    /// The same for PostgreSQL: views of the same names and columns.
    pub postgres: &'static [(&'static str, &'static str)],
}

/// Makes the set of a module from the files `views/<engine>/<view>.sql` beside it.
macro_rules! sql_views {
    ($set:literal, $version:literal, [$($view:literal),+ $(,)?]) => {
        $crate::SqlViews {
            set: $set,
            version: $version,
            sqlite: &[$((concat!($set, "_", $view), include_str!(concat!("views/sqlite/", $view, ".sql")))),+],
            postgres: &[$((concat!($set, "_", $view), include_str!(concat!("views/postgres/", $view, ".sql")))),+],
        }
    };
}

pub(crate) use sql_views;
