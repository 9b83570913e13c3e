//! Sessions as tests: a stored session runs again with another prompt, model or toolset, and is scored against the
//! original.
//!
//! A [`Transcript`] is what a test needs of a session, read from any store or from a file of lines. A [`Rerun`] gives
//! the prompts of each transcript to an agent. Calls of tools that the original made too are answered from its record
//! and never performed; the others are [marked or performed](Unmatched). Functions of your own score each case against
//! its original, and the [`RerunReport`] is the table.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use entourage_testkit::{FakeTool, ReactAgent, Runtime, ScriptedProvider};
//! use entourage_testkit::rerun::{Rerun, RerunCase, Transcript};
//! use serde_json::json;
//!
//! let order = FakeTool::new("order").returning("Order 17 left on Monday.");
//! let clerk = |provider: &ScriptedProvider| {
//!     ReactAgent::builder("clerk", provider.model()).tool(order.clone()).build().unwrap()
//! };
//!
//! // A session of production.
//! let runtime = Runtime::in_memory();
//! let session = runtime.session();
//! let old = ScriptedProvider::new().call("order", json!({"number": 17})).text("It left on Monday.");
//! session.start(&clerk(&old), "Where is order 17?").outcome().await.unwrap();
//!
//! // The same session with another model.
//! let original = Transcript::read(runtime.store(), session.id().as_str()).await.unwrap();
//! let new = ScriptedProvider::new().call("order", json!({"number": 17})).text("On its way since Monday.");
//! let report = Rerun::of([original], &clerk(&new))
//!     .score("completed", RerunCase::is_completed)
//!     .score("names the day", |case: &RerunCase| case.rerun.answer().contains("Monday"))
//!     .run()
//!     .await
//!     .unwrap();
//! println!("{report}");
//! report.assert();
//! assert_eq!((report.passed(), order.started()), (1, 1)); // the tool ran for the original alone
//! # });
//! ```
//!
//! # Calls of tools
//!
//! | call | answer |
//! |---|---|
//! | one of a tool of the runners that works on its own run: the todo list, the search among deferred tools, messages within a team, `task_complete`, a planner's `reply`, but no other tool of such a name; and those of [`Rerun::running`] | the tool runs, as in any run |
//! | the original made it too, with the same tool and arguments, and not all of these were used | that of the record; the tool does not run |
//! | another one of a tool that declares [`Access::DELEGATE`] alone, and [`Repeat::Resume`], and whose footprint of the call has no more: an agent as a tool | the agent runs; this table holds for its calls |
//! | any other | by [`Unmatched`]: an error result that says so, or the tool runs under the rules of the runtime |
//!
//! Arguments are compared as JSON: the order of keys and the spelling of numbers do not matter, each digit does. They
//! are the model's own, before layers and approvers change them. Equal calls are answered in the order of the original.
//! The calls of agents below are among those of the original, and those of agents below the rerun are answered by them,
//! whoever made them. The answer of an agent stands for its calls: where the call that ran it was answered, they are
//! not left out, and other calls are answered by them last. An answer is what the original's model saw, an error or a
//! refusal too. A call that both runtimes refused is the same call, and so is one that both answered themselves, as
//! often as the original made it. Any other that the rerun's runtime refuses or answers is [new](RerunCase::refused).
//!
//! Not among the calls that answer: those without a result, those that the runtime answered itself (no such tool, wrong
//! arguments, interrupted), those that a rerun marked, and those of hand-written agents, whose arguments are in no
//! record.
//!
//! # Sessions
//!
//! - Each run of the original is a run of one new session, in order, whatever became of the run before it. A prompt
//!   that joined a run ([`Session::steer`](entourage_runtime::Session::steer)) is part of that run's prompt.
//! - A session that began with a given conversation, or is a fork, begins with it again.
//! - A call that was handed out ([`external`](entourage_runners::external)) is answered from the record, and the run
//!   continues. Without a record it is marked; where calls are performed, the run stays paused.
//! - A run that waits for anything else (a decision, a signal) stays paused, and the next prompt abandons it.
//! - Budgets, deadlines, modes, and values of the original's runtime are not taken over. [`Rerun::runtime`] sets
//!   budgets and values.
//! - An original that failed, was cancelled or waits is rerun like any other: its status is what the scores see. A
//!   rerun that fails is a case with that status and no error of [`Rerun::run`].
//! - The code of agents runs: steps of a graph, closures, what a toolset does when it lists its tools. Only calls of
//!   tools are kept from running.
//!
//! [`Access::DELEGATE`]: entourage_core::tool::Access::DELEGATE
//! [`Repeat::Resume`]: entourage_core::tool::Repeat::Resume

mod answers;
mod case;
mod exact;
mod lines;
mod read;
mod report;
mod table;
mod transcript;

#[cfg(test)]
mod tests;

pub use answers::{ChangedCall, Unmatched};
pub use case::{RerunCase, Score};
pub use report::{RerunReport, wilson};
pub use transcript::{Transcript, TranscriptCall, TranscriptRun};

use std::{fmt, future::ready, sync::Arc};

use entourage_core::{
    Error, ErrorKind, Result,
    agent::{Agent, IntoAgent},
    message::Message,
};
use entourage_runtime::{AllowAll, Caught, Runtime, RuntimeBuilder};
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};

use answers::{Answers, FromRecord};

type Judge = Arc<dyn for<'a> Fn(&'a RerunCase) -> BoxFuture<'a, Score> + Send + Sync>;
type Rewrite = Arc<dyn Fn(&Message) -> Message + Send + Sync>;

