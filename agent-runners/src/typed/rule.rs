//! The rule of an agent's last answer: how its model is asked for a value, and the one check of what it gives.
//!
//! It decides nothing about the run: its turn does, with what the check found.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use entourage_core::{
    bound::shortened,
    message::Message,
    permission::Scope,
    provider::{Model, OutputFormat, OutputSchema, Request, ToolChoice},
    run::RunContext,
    tool::{Access, Repeat, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec, Tools},
};
use entourage_runtime::{caught, schema::doubled};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    newest::Newest,
    typed::{
        Strategy,
        machine::{absent, arguments_of, how_to_answer},
        shape::Shape,
        text,
    },
};

/// Name of the tool that takes the answer.
pub(crate) const FINAL_ANSWER: &str = "final_answer";

/// Bytes of a problem that the model is told.
pub(crate) const TOLD: usize = 2_000;

/// A check of a value beyond its schema. The error is the reason for the model.
pub(crate) type Validator<T> = Box<dyn Fn(&T, &RunContext) -> Result<(), String> + Send + Sync>;

/// Reads the one value among candidates. The error is `None` without candidates.
type ReadFn = dyn Fn(&Shape, Vec<Value>, &RunContext) -> Result<Value, Option<String>> + Send + Sync;

/// The rule of an agent's last answer.
pub(crate) struct Rule {
    judge: Arc<Judge>,
    tool: Arc<dyn Tool>,
    output: OutputFormat,
    /// Instructions of a model that is offered neither a form nor the tool.
    told: Box<str>,
    strategy: Option<Strategy>,
    repairs: u32,
    /// The newest tools, with the one that takes the answer.
    joined: Newest<Tools, Tools>,
    /// The newest instructions, with `told` behind them.
    instructed: Newest<Arc<str>, Arc<str>>,
}

struct Judge {
    shape: Shape,
    read: Box<ReadFn>,
}

