//! Effects, observations and errors as JSON texts.

use std::{sync::Arc, time::Duration};

use entourage_core::{
    Digest, Error, ErrorKind, ErrorRecord, Result, RunId, SessionId,
    context::{Clearing, Compaction, CompactionCause, Instructions},
    message::{Arguments, History, Message, ToolCall, deserialize_value},
    permission::Scope,
    provider::{Model, OutputFormat, Params, Request, ToolChoice},
    run::{Delegate, Effect, Limits, ModelCall, Observation, Pause, PendingCall, Spawn, Task, ToolCalls},
    tool::{Access, Repeat, ToolSpec, Tools},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{Code, PartName, check_request};

/// Returns the effect as JSON text: its data, and the names of its code.
///
/// What lives in one process stays there: the cancellation token of a [`Delegate`], of which the JSON only says that
/// there is one. Whoever sends the effect passes a cancel on by other means.
///
/// # Secrets
/// The request of a model call is whole: [`Params::extra`] and [`Params::metadata`] are in it, which the session's
/// record leaves out. Whoever keeps the text keeps what a program passes on to its service there. Keys of a service are
/// the provider's, and in no effect.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for a parameter that JSON cannot hold, and for a schema of a tool or the reply that
/// nests deeper than 96 levels;
/// [`ErrorKind::Unsupported`] for an effect that this version does not know; [`ErrorKind::Internal`] for a value that
/// does not serialize.
pub fn effect_to_json(effect: &Effect) -> Result<String> {
    if let Effect::Model(call) = effect {
        check_request(&call.request)?;
    }
    let form = match effect {
        Effect::Model(call) => EffectForm::Model {
            model: ModelName::of(&call.model),
            request: Box::new(RequestForm::of(&call.request)),
            offered: Offered::all(&call.offered),
            repairs: call.repair.is_some(),
            step: call.step,
            silence: call.silence,
            template: call.template.as_ref().map(ToString::to_string),
        },
        Effect::Tools(calls) => EffectForm::Tools {
            message: Arc::clone(&calls.message),
            calls: calls.calls.clone(),
            offered: Offered::all(&calls.offered),
            limits: calls.limits,
            scope: calls.scope.clone(),
        },
        Effect::Spawn(spawn) => EffectForm::Spawn(Box::new(SpawnForm::of(spawn))),
        Effect::Delegate(delegate) => EffectForm::Delegate(Box::new(DelegateForm {
            child: delegate.child.clone(),
            spawn: SpawnForm::of(&delegate.spawn),
            run: delegate.run,
            opening: delegate.opening.clone(),
            cancelled_apart: delegate.cancel.is_some(),
            part_of_run: delegate.part_of_run,
            counted: delegate.counted,
            limit: delegate.limit,
            anew: delegate.anew,
            lasting: delegate.lasting,
        })),
        Effect::WaitAny { children, timeout } => {
            EffectForm::WaitAny { children: children.clone(), timeout: *timeout }
        }
        Effect::Signal { name } => EffectForm::Signal { name: name.clone() },
        Effect::Sleep(time) => EffectForm::Sleep { time: *time },
        Effect::Now => EffectForm::Now,
        Effect::NewId => EffectForm::NewId,
        Effect::Compact { compaction, model, cause, silence } => EffectForm::Compact {
            writer: ModelName::of(&compaction.summariser(model)),
            clearing: compaction.clearing(),
            keep: compaction.kept_messages(),
            focus: compaction.focus_text().map(str::to_owned),
            prompt: compaction.prompt().cloned().map(Instructions::into_parts),
            model: ModelName::of(model),
            cause: *cause,
            silence: *silence,
        },
        _ => return Err(Error::new(ErrorKind::Unsupported, "this version cannot write this effect as JSON")),
    };
    to_json(&form)
}

/// Returns the answer to an effect as JSON text: its observation, or the error.
///
/// # Errors
/// [`ErrorKind::Internal`] for a value that does not serialize.
pub fn answer_to_json(answer: &Result<Observation>) -> Result<String> {
    to_json(&match answer {
        Ok(observation) => AnswerForm::Observed(observation.clone()),
        Err(error) => AnswerForm::Failed { error: error.record(), pause: error.pause().cloned() },
    })
}

/// Reads the answer to an effect: the inner result is what was answered.
///
/// # Errors
/// [`ErrorKind::Protocol`] for JSON that is no answer, or whose tool calls have arguments out of the bounds of
/// [`Arguments::parse`].
pub fn answer_from_json(json: &str) -> Result<Result<Observation>> {
    Ok(match from_json(json, "answer to an effect")? {
        AnswerForm::Observed(observation) => {
            if let Observation::Model(reply) = &observation {
                check_arguments(&reply.message)?;
            }
            Ok(observation)
        }
        AnswerForm::Failed { pause: Some(pause), .. } => Err(Error::paused(pause)),
        AnswerForm::Failed { error, pause: None } => Err(error.to_error()),
    })
}

impl Code {
    /// Makes an effect of this code's run again. `cancel` becomes the token of a [`Delegate`] that has one.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] for JSON that is no effect, or whose tool calls have arguments out of the bounds of
    /// [`Arguments::parse`]; [`ErrorKind::Config`] for code that was not found.
    pub fn effect(&self, json: &str, cancel: CancellationToken) -> Result<Effect> {
        Ok(match from_json(json, "effect")? {
            EffectForm::Model { model, request, offered, repairs, step, silence, template } => {
                let (model, offered) = (self.model_of(&model)?, self.offered(&offered)?);
                let request = request.made(&model, &offered);
                let mut call = ModelCall::new(model, request.clone(), offered);
                call.request = request;
                call.repair = if repairs { self.repair()? } else { None };
                (call.step, call.silence) = (step, silence);
                call.template = template.map(Arc::from);
                Effect::Model(Box::new(call))
            }
            EffectForm::Tools { message, calls, offered, limits, scope } => {
                check_arguments(&message)?;
                let calls = ToolCalls::new(message, calls, self.offered(&offered)?, limits);
                Effect::Tools(Box::new(calls)).scoped(&scope)
            }
            EffectForm::Spawn(spawn) => Effect::Spawn(Box::new(spawn.made(self)?)),
            EffectForm::Delegate(form) => {
                let mut delegate = Delegate::new(form.child, form.spawn.made(self)?);
                (delegate.run, delegate.opening, delegate.limit) = (form.run, form.opening, form.limit);
                delegate.cancel = form.cancelled_apart.then_some(cancel);
                (delegate.part_of_run, delegate.counted) = (form.part_of_run, form.counted);
                (delegate.anew, delegate.lasting) = (form.anew, form.lasting);
                Effect::Delegate(Box::new(delegate))
            }
            EffectForm::WaitAny { children, timeout } => Effect::WaitAny { children, timeout },
            EffectForm::Signal { name } => Effect::Signal { name },
            EffectForm::Sleep { time } => Effect::Sleep(time),
            EffectForm::Now => Effect::Now,
            EffectForm::NewId => Effect::NewId,
            EffectForm::Compact { writer, clearing, keep, focus, prompt, model, cause, silence } => {
                let compaction = Compaction::new().with_model(self.model_of(&writer)?);
                let compaction = match clearing {
                    Clearing::Never => compaction.without_clearing(),
                    Clearing::Old { keep, least } => compaction.clear_outputs(keep, least),
                };
                let compaction = keep.into_iter().fold(compaction, Compaction::keep_messages);
                let compaction = focus.into_iter().fold(compaction, Compaction::with_focus);
                let prompt = prompt.map(|(text, template)| Instructions::new(text, template));
                let compaction = prompt.into_iter().fold(compaction, Compaction::with_prompt);
                let (compaction, model) = (Box::new(compaction), self.model_of(&model)?);
                Effect::Compact { compaction, model, cause, silence }
            }
        })
    }

    fn model_of(&self, named: &ModelName) -> Result<Model> {
        let model = self.model(&named.provider, &named.name)?;
        if Some(params(&model)?) != named.params {
            return Err(self.differs("model", &named.name));
        }
        Ok(model)
    }

    /// Returns the tools that were offered.
    fn offered(&self, offered: &[Offered]) -> Result<Tools> {
        let names: Vec<_> = offered.iter().map(|tool| tool.name.clone()).collect();
        let tools = self.tools(&names)?;
        let is_other =
            |it: &&Offered| tools.get(&it.name).is_none_or(|tool| tool.spec().digest() != it.digest);
        match offered.iter().find(is_other) {
            Some(other) => Err(self.differs("tool", &other.name)),
            None => Ok(tools),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum EffectForm {
    Model {
        model: ModelName,
        request: Box<RequestForm>,
        offered: Vec<Offered>,
        repairs: bool,
        step: u32,
        silence: Duration,
        template: Option<String>,
    },
    Tools {
        message: Arc<Message>,
        calls: Vec<PendingCall>,
        offered: Vec<Offered>,
        limits: Limits,
        scope: Scope,
    },
    Spawn(Box<SpawnForm>),
    Delegate(Box<DelegateForm>),
    WaitAny {
        children: Vec<SessionId>,
        timeout: Option<Duration>,
    },
    Signal {
        name: String,
    },
    Sleep {
        time: Duration,
    },
    Now,
    NewId,
    Compact {
        writer: ModelName,
        clearing: Clearing,
        keep: Option<usize>,
        focus: Option<String>,
        #[serde(default)]
        prompt: Option<(Arc<str>, Option<Arc<str>>)>,
        model: ModelName,
        cause: CompactionCause,
        silence: Duration,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(clippy::large_enum_variant, reason = "made once an effect and taken apart at once")]
enum AnswerForm {
    Observed(Observation),
    Failed { error: ErrorRecord, pause: Option<Pause> },
}

#[derive(Serialize, Deserialize)]
struct ModelName {
    provider: String,
    name: String,
    /// Digest of its default parameters, without what its service gets unread, which may be a secret and another one in
    /// each process; `None` for some that do not serialize, which no model has.
    params: Option<Digest>,
}

impl ModelName {
    fn of(model: &Model) -> Self {
        let (provider, name) = (model.provider_name().to_string(), model.name().to_string());
        Self { provider, name, params: params(model).ok() }
    }
}

fn params(model: &Model) -> Result<Digest> {
    let mut told = Params::clone(model.params());
    (told.metadata, told.extra) = Default::default();
    Ok(Digest::of([to_json(&told)?.as_bytes()]))
}

/// A tool that was offered. Another one of its name must not take its place.
#[derive(Serialize, Deserialize)]
struct Offered {
    name: String,
    digest: Digest,
}

impl Offered {
    fn all(tools: &Tools) -> Vec<Self> {
        let of = |spec: &ToolSpec| Self { name: spec.name().to_owned(), digest: spec.digest() };
        tools.iter().map(|tool| of(tool.spec())).collect()
    }
}

#[derive(Serialize, Deserialize)]
struct RequestForm {
    model: Arc<str>,
    instructions: Arc<str>,
    messages: History,
    tools: Vec<SpecForm>,
    tool_choice: ToolChoice,
    output: OutputFormat,
    params: Params,
}

impl RequestForm {
    fn of(request: &Request) -> Self {
        Self {
            model: Arc::clone(&request.model),
            instructions: Arc::clone(&request.instructions),
            messages: request.messages.clone(),
            tools: request.tools.iter().map(SpecForm::of).collect(),
            tool_choice: request.tool_choice.clone(),
            output: request.output.clone(),
            params: (*request.params).clone(),
        }
    }

    fn made(self, model: &Model, offered: &Tools) -> Request {
        let tools: Vec<_> = self.tools.into_iter().map(|spec| spec.made(offered)).collect();
        Request::new(self.model, self.messages)
            .with_instructions(self.instructions)
            .with_tools(tools)
            .with_tool_choice(self.tool_choice)
            .with_output(self.output)
            .with_params(self.params)
            .with_profile(Arc::clone(model.profile()))
    }
}

/// The declaration of a tool. A request may offer one that is declared and never called.
#[derive(Serialize, Deserialize)]
struct SpecForm {
    name: String,
    description: String,
    #[serde(deserialize_with = "deserialize_value")]
    schema: Value,
    access: Access,
    repeat: Repeat,
    timeout: Option<Duration>,
    alone: bool,
    names_subjects: bool,
}

impl SpecForm {
    fn of(spec: &ToolSpec) -> Self {
        Self {
            name: spec.name().to_owned(),
            description: spec.description().to_owned(),
            schema: spec.schema().clone(),
            access: spec.access(),
            repeat: spec.repeat(),
            timeout: spec.timeout(),
            alone: spec.is_alone(),
            names_subjects: spec.names_subjects(),
        }
    }

    fn made(self, offered: &Tools) -> ToolSpec {
        let mut spec = ToolSpec::new(self.name, self.description, self.schema)
            .with_access(self.access)
            .with_repeat(self.repeat);
        spec = self.timeout.into_iter().fold(spec, ToolSpec::with_timeout);
        spec = if self.alone { spec.alone() } else { spec };
        spec = if self.names_subjects { spec.naming_subjects() } else { spec };
        let own = offered.get(spec.name()).map(|tool| tool.spec());
        own.filter(|own| own.digest() == spec.digest()).cloned().unwrap_or(spec)
    }
}

#[derive(Serialize, Deserialize)]
struct SpawnForm {
    agent: PartName,
    task: Task,
    scope: Scope,
    role: String,
    title: Option<String>,
    shares_todos: bool,
    at_once: bool,
}

impl SpawnForm {
    fn of(spawn: &Spawn) -> Self {
        Self {
            agent: PartName::of(spawn),
            task: spawn.task.clone(),
            scope: spawn.scope.clone(),
            role: spawn.role.clone().into_owned(),
            title: spawn.title.as_ref().map(ToString::to_string),
            shares_todos: spawn.shares_todos,
            at_once: spawn.at_once,
        }
    }

    fn made(self, code: &Code) -> Result<Spawn> {
        let agent = code.below(self.agent.clone()).agent()?;
        let mut spawn = Spawn::new(agent, self.task).with_scope(self.scope).with_role(self.role);
        (spawn.shares_todos, spawn.at_once) = (self.shares_todos, self.at_once);
        spawn.title = self.title.map(Arc::from);
        (spawn.part, spawn.tool) = (self.agent.part.map(Arc::from), self.agent.tool.map(Arc::from));
        Ok(spawn)
    }
}

#[derive(Serialize, Deserialize)]
struct DelegateForm {
    child: SessionId,
    spawn: SpawnForm,
    run: Option<RunId>,
    opening: Vec<Arc<Message>>,
    cancelled_apart: bool,
    part_of_run: bool,
    counted: bool,
    limit: Option<Duration>,
    anew: bool,
    lasting: bool,
}

/// Checks that the arguments of calls that may run are what tools can take. Others would run as `{}`.
fn check_arguments(message: &Message) -> Result<()> {
    let refused = |call: &ToolCall, why: Error| {
        let text = format!("the arguments of the call `{}` did not cross: {}", call.name, why.message());
        Error::new(ErrorKind::Protocol, text)
    };
    message.tool_calls().try_for_each(|call| {
        Arguments::parse(call.arguments.as_str()).map(drop).map_err(|why| refused(call, why))
    })
}

fn to_json(form: &impl Serialize) -> Result<String> {
    serde_json::to_string(form).map_err(|error| {
        Error::new(ErrorKind::Internal, "a value of the effects does not serialize").caused_by(error)
    })
}

fn from_json<T: DeserializeOwned>(json: &str, what: &str) -> Result<T> {
    serde_json::from_str(json).map_err(|error| {
        Error::new(ErrorKind::Protocol, format!("the JSON is no {what} of this version")).caused_by(error)
    })
}
