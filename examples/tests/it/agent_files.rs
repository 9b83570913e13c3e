//! Agents of files in real folders, and the first look at a project, through the facade.

use std::{fs, path::Path};

use entourage::{
    agent_files::{self, AgentFiles, AgentFolders, AgentRead, Catalogue},
    builtin,
    prelude::*,
    project::Init,
    testkit::ScriptedProvider,
};
use serde_json::json;
use tempfile::TempDir;

fn write(root: &TempDir, path: &str, text: &str) {
    let path = root.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn agents(provider: &ScriptedProvider, home: &Path, project: &Path) -> AgentFiles {
    let tools = Workspace::open(project).unwrap().read_tools();
    let catalogue = Catalogue::builder(provider.model()).tools(tools).build().unwrap();
    let folders = AgentFolders::new().with_user(home).with_project(project, [".agents"]);
    agent_files::in_folders(catalogue, folders)
}

#[tokio::test]
async fn cw18_files_of_the_project_override_and_a_change_is_picked_up() {
    let (home, project) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(&home, "guide.md", "---\ndescription: The user's.\n---\nUser.");
    write(&home, "other.toml", "description = 'Other.'\ntools = ['bash']\ninstructions = 'Other.'");
    let settings = "description: The project's.\ntools: [view]\ncontext: [RULES.md]";
    write(&project, ".agents/guide.md", &format!("---\n{settings}\n---\nProject."));
    write(&project, "RULES.md", "Be kind.");
    let provider = ScriptedProvider::new().text("One.").text("Two.");
    let agents = agents(&provider, home.path(), project.path());
    let list = agents.list().await.unwrap();
    assert_eq!((list.definitions.len(), &*list.definitions[0].description), (1, "The project's."));
    let problem = &list.problems[0];
    assert!(problem.contains("other.toml") && problem.contains("there is no tool `bash`"), "{problem}");

    let guide = agents.agent("guide").await.unwrap();
    let session = Runtime::in_memory().session();
    session.start(&guide, "First").outcome().await.unwrap();
    write(&project, "RULES.md", "Be brief.");
    session.start(&guide, "Second").outcome().await.unwrap();
    let asked: Vec<_> = provider.requests().iter().map(|it| it.instructions.to_string()).collect();
    assert!(asked[0].starts_with("Project.") && asked[0].ends_with("Be kind."), "{asked:?}");
    assert!(asked[1].ends_with("Be brief."), "{asked:?}");
    assert_eq!(
        provider.requests()[0].tools.iter().map(|it| it.name().to_owned()).collect::<Vec<_>>(),
        ["view"]
    );
    let events = session.events(0, 1_000).await.unwrap();
    let digests: Vec<_> = events.iter().filter_map(|it| it.event.record::<AgentRead>().unwrap()).collect();
    assert!(digests.len() == 2 && digests[0].digest != digests[1].digest);

    fs::remove_file(project.path().join(".agents/guide.md")).unwrap();
    fs::write(project.path().join(".agents/guide.toml"), "broken").unwrap();
    let error = session.start(&guide, "Third").outcome().await.unwrap_err();
    assert!(error.message().contains("guide.toml`: line 1"), "{error}");
}

#[tokio::test]
async fn ci02_the_first_look_is_an_ordinary_prompt_after_the_mark() {
    let project = tempfile::tempdir().unwrap();
    write(&project, "main.rs", "fn main() {}");
    let init = Init::new(project.path()).with_target("docs/AGENTS.md");
    assert!(init.is_needed().await.unwrap());
    init.mark().await.unwrap();
    assert!(!init.is_needed().await.unwrap());

    let content = json!({"path": "docs/AGENTS.md", "content": "Run `cargo test`."});
    let provider = ScriptedProvider::new().call("write", content).text("I wrote it.");
    let workspace = Workspace::open(project.path()).unwrap();
    let coder = builtin::coder(provider.model()).tools(workspace.write_tools()).build().unwrap();
    let runtime = Runtime::builder().policy(Policy::allow_all()).build();
    let prompt = builtin::init_prompt(init.target()).unwrap();
    runtime.session().start(&coder, prompt).outcome().await.unwrap();
    let asked = provider.requests()[0].messages.last().unwrap().text();
    assert!(asked.starts_with("Write the file `docs/AGENTS.md`") && !asked.contains("{target}"), "{asked}");
    assert_eq!(fs::read_to_string(project.path().join("docs/AGENTS.md")).unwrap(), "Run `cargo test`.");
    for target in ["", "/etc/passwd", "../a.md", "a/../b.md", "a\nb.md", "a`b.md", "C:\\a.md", "a//b.md"] {
        assert!(builtin::init_prompt(target).is_err(), "{target}");
    }
}
