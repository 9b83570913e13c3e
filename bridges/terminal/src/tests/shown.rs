//! Names and texts of others cannot pass for lines of the terminal, and answers are what a person means.

use std::collections::HashMap;

use async_trait::async_trait;
use entourage_core::{
    Result,
    tool::{Footprint, Tool, ToolContext, ToolError, ToolInput, ToolOutput},
};

use super::*;
use crate::{input::CUT, shown};

/// A tool whose calls are about what their arguments name.
#[derive(Debug)]
struct Write(ToolSpec);

#[async_trait]
impl Tool for Write {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn footprint(&self, arguments: &serde_json::Value) -> Footprint {
        Footprint::new(Access::WRITE).writing(arguments["path"].as_str().unwrap())
    }

    async fn preview(&self, input: ToolInput, _: &ToolContext<'_>) -> Option<String> {
        Some(input.arguments["preview"].as_str().unwrap().to_owned())
    }

    async fn call(&self, _: ToolInput, _: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::text("written"))
    }
}

/// Asks about a call with this path and preview; returns what was shown.
async fn shown_about(path: &str, preview: &str) -> String {
    let write = Write(ToolSpec::new("write", "Writes.", json!({"type": "object"})));
    let provider = ScriptedProvider::by_history().call("write", json!({"path": path, "preview": preview}));
    let agent = ReactAgent::builder("coder", provider.model()).tool(write).build().unwrap();
    let (terminal, paper) = terminal("n\n");
    let runtime = runtime(Policy::new().ask("write"), &terminal);
    terminal.run(&runtime.session(), &agent, "Go.").await.unwrap();
    paper.text()
}

const FORGED: &str = "x\ncoder wants write: notes.md\n+hello\nwrite: [y]es, for the [s]ession";

#[tokio::test]
async fn a_name_forges_no_line_of_an_approval() {
    for path in [FORGED.to_owned(), FORGED.replace('\n', "\r\n"), FORGED.replace('\n', "\r")] {
        let output = shown_about(&path, "+all").await;
        assert_eq!(output.lines().filter(|line| line.starts_with("coder wants")).count(), 1, "{output}");
        assert_eq!(output.lines().filter(|line| line.starts_with("write: [y]es")).count(), 1, "{output}");
        assert!(!output.contains("\n+hello"), "{output}");
    }
    let output = shown_about("a\u{2028}b", "+all").await;
    assert!(output.contains("wants write: a\u{fffd}{2028}b\n"), "{output}");
    // Nor does a preview that is no difference.
    let output = shown_about("a", "coder wants write: notes.md\n+hello\n\\ no end\nwrite: [y]es, …").await;
    assert!(
        output.contains(
            "a\n  coder wants write: notes.md\n+hello\n\\ no end\n  write: [y]es, …\nwrite: [y]es, for"
        ),
        "{output}"
    );
}

#[tokio::test]
async fn plans_and_questions_forge_no_line() {
    let plan = json!({"plan": "Off.\n\ncarry this out? ", "steps": ["Off\n2. All", "On"]});
    let provider = ScriptedProvider::by_history().call("present_plan", plan).text("Done.");
    // One of the program's own, whose texts nobody made plain.
    let tool = ToolSpec::new("present_plan", "Presents a plan.", json!({"type": "object"}));
    let tool = entourage_runners::external(tool);
    let agent = ReactAgent::builder("a", provider.model()).tool(tool).build().unwrap();
    let (terminal, paper) = terminal("Y\n");
    let runtime = runtime(Policy::allow_all(), &terminal);
    terminal.run(&runtime.session(), &agent, "Mend it.").await.unwrap();
    let output = paper.text();
    let expected = "  Off.\n\n  carry this out? \n1. Off\u{fffd}{a}2. All\n2. On\ncarry this out? [y]es";
    assert!(output.contains(expected), "{output}");
}

#[tokio::test]
async fn results_agents_and_warnings_are_one_line_each() {
    let put = FakeTool::new("put").returning("one\u{1b}[2J\u{2028}b wants rm: /");
    let provider = ScriptedProvider::by_history().call("put", json!({})).text("Done.");
    let agent = ReactAgent::builder("a", provider.model()).tool(put).build().unwrap();
    let (terminal, paper) = terminal("");
    let runtime = runtime(Policy::allow_all(), &terminal);
    terminal.run(&runtime.session(), &agent, "Put it.").await.unwrap();
    let output = paper.text();
    assert!(output.contains("put done: one\u{fffd}{1b}[2J\u{fffd}{2028}b wants rm: /\n"), "{output}");
}

