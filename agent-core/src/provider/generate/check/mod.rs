//! Checks a value against a JSON Schema, for the part of it that Rust types need: types, enums, bounds, objects,
//! arrays, alternatives and references within the schema.
//!
//! Patterns and formats are not checked, `oneOf` is treated as `anyOf`, and unknown keywords pass: reading the value
//! into its type finds the rest. The purpose is to tell a model what is wrong, and where. A part beyond the bounds of
//! the check passes, for the same reason.
//!
//! The work is linear in the value and in the schema: alternatives are measured without words, each reference once for
//! each value, and only the nearest alternative's problems are told.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// Maximum of schemas applied to one value and its parts.
const STEPS: u32 = 4_000_000;
/// Maximum depth of schemas applied within one another. Values nest at most 128 deep; references and alternatives add
/// to it.
const DEPTH: u32 = 600;

/// The first `most` problems of `value`, each with its place; none when the value follows `schema`.
pub(super) fn problems(schema: &Value, value: &Value, most: usize) -> Vec<String> {
    let mut checker = Checker::new(schema, most);
    checker.check(schema, value);
    checker.found
}

enum Key<'a> {
    Field(&'a str),
    Item(usize),
}

/// Distance of a value from a schema.
#[derive(Debug, Clone, Copy, Default)]
struct Misfit {
    /// Number of problems, as far as they were counted; 0 if the value fits.
    count: usize,
    /// Levels from the value down to its first problem.
    depth: usize,
    /// A constant field names another alternative.
    other: bool,
}

impl Misfit {
    const HERE: Self = Self { count: 1, depth: 0, other: false };

    fn fits(self) -> bool {
        self.count == 0
    }

    /// The same, seen from the value around it.
    fn one_up(self) -> Self {
        Self { depth: self.depth.saturating_add(1), other: false, ..self }
    }

    fn add(&mut self, more: Self) {
        if self.fits() {
            self.depth = more.depth;
        }
        self.count = self.count.saturating_add(more.count);
        self.other |= more.other;
    }

    /// Sort key of alternatives: first the one that the value names, then the fewest problems, then the deepest.
    fn rank(self) -> (bool, usize, usize) {
        (self.other, self.count, usize::MAX.saturating_sub(self.depth))
    }
}

struct Checker<'a> {
    root: &'a Value,
    path: Vec<Key<'a>>,
    found: Vec<String>,
    most: usize,
    steps: u32,
    depth: u32,
    /// Measures without words.
    silent: bool,
    /// Measures of values against the targets of references, by address. A pair that is still being measured counts
    /// as fitting: a reference that leads back to itself demands nothing.
    known: HashMap<(*const Value, *const Value), Misfit>,
}

impl<'a> Checker<'a> {
    fn new(root: &'a Value, most: usize) -> Self {
        let (path, found, known) = (Vec::new(), Vec::new(), HashMap::new());
        Self { root, path, found, most, steps: STEPS, depth: DEPTH, silent: false, known }
    }

    fn check(&mut self, schema: &'a Value, value: &'a Value) -> Misfit {
        if self.found.len() >= self.most {
            return Misfit::HERE;
        }
        let (Some(steps), Some(depth)) = (self.steps.checked_sub(1), self.depth.checked_sub(1)) else {
            return Misfit::default();
        };
        (self.steps, self.depth) = (steps, depth);
        let misfit = match schema {
            Value::Bool(false) => self.report(|| "is not allowed here".to_owned()),
            Value::Object(schema) => self.follow(schema, value),
            _ => Misfit::default(),
        };
        self.depth = self.depth.saturating_add(1);
        misfit
    }

    /// Measures `value` without words.
    fn measure(&mut self, schema: &'a Value, value: &'a Value) -> Misfit {
        let before = std::mem::replace(&mut self.silent, true);
        let misfit = self.check(schema, value);
        self.silent = before;
        misfit
    }

