//! The calls of one step: checked, judged, claimed, run and settled.
//!
//! Claims are committed before the tools are polled, so a tool that ran was claimed. All of a step's claims that can
//! start at once share one transaction.

use std::{
    borrow::Cow,
    panic::AssertUnwindSafe,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use futures_util::FutureExt;

use super::{
    Observation, Pause, RunContext, ToolCalls, ToolSchedule,
    local::LocalEffects,
    tool_bound::bounded,
    tool_run::{Done, Ready, Running, RunningCalls, ask, run_tool},
};
use crate::{
    Error, ErrorKind, Result, Timestamp,
    digest::Digest,
    event::{ApprovalDecided, EffectKey, Event, ToolFinished, ToolStarted, WaitStarted},
    layers::Charge,
    message::{ToolCall, ToolResult},
    permission::{ApprovalId, ApprovalRequest, Decision, Verdict, judge},
    tool::{Footprint, Repeat, Tool, ToolContext, ToolError, ToolInput, ToolOutput, validate},
};

pub(crate) async fn perform(
    local: &LocalEffects,
    cx: &RunContext,
    key: Option<EffectKey>,
    recorded: Vec<Event>,
    mut calls: Box<ToolCalls>,
) -> Result<Observation> {
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
    let (seq, first) = place(local, key);
    let mut step = Step {
        local,
        cx,
        key,
        seq,
        first,
        calls: &calls,
        results: Vec::new(),
        fatal: None,
        exhausted: None,
        pause: None,
        denied: false,
        ended: None,
    };
    step.run().await?;
    let Step { mut results, fatal, exhausted, pause, .. } = step;
    if let Some(error) = fatal.or(exhausted) {
        return Err(error);
    }
    if let Some(pause) = pause {
        return Err(Error::paused(pause));
    }
    results.sort_by_key(|call| call.index);
    Ok(Observation::Tools(results))
}

/// What names the calls for good: the number of the message (or of the run) and the index of the first call.
fn place(local: &LocalEffects, key: Option<EffectKey>) -> (u64, usize) {
    match key {
        None => (local.journal.read(|state| state.step().map(|step| step.seq)).unwrap_or_default(), 0),
        Some(key) => {
            let run = local.journal.read(|state| state.run().map(|run| run.seq)).unwrap_or_default();
            (run, usize::try_from(key.ordinal).unwrap_or(usize::MAX))
        }
    }
}

struct Step<'a> {
    local: &'a LocalEffects,
    cx: &'a RunContext,
    key: Option<EffectKey>,
    seq: u64,
    first: usize,
    calls: &'a ToolCalls,
    results: Vec<Arc<ToolFinished>>,
    fatal: Option<Error>,
    /// The budget does not cover a further call.
    exhausted: Option<Error>,
    pause: Option<Pause>,
    denied: bool,
    /// The tool whose result ended the turn.
    ended: Option<Arc<str>>,
}

