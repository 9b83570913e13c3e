//! An incremental reader of one JSON object: each character is looked at once, and the value grows in place.

use serde_json::{Map, Number, Value};

/// Deepest nesting that is followed.
const MAX_DEPTH: usize = 64;
/// Longest key and number, in bytes. A key is compared again for each value below it.
const MAX_KEY: usize = 256;

/// Marks of a section of thoughts at the beginning of a text. A draft in it is not the answer.
const THOUGHTS: (&str, &str) = ("<think>", "</think>");

/// A reader of the first JSON object in a text that comes in pieces.
#[derive(Debug, Clone, Default)]
pub(super) struct Reader {
    whole_texts: bool,
    state: State,
    root: Option<Value>,
    /// The open containers: for an object, the key of its newest value.
    path: Vec<Option<String>>,
    /// Characters of the text, key, number or word that is being read.
    pending: String,
    /// An escape within a text: the characters after the backslash.
    escape: Option<String>,
    /// The first half of a character that takes two escapes.
    surrogate: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// Nothing but white space came, or the beginning of a mark of thoughts.
    #[default]
    Start,
    Thoughts,
    /// The object's opening brace is looked for.
    Seek,
    /// A value is expected; the container may end instead if it has just begun.
    Value {
        first: bool,
    },
    Key {
        first: bool,
    },
    Colon,
    /// A comma or the end of the container is expected.
    After,
    InKey,
    InText,
    InNumber,
    InWord,
    /// The object is complete, or the text is no JSON. Nothing grows any more.
    Over,
}

impl Reader {
    /// Creates a reader that leaves out texts that have not ended.
    pub(super) fn of_whole_texts() -> Self {
        Self { whole_texts: true, ..Self::default() }
    }

    /// Returns what is certain of the object.
    pub(super) fn value(&self) -> Option<&Value> {
        self.root.as_ref().filter(|_| self.path.is_empty() || !self.is_empty())
    }

    /// Begins anew.
    pub(super) fn reset(&mut self) {
        *self = Self { whole_texts: self.whole_texts, ..Self::default() };
    }

    /// Takes in the next piece of the text. Returns true if the value grew.
    pub(super) fn push(&mut self, text: &str) -> bool {
        let mut grew = false;
        for c in text.chars() {
            if self.state == State::Over {
                break;
            }
            grew |= self.take(c);
        }
        grew | self.flush()
    }

    fn take(&mut self, c: char) -> bool {
        match self.state {
            State::Start => return self.start(c),
            State::Thoughts => self.think(c),
            State::Seek if c == '{' => return self.open(Value::Object(Map::new())),
            State::InKey | State::InText => return self.text(c),
            State::InNumber if matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E') => self.hold(c),
            State::InNumber => {
                // A number ends with a character that belongs to what comes after it.
                let grew = self.number();
                return self.take(c) | grew;
            }
            State::InWord => return self.word(c),
            State::Seek | State::Over => {}
            _ if matches!(c, ' ' | '\t' | '\n' | '\r') => {}
            State::Value { first } => return self.begin(c, first),
            State::Key { .. } if c == '"' => self.state = State::InKey,
            State::Key { first: true } if c == '}' => return self.close(),
            State::Colon if c == ':' => self.state = State::Value { first: false },
            State::After => return self.after(c),
            State::Key { .. } | State::Colon => return self.fail(c),
        }
        false
    }

    fn start(&mut self, c: char) -> bool {
        if self.pending.is_empty() && c.is_whitespace() {
            return false;
        }
        self.pending.push(c);
        if self.pending == THOUGHTS.0 {
            self.pending.clear();
            self.state = State::Thoughts;
        } else if !THOUGHTS.0.starts_with(&self.pending) {
            self.state = State::Seek;
            let begun = std::mem::take(&mut self.pending);
            return begun.chars().fold(false, |grew, c| self.take(c) | grew);
        }
        false
    }

    fn think(&mut self, c: char) {
        self.pending.push(c);
        if self.pending.ends_with(THOUGHTS.1) {
            self.pending.clear();
            self.state = State::Seek;
        } else if self.pending.len() > MAX_KEY {
            let rest = self.pending.floor_char_boundary(self.pending.len().saturating_sub(THOUGHTS.1.len()));
            self.pending.drain(..rest);
        }
    }

    /// Begins a value.
    fn begin(&mut self, c: char, first: bool) -> bool {
        self.state = match c {
            '{' => return self.open(Value::Object(Map::new())),
            '[' => return self.open(Value::Array(Vec::new())),
            ']' if first => return self.close(),
            '"' => {
                self.state = State::InText;
                return !self.whole_texts && self.add(Value::String(String::new()));
            }
            '-' | '0'..='9' => State::InNumber,
            't' | 'f' | 'n' => State::InWord,
            _ => return self.fail(c),
        };
        self.pending.push(c);
        false
    }

    fn after(&mut self, c: char) -> bool {
        match (c, self.path.last()) {
            (',', Some(Some(_))) => self.state = State::Key { first: false },
            (',', Some(None)) => self.state = State::Value { first: false },
            ('}', Some(Some(_))) | (']', Some(None)) => return self.close(),
            _ => return self.fail(c),
        }
        false
    }

    /// Takes a character of a key or a text.
    fn text(&mut self, c: char) -> bool {
        if self.escape.is_some() {
            return self.escaped(c);
        }
        match c {
            '\\' => self.escape = Some(String::new()),
            _ if self.surrogate.is_some() || c < ' ' => return self.fail(c),
            '"' => return self.end_text(),
            c if self.state == State::InKey => self.hold(c),
            c => self.pending.push(c),
        }
        false
    }

