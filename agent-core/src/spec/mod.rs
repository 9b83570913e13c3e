//! Declarations of a tool: name, schema, access, and repetition after a crash.

mod labels;
pub(crate) mod subject;

pub use labels::Labels;
pub use subject::normal_path;

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;

use crate::{Digest, Error, ErrorKind, Result};

bitflags::bitflags! {
    /// Access of a tool: a set of read, write, execute, network, delegate and ask.
    ///
    /// ```
    /// use entourage_core::tool::Access;
    ///
    /// let access = Access::READ | Access::NETWORK;
    /// assert!(access.contains(Access::READ));
    /// assert!(!Access::READ.contains(access));
    /// assert_eq!(access.to_string(), "read+network");
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Access: u8 {
        /// Reads files or other local state.
        const READ = 1;
        /// Changes files or other local state.
        const WRITE = 2;
        /// Runs programs.
        const EXECUTE = 4;
        /// Talks to other machines.
        const NETWORK = 8;
        /// Starts other agents.
        const DELEGATE = 16;
        /// Asks the user.
        const ASK = 32;
    }
}

impl Access {
    /// No access beyond the call's arguments.
    pub const NONE: Self = Self::empty();
    /// Every access.
    pub const ALL: Self = Self::all();

    /// True if the set is empty or holds only read.
    pub const fn is_read_only(self) -> bool {
        Self::READ.contains(self)
    }

    /// Parses a set from words such as `"read"` or `"read+network"`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a word that is not an access, listing the valid ones.
    pub fn parse(text: &str) -> Result<Self> {
        let mut access = Self::NONE;
        for word in text.split('+').map(str::trim).filter(|word| !word.is_empty() && *word != "none") {
            let known = Self::ALL.iter_names().find(|(name, _)| name.to_lowercase() == word);
            let unknown = || {
                let text = "is not an access; use read, write, execute, network, delegate, ask, joined by +";
                Error::new(ErrorKind::InvalidInput, format!("`{word}` {text}"))
            };
            access |= known.ok_or_else(unknown)?.1;
        }
        Ok(access)
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = self.iter_names().map(|(name, _)| name.to_lowercase());
        f.write_str(names.next().as_deref().unwrap_or("none"))?;
        names.try_for_each(|name| write!(f, "+{name}"))
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Access({self})")
    }
}

impl Serialize for Access {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Access {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// Repetition, on resume, of a call that was started and has no recorded result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Repeat {
    /// The call has no effects; it runs again.
    Safe,
    /// Repeated calls with the same idempotency key have the effect of one; the call runs again.
    Idempotent,
    /// The call runs an agent; the child session that it started is re-entered.
    Resume,
    /// The call is not repeated; the model is told that the outcome is unknown.
    Once,
    /// The result comes from outside, by `Session::answer`: the call is recorded, and the run pauses until then.
    External,
}

/// Declarations of a tool. Cloning shares them.
#[derive(Clone)]
pub struct ToolSpec(Arc<Inner>);

#[derive(Clone, Default)]
struct Inner {
    name: String,
    description: String,
    schema: Value,
    access: Access,
    repeat: Option<Repeat>,
    timeout: Option<std::time::Duration>,
    labels: Option<Labels>,
    declared: Declared,
    reached: Vec<String>,
    digest: OnceLock<Digest>,
}

bitflags::bitflags! {
    /// Declarations of a tool by yes or no.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    struct Declared: u16 {
        const ALONE = 1;
        const NAMES_SUBJECTS = 1 << 1;
        const ANSWER = 1 << 2;
        const CONFINING = 1 << 3;
        const ACCESS_BY_CALL = 1 << 4;
        const CHANGING_FILES = 1 << 5;
        const DEFERRED = 1 << 6;
        const CALLS_DEFERRED = 1 << 7;
        const FINDS_DEFERRED = 1 << 8;
        const OF_RUN = 1 << 9;
    }
}

