//! The one check of a JSON value against a JSON Schema, for the arguments of tools and for typed output. Pure.
//!
//! It covers what types need: types, constants, bounds, objects, arrays, tuples, alternatives, and references within
//! the schema. `oneOf` is treated as `anyOf`. Not checked, and left to whoever reads the value: `pattern` but for `\S`,
//! `patternProperties`, `format`, `not`, conditions, `uniqueItems`, multiples that are no integers, and unknown
//! keywords. A null in a property that is not required counts as absent: strict modes of services make a model give
//! every property.
//!
//! Schema and value may come from strangers. The work is bounded, and linear in the size of the value for a given
//! schema: each reference is measured once for each value, and only the nearest alternative's problems are told. A part
//! beyond the bounds passes.

mod doubled;
mod misfit;
mod plain;
mod whole;
mod words;

use std::{cmp::Ordering, collections::HashMap};

use serde_json::{Map, Number, Value};

pub use doubled::doubled;
use misfit::Misfit;
use plain::plainly_follows;
pub use whole::whole_numbers;
use words::{described, listed, named, short, shown};

/// Maximum of work, in schemas applied to one value each. Long lists, keywords and texts count as several.
const WORK: usize = 4_000_000;
/// Maximum depth of schemas applied within one another. Values nest at most 128 deep; references and alternatives add
/// to it.
const DEPTH: u32 = 400;
/// Maximum of problems told at once.
const MOST: usize = 8;

/// Returns true if `value` follows `schema`.
pub fn follows(schema: &Value, value: &Value) -> bool {
    Checker::new(schema).measure(schema, value).fits()
}

/// The first problems of `value`, at most eight: each with its place, what should be there and what is; `None` when the
/// value follows `schema`.
pub fn problems(schema: &Value, value: &Value) -> Option<String> {
    if plainly_follows(schema, value) {
        return None;
    }
    let mut checker = Checker::new(schema);
    if checker.measure(schema, value).fits() {
        return None;
    }
    checker.left = WORK;
    checker.check(schema, value);
    (!checker.found.is_empty()).then(|| checker.found.join("; "))
}

enum Key<'a> {
    Field(&'a str),
    Item(usize),
}

struct Checker<'a> {
    root: &'a Value,
    path: Vec<Key<'a>>,
    found: Vec<String>,
    left: usize,
    depth: u32,
    /// Measures without words.
    silent: bool,
    /// Measures of values against the targets of references, by address. A pair that is still being measured counts
    /// as fitting: a reference that leads back to itself demands nothing.
    known: HashMap<(*const Value, *const Value), Misfit>,
}

impl<'a> Checker<'a> {
    fn new(root: &'a Value) -> Self {
        let (path, found, known) = (Vec::new(), Vec::new(), HashMap::new());
        Self { root, path, found, left: WORK, depth: DEPTH, silent: false, known }
    }

    /// Pays for the look at `size` small things. Returns false when all work is spent: the rest passes.
    fn pay(&mut self, size: usize) -> bool {
        let left = self.left.checked_sub(1 + size / 8);
        self.left = left.unwrap_or(0);
        left.is_some()
    }

    fn check(&mut self, schema: &'a Value, value: &'a Value) -> Misfit {
        if self.found.len() >= MOST {
            return Misfit::HERE;
        }
        let size = schema.as_object().map_or(0, Map::len);
        let Some(depth) = self.depth.checked_sub(1).filter(|_| self.pay(size)) else { return Misfit::NONE };
        self.depth = depth;
        let misfit = match schema {
            Value::Bool(false) => self.report(|| "is not allowed here".to_owned()),
            Value::Object(schema) => {
                let kind = self.kind(schema, value);
                if kind.fits() { self.follow(schema, value) } else { kind }
            }
            _ => Misfit::NONE,
        };
        self.depth = depth.saturating_add(1);
        misfit
    }

    /// Measures `value` without words.
    fn measure(&mut self, schema: &'a Value, value: &'a Value) -> Misfit {
        let before = std::mem::replace(&mut self.silent, true);
        let misfit = self.check(schema, value);
        self.silent = before;
        misfit
    }

