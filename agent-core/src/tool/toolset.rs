//! Sets of tools: fixed ones, dynamic ones, and combinators over them.

use std::{collections::BTreeMap, fmt, sync::Arc};

use async_trait::async_trait;
use serde_json::Value;

use super::{Footprint, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec};
use crate::{Error, ErrorKind, Result};

/// A source of tools, asked again before each step, so that the offered tools may change during a run.
pub trait Toolset: Send + Sync + fmt::Debug {
    /// The tools at this moment. Cheap: implementations keep the set and hand out a shared copy.
    fn tools(&self) -> Tools;
}

/// A fixed set of tools, sorted by name, each name once. Cloning shares it.
///
/// ```
/// use entourage_core::tool::{self, Access, Tools, ToolsetExt};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Nothing {}
/// let now = tool::typed("now", "The time.", Access::NONE, |_: Nothing| async { Ok("noon") });
/// let tools = Tools::new([std::sync::Arc::new(now) as _]).unwrap();
/// assert!(tools.get("now").is_some());
/// assert!(tools.prefixed("clock_").unwrap().get("clock_now").is_some());
/// ```
#[derive(Clone)]
pub struct Tools {
    tools: Arc<[Arc<dyn Tool>]>,
    specs: Arc<[ToolSpec]>,
}

impl Tools {
    /// A set of the given tools.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when two have the same name, or a name is not 1 to 64 letters, digits, `_` and `-`:
    /// services refuse others.
    pub fn new(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Result<Self> {
        let mut sorted: BTreeMap<String, Arc<dyn Tool>> = BTreeMap::new();
        for tool in tools {
            let name = tool.spec().name().to_owned();
            let safe = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if name.is_empty() || name.len() > 64 || !name.chars().all(safe) {
                return Err(Error::new(
                    ErrorKind::Config,
                    format!("`{name}` cannot name a tool; use 1 to 64 letters, digits, _ and -"),
                ));
            }
            if sorted.insert(name.clone(), tool).is_some() {
                return Err(Error::new(
                    ErrorKind::Config,
                    format!(
                        "two tools are named `{name}`; give one of them another name (`AgentTool::named` for an agent), \
                         or prefix one of the sets"
                    ),
                ));
            }
        }
        Ok(Self::from_sorted(sorted.into_values()))
    }

    fn from_sorted(tools: impl Iterator<Item = Arc<dyn Tool>>) -> Self {
        let tools: Arc<[_]> = tools.collect();
        let specs = tools.iter().map(|tool| tool.spec().clone()).collect();
        Self { tools, specs }
    }

    /// The empty set.
    #[must_use]
    pub fn none() -> Self {
        Self { tools: Arc::default(), specs: Arc::default() }
    }

    /// The tool with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        let place = self.tools.binary_search_by(|tool| tool.spec().name().cmp(name)).ok()?;
        self.tools.get(place)
    }

    /// The tools, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        self.tools.iter()
    }

    /// Declarations of the tools, sorted by name, as a request carries them.
    #[must_use]
    pub fn specs(&self) -> &Arc<[ToolSpec]> {
        &self.specs
    }

    /// True if there are no tools.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The tools whose spec passes `keep`.
    #[must_use]
    pub fn keep(&self, keep: impl Fn(&ToolSpec) -> bool) -> Self {
        Self::from_sorted(self.tools.iter().filter(|tool| keep(tool.spec())).cloned())
    }
}

impl fmt::Debug for Tools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.specs.iter().map(ToolSpec::name)).finish()
    }
}

impl Toolset for Tools {
    fn tools(&self) -> Tools {
        self.clone()
    }
}

impl<T: Toolset + ?Sized> Toolset for Arc<T> {
    fn tools(&self) -> Tools {
        (**self).tools()
    }
}

/// Combinators over [`Toolset`], implemented for every set. Not meant to be implemented elsewhere.
pub trait ToolsetExt: Toolset + Sized {
    /// Only the tools whose spec passes `keep`.
    fn filtered<F: Fn(&ToolSpec) -> bool + Send + Sync>(self, keep: F) -> Filtered<Self, F> {
        Filtered { inner: self, keep }
    }

    /// Puts `prefix` before each name, so that two sets cannot shadow each other.
    ///
    /// # Errors
    /// As [`Tools::new`], when a name becomes too long.
    fn prefixed(self, prefix: &str) -> Result<Tools> {
        Renamed::rename_all(&self, |name| format!("{prefix}{name}"))
    }

    /// Gives one tool another name.
    ///
    /// # Errors
    /// As [`Tools::new`], when the new name is taken or not a valid name.
    fn renamed(self, from: &str, to: &str) -> Result<Tools> {
        Renamed::rename_all(&self, |name| if name == from { to.to_owned() } else { name.to_owned() })
    }
}

impl<T: Toolset> ToolsetExt for T {}

/// A set without the tools that a predicate refuses. Made by [`ToolsetExt::filtered`].
pub struct Filtered<T, F> {
    inner: T,
    keep: F,
}

impl<T: fmt::Debug, F> fmt::Debug for Filtered<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filtered").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<T: Toolset, F: Fn(&ToolSpec) -> bool + Send + Sync> Toolset for Filtered<T, F> {
    fn tools(&self) -> Tools {
        self.inner.tools().keep(&self.keep)
    }
}

/// A tool under another name.
pub struct Renamed {
    inner: Arc<dyn Tool>,
    spec: ToolSpec,
}

impl Renamed {
    fn rename_all(set: &impl Toolset, name: impl Fn(&str) -> String) -> Result<Tools> {
        Tools::new(set.tools().iter().map(|tool| {
            let spec = tool.spec().clone().with_name(name(tool.spec().name()));
            Arc::new(Self { inner: Arc::clone(tool), spec }) as Arc<dyn Tool>
        }))
    }
}

impl fmt::Debug for Renamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renamed")
            .field("from", &self.inner.spec().name())
            .field("to", &self.spec.name())
            .finish()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Tool for Renamed {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        self.inner.call(input, cx).await
    }

    fn footprint(&self, arguments: &Value) -> Footprint {
        self.inner.footprint(arguments)
    }
}

/// Union of several sets. If two hold the same name, the earlier set's tool wins, so a later set cannot shadow it.
#[derive(Debug)]
pub struct Combined(Vec<Arc<dyn Toolset>>);

impl Combined {
    /// The union of `sets`.
    #[must_use]
    pub fn new(sets: Vec<Arc<dyn Toolset>>) -> Self {
        Self(sets)
    }
}

impl Toolset for Combined {
    fn tools(&self) -> Tools {
        let mut sorted: BTreeMap<String, Arc<dyn Tool>> = BTreeMap::new();
        for tool in self.0.iter().flat_map(|set| set.tools().iter().cloned().collect::<Vec<_>>()) {
            sorted.entry(tool.spec().name().to_owned()).or_insert(tool);
        }
        Tools::from_sorted(sorted.into_values())
    }
}
