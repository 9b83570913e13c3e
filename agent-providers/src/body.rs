//! Request bodies, assembled by hand from bytes.
//!
//! A wire serializes each message once, keeps the bytes in the message ([`entourage_core::message::Message::encoded`])
//! and joins them here. So the messages of a request are a byte prefix of the next one's, as prompt caches need, and a
//! long conversation costs a copy of its bytes per call. Nothing here may know a wire's keys.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex, PoisonError},
};

use entourage_core::{message::Message, tool::ToolSpec};
use serde::Serialize;
use serde_json::{Map, Value};

/// Appends `value` as JSON. Writing strings, numbers and trees of them into memory cannot fail.
pub(crate) fn put(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    if serde_json::to_writer(&mut *out, value).is_err() {
        out.extend_from_slice(b"null");
    }
}

/// Returns `number`, unless JSON cannot represent it.
pub(crate) fn finite(number: Option<f64>) -> Option<f64> {
    number.filter(|number| number.is_finite())
}

/// The JSON of each item, joined by commas, as [`Body::array`] takes it.
pub(crate) fn items(items: impl IntoIterator<Item = impl Serialize>) -> Vec<u8> {
    let mut out = Vec::new();
    for item in items {
        if !out.is_empty() {
            out.push(b',');
        }
        put(&mut out, &item);
    }
    out
}

/// Our tools, followed by those in the caller's `extra`, which offers the service's own tools in this way. The items
/// are joined by commas. A null in `extra` removes ours.
pub(crate) fn all_tools<'a>(ours: &'a [u8], extra: Option<&Value>) -> Cow<'a, [u8]> {
    match extra.and_then(|extra| extra.get("tools")) {
        Some(Value::Null) => Cow::Borrowed(b""),
        Some(Value::Array(more)) if !more.is_empty() => {
            let more = items(more);
            let gap: &[u8] = if ours.is_empty() { b"" } else { b"," };
            Cow::Owned([ours, gap, &more].concat())
        }
        _ => Cow::Borrowed(ours),
    }
}

/// The bytes of each message, and their total length with a comma after each: the capacity to reserve before they are
/// copied.
pub(crate) fn gather<'a>(
    messages: impl Iterator<Item = &'a Arc<Message>>,
    bytes_of: impl Fn(&'a Message) -> Cow<'a, [u8]>,
) -> (Vec<Cow<'a, [u8]>>, usize) {
    let (least, most) = messages.size_hint();
    let mut all = Vec::with_capacity(most.unwrap_or(least));
    let mut length = 0_usize;
    messages.for_each(|message| {
        let bytes = bytes_of(message);
        length = length.saturating_add(bytes.len()).saturating_add(1);
        all.push(bytes);
    });
    (all, length)
}

/// A JSON object that is written into bytes, field by field.
///
/// The caller's `extra` takes precedence over the wire's own fields: its keys replace ours, and a null removes ours.
/// The keys in `fixed` are exempt: without them there is no call, or no stream. For a nested object of settings, make
/// a separate body with that part of `extra`, and put its key among the fixed ones here.
#[derive(Debug)]
pub(crate) struct Body<'a> {
    out: Vec<u8>,
    extra: Option<&'a Map<String, Value>>,
    fixed: &'static [&'static str],
}

impl<'a> Body<'a> {
    /// An object without fields, with room for `capacity` bytes.
    pub(crate) fn new(capacity: usize, extra: Option<&'a Value>, fixed: &'static [&'static str]) -> Self {
        let mut out = Vec::with_capacity(capacity);
        out.push(b'{');
        Self { out, extra: extra.and_then(Value::as_object), fixed }
    }

    /// Writes a field of ours, unless `extra` has its own.
    pub(crate) fn field(&mut self, key: &str, value: &(impl Serialize + ?Sized)) {
        if self.is_ours(key) {
            self.put_field(key, value);
        }
    }

    /// Writes the field if there is a value, unless `extra` has its own.
    pub(crate) fn optional(&mut self, key: &str, value: Option<impl Serialize>) {
        if let Some(value) = value {
            self.field(key, &value);
        }
    }

    /// Writes a field whose value is already JSON, unless `extra` has its own.
    pub(crate) fn raw(&mut self, key: &str, json: &[u8]) {
        if self.is_ours(key) {
            self.key(key);
            self.out.extend_from_slice(json);
            self.out.push(b',');
        }
    }

    /// Writes the fields of `extra`.
    pub(crate) fn extra(&mut self) {
        for (key, value) in self.extra.into_iter().flatten() {
            if !self.fixed.contains(&key.as_str()) && !value.is_null() {
                self.put_field(key, value);
            }
        }
    }

    /// Writes an array of items that are already JSON. Each element of `items` may be one item, several joined by
    /// commas, or empty, which is left out. `extra` cannot replace it.
    pub(crate) fn array<I: AsRef<[u8]>>(&mut self, key: &str, items: impl IntoIterator<Item = I>) {
        self.array_with(key, |out| {
            items.into_iter().for_each(|item| {
                if !item.as_ref().is_empty() {
                    out.extend_from_slice(item.as_ref());
                    out.push(b',');
                }
            });
            out.pop_if(|last| *last == b',');
        });
    }

    /// Writes an array whose items, joined by commas, are appended by `write`.
    pub(crate) fn array_with(&mut self, key: &str, write: impl FnOnce(&mut Vec<u8>)) {
        self.key(key);
        self.out.push(b'[');
        write(&mut self.out);
        self.out.extend_from_slice(b"],");
    }

    /// True if nothing was written.
    pub(crate) fn is_empty(&self) -> bool {
        self.out.len() <= 1
    }

    /// The object's bytes.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.out.pop_if(|last| *last == b',');
        self.out.push(b'}');
        self.out
    }

