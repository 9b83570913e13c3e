//! The ranking of tools by the words of a query. Pure: the same query and tools give the same order.

use std::{cmp::Reverse, collections::BTreeSet};

use entourage_core::tool::ToolSpec;
use serde_json::Value;

/// Characters of a query, a name and a description that are read; words of a query; parameters of a tool.
const QUERY: usize = 1_000;
const NAME: usize = 128;
const DESCRIPTION: usize = 4_000;
const WORDS: usize = 32;
const PARAMETERS: usize = 100;

/// Characters that a word must have, so that a longer word which begins with it counts as like it.
const STEM: usize = 3;

/// Points of a word of the query, by the place where it is found: as it is, and at the beginning of a longer one.
const IN_NAME: (u64, u64) = (12, 6);
const IN_DESCRIPTION: (u64, u64) = (4, 2);
const IN_PARAMETERS: (u64, u64) = (2, 1);

/// Points of a tool whose name is the query.
const WHOLE_NAME: u64 = 1 << 32;

/// The words of a query, each once.
#[derive(Debug)]
pub(super) struct Query(Vec<String>);

impl Query {
    /// Reads the words at the beginning of a text.
    pub(super) fn new(text: &str) -> Self {
        let mut words = Vec::new();
        for word in words_of(text, QUERY) {
            if words.len() < WORDS && !words.contains(&word) {
                words.push(word);
            }
        }
        Self(words)
    }

    /// True if there is no word to look for.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The words of a tool, by their place.
struct Indexed {
    name: BTreeSet<String>,
    description: BTreeSet<String>,
    parameters: BTreeSet<String>,
}

impl Indexed {
    fn of(spec: &ToolSpec) -> Self {
        let properties = spec.schema().get("properties").and_then(Value::as_object);
        let names = properties.into_iter().flat_map(|all| all.keys()).take(PARAMETERS);
        Self {
            name: words_of(spec.name(), NAME).collect(),
            description: words_of(spec.description(), DESCRIPTION).collect(),
            parameters: names.flat_map(|name| words_of(name, NAME)).collect(),
        }
    }

    /// Returns the points of one word, before its rarity counts.
    fn points(&self, word: &str) -> u64 {
        let places =
            [(&self.name, IN_NAME), (&self.description, IN_DESCRIPTION), (&self.parameters, IN_PARAMETERS)];
        places.into_iter().map(|(words, points)| found(words, word, points)).sum()
    }
}

fn found(words: &BTreeSet<String>, word: &str, (whole, part): (u64, u64)) -> u64 {
    if words.contains(word) {
        return whole;
    }
    let is_stem = |stem: &str, of: &str| stem.chars().nth(STEM - 1).is_some() && of.starts_with(stem);
    let is_like = words.iter().any(|other| is_stem(word, other) || is_stem(other, word));
    if is_like { part } else { 0 }
}

/// Returns the `limit` tools that fit a query best, the best first, and among equals by name. A word that few tools
/// have counts more than one that many have.
pub(super) fn ranked<'a>(query: &Query, specs: &[&'a ToolSpec], limit: usize) -> Vec<&'a ToolSpec> {
    let indexed: Vec<_> = specs.iter().map(|spec| (*spec, Indexed::of(spec))).collect();
    let mut points = vec![0_u64; indexed.len()];
    for word in &query.0 {
        let each: Vec<u64> = indexed.iter().map(|(_, tool)| tool.points(word)).collect();
        let with = each.iter().filter(|points| **points > 0).count();
        let rarity = specs.len().checked_div(with).map_or(0, |share| u64::from(share.ilog2()) + 1);
        for (sum, more) in points.iter_mut().zip(each) {
            *sum = sum.saturating_add(more.saturating_mul(rarity));
        }
    }
    let asked: BTreeSet<_> = query.0.iter().collect();
    let mut ranked: Vec<_> = indexed
        .iter()
        .zip(points)
        .filter(|(_, points)| *points > 0)
        .map(|((spec, tool), points)| {
            let named = if tool.name.iter().eq(asked.iter().copied()) { WHOLE_NAME } else { 0 };
            (Reverse(points.saturating_add(named)), spec.name(), *spec)
        })
        .collect();
    ranked.sort_by(|one, other| (one.0, one.1).cmp(&(other.0, other.1)));
    ranked.into_iter().take(limit).map(|(_, _, spec)| spec).collect()
}

/// Yields the words in the first `most` characters of a text, in lower case: runs of letters and digits, which end
/// where a capital follows a small letter. A character of a script without spaces is a word of its own.
fn words_of(text: &str, most: usize) -> impl Iterator<Item = String> {
    let (mut words, mut word, mut was_small) = (Vec::new(), String::new(), false);
    for c in text.chars().take(most) {
        let is_alone =
            matches!(c, '\u{2e80}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}' | '\u{f900}'..='\u{faff}');
        if !c.is_alphanumeric() || is_alone || was_small && c.is_uppercase() {
            words.push(std::mem::take(&mut word));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        if is_alone {
            words.push(std::mem::take(&mut word));
        }
        was_small = c.is_lowercase();
    }
    words.push(word);
    words.into_iter().filter(|word| !word.is_empty()).map(singular)
}

/// Returns the word without the `s` of an English plural.
fn singular(mut word: String) -> String {
    if word.chars().nth(STEM).is_some() && word.ends_with('s') && !word.ends_with("ss") {
        word.pop();
    }
    word
}
