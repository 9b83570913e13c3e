//! Queries over the sessions of a store.

use std::collections::BTreeMap;

use entourage_core::{
    Error, ErrorKind, RequestId, Result, SessionId,
    provider::Request,
    session::{SessionFilter, SessionInfo, SharedStore},
};
use serde::Serialize;

use super::{
    request::Search,
    stats::{SessionStats, ToolStats},
    trace::{Exchange, Records, Trace},
};
use crate::{
    session::Session,
    session::journal::windows::{WINDOW, Windows},
};

/// Most sessions that the error about an ambiguous prefix names.
const NAMED: usize = 5;

/// A root session as its user saw it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct External {
    /// The session.
    pub info: SessionInfo,
    /// The compressed stream: one answer per prompt.
    pub exchanges: Vec<Exchange>,
}

/// A root session, and the sessions below it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ExternalTrace {
    /// The root.
    pub external: External,
    /// All sessions below it, newest first.
    pub traces: Vec<SessionInfo>,
}

/// Queries over past runs. Clones share the store.
///
/// Wherever an id is expected, a unique prefix of it suffices. A prefix of several sessions is an error that names
/// some of them.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use std::sync::Arc;
/// use entourage_runners::ReactAgent;
/// use entourage_runtime::{Runtime, telemetry::Telemetry};
/// use entourage_testkit::ScriptedProvider;
///
/// let runtime = Runtime::in_memory();
/// let provider = ScriptedProvider::new().text("Found.");
/// let agent = ReactAgent::builder("scout", provider.model()).build().unwrap();
/// let session = runtime.session();
/// session.start(&agent, "Find it").outcome().await.unwrap();
///
/// let telemetry = Telemetry::new(Arc::clone(runtime.store()));
/// let seen = telemetry.external(0, 10).await.unwrap();
/// assert_eq!(seen[0].head.title.as_ref(), "Find it");
/// let id = &session.id().as_str()[..30];
/// assert_eq!(telemetry.trace(id).await.unwrap().model_calls.len(), 1);
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct Telemetry {
    store: SharedStore,
}

impl Telemetry {
    /// Queries over the contents of `store`.
    #[must_use]
    pub fn new(store: SharedStore) -> Self {
        Self { store }
    }

    /// The session whose id is `prefix` or, if there is none, the only one whose id begins with it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for none, [`ErrorKind::InvalidInput`] for several or an empty prefix, the store's.
    pub async fn resolve(&self, prefix: &str) -> Result<SessionInfo> {
        if let Ok(id) = SessionId::new(prefix)
            && let Some(info) = self.store.query(&SessionFilter::id(id)).await?.pop()
        {
            return Ok(info);
        }
        if prefix.is_empty() {
            return Err(Error::new(ErrorKind::InvalidInput, "give the id of a session, or its beginning"));
        }
        let filter = SessionFilter::all().with_prefix(prefix).page(0, NAMED);
        let mut found = self.store.query(&filter).await?;
        // Children begin with their parent's id: a prefix of a root's id means the root.
        if found.len() > 1 {
            let roots = SessionFilter::roots().with_prefix(prefix).page(0, NAMED);
            let roots = self.store.query(&roots).await?;
            found = if roots.is_empty() { found } else { roots };
        }
        match (found.pop(), found.as_slice()) {
            (None, _) => Err(Error::new(
                ErrorKind::NotFound,
                "no session's id begins so; list the sessions to see their ids",
            )
            .with("prefix", prefix)),
            (Some(info), []) => Ok(info),
            (Some(last), others) => {
                let ids: Vec<_> = others.iter().chain([&last]).map(|it| it.record.id.as_str()).collect();
                let text =
                    format!("several sessions' ids begin so ({} …); give more of the id", ids.join(", "));
                Err(Error::new(ErrorKind::InvalidInput, text).with("prefix", prefix))
            }
        }
    }

    /// Root sessions, newest first.
    ///
    /// # Errors
    /// The store's.
    pub async fn external(&self, offset: usize, limit: usize) -> Result<Vec<SessionInfo>> {
        self.store.query(&SessionFilter::roots().page(offset, limit)).await
    }

    /// A root session with its compressed stream, and the sessions below it.
    ///
    /// # Errors
    /// Those of [`Telemetry::resolve`].
    pub async fn external_trace(&self, id: &str) -> Result<ExternalTrace> {
        let info = self.resolve(id).await?;
        let mut records = Records::default();
        self.read(&info.record.id, &mut records, |records| drop(records.drain())).await?;
        let mut traces = self.store.query(&SessionFilter::tree(info.record.id.clone())).await?;
        traces.retain(|below| below.record.id != info.record.id);
        Ok(ExternalTrace { external: External { info, exchanges: records.exchanges }, traces })
    }

    /// The full history of one session. Holds all of it in memory; [`Session::events`](crate::Session::events) reads
    /// in windows.
    ///
    /// # Errors
    /// Those of [`Telemetry::resolve`].
    pub async fn trace(&self, id: &str) -> Result<Trace> {
        let info = self.resolve(id).await?;
        let mut records = Records::default();
        self.read(&info.record.id, &mut records, |_| {}).await?;
        records.flush();
        let mut siblings = Vec::new();
        if let Some(parent) = &info.record.parent {
            let found = self.store.query(&SessionFilter::children_of(parent.clone())).await?;
            siblings = found.into_iter().map(|it| it.record.id).filter(|id| *id != info.record.id).collect();
        }
        let root = self.root(&info).await?;
        let Records { messages, exchanges, model_calls, tool_calls, .. } = records;
        Ok(Trace { info, root, siblings, messages, exchanges, model_calls, tool_calls })
    }

