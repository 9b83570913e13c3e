//! A reader of crates: their modules, imports, paths and public types, as the sources declare them.
//!
//! Modules are found from the crate's root on, as a compiler finds them, so files that only tests compile are left out,
//! as is everything else behind `cfg(test)` and `cfg(doc)`. Features count as turned on. Macros are not expanded: a
//! path in one counts where the macro is written, and a macro that declares `pub struct $name` declares the first name
//! it is given.

use std::collections::{BTreeMap, BTreeSet};

use crate::scan::{code, lines_without_tests, tokens};

const DECLARATIONS: &[&str] = &["struct", "enum", "union", "trait", "type"];

/// A module, with what it names outside its tests.
#[derive(Debug, Default)]
pub(crate) struct Module {
    /// Its path below the crate, such as `run::replay`; empty for the root.
    pub(crate) path: String,
    pub(crate) file: String,
    /// Lines of its file without tests; 0 for a module inside a file.
    pub(crate) lines: usize,
    pub(crate) uses: Vec<Use>,
    /// Paths named outside imports, with their lines.
    pub(crate) named: Vec<(usize, Vec<String>)>,
    public: BTreeSet<String>,
    children: BTreeMap<String, bool>,
}

/// A leaf of an import.
#[derive(Debug)]
pub(crate) struct Use {
    pub(crate) line: usize,
    pub(crate) path: Vec<String>,
    pub(crate) is_glob: bool,
    name: String,
    is_public: bool,
}

/// The end of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    Module { of: String, path: String },
    Item { of: String, module: String, name: String },
}

#[derive(Debug, Clone)]
struct Token {
    line: usize,
    text: String,
}

/// Crates by name, each with its modules by path.
#[derive(Debug, Default)]
pub(crate) struct Crates(BTreeMap<String, BTreeMap<String, Module>>);

impl Crates {
    /// Adds a crate. `open` returns the text of a file below its `src`, if there is such a file.
    pub(crate) fn add(&mut self, name: &str, open: &dyn Fn(&str) -> Option<String>) {
        let mut reader = Reader { open, modules: BTreeMap::new(), makers: BTreeSet::new(), made: Vec::new() };
        reader.file("", "lib.rs", "");
        let Reader { mut modules, makers, made, .. } = reader;
        for (module, macro_name, word) in made {
            if makers.contains(&macro_name) {
                modules.get_mut(&module).unwrap().public.insert(word);
            }
        }
        self.0.insert(name.to_owned(), modules);
    }

    pub(crate) fn modules(&self, of: &str) -> impl Iterator<Item = &Module> {
        self.0[of].values()
    }

    /// The module or item that a path in a module leads to, through re-exports; `None` for other people's crates and
    /// names that are no module's, such as a type's own.
    pub(crate) fn resolve(&self, of: &str, module: &str, path: &[String]) -> Option<Target> {
        self.follow(of, module, path, 0)
    }

    fn follow(&self, of: &str, module: &str, path: &[String], depth: usize) -> Option<Target> {
        let (first, mut rest) = path.split_first()?;
        let here = Target::Module { of: of.to_owned(), path: module.to_owned() };
        let mut at = match first.as_str() {
            "crate" => Target::Module { of: of.to_owned(), path: String::new() },
            "self" => here,
            "super" => Target::Module { of: of.to_owned(), path: parent(module) },
            _ => match self.step(of, module, first, depth) {
                Some(found) => found,
                None if self.0.contains_key(&first.replace('_', "-")) => {
                    Target::Module { of: first.replace('_', "-"), path: String::new() }
                }
                None => return None,
            },
        };
        while let (Target::Module { of, path }, [next, more @ ..]) = (&at, rest) {
            rest = more;
            at = if next == "super" {
                Target::Module { of: of.clone(), path: parent(path) }
            } else {
                self.step(of, path, next, depth).unwrap_or_else(|| Target::Item {
                    of: of.clone(),
                    module: path.clone(),
                    name: next.clone(),
                })
            };
        }
        Some(at)
    }

    /// What a name stands for in a module.
    fn step(&self, of: &str, module: &str, name: &str, depth: usize) -> Option<Target> {
        let found = self.0.get(of)?.get(module)?;
        if found.children.contains_key(name) {
            return Some(Target::Module { of: of.to_owned(), path: join(module, name) });
        }
        if found.public.contains(name) {
            let (of, module, name) = (of.to_owned(), module.to_owned(), name.to_owned());
            return Some(Target::Item { of, module, name });
        }
        let import = found.uses.iter().find(|one| one.name == name && !one.is_glob)?;
        // `use http::Uri` in a module of the name `http` names the crate.
        if depth > 20 || import.path.first().is_some_and(|first| first == name && import.path.len() > 1) {
            return None;
        }
        self.follow(of, module, &import.path, depth + 1)
    }

