//! The public crash suite over graphs: two nodes in flight, and an approval pending inside a child inside a node.

use entourage_core::{
    permission::Decision,
    tool::{Access, Repeat},
};
use entourage_runners::{ReactAgent, graph::TaskGraph};
use entourage_runtime::permission::Policy;
use entourage_testkit::{
    FakeTool, ScriptedProvider,
    crash::{self, Life, Medium, Scenario},
};
use serde_json::json;

fn survives(scenario: &Scenario) {
    let medium = Medium::memory()
        .tokio(|| tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build());
    crash::run(scenario, &medium).assert();
}

/// Creates an agent that uses one tool, and then answers.
fn worker(life: &Life, name: &str, tool: FakeTool) -> entourage_core::Result<ReactAgent> {
    let called = match name {
        "tester" => "check",
        "architect" => "look",
        _ => "write",
    };
    let provider = ScriptedProvider::by_history().call(called, json!({})).text(format!("{name} is done."));
    ReactAgent::builder(name, life.model(&provider.model())).tool(life.tool(tool)).build()
}

#[test]
fn design_3_the_login_graph() {
    let scenario = Scenario::new("login", |life| {
        let write = || FakeTool::new("write").access(Access::WRITE).repeat(Repeat::Idempotent);
        let architect = worker(life, "architect", FakeTool::new("look"))?;
        let (coder, artist) = (worker(life, "coder", write())?, worker(life, "artist", write())?);
        let tester = worker(life, "tester", FakeTool::new("check"))?;
        let graph = TaskGraph::builder("login");
        let files = graph.step("files", (), |()| async { Ok(vec![1_u32, 2]) });
        let sizes = graph.map("sizes", &files, |file| async move { Ok(file * 2) });
        let design = graph.agent("design", &architect, "Design it.");
        let backend = graph.agent("backend", &coder, "Write the backend.").after(&sizes);
        let frontend = graph.agent("frontend", &artist, "Write the frontend.").after((&backend, &design));
        let tests = graph.agent("tests", &tester, "Test it.").after((&backend, &frontend));
        graph.agent("review", &architect, "Review it.").after(&tests);
        graph.agent("docs", &artist, "Write about it.").after(&design);
        graph.build()
    });
    let policy =
        |builder: entourage_runtime::RuntimeBuilder| builder.policy(Policy::allow_all()).checkpoint_every(5);
    survives(&scenario.prompt("Build a login form.").runtime(policy));
}

#[test]
fn design_3_an_approval_inside_a_child_inside_a_node() {
    let scenario = Scenario::new("shop", |life| {
        let payer = ScriptedProvider::by_history().call("pay", json!({"sum": 3})).text("Paid.");
        let payer = ReactAgent::builder("payer", life.model(&payer.model()))
            .tool(life.tool(FakeTool::new("pay").access(Access::WRITE)))
            .build()?;
        let scout = ScriptedProvider::by_history().call("look", json!({})).text("Seen.");
        let scout = ReactAgent::builder("scout", life.model(&scout.model()))
            .tool(life.tool(FakeTool::new("look")))
            .build()?;
        let below = TaskGraph::builder("till");
        below.agent("pay", &payer, "Pay.");
        let graph = TaskGraph::builder("shop");
        let paid = graph.graph("paid", &below.build()?, "Have it paid.");
        let seen = graph.agent("seen", &scout, "Look.");
        graph.agent("end", &scout, "Look again.").after((&paid, &seen));
        graph.build()
    });
    survives(
        &scenario
            .prompt("Buy it.")
            .decide("pay", Decision::Allow)
            .runtime(|builder| builder.policy(Policy::allow_all().ask("pay")).checkpoint_every(6)),
    );
}