    /// Returns the request of a model call as its agent made it, before the layers around the model. `call` is
    /// [`ModelCallTrace::request`](super::ModelCallTrace).
    ///
    /// Returns `None` if the session has no such call, or does not hold all of its contents: events of older versions
    /// lack them, and of one call at most 32 MiB are stored. The tools have what a model is told of them. The
    /// parameters lack `metadata` and `extra`, which may hold secrets and are not stored.
    ///
    /// # Errors
    /// Those of [`Telemetry::resolve`].
    pub async fn request(&self, id: &str, call: RequestId) -> Result<Option<Request>> {
        let id = self.resolve(id).await?.record.id;
        let mut search = Search::new(call);
        let mut windows = Windows::after(&self.store, &id, 0);
        while let Some(rows) = windows.next().await? {
            for row in rows {
                search.apply(&row.into_envelope(&id)?);
            }
        }
        search.request()
    }

    /// Statistics per tool, in one session's tree or, without an id, in all sessions.
    ///
    /// # Errors
    /// Those of [`Telemetry::resolve`].
    pub async fn tool_stats(&self, id: Option<&str>) -> Result<BTreeMap<String, ToolStats>> {
        let filter = match id {
            Some(id) => SessionFilter::tree(self.resolve(id).await?.record.id),
            None => SessionFilter::all(),
        };
        let mut stats = SessionStats::default();
        for page in 0.. {
            let found = self.store.query(&filter.clone().page(page * WINDOW, WINDOW)).await?;
            for info in &found {
                self.count(&info.record.id, &mut stats).await?;
            }
            if found.len() < WINDOW {
                break;
            }
        }
        Ok(stats.tools)
    }

    /// Statistics of a session and all sessions below it.
    ///
    /// # Errors
    /// Those of [`Telemetry::resolve`].
    pub async fn session_stats(&self, id: &str) -> Result<SessionStats> {
        let root = self.resolve(id).await?.record.id;
        let mut stats = SessionStats::default();
        for info in self.store.query(&SessionFilter::tree(root.clone())).await? {
            let (runs, micros, open) = self.count(&info.record.id, &mut stats).await?;
            if info.record.id == root {
                stats.own.add(&info.head, open);
                (stats.runs, stats.micros) = (runs, micros);
            } else {
                stats.descendants.add(&info.head, open);
            }
        }
        Ok(stats)
    }

    /// Adds a session's calls to `stats`. Returns the number of its runs that ended, their time in microseconds, and
    /// true if a model call has no reply.
    async fn count(&self, id: &SessionId, stats: &mut SessionStats) -> Result<(u64, u64, bool)> {
        let mut records = Records::default();
        let (mut runs, mut micros, mut open) = (0_u64, 0_u64, false);
        let mut add = |records: &mut Records, all: bool| {
            let (mut models, mut tools) = records.drain();
            if all {
                models.append(&mut records.model_calls);
                tools.append(&mut records.tool_calls);
            }
            open |= models.iter().any(|call| call.completed.is_none());
            for call in &models {
                stats.models.entry(format!("{}:{}", call.provider, call.model)).or_default().add(call);
            }
            for call in &tools {
                stats.tools.entry(call.tool.to_string()).or_default().add(call);
            }
            for (began, ended) in records.exchanges.iter().filter_map(|it| Some((it.started, it.ended?))) {
                let time = u64::try_from(ended.since(began).as_micros()).unwrap_or(u64::MAX);
                (runs, micros) = (runs.saturating_add(1), micros.saturating_add(time));
            }
            records.exchanges.retain(|exchange| exchange.ended.is_none());
        };
        self.read(id, &mut records, |records| add(records, false)).await?;
        add(&mut records, true);
        Ok((runs, micros, open))
    }

    async fn root(&self, info: &SessionInfo) -> Result<SessionId> {
        let mut id = info.record.id.clone();
        let mut parent = info.record.parent.clone();
        while let Some(above) = parent {
            let found = self.store.query(&SessionFilter::id(above.clone())).await?.pop();
            parent = found.and_then(|info| info.record.parent);
            id = above;
        }
        Ok(id)
    }

    /// Reads a session window by window. `after_window` may drain the records after each.
    async fn read(
        &self,
        id: &SessionId,
        records: &mut Records,
        mut after_window: impl FnMut(&mut Records),
    ) -> Result<()> {
        let mut windows = Windows::after(&self.store, id, 0);
        while let Some(rows) = windows.next().await? {
            for row in rows {
                // A checkpoint repeats the events before it.
                if row.columns().kind != "checkpoint" {
                    records.apply(&row.into_envelope(id)?);
                }
            }
            after_window(records);
        }
        Ok(())
    }
}

impl Session {
    /// Returns what the session and all sessions below it have used so far: model calls, tool calls, tokens, cost and
    /// time. It reads the stored events of them all; [`Session::head`] has the session's own tokens and cost without
    /// that.
    ///
    /// # Errors
    /// The store's, and [`ErrorKind::Config`] when the runtime of the session is gone.
    ///
    /// ```
    /// # async fn example(session: entourage_runtime::Session) -> entourage_core::Result<()> {
    /// let stats = session.stats().await?;
    /// println!("{stats}"); // 3 model calls, 2 tool calls, …
    /// assert_eq!(stats.cost().unwrap_or_default(), stats.known_cost());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn stats(&self) -> Result<SessionStats> {
        let store = self.runtime()?.store().clone();
        match Telemetry::new(store).session_stats(self.id().as_str()).await {
            // Nothing has happened in it yet.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(SessionStats::default()),
            stats => stats,
        }
    }
}
