//! The dialect of JSON Schema that Gemini's service documents: most of draft 2020-12, without constraints on texts.
//!
//! Unknown constraints move into descriptions, where the model reads them: a refused schema costs the run, a
//! constraint that is not enforced costs little, since tools and typed replies are checked anyway. It must not decide
//! whether a schema is sent at all.

mod cycles;
mod finish;
mod join;

use std::mem;

use serde_json::{Map, Value, json};

/// Deepest nesting that is followed, and most schemas of one translation, since references are expanded.
const MAX_DEPTH: usize = 48;
const MAX_SCHEMAS: usize = 4_000;

/// Key of notes for a description, until schemas can no longer be joined.
const NOTES: &str = "$notes";

/// Longest list of losses, and longest quotation of a constraint in a description, in characters.
const MAX_LOST: usize = 32;
const MAX_QUOTE: usize = 200;

/// Keys that are passed on unchanged.
const KEPT: &[&str] = &["title", "minItems", "maxItems", "minimum", "maximum", "propertyOrdering"];

/// Constraints that a description can express.
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

/// Keys that say nothing about values, or are read together with another key.
const SILENT: &[&str] = &[
    "$anchor",
    "$comment",
    "$defs",
    "$id",
    "$ref",
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

/// Formats that the service takes, of texts and of numbers.
const FORMATS: &[&str] = &["date-time", "date", "time", "duration", "int32", "int64", "float", "double"];

/// Formats of numbers that mean nothing to a model.
const SIZES: &[&str] = &["int8", "int16", "uint", "uint8", "uint16", "uint32", "uint64", "int128", "uint128"];

/// A schema in the service's dialect.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Dialected {
    pub(crate) schema: Value,
    /// Constraints that the service does not enforce, for people. At most 32 entries.
    pub(crate) lost: Vec<String>,
}

/// Translates a schema. A second translation changes nothing: after the first, a reference stands alone, leads to a
/// definition, and is neither the root nor the whole of a definition.
pub(crate) fn gemini(schema: &Value) -> Dialected {
    let mut walk = Walk { root: schema, ..Walk::default() };
    let root = walk.joined(schema, 0);
    let mut root = walk.written_out(root, 0);
    let mut named = Vec::new();
    finish::finish(&mut root, &mut named);
    let mut definitions = walk.definitions(named);
    for name in cycles::relax(&mut definitions) {
        walk.lose(&format!("that `{name}` is required"));
    }
    if !definitions.is_empty() {
        root.insert("$defs".to_owned(), Value::Object(definitions));
    }
    Dialected { schema: Value::Object(root), lost: walk.lost }
}

type Fields = Map<String, Value>;

#[derive(Debug)]
struct Walk<'a> {
    root: &'a Value,
    path: Vec<String>,
    lost: Vec<String>,
    schemas: usize,
    /// Definitions that are being expanded, to notice recursion.
    open: Vec<String>,
    /// Number of those that were open when the walk entered the current schema; the others are parts of that schema.
    above: usize,
}

impl Default for Walk<'_> {
    fn default() -> Self {
        Self {
            root: &Value::Null,
            path: Vec::new(),
            lost: Vec::new(),
            schemas: 0,
            open: Vec::new(),
            above: 0,
        }
    }
}

impl<'a> Walk<'a> {
    /// Translates a schema within another.
    fn schema(&mut self, schema: &'a Value, depth: usize) -> Value {
        let above = mem::replace(&mut self.above, self.open.len());
        let out = self.joined(schema, depth);
        self.above = above;
        Value::Object(out)
    }

