//! The calls of one step: checked, judged, claimed, run and settled.
//!
//! Claims are committed before the tools are polled, so a tool that ran was claimed. All of a step's claims that can
//! start at once share one transaction.

use std::sync::Arc;

use entourage_core::{
    Error, ErrorKind, Result, Timestamp,
    budget::Charge,
    event::{EffectKey, Event, ToolFinished, ToolStarted, WaitStarted},
    message::{ToolCall, ToolResult},
    permission::{ApprovalId, ApprovalRequest, Decision},
    run::{Observation, Pause, RunContext, ToolCalls},
    tool::{CallId, Repeat, ToolContext, ToolError, ToolOutput},
};
use futures_util::{FutureExt, future::join_all};
use tokio_util::sync::CancellationToken;

use crate::effects::{
    site::Site,
    tool_ask::{Questions, previewed, soonest},
    tool_bound::{bounded, other_arguments},
    tool_judge::{Checked, Judge, Plan},
    tool_layers::{Held, has_layers, pass_all},
    tool_run::{Done, Ran, Ready, Running, RunningCalls, run_tool},
    tool_schedule::ToolSchedule,
};

/// Questions about one call in one life of its run, at most: after each its footprint may have changed.
const MOST_QUESTIONS: u8 = 3;

pub(crate) async fn perform(
    site: &Site,
    cx: &RunContext,
    key: Option<EffectKey>,
    recorded: Vec<Event>,
    mut calls: Box<ToolCalls>,
) -> Result<Observation> {
    let is_recorded = !recorded.is_empty();
    // A hand-written agent's call: its own journal entries say how far it came.
    for event in recorded {
        match &event {
            Event::ToolFinished(call) => {
                return match &call.fatal {
                    Some(error) => Err(error.to_error()),
                    None => Ok(Observation::Tools(vec![Arc::clone(call)])),
                };
            }
            Event::ToolStarted(_) => calls.calls.iter_mut().for_each(|call| call.started = true),
            _ => {}
        }
    }
    site.warn_of_rules(calls.offered.specs());
    let (seq, first) = site.place_of_calls(key);
    let mut step = Step {
        site,
        cx,
        key,
        seq,
        first,
        calls: &calls,
        recorded: is_recorded,
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
    };
    step.run().await?;
    let Step { mut results, fatal, exhausted, pause, .. } = step;
    if let Some(error) = fatal.or(exhausted) {
        return Err(error);
    }
    if let Some(pause) = pause {
        return Err(Error::paused(soonest(site, pause)));
    }
    results.sort_by_key(|call| call.index);
    Ok(Observation::Tools(results))
}

struct Step<'a> {
    site: &'a Site,
    cx: &'a RunContext,
    key: Option<EffectKey>,
    seq: u64,
    first: usize,
    calls: &'a ToolCalls,
    /// True if an earlier life of the run recorded anything of this effect of a hand-written agent.
    recorded: bool,
    results: Vec<Arc<ToolFinished>>,
    fatal: Option<Error>,
    /// The error of a budget that does not cover a further call.
    exhausted: Option<Error>,
    pause: Option<Pause>,
    denied: bool,
    /// The tool whose result ended the turn.
    ended: Option<Arc<str>>,
    /// Stops the calls that run an agent, if there are any, once the turn has ended.
    over: Option<CancellationToken>,
    questions: Questions<'a>,
    /// The first call that was handed out and has no result.
    handed_out: Option<CallId>,
    /// The places of all that were.
    without_result: Vec<usize>,
}

