//! Definitions, and what becomes of them with a catalogue, by tables.

use std::time::Duration;

use entourage_core::{
    permission::Scope,
    provider::Size,
    run::Limits,
    tool::{Access, Tool},
};
use entourage_testkit::{FakeTool, ScriptedProvider};
use serde_json::{Value, json};

use crate::team::TaskType;

use super::{
    AgentDefinition, AgentFiles, AgentMode, AgentText, AgentTexts, Catalogue, CatalogueBuilder, build,
};

fn text(name: &str, settings: &Value) -> AgentText {
    let mut settings = settings.as_object().unwrap().clone();
    settings.entry("description").or_insert_with(|| json!("Works."));
    AgentText::new(name, "You work.").with_settings(settings)
}

fn catalogue() -> CatalogueBuilder {
    let model = || ScriptedProvider::new().model();
    Catalogue::builder(model())
        .small(model())
        .tools((FakeTool::new("view"), FakeTool::new("grep"), FakeTool::new("bash").access(Access::EXECUTE)))
        .mcp("github", FakeTool::new("mcp_github_issues").set())
        .mcp("mail", FakeTool::new("mcp_mail_send").set())
}

trait Set {
    fn set(self) -> entourage_core::tool::Tools;
}

impl<T: Tool + 'static> Set for T {
    fn set(self) -> entourage_core::tool::Tools {
        entourage_core::tool::Tools::new([std::sync::Arc::new(self) as std::sync::Arc<dyn Tool>]).unwrap()
    }
}

/// The names of the tools of the agent that a definition becomes.
fn tools(settings: &Value) -> Result<Vec<String>, String> {
    let files = AgentFiles::new(catalogue().disabled_tools(["bash"]).build().unwrap(), AgentTexts::default());
    let definition = AgentDefinition::read(&text("a", settings)).map_err(|it| it.message().to_owned())?;
    let agent =
        build::make(&files, &definition, &Default::default(), None).map_err(|it| it.message().to_owned())?;
    let react = agent.as_any().unwrap().downcast_ref::<crate::ReactAgent>().unwrap();
    Ok(react.tool_set().iter().map(|tool| tool.spec().name().to_owned()).collect())
}

#[test]
fn ce05_a_definition_gets_its_part_of_the_tools_that_there_are() {
    for (settings, expected) in [
        (json!({}), &["grep", "mcp_github_issues", "mcp_mail_send", "view"][..]),
        (json!({"tools": ["view", "bash"]}), &["view"]),
        (json!({"tools": "view, grep"}), &["grep", "view"]),
        (json!({"tools": []}), &[]),
        (json!({"tools": ["v*"]}), &["view"]),
        (json!({"tools": ["view", "mcp_github_*"]}), &["mcp_github_issues", "view"]),
        (json!({"tools": ["view"], "mcp": ["mail"]}), &["mcp_mail_send", "view"]),
        (json!({"tools": ["view", "mcp_github_issues"], "mcp": ["mail"]}), &["mcp_mail_send", "view"]),
        (json!({"tools": ["*"]}), &["grep", "mcp_github_issues", "mcp_mail_send", "view"]),
        (json!({"mcp": []}), &["grep", "view"]),
        (json!({"mcp": ["github"], "disallowed_tools": ["grep", "mcp_github_issues"]}), &["view"]),
        (json!({"disallowed_tools": ["mcp_*"]}), &["grep", "view"]),
    ] {
        assert_eq!(tools(&settings).unwrap(), expected, "{settings}");
    }
}

