//! The judgement of a step's calls: checks of their text at once, and the verdict when one is about to start.
//!
//! Runs nothing and records nothing.

use std::{borrow::Cow, sync::Arc};

use entourage_core::{
    Digest,
    message::{Arguments, ToolCall},
    permission::{ApprovalId, ApprovalRequest, Decision, Scope},
    run::{PendingCall, RunContext, ToolCalls},
    session::SessionState,
    tool::{Footprint, Labels, Repeat, Tool},
};
use serde_json::Value;

use crate::{
    caught,
    effects::{
        site::Site,
        tool_check::{check_arguments, offered, read_arguments},
        tool_layers::BY_LAYER,
        tool_run::Ready,
    },
    permission::{Grant, LEAKS, Ruling, judge_labelled},
};

/// A call after the checks that do not depend on when it starts.
pub(super) enum Checked<'a> {
    /// It is never run: this is its result.
    Settled { call: &'a ToolCall, text: String, denied: bool },
    /// It is judged when it starts.
    Open(Open<'a>),
}

/// A call to judge.
pub(super) struct Open<'a> {
    pub(super) call: &'a ToolCall,
    pub(super) tool: &'a Arc<dyn Tool>,
    pub(super) arguments: Value,
    /// The arguments, if layers changed them.
    pub(super) changed: Option<Arguments>,
    /// The reason for which a layer allowed it, which answers the rules that ask.
    pub(super) allowed: Option<String>,
    /// The reason for which a layer has it asked about, whatever allows it.
    pub(super) asks: Option<String>,
    /// True if it began in an earlier life of the run, and its layers are not asked again.
    pub(super) began: bool,
    /// Number of questions about it so far.
    pub(super) asked: u8,
}

/// The next action for one call.
pub(super) enum Plan<'a> {
    /// It is never run: this is its result.
    Settled { call: &'a ToolCall, text: String, denied: bool },
    /// It may run.
    Run(Ready<'a>),
    /// It may run if the approver says so.
    Ask(Ready<'a>, Box<ApprovalRequest>),
}

impl<'a> Checked<'a> {
    pub(super) fn new(
        calls: &'a ToolCalls,
        pending: &PendingCall,
        call: &'a ToolCall,
        scope: &Scope,
    ) -> Self {
        let settled = |text: String| Self::Settled { call, text, denied: false };
        if pending.late {
            return settled("not run, since a call before it ended the turn".to_owned());
        }
        if pending.repeated > 0 {
            return settled(format!(
                "not run: you made this very call {} times in a row; work with the result that you have, change the \
                 arguments, or do something else",
                pending.repeated
            ));
        }
        if let Some(problem) = &call.malformed {
            return settled(format!("the call could not be read: {problem}"));
        }
        let tool = match offered(&calls.offered, call, scope) {
            Ok(tool) => tool,
            Err(problem) => return settled(problem),
        };
        let arguments = read_arguments(tool.spec(), &call.arguments);
        if pending.started && tool.spec().repeat() == Repeat::Once {
            return settled(
                "no result of this call was stored, since its process ended or its store failed while it ran, so its outcome is \
                 unknown; find out before you repeat it"
                    .to_owned(),
            );
        }
        // A call that was started has passed the check, perhaps that of an older version.
        if !pending.started
            && let Err(problem) = check_arguments(tool.spec(), &arguments)
        {
            return settled(problem);
        }
        Self::Open(Open {
            call,
            tool,
            arguments,
            changed: None,
            allowed: None,
            asks: None,
            began: false,
            asked: 0,
        })
    }
}

impl<'a> Plan<'a> {
    /// True when the call must run alone; `None` when it does not run.
    pub(super) fn is_exclusive(&self) -> Option<bool> {
        match self {
            Self::Settled { .. } => None,
            Self::Run(ready) | Self::Ask(ready, _) => Some(ready.exclusive),
        }
    }

    /// Returns the call as it was before it was judged. A question that was not asked does not count.
    pub(super) fn put_off(self) -> Checked<'a> {
        match self {
            Self::Settled { call, text, denied } => Checked::Settled { call, text, denied },
            Self::Run(ready) => ready.into(),
            Self::Ask(mut ready, _) => {
                ready.open.asked = ready.open.asked.saturating_sub(1);
                ready.into()
            }
        }
    }
}

/// Makes a call that did not start after all one to be judged anew.
impl<'a> From<Ready<'a>> for Checked<'a> {
    fn from(ready: Ready<'a>) -> Self {
        let Ready { open, edited, .. } = ready;
        // Its question, which has the other arguments, is about those that it had.
        let arguments = match edited {
            Some(_) => {
                read_arguments(open.tool.spec(), open.changed.as_ref().unwrap_or(&open.call.arguments))
            }
            None => open.arguments,
        };
        Self::Open(Open { arguments, ..open })
    }
}

