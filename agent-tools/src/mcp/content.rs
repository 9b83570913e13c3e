//! What a server sends, as results and declarations of tools. Pure.

use entourage_core::{
    Digest, bound,
    message::{Content, Media, MediaSource},
    tool::{Access, Labels, Repeat, ToolOutput, ToolSpec},
};
use rmcp::model::{
    CallToolResult, ContentBlock, GetPromptResult, Prompt, ReadResourceResult, Resource, ResourceContents,
    Role, Tool,
};
use serde_json::{Value, json};

use crate::invisible::{self, is_invisible};

/// Most bytes of a description, and of a schema as JSON.
const DESCRIPTION: usize = 16 << 10;
const SCHEMA: usize = 256 << 10;
/// Longest name of a tool that services take.
const NAME: usize = 64;

/// A server's text without what moves a terminal's cursor, and without what nobody sees: marks of direction, characters
/// of no width, tags.
pub(super) fn plain(text: &str) -> String {
    let hidden = |c: char| {
        c.is_control() && c != '\n' && c != '\t' || matches!(c, '\u{2028}' | '\u{2029}') || is_invisible(c)
    };
    text.chars().filter(|c| !hidden(*c)).collect()
}

/// A server's words in a sentence of this program, as far as there is room.
pub(super) fn told(text: &str, most: usize) -> String {
    bound::shortened(&plain(text), most).into_owned()
}

/// The name of a server's tool. One that services would refuse is changed, with digits of a digest at its end that
/// keep it apart from others.
pub(super) fn name_of(server: &str, tool: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let name: String = format!("mcp_{server}_{tool}").chars().map(safe).collect();
    if name.len() <= NAME && name.ends_with(tool) {
        return name;
    }
    let digest = Digest::of([tool.as_bytes()]).to_string();
    let kept: String = name.chars().take(NAME - 9).collect();
    format!("{kept}_{}", digest.get(..8).unwrap_or(&digest))
}

/// Digest of what a server says of a tool. A change of it is asked about.
pub(super) fn digest_of(tool: &Tool) -> Digest {
    let parts = [
        tool.description.as_deref().unwrap_or_default().to_owned(),
        Value::Object((*tool.input_schema).clone()).to_string(),
        json!(tool.annotations).to_string(),
    ];
    Digest::of(parts.iter().map(String::as_bytes))
}

/// The declarations of a server's tool; `None` for one whose schema is too large.
///
/// Hints are the server's word. One that says nothing of a tool leaves it able to do anything (ATTACKS 19), and none
/// takes from a server that `is_remote`, on another machine, that each call tells that machine something.
pub(super) fn spec_of(server: &str, is_remote: bool, tool: &Tool) -> Option<ToolSpec> {
    let mut schema = Value::Object((*tool.input_schema).clone());
    bound::check(&schema, SCHEMA * 8).ok()?;
    if schema.to_string().len() > SCHEMA {
        return None;
    }
    // Services refuse a tool whose arguments are anything else.
    if let Some(fields) = schema.as_object_mut() {
        fields.insert("type".to_owned(), json!("object"));
    }
    let description = tool.description.as_deref().unwrap_or_default();
    let description = plain(&bound::shortened(description, DESCRIPTION));
    let hints = tool.annotations.clone().unwrap_or_default();
    let reads = hints.read_only_hint == Some(true);
    let is_closed = hints.open_world_hint == Some(false) && !is_remote;
    let open = if is_closed { Access::NONE } else { Access::NETWORK };
    let (access, repeat) = match (reads, hints.idempotent_hint) {
        (true, _) => (Access::READ | open, Repeat::Safe),
        (false, Some(true)) => (Access::ALL - Access::DELEGATE - Access::ASK, Repeat::Idempotent),
        (false, _) => (Access::ALL - Access::DELEGATE - Access::ASK, Repeat::Once),
    };
    let spec = ToolSpec::new(name_of(server, &tool.name), description, schema);
    // Whatever a server says of itself, its results are a stranger's words, and may hold what is private.
    Some(spec.with_access(access).with_repeat(repeat).with_labels(Labels::all()))
}

/// The result of a call.
pub(super) fn output_of(result: CallToolResult) -> ToolOutput {
    let is_error = result.is_error == Some(true);
    let mut content: Vec<Content> = result.content.into_iter().map(block).collect();
    if is_error {
        // What went wrong is read by people too, and needs nothing that they do not see.
        for piece in &mut content {
            if let Content::Text(text) = piece {
                *text = plain(text);
            }
        }
    }
    if content.is_empty() {
        content.push(Content::Text(match &result.structured_content {
            Some(value) => value.to_string(),
            None => "The tool gave no output.".to_owned(),
        }));
    }
    let mut output = ToolOutput::default();
    output.content = content;
    output.is_error = is_error;
    match result.structured_content {
        Some(value) => output.with_metadata(json!({ "structured": value })),
        None => output,
    }
}

