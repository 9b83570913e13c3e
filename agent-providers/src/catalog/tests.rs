//! The table as shipped, and its use by a program. Figures here were read from the sources that the table's head
//! names, not from the table.

use std::collections::BTreeSet;

use entourage_core::{
    ErrorKind, Money, Prices, Usage,
    provider::{Profile, Size},
};

use super::{Catalog, table};

const SHIPPED: &str = include_str!("../../catalog/models.tsv");

fn prices(vendor: &str, model: &str) -> Prices {
    Catalog::builtin().profile(vendor, model).and_then(|profile| profile.prices).unwrap()
}

fn usage(input: u64, output: u64, cache_read: u64, cache_write: u64) -> Usage {
    let mut usage = Usage::new(input, output);
    usage.cache_read = Some(cache_read);
    usage.cache_write = Some(cache_write);
    usage
}

#[test]
fn every_line_is_read_and_the_head_says_what_it_is() {
    let table = table::read(SHIPPED);
    assert_eq!(table.problems, Vec::<String>::new());
    let lines = SHIPPED.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(table.catalog.len(), lines);
    assert_eq!(table.catalog.iter().count(), lines);
    assert!(SHIPPED.contains(&format!("# models: {lines}\n")));
    assert_eq!(SHIPPED.matches("# source: ").count(), 2);
    assert_eq!(SHIPPED.matches(" from PyPI ").count(), SHIPPED.matches(" MIT, Copyright").count());
    let date = table.catalog.date().unwrap();
    assert!(date.len() == 10 && date >= "2026-11-22", "{date}");
}

#[test]
fn no_listed_figure_is_absurd() {
    // 1000 USD per million tokens, which no model costs: an error by powers of ten would be seen.
    const DEAREST: u64 = 1_000_000_000;
    for (vendor, model, profile) in Catalog::builtin().iter() {
        let name = format!("{vendor} {model}");
        assert!(
            profile.context_window.is_some_and(|window| (1_000..=20_000_000).contains(&window)),
            "{name}"
        );
        assert!(
            profile.max_output.is_none_or(|most| most > 0 && Some(most) < profile.context_window),
            "{name}"
        );
        assert_eq!(profile.size, super::size::size_in(model), "{name}");
        let Some(prices) = &profile.prices else { continue };
        let tiers = prices.tiers.iter();
        let rows = tiers.map(|tier| [Some(tier.input), Some(tier.output), tier.cache_read, tier.cache_write]);
        let base = [Some(prices.input), Some(prices.output), prices.cache_read, prices.cache_write];
        for price in rows.chain([base]).flatten().flatten() {
            assert!(price > 0 && price < DEAREST, "{name}: {price} is no price");
        }
        assert!(prices.tiers.is_sorted_by(|one, next| one.above < next.above), "{name}");
    }
}

#[test]
fn the_services_that_matter_are_there() {
    let catalog = Catalog::builtin();
    let vendors: BTreeSet<_> = catalog.iter().map(|(vendor, _, _)| vendor).collect();
    for vendor in [
        "anthropic",
        "cerebras",
        "cohere",
        "deepseek",
        "fireworks",
        "gemini",
        "groq",
        "mistral",
        "openai",
        "openrouter",
        "perplexity",
        "together",
        "xai",
    ] {
        assert!(vendors.contains(vendor), "{vendor}");
    }
    let priced = catalog.iter().filter(|(_, _, profile)| profile.prices.is_some()).count();
    assert!(priced * 10 > catalog.len() * 9, "{priced} of {} have a price", catalog.len());
}

#[test]
fn listed_figures_are_those_of_the_sources() {
    let catalog = Catalog::builtin();
    let gpt = catalog.profile("openai", "gpt-5.4").unwrap();
    assert_eq!((gpt.context_window, gpt.max_output), (Some(1_050_000), Some(128_000)));
    assert_eq!((gpt.tools, gpt.vision, gpt.documents), (Some(true), Some(true), Some(true)));
    assert_eq!((gpt.structured_output, gpt.reasoning, gpt.sampling), (Some(true), Some(true), None));

    let sonnet = catalog.profile("anthropic", "claude-sonnet-4-6").unwrap();
    assert_eq!((sonnet.context_window, sonnet.max_output), (Some(1_000_000), Some(128_000)));
    let stated = sonnet.prices.unwrap();
    assert_eq!((stated.input, stated.output), (3_000_000, 15_000_000));
    assert_eq!((stated.cache_read, stated.cache_write), (Some(300_000), Some(3_750_000)));
    assert_eq!(catalog.profile("anthropic", "claude-sonnet-5").unwrap().sampling, Some(false));

    let open = catalog.profile("groq", "openai/gpt-oss-120b").unwrap();
    assert_eq!(
        (open.context_window, open.max_output, open.size),
        (Some(131_072), Some(65_536), Some(Size::Xl))
    );
    let stated = open.prices.unwrap();
    assert_eq!((stated.input, stated.output, stated.cache_read), (150_000, 600_000, Some(75_000)));
}