    /// The keywords that need no look into the value: its type and its constants.
    fn kind(&mut self, schema: &'a Map<String, Value>, value: &Value) -> Misfit {
        for (key, rule) in schema {
            let holds = match key.as_str() {
                "type" => {
                    !self.pay(rule.as_array().map_or(0, Vec::len))
                        || admits(rule, value)
                        || value.is_null() && schema.get("nullable") == Some(&true.into())
                }
                "const" => self.equal(rule, value),
                "enum" => match rule.as_array() {
                    Some(choices) => choices.iter().any(|choice| self.equal(choice, value)),
                    None => true,
                },
                _ => true,
            };
            if !holds && self.left > 0 {
                return self.report(|| format!("should be {} and is {}", described(schema), shown(value)));
            }
        }
        Misfit::NONE
    }

    /// Compares as JSON Schema does: 1 and 1.0 are equal. False once all work is spent.
    fn equal(&mut self, one: &Value, other: &Value) -> bool {
        match (one, other) {
            (Value::Number(one), Value::Number(other)) => {
                self.pay(1) && order(one, other) == Some(Ordering::Equal)
            }
            (Value::String(one), Value::String(other)) => {
                self.pay(one.len().min(other.len()) / 8) && one == other
            }
            (Value::Array(one), Value::Array(other)) => {
                self.pay(1)
                    && one.len() == other.len()
                    && one.iter().zip(other).all(|(one, other)| self.equal(one, other))
            }
            (Value::Object(one), Value::Object(other)) => {
                self.pay(1)
                    && one.len() == other.len()
                    && one.iter().all(|(key, one)| other.get(key).is_some_and(|other| self.equal(one, other)))
            }
            _ => self.pay(1) && one == other,
        }
    }

    fn follow(&mut self, schema: &'a Map<String, Value>, value: &'a Value) -> Misfit {
        let mut misfit = Misfit::NONE;
        for (key, rule) in schema {
            misfit.add(match (key.as_str(), rule, value) {
                ("$ref", Value::String(_), _) => match self.target(schema) {
                    Some(target) => self.refer(target, value),
                    None => Misfit::NONE,
                },
                ("allOf", Value::Array(all), _) => self.all_of(all, value),
                ("anyOf" | "oneOf", Value::Array(choices), _) if !choices.is_empty() => {
                    self.any_of(choices, value)
                }
                (key, Value::Number(bound), Value::Number(number)) => self.number(key, bound, number),
                (key, Value::Number(bound), _) => self.size(key, bound, value),
                ("pattern", Value::String(pattern), Value::String(text)) if pattern == r"\S" => {
                    self.not_blank(text)
                }
                _ => Misfit::NONE,
            });
        }
        misfit.add(match value {
            Value::Array(items) => self.array(schema, items),
            Value::Object(fields) => self.object(schema, fields),
            _ => Misfit::NONE,
        });
        misfit
    }

    fn all_of(&mut self, all: &'a [Value], value: &'a Value) -> Misfit {
        let mut misfit = Misfit::NONE;
        for schema in all {
            misfit.add(self.check(schema, value));
        }
        misfit
    }

