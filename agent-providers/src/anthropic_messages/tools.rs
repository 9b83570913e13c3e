//! Tools, tool choice, and the form of the reply.
//!
//! The service enforces schemas in its strict dialect only, and only a limited number in one request.

use std::borrow::Cow;

use entourage_core::{
    provider::{OutputFormat, OutputSchema, Request, ToolChoice, Warning, WarningKind},
    tool::ToolSpec,
};
use serde_json::{Map, Value, json};

use crate::{
    body::items,
    on_demand::{searches, told},
    schema,
};

/// Limits of enforcement in one request: tools, and properties that may be of several types.
const MAX_STRICT: usize = 20;
const MAX_UNIONS: usize = 16;

/// The service's tool that searches the others by words; another one does so by regular expressions.
const SEARCH: [(&str, &str); 2] =
    [("type", "tool_search_tool_bm25_20251119"), ("name", "tool_search_tool_bm25")];

/// The schema of a tool as it is sent.
struct Plan {
    schema: Value,
    strict: bool,
    /// Description of the loss, for people; empty if there is none.
    lost: String,
}

/// The tools, joined by commas without brackets.
pub(super) fn encode(tools: &[ToolSpec], strict: bool) -> Vec<u8> {
    let told = told(tools);
    let ours = told.iter().zip(plans(&told, strict)).map(|(tool, plan)| {
        let mut fields = Map::new();
        fields.insert("name".to_owned(), json!(tool.name()));
        if !tool.description().is_empty() {
            fields.insert("description".to_owned(), json!(tool.description()));
        }
        fields.insert("input_schema".to_owned(), plan.schema);
        if plan.strict {
            fields.insert("strict".to_owned(), json!(true));
        }
        if tool.is_deferred() {
            fields.insert("defer_loading".to_owned(), json!(true));
        }
        fields
    });
    // At the end, where the cache marker is: the service takes none at a tool that it loads on demand.
    let search = searches(tools).then(|| {
        SEARCH.into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect::<Map<_, _>>()
    });
    items(ours.chain(search))
}

/// Warns of parts of the tools' schemas that the service does not enforce or does not get.
pub(super) fn warnings(tools: &[ToolSpec], strict: bool, warnings: &mut Vec<Warning>) {
    let told = told(tools);
    for (tool, plan) in told.iter().zip(plans(&told, strict)) {
        if !plan.lost.is_empty() {
            warnings.push(Warning::new(WarningKind::Schema, tool.name(), plan.lost));
        }
    }
}

fn plans(tools: &[ToolSpec], strict: bool) -> impl Iterator<Item = Plan> {
    let (mut enforced, mut unions) = (0_usize, 0_usize);
    tools.iter().map(move |tool| {
        if !strict {
            return plain(tool.schema(), String::new());
        }
        let translated = schema::strict(tool.schema());
        let more = count_unions(&translated.schema);
        let why = match () {
            () if !translated.strict => translated.lost.join("; "),
            () if translated.recursive => "it refers to itself".to_owned(),
            () if enforced >= MAX_STRICT => format!("the service enforces {MAX_STRICT} tools at most"),
            () if unions + more > MAX_UNIONS => "it has too many properties of several types".to_owned(),
            () => {
                enforced += 1;
                unions += more;
                let lost = translated.lost.join("; ");
                return Plan { schema: translated.schema, strict: true, lost };
            }
        };
        plain(tool.schema(), format!("its schema is not enforced: {why}"))
    })
}

/// A schema that is not enforced. The service requires an object at its root, without a choice.
fn plain(schema: &Value, lost: String) -> Plan {
    let mut object = schema::object(schema);
    if let Some(fields) = object.as_object_mut()
        && ["anyOf", "oneOf", "allOf", "$ref"].iter().any(|key| fields.contains_key(*key))
    {
        flatten(fields);
        let said = "its schema has a choice or a reference at its root, which the service refuses; all properties are offered instead";
        let lost = if lost.is_empty() { said.to_owned() } else { format!("{lost}; {said}") };
        return Plan { schema: object, strict: false, lost };
    }
    Plan { schema: object, strict: false, lost }
}

