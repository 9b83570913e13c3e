//! The questions of a step to its approver. All of them are asked together, before the first call runs.

use std::{collections::HashMap, future::Future, pin::Pin, sync::Arc, time::Duration};

use entourage_core::{
    Error, ErrorKind, Result, bound,
    event::{ApprovalDecided, Event},
    permission::{ApprovalId, ApprovalRequest, Decision},
    run::{Pause, RunContext},
    tool::{ToolContext, ToolInput},
};
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::sync::oneshot;

use crate::{
    Caught,
    effects::{
        site::Site,
        tool_judge::Open,
        tool_run::{Decided, Done, Ready, Running},
    },
    env::Env,
};

/// The questions that are being asked. Most steps have none, and then no queue.
type Asking<'a> = FuturesUnordered<Pin<Box<dyn Future<Output = bool> + Send + 'a>>>;

/// The questions of one step, asked or answered.
#[derive(Default)]
pub(super) struct Questions<'a> {
    /// Each gives true if the answer ends the turn.
    asking: Option<Asking<'a>>,
    /// The answers, by question, to come or there; each is taken by its call once that is about to start.
    answers: HashMap<ApprovalId, oneshot::Receiver<Decision>>,
}

impl<'a> Questions<'a> {
    /// Asks a question and records it, unless one about its call was asked and not taken up, or it has an answer. A
    /// deadline that has passed is one. An answer that puts nothing off is recorded when it comes.
    pub(super) fn ask(&mut self, site: &'a Site, request: &ApprovalRequest) {
        if self.is_asking(&request.id) {
            return;
        }
        let now = site.now();
        let answer = site.read(|state| state.approval(&request.id, request.digest));
        if let Some(answer) = answer.map(|answer| answer.at(now)).filter(|answer| !answer.is_open()) {
            let by = Some("deadline".into());
            let decided = ApprovalDecided::new(request.id.clone(), answer.clone(), request.digest, by, None);
            site.note(Event::ApprovalDecided(Arc::new(decided)));
            return self.answered(request, answer);
        }
        site.note(Event::ApprovalRequested(Arc::new(request.clone())));
        let (told, answer) = oneshot::channel();
        self.answers.insert(request.id.clone(), answer);
        let request = request.clone();
        self.asking.get_or_insert_default().push(Box::pin(async move {
            let decision = decide(site, &request).await;
            let ends = matches!(decision, Decision::Deny | Decision::Refuse { go_on: false, .. });
            // The call may have ended without its answer.
            told.send(decision).ok();
            ends
        }));
    }

    /// Adds a question that has its answer already.
    fn answered(&mut self, request: &ApprovalRequest, decision: Decision) {
        let (told, answer) = oneshot::channel();
        told.send(decision).ok();
        self.answers.insert(request.id.clone(), answer);
    }

    /// Returns the future of a call that waits for its answer.
    pub(super) fn wait<'c>(
        &mut self,
        place: usize,
        ready: Ready<'c>,
        mut request: Box<ApprovalRequest>,
    ) -> Running<'c> {
        if let Some(asked) = self.about(&request.id) {
            request.id = asked.clone();
        }
        let answer = self.answers.remove(&request.id);
        Box::pin(async move {
            let decision = match answer {
                Some(answer) => answer.await.unwrap_or(Decision::Later),
                None => Decision::Later,
            };
            (place, Done::Decided(Box::new(Decided { ready, request, decision })))
        })
    }

    /// True if a question about the same call was asked, and the call has not taken its answer.
    pub(super) fn is_asking(&self, id: &ApprovalId) -> bool {
        self.about(id).is_some()
    }

    /// Returns the question that was asked about the call of this one: itself, or one of before the call changed.
    fn about(&self, id: &ApprovalId) -> Option<&ApprovalId> {
        let asked = self.answers.get_key_value(id).map(|(asked, _)| asked);
        asked.or_else(|| self.answers.keys().find(|asked| asked.call() == id.call()))
    }

    /// True when no question is being asked.
    pub(super) fn is_empty(&self) -> bool {
        self.asking.as_ref().is_none_or(FuturesUnordered::is_empty)
    }

    /// Asks about all calls before the answer to one of them can pause the run. After a refusal that ends the turn, no
    /// further question is asked.
    pub(super) fn begin(&mut self) {
        let Some(asking) = &mut self.asking else { return };
        while asking.next().now_or_never() == Some(Some(false)) {}
    }

    /// Waits until a question is answered.
    pub(super) async fn next(&mut self) {
        if let Some(asking) = &mut self.asking {
            asking.next().await;
        }
    }
}

