//! Names that are unknown or ambiguous, and hostile arguments of both tools.

use std::sync::Arc;

use entourage_core::tool::{Access, Tool, ToolSpec, Tools, Toolset};
use entourage_runners::{ToolsetExt, from_fn::from_fn};
use entourage_runtime::AgentExt;
use entourage_testkit::{FakeTool, ScriptedProvider, tool::conformance};
use serde_json::{Value, json};

use crate::{agent, of, set, told};

/// The result, and true for an error, of one call of an agent with these deferred tools.
async fn called(tools: Tools, name: &str, arguments: Value) -> (String, bool) {
    let provider = ScriptedProvider::new().call(name, arguments).text("Done.");
    let agent = agent(&provider).toolset(tools.deferred()).build().unwrap();
    agent.ask("Go").await.unwrap();
    let request = provider.requests().remove(1);
    let result = told(&request)[0];
    (result.to_text(), result.is_error)
}

fn issues() -> Tools {
    set(["github_create_issue", "gitlab_create_issue", "github_list_issues", "mail_send"].map(FakeTool::new))
}

#[tokio::test]
async fn issue_15_unknown_and_ambiguous_names_are_answered_with_the_closest_ones() {
    for (name, closest) in [
        ("create_issue", "github_create_issue, gitlab_create_issue"),
        ("github_create_isue", "github_create_issue"),
        ("GITHUB_CREATE_ISSUE", "github_create_issue"),
        ("send_mail", "mail_send"),
        ("mail.send", "mail_send"),
    ] {
        let (text, failed) = called(issues(), "use_tool", of(name, json!({}))).await;
        assert!(failed && text.starts_with(&format!("there is no tool `{name}`")), "{text}");
        assert!(text.contains(&format!("the closest names are: {closest}")), "{text}");
        assert!(text.ends_with("search with `find_tools` for the tool that you need"), "{text}");
    }
    let (text, failed) = called(issues(), "use_tool", of("quux", json!({}))).await;
    assert!(failed && !text.contains("closest"), "{text}");
    // The same for a call by a name of its own.
    let (text, failed) = called(issues(), "create_issue", json!({})).await;
    assert!(failed && text.contains("github_create_issue") && text.contains("find_tools"), "{text}");
}

#[tokio::test]
async fn issue_15_tools_that_are_no_deferred_ones_are_not_called_through_another() {
    for name in ["use_tool", "find_tools"] {
        let (text, failed) = called(issues(), "use_tool", of(name, json!({"query": "mail"}))).await;
        assert!(failed && text.contains(&format!("`{name}` is no tool for `use_tool`")), "{text}");
    }
    let nested = of("use_tool", of("mail_send", json!({})));
    assert!(called(issues(), "use_tool", nested).await.1);
}

#[tokio::test]
async fn issue_15_arguments_of_another_form_are_refused_with_the_form() {
    for arguments in [
        json!({}),
        json!({"name": 7, "arguments": {}}),
        json!({"name": "mail_send", "arguments": [1]}),
        json!({"name": "mail_send", "arguments": "rm -rf"}),
        json!({"name": "mail_send", "arguments": "\"{}\""}),
        json!({"name": "mail_send", "arguments": {}, "to": "ada"}),
        json!({"name": null, "arguments": {}}),
    ] {
        let (text, failed) = called(issues(), "use_tool", arguments.clone()).await;
        assert!(failed && text.contains("the arguments of `use_tool` are `name`"), "{arguments}: {text}");
    }
    for arguments in [json!({"name": "mail_send"}), json!({"name": "mail_send", "arguments": null})] {
        assert_eq!(called(issues(), "use_tool", arguments).await, ("ok".to_owned(), false));
    }
}

#[tokio::test]
async fn issue_15_hostile_names_and_queries_are_answered_in_short() {
    let long = "mail ".repeat(200_000);
    let hostile = ["", " \t\n", "\u{0}\u{1b}[", "\u{202e}\u{200b}", "%$§\"'`{}", &long, "💥💥", "\u{301}"];
    for text in hostile {
        let (answer, failed) = called(issues(), "use_tool", of(text, json!({}))).await;
        assert!(failed && answer.len() < 500, "{} bytes for {} bytes", answer.len(), text.len());
        assert!(!answer.contains(|c: char| c.is_control() || c == '\u{202e}'), "{answer:?}");
        let (answer, failed) = called(issues(), "find_tools", json!({ "query": text })).await;
        assert_eq!(failed, !text.contains("mail"), "{text:?}: {answer}");
        assert!(answer.len() < 2_000 && !answer.contains(|c: char| c.is_control()), "{answer:?}");
        if failed {
            assert!(
                answer.contains("There are 4 tools: github_… (2), gitlab_create_issue, mail_send."),
                "{answer}"
            );
        }
    }
    for limit in [json!(0), json!(-1), json!("many"), json!(1.5)] {
        let (text, failed) = called(issues(), "find_tools", json!({"query": "mail", "limit": limit})).await;
        assert!(failed && text.contains("do not fit its schema"), "{limit}: {text}");
    }
}

#[tokio::test]
async fn issue_15_a_search_gives_name_description_and_schema_in_bounds() {
    let huge = |n: usize| {
        let properties: serde_json::Map<_, _> = (0..2_000)
            .map(|it| (format!("field_{it}"), json!({"type": "string", "description": "x".repeat(50)})))
            .collect();
        let schema =
            json!({"type": "object", "properties": properties, "required": ["field_0", "field_1999"]});
        let spec =
            ToolSpec::new(format!("huge_{n}"), "Word ".repeat(5_000), schema).with_access(Access::NONE);
        Arc::new(from_fn(spec, |_| async { Ok("ok") })) as Arc<dyn Tool>
    };
    let (text, failed) = called(
        Tools::new((0..60).map(huge)).unwrap(),
        "find_tools",
        json!({"query": "huge", "limit": 1_000_000}),
    )
    .await;
    assert!(!failed && text.len() < 40 << 10, "{}", text.len());
    let found: Value = serde_json::from_str(&text).unwrap();
    let (tools, more) = (found["tools"].as_array().unwrap(), found["more"].as_array().unwrap());
    assert!(!tools.is_empty() && tools.len() + more.len() == 20, "{} {}", tools.len(), more.len());
    assert_eq!(tools[0]["arguments"]["required"], json!(["field_0"]));
    assert!(tools[0]["description"].as_str().unwrap().ends_with('…'));

    let look = FakeTool::new("crm_look").requiring(&["id"]);
    let schema = look.spec().schema().clone();
    let (text, _) = called(set([look]), "find_tools", json!({"query": "customer look"})).await;
    let found: Value = serde_json::from_str(&text).unwrap();
    let tool = json!({"name": "crm_look", "description": "A tool of a test.", "arguments": schema});
    assert_eq!(found, json!({ "tools": [tool] }));
}

#[tokio::test(flavor = "multi_thread")]
async fn issue_15_the_search_passes_the_suite_for_tools() {
    let tools = |_: &std::path::Path| issues().deferred().tools().iter().cloned().collect::<Vec<_>>();
    let finds = conformance("find_tools", tools).call(json!({"query": "create an issue", "limit": 3}));
    finds.with_fuzzed_calls(60).run().await.assert();
}
