//! Fallback to other models when one cannot begin, with statistics for each of them.
//!
//! The layer never abandons a reply that showed output, and never asks the same model twice: a retry layer inside does.

mod chain;
mod stats;

pub use stats::{FallbackStats, ModelUsage, UsageReport};

use std::{cmp::Reverse, fmt, sync::Arc};

use async_trait::async_trait;
use entourage_core::{
    Error, Prices, Result,
    provider::{CallContext, DeltaStream, Layer, Model, Profile, Provider, Request},
};
use serde::{Deserialize, Serialize};

use chain::Chain;

/// Class of a model by ability and price. Ordered: `Local < Small < Medium < Large`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// A model on this machine, at a cost of 0 unless its profile has prices: the last resort.
    Local,
    /// A small model.
    Small,
    /// A model between small and large.
    Medium,
    /// A model of the best class.
    Large,
}

/// A model to fall back to.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ModelChoice {
    /// The model, with its layers.
    pub model: Model,
    /// Tier of the model.
    pub tier: Tier,
}

impl ModelChoice {
    /// `model`, in this tier.
    #[must_use]
    pub fn new(model: Model, tier: Tier) -> Self {
        Self { model, tier }
    }
}

/// Layer that asks other models in turn if the model of a request cannot begin to answer: first those of its own tier,
/// then lower tiers, then local ones; within a tier in the order given. A higher tier is never asked.
///
/// The model itself is the one behind the layer, and is not in the list.
///
/// # Contract
/// - A model is abandoned when it refuses the call, or when its reply fails or breaks off before any output. A
///   [`Delta::Restart`](entourage_core::provider::Delta::Restart) then names the next service and model, with the next
///   attempt number. The first model is awaited in [`Provider::stream`].
/// - Another model is asked after: not found, authentication, permission denied (where the call may connect anywhere),
///   rate limited, overloaded, timeout, transport, protocol, unsupported. None is asked after errors that would recur
///   anywhere or must be seen: invalid input, content filtered, context overflow, too large, budget exceeded, a cancel,
///   a wrong configuration, a defect. Nor once [`CallContext::timeout`] is over; later models get the remaining time.
/// - The next model gets the same request with its own name and profile. Its own parameters override those of the
///   request; the request's `extra` is left out if the service is another; its output limit is kept. Deferred tools
///   stay in a request to a service that [searches](entourage_core::provider::Profile::tool_search) them; any other is
///   told of those that find and call them.
/// - The budget of a run reserves for the first model alone. The reply of the next one may be longer or dearer, by its
///   own parameters, profile and prices, in each call in flight. A [`BudgetLayer`](crate::layers::BudgetLayer) on each
///   model reserves for that model.
/// - When no model is left, the error lists all causes, has the first one's kind, and is temporary if any of them was.
///   A failure after which no other model was asked is passed on as it is.
/// - Reported usage is passed on with its cost at the prices of the model that was asked, where they are known.
///
/// # Order
/// Outside the layers of a single service: retry, rate limit, budget, each on the model that they belong to. The wrong
/// order, `model.layer(fallback).layer(retry)`, runs through the whole chain at each attempt.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use entourage_core::ErrorKind;
/// use entourage_runners::ReactAgent;
/// use entourage_runtime::{AgentExt, layers::{Fallback, ModelChoice, Tier}};
/// use entourage_testkit::ScriptedProvider;
///
/// let (large, local) = (ScriptedProvider::named("far"), ScriptedProvider::named("here"));
/// let (large, local) = (large.fail(ErrorKind::Overloaded, "no room"), local.text("Hello!"));
/// let fallback = Fallback::to([ModelChoice::new(local.model(), Tier::Local)]);
/// let stats = fallback.stats();
/// let agent = ReactAgent::builder("a", large.model().layer(fallback)).build().unwrap();
/// assert_eq!(agent.ask("Hello?").await.unwrap(), "Hello!");
/// assert_eq!(stats.report().models.len(), 2);
/// # });
/// ```
#[derive(Clone)]
pub struct Fallback {
    /// Models to fall back to, in the order in which they are asked.
    choices: Arc<[ModelChoice]>,
    listed: Arc<[ModelChoice]>,
    primary: Tier,
    prices: Option<Prices>,
    stats: FallbackStats,
}

impl Fallback {
    /// A chain of these models behind a large one.
    #[must_use]
    pub fn to(choices: impl IntoIterator<Item = ModelChoice>) -> Self {
        Self {
            choices: Arc::default(),
            listed: choices.into_iter().collect(),
            primary: Tier::Large,
            prices: None,
            stats: FallbackStats::default(),
        }
        .with_primary(Tier::Large)
    }

    /// Sets the tier of the model behind the layer. By default it is large.
    #[must_use]
    pub fn with_primary(mut self, tier: Tier) -> Self {
        let mut choices: Vec<_> = self.listed.iter().filter(|choice| choice.tier <= tier).cloned().collect();
        choices.sort_by_key(|choice| Reverse(choice.tier));
        self.choices = choices.into();
        self.primary = tier;
        self
    }

    /// Sets the prices against which savings are counted. By default those of the model behind the layer if it is
    /// large, else of the first large one in the list.
    #[must_use]
    pub fn with_baseline(mut self, prices: Prices) -> Self {
        self.prices = Some(prices);
        self
    }

    /// Statistics of this chain and its clones, which can be read at any time.
    #[must_use]
    pub fn stats(&self) -> FallbackStats {
        self.stats.clone()
    }

    fn baseline(&self, primary: &Profile) -> Option<Prices> {
        let large = || match self.primary {
            Tier::Large => primary.prices.clone(),
            _ => {
                let first = self.listed.iter().find(|choice| choice.tier == Tier::Large)?;
                first.model.profile().prices.clone()
            }
        };
        self.prices.clone().or_else(large)
    }
}

impl fmt::Debug for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fallback")
            .field("primary", &self.primary)
            .field("choices", &self.choices)
            .finish_non_exhaustive()
    }
}

impl Layer for Fallback {
    fn layer(self, inner: Arc<dyn Provider>) -> Arc<dyn Provider> {
        Arc::new(WithFallback { inner, fallback: self })
    }
}

#[derive(Debug)]
struct WithFallback {
    inner: Arc<dyn Provider>,
    fallback: Fallback,
}

#[async_trait]
impl Provider for WithFallback {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn stream(&self, request: Request, cx: &CallContext) -> Result<DeltaStream> {
        if cx.cancel.is_cancelled() {
            return Err(Error::cancelled());
        }
        let chain = Chain::new(&self.fallback, self.inner.name(), &request, cx);
        let started = self.inner.stream(request, cx).await;
        chain.begin(started)
    }
}
