//! The judgement of a step's calls: checks of their text at once, and the verdict when one is about to start.
//!
//! Runs nothing and records nothing.

use std::{borrow::Cow, sync::Arc};

use entourage_core::{
    Digest,
    message::ToolCall,
    permission::{ApprovalId, ApprovalRequest, Decision, Ruling, Scope, judge},
    run::{PendingCall, RunContext, ToolCalls},
    tool::{Footprint, Repeat, Tool, ToolSpec},
};
use serde_json::Value;

use crate::{
    caught,
    effects::{
        site::Site,
        tool_check::{check_arguments, offered},
        tool_run::Ready,
    },
};

/// A call after the checks that do not depend on when it starts.
pub(super) enum Checked<'a> {
    /// It is never run: this is its result.
    Settled { call: &'a ToolCall, text: String },
    /// It is judged when it starts. `asked` counts the questions about it.
    Open { call: &'a ToolCall, tool: &'a Arc<dyn Tool>, arguments: Value, asked: u8 },
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
        let settled = |text: String| Self::Settled { call, text };
        if pending.late {
            return settled("not run, since a call before it ended the turn".to_owned());
        }
        if pending.repeated {
            return settled(format!(
                "not run: you made this very call {} times in a row; work with the result that you have, change the \
                 arguments, or do something else",
                calls.limits.loops.repeats.unwrap_or_default().max(2)
            ));
        }
        if let Some(problem) = &call.malformed {
            return settled(format!("the call could not be read: {problem}"));
        }
        let arguments = call.arguments.to_value();
        let tool = match offered(&calls.offered, &call.name, scope) {
            Ok(tool) => tool,
            Err(problem) => return settled(problem),
        };
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
        Self::Open { call, tool, arguments, asked: 0 }
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
            Self::Settled { call, text, .. } => Checked::Settled { call, text },
            Self::Run(ready) => ready.into(),
            Self::Ask(ready, _) => Ready { asked: ready.asked.saturating_sub(1), ..ready }.into(),
        }
    }
}

/// Makes a call that did not start after all one to be judged anew.
impl<'a> From<Ready<'a>> for Checked<'a> {
    fn from(ready: Ready<'a>) -> Self {
        let Ready { call, tool, arguments, asked, .. } = ready;
        Self::Open { call, tool, arguments, asked }
    }
}

/// The context in which a step's calls are judged.
pub(super) struct Judge<'a> {
    pub(super) cx: &'a RunContext,
    pub(super) site: &'a Site,
    pub(super) seq: u64,
    /// The index of the step's first call.
    pub(super) first: usize,
}

impl Judge<'_> {
    /// Judges a call, by its footprint at this moment.
    pub(super) fn plan<'c>(&self, index: usize, checked: Checked<'c>) -> Plan<'c> {
        let (call, tool, arguments, asked) = match checked {
            Checked::Settled { call, text } => return Plan::Settled { call, text, denied: false },
            Checked::Open { call, tool, arguments, asked } => (call, tool, arguments, asked),
        };
        let settled = |text: String, denied| Plan::Settled { call, text, denied };
        let Ok(footprint) = caught(|| tool.footprint(&arguments)) else {
            return settled("the tool panicked when it was asked what the call touches".to_owned(), false);
        };
        let spec = tool.spec();
        let verdict = judge(self.cx.scope(), &self.site.env.policy, spec, &footprint);
        let exclusive =
            spec.is_alone() || footprint.is_exclusive() || Footprint::new(spec.access()).is_exclusive();
        let ready = |allowed_by: Cow<'static, str>, footprint, asked| Ready {
            call,
            tool,
            arguments,
            footprint,
            exclusive,
            asked,
            allowed_by,
        };
        match verdict {
            Ruling::Allow(rule) => Plan::Run(ready(rule, footprint, asked)),
            Ruling::OutOfScope(text) => settled(text, false),
            Ruling::Deny(rule) => settled(format!("refused by the rule `{rule}`"), true),
            Ruling::Ask(rule) => {
                let request = self.question(index, call, spec, footprint.clone(), &rule);
                match self.site.read(|state| state.approval(&request.id, request.digest)) {
                    Some(Decision::Allow) => Plan::Run(ready("approver".into(), footprint, asked)),
                    Some(Decision::Deny) => settled("refused by the approver".to_owned(), true),
                    Some(Decision::Later) | None => {
                        let asked = asked.saturating_add(1);
                        Plan::Ask(ready("approver".into(), footprint, asked), Box::new(request))
                    }
                }
            }
            // What is not understood is not admitted.
            _ => settled("refused by a ruling that this runtime does not know".to_owned(), true),
        }
    }

    fn question(
        &self,
        index: usize,
        call: &ToolCall,
        spec: &ToolSpec,
        footprint: Footprint,
        rule: &str,
    ) -> ApprovalRequest {
        let parts = [spec.digest().to_string(), footprint.digest().to_string()];
        let [tool, touched] = &parts;
        let named = self.site.read(|state| state.run().is_none_or(|run| run.named_by_run));
        let run = named.then(|| self.cx.run());
        let digest = Digest::of([tool.as_bytes(), call.arguments.as_str().as_bytes(), touched.as_bytes()]);
        let id = ApprovalId::new(self.cx.session(), run, self.seq, self.first + index, digest);
        let asks = (self.cx.session(), self.cx.run(), self.cx.agent());
        ApprovalRequest::new(id, asks, call, footprint, rule, digest)
    }
}
