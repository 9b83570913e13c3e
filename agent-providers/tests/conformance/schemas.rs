//! Typed replies of types that a service cannot enforce: values of any form, and types that contain themselves. The
//! model is told the schema in each case, and no request has what its service refuses.

use entourage_core::{
    message::Message,
    provider::{OutputSchema, Request},
    tool::{ToolSpec, schema_of},
};
use entourage_providers::{
    anthropic_messages, gemini, ollama, openai_chat, openai_chat::Dialect, openai_responses,
};
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

#[derive(JsonSchema)]
#[allow(dead_code, reason = "only its schema counts")]
struct Tree {
    label: String,
    children: Vec<Tree>,
}

#[derive(JsonSchema)]
#[allow(dead_code, reason = "only its schema counts")]
struct Free {
    label: Value,
    more: Map<String, Value>,
}

/// The body of a request for a value of this schema, as each wire writes it; with a tool of the schema if `tools`.
fn bodies(schema: &Value, tools: bool) -> Vec<(&'static str, Value)> {
    let request = |model: &str| {
        let request = Request::new(model, [Message::user("Hi")].into_iter().collect())
            .with_instructions("Be brief.")
            .with_output(OutputSchema::new("T", schema.clone()));
        match tools {
            true => request.with_tools([ToolSpec::new("final_answer", "Takes it.", schema.clone())]),
            false => request,
        }
    };
    let read = |body: Vec<u8>| serde_json::from_slice::<Value>(&body).unwrap();
    vec![
        ("anthropic", read(anthropic_messages::encode(&request("claude-sonnet-4-6")))),
        ("gemini-2.5", read(gemini::encode(&request("gemini-2.5-flash")))),
        ("gemini-3", read(gemini::encode(&request("gemini-3-flash")))),
        ("ollama", read(ollama::encode(&request("qwen3")))),
        ("openai", read(openai_chat::encode(&request("gpt-5"), Dialect::OPENAI))),
        ("common", read(openai_chat::encode(&request("m"), Dialect::COMMON))),
        ("deepseek", read(openai_chat::encode(&request("m"), Dialect::DEEPSEEK))),
        ("responses", read(openai_responses::encode(&request("gpt-5")))),
    ]
}

/// Asserts that no schema in a body is a bare `true`, and that each reference leads somewhere.
fn assert_taken(wire: &str, schema: &Value) {
    fn walk(wire: &str, root: &Value, schema: &Value) {
        assert!(!schema.is_boolean(), "{wire}: {root}");
        let Some(fields) = schema.as_object() else { return };
        if let Some(Value::String(name)) = fields.get("$ref") {
            assert!(root.pointer(name.strip_prefix('#').unwrap()).is_some(), "{wire}: {name} in {root}");
        }
        for (key, value) in fields {
            match (key.as_str(), value) {
                ("properties" | "$defs", Value::Object(all)) => {
                    all.values().for_each(|it| walk(wire, root, it));
                }
                ("anyOf", Value::Array(all)) => all.iter().for_each(|it| walk(wire, root, it)),
                ("items", one) => walk(wire, root, one),
                _ => {}
            }
        }
    }
    walk(wire, schema, schema);
}

/// The schemas in a body: that of the reply, and those of its tools.
fn schemas(body: &Value) -> Vec<&Value> {
    let places = [
        "/output_config/format/schema",
        "/generationConfig/responseJsonSchema",
        "/format",
        "/response_format/json_schema/schema",
        "/text/format/schema",
        "/tools/0/input_schema",
        "/tools/0/functionDeclarations/0/parametersJsonSchema",
        "/tools/0/function/parameters",
        "/tools/0/parameters",
    ];
    places.iter().filter_map(|place| body.pointer(place)).collect()
}

#[test]
fn types_that_contain_themselves_and_values_of_any_form_reach_every_service() {
    for schema in [schema_of::<Tree>(), schema_of::<Free>()] {
        for tools in [false, true] {
            for (wire, body) in bodies(&schema, tools) {
                let found = schemas(&body);
                found.iter().for_each(|schema| assert_taken(wire, schema));
                let told = body.to_string().matches("label").count();
                assert!(told > 0, "{wire}: the model is told nothing of the type: {body}");
                let own = found.len().saturating_sub(usize::from(tools));
                let in_words = body.to_string().contains("follows this JSON Schema");
                assert!(own == 1 || in_words, "{wire}: the reply has no form: {body}");
            }
        }
    }
}

#[test]
fn what_a_service_cannot_enforce_goes_into_the_instructions() {
    let bodies = bodies(&schema_of::<Tree>(), true);
    let says = |wire: &str| {
        let body = &bodies.iter().find(|(name, _)| *name == wire).unwrap().1;
        body.to_string().contains("Be brief.\\n\\nReply with one JSON value that follows this JSON Schema")
    };
    for (wire, in_words) in [
        ("anthropic", true),
        ("gemini-2.5", true),
        ("gemini-3", false),
        ("ollama", true),
        ("openai", false),
        ("deepseek", true),
        ("responses", false),
    ] {
        assert_eq!(says(wire), in_words, "{wire}");
    }
    let gemini = &bodies.iter().find(|(name, _)| *name == "gemini-3").unwrap().1;
    let schema = gemini.pointer("/generationConfig/responseJsonSchema").unwrap();
    assert_eq!(
        schema["$defs"]["Root"]["required"],
        json!(["label"]),
        "a cycle must not be required: {schema}"
    );
}
