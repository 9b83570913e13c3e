//! Text for people: one line each, in which nothing of a tool or a model controls the terminal.

use std::{io, sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Money, RunId, SessionId, Timestamp, Usage,
    agent::Agent,
    event::{Envelope, Event, Origin},
    provider::{Delta, FinishReason, Warning, WarningKind},
    run::{Outcome, Pause, RunContext, Status, StopReason, Task},
    tool::Access,
};
use entourage_runners::ReactAgent;
use entourage_testkit::{FakeTool, Script, ScriptedProvider};
use serde_json::{Value, json};

use crate::common::{agent, drain, open_runtime};

const EVIL: &str =
    "\u{1b}[2J\u{9b}31m\u{7}\r\nfake: done\t\u{202e}\u{2066}\u{200b}\u{e0041}\u{2028}end\u{7f}";

fn shown(text: &str) -> Option<char> {
    let commands = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
    };
    text.chars().find(|c| commands(*c))
}

#[tokio::test]
async fn attack_44_no_event_of_a_hostile_run_commands_the_terminal() {
    let step = Script::new()
        .delta(Delta::Warning(Box::new(Warning::new(WarningKind::Other, EVIL, EVIL))))
        .delta(Delta::Reasoning(EVIL.into()))
        .call("look", &json!({"path": EVIL}))
        .call("bad", &json!({}))
        .call("wild", &json!({}))
        .raw_call(EVIL, &format!("{{\"a\": {EVIL}"))
        .finish(FinishReason::ToolCalls);
    let provider = ScriptedProvider::new().step(step).fail(ErrorKind::Overloaded, EVIL);
    let agent = agent(provider.model())
        .tool(FakeTool::new("look").returning(EVIL))
        .tool(FakeTool::new("bad").telling(EVIL))
        .tool(FakeTool::new("wild").panicking(EVIL))
        .build()
        .unwrap();
    let mut run = open_runtime().session().start(&agent, EVIL);
    let events = drain(&mut run).await;
    run.outcome().await.unwrap_err();
    let mut told = String::new();
    for event in &events {
        let line = event.to_string();
        assert_eq!(shown(&line), None, "{}: {line:?}", event.event.kind());
        told.push_str(&line);
    }
    assert!(told.contains("fake: done"), "the harmless rest is still shown");
}

#[tokio::test]
async fn attack_44_a_question_shows_its_arguments_harmlessly_and_whole() {
    let provider = ScriptedProvider::new().call("write", json!({"path": EVIL, "long": "x".repeat(300)}));
    let tool = FakeTool::new("write").access(Access::WRITE);
    let agent = agent(provider.model()).tool(tool).build().unwrap();
    let mut run = entourage_testkit::runtime().build().session().start(&agent, "Go");
    let events = drain(&mut run).await;
    run.outcome().await.unwrap();
    let question =
        events.iter().find(|event| event.event.kind() == "approval_requested").unwrap().to_string();
    assert_eq!(shown(&question), None, "{question:?}");
    assert!(question.contains(&"x".repeat(300)), "what is asked about is not cut: {question}");
}

#[test]
fn attack_44_what_comes_from_a_store_is_shown_as_carefully() {
    let key = json!({"ordinal": 0, "digest": "00112233445566778899aabbccddeeff"});
    let outcome = json!({"status": {"failed": {"kind": "tool", "retry": "permanent", "message": EVIL}}, "text": EVIL, "usage": {}, "cost": 0, "steps": 1});
    let events: Vec<(&str, Value)> = vec![
        ("model_started", json!({"step": 1, "provider": EVIL, "model": EVIL})),
        (
            "tool_started",
            json!({"index": 0, "call": EVIL, "tool": EVIL, "repeat": "once", "allowed_by": EVIL}),
        ),
        ("child_started", json!({"child": "s.1$$0", "agent": EVIL, "key": key})),
        ("signal_received", json!({"name": EVIL, "value": EVIL})),
        ("warning", json!({"text": EVIL})),
        ("run_paused", json!({"pause": {"signal": {"name": EVIL, "until": null}}})),
        ("run_paused", json!({"pause": {"approval": EVIL}})),
        ("run_finished", json!({"outcome": outcome})),
        (
            "approval_decided",
            json!({"id": EVIL, "decision": "allow", "digest": "00112233445566778899aabbccddeeff"}),
        ),
    ];
    let origin = Arc::new(Origin::new(SessionId::new("s").unwrap(), RunId::generate(), format!("a/{EVIL}")));
    for (kind, json) in events {
        let event = Event::from_json(kind, &json.to_string()).unwrap();
        let line = Envelope::new(Arc::clone(&origin), 1, Timestamp::from_micros(0), event).to_string();
        assert_eq!(shown(&line), None, "{kind}: {line:?}");
    }
}

