//! Errors and bounds of templates; `tests/it/prompts.rs` tests the contract.

#![allow(clippy::unwrap_used, clippy::panic)]

use entourage_core::{
    ErrorKind,
    context::{GitFacts, PromptFacts},
};
use serde_json::json;

use crate::prompt::{registry::Templates, template::PromptTemplate};

fn template(source: &str) -> PromptTemplate {
    PromptTemplate::new("t", 1, source).unwrap()
}

fn text(source: &str, facts: &PromptFacts) -> String {
    template(source).render(facts).unwrap().text().to_owned()
}

fn error(source: &str, facts: &PromptFacts) -> (ErrorKind, String) {
    let error = template(source).render(facts).unwrap_err();
    (error.kind(), error.message().to_owned())
}

#[test]
fn a_broken_source_is_refused_at_once_and_names_the_line() {
    for (source, line) in [("{{ x", 1), ("a\n{% if x %}b", 2), ("\n\n{% nonsense %}", 3), ("{{ x | }}", 1)] {
        let error = PromptTemplate::new("t", 1, source).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{source}");
        assert!(error.message().contains(&format!("line {line} ")), "{source}: {error}");
    }
    let long = PromptTemplate::new("t", 1, "x".repeat(256 * 1024 + 1)).unwrap_err();
    assert_eq!(long.kind(), ErrorKind::TooLarge);
    PromptTemplate::new("t", 1, "x".repeat(256 * 1024)).unwrap();
    for name in ["", "a b", "a@1", "a#b", "ä", &"n".repeat(65)] {
        assert_eq!(PromptTemplate::new(name, 1, "").unwrap_err().kind(), ErrorKind::InvalidInput, "{name}");
    }
}

#[test]
fn nothing_can_be_taken_in_from_elsewhere() {
    for source in
        ["{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}", "{% macro m() %}{% endmacro %}"]
    {
        assert_eq!(
            PromptTemplate::new("t", 1, source).unwrap_err().kind(),
            ErrorKind::InvalidInput,
            "{source}"
        );
    }
}

#[test]
fn facts_are_data_and_are_not_escaped() {
    let facts = PromptFacts::new()
        .with_skills("<b>&\"{{ model }}{% if x %}")
        .with_variable("n", json!(["a", {"k": 1}]));
    assert_eq!(text("{{ skills }}", &facts), "<b>&\"{{ model }}{% if x %}");
    assert_eq!(text("{{ n[0] }} {{ n[1].k }} {{ n|length }}", &facts), "a 1 2");
    assert_eq!(text("{{ n|tojson }}", &facts), "[\"a\", {\"k\": 1}]");
}

#[test]
fn lines_of_block_tags_leave_nothing_behind() {
    let source = "a\r\n  {% if model %}\r\nb {{ model }}\r\n  {% endif %}\r\nc\r\n";
    assert_eq!(text(source, &PromptFacts::new().with_model("m")), "a\nb m\nc");
    assert_eq!(template(source).id(), template(&source.replace('\r', "")).id());
}

#[test]
fn a_hidden_miss_is_an_error_too() {
    let none =
        PromptFacts::new().with_variable("empty", json!(null)).with_variable("map", json!({"a": null}));
    for source in [
        "{{ nowhere }}",
        "{{ nowhere.deep }}",
        "{{ empty }}",
        "{{ map.a }}",
        "{{ map.b }}",
        "{{ git }}",
        "{{ git.branch }}",
        "{% if nowhere %}x{% endif %}",
        "{% for x in nowhere %}{% endfor %}",
        "{{ nowhere ~ 'x' }}",
        "{{ nowhere|upper }}",
    ] {
        assert_eq!(error(source, &none).0, ErrorKind::InvalidInput, "{source}");
    }
    assert_eq!(
        error("one\ntwo {{ nowhere }}", &none).1,
        "line 2 of the template asks for `nowhere`, which the facts do not have; set it, or guard it with `is defined`"
    );
    assert_eq!(text("{% if nowhere is defined %}x{% else %}y{% endif %}", &none), "y");
    assert_eq!(text("{% if git %}x{% else %}y{% endif %}", &none), "y");
}

#[test]
fn an_error_tells_nothing_of_the_facts() {
    let facts = PromptFacts::new().with_config(json!({"token": "s3cret"})).with_model("s3cret");
    for source in
        ["{{ model }}{{ nowhere }}", "{{ config.token + 1 }}", "{{ model|nothing }}", "{{ model.x.y }}"]
    {
        let Err(error) = template(source).render(&facts) else { panic!("{source}") };
        assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
    }
}

