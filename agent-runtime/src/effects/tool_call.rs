//! The calls of one step: checked, judged, claimed, run and settled.
//!
//! Claims are committed before the tools are polled, so a tool that ran was claimed. All of a step's claims that can
//! start at once share one transaction.

use std::{
    future::{Future, ready},
    sync::Arc,
};

use entourage_core::{
    Error, ErrorKind, Result,
    budget::Charge,
    event::{EffectKey, Event, ToolFinished, ToolStarted, WaitStarted},
    message::ToolCall,
    permission::{ApprovalId, ApprovalRequest, Decision},
    run::{Observation, Pause, RunContext, ToolCalls},
    session::SessionState,
    tool::{CallId, Repeat, ToolContext},
};
use futures_util::{
    FutureExt,
    future::{Either, join_all},
};
use tokio_util::sync::CancellationToken;

use crate::{
    deferred,
    effects::{
        site::Site,
        tool_ask::{Questions, previewed},
        tool_judge::{Checked, Judge, Plan},
        tool_layers::{has_layers, needs_pass, pass_all},
        tool_run::{Decided, Done, Ready, Running, RunningCalls, run_tool},
        tool_schedule::ToolSchedule,
    },
};

/// Questions about one call in one life of its run, at most: after each its footprint may have changed.
const MOST_QUESTIONS: u8 = 3;

/// Runs the calls of one effect. Nothing runs before the first poll.
pub(crate) fn perform<'a>(
    site: &'a Site,
    cx: &'a RunContext,
    key: Option<EffectKey>,
    recorded: Vec<Event>,
    mut calls: Box<ToolCalls>,
) -> impl Future<Output = Result<Observation>> + Send + 'a {
    let is_recorded = !recorded.is_empty();
    if let Some(answer) = recalled(recorded, &mut calls) {
        return Either::Left(ready(answer));
    }
    let resolved = deferred::all_resolved(&calls.offered, &calls.message);
    let is_resolved = resolved.is_some();
    resolved.into_iter().for_each(|message| calls.message = message);
    Either::Right(async move {
        let called = calls.message.tool_calls().filter_map(|call| calls.offered.get(&call.name));
        let deferred = called.map(|tool| tool.spec()).filter(|spec| spec.is_deferred());
        site.warn_of_rules(calls.offered.specs().iter().chain(deferred));
        let mut step = Step::new(site, cx, key, &calls, (is_recorded, is_resolved));
        step.run().await?;
        step.end()
    })
}

/// Returns the recorded end of a hand-written agent's call, whose own journal entries say how far it came, and marks
/// one that began.
fn recalled(recorded: Vec<Event>, calls: &mut ToolCalls) -> Option<Result<Observation>> {
    for event in recorded {
        match &event {
            Event::ToolFinished(call) => {
                return Some(match &call.fatal {
                    Some(error) => Err(error.to_error()),
                    None => Ok(Observation::Tools(vec![Arc::clone(call)])),
                });
            }
            Event::ToolStarted(_) => calls.calls.iter_mut().for_each(|call| call.started = true),
            _ => {}
        }
    }
    None
}

pub(super) struct Step<'a> {
    pub(super) site: &'a Site,
    pub(super) cx: &'a RunContext,
    pub(super) key: Option<EffectKey>,
    pub(super) seq: u64,
    pub(super) first: usize,
    pub(super) calls: &'a ToolCalls,
    /// True if an earlier life of the run recorded anything of this effect of a hand-written agent.
    pub(super) recorded: bool,
    /// True if a call of the message stands for that of another tool.
    resolved: bool,
    pub(super) results: Vec<Arc<ToolFinished>>,
    pub(super) fatal: Option<Error>,
    /// The error of a budget that does not cover a further call.
    pub(super) exhausted: Option<Error>,
    pub(super) pause: Option<Pause>,
    pub(super) denied: bool,
    /// The tool whose result ended the turn.
    pub(super) ended: Option<Arc<str>>,
    /// Stops the calls that run an agent, if there are any, once the turn has ended.
    pub(super) over: Option<CancellationToken>,
    pub(super) questions: Questions<'a>,
    /// The first call that was handed out and has no result.
    pub(super) handed_out: Option<CallId>,
    /// The places of all that were.
    pub(super) without_result: Vec<usize>,
}

/// A call that begins.
enum Begun<'c> {
    /// It runs.
    Call(Running<'c>),
    /// The approver is asked about it first.
    Question(Box<Question<'c>>),
}

struct Question<'c> {
    place: usize,
    ready: Ready<'c>,
    request: Box<ApprovalRequest>,
}

impl<'c> Begun<'c> {
    fn question(place: usize, ready: Ready<'c>, request: Box<ApprovalRequest>) -> Self {
        Self::Question(Box::new(Question { place, ready, request }))
    }
}

