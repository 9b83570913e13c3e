//! The request and the reply, without I/O.

use entourage_core::{Error, ErrorKind, Result, Usage, provider::Embeddings};
use serde::Serialize;
use serde_json::value::RawValue;

use super::super::{usage::usage, wire::WireUsage};
use crate::{
    http::{Failing, Failure, base64},
    json::{self, Count, List, Maybe, Raw, Text, object},
};

/// The form in which vectors are asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Form {
    pub(super) dimensions: Option<usize>,
    pub(super) base64: bool,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    input: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding_format: Option<&'static str>,
}

/// The body of a request. Some servers know neither of the optional fields, so they are sent only if set.
pub(super) fn encode(model: &str, texts: &[String], form: Form) -> Vec<u8> {
    let encoding_format = form.base64.then_some("base64");
    let body = Body { model, input: texts, dimensions: form.dimensions, encoding_format };
    // Texts and numbers are always JSON.
    serde_json::to_vec(&body).unwrap_or_default()
}

/// The texts in order, cut so that each piece has at most `most` texts and `bytes` bytes, or one text.
pub(super) fn batches(texts: &[String], most: usize, bytes: usize) -> impl Iterator<Item = &[String]> {
    let mut rest = texts;
    std::iter::from_fn(move || {
        let mut size = 0_usize;
        let fits = |text: &&String| {
            size = size.saturating_add(text.len());
            size <= bytes
        };
        let count = rest.iter().take(most).take_while(fits).count().max(1);
        let (batch, later) = rest.split_at_checked(count)?;
        rest = later;
        Some(batch)
    })
}

object! {
    /// The whole body of a reply.
    struct Reply<'de> {
        object: Text<'de>,
        data: List<Item<'de>>,
        usage: Maybe<Box<WireUsage>>,
        error: Option<&'de RawValue>,
    }
}

object! {
    struct Item<'de> {
        index: Count,
        embedding: Raw<'de>,
    }
}

/// Reads the reply to `count` texts.
pub(super) fn decode(body: &[u8], count: usize, form: Form, failing: &Failing) -> Result<Embeddings> {
    let (mut mended, mut reply) = (String::new(), Reply::default());
    let read =
        json::read_into(body, &mut mended, &mut reply).map_err(|error| failing.unreadable(body, &error))?;
    if let Some(failure) = failure(&reply, read) {
        return Err(failing.refused(&failure, None));
    }
    let wrong = |kind, text: String| failing.error(kind, format!("{} {text}", failing.vendor));
    if reply.data.0.is_empty() {
        let text =
            "answered without vectors in it; check that the base URL and the model are those of embeddings";
        return Err(wrong(ErrorKind::Protocol, text.to_owned()));
    }
    let vectors = in_order(&reply.data.0, count).map_err(|text| wrong(ErrorKind::Protocol, text))?;
    let length = vectors.first().map_or(0, Vec::len);
    if let Some(asked) = form.dimensions.filter(|asked| *asked != length) {
        let text = format!(
            "was asked for vectors of {asked} numbers and sent {length}; the model cannot do that: leave the dimensions out"
        );
        return Err(wrong(ErrorKind::Unsupported, text));
    }
    let one = Embeddings::new(vectors, reply.usage.0.as_deref().map(used).unwrap_or_default());
    check_lengths(&failing.vendor, [&one]).map_err(|error| failing.sign(error))?;
    Ok(one)
}

/// The failure that a reply with status 200 reports.
fn failure(reply: &Reply<'_>, body: &[u8]) -> Option<Failure> {
    if let Some(failure) = reply.error.and_then(Failure::reported) {
        return Some(failure);
    }
    let odd = reply.object.as_str() == "error" || reply.data.0.is_empty();
    odd.then(|| Failure::from_body(body)).filter(|failure| !failure.message.is_empty())
}

/// The vectors by their index. Items may come in any order; an absent index counts as 0, as services that leave out
/// zeros mean it.
fn in_order(items: &[Item<'_>], count: usize) -> std::result::Result<Vec<Vec<f32>>, String> {
    let mut vectors = vec![None; count];
    for item in items {
        let index = item.index.0.unwrap_or(0);
        let place = usize::try_from(index).ok().and_then(|index| vectors.get_mut(index));
        let Some(place) = place else {
            return Err(format!("sent a vector for text {index}, and has {count} texts; try again"));
        };
        if place.is_some() {
            return Err(format!("sent two vectors for text {index}; it cannot be told which is right"));
        }
        let vector = item.embedding.get().and_then(vector);
        *place = Some(vector.ok_or_else(|| {
            format!("sent a vector for text {index} that is not a list of finite numbers; check the model")
        })?);
    }
    let sent = items.len();
    let all: Option<_> = vectors.into_iter().collect();
    all.ok_or_else(|| format!("sent {sent} vectors for {count} texts; try again, or send fewer at once"))
}

/// Reads a list of numbers, or numbers of four bytes in base64, the lowest byte first. `None` unless all are finite.
fn vector(json: &str) -> Option<Vec<f32>> {
    let numbers = if json.starts_with('"') {
        let bytes = base64::decode(&serde_json::from_str::<String>(json).ok()?)?;
        let (numbers, rest) = bytes.as_chunks::<4>();
        rest.is_empty().then(|| numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())?
    } else {
        serde_json::from_str::<Vec<f32>>(json).ok()?
    };
    let sound = !numbers.is_empty() && numbers.iter().all(|number| number.is_finite());
    sound.then_some(numbers)
}

/// Refuses vectors of different lengths.
pub(super) fn check_lengths<'a>(vendor: &str, all: impl IntoIterator<Item = &'a Embeddings>) -> Result<()> {
    let mut lengths = all.into_iter().flat_map(|one| &one.vectors).map(Vec::len);
    let first = lengths.next().unwrap_or_default();
    let other = lengths.find(|length| *length != first);
    other.map_or(Ok(()), |other| {
        let text =
            format!("{vendor} sent vectors of {first} and of {other} numbers; they cannot be compared: check the model");
        Err(Error::new(ErrorKind::Protocol, text))
    })
}

/// The tokens of a reply. The prompt is all there is; some services give only the total.
fn used(wire: &WireUsage) -> Usage {
    let mut usage = usage(wire);
    usage.input = usage.input.or(wire.total_tokens.0);
    usage.output = usage.output.or(usage.input.map(|_| 0));
    usage.reported().plausible()
}

/// The sum over all batches; unknown if one of them is unknown, since a part would pass for the whole.
pub(super) fn sum(all: impl Iterator<Item = Usage> + Clone) -> Usage {
    let known = |figure: fn(&Usage) -> bool| all.clone().all(|one| figure(&one));
    let (tokens, cost) = (known(|one| one.input.is_some()), known(|one| one.cost.is_some()));
    let mut sum = if tokens { all.clone().sum() } else { Usage::default() };
    sum.cost = if cost { all.sum::<Usage>().cost } else { None };
    sum
}