/// What is to be done about one call.
enum Plan<'a> {
    /// It is never run: this is its result.
    Settled { call: &'a ToolCall, text: String, denied: bool },
    /// It may run.
    Run(Ready<'a>),
    /// It may run if the approver says so.
    Ask(Ready<'a>, Box<ApprovalRequest>),
}
impl<'a> Step<'a> {
    async fn run(&mut self) -> Result<()> {
        let message = Arc::clone(&self.calls.message);
        let calls: Vec<&ToolCall> = message.tool_calls().collect();
        // Plans are made in order and before anything runs, so they do not depend on how tools overlap.
        let mut plans = Vec::with_capacity(self.calls.calls.len());
        for pending in &self.calls.calls {
            let Some(call) = calls.get(pending.index) else {
                return Err(Error::new(ErrorKind::Internal, "a pending call is not in its message"));
            };
            plans.push(Some(if pending.late {
                Plan::Settled {
                    call,
                    text: "not run, since a call before it ended the turn".to_owned(),
                    denied: false,
                }
            } else if pending.repeated {
                Plan::Settled { call, text: self.calls.limits.loops.refusal(), denied: false }
            } else {
                self.plan(pending.index, call, pending.started)
            }));
        }
        self.drive(plans).await
    }

    async fn drive(&mut self, mut plans: Vec<Option<Plan<'_>>>) -> Result<()> {
        let exclusive = plans.iter().flatten().map(Plan::is_exclusive).collect();
        let mut schedule = ToolSchedule::new(exclusive, self.calls.limits.parallel_tools);
        let mut running = RunningCalls::default();
        // Claimed and not yet committed: polled only after the next commit.
        let mut claimed: Vec<Running<'_>> = Vec::new();
        let cx = self.cx;
        loop {
            if cx.emitter().is_pausing() {
                self.pause.get_or_insert(Pause::Asked);
            }
            if self.is_over() {
                schedule.stop();
            }
            while let Some(place) = schedule.start() {
                let Some(plan) = plans.get_mut(place).and_then(Option::take) else { continue };
                match plan {
                    Plan::Settled { call, text, denied } => {
                        self.settle_unrun(place, call, text, denied);
                        schedule.finish(place);
                        if denied {
                            schedule.stop();
                        }
                    }
                    Plan::Run(ready) => match self.claim(place, ready) {
                        Some(call) => running.push(call),
                        None => schedule.stop(),
                    },
                    Plan::Ask(ready, request) => {
                        self.local.stage(cx, Event::ApprovalRequested(Arc::new((*request).clone())));
                        self.waits();
                        running.push(Box::pin(ask(cx, place, ready, request)));
                    }
                }
            }
            claimed.drain(..).for_each(|call| running.push(call));
            if running.is_empty() {
                self.settle_rest(&mut plans);
                return Ok(());
            }
            self.local.commit(cx).await?;
            let done = tokio::select! {
                biased;
                done = running.next() => done,
                () = cx.cancellation().cancelled() => return Err(Error::cancelled()),
            };
            let mut next = done;
            // What is ready together is settled together.
            while let Some((place, done)) = next {
                match done {
                    Done::Ran { call, result, ended, time } => {
                        self.settle(place, call, result, ended, time);
                        schedule.finish(place);
                    }
                    Done::Decided { ready, request, decision } => {
                        match self.decided(place, ready, &request, decision) {
                            Some(ready) => claimed.extend(self.claim(place, ready)),
                            None => schedule.finish(place),
                        }
                    }
                }
                next = running.next().now_or_never().flatten();
            }
        }
    }

    /// Whether no further call begins.
    fn is_over(&self) -> bool {
        self.denied
            || self.ended.is_some()
            || self.fatal.is_some()
            || self.exhausted.is_some()
            || self.pause.is_some()
    }

    /// A refusal (CP04), or a tool, ends the turn: what had not begun by then is answered, and not run.
    fn settle_rest(&mut self, plans: &mut [Option<Plan<'_>>]) {
        let why = match &self.ended {
            _ if self.denied => "not run, since leave for another call was refused".to_owned(),
            Some(tool) if self.fatal.is_none() => format!("not run, since `{tool}` ended the turn"),
            _ => return,
        };
        for (place, plan) in plans.iter_mut().enumerate() {
            match plan.take() {
                Some(Plan::Settled { call, text, .. }) => self.settle_unrun(place, call, text, false),
                Some(Plan::Run(ready) | Plan::Ask(ready, _)) => {
                    self.settle_unrun(place, ready.call, why.clone(), false);
                }
                None => {}
            }
        }
    }

    /// A hand-written agent's call waits for an answer: the record tells which effect that is.
    fn waits(&self) {
        if let Some(key) = self.key {
            let wait = WaitStarted { until: None, signal: None, key };
            self.local.stage(self.cx, Event::WaitStarted(Arc::new(wait)));
        }
    }

    fn index(&self, place: usize) -> usize {
        self.calls.calls.get(place).map_or(place, |call| call.index)
    }

    fn plan<'c>(&self, index: usize, call: &'c ToolCall, started: bool) -> Plan<'c>
    where
        'a: 'c,
    {
        let settled = |text: String, denied| Plan::Settled { call, text, denied };
        if let Some(problem) = &call.malformed {
            return settled(format!("the call could not be read: {problem}"), false);
        }
        let arguments = call.arguments.to_value();
        let spec = match validate(&self.calls.offered, &call.name, &arguments) {
            Ok(spec) => spec,
            Err(problem) => return settled(problem, false),
        };
        if started && spec.repeat() == Repeat::Once {
            return settled(
                "the process ended while this call ran, so its outcome is unknown; find out before you repeat it".to_owned(),
                false,
            );
        }
        let Some(tool) = self.calls.offered.get(&call.name) else {
            return settled(format!("there is no tool `{}`", call.name), false);
        };
        let Ok(footprint) = std::panic::catch_unwind(AssertUnwindSafe(|| tool.footprint(&arguments))) else {
            return settled("the tool panicked when it was asked what the call touches".to_owned(), false);
        };
        let verdict = judge(self.cx.scope(), &self.cx.env().policy, spec, &footprint);
        let exclusive =
            spec.is_alone() || footprint.is_exclusive() || Footprint::new(spec.access()).is_exclusive();
        let ready = |arguments, allowed_by| Ready { call, tool, arguments, exclusive, allowed_by };
        match verdict {
            Verdict::Allow(rule) => Plan::Run(ready(arguments, rule)),
            Verdict::OutOfScope(text) => settled(text, false),
            Verdict::Deny(rule) => settled(format!("refused by the rule `{rule}`"), true),
            Verdict::Ask(rule) => {
                let request = self.question(index, call, spec.digest(), footprint, &rule);
                match self.local.journal.read(|state| state.approval(&request.id, request.digest)) {
                    Some(Decision::Allow) => Plan::Run(ready(arguments, "approver".into())),
                    Some(Decision::Deny) => settled("refused by the approver".to_owned(), true),
                    Some(Decision::Later) | None => {
                        Plan::Ask(ready(arguments, "approver".into()), Box::new(request))
                    }
                }
            }
        }
    }

    fn question(
        &self,
        index: usize,
        call: &ToolCall,
        spec: Digest,
        footprint: Footprint,
        rule: &str,
    ) -> ApprovalRequest {
        let named = self.local.journal.read(|state| state.run().is_none_or(|run| run.named_by_run));
        let run = named.then(|| self.cx.run());
        ApprovalRequest {
            id: ApprovalId::new(self.cx.session(), run, self.seq, self.first + index),
            session: self.cx.session().clone(),
            run: self.cx.run(),
            agent: self.cx.agent().to_owned(),
            tool: call.name.to_string(),
            digest: Digest::of([spec.to_string().as_bytes(), call.arguments.as_str().as_bytes()]),
            arguments: call.arguments.clone(),
            footprint,
            rule: rule.to_owned(),
        }
    }

    /// Records that the call is about to run. The returned future is polled only after that is committed. `None` when
    /// the budget does not cover the call.
    fn claim<'c>(&mut self, place: usize, ready: Ready<'c>) -> Option<Running<'c>>
    where
        'a: 'c,
    {
        match self.cx.reserve(Charge::tool_call) {
            // A claim counts, however the call ends.
            Ok(reserved) => drop(reserved),
            Err(error) => {
                self.exhausted.get_or_insert(error);
                return None;
            }
        }
        let index = self.index(place);
        let spec = ready.tool.spec();
        let started = ToolStarted {
            index,
            call: Arc::clone(&ready.call.id),
            tool: Arc::clone(&ready.call.name),
            repeat: spec.repeat(),
            allowed_by: ready.allowed_by,
            key: self.key,
        };
        self.local.stage(self.cx, Event::ToolStarted(Arc::new(started)));
        let limit = spec.timeout().unwrap_or(self.calls.limits.tool_timeout);
        let context = ToolContext {
            run: self.cx,
            call_id: Cow::Borrowed(&ready.call.id),
            seq: self.seq,
            index: self.first + index,
            cancel: Cow::Borrowed(self.cx.cancellation()),
            delegated: AtomicBool::new(false),
        };
        let input = ToolInput::new(ready.arguments);
        Some(Box::pin(run_tool(place, ready.call, ready.tool, input, context, limit)))
    }

    /// What an answer means for the call: it goes on, or it has its result.
    fn decided<'c>(
        &mut self,
        place: usize,
        ready: Ready<'c>,
        request: &ApprovalRequest,
        decision: Decision,
    ) -> Option<Ready<'c>> {
        if decision == Decision::Later {
            self.pause.get_or_insert(Pause::Approval(request.id.clone()));
            return None;
        }
        let answer = ApprovalDecided { id: request.id.clone(), decision, digest: request.digest };
        self.local.stage(self.cx, Event::ApprovalDecided(Arc::new(answer)));
        if decision == Decision::Allow {
            return Some(ready);
        }
        self.settle_unrun(place, ready.call, "refused by the approver".to_owned(), true);
        None
    }

    fn settle_unrun(&mut self, place: usize, call: &ToolCall, text: String, denied: bool) {
        self.denied |= denied;
        self.finish(
            place,
            self.cx.clock(),
            ToolFinished {
                index: 0,
                result: Arc::new(ToolResult::error(call, text)),
                stop_turn: denied,
                denied,
                metadata: None,
                micros: 0,
                fatal: None,
                key: self.key,
            },
        );
    }

    fn settle(
        &mut self,
        place: usize,
        call: &ToolCall,
        result: Result<ToolOutput, ToolError>,
        at: Timestamp,
        time: Duration,
    ) {
        // The call stays open: it goes on when its run does.
        if let Err(ToolError::Fatal(error)) = &result
            && let Some(pause) = error.pause()
        {
            self.pause.get_or_insert_with(|| pause.clone());
            return;
        }
        let (output, fatal) = match result {
            Ok(output) => (output, None),
            Err(ToolError::Tell(text)) => (ToolOutput::error(text), None),
            Err(ToolError::Fatal(error)) => {
                (ToolOutput::error(format!("the tool failed: {}", error.message())), Some(error))
            }
        };
        let output = bounded(output, &self.calls.limits);
        let result = ToolResult::new(call, output.content, output.is_error);
        if output.stop_turn {
            self.ended.get_or_insert_with(|| Arc::clone(&call.name));
        }
        self.finish(
            place,
            at,
            ToolFinished {
                index: 0,
                result: Arc::new(result),
                stop_turn: output.stop_turn,
                denied: false,
                metadata: output.metadata,
                micros: u64::try_from(time.as_micros()).unwrap_or(u64::MAX),
                fatal: fatal.as_ref().map(Error::record),
                key: self.key,
            },
        );
        self.fatal = self.fatal.take().or(fatal);
    }

    fn finish(&mut self, place: usize, at: Timestamp, mut finished: ToolFinished) {
        finished.index = self.index(place);
        let finished = Arc::new(finished);
        self.local.stage_at(self.cx, at, Event::ToolFinished(Arc::clone(&finished)));
        self.results.push(finished);
    }
}

impl Plan<'_> {
    fn is_exclusive(&self) -> bool {
        match self {
            Self::Settled { .. } => false,
            Self::Run(ready) | Self::Ask(ready, _) => ready.exclusive,
        }
    }
}
