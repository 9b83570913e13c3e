//! Plan mode: the agent looks and presents a plan, and does more only once a person has approved it.

use std::sync::Arc;

use async_trait::async_trait;
use entourage_core::{
    Result,
    context::Instructions,
    event::{Record, plain_line, weigh_plain},
    message::ToolCall,
    permission::Scope,
    run::RunContext,
    session::SessionState,
    team::{Todo, TodoStatus},
    tool::{Access, LayerVerdict, ToolLayer, ToolSpec, schema_of},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{ReactAgent, prepare::joined};
use crate::{external::external, kept::kept_in_run, layered::layered};

/// Name of the tool by which a plan is presented.
const PRESENT_PLAN: &str = "present_plan";

const DESCRIPTION: &str = "Presents your plan to the user, once you have looked at all that it depends on. The user \
    approves it, or says what is to change. The run waits for that.";

/// Version of the instructions; raised whenever their words change.
const VERSION: u32 = 1;

const INSTRUCTIONS: &str = "You plan before you work. Until the user has approved a plan, your tools only look: they \
    change no file and run no command that changes something. Look at what the task depends on, decide how to do it, \
    and call `present_plan` with a plan that names the files to change and the way to check the result. If the user \
    asks for changes, present the whole plan anew. Once it is approved, carry it out: its steps are in the todo list.";

/// The instructions of plan mode, which follow those of the agent.
pub(crate) fn plan_prompt() -> Instructions {
    Instructions::built_in("entourage/plan", VERSION, INSTRUCTIONS)
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Presented {
    /// The plan in Markdown: what will be changed and why, and how the result is checked.
    plan: String,
    /// Its steps in their order, each a short imperative sentence.
    steps: Vec<String>,
}

/// Characters of a plan, its steps, and characters of a step.
const PLAN: usize = 20_000;
const STEPS: usize = 100;
const STEP: usize = 500;

/// Refuses plans that nobody would read.
#[derive(Debug)]
struct Checked;

#[async_trait]
impl ToolLayer for Checked {
    async fn before(&self, _: &ToolSpec, arguments: &mut Value, _: &RunContext) -> Result<LayerVerdict> {
        let presented: Presented = match serde_json::from_value(arguments.clone()) {
            Ok(presented) => presented,
            Err(error) => return Ok(LayerVerdict::Refuse(format!("the plan cannot be read: {error}"))),
        };
        let (plan, steps) = (shown(&presented.plan), presented.steps());
        let is_long = |text: &str, most: usize| text.chars().nth(most).is_some();
        if plan.trim().is_empty() || is_long(&plan, PLAN) {
            return Ok(LayerVerdict::Refuse(format!("a plan has 1 to {PLAN} characters; shorten it")));
        }
        if steps.len() > STEPS || steps.iter().any(|step| is_long(step, STEP)) {
            let text = format!("a plan has at most {STEPS} steps of {STEP} characters each; shorten it");
            return Ok(LayerVerdict::Refuse(text));
        }
        *arguments = json!({ "plan": plan, "steps": steps });
        Ok(LayerVerdict::Pass)
    }
}

/// The text without characters that control a terminal or hide text. Its lines keep their indents.
fn shown(text: &str) -> String {
    let line = |line: &str| {
        let indent = line.chars().take_while(|c| *c == ' ' || *c == '\t');
        indent.chain(plain_line(line).chars()).collect::<String>()
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

impl Presented {
    fn steps(&self) -> Vec<String> {
        self.steps.iter().map(|step| plain_line(step)).filter(|step| !step.is_empty()).collect()
    }
}

/// Record of a run that began in plan mode, in which it stays whoever resumes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PlanBegun {}

impl Record for PlanBegun {
    const KIND: &'static str = "react.plan_begun";
    const KEPT: bool = true;

    fn summary(&self) -> String {
        "plans before it works".to_owned()
    }

    fn weigh(&self) -> Result<usize> {
        weigh_plain(self)
    }
}

/// Record of a run whose plan was approved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PlanApproved {
    /// Number of steps that became todos.
    steps: usize,
}

impl Record for PlanApproved {
    const KIND: &'static str = "react.plan_approved";
    // A checkpoint stands for the events before it.
    const KEPT: bool = true;

    fn summary(&self) -> String {
        format!("plan of {} steps approved", self.steps)
    }

    fn weigh(&self) -> Result<usize> {
        weigh_plain(self)
    }
}

impl ReactAgent {
    /// Returns the same agent in plan mode: each of its runs only looks, until a person has approved its plan.
    ///
    /// The agent has one tool more, `present_plan` with the arguments `plan` (Markdown) and `steps` (a list of texts).
    /// Its calls are handed out like those of any [external](crate::external) tool: the run pauses, `Session::pending`
    /// lists the call, and `Session::answer` gives the person's answer, from any process, days later:
    ///
    /// - a result approves the plan. Its text is shown to the model. The steps become the todo list of the run;
    /// - an error result (`ToolOutput::error`) says what is to change. The run goes on in plan mode;
    /// - an error result that stops the turn (`ToolOutput::stopping`) ends the run.
    ///
    /// Of several plans in one step each must be approved; the last one's steps count.
    ///
    /// The run that is then resumed goes on in the same conversation. Before the approval, its scope is the agent's
    /// without write, execute and network access, for the agents below it too; afterwards it is the agent's. That is
    /// recorded with the run, so it also holds where a `ReactAgent` without plan mode resumes it. Rules and approvers
    /// apply as in any run. An approval holds for its run: a further prompt needs a plan of its own, unless it is given
    /// to the agent without plan mode.
    ///
    /// A plan has at most 20,000 characters and 100 steps of 500 each, and is shown without characters that control a
    /// terminal or hide text.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](entourage_core::ErrorKind::Config) when one of its fixed tools is called `present_plan`.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// use entourage_runners::ReactAgent;
    /// use entourage_runtime::{Runtime, Waiting};
    /// use entourage_testkit::ScriptedProvider;
    /// use serde_json::json;
    ///
    /// let plan = json!({"plan": "Rename `a` to `b`.", "steps": ["Rename the file"]});
    /// let provider = ScriptedProvider::new().call("present_plan", plan).text("Done.");
    /// let agent = ReactAgent::builder("coder", provider.model()).build()?.plan_first()?;
    /// let runtime = Runtime::in_memory();
    /// let session = runtime.session();
    /// session.start(&agent, "Rename it").outcome().await?;
    ///
    /// let pending = runtime.pending().await?;
    /// let Waiting::Call { id, .. } = &pending[0].waits_for else { panic!() };
    /// session.answer(id, "Approved.").await?;
    /// assert_eq!(session.resume(&agent).outcome().await?.text, "Done.");
    /// assert_eq!(session.state().await?.todos()[0].content, "Rename the file");
    /// # Ok::<_, entourage_core::Error>(())
    /// # }).unwrap();
    /// ```
    pub fn plan_first(&self) -> Result<Self> {
        let spec =
            ToolSpec::new(PRESENT_PLAN, DESCRIPTION, schema_of::<Presented>()).with_access(Access::ASK);
        let agent = self.with_tool(Arc::new(layered(external(spec), Checked)))?;
        let mut inner = (*agent.0).clone();
        // After its own, which are the part that more agents share, and a service can cache.
        let (text, template) = joined(&agent.instructions(), &plan_prompt()).into_parts();
        inner.instructions = text;
        let more = inner.more.get_or_insert_default();
        (more.template, more.plans) = (template, true);
        Ok(Self(Arc::new(inner)))
    }

    /// True if a run is in plan mode, or was: it began so, or the agent plans.
    pub(super) fn is_planned(&self, cx: &RunContext) -> bool {
        self.0.more.as_ref().is_some_and(|more| more.plans)
            || cx.read(|state| kept_in_run(state, PlanBegun::KIND)) > 0
    }

    /// Returns the most that a run in plan mode may do now.
    ///
    /// # Errors
    /// That of a store which does not take the todo list of a plan that was approved.
    pub(super) async fn scope_now(&self, cx: &RunContext) -> Result<Scope> {
        let scope = self.scope();
        if cx.read(|state| kept_in_run(state, PlanApproved::KIND)) > 0 {
            return Ok(scope);
        }
        if cx.read(|state| kept_in_run(state, PlanBegun::KIND)) == 0 {
            cx.append(PlanBegun {})?;
        }
        let Some(steps) = cx.read(approved) else {
            let looks = Access::READ | Access::DELEGATE | Access::ASK;
            return Ok(scope.narrow(&Scope::all().with_access(looks)));
        };
        if !steps.is_empty() {
            cx.set_todos(steps.iter().map(|step| todo(step)).collect()).await?;
        }
        // Last: without it the list is set again.
        cx.append(PlanApproved { steps: steps.len() })?;
        Ok(scope)
    }
}

fn todo(step: &str) -> Todo {
    Todo { content: step.to_owned(), status: TodoStatus::Pending, active_form: String::new() }
}

/// Returns the steps of the plan that the open run of this state has an approval of. It is looked for where the run
/// goes on after the answer: in the newest step that presented one. Each plan of that step must be approved.
fn approved(state: &SessionState) -> Option<Vec<String>> {
    let work = state.work();
    let open = state.step().map(|step| &step.message);
    let is_plan = |call: &&ToolCall| &*call.name == PRESENT_PLAN;
    let newest =
        open.into_iter().chain(work.iter().rev()).find(|it| it.tool_calls().any(|it| is_plan(&it)))?;
    let in_work = work.iter().rev().flat_map(|message| message.tool_results());
    let results: Vec<_> = state.open_results().chain(in_work).collect();
    let is_approved = |call: &ToolCall| {
        let result = results.iter().find(|result| result.call == call.id && result.name == call.name);
        result.is_some_and(|result| !result.is_error)
    };
    let plans = || newest.tool_calls().filter(is_plan);
    let last = plans().last().filter(|_| plans().all(is_approved))?;
    let presented: Option<Presented> = serde_json::from_value(last.arguments.to_value()).ok();
    Some(presented.map(|presented| presented.steps()).unwrap_or_default())
}
