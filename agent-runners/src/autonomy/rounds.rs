//! Performs what the machine of work and check decides: runs each phase in its session and records its start and end.
//! It decides nothing itself.

use std::{fmt, sync::Arc};

use entourage_core::{
    Error, ErrorKind, Result, SessionId,
    agent::{Agent, AgentPart},
    message::Message,
    permission::Scope,
    run::{Delegate, Outcome, Pause, RunContext, Spawn, Status, Task},
    session::SessionState,
};

use super::{
    CheckedTask, Phase, Player, Verdict,
    check::{Asked, Check},
    machine::{Fate, Next, Plan, fate},
    progress::is_summary,
};
use crate::{
    ReactAgent,
    below::Below,
    checked::{PhaseFinished, PhaseStarted},
};

/// Role of the session in which the work is done.
pub(crate) const EXECUTOR: &str = "executor";

/// Default number of rounds of work and check.
pub(crate) const ITERATIONS: u32 = 10;

const SUM_UP: &str = "\
Your turn is over, and your work is about to be checked by somebody who sees nothing of it but what you write now. Call no \
tool. Sum up: what was asked, what you did, what you found or answer (in full, where the task asks for an answer), which \
files or other things you made or changed and where, how to see that it works, and what is left undone or uncertain.";

/// An agent's work, checked round by round until it is accepted.
#[derive(Clone)]
pub(crate) struct Rounds {
    executor: Player,
    /// The executor for a summary, if it can be asked for one; else its answer is its report.
    speaker: Option<ReactAgent>,
    /// The check; `None` when the end of the executor's phase is the end of the task.
    check: Option<Arc<dyn Check>>,
    iterations: u32,
    /// True when a cancel is the end, instead of a pause in which the user can add something.
    cancel_ends: bool,
}

impl Rounds {
    /// Creates rounds in which `check` checks the work of `executor`, at most [`ITERATIONS`] of them.
    pub(crate) fn new(executor: Player, check: Option<Arc<dyn Check>>) -> Self {
        let speaker = executor.react().map(ReactAgent::speaking);
        Self { executor, speaker, check, iterations: ITERATIONS, cancel_ends: false }
    }

    /// Returns the same rounds with another executor and another check.
    pub(crate) fn of(&self, executor: Player, check: Arc<dyn Check>) -> Self {
        let speaker = executor.react().map(ReactAgent::speaking);
        Self { executor, speaker, check: Some(check), ..self.clone() }
    }

    /// Sets the maximum number of rounds, at least 1.
    pub(crate) fn iterations(mut self, iterations: u32) -> Self {
        self.iterations = iterations;
        self
    }

    /// Sets whether a cancel ends the run instead of pausing it.
    pub(crate) fn cancel_ends(mut self, ends: bool) -> Self {
        self.cancel_ends = ends;
        self
    }

    /// Works on the task until it is accepted, or something ends it.
    ///
    /// # Errors
    /// A pause; a cancel, which counts as a pause unless it is to end the run; an error of the store or of a phase's
    /// run.
    pub(crate) async fn run(&self, task: &Task, cx: &RunContext) -> Result<Outcome> {
        cx.effects().check()?;
        let check = self.check.as_ref();
        let plan = Plan {
            iterations: self.iterations,
            checks: check.is_some(),
            sums_up: self.speaker.is_some() && check.is_some_and(|check| check.needs_summary()),
            criteria: check.is_some_and(|check| check.criteria().is_some()),
            claims: check.is_some_and(|check| check.is_claimed()),
        };
        let mut begun = None;
        loop {
            let (started, fresh) = match plan.next(cx.read(CheckedTask::of)?.as_ref(), &task.prompt) {
                Next::End(outcome) => return Ok(*outcome),
                _ if cx.cancellation().is_cancelled() => return Err(self.cancelled(cx)),
                // A run that is to pause begins no phase. A phase that goes on is paused by its own run.
                Next::Begin { .. } if cx.is_stopping() => return Err(Error::paused(Pause::Asked)),
                Next::Begin { iteration, phase, prompt } => {
                    // Effects that do not show what is recorded would make it begin one phase for ever.
                    if begun.replace((iteration, phase)) == Some((iteration, phase)) {
                        let text =
                            "the run's effects do not show the phase that has ended; read what they recorded";
                        return Err(Error::new(ErrorKind::Internal, text));
                    }
                    (self.begin(cx, iteration, phase, prompt)?, true)
                }
                Next::GoOn(started) => (started, false),
            };
            let Below { outcome, work, .. } = self.perform(cx, &started).await?;
            let cut = outcome.status == Status::Cancelled;
            cx.append(self.finished(cx, &started, outcome, &work)?)?;
            // A phase that an earlier process cancelled starts again. A cancel of a phase started here ends the run:
            // otherwise the phase would start over and over.
            if cut && fresh {
                return Err(self.cancelled(cx));
            }
        }
    }

