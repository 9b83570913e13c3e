//! The content of a request in one form for all wires, so that different encodings can be compared.

use serde_json::{Map, Value, json};

use crate::wires::Wire;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Who {
    User,
    Model,
    Tool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Item {
    Text(String),
    /// Reasoning. `proof` is a signature, sealed content, or without either the id under which a service keeps it.
    Reasoning {
        text: String,
        proof: String,
    },
    Call {
        id: String,
        name: String,
        arguments: Value,
    },
    Result {
        id: String,
        name: String,
        content: Vec<Piece>,
        is_error: bool,
    },
    /// A block of a tool of the service.
    Block(Value),
    /// A property of an item beside its content: its phase, its namespace, its caller.
    Note(Value),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Piece {
    Text(String),
    /// A file, as base64 data or an address.
    File {
        mime: String,
        data: String,
    },
}

pub(crate) type Said = Vec<(Who, Item)>;

/// Reads everything in `body` except system text.
pub(crate) fn read(wire: Wire, body: &Value) -> Said {
    match wire {
        Wire::Chat(_) => list(&body["messages"]).iter().flat_map(chat).collect(),
        Wire::Messages => list(&body["messages"]).iter().flat_map(messages).collect(),
        Wire::Ollama => list(&body["messages"]).iter().flat_map(ollama).collect(),
        Wire::Gemini => list(&body["contents"]).iter().flat_map(gemini).collect(),
        Wire::Responses => match &body["input"] {
            Value::String(text) => vec![(Who::User, Item::Text(text.clone()))],
            items => list(items).iter().flat_map(responses).collect(),
        },
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The first of these fields that is present.
fn first<'a>(value: &'a Value, names: &[&str]) -> &'a Value {
    let found = names.iter().map(|name| &value[*name]).find(|value| !value.is_null());
    found.unwrap_or(&Value::Null)
}

fn user(content: &Value) -> Said {
    vec![(Who::User, Item::Text(plain(content).to_string()))]
}

/// The value without cache marks and absent values.
fn plain(value: &Value) -> Value {
    match value {
        Value::Array(all) => all.iter().map(plain).collect(),
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(key, value)| *key != "cache_control" && !value.is_null());
            kept.map(|(key, value)| (key.clone(), plain(value))).collect::<Map<_, _>>().into()
        }
        other => other.clone(),
    }
}

fn text(items: &mut Vec<Item>, text: &Value) {
    if let Some(text) = text.as_str().filter(|text| !text.is_empty()) {
        items.push(Item::Text(text.to_owned()));
    }
}

fn reasoning(items: &mut Vec<Item>, text: String, proof: String) {
    if !text.is_empty() || !proof.is_empty() {
        items.push(Item::Reasoning { text, proof });
    }
}

/// Arguments, given as text or as an object.
fn arguments(value: &Value) -> Value {
    match value {
        Value::String(text) if text.trim().is_empty() => json!({}),
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| value.clone()),
        Value::Null => json!({}),
        other => other.clone(),
    }
}

fn all(who: Who, items: Vec<Item>) -> Said {
    items.into_iter().map(|item| (who, item)).collect()
}

fn file(mime: &Value, data: &Value) -> Piece {
    Piece::File { mime: word(mime), data: word(data) }
}

/// A file whose data may be in a `data:` address.
fn linked(address: &str) -> Piece {
    let inline = address.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    let (mime, data) = inline.unwrap_or(("", address));
    Piece::File { mime: mime.to_owned(), data: data.to_owned() }
}

fn pieces(content: &Value, other: impl Fn(&Value) -> Piece) -> Vec<Piece> {
    match content {
        Value::Null => Vec::new(),
        Value::Array(parts) => parts
            .iter()
            .map(|part| {
                part["text"].as_str().map_or_else(|| other(part), |text| Piece::Text(text.to_owned()))
            })
            .collect(),
        Value::String(text) => vec![Piece::Text(text.clone())],
        value => vec![Piece::Text(value.to_string())],
    }
}

fn unread(part: &Value) -> Piece {
    Piece::Text(part.to_string())
}

