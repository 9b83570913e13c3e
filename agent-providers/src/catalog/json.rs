//! Reads a program's own file. Every field is checked, and an error names the path of the field: a typing error must
//! not become an unknown price.

use entourage_core::{
    Error, ErrorKind, PriceTier, Prices, Result,
    provider::{Profile, Size},
};
use serde_json::{Map, Value};

/// Service, model and facts, as written in the file.
pub(super) type Entry = (String, String, Profile);

/// A value and its path in the file.
struct At<'a> {
    path: String,
    value: &'a Value,
}

pub(super) fn read(text: &str) -> Result<Vec<Entry>> {
    let file: Value = serde_json::from_str(text).map_err(|error| {
        Error::new(ErrorKind::Config, format!("the catalogue's file is no JSON: {error}"))
    })?;
    let file = At { path: String::new(), value: &file };
    let mut entries = Vec::new();
    for (vendor, models) in file.members()? {
        for (model, facts) in models.members()? {
            entries.push((vendor.to_owned(), model.to_owned(), profile(&facts)?));
        }
    }
    Ok(entries)
}

fn profile(facts: &At<'_>) -> Result<Profile> {
    let mut profile = Profile::default();
    for (name, fact) in facts.members()? {
        if fact.value.is_null() {
            continue;
        }
        match name {
            "context_window" => profile.context_window = Some(fact.tokens()?),
            "max_output" => profile.max_output = Some(fact.tokens()?),
            "tools" => profile.tools = Some(fact.truth()?),
            "tool_search" => profile.tool_search = Some(fact.truth()?),
            "vision" => profile.vision = Some(fact.truth()?),
            "documents" => profile.documents = Some(fact.truth()?),
            "structured_output" => profile.structured_output = Some(fact.truth()?),
            "structured_beside_tools" => profile.structured_beside_tools = Some(fact.truth()?),
            "reasoning" => profile.reasoning = Some(fact.truth()?),
            "sampling" => profile.sampling = Some(fact.truth()?),
            "size" => profile.size = Some(fact.size()?),
            "prices" => profile.prices = Some(prices(&fact)?),
            _ => {
                return Err(fact.refused(
                    "is no fact about a model; use context_window, max_output, tools, tool_search, vision, \
                     documents, structured_output, structured_beside_tools, reasoning, sampling, size or prices",
                ));
            }
        }
    }
    Ok(profile)
}

fn prices(stated: &At<'_>) -> Result<Prices> {
    let row = Row::read(stated, &["tiers"])?;
    let mut prices = Prices::per_million_micros(row.input, row.output);
    (prices.cache_read, prices.cache_write) = (row.cache_read, row.cache_write);
    for tier in stated.optional("tiers")?.iter().flat_map(At::elements) {
        let tier = tier?;
        let row = Row::read(&tier, &["above"])?;
        let above = tier.required("above")?;
        let mut read = PriceTier::above(above.tokens()?, row.input, row.output);
        (read.cache_read, read.cache_write) = (row.cache_read, row.cache_write);
        if prices.tiers.last().is_some_and(|last| last.above >= read.above) {
            return Err(above.refused("must be more than in the tier before it"));
        }
        prices.tiers.push(read);
    }
    Ok(prices)
}

/// The four prices that a model and each of its tiers have.
struct Row {
    input: u64,
    output: u64,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
}

impl Row {
    fn read(stated: &At<'_>, others: &[&str]) -> Result<Self> {
        const NAMES: [&str; 4] = ["input", "output", "cache_read", "cache_write"];
        for (name, fact) in stated.members()? {
            if !NAMES.contains(&name) && !others.contains(&name) {
                let known = [&NAMES, others].concat().join(", ");
                return Err(fact.refused(&format!("is no part of prices; use {known}")));
            }
        }
        let optional = |name| stated.optional(name)?.map(|price| price.price()).transpose();
        Ok(Self {
            input: stated.required("input")?.price()?,
            output: stated.required("output")?.price()?,
            cache_read: optional("cache_read")?,
            cache_write: optional("cache_write")?,
        })
    }
}

impl<'a> At<'a> {
    fn refused(&self, why: &str) -> Error {
        let path = if self.path.is_empty() { "the whole file" } else { &self.path };
        Error::new(ErrorKind::Config, format!("in the catalogue's file, {path} {why}"))
    }

    fn inside(&self, name: &str, value: &'a Value) -> Self {
        let slash = if self.path.is_empty() { "" } else { " / " };
        At { path: format!("{}{slash}{name}", self.path), value }
    }