    fn follow(&mut self, schema: &'a Map<String, Value>, value: &'a Value) -> Misfit {
        let kind = self.kind(schema, value);
        if !kind.fits() {
            return kind;
        }
        // Another alternative's fields are not looked into.
        if self.silent && named_otherwise(schema, value).is_some() {
            return Misfit { count: 1, depth: 1, other: true };
        }
        let mut misfit = Misfit::default();
        if let Some(target) = self.target(schema) {
            misfit.add(self.refer(target, value));
        }
        for schema in list(schema, "allOf") {
            misfit.add(self.check(schema, value));
        }
        for key in ["anyOf", "oneOf"] {
            let choices = list(schema, key);
            if !choices.is_empty() {
                misfit.add(self.any_of(choices, value));
            }
        }
        misfit.add(match value {
            Value::Number(_) => self.number(schema, value),
            Value::String(text) => {
                self.bounds(schema, ["minLength", "maxLength"], text.chars().count(), "characters")
            }
            Value::Array(items) => self.array(schema, items),
            Value::Object(fields) => self.object(schema, fields),
            Value::Null | Value::Bool(_) => Misfit::default(),
        });
        misfit
    }

    /// The keywords that need no look into the value: its type and its constants.
    fn kind(&mut self, schema: &Map<String, Value>, value: &Value) -> Misfit {
        if let Some(kinds) = schema.get("type").filter(|kinds| !admits(kinds, value)) {
            return self.report(|| {
                let kinds = match kinds {
                    Value::Array(kinds) => {
                        kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or ")
                    }
                    kind => kind.as_str().unwrap_or_default().to_owned(),
                };
                format!("should be {kinds} and is {}", shown(value))
            });
        }
        if let Some(only) = schema.get("const").filter(|only| *only != value) {
            return self.report(|| format!("should be {only} and is {}", shown(value)));
        }
        let values = list(schema, "enum");
        if !values.is_empty() && !values.contains(value) {
            return self.report(|| format!("should be one of {} and is {}", listed(values), shown(value)));
        }
        Misfit::default()
    }

