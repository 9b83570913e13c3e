//! Checks a value against a JSON Schema, for the part of it that Rust types need: types, enums, bounds, objects,
//! arrays, alternatives and references within the schema.
//!
//! Patterns and formats are not checked, `oneOf` is treated as `anyOf`, and unknown keywords pass: reading the value
//! into its type finds the rest. The purpose is to tell a model what is wrong, and where.

use serde_json::{Map, Value};

/// Maximum of schemas applied to one value and its parts.
const STEPS: u32 = 200_000;
/// Maximum depth of schemas applied within one another. Values nest at most 128 deep; references and alternatives add
/// to it.
const DEPTH: u32 = 600;

/// The first `most` problems of `value`, each with its place; none when the value follows `schema`.
pub(super) fn problems(schema: &Value, value: &Value, most: usize) -> Vec<String> {
    let mut checker =
        Checker { root: schema, path: Vec::new(), found: Vec::new(), most, steps: STEPS, depth: DEPTH };
    checker.check(schema, value);
    checker.found.into_iter().map(|problem| problem.text).collect()
}

enum Key<'a> {
    Field(&'a str),
    Item(usize),
}

struct Problem {
    /// Distance from the root.
    depth: usize,
    text: String,
}

struct Checker<'a> {
    root: &'a Value,
    path: Vec<Key<'a>>,
    found: Vec<Problem>,
    most: usize,
    steps: u32,
    depth: u32,
}

impl<'a> Checker<'a> {
    fn check(&mut self, schema: &'a Value, value: &'a Value) {
        if self.found.len() >= self.most {
            return;
        }
        let (Some(steps), Some(depth)) = (self.steps.checked_sub(1), self.depth.checked_sub(1)) else {
            self.report("is too deeply nested to be checked");
            return;
        };
        (self.steps, self.depth) = (steps, depth);
        match schema {
            Value::Bool(false) => self.report("is not allowed here"),
            Value::Object(schema) => self.follow(schema, value),
            _ => {}
        }
        self.depth = self.depth.saturating_add(1);
    }