    /// The public types that a user of a crate can name: each where it is declared, with the names that it has there.
    pub(crate) fn reachable(&self, of: &str) -> BTreeMap<Target, BTreeSet<String>> {
        let mut found = BTreeMap::<Target, BTreeSet<String>>::new();
        let mut seen = BTreeSet::new();
        let root = Target::Module { of: of.to_owned(), path: String::new() };
        let mut open = vec![(root, of.to_owned())];
        while let Some((target, shown)) = open.pop() {
            let (of, path) = match &target {
                Target::Module { of, path } => (of, path),
                Target::Item { of, module, name } => {
                    let is_type = name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase);
                    if is_type || self.0[of][module].public.contains(name) {
                        found.entry(target).or_default().insert(shown);
                    }
                    continue;
                }
            };
            if !seen.insert(target.clone()) {
                continue;
            }
            let module = &self.0[of][path];
            let below = module.children.iter().filter(|(_, public)| **public);
            open.extend(
                below.map(|(name, _)| {
                    (Target::Module { of: of.clone(), path: join(path, name) }, name.clone())
                }),
            );
            open.extend(module.public.iter().map(|name| {
                (Target::Item { of: of.clone(), module: path.clone(), name: name.clone() }, name.clone())
            }));
            let imports = module.uses.iter().filter(|one| one.is_public);
            open.extend(
                imports.filter_map(|one| Some((self.resolve(of, path, &one.path)?, one.name.clone()))),
            );
        }
        found
    }
}

pub(crate) fn join(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

fn parent(module: &str) -> String {
    module.rsplit_once("::").map_or(String::new(), |(parent, _)| parent.to_owned())
}

struct Reader<'a> {
    open: &'a dyn Fn(&str) -> Option<String>,
    modules: BTreeMap<String, Module>,
    /// Macros that declare a public type.
    makers: BTreeSet<String>,
    /// Calls of macros in modules, with the first name that is given to each.
    made: Vec<(String, String, String)>,
}

impl Reader<'_> {
    /// Reads a file, whose modules without a body are files below `folder`.
    fn file(&mut self, path: &str, file: &str, folder: &str) {
        let source = (self.open)(file).unwrap_or_else(|| panic!("{file} of module `{path}` was not found"));
        let module = Module {
            path: path.to_owned(),
            file: file.to_owned(),
            lines: lines_without_tests(&source),
            ..Module::default()
        };
        self.modules.insert(path.to_owned(), module);
        let lined: Vec<_> = code(&source)
            .lines()
            .enumerate()
            .flat_map(|(i, line)| tokens(line).into_iter().map(move |text| Token { line: i + 1, text }))
            .collect();
        self.items(path, folder, &without_tests(&lined));
    }

    /// Reads the items of a module.
    fn items(&mut self, path: &str, folder: &str, tokens: &[Token]) {
        let mut at = 0;
        while at < tokens.len() {
            let end = at + length(&tokens[at..]);
            let start = after_attributes(tokens, at);
            let (name_at, is_public) = after_visibility(tokens, start);
            let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
            let name = text(name_at + 1).to_owned();
            match text(name_at) {
                "mod" => self.module(path, folder, &name, is_public, &tokens[name_at + 2..end]),
                "macro_rules" => {
                    self.declared(path, &tokens[name_at..end], Some(text(name_at + 2)));
                    self.body(path, &tokens[start..end]);
                }
                _ if name == "!" => {
                    let word = tokens[name_at + 2..end].iter().find(|token| is_word(&token.text));
                    if let Some(word) = word {
                        self.made.push((path.to_owned(), text(name_at).to_owned(), word.text.clone()));
                    }
                    self.declared(path, &tokens[name_at..end], None);
                    self.body(path, &tokens[start..end]);
                }
                _ => {
                    self.declared(path, &tokens[start..end.min(name_at + 3)], None);
                    self.body(path, &tokens[at..end]);
                }
            }
            at = end;
        }
    }

    fn module(&mut self, path: &str, folder: &str, name: &str, is_public: bool, rest: &[Token]) {
        self.modules.get_mut(path).unwrap().children.insert(name.to_owned(), is_public);
        let (child, folder) = (join(path, name), format!("{folder}{name}/"));
        if rest.first().is_some_and(|token| token.text == "{") {
            let file = self.modules[path].file.clone();
            self.modules.insert(child.clone(), Module { path: child.clone(), file, ..Module::default() });
            return self.items(&child, &folder, &rest[1..rest.len().saturating_sub(1)]);
        }
        let beside = format!("{}.rs", folder.trim_end_matches('/'));
        let file = if (self.open)(&beside).is_some() { beside } else { format!("{folder}mod.rs") };
        self.file(&child, &file, &folder);
    }

    /// Notes the public types that tokens declare.
    fn declared(&mut self, path: &str, tokens: &[Token], in_macro: Option<&str>) {
        for (at, _) in tokens.iter().enumerate().filter(|(_, token)| token.text == "pub") {
            let mut words = tokens[at + 1..].iter().map(|token| token.text.as_str());
            let kind = words.by_ref().find(|word| !["unsafe", "auto"].contains(word)).unwrap_or_default();
            let name = words.next().unwrap_or_default();
            if !DECLARATIONS.contains(&kind) {
                continue;
            }
            if name == "$" {
                self.makers.extend(in_macro.map(ToOwned::to_owned));
            } else {
                self.modules.get_mut(path).unwrap().public.insert(name.to_owned());
            }
        }
    }

    /// Notes the imports and paths in the tokens of one item.
    fn body(&mut self, path: &str, tokens: &[Token]) {
        let module = self.modules.get_mut(path).unwrap();
        let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
        let mut at = 0;
        while at < tokens.len() {
            let before = if at == 0 { "" } else { text(at - 1) };
            if text(at) == "use" && text(at + 1) != "<" {
                // Only an item can be public, and `pub(crate)` is not.
                let is_public = before == "pub";
                let length = tokens[at..].iter().position(|token| token.text == ";");
                let end = length.map_or(tokens.len(), |length| at + length);
                let mut from = at + 1;
                leaves(&tokens[..end], &mut from, &[], is_public, &mut module.uses);
                at = end;
            } else if is_word(text(at)) && !["::", "."].contains(&before) {
                let (line, mut path) = (tokens[at].line, vec![text(at).to_owned()]);
                while text(at + 1) == "::" && is_word(text(at + 2)) {
                    path.push(text(at + 2).to_owned());
                    at += 2;
                }
                if path.len() > 1 {
                    module.named.push((line, path));
                }
            }
            at += 1;
        }
    }
}