#[test]
fn a_price_that_the_sources_do_not_agree_on_or_call_zero_is_unknown() {
    let catalog = Catalog::builtin();
    for (vendor, model) in [("deepseek", "deepseek-v3.2"), ("gemini", "gemma-4-31b-it")] {
        assert_eq!(catalog.profile(vendor, model).unwrap().prices, None, "{vendor} {model}");
    }
}

#[test]
fn unknown_models_are_unknown() {
    let catalog = Catalog::builtin();
    for (vendor, model) in [
        ("openai", ""),
        ("", "gpt-5.4"),
        ("nobody", "gpt-5.4"),
        ("openai", "gpt-5.4-turbo"),
        ("openai", "gpt-5.40"),
        ("openai", "gpt-5."),
        ("openai", "GPT-5.4"),
        ("OpenAI", "gpt-5.4"),
        ("openai", "gpt-5.4-2099-01-01"),
        ("openai", "anthropic/claude-sonnet-4-6"),
        ("openrouter", "anthropic/claude-sonnet-4.6:free"),
        ("anthropic", "claude-sonnet-4-6-fast"),
    ] {
        assert_eq!(catalog.profile(vendor, model), None, "{vendor} {model}");
    }
    assert!(Catalog::empty().is_empty() && Catalog::empty().date().is_none());
    assert_eq!(Catalog::empty().profile("openai", "gpt-5.4"), None);
}

#[test]
fn other_names_of_a_listed_model_lead_to_it() {
    let catalog = Catalog::builtin();
    for (vendor, other, listed) in [
        ("anthropic", "claude-sonnet-4-6-20260217", "claude-sonnet-4-6"),
        ("anthropic", "claude-sonnet-4-6@20260217", "claude-sonnet-4-6"),
        ("anthropic", "claude-sonnet-4-6-latest", "claude-sonnet-4-6"),
        ("anthropic", "anthropic/claude-sonnet-4-6", "claude-sonnet-4-6"),
        ("gemini", "models/gemini-2.5-pro", "gemini-2.5-pro"),
    ] {
        let found = catalog.profile(vendor, other);
        assert!(found.is_some(), "{other}");
        assert_eq!(found, catalog.profile(vendor, listed), "{other}");
    }
    // A snapshot with other prices than the undated name: it is listed although it is retired.
    assert_eq!(prices("openai", "gpt-4o-2024-05-13").input, 5_000_000);
    assert_eq!(prices("openai", "gpt-4o").input, 2_500_000);
}

#[test]
fn own_figures_go_before_listed_ones() {
    let mut own = Profile::default();
    own.prices = Some(Prices::per_million_micros(1, 2));
    let builtin = Catalog::builtin();
    let catalog = builtin.clone().with("openai", "gpt-5.4", own.clone()).with("house", "own-3b", own.clone());

    let changed = catalog.profile("openai", "gpt-5.4").unwrap();
    assert_eq!(changed.prices, own.prices);
    assert_eq!(changed.context_window, Some(1_050_000));
    let added = catalog.profile("house", "own-3b").unwrap();
    assert_eq!((added.prices, added.size, added.context_window), (own.prices, Some(Size::S), None));
    assert_eq!(catalog.len(), builtin.len() + 1);

    // The table that others share is as it was.
    assert_eq!(prices("openai", "gpt-5.4").input, 2_500_000);
    assert_eq!(builtin.profile("house", "own-3b"), None);
}

#[test]
fn own_facts_under_another_name_of_a_listed_model_leave_that_one_alone() {
    let mut own = Profile::default();
    own.tools = Some(false);
    let catalog = Catalog::builtin().with("anthropic", "claude-sonnet-4-6-20260217", own);
    let dated = catalog.profile("anthropic", "claude-sonnet-4-6-20260217").unwrap();
    assert_eq!((dated.tools, dated.context_window), (Some(false), Some(1_000_000)));
    assert_eq!(catalog.profile("anthropic", "claude-sonnet-4-6").unwrap().tools, Some(true));
}

