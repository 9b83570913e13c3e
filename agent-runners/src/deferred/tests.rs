//! Tests of the ranking and of the bounds, without a run.

use std::sync::Arc;

use entourage_core::tool::{Tool, ToolSpec};
use proptest::prelude::*;
use serde_json::json;

use super::{
    rank::{Query, ranked},
    shown::{RESULTS, overview, results},
    tools::{FindTools, UseTool},
};

fn spec(name: &str, description: &str, parameters: &[&str]) -> ToolSpec {
    let properties: serde_json::Map<_, _> =
        parameters.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
    ToolSpec::new(name, description, json!({"type": "object", "properties": properties}))
}

fn office() -> Vec<ToolSpec> {
    vec![
        spec("calendar_create_event", "Creates an event in the calendar.", &["title", "start"]),
        spec("github_create_issue", "Creates an issue in a repository.", &["repository", "title"]),
        spec("github_list_issues", "Lists the issues of a repository.", &["repository", "state"]),
        spec("mail_send", "Sends a message to a person.", &["recipient", "subject"]),
        spec("searchFiles", "Looks for files by their name. 文件搜索", &["glob"]),
        spec("weather", "The weather at a place, and its forecast.", &["city"]),
    ]
}

fn best(query: &str) -> Vec<String> {
    let specs = office();
    let specs: Vec<_> = specs.iter().collect();
    ranked(&Query::new(query), &specs, 2).iter().map(|spec| spec.name().to_owned()).collect()
}

#[test]
fn the_best_tool_for_a_query_comes_first() {
    for (query, first) in [
        ("create issue", "github_create_issue"),
        ("open a new issue in the repository", "github_create_issue"),
        ("list issues", "github_list_issues"),
        ("github_list_issues", "github_list_issues"),
        ("SEND MAIL", "mail_send"),
        ("subject", "mail_send"),
        ("recipients", "mail_send"),
        ("search file", "searchFiles"),
        ("SearchFiles", "searchFiles"),
        ("forecasts", "weather"),
        ("events in calendars", "calendar_create_event"),
        ("搜", "searchFiles"),
    ] {
        assert_eq!(best(query).first().map(String::as_str), Some(first), "{query}");
    }
    assert!(best("quantum").is_empty());
    assert!(Query::new("?! — …").is_empty());
}

#[test]
fn a_rare_word_counts_more_than_a_frequent_one() {
    let mut specs: Vec<_> = (0..50).map(|n| spec(&format!("get_{n}"), "Gets a record.", &[])).collect();
    specs.push(spec("weather", "Gets the weather.", &[]));
    let specs: Vec<_> = specs.iter().collect();
    let found = ranked(&Query::new("get a record of the weather"), &specs, 3);
    assert_eq!(found[0].name(), "weather");
    let names: Vec<_> = found.iter().map(|spec| spec.name()).collect();
    assert_eq!(names, ["weather", "get_0", "get_1"], "equals by name");
}

#[test]
fn what_models_read_is_plain() {
    for spec in [FindTools::new().spec(), UseTool::new().spec()] {
        entourage_testkit::assert_plain_words(spec);
    }
    let specs: Vec<_> = office();
    let shown = overview(&specs.iter().collect::<Vec<_>>());
    assert_eq!(
        shown,
        "There are 6 tools: calendar_create_event, github_… (2), mail_send, searchFiles, weather."
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// At most `limit` tools, each once, in an order that depends neither on the order of the tools nor on the moment.
    #[test]
    fn issue_15_the_ranking_is_bounded_and_stable(
        query in "\\PC{0,40}|[a-d _.-]{0,40}|[\\x00-\\x1f\u{202e}💥文 a-c]{0,20}",
        tools in prop::collection::btree_map("[a-d_-]{1,12}", ("\\PC{0,20}|[a-d ]{0,30}", prop::collection::vec("[a-d_]{0,6}", 0..4)), 0..40),
        limit in 0usize..25,
        turn in 0usize..40,
    ) {
        let specs: Vec<_> = tools
            .iter()
            .map(|(name, (about, names))| spec(name, about, &names.iter().map(String::as_str).collect::<Vec<_>>()))
            .collect();
        let mut specs: Vec<_> = specs.iter().collect();
        let query = Query::new(&query);
        let found = ranked(&query, &specs, limit);
        prop_assert!(found.len() <= limit);
        prop_assert!(!query.is_empty() || found.is_empty());
        let names: std::collections::BTreeSet<_> = found.iter().map(|spec| spec.name()).collect();
        prop_assert_eq!(names.len(), found.len());
        // Fewer results are the beginning of more.
        let all = ranked(&query, &specs, usize::MAX);
        prop_assert_eq!(&all[..found.len()], &found[..]);
        prop_assert!(found.len() == limit || found.len() == all.len());
        let turns = if specs.is_empty() { 0 } else { turn % specs.len() };
        specs.rotate_left(turns);
        prop_assert_eq!(&ranked(&query, &specs, limit), &found);
        prop_assert!(results(&found).len() <= 2 * RESULTS);
        prop_assert!(overview(&specs).len() < 4_000);
    }

    /// Whatever a tool declares, what is shown is JSON of a bounded size that names each tool.
    #[test]
    fn issue_15_results_are_bounded(sizes in prop::collection::vec((0usize..2_000, 0usize..700), 1..21)) {
        let specs: Vec<_> = sizes
            .iter()
            .enumerate()
            .map(|(place, (about, fields))| {
                let fields: Vec<_> = (0..*fields).map(|field| format!("\u{1}{field}")).collect();
                let fields: Vec<_> = fields.iter().map(String::as_str).collect();
                spec(&format!("t{place}"), &"é\n".repeat(*about), &fields)
            })
            .collect();
        let specs: Vec<_> = specs.iter().collect();
        let text = results(&specs);
        prop_assert!(text.len() < 2 * RESULTS, "{}", text.len());
        let shown: serde_json::Value = serde_json::from_str(&text).unwrap();
        let count = |key: &str| shown[key].as_array().map_or(0, Vec::len);
        prop_assert_eq!(count("tools") + count("more"), specs.len());
        prop_assert!(count("tools") > 0);
    }
}

#[test]
fn the_two_tools_are_the_same_whatever_is_behind_them() {
    use entourage_core::tool::{Tools, Toolset};
    use entourage_testkit::FakeTool;

    use crate::ToolsetExt;

    let set = |names: &[&str]| {
        Tools::new(names.iter().map(|name| Arc::new(FakeTool::new(name)) as Arc<dyn Tool>))
            .unwrap()
            .deferred()
    };
    let (none, some) = (set(&[]), set(&["a", "use_tool", "zebra"]));
    assert_eq!(none.tools().specs(), some.tools().specs());
    assert!(some.tools().is(&some.tools()), "made once");
    let names: Vec<_> = some.tools().iter().map(|tool| tool.spec().name().to_owned()).collect();
    assert_eq!(names, ["a", "find_tools", "use_tool", "zebra"]);
    // Combinators keep it deferred.
    let kept = some.filtered(|spec| spec.name() != "a").tools();
    assert_eq!(kept.specs().iter().map(ToolSpec::name).collect::<Vec<_>>(), ["find_tools", "use_tool"]);
    assert!(kept.get("a").is_none() && kept.get("zebra").is_some_and(|tool| tool.spec().is_deferred()));
}