/// Flattens the choices at the root of a schema into one object. It has the properties of all, and requires only those
/// that the root itself or a lone reference requires. The tool checks its arguments against the original schema.
fn flatten(fields: &mut Map<String, Value>) {
    let root = Value::Object(fields.clone());
    let target = |schema: &Value| {
        let name = schema.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix('#'));
        name.and_then(|name| root.pointer(name)).cloned().unwrap_or_else(|| schema.clone())
    };
    let mut properties = Map::new();
    let mut from = vec![target(&root)];
    for key in ["anyOf", "oneOf", "allOf"] {
        let choices = fields.remove(key);
        from.extend(choices.iter().filter_map(Value::as_array).flatten().map(target));
    }
    if fields.remove("$ref").is_some()
        && let Some(required) = from.first().and_then(|schema| schema.get("required"))
    {
        fields.entry("required").or_insert_with(|| required.clone());
    }
    let own = fields.remove("properties");
    for all in own
        .iter()
        .chain(from.iter().filter_map(|schema| schema.get("properties")))
        .filter_map(Value::as_object)
    {
        for (name, schema) in all {
            properties.entry(name.clone()).or_insert_with(|| schema.clone());
        }
    }
    fields.insert("type".to_owned(), json!("object"));
    fields.insert("properties".to_owned(), Value::Object(properties));
    fields.remove("additionalProperties");
}

fn count_unions(schema: &Value) -> usize {
    match schema {
        Value::Object(fields) => {
            let here = fields.contains_key("anyOf") || fields.get("type").is_some_and(Value::is_array);
            usize::from(here) + fields.values().map(count_unions).sum::<usize>()
        }
        Value::Array(all) => all.iter().map(count_unions).sum(),
        _ => 0,
    }
}

/// The `tool_choice` field; `None` for the service's own default.
pub(super) fn choice(request: &Request, thinks: bool, warnings: &mut Vec<Warning>) -> Option<Value> {
    let mut choice = match &request.tool_choice {
        ToolChoice::None => return Some(json!({"type": "none"})),
        ToolChoice::Required | ToolChoice::Tool(_) if thinks => {
            let text =
                "the service refuses a forced call while the model thinks; the model may call a tool, or not";
            warnings.push(Warning::new(WarningKind::Tool, "tool_choice", text));
            json!({"type": "auto"})
        }
        ToolChoice::Required => json!({"type": "any"}),
        ToolChoice::Tool(name) => json!({"type": "tool", "name": name}),
        _ => json!({"type": "auto"}),
    };
    if request.params.parallel_tool_calls == Some(false)
        && let Some(fields) = choice.as_object_mut()
    {
        fields.insert("disable_parallel_tool_use".to_owned(), json!(true));
        return Some(choice);
    }
    (choice != json!({"type": "auto"})).then_some(choice)
}

/// The instructions, with the schema of the reply if the service cannot enforce it.
pub(super) fn instructions(request: &Request) -> Cow<'_, str> {
    match &request.output {
        OutputFormat::Schema(output) if enforced(request, output).is_err() => {
            Cow::Owned(schema::told(&request.instructions, output))
        }
        _ => Cow::Borrowed(&request.instructions),
    }
}

/// The form of a schema that the service can enforce.
///
/// # Errors
/// The reason why it cannot, for people.
fn enforced(request: &Request, output: &OutputSchema) -> Result<schema::Translated, String> {
    let asked = "was not asked to; the schema went into the instructions";
    if request.profile.structured_output == Some(false) {
        return Err(format!("the service does not enforce schemas with this model, and {asked}"));
    }
    let translated = schema::strict(&output.schema);
    if translated.strict && !translated.recursive {
        return Ok(translated);
    }
    let lost = translated.lost.join("; ");
    let why = if translated.strict { "it refers to itself" } else { lost.as_str() };
    Err(format!("the service cannot enforce this schema, and {asked}: {why}"))
}

/// The `format` of the reply, if the service can enforce it.
pub(super) fn format(request: &Request, warnings: &mut Vec<Warning>) -> Option<Value> {
    let mut warn = |text: String| warnings.push(Warning::new(WarningKind::Schema, "output", text));
    let output = match &request.output {
        OutputFormat::Text => return None,
        OutputFormat::Schema(output) => output,
        _ => {
            warn("the service has no mode for JSON without a schema; it was not asked for".to_owned());
            return None;
        }
    };
    let translated = match enforced(request, output) {
        Ok(translated) => translated,
        Err(why) => {
            warn(why);
            return None;
        }
    };
    let lost = translated.lost.join("; ");
    if !lost.is_empty() {
        warn(format!("not enforced by the service: {lost}"));
    }
    let mut schema = translated.schema;
    if let (Some(description), Some(fields)) = (&output.description, schema.as_object_mut()) {
        fields.entry("description").or_insert_with(|| json!(description));
    }
    Some(json!({"type": "json_schema", "schema": schema}))
}
