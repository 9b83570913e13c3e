//! Arguments of calls, from a seed: instances of a schema, and hostile changes of arguments.
//!
//! The same seed and the same schema give the same arguments. No text aims at anything outside of the suite's tree.

use std::path::Path;

use serde_json::{Map, Value, json};

/// Deepest nesting of an instance; deeper values are left out where a schema allows that.
const DEPTH: usize = 6;
/// Length of the longest text, in bytes, and of the longest list.
const LONG_TEXT: usize = 70_000;
const LONG_LIST: usize = 300;
/// Nesting of the deepest value, beyond what a record of a session takes.
const NESTING: usize = 200;

/// A source of numbers that look random: the same from the same seed.
#[derive(Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, or 0.
    fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % end).unwrap_or_default()
    }

    /// True once in `times`.
    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(self.below(all.len()))
    }
}

/// Makes arguments for one tool.
#[derive(Debug)]
pub(super) struct Fuzz<'a> {
    dice: Dice,
    schema: &'a Value,
    bases: &'a [Value],
    texts: Vec<String>,
}

impl<'a> Fuzz<'a> {
    /// Arguments that follow from `schema` and from the `bases`, which are calls that the tool takes.
    pub(super) fn new(seed: u64, schema: &'a Value, bases: &'a [Value], root: &Path) -> Self {
        Self { dice: Dice::new(seed), schema, bases, texts: texts(root) }
    }

    /// The next arguments, always an object.
    pub(super) fn next(&mut self) -> Value {
        let mut arguments = match self.dice.one_of(self.bases) {
            Some(base) if !self.dice.once_in(4) => base.clone(),
            _ => self.instance(self.schema, 0),
        };
        if !arguments.is_object() {
            arguments = json!({});
        }
        for _ in 0..=self.dice.below(3) {
            self.change(&mut arguments);
        }
        arguments
    }

    /// A value that follows the schema, as far as types, choices and required properties go.
    fn instance(&mut self, schema: &Value, depth: usize) -> Value {
        let target = schema.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix('#'));
        if let Some(target) = target.and_then(|place| self.schema.pointer(place)) {
            return if depth < DEPTH { self.instance(target, depth + 1) } else { Value::Null };
        }
        for key in ["enum", "anyOf", "oneOf", "allOf"] {
            if let Some(choice) =
                schema.get(key).and_then(Value::as_array).and_then(|all| self.dice.one_of(all))
            {
                return if key == "enum" { choice.clone() } else { self.instance(choice, depth + 1) };
            }
        }
        if let Some(only) = schema.get("const") {
            return only.clone();
        }
        let kind = match schema.get("type") {
            Some(Value::Array(kinds)) => self.dice.one_of(kinds).and_then(Value::as_str),
            kind => kind.and_then(Value::as_str),
        };
        match kind {
            Some("object") => self.object(schema, depth),
            Some("array") => {
                let items = schema.get("items").unwrap_or(&Value::Null);
                let count = if depth < DEPTH { self.dice.below(3) + 1 } else { 0 };
                (0..count).map(|_| self.instance(items, depth + 1)).collect()
            }
            Some("integer" | "number") => self.number(),
            Some("boolean") => Value::Bool(self.dice.once_in(2)),
            Some("null") => Value::Null,
            _ => Value::String(self.text()),
        }
    }

    fn object(&mut self, schema: &Value, depth: usize) -> Value {
        let required: Vec<_> =
            schema.get("required").and_then(Value::as_array).into_iter().flatten().collect();
        let mut object = Map::new();
        for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if required.iter().any(|it| *it == name) || (depth < DEPTH && self.dice.once_in(2)) {
                object.insert(name.clone(), self.instance(property, depth + 1));
            }
        }
        Value::Object(object)
    }

    /// Changes one place of the arguments, anywhere in them.
    fn change(&mut self, arguments: &mut Value) {
        let mut at = &mut *arguments;
        loop {
            let children = match at {
                Value::Object(fields) => fields.len(),
                Value::Array(items) => items.len(),
                _ => 0,
            };
            if children == 0 || self.dice.once_in(5) {
                break;
            }
            let chosen = self.dice.below(children);
            let child = match at {
                Value::Object(fields) => fields.values_mut().nth(chosen),
                Value::Array(items) => items.get_mut(chosen),
                _ => None,
            };
            let Some(child) = child else { return };
            at = child;
        }
        self.replace(at);
        if !arguments.is_object() {
            *arguments = json!({});
        }
    }

    fn replace(&mut self, value: &mut Value) {
        if self.dice.once_in(12) {
            *value = self.other_type();
            return;
        }
        match value {
            Value::String(text) => *text = self.changed_text(text),
            Value::Number(_) => *value = self.number(),
            Value::Bool(yes) => *yes = !*yes,
            Value::Null => *value = self.other_type(),
            Value::Array(items) => match self.dice.below(4) {
                0 => items.clear(),
                1 => drop(items.pop()),
                _ => {
                    if let Some(item) = self.dice.one_of(items).cloned() {
                        let count = if self.dice.once_in(4) { LONG_LIST } else { 1 };
                        items.extend(std::iter::repeat_n(item, count));
                    }
                }
            },
            Value::Object(fields) => self.changed_fields(fields),
        }
    }

    fn changed_fields(&mut self, fields: &mut Map<String, Value>) {
        let names: Vec<_> = fields.keys().cloned().collect();
        match self.dice.below(4) {
            0 => {
                let gone = self.dice.one_of(&names);
                gone.and_then(|name| fields.remove(name));
            }
            1 => {
                let name = self.text();
                fields.insert(name.chars().take(40).collect(), self.other_type());
            }
            _ => {
                let more = self.instance(self.schema, 0);
                fields.extend(more.as_object().cloned().unwrap_or_default());
            }
        }
    }

    fn other_type(&mut self) -> Value {
        match self.dice.below(7) {
            0 => Value::Null,
            1 => json!(true),
            2 => self.number(),
            3 => json!([]),
            4 => json!({}),
            5 => (0..NESTING).fold(json!(1), |inner, _| json!([inner])),
            _ => Value::String(self.text()),
        }
    }

    fn number(&mut self) -> Value {
        let numbers = [
            json!(0),
            json!(1),
            json!(2),
            json!(-1),
            json!(100),
            json!(0.5),
            json!(-0.0),
            json!(1e-300),
            json!(1e300),
            json!(-1e300),
            json!(i64::MAX),
            json!(i64::MIN),
            json!(u64::MAX),
            json!(u32::MAX),
            json!(4_294_967_296_u64),
            json!(9_007_199_254_740_993_u64),
        ];
        self.dice.one_of(&numbers).cloned().unwrap_or_default()
    }

    fn text(&mut self) -> String {
        let chosen = self.dice.below(self.texts.len());
        self.texts.get(chosen).cloned().unwrap_or_default()
    }

    fn changed_text(&mut self, text: &str) -> String {
        let middle = text.floor_char_boundary(self.dice.below(text.len() + 1));
        let (head, tail) = text.split_at(middle);
        match self.dice.below(10) {
            0 => head.to_owned(),
            1 => tail.to_owned(),
            2 => format!("{text}{text}"),
            3 => {
                let odd =
                    ["\0", "\n", "\r", "\t", "\u{1b}[2J", "\u{202e}", "\u{feff}", "'", "\"", "`", "\\", "🚀"];
                format!("{head}{}{tail}", self.dice.one_of(&odd).unwrap_or(&""))
            }
            4 => text.to_uppercase(),
            _ => self.text(),
        }
    }
}

