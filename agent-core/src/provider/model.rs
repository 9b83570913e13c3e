//! A model: a provider, the model's name there, known facts about it, and default parameters.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use super::{DeltaStream, Layer, Params, Profile, Provider, Request};
use crate::{Money, Result, Usage, message::History, provider::CallContext};

/// A handle on a model. Cloning shares it.
///
/// ```no_run
/// # fn example(provider: std::sync::Arc<dyn entourage_core::provider::Provider>) {
/// use entourage_core::provider::{Model, Params};
///
/// let mut params = Params::default();
/// params.temperature = Some(0.2);
/// let model = Model::new(provider, "large-1").with_params(params);
/// # }
/// ```
#[derive(Clone)]
pub struct Model(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    provider: Arc<dyn Provider>,
    provider_name: Arc<str>,
    name: Arc<str>,
    profile: Arc<Profile>,
    params: Arc<Params>,
}

impl Model {
    /// The model that `provider` knows as `name`.
    pub fn new(provider: Arc<dyn Provider>, name: impl Into<Arc<str>>) -> Self {
        Self(Arc::new(Inner {
            provider_name: provider.name().into(),
            provider,
            name: name.into(),
            profile: Arc::default(),
            params: Arc::default(),
        }))
    }

    /// The same model with facts about it.
    #[must_use]
    pub fn with_profile(mut self, profile: impl Into<Arc<Profile>>) -> Self {
        Arc::make_mut(&mut self.0).profile = profile.into();
        self
    }

    /// The same model with default parameters, which an agent's own override.
    #[must_use]
    pub fn with_params(mut self, mut params: Params) -> Self {
        params.max_output = params.max_output.filter(|max| *max > 0);
        Arc::make_mut(&mut self.0).params = Arc::new(params);
        self
    }

    /// The same model behind a layer: a provider that wraps this one's. The layer added last is asked first; the
    /// order matters, see `layers`.
    #[must_use]
    pub fn layer(mut self, layer: impl Layer) -> Self {
        let inner = Arc::make_mut(&mut self.0);
        inner.provider = layer.layer(Arc::clone(&inner.provider));
        inner.provider_name = inner.provider.name().into();
        self
    }

    /// The model's name at its service.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// The service's name.
    #[must_use]
    pub fn provider_name(&self) -> &Arc<str> {
        &self.0.provider_name
    }

    /// The service.
    #[must_use]
    pub fn provider(&self) -> &Arc<dyn Provider> {
        &self.0.provider
    }

    /// Known facts about the model.
    #[must_use]
    pub fn profile(&self) -> &Arc<Profile> {
        &self.0.profile
    }

    /// The default parameters.
    #[must_use]
    pub fn params(&self) -> &Arc<Params> {
        &self.0.params
    }

    /// A request of `messages` to this model with its default parameters: a [`History`], or one message or text.
    #[must_use]
    pub fn request(&self, messages: impl Into<History>) -> Request {
        let (params, profile) = (Arc::clone(&self.0.params), Arc::clone(&self.0.profile));
        Request::with_shared(Arc::clone(&self.0.name), messages.into(), params, profile)
    }

    /// Starts a call.
    ///
    /// # Errors
    /// Those of [`Provider::stream`].
    pub fn stream<'a>(
        &'a self,
        request: Request,
        cx: &'a CallContext,
    ) -> Pin<Box<dyn Future<Output = Result<DeltaStream>> + Send + 'a>> {
        // Not through the implementation for `Arc`, which would box the future a second time.
        (*self.0.provider).stream(request, cx)
    }

    /// Cost of `usage`: the provider's own figure, else the sum at this model's prices. `None` if neither is known, or
    /// if the tokens have a price and were not counted.
    #[must_use]
    pub fn cost(&self, usage: &Usage) -> Option<Money> {
        let at_prices = || {
            let prices = self.0.profile.prices.as_ref()?;
            if prices.is_flat_rate() {
                return Some(Money::default());
            }
            prices.cost(usage).filter(|_| usage.is_counted())
        };
        usage.cost.or_else(at_prices)
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Model({}:{})", self.0.provider.name(), self.0.name)
    }
}

/// Source of an agent's model, asked before each step, so that a model can be swapped during a run.
pub trait ModelSource: Send + Sync + fmt::Debug {
    /// The model for the next step.
    fn model(&self) -> Model;
}

/// The model of an agent: a fixed one, or a source that is asked before each step.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ModelSlot {
    /// The same model for each step.
    Fixed(Model),
    /// The model that the source gives.
    Source(Arc<dyn ModelSource>),
}

impl ModelSlot {
    /// The model for the next step.
    #[must_use]
    pub fn model(&self) -> Model {
        match self {
            Self::Fixed(model) => model.clone(),
            Self::Source(source) => source.model(),
        }
    }
}

impl From<Model> for ModelSlot {
    fn from(model: Model) -> Self {
        Self::Fixed(model)
    }
}

impl<S: ModelSource + 'static> From<Arc<S>> for ModelSlot {
    fn from(source: Arc<S>) -> Self {
        Self::Source(source)
    }
}
