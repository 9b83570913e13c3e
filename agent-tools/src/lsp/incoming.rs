//! Requests and notices of a server. They are answered at once, and nothing is changed for them.

use serde_json::{Value, json};

use super::{connection::Wire, uri, wire::Found};

/// Most settings that are asked for at once.
const ITEMS: usize = 100;

/// The answer to a request; `None` if it is not known.
pub(super) fn answer(wire: &Wire, method: &str, params: &Value) -> Option<Value> {
    Some(match method {
        "workspace/configuration" => {
            let items = params.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let section = |item: &Value| {
                let section = item.get("section").and_then(Value::as_str).unwrap_or_default();
                setting(&wire.settings, section)
            };
            items.iter().take(ITEMS).map(section).collect()
        }
        "workspace/workspaceFolders" => json!([folder(wire)]),
        // Files are changed by tools alone, which ask first.
        "workspace/applyEdit" => json!({
            "applied": false,
            "failureReason": "this client changes no files on its own",
        }),
        "window/showDocument" => json!({ "success": false }),
        "client/registerCapability"
        | "client/unregisterCapability"
        | "window/workDoneProgress/create"
        | "window/showMessageRequest"
        | "workspace/codeLens/refresh"
        | "workspace/diagnostic/refresh"
        | "workspace/foldingRange/refresh"
        | "workspace/inlayHint/refresh"
        | "workspace/inlineValue/refresh"
        | "workspace/semanticTokens/refresh" => Value::Null,
        _ => return None,
    })
}

/// The folder that a server works in.
pub(super) fn folder(wire: &Wire) -> Value {
    let name = wire.root.file_name().map(|name| name.to_string_lossy().into_owned());
    json!({ "uri": uri::of(&wire.root), "name": name.unwrap_or_else(|| "root".to_owned()) })
}

/// The part of the settings that a name with dots leads to; all of them for none.
fn setting(settings: &Value, section: &str) -> Value {
    let mut found = settings;
    for part in section.split('.').filter(|part| !part.is_empty()) {
        match found.get(part) {
            Some(inner) => found = inner,
            None => return settings.get(section).cloned().unwrap_or_default(),
        }
    }
    found.clone()
}

/// Takes what the server tells.
pub(super) fn notice(wire: &Wire, method: &str, params: &Value) {
    match method {
        "textDocument/publishDiagnostics" => {
            let path = params.get("uri").and_then(Value::as_str).and_then(uri::path);
            let Some(path) = path else { return };
            let version = params.get("version").and_then(Value::as_i64);
            let found = Found::read(params.get("diagnostics").unwrap_or(&Value::Null));
            wire.known.published(&path, version, found);
        }
        "$/progress" => wire.known.progressed(params),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ce02_settings_are_found_by_their_names() {
        let settings = json!({"python": {"analysis": {"mode": "strict"}}, "a.b": 1});
        assert_eq!(setting(&settings, "python.analysis"), json!({"mode": "strict"}));
        assert_eq!(setting(&settings, ""), settings);
        assert_eq!((setting(&settings, "a.b"), setting(&settings, "python.x")), (json!(1), Value::Null));
    }
}
