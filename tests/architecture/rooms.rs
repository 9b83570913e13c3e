//! Rooms and the arrows between them.
//!
//! A room is a list of modules. The table below says which rooms there are and in which order they stand; a room may
//! name the rooms that stand above its line in its own package, and all rooms of the packages that its package knows.

use std::{collections::BTreeMap, fmt::Write as _};

use crate::tree::{Crates, Module, Target, join};

/// The table. `package NAME in CRATE knows …` opens a package: what is a crate today or will be one. Each line below it
/// is a room: its name and its modules (with their own modules, unless another line names those; behind `=` without
/// them), or single items of them. `crate` is the root. A line that opens with `|` stands beside the line before it,
/// and neither may name the other. A module that moves changes its line here.
pub(crate) const TABLE: &str = include_str!("rooms.txt");

/// Arrows against the table, with the number of places that draw each. The numbers may only fall; an arrow that has no
/// place left loses its line.
pub(crate) const DEBTS: &str = include_str!("debts.txt");

#[derive(Debug)]
struct Room {
    of: String,
    package: String,
    name: String,
    floor: usize,
    modules: Vec<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Rooms {
    rooms: Vec<Room>,
    /// Packages, with their crate and the packages that each knows.
    packages: BTreeMap<String, (String, Vec<String>)>,
}

/// A place in the sources that names another room.
#[derive(Debug)]
struct Arrow {
    from: String,
    to: String,
    place: String,
}

impl Rooms {
    pub(crate) fn read(table: &str) -> Self {
        let mut rooms = Self::default();
        let mut package = String::new();
        for (floor, line) in table.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate() {
            let mut words = line.split_whitespace().map(ToOwned::to_owned);
            let beside = line.starts_with("| ");
            let name = words.nth(usize::from(beside)).expect("a room has a name");
            if name.starts_with("//") {
                continue;
            }
            if name == "package" {
                package = words.next().expect("a package has a name");
                let of = words.nth(1).expect("a package is in a crate");
                rooms.packages.insert(package.clone(), (of, words.skip(1).collect()));
                continue;
            }
            let floor = if beside { rooms.rooms.last().expect("a room before it").floor } else { floor };
            let of = rooms.packages[&package].0.clone();
            rooms.rooms.push(Room { of, package: package.clone(), name, floor, modules: words.collect() });
        }
        rooms
    }

    /// The crates that the table is about.
    pub(crate) fn crates(&self) -> impl Iterator<Item = &str> {
        let mut crates: Vec<_> = self.packages.values().map(|(of, _)| of.as_str()).collect();
        crates.sort_unstable();
        crates.dedup();
        crates.into_iter()
    }

    /// The room whose line names most of a path: an item, its module, or what that is in.
    fn of_path(&self, of: &str, module: &str, item: Option<&str>) -> Option<&Room> {
        let item = item.map(|name| join(module, name));
        let module = if module.is_empty() { "crate" } else { module };
        let holds = |entry: &str| match entry.strip_prefix('=') {
            Some(alone) => module == alone,
            None => {
                let below = module.strip_prefix(entry);
                below.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
                    || item.as_deref() == Some(entry)
            }
        };
        let rooms = self.rooms.iter().filter(|room| room.of == of);
        let entries = rooms.flat_map(|room| room.modules.iter().map(move |entry| (entry, room)));
        entries.filter(|(entry, _)| holds(entry)).max_by_key(|(entry, _)| entry.len()).map(|(_, room)| room)
    }

    fn may_name(&self, from: &Room, to: &Room) -> bool {
        if from.package == to.package {
            return from.floor > to.floor || from.name == to.name;
        }
        self.packages[&from.package].1.contains(&to.package)
    }

