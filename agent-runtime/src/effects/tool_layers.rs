//! The layers around tools: a call is passed through them before it is judged, and runs inside them.

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU8, Ordering},
    },
};

use async_trait::async_trait;
use entourage_core::{
    Result, bound,
    event::EffectKey,
    message::Arguments,
    run::{RunContext, ToolCalls},
    session::SessionState,
    tool::{LayerVerdict, NextCall, Tool, ToolContext, ToolError, ToolInput, ToolLayer, ToolOutput},
};
use serde_json::Value;

use crate::{
    Caught,
    effects::{
        site::Site,
        tool_check::{check_arguments, read_arguments},
        tool_judge::{Checked, Open},
        tool_past::{self, Past},
    },
    schema,
};

/// The beginning of the recorded reason of a layer that allowed a call, or had it asked about.
pub(super) const BY_LAYER: &str = "layer: ";

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

/// True if one of a tool's layers is asked once.
fn is_once(site: &Site, tool: &Arc<dyn Tool>) -> bool {
    layers(site, tool).iter().any(|layer| layer.is_once())
}

/// A call that goes on, as the layers left it.
#[derive(Debug, Default)]
struct Passed {
    /// The arguments that they gave it, if they changed them.
    changed: Option<Arguments>,
    /// The reason for which the last of them allowed it, and no later one changed it.
    allowed: Option<String>,
    /// The reason for which the first of them wants it to be asked about.
    asks: Option<String>,
}