    /// Returns the error that a cancelled run ends with. Below another agent there is no user who could say more to it.
    fn cancelled(&self, cx: &RunContext) -> Error {
        if self.cancel_ends || cx.parent().is_some() {
            return Error::cancelled();
        }
        Error::paused(Pause::Asked)
    }

    fn begin(
        &self,
        cx: &RunContext,
        iteration: u32,
        phase: Phase,
        prompt: Option<Arc<Message>>,
    ) -> Result<Arc<PhaseStarted>> {
        let child = cx.session().in_role(self.role(phase))?;
        let above = cx.run();
        cx.append_with(|state, seq| {
            let prompt = prompt.map_or_else(|| self.prompt(phase, &child, state), Ok)?;
            Ok(PhaseStarted { iteration, phase, child, run: above.started_at(seq), prompt })
        })
    }

    /// Returns the agent that works on a phase; `None` for criteria without a judge that writes them.
    fn agent_of(&self, phase: Phase) -> Option<Arc<dyn Agent>> {
        match (phase, &self.check, &self.speaker) {
            (Phase::Check, Some(check), _) => Some(check.agent(&self.executor)),
            (Phase::Criteria, Some(check), _) => check.criteria(),
            (Phase::Summarize, _, Some(speaker)) => Some(Arc::new(speaker.clone())),
            _ => Some(self.executor.agent()),
        }
    }

    /// Returns the name of the agent of a phase among the parts.
    fn part(&self, phase: Phase) -> String {
        format!("{} {phase:?}", self.role(phase)).to_lowercase()
    }

    /// Returns the agents of all phases.
    pub(crate) fn parts(&self) -> impl Iterator<Item = AgentPart> {
        [Phase::Criteria, Phase::Execute, Phase::Summarize, Phase::Check].into_iter().filter_map(|phase| {
            Some(AgentPart::Agent { name: self.part(phase).into(), agent: self.agent_of(phase)? })
        })
    }