    /// Translates a schema together with all schemas that must hold beside it. The result is not finished: it may be
    /// joined with others.
    fn joined(&mut self, schema: &'a Value, depth: usize) -> Fields {
        self.schemas = self.schemas.saturating_add(1);
        // `true` allows any value, and an invalid schema has no constraint either.
        let Value::Object(fields) = schema else { return Fields::new() };
        if depth > MAX_DEPTH || self.schemas > MAX_SCHEMAS {
            self.lose("its depth");
            return Fields::new();
        }
        let mut out = match fields.get("$ref").and_then(Value::as_str) {
            Some(name) => self.reference(name, depth),
            None => Fields::new(),
        };
        for part in fields.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            let part = self.joined(part, depth.saturating_add(1));
            self.join(&mut out, part, depth);
        }
        let own = self.fields(fields, depth);
        self.join(&mut out, own, depth);
        out
    }

    /// Translates the keys of one schema.
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
                    self.only("prefixItems", all, &mut out);
                }
                "items" => self.one(key, value, depth, &mut out),
                "additionalProperties" if value.is_boolean() => {
                    out.insert(key.clone(), value.clone());
                }
                "additionalProperties" => self.one(key, value, depth, &mut out),
                "prefixItems" | "anyOf" | "oneOf" => {
                    let name = if key == "oneOf" { "anyOf" } else { key };
                    let all = self.each(value, name, depth);
                    self.only(name, all, &mut out);
                }
                key if TOLD.contains(&key) => {
                    if !value.is_null() {
                        told.push(json!(format!("{key}: {}", quote(value))));
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
        let described = fields.get_key_value("description").filter(|(_, text)| text.is_string());
        let required = fields.get_key_value("required").filter(|(_, names)| names.is_array());
        let both = described.into_iter().chain(required);
        out.extend(both.map(|(key, value)| (key.clone(), value.clone())));
        if !told.is_empty() {
            out.insert(NOTES.to_owned(), Value::Array(told));
        }
        out
    }

    /// Translates formats, constants and enumerations: the service knows lists of texts or numbers.
    fn values(&mut self, fields: &Fields, out: &mut Fields, told: &mut Vec<Value>) {
        match fields.get("format").and_then(Value::as_str) {
            Some(format) if FORMATS.contains(&format) => {
                out.insert("format".to_owned(), json!(format));
            }
            Some(format) if !SIZES.contains(&format) => {
                told.push(json!(format!("format: {format}")));
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
            told.push(json!(format!("one of {}", quote(&json!(values)))));
            if values.iter().all(Value::is_boolean) {
                out.entry("type").or_insert_with(|| json!("boolean"));
            }
            self.lose("enum");
            return;
        }
        if !out.contains_key("type") {
            let (texts, numbers) = (known.iter().any(Value::is_string), known.iter().any(Value::is_number));
            let kinds = [(texts, "string"), (numbers, "number"), (with_null, "null")];
            let kinds: Vec<_> = kinds.into_iter().filter_map(|(has, kind)| has.then_some(kind)).collect();
            let only = kinds.first().filter(|_| kinds.len() == 1);
            out.insert("type".to_owned(), only.map_or_else(|| json!(kinds), |kind| json!(kind)));
        }
        out.insert("enum".to_owned(), Value::Array(known));
    }

    /// Translates a reference. To a definition it stays a name as long as it is not joined; others are expanded.
    fn reference(&mut self, name: &'a str, depth: usize) -> Fields {
        let Some(target) = resolve(self.root, name) else {
            self.lose("$ref");
            return Fields::new();
        };
        let key = if std::ptr::eq(target, self.root) { Some(self.root_name()) } else { definition(name) };
        if let Some(key) = key {
            let name = format!("#/$defs/{}", key.replace('~', "~0").replace('/', "~1"));
            return Fields::from_iter([("$ref".to_owned(), Value::String(name))]);
        }
        if self.open.iter().any(|open| open == name) {
            self.lose("a reference to a schema that is no definition");
            return Fields::from_iter([("type".to_owned(), json!("object"))]);
        }
        self.open.push(name.to_owned());
        let written = self.joined(target, depth.saturating_add(1));
        self.open.pop();
        written
    }

    /// Translates the definitions that are referred to by name. That may name more.
    fn definitions(&mut self, mut named: Vec<String>) -> Fields {
        let mut all = Fields::new();
        let mut at = 0;
        while let Some(name) = named.get(at).cloned() {
            at = at.saturating_add(1);
            self.open = vec![name.clone()];
            let schema = self.target(&name).map(|target| self.joined(target, 1)).unwrap_or_default();
            let mut schema = self.written_out(schema, 1);
            finish::finish(&mut schema, &mut named);
            all.insert(name, Value::Object(schema));
        }
        all
    }

    fn target(&self, name: &str) -> Option<&'a Value> {
        let named = self.defined(name);
        named.or_else(|| (name == self.root_name()).then_some(self.root))
    }

    fn defined(&self, name: &str) -> Option<&'a Value> {
        ["$defs", "definitions"].iter().find_map(|group| self.root.get(*group)?.get(name))
    }

    /// The name of the root among the definitions, for a schema that refers to it: only a definition can be named.
    fn root_name(&self) -> String {
        let mut name = "Root".to_owned();
        while self.defined(&name).is_some() {
            name.push('_');
        }
        name
    }

    /// Puts the values of two keys of a schema into one place, which has room for the later one only.
    fn only(&mut self, key: &str, value: Value, out: &mut Fields) {
        if out.insert(key.to_owned(), value).is_some() {
            self.lose(key);
        }
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

/// The definition that a translated schema names, if it is a reference.
fn name_of(fields: &Fields) -> Option<String> {
    definition(fields.get("$ref")?.as_str()?)
}

fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    root.pointer(reference.strip_prefix('#')?)
}

#[cfg(test)]
mod tests;