    /// Lines of a package without tests.
    pub(crate) fn lines(&self, crates: &Crates, package: &str) -> usize {
        let modules = crates.modules(&self.packages[package].0);
        let is_in = |module: &&Module| {
            self.of_path(&self.packages[package].0, &module.path, None)
                .is_some_and(|room| room.package == package)
        };
        modules.filter(is_in).map(|module| module.lines).sum()
    }

    /// All offences: modules without a room, globs of other rooms, and arrows against the table that are not among the
    /// debts, or not as many.
    pub(crate) fn offences(&self, crates: &Crates, debts: &str) -> Vec<String> {
        let (mut found, mut arrows) = (Vec::new(), Vec::new());
        for of in self.crates() {
            for module in crates.modules(of) {
                match self.of_path(of, &module.path, None) {
                    Some(room) => self.drawn(crates, room, module, &mut arrows, &mut found),
                    // The root only says what there is.
                    None if module.file == "lib.rs" => {}
                    None => found.push(format!("{of}: {} is in no room of rooms.txt", module.path)),
                }
            }
        }
        let mut counted: BTreeMap<_, (usize, Vec<String>)> = debts
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(|line| {
                let words: Vec<_> = line.split_whitespace().collect();
                let [from, "->", to, count] = words[..] else { panic!("debts.txt: `{line}`") };
                ((from.to_owned(), to.to_owned()), (count.parse().expect("a number of places"), Vec::new()))
            })
            .collect();
        for arrow in arrows {
            counted.entry((arrow.from, arrow.to)).or_default().1.push(arrow.place);
        }
        for ((from, to), (owed, places)) in counted {
            let is = places.len();
            if is > owed {
                let mut text = format!("{from} -> {to}: {is} places, {owed} allowed");
                for place in places {
                    let _ = write!(text, "\n      {place}");
                }
                found.push(text);
            } else if is < owed {
                found.push(format!("{from} -> {to}: {is} places left of {owed}; lower it in debts.txt"));
            }
        }
        found
    }