#[test]
fn attack_44_a_text_delta_keeps_its_layout_and_loses_its_commands() {
    let origin = Arc::new(Origin::new(SessionId::new("s").unwrap(), RunId::generate(), "a"));
    let delta = |text: &str| {
        let event = Event::Delta(Delta::Text(text.into()));
        Envelope::new(Arc::clone(&origin), 1, Timestamp::from_micros(0), event).to_string()
    };
    assert_eq!(delta("a\n\tb é 👩\u{200d}💻"), "a\n  \tb é 👩\u{200d}💻");
    assert_eq!(delta("Done.\r\na: runs rm"), "Done.\n  a: runs rm", "no line of a reply is an event's");
    assert_eq!(delta("a\u{1b}[2J\u{9b}b\u{7}"), "a[2Jb");
}

#[test]
fn an_error_is_one_line_whatever_it_quotes() {
    let error = Error::new(ErrorKind::Protocol, format!("the service said {EVIL}")).with("tool", EVIL);
    let told = error.to_string();
    assert_eq!(shown(&told), None, "{told:?}");
    assert!(error.message().contains(EVIL), "the text itself stays as it is");
    let outer = Error::new(ErrorKind::Tool, "it broke").caused_by(error);
    assert!(format!("{outer:?}").lines().all(|line| shown(line).is_none()), "{outer:?}");
}

#[test]
fn an_outcome_is_one_line_whatever_it_quotes() {
    let error = Error::new(ErrorKind::Tool, EVIL).record();
    let incomplete = StopReason::Incomplete { iterations: 2, feedback: EVIL.into() };
    for status in
        [Status::Failed(error), Status::Stopped(StopReason::Denied(EVIL.into())), Status::Stopped(incomplete)]
    {
        let mut outcome = Outcome::new(status);
        assert_eq!(shown(&outcome.to_string()), None, "{outcome}");
        outcome.steps = 1;
        assert_eq!(shown(&outcome.to_string()), None, "{outcome}");
    }
}

/// An outcome shows the figures of its run's own calls, and none for calls that were never made.
#[test]
fn an_outcome_without_calls_of_its_own_shows_no_figures() {
    assert_eq!(Outcome::completed("Done.").to_string(), "completed");
    assert_eq!(
        Outcome::new(Status::Stopped(StopReason::LoopDetected)).to_string(),
        "stopped: it went in circles: the same calls with the same results"
    );
    let mut counted = Outcome::completed("Done.");
    (counted.steps, counted.cost) = (2, None);
    assert_eq!(counted.to_string(), "completed; 2 steps, unknown in, unknown out, cost unknown");
    // Calls without steps, as an agent by hand makes them, are calls.
    let mut by_hand = Outcome::completed("Done.");
    by_hand.usage = Usage::new(10, 5);
    assert_eq!(by_hand.to_string(), "completed; 0 steps, 10 in, 5 out, $0");
    let mut unpriced = Outcome::completed("Done.");
    unpriced.cost = None;
    assert!(unpriced.to_string().ends_with("cost unknown"), "{unpriced}");
    assert_eq!(by_hand.cost, Some(Money::default()));
}

#[test]
fn a_pause_is_told_once_and_with_what_ends_it() {
    let told = "waits because somebody asked it to; resume the session to go on";
    assert_eq!(Status::Paused(Pause::Asked).to_string(), format!("paused: {told}"));
    assert_eq!(Error::paused(Pause::Asked).to_string(), format!("{told} (paused)"));
}

