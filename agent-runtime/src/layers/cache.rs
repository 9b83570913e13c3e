//! Cache of finished replies, in memory.
//!
//! Nothing survives the process, and equal calls in flight at the same time are not joined.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Digest, Error, Money, Result, Usage,
    provider::{CallContext, Delta, DeltaStream, FinishReason, Layer, Provider, Request},
};
use futures_util::{Stream, stream};
use tokio::time::Instant;

use super::tally::visible_bytes;

/// Layer that replays a reply when an equal request is made.
///
/// A handle: clones share the cache.
///
/// # Contract
/// - The key is a digest of the provider's name and of the whole request as it is serialized: model, instructions,
///   conversation, tools, output and parameters, metadata included. Two services of the same name whose models differ
///   need a cache each.
/// - A request for a temperature above 0 without a seed wants a new answer each time, and bypasses the cache.
///   [`ResponseCache::only_when`] replaces this rule.
/// - Replies are kept if they reached their [`Delta::Finish`] for [`Stop`](FinishReason::Stop) or
///   [`ToolCalls`](FinishReason::ToolCalls). Nothing else is kept: no error, and no reply that was cut off, withheld,
///   refused or dropped on the way.
/// - A cached reply with tool calls asks for the same calls again, and the run judges and makes them again: the cache
///   repeats what the model said, never what tools did. [`ResponseCache::without_tool_calls`] leaves such replies out.
/// - A replayed reply has the deltas of the attempt that succeeded, as they came. Its usage has the reported tokens,
///   since they show how full the context is, and a cost of 0, since no service was asked. The account's remaining
///   limits are not repeated.
/// - At most 1,000 replies and 64 MiB by default, the least recently used evicted first; no limit of age.
///
/// # Order
/// Outside everything that costs something: retry, rate limit, budget. With the wrong order,
/// `model.layer(cache).layer(BudgetLayer::new(&budget, "scout"))`, each replayed reply reserves money and counts as a
/// call.
#[derive(Clone)]
pub struct ResponseCache {
    kept: Arc<Mutex<Kept>>,
    rule: Rule,
    tool_calls: bool,
}

/// Rule for the requests that may be answered from the cache.
#[derive(Clone)]
enum Rule {
    Repeatable,
    Given(Arc<dyn Fn(&Request) -> bool + Send + Sync>),
}

impl Rule {
    fn admits(&self, request: &Request) -> bool {
        match self {
            Self::Repeatable => {
                let params = &request.params;
                params.seed.is_some() || params.temperature.is_none_or(|temperature| temperature <= 0.0)
            }
            Self::Given(rule) => rule(request),
        }
    }
}

impl ResponseCache {
    /// An empty cache with the default bounds.
    #[must_use]
    pub fn new() -> Self {
        Self::with_bounds(1_000, 64 << 20)
    }

    /// An empty cache of at most that many replies and bytes. A reply larger than `bytes` is not kept.
    #[must_use]
    pub fn with_bounds(entries: usize, bytes: usize) -> Self {
        let kept = Kept { entries, bytes, ..Kept::default() };
        Self { kept: Arc::new(Mutex::new(kept)), rule: Rule::Repeatable, tool_calls: true }
    }

    /// Evicts a reply this long after it came. Applies to all handles.
    #[must_use]
    pub fn with_max_age(self, age: Duration) -> Self {
        self.lock().max_age = Some(age);
        self
    }

    /// Answers and keeps only requests that `rule` admits, whatever their temperature.
    #[must_use]
    pub fn only_when(mut self, rule: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Self {
        self.rule = Rule::Given(Arc::new(rule));
        self
    }

    /// Keeps no replies with tool calls.
    #[must_use]
    pub fn without_tool_calls(mut self) -> Self {
        self.tool_calls = false;
        self
    }

    /// Evicts all replies, for example to get new answers. The counts stay.
    pub fn clear(&self) {
        let mut kept = self.lock();
        kept.replies.clear();
        kept.by_use.clear();
        kept.size = 0;
    }

    /// Statistics so far.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        let kept = self.lock();
        CacheStats { hits: kept.hits, misses: kept.misses, entries: kept.replies.len(), bytes: kept.size }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for ResponseCache {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ResponseCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseCache")
            .field("stats", &self.stats())
            .field("tool_calls", &self.tool_calls)
            .finish_non_exhaustive()
    }
}

/// Statistics of a [`ResponseCache`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CacheStats {
    /// Number of calls that were answered from the cache.
    pub hits: u64,
    /// Number of calls that the cache could have answered and did not hold.
    pub misses: u64,
    /// Number of replies in the cache.
    pub entries: usize,
    /// Size of the replies in bytes.
    pub bytes: usize,
}

#[derive(Default)]
struct Kept {
    entries: usize,
    bytes: usize,
    max_age: Option<Duration>,
    replies: HashMap<Digest, Entry>,
    /// Digests by last use, least recently used first.
    by_use: BTreeMap<u64, Digest>,
    uses: u64,
    size: usize,
    hits: u64,
    misses: u64,
}

struct Entry {
    deltas: Arc<[Delta]>,
    size: usize,
    came: Instant,
    used: u64,
}

impl Kept {
    fn find(&mut self, key: Digest, now: Instant) -> Option<Arc<[Delta]>> {
        let old =
            |entry: &Entry| self.max_age.is_some_and(|age| now.saturating_duration_since(entry.came) >= age);
        if self.replies.get(&key).is_some_and(old) {
            self.remove(key);
        }
        let Some(entry) = self.replies.get_mut(&key) else {
            self.misses += 1;
            return None;
        };
        self.hits += 1;
        self.uses += 1;
        self.by_use.remove(&entry.used);
        entry.used = self.uses;
        self.by_use.insert(entry.used, key);
        Some(Arc::clone(&entry.deltas))
    }

