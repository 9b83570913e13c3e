//! Parts of messages and their blocks.

use entourage_core::{
    message::{Content, Media, MediaSource, Message, Opaque, Part, Reasoning, Role, Signature, ToolResult},
    provider::{Profile, Request},
};
use serde_json::{Value, json};

use super::{body, call};
use crate::anthropic_messages::NAME;

/// The content of the only turn after the first.
fn replayed(parts: Vec<Part>) -> Value {
    let history = [Message::user("x"), Message::new(Role::Assistant, parts)];
    body(&Request::new("m", history.into_iter().collect())).0["messages"][1]["content"].clone()
}

fn shown(parts: Vec<Part>, known: Profile) -> (Value, usize) {
    let request = Request::new("m", [Message::new(Role::User, parts)].into_iter().collect());
    let (found, warnings) = body(&request.with_profile(known));
    (found["messages"][0]["content"].clone(), warnings.len())
}

fn signed(text: &str, data: &str, item: Option<Value>) -> Part {
    let mut signature = Signature::new(NAME, data);
    signature.item = item;
    Part::Reasoning(Reasoning::new(text, Some(signature)))
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

#[test]
fn replies_are_replayed_as_they_came() {
    let search =
        json!({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}});
    let cited = json!({"type": "text", "text": "It rains.", "citations": [{"url": "https://h", "encrypted_index": "E="}]});
    let caller = json!({"type": "code_execution_20260120", "tool_id": "srv1"});
    let parts = vec![
        signed("Let me see.", "sig=", None),
        signed("", "only", None),
        signed("", "sealed", Some(json!({"type": "redacted_thinking"}))),
        Part::Opaque(Opaque::new(NAME, search.clone())),
        Part::Text("Sure: It rains.".into()),
        Part::Opaque(Opaque::new(NAME, cited.clone())),
        Part::Text("\n".into()),
        Part::Refusal("No more.".into()),
        signed("", "", Some(json!({"type": "tool_use", "caller": caller.clone()}))),
        Part::ToolCall(call("t1", "f", r#"{ "x": 1.0 }"#)),
        Part::ToolCall(call("t2", "g", "")),
    ];
    assert_eq!(
        replayed(parts),
        json!([
            {"type": "thinking", "thinking": "Let me see.", "signature": "sig="},
            {"type": "thinking", "thinking": "", "signature": "only"},
            {"type": "redacted_thinking", "data": "sealed"},
            search,
            text("Sure: "),
            cited,
            text("No more."),
            {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": 1.0}, "caller": caller},
            {"type": "tool_use", "id": "t2", "name": "g", "input": {}},
        ])
    );
}

#[test]
fn what_other_wires_sealed_and_what_was_edited_stays_behind() {
    let cited = json!({"type": "text", "text": "secret", "citations": [{}]});
    let parts = vec![
        Part::Reasoning(Reasoning::new("theirs", Some(Signature::new("other-wire", "x")))),
        Part::Reasoning(Reasoning::new("unsigned", None)),
        Part::Opaque(Opaque::new("other-wire", json!({"type": "item"}))),
        Part::Text("[removed]".into()),
        Part::Opaque(Opaque::new(NAME, cited)),
        signed("a turn must not end so", "sig", None),
    ];
    assert_eq!(replayed(parts), json!([text("[removed]")]));
}

#[test]
fn foreign_ids_are_made_fit_and_stay_apart() {
    let calls = ["functions.f:0", "functions.f.0", "", "fine_-9"].map(|id| call(id, "f", "{}"));
    let history = [
        Message::user("x"),
        Message::new(Role::Assistant, calls.iter().cloned().map(Part::ToolCall).collect()),
        Message::tool(calls.iter().map(|call| ToolResult::text(call, ""))),
    ];
    let (found, _) = body(&Request::new("m", history.into_iter().collect()));
    let ids = |turn: usize, key: &str| -> Vec<String> {
        let blocks = found["messages"][turn]["content"].as_array().unwrap();
        blocks.iter().map(|block| block[key].as_str().unwrap().to_owned()).collect()
    };
    let used = ids(1, "id");
    assert_eq!(used, ids(2, "tool_use_id"));
    assert_eq!(used[3], "fine_-9");
    assert!(
        used.iter()
            .all(|id| id.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)) && !id.is_empty())
    );
    assert!(used.iter().enumerate().all(|(n, id)| !used[..n].contains(id)));
    assert_eq!(found["messages"][2]["content"][3], json!({"type": "tool_result", "tool_use_id": "fine_-9"}));
}

fn file(mime: &str, data: &str) -> Media {
    Media::new(mime, MediaSource::Base64(data.into()))
}

fn link(mime: &str, url: &str) -> Media {
    Media::new(mime, MediaSource::Url(url.into()))
}

#[test]
fn files_are_shown_or_named() {
    let mut notes = file("text/markdown; charset=utf-8", "w7wgb2s=");
    notes.name = Some("notes.md".into());
    let parts = [
        file("image/jpg", "aGk="),
        link("image/webp", "https://h/i"),
        file("application/pdf", "aGk="),
        link("application/pdf", "https://h/d"),
        notes,
    ];
    let (found, warnings) = shown(parts.into_iter().map(Part::Media).collect(), Profile::default());
    assert_eq!(
        found,
        json!([
            {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "aGk="}},
            {"type": "image", "source": {"type": "url", "url": "https://h/i"}},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}},
            {"type": "document", "source": {"type": "url", "url": "https://h/d"}},
            {"type": "document", "title": "notes.md",
             "source": {"type": "text", "media_type": "text/plain", "data": "ü ok"}},
        ])
    );
    assert_eq!(warnings, 0);
}