#[test]
fn text_and_work_are_bounded() {
    let facts = PromptFacts::new().with_skills("x".repeat(600_000));
    text("{{ skills }}", &facts);
    assert_eq!(error("{{ skills }}{{ skills }}", &facts).0, ErrorKind::TooLarge);
    let busy = "{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}";
    let (kind, told) = error(busy, &facts);
    assert_eq!(kind, ErrorKind::TooLarge);
    assert!(told.contains("instructions"), "{told}");
    let deep = format!("{}x{}", "{% if true %}".repeat(5_000), "{% endif %}".repeat(5_000));
    if let Ok(deep) = PromptTemplate::new("t", 1, deep) {
        assert!(deep.render(&facts).is_ok(), "blocks that lie in each other do not recurse");
    }
    let deep = format!("{{{{ {}1{} }}}}", "(".repeat(100_000), ")".repeat(100_000));
    assert_eq!(PromptTemplate::new("t", 1, deep).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn an_added_variable_takes_no_facts_name() {
    let facts = PromptFacts::new().with_variable("git", "mine");
    assert!(error("x", &facts).1.contains("`git` is a fact of its own"));
    for name in serde_json::to_value(
        PromptFacts::new()
            .with_provider("")
            .with_model("")
            .with_working_dir("")
            .with_platform("")
            .with_date("")
            .with_skills("")
            .with_config(json!(1)),
    )
    .unwrap()
    .as_object()
    .unwrap()
    .keys()
    {
        assert_eq!(
            error("x", &PromptFacts::new().with_variable(name, 1)).0,
            ErrorKind::InvalidInput,
            "{name}"
        );
    }
}

#[test]
fn git_is_cut_to_what_a_prompt_shows() {
    let lines: Vec<_> = (0..30).map(|n| format!("?? file-{n}")).collect();
    let twenty = GitFacts::new("main", lines.iter().take(20).map(String::as_str), ["a", "b", "c", "d"]);
    assert_eq!(twenty.status.lines().count(), 20);
    assert_eq!(twenty.commits, ["a", "b", "c"]);
    let more = GitFacts::new("main", lines.iter().map(String::as_str), []);
    assert_eq!(more.status.lines().count(), 21);
    assert!(more.status.ends_with("?? file-19\n..."));
    assert_eq!(GitFacts::new("main", ["", " "], []).status, "clean");
    let wild = GitFacts::new("a\u{1b}[2Jb", [], ["x\u{7}y", &"ä".repeat(300)]);
    assert_eq!((wild.branch.as_str(), wild.commits[0].as_str()), ("a [2Jb", "x y"));
    assert_eq!(wild.commits[1], format!("{}...", "ä".repeat(200)));
}

#[test]
fn working_directories_have_forward_slashes() {
    for (given, shown) in [
        (r"C:\work\site", "C:/work/site"),
        (r"\\?\C:\work", "C:/work"),
        (r"\\server\share", "//server/share"),
        ("/home/a", "/home/a"),
        (r"/home/odd\name", r"/home/odd\name"),
    ] {
        assert_eq!(text("{{ working_dir }}", &PromptFacts::new().with_working_dir(given)), shown);
    }
}

#[test]
fn ids_are_found_and_pinned() {
    let (one, two) =
        (PromptTemplate::new("a", 9, "one").unwrap(), PromptTemplate::new("a", 10, "two").unwrap());
    let mut templates = Templates::new();
    templates.pin(two.id()).unwrap();
    templates.register(one.clone()).unwrap();
    assert_eq!(templates.get("a").unwrap().id(), one.id(), "of a pinned id the text is not known");
    assert!(templates.get(two.id()).is_none());
    templates.register(two.clone()).unwrap();
    assert_eq!(templates.get("a").unwrap().id(), two.id(), "10 is newer than 9");
    assert_eq!(templates.get(one.id()).unwrap().source(), "one");
    assert!(templates.get("b").is_none() && templates.get("a@9#000000000000").is_none());
    assert_eq!(templates.iter().map(PromptTemplate::version).collect::<Vec<_>>(), [9, 10]);
    assert_eq!(templates.pin("a@9#000000000000").unwrap_err().kind(), ErrorKind::Conflict);
    for broken in ["", "a", "a@9", "a@09#000000000000", "a@9#00", "a b@9#000000000000", "a@9#00000000000G"] {
        assert_eq!(templates.pin(broken).unwrap_err().kind(), ErrorKind::InvalidInput, "{broken}");
    }
}
