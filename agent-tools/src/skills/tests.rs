//! Front matter, names and listings by tables.

use std::{fs, sync::Arc};

use entourage_core::message::{Arguments, History, Message, ToolCall, ToolResult};
use proptest::prelude::*;

use super::{
    Skill,
    document::{self, Document, LARGEST, line},
    folder::{self, Folder},
    listing, tool,
};

/// The description in a front matter, or the number of the line that is refused and the reason.
fn description(front_matter: &str) -> Result<String, (usize, String)> {
    let text = format!("---\nname: a\n{front_matter}\n---\nBody\n");
    let document = Document::parse(&text).map_err(|flaw| (flaw.line, flaw.text))?;
    assert_eq!((document.name.text.as_str(), document.body), ("a", "Body\n"));
    Ok(document.description.text)
}

#[test]
fn ce04_texts_of_front_matter_are_read_as_yaml_has_them() {
    for (given, text) in [
        ("description: Plain text.", "Plain text."),
        ("description:    Plain text.   ", "Plain text."),
        ("description: it's a \"b\" #no comment? a#b", "it's a \"b\""),
        ("description: a # a comment", "a"),
        ("description: a:b http://c.example/d", "a:b http://c.example/d"),
        ("description: -a", "-a"),
        ("description: two\n  lines\n\n  and a paragraph", "two lines\nand a paragraph"),
        ("description:\n  in the next\n  line", "in the next line"),
        ("description: a\n# a comment\n\nlicense: MIT", "a"),
        ("description: \"a \\\"b\\\" \\\\ \\n \\u00e9 \\x41 \\U0001F600\"", "a \"b\" \\ \n é A 😀"),
        ("description: \"a: b\" # a comment", "a: b"),
        ("description: \"one\n  two\n\n  three\"", "one two\nthree"),
        ("description: \"one \\\n  two\"", "one two"),
        ("description: \"ends in \\\\\n  more\"", "ends in \\ more"),
        ("description: 'it''s: \\n'", "it's: \\n"),
        ("description: 'one\n  two'", "one two"),
        ("description:\n  'quoted below'", "quoted below"),
        ("description: |\n  one: a\n    two # b\n\n  three", "one: a\n  two # b\n\nthree"),
        ("description: |2-\n    one", "  one"),
        ("description: >\n  one\n  two\n\n  three\n    more\n  end", "one two\nthree\n  more\nend"),
        ("description: >- # a comment\n\n  one\n  two\n", "\none two"),
        ("description: >+\n  one\nname-of: x", "one"),
        ("description: 'x'\nmetadata:\n  name: b\n  description: |\n    c\nlist:\n- a\n- name: b", "x"),
        ("allowed-tools: [a, b]\nx: {name: b}\ny: &a *b !c\ndescription: last", "last"),
        ("description:", ""),
        ("description: ~", ""),
        ("description: null # none", ""),
    ] {
        assert_eq!(description(given).as_deref(), Ok(text), "{given}");
        assert_eq!(description(&given.replace('\n', "\r\n")).as_deref(), Ok(text), "{given}, CRLF");
    }
}

#[test]
fn ce04_a_line_that_is_not_understood_is_named() {
    for (given, line, reason) in [
        ("description: Use it: always", 3, "colon"),
        ("description: one\n  two: three", 4, "colon"),
        ("description: ends with:", 3, "colon"),
        ("description: [a, b]", 3, "quote"),
        ("description: {a: b}", 3, "quote"),
        ("description: &anchor a", 3, "quote"),
        ("description: *alias", 3, "quote"),
        ("description: !tag a", 3, "quote"),
        ("description: @a", 3, "quote"),
        ("description: `a`", 3, "quote"),
        ("description: - a", 3, "quote"),
        ("description:\n- a", 4, "not indented"),
        ("description: a # comment\n  b", 4, "comment"),
        ("description: one\n# a comment\n  two", 4, "not indented"),
        ("description: \"no end", 3, "no end"),
        ("description: 'no end''", 3, "no end"),
        ("description: \"a\" b", 3, "more behind"),
        ("description: 'a'b", 3, "more behind"),
        ("description: \"\\q\"", 3, "escape"),
        ("description: \"\\ud800\"", 3, "escape"),
        ("description: \"\\u12\"", 3, "escape"),
        ("description: >x\n  a", 3, "next line"),
        ("description: | a", 3, "next line"),
        ("description: |0\n  a", 3, "next line"),
        ("description: |\n    one\n  two", 5, "align"),
        ("description: |\n\tone", 4, "tab"),
        ("\tdescription: a", 3, "tab"),
        ("description", 3, "key: value"),
        ("description:a", 3, "key: value"),
        ("\"description\": a", 3, "key: value"),
        ("? description", 3, "key: value"),
        ("description: a\ndescription: b", 4, "second time"),
        ("description: a\nname: b", 4, "second time"),
        ("license: MIT", 1, "no `description`"),
    ] {
        let (at, text) = description(given).unwrap_err();
        assert!(at == line && text.contains(reason), "{given}: line {at}: {text}");
    }
    for (text, reason) in [
        ("", "does not begin"),
        ("name: a\n", "does not begin"),
        (" ---\nname: a\n---\n", "does not begin"),
        ("---", "no end"),
        ("---\nname: a\ndescription: b", "no end"),
        ("---\n---\n", "no `name`"),
        ("---\n  name: a\n---\n", "a key must come first"),
    ] {
        let flaw = Document::parse(text).unwrap_err();
        assert!(flaw.text.contains(reason), "{text}: {flaw:?}");
    }
    let whole = Document::parse("\u{feff}--- \r\n# c\n\nname: a\ndescription: b\n...\n---\nrest").unwrap();
    assert_eq!(whole.body, "---\nrest");
}

