//! The place of sessions while processes die: a medium, and places on it that outlive their processes.

use std::{any::Any, fmt, future::Future, io, sync::Arc};

use entourage_core::{
    Error, ErrorKind, Result,
    session::{SessionStore, SharedStore},
};
use entourage_runtime::MemoryStore;
use futures_util::future::BoxFuture;

/// A kind of store, and a factory of empty ones.
pub struct Medium {
    name: String,
    make: Box<dyn Fn() -> Place + Send + Sync>,
    tokio: fn() -> io::Result<tokio::runtime::Runtime>,
}

impl Medium {
    /// A medium on which `make` makes an empty place for each run of a scenario.
    pub fn new(name: impl Into<String>, make: impl Fn() -> Place + Send + Sync + 'static) -> Self {
        Self {
            name: name.into(),
            make: Box::new(make),
            tokio: || tokio::runtime::Builder::new_current_thread().enable_all().build(),
        }
    }

    /// A [`MemoryStore`]. Its content outlives the simulated processes, which are all in this one.
    #[must_use]
    pub fn memory() -> Self {
        Self::new("memory", || {
            let store = Arc::new(MemoryStore::new());
            Place::new(move || std::future::ready(Ok(Arc::clone(&store))))
        })
    }

    /// Sets the factory of each process's tokio runtime; dropping that runtime is the death of the process. Default:
    /// one thread, everything enabled. A medium that does not depend on time can use a paused clock.
    #[must_use]
    pub fn tokio(mut self, make: fn() -> io::Result<tokio::runtime::Runtime>) -> Self {
        self.tokio = make;
        self
    }

    /// Name of the medium.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn place(&self) -> Place {
        (self.make)()
    }

    /// Runs `future` as a process of its own. When it ends, everything it left running is dropped unpolled.
    pub(super) fn process<T>(&self, future: impl Future<Output = T>) -> Result<T> {
        let tokio = (self.tokio)();
        let tokio =
            tokio.map_err(|error| Error::new(ErrorKind::Internal, "no tokio runtime").caused_by(error))?;
        Ok(tokio.block_on(future))
    }
}

impl fmt::Debug for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Medium").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A place for the sessions of one run of a scenario. Each process opens it anew.
pub struct Place {
    open: Box<dyn Fn() -> BoxFuture<'static, Result<Opened>> + Send + Sync>,
    guards: Vec<Box<dyn Any + Send + Sync>>,
}

/// An open store, and the future that closes it.
pub(super) struct Opened {
    pub(super) store: SharedStore,
    pub(super) close: BoxFuture<'static, ()>,
}

impl Place {
    /// A place that `open` opens.
    pub fn new<S, F>(open: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        S: SessionStore + 'static,
        F: Future<Output = Result<Arc<S>>> + Send + 'static,
    {
        Self::closed_by(open, |_| std::future::ready(()))
    }

    /// A place whose store `close` closes. The store of a dead process is closed from outside, as the system closes
    /// what a dead process held: an operation in flight is then done or not, and does not happen later.
    pub fn closed_by<S, F, C>(
        open: impl Fn() -> F + Send + Sync + 'static,
        close: impl Fn(Arc<S>) -> C + Clone + Send + Sync + 'static,
    ) -> Self
    where
        S: SessionStore + 'static,
        F: Future<Output = Result<Arc<S>>> + Send + 'static,
        C: Future<Output = ()> + Send + 'static,
    {
        let open = move || {
            let (opening, close) = (open(), close.clone());
            Box::pin(async move {
                let store = opening.await?;
                let held = Arc::clone(&store);
                Ok(Opened { store, close: Box::pin(async move { close(held).await }) })
            }) as BoxFuture<'static, _>
        };
        Self { open: Box::new(open), guards: Vec::new() }
    }

    /// Keeps `guard` as long as the place: a temporary directory, a server.
    #[must_use]
    pub fn keeping(mut self, guard: impl Any + Send + Sync) -> Self {
        self.guards.push(Box::new(guard));
        self
    }

    pub(super) async fn open(&self) -> Result<Opened> {
        (self.open)().await
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("guards", &self.guards.len()).finish_non_exhaustive()
    }
}
