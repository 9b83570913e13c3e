//! Combinators over sets of tools.

use std::{collections::BTreeMap, fmt, sync::Arc};

use async_trait::async_trait;
use entourage_core::{
    Result,
    agent::AgentPart,
    tool::{
        Footprint, Tool, ToolContext, ToolError, ToolInput, ToolLayer, ToolOutput, ToolSpec, Tools, Toolset,
    },
};
use serde_json::Value;

use crate::layered::layered;

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

    /// Puts `layer` around each tool.
    fn layered(self, layer: impl ToolLayer + 'static) -> Tools {
        let (layer, tools): (Arc<dyn ToolLayer>, _) = (Arc::new(layer), self.tools());
        let layered =
            |tool: &Arc<dyn Tool>| Arc::new(layered(Arc::clone(tool), Arc::clone(&layer))) as Arc<dyn Tool>;
        Tools::from_sorted(tools.iter().map(layered).collect::<Vec<_>>().into_iter())
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
struct Renamed {
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

    async fn preview(&self, input: ToolInput, cx: &ToolContext<'_>) -> Option<String> {
        self.inner.preview(input, cx).await
    }

    fn parts(&self) -> Vec<AgentPart> {
        self.inner.parts()
    }

    fn layers(&self) -> &[Arc<dyn ToolLayer>] {
        self.inner.layers()
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
