//! Joins two translated schemas that must both hold.
//!
//! The service refuses a reference with keys beside it, so a reference that meets others is expanded before they are
//! joined, at whatever depth they meet. It must not leave a reference beside other keys.

use std::mem;

use serde_json::Value;

use super::{Fields, NOTES, Walk, name_of};

/// Keys whose values may differ without changing the allowed values.
const WORDS: &[&str] = &["description", "title", NOTES];

impl Walk<'_> {
    /// Joins schemas that must both hold: the result has the keys of both, and the later of two different values.
    /// Within itself a definition can only be named; then its name is taken, and the keys beside it are lost.
    pub(super) fn join(&mut self, into: &mut Fields, mut more: Fields, depth: usize) {
        if into.is_empty() {
            *into = more;
            return;
        }
        if more.is_empty() || *into == more {
            return;
        }
        let opened = self.open.len();
        if self.write_out(into, depth) {
            self.lose_beside(&more);
        } else if self.write_out(&mut more, depth) {
            self.lose_beside(into);
            *into = more;
        } else {
            self.join_keys(into, more, depth);
        }
        self.open.truncate(opened);
    }

    /// Expands a schema that is only a name, where a name is not allowed: at the root, and as a definition.
    pub(super) fn written_out(&mut self, mut schema: Fields, depth: usize) -> Fields {
        let opened = self.open.len();
        // Nothing is open above such a schema, so no name has to stay.
        self.write_out(&mut schema, depth);
        self.open.truncate(opened);
        schema
    }

    /// Expands the named definition, and leaves it open. Returns true if the name had to stay, because the schema is
    /// within that definition.
    fn write_out(&mut self, schema: &mut Fields, depth: usize) -> bool {
        while let Some(name) = name_of(schema) {
            match self.open.iter().position(|open| *open == name) {
                Some(at) if at < self.above => return true,
                // A schema that refers directly to itself has no content.
                Some(_) => schema.clear(),
                None => {
                    self.open.push(name.clone());
                    let target = self.target(&name);
                    *schema =
                        target.map(|target| self.joined(target, depth.saturating_add(1))).unwrap_or_default();
                }
            }
        }
        false
    }

    fn lose_beside(&mut self, others: &Fields) {
        if !others.keys().all(|key| WORDS.contains(&key.as_str())) {
            self.lose("allOf");
        }
    }

    fn join_keys(&mut self, into: &mut Fields, more: Fields, depth: usize) {
        for (key, new) in more {
            let Some(old) = into.get_mut(&key) else {
                into.insert(key, new);
                continue;
            };
            match (key.as_str(), old, new) {
                ("properties", Value::Object(old), Value::Object(new)) => {
                    for (name, new) in new {
                        match old.get_mut(&name) {
                            Some(old) => self.join_within(&name, old, new, depth),
                            None => {
                                old.insert(name, new);
                            }
                        }
                    }
                }
                ("items" | "additionalProperties", old @ Value::Object(_), new @ Value::Object(_)) => {
                    self.join_within(&key, old, new, depth);
                }
                ("required" | NOTES, Value::Array(old), Value::Array(new)) => {
                    let new: Vec<_> = new.into_iter().filter(|item| !old.contains(item)).collect();
                    old.extend(new);
                }
                (key, old, new) => {
                    if *old != new && !WORDS.contains(&key) {
                        self.lose("allOf");
                    }
                    *old = new;
                }
            }
        }
    }

    /// Joins two schemas of the same place within them.
    fn join_within(&mut self, key: &str, old: &mut Value, new: Value, depth: usize) {
        let (Value::Object(old), Value::Object(new)) = (old, new) else { return };
        let above = mem::replace(&mut self.above, self.open.len());
        self.path.push(key.to_owned());
        self.join(old, new, depth.saturating_add(1));
        self.path.pop();
        self.above = above;
    }
}
