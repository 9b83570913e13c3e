//! The dialect that Gemini's service documents for JSON Schema: most of draft 2020-12, without constraints on texts.
//!
//! What it does not know moves into descriptions, where the model reads it: a schema that is refused costs the run, a
//! constraint that is not enforced costs little, since tools and typed replies are checked anyway. It must not decide
//! whether a schema is sent at all.

use serde_json::{Map, Value, json};

/// Deepest nesting that is followed, and most schemas that one translation may make: references are written out.
const MAX_DEPTH: usize = 48;
const MAX_SCHEMAS: usize = 4_000;

/// Longest list of what was lost, and longest quotation of a constraint in a description, in characters.
const MAX_LOST: usize = 32;
const MAX_QUOTE: usize = 200;

/// Keys that are passed on as they are.
const KEPT: &[&str] = &["title", "minItems", "maxItems", "minimum", "maximum", "propertyOrdering"];

/// What a description can say to the model.
const TOLD: &[&str] = &[
    "minLength",
    "maxLength",
    "pattern",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "default",
    "contentEncoding",
    "contentMediaType",
];

/// What says nothing about values, or is read together with another key.
const SILENT: &[&str] = &[
    "$anchor",
    "$comment",
    "$defs",
    "$id",
    "$schema",
    "allOf",
    "const",
    "definitions",
    "deprecated",
    "description",
    "enum",
    "examples",
    "format",
    "nullable",
    "readOnly",
    "required",
    "type",
    "writeOnly",
];

/// Formats that the service takes: of texts, and of numbers.
const FORMATS: &[&str] = &["date-time", "date", "time", "duration", "int32", "int64", "float", "double"];

/// Formats of numbers that say nothing to a model.
const SIZES: &[&str] = &["int8", "int16", "uint", "uint8", "uint16", "uint32", "uint64", "int128", "uint128"];

/// A schema in the service's dialect.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Dialected {
    pub(crate) schema: Value,
    /// What the service does not enforce, for people. At most 32 entries.
    pub(crate) lost: Vec<String>,
}

/// Translates a schema. The translation of a translation is the same.
pub(crate) fn gemini(schema: &Value) -> Dialected {
    let mut walk = Walk { root: schema, ..Walk::default() };
    let mut out = walk.schema(schema, 0);
    if let Some(fields) = out.as_object_mut()
        && !walk.named.is_empty()
    {
        let definitions = walk.definitions();
        fields.insert("$defs".to_owned(), definitions);
    }
    Dialected { schema: out, lost: walk.lost }
}

type Fields = Map<String, Value>;

#[derive(Debug)]
struct Walk<'a> {
    root: &'a Value,
    path: Vec<String>,
    lost: Vec<String>,
    schemas: usize,
    /// Definitions that are being written out, to notice those that refer to themselves.
    open: Vec<String>,
    /// Definitions that the translation refers to by name.
    named: Vec<String>,
}

impl Default for Walk<'_> {
    fn default() -> Self {
        Self {
            root: &Value::Null,
            path: Vec::new(),
            lost: Vec::new(),
            schemas: 0,
            open: Vec::new(),
            named: Vec::new(),
        }
    }
}

