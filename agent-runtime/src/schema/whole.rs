//! Whole numbers that are written with a point, such as `3.0`. JSON Schema takes them for integers; types of integers
//! do not. Some services write every number so.

use serde_json::{Number, Value};

/// Maximum of schemas looked at for one value: references and alternatives beyond these are left out.
const MOST: usize = 64;
/// Magnitude below which a float is exact.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Writes whole numbers without a point where `schema` asks for an integer and does not take other numbers. The value
/// stays equal to what it was, so it follows the same schemas.
pub fn whole_numbers(schema: &Value, value: &mut Value) {
    if has_some(value) {
        write(schema, &expanded(schema, [schema]), value);
    }
}

fn whole(number: &Number) -> Option<Number> {
    let float =
        number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() < EXACT)?;
    format!("{float:.0}").parse::<i64>().ok().map(Number::from)
}

fn has_some(value: &Value) -> bool {
    match value {
        Value::Number(number) => whole(number).is_some(),
        Value::Array(items) => items.iter().any(has_some),
        Value::Object(fields) => fields.values().any(has_some),
        _ => false,
    }
}

fn write(root: &Value, schemas: &[&Value], value: &mut Value) {
    match value {
        Value::Number(number) => {
            let asks = |kind: &str| schemas.iter().any(|schema| names(schema, kind));
            if let Some(plain) = whole(number).filter(|_| asks("integer") && !asks("number")) {
                *number = plain;
            }
        }
        Value::Array(items) => {
            for (place, item) in items.iter_mut().enumerate() {
                let of_item = schemas.iter().filter_map(|schema| {
                    let fixed = schema.get("prefixItems").and_then(|items| items.get(place));
                    fixed.or_else(|| schema.get("items"))
                });
                write(root, &expanded(root, of_item), item);
            }
        }
        Value::Object(fields) => {
            for (key, field) in fields {
                let of_field = schemas.iter().filter_map(|schema| {
                    let named = schema.get("properties").and_then(|fields| fields.get(key));
                    named.or_else(|| schema.get("additionalProperties"))
                });
                write(root, &expanded(root, of_field), field);
            }
        }
        _ => {}
    }
}

fn names(schema: &Value, kind: &str) -> bool {
    match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(|known| known == kind),
        Some(known) => known == kind,
        None => false,
    }
}

/// Returns the schemas, with those that they refer to and their alternatives.
fn expanded<'a>(root: &'a Value, schemas: impl IntoIterator<Item = &'a Value>) -> Vec<&'a Value> {
    let mut all: Vec<_> = schemas.into_iter().take(MOST).collect();
    let mut at = 0;
    while let Some(schema) = all.get(at).copied() {
        let target = schema.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix('#'));
        all.extend(target.and_then(|path| root.pointer(path)));
        for key in ["allOf", "anyOf", "oneOf"] {
            all.extend(schema.get(key).and_then(Value::as_array).into_iter().flatten());
        }
        all.truncate(MOST);
        at += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whole_numbers_lose_their_point_only_where_a_schema_asks_for_integers() {
        let schema = json!({
            "type": "object",
            "properties": {
                "n": {"type": "integer"},
                "maybe": {"type": ["integer", "null"]},
                "either": {"anyOf": [{"type": "integer"}, {"type": "number"}]},
                "x": {"type": "number"},
                "any": {},
                "list": {"type": "array", "prefixItems": [{"type": "number"}], "items": {"$ref": "#/$defs/N"}},
                "loop": {"$ref": "#/$defs/L"},
            },
            "additionalProperties": {"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]},
            "$defs": {"N": {"type": "integer"}, "L": {"$ref": "#/$defs/L"}},
        });
        let mut value = json!({
            "n": 3.0, "maybe": -4.0, "either": 5.0, "x": 6.0, "any": 7.0, "list": [8.0, 9.0, 10.5], "loop": 11.0,
            "other": 12.0, "large": 1e300,
        });
        whole_numbers(&schema, &mut value);
        let expected = r#"{"n":3,"maybe":-4,"either":5.0,"x":6.0,"any":7.0,"list":[8.0,9,10.5],"loop":11.0,
            "other":12,"large":1e300}"#;
        // Equal numbers of two kinds are not equal here.
        assert_eq!(value, serde_json::from_str::<Value>(expected).unwrap());
    }

    #[test]
    fn attack_22_a_schema_of_alternatives_takes_no_time() {
        let mut schema = json!({"type": "integer"});
        for _ in 0..60 {
            schema = json!({"anyOf": [schema, {"$ref": "#"}, {"$ref": "#"}], "items": {"$ref": "#"}});
        }
        let mut value = json!(vec![vec![1.0; 100]; 100]);
        whole_numbers(&schema, &mut value);
    }
}
