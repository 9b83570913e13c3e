//! Behaviour around tool calls, and guards on them.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use serde_json::Value;

use super::{Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec};
use crate::{Result, run::RunContext};

/// Behaviour around calls of tools: it may change, refuse or stop a call before it is judged, and wraps its run.
///
/// ```
/// use entourage_core::{Result, run::RunContext, tool::{LayerVerdict, ToolLayer, ToolSpec}};
/// use serde_json::Value;
///
/// /// Keeps personal data out of what tools are given.
/// #[derive(Debug)]
/// struct NoMail;
///
/// #[async_trait::async_trait]
/// impl ToolLayer for NoMail {
///     async fn before(&self, _: &ToolSpec, arguments: &mut Value, _: &RunContext) -> Result<LayerVerdict> {
///         let mail = arguments.to_string().contains('@');
///         Ok(if mail { LayerVerdict::Refuse("leave out addresses of people".to_owned()) } else { LayerVerdict::Pass })
///     }
/// }
/// ```
///
/// # Contract
/// - Layers are asked in their order: those of the runtime, then those of the tool from the outside in.
/// - An error or a panic of [`ToolLayer::before`] refuses the call; the run continues.
/// - A call that waits for an answer, or whose run is resumed, is passed through `before` again, so that must follow
///   from its arguments and from what the context shows, unless the layer is asked [once](ToolLayer::is_once). The
///   context has no effects, as a tool's has none.
/// - `before` has no time limit of its own; a cancel ends it.
/// - The final answer of a typed agent is no call: validators and guards on answers see it.
#[async_trait]
pub trait ToolLayer: Send + Sync + fmt::Debug {
    /// Looks at a call before anything else does. What it leaves in `arguments` is checked against the schema, judged
    /// by the scope, the rules and the approver, shown to the approver, and run. All calls of a step are passed through
    /// before the first of them runs.
    ///
    /// Arguments that an approver gave instead are passed through once more, and must be left as they are.
    async fn before(
        &self,
        _spec: &ToolSpec,
        _arguments: &mut Value,
        _cx: &RunContext,
    ) -> Result<LayerVerdict> {
        Ok(LayerVerdict::Pass)
    }

    /// True if a call that was judged is not passed through `before` again, here and in the other layers of its tool,
    /// when its run is resumed: the record has the arguments that they left, and what allowed it. So `before` need not
    /// follow from its arguments. Arguments of an approver are passed through nevertheless.
    fn is_once(&self) -> bool {
        false
    }

    /// Runs the call by [`NextCall::run`], and does something before or after that. It may change the output, or give
    /// one without a run. It cannot change the arguments. [`ToolOutput::stopping`] and [`ToolError::Fatal`] stop the
    /// run. The time limit of the call covers it. A call whose result comes from outside does not run here.
    async fn around(&self, next: NextCall<'_>) -> Result<ToolOutput, ToolError> {
        next.run().await
    }
}

#[async_trait]
impl<T: ToolLayer + ?Sized> ToolLayer for Arc<T> {
    async fn before(&self, spec: &ToolSpec, arguments: &mut Value, cx: &RunContext) -> Result<LayerVerdict> {
        (**self).before(spec, arguments, cx).await
    }

    fn is_once(&self) -> bool {
        (**self).is_once()
    }

    async fn around(&self, next: NextCall<'_>) -> Result<ToolOutput, ToolError> {
        (**self).around(next).await
    }
}

/// The verdict of a layer on a call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayerVerdict {
    /// The call goes on.
    Pass,
    /// The call goes on, and a rule that asks is answered, for this reason, which the record has. What the scope or a
    /// rule forbids stays forbidden. A later layer that changes the arguments takes it back, unless it allows them too.
    /// On an answer it is a [`LayerVerdict::Pass`].
    Allow(String),
    /// The approver is asked about the call, for this reason, whatever else allows it. On an answer it stops.
    Ask(String),
    /// The call does not run, and the model is told why; the run continues.
    Refuse(String),
    /// The call does not run, and the turn ends.
    Stop(String),
}

/// The rest of a call: the layers below, and the tool.
pub struct NextCall<'a> {
    layers: &'a [&'a dyn ToolLayer],
    tool: &'a dyn Tool,
    input: ToolInput,
    cx: &'a ToolContext<'a>,
}

impl<'a> NextCall<'a> {
    /// Creates a call through `layers`, the outermost first.
    pub fn new(
        layers: &'a [&'a dyn ToolLayer],
        tool: &'a dyn Tool,
        input: ToolInput,
        cx: &'a ToolContext<'a>,
    ) -> Self {
        Self { layers, tool, input, cx }
    }

    /// Returns the tool's declarations.
    pub fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    /// Returns the arguments of the call.
    pub fn arguments(&self) -> &Value {
        &self.input.arguments
    }

    /// Returns the context of the call.
    pub fn context(&self) -> &'a ToolContext<'a> {
        self.cx
    }

    /// Runs the call.
    ///
    /// # Errors
    /// Those of the layers below, and the tool's.
    pub async fn run(self) -> Result<ToolOutput, ToolError> {
        match self.layers.split_first() {
            Some((first, layers)) => first.around(Self { layers, ..self }).await,
            None => self.tool.call(self.input, self.cx).await,
        }
    }
}

impl fmt::Debug for NextCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NextCall").field("tool", &self.spec().name()).finish_non_exhaustive()
    }
}