#[test]
fn an_own_file_is_merged_whole_or_not_at_all() {
    let file = r#"{
        "openai": {"gpt-5.4": {"max_output": 1000, "size": "s"}},
        "house": {"m": {"prices": {"input": 7, "output": 9, "cache_write": 8, "tiers": [
            {"above": 10, "input": 70, "output": 90, "cache_read": 1}, {"above": 20, "input": 700, "output": 900}]}}}
    }"#;
    let catalog = Catalog::builtin().merge_json(file).unwrap();
    let gpt = catalog.profile("openai", "gpt-5.4").unwrap();
    assert_eq!((gpt.max_output, gpt.size, gpt.tools), (Some(1000), Some(Size::S), Some(true)));
    let stated = catalog.profile("house", "m").unwrap().prices.unwrap();
    assert_eq!((stated.cache_read, stated.cache_write), (None, Some(8)));
    let cost = |input| stated.cost(&Usage::new(input, 1)).unwrap().as_pico();
    assert_eq!([cost(10), cost(11), cost(21)], [79, 860, 15_600]);

    let alone = Catalog::from_json(file).unwrap();
    assert_eq!(
        alone.iter().map(|(vendor, model, _)| (vendor, model)).collect::<Vec<_>>(),
        [("house", "m"), ("openai", "gpt-5.4")]
    );
    assert_eq!(alone.profile("openai", "gpt-5.4").unwrap().tools, None);
    // A program's own file may not list all exceptions.
    assert_eq!(alone.profile("openai", "gpt-5.4-2026-03-05"), None);

    let bad = r#"{"house": {"m": {"tools": true}, "n": {"tools": 1}}}"#;
    assert_eq!(Catalog::from_json(bad).unwrap_err().kind(), ErrorKind::Config);
}

#[test]
fn cc01_cost_is_exact_for_each_kind_of_token() {
    let plain = || prices("anthropic", "claude-sonnet-4-6");
    let tiered = || prices("anthropic", "claude-haiku-5-5");
    let inclusive = || prices("xai", "grok-4.7");
    for (prices, usage, pico) in [
        (plain(), usage(0, 0, 0, 0), 0),
        (plain(), usage(1, 0, 0, 0), 3_000_000),
        (plain(), usage(0, 1, 0, 0), 15_000_000),
        // 700 plain, 200 read and 100 written: the parts of one prompt are counted once.
        (
            plain(),
            usage(1_000, 10, 200, 100),
            700 * 3_000_000 + 200 * 300_000 + 100 * 3_750_000 + 10 * 15_000_000,
        ),
        (tiered(), usage(100_000, 1, 0, 0), 100_000 * 100_000 + 500_000),
        (tiered(), usage(100_001, 1, 0, 0), 100_001 * 500_000 + 2_500_000),
        // The whole prompt selects the tier, including its cached part.
        (tiered(), usage(100_001, 0, 100_000, 1), 100_000 * 50_000 + 625_000),
        (inclusive(), usage(199_999, 1, 0, 0), 199_999 * 2_000_000 + 6_000_000),
        (inclusive(), usage(200_000, 1, 0, 0), 200_000 * 4_000_000 + 12_000_000),
    ] {
        assert_eq!(prices.cost(&usage), Some(Money::from_pico(pico)), "{usage:?}");
    }
    // Half a cent per million tokens: a figure in micro-dollars per call would be 0.
    assert_eq!(prices("openai", "gpt-5-nano").cache_read, Some(5_000));
    assert_eq!(prices("openai", "gpt-5-nano").cost(&usage(1, 0, 1, 0)), Some(Money::from_pico(5_000)));
}

#[test]
fn cc01_the_providers_figure_replaces_ours_and_flat_rate_is_zero() {
    let listed = prices("anthropic", "claude-sonnet-4-6");
    let mut reported = usage(1_000, 10, 0, 0);
    reported.cost = Some(Money::from_pico(42));
    assert_eq!(listed.cost(&reported), Some(Money::from_pico(42)));

    let mut own = Profile::default();
    own.prices = Some(Prices::flat_rate());
    let catalog = Catalog::builtin().with("anthropic", "claude-sonnet-4-6", own);
    let flat = catalog.profile("anthropic", "claude-sonnet-4-6").unwrap().prices.unwrap();
    assert_eq!(flat.cost(&usage(1_000_000, 1_000_000, 10, 10)), Some(Money::from_pico(0)));
}

#[test]
fn cc01_without_usage_or_prices_a_cost_is_unknown() {
    let listed = prices("anthropic", "claude-sonnet-4-6");
    assert_eq!(listed.cost(&Usage::default()), None);
    let unlisted =
        Catalog::builtin().profile("anthropic", "no-such-model").and_then(|profile| profile.prices);
    assert_eq!(unlisted.and_then(|prices| prices.cost(&Usage::new(1, 1))), None);
}

#[test]
fn lo02_sizes_come_from_the_names_that_state_one() {
    let catalog = Catalog::builtin();
    for (vendor, model, size) in [
        ("mistral", "ministral-3b-latest", Some(Size::S)),
        ("mistral", "ministral-8b-latest", Some(Size::M)),
        ("mistral", "ministral-14b-latest", Some(Size::L)),
        ("groq", "openai/gpt-oss-120b", Some(Size::Xl)),
        ("openai", "gpt-5.4", None),
    ] {
        assert_eq!(catalog.profile(vendor, model).unwrap().size, size, "{model}");
    }
}

#[test]
fn debug_output_is_short() {
    let shown = format!("{:?}", Catalog::builtin());
    assert!(shown.starts_with("Catalog { models: ") && shown.len() < 80, "{shown}");
}
