//! The layers around tools: a call is passed through them before it is judged, and runs inside them.

use std::sync::{Arc, OnceLock};

use entourage_core::{
    message::Arguments,
    run::RunContext,
    tool::{LayerVerdict, NextCall, Tool, ToolContext, ToolError, ToolInput, ToolLayer, ToolOutput},
};
use serde_json::Value;

use crate::{
    Caught,
    effects::{site::Site, tool_check::check_arguments},
    schema,
};

/// Reason that a call does not run.
pub(super) struct Held {
    pub(super) text: String,
    /// True if the turn ends.
    pub(super) stops: bool,
}

impl Held {
    fn refused(text: String) -> Self {
        Self { text, stops: false }
    }
}

/// Returns the layers around a tool, the outermost first.
fn layers<'a>(site: &'a Site, tool: &'a Arc<dyn Tool>) -> Vec<&'a dyn ToolLayer> {
    site.env.tool_layers.iter().chain(tool.layers()).map(|layer| &**layer).collect()
}

/// True if a tool has layers.
pub(super) fn has_layers(site: &Site, tool: &Arc<dyn Tool>) -> bool {
    !tool.spec().is_answer() && (!site.env.tool_layers.is_empty() || !tool.layers().is_empty())
}

/// Passes a call through the layers of its tool. Returns the arguments that they gave it, if they changed them.
///
/// # Errors
/// The reason that it does not run.
pub(super) async fn pass(
    site: &Site,
    cx: &RunContext,
    tool: &Arc<dyn Tool>,
    arguments: &mut Value,
) -> Result<Option<Arguments>, Held> {
    let before = arguments.clone();
    // A model that a layer asked here would be asked again by a resumed run, whose next effect is another one.
    let cx = &cx.of_call();
    for layer in layers(site, tool) {
        let gate = match Caught::new(|| layer.before(tool.spec(), arguments, cx)).await {
            Ok(Ok(gate)) => gate,
            Ok(Err(error)) => LayerVerdict::Refuse(format!("a layer failed: {error}")),
            Err(panic) => LayerVerdict::Refuse(format!("a layer panicked: {panic}")),
        };
        match gate {
            LayerVerdict::Pass => {}
            LayerVerdict::Refuse(reason) => return Err(Held::refused(format!("not run: {reason}"))),
            LayerVerdict::Stop(reason) => {
                return Err(Held { text: format!("not run: {reason}"), stops: true });
            }
            _ => {
                return Err(Held::refused(
                    "not run: a layer gave a verdict that is not known here".to_owned(),
                ));
            }
        }
    }
    schema::whole_numbers(tool.spec().schema(), arguments);
    if *arguments == before {
        return Ok(None);
    }
    let checked = Arguments::parse(arguments.to_string()).map_err(|error| error.message().to_owned());
    let checked = checked.and_then(|changed| check_arguments(tool.spec(), arguments).map(|()| changed));
    checked
        .map(Some)
        .map_err(|problem| Held::refused(format!("not run: a layer changed its arguments, and {problem}")))
}

/// Passes the arguments that an approver gave a call through the layers of its tool.
///
/// # Errors
/// The reason that it does not run: one that the layers would change does not.
async fn pass_edited(
    site: &Site,
    cx: &RunContext,
    tool: &Arc<dyn Tool>,
    arguments: &Value,
) -> Result<(), Held> {
    match pass(site, cx, tool, &mut arguments.clone()).await? {
        None => Ok(()),
        Some(_) => Err(Held::refused(
            "not run: a layer would change the arguments that the approver gave it".to_owned(),
        )),
    }
}

/// Runs a call inside the layers of its tool. Arguments of an approver are passed through the layers first; what
/// `by_approver` is set to then is the reason that it did not run.
pub(super) async fn run(
    site: &Site,
    tool: &Arc<dyn Tool>,
    input: ToolInput,
    cx: &ToolContext<'_>,
    by_approver: Option<&OnceLock<Held>>,
) -> Result<ToolOutput, ToolError> {
    if let Some(held) = by_approver
        && let Err(reason) = pass_edited(site, cx.run(), tool, &input.arguments).await
    {
        drop(held.set(reason));
        return Ok(ToolOutput::default());
    }
    let layers = layers(site, tool);
    NextCall::new(&layers, &**tool, input, cx).run().await
}
