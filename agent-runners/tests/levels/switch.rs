//! A session that changes its level, also during a run and after a crash, and a cancel at each level.

use entourage_core::{
    ErrorKind, SessionId,
    event::Event,
    message::Role,
    provider::{FinishReason, Request},
    run::{Pause, Status},
    session::SharedStore,
    team::TodoStatus,
};
use entourage_runners::{Autonomy, AutonomyLevel, StopKind};
use entourage_runtime::{Mode, Session};
use entourage_testkit::{FakeTool, Gate, Script, ScriptedProvider};
use serde_json::{Value, json};

use crate::{
    common::{
        Fault, FaultyStore, assert_valid, count, kinds, memory, open_runtime, process, runtime_on, stored,
        until_killed,
    },
    ladder::{shown, verdicts, worker},
};

fn todos() -> Value {
    json!({"todos": [
        {"content": "dig", "status": "cancelled", "active_form": "Digging"},
        {"content": "plant", "status": "pending", "active_form": "Planting"},
    ]})
}

fn approve() -> String {
    json!({ "approved": true, "reason": "All there." }).to_string()
}

/// Returns what the user and the others said to the executor, up to this request.
pub(crate) fn told(request: &Request) -> Vec<String> {
    let messages = request.messages.iter().filter(|message| message.role() == Role::User);
    messages.map(|message| message.text()).collect()
}

