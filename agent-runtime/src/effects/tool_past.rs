//! The record of calls that an earlier life of their run judged, so that layers that are asked once are not
//! asked about them again.

use std::collections::HashMap;

use entourage_core::{
    Result,
    event::{EffectKey, Event},
    message::Arguments,
    run::{RunContext, ToolCalls},
    session::SessionState,
    tool::CallId,
};

use crate::{
    effects::{site::Site, tool_layers::BY_LAYER},
    session::journal::windows::Windows,
};

/// A call that was judged.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// The arguments that were asked about.
    asked: Option<Arguments>,
    /// Those with which it began, unless they were the model's own.
    began_with: Option<Arguments>,
    pub(super) began: bool,
    /// The reason for which a layer allowed it, if one did.
    pub(super) allowed: Option<String>,
    /// The reason for which a layer had it asked about, if one did.
    pub(super) asks: Option<String>,
}

impl Past {
    /// Returns the arguments that the layers left, which an approver may have replaced since; `None` for the model's.
    pub(super) fn arguments(&self) -> Option<&Arguments> {
        self.asked.as_ref().or(self.began_with.as_ref())
    }
}

/// Returns what the record has of the calls of one step, or of one effect of a hand-written agent, by their index.
/// `recorded` is true if the effect has a record.
///
/// # Errors
/// The store's.
pub(super) async fn of_calls(
    site: &Site,
    cx: &RunContext,
    calls: &ToolCalls,
    key: Option<EffectKey>,
    recorded: bool,
) -> Result<HashMap<usize, Past>> {
    let mut pasts = HashMap::new();
    let (session, (seq, first)) = (cx.session(), site.place_of_calls(key));
    let was_judged = match key {
        Some(_) => recorded,
        // A step that begins in this life has no record yet: its reply is the newest event.
        None if site.journal.seq() == seq => false,
        None => calls.calls.iter().any(|call| call.started) || site.read(SessionState::has_asked),
    };
    let Some(store) = site.journal.store.as_ref().filter(|_| was_judged) else { return Ok(pasts) };
    // The question's part of the id of a question is another one.
    let asked: HashMap<_, _> = calls
        .calls
        .iter()
        .map(|call| (place(CallId::new(session, cx.run(), seq, first + call.index).as_str()), call.index))
        .collect();
    let mut windows = Windows::after(store, session, seq);
    while let Some(rows) = windows.next().await? {
        for row in rows {
            if !matches!(&*row.columns().kind, "tool_started" | "approval_requested") {
                continue;
            }
            match row.into_envelope(session)?.event {
                Event::ToolStarted(call) if call.key == key => {
                    let past: &mut Past = pasts.entry(call.index).or_default();
                    past.began = true;
                    past.began_with.clone_from(&call.edited);
                    past.allowed = call.allowed_by.strip_prefix(BY_LAYER).map(str::to_owned);
                }
                Event::ApprovalRequested(question) => {
                    if let Some(index) = asked.get(&place(question.id.call())) {
                        let past: &mut Past = pasts.entry(*index).or_default();
                        past.asked = Some(question.arguments.clone());
                        past.asks = question.rule.strip_prefix(BY_LAYER).map(str::to_owned);
                    }
                }
                _ => {}
            }
        }
    }
    Ok(pasts)
}

/// Returns the part of an id that names a call's place in its session.
fn place(id: &str) -> String {
    id.rsplit_once('-').filter(|(_, rest)| !rest.contains('$')).map_or(id, |(place, _)| place).to_owned()
}
