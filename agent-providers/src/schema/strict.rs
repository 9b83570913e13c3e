//! The dialect of strict modes: closed objects, every property required, no constraint beyond types and enums.
//!
//! Constraints that some strict modes take and others refuse (`pattern`, `minimum`, formats) are left out for all: a
//! refused schema costs the run, a constraint that is not enforced costs little, since the tool checks its arguments
//! anyway. The model still reads it: constraints move into the descriptions.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{
    loose, object,
    words::{self, make_nullable, type_of},
};

/// Deepest nesting of schemas that is followed, and of objects that services accept.
const MAX_DEPTH: usize = 64;
const MAX_OBJECTS: usize = 10;

/// Limits of services for one schema: properties, enum values, and characters in names and values together.
const MAX_PROPERTIES: usize = 5_000;
const MAX_VALUES: usize = 1_000;
const MAX_CHARS: usize = 120_000;

/// Longest list of losses.
const MAX_LOST: usize = 32;

/// A schema in the strict dialect.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Translated {
    /// The schema in the strict dialect if `strict`; else the original schema, with an object at its root.
    pub(crate) schema: Value,
    /// True if a service can be asked to enforce it.
    pub(crate) strict: bool,
    /// True if a definition refers to itself, which some services do not enforce.
    pub(crate) recursive: bool,
    /// Constraints that are not enforced, for people; if not `strict`, the reason. At most 32 entries.
    pub(crate) lost: Vec<String>,
}

/// Translates a schema for services whose strict mode requires closed objects without optional properties.
///
/// An optional property becomes required and may be null, unless it has a default that is not null: then the model
/// must give a value, and reads the default in the description. So a reply fits a type whose optional fields are
/// `Option` or `#[serde(default)]`. Objects with free keys, tuples, values of any type and a root that is not an
/// object cannot be expressed.
pub(crate) fn strict(schema: &Value) -> Translated {
    // Within a schema `true` and `{}` say the same, so both have the same form here.
    let root = if schema.is_object() { &loose(schema) } else { schema };
    let mut walk = Walk { root, ..Walk::default() };
    match walk.whole() {
        Ok(fields) => Translated {
            schema: Value::Object(fields),
            strict: true,
            recursive: walk.recursive(),
            lost: walk.lost,
        },
        Err(Unable(why)) => {
            Translated { schema: object(schema), strict: false, recursive: walk.recursive(), lost: vec![why] }
        }
    }
}

/// The reason why a schema has no form in this dialect.
struct Unable(String);

type Fields = Map<String, Value>;

struct Walk<'a> {
    root: &'a Value,
    path: Vec<String>,
    lost: Vec<String>,
    /// References of each definition, or of the root (an empty name).
    refers: BTreeMap<String, BTreeSet<String>>,
    within: String,
    objects: usize,
    properties: usize,
    values: usize,
    chars: usize,
}

impl Default for Walk<'_> {
    fn default() -> Self {
        Self {
            root: &Value::Null,
            path: Vec::new(),
            lost: Vec::new(),
            refers: BTreeMap::new(),
            within: String::new(),
            objects: 0,
            properties: 0,
            values: 0,
            chars: 0,
        }
    }
}

impl<'a> Walk<'a> {
    fn whole(&mut self) -> Result<Fields, Unable> {
        let mut fields = self.target(self.root)?.clone();
        if fields.get("additionalProperties").is_some_and(|more| *more != false) {
            return Err(self.unable("takes any keys"));
        }
        fields.entry("type").or_insert_with(|| json!("object"));
        fields.entry("additionalProperties").or_insert(Value::Bool(false));
        if fields.get("type").is_none_or(|kind| kind != "object")
            || ["anyOf", "oneOf", "allOf", "enum", "const"].iter().any(|key| fields.contains_key(*key))
        {
            return Err(self.unable("is not simply an object"));
        }
        let mut out = self.node(&Value::Object(fields))?;
        for key in ["$defs", "definitions"] {
            let Some(Value::Object(all)) = self.root.get(key) else { continue };
            let mut done = Fields::new();
            for (name, schema) in all {
                self.within = format!("#/{key}/{name}");
                self.count(name)?;
                done.insert(name.clone(), Value::Object(self.inside(name, schema)?));
            }
            if !done.is_empty() {
                out.insert(key.to_owned(), Value::Object(done));
            }
        }
        Ok(out)
    }

    /// The schema behind any references.
    fn target(&self, schema: &'a Value) -> Result<&'a Fields, Unable> {
        let mut at = schema;
        for _ in 0..MAX_DEPTH {
            let Value::Object(fields) = at else { return Err(self.unable("is no object")) };
            match fields.get("$ref") {
                None => return Ok(fields),
                Some(name) => at = self.definition(name)?,
            }
        }
        Err(self.unable("refers to itself without end"))
    }

    fn definition(&self, name: &Value) -> Result<&'a Value, Unable> {
        let pointer = name.as_str().and_then(|name| name.strip_prefix('#')).unwrap_or("/");
        let known = pointer.is_empty()
            || (["/$defs/", "/definitions/"].iter().any(|start| pointer.starts_with(start))
                && pointer.matches('/').count() == 2);
        let found = if known { self.root.pointer(pointer) } else { None };
        found.ok_or_else(|| self.unable(&format!("refers to {name}, which is not among its definitions")))
    }

