//! The driver of a cascade: it runs the agents and the check, and records each start and end before it goes on.

use std::sync::Arc;

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    agent::{Agent, AgentPart},
    message::{Message, Role},
    run::{Delegate, Outcome, Pause, RunContext, Spawn, Status, Task},
};

use super::{
    Cascade, CascadeStarted, CascadeStep,
    builder::part_of,
    fate::{Fate, Ruling, fate, settle},
    progress::Progress,
    records::NAMESPACE,
    verify::{self, Verifier},
};
use crate::{
    autonomy::{Discriminator, Player, check::Check},
    below::Below,
    graph::{section, with_text},
};

/// Role of the sessions of attempts.
const ROLE: &str = "attempt";

/// Name of the checker among the parts.
const CHECK: &str = "check";

#[async_trait]
impl Agent for Cascade {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn description(&self) -> &str {
        self.0.steps.first().map_or("", |step| step.player.description())
    }

    fn begins_with_an_effect(&self) -> bool {
        true
    }

    fn parts(&self) -> Vec<AgentPart> {
        let part = |name: String, agent| AgentPart::Agent { name: name.into(), agent };
        let steps = (1..).zip(&self.0.steps).map(|(step, it)| part(part_of(step), it.player.agent()));
        let checker = self.0.verifier.agent().zip(self.0.steps.first());
        let checker = checker.map(|(checker, step)| part(CHECK.to_owned(), checker.agent(&step.player)));
        steps.chain(checker).collect()
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        cx.effects().check()?;
        let mut progress = Progress::default();
        progress.recall(&cx.records(NAMESPACE))?;
        while progress.outcome().is_none() {
            let replayed = cx.effects().replayed(cx).await?;
            if replayed.is_empty() {
                break;
            }
            progress.recall(&replayed)?;
        }
        let mut drive = Drive { cascade: self, task: &task, cx, progress };
        loop {
            if let Some(outcome) = drive.progress.outcome() {
                return Ok(outcome);
            }
            let step = drive.attempt().await?;
            drive.progress.ended(cx.append_with(|_, _| Ok(step))?);
        }
    }
}

/// A cascade's run in progress.
struct Drive<'a> {
    cascade: &'a Cascade,
    task: &'a Task,
    cx: &'a RunContext,
    progress: Progress,
}