fn block(block: ContentBlock) -> Content {
    match block {
        ContentBlock::Text(text) => Content::Text(text.text),
        ContentBlock::Image(image) => media(image.mime_type, image.data),
        ContentBlock::Audio(audio) => media(audio.mime_type, audio.data),
        ContentBlock::Resource(embedded) => contents(embedded.resource),
        ContentBlock::ResourceLink(link) => Content::Text(format!("Resource: {}", line(&link))),
        _ => Content::Text("(content of a kind that is not known here)".to_owned()),
    }
}

fn media(mime: String, data: String) -> Content {
    Content::Media(Media::new(mime, MediaSource::Base64(data)))
}

/// Contents of a resource. Bytes that no model takes are named alone.
fn contents(contents: ResourceContents) -> Content {
    match contents {
        ResourceContents::TextResourceContents { uri, text, .. } => {
            Content::Text(format!("Resource {}:\n{text}", invisible::line(&uri)))
        }
        ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
            let mime = mime_type.unwrap_or_default();
            let shown =
                ["image/", "audio/"].iter().any(|kind| mime.starts_with(kind)) || mime == "application/pdf";
            if shown {
                return media(mime, blob);
            }
            let bytes = blob.len() / 4 * 3;
            let about = format!("Resource {uri}: about {bytes} bytes of the type `{mime}`, not shown");
            Content::Text(invisible::line(&about))
        }
        _ => Content::Text("(a resource of a kind that is not known here)".to_owned()),
    }
}

/// One line about a resource.
pub(super) fn line(resource: &Resource) -> String {
    let mut line = format!("{} ({})", resource.uri, resource.name);
    if let Some(mime) = &resource.mime_type {
        line = format!("{line} {mime}");
    }
    if let Some(description) = &resource.description {
        line = format!("{line}: {}", bound::shortened(description, bound::WORD));
    }
    invisible::line(&line)
}

/// One line about a prompt.
pub(super) fn prompt_line(prompt: &Prompt) -> String {
    let arguments = prompt.arguments.iter().flatten().map(|argument| match argument.required {
        Some(true) => format!("{} (required)", argument.name),
        _ => argument.name.clone(),
    });
    let arguments: Vec<_> = arguments.collect();
    let description = prompt.description.as_deref().unwrap_or_default();
    let description = bound::shortened(description, bound::WORD);
    invisible::line(&format!("{}({}): {description}", prompt.name, arguments.join(", ")))
}

/// The contents of a resource that was read.
pub(super) fn resource_of(result: ReadResourceResult) -> ToolOutput {
    let mut output = ToolOutput::default();
    output.content = result.contents.into_iter().map(contents).collect();
    if output.content.is_empty() { ToolOutput::text("The resource is empty.") } else { output }
}