/// True if one of the calls has layers to pass, or may have been asked about for one.
pub(super) fn needs_pass(site: &Site, slots: &[Option<Checked<'_>>]) -> bool {
    site.read(SessionState::has_asked)
        || slots.iter().any(|slot| matches!(slot, Some(Checked::Open(open)) if has_layers(site, open.tool)))
}

/// Passes the calls of one step, or of one effect of a hand-written agent, through the layers of their tools. Those
/// that an earlier life of the run judged get what the record has, if a layer of theirs is asked once.
///
/// # Errors
/// The store's, when the record cannot be read.
pub(super) async fn pass_all(
    site: &Site,
    cx: &RunContext,
    (calls, recorded): (&ToolCalls, bool),
    key: Option<EffectKey>,
    slots: &mut [Option<Checked<'_>>],
) -> Result<()> {
    let layers_of = |slot: &Option<Checked<'_>>| match slot {
        Some(Checked::Open(open)) if has_layers(site, open.tool) => Some(is_once(site, open.tool)),
        _ => None,
    };
    let is_once = slots.iter().any(|slot| layers_of(slot) == Some(true));
    let mut pasts = match is_once || site.read(SessionState::has_asked) {
        true => tool_past::of_calls(site, cx, calls, key, recorded).await?,
        false => HashMap::new(),
    };
    let (seq, first) = site.place_of_calls(key);
    for (slot, call) in slots.iter_mut().zip(&calls.calls) {
        let once = layers_of(slot);
        let Some(Checked::Open(open)) = slot else { continue };
        let past = pasts.remove(&call.index);
        // A question that a layer wanted stays one, whatever layers there are by now.
        let asked = past.as_ref().and_then(|past| past.asks.clone());
        let Some(once) = once else {
            open.asks = asked;
            continue;
        };
        let passed = match past.filter(|_| once) {
            Some(past) => recall(open, past).map_err(Held::refused),
            None => pass(site, &cx.of_call((seq, first + call.index)), open.tool, &mut open.arguments).await,
        };
        match passed {
            Ok(Passed { changed, allowed, asks }) => {
                (open.changed, open.allowed, open.asks) = (changed, allowed, asks.or(asked));
            }
            Err(Held { text, stops }) => {
                *slot = Some(Checked::Settled { call: open.call, text, denied: stops });
            }
        }
    }
    Ok(())
}

/// Gives a call what the record has of it.
///
/// # Errors
/// The text for the model when its tool takes such arguments no longer.
fn recall(open: &mut Open<'_>, past: Past) -> Result<Passed, String> {
    open.began = past.began;
    let changed = past.arguments().filter(|arguments| **arguments != open.call.arguments).cloned();
    if let Some(changed) = &changed {
        open.arguments = read_arguments(open.tool.spec(), changed);
        // One that was started has passed the check, perhaps that of an older version.
        if !past.began {
            check_arguments(open.tool.spec(), &open.arguments)?;
        }
    }
    Ok(Passed { changed, allowed: past.allowed, asks: past.asks })
}

/// Passes a call through the layers of its tool, by its own context: a model that a layer asked by the run's would be
/// asked again by a resumed run, whose next effect is another one.
///
/// # Errors
/// The reason that it does not run.
async fn pass(
    site: &Site,
    cx: &RunContext,
    tool: &Arc<dyn Tool>,
    arguments: &mut Value,
) -> Result<Passed, Held> {
    let before = arguments.clone();
    let mut allowed: Option<(String, Value)> = None;
    let mut asks: Option<String> = None;
    for layer in layers(site, tool) {
        let gate = match Caught::new(|| layer.before(tool.spec(), arguments, cx)).await {
            Ok(Ok(gate)) => gate,
            Ok(Err(error)) => LayerVerdict::Refuse(format!("a layer failed: {error}")),
            Err(panic) => LayerVerdict::Refuse(format!("a layer panicked: {panic}")),
        };
        match gate {
            LayerVerdict::Pass => {}
            LayerVerdict::Allow(reason) => allowed = Some((reason, arguments.clone())),
            LayerVerdict::Ask(reason) => asks = asks.or(Some(reason)),
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
        // What was allowed is the call as it was then.
        allowed = allowed.filter(|(_, covered)| covered == arguments);
    }
    let short = |reason: String| bound::shortened(&reason, bound::WORD).into_owned();
    let allowed = allowed.map(|(reason, _)| short(reason));
    let asks = asks.map(short);
    schema::whole_numbers(tool.spec().schema(), arguments);
    if *arguments == before {
        return Ok(Passed { changed: None, allowed, asks });
    }
    let checked = Arguments::parse(arguments.to_string()).map_err(|error| error.message().to_owned());
    let checked = checked.and_then(|changed| check_arguments(tool.spec(), arguments).map(|()| changed));
    checked
        .map(|changed| Passed { changed: Some(changed), allowed, asks })
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
    match pass(site, cx, tool, &mut arguments.clone()).await?.changed {
        None => Ok(()),
        Some(_) => Err(Held::refused(
            "not run: a layer would change the arguments that the approver gave it".to_owned(),
        )),
    }
}

/// Runs a call inside the layers of its tool. Arguments of an approver are passed through the layers first; what
/// `by_approver` is set to then is the reason that it did not run. The labels of all that the layers were shown are
/// added to `read`: what they make of it has them too.
pub(super) async fn run(
    site: &Site,
    tool: &Arc<dyn Tool>,
    input: ToolInput,
    cx: &ToolContext<'_>,
    by_approver: Option<&OnceLock<Held>>,
    read: &AtomicU8,
) -> Result<ToolOutput, ToolError> {
    if let Some(held) = by_approver
        && let Err(reason) = pass_edited(site, cx.run(), tool, &input.arguments).await
    {
        drop(held.set(reason));
        return Ok(ToolOutput::default());
    }
    let shown = Shown(read);
    let layers: Vec<_> = layers(site, tool).into_iter().flat_map(|layer| [layer, &shown]).collect();
    NextCall::new(&layers, &**tool, input, cx).run().await
}

/// Collects the labels of what the layers around it are shown.
#[derive(Debug)]
struct Shown<'a>(&'a AtomicU8);

#[async_trait]
impl ToolLayer for Shown<'_> {
    async fn around(&self, next: NextCall<'_>) -> Result<ToolOutput, ToolError> {
        let output = next.run().await?;
        self.0.fetch_or(output.labels.bits(), Ordering::Relaxed);
        Ok(output)
    }
}