    fn is_ours(&self, key: &str) -> bool {
        self.fixed.contains(&key) || self.extra.is_none_or(|extra| !extra.contains_key(key))
    }

    fn put_field(&mut self, key: &str, value: &(impl Serialize + ?Sized)) {
        self.key(key);
        put(&mut self.out, value);
        self.out.push(b',');
    }

    fn key(&mut self, key: &str) {
        put(&mut self.out, key);
        self.out.push(b':');
    }
}

/// The encoded tools of the last call: the next call most likely offers the same.
#[derive(Debug, Default)]
pub(crate) struct KeptTools(Mutex<Option<Kept>>);

#[derive(Debug)]
struct Kept {
    tools: Arc<[ToolSpec]>,
    strict: bool,
    bytes: Arc<[u8]>,
}

impl KeptTools {
    /// The encoding of `tools`; empty without tools. Runs `encode` only if the last call had other tools or another
    /// `strict`.
    pub(crate) fn get(
        &self,
        tools: &Arc<[ToolSpec]>,
        strict: bool,
        encode: impl FnOnce(&[ToolSpec]) -> Vec<u8>,
    ) -> Arc<[u8]> {
        if tools.is_empty() {
            return Arc::default();
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*kept
            && known.strict == strict
            && Arc::ptr_eq(&known.tools, tools)
        {
            return Arc::clone(&known.bytes);
        }
        let bytes: Arc<[u8]> = encode(tools).into();
        *kept = Some(Kept { tools: Arc::clone(tools), strict, bytes: Arc::clone(&bytes) });
        bytes
    }
}

#[cfg(test)]
mod tests {
    use entourage_core::message::History;
    use serde_json::json;

    use super::*;

    #[test]
    fn extra_replaces_takes_out_and_adds_but_leaves_fixed_keys() {
        let extra = json!({"a": 1, "b": null, "new": true, "stream": false, "items": []});
        let mut body = Body::new(0, Some(&extra), &["stream", "items", "nested"]);
        assert!(body.is_empty());
        for key in ["a", "b", "c"] {
            body.field(key, "ours");
        }
        body.optional("d", None::<bool>);
        body.raw("e", br#"{"x":1}"#);
        body.raw("a", b"2");
        body.extra();
        body.field("stream", &true);
        body.array("items", [&b"1,2"[..], b"", b"3"]);
        assert_eq!(
            String::from_utf8(body.finish()).unwrap(),
            r#"{"c":"ours","e":{"x":1},"a":1,"new":true,"stream":true,"items":[1,2,3]}"#
        );
        let text = json!("no object");
        let mut body = Body::new(0, Some(&text), &[]);
        body.array("none", [b""]);
        assert_eq!(body.finish(), br#"{"none":[]}"#);
        assert_eq!(Body::new(0, None, &[]).finish(), b"{}");
        assert_eq!((finite(Some(f64::NAN)), finite(Some(0.5))), (None, Some(0.5)));
    }

    #[test]
    fn messages_are_gathered_in_order_with_the_room_for_them() {
        let history: History = ["a", "", "ccc"].map(Message::user).into_iter().collect();
        let (all, length) = gather(history.iter(), |message| message.text().into_bytes().into());
        assert_eq!(
            (all.iter().map(|bytes| &**bytes).collect::<Vec<_>>(), length),
            (vec![&b"a"[..], b"", b"ccc"], 7)
        );
        let (all, length) = gather(history.iter().skip_while(|_| true), |_| Cow::Borrowed(b"never"));
        assert_eq!((all.len(), length), (0, 0));
    }

    #[test]
    fn tools_are_encoded_again_only_when_they_change() {
        let kept = KeptTools::default();
        let tools: Arc<[ToolSpec]> = [ToolSpec::new("a", "", json!({}))].into();
        let first = kept.get(&tools, false, |tools| vec![b'x'; tools.len()]);
        assert_eq!((&*first, &*kept.get(&tools, false, |_| Vec::new())), (&b"x"[..], &b"x"[..]));
        assert_eq!(*kept.get(&tools, true, |_| b"strict".to_vec()), *b"strict");
        assert_eq!(*kept.get(&Arc::default(), true, |_| b"never".to_vec()), *b"");
        let others: Arc<[ToolSpec]> = tools.to_vec().into();
        assert_eq!(*kept.get(&others, true, |_| b"others".to_vec()), *b"others");
    }
}
