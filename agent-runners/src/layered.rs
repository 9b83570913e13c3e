//! Tools inside layers.

use std::sync::Arc;

use async_trait::async_trait;
use entourage_core::{
    agent::AgentPart,
    tool::{Footprint, Tool, ToolContext, ToolError, ToolInput, ToolLayer, ToolOutput, ToolSpec},
};
use serde_json::Value;

/// Puts `layer` around a tool. A second layer goes around the first.
pub fn layered(tool: impl Tool + 'static, layer: impl ToolLayer + 'static) -> impl Tool {
    let mut layers: Vec<Arc<dyn ToolLayer>> = vec![Arc::new(layer)];
    layers.extend(tool.layers().iter().map(Arc::clone));
    Layered { tool, layers }
}

struct Layered<T> {
    tool: T,
    layers: Vec<Arc<dyn ToolLayer>>,
}

#[async_trait]
impl<T: Tool> Tool for Layered<T> {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        self.tool.call(input, cx).await
    }

    fn footprint(&self, arguments: &Value) -> Footprint {
        self.tool.footprint(arguments)
    }

    async fn preview(&self, input: ToolInput, cx: &ToolContext<'_>) -> Option<String> {
        self.tool.preview(input, cx).await
    }

    fn parts(&self) -> Vec<AgentPart> {
        self.tool.parts()
    }

    fn layers(&self) -> &[Arc<dyn ToolLayer>] {
        &self.layers
    }
}