    fn inside(&mut self, name: &str, schema: &Value) -> Result<Fields, Unable> {
        self.path.push(name.to_owned());
        if self.path.len() > MAX_DEPTH {
            return Err(self.unable("nests too deeply"));
        }
        let done = self.node(schema);
        if done.is_ok() {
            self.path.pop();
        }
        done
    }

    fn node(&mut self, schema: &Value) -> Result<Fields, Unable> {
        let Value::Object(from) = schema else { return Err(self.unable("takes any value")) };
        if let Some(merged) = self.single_all_of(from)? {
            return self.inside("allOf", &merged);
        }
        let mut out = Fields::new();
        if let Some(title) = from.get("title").filter(|title| title.is_string()) {
            out.insert("title".to_owned(), title.clone());
        }
        if let Some(text) = self.description(from) {
            out.insert("description".to_owned(), Value::String(text));
        }
        if let Some(name) = from.get("$ref") {
            self.reference(name, &mut out)?;
        } else if let Some(choices) = self.choices(from)? {
            out.insert("anyOf".to_owned(), choices);
        } else {
            self.typed(from, &mut out)?;
        }
        if from.get("nullable").is_some_and(|nullable| *nullable == true) {
            make_nullable(&mut out);
        }
        Ok(out)
    }

    /// The schema in a lone `allOf`, with which generators put a description beside a reference.
    fn single_all_of(&self, from: &Fields) -> Result<Option<Value>, Unable> {
        let inner = match from.get("allOf") {
            None => return Ok(None),
            Some(Value::Array(all)) => match all.as_slice() {
                [Value::Object(inner)] => inner,
                _ => return Err(self.unable("joins several schemas")),
            },
            Some(_) => return Err(self.unable("joins several schemas")),
        };
        let mut merged = inner.clone();
        for (key, value) in from.iter().filter(|(key, _)| *key != "allOf") {
            let speaks = matches!(
                key.as_str(),
                "title" | "description" | "default" | "$schema" | "$defs" | "definitions"
            );
            if !speaks && merged.get(key).is_some_and(|inner| inner != value) {
                return Err(self.unable("joins several schemas"));
            }
            merged.insert(key.clone(), value.clone());
        }
        Ok(Some(Value::Object(merged)))
    }

    fn description(&mut self, from: &Fields) -> Option<String> {
        let told: Vec<_> = from.iter().filter_map(|(key, value)| words::told(key, value)).collect();
        for key in from.keys().filter(|key| words::is_lost(key)) {
            self.lose(key);
        }
        let said = from.get("description").and_then(Value::as_str);
        match (said, told.is_empty()) {
            (said, true) => said.map(str::to_owned),
            (None, false) => Some(told.join(", ")),
            (Some(said), false) => Some(format!("{said} ({})", told.join(", "))),
        }
    }

    /// Translates a reference. It stands alone in this dialect; keys beside it go around it.
    fn reference(&mut self, name: &Value, out: &mut Fields) -> Result<(), Unable> {
        self.target(self.definition(name)?)?;
        let name = name.as_str().unwrap_or_default();
        let to = if name == "#" { "" } else { name };
        self.refers.entry(self.within.clone()).or_default().insert(to.to_owned());
        if out.is_empty() {
            out.insert("$ref".to_owned(), json!(name));
        } else {
            out.insert("anyOf".to_owned(), json!([{"$ref": name}]));
        }
        Ok(())
    }

    fn choices(&mut self, from: &Fields) -> Result<Option<Value>, Unable> {
        let all = match (from.get("anyOf"), from.get("oneOf")) {
            (None, None) => return Ok(None),
            (Some(Value::Array(all)), None) | (None, Some(Value::Array(all))) if !all.is_empty() => all,
            _ => return Err(self.unable("chooses in two ways at once")),
        };
        if ["properties", "items", "prefixItems", "enum", "const"].iter().any(|key| from.contains_key(*key)) {
            return Err(self.unable("has a choice beside what all choices share"));
        }
        let mut done = Vec::with_capacity(all.len());
        for (n, choice) in all.iter().enumerate() {
            let shaped = ["type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"];
            let choice = match (choice, from.get("type")) {
                (Value::Object(fields), Some(kind))
                    if !shaped.iter().any(|key| fields.contains_key(*key)) =>
                {
                    let mut fields = fields.clone();
                    fields.insert("type".to_owned(), kind.clone());
                    Value::Object(fields)
                }
                _ => choice.clone(),
            };
            done.push(Value::Object(self.inside(&n.to_string(), &choice)?));
        }
        Ok(Some(Value::Array(done)))
    }