impl Rule {
    /// Creates the rule of answers of type `T`, which `validators` must all accept.
    pub(crate) fn new<T: DeserializeOwned + JsonSchema + 'static>(
        validators: Vec<Validator<T>>,
        repairs: u32,
        strategy: Option<Strategy>,
    ) -> Self {
        let shape = Shape::of::<T>(Strategy::Tool);
        let mut schema = OutputSchema::new(&*shape.name, shape.sent().clone());
        schema.description.clone_from(&shape.description);
        let told = format!(
            "When your work is done, answer with one JSON value that follows this JSON Schema, and with nothing \
             else: no explanation, no code fence.\n\n{}",
            shape.sent()
        );
        let read = move |shape: &Shape, candidates: Vec<Value>, cx: &RunContext| {
            let judged = caught(|| {
                let (value, read) = shape.read_both::<T>(candidates)?;
                let refusals = validators.iter().filter_map(|validate| validate(&read, cx).err());
                let refusals = refusals.collect::<Vec<_>>().join("; ");
                if refusals.is_empty() { Ok(value) } else { Err(Some(refusals)) }
            });
            judged.unwrap_or_else(|panic| Err(Some(format!("its check panicked: {panic}"))))
        };
        let judge = Arc::new(Judge { shape, read: Box::new(read) });
        let tool = Arc::new(FinalAnswer::new(Arc::clone(&judge)));
        let (output, joined, instructed) = (schema.into(), Newest::default(), Newest::default());
        Self { judge, tool, output, told: told.into(), strategy, repairs, joined, instructed }
    }

    /// Number of refused answers after which the model is asked again.
    pub(crate) fn repairs(&self) -> u32 {
        self.repairs
    }

    /// Strategy of a step of `model` that may use `tools`. Where the scope does not admit the tool for the answer, the
    /// answer is read from the text.
    pub(crate) fn strategy(&self, model: &Model, tools: &Tools, scope: &Scope) -> Strategy {
        let best = || Strategy::of_agent(model.profile(), !tools.is_empty());
        match self.strategy.unwrap_or_else(best) {
            Strategy::Tool if !scope.offers(self.tool.spec()) => Strategy::Prompt,
            strategy => strategy,
        }
    }

    /// Returns `tools` with the one that takes the answer. One of its own name gives way.
    pub(crate) fn join(&self, tools: &Tools) -> Tools {
        self.joined.of(tools, Tools::is, || {
            let others = tools.iter().filter(|tool| tool.spec().name() != FINAL_ANSWER);
            let mut all: Vec<_> = others.cloned().chain([Arc::clone(&self.tool)]).collect();
            all.sort_by(|a, b| a.spec().name().cmp(b.spec().name()));
            Tools::from_sorted(all.into_iter())
        })
    }

    /// Completes the request of a step. All requests of one model are completed alike, so that each extends the one
    /// before. A tool choice that a program made stays.
    pub(crate) fn ask(&self, strategy: Strategy, request: &mut Request, joined: &Arc<[ToolSpec]>) {
        match strategy {
            Strategy::Native => request.output = self.output.clone(),
            Strategy::Tool => {
                request.tools = Arc::clone(joined);
                // Services refuse a forced call while their model thinks.
                if request.tool_choice == ToolChoice::Auto && request.params.reasoning.is_none() {
                    request.tool_choice = match request.tools.len() {
                        1 => ToolChoice::Tool(FINAL_ANSWER.to_owned()),
                        _ => ToolChoice::Required,
                    };
                }
            }
            Strategy::Prompt => {
                request.instructions = self.instructed(&request.instructions);
            }
        }
    }

    /// Returns the instructions with those that ask for a value behind them.
    fn instructed(&self, own: &Arc<str>) -> Arc<str> {
        self.instructed.of(own, Arc::ptr_eq, || {
            let gap = if own.is_empty() { "" } else { "\n\n" };
            [&**own, gap, &*self.told].concat().into()
        })
    }

    /// Returns the value that a message holds, as JSON text.
    ///
    /// # Errors
    /// The problem, in words for the model.
    pub(crate) fn check(
        &self,
        message: &Message,
        strategy: Strategy,
        cx: &RunContext,
    ) -> Result<String, String> {
        let calls = message.tool_calls().filter(|call| *call.name == *FINAL_ANSWER);
        let mut twice = calls.filter_map(|call| doubled(call.arguments.as_str()));
        if let Some(problem) = twice.next().or_else(|| text::given_twice(&message.text())) {
            return Err(problem);
        }
        let mut candidates = arguments_of(message, FINAL_ANSWER)?;
        if candidates.is_empty() {
            let text = message.text();
            candidates = match strategy {
                // A value among the words of a model that was given a tool for it may be about anything.
                Strategy::Tool => text::only_value(&text).into_iter().collect(),
                Strategy::Native | Strategy::Prompt => text::values(&text),
            };
        }
        let read = (self.judge.read)(&self.judge.shape, candidates, cx);
        read.map(|value| value.to_string()).map_err(|problem| {
            let problem = problem.unwrap_or_else(|| absent(strategy, FINAL_ANSWER));
            shortened(&problem, TOLD).into_owned()
        })
    }

    /// Returns the value that `text` is, as JSON text.
    ///
    /// # Errors
    /// The problem.
    pub(crate) fn read(&self, text: &str, cx: &RunContext) -> Result<String, String> {
        let values = serde_json::from_str::<Value>(text).into_iter().collect();
        let read = (self.judge.read)(&self.judge.shape, values, cx);
        read.map(|value| value.to_string())
            .map_err(|problem| problem.unwrap_or_else(|| "it is no JSON value".to_owned()))
    }

    /// Returns the message that tells the model why its answer was refused. The number of the round tells two refusals
    /// for one reason apart.
    pub(crate) fn refusal(&self, round: u32, problem: &str, strategy: Strategy) -> Message {
        let tries = self.repairs.saturating_add(1);
        let how = how_to_answer(strategy, FINAL_ANSWER);
        Message::user(format!(
            "Answer {round} of at most {tries} is not what was asked for: {problem}. {how}"
        ))
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("of", &self.judge.shape.name)
            .field("repairs", &self.repairs)
            .finish_non_exhaustive()
    }
}

/// The tool that takes the answer. Its result tells the model what is wrong; the turn ends the run.
struct FinalAnswer {
    spec: ToolSpec,
    judge: Arc<Judge>,
}

impl FinalAnswer {
    fn new(judge: Arc<Judge>) -> Self {
        let about = judge.shape.description.as_ref().map(|text| format!(" {text}")).unwrap_or_default();
        let text = format!(
            "Takes your final answer. Call it alone, once the work is done: it ends the task.{about}"
        );
        let spec = ToolSpec::new(FINAL_ANSWER, text, judge.shape.sent().clone()).with_access(Access::NONE);
        Self { spec: spec.with_repeat(Repeat::Idempotent).alone().answering(), judge }
    }
}

#[async_trait]
impl Tool for FinalAnswer {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        match (self.judge.read)(&self.judge.shape, vec![input.arguments], cx.run()) {
            Ok(_) => Ok(ToolOutput::text("The answer is taken.")),
            Err(problem) => {
                let problem = problem.unwrap_or_default();
                Err(ToolError::tell(shortened(&problem, TOLD)))
            }
        }
    }
}