/// The context in which a step's calls are judged.
pub(super) struct Judge<'a> {
    pub(super) cx: &'a RunContext,
    pub(super) site: &'a Site,
    pub(super) seq: u64,
    /// The index of the step's first call.
    pub(super) first: usize,
    /// Labels of what whoever asked for the calls had read.
    pub(super) labels: Labels,
    /// True if an approver was asked about the call of a question in this life of the run, and the call has not taken
    /// the answer.
    pub(super) is_asking: &'a dyn Fn(&ApprovalId) -> bool,
}

impl Judge<'_> {
    /// Judges a call, by its footprint at this moment.
    pub(super) fn plan<'c>(&self, index: usize, checked: Checked<'c>) -> Plan<'c> {
        let open = match checked {
            Checked::Settled { call, text, denied } => return Plan::Settled { call, text, denied },
            Checked::Open(open) => open,
        };
        let call = open.call;
        let ready = match Ready::new(open) {
            Ok(ready) => ready,
            Err(text) => return Plan::Settled { call, text, denied: false },
        };
        if ready.open.tool.spec().is_answer() {
            return Plan::Run(ready.allowed_by("the agent's answer".into()));
        }
        if self.site.read(SessionState::has_asked) {
            let request = self.question(index, &ready.open, &ready.footprint, "");
            // Whatever holds by now for what the call touches, a person refused this call.
            let refusal = self.site.read(|state| state.refusal(request.id.call()).cloned());
            if let Some(refused) = refusal.and_then(|refusal| answered(call, &refusal)) {
                return refused;
            }
            // From its deadline on it is answered, whatever else would allow or refuse the call by now.
            let asked = self.site.read(|state| state.approval(&request.id, request.digest));
            if asked.is_some_and(|asked| asked.is_open() && !asked.at(self.site.now()).is_open()) {
                return Plan::Ask(ready.allowed_by("approver".into()), Box::new(request));
            }
            match self.answer(&request) {
                Some(Decision::Edit(edited)) => return self.edited(ready, edited),
                // Somebody is asked about the call, maybe as it was: that answer is waited for.
                None if (self.is_asking)(&request.id) => {
                    return Plan::Ask(ready.allowed_by("approver".into()), Box::new(request));
                }
                _ => {}
            }
        }
        match self.rule(&ready.open, &ready.footprint) {
            Ruling::Allow(rule) => Plan::Run(ready.allowed_by(rule)),
            Ruling::Ask(rule) => match &ready.open.allowed {
                Some(reason) if self.anyway(&ready.open, &ready.footprint).is_none() => {
                    let by = format!("{BY_LAYER}{reason}");
                    Plan::Run(ready.allowed_by(by.into()))
                }
                _ => self.asked(index, ready, &rule),
            },
            other => refused(call, &other),
        }
    }

    /// Returns the question that a call would be asked about now; `None` for a call that would not, or that an answer,
    /// a grant or a layer settles.
    pub(super) fn question_about<'o, 'c>(
        &self,
        index: usize,
        checked: &'o Checked<'c>,
    ) -> Option<(ApprovalRequest, &'o Open<'c>)> {
        let Checked::Open(open) = checked else { return None };
        if open.tool.spec().is_answer() {
            return None;
        }
        let footprint = caught(|| open.tool.footprint(&open.arguments)).ok()?;
        if open.allowed.is_some() && self.anyway(open, &footprint).is_none() {
            return None;
        }
        let Ruling::Ask(rule) = self.rule(open, &footprint) else { return None };
        let request = self.question(index, open, &footprint, &rule);
        let is_open = self.granted(open, &footprint, &request).is_none() && self.answer(&request).is_none();
        is_open.then_some((request, open))
    }

    /// True if the rule on leaks applies to a call.
    fn leaks(&self, open: &Open<'_>, footprint: &Footprint) -> bool {
        self.site.env.policy.leak(open.tool.spec(), footprint, self.labels).is_some()
    }

    /// Returns the reason to ask about a call whatever rules and grants allow: a layer's, or the rule on leaks.
    fn anyway<'o>(&self, open: &'o Open<'_>, footprint: &Footprint) -> Option<&'o str> {
        open.asks.as_deref().or_else(|| self.leaks(open, footprint).then_some(LEAKS))
    }

    fn rule(&self, open: &Open<'_>, footprint: &Footprint) -> Ruling {
        let policy = &self.site.env.policy;
        let ruling = judge_labelled(self.cx.scope(), policy, open.tool.spec(), footprint, self.labels);
        match (&open.asks, &ruling) {
            (Some(reason), Ruling::Allow(_) | Ruling::Ask(_)) => {
                Ruling::Ask(format!("{BY_LAYER}{reason}").into())
            }
            _ => ruling,
        }
    }

    /// Returns what grants such calls, if anything does.
    fn granted(
        &self,
        open: &Open<'_>,
        footprint: &Footprint,
        request: &ApprovalRequest,
    ) -> Option<&'static str> {
        // A layer asks about this call; what was allowed before is no answer.
        let grant = request.grant.filter(|_| open.asks.is_none())?;
        let env = &self.site.env;
        let granted = self.site.read(|state| state.is_granted(grant));
        if self.leaks(open, footprint) {
            return env.granted_by_approver(grant, granted);
        }
        // Whoever wrote a rule for one place meant that place.
        if self.site.reads_unasked && !env.policy.asks_by_subject(open.tool.spec(), footprint) {
            return Some("auto-approved reader");
        }
        env.granted(self.cx.session(), grant, granted)
    }

    /// Returns the decision on a question, if it was answered.
    fn answer(&self, request: &ApprovalRequest) -> Option<Decision> {
        self.site.read(|state| state.approval(&request.id, request.digest)).filter(|it| !it.is_open())
    }

    /// Judges a call that a rule asks about.
    fn asked<'c>(&self, index: usize, mut ready: Ready<'c>, rule: &str) -> Plan<'c> {
        let request = self.question(index, &ready.open, &ready.footprint, rule);
        match self.answer(&request) {
            Some(decision) => match answered(ready.open.call, &decision) {
                Some(refused) => refused,
                None => Plan::Run(ready.allowed_by("approver".into())),
            },
            None => {
                if let Some(grant) = self.granted(&ready.open, &ready.footprint, &request) {
                    return Plan::Run(ready.allowed_by(grant.into()));
                }
                ready.open.asked = ready.open.asked.saturating_add(1);
                Plan::Ask(ready.allowed_by("approver".into()), Box::new(request))
            }
        }
    }

    /// Judges a call with the arguments that an approver gave it. The rules that ask are answered by them.
    fn edited<'c>(&self, ready: Ready<'c>, edited: Arguments) -> Plan<'c> {
        let (call, tool) = (ready.open.call, ready.open.tool);
        let arguments = read_arguments(tool.spec(), &edited);
        let checked = check_arguments(tool.spec(), &arguments);
        let ready = match checked.and_then(|()| Ready::new(Open { arguments, ..ready.open })) {
            Ok(ready) => ready,
            Err(text) => {
                let text = format!("not run: the approver gave it other arguments, and {text}");
                return Plan::Settled { call, text, denied: false };
            }
        };
        match self.rule(&ready.open, &ready.footprint) {
            Ruling::Allow(_) | Ruling::Ask(_) => {
                Plan::Run(Ready { edited: Some(edited), ..ready.allowed_by("approver".into()) })
            }
            other => refused(call, &other),
        }
    }

    fn question(&self, index: usize, open: &Open<'_>, footprint: &Footprint, rule: &str) -> ApprovalRequest {
        let spec = open.tool.spec();
        let call = match &open.changed {
            Some(changed) => {
                let mut call = open.call.clone();
                call.arguments = changed.clone();
                Cow::Owned(call)
            }
            None => Cow::Borrowed(open.call),
        };
        let parts = [spec.digest().to_string(), footprint.digest().to_string()];
        let [tool, touched] = &parts;
        let named = self.site.read(|state| state.run().is_none_or(|run| run.named_by_run));
        let run = named.then(|| self.cx.run());
        let mut bound_to = vec![tool.as_bytes(), call.arguments.as_str().as_bytes(), touched.as_bytes()];
        // An answer to a rule is none to a layer, nor one to another reason.
        bound_to.extend(self.anyway(open, footprint).map(str::as_bytes));
        let digest = Digest::of(bound_to);
        let id = ApprovalId::new(self.cx.session(), run, self.seq, self.first + index, digest);
        let is_of_leaks = open.asks.is_none() && self.leaks(open, footprint);
        let Grant { key, covers } = Grant::of(spec, footprint).of_leaks(is_of_leaks);
        let asks = (self.cx.session(), self.cx.run(), self.cx.agent());
        ApprovalRequest::new(id, asks, &call, footprint.clone(), rule, digest)
            .with_grant(key)
            .with_covers(covers)
    }
}

