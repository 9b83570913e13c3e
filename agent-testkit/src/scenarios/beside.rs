//! Scenarios of work beside a run: a title written in the background, prompts that arrive meanwhile.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Result,
    event::Event,
    session::SessionStatus,
    tool::{Access, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec},
};
use entourage_runners::ReactAgent;
use entourage_runtime::permission::Policy;
use entourage_runtime::{Agents, Titles};
use serde_json::json;
use tokio::sync::Notify;

use crate::{
    ScriptedProvider,
    crash::{DriveContext, DriveStep, Log, Scenario},
};

/// Time for which the lease of a dead process keeps [`Runtime::recover`](entourage_runtime::Runtime::recover) from its
/// session.
const LEASE: Duration = Duration::from_millis(250);

/// A title is written in the background, while and after the first of two runs; the second one waits for it.
#[must_use]
pub fn title() -> Scenario {
    let signs = Signs::default();
    let told = signs.clone();
    let scenario = Scenario::new("title", move |life| {
        let provider = ScriptedProvider::by_history()
            .text("There is a pear.")
            .call("wait", json!({}))
            .text("It is named.");
        ReactAgent::builder("keeper", life.model(&provider.model())).tool(life.tool(told.waiting())).build()
    });
    scenario
        .titles(|life| {
            let provider = ScriptedProvider::by_history().text("A pear somewhere");
            Titles::new(life.model(&provider.model()))
        })
        .runtime(|builder| builder.policy(Policy::allow_all()).checkpoint_every(3))
        .driven(move |cx| Box::pin(give_title(cx, signs.current())))
}

async fn give_title(cx: &DriveContext, sign: Arc<Notify>) -> Result<DriveStep> {
    let DriveContext { runtime, agent, session, tree, .. } = cx;
    let root = tree.get(session.id());
    let mut titled = count(root, |event| matches!(event, Event::Titled(_))) > 0;
    let mut events = runtime.subscribe();
    let run = match root.map(|log| log.info.head.status) {
        Some(SessionStatus::Running | SessionStatus::Paused) => session.resume(agent),
        _ => match count(root, |event| matches!(event, Event::RunStarted(_))) {
            // The same prompt, since either run may be the titled one: a title that had not begun begins with the next
            // run.
            0 | 1 => session.start(agent, "What is there?"),
            _ => return Ok(DriveStep::Over),
        },
    };
    while !titled {
        let Some(event) = events.next().await else { break };
        titled = matches!(event.event, Event::Titled(_));
    }
    sign.notify_one();
    run.outcome().await?;
    Ok(DriveStep::More)
}

/// While a tool runs, one prompt joins the run and another is queued behind it. Work of a dead process is found and
/// continued by [`Runtime::recover`](entourage_runtime::Runtime::recover).
#[must_use]
pub fn queue() -> Scenario {
    let signs = Signs::default();
    let told = signs.clone();
    let scenario = Scenario::new("queue", move |life| {
        let provider = ScriptedProvider::by_history()
            .call("wait", json!({}))
            .text("Here are both.")
            .text("And here is the third.");
        ReactAgent::builder("waiter", life.model(&provider.model())).tool(life.tool(told.waiting())).build()
    });
    scenario
        .runtime(|builder| builder.policy(Policy::allow_all()).checkpoint_every(3).lease(LEASE))
        .driven(move |cx| Box::pin(give_prompts(cx, signs.current())))
}

async fn give_prompts(cx: &DriveContext, sign: Arc<Notify>) -> Result<DriveStep> {
    let DriveContext { runtime, agent, session, tree, .. } = cx;
    let root = tree.get(session.id());
    let queued = |steer| count(root, |event| matches!(event, Event::PromptQueued(it) if it.steer == steer));
    let (mut joins, mut follows) = (queued(true), queued(false));
    let mut left = 2 - count(root, |event| matches!(event, Event::RunFinished(_))).min(2);
    let mut events = runtime.subscribe();
    let mut runs = match root.map(|log| log.info.head.status) {
        None => vec![session.start(agent, "One, please.")],
        Some(SessionStatus::Running) => {
            runtime.recover(&Agents::new().with(Arc::clone(agent))).await?.resumed
        }
        Some(_) => return Ok(DriveStep::Over),
    };
    if runs.is_empty() {
        // The lease of the dead process has not expired.
        tokio::time::sleep(LEASE).await;
        return Ok(DriveStep::More);
    }
    while left > 0 {
        if joins > 0 && follows > 0 {
            sign.notify_one();
        }
        let Some(event) = events.next().await else { break };
        match &event.event {
            Event::ToolStarted(_) => {
                if joins == 0 {
                    session.steer("Two, please.").await?;
                }
                if follows == 0 {
                    runs.push(session.start(agent, "A third one.".to_owned()));
                }
            }
            Event::PromptQueued(queued) if queued.steer => joins += 1,
            Event::PromptQueued(_) => follows += 1,
            Event::RunFinished(_) => left -= 1,
            _ => {}
        }
    }
    for run in runs {
        run.outcome().await?;
    }
    Ok(DriveStep::More)
}

fn count(log: Option<&Log>, of: impl Fn(&Event) -> bool) -> usize {
    log.map_or(0, |log| log.events.iter().filter(|event| of(&event.event)).count())
}

/// Notifier for the waiting tool. Each process has its own.
#[derive(Debug, Clone, Default)]
struct Signs(Arc<Mutex<Arc<Notify>>>);

impl Signs {
    fn current(&self) -> Arc<Notify> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn waiting(&self) -> Waiting {
        let sign = Arc::new(Notify::new());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&sign);
        let spec = ToolSpec::new("wait", "Waits until it is told.", json!({"type": "object"}));
        Waiting { spec: spec.with_access(Access::READ), sign }
    }
}

#[derive(Debug)]
struct Waiting {
    spec: ToolSpec,
    sign: Arc<Notify>,
}

#[async_trait]
impl Tool for Waiting {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, _: ToolInput, _: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        self.sign.notified().await;
        Ok(ToolOutput::text("It is so."))
    }
}