impl<'a> Step<'a> {
    fn new(
        site: &'a Site,
        cx: &'a RunContext,
        key: Option<EffectKey>,
        calls: &'a ToolCalls,
        (recorded, resolved): (bool, bool),
    ) -> Self {
        let (seq, first) = site.place_of_calls(key);
        Self {
            site,
            cx,
            key,
            seq,
            first,
            calls,
            recorded,
            resolved,
            results: Vec::new(),
            fatal: None,
            exhausted: None,
            pause: None,
            denied: false,
            ended: None,
            over: None,
            questions: Questions::default(),
            handed_out: None,
            without_result: Vec::new(),
        }
    }

    async fn run(&mut self) -> Result<()> {
        let message = Arc::clone(&self.calls.message);
        let mut slots = Vec::with_capacity(self.calls.calls.len());
        let mut calls = message.tool_calls().enumerate();
        for pending in &self.calls.calls {
            let is_it = |(index, _): &(usize, &ToolCall)| *index == pending.index;
            // As a rule they are in the message's order, so that one pass finds them all.
            let found = calls.find(is_it).or_else(|| {
                calls = message.tool_calls().enumerate();
                calls.find(is_it)
            });
            let Some((_, call)) = found else {
                return Err(Error::new(ErrorKind::Internal, "a pending call is not in its message"));
            };
            slots.push(Some(Checked::new(self.calls, pending, call, self.cx.scope())));
        }
        // What few steps need is in a box of its own: the future of all others stays small and cheap to allocate.
        if needs_pass(self.site, &slots) {
            let calls = (self.calls, self.recorded);
            Box::pin(pass_all(self.site, self.cx, calls, self.key, &mut slots)).await?;
        }
        // The only call is asked about when it is about to start, which is now.
        if slots.len() > 1 {
            Box::pin(self.ask_all(&slots)).await;
        }
        self.drive(slots).await
    }

    /// Asks about all calls that would be asked about now, before the first of them runs.
    async fn ask_all(&mut self, slots: &[Option<Checked<'_>>]) {
        let questions = slots.iter().enumerate().filter_map(|(place, checked)| {
            let index = self.index(place);
            let (question, open) = self.judge(&|_| false).question_about(index, checked.as_ref()?)?;
            Some(previewed(self.site, self.cx, open, question, (self.seq, self.first + index)))
        });
        for question in join_all(questions.collect::<Vec<_>>()).await {
            self.questions.ask(self.site, &question);
        }
    }

    async fn drive(&mut self, mut slots: Vec<Option<Checked<'_>>>) -> Result<()> {
        let mut schedule = ToolSchedule::new(slots.len(), self.calls.limits.parallel_tools);
        let mut running = RunningCalls::default();
        // Claimed and not yet committed: polled only after the next commit.
        let mut claimed: Vec<Running<'_>> = Vec::new();
        let cx = self.cx;
        loop {
            if self.site.emitter.is_pausing() {
                self.pause.get_or_insert(Pause::Asked);
            }
            if cx.cancellation().is_cancelled() {
                if running.is_empty() {
                    return Err(Error::cancelled());
                }
                schedule.stop();
            }
            if self.is_over() {
                schedule.stop();
            }
            // An agent below works as long as it likes. Other calls run to their end, so that it is known.
            if let Some(over) = self.over.as_ref().filter(|_| self.denied || self.ended.is_some()) {
                over.cancel();
            }
            while let Some(begun) = self.start_next(&mut slots, &mut schedule) {
                running.push(match begun {
                    Begun::Call(call) => call,
                    Begun::Question(question) => Box::pin(self.wait(question)).await,
                });
            }
            claimed.drain(..).for_each(|call| running.push(call));
            if running.is_empty() {
                if let Some(call) = self.handed_out.take().filter(|_| !self.is_over()) {
                    self.pause = Some(Pause::Call(call));
                }
                self.settle_rest(&mut slots);
                return Ok(());
            }
            self.site.commit().await?;
            self.questions.begin();
            let mut next = tokio::select! {
                biased;
                done = running.next() => done,
                () = self.questions.next(), if !self.questions.is_empty() => continue,
                () = cx.cancellation().cancelled() => return Err(Error::cancelled()),
            };
            // What is ready together is settled together.
            while let Some((place, done)) = next.take() {
                match self.take(place, done, &mut schedule) {
                    Some(Begun::Call(call)) => claimed.push(call),
                    Some(Begun::Question(question)) => claimed.push(Box::pin(self.wait(question)).await),
                    None => {}
                }
                next = running.next().now_or_never().flatten();
            }
        }
    }

    /// Begins the next call that may start, or its question; settles those before it that do not run. `None` when none
    /// may start. A plain function, as [`take`](Self::take) is, so that no part of a call lives across an `.await`.
    fn start_next<'c>(
        &mut self,
        slots: &mut [Option<Checked<'c>>],
        schedule: &mut ToolSchedule,
    ) -> Option<Begun<'c>>
    where
        'a: 'c,
    {
        while let Some(place) = schedule.next() {
            let slot = slots.get_mut(place)?;
            // What ran before may have changed what the call touches, so it is judged now and not earlier.
            let plan = slot.take().map(|checked| self.plan(place, checked))?;
            if plan.is_exclusive().is_some_and(|exclusive| !schedule.start(exclusive)) {
                *slot = Some(plan.put_off());
                continue;
            }
            match plan {
                Plan::Settled { call, text, denied } => {
                    self.settle_unrun(place, call, text, denied);
                    schedule.pass();
                    if denied {
                        schedule.stop();
                    }
                }
                Plan::Run(ready) if ready.is_external() => self.hand_out(place, ready, schedule),
                Plan::Run(ready) => match self.claim(place, ready) {
                    Some(call) => return Some(Begun::Call(call)),
                    None => schedule.stop(),
                },
                Plan::Ask(ready, request) => return Some(Begun::question(place, ready, request)),
            }
        }
        None
    }

    /// Takes the end of a call or of a question. Returns the call that begins by it.
    fn take<'c>(&mut self, place: usize, done: Done<'c>, schedule: &mut ToolSchedule) -> Option<Begun<'c>>
    where
        'a: 'c,
    {
        let Decided { ready, request, decision } = match done {
            Done::Ran(ran) => {
                self.settle(place, ran);
                schedule.finish();
                return None;
            }
            Done::Decided(decided) => *decided,
        };
        match self.decided(place, ready, &request, &decision) {
            Some(Plan::Run(ready)) if ready.is_external() => self.hand_out(place, ready, schedule),
            Some(Plan::Run(ready)) => return self.claim(place, ready).map(Begun::Call),
            Some(Plan::Ask(ready, request)) => return Some(Begun::question(place, ready, request)),
            Some(Plan::Settled { call, text, denied }) => {
                self.settle_unrun(place, call, text, denied);
                schedule.finish();
            }
            None => schedule.finish(),
        }
        None
    }