#[test]
fn ce04_names_and_descriptions_are_checked() {
    let read = |folder: &str, name: &str, description: &str| {
        let text = format!("---\nname: {name}\ndescription: {description}\n---\n");
        document::read(folder, text.as_bytes()).map(|it| it.description)
    };
    let longest = "a".repeat(64);
    for name in ["a", "A1", "a-b-C", "0", &longest] {
        assert_eq!(read(name, name, "d").as_deref(), Ok("d"), "{name}");
    }
    let long = "a".repeat(65);
    for name in [&long, "-a", "a-", "a--b", "a_b", "a b", "a.b", "ä", "'../a'", "'a/b'", "''", "'a\u{200b}'"]
    {
        let problem = read(name.trim_matches('\''), name, "d").unwrap_err();
        assert!(problem.starts_with("line 2: ") && problem.contains("no name"), "{name}: {problem}");
        assert!(problem.len() < 500, "{problem}");
    }
    let problem = read("b", "a", "d").unwrap_err();
    assert!(problem.contains("the name is `a` and the folder is `b`"), "{problem}");
    assert!(read("a", "A", "d").is_err());
    let most = "é".repeat(1_024);
    assert_eq!(read("a", "a", &most).as_deref(), Ok(most.as_str()));
    for (description, reason) in [
        (format!("{most}é"), "line 3: the description has 1025 characters"),
        (String::new(), "line 3: the description is empty"),
        ("\"\\u200b \\n\"".to_owned(), "line 3: the description is empty"),
    ] {
        let problem = read("a", "a", &description).unwrap_err();
        assert!(problem.starts_with(reason), "{problem}");
    }
    for (content, reason) in
        [(vec![b'a'; LARGEST + 1], "256 KiB"), (vec![0xff], "no UTF-8"), (b"---\0".to_vec(), "no UTF-8")]
    {
        assert!(document::read("a", &content).unwrap_err().contains(reason));
    }
}

#[test]
fn ce04_texts_from_outside_are_one_line_without_what_nobody_sees() {
    for (given, shown) in [
        ("a\nb\r\n\tc  d", "a b c d"),
        ("a\u{1b}[2Jb\u{0}c", "a [2Jb c"),
        ("a\u{202e}b\u{200b}c\u{feff}d\u{e0041}\u{e0042}", "abcd"),
        ("a\u{2028}b\u{85}c\u{a0}d", "a b c d"),
        ("\u{200d} ", ""),
        ("héllo 🚀", "héllo 🚀"),
    ] {
        assert_eq!(line(given), shown, "{given:?}");
    }
}

#[test]
fn ce04_paths_of_a_model_stay_in_the_folder_of_the_skill() {
    for (given, path) in
        [("a.md", "a.md"), ("./a//b.md", "a/b.md"), ("a/../b.md", "b.md"), ("..a", "..a"), ("a b", "a b")]
    {
        assert_eq!(folder::inside(given).as_deref().and_then(std::path::Path::to_str), Some(path), "{given}");
    }
    for given in ["", ".", "..", "../a", "a/../..", "/etc/passwd", "a\0", "/", "a/..", &"a/".repeat(3_000)] {
        assert_eq!(folder::inside(given), None, "{given}");
    }
}

/// So many skills with names of three digits.
fn skills(count: usize, description: &str) -> Vec<Skill> {
    let keep = tempfile::tempdir().unwrap();
    for n in 0..count {
        let folder = keep.path().join(format!("s{n:03}"));
        fs::create_dir(&folder).unwrap();
        let text = format!("---\nname: s{n:03}\ndescription: {description}\n---\n");
        fs::write(folder.join("SKILL.md"), text).unwrap();
    }
    let (found, problems) = folder::read(&[keep.path().to_owned()]);
    assert!(problems.is_empty(), "{problems:?}");
    found
        .into_values()
        .map(|it| {
            Skill::new(it.name, it.description, it.folder, Some(&fs::canonicalize(keep.path()).unwrap()))
        })
        .collect()
}

