//! Agents that files describe: a lead of the user, a reviewer of the project, a change between two runs, and what each
//! run recorded of its definition. No key is needed.

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

use entourage::{
    agent_files::{self, AgentFolders, AgentRead, Catalogue},
    prelude::*,
    testkit::ScriptedProvider,
};
use serde_json::json;

const LEAD: &str = "\
---
description: Answers questions about the project.
mode: primary
agents: [reviewer]
access: [read, delegate]
---
You answer questions. Hand reviews to the reviewer.
";

const REVIEWER: &str = r#"
description = "Reviews one file."
mode = "subagent"
model = "small"
tools = ["view"]
instructions = "You review one file and say what is wrong with it."
"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let (home, project) = (tempfile::tempdir()?, tempfile::tempdir()?);
    std::fs::create_dir(project.path().join(".agents"))?;
    std::fs::write(home.path().join("lead.md"), LEAD)?;
    std::fs::write(project.path().join(".agents/reviewer.toml"), REVIEWER)?;
    std::fs::write(
        project.path().join(".agents/typo.md"),
        "---\ndescription: A typo.\ntolls: [view]\n---\nGo.",
    )?;

    let large = ScriptedProvider::new()
        .call("agent_reviewer", json!({"prompt": "Review main.rs."}))
        .text("The reviewer found nothing.")
        .text("As you wish.");
    let small = ScriptedProvider::new().text("Nothing is wrong with main.rs.");
    let workspace = Workspace::open(project.path())?;
    let catalogue = Catalogue::builder(large.model())
        .small(small.model())
        .tools([workspace.read_tools(), workspace.write_tools()].concat())
        .project_scope(Scope::read_only())
        .build()?;
    let folders = AgentFolders::new().with_user(home.path()).with_project(project.path(), [".agents"]);
    let agents = agent_files::in_folders(catalogue, folders);

    let list = agents.list().await?;
    for definition in &list.definitions {
        println!("{} ({}): {}", definition.name, definition.mode, definition.description);
    }
    for problem in &list.problems {
        let problem = problem.replace(&*project.path().to_string_lossy(), "PROJECT");
        println!("problem: {problem}");
    }

    let lead = agents.agent("lead").await?;
    let session = Runtime::in_memory().session();
    println!("\n{}", session.start(&lead, "Is main.rs right?").outcome().await?.text);
    // The next run reads the file anew.
    std::fs::write(home.path().join("lead.md"), LEAD.replace("You answer", "You answer in rhyme"))?;
    println!("{}\n", session.start(&lead, "Thanks").outcome().await?.text);
    for event in session.events(0, 1_000).await? {
        if let Some(read) = event.event.record::<AgentRead>()? {
            println!("run {} used {}", event.origin.run, read.digest);
        }
    }
    Ok(())
}