impl<'a> Walk<'a> {
    fn schema(&mut self, schema: &'a Value, depth: usize) -> Value {
        self.schemas = self.schemas.saturating_add(1);
        // `true` is any value, and what is no schema at all says nothing either.
        let Value::Object(fields) = schema else { return json!({}) };
        if depth > MAX_DEPTH || self.schemas > MAX_SCHEMAS {
            self.lose("its depth");
            return json!({});
        }
        if let Some(name) = fields.get("$ref").and_then(Value::as_str) {
            return self.reference(name, fields, depth, false);
        }
        let mut out = Fields::new();
        for part in fields.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            let part = match part.get("$ref").and_then(Value::as_str).zip(part.as_object()) {
                Some((name, fields)) => self.reference(name, fields, depth, true),
                None => self.schema(part, depth.saturating_add(1)),
            };
            self.merge(&mut out, part);
        }
        let own = self.fields(fields, depth);
        self.merge(&mut out, Value::Object(own));
        let only_told =
            |out: &Fields| out.keys().all(|key| matches!(key.as_str(), "$ref" | "description" | "title"));
        match out.get("$ref").cloned() {
            Some(reference) => {
                if !only_told(&out) {
                    self.lose("allOf");
                }
                json!({"$ref": reference})
            }
            None => Value::Object(out),
        }
    }

    /// What the keys of one schema say.
    fn fields(&mut self, fields: &'a Fields, depth: usize) -> Fields {
        let mut out = Fields::new();
        let mut told = Vec::new();
        kinds(fields, &mut out);
        self.values(fields, &mut out, &mut told);
        for (key, value) in fields {
            match key.as_str() {
                key if KEPT.contains(&key) => {
                    out.insert(key.to_owned(), value.clone());
                }
                "properties" => {
                    let all = self.each_named(value, depth);
                    out.insert("properties".to_owned(), all);
                }
                "items" if value.is_array() => {
                    let all = self.each(value, "prefixItems", depth);
                    out.insert("prefixItems".to_owned(), all);
                }
                "items" => self.one(key, value, depth, &mut out),
                "additionalProperties" if value.is_boolean() => {
                    out.insert(key.clone(), value.clone());
                }
                "additionalProperties" => self.one(key, value, depth, &mut out),
                "prefixItems" | "anyOf" | "oneOf" => {
                    let name = if key == "oneOf" { "anyOf" } else { key };
                    let all = self.each(value, name, depth);
                    out.insert(name.to_owned(), all);
                }
                key if TOLD.contains(&key) => {
                    if !value.is_null() {
                        told.push(format!("{key}: {}", quote(value)));
                    }
                    if key != "default" {
                        self.lose(key);
                    }
                }
                key if SILENT.contains(&key) => {}
                key if key.starts_with("x-") => {}
                key => self.lose(key),
            }
        }
        required(fields, &mut out);
        describe(fields, &told, &mut out);
        out
    }

    /// Formats, constants and lists of values: the service knows lists of texts or numbers.
    fn values(&mut self, fields: &Fields, out: &mut Fields, told: &mut Vec<String>) {
        match fields.get("format").and_then(Value::as_str) {
            Some(format) if FORMATS.contains(&format) => {
                out.insert("format".to_owned(), json!(format));
            }
            Some(format) if !SIZES.contains(&format) => {
                told.push(format!("format: {format}"));
                self.lose("format");
            }
            _ => {}
        }
        let constant = fields.get("const").map(std::slice::from_ref);
        let Some(values) = constant.or_else(|| fields.get("enum")?.as_array().map(Vec::as_slice)) else {
            return;
        };
        let known: Vec<_> =
            values.iter().filter(|value| value.is_string() || value.is_number()).cloned().collect();
        let with_null = values.iter().any(Value::is_null);
        if known.is_empty() || known.len().saturating_add(usize::from(with_null)) < values.len() {
            told.push(format!("one of {}", quote(&json!(values))));
            if values.iter().all(Value::is_boolean) {
                out.entry("type").or_insert_with(|| json!("boolean"));
            }
            self.lose("enum");
            return;
        }
        if !out.contains_key("type") {
            let kind = if known.iter().all(Value::is_string) { "string" } else { "number" };
            out.insert("type".to_owned(), if with_null { json!([kind, "null"]) } else { json!(kind) });
        }
        out.insert("enum".to_owned(), Value::Array(known));
    }

    /// A reference stands alone in this dialect. One with a description of its own, or with `company`, is written out, as
    /// is one at the root; inside itself it stays a name.
    fn reference(&mut self, name: &'a str, fields: &'a Fields, depth: usize, company: bool) -> Value {
        let Some(target) = resolve(self.root, name) else {
            self.lose("$ref");
            return json!({});
        };
        let key = definition(name);
        let place = key.clone().unwrap_or_else(|| name.to_owned());
        let within = self.open.contains(&place);
        let own = || fields.iter().filter(|(key, _)| matches!(key.as_str(), "description" | "title"));
        match key {
            Some(key) if within || (depth > 0 && !company && own().next().is_none()) => {
                let reference = format!("#/$defs/{}", key.replace('~', "~0").replace('/', "~1"));
                if !self.named.contains(&key) {
                    self.named.push(key);
                }
                return json!({"$ref": reference});
            }
            None if within || target == self.root => {
                self.lose("a reference to a schema that is no definition");
                return json!({"type": "object"});
            }
            _ => {}
        }
        self.open.push(place);
        let written = self.schema(target, depth.saturating_add(1));
        self.open.pop();
        let Value::Object(mut out) = written else { return json!({}) };
        out.extend(own().map(|(key, value)| (key.clone(), value.clone())));
        Value::Object(out)
    }

    /// The definitions that are referred to by name. Writing them may name more.
    fn definitions(&mut self) -> Value {
        let mut all = Fields::new();
        let mut at = 0;
        while let Some(name) = self.named.get(at).cloned() {
            at = at.saturating_add(1);
            let target = ["$defs", "definitions"].iter().find_map(|group| self.root.get(*group)?.get(&name));
            self.open = vec![name.clone()];
            let schema = target.map_or_else(|| json!({}), |target| self.schema(target, 1));
            all.insert(name, schema);
        }
        Value::Object(all)
    }

    fn one(&mut self, key: &str, value: &'a Value, depth: usize, out: &mut Fields) {
        self.path.push(key.to_owned());
        let schema = self.schema(value, depth.saturating_add(1));
        self.path.pop();
        out.insert(key.to_owned(), schema);
    }

    fn each(&mut self, values: &'a Value, key: &str, depth: usize) -> Value {
        self.path.push(key.to_owned());
        let all = values.as_array().map(Vec::as_slice).unwrap_or_default();
        let all = all.iter().map(|value| self.schema(value, depth.saturating_add(1))).collect();
        self.path.pop();
        Value::Array(all)
    }

    fn each_named(&mut self, values: &'a Value, depth: usize) -> Value {
        let mut all = Fields::new();
        for (name, value) in values.as_object().into_iter().flatten() {
            self.path.push(name.clone());
            all.insert(name.clone(), self.schema(value, depth.saturating_add(1)));
            self.path.pop();
        }
        Value::Object(all)
    }

    /// Both must hold, which is said by having the keys of both; of two different values the later is taken.
    fn merge(&mut self, into: &mut Fields, more: Value) {
        let Value::Object(more) = more else { return };
        for (key, value) in more {
            match (into.get_mut(&key), value) {
                (Some(Value::Object(old)), Value::Object(new)) => old.extend(new),
                (Some(Value::Array(old)), Value::Array(new)) if key == "required" => {
                    let new: Vec<_> = new.into_iter().filter(|name| !old.contains(name)).collect();
                    old.extend(new);
                }
                (Some(old), new) if *old == new || matches!(key.as_str(), "title" | "description") => {
                    *old = new;
                }
                (Some(old), new) => {
                    *old = new;
                    self.lose("allOf");
                }
                (None, value) => {
                    into.insert(key, value);
                }
            }
        }
    }

    fn lose(&mut self, what: &str) {
        if self.lost.len() < MAX_LOST {
            let place =
                if self.path.is_empty() { String::new() } else { format!(" of {}", self.path.join(".")) };
            let lost = format!("{what}{place}");
            if !self.lost.contains(&lost) {
                self.lost.push(lost);
            }
        }
    }
}