/// Makes the method that declares a flag, and the one that tells it.
macro_rules! declarations {
    ($($(#[$doc:meta])+ $declare:ident, $is:ident: $flag:ident;)+) => {$(
        $(#[$doc])+
        #[must_use]
        pub fn $declare(self) -> Self {
            self.edit(|inner| inner.declared.insert(Declared::$flag))
        }

        #[doc = concat!("True if the tool has the declaration `ToolSpec::", stringify!($declare), "`.")]
        pub fn $is(&self) -> bool {
            self.0.declared.contains(Declared::$flag)
        }
    )+};
}

impl ToolSpec {
    /// A tool that takes an object described by `schema` (JSON Schema draft 2020-12).
    ///
    /// Without [`ToolSpec::with_access`] it can touch everything: no narrowed scope admits it, its calls run alone, and
    /// a call whose outcome is unknown is not repeated. A pure function declares [`Access::NONE`].
    ///
    /// ```
    /// use entourage_core::tool::{Access, Repeat, ToolSpec};
    /// use serde_json::json;
    ///
    /// let undeclared = ToolSpec::new("add", "Adds numbers.", json!({"type": "object"}));
    /// assert_eq!((undeclared.access(), undeclared.repeat()), (Access::ALL, Repeat::Once));
    /// let pure = undeclared.with_access(Access::NONE);
    /// assert_eq!((pure.access(), pure.repeat()), (Access::NONE, Repeat::Safe));
    /// ```
    pub fn new(name: impl Into<String>, description: impl Into<String>, schema: Value) -> Self {
        Self(Arc::new(Inner {
            name: name.into(),
            description: description.into(),
            schema,
            access: Access::ALL,
            ..Inner::default()
        }))
    }

    fn edit(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        let inner = Arc::make_mut(&mut self.0);
        inner.digest = OnceLock::new();
        change(inner);
        self
    }

    /// Declares its access; [`Access::NONE`] for no access beyond its arguments.
    #[must_use]
    pub fn with_access(self, access: Access) -> Self {
        self.edit(|inner| inner.access = access)
    }

    /// Declares its repetition after a crash.
    #[must_use]
    pub fn with_repeat(self, repeat: Repeat) -> Self {
        self.edit(|inner| inner.repeat = Some(repeat))
    }

    /// Limits the time of one call. Without it the agent's own limit applies.
    #[must_use]
    pub fn with_timeout(self, timeout: std::time::Duration) -> Self {
        self.edit(|inner| inner.timeout = Some(timeout))
    }

    /// Declares the labels of all its results, in place of those that follow from the access of a call: what talks to
    /// other machines brings untrusted text, and what touches files or runs programs private text.
    #[must_use]
    pub fn with_labels(self, labels: Labels) -> Self {
        self.edit(|inner| inner.labels = Some(labels))
    }

    declarations! {
        /// Declares that its calls run alone: earlier calls of a message end first, and later ones wait until it is
        /// done. Without this the footprint of a call decides, see [`Footprint::is_exclusive`].
        alone, is_alone: ALONE;
        /// Declares that [`Tool::footprint`](crate::tool::Tool::footprint) names the paths, hosts and command of each
        /// call.
        ///
        /// A call without subjects then touches nothing, and rules with a subject do not apply to it. Without this
        /// declaration such a call could touch anything.
        naming_subjects, names_subjects: NAMES_SUBJECTS;
        /// Declares that the access in a footprint is all that its call needs. The rules then judge by it, unless the
        /// footprint is unclear; so a command that only reads is no reason to ask. A scope goes by the declared access.
        with_access_by_call, has_access_by_call: ACCESS_BY_CALL;
        /// Declares that the paths which its footprints change are files. A grant for the session then covers the
        /// files in the same directories.
        changing_files, changes_files: CHANGING_FILES;
        /// Declares that its calls are its agent's answers and not work: rules, approvers and layers do not see them.
        #[doc(hidden)]
        answering, is_answer: ANSWER;
        /// Declares that requests carry the tool only to services that [search](crate::provider::Profile::tool_search)
        /// for tools. A model calls it by [another](Self::calling_deferred) or by its name. Its digest stays the same.
        deferred, is_deferred: DEFERRED;
        /// Declares that it finds deferred tools.
        finding_deferred, finds_deferred: FINDS_DEFERRED;
        /// Declares that its calls are those of the deferred tool that the argument `name` names, with the object
        /// `arguments`. Each is resolved before it is checked and judged, so this tool itself never runs.
        calling_deferred, calls_deferred: CALLS_DEFERRED;
        /// Declares that its calls work on the record of their own run, and touch nothing else: a rerun of a session
        /// lets them run.
        #[doc(hidden)]
        of_run, is_of_run: OF_RUN;
    }

    /// Declares that the tool itself keeps each call within the paths and hosts of its run's scope, as a sandbox does,
    /// but for these paths, which every call can reach: a scope that does not hold them all does not admit the tool.
    #[must_use]
    pub fn confining<S: Into<String>>(self, reached: impl IntoIterator<Item = S>) -> Self {
        let reached = reached.into_iter().map(Into::into).collect();
        self.edit(|inner| {
            (inner.reached, inner.declared) = (reached, inner.declared | Declared::CONFINING);
        })
    }

    /// The same tool under another name.
    #[must_use]
    pub fn with_name(self, name: impl Into<String>) -> Self {
        self.edit(|inner| inner.name = name.into())
    }

    /// The same tool with another description.
    #[must_use]
    pub fn with_description(self, description: impl Into<String>) -> Self {
        self.edit(|inner| inner.description = description.into())
    }

    /// The name that the model uses.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Description for the model.
    pub fn description(&self) -> &str {
        &self.0.description
    }

    /// The JSON Schema of its arguments.
    pub fn schema(&self) -> &Value {
        &self.0.schema
    }

    /// Declared access.
    pub fn access(&self) -> Access {
        self.0.access
    }

    /// Repetition after a crash. Without a declaration a read-only tool is [`Repeat::Safe`], any other
    /// [`Repeat::Once`].
    pub fn repeat(&self) -> Repeat {
        self.0.repeat.unwrap_or(if self.access().is_read_only() { Repeat::Safe } else { Repeat::Once })
    }

    /// Limit on the time of one call, if the tool declares one.
    pub fn timeout(&self) -> Option<std::time::Duration> {
        self.0.timeout
    }

    /// Access that a call is judged by: that of its footprint, if the tool declares that this is all.
    pub fn access_of(&self, call: &Footprint) -> Access {
        let rest = if self.has_access_by_call() && !call.unclear { Access::NONE } else { self.access() };
        call.access | rest
    }

    /// Labels that the result of a call has, whatever it adds.
    pub fn labels_of(&self, call: &Footprint) -> Labels {
        let (mut labels, access) = (Labels::empty(), self.access_of(call));
        labels.set(Labels::PRIVATE, access.intersects(Access::READ | Access::WRITE | Access::EXECUTE));
        labels.set(Labels::UNTRUSTED, access.contains(Access::NETWORK));
        self.0.labels.unwrap_or(labels)
    }

    /// True if the tool declares that it keeps its calls within the paths and hosts of a scope.
    pub fn is_confining(&self) -> bool {
        self.0.declared.contains(Declared::CONFINING)
    }

    /// Paths that every call can reach, whatever it names, where the tool confines its calls.
    pub fn reached(&self) -> &[String] {
        &self.0.reached
    }

    /// Digest of name, description, schema and access. A grant is void once it changes.
    pub fn digest(&self) -> Digest {
        *self.0.digest.get_or_init(|| {
            Digest::of([
                self.name().as_bytes(),
                self.description().as_bytes(),
                self.schema().to_string().as_bytes(),
                self.access().to_string().as_bytes(),
            ])
        })
    }
}

impl PartialEq for ToolSpec {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (&*self.0, &*other.0);
        let plain = |it: &Inner| (it.access, it.repeat, it.timeout, it.declared, it.labels);
        let same = || {
            (&a.name, &a.description, &a.schema, &a.reached)
                == (&b.name, &b.description, &b.schema, &b.reached)
        };
        Arc::ptr_eq(&self.0, &other.0) || plain(a) == plain(b) && same()
    }
}

impl fmt::Debug for ToolSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolSpec")
            .field("name", &self.0.name)
            .field("access", &self.0.access)
            .field("repeat", &self.repeat())
            .finish_non_exhaustive()
    }
}

