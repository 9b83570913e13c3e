#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic, in its helpers too")]

use std::{
    collections::VecDeque,
    io::{self, BufReader, Cursor, Read, Write},
    sync::{Arc, Mutex, mpsc},
};

use entourage_core::{
    agent::Agent,
    provider::FinishReason,
    run::Status,
    tool::{Access, ToolSpec},
};
use entourage_runners::{AgentTool, DualAgent, ReactAgent, graph::TaskGraph, question};
use entourage_runtime::{MemoryStore, Runtime, permission::Policy};
use entourage_testkit::{FakeTool, Script, ScriptedProvider};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::{
    Terminal,
    input::{CUT, Input},
    screen::Screen,
};

mod later;
mod shown;

/// Output that a test reads.
#[derive(Debug, Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Paper {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Input whose lines a test sends when it likes.
struct Keys(mpsc::Receiver<String>, VecDeque<u8>);

impl Read for Keys {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.1.is_empty() {
            // Without a sender it is the end of input.
            self.1 = self.0.recv().unwrap_or_default().into_bytes().into();
        }
        self.1.read(buffer)
    }
}

fn terminal(input: &str) -> (Terminal, Paper) {
    let paper = Paper::default();
    (Terminal::over(Cursor::new(input.to_owned()), paper.clone()), paper)
}

fn typed() -> (Terminal, Paper, mpsc::Sender<String>) {
    let (keys, lines) = mpsc::channel();
    let paper = Paper::default();
    let input = BufReader::new(Keys(lines, VecDeque::new()));
    (Terminal::over(input, paper.clone()), paper, keys)
}

/// Asks a question in a task of its own, and waits until it is shown.
async fn asked(terminal: &Terminal, paper: &Paper, question: &'static str) -> JoinHandle<Option<String>> {
    let terminal = terminal.clone();
    let asking = tokio::spawn(async move { terminal.ask(question).await });
    while !paper.text().contains(question) {
        tokio::task::yield_now().await;
    }
    asking
}

fn runtime(policy: Policy, approver: &Terminal) -> Runtime {
    Runtime::builder().policy(policy).approver(approver.clone()).build()
}

/// Runs a call of the tool `put`, which asks, with this input; returns how often it ran, the output and the status.
async fn ask_about_put(input: &str) -> (usize, String, Status) {
    let (terminal, paper) = terminal(input);
    let put = FakeTool::new("put").access(Access::WRITE).returning("put");
    let provider = ScriptedProvider::by_history().call("put", json!({"to": "a"})).text("Done.");
    let agent = ReactAgent::builder("a", provider.model()).tool(put.clone()).build().unwrap();
    let runtime = runtime(Policy::new().ask("put"), &terminal);
    let outcome = terminal.run(&runtime.session(), &agent, "Put it.").await.unwrap();
    (put.finished(), paper.text(), outcome.status)
}

#[tokio::test]
async fn an_answer_decides_about_a_call() {
    let (count, output, status) = ask_about_put("y\n").await;
    assert_eq!((count, status), (1, Status::Completed));
    for part in ["a wants put: ", r#"{"to":"a"}"#, "[y]es, ", "put done: put", "Done."] {
        assert!(output.contains(part), "{part} is not in {output}");
    }
    // A wrong edit is asked about again; an empty line too.
    let (count, output, _) = ask_about_put("\ne\n[]\ne\n{\"to\": \"b\"}\n").await;
    assert_eq!(count, 1);
    assert!(output.contains("these are no arguments"), "{output}");
    // A reason is told, and the run goes on.
    let (count, _, status) = ask_about_put("not today\n").await;
    assert_eq!((count, status), (0, Status::Completed));
    let (count, _, status) = ask_about_put("n\n").await;
    assert!(count == 0 && status != Status::Completed, "{status}");
    // Nobody is there any more: the run waits.
    let (count, _, status) = ask_about_put("").await;
    assert!(count == 0 && matches!(status, Status::Paused(_)), "{status}");
}

#[tokio::test]
async fn a_run_that_waited_for_a_person_goes_on_with_the_answer() {
    let store: Arc<MemoryStore> = Arc::default();
    let put = FakeTool::new("put").access(Access::WRITE).returning("put");
    let provider = ScriptedProvider::by_history().call("put", json!({})).text("Done.");
    let agent = ReactAgent::builder("a", provider.model()).tool(put.clone()).build().unwrap();
    let at = |terminal: &Terminal| {
        let runtime = Runtime::builder().shared_store(store.clone());
        runtime.policy(Policy::new().ask("put")).approver(terminal.clone()).build()
    };
    let (nobody, _) = terminal("");
    let session = at(&nobody).session();
    let outcome = nobody.run(&session, &agent, "Put it.").await.unwrap();
    assert!(matches!(outcome.status, Status::Paused(_)));
    let id = session.id().clone();
    drop(session);

    let (somebody, _) = terminal("y\n");
    let session = at(&somebody).open(&id).await.unwrap();
    let outcome = somebody.run(&session, &agent, "This is left out.").await.unwrap();
    assert_eq!((outcome.status, put.finished()), (Status::Completed, 1));
    assert_eq!(
        session.history().await.unwrap().iter().filter(|it| it.text() == "This is left out.").count(),
        0
    );
}