/// Reads a tree of imports, from behind `use` or a `::` on.
fn leaves(tokens: &[Token], at: &mut usize, above: &[String], is_public: bool, found: &mut Vec<Use>) {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let mut path = above.to_vec();
    // A leading `::` names a crate; no module has an empty name.
    if text(*at) == "::" {
        path.push(String::new());
        *at += 1;
    }
    loop {
        let line = tokens.get(*at).map_or(0, |token| token.line);
        let word = text(*at).to_owned();
        *at += 1;
        match word.as_str() {
            "{" => {
                while *at < tokens.len() && text(*at) != "}" {
                    leaves(tokens, at, &path, is_public, found);
                    *at += usize::from(text(*at) == ",");
                }
                *at += 1;
                return;
            }
            "*" => {
                found.push(Use { line, path, is_glob: true, name: "*".to_owned(), is_public });
                return;
            }
            "$" => {}
            _ => {
                if word != "self" || path.is_empty() {
                    path.push(word);
                }
                if text(*at) == "::" {
                    *at += 1;
                    continue;
                }
                let mut name = path.last().cloned().unwrap_or_default();
                if text(*at) == "as" {
                    name = text(*at + 1).to_owned();
                    *at += 2;
                }
                found.push(Use { line, path, is_glob: false, name, is_public });
                return;
            }
        }
    }
}

fn is_word(text: &str) -> bool {
    text.starts_with(|one: char| one.is_alphabetic() || one == '_')
}

/// The index behind the attributes that stand at `at`.
fn after_attributes(tokens: &[Token], mut at: usize) -> usize {
    while tokens.get(at).is_some_and(|token| token.text == "#") {
        let inner = tokens.get(at + 1).is_some_and(|token| token.text == "!");
        let open = at + 1 + usize::from(inner);
        if tokens.get(open).is_none_or(|token| token.text != "[") {
            return at;
        }
        at = open + bracketed(&tokens[open..]);
    }
    at
}

/// The index behind a visibility, and true if that is plain `pub`.
fn after_visibility(tokens: &[Token], at: usize) -> (usize, bool) {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    match (text(at), text(at + 1)) {
        ("pub", "(") => (at + 1 + bracketed(&tokens[at + 1..]), false),
        ("pub", _) => (at + 1, true),
        _ => (at, false),
    }
}

/// The number of tokens of the group that opens with the first one.
fn bracketed(tokens: &[Token]) -> usize {
    let mut depth = 0_usize;
    for (i, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return i + 1;
        }
    }
    tokens.len()
}

/// The number of tokens of the item, statement or field at the front, attributes included.
fn length(tokens: &[Token]) -> usize {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let first = after_attributes(tokens, 0);
    let (name, _) = after_visibility(tokens, first);
    let (is_use, is_field) = (text(name) == "use", text(name + 1) == ":");
    let mut at = first;
    while at < tokens.len() {
        match text(at) {
            ";" => return at + 1,
            "," if is_field => return at + 1,
            ")" | "]" | "}" => return at.max(1),
            "(" | "[" => at += bracketed(&tokens[at..]),
            "{" => {
                at += bracketed(&tokens[at..]);
                if !is_use && !is_field {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    tokens.len()
}

/// Code without what stands behind `#[cfg(test)]`, `#[cfg(all(test, …))]` or `#[cfg(doc)]`.
fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let is_test = |at: usize| {
        let words: Vec<_> = (at..at + 7).map(text).collect();
        words == ["#", "[", "cfg", "(", "test", ")", "]"]
            || words == ["#", "[", "cfg", "(", "doc", ")", "]"]
            || words == ["#", "[", "cfg", "(", "all", "(", "test"]
    };
    let (mut out, mut at) = (Vec::new(), 0);
    while at < tokens.len() {
        if is_test(at) {
            at += length(&tokens[at..]);
        } else {
            out.push(tokens[at].clone());
            at += 1;
        }
    }
    out
}