fn chat(message: &Value) -> Said {
    let mut items = Vec::new();
    match message["role"].as_str() {
        Some("user") => return user(&message["content"]),
        Some("tool" | "function") => {
            let content = pieces(&message["content"], unread);
            let (id, name) = (word(&message["tool_call_id"]), word(&message["name"]));
            return vec![(Who::Tool, Item::Result { id, name, content, is_error: false })];
        }
        Some("assistant") => {}
        _ => return Vec::new(),
    }
    let details = list(&message["reasoning_details"]);
    for detail in details {
        let proof = word(first(detail, &["signature", "data"]));
        reasoning(&mut items, word(first(detail, &["text", "summary"])), proof);
    }
    if details.is_empty() {
        let text = first(message, &["reasoning_content", "reasoning", "thinking"]);
        reasoning(&mut items, word(text), String::new());
    }
    match &message["content"] {
        Value::Array(parts) => {
            for part in parts {
                let thinking = list(&part["thinking"]).iter().map(|one| word(&one["text"])).collect();
                reasoning(&mut items, thinking, String::new());
                text(&mut items, first(part, &["text", "refusal"]));
            }
        }
        content => text(&mut items, content),
    }
    text(&mut items, &message["refusal"]);
    let calls = list(&message["tool_calls"]).iter().map(|call| (word(&call["id"]), &call["function"]));
    let old = Some(&message["function_call"]).filter(|call| call.is_object());
    for (id, call) in calls.chain(old.map(|call| (String::new(), call))) {
        items.push(Item::Call { id, name: word(&call["name"]), arguments: arguments(&call["arguments"]) });
    }
    all(Who::Model, items)
}

fn messages(message: &Value) -> Said {
    let blocks = match &message["content"] {
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        blocks => list(&plain(blocks)).to_vec(),
    };
    if message["role"] == "user" {
        return blocks.iter().flat_map(messages_user).collect();
    }
    let mut items = Vec::new();
    for block in &blocks {
        match block["type"].as_str().unwrap_or_default() {
            "text" if list(&block["citations"]).is_empty() => text(&mut items, &block["text"]),
            "thinking" => reasoning(&mut items, word(&block["thinking"]), word(&block["signature"])),
            "redacted_thinking" => reasoning(&mut items, String::new(), word(&block["data"])),
            "tool_use" => {
                if !block["caller"].is_null() {
                    items.push(Item::Note(block["caller"].clone()));
                }
                let (id, name) = (word(&block["id"]), word(&block["name"]));
                items.push(Item::Call { id, name, arguments: arguments(&block["input"]) });
            }
            _ => items.push(Item::Block(block.clone())),
        }
    }
    all(Who::Model, items)
}

fn messages_user(block: &Value) -> Said {
    if block["type"] != "tool_result" {
        return user(block);
    }
    let content = pieces(&block["content"], |part| {
        let source = &part["source"];
        match source["type"].as_str() {
            Some("base64") => file(&source["media_type"], &source["data"]),
            Some("url") => file(&json!(""), &source["url"]),
            _ => unread(part),
        }
    });
    let (id, is_error) = (word(&block["tool_use_id"]), block["is_error"] == true);
    vec![(Who::Tool, Item::Result { id, name: String::new(), content, is_error })]
}

fn ollama(message: &Value) -> Said {
    let mut items = Vec::new();
    match message["role"].as_str() {
        Some("user") => return user(&message["content"]),
        Some("tool") => {
            let content = pieces(&message["content"], unread);
            let (id, name) = (word(&message["tool_call_id"]), word(first(message, &["tool_name", "name"])));
            return vec![(Who::Tool, Item::Result { id, name, content, is_error: false })];
        }
        Some("assistant") => {}
        _ => return Vec::new(),
    }
    reasoning(&mut items, word(&message["thinking"]), String::new());
    text(&mut items, &message["content"]);
    for call in list(&message["tool_calls"]) {
        let function = &call["function"];
        let (id, name) = (word(&call["id"]), word(&function["name"]));
        items.push(Item::Call { id, name, arguments: arguments(&function["arguments"]) });
    }
    all(Who::Model, items)
}

