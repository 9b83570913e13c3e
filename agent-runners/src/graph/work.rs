//! The work at a node, built from what the program declared.

use std::{any::Any, sync::Arc};

use entourage_core::{
    Error, ErrorKind, Result,
    message::{Message, Part},
    run::{Outcome, Task},
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::{
    AgentWork, GatherFn, Inputs, MapWork, NodeValue, Output, ReadFn, StepFn, TaskFn, Work,
    draft::{Ask, DraftAgent, DraftWork},
    needs::sealed::Read,
    prompt::Prompt,
};
use crate::typed::{OutcomeExt, answer_as};

/// Creates a step of the program.
pub(super) fn step<R, T, F, Fut>(reader: R, run: F) -> StepFn
where
    R: Read,
    T: Output,
    F: Fn(R::Given) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<T>> + Send + 'static,
{
    Arc::new(move |inputs| match reader.read(inputs) {
        Ok(given) => {
            let result = run(given);
            Box::pin(async move { result.await.map(NodeValue::new) })
        }
        Err(error) => Box::pin(std::future::ready(Err(error))),
    })
}

/// Creates a step of the program for each item of a list.
pub(super) fn map<R, T, U, F, Fut>(reader: R, run: F) -> MapWork
where
    R: Read<Given = Arc<Vec<T>>>,
    T: Output + Clone,
    U: Output + Clone,
    F: Fn(T) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<U>> + Send + 'static,
{
    let run = Arc::new(run);
    let items = move |inputs: &Inputs| {
        let list = reader.read(inputs)?;
        let item = |index: usize| {
            let (list, run) = (Arc::clone(&list), Arc::clone(&run));
            let step: StepFn = Arc::new(move |_| {
                let result = list.get(index).cloned().map(|item| run(item));
                Box::pin(async move { result.ok_or_else(gap)?.await.map(NodeValue::new) })
            });
            Work::Step(step)
        };
        Ok((0..list.len()).map(item).collect())
    };
    MapWork { items: Arc::new(items), gather: gather_all::<U>(), at_once: None, all: true, agent: None }
}

/// Creates a map whose items are filled in later.
pub(super) fn map_agent<U: Output + Clone>() -> MapWork {
    let items = |_: &Inputs| Ok(Vec::new());
    MapWork { items: Arc::new(items), gather: gather_all::<U>(), at_once: None, all: true, agent: None }
}

/// Gathers all items, in their order.
pub(super) fn gather_all<U: Output + Clone>() -> GatherFn {
    Arc::new(|values| {
        let values = values.into_iter().map(|value| owned::<U>(value.ok_or_else(gap)?));
        values.collect::<Result<Vec<_>>>().map(NodeValue::new)
    })
}

/// Gathers all items, in their order, with `None` for gaps.
pub(super) fn gather_some<U: Output + Clone>() -> GatherFn {
    Arc::new(|values| {
        let values = values.into_iter().map(|value| value.map(owned::<U>).transpose());
        values.collect::<Result<Vec<_>>>().map(NodeValue::new)
    })
}

fn owned<U: Output + Clone>(value: NodeValue) -> Result<U> {
    let shared = value.get::<U>()?;
    drop(value);
    Ok(Arc::unwrap_or_clone(shared))
}

fn gap() -> Error {
    Error::new(ErrorKind::Internal, "an item of a list has no output")
}

/// Reads an agent's answer as text.
pub(super) fn read_text() -> ReadFn {
    Arc::new(|outcome| Ok(NodeValue::new(outcome.text.clone())))
}

/// Parses an agent's answer as a value.
pub(super) fn read_answer<T: Output + JsonSchema>() -> ReadFn {
    Arc::new(|outcome| {
        answer_as::<T>(&outcome.text).map(NodeValue::new).map_err(|problem| {
            let text = format!("the answer does not match its schema: {problem}");
            Error::new(ErrorKind::Protocol, text)
        })
    })
}

/// Reads the value of a typed agent.
pub(super) fn read_typed<T: Output + JsonSchema>() -> ReadFn {
    Arc::new(|outcome| outcome.value::<T>().map(NodeValue::new))
}

/// Parses a nested graph's output.
pub(super) fn read_graph<O: Output>() -> ReadFn {
    Arc::new(|outcome: &Outcome| read_output::<O>(&outcome.text).map(NodeValue::new))
}

/// Parses the value in the text of a graph's outcome: a string as it is, anything else as JSON.
pub(crate) fn read_output<O: DeserializeOwned + 'static>(text: &str) -> Result<O> {
    let mut string = Some(text.to_owned());
    if let Some(value) = (&mut string as &mut dyn Any).downcast_mut::<Option<O>>().and_then(Option::take) {
        return Ok(value);
    }
    serde_json::from_str(text).map_err(|error| {
        Error::new(ErrorKind::Corrupt, "the graph's output does not match its declared type").caused_by(error)
    })
}

impl DraftWork {
    /// Turns the draft into work for the runner. `names` are the nodes that it depends on, in the order of its edges.
    pub(super) fn finish(self, names: Vec<Arc<str>>, input: bool) -> Work {
        match self {
            Self::Step(step) => Work::Step(step),
            Self::Map(map) => Work::Map(map),
            Self::Agent(agent) => Work::Agent(agent.finish(names, input)),
            Self::MapAgent(agent, tasks, map) => {
                let name = agent.agents.first().map(|(_, agent)| agent.name().into());
                let form = agent.form.clone();
                let work =
                    AgentWork { task: Arc::new(|_: &Inputs| Err(gap())), ..agent.finish(names, input) };
                let item = move |task: Task| {
                    let task = form.iter().fold(task, |task, form| with_text(task, form));
                    Work::Agent(AgentWork { task: Arc::new(move |_| Ok(task.clone())), ..work.clone() })
                };
                let items = move |inputs: &Inputs| Ok(tasks(inputs)?.into_iter().map(&item).collect());
                Work::Map(MapWork { items: Arc::new(items), agent: name, ..map })
            }
        }
    }
}

impl DraftAgent {
    fn finish(self, names: Vec<Arc<str>>, input: bool) -> AgentWork {
        let Self { agents, ask, read, scope, form } = self;
        let task: TaskFn = match ask {
            Ask::Text(text) => {
                let prompt = Prompt::new(text, names, input, form);
                Arc::new(move |inputs| Ok(Task::new(prompt.message(inputs))))
            }
            Ask::Made(task) => match form {
                None => task,
                Some(form) => Arc::new(move |inputs| Ok(with_text(task(inputs)?, &form))),
            },
        };
        AgentWork { agents, task, read, scope }
    }
}

/// Returns the same task with `text` added to its prompt.
pub(crate) fn with_text(mut task: Task, text: &str) -> Task {
    let message = Message::clone(&task.prompt);
    task.prompt = Arc::new(message.with(Part::Text(format!("\n\n{text}"))));
    task
}
