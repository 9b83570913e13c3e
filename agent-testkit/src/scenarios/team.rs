//! Scenarios of teams and planners.

use entourage_core::{
    Result,
    provider::Size,
    tool::{Access, Repeat},
};
use entourage_runners::{
    ReactAgent,
    planner::Planner,
    team::{Member, TaskType, Team},
};
use entourage_runtime::permission::Policy;
use serde_json::{Value, json};

use crate::{
    FakeTool, ScriptedProvider,
    crash::{Life, Scenario},
};

/// A tool that only looks.
fn look(life: &Life) -> std::sync::Arc<dyn entourage_core::tool::Tool> {
    life.tool(FakeTool::new("look").access(Access::READ).repeat(Repeat::Safe))
}

fn item(id: &str, kind: &str, after: &[&str]) -> Value {
    json!({"id": id, "task": id, "type": kind, "after": after})
}

/// An item that a small member fails at and a larger one does, one that fails for good until the lead gives it to
/// somebody else, and a member that writes to another one.
fn crew(life: &Life) -> Result<Team> {
    let plan = json!({"items": [
        item("look", "summarize", &[]), item("check", "review", &["look"]), item("write", "code", &["check"]),
    ]});
    let steps = json!({"steps": [{"do": "reassign", "task": "check", "to": "large"}, {"do": "skip", "task": "none"}]});
    let lead =
        ScriptedProvider::by_history().text(plan.to_string()).text(steps.to_string()).text("All is done.");
    // A model without a reply fails.
    let none = ScriptedProvider::by_history();
    let news = json!({"to": "writer", "type": "status", "text": "Found it."});
    let large = ScriptedProvider::by_history()
        .call("send_message", news)
        .call("look", json!({}))
        .text("Large did it.");
    let writer = ScriptedProvider::by_history().call("look", json!({})).text("Written.");
    let agent = |name: &str, provider: &ScriptedProvider| {
        ReactAgent::builder(name, life.model(&provider.model())).tools(vec![look(life)]).build()
    };
    Team::builder("crew", life.model(&lead.model()))
        .member(Member::new(agent("small", &none)?).size(Size::S))
        .member(Member::new(agent("large", &large)?).size(Size::L))
        .member(Member::new(agent("writer", &writer)?).size(Size::Xl).specialist_in([TaskType::Code]))
        .member(Member::new(agent("checker", &none)?).size(Size::Xl).specialist_in([TaskType::Review]))
        .mailbox()
        .build()
}

/// A team with an escalation, a step of its lead, and messages.
#[must_use]
pub fn team() -> Scenario {
    let scenario = Scenario::new("team", crew).prompt("Do it all.");
    scenario.runtime(|builder| builder.policy(Policy::allow_all()).checkpoint_every(4))
}

/// A plan of two steps side by side, each with a question that the planner answers.
#[must_use]
pub fn planner() -> Scenario {
    let scenario = Scenario::new("planner", |life| {
        let step = |number: u32| json!({"number": number, "description": "Look.", "executor_required": true, "tools": ["look"]});
        let plans = ScriptedProvider::by_history()
            .call("final_answer", json!({"steps": [step(1), step(2)]}))
            .text("It is old.");
        let looks = ScriptedProvider::by_history()
            .call("look", json!({}))
            .call("reply", json!({"type": "question", "text": "Which one?"}))
            .call("reply", json!({"type": "complete", "text": "The old one."}));
        Planner::builder("assistant", life.model(&plans.model()))
            .executor(life.model(&looks.model()))
            .without_classifier()
            .tools(vec![look(life)])
            .build()
    });
    let scenario = scenario.prompt("First look at both, then sum up.");
    scenario.runtime(|builder| builder.policy(Policy::allow_all()).checkpoint_every(4))
}