/// Returns the plan for a call that a ruling refuses.
fn refused<'c>(call: &'c ToolCall, ruling: &Ruling) -> Plan<'c> {
    let (text, denied) = match ruling {
        Ruling::OutOfScope(text) => (text.clone(), false),
        Ruling::Deny(rule) => (format!("refused by the rule `{rule}`"), true),
        // What is not understood is not admitted.
        _ => ("refused by a ruling that this runtime does not know".to_owned(), true),
    };
    Plan::Settled { call, text, denied }
}

/// Returns the plan for a call that an answer refuses; `None` for one that it allows.
fn answered<'c>(call: &'c ToolCall, decision: &Decision) -> Option<Plan<'c>> {
    let (text, denied) = match decision {
        Decision::Allow | Decision::AllowSession | Decision::AllowAlways => return None,
        Decision::Deny => ("refused by the approver".to_owned(), true),
        Decision::Refuse { reason, go_on } => (format!("refused by the approver: {reason}"), !go_on),
        Decision::Ask(question) => (
            format!(
                "not run: the approver asks: {question}\nAnswer, and call the tool again if the call is still wanted."
            ),
            false,
        ),
        _ => ("refused by an answer that this runtime does not know".to_owned(), true),
    };
    Some(Plan::Settled { call, text, denied })
}