    fn object(&self) -> Result<&'a Map<String, Value>> {
        self.value
            .as_object()
            .ok_or_else(|| self.refused("must be an object: names with their values in braces"))
    }

    fn members(&self) -> Result<Vec<(&'a str, At<'a>)>> {
        let members = self.object()?.iter().map(|(name, value)| {
            if name.trim().is_empty() {
                return Err(self.refused("has an entry without a name; name it"));
            }
            Ok((name.as_str(), self.inside(name, value)))
        });
        members.collect()
    }

    fn optional(&self, name: &str) -> Result<Option<At<'a>>> {
        let value = self.object()?.get(name).filter(|value| !value.is_null());
        Ok(value.map(|value| self.inside(name, value)))
    }

    fn required(&self, name: &str) -> Result<At<'a>> {
        self.optional(name)?.ok_or_else(|| self.refused(&format!("needs {name:?}")))
    }

    /// The elements of a list; one error if it is not a list.
    fn elements(&self) -> Vec<Result<At<'a>>> {
        match self.value.as_array() {
            Some(list) => {
                let numbered = list.iter().enumerate();
                numbered.map(|(at, value)| Ok(self.inside(&(at + 1).to_string(), value))).collect()
            }
            None => vec![Err(self.refused("must be a list, in brackets"))],
        }
    }

    fn tokens(&self) -> Result<u64> {
        let tokens = self.value.as_u64().filter(|tokens| *tokens > 0);
        tokens.ok_or_else(|| self.refused("must be a number of tokens: whole and above 0"))
    }

    fn price(&self) -> Result<u64> {
        self.value.as_u64().ok_or_else(|| {
            self.refused("must be whole micro-dollars per million tokens: 2.50 USD per million are 2500000")
        })
    }

    fn truth(&self) -> Result<bool> {
        self.value.as_bool().ok_or_else(|| self.refused("must be true or false"))
    }

    fn size(&self) -> Result<Size> {
        let size = self.value.as_str().and_then(|text| text.parse().ok());
        size.ok_or_else(|| self.refused("must be \"XS\", \"S\", \"M\", \"L\" or \"XL\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        let error = read(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{text}");
        error.to_string()
    }

    #[test]
    fn what_is_no_json_is_refused_with_its_line() {
        assert!(refusal("{\n  \"a\": {\n    \"m\" 1\n").contains("line 3 column"));
        assert!(refusal("").contains("line 1 column 0"));
    }

    #[test]
    fn what_is_no_fact_is_refused_with_the_way_to_it() {
        for (facts, path) in [
            ("7", "a / m must be an object"),
            (r#"{"contxt_window": 1}"#, "a / m / contxt_window is no fact"),
            (r#"{"": 1}"#, "a / m has an entry without a name"),
            (r#"{"context_window": 0}"#, "a / m / context_window must be a number of tokens"),
            (r#"{"max_output": "8k"}"#, "a / m / max_output must be"),
            (r#"{"max_output": 1.5}"#, "a / m / max_output must be"),
            (r#"{"tools": "yes"}"#, "a / m / tools must be true or false"),
            (r#"{"size": "XXL"}"#, "a / m / size must be"),
            (r#"{"prices": 3}"#, "a / m / prices must be an object"),
            (r#"{"prices": {"output": 1}}"#, r#"a / m / prices needs "input""#),
            (r#"{"prices": {"input": 1}}"#, r#"a / m / prices needs "output""#),
            (
                r#"{"prices": {"input": 2.5, "output": 1}}"#,
                "a / m / prices / input must be whole micro-dollars",
            ),
            (r#"{"prices": {"input": -1, "output": 1}}"#, "a / m / prices / input must be"),
            (r#"{"prices": {"input": 1, "output": 1, "cached": 1}}"#, "a / m / prices / cached is no part"),
            (r#"{"prices": {"input": 1, "output": 1, "cache_read": "1"}}"#, "prices / cache_read must be"),
            (r#"{"prices": {"input": 1, "output": 1, "tiers": {}}}"#, "prices / tiers must be a list"),
            (
                r#"{"prices": {"input": 1, "output": 1, "tiers": [5]}}"#,
                "prices / tiers / 1 must be an object",
            ),
            (
                r#"{"prices": {"input": 1, "output": 1, "tiers": [{"input": 1, "output": 1}]}}"#,
                r#"prices / tiers / 1 needs "above""#,
            ),
            (
                r#"{"prices": {"input": 1, "output": 1, "tiers": [
                    {"above": 9, "input": 1, "output": 1}, {"above": 9, "input": 2, "output": 2}]}}"#,
                "prices / tiers / 2 / above must be more",
            ),
        ] {
            let said = refusal(&format!(r#"{{"a": {{"m": {facts}}}}}"#));
            assert!(said.contains(path), "{facts}: {said}");
        }
        assert!(refusal("[]").contains("the whole file must be an object"));
        assert!(refusal(r#"{"a": []}"#).contains("file, a must be an object"));
    }

    #[test]
    fn what_is_left_open_stays_unknown() {
        let read = read(r#"{"a": {"m": {"tools": null, "prices": null}, "n": {}}}"#).unwrap();
        let names: Vec<_> = read.iter().map(|(vendor, model, _)| (vendor.as_str(), model.as_str())).collect();
        assert_eq!(names, [("a", "m"), ("a", "n")]);
        assert!(read.iter().all(|(_, _, profile)| *profile == Profile::default()));
    }
}