    fn target(&mut self, schema: &Map<String, Value>) -> Option<&'a Value> {
        let pointer = schema.get("$ref")?.as_str()?.strip_prefix('#')?;
        if self.pay(pointer.len()) { pointed(self.root, pointer) } else { None }
    }

    fn refer(&mut self, target: &'a Value, value: &'a Value) -> Misfit {
        let pair = (std::ptr::from_ref(target), std::ptr::from_ref(value));
        let misfit = match self.known.get(&pair) {
            Some(known) => *known,
            None => {
                self.known.insert(pair, Misfit::NONE);
                let misfit = self.measure(target, value);
                self.known.insert(pair, misfit);
                misfit
            }
        };
        if self.silent || misfit.fits() {
            return misfit;
        }
        // Told once, however many references lead here.
        self.known.insert(pair, Misfit::NONE);
        self.check(target, value);
        misfit
    }

    /// Requires one of `choices` to hold. When none does, the nearest one's problems are reported.
    fn any_of(&mut self, choices: &'a [Value], value: &'a Value) -> Misfit {
        let mut nearest: Option<(Misfit, &Value)> = None;
        for choice in choices {
            let misfit = match self.other_name(choice, value) {
                Some(_) => Misfit::OTHER,
                None => self.measure(choice, value),
            };
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
                    this.report(|| {
                        format!("should be {} and is {is}", listed(names.iter().map(|name| short(name))))
                    })
                }),
                None => self.check(choice, value),
            },
            Some((_, choice)) => self.check(choice, value),
            None => self.mismatch(choices, value),
        }
    }

    /// Reports that `value` has none of these forms.
    fn mismatch(&mut self, choices: &'a [Value], value: &Value) -> Misfit {
        if self.silent {
            return Misfit::HERE;
        }
        let mut forms = Vec::new();
        for choice in choices.iter().take(words::LISTED + 1).filter_map(Value::as_object) {
            let target = self.target(choice).and_then(Value::as_object).unwrap_or(choice);
            forms.push(described(target));
        }
        forms.dedup();
        if forms.iter().all(String::is_empty) {
            forms = vec![format!("one of {} forms", choices.len())];
        }
        self.report(|| format!("should be {} and is {}", listed(forms), shown(value)))
    }

    /// The constant field in which `value` names another alternative than `choice`, with the constant.
    fn other_name(&mut self, choice: &'a Value, value: &Value) -> Option<(&'a str, &'a Value)> {
        let (choice, fields) = (choice.as_object()?, value.as_object()?);
        let own = choice.get("properties").and_then(Value::as_object);
        let known = own.or_else(|| self.target(choice)?.get("properties")?.as_object())?;
        if !self.pay(known.len()) {
            return None;
        }
        known.iter().find_map(|(key, property)| {
            let only = property.get("const")?;
            let differs = fields.get(key).is_some_and(|field| !self.equal(field, only));
            (differs && self.left > 0).then_some((key.as_str(), only))
        })
    }

    /// The field in which `value` names none of `choices`, and the names that it could have.
    fn names(&mut self, choices: &'a [Value], value: &Value) -> Option<(&'a str, Vec<&'a Value>)> {
        let mut field = None;
        let mut names = Vec::new();
        for choice in choices {
            let Some((key, name)) = self.other_name(choice, value) else { continue };
            if *field.get_or_insert(key) != key {
                return None;
            }
            names.push(name);
        }
        field.map(|field| (field, names))
    }

    fn number(&mut self, key: &str, bound: &Number, number: &Number) -> Misfit {
        let order = order(number, bound);
        let (holds, words) = match key {
            "minimum" => (order != Some(Ordering::Less), "at least"),
            "maximum" => (order != Some(Ordering::Greater), "at most"),
            "exclusiveMinimum" => (order == Some(Ordering::Greater), "more than"),
            "exclusiveMaximum" => (order == Some(Ordering::Less), "less than"),
            "multipleOf" => {
                let pair = number.as_i128().zip(bound.as_i128());
                (
                    pair.and_then(|(number, of)| number.checked_rem(of)).is_none_or(|rest| rest == 0),
                    "a multiple of",
                )
            }
            _ => return Misfit::NONE,
        };
        if holds {
            Misfit::NONE
        } else {
            self.report(|| format!("should be {words} {bound} and is {number}"))
        }
    }

    /// Bounds on the length of a text or list, and on the number of fields.
    fn size(&mut self, key: &str, bound: &Number, value: &Value) -> Misfit {
        let (count, what) = match (key, value) {
            ("minLength" | "maxLength", Value::String(text)) if self.pay(text.len() / 8) => {
                (text.chars().count(), "characters")
            }
            ("minItems" | "maxItems", Value::Array(items)) => (items.len(), "items"),
            ("minProperties" | "maxProperties", Value::Object(fields)) => (fields.len(), "fields"),
            _ => return Misfit::NONE,
        };
        let (words, broken) = match key.starts_with("min") {
            true => ("at least", Ordering::Less),
            false => ("at most", Ordering::Greater),
        };
        if order(&Number::from(count), bound) != Some(broken) {
            return Misfit::NONE;
        }
        self.report(|| format!("should have {words} {bound} {what} and has {count}"))
    }

    fn not_blank(&mut self, text: &str) -> Misfit {
        if !self.pay(text.len() / 8) || !text.trim().is_empty() {
            return Misfit::NONE;
        }
        self.report(|| "should not be blank".to_owned())
    }

    fn array(&mut self, schema: &'a Map<String, Value>, items: &'a [Value]) -> Misfit {
        let first = schema.get("prefixItems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let rest = schema.get("items");
        let mut misfit = Misfit::NONE;
        for (index, item) in items.iter().enumerate() {
            let Some(schema) = first.get(index).or(rest) else { break };
            misfit.add(self.part(Key::Item(index), schema, item));
            if misfit.count >= MOST {
                break;
            }
        }
        misfit
    }

    fn object(&mut self, schema: &'a Map<String, Value>, fields: &'a Map<String, Value>) -> Misfit {
        let known = schema.get("properties").and_then(Value::as_object);
        let required = schema.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        // Without patterns nothing is known about the other fields.
        let others = schema.get("additionalProperties").filter(|_| !schema.contains_key("patternProperties"));
        let mut misfit = Misfit::NONE;
        if !self.pay(required.len().saturating_add(fields.len())) {
            return misfit;
        }
        for key in required.iter().filter_map(Value::as_str).filter(|key| !fields.contains_key(*key)) {
            misfit.add(self.missing(key, known.and_then(|known| known.get(key))));
        }
        for (key, field) in fields {
            if misfit.count >= MOST {
                break;
            }
            let own = known.and_then(|known| known.get(key));
            let absent = own.is_some()
                && field.is_null()
                && self.pay(required.len())
                && !required.iter().any(|name| name == key);
            match own.or(others) {
                Some(_) if absent => {}
                Some(Value::Bool(false)) if own.is_none() => misfit.add(self.unknown(key, known)),
                Some(schema) => misfit.add(self.part(Key::Field(key), schema, field)),
                None => {}
            }
        }
        misfit
    }

    fn missing(&mut self, key: &'a str, schema: Option<&'a Value>) -> Misfit {
        let told = |this: &mut Self| {
            this.report(|| {
                let form = schema.and_then(Value::as_object).map(described).unwrap_or_default();
                let form = if form.is_empty() { form } else { format!(" and should be {form}") };
                format!("is missing: `{}` is required{form}", named(key))
            })
        };
        self.within(Key::Field(key), told).one_up()
    }

    fn unknown(&mut self, key: &'a str, known: Option<&'a Map<String, Value>>) -> Misfit {
        let told = |this: &mut Self| {
            this.report(|| {
                let names: Vec<_> =
                    known.into_iter().flatten().map(|(name, _)| format!("`{}`", named(name))).collect();
                let names =
                    if names.is_empty() { names.concat() } else { format!(", only {}", listed(names)) };
                format!("is not allowed here{names}")
            })
        };
        self.within(Key::Field(key), told).one_up()
    }

    fn part(&mut self, key: Key<'a>, schema: &'a Value, value: &'a Value) -> Misfit {
        self.within(key, |this| this.check(schema, value)).one_up()
    }

    fn within(&mut self, key: Key<'a>, work: impl FnOnce(&mut Self) -> Misfit) -> Misfit {
        if self.silent {
            return work(self);
        }
        self.path.push(key);
        let done = work(self);
        self.path.pop();
        done
    }

    fn report(&mut self, problem: impl FnOnce() -> String) -> Misfit {
        if !self.silent && self.found.len() < MOST {
            let problem = format!("{} {}", self.place(), problem());
            if !self.found.contains(&problem) {
                self.found.push(problem);
            }
        }
        Misfit::HERE
    }

    /// The path as a JSON pointer.
    fn place(&self) -> String {
        if self.path.is_empty() {
            return "the value".to_owned();
        }
        let steps = self.path.iter().map(|key| match key {
            Key::Field(name) => format!("/{}", named(&name.replace('~', "~0").replace('/', "~1"))),
            Key::Item(index) => format!("/{index}"),
        });
        words::end(steps.collect())
    }
}

/// Returns the part of a schema that a reference leads to.
fn pointed<'a>(root: &'a Value, pointer: &str) -> Option<&'a Value> {
    // As a rule it names fields, and none of them is escaped: then nothing is copied.
    let fields = pointer.strip_prefix('/').filter(|_| !pointer.contains('~'));
    let found =
        fields.and_then(|fields| fields.split('/').try_fold(root, |at, key| at.as_object()?.get(key)));
    found.or_else(|| root.pointer(pointer))
}

/// Compares two numbers, integers exactly.
fn order(one: &Number, other: &Number) -> Option<Ordering> {
    match (one.as_i128(), other.as_i128()) {
        (Some(one), Some(other)) => Some(one.cmp(&other)),
        _ => one.as_f64()?.partial_cmp(&other.as_f64()?),
    }
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

#[cfg(test)]
mod tests;
