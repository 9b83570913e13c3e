//! Schema of a type in the form that is sent, and reading of values by it.
//!
//! Services want an object at the root of a schema. Any other type is sent as the one field of an object and unwrapped
//! afterwards.

use entourage_core::tool::schema_of;
use entourage_runtime::schema;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::typed::Strategy;

/// Field that holds a value that is not an object.
pub(super) const FIELD: &str = "value";

pub(super) struct Shape {
    /// Name of the type: letters, digits, `_` and `-`, at most 64.
    pub(super) name: String,
    pub(super) description: Option<String>,
    plain: Value,
    wrapped: Option<Value>,
}

impl Shape {
    pub(super) fn of<T: JsonSchema>(strategy: Strategy) -> Self {
        let plain = schema_of::<T>();
        let description = plain.get("description").and_then(Value::as_str).map(str::to_owned);
        let wrapped = (strategy != Strategy::Prompt && !is_object(&plain)).then(|| wrapped(&plain));
        Self { name: name(&T::schema_name()), description, plain, wrapped }
    }

    /// True if the value is sent as the one field of an object.
    pub(super) fn is_wrapped(&self) -> bool {
        self.wrapped.is_some()
    }

    /// The schema that the model is given.
    pub(super) fn sent(&self) -> &Value {
        self.wrapped.as_ref().unwrap_or(&self.plain)
    }

    /// Reads the one value among the `candidates` of a reply. Equal ones count once, and a part of another does not
    /// count. The error lists the problems, each with its place, or says that there are several values; it is `None`
    /// without candidates.
    pub(super) fn read<T: DeserializeOwned>(
        &self,
        candidates: impl IntoIterator<Item = Value>,
    ) -> Result<T, Option<String>> {
        self.read_both(candidates).map(|(_, value)| value)
    }

    /// Reads as [`Shape::read`] does, and returns the value as JSON too, without an object around it.
    pub(super) fn read_both<T: DeserializeOwned>(
        &self,
        candidates: impl IntoIterator<Item = Value>,
    ) -> Result<(Value, T), Option<String>> {
        let mut problem = None;
        let mut only: Option<(Value, T)> = None;
        for candidate in candidates {
            match self.read_one(candidate) {
                Ok((value, _)) if only.as_ref().is_some_and(|(first, _)| holds(first, &value)) => {}
                Ok(_) if only.is_some() => {
                    return Err(Some("it holds several values, and only one can be taken".to_owned()));
                }
                Ok(read) => only = Some(read),
                // Of several values in one text the last is the likeliest to be meant.
                Err(found) => problem = Some(found),
            }
        }
        only.ok_or(problem)
    }

    fn read_one<T: DeserializeOwned>(&self, value: Value) -> Result<(Value, T), String> {
        let value = self.unwrapped(value)?;
        let read = T::deserialize(&value).map_err(|error| error.to_string())?;
        Ok((value, read))
    }

    fn unwrapped(&self, mut value: Value) -> Result<Value, String> {
        schema::whole_numbers(self.sent(), &mut value);
        match (schema::problems(self.sent(), &value), &self.wrapped) {
            (None, None) => Ok(value),
            (None, Some(_)) => Ok(value.get_mut(FIELD).map(Value::take).unwrap_or_default()),
            // Models that were not forced tend to leave the object around the value out.
            (Some(_), Some(_)) if schema::follows(&self.plain, &value) => {
                schema::whole_numbers(&self.plain, &mut value);
                Ok(value)
            }
            (Some(problems), _) => Err(problems),
        }
    }
}

/// True if `part` is `value` or a part of it.
fn holds(value: &Value, part: &Value) -> bool {
    value == part
        || match value {
            Value::Array(items) => items.iter().any(|item| holds(item, part)),
            Value::Object(fields) => fields.values().any(|field| holds(field, part)),
            _ => false,
        }
}

/// True if the schema itself requires an object, and not by way of alternatives or a reference.
fn is_object(schema: &Value) -> bool {
    let chosen = ["$ref", "anyOf", "oneOf", "allOf", "enum", "const"];
    schema.get("type").is_some_and(|kind| kind == "object")
        && chosen.iter().all(|key| schema.get(key).is_none())
}

fn wrapped(plain: &Value) -> Value {
    let mut inner = match plain {
        Value::Object(inner) => inner.clone(),
        _ => Map::new(),
    };
    let mut defs = match inner.remove("$defs") {
        Some(Value::Object(defs)) => defs,
        _ => Map::new(),
    };
    let mut own = "Value".to_owned();
    while defs.contains_key(&own) {
        own.push('_');
    }
    let mut inner = Value::Object(inner);
    let target = format!("#/$defs/{own}");
    let mut recursive = point_root_to(&mut inner, &target);
    for schema in defs.values_mut() {
        recursive |= point_root_to(schema, &target);
    }
    // A recursive type refers to the root, which is now the object around it.
    if recursive {
        defs.insert(own, std::mem::replace(&mut inner, json!({ "$ref": target })));
    }
    let mut schema = json!({
        "type": "object",
        "properties": { FIELD: inner },
        "required": [FIELD],
        "additionalProperties": false,
    });
    if let (Some(schema), false) = (schema.as_object_mut(), defs.is_empty()) {
        schema.insert("$defs".to_owned(), Value::Object(defs));
    }
    schema
}

/// Redirects references to the root to `target`. Returns true if there were any.
fn point_root_to(schema: &mut Value, target: &str) -> bool {
    match schema {
        Value::Object(fields) => fields.iter_mut().fold(false, |found, (key, field)| match key.as_str() {
            "$ref" if field == "#" => {
                *field = target.into();
                true
            }
            // These keywords hold values, not schemas.
            "const" | "enum" | "default" | "examples" => found,
            _ => point_root_to(field, target) | found,
        }),
        Value::Array(items) => {
            items.iter_mut().fold(false, |found, item| point_root_to(item, target) | found)
        }
        _ => false,
    }
}