    fn end_text(&mut self) -> bool {
        if self.state == State::InText {
            let grew = match self.whole_texts {
                true => {
                    let text = std::mem::take(&mut self.pending);
                    self.add(Value::String(text))
                }
                false => self.flush(),
            };
            self.state = State::After;
            return grew;
        }
        let key = std::mem::take(&mut self.pending);
        // Of two values of one key the later one counts, so neither is certain.
        let twice = matches!(self.top(), Some(Value::Object(fields)) if fields.contains_key(&key));
        if let Some(newest) = self.path.last_mut() {
            *newest = Some(key);
        }
        self.state = if twice { State::Over } else { State::Colon };
        false
    }

    /// Takes a character of an escape.
    fn escaped(&mut self, c: char) -> bool {
        let Some(escape) = &mut self.escape else { return false };
        if escape.is_empty() && c != 'u' {
            let meant = match c {
                '"' | '\\' | '/' => c,
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                _ => return self.fail(c),
            };
            self.escape = None;
            return self.meant(u32::from(meant));
        }
        escape.push(c);
        if escape.len() < 5 {
            return false;
        }
        let code = escape.get(1..).and_then(|digits| u32::from_str_radix(digits, 16).ok());
        self.escape = None;
        match code {
            Some(code) => self.meant(code),
            None => self.fail(c),
        }
    }

    /// Adds the character of an escape, which may be the half of one.
    fn meant(&mut self, code: u32) -> bool {
        let half = |code: u32| code & 0x3ff;
        let code = match (self.surrogate.take(), code) {
            (None, 0xd800..=0xdbff) => {
                self.surrogate = Some(code);
                return false;
            }
            (Some(high), 0xdc00..=0xdfff) => 0x1_0000 + (half(high) << 10 | half(code)),
            (None, code) => code,
            (Some(_), _) => return self.fail(' '),
        };
        match char::from_u32(code) {
            Some(c) if self.state == State::InKey => self.hold(c),
            Some(c) => self.pending.push(c),
            None => return self.fail(' '),
        }
        false
    }

    fn number(&mut self) -> bool {
        let digits = std::mem::take(&mut self.pending);
        self.state = State::After;
        match serde_json::from_str::<Number>(&digits) {
            Ok(number) => self.add(Value::Number(number)),
            Err(_) => self.fail(' '),
        }
    }

    fn word(&mut self, c: char) -> bool {
        self.pending.push(c);
        let value = match self.pending.as_str() {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            "null" => Value::Null,
            begun if ["true", "false", "null"].iter().any(|word| word.starts_with(begun)) => return false,
            _ => return self.fail(c),
        };
        self.pending.clear();
        self.state = State::After;
        self.add(value)
    }

    /// Keeps a character of a key or a number, if there is room for it.
    fn hold(&mut self, c: char) {
        self.pending.push(c);
        if self.pending.len() > MAX_KEY {
            self.state = State::Over;
        }
    }

    /// Adds the characters of an open text to the value.
    fn flush(&mut self) -> bool {
        if self.state != State::InText || self.whole_texts || self.pending.is_empty() {
            return false;
        }
        let pending = std::mem::take(&mut self.pending);
        let Some(Value::String(text)) = self.newest() else { return false };
        text.push_str(&pending);
        true
    }

    fn open(&mut self, container: Value) -> bool {
        let is_object = container.is_object();
        let grew = self.add(container) && !self.path.is_empty();
        self.path.push(is_object.then(String::new));
        self.state = match is_object {
            _ if self.path.len() > MAX_DEPTH => State::Over,
            true => State::Key { first: true },
            false => State::Value { first: true },
        };
        grew
    }

    fn close(&mut self) -> bool {
        self.path.pop();
        self.state = if self.path.is_empty() { State::Over } else { State::After };
        // An empty object is shown once it is certain that it is one.
        self.path.is_empty() && self.is_empty()
    }

    /// Ends the growth; or goes on to look for the object, when this one was none.
    fn fail(&mut self, c: char) -> bool {
        if self.path.len() == 1 && self.is_empty() {
            self.reset();
            self.state = State::Seek;
            return self.take(c);
        }
        let grew = self.flush();
        self.state = State::Over;
        grew
    }

    fn is_empty(&self) -> bool {
        matches!(&self.root, Some(Value::Object(fields)) if fields.is_empty())
    }

    /// Adds a value to the innermost container.
    fn add(&mut self, value: Value) -> bool {
        let Some(place) = self.path.last().cloned() else {
            self.root = Some(value);
            return true;
        };
        match (self.top(), place) {
            (Some(Value::Object(fields)), Some(key)) => drop(fields.insert(key, value)),
            (Some(Value::Array(items)), None) => items.push(value),
            _ => return false,
        }
        true
    }

    /// The innermost open container.
    fn top(&mut self) -> Option<&mut Value> {
        let (_, outer) = self.path.split_last()?;
        outer.iter().try_fold(self.root.as_mut()?, |within, place| child(within, place.as_deref()))
    }

    /// The newest value of the innermost container.
    fn newest(&mut self) -> Option<&mut Value> {
        self.path.iter().try_fold(self.root.as_mut()?, |within, place| child(within, place.as_deref()))
    }
}

/// The newest value within a container: at a key, or at the end of a list.
fn child<'a>(within: &'a mut Value, key: Option<&str>) -> Option<&'a mut Value> {
    match (within, key) {
        (Value::Object(fields), Some(key)) => fields.get_mut(key),
        (Value::Array(items), None) => items.last_mut(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
