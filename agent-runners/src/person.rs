//! A person as an agent: a prompt that somebody answers, in place of a model.

use std::{any::Any, sync::Arc};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    agent::{Agent, AgentPart},
    run::{Outcome, RunContext, Task},
    tool::{Access, ToolSpec, Tools},
};
use entourage_runtime::AnswerForm;
use serde_json::{Value, json};

use crate::external::external;

/// Name of the tool whose calls are handed to a person.
pub(crate) const ASK_PERSON: &str = "ask_person";

/// Makes an agent of a person, called `name`: whoever runs it asks that person.
///
/// Its run hands the text of its prompt out as a call of the [external](crate::external) tool `ask_person`, and pauses.
/// `Session::pending` lists the call with the agent's name, its session, the root session, and the text as the argument
/// `prompt`; files of the prompt are in the conversation of that session. `Session::answer` gives the answer from any
/// process, days later, and its text is the outcome of the run that is then resumed. An error result fails the run.
///
/// The agent can be a node of a graph, a tool of another agent, a checker, or the agent of a session. The call is
/// judged by scope, layers and rules like any other. It declares no access; a scope that names tools must name it.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use entourage_runners::person;
/// use entourage_runtime::{Runtime, Waiting};
///
/// let (runtime, ada) = (Runtime::in_memory(), person("ada"));
/// let session = runtime.session();
/// session.start(&ada, "May it be published?").outcome().await.unwrap();
///
/// let pending = runtime.pending().await.unwrap();
/// let Waiting::Call { id, call } = &pending[0].waits_for else { panic!() };
/// assert_eq!((&*pending[0].agent, call.arguments.as_str()), ("ada", r#"{"prompt":"May it be published?"}"#));
/// runtime.answer(id, "Tomorrow.").await.unwrap();
/// assert_eq!(session.resume(&ada).outcome().await.unwrap().text, "Tomorrow.");
/// # });
/// ```
pub fn person(name: impl Into<Box<str>>) -> impl Agent + Clone + 'static {
    Person::new(name)
}

/// The agent that [`person`] makes.
#[derive(Clone)]
pub(crate) struct Person {
    name: Box<str>,
    tools: Tools,
    /// Schema that the answer must follow; `None` for any text.
    form: Option<Arc<Value>>,
}

impl Person {
    pub(crate) fn new(name: impl Into<Box<str>>) -> Self {
        let schema = json!({
            "type": "object",
            "properties": { "prompt": { "type": "string" } },
            "required": ["prompt"],
        });
        let spec = ToolSpec::new(ASK_PERSON, "Asks a person.", schema).with_access(Access::NONE);
        let tools = Tools::from_sorted([Arc::new(external(spec)) as _].into_iter());
        Self { name: name.into(), tools, form: None }
    }

    /// Returns the same person, whose answers must follow a JSON Schema. Others are refused when they are given.
    pub(crate) fn answering(self, schema: Value) -> Self {
        Self { form: Some(Arc::new(schema)), ..self }
    }
}

#[async_trait]
impl Agent for Person {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        "A person, who may take days to answer."
    }

    fn parts(&self) -> Vec<AgentPart> {
        vec![AgentPart::Tools(self.tools.clone())]
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        if let Some(form) = &self.form {
            cx.record(AnswerForm::new(ASK_PERSON, Value::clone(form)))?;
        }
        let asked = json!({ "prompt": task.prompt.text() });
        let answer = cx.call_tool(&self.tools, ASK_PERSON, &asked).await?;
        let text = answer.to_text();
        if answer.is_error {
            return Err(Error::new(ErrorKind::Tool, format!("`{}` gave no answer: {text}", self.name)));
        }
        Ok(Outcome::completed(text))
    }
}
