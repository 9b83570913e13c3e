//! The ceiling over an agent: the access and the tools that it may ever use. It can only be narrowed.

use std::{
    collections::BTreeSet,
    path::{MAIN_SEPARATOR, Path},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::base::bound::{WORD, shortened};
use crate::spec::{Access, Footprint, ToolSpec, normal_path, subject::scope_host};

type Names = BTreeSet<String>;
type Within = fn(&str, &str) -> bool;

/// Most that an agent may ever do. A child's scope is the intersection of its own with its parent's.
///
/// ```
/// use entourage_core::{permission::Scope, tool::Access};
///
/// let parent = Scope::all().with_access(Access::READ | Access::WRITE);
/// let child = parent.narrow(&Scope::all().with_tools(["view", "grep"]));
/// assert_eq!(child.access(), Access::READ | Access::WRITE);
/// assert!(!child.has_tool("write"));
/// assert_eq!(child.narrow(&Scope::all()), child);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    access: Access,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tools: Option<Arc<Names>>,
    /// Excluded tools. Never empty; none is within another or outside of `tools`, and none of `tools` is within one:
    /// equal scopes have equal fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    without: Option<Arc<Names>>,
    /// Normal paths. None is within another, here and in `hosts`: equal scopes have equal fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    roots: Option<Arc<Names>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hosts: Option<Arc<Names>>,
}

impl Scope {
    /// The scope without limits.
    pub fn all() -> Self {
        Self { access: Access::ALL, tools: None, without: None, roots: None, hosts: None }
    }

    /// The scope of reading only.
    pub fn read_only() -> Self {
        Self { access: Access::READ, ..Self::all() }
    }

    /// The scope without access to anything but a tool's own arguments.
    pub fn none() -> Self {
        Self { access: Access::NONE, ..Self::all() }
    }

    /// The same scope with at most `access`.
    #[must_use]
    pub fn with_access(mut self, access: Access) -> Self {
        self.access = self.access.intersection(access);
        self
    }

    /// The same scope with at most the named tools. `mcp_github_*` stands for all whose name begins so: those of a
    /// server.
    #[must_use]
    pub fn with_tools<S: Into<String>>(self, names: impl IntoIterator<Item = S>) -> Self {
        let names = outermost(names.into_iter().map(Into::into).collect(), is_tool);
        self.narrow(&Self { tools: Some(names), ..Self::all() })
    }

    /// The same scope without the named tools. A tool is judged by its name alone, whatever it does.
    ///
    /// ```
    /// use entourage_core::permission::Scope;
    ///
    /// let leaf = Scope::all().without_tools(["agent"]);
    /// assert!(!leaf.has_tool("agent") && leaf.has_tool("view"));
    /// assert_eq!(leaf.narrow(&Scope::all().with_tools(["agent", "view"])), Scope::all().with_tools(["view"]));
    /// ```
    #[must_use]
    pub fn without_tools<S: Into<String>>(self, names: impl IntoIterator<Item = S>) -> Self {
        let names = outermost(names.into_iter().map(Into::into).collect(), is_tool);
        let without = (!names.is_empty()).then_some(names);
        self.narrow(&Self { without, ..Self::all() })
    }

    /// The same scope with at most the files at these paths and below them. They are named as subjects are: relative to
    /// the root of a workspace, or absolute. `.` is that root, which no path that climbs is below.
    ///
    /// Each path of a call must lie below one of them, in each form in which its footprint names it. A tool that reads,
    /// writes or executes and does not say which paths it touches is out of scope, unless it
    /// [confines](ToolSpec::confining) its calls itself.
    ///
    /// ```
    /// use entourage_core::permission::Scope;
    ///
    /// let scope = Scope::all().with_roots(["src", "docs"]).narrow(&Scope::all().with_roots(["src/fs", "tests"]));
    /// assert_eq!(scope, Scope::all().with_roots(["src/fs"]));
    /// ```
    #[must_use]
    pub fn with_roots<S: AsRef<Path>>(self, paths: impl IntoIterator<Item = S>) -> Self {
        let roots = outermost(paths.into_iter().map(|path| named(path.as_ref())).collect(), is_below);
        self.narrow(&Self { roots: Some(roots), ..Self::all() })
    }

    /// The same scope with at most these hosts, however they are spelled. `*.a.example` stands for all names below
    /// `a.example`, and not for that itself. A text with a scheme, a port, a path or a user admits nothing.
    ///
    /// A tool that talks to hosts or executes, and does not say which hosts it talks to, is out of scope, unless it
    /// [confines](ToolSpec::confining) its calls itself.
    #[must_use]
    pub fn with_hosts<S: AsRef<str>>(self, hosts: impl IntoIterator<Item = S>) -> Self {
        let hosts = outermost(hosts.into_iter().map(|host| scope_host(host.as_ref())).collect(), is_host);
        self.narrow(&Self { hosts: Some(hosts), ..Self::all() })
    }