fn name(text: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let name: String = text.chars().take(64).map(safe).collect();
    if name.is_empty() { FIELD.to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Tree {
        Leaf(i64),
        Fork(Vec<Tree>),
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Folder {
        name: String,
        folders: Vec<Folder>,
    }

    /// Every reference in the schema leads somewhere.
    fn assert_resolved(root: &Value, schema: &Value) {
        match schema {
            Value::Object(fields) => {
                if let Some(Value::String(path)) = fields.get("$ref") {
                    let target = root.pointer(path.strip_prefix('#').unwrap());
                    assert!(target.is_some(), "{path} leads nowhere: {root}");
                }
                fields.values().for_each(|field| assert_resolved(root, field));
            }
            Value::Array(items) => items.iter().for_each(|item| assert_resolved(root, item)),
            _ => {}
        }
    }

    #[test]
    fn objects_are_sent_as_they_are_and_anything_else_in_a_field() {
        assert!(Shape::of::<Folder>(Strategy::Native).wrapped.is_none());
        assert!(Shape::of::<std::collections::BTreeMap<String, u8>>(Strategy::Tool).wrapped.is_none());
        for shape in [
            Shape::of::<Vec<Folder>>(Strategy::Native),
            Shape::of::<Tree>(Strategy::Tool),
            Shape::of::<Option<Folder>>(Strategy::Native),
            Shape::of::<u8>(Strategy::Native),
            Shape::of::<Value>(Strategy::Native),
        ] {
            let sent = shape.sent();
            assert_eq!((&sent["type"], &sent["required"]), (&json!("object"), &json!([FIELD])), "{sent}");
            assert_resolved(sent, sent);
        }
        assert!(Shape::of::<Vec<Folder>>(Strategy::Prompt).wrapped.is_none(), "a prompt takes any JSON");
    }

    #[test]
    fn recursive_types_survive_the_object_around_them() {
        let shape = Shape::of::<Tree>(Strategy::Native);
        let tree = json!({"fork": [{"leaf": 1}, {"fork": []}]});
        let expected = Tree::Fork(vec![Tree::Leaf(1), Tree::Fork(vec![])]);
        assert_eq!(shape.read::<Tree>([json!({"value": tree})]), Ok(expected));
        let problem =
            shape.read::<Tree>([json!({"value": {"fork": [{"leaf": "one"}]}})]).unwrap_err().unwrap();
        assert!(problem.contains("/value/fork/0/leaf"), "{problem}");
        let folder =
            json!({"name": "a", "folders": [{"name": "b", "folders": [{"name": 1, "folders": []}]}]});
        let problem = Shape::of::<Folder>(Strategy::Native).read::<Folder>([folder]).unwrap_err().unwrap();
        assert!(problem.contains("/folders/0/folders/0/name"), "{problem}");
    }

    #[test]
    fn a_reference_to_the_root_is_moved_and_a_value_that_looks_like_one_is_not() {
        let plain = json!({
            "anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#"}}],
            "default": {"$ref": "#"},
            "$defs": {"Value": {"type": "object", "properties": {"up": {"$ref": "#"}}}},
        });
        let sent = wrapped(&plain);
        assert_resolved(&sent, &sent);
        assert_eq!(sent["properties"]["value"], json!({"$ref": "#/$defs/Value_"}));
        let inner = &sent["$defs"]["Value_"];
        assert_eq!(inner["anyOf"][1]["items"]["$ref"], "#/$defs/Value_");
        assert_eq!(inner["default"]["$ref"], "#");
        assert_eq!(sent["$defs"]["Value"]["properties"]["up"]["$ref"], "#/$defs/Value_");
    }

    #[test]
    fn a_value_without_the_object_around_it_is_taken_too() {
        let shape = Shape::of::<Vec<u8>>(Strategy::Tool);
        assert_eq!(shape.read::<Vec<u8>>([json!({"value": [1, 2]})]), Ok(vec![1, 2]));
        assert_eq!(shape.read::<Vec<u8>>([json!([1, 2])]), Ok(vec![1, 2]));
        assert!(shape.read::<Vec<u8>>([json!({"values": [1, 2]})]).unwrap_err().unwrap().contains("`value`"));
    }

    #[test]
    fn a_whole_number_with_a_point_is_an_integer() {
        assert_eq!(
            Shape::of::<Tree>(Strategy::Native).read([json!({"value": {"leaf": 3.0}})]),
            Ok(Tree::Leaf(3))
        );
        let shape = Shape::of::<Vec<u8>>(Strategy::Tool);
        assert_eq!(shape.read_both::<Vec<u8>>([json!([1.0, 2])]), Ok((json!([1, 2]), vec![1, 2])));
        let problem = shape.read::<Vec<u8>>([json!({"value": [1.5]})]).unwrap_err().unwrap();
        assert!(problem.contains("integer"), "{problem}");
        let shape = Shape::of::<Vec<f64>>(Strategy::Prompt);
        assert_eq!(shape.read_both::<Vec<f64>>([json!([1.0])]).unwrap().0.to_string(), "[1.0]");
    }

    #[test]
    fn names_are_such_as_services_take() {
        assert_eq!(name("Array_of_City"), "Array_of_City");
        assert_eq!(name("a::b<c>é"), "a__b_c__");
        assert_eq!(name(""), "value");
        assert_eq!(name(&"x".repeat(70)).len(), 64);
    }
}
