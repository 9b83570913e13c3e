//! Forms, names and texts by tables; folders on the disk, hostile ones among them.

#[cfg(unix)]
use std::{collections::BTreeMap, fs, path::PathBuf};

use serde_json::{Value, json};

use super::document::{Form, check_name, read};
#[cfg(unix)]
use super::{AgentFile, AgentFolders, FoundAgents};
use crate::invisible::visible;

fn settings(form: Form, text: &str) -> Result<Value, String> {
    read("scout", form, text.as_bytes()).map(|(settings, instructions)| json!([settings, instructions]))
}

#[test]
fn ce05_both_forms_of_a_file_say_the_same() {
    let said =
        json!([{"description": "Looks.", "tools": ["view", "grep"], "model": "small"}, "You look.\n\nWell."]);
    for (form, text) in [
        (
            Form::Markdown,
            "---\ndescription: Looks.\ntools: [view, grep]\nmodel: small\n---\n\nYou look.\n\nWell.\n",
        ),
        (
            Form::Markdown,
            "\u{feff}---\r\nname: scout\r\ndescription: Looks.\r\nmodel: small\r\ntools:\r\n- view\r\n- grep\r\n---\r\nYou look.\r\n\r\nWell.",
        ),
        (
            Form::Toml,
            "description = \"Looks.\"\ntools = [\"view\", \"grep\"]\nmodel = \"small\"\ninstructions = \"\"\"\nYou look.\n\nWell.\n\"\"\"\n",
        ),
        (
            Form::Toml,
            "\u{feff}name = 'scout'\r\ndescription = 'Looks.'\r\nmodel = 'small'\r\ntools = ['view', 'grep']\r\ninstructions = '''You look.\r\n\r\nWell.'''\r\n",
        ),
    ] {
        assert_eq!(settings(form, text).unwrap(), said, "{text}");
    }
}

#[test]
fn ce05_flaws_of_a_file_name_their_line_and_the_next_step() {
    for (form, text, part) in [
        (Form::Markdown, "You look.", "line 1: the file does not begin with front matter"),
        (Form::Markdown, "---\nmodel: a\nmodel: b\n---\n", "line 3: `model` stands there a second time"),
        (Form::Markdown, "---\nmodel:\n---\n", "line 2: `model` has no value"),
        (Form::Markdown, "---\ninstructions: a\n---\n", "line 2: the text behind"),
        (Form::Markdown, "---\nteam:\n  lead: a\n---\n", "line 3: the text has a colon"),
        (Form::Markdown, "---\nname: other\n---\n", "the name is `other` and the file is `scout`"),
        (Form::Markdown, "---\ntools: [vi\u{200b}ew]\n---\n", "`tools` holds a character that nobody sees"),
        (Form::Markdown, "---\nmodel: a\0\n---\n", "no UTF-8 text"),
        (Form::Toml, "model = 'a'\nmodel = 'b'", "line 2: duplicate key"),
        (Form::Toml, "model = ", "line 1: "),
        (Form::Toml, "when = 2026-01-01", "`when` holds a date"),
        (Form::Toml, "share = nan", "`share` holds a date or a number that is not finite"),
        (Form::Toml, "instructions = 3", "`instructions` is no text"),
        (Form::Toml, "name = 3", "the name is `no text`"),
        (Form::Toml, "[team]\n'le\u{202e}ad' = 1", "`team` holds a character that nobody sees"),
    ] {
        let problem = settings(form, text).unwrap_err();
        assert!(problem.contains(part), "{text}: {problem}");
    }
    let bytes = read("scout", Form::Toml, b"model = '\xff'").unwrap_err();
    assert!(bytes.contains("save it as UTF-8"), "{bytes}");
}

#[test]
fn cw18_names_of_agents_have_one_spelling() {
    for name in ["a", "scout", "code-reviewer_2", &"a".repeat(48)] {
        assert_eq!(check_name(name), Ok(()), "{name}");
    }
    for name in ["", "Scout", "2a", "-a", "a b", "a.b", "é", "a/b", "..", &"a".repeat(49), "a\u{200b}"] {
        assert!(check_name(name).is_err(), "{name}");
    }
    for (file, form) in [
        ("scout.md", Some(("scout", Form::Markdown))),
        ("scout.TOML", Some(("scout", Form::Toml))),
        ("README.md", None),
        ("scout.txt", None),
        ("scout", None),
    ] {
        assert_eq!(Form::of(file), form, "{file}");
    }
}

