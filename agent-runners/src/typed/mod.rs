//! Typed output: a value of a Rust type from a model, by the best strategy that the model offers.
//!
//! The schema is sent as it is: its wire translates it into a service's dialect. [`Generation`] decides and is pure;
//! [`ModelExt`] only makes the calls. For an agent with tools and a typed answer there is a rule of its answers, which
//! its turn asks: see [`TypedAgent`](crate::TypedAgent).

mod answer;
mod failure;
mod machine;
mod outcome;
mod partial;
mod refused;
mod rule;
mod run;
mod shape;
mod text;

pub use answer::{answer_as, answer_rule};
pub use failure::{NoValue, NoValueReason};
pub use machine::Generation;
pub use outcome::OutcomeExt;
pub use partial::Partial;
pub use refused::AnswerRefused;
pub use run::RunExt;

pub(crate) use refused::refused_in;
pub(crate) use rule::{FINAL_ANSWER, Rule, TOLD, Validator};

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use entourage_core::{
    Error, Money, RequestId, Result, Usage,
    message::{History, Message},
    provider::{CallContext, Model, Params, Profile, Request, Warning},
};
use entourage_runtime::reply::ProviderExt;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

/// Typed output, implemented for [`Model`]. Sealed: not meant to be implemented elsewhere.
#[async_trait]
pub trait ModelExt: sealed::Sealed {
    /// Asks for a value of type `T`, by a prompt, a message, a conversation or a [`Generate`] with more settings.
    ///
    /// A reply that is not a valid value gets one repair round: the model is told the problem and asked again. The
    /// limits of `cx` apply to each call separately.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// use entourage_core::provider::CallContext;
    /// use entourage_runners::typed::ModelExt;
    /// use entourage_testkit::ScriptedProvider;
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct City {
    ///     name: String,
    ///     /// In millions.
    ///     people: f64,
    /// }
    ///
    /// let provider = ScriptedProvider::new().text(r#"{"name": "Paris", "people": 2.1}"#);
    /// let city = provider.model().generate::<City>("Where is the tower?", &CallContext::new()).await.unwrap();
    /// assert_eq!((city.value.name.as_str(), city.value.people), ("Paris", 2.1));
    /// # });
    /// ```
    ///
    /// # Errors
    /// Those of the calls, [`ErrorKind::Cancelled`](entourage_core::ErrorKind::Cancelled), those of
    /// [`Generation::new`], and those of [`Generation::read`] when there is no value: [`NoValue::of`] then gives the
    /// reason and the usage.
    async fn generate<T>(&self, ask: impl Into<Generate> + Send, cx: &CallContext) -> Result<Generated<T>>
    where
        T: DeserializeOwned + JsonSchema;
}

#[async_trait]
impl ModelExt for Model {
    async fn generate<T>(&self, ask: impl Into<Generate> + Send, cx: &CallContext) -> Result<Generated<T>>
    where
        T: DeserializeOwned + JsonSchema,
    {
        let mut generation = Generation::<T>::new(self, ask)?;
        let mut warnings = Vec::new();
        let mut call_cx = cx.clone();
        loop {
            let call = self.provider().complete(generation.request(), &call_cx);
            let mut reply = cx.cancel.run_until_cancelled(call).await.ok_or_else(Error::cancelled)??;
            warnings.append(&mut reply.warnings);
            let (finish, usage) = (reply.finish.reason, reply.usage + reply.wasted);
            let cost = reply.cost(self);
            let message = Arc::new(reply.into_message());
            if let Some(mut generated) = generation.read(&message, finish, usage, cost)? {
                generated.warnings = warnings;
                return Ok(generated);
            }
            call_cx.request = RequestId::generate();
        }
    }
}

mod sealed {
    pub trait Sealed: Send + Sync {}
    impl Sealed for entourage_core::provider::Model {}
}

/// Strategy of a request for a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Strategy {
    /// The service makes the reply follow the schema.
    Native,
    /// The model must call one tool whose arguments are the value.
    Tool,
    /// The instructions hold the schema, and the value is read from the text of the reply.
    Prompt,
}

impl Strategy {
    /// The best strategy that a model is known to offer: its service's own, else a forced tool, else the prompt. An
    /// unknown ability counts as absent, since the prompt works with every model. [`Generate::with_strategy`] overrides
    /// it.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        match (profile.structured_output, profile.tools) {
            (Some(true), _) => Self::Native,
            (_, Some(true)) => Self::Tool,
            _ => Self::Prompt,
        }
    }

    /// The best strategy for the last answer of an agent, which also has tools if `tools`. Beside tools, a service's
    /// own form counts only where it is known to leave the model free to call them.
    #[must_use]
    pub fn of_agent(profile: &Profile, tools: bool) -> Self {
        match (profile.structured_output, profile.structured_beside_tools, profile.tools) {
            _ if !tools => Self::of(profile),
            (Some(true), Some(true), _) => Self::Native,
            (_, _, Some(false)) => Self::Prompt,
            _ => Self::Tool,
        }
    }
}

/// Request for a value.
///
/// ```
/// use entourage_runners::typed::{Generate, Strategy};
///
/// let ask = Generate::new("Where is the tower?")
///     .with_instructions("You are a geographer.")
///     .with_strategy(Strategy::Tool);
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Generate {
    messages: History,
    instructions: Arc<str>,
    params: Option<Arc<Params>>,
    strategy: Option<Strategy>,
}

impl Generate {
    /// A request with one message.
    pub fn new(prompt: impl Into<Message>) -> Self {
        History::from_iter([prompt.into()]).into()
    }

    /// The same with system instructions.
    pub fn with_instructions(mut self, instructions: impl Into<Arc<str>>) -> Self {
        self.instructions = instructions.into();
        self
    }

    /// The same with parameters; absent ones come from the model.
    pub fn with_params(mut self, params: impl Into<Arc<Params>>) -> Self {
        self.params = Some(params.into());
        self
    }

    /// The same with this strategy, whatever the model is known to offer.
    pub fn with_strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = Some(strategy);
        self
    }
}

impl From<History> for Generate {
    fn from(messages: History) -> Self {
        Self { messages, instructions: Arc::default(), params: None, strategy: None }
    }
}

impl From<Message> for Generate {
    fn from(message: Message) -> Self {
        Self::new(message)
    }
}

impl From<&str> for Generate {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Generate {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

/// Takes over messages, instructions and parameters; the model, tools, tool choice and output form are set anew.
impl From<Request> for Generate {
    fn from(request: Request) -> Self {
        let Request { messages, instructions, params, .. } = request;
        Self { messages, instructions, params: Some(params), strategy: None }
    }
}

/// A value that a model made, with the calls and tokens that it took.
#[derive(Clone)]
#[non_exhaustive]
pub struct Generated<T> {
    /// The value.
    pub value: T,
    /// The reply that holds it.
    pub message: Arc<Message>,
    /// Strategy that was used.
    pub strategy: Strategy,
    /// Number of model calls made: 2 when the first reply had to be repaired.
    pub rounds: u32,
    /// Tokens of all calls, failed attempts included, as far as the service reported them.
    pub usage: Usage,
    /// Cost of all calls; `None` when the cost of any is unknown.
    pub cost: Option<Money>,
    /// Settings that the wire or the service could not honour. Within a run these are events instead.
    pub warnings: Vec<Warning>,
}

impl<T: fmt::Debug> fmt::Debug for Generated<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generated")
            .field("value", &self.value)
            .field("strategy", &self.strategy)
            .field("rounds", &self.rounds)
            .field("usage", &self.usage)
            .field("cost", &self.cost)
            .finish_non_exhaustive()
    }
}