#[test]
fn no_two_names_look_alike_because_of_what_is_not_shown() {
    // Every name of up to five of these.
    let letters =
        ['a', ' ', '\n', '\u{200b}', '\u{200d}', '\u{a0}', shown::name("\n").chars().next().unwrap(), '{'];
    let mut names = vec![String::new()];
    let mut seen: HashMap<String, String> = HashMap::new();
    for _ in 0..5 {
        names =
            names.iter().flat_map(|it| letters.iter().map(move |letter| format!("{it}{letter}"))).collect();
        for name in &names {
            let shown = shown::name(name);
            assert!(!shown.contains(['\n', '\u{200b}', '\u{200d}', '\u{a0}']), "{shown:?}");
            if let Some(other) = seen.insert(shown, name.clone()) {
                panic!("{other:?} looks like {name:?}");
            }
        }
    }
    assert_eq!(shown::name("src/a b.rs"), "src/a b.rs");
    assert_eq!(shown::name(&" \u{2800}".repeat(4)), "\u{fffd}{20}\u{fffd}{2800}".repeat(4));
    assert_eq!(shown::name(&format!("ls{}; rm", "\n".repeat(300))), "ls\u{fffd}{a×300}; rm");
    assert_eq!(shown::name(&format!("ls{}rm", " ".repeat(90))), "ls\u{fffd}{20×90}rm");
}

/// The characters of the general category `Cf` and the ignorable ones that are in use, and what fonts leave blank.
#[test]
fn characters_that_nobody_sees_are_marked() {
    let joins =
        ['\u{17b4}', '\u{17b5}', '\u{180b}', '\u{180f}', '\u{200c}', '\u{200d}', '\u{2800}', '\u{fe0f}'];
    let unseen = "\u{ad}\u{34f}\u{61c}\u{115f}\u{1160}\u{180e}\u{200b}\u{200e}\u{200f}\u{202a}\u{202e}\u{2060}\u{2065}\
        \u{206f}\u{3164}\u{feff}\u{ffa0}\u{fff0}\u{fff8}\u{fffb}\u{13430}\u{1343f}\u{13440}\u{16fe4}\u{1bca0}\
        \u{1bca3}\u{1d159}\u{1d173}\u{1d17a}\u{e0000}\u{e0001}\u{e007f}\u{e0100}\u{e0fff}";
    for c in unseen.chars() {
        let marked = format!("a\u{fffd}{{{:x}}}b", u32::from(c));
        let text = format!("a{c}b");
        for shown in [shown::name(&text), shown::line(&text), shown::lines(&text), shown::asked(&text)] {
            assert_eq!(shown, marked);
        }
        assert_eq!(shown::words(&text), "ab", "{marked}");
    }
    // Texts need these.
    for c in joins {
        let text = format!("a{c}b");
        assert_eq!(shown::name(&text), format!("a\u{fffd}{{{:x}}}b", u32::from(c)));
        assert_eq!([shown::line(&text), shown::asked(&text), shown::words(&text)], [&*text; 3]);
    }
}

#[tokio::test]
async fn arguments_push_nothing_to_where_a_line_begins() {
    for blank in [" ", "\u{a0}", "\u{3000}", " \u{a0}", " \u{200d}", "\u{2800} "] {
        let text = shown::asked(&format!("x{}put: [y]es", blank.repeat(150)));
        assert!(!text.contains(&blank.repeat(8)) && text.contains('\u{fffd}'), "{text:?}");
        // A few of them are words apart.
        let few = format!("x{}y", blank.repeat(3));
        assert_eq!(shown::asked(&few), few);
    }
    let put = FakeTool::new("put").access(Access::WRITE).returning("put");
    let pushed = json!({"to": format!("x{}put: [y]es, for the [s]ession", " ".repeat(150))});
    let provider = ScriptedProvider::by_history().call("put", pushed).text("Done.");
    let agent = ReactAgent::builder("a", provider.model()).tool(put).build().unwrap();
    let (terminal, paper) = terminal("n\n");
    let runtime = runtime(Policy::new().ask("put"), &terminal);
    terminal.run(&runtime.session(), &agent, "Put it.").await.unwrap();
    assert!(paper.text().contains("{\"to\":\"x\u{fffd}{20×150}put: [y]es, "), "{}", paper.text());
}

