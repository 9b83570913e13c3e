//! A cancel is a pause in which the user can say something; a stop is the end.

use entourage_core::{
    provider::FinishReason,
    run::{Pause, Status},
    session::{SessionFilter, SessionStatus, SharedStore},
};
use entourage_runners::{CheckedTask, DualAgent, Phase};
use entourage_runtime::Session;
use entourage_testkit::{FakeTool, Gate, Script, ScriptedProvider};
use serde_json::json;

use crate::{
    common::{memory, runtime_on, stored},
    pair::{builder, child, conversation, done, pair, phases, root, session, told},
};

fn held(gate: &Gate, text: &str) -> Script {
    Script::new().wait(gate).text(text).finish(FinishReason::Stop)
}

impl Cut {
    /// Adds a whole phase of work and a summary after the cut.
    fn and_a_turn(self) -> Self {
        Self { works: self.works.text("I wrote it otherwise.").text("Summary."), ..self }
    }
}

/// A first run that is cancelled: scripts of both agents up to the cancel, and the phase that waits at the gate.
struct Cut {
    works: ScriptedProvider,
    checks: ScriptedProvider,
    gate: Gate,
    phase: Phase,
}

const PHASES: [Phase; 3] = [Phase::Execute, Phase::Summarize, Phase::Check];

/// Creates the cut; the checker accepts whatever comes after it.
fn cut(phase: Phase) -> Cut {
    let gate = Gate::new();
    let (mut works, mut checks) = (ScriptedProvider::new(), ScriptedProvider::new());
    match phase {
        Phase::Execute => works = works.step(held(&gate, "never")),
        Phase::Summarize => works = works.text("I wrote it.").step(held(&gate, "never")),
        _ => {
            works = works.text("I wrote it.").text("Summary one.");
            checks = checks.step(held(&gate, "never"));
        }
    }
    Cut { works, checks: checks.call("task_complete", done("I saw it.")), gate, phase }
}

async fn cancelled(work: &Session, agent: &DualAgent, gate: &Gate) {
    let run = work.start(agent, "Write it.");
    gate.arrived(1).await;
    run.cancel();
    assert_eq!(run.outcome().await.unwrap().status, Status::Paused(Pause::Asked));
}

async fn all_idle_below(store: &SharedStore) {
    for info in store.query(&SessionFilter::children_of(root())).await.unwrap() {
        assert_eq!(info.head.status, SessionStatus::Idle, "{:?}", info.record.id);
    }
}