fn kinds(fields: &Fields, out: &mut Fields) {
    let nullable = fields.get("nullable") == Some(&Value::Bool(true));
    match fields.get("type") {
        Some(Value::String(kind)) if nullable && kind != "null" => {
            out.insert("type".to_owned(), json!([kind, "null"]));
        }
        Some(kind) => {
            out.insert("type".to_owned(), kind.clone());
        }
        None if fields.contains_key("properties") => {
            out.insert("type".to_owned(), json!("object"));
        }
        None => {}
    }
}

/// Names that are not among the properties would be refused.
fn required(fields: &Fields, out: &mut Fields) {
    let Some(names) = fields.get("required").and_then(Value::as_array) else { return };
    let known = fields.get("properties").and_then(Value::as_object);
    let names: Vec<_> = names
        .iter()
        .filter(|name| name.as_str().is_some_and(|name| known.is_none_or(|known| known.contains_key(name))))
        .cloned()
        .collect();
    if !names.is_empty() {
        out.insert("required".to_owned(), Value::Array(names));
    }
}

fn describe(fields: &Fields, told: &[String], out: &mut Fields) {
    let own = fields.get("description").and_then(Value::as_str).unwrap_or_default();
    let notes = if told.is_empty() { String::new() } else { format!("({})", told.join("; ")) };
    let gap = if own.is_empty() || notes.is_empty() { "" } else { " " };
    let text = format!("{own}{gap}{notes}");
    if !text.is_empty() {
        out.insert("description".to_owned(), Value::String(text));
    }
}

fn quote(value: &Value) -> String {
    let text = value.to_string();
    let mut quote: String = text.chars().take(MAX_QUOTE).collect();
    if quote.len() < text.len() {
        quote.push('…');
    }
    quote
}

/// The name of a definition, unless the reference leads elsewhere.
fn definition(reference: &str) -> Option<String> {
    let name = reference.strip_prefix("#/$defs/").or_else(|| reference.strip_prefix("#/definitions/"))?;
    (!name.contains('/')).then(|| name.replace("~1", "/").replace("~0", "~"))
}

fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    root.pointer(reference.strip_prefix('#')?)
}

#[cfg(test)]
mod tests;
