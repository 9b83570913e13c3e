//! Sets of tools, fixed and dynamic.

use std::{collections::BTreeMap, fmt, sync::Arc};

use super::{Tool, ToolSpec};
use crate::{Error, ErrorKind, Result, provider::Profile};

/// A source of tools, asked again before each step, so that the offered tools may change during a run.
pub trait Toolset: Send + Sync + fmt::Debug {
    /// The tools at this moment. Cheap: implementations keep the set and hand out a shared copy.
    fn tools(&self) -> Tools;
}

/// A fixed set of tools, sorted by name, each name once. Cloning shares it.
///
/// ```
/// use entourage_core::tool::{Access, Tools};
/// use entourage_runners::{ToolsetExt, from_fn::typed};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Nothing {}
/// let now = typed("now", "The time.", Access::NONE, |_: Nothing| async { Ok("noon") });
/// let tools = Tools::new([std::sync::Arc::new(now) as _]).unwrap();
/// assert!(tools.get("now").is_some());
/// assert!(tools.prefixed("clock_").unwrap().get("clock_now").is_some());
/// ```
#[derive(Clone)]
pub struct Tools(Arc<Sorted>);

struct Sorted {
    tools: Vec<Arc<dyn Tool>>,
    specs: Arc<[ToolSpec]>,
    all: Arc<[ToolSpec]>,
}

impl Tools {
    /// A set of the given tools.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when two have the same name, or a name is not 1 to 64 letters, digits, `_` and `-`:
    /// services refuse others.
    pub fn new(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Result<Self> {
        let mut sorted: BTreeMap<String, Arc<dyn Tool>> = BTreeMap::new();
        let wrong = |text| Err(Error::new(ErrorKind::Config, text));
        for tool in tools {
            let name = tool.spec().name().to_owned();
            let safe = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if name.is_empty() || name.len() > 64 || !name.chars().all(safe) {
                return wrong(format!("`{name}` cannot name a tool; use 1 to 64 letters, digits, _ and -"));
            }
            if sorted.insert(name.clone(), tool).is_some() {
                return wrong(format!(
                    "two tools are named `{name}`; give one of them another name (`AgentTool::with_name` for an agent), \
                     or prefix one of the sets"
                ));
            }
        }
        Ok(Self::from_sorted(sorted.into_values()))
    }

    /// Creates a set of tools that come sorted by their names, each name once.
    pub fn from_sorted(tools: impl Iterator<Item = Arc<dyn Tool>>) -> Self {
        let tools: Vec<_> = tools.collect();
        let which = |keep: fn(&ToolSpec) -> bool| -> Arc<[_]> {
            tools.iter().map(|tool| tool.spec()).filter(|spec| keep(spec)).cloned().collect()
        };
        let specs = which(|spec| !spec.is_deferred());
        let all = which(|_| true);
        Self(Arc::new(Sorted { tools, specs, all }))
    }

    /// The empty set.
    #[must_use]
    pub fn none() -> Self {
        static NONE: std::sync::LazyLock<Tools> =
            std::sync::LazyLock::new(|| Tools::from_sorted([].into_iter()));
        NONE.clone()
    }

    /// The tool with this name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.0.tools.get(self.0.tools.binary_search_by(|tool| tool.spec().name().cmp(name)).ok()?)
    }

    /// The tools, deferred ones too, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        self.0.tools.iter()
    }

    /// Declarations of the tools that are not deferred, sorted by name, as most requests carry them.
    pub fn specs(&self) -> &Arc<[ToolSpec]> {
        &self.0.specs
    }

    /// Declarations for a request to a model, sorted by name: with the deferred tools where its service
    /// [searches](Profile::tool_search) them.
    pub fn specs_for(&self, model: &Profile) -> &Arc<[ToolSpec]> {
        if model.tool_search == Some(true) { &self.0.all } else { &self.0.specs }
    }

    /// True if both are one set, of which one is a clone.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// True if there are no tools.
    pub fn is_empty(&self) -> bool {
        self.0.tools.is_empty()
    }

    /// The tools whose spec passes `keep`.
    #[must_use]
    pub fn keep(&self, keep: impl Fn(&ToolSpec) -> bool) -> Self {
        Self::from_sorted(self.iter().filter(|tool| keep(tool.spec())).cloned())
    }
}

impl fmt::Debug for Tools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|tool| tool.spec().name())).finish()
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
