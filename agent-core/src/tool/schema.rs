//! Schemas of arguments.

use schemars::JsonSchema;

/// The JSON Schema of `T`, without `$schema` and `title`, which mean nothing to a model.
#[must_use]
pub fn schema_of<T: JsonSchema>() -> serde_json::Value {
    let mut schema = schemars::schema_for!(T);
    schema.remove("$schema");
    schema.remove("title");
    schema.into()
}