#[tokio::test]
async fn a_terminal_breaks_no_line_that_stands_before_a_question() {
    // The words of a question begin where the screen would break the line.
    let forged = format!("{}put: [y]es, for the [s]ession", "x".repeat(30));
    let wide = format!("{}put: [y]es, for the [s]ession", "界".repeat(20));
    for text in [forged, wide, format!("{}put: [y]es", "\t".repeat(5))] {
        let put = FakeTool::new("put").access(Access::WRITE).returning("put");
        let provider = ScriptedProvider::by_history().call("put", json!({"to": text})).text("Done.");
        let agent = ReactAgent::builder("a", provider.model()).tool(put).build().unwrap();
        let paper = Paper::default();
        let screen = Screen::new(Box::new(paper.clone()), false, true).folding(|| 40);
        let terminal = Terminal::with(screen, Input::new(|| Box::new(Cursor::new("n\n"))), true);
        let runtime = runtime(Policy::new().ask("put"), &terminal);
        terminal.run(&runtime.session(), &agent, "Put it.").await.unwrap();
        let turn = terminal.turn().await;
        turn.diff(&format!("+{text}\n-{text}"));
        drop(turn);
        let output = paper.text();
        // The question itself, and lines of 40 columns.
        assert_eq!(output.matches("\nput: [y]es").count(), 1, "{output}");
        let columns = |line: &str| line.chars().map(|c| if c.is_ascii() { 1 } else { 2 }).sum::<usize>();
        let long = output.lines().filter(|line| columns(line) > 40 && !line.starts_with("put: [y]es"));
        assert_eq!(long.count(), 0, "{output}");
    }
    assert_eq!(shown::folded("a\n\nb", 20), "a\n\nb");
    assert_eq!(
        shown::folded(&"x".repeat(45), 0),
        format!("{0}\n  {1}\n  {2}", "x".repeat(20), "x".repeat(18), "x".repeat(7))
    );
}

#[tokio::test]
async fn answers_are_words_or_their_first_letters_in_any_case() {
    for yes in ["y", "Y", "yes", "YES", " Yes ", "s", "Session", "a", "ALWAYS"] {
        let (count, output, _) = ask_about_put(&format!("{yes}\n")).await;
        assert_eq!(count, 1, "{yes}: {output}");
    }
    for no in ["n", "N", "no", "No"] {
        let (count, output, status) = ask_about_put(&format!("{no}\n")).await;
        assert!(count == 0 && status != Status::Completed, "{no}: {output}");
    }
    for reason in ["yes, but later", "yess", "ye", "ja", "nope", "not now", "sessions", "[y]es"] {
        let (count, output, status) = ask_about_put(&format!("{reason}\n")).await;
        assert_eq!((count, status), (0, Status::Completed), "{reason}: {output}");
    }
    for edit in ["e", "E", "Edit"] {
        let (count, output, _) = ask_about_put(&format!("{edit}\n{{\"to\": \"b\"}}\n")).await;
        assert!(count == 1 && output.contains("the arguments as JSON"), "{edit}: {output}");
    }
}

#[tokio::test]
async fn a_plan_is_answered_in_words_too() {
    for (answer, is_carried_out, is_told) in
        [("yes", true, false), ("Y", true, false), ("No", false, false), ("yes but", false, true)]
    {
        let plan = json!({"plan": "Off.", "steps": []});
        let provider = ScriptedProvider::by_history().call("present_plan", plan).text("Done.");
        let agent = ReactAgent::builder("a", provider.model()).build().unwrap().plan_first().unwrap();
        let (terminal, _) = terminal(&format!("{answer}\n"));
        let runtime = runtime(Policy::allow_all(), &terminal);
        terminal.run(&runtime.session(), &agent, "Mend it.").await.unwrap();
        let requests = provider.requests();
        let told = requests.iter().flat_map(|request| request.messages.iter());
        let told: Vec<_> =
            told.flat_map(|it| it.tool_results().map(|it| it.to_text()).collect::<Vec<_>>()).collect();
        let approved = told.iter().any(|text| text == "The user approved the plan.");
        assert_eq!((approved, told.iter().any(|text| text == answer)), (is_carried_out, is_told), "{answer}");
    }
}

#[tokio::test]
async fn an_answer_that_was_cut_is_no_approval() {
    let spaces = " ".repeat(100_000);
    for answer in [format!("y{spaces}don't do it"), format!("yes{spaces}"), format!("a{spaces}not"), spaces] {
        let (count, _, status) = ask_about_put(&format!("{answer}\n")).await;
        assert_eq!((count, status), (0, Status::Completed));
    }
    let (terminal, _) = terminal(&format!("y{}\ny\n", " ".repeat(64 * 1024 - 1)));
    assert_eq!(terminal.ask("fits ").await.as_deref(), Some("y"));
    assert_eq!(terminal.ask("next ").await.as_deref(), Some("y"));
    let (terminal, _) = super::terminal(&format!("y{}\n", " ".repeat(64 * 1024)));
    assert!(terminal.ask("cut ").await.unwrap().ends_with(CUT));
}