impl Serialize for ToolSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut out = serializer.serialize_struct("ToolSpec", 4)?;
        out.serialize_field("name", self.name())?;
        out.serialize_field("description", self.description())?;
        out.serialize_field("schema", self.schema())?;
        out.serialize_field("access", &self.access())?;
        out.end()
    }
}

/// Access of one call, and the paths, hosts and command that it touches, derived from its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Footprint {
    /// Access that this call needs; at most what the tool declares.
    pub access: Access,
    /// Paths that the call reads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<String>,
    /// Paths that the call changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<String>,
    /// Hosts that the call talks to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Commands that the call runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(alias = "command", deserialize_with = "one_or_several")]
    pub commands: Vec<String>,
    /// True if the call may touch more than is named here, since an argument has no one meaning. Rules with a subject
    /// then deny and ask as for a tool that names no subjects, and none of them is enough to allow the call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unclear: bool,
}

impl Footprint {
    /// A footprint with `access` and without subjects.
    pub fn new(access: Access) -> Self {
        Self { access, ..Self::default() }
    }

    /// Adds a path that is read.
    #[must_use]
    pub fn reading(mut self, path: impl Into<String>) -> Self {
        self.reads.push(path.into());
        self
    }

    /// Adds a path that is changed.
    #[must_use]
    pub fn writing(mut self, path: impl Into<String>) -> Self {
        self.writes.push(path.into());
        self
    }

