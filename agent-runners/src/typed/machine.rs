//! The pure machine of one generation: replies in, the next request or the value out.

use std::{fmt, marker::PhantomData, sync::Arc};

use entourage_core::{
    Error, ErrorKind, Money, Result, Usage,
    message::{Message, Part, ToolResult},
    provider::{FinishReason, Model, OutputFormat, OutputSchema, Request, ToolChoice},
    tool::{Access, Tool, ToolSpec, Tools},
};
use entourage_runtime::context::shown_to;
use entourage_runtime::reply::Assembler;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::from_fn::from_fn;
use crate::typed::{Generate, Generated, NoValue, NoValueReason, Strategy, shape::Shape, text};

/// Calls per value: the first one, and one to repair its reply.
const ROUNDS: u32 = 2;

/// The pure part of typed output, for callers that make the calls themselves:
/// [`ModelExt::generate`](crate::typed::ModelExt::generate) outside of runs and
/// [`RunExt::generate`](super::RunExt::generate) within.
///
/// Call the model with [`Generation::request`] and hand its reply to [`Generation::read`], until that gives the value.
pub struct Generation<T> {
    strategy: Strategy,
    shape: Shape,
    request: Request,
    tools: Tools,
    rounds: u32,
    usage: Usage,
    cost: Option<Money>,
    makes: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned + JsonSchema> Generation<T> {
    /// Asks `model` for a value of type `T`.
    ///
    /// # Errors
    /// [`ErrorKind::EmptyPrompt`] when no message has content.
    pub fn new(model: &Model, ask: impl Into<Generate>) -> Result<Self> {
        let Generate { messages, instructions, params, strategy } = ask.into();
        if !messages.iter().any(|message| message.has_content()) {
            return Err(Error::new(
                ErrorKind::EmptyPrompt,
                "the prompt is empty; say what the value should be made of",
            )
            .during("model.generate"));
        }
        let strategy = strategy.unwrap_or_else(|| Strategy::of(model.profile()));
        let shape = Shape::of::<T>(strategy);
        let mut request = model.request(shown_to(&messages, model.profile()));
        request.instructions = instructions;
        if let Some(params) = params {
            request.params = Arc::new((*params).clone().or(model.params()));
        }
        let mut tools = Tools::none();
        match strategy {
            Strategy::Native => {
                let mut schema = OutputSchema::new(&*shape.name, shape.sent().clone());
                schema.description.clone_from(&shape.description);
                request.output = OutputFormat::from(schema);
            }
            Strategy::Tool => {
                tools = Tools::new([shape.tool()])?;
                request.tools = Arc::clone(tools.specs());
                request.tool_choice = ToolChoice::Tool(shape.name.clone());
            }
            Strategy::Prompt => request.instructions = with_schema(&request.instructions, &shape),
        }
        let cost = Some(Money::default());
        Ok(Self {
            strategy,
            shape,
            request,
            tools,
            rounds: 0,
            usage: Usage::default(),
            cost,
            makes: PhantomData,
        })
    }

    /// Strategy of this generation.
    #[must_use]
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// The next call. Cheap: the history is shared.
    #[must_use]
    pub fn request(&self) -> Request {
        self.request.clone()
    }

    /// The tool that the model must call, with `Strategy::Tool`; empty otherwise. It is never run.
    #[must_use]
    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// Takes in the reply to [`Generation::request`] with its tokens and cost, failed attempts included. Returns `None`
    /// if the reply was not a valid value and the model should be asked again.
    ///
    /// # Errors
    /// With a [`NoValue`] as source: [`ErrorKind::ContentFiltered`] when the model declined or the service withheld the
    /// reply, [`ErrorKind::TooLarge`] when the reply reached its output limit, [`ErrorKind::Protocol`] when the second
    /// reply was invalid too. A reply that broke off is [`ErrorKind::Protocol`] and temporary.
    pub fn read(
        &mut self,
        message: &Arc<Message>,
        finish: FinishReason,
        usage: Usage,
        cost: Option<Money>,
    ) -> Result<Option<Generated<T>>> {
        self.rounds = self.rounds.saturating_add(1);
        self.usage += usage;
        self.cost = self.cost.zip(cost).map(|(sum, cost)| sum + cost);
        if matches!(finish, FinishReason::Error | FinishReason::Cancelled) {
            return Err(Assembler::cut_off());
        }
        if let Some(reason) = ended_early(message, finish) {
            return Err(self.no_value(reason, message));
        }
        match self.value(message) {
            Ok(value) => Ok(Some(Generated {
                value,
                message: Arc::clone(message),
                strategy: self.strategy,
                rounds: self.rounds,
                usage: self.usage,
                cost: self.cost,
                warnings: Vec::new(),
            })),
            Err(problem) if self.rounds < ROUNDS => {
                self.ask_again(message, &problem);
                Ok(None)
            }
            Err(problem) => Err(self.no_value(NoValueReason::Invalid(problem), message)),
        }
    }

    fn no_value(&self, reason: NoValueReason, message: &Arc<Message>) -> Error {
        let (rounds, usage, cost) = (self.rounds, self.usage, self.cost);
        NoValue { reason, message: Arc::clone(message), rounds, usage, cost }.into_error(&self.shape.name)
    }

    /// The value. The error describes the problem in words for the model.
    fn value(&self, message: &Message) -> Result<T, String> {
        let mut candidates = match self.strategy {
            Strategy::Tool => arguments_of(message, &self.shape.name)?,
            Strategy::Native | Strategy::Prompt => Vec::new(),
        };
        if candidates.is_empty() {
            // Some services do not force the call; what the model writes instead may be the value all the same.
            candidates = text::values(&message.text());
        }
        self.shape
            .read(candidates)
            .map_err(|problem| problem.unwrap_or_else(|| absent(self.strategy, &self.shape.name)))
    }

    /// Appends the reply and the problem. A call must have a result, so its result states the problem.
    fn ask_again(&mut self, message: &Arc<Message>, problem: &str) {
        let how = how_to_answer(self.strategy, &self.shape.name);
        let text = format!("This is not what was asked for: {problem}. {how}");
        let messages = &mut self.request.messages;
        if message.has_content() {
            messages.push(Arc::clone(message));
        }
        let results: Vec<_> = message.tool_calls().map(|call| ToolResult::error(call, &*text)).collect();
        messages.push(if results.is_empty() { Message::user(text) } else { Message::tool(results) });
    }
}

/// Arguments of the calls of `tool` in a message.
///
/// # Errors
/// The problem of a call that could not be read, in words for the model.
pub(super) fn arguments_of(message: &Message, tool: &str) -> Result<Vec<Value>, String> {
    let calls = message.tool_calls().filter(|call| *call.name == *tool);
    let read = calls.map(|call| match &call.malformed {
        Some(problem) => Err(format!("the call could not be read: {problem}")),
        None => Ok(call.arguments.to_value()),
    });
    read.collect()
}

/// Says to the model that its reply holds no value.
pub(super) fn absent(strategy: Strategy, tool: &str) -> String {
    match strategy {
        Strategy::Tool => format!("the tool `{tool}` was not called"),
        Strategy::Native | Strategy::Prompt => "there is no complete JSON value in the reply".to_owned(),
    }
}

/// Says to the model how to answer again.
pub(super) fn how_to_answer(strategy: Strategy, tool: &str) -> String {
    match strategy {
        Strategy::Tool => format!("Call `{tool}` once, with arguments that follow its schema."),
        Strategy::Native | Strategy::Prompt => {
            "Answer again with one JSON value that follows the schema, and with nothing else.".to_owned()
        }
    }
}

/// Reason to end the generation without reading a value. A value that was cut off may look whole and lack half of its
/// list.
fn ended_early(message: &Message, finish: FinishReason) -> Option<NoValueReason> {
    match finish {
        FinishReason::Refusal => Some(NoValueReason::Refused),
        FinishReason::ContentFilter => Some(NoValueReason::Withheld),
        FinishReason::Length => Some(NoValueReason::CutOff),
        _ => {
            let declined = message.parts().iter().any(|part| matches!(part, Part::Refusal(_)));
            declined.then_some(NoValueReason::Refused)
        }
    }
}

fn with_schema(instructions: &str, shape: &Shape) -> Arc<str> {
    let before = if instructions.is_empty() { "" } else { "\n\n" };
    format!(
        "{instructions}{before}Answer with one JSON value that follows this JSON Schema, and with nothing else: no \
         explanation, no code fence.\n\n{}",
        shape.sent()
    )
    .into()
}

impl Shape {
    fn tool(&self) -> Arc<dyn Tool> {
        let about = self.description.as_ref().map(|text| format!(" {text}")).unwrap_or_default();
        let spec = ToolSpec::new(&*self.name, format!("Takes the answer.{about}"), self.sent().clone())
            .with_access(Access::NONE);
        Arc::new(from_fn(spec, |_| std::future::ready(Ok(()))))
    }
}

impl<T> fmt::Debug for Generation<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generation")
            .field("of", &self.shape.name)
            .field("strategy", &self.strategy)
            .field("rounds", &self.rounds)
            .finish_non_exhaustive()
    }
}
