//! A team of agents of files, killed at every point, and where an engine performs the effects.

use entourage_core::{
    Result,
    provider::Model,
    tool::{Access, Repeat},
};
use entourage_runners::agent_files::{AgentFiles, AgentText, AgentTexts, Catalogue, FileAgent};
use entourage_runtime::permission::Policy;
use entourage_testkit::{
    FakeTool, ScriptedProvider,
    crash::{Life, Scenario},
};
use futures_util::FutureExt;
use serde_json::{Value, json};

use crate::{survives, survives_an_engine};

fn text(name: &str, settings: &Value) -> AgentText {
    let text = AgentText::new(name, format!("You are {name}."));
    let text = text.with_settings(settings.as_object().unwrap().clone());
    text.with_setting("description", json!(format!("Is {name}.")))
}

fn crew(life: &Life) -> Result<FileAgent> {
    let texts = AgentTexts::new([
        text("crew", &json!({"team": {"members": ["scout", "clerk"]}, "tools": ["look"]})),
        text("scout", &json!({"model": "small", "tools": ["look"]})),
        text("clerk", &json!({"model": "tiny", "tools": ["put"]})),
    ]);
    let items = json!({"items": [
        {"id": "look", "task": "Look.", "type": "code", "member": "scout"},
        {"id": "put", "task": "Put.", "type": "code", "member": "clerk", "after": ["look"]},
    ]});
    let script = ScriptedProvider::by_history;
    let large = script().call("look", json!({})).text(items.to_string()).text("All is done.");
    let small = script().call("look", json!({})).text("It is there.");
    let tiny = script().call("put", json!({})).text("It is put.");
    let model = |script: &ScriptedProvider, name: &str| life.model(&Model::new(script.provider(), name));
    let catalogue = Catalogue::builder(model(&large, "large"))
        .small(model(&small, "small"))
        .model("tiny", model(&tiny, "tiny"))
        .tools(vec![
            life.tool(FakeTool::new("look").access(Access::READ)),
            life.tool(FakeTool::new("put").access(Access::WRITE).repeat(Repeat::Once)),
        ])
        .build()?;
    AgentFiles::new(catalogue, texts).agent("crew").now_or_never().unwrap()
}

fn scenario() -> Scenario {
    let scenario = Scenario::new("file-crew", crew).prompt("Do it.");
    scenario.runtime(|builder| builder.policy(Policy::allow_all()).checkpoint_every(3))
}

#[test]
fn cw18_a_team_of_files_killed_at_every_point_repeats_nothing() {
    let facts = ["agent.read", "team.planned", "tool_finished put", "crew run_finished completed"];
    survives(&scenario(), &facts);
}

#[test]
fn cw18_a_team_of_files_where_an_engine_performs_the_effects() {
    survives_an_engine(scenario);
}
