//! Plan mode: the agent looks and presents a plan, and does more only once a person has approved it.

use std::sync::Arc;

use entourage_core::{
    Result,
    context::Instructions,
    event::{Record, weigh_plain},
    permission::Scope,
    run::RunContext,
    session::SessionState,
    team::{Todo, TodoStatus},
    tool::{Access, ToolSpec, schema_of},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ReactAgent, prepare::joined};
use crate::{external::external, kept::kept_in_run};

/// Name of the tool by which a plan is presented.
const PRESENT_PLAN: &str = "present_plan";

const DESCRIPTION: &str = "Presents your plan to the user, once you have looked at all that it depends on. The user \
    approves it, or says what is to change. The run waits for that.";

const INSTRUCTIONS: &str = "You plan before you work. Until the user has approved a plan, your tools only look: they \
    change no file and run no command that changes something. Look at what the task depends on, decide how to do it, \
    and call `present_plan` with a plan that names the files to change and the way to check the result. If the user \
    asks for changes, present the whole plan anew. Once it is approved, carry it out: its steps are in the todo list.";

#[derive(Debug, Deserialize, JsonSchema)]
struct Presented {
    /// The plan in Markdown: what will be changed and why, and how the result is checked.
    #[allow(dead_code, reason = "it is for the person who approves it")]
    plan: String,
    /// Its steps in their order, each a short imperative sentence.
    steps: Vec<String>,
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
    /// The run that is then resumed, with this same agent, goes on in the same conversation. Before the approval, its
    /// scope is the agent's without write, execute and network access, for the agents below it too; afterwards it is
    /// the agent's. Rules and approvers apply as in any run. An approval holds for its run: a further prompt needs a
    /// plan of its own, unless it is given to the agent without plan mode.
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
        let agent = self.with_tool(Arc::new(external(spec)))?;
        let mut inner = (*agent.0).clone();
        // After its own, which are the part that more agents share, and a service can cache.
        let (text, template) =
            joined(&agent.instructions(), &Instructions::new(INSTRUCTIONS.into(), None)).into_parts();
        inner.instructions = text;
        let more = inner.more.get_or_insert_default();
        (more.template, more.plans) = (template, true);
        Ok(Self(Arc::new(inner)))
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
/// goes on after the answer: among the results of its newest step.
fn approved(state: &SessionState) -> Option<Vec<String>> {
    let work = state.work();
    let in_work = work.iter().flat_map(|message| message.tool_results());
    let result = state.open_results().chain(in_work).find(|it| &*it.name == PRESENT_PLAN && !it.is_error)?;
    let open = state.step().map(|step| &step.message);
    let mut calls = open.into_iter().chain(work.iter().rev()).flat_map(|message| message.tool_calls());
    let call = calls.find(|call| call.id == result.call && call.name == result.name)?;
    let presented: Option<Presented> = serde_json::from_value(call.arguments.to_value()).ok();
    let steps = presented.map(|presented| presented.steps).unwrap_or_default();
    Some(steps.into_iter().filter(|step| !step.trim().is_empty()).collect())
}