#[test]
fn ce05_what_there_is_not_is_an_error_that_lists_what_there_is() {
    for (settings, said) in [
        (json!({"tools": ["veiw"]}), "there is no tool `veiw`; there are `grep`, `view`"),
        (json!({"disallowed_tools": ["rm"]}), "there is no tool `rm`; there are `grep`, `view`"),
        (json!({"model": "huge"}), "there is no model `huge`; there are `large`, `small`"),
        (json!({"mcp": ["git"]}), "there is no MCP server `git`; there are `github`, `mail`"),
        (json!({"agents": ["scout"]}), "there is no agent `scout`; there is none"),
        (json!({"agents": ["scout"], "access": "read"}), "its `access` lacks `delegate`"),
        (json!({"tool": ["view"]}), "there is no key `tool`; did you mean `tools`?"),
        (json!({"disallowed-tools": []}), "did you mean `disallowed_tools`?"),
        (json!({"permissions": "bypass"}), "there is no key `permissions`; the keys are description, mode"),
        (json!({"tools": 3}), "`tools` is no list of texts"),
        (json!({"tools": ["view", ""]}), "`tools` is no list of texts"),
        (json!({"mode": "coagent"}), "`coagent` is no mode; use primary, subagent or all"),
        (json!({"access": ["read", "root"]}), "`root` is not an access"),
        (json!({"hosts": ["a.example", "b.example:443"]}), "`b.example:443` is not a host alone"),
        (json!({"hosts": "https://a.example"}), "`https://a.example` is not a host alone"),
        (json!({"max_steps": 0}), "`max_steps` is no whole number from 1"),
        (json!({"max_steps": -1}), "`max_steps` is no whole number"),
        (json!({"tool_timeout": "5m"}), "`tool_timeout` is no whole number"),
        (json!({"max_steps": "99999999999999999999"}), "`max_steps` is no whole number"),
        (json!({"description": ""}), "`description` is no text"),
        (json!({"description": "a".repeat(1_025)}), "more than 1024 characters"),
        (json!({"tools": vec!["a"; 201]}), "more than 200 entries"),
        (json!({"team": "ab"}), "`team` is no table"),
        (json!({"team": {"members": ["b"]}}), "there is no agent `b`"),
        (json!({"team": {"members": []}}), "a list of 1 to 50 `members`"),
        (json!({"team": {"members": ["a", "a"]}}), "`a` is a member of the team twice"),
        (json!({"team": {"members": ["a"], "at_once": 0}}), "`at_once` is no whole number from 1 to 100"),
        (json!({"team": {"members": [{"name": "a", "size": "XXL"}]}}), "use XS, S, M, L or XL"),
        (json!({"team": {"members": [{"name": "a", "specialist_in": ["poems"]}]}}), "use one of summarize"),
        (
            json!({"team": {"members": [{"name": "a", "replicas": 101}]}}),
            "`replicas` is no whole number from 1 to",
        ),
        (json!({"team": {"members": [{"name": "a", "replica": 1}]}}), "did you mean `replicas`?"),
    ] {
        let error = tools(&settings).unwrap_err();
        assert!(error.contains(said) && error.starts_with("`a`: "), "{settings}: {error}");
    }
    let bare = AgentDefinition::read(&AgentText::new("a", "You work.")).unwrap_err();
    assert!(bare.message().contains("there is no `description`"), "{bare}");
    let empty = AgentText::new("a", " \n").with_setting("description", json!("Works."));
    assert!(AgentDefinition::read(&empty).unwrap_err().message().contains("there are no instructions"));
}

#[test]
fn ce05_a_definition_can_only_narrow() {
    let most = Scope::all().with_access(Access::READ | Access::WRITE).with_roots(["src"]);
    let project = Scope::read_only();
    let limits = Limits::default().with_steps(20);
    let catalogue = catalogue().scope(most.clone()).project_scope(project).limits(limits).build().unwrap();
    let wide = json!({"access": "read+write+execute+network", "paths": ["src/fs", "/etc"], "max_steps": 500});
    for (from_project, access) in [(false, Access::READ | Access::WRITE), (true, Access::READ)] {
        let definition = AgentDefinition::read(&text("a", &wide).with_project(from_project)).unwrap();
        let scope = build::ceiling(&catalogue, &definition);
        assert!(most.contains(&scope));
        assert_eq!((scope.access(), scope.roots().unwrap().len()), (access, 1), "{scope:?}");
        assert_eq!(definition.lowered(limits).steps, 20);
    }
    let narrow = json!({"max_steps": "3", "tool_timeout": 5, "max_parallel_tools": 1, "hosts": []});
    let definition = AgentDefinition::read(&text("a", &narrow)).unwrap();
    let lowered = definition.lowered(limits);
    assert_eq!((lowered.steps, lowered.parallel_tools.get()), (3, 1));
    assert_eq!(lowered.tool_timeout, Duration::from_secs(5));
    assert_eq!(build::ceiling(&catalogue, &definition).hosts().map(std::collections::BTreeSet::len), Some(0));
}

#[test]
fn ce05_a_team_is_read_with_its_members() {
    let settings = json!({"team": {
        "at_once": 3,
        "members": ["coder", {"name": "scout", "size": "xs", "replicas": 5, "specialist_in": "summarize, chat"}],
    }});
    let mut text = text("crew", &settings);
    text.instructions.clear();
    let definition = AgentDefinition::read(&text).unwrap();
    let team = definition.team.as_ref().unwrap();
    assert_eq!((team.at_once, team.members.len()), (Some(3), 2));
    assert_eq!((team.members[0].size, team.members[0].replicas), (Size::M, 1));
    assert_eq!((team.members[1].size, team.members[1].replicas), (Size::Xs, 5));
    assert_eq!(team.members[1].specialist_in, [TaskType::Summarize, TaskType::Chat]);
    assert_eq!(definition.needs().collect::<Vec<_>>(), ["coder", "scout"]);
}