#[tokio::test]
async fn plans_and_questions_are_put_to_the_person() {
    let plan = json!({"plan": "I would turn it off.", "steps": ["Off", "On"]});
    let asked = json!({"questions": [
        {"text": "Sure?", "kind": "yes_no"},
        {"text": "Which?", "kind": "single", "options": ["left", "right"]},
    ]});
    let provider = ScriptedProvider::by_history()
        .call("present_plan", plan.clone())
        .call("present_plan", plan)
        .call("question", asked)
        .text("Done.");
    let agent = ReactAgent::builder("a", provider.model()).tool(question()).build().unwrap();
    let agent = agent.plan_first().unwrap();
    let (terminal, paper) = terminal("first the cat\ny\nyes\nleft\n");
    let runtime = runtime(Policy::allow_all(), &terminal);
    let outcome = terminal.run(&runtime.session(), &agent, "Mend it.").await.unwrap();
    assert_eq!(outcome.status, Status::Completed);
    let output = paper.text();
    for part in
        ["I would turn it off.", "2. On", "carry this out?", "Sure? (yes or no): ", "(one of: left, right)"]
    {
        assert!(output.contains(part), "{part} is not in {output}");
    }
    let told = &provider.requests()[3].messages;
    let told: Vec<_> =
        told.iter().flat_map(|it| it.tool_results().map(|it| it.to_text()).collect::<Vec<_>>()).collect();
    assert!(told.iter().any(|text| text.contains("first the cat")), "{told:?}");
    assert!(told.iter().any(|text| text.contains("1. yes\n2. left")), "{told:?}");
}

#[tokio::test]
async fn a_line_for_a_question_that_is_gone_answers_no_other() {
    let (terminal, paper, keys) = typed();
    // The first question is dropped while it waits for its line.
    let asking = asked(&terminal, &paper, "Delete all? ").await;
    asking.abort();
    asking.await.unwrap_err();
    keys.send("y\n".into()).unwrap();
    // Wait until that line was read: the reader asks for the next one only then.
    let second = tokio::spawn({
        let terminal = terminal.clone();
        async move {
            while !terminal.0.input.lock().await.holds_line() {
                tokio::task::yield_now().await;
            }
            terminal.ask("Keep all? ").await
        }
    });
    while !paper.text().contains("Keep all?") {
        tokio::task::yield_now().await;
    }
    keys.send("certainly\n".into()).unwrap();
    assert_eq!(second.await.unwrap().as_deref(), Some("certainly"));
    drop(keys);
    assert_eq!(terminal.ask("More? ").await, None);
    assert_eq!(terminal.ask("Really? ").await, None);
}

#[tokio::test]
async fn lines_wait_while_a_question_is_open() {
    let (terminal, paper, keys) = typed();
    let asking = asked(&terminal, &paper, "Which? ").await;
    terminal.say("one");
    terminal.screen().text("two");
    assert_eq!(paper.text(), "Which? ");
    // A flood is cut, and the cut is told once.
    for _ in 0..100 {
        terminal.say(&"x".repeat(10_000));
    }
    keys.send("this\n".into()).unwrap();
    assert_eq!(asking.await.unwrap().as_deref(), Some("this"));
    let output = paper.text();
    assert!(output.starts_with("Which? this\none\ntwo\nxx"));
    assert!(output.len() < 300_000 && output.matches("was left out").count() == 1);
    terminal.say("three");
    assert!(paper.text().ends_with("was left out while the question was open\nthree\n"));
}

#[tokio::test]
async fn nothing_that_is_printed_controls_the_terminal() {
    let (terminal, paper) = terminal("");
    terminal.say("a\x1b[2Jb\u{202e}c\u{200b}");
    terminal.diff("+\x1b]0;title\x07x\n-y\r\n z");
    terminal.ask("Sure\x08\x08? ").await;
    terminal.screen().text("w\x1b[2J\u{202e}\n");
    // It is marked what was left out, but for the words of a model.
    let marked = "a?{1b}[2Jb?{202e}c?{200b}\n+?{1b}]0;title?{7}x\n-y\n z\nSure?{8×2}? \nw[2J\n";
    assert_eq!(paper.text(), marked.replace("?{", "\u{fffd}{"));
}

