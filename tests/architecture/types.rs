//! Public types: their number and their names.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::{Crates, Target};

/// The types that users of a crate can name, doubles for tests left out.
pub(crate) fn count(crates: &Crates, of: &str) -> usize {
    let is_double = |target: &&Target| matches!(target, Target::Item { of, .. } if of == "entourage-testkit");
    crates.reachable(of).keys().filter(|target| !is_double(target)).count()
}

/// The names that stand for two types of a crate, with the places of both. A type counts by the name that it is
/// declared with and by those that it is exported with.
pub(crate) fn doubles(crates: &Crates, of: &str) -> Vec<String> {
    let mut named = BTreeMap::<String, BTreeSet<String>>::new();
    for (target, shown) in crates.reachable(of) {
        let Target::Item { of, module, name } = target else { continue };
        for shown in shown.into_iter().chain([name.clone()]) {
            named.entry(shown).or_default().insert(format!("{of}::{module}::{name}"));
        }
    }
    named.retain(|_, places| places.len() > 1);
    let line = |(name, places): (String, BTreeSet<String>)| {
        format!("{name}: {}", places.into_iter().collect::<Vec<_>>().join(", "))
    };
    named.into_iter().map(line).collect()
}

#[test]
fn planted_doubles_are_found() {
    let read = |above: &str| {
        let mut crates = Crates::default();
        let lib = format!(
            "pub mod a; mod b; {above} macro_rules! make {{ ($name:ident) => {{ pub struct $name; }} }}"
        );
        let files = [
            ("lib.rs", lib.as_str()),
            ("a.rs", "pub struct One; pub(crate) struct Two; pub trait Three {} make! { Made }"),
            (
                "b.rs",
                "pub struct One; pub enum Two {} pub type Three = u8; pub const FOUR: u8 = 4; pub mod c;",
            ),
            ("b/c.rs", "pub struct One; #[cfg(test)] pub struct Made;"),
        ];
        crates.add("planted", &|wanted| {
            files.iter().find(|(file, _)| *file == wanted).map(|(_, text)| (*text).to_owned())
        });
        crates
    };
    // `One`, `Three` and `Made` of `a`.
    for (above, types, double) in [
        ("", 3, None),
        ("pub use a::One;", 3, None),
        ("pub use b::{Two, FOUR};", 4, None),
        ("pub use b::One;", 4, Some("One: planted::a::One, planted::b::One")),
        ("pub use b::c;", 4, Some("One: planted::a::One, planted::b::c::One")),
        ("pub use b::Two as Three;", 4, Some("Three: planted::a::Three, planted::b::Two")),
        ("pub use b::{Two as Other};", 4, None),
        ("pub mod d { pub use crate::b::Three; }", 4, Some("Three: planted::a::Three, planted::b::Three")),
        ("pub struct Made;", 4, Some("Made: planted::::Made, planted::a::Made")),
    ] {
        let crates = read(above);
        assert_eq!(count(&crates, "planted"), types, "{above}");
        assert_eq!(doubles(&crates, "planted").first().map(String::as_str), double, "{above}");
    }
}