#[tokio::test]
async fn cw18_only_primary_agents_are_selectable_and_only_subagents_are_called() {
    let texts = AgentTexts::new([
        text("lead", &json!({"mode": "primary", "agents": ["scout"]})),
        text("scout", &json!({"mode": "subagent"})),
        text("both", &json!({})),
        text("wrong", &json!({"agents": ["lead"]})),
    ]);
    let files = AgentFiles::new(catalogue().build().unwrap(), texts);
    let list = files.list().await.unwrap();
    let selectable: Vec<_> = list.selectable().map(|it| it.name.as_str()).collect();
    assert_eq!((selectable, list.definitions.len()), (vec!["both", "lead"], 3));
    assert!(list.definitions.iter().any(|it| it.mode == AgentMode::Subagent));
    assert!(list.problems[0].contains("the agent `lead` is for people alone"), "{:?}", list.problems);
    let scout = files.agent("scout").await.unwrap_err();
    assert!(scout.message().contains("for other agents alone"), "{scout}");
    let nobody = files.agent("Lead").await.unwrap_err();
    assert_eq!(nobody.message(), "there is no agent `Lead`; there are `both`, `lead`, `wrong`");
}

#[tokio::test]
async fn cw18_circles_and_long_chains_of_agents_are_refused() {
    let to = |name: &str, other: &[&str]| text(name, &json!({"agents": other}));
    let chain: Vec<_> = (0..12).map(|n| to(&format!("a{n:02}"), &[&format!("a{:02}", n + 1)])).collect();
    let texts = chain.into_iter().chain([
        to("a12", &[]),
        to("x", &["y"]),
        to("y", &["z"]),
        to("z", &["x"]),
        to("me", &["me"]),
    ]);
    let files = AgentFiles::new(catalogue().build().unwrap(), AgentTexts::new(texts));
    let list = files.list().await.unwrap();
    let fit: Vec<_> = list.definitions.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(fit, ["a05", "a06", "a07", "a08", "a09", "a10", "a11", "a12"]);
    let error = |error: entourage_core::Error| error.message().to_owned();
    assert!(error(files.agent("x").await.unwrap_err()).contains("in a circle, x -> y -> z -> x"));
    assert!(error(files.agent("me").await.unwrap_err()).contains("in a circle, me -> me"));
    assert!(error(files.agent("a04").await.unwrap_err()).contains("more than 8 agents"));
    // A lattice of many paths is checked once for each agent, not once for each path.
    let level = |n: usize| (0..20).map(move |m| format!("l{n}_{m:02}"));
    let below = |n: usize| level(n + 1).collect::<Vec<_>>();
    let lattice =
        (0..8).flat_map(|n| level(n).map(move |name| (name, if n < 7 { below(n) } else { vec![] })));
    let lattice = lattice.map(|(name, below)| text(&name, &json!({"agents": below})));
    let files = AgentFiles::new(catalogue().build().unwrap(), AgentTexts::new(lattice));
    files.agent("l0_00").await.unwrap();
}

/// Files of the largest size, each of which delegates to all of the next level.
fn lattice(levels: usize, wide: usize, size: usize) -> AgentTexts {
    let level = |n: usize| (0..wide).map(move |m| format!("l{n}_{m:02}"));
    let below = |n: usize| level(n).collect::<Vec<_>>();
    let all = (1..=levels)
        .flat_map(|n| level(n).map(move |name| (name, if n < levels { below(n + 1) } else { Vec::new() })));
    AgentTexts::new(all.map(|(name, below)| {
        let mut text = text(&name, &json!({"agents": below}));
        text.instructions = "x".repeat(size);
        text
    }))
}

#[tokio::test]
async fn attack_46_each_of_many_large_files_is_read_once() {
    // Once for each way to a file would be a hundred thousand million times.
    let files = AgentFiles::new(catalogue().build().unwrap(), lattice(8, 25, 60_000));
    assert_eq!(files.list().await.unwrap().definitions.len(), 200);
    files.agent("l1_00").await.unwrap();
    // All of them lead to one that cannot be.
    let mut texts = lattice(8, 25, 60_000);
    texts.agents.insert("l8_24".to_owned(), Ok(text("l8_24", &json!({"tools": ["gone"]}))));
    let files = AgentFiles::new(catalogue().build().unwrap(), texts);
    let list = files.list().await.unwrap();
    assert_eq!((list.definitions.len(), list.problems.len()), (24, 176));
    assert!(list.problems.iter().all(|it| it.contains("there is no tool `gone`")), "{:?}", list.problems[0]);
}

#[test]
fn ce05_an_agent_that_is_disallowed_is_not_offered() {
    let files = AgentFiles::new(catalogue().build().unwrap(), AgentTexts::default());
    let settings = json!({"agents": ["scout", "clerk"], "disallowed_tools": ["agent_scout", "mcp_*"]});
    let definition = AgentDefinition::read(&text("a", &settings)).unwrap();
    let below = ["scout", "clerk"].map(|it| (it.to_owned(), String::new()));
    build::make(&files, &definition, &below.into(), None).unwrap();
    let scope = build::ceiling(&files.catalogue, &definition);
    assert!(!scope.has_tool("agent_scout") && scope.has_tool("agent_clerk"));
    assert!(!scope.has_tool("mcp_mail_send"));
}