#[tokio::test]
async fn odd_input_is_bounded_and_no_answer() {
    let long = format!("{}\nnext\n", "é".repeat(100_000));
    let paper = Paper::default();
    let terminal = Terminal::over(Cursor::new(long), paper.clone());
    let cut = terminal.ask("1").await.unwrap();
    assert!(cut.len() <= 64 * 1024 + 2 + CUT.len() && cut.ends_with(CUT), "{}", cut.len());
    assert_eq!(terminal.ask("2").await.as_deref(), Some("next"));
    assert_eq!(terminal.ask("3").await, None);
    // Bytes that are no text.
    let terminal = Terminal::over(Cursor::new(b"\xff y\n".to_vec()), paper);
    assert_eq!(terminal.ask("1").await.as_deref(), Some("\u{fffd} y"));
}

/// Gives these bytes, then an error.
struct Breaks(Cursor<&'static str>);

impl Read for Breaks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(buffer)?;
        if read == 0 { Err(io::Error::other("the line is dead")) } else { Ok(read) }
    }
}

#[tokio::test]
async fn a_line_without_its_end_is_no_answer() {
    for input in ["y", "yes", "s", "a", "n", "y\r", "\n\ny", "e\n{\"to\": \"b\"}", "e\n[]\ny"] {
        let (count, _, status) = ask_about_put(input).await;
        assert!(count == 0 && matches!(status, Status::Paused(_)), "{input:?}: {status}");
        let terminal = Terminal::over(BufReader::new(Breaks(Cursor::new("y"))), Paper::default());
        assert_eq!(terminal.ask("Sure? ").await, None);
    }
    // Nor is one that is longer than what is kept of it.
    let (terminal, _) = terminal(&"y".repeat(200_000));
    assert_eq!(terminal.ask("Sure? ").await, None);
    // What a person writes by themselves is taken as it is.
    let (terminal, _) = self::terminal("mend it");
    assert_eq!(terminal.line().await.as_deref(), Some("mend it"));
    assert_eq!(terminal.line().await, None);
}

#[tokio::test]
async fn a_line_of_any_length_is_read_in_pieces() {
    for (length, kept) in
        [(65_535, 65_535), (65_536, 65_536), (65_537, 65_536), (131_074, 65_536), (200_000, 65_536)]
    {
        let (terminal, _) = terminal(&format!("{}\nnext\n", "y".repeat(length)));
        let answer = terminal.ask("1").await.unwrap();
        assert_eq!(answer.len() - if length > kept { CUT.len() } else { 0 }, kept, "{length}");
        assert_eq!(terminal.ask("2").await.as_deref(), Some("next"), "{length}");
    }
}

/// A terminal to which somebody types a line at each of the first looks, as with a paste that comes bit by bit.
fn pasted(looks: usize) -> (Terminal, Paper, Arc<Mutex<Vec<String>>>) {
    let paper = Paper::default();
    let (shown, seen): (Paper, Arc<Mutex<Vec<String>>>) = (paper.clone(), Arc::default());
    let discarded = Arc::clone(&seen);
    let input = Input::new(|| Box::new(Cursor::new("y\ny\n"))).discarding(move || {
        let mut discarded = discarded.lock().unwrap();
        discarded.push(shown.text());
        discarded.len() <= looks
    });
    (Terminal::with(Screen::new(Box::new(paper.clone()), false, true), input, true), paper, seen)
}

#[tokio::test(start_paused = true)]
async fn what_was_typed_before_a_question_answers_none() {
    for (looks, quiet_after) in [(0, 0), (1, 0), (60, 590)] {
        let begun = tokio::time::Instant::now();
        let (terminal, _, seen) = pasted(looks);
        terminal.ask("One? ").await.unwrap();
        assert_eq!(begun.elapsed().as_millis(), quiet_after + 200, "{looks}");
        // Nothing was discarded once the question was shown.
        assert!(seen.lock().unwrap().iter().all(String::is_empty));
        terminal.ask("Two? ").await.unwrap();
        assert_eq!(begun.elapsed().as_millis(), quiet_after + 400, "{looks}");
        // A line of a person who speaks first is no answer.
        assert_eq!(terminal.line().await, None);
        assert_eq!(begun.elapsed().as_millis(), quiet_after + 400, "{looks}");
        assert_eq!(seen.lock().unwrap().last().unwrap(), "One? y\n");
    }
}

