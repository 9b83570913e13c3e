//! Variants of an agent: on another model, with one tool more, or for a step in which it only speaks.

use std::sync::Arc;

use entourage_core::{
    Result,
    context::Instructions,
    provider::ModelSlot,
    tool::{Tool, ToolLayer, Tools, Toolset},
};

use crate::{
    ToolsetExt,
    combined::Combined,
    react::{More, ReactAgent, ToolSource, prepare::joined},
};

impl ReactAgent {
    /// Returns the same agent on another model.
    #[must_use]
    pub fn with_model(&self, model: impl Into<ModelSlot>) -> Self {
        let mut inner = (*self.0).clone();
        inner.model = model.into();
        Self(Arc::new(inner))
    }

    /// Returns the agent's model.
    #[must_use]
    pub fn model(&self) -> &ModelSlot {
        &self.0.model
    }

    /// Returns the instructions with their template, without what a hook adds to each step.
    #[must_use]
    pub fn instructions(&self) -> Instructions {
        let template = self.0.more.as_ref().and_then(|more| more.template.clone());
        Instructions::new(Arc::clone(&self.0.instructions), template)
    }

    /// Returns the current tools.
    #[must_use]
    pub fn tool_set(&self) -> Tools {
        self.tools()
    }

    /// Returns the tools, unless they come from a set that may change.
    #[must_use]
    pub fn fixed_tools(&self) -> Option<&Tools> {
        match &self.0.tools {
            ToolSource::Fixed(tools) => Some(tools),
            ToolSource::Dynamic(_) => None,
        }
    }

    /// Returns the same agent for a run of one step in which it calls no tool. Its requests still carry the tools, so
    /// that the service's prompt cache stays valid.
    #[must_use]
    pub fn speaking(&self) -> Self {
        self.changed(|more| {
            more.limits.steps = 1;
            more.stop_when = Arc::default();
            more.speaks_only = true;
        })
    }

    /// Returns the same agent with one tool more.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](entourage_core::ErrorKind::Config) when one of its fixed tools has that name. In a set
    /// that may change, `tool` shadows any other of its name.
    pub fn with_tool(&self, tool: Arc<dyn Tool>) -> Result<Self> {
        let mut inner = (*self.0).clone();
        inner.tools = match inner.tools {
            ToolSource::Fixed(tools) => ToolSource::Fixed(Tools::new(tools.iter().cloned().chain([tool]))?),
            ToolSource::Dynamic(set) => {
                let own = Arc::new(Tools::new([tool])?);
                ToolSource::Dynamic(Arc::new(Combined::new(vec![own, set])))
            }
        };
        Ok(Self(Arc::new(inner)))
    }

    /// Returns the same agent with a layer around each of its tools.
    #[must_use]
    pub(crate) fn layered(&self, layer: impl ToolLayer + 'static) -> Self {
        let mut inner = (*self.0).clone();
        inner.tools = match inner.tools {
            ToolSource::Fixed(tools) => ToolSource::Fixed(tools.layered(layer)),
            ToolSource::Dynamic(set) => ToolSource::Dynamic(Arc::new(Around { set, layer: Arc::new(layer) })),
        };
        Self(Arc::new(inner))
    }

    /// Returns the same agent with `first` before its own instructions. Records name both templates.
    #[must_use]
    pub fn instructed(&self, first: &Instructions) -> Self {
        let mut inner = (*self.0).clone();
        let (text, template) = joined(first, &self.instructions()).into_parts();
        inner.instructions = text;
        inner.more.get_or_insert_default().template = template;
        Self(Arc::new(inner))
    }

    fn changed(&self, change: impl FnOnce(&mut More)) -> Self {
        let mut inner = (*self.0).clone();
        change(inner.more.get_or_insert_default());
        Self(Arc::new(inner))
    }
}

/// A set that may change, with a layer around each of its tools.
#[derive(Debug)]
struct Around {
    set: Arc<dyn Toolset>,
    layer: Arc<dyn ToolLayer>,
}

impl Toolset for Around {
    fn tools(&self) -> Tools {
        self.set.tools().layered(Arc::clone(&self.layer))
    }
}