#[test]
fn ce05_instructions_hold_nothing_that_nobody_sees() {
    assert_eq!(visible("a\u{200b}b\u{e0041}\u{1b}[1m\r\nc\t\u{202e}d é 😀"), "ab[1m\nc\td é 😀");
}

/// The readers of TOML bound brackets and the parts of a key, each alone.
#[test]
fn attack_46_no_spelling_nests_deeper_than_a_file_may() {
    let (keys, tables) = ("a.".repeat(75), 75);
    let inline = format!("{{{keys}a=").repeat(tables);
    let ends = "}".repeat(tables);
    let lists = format!("[{{{keys}a=").repeat(35);
    let list_ends = "}]".repeat(35);
    let lines: String =
        (2..60).map(|n| format!("[{}]\nb = {inline}1{ends}\n", "a.".repeat(n) + "b")).collect();
    for text in [
        format!("a = {inline}1{ends}"),
        format!("[{keys}a]\n{keys}a = {inline}1{ends}"),
        format!("[[{keys}a]]\nb = {inline}1{ends}"),
        format!("a = {lists}1{list_ends}"),
        format!("a = [\n1, # ]]]\n{lists}1{list_ends}\n]"),
        format!("\"a.\".'b' . c = {inline}\"}}}}\"{ends}"),
        lines,
        format!("{keys}a = 1"),
        format!("a = {}{}", "[".repeat(60), "]".repeat(60)),
    ] {
        let problem = settings(Form::Toml, &text).unwrap_err();
        assert!(problem.starts_with("line ") && problem.contains("nested"), "{problem}: {text}");
        assert!(problem.len() < 300, "{problem}");
    }
    // Dots and brackets in texts and comments, and in many keys side by side, nest nothing.
    let many: String = (0..2_000).map(|n| format!("k{n} = 1.5\n")).collect();
    for text in [
        format!("instructions = \"\"\"{}\"\"\"\n", "a.b[{ ".repeat(1_000)),
        format!("instructions = '''{}'''\n", "a.b[{ \n".repeat(1_000)),
        format!("description = \"{}\" # {}\n", "a.b[{ \\\" ".repeat(100), "a.b[{ ".repeat(1_000)),
        format!("tools = [{}]\n", "'a.b[', ".repeat(200)),
        "[team]\nmembers = [{ name = 'a', specialist_in = ['chat'] }, 'b']\n".to_owned(),
        many,
    ] {
        settings(Form::Toml, &text).unwrap();
    }
}

#[test]
fn attack_46_a_problem_repeats_little_of_its_file() {
    let long = "a".repeat(30_000);
    for text in [
        format!("---\n{long}: a\n{long}: b\n---\n"),
        format!("---\n{long}:\n---\n"),
        format!("---\nname: {long}\n---\n"),
        format!("---\n{long}: a\u{200b}\n---\n"),
    ] {
        let problem = settings(Form::Markdown, &text).unwrap_err();
        assert!(problem.len() < 400, "{}", problem.len());
    }
}

/// A tree of files for one test.
#[cfg(unix)]
struct Tree(tempfile::TempDir);

#[cfg(unix)]
impl Tree {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn agent(&self, path: &str, instructions: &str) {
        self.write(path, format!("---\ndescription: Works.\n---\n{instructions}"));
    }

    fn folders(&self) -> AgentFolders {
        AgentFolders::new().with_user(self.at("user")).with_project(self.at("project"), [".agents"])
    }

    async fn read(&self) -> FoundAgents {
        self.folders().read().await.unwrap()
    }
}

/// The name of each agent with its instructions or its problem.
#[cfg(unix)]
fn told(found: &FoundAgents) -> Vec<(&str, &str)> {
    let all = found.agents.iter();
    all.map(|(name, file)| match file {
        Ok(file) => (name.as_str(), file.instructions.as_str()),
        Err(problem) => (name.as_str(), problem.as_str()),
    })
    .collect()
}