/// Sessions that run again with one agent: see the [module](self).
#[must_use = "a rerun does nothing until `run`"]
pub struct Rerun {
    originals: Vec<Transcript>,
    agent: Arc<dyn Agent>,
    unmatched: Unmatched,
    runtime: Option<RuntimeBuilder>,
    rewrite: Option<Rewrite>,
    running: Vec<String>,
    scores: Vec<(String, Judge)>,
    at_once: usize,
}

impl Rerun {
    /// Reruns these sessions with `agent`.
    pub fn of<Form>(originals: impl IntoIterator<Item = Transcript>, agent: impl IntoAgent<Form>) -> Self {
        Self {
            originals: originals.into_iter().collect(),
            agent: agent.into_agent(),
            unmatched: Unmatched::Mark,
            runtime: None,
            rewrite: None,
            running: Vec::new(),
            scores: Vec::new(),
            at_once: 1,
        }
    }

    /// Sets the fate of calls that the original did not make. Default: [`Unmatched::Mark`].
    pub fn unmatched(mut self, unmatched: Unmatched) -> Self {
        self.unmatched = unmatched;
        self
    }

    /// Names tools that run in every rerun, whatever the record says: those that touch nothing outside, such as a
    /// calculation, and those by which a runner of your own keeps its record.
    pub fn running<S: Into<String>>(mut self, tools: impl IntoIterator<Item = S>) -> Self {
        self.running.extend(tools.into_iter().map(Into::into));
        self
    }

    /// Sets the runtime of the reruns: its store keeps them, its values are those of the tools, its policy and approver
    /// are asked. Calls that nothing performs are allowed unless a rule or a scope forbids them.
    ///
    /// Default: a store in memory and the default policy. Where calls are marked, an approver allows what a layer or a
    /// rule asks about, since nothing is performed.
    pub fn runtime(mut self, runtime: RuntimeBuilder) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Changes each prompt before the agent gets it. Another prompt of the system is the agent's own setting. Where
    /// `rewrite` panics, the run fails, and so do all scores of the case.
    pub fn prompts(mut self, rewrite: impl Fn(&Message) -> Message + Send + Sync + 'static) -> Self {
        self.rewrite = Some(Arc::new(rewrite));
        self
    }

    /// Sets the number of cases that run at once; at least 1, the default.
    pub fn at_once(mut self, cases: usize) -> Self {
        self.at_once = cases.max(1);
        self
    }

    /// Adds a score. A case passes if all of its scores do. A score is a `bool`, or a `Result` whose error says what is
    /// wrong. One that panics fails for this case.
    pub fn score<S: Into<Score>>(
        self,
        name: impl Into<String>,
        score: impl Fn(&RerunCase) -> S + Send + Sync + 'static,
    ) -> Self {
        self.judge(name, move |case| Box::pin(ready(score(case).into())))
    }

    /// Adds a score that takes time, such as the judgement of a model.
    pub fn judge(
        mut self,
        name: impl Into<String>,
        judge: impl for<'a> Fn(&'a RerunCase) -> BoxFuture<'a, Score> + Send + Sync + 'static,
    ) -> Self {
        self.scores.push((name.into(), Arc::new(judge)));
        self
    }

    /// Reruns all sessions and scores them. Dropping the future cancels what runs.
    ///
    /// # Errors
    /// Before anything runs: [`ErrorKind::Config`] without a session or without a score. A store's errors. What goes
    /// wrong in a rerun is the status of its case.
    pub async fn run(mut self) -> Result<RerunReport> {
        if self.originals.is_empty() {
            return Err(Error::new(ErrorKind::Config, "there is no session to rerun; give at least one"));
        }
        if self.scores.is_empty() {
            let text = "nothing says when a case passes; add a score, such as `RerunCase::is_completed`";
            return Err(Error::new(ErrorKind::Config, text));
        }
        let builder = self.runtime.take().unwrap_or_else(|| match self.unmatched {
            Unmatched::Mark => Runtime::builder().approver(AllowAll),
            Unmatched::Perform => Runtime::builder(),
        });
        let runtime = builder.tool_layer(FromRecord).build();
        let originals = std::mem::take(&mut self.originals);
        let cases: Vec<BoxFuture<'_, _>> =
            originals.into_iter().map(|original| self.scored(&runtime, original).boxed()).collect();
        let cases: Vec<_> = stream::iter(cases).buffered(self.at_once).collect().await;
        Ok(RerunReport::new(cases.into_iter().collect::<Result<_>>()?))
    }

    async fn scored(&self, runtime: &Runtime, original: Transcript) -> Result<RerunCase> {
        let answers = Answers::new(&original.calls, self.unmatched, self.running.as_slice().into());
        let rerun = case::rerun(runtime, &self.agent, original, answers, self.rewrite.as_deref());
        let (mut case, unfit) = Box::pin(rerun).await?;
        let mut scores = Vec::with_capacity(self.scores.len());
        for (name, judge) in &self.scores {
            let score = match &unfit {
                Some(reason) => Score::Fail(reason.clone()),
                // The other cases keep their results.
                None => Caught::new(|| judge(&case))
                    .await
                    .unwrap_or_else(|panic| Score::Fail(format!("the score panicked: {panic}"))),
            };
            scores.push((name.clone(), score));
        }
        case.scores = scores;
        Ok(case)
    }
}

impl fmt::Debug for Rerun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scores: Vec<_> = self.scores.iter().map(|(name, _)| name).collect();
        f.debug_struct("Rerun")
            .field("sessions", &self.originals.len())
            .field("agent", &self.agent.name())
            .field("unmatched", &self.unmatched)
            .field("scores", &scores)
            .finish_non_exhaustive()
    }
}