#[test]
fn attack_40_other_sources_and_broken_files_are_named_and_warned_of() {
    for (media, why) in [
        (link("image/png", "file:///etc/passwd"), "only http and https addresses are passed on"),
        (link("application/pdf", "s3://bucket/key"), "only http and https addresses are passed on"),
        (link("image/png", "http://169.254.169.254/x"), "this service fetches https addresses only"),
        (link("text/plain", "https://h/t"), "this service fetches only images and PDF documents"),
        (file("image/png", "not base64"), "its base64 text is broken"),
        (file("image/tiff", "aGk="), "this service cannot be shown such a file"),
        (file("audio/wav", "aGk="), "this service cannot be shown such a file"),
        (file("text/plain", "/+8A"), "its text is not UTF-8"),
        (file("text/plain", "ICAg"), "it is empty"),
    ] {
        let note = format!("[{}: left out, {why}]", media.mime);
        let (found, warnings) = shown(vec![Part::Media(media)], Profile::default());
        assert_eq!((found, warnings), (json!([text(&note)]), 1));
    }
    let mut blind = Profile::default();
    (blind.vision, blind.documents) = (Some(false), Some(false));
    let parts = [file("image/png", "aGk="), file("application/pdf", "aGk=")].map(Part::Media);
    let (found, warnings) = shown(parts.into(), blind);
    assert_eq!(
        (found, warnings),
        (
            json!([
                text("[image/png: left out, this model does not see images]"),
                text("[application/pdf: left out, this model cannot read documents]")
            ]),
            2
        )
    );
}

#[test]
fn cm19_media_of_tools_is_native_except_in_failed_results() {
    let (one, two) = (call("a", "shot", "{}"), call("b", "f", "{}"));
    let mut fine = ToolResult::text(&one, "taken");
    fine.content.extend([Content::Media(file("image/png", "aGk=")), Content::Media(file("image/png", "?"))]);
    let mut failed = ToolResult::error(&two, "half");
    failed.content.push(Content::Media(file("application/pdf", "aGk=")));
    let history = [
        Message::user("x"),
        Message::new(Role::Assistant, vec![Part::ToolCall(one), Part::ToolCall(two)]),
        Message::tool([fine, failed]),
    ];
    let (found, warnings) = body(&Request::new("m", history.into_iter().collect()));
    let image =
        json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}});
    let pdf = json!({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}});
    assert_eq!(
        found["messages"][2]["content"],
        json!([
            {"type": "tool_result", "tool_use_id": "a",
             "content": [text("taken"), image, text("[image/png: left out, its base64 text is broken]")]},
            {"type": "tool_result", "tool_use_id": "b", "is_error": true,
             "content": [text("half"), text("[application/pdf: see below]")]},
            text("application/pdf returned by the tool `f`:"),
            pdf,
        ])
    );
    assert_eq!(warnings, ["image/png"]);
}