    fn follow(&mut self, schema: &'a Map<String, Value>, value: &'a Value) {
        if let Some(kinds) = schema.get("type").filter(|kinds| !admits(kinds, value)) {
            let kinds = match kinds {
                Value::Array(kinds) => {
                    kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or ")
                }
                kind => kind.as_str().unwrap_or_default().to_owned(),
            };
            return self.report(&format!("should be {kinds} and is {}", shown(value)));
        }
        if let Some(target) = schema.get("$ref").and_then(|path| self.resolve(path)) {
            self.check(target, value);
        }
        for schema in list(schema, "allOf") {
            self.check(schema, value);
        }
        for key in ["anyOf", "oneOf"] {
            let choices = list(schema, key);
            if !choices.is_empty() {
                self.any_of(choices, value);
            }
        }
        if schema.get("const").is_some_and(|only| only != value) {
            let only = schema.get("const").map(ToString::to_string).unwrap_or_default();
            self.report(&format!("should be {only} and is {}", shown(value)));
        }
        let values = list(schema, "enum");
        if !values.is_empty() && !values.contains(value) {
            let values: Vec<_> = values.iter().map(ToString::to_string).collect();
            self.report(&format!("should be one of {} and is {}", values.join(", "), shown(value)));
        }
        match value {
            Value::Number(_) => self.number(schema, value),
            Value::String(text) => {
                self.bounds(schema, ["minLength", "maxLength"], text.chars().count(), "characters");
            }
            Value::Array(items) => self.array(schema, items),
            Value::Object(fields) => self.object(schema, fields),
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn resolve(&self, path: &Value) -> Option<&'a Value> {
        self.root.pointer(path.as_str()?.strip_prefix('#')?)
    }

    /// Requires one of `choices` to hold. When none does, the nearest one's problems are reported.
    fn any_of(&mut self, choices: &'a [Value], value: &'a Value) {
        let mut nearest: Option<Vec<Problem>> = None;
        for choice in choices {
            let before = std::mem::take(&mut self.found);
            self.check(choice, value);
            let found = std::mem::replace(&mut self.found, before);
            let Some(first) = found.first() else { return };
            let rank = |list: &[Problem]| (list.len(), usize::MAX - list.first().map_or(0, |it| it.depth));
            let nearer = nearest.as_ref().is_none_or(|best| rank(&found) < rank(best));
            if nearer && first.depth > self.path.len() {
                nearest = Some(found);
            }
        }
        match nearest {
            Some(found) => self.found.extend(found),
            None => self.report(&format!(
                "has none of the {} allowed forms: it is {}",
                choices.len(),
                shown(value)
            )),
        }
    }

    fn number(&mut self, schema: &Map<String, Value>, value: &Value) {
        let Some(number) = value.as_f64() else { return };
        let mut bound = |key: &str, words: &str, holds: fn(&f64, &f64) -> bool| {
            let bound = schema.get(key).and_then(Value::as_f64);
            if let Some(bound) = bound.filter(|bound| !holds(&number, bound)) {
                self.report(&format!("should be {words} {bound} and is {value}"));
            }
        };
        bound("minimum", "at least", f64::ge);
        bound("maximum", "at most", f64::le);
        bound("exclusiveMinimum", "more than", f64::gt);
        bound("exclusiveMaximum", "less than", f64::lt);
    }

    fn bounds(&mut self, schema: &Map<String, Value>, [least, most]: [&str; 2], count: usize, what: &str) {
        let bound = |key: &str| schema.get(key).and_then(Value::as_u64);
        let count = count as u64;
        if let Some(least) = bound(least).filter(|least| count < *least) {
            self.report(&format!("should have at least {least} {what} and has {count}"));
        }
        if let Some(most) = bound(most).filter(|most| count > *most) {
            self.report(&format!("should have at most {most} {what} and has {count}"));
        }
    }

    fn array(&mut self, schema: &'a Map<String, Value>, items: &'a [Value]) {
        self.bounds(schema, ["minItems", "maxItems"], items.len(), "items");
        let first = list(schema, "prefixItems");
        for (index, item) in items.iter().enumerate() {
            if let Some(schema) = first.get(index).or_else(|| schema.get("items")) {
                self.within(Key::Item(index), schema, item);
            }
        }
    }

    fn object(&mut self, schema: &'a Map<String, Value>, fields: &'a Map<String, Value>) {
        for key in list(schema, "required").iter().filter_map(Value::as_str) {
            if !fields.contains_key(key) {
                self.path.push(Key::Field(key));
                self.report_missing(key);
                self.path.pop();
            }
        }
        let known = schema.get("properties").and_then(Value::as_object);
        for (key, field) in fields {
            let own = known.and_then(|known| known.get(key));
            // Without patterns nothing is known about the other fields.
            let others =
                schema.get("additionalProperties").filter(|_| !schema.contains_key("patternProperties"));
            if let Some(schema) = own.or(others) {
                self.within(Key::Field(key), schema, field);
            }
        }
    }

    fn within(&mut self, key: Key<'a>, schema: &'a Value, value: &'a Value) {
        self.path.push(key);
        self.check(schema, value);
        self.path.pop();
    }

    fn report(&mut self, problem: &str) {
        let text = format!("{} {problem}", self.place());
        self.found.push(Problem { depth: self.path.len(), text });
    }

    fn report_missing(&mut self, key: &str) {
        let text = format!("{} is missing: `{key}` is required", self.place());
        self.found.push(Problem { depth: self.path.len(), text });
    }

    /// The path as a JSON pointer.
    fn place(&self) -> String {
        if self.path.is_empty() {
            return "the value".to_owned();
        }
        let steps = self.path.iter().map(|key| match key {
            Key::Field(name) => format!("/{}", name.replace('~', "~0").replace('/', "~1")),
            Key::Item(index) => format!("/{index}"),
        });
        steps.collect()
    }
}

fn list<'a>(schema: &'a Map<String, Value>, key: &str) -> &'a [Value] {
    schema.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn admits(kinds: &Value, value: &Value) -> bool {
    match kinds {
        Value::Array(kinds) => kinds.iter().any(|kind| admits(kind, value)),
        Value::String(kind) => match (kind.as_str(), value) {
            ("null", Value::Null)
            | ("boolean", Value::Bool(_))
            | ("string", Value::String(_))
            | ("number", Value::Number(_))
            | ("array", Value::Array(_))
            | ("object", Value::Object(_)) => true,
            ("integer", Value::Number(number)) => {
                !number.is_f64() || number.as_f64().is_some_and(|number| number.fract() == 0.0)
            }
            _ => false,
        },
        _ => true,
    }
}