    /// Adds a host.
    #[must_use]
    pub fn talking_to(mut self, host: impl Into<String>) -> Self {
        self.hosts.push(host.into());
        self
    }

    /// Adds a command.
    #[must_use]
    pub fn running(mut self, command: impl Into<String>) -> Self {
        self.commands.push(command.into());
        self
    }

    /// True if the call must run alone: it changes something, runs a program or asks a person.
    pub fn is_exclusive(&self) -> bool {
        self.access.intersects(Access::WRITE | Access::EXECUTE | Access::ASK)
    }

    /// Subjects that policy patterns are matched against, each by itself: the commands, the paths and the hosts.
    pub fn subjects(&self) -> impl Iterator<Item = &str> {
        self.commands.iter().chain(&self.writes).chain(&self.reads).chain(&self.hosts).map(String::as_str)
    }

    /// Digest of the access and the subjects, in whatever order they were named.
    pub fn digest(&self) -> Digest {
        let access = self.access.to_string();
        let mut named: Vec<(&str, &str)> = self.unclear.then_some(("unclear", "")).into_iter().collect();
        named.extend(self.commands.iter().map(|it| ("command", it.as_str())));
        named.extend(self.reads.iter().map(|it| ("read", it.as_str())));
        named.extend(self.writes.iter().map(|it| ("write", it.as_str())));
        named.extend(self.hosts.iter().map(|it| ("host", it.as_str())));
        named.sort_unstable();
        named.dedup();
        let parts = named.iter().flat_map(|(kind, name)| [kind.as_bytes(), name.as_bytes()]);
        Digest::of(std::iter::once(access.as_bytes()).chain(parts))
    }
}

/// Reads a list, or the one text that older records have.
fn one_or_several<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(one) => Ok(vec![one]),
        other => serde_json::from_value(other).map_err(de::Error::custom),
    }
}