    fn remove(&mut self, key: Digest) {
        if let Some(entry) = self.replies.remove(&key) {
            self.by_use.remove(&entry.used);
            self.size = self.size.saturating_sub(entry.size);
        }
    }

    fn keep(&mut self, key: Digest, deltas: Vec<Delta>, size: usize, now: Instant) {
        self.remove(key);
        if size > self.bytes || self.entries == 0 {
            return;
        }
        while self.replies.len() >= self.entries || self.size.saturating_add(size) > self.bytes {
            let Some((_, oldest)) = self.by_use.first_key_value() else { break };
            self.remove(*oldest);
        }
        self.uses += 1;
        self.size += size;
        self.by_use.insert(self.uses, key);
        self.replies.insert(key, Entry { deltas: deltas.into(), size, came: now, used: self.uses });
    }
}

impl Layer for ResponseCache {
    fn layer(self, inner: Arc<dyn Provider>) -> Arc<dyn Provider> {
        Arc::new(Cached { inner, cache: self })
    }
}

#[derive(Debug)]
struct Cached {
    inner: Arc<dyn Provider>,
    cache: ResponseCache,
}

impl Cached {
    /// Key of the request; `None` if it does not serialize, and so bypasses the cache.
    fn key(&self, request: &Request) -> Option<Digest> {
        let asked = serde_json::to_vec(request).ok()?;
        Some(Digest::of([self.inner.name().as_bytes(), &asked]))
    }
}

#[async_trait]
impl Provider for Cached {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn stream(&self, request: Request, cx: &CallContext) -> Result<DeltaStream> {
        if cx.cancel.is_cancelled() {
            return Err(Error::cancelled());
        }
        let key = if self.cache.rule.admits(&request) { self.key(&request) } else { None };
        let Some(key) = key else { return self.inner.stream(request, cx).await };
        let found = self.cache.lock().find(key, Instant::now());
        if let Some(deltas) = found {
            return Ok(play(deltas));
        }
        let inner = self.inner.stream(request, cx).await?;
        let most = self.cache.lock().bytes;
        let taken =
            Some(Taken { key, most, deltas: Vec::new(), size: 0, usage: Usage::default(), good: None });
        Ok(Box::pin(Keeping { inner, cache: self.cache.clone(), taken }))
    }
}

fn play(deltas: Arc<[Delta]>) -> DeltaStream {
    Box::pin(stream::iter((0..deltas.len()).filter_map(move |place| deltas.get(place).cloned().map(Ok))))
}

/// A reply on its way into the cache.
struct Keeping {
    inner: DeltaStream,
    cache: ResponseCache,
    /// `None` once the reply cannot be kept.
    taken: Option<Taken>,
}

struct Taken {
    key: Digest,
    most: usize,
    deltas: Vec<Delta>,
    size: usize,
    usage: Usage,
    /// The finish, once it has come.
    good: Option<Delta>,
}

impl Taken {
    /// Adds one delta; `false` if this reply cannot be kept.
    fn push(&mut self, delta: &Delta, tool_calls: bool) -> bool {
        match delta {
            Delta::Usage(usage) => self.usage.merge(**usage),
            Delta::Restart(_) => self.restart(),
            Delta::Finish(finish) => {
                self.good = Some(delta.clone());
                return matches!(finish.reason, FinishReason::Stop | FinishReason::ToolCalls);
            }
            Delta::ToolCallStart(_) if !tool_calls => return false,
            Delta::Response(info) => {
                let mut info = info.clone();
                info.limits = None;
                self.add(Delta::Response(info));
            }
            other => self.add(other.clone()),
        }
        self.size <= self.most
    }

    fn add(&mut self, delta: Delta) {
        let text = match &delta {
            Delta::Warning(warning) => warning.subject.len() + warning.text.len(),
            other => visible_bytes(other),
        };
        self.size = self.size.saturating_add(size_of::<Delta>() + text);
        self.deltas.push(delta);
    }

    /// Drops the failed attempt, except warnings: they are about the request, and hold for the next attempt too.
    fn restart(&mut self) {
        self.usage = Usage::default();
        self.size = 0;
        for delta in std::mem::take(&mut self.deltas) {
            if matches!(delta, Delta::Warning(_)) {
                self.add(delta);
            }
        }
    }

    fn keep(mut self, cache: &ResponseCache) {
        let Some(finish) = self.good.take() else { return };
        let mut usage = self.usage.reported();
        usage.cost = Some(Money::default());
        self.add(Delta::Usage(Box::new(usage)));
        self.add(finish);
        cache.lock().keep(self.key, self.deltas, self.size, Instant::now());
    }
}

impl Stream for Keeping {
    type Item = Result<Delta>;

    fn poll_next(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Delta>>> {
        let this = self.get_mut();
        let next = this.inner.as_mut().poll_next(task);
        match &next {
            Poll::Ready(Some(Ok(delta))) => {
                let tool_calls = this.cache.tool_calls;
                this.taken.take_if(|taken| !taken.push(delta, tool_calls));
            }
            Poll::Ready(Some(Err(_))) => this.taken = None,
            Poll::Ready(None) => {
                if let Some(taken) = this.taken.take() {
                    taken.keep(&this.cache);
                }
            }
            Poll::Pending => {}
        }
        next
    }
}
