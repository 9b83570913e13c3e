//! Empty places for stores, and handles on them. A place is deleted when its value is dropped.

use std::{any::Any, future::Future, pin::Pin, sync::Arc};

use entourage_core::{Result, session::SharedStore};
use entourage_runtime::MemoryStore;
use entourage_testkit::store::Fixture;

type Opening = Pin<Box<dyn Future<Output = Result<SharedStore>> + Send>>;
type Open = Arc<dyn Fn() -> Opening + Send + Sync>;

/// An empty place with a first handle on it.
pub(crate) struct Place {
    store: SharedStore,
    /// Opens another handle, for stores that outlive the first.
    open: Option<Open>,
    guard: Box<dyn Any + Send + Sync>,
}

impl Place {
    pub(crate) async fn memory() -> Self {
        Self { store: Arc::new(MemoryStore::new()), open: None, guard: Box::new(()) }
    }

    #[cfg(feature = "sqlite")]
    pub(crate) async fn sqlite_in_memory() -> Self {
        let store = entourage_store::SqliteStore::in_memory().await.unwrap();
        Self { store: Arc::new(store), open: None, guard: Box::new(()) }
    }

    #[cfg(feature = "sqlite")]
    pub(crate) async fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sessions.db");
        let open = move || {
            let path = path.clone();
            async move { Ok(Arc::new(entourage_store::SqliteStore::open(path).await?) as SharedStore) }
        };
        Self::opened(open, directory).await
    }

    #[cfg(feature = "json")]
    pub(crate) async fn json() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sessions");
        let open = move || {
            let path = path.clone();
            async move { Ok(Arc::new(entourage_store::JsonStore::open(path).await?) as SharedStore) }
        };
        Self::opened(open, directory).await
    }

    #[cfg(feature = "hybrid")]
    pub(crate) async fn hybrid() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (active, archive) = (directory.path().join("active"), directory.path().join("archive.db"));
        let open = move || {
            let (active, archive) = (active.clone(), archive.clone());
            async move { Ok(Arc::new(entourage_store::HybridStore::open(active, archive).await?) as SharedStore) }
        };
        Self::opened(open, directory).await
    }

    #[cfg(feature = "postgres")]
    pub(crate) async fn postgres(url: &str) -> Self {
        let schema = schema::Schema::new(url);
        let builder = entourage_store::PostgresStore::builder(url).schema(&schema.name).connections(8);
        let open = move || {
            let builder = builder.clone();
            async move { Ok(Arc::new(builder.build().await?) as SharedStore) }
        };
        Self::opened(open, schema).await
    }

    #[cfg(any(feature = "sqlite", feature = "json", feature = "postgres"))]
    async fn opened<F>(open: impl Fn() -> F + Send + Sync + 'static, guard: impl Any + Send + Sync) -> Self
    where
        F: Future<Output = Result<SharedStore>> + Send + 'static,
    {
        let store = open().await.unwrap();
        let open: Open = Arc::new(move || Box::pin(open()));
        Self { store, open: Some(open), guard: Box::new(guard) }
    }

    pub(crate) fn fixture(self) -> Fixture {
        let fixture = Fixture::new(self.store).keeping(self.guard);
        match self.open {
            Some(open) => fixture.reopening(move || open()),
            None => fixture,
        }
    }

    /// Returns two handles: separate ones if the store allows that, else the same one twice.
    pub(crate) async fn two_handles(&self) -> [SharedStore; 2] {
        let second = match &self.open {
            Some(open) => open().await.unwrap(),
            None => Arc::clone(&self.store),
        };
        [Arc::clone(&self.store), second]
    }
}

#[cfg(feature = "postgres")]
pub(crate) fn database_url(what: &str) -> Option<String> {
    let url = std::env::var("DATABASE_URL").ok().filter(|url| !url.is_empty());
    if url.is_none() {
        crate::tell(format_args!("SKIPPED: {what}: DATABASE_URL is not set"));
    }
    url
}

#[cfg(feature = "postgres")]
mod schema {
    use std::thread;

    use entourage_core::RunId;
    use sqlx::{AssertSqlSafe, Connection, PgConnection};

    /// A schema that is dropped with the value.
    pub(super) struct Schema {
        url: String,
        pub(super) name: String,
    }

    impl Schema {
        pub(super) fn new(url: &str) -> Self {
            Self { url: url.to_owned(), name: format!("c_{:032x}", RunId::generate().as_u128()) }
        }
    }

    impl Drop for Schema {
        fn drop(&mut self) {
            let (url, sql) = (self.url.clone(), format!("DROP SCHEMA IF EXISTS {} CASCADE", self.name));
            // Its own runtime, as this one may be unwinding.
            let dropped = thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let mut connection = PgConnection::connect(&url).await.unwrap();
                    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
                });
            });
            assert!(
                dropped.join().is_ok() || thread::panicking(),
                "the schema {} was left behind",
                self.name
            );
        }
    }
}
