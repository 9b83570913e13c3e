//! One session that runs again: its prompts, the calls that were handed out, and what came of it.

use std::sync::Arc;

use entourage_core::{
    Error, ErrorKind, Result,
    agent::Agent,
    message::Message,
    run::{Outcome, Pause, Status, Task},
    tool::{ToolError, ToolOutput},
};
use entourage_runtime::{Runtime, Session, Waiting, caught};

use super::{
    answers::{Answers, ChangedCall},
    transcript::{Transcript, TranscriptRun},
};

/// A session, its rerun, and the scores.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RerunCase {
    /// The session as it was.
    pub original: Transcript,
    /// The session as it went this time. Its name is that of the original.
    pub rerun: Transcript,
    /// Number of calls that the record answered.
    pub answered: u64,
    /// Number of calls that were marked.
    pub marked: u64,
    /// Number of calls that the original did not make and that were performed, those that ran an agent among them.
    pub performed: u64,
    /// Number of calls that the original did not make and that the runtime of the rerun refused, answered itself (no
    /// such tool, wrong arguments, a loop), or handed out without getting a result. A call that both runtimes refused,
    /// or both answered themselves, is no new one, as often as the original made it.
    pub refused: u64,
    /// Number of the original's calls that the rerun did not make, of those that could answer one. Calls of an agent
    /// below do not count where the call that ran it was answered. A call without labels that is named like a tool of
    /// the runners' own counts if the rerun called another tool of that name.
    pub left: u64,
    /// The calls that were left out, in the order of the original; at most 1,000.
    pub missing: Vec<ChangedCall>,
    /// The calls that were marked or performed, in their order, then those that were refused; at most 1,000.
    pub changed: Vec<ChangedCall>,
    /// The scores with their names, in the order in which they were given. Empty while they are made.
    pub scores: Vec<(String, Score)>,
}

/// A verdict on a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Score {
    /// The case is as it should be.
    Pass,
    /// It is not, for this reason; may be empty.
    Fail(String),
}

impl From<bool> for Score {
    fn from(passes: bool) -> Self {
        if passes { Self::Pass } else { Self::Fail(String::new()) }
    }
}

impl<E: std::fmt::Display> From<Result<(), E>> for Score {
    fn from(result: Result<(), E>) -> Self {
        result.map_or_else(|error| Self::Fail(error.to_string()), |()| Self::Pass)
    }
}

impl RerunCase {
    /// Name of the case.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.original.name
    }

    /// True if all scores pass.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.scores.iter().all(|(_, score)| *score == Score::Pass)
    }

    /// True if each run of the rerun completed.
    #[must_use]
    pub fn is_completed(&self) -> bool {
        self.rerun.is_completed()
    }

    /// True if all answers are those of the original, spaces around them aside. A model rarely says a thing twice in
    /// the same words: compare what matters.
    #[must_use]
    pub fn has_same_answers(&self) -> bool {
        self.same_answers().is_ok()
    }

    /// Compares the answers as [`has_same_answers`](Self::has_same_answers) does, for a score with a reason.
    ///
    /// # Errors
    /// A text with the first answer that differs.
    pub fn same_answers(&self) -> Result<(), String> {
        let (original, rerun) = (&self.original.runs, &self.rerun.runs);
        if original.len() != rerun.len() {
            return Err(format!("{} runs in place of {}", rerun.len(), original.len()));
        }
        let differ = |(_, (one, other)): &(_, (&TranscriptRun, &TranscriptRun))| {
            one.answer.trim() != other.answer.trim()
        };
        match original.iter().zip(rerun).enumerate().find(differ) {
            Some((place, (_, other))) => {
                Err(format!("answer {}: {:?}", place.saturating_add(1), other.answer.trim()))
            }
            None => Ok(()),
        }
    }

    /// True if the rerun made the calls of the original, in any order, and no others, also none that its runtime
    /// [refused](Self::refused). Calls of tools that run in every rerun do not count, nor does one that a paused run
    /// asks an approver about.
    #[must_use]
    pub fn has_same_calls(&self) -> bool {
        self.same_calls().is_ok()
    }

    /// Compares the calls as [`has_same_calls`](Self::has_same_calls) does, for a score with a reason.
    ///
    /// # Errors
    /// A text with the first call that is new and the first one that was left out, and the numbers of others.
    pub fn same_calls(&self) -> Result<(), String> {
        let new = self.marked.saturating_add(self.performed).saturating_add(self.refused);
        let listed = [("new", new, &self.changed), ("left out", self.left, &self.missing)];
        let named = listed.into_iter().filter(|(_, count, _)| *count > 0).map(|(word, count, calls)| {
            let first = calls.first().map(ToString::to_string).unwrap_or_default();
            match count.saturating_sub(1) {
                0 => format!("{word}: {first}"),
                others => format!("{word}: {first} and {others} more"),
            }
        });
        let named: Vec<_> = named.collect();
        if named.is_empty() { Ok(()) } else { Err(named.join("; ")) }
    }
}

