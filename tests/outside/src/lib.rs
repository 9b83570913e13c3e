//! A debate: two agents argue over a question for some rounds, then a jury votes.
//!
//! It is written as a stranger would write a runner, against the public interface of `entourage-core` alone.

use std::{cmp::Ordering, fmt, sync::Arc};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    agent::{Agent, AgentPart, IntoAgent},
    event::Record,
    run::{Outcome, RunContext, Task, Waited},
};
use serde::{Deserialize, Serialize};

/// An argument of one side, as the session keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Argument {
    /// Round, from 1.
    pub round: u32,
    /// Name of the agent.
    pub side: String,
    /// Text of the argument.
    pub text: String,
}

impl Record for Argument {
    const KIND: &'static str = "debate.argument";

    fn summary(&self) -> String {
        format!("{} in round {}: {}", self.side, self.round, self.text)
    }
}

/// The vote of one juror.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ballot {
    /// Name of the juror.
    pub by: String,
    /// Name of the side that convinced it; `None` for an answer that names neither or both.
    pub of: Option<String>,
}

impl Record for Ballot {
    const KIND: &'static str = "debate.ballot";

    fn summary(&self) -> String {
        format!("{} votes for {}", self.by, self.of.as_deref().unwrap_or("nobody"))
    }
}

/// Two agents that argue before a jury.
///
/// The answer is the last argument of the side with more votes, and `undecided` when both have as many.
pub struct Debate {
    name: String,
    sides: [Arc<dyn Agent>; 2],
    jury: Vec<Arc<dyn Agent>>,
    rounds: u32,
}

impl Debate {
    /// Creates a debate of three rounds, without a jury.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for two agents of one name: their arguments could not be told apart.
    pub fn new<One, Two>(
        name: impl Into<String>,
        one: impl IntoAgent<One>,
        two: impl IntoAgent<Two>,
    ) -> Result<Self> {
        let sides = [one.into_agent(), two.into_agent()];
        let [one, two] = sides.each_ref().map(|side| side.name());
        if one == two {
            let text = format!("both sides are named `{one}`; give each agent a name of its own");
            return Err(Error::new(ErrorKind::Config, text));
        }
        Ok(Self { name: name.into(), sides, jury: Vec::new(), rounds: 3 })
    }

    /// Sets the number of rounds.
    #[must_use]
    pub fn with_rounds(mut self, rounds: u32) -> Self {
        self.rounds = rounds;
        self
    }

    /// Adds a juror, who knows nothing but the arguments.
    #[must_use]
    pub fn with_juror<Form>(mut self, juror: impl IntoAgent<Form>) -> Self {
        self.jury.push(juror.into_agent());
        self
    }

    /// Lets each side argue in turn. `Err` holds the outcome of a side that came to no answer.
    async fn argue(&self, question: &str, cx: &RunContext) -> Result<Result<Vec<Argument>, Outcome>> {
        let mut arguments: Vec<Argument> = Vec::new();
        for round in 1..=self.rounds {
            for side in &self.sides {
                let heard = arguments.last().map_or(question, |last| &last.text);
                let outcome = cx.ask(side.name(), Arc::clone(side), heard).await?;
                if !outcome.is_completed() {
                    return Ok(Err(outcome));
                }
                let argument = Argument { round, side: side.name().to_owned(), text: outcome.text };
                cx.record(argument.clone())?;
                arguments.push(argument);
            }
        }
        Ok(Ok(arguments))
    }

    /// Lets all jurors vote at once.
    async fn vote(&self, arguments: &[Argument], cx: &RunContext) -> Result<Vec<Ballot>> {
        let [one, two] = self.sides.each_ref().map(|side| side.name());
        let mut question = format!("Who convinces you? Answer `{one}` or `{two}`.");
        for argument in arguments {
            question.push_str(&format!("\n{}: {}", argument.side, argument.text));
        }
        let mut open = Vec::new();
        for juror in &self.jury {
            open.push((juror.name(), cx.spawn(Arc::clone(juror), question.as_str()).await?));
        }
        let mut ballots = Vec::new();
        while !open.is_empty() {
            let children: Vec<_> = open.iter().map(|(_, child)| child.clone()).collect();
            let Waited::Ended { index, outcome } = cx.wait_any(&children, None).await? else { continue };
            let (by, _) = open.remove(index);
            let says = |name: &str| outcome.is_completed() && outcome.text.contains(name);
            let of = match (says(one), says(two)) {
                (true, false) => Some(one.to_owned()),
                (false, true) => Some(two.to_owned()),
                _ => None,
            };
            let ballot = Ballot { by: by.to_owned(), of };
            cx.record(ballot.clone())?;
            ballots.push(ballot);
        }
        Ok(ballots)
    }
}

impl fmt::Debug for Debate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Debate")
            .field("name", &self.name)
            .field("rounds", &self.rounds)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Agent for Debate {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        "Answers a question by a debate of two agents."
    }

    fn parts(&self) -> Vec<AgentPart> {
        let agents = self.sides.iter().chain(&self.jury);
        agents.map(|agent| AgentPart::agent(Arc::clone(agent))).collect()
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        let question = task.prompt.text();
        let arguments = match self.argue(&question, cx).await? {
            Ok(arguments) => arguments,
            Err(outcome) => return Ok(outcome),
        };
        let ballots = self.vote(&arguments, cx).await?;
        let votes = |side: &str| ballots.iter().filter(|ballot| ballot.of.as_deref() == Some(side)).count();
        let [one, two] = self.sides.each_ref().map(|side| side.name());
        let winner = match votes(one).cmp(&votes(two)) {
            Ordering::Greater => one,
            Ordering::Less => two,
            Ordering::Equal => return Ok(Outcome::completed("undecided")),
        };
        let last = arguments.into_iter().rfind(|argument| argument.side == winner);
        Ok(Outcome::completed(last.map_or_else(String::new, |last| last.text)))
    }
}
