mod decode;
mod encode;

use serde_json::{Value, json};

/// A search for tools, and what it found, as the service sends them.
fn searched() -> [Value; 2] {
    let search = json!({"type": "tool_search_call", "id": "tsc_1", "call_id": null, "execution": "server",
        "status": "completed", "arguments": {"paths": ["rate"]}});
    let found = json!({"type": "tool_search_output", "id": "tso_1", "call_id": null, "execution": "server",
        "status": "completed", "tools": [{"type": "function", "name": "rate", "defer_loading": true}]});
    [search, found]
}