#[tokio::test]
async fn the_line_of_an_event_says_of_what_and_for_what() {
    let look = || json!({"at": "here"});
    let below = ScriptedProvider::new().text("Seen.");
    let scout = agent(below.model()).build().unwrap();
    let provider = ScriptedProvider::new().calls([("look", look()), ("list", look())]).text("Done.");
    let lister = FakeTool::new("list").returning("a list");
    let able =
        agent(provider.model()).tools((FakeTool::new("look").returning("a tree"), lister)).build().unwrap();
    let lines = drain(&mut open_runtime().session().start(&able, "Look!")).await;
    let lines: Vec<_> = lines.iter().map(ToString::to_string).collect();
    let replied = lines.iter().find(|line| line.contains("replied")).unwrap();
    assert!(replied.ends_with(r#"), calls look {"at":"here"}, calls list {"at":"here"}"#), "{replied}");

    let lead = Delegating(scout);
    let lines = drain(&mut open_runtime().session().start(&lead, "Ask!")).await;
    let lines: Vec<_> = lines.iter().map(ToString::to_string).collect();
    let told = |part: &str| lines.iter().any(|line| line.contains(part));
    assert!(told("starts tester in ") && told(" ended, completed") && told(r#"observed "#), "{lines:#?}");
    assert!(!told("observed a value"), "{lines:#?}");
}

/// An agent that asks another one, and reads the clock.
#[derive(Clone)]
struct Delegating(ReactAgent);

#[async_trait]
impl Agent for Delegating {
    fn name(&self) -> &str {
        "lead"
    }

    async fn run(&self, _: Task, cx: &RunContext) -> entourage_core::Result<Outcome> {
        let child = cx.spawn(&self.0, "Look!").await?;
        cx.wait_any(&[child], None).await?;
        cx.new_id().await?;
        Ok(Outcome::completed("Done."))
    }
}

#[test]
fn an_error_does_not_say_its_message_again_as_its_cause() {
    let inner = Error::new(ErrorKind::Transport, "it broke");
    let same = Error::new(ErrorKind::Config, inner.to_string()).caused_by(inner);
    assert!(!format!("{same:?}").contains("caused by"), "{same:?}");
    let low = io::Error::other("the line is dead");
    let other = Error::new(ErrorKind::Config, "it broke")
        .caused_by(Error::new(ErrorKind::Transport, "x").caused_by(low));
    let told = format!("{other:?}");
    assert!(
        told.contains("caused by: x (transport)") && told.contains("caused by: the line is dead"),
        "{told}"
    );
}

#[test]
fn an_error_that_main_returns_is_printed_as_a_report() {
    let error = Error::new(ErrorKind::RateLimited, "too many\nrequests; wait")
        .during("model.stream")
        .with("model", "large-1\u{1b}[2J")
        .with_retry_after(Duration::from_secs(3))
        .caused_by(Error::new(ErrorKind::Transport, "it broke").caused_by(io::Error::other("dead line")));
    let report = "too many requests; wait\n  kind: rate limited\n  operation: model.stream\n  \
                  model: large-1\\u{1b}[2J\n  caused by: it broke (transport)\n  caused by: dead line\n  \
                  retry: may succeed after 3s";
    assert_eq!(format!("{error:?}"), report);
    let plain = Error::new(ErrorKind::Config, "no such setting; remove it");
    assert_eq!(format!("{plain:?}"), "no such setting; remove it\n  kind: configuration");
}

#[test]
fn errors_of_the_standard_library_and_of_json_are_converted() {
    fn sum(path: &str, text: &[u8]) -> entourage_core::Result<u32> {
        if !path.is_empty() {
            std::fs::read(path)?;
        }
        let text = std::str::from_utf8(text)?;
        let _: f32 = text.parse()?;
        Ok(text.parse::<u32>()? + serde_json::from_str::<u32>(text)?)
    }
    assert_eq!(sum("", b"2").unwrap(), 4);
    assert_eq!(sum("/nowhere/at/all", b"2").unwrap_err().kind(), ErrorKind::NotFound);
    for text in [b"\xff".as_slice(), b"x", b"1.5", b"007"] {
        let error = sum("", text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(!error.message().is_empty() && std::error::Error::source(&error).is_some());
    }
    let refused = Error::from(io::Error::from(io::ErrorKind::ConnectionRefused));
    assert_eq!((refused.kind(), refused.is_unsent()), (ErrorKind::Transport, true));
    assert_eq!(Error::from(io::Error::from(io::ErrorKind::StorageFull)).kind(), ErrorKind::Io);
}

#[tokio::test]
async fn a_session_that_is_nowhere_is_looked_for_in_another_store_next() {
    let runtime = entourage_testkit::runtime().build();
    let provider = ScriptedProvider::new();
    let agent = agent(provider.model()).build().unwrap();
    let gone = runtime.session_with_id(SessionId::new("gone").unwrap());
    let error = gone.resume(&agent).outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().contains("or open the store that it was made in"), "{error}");
}
