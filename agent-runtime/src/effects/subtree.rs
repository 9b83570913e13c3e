//! Usage of a run and all runs below it, counted while this process lives: for reports about a whole subtree.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use entourage_core::{Money, Result, SessionId, Usage, event::ModelFinished, session::SessionFilter};

use crate::env::Env;

/// The figures of one subtree. Each model call below it is added, here and in the subtrees above.
#[derive(Debug, Default)]
pub(crate) struct Subtree {
    inner: Mutex<Inner>,
    above: OnceLock<Arc<Subtree>>,
}

#[derive(Debug, Default)]
struct Inner {
    figures: Figures,
    /// Number of model calls that have begun and not ended.
    open: u64,
    /// True when nothing is missing: its run began in this process, or the store told the rest.
    whole: bool,
}

/// Tokens and money. The sum with something unknown is unknown.
#[derive(Debug, Default)]
struct Figures {
    tokens: Usage,
    /// Sum of the known costs.
    cost: Money,
    /// True once a cost was unknown.
    is_unpriced: bool,
}

impl Figures {
    fn add(&mut self, usage: Usage, cost: Option<Money>) {
        self.tokens += usage.tokens();
        self.cost += cost.unwrap_or_default();
        self.is_unpriced |= cost.is_none();
    }
}

impl Subtree {
    /// Makes this a part of the subtree `above`.
    pub(crate) fn put_below(&self, above: &Arc<Self>) {
        self.above.get_or_init(|| Arc::clone(above));
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks its run as begun in this process.
    pub(crate) fn begin(&self) {
        self.lock().whole = true;
    }

    /// Returns this subtree and those above.
    fn upwards(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |subtree| subtree.above.get().map(|above| &**above))
    }

    /// Notes that a model call begins. One that never ends, as when its service panics, has an unknown cost.
    pub(super) fn begin_call(&self) {
        self.upwards().for_each(|subtree| subtree.lock().open += 1);
    }

    /// Adds a model call that ended.
    pub(super) fn count(&self, reply: &ModelFinished) {
        let usage = reply.usage + reply.wasted;
        for subtree in self.upwards() {
            let mut inner = subtree.lock();
            inner.open = inner.open.saturating_sub(1);
            inner.figures.add(usage, reply.cost);
        }
    }

    /// Returns the figures, once its run has ended; `None` if a part of it ran in an earlier process and the store
    /// could not be read.
    pub(crate) fn total(&self) -> Option<Usage> {
        let Inner { figures, open, whole } = &*self.lock();
        let is_priced = *open == 0 && !figures.is_unpriced;
        let mut total = figures.tokens;
        total.cost = is_priced.then_some(figures.cost);
        whole.then_some(total)
    }

    /// Reads the figures of the subtree of session `root`, whose run has ended, if a part of it ran in an earlier
    /// process.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn complete(&self, env: &Env, root: &SessionId) -> Result<()> {
        if self.lock().whole {
            return Ok(());
        }
        if let Some(store) = &env.store {
            let mut figures = Figures::default();
            for info in store.query(&SessionFilter::tree(root.clone())).await? {
                figures.add(info.head.usage, info.head.cost);
            }
            let mut inner = self.lock();
            // The store knows of calls without an end.
            (inner.figures, inner.open) = (figures, 0);
        }
        self.lock().whole = true;
        Ok(())
    }
}