#[cfg(unix)]
#[tokio::test]
async fn cw18_a_file_of_the_project_overrides_one_of_the_user_also_where_it_cannot_be_read() {
    let tree = Tree::new();
    tree.agent("user/scout.md", "User.");
    tree.agent("user/writer.md", "User.");
    tree.agent("user/judge.md", "User.");
    tree.agent("project/.agents/scout.md", "Project.");
    tree.write("project/.agents/writer.md", "no front matter");
    tree.write("project/.agents/judge.toml", "description = 'Judges.'\ninstructions = 'Judge.'");
    tree.agent("project/.agents/README.md", "No agent.");
    tree.agent("project/.agents/.hidden.md", "No agent.");
    tree.agent("project/.agents/below/deep.md", "No agent.");
    tree.write("project/.agents/notes.txt", "No agent.");
    let found = tree.read().await;
    let told = told(&found);
    assert_eq!((told[0], told[1]), (("judge", "Judge."), ("scout", "Project.")));
    assert!(
        told[2].0 == "writer" && told[2].1.contains("writer.md`: line 1: the file does not begin"),
        "{told:?}"
    );
    assert_eq!((told.len(), found.problems.len()), (3, 0));
    let files: Vec<_> = found.agents.values().flatten().map(|file| file.from_project).collect();
    assert_eq!(files, [true, true]);
}

#[cfg(unix)]
#[tokio::test]
async fn attack_21_what_is_no_plain_file_of_fair_size_is_a_problem() {
    let tree = Tree::new();
    tree.write("secret.md", "---\ndescription: Secret.\n---\nSecret.");
    tree.agent("user/twice.md", "One.");
    tree.write("user/twice.toml", "description = 'Two.'\ninstructions = 'Two.'");
    tree.agent("user/Scout.md", "Other case.");
    tree.agent("user/scout.md", "Scout.");
    tree.write("user/huge.md", vec![b'a'; 50 << 20]);
    tree.write("user/deep.toml", format!("a = {}", "[".repeat(60_000)));
    tree.write("user/dotted.toml", format!("{}a = 1", "a.".repeat(30_000)));
    tree.write("user/inline.toml", format!("a = {}", "{a=".repeat(20_000)));
    std::os::unix::fs::symlink(tree.at("secret.md"), tree.at("user/link.md")).unwrap();
    std::process::Command::new("mkfifo").arg(tree.at("user/pipe.md")).status().unwrap();
    let found = tree.read().await;
    let told: BTreeMap<_, _> = told(&found).into_iter().collect();
    for (name, part) in [
        ("twice", "another file of this folder has the same name"),
        ("scout", "Scout."),
        ("huge", "the file has 52428800 bytes"),
        ("link", "it is a link, which is not followed"),
        ("pipe", "it is no regular file"),
        ("deep", "line 1: "),
        ("dotted", "line 1: "),
        ("inline", "line 1: "),
    ] {
        assert!(told[name].contains(part), "{name}: {}", told[name]);
        assert!(told[name].len() < 400, "{name}");
    }
    assert!(found.problems[0].contains("Scout.md`: `Scout` is no name"), "{:?}", found.problems);
    // A folder that is a link leads out of the project, one of the user is followed.
    fs::create_dir_all(tree.at("project")).unwrap();
    std::os::unix::fs::symlink(tree.at("user"), tree.at("project/.agents")).unwrap();
    std::os::unix::fs::symlink(tree.at("user"), tree.at("home")).unwrap();
    let project = AgentFolders::new().with_project(tree.at("project"), [".agents"]).read().await.unwrap();
    assert!(project.agents.is_empty() && project.problems.len() == 1, "{project:?}");
    let user = AgentFolders::new().with_user(tree.at("home")).read().await.unwrap();
    assert_eq!(user.agents.len(), found.agents.len());
    let outside = AgentFolders::new().with_project(tree.at("project"), ["../user"]).read().await.unwrap();
    assert!(outside.agents.is_empty() && outside.problems.len() == 1, "{outside:?}");
    for n in 0..250 {
        tree.agent(&format!("many/a{n}.md"), "One of many.");
    }
    let many = AgentFolders::new().with_user(tree.at("many")).read().await.unwrap();
    assert_eq!((many.agents.len(), many.problems.len()), (200, 1));
}

