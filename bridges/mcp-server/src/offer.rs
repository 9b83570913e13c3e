//! Tools and results in the protocol's words. Pure.

use entourage_core::{
    message::{Content, Media, MediaSource, ToolResult},
    tool::{Access, Repeat, ToolSpec},
};
use rmcp::model::{
    CallToolResult, ContentBlock, JsonObject, Resource, ResourceContents, Tool, ToolAnnotations,
};
use serde_json::{Value, json};

/// Returns the declaration of a tool.
pub(crate) fn tool(spec: &ToolSpec) -> Tool {
    let schema = spec.schema().as_object().cloned().unwrap_or_default();
    Tool::new(spec.name().to_owned(), spec.description().to_owned(), with_type(schema))
        .with_annotations(annotations(spec))
}

/// The protocol wants `"type": "object"` at the top; our schemas describe objects without saying so, too.
fn with_type(mut schema: JsonObject) -> JsonObject {
    schema.entry("type").or_insert_with(|| json!("object"));
    schema
}

/// Returns the hints of a tool. A client may skip its question to the user by them, so what is not declared counts as
/// dangerous.
fn annotations(spec: &ToolSpec) -> ToolAnnotations {
    let (access, repeat) = (spec.access(), spec.repeat());
    // `Repeat::Safe` declares that a call has no effects, also where it talks to other machines.
    let reads = access.is_read_only() || repeat == Repeat::Safe && !access.contains(Access::WRITE);
    ToolAnnotations::new()
        .read_only(reads)
        .destructive(!reads)
        .idempotent(reads || repeat == Repeat::Idempotent)
        .open_world(access.intersects(Access::NETWORK | Access::EXECUTE | Access::DELEGATE))
}

/// Returns what a model would see of a result. Metadata stays here.
pub(crate) fn result(result: &ToolResult) -> CallToolResult {
    let content = result.content.iter().map(content).collect();
    if result.is_error { CallToolResult::error(content) } else { CallToolResult::success(content) }
}

/// Returns an error result of one text.
pub(crate) fn failure(text: impl Into<String>) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}

fn content(content: &Content) -> ContentBlock {
    match content {
        Content::Text(text) => ContentBlock::text(text.clone()),
        Content::Media(media) => file(media),
        other => ContentBlock::text(other.as_text()),
    }
}

fn file(media: &Media) -> ContentBlock {
    let Media { mime, source, name, .. } = media;
    let name = name.clone().unwrap_or_else(|| "file".to_owned());
    match source {
        MediaSource::Base64(data) if mime.starts_with("image/") => ContentBlock::image(data, mime),
        MediaSource::Base64(data) if mime.starts_with("audio/") => ContentBlock::audio(data, mime),
        MediaSource::Base64(data) => {
            // The content is here, so the address only has to name it.
            let address = format!("attachment:{}", encoded(&name));
            ContentBlock::resource(ResourceContents::blob(data, address).with_mime_type(mime))
        }
        MediaSource::Url(url) => ContentBlock::resource_link(Resource::new(url, name).with_mime_type(mime)),
        _ => ContentBlock::text(format!("[a file of type {mime} that this server cannot pass on]")),
    }
}

/// Returns a name as a part of an address.
fn encoded(name: &str) -> String {
    name.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}

/// Returns the arguments of a request: none stand for an empty object.
pub(crate) fn arguments(arguments: Option<JsonObject>) -> Value {
    Value::Object(arguments.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_follow_the_declarations() {
        let spec = |access, repeat: Option<Repeat>| {
            let spec = ToolSpec::new("tool", "A tool.", json!({})).with_access(access);
            repeat.map_or(spec.clone(), |repeat| spec.with_repeat(repeat))
        };
        let undeclared = ToolSpec::new("tool", "A tool.", json!({"type": "object"}));
        // Read-only, destructive, idempotent, open world.
        for (spec, hints) in [
            (spec(Access::NONE, None), [true, false, true, false]),
            (spec(Access::READ, None), [true, false, true, false]),
            (spec(Access::READ | Access::NETWORK, None), [false, true, false, true]),
            (spec(Access::READ | Access::NETWORK, Some(Repeat::Safe)), [true, false, true, true]),
            (spec(Access::WRITE, None), [false, true, false, false]),
            (spec(Access::WRITE, Some(Repeat::Safe)), [false, true, false, false]),
            (spec(Access::WRITE, Some(Repeat::Idempotent)), [false, true, true, false]),
            (spec(Access::EXECUTE, None), [false, true, false, true]),
            (spec(Access::DELEGATE, Some(Repeat::Resume)), [false, true, false, true]),
            (undeclared, [false, true, false, true]),
        ] {
            let tool = tool(&spec);
            assert_eq!(tool.input_schema.get("type"), Some(&json!("object")));
            let it = tool.annotations.unwrap_or_default();
            let got = [it.read_only_hint, it.destructive_hint, it.idempotent_hint, it.open_world_hint];
            assert_eq!(got, hints.map(Some), "{spec:?}");
        }
    }

    #[test]
    fn files_keep_their_kind() {
        let media = |mime: &str, source| {
            let mut media = Media::new(mime, source);
            media.name = Some("a b.bin".to_owned());
            serde_json::to_value(file(&media)).unwrap_or_default()
        };
        let base64 = || MediaSource::Base64("aGk=".to_owned());
        let url = || MediaSource::Url("https://example.invalid/a.png".to_owned());
        for (shown, expected) in [
            (media("image/png", base64()), json!({"type": "image", "data": "aGk=", "mimeType": "image/png"})),
            (media("audio/wav", base64()), json!({"type": "audio", "data": "aGk=", "mimeType": "audio/wav"})),
            (
                media("application/pdf", base64()),
                json!({"type": "resource", "resource": {
                    "uri": "attachment:a%20b.bin", "mimeType": "application/pdf", "blob": "aGk="
                }}),
            ),
            (
                media("image/png", url()),
                json!({
                    "type": "resource_link", "uri": "https://example.invalid/a.png", "name": "a b.bin",
                    "mimeType": "image/png"
                }),
            ),
        ] {
            assert_eq!(shown, expected);
        }
    }
}
