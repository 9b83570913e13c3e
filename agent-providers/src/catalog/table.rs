//! Reads the generated table: one model per line, cells between tabs, `-` for unknown. It does not judge figures; an
//! unreadable line is left out and reported, which the tests turn into a failure.

use std::{collections::BTreeMap, sync::Arc};

use entourage_core::{PriceTier, Prices, provider::Profile};

use super::Catalog;

/// The content of a table, and its problems.
pub(super) struct Table {
    pub(super) catalog: Catalog,
    #[cfg_attr(not(test), allow(dead_code, reason = "the table is checked by the tests of this crate"))]
    pub(super) problems: Vec<String>,
}

pub(super) fn read(text: &'static str) -> Table {
    let mut models: BTreeMap<String, BTreeMap<String, Profile>> = BTreeMap::new();
    let mut problems = Vec::new();
    for (number, text) in text.lines().enumerate().filter(|(_, text)| !text.starts_with('#')) {
        match line(text) {
            Ok((vendor, model, profile)) => {
                let of_vendor = models.entry(vendor.to_owned()).or_default();
                if of_vendor.insert(model.to_owned(), profile).is_some() {
                    problems.push(format!("line {}: {vendor} {model} is there twice", number + 1));
                }
            }
            Err(problem) => problems.push(format!("line {}: {problem}", number + 1)),
        }
    }
    let date = text.lines().find_map(|line| line.strip_prefix("# date: "));
    Table { catalog: Catalog { models: Arc::new(models), date }, problems }
}

fn line(text: &str) -> Result<(&str, &str, Profile), String> {
    let mut cells = text.split('\t');
    let mut next = |name: &str| cells.next().filter(|cell| !cell.is_empty()).ok_or(format!("no {name}"));
    let (vendor, model) = (next("vendor")?, next("model")?);
    let mut profile = Profile::default();
    profile.context_window = number(next("window")?)?;
    profile.max_output = number(next("max_output")?)?;
    abilities(next("abilities")?, &mut profile)?;
    let base = [next("input")?, next("output")?, next("cache_read")?, next("cache_write")?];
    profile.prices = prices(base, next("tiers")?)?;
    profile.size = super::size::size_in(model);
    match cells.next() {
        None => Ok((vendor, model, profile)),
        Some(more) => Err(format!("{more:?} is one cell too many")),
    }
}

fn number(cell: &str) -> Result<Option<u64>, String> {
    match cell {
        "-" => Ok(None),
        _ => cell.parse().map(Some).map_err(|_| format!("{cell:?} is no number")),
    }
}

fn abilities(cell: &str, profile: &mut Profile) -> Result<(), String> {
    for word in cell.split(',').filter(|word| *word != "-") {
        let (name, answer) = word.strip_prefix('!').map_or((word, true), |name| (name, false));
        let fact = match name {
            "tools" => &mut profile.tools,
            "vision" => &mut profile.vision,
            "documents" => &mut profile.documents,
            "schema" => &mut profile.structured_output,
            "reasoning" => &mut profile.reasoning,
            "sampling" => &mut profile.sampling,
            _ => return Err(format!("{name:?} is no ability")),
        };
        *fact = Some(answer);
    }
    Ok(())
}

fn prices(base: [&str; 4], tiers: &str) -> Result<Option<Prices>, String> {
    let [input, output, cache_read, cache_write] = base;
    let (Some(input), Some(output)) = (number(input)?, number(output)?) else {
        let empty = base == ["-"; 4] && tiers == "-";
        return if empty { Ok(None) } else { Err("a price without those of input and output".to_owned()) };
    };
    let mut prices = Prices::per_million_micros(input, output);
    prices.cache_read = number(cache_read)?;
    prices.cache_write = number(cache_write)?;
    prices.tiers = tiers.split(' ').filter(|cell| *cell != "-").map(tier).collect::<Result<_, _>>()?;
    Ok(Some(prices))
}

fn tier(cell: &str) -> Result<PriceTier, String> {
    let figures = cell.split(':').map(number).collect::<Result<Vec<_>, _>>()?;
    let [Some(above), Some(input), Some(output), cache_read, cache_write] = figures[..] else {
        return Err(format!("{cell:?} is no tier"));
    };
    let mut tier = PriceTier::above(above, input, output);
    tier.cache_read = cache_read;
    tier.cache_write = cache_write;
    Ok(tier)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_cannot_be_read_is_left_out_and_reported() {
        let table = read(concat!(
            "# date: 2026-01-02\n",
            "a\tgood-7b\t-\t-\t-\t-\t-\t-\t-\t-\n",
            "a\tgood-7b\t10\t5\ttools,!vision\t3\t4\t1\t-\t7:6:8:2:- 9:7:9:-:-\n",
            "a\tshort\t-\n",
            "a\tlong\t-\t-\t-\t-\t-\t-\t-\t-\t-\n",
            "a\tword\tmany\t-\t-\t-\t-\t-\t-\t-\n",
            "a\tskill\t-\t-\tsinging\t-\t-\t-\t-\t-\n",
            "a\thalf\t-\t-\t-\t3\t-\t-\t-\t-\n",
            "a\tloose\t-\t-\t-\t-\t-\t-\t-\t1:2:3:-:-\n",
            "a\ttier\t-\t-\t-\t1\t2\t-\t-\t1:2\n",
            "\n",
        ));
        assert_eq!(table.catalog.date(), Some("2026-01-02"));
        let starts: Vec<_> =
            table.problems.iter().map(|problem| problem.split(':').next().unwrap()).collect();
        assert_eq!(
            starts,
            ["line 3", "line 4", "line 5", "line 6", "line 7", "line 8", "line 9", "line 10", "line 11"]
        );
        assert_eq!(table.catalog.len(), 1);
        let profile = table.catalog.profile("a", "good-7b").unwrap();
        assert_eq!((profile.tools, profile.vision, profile.reasoning), (Some(true), Some(false), None));
        assert_eq!(profile.size, Some(entourage_core::provider::Size::M));
        let prices = profile.prices.unwrap();
        assert_eq!(prices.tiers.len(), 2);
        assert_eq!(prices.tiers[0].cache_read, Some(2));
    }
}
