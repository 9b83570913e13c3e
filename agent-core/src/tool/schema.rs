//! Schemas of arguments.

use schemars::JsonSchema;

/// The JSON Schema of `T`, without `$schema` and `title`, which mean nothing to a model.
#[must_use]
pub fn schema_of<T: JsonSchema>() -> serde_json::Value {
    let mut schema = serde_json::Value::from(schemars::schema_for!(T));
    if let Some(object) = schema.as_object_mut() {
        object.remove("$schema");
        object.remove("title");
    }
    schema
}