    fn typed(&mut self, from: &Fields, out: &mut Fields) -> Result<(), Unable> {
        let values = match (from.get("enum"), from.get("const")) {
            (Some(Value::Array(values)), _) => Some(values.clone()),
            (Some(_), _) => return Err(self.unable("has an enum that is no list")),
            (None, Some(value)) => Some(vec![value.clone()]),
            (None, None) => None,
        };
        let types = self.types(from, values.as_deref())?;
        let is = |name: &str| types.iter().any(|one| one == name);
        let (object, array) = (is("object"), is("array"));
        if let Some(values) = values {
            if object || array || values.is_empty() {
                return Err(self.unable("has an enum of other than plain values"));
            }
            for value in &values {
                self.values = self.values.saturating_add(1);
                self.count(value.as_str().unwrap_or_default())?;
            }
            if self.values > MAX_VALUES {
                return Err(self.unable("has too many enum values"));
            }
            out.insert("enum".to_owned(), Value::Array(values));
        }
        if object {
            self.object(from, out)?;
        }
        if array {
            let item = from.get("items").filter(|_| !from.contains_key("prefixItems"));
            let item = item.ok_or_else(|| self.unable("is a list of anything or a tuple"))?;
            out.insert("items".to_owned(), Value::Object(self.inside("items", item)?));
        }
        let kind = match types.as_slice() {
            [one] => json!(one),
            all => json!(all),
        };
        out.insert("type".to_owned(), kind);
        Ok(())
    }

    fn types(&self, from: &Fields, values: Option<&[Value]>) -> Result<Vec<String>, Unable> {
        let mut types: Vec<String> = match from.get("type") {
            Some(Value::String(one)) => vec![one.clone()],
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => values.unwrap_or_default().iter().map(|value| type_of(value).to_owned()).collect(),
        };
        if types.is_empty() {
            let found = [("properties", "object"), ("items", "array")].into_iter();
            types.extend(found.filter(|(key, _)| from.contains_key(*key)).map(|(_, name)| name.to_owned()));
        }
        let mut once = Vec::with_capacity(types.len());
        for name in types {
            if !["string", "number", "integer", "boolean", "object", "array", "null"].contains(&name.as_str())
            {
                return Err(self.unable("is of no known type"));
            }
            if !once.contains(&name) {
                once.push(name);
            }
        }
        if once.is_empty() { Err(self.unable("takes any value")) } else { Ok(once) }
    }

    fn object(&mut self, from: &Fields, out: &mut Fields) -> Result<(), Unable> {
        let none = Fields::new();
        let properties = from.get("properties").and_then(Value::as_object).unwrap_or(&none);
        let closed = from.get("additionalProperties") == Some(&Value::Bool(false));
        let open = from.get("additionalProperties").is_some_and(|more| *more != false)
            || from.get("patternProperties").is_some_and(|more| *more != json!({}));
        if open || (properties.is_empty() && !closed) {
            return Err(self.unable("takes any keys"));
        }
        self.objects = self.objects.saturating_add(1);
        if self.objects > MAX_OBJECTS {
            return Err(self.unable("nests too deeply"));
        }
        let required = from.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut done = Fields::new();
        for (name, schema) in properties {
            self.properties = self.properties.saturating_add(1);
            self.count(name)?;
            let mut property = self.inside(name, schema)?;
            let has_default = schema.get("default").is_some_and(|default| !default.is_null());
            if !has_default && !required.iter().any(|required| required == name) {
                make_nullable(&mut property);
            }
            done.insert(name.clone(), Value::Object(property));
        }
        self.objects = self.objects.saturating_sub(1);
        let names: Vec<_> = done.keys().cloned().collect();
        out.insert("properties".to_owned(), Value::Object(done));
        out.insert("required".to_owned(), json!(names));
        out.insert("additionalProperties".to_owned(), Value::Bool(false));
        Ok(())
    }

    fn count(&mut self, text: &str) -> Result<(), Unable> {
        self.chars = self.chars.saturating_add(text.len());
        if self.properties > MAX_PROPERTIES || self.chars > MAX_CHARS {
            return Err(self.unable("is larger than services accept"));
        }
        Ok(())
    }

    /// True if references lead from a definition back to itself.
    fn recursive(&self) -> bool {
        let mut open: BTreeSet<&str> = BTreeSet::new();
        let mut closed: BTreeSet<&str> = BTreeSet::new();
        for start in self.refers.keys() {
            // A name comes twice: when its references are entered, and when all were followed.
            let mut stack = vec![(start.as_str(), false)];
            while let Some((name, left)) = stack.pop() {
                if left {
                    open.remove(name);
                    closed.insert(name);
                } else if open.contains(name) {
                    return true;
                } else if !closed.contains(name) {
                    open.insert(name);
                    stack.push((name, true));
                    stack.extend(
                        self.refers.get(name).into_iter().flatten().map(|next| (next.as_str(), false)),
                    );
                }
            }
        }
        false
    }

    fn lose(&mut self, key: &str) {
        if self.lost.len() < MAX_LOST {
            self.lost.push(format!("`{key}` of {}", self.place()));
        }
    }

    fn unable(&self, what: &str) -> Unable {
        Unable(format!("{} {what}", self.place()))
    }

    fn place(&self) -> String {
        if self.path.is_empty() { "the root".to_owned() } else { format!("`{}`", self.path.join(".")) }
    }
}
