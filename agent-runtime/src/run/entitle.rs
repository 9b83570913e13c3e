//! Makes the title of a session, beside its first run.

use std::{any::Any, sync::Arc};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    agent::Agent,
    event::{Event, Origin, Titled},
    message::Message,
    permission::Scope,
    provider::{FinishReason, Model},
    run::{Effect, ModelCall, Observation, Outcome, RunContext, Spawn, Task},
    session::SessionState,
    tool::Tools,
};
use tokio_util::sync::CancellationToken;

use crate::{
    children::child::{Turn as ChildTurn, known_end, open_child, run_child},
    context::title::{MAX_OUTPUT, UNTITLED, question, title},
    deps::Deps,
    env::Env,
    own::own,
    run::{end::TITLE, execute::Within},
    session::{delivery::emit::Emitter, journal::Journal},
    titles::Titles,
};

/// Starts to title the session in the background, unless it has a title or is a child.
pub(crate) fn begin(
    env: &Arc<Env>,
    journal: &Arc<Journal>,
    origin: &Arc<Origin>,
    prompt: &Arc<Message>,
    emitter: &Emitter,
) {
    let Some(titles) = &env.titles else { return };
    if journal.parent().is_some() || journal.read(|state| state.is_titled()) {
        return;
    }
    let (titles, env, journal) = (titles.clone(), Arc::clone(env), Arc::clone(journal));
    let (origin, prompt, emitter) = (Arc::clone(origin), Arc::clone(prompt), emitter.clone());
    let tasks = env.tasks.clone();
    tasks.spawn(async move {
        // A failure is not reported: a session without a title is named by its first words.
        drop(entitle(titles, &env, &journal, &origin, prompt, &emitter).await);
    });
}

async fn entitle(
    titles: Titles,
    env: &Arc<Env>,
    journal: &Arc<Journal>,
    origin: &Arc<Origin>,
    prompt: Arc<Message>,
    emitter: &Emitter,
) -> Result<()> {
    // The parent of the title's session has to be stored first.
    journal.commit(emitter).await?;
    let within = Box::new(Within {
        path: Some(Arc::clone(&origin.agent)),
        scope: Scope::none(),
        reads_unasked: false,
        cancel: CancellationToken::new(),
        // The run's stream shows the answer, and not the title as it is written.
        emitter: Emitter::new(None, env),
        todos: None,
        // The title is made beside the run, outside its budget, and continues when the run stops.
        budget: None,
        run: None,
        opening: Vec::new(),
        title: None,
        pool: None,
        unseated: false,
        subtree: None,
        clock: None,
        root: None,
        above: journal.as_above(origin.run),
        labels: journal.read(SessionState::labels),
        owns_cancel: true,
        deps: Deps::default(),
    });
    let child = journal.session().child(TITLE.0, TITLE.1)?;
    let mut task = Task::new("");
    task.prompt = prompt;
    let spawn = Spawn::new(Arc::new(Titler(titles)), task).with_role("title");
    let below = open_child(env, journal.session(), child, spawn.role.clone()).await?;
    below.check_above(journal, None)?;
    let end = match known_end(&below, ChildTurn::Only).await? {
        Some(end) => end,
        None => run_child(env, &below, spawn.agent, spawn.task, ChildTurn::Only, within).await?,
    };
    let outcome = end.outcome;
    if outcome.is_completed() && !journal.read(|state| state.is_titled()) {
        let titled = Event::Titled(Arc::new(Titled::new(outcome.text.into())));
        journal.stage(origin, env.clock.now(), titled);
        journal.commit(emitter).await?;
    }
    Ok(())
}

/// Agent that asks one model after the other.
struct Titler(Titles);

impl Titler {
    fn call(&self, model: &Model, prompt: &str) -> ModelCall {
        let mut request = model.request(question(prompt));
        let (text, template) = self.0.instructions.clone().into_parts();
        request.instructions = text;
        // A model that reasons needs room for that, and nobody knows how much.
        if model.profile().reasoning != Some(true) {
            let mut params = (*request.params).clone();
            params.max_output = Some(MAX_OUTPUT);
            request.params = Arc::new(params);
        }
        let mut call = ModelCall::new(model.clone(), request, Tools::none());
        call.template = template;
        call
    }
}

#[async_trait]
impl Agent for Titler {
    fn name(&self) -> &'static str {
        "titler"
    }

    fn as_any(&self) -> Option<&dyn Any> {
        own()
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        let prompt = task.prompt.text();
        for model in &self.0.models {
            match cx.perform(Effect::Model(Box::new(self.call(model, &prompt)))).await {
                Ok(Observation::Model(reply)) if reply.finish.reason == FinishReason::Stop => {
                    let answer = reply.message.first_text().unwrap_or_default();
                    return Ok(Outcome::completed(title(answer, &prompt)));
                }
                Ok(_) => {}
                Err(error) if is_of_the_run(&error) => return Err(error),
                Err(_) => {}
            }
        }
        Ok(Outcome::completed(UNTITLED))
    }
}

/// True when another model would fare no better.
fn is_of_the_run(error: &Error) -> bool {
    use ErrorKind::{Cancelled, Conflict, Diverged, Paused, Store};
    matches!(error.kind(), Cancelled | Conflict | Diverged | Paused | Store)
}