    /// The intersection of this scope and `other`.
    #[must_use]
    pub fn narrow(&self, other: &Self) -> Self {
        let (mut tools, mut without) = (shared(&self.tools, &other.tools, is_tool), self.without.clone());
        if let Some(more) = other.without.as_ref().filter(|_| self.without != other.without) {
            let all = without.iter().chain([more]).flat_map(|set| set.iter().cloned()).collect();
            without = Some(outermost(all, is_tool));
        }
        if let (Some(held), Some(out)) = (&tools, &without) {
            let kept: BTreeSet<_> = held.iter().filter(|it| !holds(out, it, is_tool)).cloned().collect();
            let out: BTreeSet<_> = out.iter().filter(|it| holds(&kept, it, is_tool)).cloned().collect();
            without = (!out.is_empty()).then(|| Arc::new(out));
            tools = Some(Arc::new(kept));
        }
        let roots = shared(&self.roots, &other.roots, is_below);
        let hosts = shared(&self.hosts, &other.hosts, is_host);
        Self { access: self.access.intersection(other.access), tools, without, roots, hosts }
    }

    /// True if nothing is excluded.
    pub fn is_all(&self) -> bool {
        *self == Self::all()
    }

    /// True if the scope may admit a call of this tool. If not, the tool need not be offered to a model.
    pub fn offers(&self, spec: &ToolSpec) -> bool {
        self.has_tool(spec.name())
            && self.access.contains(spec.access())
            && self.roots.iter().all(|roots| spec.reached().iter().all(|it| holds_path(roots, it)))
    }

    /// Access that a call may have at most.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Paths that it is limited to, if it is.
    pub fn roots(&self) -> Option<&BTreeSet<String>> {
        self.roots.as_deref()
    }

    /// Hosts that it is limited to, if it is.
    pub fn hosts(&self) -> Option<&BTreeSet<String>> {
        self.hosts.as_deref()
    }

    /// True if a tool of this name may be used at all.
    pub fn has_tool(&self, name: &str) -> bool {
        self.tools.as_ref().is_none_or(|tools| holds(tools, name, is_tool))
            && !self.without.as_ref().is_some_and(|without| holds(without, name, is_tool))
    }

    /// True if this scope admits everything that `other` admits.
    pub fn contains(&self, other: &Self) -> bool {
        self.narrow(other) == *other
    }

    /// Checks a call against the scope. The declared access counts as well as the footprint's, so a footprint that
    /// claims too little gains nothing.
    ///
    /// # Errors
    /// The text for the model: the tool, what it needs, and what the scope holds of that.
    pub fn admits(&self, spec: &ToolSpec, footprint: &Footprint) -> Result<(), String> {
        let name = spec.name();
        if !self.has_tool(name) {
            let held = match &self.tools {
                Some(tools) if tools.is_empty() => "no tool".to_owned(),
                Some(tools) => tools.iter().map(String::as_str).collect::<Vec<_>>().join(", "),
                None => "others".to_owned(),
            };
            let needed = spec.access();
            return Err(format!(
                "the tool `{name}` ({needed} access) is outside this agent's scope, which holds {held} only"
            ));
        }
        let needed = spec.access() | footprint.access;
        if !self.access.contains(needed) {
            return Err(format!(
                "the tool `{name}` needs {needed} access, and this agent's scope holds {} only",
                self.access
            ));
        }
        let is_vague = footprint.unclear || !spec.names_subjects();
        if let Some(roots) = &self.roots {
            let is_vague = is_vague || footprint.reads.is_empty() && footprint.writes.is_empty();
            let touched = footprint.reads.iter().chain(&footprint.writes);
            let beyond = touched.chain(spec.reached()).find(|path| !holds_path(roots, path));
            let vague = (is_vague && needed.intersects(Access::READ | Access::WRITE)
                || needed.contains(Access::EXECUTE))
                && !spec.is_confining();
            outside(name, "paths", beyond, vague, roots)?;
        }
        if let Some(hosts) = &self.hosts {
            let beyond = footprint.hosts.iter().find(|host| !holds(hosts, host, is_host));
            let vague = (is_vague || footprint.hosts.is_empty())
                && needed.intersects(Access::NETWORK | Access::EXECUTE)
                && !spec.is_confining();
            outside(name, "hosts", beyond, vague, hosts)?;
        }
        Ok(())
    }
}