    fn target(&self, schema: &Map<String, Value>) -> Option<&'a Value> {
        self.root.pointer(schema.get("$ref")?.as_str()?.strip_prefix('#')?)
    }

    fn refer(&mut self, target: &'a Value, value: &'a Value) -> Misfit {
        let pair = (std::ptr::from_ref(target), std::ptr::from_ref(value));
        let misfit = match self.known.get(&pair) {
            Some(known) => *known,
            None => {
                self.known.insert(pair, Misfit::default());
                let misfit = self.measure(target, value);
                self.known.insert(pair, misfit);
                misfit
            }
        };
        if self.silent || misfit.fits() { misfit } else { self.check(target, value) }
    }

    /// Requires one of `choices` to hold. When none does, the nearest one's problems are reported.
    fn any_of(&mut self, choices: &'a [Value], value: &'a Value) -> Misfit {
        let mut nearest: Option<(Misfit, &Value)> = None;
        for choice in choices {
            let misfit = self.measure(choice, value);
            if misfit.fits() {
                return misfit;
            }
            let nearer = nearest.is_none_or(|(best, _)| misfit.rank() < best.rank());
            if nearer && misfit.depth > 0 {
                nearest = Some((misfit, choice));
            }
        }
        match nearest {
            Some((misfit, _)) if self.silent => misfit,
            Some((misfit, choice)) if misfit.other => match self.names(choices, value) {
                Some((key, names)) => self.within(Key::Field(key), |this| {
                    let is = value.get(key).map(shown).unwrap_or_default();
                    this.report(|| format!("should be one of {} and is {is}", listed(names)))
                }),
                None => self.check(choice, value),
            },
            Some((_, choice)) => self.check(choice, value),
            None => self.report(|| {
                format!("has none of the {} allowed forms: it is {}", choices.len(), shown(value))
            }),
        }
    }

    /// The field in which `value` names none of `choices`, and the names that it could have.
    fn names(&self, choices: &'a [Value], value: &Value) -> Option<(&'a str, Vec<&'a Value>)> {
        let mut field = None;
        let mut names = Vec::new();
        for choice in choices.iter().filter_map(Value::as_object) {
            let own = named_otherwise(choice, value);
            let named = own.or_else(|| named_otherwise(self.target(choice)?.as_object()?, value));
            let Some((key, name)) = named else { continue };
            if *field.get_or_insert(key) != key {
                return None;
            }
            names.push(name);
        }
        field.map(|field| (field, names))
    }

    fn number(&mut self, schema: &Map<String, Value>, value: &Value) -> Misfit {
        let mut misfit = Misfit::default();
        let Some(number) = value.as_f64() else { return misfit };
        let mut bound = |key: &str, words: &str, holds: fn(&f64, &f64) -> bool| {
            let bound = schema.get(key).and_then(Value::as_f64);
            if let Some(bound) = bound.filter(|bound| !holds(&number, bound)) {
                misfit.add(self.report(|| format!("should be {words} {bound} and is {value}")));
            }
        };
        bound("minimum", "at least", f64::ge);
        bound("maximum", "at most", f64::le);
        bound("exclusiveMinimum", "more than", f64::gt);
        bound("exclusiveMaximum", "less than", f64::lt);
        misfit
    }

    fn bounds(
        &mut self,
        schema: &Map<String, Value>,
        [least, most]: [&str; 2],
        count: usize,
        what: &str,
    ) -> Misfit {
        let mut misfit = Misfit::default();
        let bound = |key: &str| schema.get(key).and_then(Value::as_u64);
        let count = count as u64;
        if let Some(least) = bound(least).filter(|least| count < *least) {
            misfit.add(self.report(|| format!("should have at least {least} {what} and has {count}")));
        }
        if let Some(most) = bound(most).filter(|most| count > *most) {
            misfit.add(self.report(|| format!("should have at most {most} {what} and has {count}")));
        }
        misfit
    }

    fn array(&mut self, schema: &'a Map<String, Value>, items: &'a [Value]) -> Misfit {
        let mut misfit = self.bounds(schema, ["minItems", "maxItems"], items.len(), "items");
        let first = list(schema, "prefixItems");
        for (index, item) in items.iter().enumerate() {
            if misfit.count >= self.most {
                break;
            }
            if let Some(schema) = first.get(index).or_else(|| schema.get("items")) {
                misfit.add(self.part(Key::Item(index), schema, item));
            }
        }
        misfit
    }

    fn object(&mut self, schema: &'a Map<String, Value>, fields: &'a Map<String, Value>) -> Misfit {
        let mut misfit = Misfit::default();
        for key in list(schema, "required").iter().filter_map(Value::as_str) {
            if !fields.contains_key(key) {
                let missing = |this: &mut Self| this.report(|| format!("is missing: `{key}` is required"));
                misfit.add(self.within(Key::Field(key), missing).one_up());
            }
        }
        let known = schema.get("properties").and_then(Value::as_object);
        // Without patterns nothing is known about the other fields.
        let others = schema.get("additionalProperties").filter(|_| !schema.contains_key("patternProperties"));
        for (key, field) in fields {
            if misfit.count >= self.most {
                break;
            }
            if let Some(schema) = known.and_then(|known| known.get(key)).or(others) {
                misfit.add(self.part(Key::Field(key), schema, field));
            }
        }
        misfit
    }

    fn part(&mut self, key: Key<'a>, schema: &'a Value, value: &'a Value) -> Misfit {
        let misfit = self.within(key, |this| this.check(schema, value));
        if misfit.fits() { misfit } else { misfit.one_up() }
    }

    fn within<R>(&mut self, key: Key<'a>, work: impl FnOnce(&mut Self) -> R) -> R {
        self.path.push(key);
        let done = work(self);
        self.path.pop();
        done
    }

    fn report(&mut self, problem: impl FnOnce() -> String) -> Misfit {
        if !self.silent && self.found.len() < self.most {
            self.found.push(format!("{} {}", self.place(), problem()));
        }
        Misfit::HERE
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

/// The constant field of `schema` in which `value` differs, with the constant.
fn named_otherwise<'a>(schema: &'a Map<String, Value>, value: &Value) -> Option<(&'a str, &'a Value)> {
    let fields = value.as_object()?;
    let known = schema.get("properties").and_then(Value::as_object)?;
    known.iter().find_map(|(key, property)| {
        let only = property.get("const")?;
        let differs = fields.get(key).is_some_and(|field| field != only);
        differs.then_some((key.as_str(), only))
    })
}

fn listed<'a>(values: impl IntoIterator<Item = &'a Value>) -> String {
    values.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
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
mod tests;