/// Texts that tools have stumbled over. Paths in them name places of the tree alone.
fn texts(root: &Path) -> Vec<String> {
    let root = root.to_string_lossy();
    let plain = [
        "",
        " ",
        "\0",
        "a\0b",
        "a.txt\0",
        "\n",
        "\r\n",
        "\u{1b}[2J",
        "\u{202e}txt.a",
        "\u{feff}",
        "e\u{301}",
        "🚀🚀",
        "NaN",
        "null",
        "{}",
        "[]",
        "--help",
        "(",
        "[",
        "(a+)+$",
        "(a{1000}){1000}",
        "^$",
        "{a,b",
        "**/*",
        "*.txt",
        "a.txt",
        "./a.txt",
        "a.txt/",
        "a.txt/x",
        "A.TXT",
        "big.txt",
        "long.txt",
        "bytes.bin",
        "link",
        "src",
        "src/",
        "src/deep/note.md",
        "src/new/new.rs",
        "src\\lib.rs",
        "src/../a.txt",
        ".",
        "new.txt",
        "out.txt",
        "out/secret.txt",
        "out/new.txt",
        "../outside/secret.txt",
        "../outside/new.txt",
        "../inside-too/a.txt",
        "src/../../outside/new.txt",
        "..\\outside\\new.txt",
        "%2e%2e/outside/new.txt",
    ];
    let absolute =
        ["inside/a.txt", "inside/new.txt", "outside/secret.txt", "outside/new.txt", "inside-too/a.txt"];
    let absolute =
        absolute.iter().flat_map(|path| [format!("{root}/{path}"), format!("file://{root}/{path}")]);
    let long = ["a", "é", "../", "{", "(", "a\n", "\u{301}"].map(|part| part.repeat(LONG_TEXT / part.len()));
    plain.iter().map(|text| (*text).to_owned()).chain(absolute).chain(long).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_arguments() {
        let schema = json!({
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "edits": {"type": "array", "items": {"$ref": "#/$defs/Edit"}},
                "mode": {"enum": ["a", "b"]},
                "count": {"type": ["integer", "null"]},
            },
            "required": ["path", "edits"],
            "$defs": {"Edit": {"type": "object", "properties": {"old": {"type": "string"}}, "required": ["old"]}},
        });
        let made = |seed| {
            let mut fuzz = Fuzz::new(seed, &schema, &[], Path::new("/tree"));
            (0..200).map(|_| fuzz.next()).collect::<Vec<_>>()
        };
        assert_eq!(made(7), made(7));
        assert_ne!(made(7), made(8));
        let all = made(7);
        assert!(all.iter().all(Value::is_object));
        let fitting = all.iter().filter(|one| entourage_runtime::schema::follows(&schema, one)).count();
        assert!((40..200).contains(&fitting), "{fitting} of 200 follow the schema");
    }
}