/// The error for a call that touches something beyond what a scope holds, or does not say what it touches.
fn outside(tool: &str, what: &str, beyond: Option<&String>, vague: bool, held: &Names) -> Result<(), String> {
    let held = held.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    match beyond {
        Some(beyond) => Err(format!(
            "the tool `{tool}` touches `{}`, and this agent's scope holds these {what} only: {held}",
            shortened(beyond, WORD)
        )),
        None if vague => Err(format!(
            "the tool `{tool}` does not say which {what} it touches, and this agent's scope holds these only: {held}"
        )),
        None => Ok(()),
    }
}

/// The set without what is within something else of it.
fn outermost(mut set: Names, is_within: Within) -> Arc<Names> {
    let all = set.clone();
    set.retain(|it| !all.iter().any(|outer| outer != it && is_within(it, outer)));
    Arc::new(set)
}

/// The intersection of two sets, by the relation of one thing within another.
fn shared(one: &Option<Arc<Names>>, other: &Option<Arc<Names>>, is_within: Within) -> Option<Arc<Names>> {
    let both = one.as_ref().zip(other.as_ref()).filter(|(one, other)| one != other);
    let Some((one, other)) = both else { return one.clone().or_else(|| other.clone()) };
    let within = |set: &Names, outer: &Names| -> Names {
        set.iter().filter(|it| holds(outer, it, is_within)).cloned().collect()
    };
    Some(Arc::new(within(one, other).union(&within(other, one)).cloned().collect()))
}

fn holds(set: &Names, it: &str, is_within: Within) -> bool {
    set.contains(it) || set.iter().any(|outer| is_within(it, outer))
}

fn holds_path(roots: &Names, path: &str) -> bool {
    holds(roots, &named(Path::new(path)), is_below)
}

fn named(path: &Path) -> String {
    let path = normal_path(path).to_string_lossy().replace(MAIN_SEPARATOR, "/");
    if path.is_empty() { ".".to_owned() } else { path }
}

/// True if a normal path is `root` or below it.
fn is_below(path: &str, root: &str) -> bool {
    let climbs = |rest: &str| rest == ".." || rest.starts_with("../");
    if root.is_empty() {
        return false;
    }
    if root == "." {
        return !climbs(path) && !path.starts_with('/') && !Path::new(path).is_absolute();
    }
    path.strip_prefix(root).is_some_and(|rest| {
        let below = if root.ends_with('/') { Some(rest) } else { rest.strip_prefix('/') };
        rest.is_empty() || below.is_some_and(|below| !climbs(below))
    })
}

/// True if a host, or a pattern of hosts, is within `pattern`.
fn is_host(host: &str, pattern: &str) -> bool {
    host == pattern
        || pattern.strip_prefix('*').is_some_and(|end| {
            let is_below = host.strip_suffix(end).is_some_and(|start| !start.is_empty());
            end.starts_with('.') && is_below && host.parse::<std::net::IpAddr>().is_err()
        })
}

/// True if the name of a tool, or a pattern of names, is within `pattern`.
fn is_tool(name: &str, pattern: &str) -> bool {
    name == pattern || pattern.strip_suffix('*').is_some_and(|start| name.starts_with(start))
}