/// Returns the pause with the first deadline of all open questions, if it waits for an answer: the run goes on by
/// itself at that time.
pub(super) fn soonest(site: &Site, pause: Pause) -> Pause {
    if pause.approval().is_none() {
        return pause;
    }
    let first = site.read(|state| {
        let deadlines = state.questions().iter().filter_map(|question| {
            let request = &question.request;
            match state.approval(&request.id, request.digest) {
                Some(Decision::Until { at, .. }) => Some((at, request.id.clone())),
                _ => None,
            }
        });
        deadlines.min_by_key(|(at, _)| *at)
    });
    first.map_or(pause, |(until, approval)| Pause::Deadline { approval, until })
}

/// Asks the approver, and records the answer unless it puts the question off for good. An error or a panic is a
/// refusal; without an approver the decision is `Later`.
async fn decide(site: &Site, request: &ApprovalRequest) -> Decision {
    let Some(approver) = &site.env.approver else { return Decision::Later };
    let stopped = site.stop_clocks();
    let decided = Caught::new(|| approver.decide(request)).await;
    drop(stopped);
    let (decision, failure) = match decided {
        Ok(Ok(decision)) => (shortened(decision), None),
        Ok(Err(error)) => (Decision::Deny, Some(error.to_string())),
        Err(panic) => (Decision::Deny, Some(format!("the approver panicked: {panic}"))),
    };
    let by = crate::caught(|| approver.name()).ok().flatten();
    let (decision, failure) = match decision {
        Decision::AllowAlways => match keep(&site.env, request, by.as_deref()).await {
            Ok(()) => (decision, failure),
            // The call is allowed all the same: what cannot be kept holds for this session.
            Err(error) => (Decision::AllowSession, Some(error.to_string())),
        },
        decision => (decision, failure),
    };
    if decision != Decision::Later {
        let failure = failure.map(Into::into);
        let answer = ApprovalDecided::new(request.id.clone(), decision.clone(), request.digest, by, failure);
        site.note(Event::ApprovalDecided(Arc::new(answer)));
    }
    decision
}

/// Time for a tool to say what a call would do.
const PREVIEW: Duration = Duration::from_secs(5);

/// Adds to a question what its call would do.
pub(super) async fn previewed(
    site: &Site,
    cx: &RunContext,
    open: &Open<'_>,
    request: ApprovalRequest,
    place: (u64, usize),
) -> ApprovalRequest {
    let (spec, footprint) = (open.tool.spec(), request.footprint.clone());
    let context =
        ToolContext::new(cx, &site.env.policy, &open.call.id, spec, footprint, place).before_approval();
    let preview = Caught::new(|| open.tool.preview(ToolInput::new(open.arguments.clone()), &context));
    let text = tokio::select! {
        biased;
        () = cx.cancellation().cancelled() => None,
        preview = tokio::time::timeout(PREVIEW, preview) => preview.ok().and_then(Result::ok).flatten(),
    };
    request.with_preview(text.map(|text| bound::shortened(&text, LONGEST).into_owned()))
}

/// Most bytes of a preview, and of a reason or a question back, that the model is told.
pub(crate) const LONGEST: usize = 64 << 10;

/// Returns the text of a decision for the model, if it has one.
pub(crate) fn told(decision: &Decision) -> Option<&str> {
    match decision {
        Decision::Refuse { reason: text, .. } | Decision::Ask(text) => Some(text),
        _ => None,
    }
}

/// Returns an approver's decision with a text of at most [`LONGEST`] bytes.
fn shortened(decision: Decision) -> Decision {
    if told(&decision).is_none_or(|text| text.len() <= LONGEST) {
        return decision;
    }
    match decision {
        Decision::Refuse { reason, go_on } => {
            Decision::Refuse { reason: bound::shortened(&reason, LONGEST).into_owned(), go_on }
        }
        Decision::Ask(text) => Decision::Ask(bound::shortened(&text, LONGEST).into_owned()),
        other => other,
    }
}

/// Text of an answer that nothing keeps.
pub(crate) const NO_KEEPER: &str =
    "this runtime keeps no grants; allow the call for the session, or build the runtime with `grants`";

/// Keeps what the answer to a question allows always.
///
/// # Errors
/// [`ErrorKind::Unsupported`] without a keeper; the keeper's, and [`ErrorKind::Internal`] for its panic.
pub(crate) async fn keep(env: &Env, question: &ApprovalRequest, by: Option<&str>) -> Result<()> {
    let Some(grants) = &env.grants else { return Err(Error::new(ErrorKind::Unsupported, NO_KEEPER)) };
    Caught::new(|| grants.keep(question, by)).await.unwrap_or_else(|panic| {
        Err(Error::new(ErrorKind::Internal, format!("the keeper of grants panicked: {panic}")))
    })
}