impl<'a> Step<'a> {
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
        pass_all(self.site, self.cx, (self.calls, self.recorded), self.key, &mut slots).await?;
        // The only call is asked about when it is about to start, which is now.
        if slots.len() > 1 {
            self.ask_all(&slots).await;
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
            while let Some(place) = schedule.next() {
                let Some(slot) = slots.get_mut(place) else { break };
                // What ran before may have changed what the call touches, so it is judged now and not earlier.
                let Some(plan) = slot.take().map(|checked| self.plan(place, checked)) else { break };
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
                    Plan::Run(ready) if ready.is_external() => self.hand_out(place, ready, &mut schedule),
                    Plan::Run(ready) => match self.claim(place, ready) {
                        Some(call) => running.push(call),
                        None => schedule.stop(),
                    },
                    Plan::Ask(ready, request) => running.push(self.wait(place, ready, request).await),
                }
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
            let done = tokio::select! {
                biased;
                done = running.next() => done,
                () = self.questions.next(), if !self.questions.is_empty() => continue,
                () = cx.cancellation().cancelled() => return Err(Error::cancelled()),
            };
            let mut next = done;
            // What is ready together is settled together.
            while let Some((place, done)) = next {
                match done {
                    Done::Ran(ran) => {
                        self.settle(place, ran);
                        schedule.finish();
                    }
                    Done::Decided { ready, request, decision } => {
                        match self.decided(place, ready, &request, &decision) {
                            Some(Plan::Run(ready)) if ready.is_external() => {
                                self.hand_out(place, ready, &mut schedule);
                            }
                            Some(Plan::Run(ready)) => claimed.extend(self.claim(place, ready)),
                            Some(Plan::Ask(ready, request)) => {
                                claimed.push(self.wait(place, ready, request).await);
                            }
                            Some(Plan::Settled { call, text, denied }) => {
                                self.settle_unrun(place, call, text, denied);
                                schedule.finish();
                            }
                            None => schedule.finish(),
                        }
                    }
                }
                next = running.next().now_or_never().flatten();
            }
        }
    }

    /// True when no further call begins.
    fn is_over(&self) -> bool {
        self.denied
            || self.ended.is_some()
            || self.fatal.is_some()
            || self.exhausted.is_some()
            || self.pause.is_some()
    }

    /// Answers the calls without a result when a refusal, or a tool, ended the turn. Those that had not begun are not
    /// run, and nothing waits any more for those that were handed out.
    fn settle_rest(&mut self, slots: &mut [Option<Checked<'_>>]) {
        let why = match &self.ended {
            _ if self.denied => "leave for another call was refused".to_owned(),
            Some(tool) if self.fatal.is_none() => format!("`{tool}` ended the turn"),
            _ => return,
        };
        for (place, slot) in slots.iter_mut().enumerate() {
            match slot.take() {
                Some(Checked::Settled { call, text, .. }) => self.settle_unrun(place, call, text, false),
                Some(Checked::Open(open)) => {
                    self.settle_unrun(place, open.call, format!("not run, since {why}"), false);
                }
                None => {}
            }
        }
        let message = Arc::clone(&self.calls.message);
        for place in std::mem::take(&mut self.without_result) {
            let Some(call) = message.tool_calls().nth(self.index(place)) else { continue };
            let why = format!("its result is unknown and no longer waited for, since {why}");
            self.settle_unrun(place, call, why, false);
        }
    }

    /// Records that a hand-written agent's call waits for an answer, and which effect it is.
    fn waits(&self) {
        if let Some(key) = self.key {
            let wait = WaitStarted::new(None, None, key);
            self.site.note(Event::WaitStarted(Arc::new(wait)));
        }
    }

    fn index(&self, place: usize) -> usize {
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
        Judge { cx: self.cx, site: self.site, seq: self.seq, first: self.first, is_asking }
    }

    /// Returns the future of a call that waits for the answer to its question, which is asked now if it was not before.
    async fn wait<'c>(
        &mut self,
        place: usize,
        ready: Ready<'c>,
        mut request: Box<ApprovalRequest>,
    ) -> Running<'c> {
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
        // No message in the record holds the arguments of a hand-written agent's call, and whoever answers it needs
        // them.
        let shown = (self.key.is_some() && ready.is_external()).then_some(&ready.open.call.arguments);
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
        let context = ToolContext::new(self.cx, policy, &ready.open.call.id, spec, footprint, place_of_call);
        let over = (spec.repeat() == Repeat::Resume).then(|| self.over.get_or_insert_default().clone());
        Some(Box::pin(run_tool(self.site, place, ready, context, limit, over)))
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

    fn settle_unrun(&mut self, place: usize, call: &ToolCall, text: String, denied: bool) {
        self.denied |= denied;
        let mut finished = ToolFinished::new(0, Arc::new(ToolResult::error(call, text)));
        (finished.stop_turn, finished.denied, finished.key) = (denied, denied, self.key);
        self.finish(place, self.site.now(), finished);
    }

    fn settle(&mut self, place: usize, ran: Ran<'_>) {
        let Ran { call, edited, result, held, ended: at, time } = ran;
        if let Some(Held { text, stops }) = held {
            return self.settle_unrun(place, call, text, stops);
        }
        // The call stays open, until its run is resumed.
        if let Err(ToolError::Fatal(error)) = &result
            && let Some(pause) = error.pause()
        {
            self.pause.get_or_insert_with(|| pause.clone());
            return;
        }
        if let Some(error) = self.diverged_below(call) {
            self.fatal.get_or_insert(error);
            return;
        }
        let (output, fatal) = match result {
            Ok(output) => (output, None),
            Err(ToolError::Tell(text)) => (ToolOutput::error(text), None),
            Err(ToolError::Fatal(error)) => {
                (ToolOutput::error(format!("the tool failed: {}", error.message())), Some(error))
            }
        };
        let mut output = bounded(output, &self.calls.limits);
        if let Some(arguments) = edited {
            output.content.insert(0, other_arguments(&arguments));
        }
        let result = ToolResult::new(call, output.content, output.is_error);
        if output.stop_turn {
            self.ended.get_or_insert_with(|| Arc::clone(&call.name));
        }
        let mut finished = ToolFinished::new(0, Arc::new(result));
        (finished.stop_turn, finished.metadata) = (output.stop_turn, output.metadata);
        finished.micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        (finished.fatal, finished.key) = (fatal.as_ref().map(Error::record), self.key);
        self.finish(place, at, finished);
        self.fatal = self.fatal.take().or(fatal);
    }

    /// Returns the reason that a call of a `Repeat::Resume` tool stays open: an agent below the run diverged, maybe the
    /// call's own. The tool's result then does not count.
    fn diverged_below(&self, call: &ToolCall) -> Option<Error> {
        let lost = self.site.lost().filter(|lost| lost.kind() == ErrorKind::Diverged)?;
        let tool = self.calls.offered.get(&call.name)?;
        (tool.spec().repeat() == Repeat::Resume).then_some(lost)
    }

    fn finish(&mut self, place: usize, at: Timestamp, mut finished: ToolFinished) {
        finished.index = self.index(place);
        let finished = Arc::new(finished);
        self.site.note_at(at, Event::ToolFinished(Arc::clone(&finished)));
        self.results.push(finished);
    }
}