    fn role(&self, phase: Phase) -> &'static str {
        match (phase, &self.check) {
            (Phase::Check | Phase::Criteria, Some(check)) => check.role(),
            _ => EXECUTOR,
        }
    }

    fn prompt(&self, phase: Phase, child: &SessionId, state: &SessionState) -> Result<Arc<Message>> {
        let progress = CheckedTask::of(state)?;
        let asking = match (phase, &self.check, &progress, state.prompt()) {
            (Phase::Check, Some(check), Some(progress), _) => {
                check.prompt(&asked(progress, child), progress.report())
            }
            (Phase::Criteria, Some(check), Some(progress), _) => {
                check.criteria_prompt(&asked(progress, child))
            }
            (Phase::Criteria, Some(check), None, Some(prompt)) => {
                let request = Arc::clone(prompt);
                check.criteria_prompt(&Asked { request, said: Vec::new(), iteration: 1, criteria: None })
            }
            (_, _, Some(progress), _) if phase == Phase::Execute => return Ok(progress.next_prompt()),
            _ => Message::user(SUM_UP),
        };
        Ok(Arc::new(asking))
    }

    /// Builds the record of the end of a phase.
    fn finished(
        &self,
        cx: &RunContext,
        started: &PhaseStarted,
        outcome: Box<Outcome>,
        work: &[Arc<Message>],
    ) -> Result<PhaseFinished> {
        let (iteration, phase) = (started.iteration, started.phase);
        let verdict =
            || has_result(&outcome.status).then(|| self.verdict(cx, started, &outcome, work)).transpose();
        let (text, verdict) = match phase {
            Phase::Criteria => (outcome.text.as_str().into(), None),
            Phase::Execute => {
                let claimed = self.check.as_ref().is_some_and(|check| check.is_claimed());
                let answers = self.speaker.is_none() && is_summary(&outcome);
                let report =
                    if answers { outcome.text.trim().into() } else { self.executor.digest(work).into() };
                (report, if claimed { verdict()? } else { None })
            }
            Phase::Summarize if is_summary(&outcome) => (outcome.text.trim().into(), None),
            Phase::Summarize => {
                let digest = |progress: CheckedTask| Arc::from(progress.report());
                (cx.read(CheckedTask::of)?.map(digest).unwrap_or_default(), None)
            }
            Phase::Check => {
                let verdict = verdict()?;
                let reason = verdict.as_ref().map(|verdict| verdict.reason.as_str());
                (reason.unwrap_or_default().into(), verdict)
            }
        };
        Ok(PhaseFinished { iteration, phase, outcome: *outcome, text, verdict })
    }

    fn verdict(
        &self,
        cx: &RunContext,
        started: &PhaseStarted,
        outcome: &Outcome,
        work: &[Arc<Message>],
    ) -> Result<Verdict> {
        let asked = cx.read(CheckedTask::of)?.map(|it| asked(&it, &started.child));
        Ok(match (&self.check, asked) {
            (Some(check), Some(asked)) => check.read(&asked, outcome, work),
            _ => Verdict::rejected(""),
        })
    }

    /// Runs the phase in its session and returns its outcome and messages.
    async fn perform(&self, cx: &RunContext, started: &PhaseStarted) -> Result<Below> {
        let (mut scope, mut opening) = (Scope::all(), Vec::new());
        if let (Phase::Check | Phase::Criteria, Some(check)) = (started.phase, &self.check) {
            scope = check.scope();
            if started.phase == Phase::Check {
                let asked = cx.read(CheckedTask::of)?.map(|it| asked(&it, &started.child));
                opening = asked.map(|asked| check.opening(&asked)).unwrap_or_default();
            }
        }
        let no_longer = || {
            Error::new(
                ErrorKind::Diverged,
                "the run began with criteria, and this agent has no judge that writes criteria; resume it with the agent that began it",
            )
        };
        let agent = self.agent_of(started.phase).ok_or_else(no_longer)?;
        let task = Task::new(Message::clone(&started.prompt));
        let spawn = Spawn::new(agent, task)
            .with_role(self.role(started.phase))
            .with_part(self.part(started.phase))
            .with_scope(scope)
            .sharing_todos();
        let delegate =
            Delegate::new(started.child.clone(), spawn).run(started.run).opening(opening).part_of_run();
        let ended = Below::run(delegate, cx).await;
        ended.map_err(|error| if error.kind() == ErrorKind::Cancelled { self.cancelled(cx) } else { error })
    }
}

/// True when a phase ended in a way that a verdict can be about.
fn has_result(status: &Status) -> bool {
    matches!(fate(status), Fate::Done | Fate::Cut)
}

fn asked(progress: &CheckedTask, checker: &SessionId) -> Asked {
    Asked {
        request: Arc::clone(&progress.request),
        said: progress.unheard(checker),
        iteration: progress.iteration(),
        criteria: progress.criteria.clone(),
    }
}

impl fmt::Debug for Rounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rounds")
            .field("executor", &self.executor)
            .field("check", &self.check.as_ref().map(|check| check.role()))
            .field("iterations", &self.iterations)
            .finish_non_exhaustive()
    }
}
