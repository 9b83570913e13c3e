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

use crate::{deferred::Deferred, layered::layered};

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
        Redeclared::rename_all(&self, |name| format!("{prefix}{name}"))
    }

    /// Puts `layer` around each tool.
    fn layered(self, layer: impl ToolLayer + 'static) -> Tools {
        let (layer, tools): (Arc<dyn ToolLayer>, _) = (Arc::new(layer), self.tools());
        let layered =
            |tool: &Arc<dyn Tool>| Arc::new(layered(Arc::clone(tool), Arc::clone(&layer))) as Arc<dyn Tool>;
        Tools::from_sorted(tools.iter().map(layered).collect::<Vec<_>>().into_iter())
    }

    /// Keeps the tools out of requests: for sets of so many that their declarations would fill the window.
    ///
    /// A service that [searches](entourage_core::provider::Profile::tool_search) such tools itself gets them, marked
    /// so, and loads those that it found. Any other model gets two tools in their place. Their declarations never
    /// change, so the beginning of each request stays in the service's prompt cache, whatever the set does.
    /// `find_tools` takes a `query` and a `limit` (5 by default, at most 20), and returns name, description and schema
    /// of the tools that fit best. `use_tool` takes the `name` of a tool and its `arguments`. That call, and one of the
    /// tool by its own name, is a call of the real tool for all that checks, judges, schedules, repeats, records and
    /// shows it. Only the conversation keeps what the model wrote.
    ///
    /// A tool that the scope never admits is not found. A scope that names tools must name these two as well, or the
    /// model is not offered them. A search is judged as a call of `find_tools`; `use_tool` itself is never judged. One
    /// search covers all deferred sets that are [combined](Combined). A tool of the set that has one of the two names
    /// is left out. Put a prefix [before](Self::prefixed) this, since the two tools name each other.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// use entourage_core::tool::{Access, Tools};
    /// use entourage_runners::{ReactAgent, ToolsetExt, from_fn::typed};
    /// use entourage_runtime::AgentExt;
    /// use entourage_testkit::ScriptedProvider;
    /// use serde_json::json;
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Issue {
    ///     title: String,
    /// }
    /// let tool = |n: u32| {
    ///     let about = format!("Creates an issue in tracker {n}.");
    ///     let create = |issue: Issue| async move { Ok(format!("created: {}", issue.title)) };
    ///     std::sync::Arc::new(typed(format!("tracker{n}_create_issue"), about, Access::NONE, create)) as _
    /// };
    /// let many = Tools::new((0..500).map(tool))?;
    ///
    /// let call = json!({"name": "tracker7_create_issue", "arguments": {"title": "It rains in"}});
    /// let provider = ScriptedProvider::new()
    ///     .call("find_tools", json!({"query": "tracker 7: new issue"}))
    ///     .call("use_tool", call)
    ///     .text("Done.");
    /// let agent = ReactAgent::builder("clerk", provider.model()).toolset(many.deferred()).build()?;
    /// assert_eq!(agent.ask("Report the roof").await?, "Done.");
    ///
    /// let requests = provider.requests();
    /// let names: Vec<_> = requests[0].tools.iter().map(|tool| tool.name()).collect();
    /// assert_eq!(names, ["find_tools", "use_tool"]);
    /// let answered = requests[2].messages.iter().last().unwrap().tool_results().next().unwrap().to_text();
    /// assert_eq!(answered, "created: It rains in");
    /// # Ok::<_, entourage_core::Error>(())
    /// # }).unwrap();
    /// ```
    fn deferred(self) -> Deferred<Self> {
        Deferred::new(self)
    }

    /// Gives one tool another name.
    ///
    /// # Errors
    /// As [`Tools::new`], when the new name is taken or not a valid name.
    fn renamed(self, from: &str, to: &str) -> Result<Tools> {
        Redeclared::rename_all(&self, |name| if name == from { to.to_owned() } else { name.to_owned() })
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

/// A tool with other declarations.
pub(crate) struct Redeclared {
    inner: Arc<dyn Tool>,
    spec: ToolSpec,
}

impl Redeclared {
    pub(crate) fn new(inner: Arc<dyn Tool>, spec: ToolSpec) -> Self {
        Self { inner, spec }
    }

    fn rename_all(set: &impl Toolset, name: impl Fn(&str) -> String) -> Result<Tools> {
        Tools::new(set.tools().iter().map(|tool| {
            let spec = tool.spec().clone().with_name(name(tool.spec().name()));
            Arc::new(Self::new(Arc::clone(tool), spec)) as Arc<dyn Tool>
        }))
    }
}

impl fmt::Debug for Redeclared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redeclared")
            .field("from", &self.inner.spec().name())
            .field("to", &self.spec.name())
            .finish()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Tool for Redeclared {
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