#[tokio::test(start_paused = true)]
async fn cw15_what_the_user_says_after_a_cancel_goes_to_the_executor_in_the_same_round() {
    for Cut { works, checks, gate, phase } in PHASES.map(|phase| cut(phase).and_a_turn()) {
        let store = memory();
        let runtime = runtime_on(&store);
        let (agent, work) = (pair(&works, &checks), session(&runtime));
        cancelled(&work, &agent, &gate).await;
        all_idle_below(&store).await;
        let state = work.state().await.unwrap();
        let progress = CheckedTask::of(&state).unwrap().unwrap();
        assert_eq!((progress.iteration(), progress.phase()), (1, phase));
        let outcome = work.start(&agent, "Not like this.").outcome().await.unwrap();
        assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "Summary."));
        let told_to = told(&conversation(&runtime, "executor").await);
        let expected = "U: The user stopped the work and says:\nNot like this.".to_owned();
        assert!(told_to.contains(&expected), "{told_to:?}");
        assert_eq!(told_to.iter().filter(|line| *line == "U: Write it.").count(), 1);
        let rounds = phases(&store).await;
        assert!(rounds.iter().all(|phase| phase.starts_with('1')), "the round is the same: {rounds:?}");
        assert_eq!(CheckedTask::of(&work.state().await.unwrap()).unwrap(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn cw15_the_checker_hears_what_the_user_said_in_its_own_voice() {
    let Cut { works, checks, gate, .. } = cut(Phase::Check).and_a_turn();
    let runtime = runtime_on(&memory());
    let (agent, work) = (pair(&works, &checks), session(&runtime));
    cancelled(&work, &agent, &gate).await;
    work.start(&agent, "Not like this.").outcome().await.unwrap();
    assert_eq!(
        told(&checks.requests()[1].messages),
        [
            "U: Hello! What can I do for you?",
            "A: Write it.",
            "U: Summary one.",
            "A: I was interrupted before I could check this.",
            "U: You stopped me. What should I do?",
            "A: Not like this.",
            "U: Summary."
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn cw15_a_cancelled_phase_is_begun_anew_when_the_run_is_resumed() {
    for Cut { works, checks, gate, phase } in PHASES.map(cut) {
        let store = memory();
        let runtime = runtime_on(&store);
        let (agent, work) = (pair(&works, &checks), session(&runtime));
        cancelled(&work, &agent, &gate).await;
        let rest = match phase {
            Phase::Execute => ScriptedProvider::new().text("Again.").text("Summary."),
            Phase::Summarize => ScriptedProvider::new().text("Summary."),
            _ => ScriptedProvider::new(),
        };
        let outcome = work.resume(&pair(&rest, &checks)).outcome().await.unwrap();
        assert_eq!(outcome.status, Status::Completed);
        let name = serde_json::to_value(phase).unwrap();
        let name = name.as_str().unwrap();
        let begun: Vec<_> =
            phases(&store).await.into_iter().filter(|it| *it == format!("1 {name}")).collect();
        assert_eq!(begun.len(), 2, "the phase that was cut off, and no other, is begun twice");
        assert_eq!(phases(&store).await.len(), 8);
    }
}

#[tokio::test(start_paused = true)]
async fn cw15_a_stop_ends_the_task_and_the_next_prompt_is_a_new_one() {
    let gate = Gate::new();
    let works = ScriptedProvider::new()
        .step(held(&gate, "never"))
        .text("I wrote another.")
        .text("Summary of another.");
    let checks = ScriptedProvider::new().call("task_complete", done("I saw it."));
    let store = memory();
    let runtime = runtime_on(&store);
    let (agent, work) = (pair(&works, &checks), session(&runtime));
    let run = work.start(&agent, "Write it.");
    gate.arrived(1).await;
    assert!(work.stop().await.unwrap());
    assert_eq!(run.outcome().await.unwrap().status, Status::Paused(Pause::Asked));
    assert!(!work.stop().await.unwrap(), "there is nothing left to end");
    let state = work.state().await.unwrap();
    assert_eq!((CheckedTask::of(&state).unwrap(), state.head().status), (None, SessionStatus::Idle));
    let last = stored(&store, &root()).await.pop().unwrap();
    assert!(last.event.kind() == "run_finished" && last.to_string().contains("cancelled"), "{last}");
    work.start(&agent, "Write another.").outcome().await.unwrap();
    let heard = told(&works.requests()[1].messages);
    assert_eq!(heard.last().unwrap(), "U: Write another.");
    assert_eq!(told(&checks.requests()[0].messages)[1], "A: Write another.");
}

#[tokio::test(start_paused = true)]
async fn cw15_a_stop_ends_what_waits_for_leave_below() {
    use entourage_runtime::permission::Policy;
    use entourage_testkit as testkit;
    let works = ScriptedProvider::new().call("write", json!({}));
    let checks = ScriptedProvider::new();
    let store = memory();
    let runtime = testkit::runtime()
        .policy(Policy::allow_all().ask("write"))
        .shared_store(std::sync::Arc::clone(&store))
        .build();
    let (agent, work) = (pair(&works, &checks), session(&runtime));
    let outcome = work.start(&agent, "Write it.").outcome().await.unwrap();
    assert!(matches!(outcome.status, Status::Paused(Pause::Approval(_))));
    assert!(work.stop().await.unwrap());
    all_idle_below(&store).await;
    let told_to = told(&conversation(&runtime, "executor").await);
    assert_eq!(told_to, ["U: Write it.", "A: [write]", "T: <cancelled before it ran>"]);
}

#[tokio::test(start_paused = true)]
async fn cw15_a_cancel_can_be_the_end() {
    let gate = Gate::new();
    let works = ScriptedProvider::new().step(held(&gate, "never"));
    let checks = ScriptedProvider::new();
    let agent = builder(&works, &checks).cancel_ends().build().unwrap();
    let work = session(&runtime_on(&memory()));
    let run = work.start(&agent, "Write it.");
    gate.arrived(1).await;
    run.cancel();
    assert_eq!(run.outcome().await.unwrap().status, Status::Cancelled);
    assert_eq!(CheckedTask::of(&work.state().await.unwrap()).unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn cw15_below_another_agent_a_cancel_is_the_end() {
    use crate::common::act;
    use entourage_core::run::RunContext;
    let gate = Gate::new();
    let works = ScriptedProvider::new().step(held(&gate, "never"));
    let checks = ScriptedProvider::new();
    let agent = pair(&works, &checks);
    let parent = act(move |cx: &RunContext| {
        let agent = agent.clone();
        Box::pin(async move {
            let child = cx.spawn(std::sync::Arc::new(agent), "Write it.").await?;
            cx.wait_any(&[child], None).await.map(|_| String::new())
        })
    });
    let store = memory();
    let run = session(&runtime_on(&store)).start(&parent, "Go");
    gate.arrived(1).await;
    run.cancel();
    assert_eq!(run.outcome().await.unwrap().status, Status::Cancelled);
    let infos = store.query(&SessionFilter::all()).await.unwrap();
    assert_eq!(infos.len(), 3);
    assert!(infos.iter().all(|info| info.head.status == SessionStatus::Idle), "{infos:?}");
}

/// The tools of a cancelled phase are unwound before the run ends.
#[tokio::test(start_paused = true)]
async fn cw15_a_cancel_unwinds_what_runs_below() {
    let hanging = FakeTool::new("write").hanging();
    let gate = Gate::new();
    let works = ScriptedProvider::new().call("write", json!({}));
    let executor = entourage_runners::ReactAgent::builder("coder", works.model())
        .tool(hanging.clone().behind(&gate))
        .build()
        .unwrap();
    let checks = ScriptedProvider::new();
    let agent = DualAgent::builder("pair", executor, crate::pair::checker(&checks)).build().unwrap();
    let store = memory();
    cancelled(&session(&runtime_on(&store)), &agent, &gate).await;
    assert_eq!(hanging.running(), 0);
    let events = stored(&store, &child("executor")).await;
    assert_eq!(events.last().unwrap().event.kind(), "run_finished");
}

/// A prompt after the last round's rejection is not lost either: it brings one more phase of work.
#[tokio::test(start_paused = true)]
async fn cw15_words_count_in_the_last_round_too() {
    let gate = Gate::new();
    let works = ScriptedProvider::new()
        .text("a")
        .text("Summary one.")
        .step(held(&gate, "never"))
        .text("b")
        .text("Summary two.");
    let checks = ScriptedProvider::new().text("No.").text("No, not yet.");
    let agent = builder(&works, &checks).iterations(2).build().unwrap();
    let store = memory();
    let work = session(&runtime_on(&store));
    cancelled(&work, &agent, &gate).await;
    let outcome = work.start(&agent, "Faster!").outcome().await.unwrap();
    assert!(matches!(outcome.status, Status::Stopped(_)), "{outcome}");
    let rounds: Vec<_> = phases(&store).await.into_iter().filter(|it| it.ends_with("execute")).collect();
    assert_eq!(rounds, ["1 execute", "2 execute", "2 execute"]);
}