    /// True when no further call begins.
    pub(super) fn is_over(&self) -> bool {
        self.denied
            || self.ended.is_some()
            || self.fatal.is_some()
            || self.exhausted.is_some()
            || self.pause.is_some()
    }

    /// Records that a hand-written agent's call waits for an answer, and which effect it is.
    fn waits(&self) {
        if let Some(key) = self.key {
            let wait = WaitStarted::new(None, None, key);
            self.site.note(Event::WaitStarted(Arc::new(wait)));
        }
    }

    pub(super) fn index(&self, place: usize) -> usize {
        self.calls.calls.get(place).map_or(place, |call| call.index)
    }

    fn plan<'c>(&self, place: usize, checked: Checked<'c>) -> Plan<'c> {
        let is_asking = |id: &ApprovalId| self.questions.is_asking(id);
        self.judge(&is_asking).plan(self.index(place), checked)
    }

    fn judge<'j>(&self, is_asking: &'j dyn Fn(&ApprovalId) -> bool) -> Judge<'j>
    where
        'a: 'j,
    {
        let step = |state: &SessionState| state.step().filter(|_| self.key.is_none()).map(|step| step.labels);
        let labels = self.site.read(|state| step(state).unwrap_or(state.labels()));
        Judge { cx: self.cx, site: self.site, seq: self.seq, first: self.first, labels, is_asking }
    }

    /// Returns the future of a call that waits for the answer to its question, which is asked now if it was not before.
    async fn wait<'c>(&mut self, question: Box<Question<'c>>) -> Running<'c> {
        let Question { place, ready, mut request } = *question;
        if !self.questions.is_asking(&request.id) {
            let place_of_call = (self.seq, self.first + self.index(place));
            *request = previewed(self.site, self.cx, &ready.open, *request, place_of_call).await;
            self.questions.ask(self.site, &request);
        }
        self.waits();
        self.questions.wait(place, ready, request)
    }

    /// Hands a call out, unless it was before. It is recorded, and its result comes from outside.
    /// One that must run alone holds back the calls after it, until the run is resumed with its result.
    fn hand_out(&mut self, place: usize, mut ready: Ready<'_>, schedule: &mut ToolSchedule) {
        schedule.finish();
        if ready.edited.is_some() && has_layers(self.site, ready.open.tool) {
            let text =
                "not run: its tool has layers, which would not see the arguments that the approver gave it";
            return self.settle_unrun(place, ready.open.call, text.to_owned(), false);
        }
        if ready.exclusive {
            schedule.stop();
        }
        let began = self.calls.calls.get(place).is_some_and(|call| call.started);
        if !began && !self.begin(place, &mut ready) {
            return;
        }
        let this = (self.index(place), self.key);
        let id = self.site.read(|state| {
            state.external().iter().find(|call| (call.index, call.key) == this).map(|call| call.id.clone())
        });
        self.handed_out = self.handed_out.take().or(id);
        self.without_result.push(place);
    }

    /// Records that a call begins. Returns false when the budget does not cover it.
    fn begin(&mut self, place: usize, ready: &mut Ready<'_>) -> bool {
        match self.cx.budget().map(|budget| budget.reserve(Charge::tool_call())).transpose() {
            // A claim counts, however the call ends.
            Ok(reserved) => drop(reserved),
            Err(error) => {
                self.exhausted.get_or_insert(error);
                return false;
            }
        }
        // No message in the record holds the arguments of a hand-written agent's call as such, nor those of a deferred
        // tool's, and whoever answers it needs them.
        let is_bare = self.key.is_some() || self.resolved;
        let shown = (is_bare && ready.is_external()).then_some(&ready.open.call.arguments);
        let started = ToolStarted::new(
            self.index(place),
            Arc::clone(&ready.open.call.id),
            Arc::clone(&ready.open.call.name),
            ready.open.tool.spec().repeat(),
            std::mem::take(&mut ready.allowed_by),
            ready.edited.as_ref().or(ready.open.changed.as_ref()).or(shown).cloned(),
            self.key,
        );
        self.site.note(Event::ToolStarted(Arc::new(started)));
        true
    }

    /// Records that the call is about to run. The returned future is polled only after that is committed. `None` when
    /// the budget does not cover the call.
    fn claim<'c>(&mut self, place: usize, mut ready: Ready<'c>) -> Option<Running<'c>>
    where
        'a: 'c,
    {
        if !self.begin(place, &mut ready) {
            return None;
        }
        let spec = ready.open.tool.spec();
        let limit = spec.timeout().unwrap_or(self.calls.limits.tool_timeout);
        let place_of_call = (self.seq, self.first + self.index(place));
        let footprint = std::mem::take(&mut ready.footprint);
        let policy = &self.site.env.policy;
        let context = ToolContext::new(self.cx, policy, &ready.open.call.id, spec, footprint, place_of_call)
            .offering(&self.calls.offered);
        let over = (spec.repeat() == Repeat::Resume).then(|| self.over.get_or_insert_default().clone());
        Some(run_tool(self.site, place, ready, context, limit, over))
    }

    /// Returns the plan that follows from an answer; `None` when the call keeps waiting. An approval is for what was
    /// shown: the call is judged again, and if its footprint changed meanwhile, the approval does not cover it.
    fn decided<'c>(
        &mut self,
        place: usize,
        ready: Ready<'c>,
        request: &ApprovalRequest,
        decision: &Decision,
    ) -> Option<Plan<'c>> {
        if decision.is_open() {
            let approval = request.id.clone();
            self.pause.get_or_insert(match decision {
                Decision::Until { at, .. } => Pause::Deadline { approval, until: *at },
                _ => Pause::Approval(approval),
            });
            return None;
        }
        let (call, alone, asked) = (ready.open.call, ready.exclusive, ready.open.asked);
        let plan = self.plan(place, ready.into());
        let changed = match &plan {
            // It must run alone now, and other calls run beside it.
            Plan::Run(now) | Plan::Ask(now, _) if now.exclusive && !alone => true,
            Plan::Ask(..) => asked >= MOST_QUESTIONS,
            _ => false,
        };
        let text = "not run: what it touches changed while somebody was asked about it; call it again";
        Some(if changed { Plan::Settled { call, text: text.to_owned(), denied: false } } else { plan })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effects::model_call;

    /// Sizes from which on the C library's allocator takes its slow way: this is the price of each call.
    const LARGE: usize = 1_024;

    fn size_of_returned<A, F>(_: impl FnOnce(A) -> F) -> usize {
        size_of::<F>()
    }

    type Context = (&'static Site, &'static RunContext, Option<EffectKey>);

    #[test]
    fn issue_12_the_futures_of_effects_are_small() {
        let tools =
            |((site, cx, key), calls): (Context, Box<ToolCalls>)| perform(site, cx, key, Vec::new(), calls);
        let model = |((site, cx, key), call): (Context, _)| model_call::perform(site, cx, key, call);
        let sizes = [size_of_returned(tools), size_of_returned(model), size_of::<Done<'_>>()];
        assert!(sizes.iter().all(|size| *size <= LARGE), "{sizes:?}");
    }
}