#[tokio::test(start_paused = true)]
async fn cw12_history_and_todos_survive_a_change_of_level() {
    let works = ScriptedProvider::new()
        .call("todos", todos())
        .text("Dug.")
        .text("Planted.")
        .text("I planted it.")
        .text("Watered.")
        .text("Yes, it is wet.");
    let judges = ScriptedProvider::named("judge").text(approve());
    let agent = Autonomy::builder("gardener", worker(works.model())).judge(judges.model()).build().unwrap();
    let runtime = open_runtime();
    let session = runtime.session();
    let state = agent.mode_state(&session).await.unwrap();
    assert_eq!((&*state.current_mode_id, state.available_modes.len()), ("react", 3));

    session.start(&agent, "Dig").outcome().await.unwrap();
    agent.set_mode(&session, "judge").await.unwrap();
    session.start(&agent, "Plant").outcome().await.unwrap();
    agent.set_mode(&session, "prompted").await.unwrap();
    session.start(&agent, "Water").outcome().await.unwrap();

    let asked = works.requests();
    assert_eq!((asked.len(), judges.count()), (6, 1));
    assert_eq!(told(&asked[2]), ["Dig", "Plant"], "the executor knows what was said at the other level");
    let newest = told(asked.last().unwrap());
    assert_eq!(newest.len(), 5, "three prompts, one request for a summary, one question: {newest:?}");
    assert_eq!(shown(&session).await.len(), 6, "the user sees a prompt and an answer per run");
    let list = session.state().await.unwrap().todos().to_vec();
    let list: Vec<_> = list.iter().map(|todo| (todo.content.as_str(), todo.status)).collect();
    assert_eq!(list, [("dig", TodoStatus::Cancelled), ("plant", TodoStatus::Pending)]);
    assert_eq!(&*agent.mode_state(&session).await.unwrap().current_mode_id, "prompted");
    let executor = runtime.open(&session.id().in_role("executor").unwrap()).await.unwrap();
    assert_valid(&executor.history().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn cw12_a_level_picked_during_a_run_is_that_of_the_next_run() {
    let gate = Gate::new();
    let works = ScriptedProvider::new()
        .step(Script::new().wait(&gate).text("Dug.").finish(FinishReason::Stop))
        .text("Planted.")
        .text("I planted it.");
    let judges = ScriptedProvider::named("judge").text(approve());
    let agent = Autonomy::builder("gardener", worker(works.model())).judge(judges.model()).build().unwrap();
    let session = open_runtime().session();
    let first = session.start(&agent, "Dig");
    let run = first.id();
    gate.arrived(1).await;
    let update = agent.set_mode(&session, "judge").await.unwrap();
    assert_eq!(serde_json::to_value(update).unwrap(), json!({ "currentModeId": "judge" }));
    gate.open();
    assert_eq!(first.outcome().await.unwrap().text, "Dug.");
    assert_eq!(judges.count(), 0, "nobody judged the run that was under way");
    assert_eq!(session.replay(&agent, run).await.unwrap().text, "Dug.");
    assert_eq!(session.start(&agent, "Plant").outcome().await.unwrap().text, "I planted it.");
}

#[tokio::test(start_paused = true)]
async fn cw12_only_levels_that_somebody_is_there_for_can_be_picked() {
    let works = ScriptedProvider::new();
    let agent = Autonomy::builder("gardener", worker(works.model())).build().unwrap();
    let session = open_runtime().session();
    for id in ["judge", "dual", "L1", "plan"] {
        let error = agent.set_mode(&session, id).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains("`react`, `prompted`"), "{error}");
    }
    // A mode that only another agent offers: nothing is done in it.
    session.set_mode("plan", &[Mode::new("plan", "Plan")]).await.unwrap();
    let error = session.start(&agent, "Dig").outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.message().contains("`plan`") && error.message().contains("`react`"), "{error}");
    assert_eq!(works.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn cw15_a_cancel_while_it_is_judged_is_a_pause_and_the_next_prompt_reaches_the_executor() {
    let gate = Gate::new();
    let works = ScriptedProvider::new()
        .text("Planted.")
        .text("I planted an oak.")
        .text("Replaced.")
        .text("I planted a lime.");
    let judges = ScriptedProvider::named("judge").step(Script::new().wait(&gate)).text(approve());
    let agent = Autonomy::builder("gardener", worker(works.model()))
        .judge(judges.model())
        .level(AutonomyLevel::Judge)
        .build()
        .unwrap();
    let store = memory();
    let session = runtime_on(&store).session();
    let run = session.start(&agent, "Plant a tree");
    gate.arrived(1).await;
    run.cancel();
    let outcome = run.outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Paused(Pause::Asked));
    assert_eq!(StopKind::of(&outcome.status), Some(StopKind::Cancelled), "a cancel is told as one (CW13)");
    gate.open();

    let outcome = session.start(&agent, "A lime, please").outcome().await.unwrap();
    assert_eq!(outcome.text, "I planted a lime.");
    let heard = told(&works.requests()[2]).pop().unwrap();
    assert!(heard.contains("A lime, please"), "{heard}");
    let judged = judges.requests()[1].messages.last().unwrap().text();
    for part in ["Plant a tree", "A lime, please", "I planted a lime."] {
        assert!(judged.contains(part), "{judged}");
    }
    assert_eq!(verdicts(&store, &session).await.last().unwrap().0, 1, "still the first round");
}

#[tokio::test(start_paused = true)]
async fn cw15_a_cancel_can_be_the_end() {
    let gate = Gate::new();
    let works = ScriptedProvider::new().call("wait", json!({}));
    let executor = entourage_runners::ReactAgent::builder("worker", works.model())
        .tool(FakeTool::new("wait").behind(&gate))
        .build()
        .unwrap();
    let agent = Autonomy::builder("gardener", executor).cancel_ends().build().unwrap();
    let session = open_runtime().session();
    let run = session.start(&agent, "Dig");
    gate.arrived(1).await;
    run.cancel();
    assert_eq!(run.outcome().await.unwrap().status, Status::Cancelled);
    assert_eq!(session.unfinished().await.unwrap(), None);
}

/// Creates the agent at a level, on models whose reply follows from the conversation.
fn resumable(level: AutonomyLevel) -> Autonomy {
    let mut profile = entourage_core::provider::Profile::default();
    profile.tools = Some(true);
    let works = match level {
        AutonomyLevel::Prompted => ScriptedProvider::by_history()
            .call("look", json!({}))
            .text("Planted.")
            .call("Confirmation", json!({"done": true, "reason": "It stands."})),
        _ => ScriptedProvider::by_history().call("look", json!({})).text("Planted.").text("I planted it."),
    };
    let judges = ScriptedProvider::by_history().text(approve());
    let checks = ScriptedProvider::by_history().call("task_complete", json!({"summary": "Seen."}));
    let checker = entourage_runners::ReactAgent::builder("checker", checks.model()).build().unwrap();
    Autonomy::builder("gardener", worker(works.model().with_profile(profile)))
        .judge(judges.model())
        .discriminator(checker)
        .level(level)
        .build()
        .unwrap()
}

pub(crate) fn work() -> SessionId {
    SessionId::new("work").unwrap()
}

async fn look_into(store: &SharedStore) -> (Vec<String>, Vec<String>) {
    let session = runtime_on(store).open(&work()).await.unwrap();
    let texts = shown(&session).await.into_iter().map(|(_, text)| text).collect();
    let events = stored(store, &work()).await;
    let mut made: Vec<_> = kinds(&events).into_iter().map(str::to_owned).collect();
    made.retain(|kind| *kind != "run_resumed");
    (texts, made)
}

#[test]
fn cw16_a_run_at_any_level_that_dies_at_any_append_goes_on_and_ends_as_it_would_have() {
    for level in [AutonomyLevel::React, AutonomyLevel::Prompted, AutonomyLevel::Judge] {
        let untroubled = memory();
        let counting = FaultyStore::new(&untroubled, usize::MAX, Fault::Fail);
        let whole = process(async {
            let store: SharedStore = counting.clone();
            let run = runtime_on(&store).session_with_id(work()).start(&resumable(level), "Plant");
            run.outcome().await.unwrap()
        });
        let expected = process(look_into(&untroubled));
        for at in 1..counting.appends() {
            let store = memory();
            let dying = FaultyStore::new(&store, at, Fault::HangBefore);
            let ended = process(async {
                let shared: SharedStore = dying.clone();
                let runtime = runtime_on(&shared);
                let run = runtime.session_with_id(work()).start(&resumable(level), "Plant");
                until_killed(run.outcome(), &dying.killed).await
            });
            assert!(ended.is_none(), "{level}: it did not die at append {at}");
            let outcome = process(async {
                let session: Session = runtime_on(&store).session_with_id(work());
                match session.unfinished().await.unwrap() {
                    Some(_) => session.resume(&resumable(level)).outcome().await.unwrap(),
                    None => panic!("{level}: nothing to resume after append {at}"),
                }
            });
            assert_eq!((&outcome.status, &outcome.text), (&whole.status, &whole.text), "{level}, {at}");
            assert_eq!(process(look_into(&store)), expected, "{level}, append {at}");
            let below = process(stored(&store, &work().in_role("executor").unwrap()));
            assert_eq!(count(&below, "tool_finished"), 1, "{level}, {at}: no completed step runs again");
            let starts = below.iter().filter(|it| matches!(it.event, Event::RunStarted(_))).count();
            let runs = if level == AutonomyLevel::React { 1 } else { 2 };
            assert_eq!(starts, runs, "{level}, {at}");
        }
    }
}