/// A value in a few words.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => {
            let cut: String = text.chars().take(40).collect();
            let more = if cut.len() < text.len() { "…" } else { "" };
            format!("the string {cut:?}{more}")
        }
        Value::Array(items) => format!("an array of {}", items.len()),
        Value::Object(_) => "an object".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_keyword_says_what_is_wrong_and_where() {
        let schema = json!({
            "type": "object",
            "required": ["n"],
            "additionalProperties": false,
            "properties": {
                "n": {"type": "integer", "minimum": 1, "maximum": 5},
                "x": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
                "s": {"type": ["string", "null"], "minLength": 2, "maxLength": 3},
                "e": {"enum": ["a", "b"]},
                "c": {"const": true},
                "l": {"type": "array", "items": {"$ref": "#/$defs/P"}, "minItems": 1, "maxItems": 2},
                "t": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "boolean"}], "items": false},
                "m": {"type": "object", "additionalProperties": {"type": "integer"}},
                "a/b": {"allOf": [{"type": "integer"}, {"minimum": 3}]},
                "never": false,
            },
            "$defs": {"P": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}},
        });
        let fine = json!({"n": 5, "x": 0.5, "s": null, "e": "b", "c": true, "l": [{"id": 1.0, "more": 1}],
            "t": ["a", true], "m": {"k": 1}, "a/b": 3});
        assert_eq!(problems(&schema, &fine, 8), Vec::<String>::new());
        for (key, value, problem) in [
            ("n", json!(0), "/n should be at least 1 and is 0"),
            ("n", json!(6), "/n should be at most 5 and is 6"),
            ("n", json!(1.5), "/n should be integer and is 1.5"),
            ("n", json!("1"), "/n should be integer and is the string \"1\""),
            ("x", json!(0), "/x should be more than 0 and is 0"),
            ("x", json!(1), "/x should be less than 1 and is 1"),
            ("s", json!("é"), "/s should have at least 2 characters and has 1"),
            ("s", json!("éééé"), "/s should have at most 3 characters and has 4"),
            ("s", json!(true), "/s should be string or null and is true"),
            ("e", json!("c"), "/e should be one of \"a\", \"b\" and is the string \"c\""),
            ("c", json!(false), "/c should be true and is false"),
            ("l", json!([]), "/l should have at least 1 items and has 0"),
            ("l", json!([{"id": 1}, {"id": 1}, {"id": 1}]), "/l should have at most 2 items and has 3"),
            ("l", json!([{"id": 1}, {}]), "/l/1/id is missing: `id` is required"),
            ("l", json!([{"id": []}]), "/l/0/id should be integer and is an array of 0"),
            ("t", json!(["a", 1]), "/t/1 should be boolean and is 1"),
            ("t", json!(["a", true, 1]), "/t/2 is not allowed here"),
            ("m", json!({"k": {}}), "/m/k should be integer and is an object"),
            ("a/b", json!(2), "/a~1b should be at least 3 and is 2"),
            ("never", json!(1), "/never is not allowed here"),
            ("other", json!(1), "/other is not allowed here"),
        ] {
            let mut wrong = fine.clone();
            wrong[key] = value;
            assert_eq!(problems(&schema, &wrong, 8), [problem]);
        }
        let mut bare = fine;
        bare.as_object_mut().unwrap().remove("n");
        assert_eq!(problems(&schema, &bare, 8), ["/n is missing: `n` is required"]);
        assert_eq!(problems(&schema, &json!([]), 8), ["the value should be object and is an array of 0"]);
    }

    #[test]
    fn of_several_forms_the_nearest_says_what_is_wrong() {
        let schema = json!({"anyOf": [
            {"type": "null"},
            {"type": "object", "required": ["kind", "r"],
                "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}}},
            {"type": "object", "required": ["kind", "w", "h"],
                "properties": {"kind": {"const": "box"}, "w": {"type": "number"}, "h": {"type": "number"}}},
        ]});
        for (value, found) in [
            (json!(null), vec![]),
            (json!({"kind": "circle", "r": 1}), vec![]),
            (json!({"kind": "box", "w": 1, "h": "2"}), vec!["/h should be number and is the string \"2\""]),
            (json!({"kind": "circle"}), vec!["/r is missing: `r` is required"]),
            (json!(3), vec!["the value has none of the 3 allowed forms: it is 3"]),
        ] {
            assert_eq!(problems(&schema, &value, 8), found, "{value}");
        }
    }

    #[test]
    fn the_number_of_problems_is_bounded() {
        let schema = json!({"type": "array", "items": {"type": "string"}});
        let value: Value = (0..100).collect::<Vec<_>>().into();
        assert_eq!(
            problems(&schema, &value, 3),
            [0, 1, 2].map(|n| format!("/{n} should be string and is {n}"))
        );
    }

    #[test]
    fn attack_no_schema_and_no_value_makes_it_run_away() {
        let circle =
            json!({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}});
        assert_eq!(problems(&circle, &json!(1), 8), ["the value is too deeply nested to be checked"]);
        // Each level doubles the work.
        let twice = json!({"type": "object", "properties": {"a": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}});
        let deep = (0..120).fold(json!(1), |inner, _| json!({ "a": inner }));
        assert!(!problems(&twice, &deep, 8).is_empty());
        assert_eq!(problems(&json!({"$ref": "#/nowhere"}), &json!(1), 8), Vec::<String>::new());
    }
}