    fn drawn(
        &self,
        crates: &Crates,
        room: &Room,
        module: &Module,
        arrows: &mut Vec<Arrow>,
        found: &mut Vec<String>,
    ) {
        let imports = module.uses.iter().map(|one| (one.line, &one.path, one.is_glob));
        // A type's own names are no place of their own: its import is.
        let opens_a_module = |path: &[String]| {
            ["crate", "self", "super"].contains(&path[0].as_str())
                || matches!(crates.resolve(&room.of, &module.path, &path[..1]), Some(Target::Module { .. }))
        };
        let named = module.named.iter().filter(|(_, path)| opens_a_module(path));
        for (line, path, is_glob) in imports.chain(named.map(|(line, path)| (*line, path, false))) {
            let (of, within, item) = match crates.resolve(&room.of, &module.path, path) {
                Some(Target::Module { of, path }) => (of, path, None),
                Some(Target::Item { of, module, name }) => (of, module, Some(name)),
                None => continue,
            };
            let place = format!("{}/{}:{line}: {}", room.of, module.file, path.join("::"));
            let Some(to) = self.of_path(&of, &within, item.as_deref()) else {
                found.push(format!("{place}: in no room of rooms.txt; name it by its home"));
                continue;
            };
            let same = (&to.package, &to.name) == (&room.package, &room.name);
            if is_glob && !same {
                found.push(format!("{place}::*: name what it takes from another room"));
            }
            if !self.may_name(room, to) {
                let name = |room: &Room| format!("{}/{}", room.package, room.name);
                arrows.push(Arrow { from: name(room), to: name(to), place });
            }
        }
    }
}

#[cfg(test)]
fn planted(files: &[(&str, &str)]) -> Crates {
    let mut crates = Crates::default();
    crates.add("planted", &|wanted| {
        files.iter().find(|(file, _)| *file == wanted).map(|(_, text)| (*text).to_owned())
    });
    crates
}

#[test]
fn planted_arrows_are_found() {
    let table = "
        package low in planted knows
        base  base
        left  left
        | right  right
        top  top  left::Lifted
        package high in planted knows low
        roof  top::roof
    ";
    let rooms = Rooms::read(table);
    let lib = "mod base; mod left; mod right; mod top; pub use base::Thing;";
    let base = "pub struct Thing; macro_rules! go { () => { $crate::top::go() } }";
    let top = "mod roof; pub use roof::Roof; pub use crate::left::Inner as Kept; pub fn go() {}";
    let roof = "use crate::{Thing, right::Right}; pub struct Roof;";
    let right = "pub struct Right;";
    let offences = |left: &str, debts: &str| {
        let crates = planted(&[
            ("lib.rs", lib),
            ("base/mod.rs", base),
            ("left.rs", left),
            ("left/deep.rs", "pub(super) struct Deep; use super::super::right::Right;"),
            ("right.rs", right),
            ("top.rs", top),
            ("top/roof.rs", roof),
        ]);
        rooms.offences(&crates, debts)
    };
    // Two macros' and re-exports' arrows stand already: of `base` and of `top`.
    let standing = "low/base -> low/top 1\nlow/top -> high/roof 1\n";
    let inner = "pub struct Inner; pub enum Lifted { A }";
    assert_eq!(offences(&format!("{inner} use crate::Thing;"), standing), [""; 0]);

    for (planted, to) in [
        ("use crate::right::Right;", "low/right"),
        ("use super::right;", "low/right"),
        ("use super::{right::{Right as Other}};", "low/right"),
        ("use super::right::{self};", "low/right"),
        ("fn f() -> crate::right::Right { todo() }", "low/right"),
        ("fn f() { use crate::right::Right; }", "low/right"),
        ("struct A { #[cfg(test)] b: crate::right::Right, c: super::right::Right }", "low/right"),
        ("macro_rules! m { () => { crate::top::go() } }", "low/top"),
        ("pub use crate::top::go;", "low/top"),
        ("use self::Lifted;", "low/top"),
        // By a way round: a re-export is where it leads.
        ("use crate::top::Roof;", "high/roof"),
        ("mod deep;", "low/right"),
        ("mod here { use super::super::right::Right; }", "low/right"),
    ] {
        let found = offences(&format!("{inner} {planted}"), standing);
        let [only] = &found[..] else { panic!("{planted}: {found:?}") };
        assert!(only.starts_with(&format!("low/left -> {to}: 1 places, 0 allowed")), "{planted}: {only}");
        let owed = |count: usize| format!("{standing}low/left -> {to} {count}");
        assert_eq!(offences(&format!("{inner} {planted}"), &owed(1)), [""; 0], "{planted}");
        let found = offences(&format!("{inner} {planted}"), &owed(2));
        assert_eq!(found, [format!("low/left -> {to}: 1 places left of 2; lower it in debts.txt")]);
    }
    for innocent in [
        "use crate::base;",
        "use crate::top::Kept;",
        "#[cfg(test)] use crate::right::Right;",
        "#[cfg(doc)] use crate::right::Right;",
        "#[cfg(test)] mod tests { use crate::right::Right; }",
        "#[cfg(all(test, unix))] mod tests { fn f() { crate::right::x() } }",
        "// crate::right::Right\nfn f() { g(\"crate::right::Right\") }",
        "use crate::base::*;",
    ] {
        let found = offences(&format!("{inner} {innocent}"), standing);
        let globs: Vec<_> = found.iter().filter(|one| one.contains("::*: name what it takes")).collect();
        assert_eq!(globs.len(), usize::from(innocent.ends_with("*;")), "{innocent}: {found:?}");
        assert_eq!(found.len(), globs.len(), "{innocent}: {found:?}");
    }
    let stray = planted(&[("lib.rs", "mod stray;"), ("stray.rs", "")]);
    assert_eq!(rooms.offences(&stray, "")[0], "planted: stray is in no room of rooms.txt");
}
