//! Every kind of part and every kind of event comes back from its stored form unchanged.

use std::sync::Arc;

use entourage_core::{
    ErrorKind, Result, RunId, SessionId, Timestamp,
    agent::Agent,
    event::{Event, FORMAT},
    message::{
        Arguments, Content, History, Media, MediaSource, Message, Opaque, Part, Reasoning, Role, Signature,
        ToolCall, ToolResult,
    },
    run::Status,
    session::{SessionFilter, SessionStatus},
    tool::{Access, ToolOutput},
};
use entourage_testkit::{FakeTool, ScriptedProvider};
use serde_json::json;

use crate::common::{agent, memory, runtime_on, stored};

fn every_part() -> Vec<Part> {
    let call = ToolCall::new(
        "id \"1\"\u{0}",
        "look",
        Arguments::parse("{ \"b\":1.50, \"a\" : [null,1e9]}").unwrap(),
    );
    let mut malformed = ToolCall::new("2", "look", Arguments::empty());
    malformed.malformed = Some("no JSON; what came: {\"\u{1b}[2J".into());
    let mut named = Media::new("image/png", MediaSource::Base64("aGk=".into()));
    named.name = Some("cat.png".into());
    let media = Media::new("audio/wav", MediaSource::Url("https://example.invalid/a?b=c&d".into()));
    let content = vec![Content::Text("two\nlines".into()), Content::Media(named.clone())];
    vec![
        Part::Text(String::new()),
        Part::Text("naïve \u{1F600} \u{202e} \u{0} \\u0041 \r\n\t\"".into()),
        Part::Reasoning(Reasoning::new("hm", None)),
        Part::Reasoning(Reasoning::new(
            "",
            Some(Signature::new("wire", "c2ln+/=").with_item(json!({"id": "rs_1"}))),
        )),
        Part::Refusal("I decline".into()),
        Part::Media(named),
        Part::Media(media),
        Part::ToolResult(Arc::new(ToolResult::new(&call, content, true))),
        Part::ToolResult(Arc::new(ToolResult::text(&call, ""))),
        Part::ToolCall(call),
        Part::ToolCall(malformed),
        Part::Opaque(Opaque::new("some-wire", json!({"type": "server_tool", "n": [1, {"x": null}]}))),
    ]
}

#[test]
fn cd01_every_kind_of_part_round_trips() {
    for role in [Role::System, Role::User, Role::Assistant, Role::Tool] {
        let message = Message::new(role, every_part());
        let json = serde_json::to_string(&message).unwrap();
        assert_eq!(serde_json::from_str::<Message>(&json).unwrap(), message);
        assert_eq!(serde_json::to_string(&serde_json::from_str::<Message>(&json).unwrap()).unwrap(), json);
        let history: History = std::iter::repeat_n(message, 40).collect();
        let json = serde_json::to_string(&history).unwrap();
        assert_eq!(serde_json::from_str::<History>(&json).unwrap(), history);
    }
}

#[test]
fn cd01_arguments_come_back_byte_for_byte() {
    let call = every_part()
        .into_iter()
        .find_map(|part| if let Part::ToolCall(call) = part { Some(call) } else { None });
    let json = serde_json::to_string(&call.unwrap()).unwrap();
    assert!(json.contains("{ \"b\":1.50, \"a\" : [null,1e9]}"), "{json}");
}

#[tokio::test(start_paused = true)]
async fn cd01_every_event_of_a_busy_session_round_trips() {
    let store = memory();
    let outcome = crate::captain::one_life(&store).await;
    assert_eq!(outcome.status, Status::Completed);
    let prompt = Message::new(Role::User, every_part());
    let provider = ScriptedProvider::new()
        .calls([("look", json!({})), ("wipe", json!({})), ("bad", json!({}))])
        .fail(ErrorKind::Overloaded, "no room; wait");
    let output =
        ToolOutput::error("no").with_media(Media::new("image/png", MediaSource::Base64("aGk=".into())));
    let agent = agent(provider.model())
        .tool(FakeTool::new("look").giving(output.with_metadata(json!({"diff": "+x"}))))
        .tool(FakeTool::new("bad").access(Access::WRITE).telling("no"))
        .build()
        .unwrap();
    runtime_on(&store).session().start(&agent, prompt).outcome().await.unwrap_err();

    let mut kinds = std::collections::BTreeSet::new();
    for info in store.query(&SessionFilter::all()).await.unwrap() {
        for event in stored(&store, &info.record.id).await {
            let (kind, json) = (event.event.kind(), event.event.to_json().unwrap());
            assert_eq!(Event::from_json(kind, &json).unwrap(), event.event, "{json}");
            kinds.insert(kind.to_owned());
        }
    }
    let seen: Vec<_> = kinds.into_iter().collect();
    let expected = [
        "child_finished",
        "child_started",
        "model_finished",
        "model_started",
        "observed",
        "run_finished",
        "run_paused",
        "run_resumed",
        "run_started",
        "signal_received",
        "tool_finished",
        "tool_started",
        "wait_started",
    ];
    assert_eq!(seen, expected);
}