/// The messages of a prompt, each with its role.
pub(super) fn messages_of(result: GetPromptResult) -> ToolOutput {
    let mut output = ToolOutput::default();
    for message in result.messages {
        let role = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        match block(message.content) {
            Content::Text(text) => output.content.push(Content::Text(format!("{role}: {text}"))),
            other => output.content.extend([Content::Text(format!("{role}:")), other]),
        }
    }
    if output.content.is_empty() { ToolOutput::text("The prompt has no messages.") } else { output }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    fn tool(value: Value) -> Tool {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn attack_19_no_name_of_a_server_makes_a_line_of_its_own() {
        for end in ["\n", "\r", "\u{85}", "\u{2028}", "\u{2029}", "\u{b}"] {
            let forged = format!("a{end}x://2 (two)");
            let resource =
                serde_json::from_value(json!({"uri": forged, "name": forged, "description": forged}));
            let prompt = json!({"name": forged, "description": forged, "arguments": [{"name": forged}]});
            let read = |kind: &str| {
                let contents = json!([{"uri": forged, kind: "bw==", "mimeType": forged}]);
                let output = resource_of(serde_json::from_value(json!({ "contents": contents })).unwrap());
                output.content.iter().map(Content::as_text).collect::<String>()
            };
            let text = read("text");
            for line in [
                line(&resource.unwrap()).as_str(),
                &prompt_line(&serde_json::from_value(prompt).unwrap()),
                &read("blob"),
                text.strip_suffix(":\nbw==").unwrap(),
            ] {
                assert!(line.contains("a x://2 (two)"), "{line:?}");
                assert!(
                    !line.contains(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')),
                    "{line:?}"
                );
            }
        }
    }

    fn result(value: Value) -> ToolOutput {
        output_of(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn ce01_names_are_those_that_services_take() {
        assert_eq!(name_of("github", "search-issues_2"), "mcp_github_search-issues_2");
        let dotted = name_of("s", "a.b");
        assert!(dotted.starts_with("mcp_s_a_b_") && dotted != name_of("s", "a/b"), "{dotted}");
        assert_ne!(name_of("s", "a_b"), dotted);
        let long = name_of("s", &"x".repeat(100));
        assert!(long.len() == 64 && long != name_of("s", &"x".repeat(101)), "{long}");
    }

    #[test]
    fn attack_19_a_tool_without_hints_can_do_anything() {
        let all = Access::ALL - Access::DELEGATE - Access::ASK;
        for (hints, access, repeat) in [
            (json!(null), all, Repeat::Once),
            (json!({}), all, Repeat::Once),
            (json!({"destructiveHint": false}), all, Repeat::Once),
            (json!({"readOnlyHint": false, "idempotentHint": true}), all, Repeat::Idempotent),
            (json!({"readOnlyHint": true}), Access::READ | Access::NETWORK, Repeat::Safe),
            (json!({"readOnlyHint": true, "openWorldHint": false}), Access::READ, Repeat::Safe),
            (json!({"openWorldHint": false}), all, Repeat::Once),
        ] {
            let spec =
                spec_of("s", false, &tool(json!({"name": "t", "inputSchema": {}, "annotations": hints})))
                    .unwrap();
            assert_eq!((spec.access(), spec.repeat()), (access, repeat), "{hints}");
            assert_eq!(spec.schema(), &json!({"type": "object"}));
            assert!(!spec.names_subjects());
            let tool = tool(json!({"name": "t", "inputSchema": {}, "annotations": hints}));
            let remote = spec_of("s", true, &tool).unwrap();
            assert_eq!(remote.access(), access | Access::NETWORK, "a call of another machine: {hints}");
        }
    }

    #[test]
    fn what_a_server_says_of_a_tool_is_bounded() {
        let long = tool(json!({"name": "t", "description": "é".repeat(20_000), "inputSchema": {}}));
        assert!(spec_of("s", false, &long).unwrap().description().len() <= DESCRIPTION);
        let mut deep = json!({});
        for _ in 0..200 {
            deep = json!({ "properties": deep });
        }
        let mut wide = tool(json!({"name": "t", "inputSchema": {}}));
        for schema in [deep, json!({ "description": "x".repeat(SCHEMA) })] {
            wide.input_schema = Arc::new(schema.as_object().unwrap().clone());
            assert!(spec_of("s", false, &wide).is_none());
        }
    }

    #[test]
    fn attack_44_nothing_in_a_description_is_hidden() {
        let text = "Reads.\n\tFast\u{1b}[2J\u{202e}\u{200b}\u{e0041}\u{feff} é 日";
        let spec =
            spec_of("s", false, &tool(json!({"name": "t", "description": text, "inputSchema": {}}))).unwrap();
        assert_eq!(spec.description(), "Reads.\n\tFast[2J é 日");
    }

    #[test]
    fn attack_43_any_change_of_a_tool_changes_its_digest() {
        let base = json!({"name": "t", "description": "d", "inputSchema": {"type": "object"}});
        let of = |key: &str, value: Value| {
            let mut changed = base.clone();
            changed[key] = value;
            digest_of(&tool(changed))
        };
        let same = digest_of(&tool(base.clone()));
        assert_eq!(same, of("title", json!("Another title")));
        for (key, value) in [
            ("description", json!("d ")),
            ("inputSchema", json!({"type": "object", "properties": {"x": {}}})),
            ("annotations", json!({"readOnlyHint": true})),
        ] {
            assert_ne!(same, of(key, value), "{key}");
        }
    }

    #[test]
    fn each_kind_of_content_is_text_or_a_file() {
        let output = result(json!({"content": [
            {"type": "text", "text": "a"},
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "x://1", "text": "t"}},
            {"type": "resource", "resource": {"uri": "x://2", "blob": "aGk=", "mimeType": "image/png"}},
            {"type": "resource", "resource": {"uri": "x://3", "blob": "aGkh", "mimeType": "application/zip"}},
            {"type": "resource_link", "uri": "x://4", "name": "n", "mimeType": "text/plain", "description": "d"},
        ]}));
        let shown: Vec<_> = output
            .content
            .iter()
            .map(|piece| match piece {
                Content::Text(text) => text.clone(),
                Content::Media(media) => media.mime.clone(),
                _ => panic!("{piece:?}"),
            })
            .collect();
        assert_eq!(
            shown,
            [
                "a",
                "image/png",
                "audio/wav",
                "Resource x://1:\nt",
                "image/png",
                "Resource x://3: about 3 bytes of the type `application/zip`, not shown",
                "Resource: x://4 (n) text/plain: d"
            ]
        );
        let failed = result(
            json!({"isError": true, "content": [{"type": "text", "text": "no\u{1b}[2J \u{e0041}disk"}]}),
        );
        assert_eq!(failed.content, [Content::Text("no[2J disk".to_owned())]);
        let output = result(json!({"structuredContent": {"n": 1}, "isError": true}));
        assert_eq!(output.content, [Content::Text(r#"{"n":1}"#.to_owned())]);
        assert_eq!((output.is_error, output.metadata), (true, Some(json!({"structured": {"n": 1}}))));
        assert_eq!(result(json!({"content": []})).content.len(), 1);
    }

    proptest! {
        #[test]
        fn a_name_is_always_one_that_services_take(server in "[A-Za-z0-9_-]{1,32}", tool in ".{0,80}") {
            let name = name_of(&server, &tool);
            let safe = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            prop_assert!(name.len() <= 64 && name.chars().all(safe), "{}", name);
            let prefix = format!("mcp_{server}_");
            prop_assert!(name.starts_with(&prefix), "{}", name);
        }
    }
}