#[tokio::test(start_paused = true)]
async fn a_person_who_types_on_is_told_once_why_no_question_comes() {
    let (terminal, paper, _) = pasted(1_000);
    terminal.ask("One? ").await.unwrap();
    assert_eq!(paper.text(), format!("{}\nOne? y\n", crate::LATE));
    // Dropped meanwhile, it leaves nothing behind.
    let (terminal, paper, _) = pasted(usize::MAX);
    let asking = terminal.ask("One? ");
    tokio::time::timeout(std::time::Duration::from_millis(500), asking).await.unwrap_err();
    assert_eq!(paper.text(), "");
    assert_eq!(terminal.line().await.as_deref(), Some("y"));
}

/// The thread reads the first line of a paste for a question that is gone.
#[tokio::test]
async fn a_paste_that_the_reader_has_begun_answers_no_other_question() {
    let paper = Paper::default();
    let (keys, lines) = mpsc::channel::<String>();
    let input = Input::new(|| Box::new(BufReader::new(Keys(lines, VecDeque::new())))).discarding(|| false);
    let terminal = Terminal::with(Screen::new(Box::new(paper.clone()), false, true), input, true);
    asked(&terminal, &paper, "Delete all? ").await.abort();
    let second = tokio::spawn({
        let terminal = terminal.clone();
        async move { terminal.ask("Keep all? ").await }
    });
    keys.send("y\n".to_owned()).unwrap();
    while !paper.text().contains("Keep all?") {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    keys.send("certainly\n".to_owned()).unwrap();
    assert_eq!(second.await.unwrap().as_deref(), Some("certainly"));
}

#[tokio::test]
async fn nothing_comes_between_a_question_and_what_it_is_about() {
    let (terminal, paper) = terminal("y\n");
    terminal.screen().text("I shall");
    let mut turn = terminal.turn().await;
    turn.say("a wants rm: /");
    // Words of a model that came before, and are shown late.
    terminal.screen().text(" look.\na wants ls: .\n{}");
    terminal.say("other done: a wants ls: .");
    turn.diff("-all\n");
    turn.ask("[y]es? ").await.unwrap();
    assert_eq!(paper.text(), "I shall\na wants rm: /\n-all\n[y]es? y\n");
    drop(turn);
    assert!(
        paper.text().ends_with("y\n look.\na wants ls: .\n{}\nother done: a wants ls: .\n"),
        "{}",
        paper.text()
    );
}

#[tokio::test]
async fn arguments_are_shown_on_one_line_and_the_question_names_the_tool() {
    let put = FakeTool::new("put").access(Access::WRITE).returning("put");
    let spread = format!("{{\"to\": \"b\",{}\"from\": \"a\"}}", "\n".repeat(500));
    let script = Script::new().raw_call("put", &spread).finish(FinishReason::ToolCalls);
    let provider = ScriptedProvider::by_history().step(script).text("Done.");
    let agent = ReactAgent::builder("a", provider.model()).tool(put.clone()).build().unwrap();
    let (terminal, paper) = terminal("n\n");
    let runtime = runtime(Policy::new().ask("put"), &terminal);
    terminal.run(&runtime.session(), &agent, "Put it.").await.unwrap();
    let output = paper.text();
    assert!(
        output.contains(r#"{"to":"b","from":"a"}"#) || output.contains(r#"{"from":"a","to":"b"}"#),
        "{output}"
    );
    assert!(output.contains("put: [y]es, "), "{output}");
}

#[tokio::test]
async fn a_plan_is_not_sent_back_by_an_empty_line() {
    let plan = json!({"plan": "I would turn it off.", "steps": []});
    let provider = ScriptedProvider::by_history().call("present_plan", plan).text("Done.");
    let agent = ReactAgent::builder("a", provider.model()).build().unwrap().plan_first().unwrap();
    let (terminal, paper) = terminal("\n\ny\n");
    let runtime = runtime(Policy::allow_all(), &terminal);
    let outcome = terminal.run(&runtime.session(), &agent, "Mend it.").await.unwrap();
    assert_eq!(outcome.status, Status::Completed);
    assert_eq!(paper.text().matches("carry this out?").count(), 3);
}

#[cfg(unix)]
#[test]
fn attack_46_ctrl_c_leaves_a_question_between_two_runs() {
    let mut inner = std::process::Command::new(std::env::current_exe().unwrap());
    inner.args(["--exact", "tests::a_question_that_gets_ctrl_c", "--ignored", "--nocapture"]);
    let output = inner.env(INNER, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Set in the other process of the test above, which gets signals.
const INNER: &str = "TERMINAL_INNER";

#[cfg(unix)]
#[tokio::test]
#[ignore = "the other process of the test above"]
async fn a_question_that_gets_ctrl_c() {
    if std::env::var_os(INNER).is_none() {
        return;
    }
    let press = || {
        let pid = std::process::id().to_string();
        assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    };
    // The keys are held until the end: input does not end.
    let (terminal, paper, keys) = typed();
    let asks = entourage_runners::external(ToolSpec::new("weigh", "Weighs it.", json!({"type": "object"})));
    let provider = ScriptedProvider::by_history().call("weigh", json!({})).text("Done.");
    let agent = ReactAgent::builder("a", provider.model()).tool(asks).build().unwrap();
    let runtime = runtime(Policy::allow_all(), &terminal);
    let pressed_at = |question: &'static str, work: JoinHandle<()>| {
        let paper = paper.clone();
        async move {
            while !paper.text().contains(question) {
                tokio::task::yield_now().await;
            }
            // The question is heard from its first poll on.
            while !work.is_finished() {
                press();
                tokio::task::yield_now().await;
            }
            work.await.unwrap();
        }
    };
    let (mine, session) = (terminal.clone(), runtime.session());
    let work = async move {
        let outcome = mine.run(&session, &agent, "Weigh it.").await.unwrap();
        assert!(matches!(outcome.status, Status::Paused(_)), "{outcome}");
    };
    let asked = pressed_at("the result: ", tokio::spawn(work));
    tokio::time::timeout(std::time::Duration::from_secs(60), asked).await.expect("it waits on");
    for (number, question) in ["First? ", "Second? "].into_iter().enumerate() {
        let mine = terminal.clone();
        let work = async move {
            let answer =
                if number == 0 { mine.ask(question).await } else { mine.turn().await.ask(question).await };
            assert_eq!(answer, None);
        };
        let asked = pressed_at(question, tokio::spawn(work));
        tokio::time::timeout(std::time::Duration::from_secs(60), asked).await.expect("it waits on");
    }
    drop(keys);
}

#[tokio::test]
async fn calls_side_by_side_are_asked_about_one_after_another() {
    let put = FakeTool::new("put").access(Access::READ).returning("put");
    let calls = [("put", json!({"to": 1})), ("put", json!({"to": 2}))];
    let provider = ScriptedProvider::by_history().calls(calls).text("Done.");
    let agent = ReactAgent::builder("a", provider.model()).tool(put.clone()).build().unwrap();
    let (terminal, paper) = terminal("y\nn\n");
    let runtime = runtime(Policy::new().ask("put"), &terminal);
    terminal.run(&runtime.session(), &agent, "Put both.").await.unwrap();
    assert_eq!(put.finished(), 1);
    let output = paper.text();
    let mut order: Vec<_> = output.match_indices("wants put").chain(output.match_indices("[y]es")).collect();
    order.sort_unstable();
    let words: Vec<_> = order.iter().map(|(_, word)| *word).collect();
    assert_eq!(words, ["wants put", "[y]es", "wants put", "[y]es"]);
}

#[tokio::test]
async fn any_call_that_was_handed_out_is_answered_with_a_text() {
    let (terminal, _) = terminal("42\n");
    let asks = entourage_runners::external(ToolSpec::new("weigh", "Weighs it.", json!({"type": "object"})));
    let provider = ScriptedProvider::by_history().call("weigh", json!({})).text("Done.");
    let agent = ReactAgent::builder("a", provider.model()).tool(asks).build().unwrap();
    let runtime = runtime(Policy::allow_all(), &terminal);
    let outcome = terminal.run(&runtime.session(), &agent, "Weigh it.").await.unwrap();
    assert_eq!(outcome.status, Status::Completed);
    let told =
        provider.requests()[1].messages.iter().last().unwrap().tool_results().next().unwrap().to_text();
    assert_eq!(told, "42");
}

#[tokio::test]
async fn a_question_goes_before_lines_that_nobody_asked_for() {
    let (terminal, paper, keys) = typed();
    let command = tokio::spawn({
        let terminal = terminal.clone();
        async move { terminal.line().await }
    });
    while terminal.0.input.try_lock().is_ok() {
        tokio::task::yield_now().await;
    }
    let asking = asked(&terminal, &paper, "Sure? ").await;
    keys.send("yes\n".into()).unwrap();
    assert_eq!(asking.await.unwrap().as_deref(), Some("yes"));
    keys.send("skip it\n".into()).unwrap();
    assert_eq!(command.await.unwrap().as_deref(), Some("skip it"));
    drop(keys);
    assert_eq!(terminal.line().await, None);
}