#[test]
fn cd01_the_other_events_round_trip_from_their_stored_form() {
    for (kind, json) in [
        (
            "approval_decided",
            r#"{"id":"s.3$$0","decision":"deny","digest":"00112233445566778899aabbccddeeff"}"#,
        ),
        ("warning", r#"{"about":"setting","subject":"top_k","text":"no top_k"}"#),
        (
            "model_restarted",
            r#"{"step":2,"request":"0190a0b0-0000-7000-8000-000000000000","restart":{"attempt":2,"error":{"kind":"overloaded","retry":"temporary","message":"busy"},"delay":{"secs":5,"nanos":0}}}"#,
        ),
        ("run_paused", r#"{"pause":{"approval":"s.3$$0"}}"#),
        ("run_paused", r#"{"pause":{"signal":{"name":"go","until":5}}}"#),
        (
            "approval_requested",
            r#"{"id":"s.3$$0","session":"s","run":"01890a5d-ac96-774b-bcce-b302099a8057","agent":"a/b","tool":"write","arguments":{"path": "x"},"footprint":{"access":"write","writes":["x"]},"rule":"default","digest":"00112233445566778899aabbccddeeff"}"#,
        ),
        (
            "run_finished",
            r#"{"outcome":{"status":{"failed":{"kind":"timeout","retry":"temporary","message":"late"}},"text":"","usage":{"input":1},"cost":null,"steps":2,"labels":"PRIVATE"}}"#,
        ),
        ("labels_added", r#"{"labels":"UNTRUSTED | PRIVATE"}"#),
    ] {
        let event = Event::from_json(kind, json).unwrap();
        assert_eq!((event.kind(), event.to_json().unwrap().as_str()), (kind, json));
    }
}

#[test]
fn attack_08_damaged_and_newer_events_are_typed_errors() {
    for (kind, json, expected) in [
        ("run_started", "{\"format\":1", ErrorKind::Corrupt),
        ("run_started", "", ErrorKind::Corrupt),
        ("run_started", "{}", ErrorKind::Corrupt),
        (
            "run_started",
            "{\"format\":1,\"format\":1,\"agent\":\"a\",\"prompt\":{\"role\":\"user\",\"parts\":[]}}",
            ErrorKind::Corrupt,
        ),
        ("tool_finished", "{\"index\":-1}", ErrorKind::Corrupt),
        (
            "model_finished",
            "{\"message\":{\"role\":\"user\",\"parts\":[{\"text\":\"\\ud800\"}]}}",
            ErrorKind::Corrupt,
        ),
        ("hologram", "{}", ErrorKind::NewerVersion),
        ("delta", "{\"text\":\"x\"}", ErrorKind::NewerVersion),
    ] {
        assert_eq!(Event::from_json(kind, json).unwrap_err().kind(), expected, "{kind} {json}");
    }
    let newer = format!(
        "{{\"format\":{},\"agent\":\"a\",\"prompt\":{{\"role\":\"user\",\"parts\":[]}}}}",
        FORMAT + 1
    );
    assert_eq!(Event::from_json("run_started", &newer).unwrap_err().kind(), ErrorKind::NewerVersion);
}

#[tokio::test]
async fn cd01_a_sessions_head_says_what_happened() {
    let store = memory();
    let provider = ScriptedProvider::new().call("look", json!({})).text("Done.").text("Again.");
    let agent = agent(provider.model()).tool(FakeTool::new("look")).build().unwrap();
    let session = runtime_on(&store).session();
    session.start(&agent, "  Count the\nlines of a file  ").outcome().await.unwrap();
    session.start(&agent, "Once more").outcome().await.unwrap();
    let head = session.head().await.unwrap();
    assert_eq!((head.messages, &*head.title, &*head.agent), (6, "Count the lines of a file", agent.name()));
    assert_eq!((head.status, head.run, head.cost), (SessionStatus::Idle, None, None));
    assert_eq!(head.usage, entourage_core::Usage::new(30, 15));
    let listed = runtime_on(&store).sessions(&SessionFilter::roots()).await.unwrap();
    assert_eq!(listed[0].head, head, "lists and the fold agree");
    let again = runtime_on(&store).open(session.id()).await.unwrap();
    assert_eq!(again.head().await.unwrap(), head);
    assert_eq!(again.history().await.unwrap(), session.history().await.unwrap());
}

#[test]
fn attack_07_an_id_from_outside_is_refused_when_it_is_no_name() -> Result<()> {
    for id in [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "a\\b",
        "a\0",
        "a b",
        "é",
        "аdmin",
        "a\n",
        &"x".repeat(241),
        "a:b",
        "%2e%2e",
    ] {
        assert_eq!(SessionId::new(id).unwrap_err().kind(), ErrorKind::InvalidInput, "{id:?}");
    }
    assert_eq!(SessionId::new("x".repeat(240))?.child(1, 1).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(SessionId::generate().child(3, 4)?.origin().map(|it| (it.1, it.2)), Some((3, 4)));
    assert_eq!(RunId::parse("x").unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(Timestamp::from_micros(5).since(Timestamp::from_micros(9)).as_micros(), 0);
    Ok(())
}