#[cfg(unix)]
#[tokio::test]
async fn ce05_a_folder_beyond_its_bounds_never_leaves_the_file_of_an_earlier_one() {
    let tree = Tree::new();
    for name in ["a000", "a199", "other", "zz"] {
        tree.agent(&format!("user/{name}.md"), "The user's.");
    }
    for n in 0..200 {
        tree.agent(&format!("project/many/a{n:03}.md"), "The project's.");
    }
    // Sorted by name: these are beyond the 200.
    for name in ["a199.toml", "zz.md"] {
        tree.write(&format!("project/many/{name}"), "instructions = 'x'");
    }
    for n in 0..1_001 {
        tree.write(&format!("project/wide/{n}.txt"), "");
    }
    std::os::unix::fs::symlink(tree.at("user"), tree.at("project/link")).unwrap();
    let read = async |folder: &str| {
        let folders =
            AgentFolders::new().with_user(tree.at("user")).with_project(tree.at("project"), [folder]);
        folders.read().await.unwrap()
    };
    let many = read("many").await;
    assert!(many.agents["a000"].as_ref().unwrap().from_project);
    assert!(!many.agents["other"].as_ref().unwrap().from_project, "the project has none of this name");
    for (name, file) in [("a199", "a199.toml"), ("zz", "zz.md")] {
        let told = many.agents[name].as_ref().unwrap_err();
        assert!(told.contains(file) && told.contains("more than 200 agents"), "{told}");
    }
    assert_eq!((many.agents.len(), many.problems.len()), (202, 1), "{:?}", many.problems);
    for (folder, part) in [("wide", "more than 1,000 entries"), ("link", "cannot be opened")] {
        let found = read(folder).await;
        assert_eq!((found.agents.len(), found.problems.len()), (4, 1));
        for (name, told) in &found.agents {
            let told = told.as_ref().unwrap_err();
            assert!(told.contains(&format!("may describe `{name}` anew")) && told.contains(part), "{told}");
        }
    }
    let gone = read("gone").await;
    assert!(gone.problems.is_empty() && gone.agents.values().all(Result::is_ok));
}

#[cfg(unix)]
#[tokio::test]
async fn ce05_context_files_of_a_project_are_texts_in_it() {
    let tree = Tree::new();
    tree.write("secret.md", "Secret.");
    tree.write("project/.env", "KEY=1");
    tree.write("project/docs/rules.md", "Be\u{200b} kind.\r\n");
    tree.write("project/AGENTS.md", "Look.");
    std::os::unix::fs::symlink(".env", tree.at("project/env.md")).unwrap();
    std::os::unix::fs::symlink("AGENTS.md", tree.at("project/alias.md")).unwrap();
    std::os::unix::fs::symlink(tree.at("secret.md"), tree.at("project/out.md")).unwrap();
    let folders = tree.folders();
    let complete = async |context: Value, from_project: bool| {
        let mut file = AgentFile::new("scout", "scout.md", "You look.");
        file.from_project = from_project;
        file.settings.insert("context".to_owned(), context);
        folders.complete(&file).await.map_err(|error| error.message().to_owned())
    };
    assert_eq!(
        complete(json!(["docs/rules.md", "AGENTS.md", "gone.md"]), true).await.unwrap(),
        "You look.\n\nThe file `AGENTS.md` says:\n\nLook.\n\nThe file `docs/rules.md` says:\n\nBe kind."
    );
    let outside = tree.at("secret.md").to_str().unwrap().to_owned();
    for (context, part) in [
        (json!([outside.as_str()]), "name a text of the project"),
        (json!(["../secret.md"]), "name a text of the project"),
        (json!(["docs/../../secret.md"]), "name a text of the project"),
        (json!(["~/secret.md"]), "name a text of the project"),
        (json!(["$HOME/secret.md"]), "name a text of the project"),
        (json!([".env"]), "name a text of the project"),
        (json!([".git/config"]), "name a text of the project"),
        (json!(["docs"]), "name a text of the project"),
        (json!(["env.md"]), "it is a link"),
        (json!(["out.md"]), "it is a link"),
        (json!([3]), "no list of paths"),
        (json!(vec!["a.md"; 201]), "more than 200 paths"),
    ] {
        let error = complete(context.clone(), true).await.unwrap_err();
        assert!(error.contains(part), "{context}: {error}");
    }
    assert!(complete(json!([outside]), false).await.unwrap().ends_with("Secret."));
    // The project made the link that a file of the user names.
    assert_eq!(complete(json!(["env.md"]), false).await.unwrap(), "You look.");
    assert!(complete(json!(["alias.md"]), false).await.unwrap().ends_with("Look."));
    assert_eq!(complete(json!("gone.md, lost.md"), true).await.unwrap(), "You look.");
}