/// Runs the prompts of a session again. Scores are added later. The second value is the reason for which the case fails
/// whatever they say.
pub(super) async fn rerun(
    runtime: &Runtime,
    agent: &Arc<dyn Agent>,
    original: Transcript,
    answers: Answers,
    rewrite: Option<&(dyn Fn(&Message) -> Message + Send + Sync)>,
) -> Result<(RerunCase, Option<String>)> {
    let mut unfit = None;
    let session = runtime.session().with_dep(answers.clone());
    let begun = session.begin_with(original.given.iter().cloned()).await;
    let mut runs = Vec::with_capacity(original.runs.len());
    for run in &original.runs {
        let rewritten = caught(|| rewrite.map(|change| Arc::new(change(&run.prompt))));
        let (prompt, panicked) = match rewritten {
            Ok(prompt) => (prompt.unwrap_or_else(|| Arc::clone(&run.prompt)), None),
            Err(panic) => {
                (Arc::clone(&run.prompt), Some(format!("the change of its prompts panicked: {panic}")))
            }
        };
        let outcome = match (&begun, panicked) {
            (_, Some(panicked)) => {
                let outcome = failed(&Error::new(ErrorKind::Internal, panicked.clone()));
                unfit = unfit.or(Some(panicked));
                outcome
            }
            (Ok(()), None) => {
                let mut task = Task::of(Arc::clone(&prompt), None, None);
                task.labels = run.labels;
                outcome((runtime, &session), agent, &answers, task).await
            }
            (Err(error), None) => failed(error),
        };
        let (answer, status) = (outcome.text, Some(outcome.status));
        runs.push(TranscriptRun { agent: agent.name().into(), prompt, labels: run.labels, answer, status });
    }
    let mut rerun = match Transcript::read(runtime.store(), session.id().as_str()).await {
        // Nothing was stored: no run could begin.
        Err(error) if error.kind() == ErrorKind::NotFound => Transcript::new(""),
        read => read?,
    };
    rerun.name.clone_from(&original.name);
    rerun.runs = runs;
    let tally = answers.tally(&rerun);
    let case = RerunCase {
        original,
        rerun,
        answered: tally.answered,
        marked: tally.marked,
        performed: tally.performed,
        refused: tally.refused,
        left: tally.left,
        missing: tally.missing,
        changed: tally.changed,
        scores: Vec::new(),
    };
    Ok((case, unfit))
}

fn failed(error: &Error) -> Outcome {
    Outcome::new(Status::of(error))
}

/// Runs one prompt, and gives the calls that are handed out meanwhile their results.
async fn outcome(
    (runtime, session): (&Runtime, &Session),
    agent: &Arc<dyn Agent>,
    answers: &Answers,
    task: Task,
) -> Outcome {
    let mut run = session.start(Arc::clone(agent), task);
    loop {
        let outcome = run.outcome().await.unwrap_or_else(|error| failed(&error));
        if !matches!(outcome.status, Status::Paused(Pause::Call(_))) {
            return outcome;
        }
        match answer_all(runtime, session, answers).await {
            Ok(true) => run = session.resume(Arc::clone(agent)),
            Ok(false) => return outcome,
            Err(error) => return failed(&error),
        }
    }
}

/// Answers the calls that wait. Returns false if none could be.
async fn answer_all(runtime: &Runtime, session: &Session, answers: &Answers) -> Result<bool> {
    let mut any = false;
    for pending in session.pending().await? {
        let Waiting::Call { id, call } = pending.waits_for else { continue };
        let Some(output) = answers.handed_out(&id, &call.name, call.arguments.as_str()) else { continue };
        let output = match output {
            Ok(output) => output,
            Err(ToolError::Fatal(error)) => return Err(error),
            Err(ToolError::Tell(text)) => ToolOutput::error(text),
        };
        runtime.answer(&id, output).await?;
        any = true;
    }
    Ok(any)
}