#[test]
fn ce04_a_listing_is_bounded_and_descriptions_are_cut_alike() {
    assert_eq!(listing::text([].iter()), "");
    let few = listing::text(skills(2, "Does it.").iter());
    assert!(
        few.ends_with("\n- s000 (`s000/SKILL.md`): Does it.\n- s001 (`s001/SKILL.md`): Does it."),
        "{few}"
    );

    let long = "é".repeat(1_024);
    let many = listing::text(skills(50, &long).iter());
    let lengths: Vec<_> = many.lines().skip(1).map(|line| line.matches('é').count()).collect();
    assert_eq!(lengths, vec![256; 50], "the longest with room for all");
    assert!(many.len() <= 32 << 10, "{}", many.len());

    let most = listing::text(skills(230, "Does it.").iter());
    assert_eq!(most.lines().count(), 202);
    assert!(
        most.ends_with("\n[30 more are left out, since a listing has at most 200 skills and 32 KiB]"),
        "{most}"
    );
    assert!(most.len() <= 32 << 10, "{}", most.len());
}

#[test]
fn ce04_only_a_result_that_is_still_shown_counts_as_loaded() {
    let call = ToolCall::new("1", "skill", Arguments::from(&serde_json::json!({})));
    let with = |result: ToolResult| {
        let mut history = History::default();
        history.push(Message::user("the text"));
        history.push(Message::tool([result]));
        tool::holds(&history, "the text")
    };
    assert!(with(ToolResult::text(&call, "the text")));
    assert!(!with(ToolResult::text(&call, "the text, changed")));
    assert!(!with(ToolResult::text(
        &call,
        "[8 bytes, cleared to save room; call the tool again if you need them]"
    )));
    assert!(!with(ToolResult::error(&call, "the text")));
}

#[cfg(unix)]
#[test]
fn ce04_paths_are_named_as_the_tools_of_a_workspace_name_them() {
    let keep = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(keep.path()).unwrap();
    fs::create_dir_all(root.join("w/real/a")).unwrap();
    fs::create_dir_all(root.join("out/a")).unwrap();
    fs::write(root.join("w/real/a/SKILL.md"), "---\nname: a\ndescription: d\n---\n").unwrap();
    fs::write(root.join("out/a/SKILL.md"), "---\nname: a\ndescription: d\n---\n").unwrap();
    std::os::unix::fs::symlink("real", root.join("w/link")).unwrap();
    std::os::unix::fs::symlink("../out", root.join("w/leads-out")).unwrap();
    let folder = |path: &str| -> Arc<Folder> {
        let (found, problems) = folder::read(&[root.join(path)]);
        assert!(problems.is_empty(), "{problems:?}");
        found.into_values().next().unwrap().folder
    };
    let w = root.join("w");
    let full = |path: &str| root.join(path).to_str().unwrap().to_owned();
    for (path, base, names) in [
        ("w/real", None, vec![full("w/real/a")]),
        ("w/real", Some(&w), vec!["real/a".to_owned()]),
        ("w/link", None, vec![full("w/real/a"), full("w/link/a")]),
        ("w/link", Some(&w), vec!["real/a".to_owned()]),
        ("w/leads-out", Some(&w), vec![full("out/a"), "leads-out/a".to_owned()]),
        ("w/../out", Some(&w), vec![full("out/a")]),
        ("out", Some(&w), vec![full("out/a")]),
    ] {
        assert_eq!(folder(path).names("a", base.map(|it| it.as_path())), names, "{path}");
    }
    assert_eq!(folder("w/real").names("a", Some(&root.join("w/real/a"))), ["."]);
    assert_eq!(folder::below(".", "b/c".as_ref()), "b/c");
}

proptest! {
    #[test]
    fn ce04_any_text_is_a_document_or_a_problem(
        lines in prop::collection::vec(
            prop_oneof![
                "[ \\t]{0,3}[a-z\"'|>#:&*\\\\\\-]{0,6}[: ]{0,2}.{0,12}",
                "description: [\"'|>~]?.{0,20}",
                Just("name: a".to_owned()),
                Just(String::new()),
                Just("---".to_owned()),
            ],
            0..12,
        ),
    ) {
        let text = format!("---\nname: a\n{}\n---\nbody", lines.join("\n"));
        match document::read("a", text.as_bytes()) {
            Ok(it) => {
                prop_assert!(!it.description.is_empty() && it.description.chars().count() <= 1_024);
                prop_assert!(!it.description.contains(char::is_control));
                prop_assert!(text.ends_with(it.body));
            }
            Err(problem) => prop_assert!(!problem.is_empty() && problem.chars().count() < 500),
        }
    }

    #[test]
    fn ce04_any_bytes_are_a_document_or_a_problem(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = document::read("a", &bytes);
    }

    #[test]
    fn ce04_a_quoted_text_comes_back_as_it_was(text in "\\PC{0,60}") {
        // JSON strings are double-quoted texts of YAML, but for pairs of surrogates, which serde never writes.
        let quoted = serde_json::to_string(&text).unwrap();
        prop_assert_eq!(description(&format!("description: {quoted}")), Ok(text.clone()));
        let quoted = text.replace('\'', "''");
        prop_assert_eq!(description(&format!("description: '{quoted}'")), Ok(text));
    }
}