fn gemini(content: &Value) -> Said {
    let model = content["role"] == "model";
    let mut said = Vec::new();
    for part in list(&content["parts"]) {
        let answer = first(part, &["functionResponse", "function_response"]);
        if !answer.is_null() {
            said.push((Who::Tool, gemini_result(answer)));
        } else if model {
            said.extend(all(Who::Model, gemini_part(part)));
        } else {
            said.extend(user(part));
        }
    }
    said
}

/// Reads a part. A signature on a part that is not a thought goes before it.
fn gemini_part(part: &Value) -> Vec<Item> {
    let mut items = Vec::new();
    let proof = word(first(part, &["thoughtSignature", "thought_signature"]));
    let call = first(part, &["functionCall", "function_call"]);
    if part["thought"] == true && part["text"].is_string() {
        reasoning(&mut items, word(&part["text"]), proof);
        return items;
    }
    reasoning(&mut items, String::new(), proof);
    if call.is_object() {
        let (id, name) = (word(&call["id"]), word(&call["name"]));
        items.push(Item::Call { id, name, arguments: arguments(&call["args"]) });
    } else if part["text"].is_string() {
        text(&mut items, &part["text"]);
    } else {
        let kept = plain(part);
        let fields = kept.as_object().into_iter().flatten();
        let fields = fields.filter(|(key, _)| !key.starts_with("thought"));
        let fields: Map<_, _> = fields.map(|(key, value)| (key.clone(), value.clone())).collect();
        if !fields.is_empty() {
            items.push(Item::Block(fields.into()));
        }
    }
    items
}

/// Reads a result. The service gives names to results (`output`, `error`), and takes any object.
fn gemini_result(answer: &Value) -> Item {
    let response = &answer["response"];
    let only =
        response.as_object().filter(|fields| fields.len() == 1).and_then(|fields| fields.iter().next());
    let is_error = only.is_some_and(|(key, _)| key == "error");
    let said = match only {
        Some((key, value)) if ["output", "error"].contains(&key.as_str()) => value,
        _ => response,
    };
    let mut content = pieces(said, unread);
    for part in list(&answer["parts"]) {
        let data = first(part, &["inlineData", "inline_data"]);
        content.push(file(first(data, &["mimeType", "mime_type"]), &data["data"]));
    }
    Item::Result { id: word(&answer["id"]), name: word(&answer["name"]), content, is_error }
}

fn responses(item: &Value) -> Said {
    let mut items = Vec::new();
    match (item["type"].as_str().unwrap_or("message"), item["role"].as_str()) {
        ("message", Some("assistant")) => {
            if let Some(phase) = item["phase"].as_str() {
                items.push(Item::Note(json!(phase)));
            }
            match &item["content"] {
                Value::Array(parts) => {
                    parts.iter().for_each(|part| text(&mut items, first(part, &["text", "refusal"])));
                }
                content => text(&mut items, content),
            }
        }
        ("message", Some("user")) => return user(&item["content"]),
        ("message", _) => {}
        ("function_call", _) => {
            if let Some(namespace) = item["namespace"].as_str() {
                items.push(Item::Note(json!(namespace)));
            }
            let (id, name) = (word(&item["call_id"]), word(&item["name"]));
            items.push(Item::Call { id, name, arguments: arguments(&item["arguments"]) });
        }
        ("function_call_output", _) => {
            let content = pieces(&item["output"], |part| match part["image_url"].as_str() {
                Some(address) => linked(address),
                None => part["file_data"].as_str().map_or_else(|| unread(part), linked),
            });
            let id = word(&item["call_id"]);
            return vec![(Who::Tool, Item::Result { id, name: String::new(), content, is_error: false })];
        }
        ("reasoning", _) => {
            let parts = list(&item["summary"]).iter().chain(list(&item["content"]));
            let text: String = parts.map(|part| word(&part["text"])).collect();
            let mut proof = word(&item["encrypted_content"]);
            if text.is_empty() && proof.is_empty() {
                proof = word(&item["id"]);
            }
            reasoning(&mut items, text, proof);
        }
        _ => items.push(Item::Block(plain(item))),
    }
    all(Who::Model, items)
}
