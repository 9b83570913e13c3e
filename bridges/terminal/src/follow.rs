//! A run from its prompt to its outcome, with the person in front of it.

use std::{future::Future, pin::Pin, sync::Arc};

use entourage_core::{
    Result, SessionId,
    agent::IntoAgent,
    event::{Envelope, Event, ToolFinished},
    provider::Delta,
    run::{Outcome, Pause, Status, Task},
};
use entourage_runtime::{RunHandle, Session};

use crate::{Terminal, shown};

impl Terminal {
    /// Runs `agent` in `session` until it ends, and shows what happens. A session that has an unfinished run goes on
    /// with it, and `prompt` is then left out; else `prompt` begins a new one. While the run waits for the person, the
    /// person is asked, and the run goes on. A question that was put off until a time is asked again, and withdrawn at
    /// that time, when the decision follows by itself.
    ///
    /// The first Ctrl-C cancels the run, the second one ends the process with code 130. At a question that a run waits
    /// for, Ctrl-C leaves the run as it is, and its outcome is returned. Dropping the future cancels the run.
    ///
    /// # Errors
    /// Those of [`RunHandle::outcome`] and [`Terminal::answer`].
    pub async fn run<Form>(
        &self,
        session: &Session,
        agent: impl IntoAgent<Form>,
        prompt: impl Into<Task>,
    ) -> Result<Outcome> {
        self.run_with(session, agent, prompt, |_| Ok(())).await
    }

    /// As [`Terminal::run`], with a view of one's own: `seen` gets each event before the terminal shows it.
    ///
    /// # Errors
    /// Those of [`Terminal::run`], and those of `seen`, which cancel the run.
    pub async fn run_with<Form>(
        &self,
        session: &Session,
        agent: impl IntoAgent<Form>,
        prompt: impl Into<Task>,
        mut seen: impl FnMut(&Envelope) -> Result<()>,
    ) -> Result<Outcome> {
        let agent = agent.into_agent();
        let run = match session.unfinished().await? {
            // What it waits for is asked once this process has the run: another one may hold it for a while, also one
            // that was killed.
            Some(_) => session.resume(Arc::clone(&agent)),
            None => session.start(Arc::clone(&agent), prompt),
        };
        let mut outcome = self.follow(run, &mut seen).await?;
        while waits(&outcome) && self.has_person() && self.answer_within(session, &outcome).await? {
            outcome = self.follow(session.resume(Arc::clone(&agent)), &mut seen).await?;
        }
        Ok(outcome)
    }

    /// Asks the person for what a paused run waits for, until the decision follows by itself. Returns false if
    /// something is left to answer.
    async fn answer_within(&self, session: &Session, outcome: &Outcome) -> Result<bool> {
        let Status::Paused(Pause::Deadline { until, .. }) = &outcome.status else {
            return self.answer(session).await;
        };
        let left = until.since(session.now());
        let Ok(answered) = tokio::time::timeout(left, self.answer(session)).await else {
            self.say("the time for an answer is over");
            return Ok(true);
        };
        answered
    }

    /// Shows a run until it has ended. `seen` gets each event before the terminal shows it. The first Ctrl-C cancels
    /// the run, the second one ends the process with code 130.
    ///
    /// # Errors
    /// Those of [`RunHandle::outcome`], and those of `seen`, which cancel the run.
    pub async fn follow(
        &self,
        mut run: RunHandle,
        mut seen: impl FnMut(&Envelope) -> Result<()>,
    ) -> Result<Outcome> {
        let (root, _followed) = (run.session().clone(), self.0.interrupts.follow());
        let mut interrupt: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(tokio::signal::ctrl_c());
        let (mut is_cancelled, mut has_spoken) = (false, false);
        loop {
            tokio::select! {
                event = run.next() => match event {
                    Some(event) => {
                        seen(&event)?;
                        self.show(&event, &root);
                        has_spoken |= is_text(&event, &root);
                    }
                    None => return run.outcome().await.inspect(|outcome| self.tell(outcome, has_spoken)),
                },
                pressed = &mut interrupt => {
                    interrupt = match pressed {
                        Ok(()) if is_cancelled => std::process::exit(130),
                        Ok(()) => Box::pin(tokio::signal::ctrl_c()),
                        // There is no way to hear of it.
                        Err(_) => Box::pin(std::future::pending()),
                    };
                    if !is_cancelled {
                        is_cancelled = true;
                        run.cancel();
                        self.say("cancelling; Ctrl-C again leaves at once");
                    }
                }
            }
        }
    }

    /// Ends the words of the agent, and names the tasks that failed although the run went on. Words of an agent that
    /// has them from others, such as a team, are printed now.
    fn tell(&self, outcome: &Outcome, has_spoken: bool) {
        let mut screen = self.screen();
        if !has_spoken {
            screen.text(&outcome.text);
        }
        screen.end_line();
        if !outcome.failed.is_empty() {
            let failed: Vec<_> = outcome.failed.iter().map(|name| shown::name(name)).collect();
            screen.say(&format!("failed: {}", failed.join(", ")));
        }
    }

    /// Prints an event: the words of the agent of the session `root` as they come, results of tools of all agents as
    /// lines, changes of files as diffs, warnings, and answers that could not be taken as they were given. Other events
    /// print nothing.
    pub fn show(&self, event: &Envelope, root: &SessionId) {
        let is_root = event.origin.session == *root;
        match &event.event {
            Event::Delta(Delta::Text(text)) if is_root => self.screen().text(text),
            Event::ToolFinished(call) => {
                self.tool(call, (!is_root).then_some(&*event.origin.agent));
            }
            // An answer whose grant could not be kept holds for less than was said.
            Event::ApprovalDecided(answer) => {
                if let Some(failure) = &answer.failure {
                    self.say(&shown::line(&format!("taken as {}: {failure}", answer.decision)));
                }
            }
            Event::WarningRaised(warning) => self.say(&format!("warning: {}", shown::line(&warning.text))),
            _ => {}
        }
    }

    fn tool(&self, call: &ToolFinished, below: Option<&str>) {
        let result = &call.result;
        let text = result.to_text();
        let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let first: String = first.chars().take(160).collect();
        let code =
            call.metadata.as_ref().and_then(|it| it.get("exit_code")?.as_i64()).filter(|code| *code != 0);
        let sign = match (result.is_error, code) {
            (true, _) => "failed".to_owned(),
            (false, Some(code)) => format!("exit code {code}"),
            (false, None) => "done".to_owned(),
        };
        let by = below.map(|agent| format!("{}: ", shown::name(agent))).unwrap_or_default();
        self.say(&format!("{by}{} {sign}: {}", shown::name(&result.name), shown::line(&first)));
        if let Some(diff) = call.metadata.as_ref().and_then(|it| it.get("diff")?.as_str()) {
            self.diff(diff);
        }
    }
}

/// True for words of the agent of this session.
fn is_text(event: &Envelope, root: &SessionId) -> bool {
    event.origin.session == *root && matches!(event.event, Event::Delta(Delta::Text(_)))
}

/// True if the run waits for a person.
fn waits(outcome: &Outcome) -> bool {
    matches!(outcome.status, Status::Paused(Pause::Call(_) | Pause::Approval(_) | Pause::Deadline { .. }))
}