impl Default for Scope {
    fn default() -> Self {
        Self::all()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn spec(access: Access) -> ToolSpec {
        ToolSpec::new("t", "", json!({})).with_access(access).naming_subjects()
    }

    #[test]
    fn cp06_a_path_must_lie_below_a_root_in_each_form_in_which_it_is_named() {
        let admits = |roots: &[&str], paths: &[&str]| {
            let footprint = paths.iter().fold(Footprint::new(Access::READ), |it, path| it.reading(*path));
            Scope::all().with_roots(roots).admits(&spec(Access::READ), &footprint).is_ok()
        };
        for (roots, paths, admitted) in [
            (&["src"][..], &["src"][..], true),
            (&["src"], &["src/a/b.rs"], true),
            (&["./src//"], &["src/a"], true),
            (&["src"], &["src/../src/a"], true),
            (&["src"], &["src/../a"], false),
            (&["src"], &["src-evil/a"], false),
            (&["src"], &["."], false),
            (&["src"], &["/src/a"], false),
            (&["src"], &["../src/a"], false),
            (&["src", "docs"], &["docs/a", "src/b"], true),
            (&["src"], &["src/link", "secrets/key"], false),
            (&["."], &["a", ".", "a/b"], true),
            (&["."], &["..a"], true),
            (&["."], &["../a"], false),
            (&["."], &[".."], false),
            (&["."], &["/a"], false),
            (&["/"], &["/etc/passwd"], true),
            (&["/w"], &["/w/a", "/w"], true),
            (&["/w"], &["/w/a", "a"], false),
            (&[".."], &["../a"], true),
            (&[".."], &["../../a"], false),
            (&["../x"], &["../x/..a"], true),
            (&[], &["a"], false),
            (&[], &[], false),
        ] {
            assert_eq!(admits(roots, paths), admitted, "{roots:?} {paths:?}");
        }
    }

    #[test]
    fn cp06_a_host_must_be_one_of_the_scopes_hosts() {
        let admits = |hosts: &[&str], host: &str| {
            let footprint = Footprint::new(Access::NETWORK).naming_host(host);
            Scope::all().with_hosts(hosts).admits(&spec(Access::NETWORK), &footprint).is_ok()
        };
        for (hosts, host, admitted) in [
            (&["a.example"][..], "https://A.example:80/x", true),
            (&["A.Example"], "a.example", true),
            (&["A.Example."], "a.example", true),
            (&["https://a.example"], "a.example", false),
            (&["*.https://a.example"], "b.a.example", false),
            (&["a.example:443"], "a.example:443", false),
            (&["https://a.example/x"], "a.example", false),
            (&["me@a.example"], "a.example", false),
            (&["*.a.example:443"], "b.a.example", false),
            (&["*.0.0.1"], "127.0.0.1", false),
            (&["*.A.Example."], "b.a.example", true),
            (&["[::1]"], "http://[::1]:80/", true),
            (&["0:0:0:0:0:0:0:1"], "::1", true),
            (&["::ffff:127.0.0.1"], "127.0.0.1", true),
            (&["a.example"], "b.a.example", false),
            (&["*.a.example"], "b.a.example", true),
            (&["*.a.example"], "c.b.a.example", true),
            (&["*.a.example"], "a.example", false),
            (&["*.a.example"], "evila.example", false),
            (&["*"], "a.example", false),
            (&["a.example"], "http://a.example\\.b.example", false),
            (&["127.0.0.1"], "http://127.1/", false),
            (&[], "a.example", false),
        ] {
            assert_eq!(admits(hosts, host), admitted, "{hosts:?} {host}");
        }
    }

    /// Unknown is never taken for nothing.
    #[test]
    fn cp06_a_tool_that_does_not_say_what_it_touches_is_outside_of_roots_and_hosts() {
        let roots = Scope::all().with_roots(["src"]);
        let hosts = Scope::all().with_hosts(["a.example"]);
        for access in [Access::READ, Access::WRITE, Access::EXECUTE, Access::NETWORK] {
            let blind = ToolSpec::new("t", "", json!({})).with_access(access);
            for (scope, limited) in [
                (&roots, access != Access::NETWORK),
                (&hosts, access == Access::NETWORK || access == Access::EXECUTE),
            ] {
                let admits = |spec: &ToolSpec, footprint: &Footprint| scope.admits(spec, footprint).is_ok();
                assert_eq!(admits(&blind, &Footprint::new(access)), !limited, "{access}");
                assert_eq!(admits(&blind, &Footprint::default()), !limited, "{access}");
                let confining = |reached: &[&str]| blind.clone().confining(reached.iter().copied());
                assert!(admits(&confining(&[]), &Footprint::new(access)), "{access}");
                assert!(admits(&confining(&["src", "src/a"]), &Footprint::new(access)), "{access}");
                let reaches = confining(&["src/a", "docs"]);
                let refused = scope.roots().is_some();
                assert_eq!(admits(&reaches, &Footprint::new(access)), !refused, "{access}");
                assert_eq!(scope.offers(&reaches), !refused, "{access}");
                let mut unclear = Footprint::new(access).reading("src/a").talking_to("a.example");
                assert!(admits(&spec(access), &unclear) || limited && access == Access::EXECUTE, "{access}");
                unclear.unclear = true;
                assert_eq!(admits(&spec(access), &unclear), !limited, "{access}");
            }
        }
        // One that names hosts alone says nothing of paths.
        let both = spec(Access::WRITE | Access::NETWORK);
        assert!(roots.admits(&both, &Footprint::new(Access::WRITE).talking_to("a.example")).is_err());
        let runs = Footprint::new(Access::EXECUTE).running("curl b.example");
        assert!(hosts.admits(&spec(Access::EXECUTE), &runs).is_err());
        let harmless = ToolSpec::new("t", "", json!({})).with_access(Access::DELEGATE | Access::ASK);
        assert!(roots.narrow(&hosts).admits(&harmless, &Footprint::default()).is_ok());
    }

    fn some(names: &'static [&'static str]) -> impl Strategy<Value = Option<Vec<&'static str>>> {
        prop::option::of(prop::sample::subsequence(names, 0..=names.len().min(4)))
    }

    fn scope() -> impl Strategy<Value = Scope> {
        let roots = some(&[".", "a", "a/b", "a/b/c", "ab", "..", "../a", "/", "/a"]);
        let hosts = some(&["a.e", "b.a.e", "*.a.e", "*.e", "e"]);
        const TOOLS: &[&str] = &["t", "u", "t*", "tu", "tu*", "*"];
        (0_u8..64, some(TOOLS), some(TOOLS), roots, hosts).prop_map(
            |(access, tools, without, roots, hosts)| {
                let scope = Scope::all().with_access(Access::from_bits_truncate(access));
                let scope = tools.into_iter().fold(scope, Scope::with_tools);
                let scope = without.into_iter().fold(scope, Scope::without_tools);
                let scope = roots.into_iter().fold(scope, Scope::with_roots);
                hosts.into_iter().fold(scope, Scope::with_hosts)
            },
        )
    }

    fn call() -> impl Strategy<Value = (ToolSpec, Footprint)> {
        let path = prop::sample::select(vec![
            ".", "a", "a/b", "a/../b", "ab/c", "..", "../a/b", "/", "/a/b", "../../a",
        ]);
        let host = prop::sample::select(vec!["a.e", "b.a.e", "c.b.a.e", "e", "f"]);
        let reached = prop::collection::vec(path.clone(), 0..2);
        let touched = (prop::collection::vec(path, 0..3), prop::collection::vec(host, 0..2), reached);
        let name = prop::sample::select(vec!["t", "u", "tu", "tuv", "v"]);
        (0_u8..64, any::<[bool; 3]>(), touched, name).prop_map(
            |(access, [names, confines, unclear], (paths, hosts, reached), name)| {
                let access = Access::from_bits_truncate(access);
                let spec = ToolSpec::new(name, "", json!({})).with_access(access);
                let spec = if names { spec.naming_subjects() } else { spec };
                let spec = if confines { spec.confining(reached) } else { spec };
                let footprint = paths.into_iter().fold(Footprint::new(access), Footprint::writing);
                let mut footprint = hosts.into_iter().fold(footprint, Footprint::talking_to);
                footprint.unclear = unclear;
                (spec, footprint)
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

        #[test]
        fn cp06_narrowing_admits_exactly_what_both_scopes_admit(one in scope(), other in scope(), (spec, footprint) in call()) {
            let both = one.narrow(&other);
            let admits = |scope: &Scope| scope.admits(&spec, &footprint).is_ok();
            prop_assert_eq!(admits(&both), admits(&one) && admits(&other));
            prop_assert!(one.contains(&both) && other.contains(&both), "{:?}", both);
            prop_assert_eq!(&both, &other.narrow(&one));
            prop_assert_eq!(&both.narrow(&one), &both);
            let read: Scope = serde_json::from_str(&serde_json::to_string(&both).unwrap()).unwrap();
            prop_assert_eq!(read, both);
        }

        /// All roots of one scope have its access; those with another access come from another scope.
        #[test]
        fn cp06_a_root_within_another_adds_nothing_and_is_all_that_two_scopes_share(
            (outer, below) in (prop::sample::select(vec![".", "a", "a/b", "..", "/", "/a"]), "[ab](/[ab]){0,2}"),
            (one, other) in (0_u8..64, 0_u8..64),
            (mut spec, footprint) in call(),
        ) {
            let inner = if outer == "." { below } else { format!("{}/{below}", outer.trim_end_matches('/')) };
            let of = |access, roots: &[&str]| {
                Scope::all().with_access(Access::from_bits_truncate(access)).with_roots(roots)
            };
            prop_assert_eq!(of(one, &[outer, &inner]), of(one, &[outer]));
            let shared = of(one, &[outer]).narrow(&of(other, &[&inner]));
            prop_assert_eq!(&shared, &of(one & other, &[&inner]));
            // Whatever a scope below asks for, neither the outer root nor the access comes back.
            prop_assert_eq!(&shared.narrow(&of(63, &[outer, &inner])), &shared);
            spec = spec.with_name("t");
            let admits = |scope: &Scope| scope.admits(&spec, &footprint).is_ok();
            prop_assert_eq!(admits(&shared), admits(&of(one, &[&inner])) && admits(&of(other, &[&inner])));
        }
    }
}