impl Drive<'_> {
    /// Makes the next attempt, or goes on with the one that has begun.
    async fn attempt(&mut self) -> Result<CascadeStep> {
        let started = match &self.progress.open {
            Some(started) => Arc::clone(started),
            None => self.begin()?,
        };
        let cascade = self.cascade;
        let player = cascade.player(&started)?;
        let ended = self.work(player, &started).await?;
        let ruling = match (fate(&ended.outcome.status), &cascade.0.verifier) {
            (Fate::Answered, Verifier::Closure(verify)) => {
                verify::ask(verify, &ended.outcome, self.cx).await?
            }
            (Fate::Answered, Verifier::Agent(checker)) => {
                self.check(checker, player, &started, &ended).await?
            }
            _ => Ruling::Accepted,
        };
        let last = usize::try_from(started.step).is_ok_and(|step| step >= cascade.0.steps.len());
        let settled = settle(&ended.outcome, ruling, started.attempt, last);
        let CascadeStarted { attempt, step, agent, child, task, .. } = CascadeStarted::clone(&started);
        let (usage, cost) = ended.spent();
        let (outcome, refused, ended) = (*ended.outcome, settled.refused, settled.ended);
        Ok(CascadeStep { attempt, step, agent, child, task, outcome, refused, ended, usage, cost })
    }

    /// Records that the next attempt begins. Its session is named after this record.
    fn begin(&mut self) -> Result<Arc<CascadeStarted>> {
        may_begin(self.cx)?;
        let (attempt, step, task) = match &self.progress.last {
            Some(last) => (last.attempt.saturating_add(1), last.step.saturating_add(1), last.task),
            None => {
                let kind = self.cascade.kind(self.task)?;
                (1, self.cascade.first(kind), kind)
            }
        };
        let agent = self.cascade.step(step)?.player.name().into();
        self.record(CascadeStarted {
            attempt,
            step,
            agent,
            child: self.cx.session().clone(),
            task,
            check: false,
        })
    }

    /// Records a start, in a session that is named after this record.
    fn record(&mut self, mut started: CascadeStarted) -> Result<Arc<CascadeStarted>> {
        let session = self.cx.session();
        let started = self.cx.append_with(|_, seq| {
            started.child = session.child(seq, 0)?;
            Ok(started)
        })?;
        self.progress.started(Arc::clone(&started));
        Ok(started)
    }

    /// Has the agent work, in a conversation that holds the cascade's own before its prompt.
    async fn work(&self, player: &Player, started: &CascadeStarted) -> Result<Below> {
        let (task, cx) = (self.task, self.cx);
        let given = Task::of(Arc::clone(&task.prompt), None, None).with_labels(task.labels);
        let given = match self.progress.last.as_ref().and_then(|last| last.refused.as_ref()) {
            Some(reason) => {
                let mut text = "An attempt before this one failed:".to_owned();
                section(&mut text, "failure", "", reason);
                with_text(given, &text)
            }
            None => given,
        };
        let spawn = Spawn::new(player.agent(), given).with_role(ROLE).with_part(part_of(started.step));
        let delegate = Delegate::new(started.child.clone(), spawn.sharing_todos());
        ended(delegate.opening(said_before(task, cx)).counted(), cx).await
    }

    /// Has the checker look at an answer, or goes on with the check that has begun.
    async fn check(
        &mut self,
        checker: &Discriminator,
        player: &Player,
        attempt: &CascadeStarted,
        answer: &Below,
    ) -> Result<Ruling> {
        let agent = checker.agent(player);
        let started = match &self.progress.check {
            Some(started) => Arc::clone(started),
            None => {
                may_begin(self.cx)?;
                self.record(CascadeStarted { agent: agent.name().into(), check: true, ..attempt.clone() })?
            }
        };
        let asked = verify::asked(&self.task.prompt);
        let report = match answer.outcome.text.trim() {
            "" => player.digest(&answer.work),
            text => text.to_owned(),
        };
        let prompt = Task::new(checker.prompt(&asked, &report));
        let spawn = Spawn::new(agent, prompt).with_role(checker.role()).with_part(CHECK);
        let delegate = Delegate::new(started.child.clone(), spawn.with_scope(checker.scope()));
        let ended = ended(delegate.opening(checker.opening(&asked)), self.cx).await?;
        Ok(verify::read(checker, &asked, &ended.outcome, &ended.work))
    }
}

/// Runs a child to its end.
///
/// # Errors
/// A pause, a cancel, [`ErrorKind::Diverged`] from below, the store's.
async fn ended(delegate: Delegate, cx: &RunContext) -> Result<Below> {
    let ended = Below::run(delegate.part_of_run(), cx).await?;
    match &ended.outcome.status {
        Status::Cancelled => Err(Error::cancelled()),
        Status::Paused(pause) => Err(Error::paused(pause.clone())),
        // Its own code or settings changed: its run stays open, and so does this one.
        Status::Failed(error) if error.kind == ErrorKind::Diverged => Err(error.to_error()),
        _ => Ok(ended),
    }
}

/// Checks that something new may begin.
fn may_begin(cx: &RunContext) -> Result<()> {
    if cx.cancellation().is_cancelled() {
        return Err(Error::cancelled());
    }
    if cx.is_stopping() { Err(Error::paused(Pause::Asked)) } else { Ok(()) }
}

/// Returns what the user and the cascade said before this prompt. Calls of tools, of another agent in this session, are
/// left out: no tool of the next agent needs to know them.
fn said_before(task: &Task, cx: &RunContext) -> Vec<Arc<Message>> {
    let history = cx.history();
    let messages: Vec<_> = history.iter().collect();
    let prompt = messages.iter().rposition(|message| ***message == *task.prompt);
    let before = messages.into_iter().take(prompt.unwrap_or(0));
    before
        .filter_map(|message| match message.role() {
            Role::User => Some(Arc::clone(message)),
            Role::Assistant => {
                let text = message.text();
                (!text.trim().is_empty()).then(|| Arc::new(Message::assistant(text)))
            }
            _ => None,
        })
        .collect()
}
