//! Whatever a process was doing when it died or was asked to pause, the next one resumes from there.

use entourage_core::session::SessionState;
use entourage_core::{
    event::Event,
    run::{Outcome, Pause, Status},
    session::SharedStore,
};
use entourage_runners::CheckedTask;
use entourage_runners::checked::PhaseStarted;
use entourage_runners::{DualAgent, Phase};
use entourage_testkit::{Gate, Script, ScriptedProvider};

use crate::{
    common::{Fault, FaultyStore, count, memory, process, runtime_on, stored, until_killed},
    pair::{child, conversation, pair, phases, session, told, two_rounds_by_history},
};

const EXECUTOR: [&str; 8] = [
    "U: Write it.",
    "A: I wrote it.",
    "U: sum up",
    "A: Summary one.",
    "U: Test it.",
    "A: I tested it.",
    "U: sum up",
    "A: Summary two.",
];

async fn assert_whole(store: &SharedStore, label: &str) {
    let runtime = runtime_on(store);
    let said: Vec<_> = told(&conversation(&runtime, "executor").await)
        .into_iter()
        .map(|line| if line.starts_with("U: Your turn is over") { "U: sum up".to_owned() } else { line })
        .collect();
    assert_eq!(said, EXECUTOR, "{label}");
    assert_eq!(
        told(&conversation(&runtime, "discriminator").await),
        [
            "U: Hello! What can I do for you?",
            "A: Write it.",
            "U: Summary one.",
            "A: Test it.",
            "U: Summary two.",
            "A: [task_complete]",
            "T: <The task is complete.>"
        ],
        "{label}"
    );
    assert_eq!(
        told(&session(&runtime).history().await.unwrap()),
        ["U: Write it.", "A: Summary two."],
        "{label}"
    );
    assert_eq!(phases(store).await.len(), 12, "{label}: no phase is begun or ended twice");
    for (role, runs) in [("executor", 4), ("discriminator", 2)] {
        let events = stored(store, &child(role)).await;
        let ends = (count(&events, "run_started"), count(&events, "run_finished"));
        assert_eq!(ends, (runs, runs), "{label}: {role}");
        assert_eq!(count(&events, "model_finished"), runs, "{label}: {role}");
    }
}

fn fresh() -> (DualAgent, ScriptedProvider, ScriptedProvider) {
    let (works, checks) = two_rounds_by_history();
    (pair(&works, &checks), works, checks)
}

async fn go(store: &SharedStore) -> Outcome {
    let (agent, ..) = fresh();
    session(&runtime_on(store)).start(&agent, "Write it.").outcome().await.unwrap()
}

/// A crash at each append, before and after the store took it: completed phases are not repeated.
#[test]
fn cw16_a_run_survives_death_at_every_append() {
    let mut deaths = 0;
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        for at in 0.. {
            let inner = memory();
            let faulty = FaultyStore::new(&inner, at, fault);
            let killed = faulty.killed.clone();
            let label = format!("{fault:?} at append {at}");
            if let Some(outcome) = process(until_killed(go(&(faulty as SharedStore)), &killed)) {
                assert_eq!(outcome.text, "Summary two.");
                process(assert_whole(&inner, &label));
                break;
            }
            deaths += 1;
            process(async {
                let runtime = runtime_on(&inner);
                let work = session(&runtime);
                let (agent, ..) = fresh();
                let outcome = match work.unfinished().await.unwrap() {
                    Some(_) => work.resume(&agent).outcome().await.unwrap(),
                    None if work.head().await.unwrap().seq == 0 => go(&inner).await,
                    None => return assert_whole(&inner, &label).await,
                };
                assert_eq!(
                    (outcome.status, outcome.text.as_str()),
                    (Status::Completed, "Summary two."),
                    "{label}"
                );
                assert_whole(&inner, &label).await;
            });
        }
    }
    assert!(deaths >= 40, "{deaths}");
}

/// Two processes die, the second at each append after the first one's death.
#[test]
fn cw16_a_run_survives_a_second_death() {
    for first in [5, 11, 17] {
        for second in 0.. {
            let inner = memory();
            let faulty = FaultyStore::new(&inner, first, Fault::HangAfter);
            let killed = faulty.killed.clone();
            assert!(process(until_killed(go(&(faulty as SharedStore)), &killed)).is_none());
            let faulty = FaultyStore::new(&inner, second, Fault::HangBefore);
            let killed = faulty.killed.clone();
            let lived = process(until_killed(resumed(&(faulty as SharedStore)), &killed));
            if lived.is_none() {
                process(resumed(&inner));
            }
            process(assert_whole(&inner, &format!("deaths at {first} and {second}")));
            if lived.is_some() {
                break;
            }
        }
    }
}

async fn resumed(store: &SharedStore) {
    let (agent, ..) = fresh();
    let outcome = session(&runtime_on(store)).resume(&agent).outcome().await.unwrap();
    assert_eq!(outcome.text, "Summary two.");
}

/// A pause in each phase; another process resumes.
#[test]
fn cw16_a_pause_in_any_phase_is_gone_on_with_in_another_process() {
    for phase in [Phase::Execute, Phase::Summarize, Phase::Check] {
        let store = memory();
        process(async {
            let gate = Gate::new();
            let held = |text: &str| {
                Script::new()
                    .wait(&gate)
                    .text(text)
                    .usage(10, 5)
                    .finish(entourage_core::provider::FinishReason::Stop)
            };
            let works = ScriptedProvider::by_history();
            let works = match phase {
                Phase::Execute => works.step(held("I wrote it.")),
                Phase::Summarize => works.text("I wrote it.").step(held("Summary one.")),
                _ => works.text("I wrote it.").text("Summary one."),
            };
            let checks = ScriptedProvider::by_history().step(held("Test it."));
            let runtime = runtime_on(&store);
            let work = session(&runtime);
            let run = work.start(&pair(&works, &checks), "Write it.");
            gate.arrived(1).await;
            work.pause();
            gate.open();
            assert_eq!(run.outcome().await.unwrap().status, Status::Paused(Pause::Asked));
        });
        process(async {
            let (agent, ..) = fresh();
            let work = session(&runtime_on(&store));
            let state = work.state().await.unwrap();
            let progress = CheckedTask::of(&state).unwrap().unwrap();
            // The running phase ends first, and no other one begins.
            assert_eq!((progress.iteration(), progress.phase()), (1, phase));
            assert_eq!(work.resume(&agent).outcome().await.unwrap().text, "Summary two.");
            assert_whole(&store, &format!("{phase:?}")).await;
        });
    }
}

/// A process dies, and the user sends a prompt instead of resuming: it counts as feedback, as after a cancel.
#[test]
fn cw16_a_new_prompt_after_a_death_goes_on_with_the_task() {
    let store = memory();
    process(async {
        let gate = Gate::new();
        let works = ScriptedProvider::new().step(Script::new().wait(&gate));
        let checks = ScriptedProvider::new();
        session(&runtime_on(&store)).start(&pair(&works, &checks), "Write it.").detach();
        gate.arrived(1).await;
    });
    process(async {
        let works = ScriptedProvider::new().text("I wrote it.").text("Summary.");
        let checks = ScriptedProvider::new().call("task_complete", crate::pair::done("I saw it."));
        let runtime = runtime_on(&store);
        // The dead process's lease ends.
        tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
        let work = session(&runtime);
        let agent = pair(&works, &checks);
        let outcome = work.start(&agent, "In Rust, please.").outcome().await.unwrap();
        assert_eq!(outcome.text, "Summary.");
        let heard = told(&works.requests()[0].messages);
        // It is unknown here whether the request arrived in the life that died: it is sent again.
        let said = "U: Write it.\n\nThe user stopped the work and says:\nIn Rust, please.";
        assert_eq!(heard.last().unwrap(), said);
        let transcript = told(&checks.requests()[0].messages);
        assert_eq!(
            transcript[1..4],
            ["A: Write it.", "U: You stopped me. What should I do?", "A: In Rust, please."]
        );
    });
}

/// The progress is part of the session's state and so of its checkpoints: reading from a checkpoint gives the same.
#[test]
fn cw16_a_checkpoint_holds_the_progress() {
    let store = memory();
    process(async {
        let gate = Gate::new();
        let works = ScriptedProvider::new()
            .text("I wrote it.")
            .text("Summary one.")
            .step(Script::new().wait(&gate))
            .text("I did that.")
            .text("Summary two.");
        let checks =
            ScriptedProvider::new().text("Test it.").call("task_complete", crate::pair::done("I saw it."));
        let runtime = entourage_testkit::runtime()
            .policy(entourage_runtime::permission::Policy::allow_all())
            .shared_store(std::sync::Arc::clone(&store))
            .checkpoint_every(1)
            .build();
        let work = session(&runtime);
        let agent = pair(&works, &checks);
        let run = work.start(&agent, "Write it.");
        gate.arrived(1).await;
        run.cancel();
        run.outcome().await.unwrap();
        // A new run begins with a checkpoint.
        work.start(&agent, "Also the docs.").outcome().await.unwrap();
        let events = stored(&store, work.id()).await;
        let checkpoint = events.iter().rev().find_map(|event| match &event.event {
            Event::Checkpoint(checkpoint) => CheckedTask::of(&checkpoint.state).unwrap(),
            _ => None,
        });
        let progress = checkpoint.unwrap();
        assert_eq!((progress.iteration(), progress.phase()), (2, Phase::Execute));
        assert_eq!(
            (progress.request().text().as_str(), progress.feedback()),
            ("Write it.", Some("Test it."))
        );
        let json = serde_json::to_string(&progress).unwrap();
        assert_eq!(serde_json::from_str::<CheckedTask>(&json).unwrap(), progress);
    });
}

/// A row and a checkpoint of version 0.1 are read as records, and written as such.
#[test]
fn rows_and_checkpoints_of_version_0_1_become_records() {
    let run = entourage_core::RunId::generate();
    let begun = format!(
        r#"{{"iteration":2,"phase":"check","child":"s$$checker","run":"{run}","prompt":{{"role":"user","parts":[{{"text":"hi"}}]}}}}"#
    );
    let event = Event::from_json("phase_started", &begun).unwrap();
    assert_eq!(event.kind(), "keep:checked.phase_started");
    let started = event.record::<PhaseStarted>().unwrap().unwrap();
    assert_eq!((started.iteration, started.run), (2, run));
    let Event::Recorded(value) = &event else { panic!("{event:?}") };
    assert_eq!(value.child(), Some((&started.child, Some(run))));
    assert_eq!(Event::from_json(event.kind(), &event.to_json().unwrap()).unwrap(), event);
    let mut state = serde_json::to_value(SessionState::default()).unwrap();
    let prompt = serde_json::json!({"role": "user", "parts": [{"text": "hi"}]});
    let begun: serde_json::Value = serde_json::from_str(&begun).unwrap();
    state["progress"] =
        serde_json::json!({"request": prompt, "said": [prompt], "given": 0, "started": begun});
    let state: SessionState = serde_json::from_value(state).unwrap();
    let task = CheckedTask::of(&state).unwrap().unwrap();
    assert_eq!((task.iteration(), task.request().text().as_str()), (2, "hi"));
    let stored = serde_json::to_string(&state).unwrap();
    assert!(!stored.contains("\"progress\""));
    assert_eq!(CheckedTask::of(&serde_json::from_str(&stored).unwrap()).unwrap(), Some(task));
}

/// The same code can replay a recorded run, and no other code can.
#[test]
fn cw16_a_recorded_run_is_replayed_without_a_model() {
    let store = memory();
    process(async {
        go(&store).await;
        let runtime = runtime_on(&store);
        let work = session(&runtime);
        let run = stored(&store, work.id()).await[0].origin.run;
        let (agent, works, checks) = fresh();
        assert_eq!(work.replay(&agent, run).await.unwrap().text, "Summary two.");
        assert_eq!((works.count(), checks.count()), (0, 0));
    });
}

/// A store that fails once, also below a phase: however the run ends, its record can be replayed.
#[test]
fn cw16_a_run_whose_store_failed_at_any_append_is_replayed() {
    let mut failed = 0;
    for at in 0.. {
        let inner = memory();
        let faulty = FaultyStore::new(&inner, at, Fault::FailOnce);
        let untouched = process(async {
            let store = std::sync::Arc::clone(&faulty) as SharedStore;
            let (agent, ..) = fresh();
            let outcome = session(&runtime_on(&store)).start(&agent, "Write it.").outcome().await;
            failed += usize::from(outcome.is_err());
            faulty.appends() <= at
        });
        process(async {
            let runtime = runtime_on(&inner);
            let work = session(&runtime);
            if work.head().await.unwrap().seq == 0 {
                return;
            }
            let run = stored(&inner, work.id()).await[0].origin.run;
            let (agent, ..) = fresh();
            if work.unfinished().await.unwrap().is_some() {
                work.resume(&agent).outcome().await.unwrap();
            }
            if let Err(error) = work.replay(&agent, run).await {
                assert_ne!(error.kind(), entourage_core::ErrorKind::Diverged, "at append {at}: {error}");
            }
        });
        if untouched {
            break;
        }
    }
    assert!(failed >= 20, "{failed}");
}

/// A run that was cancelled, given feedback and resumed can be replayed, too.
#[test]
fn cw16_a_cancelled_run_is_replayed_too() {
    let store = memory();
    process(async {
        let gate = Gate::new();
        let works = ScriptedProvider::new().text("a").step(Script::new().wait(&gate)).text("Summary.");
        let checks = ScriptedProvider::new().call("task_complete", crate::pair::done("I saw it."));
        let runtime = runtime_on(&store);
        let work = session(&runtime);
        let agent = pair(&works, &checks);
        let run = work.start(&agent, "Write it.");
        gate.arrived(1).await;
        run.cancel();
        run.outcome().await.unwrap();
        assert_eq!(work.resume(&agent).outcome().await.unwrap().status, Status::Completed);
        let run = stored(&store, work.id()).await[0].origin.run;
        let (agent, ..) = fresh();
        assert_eq!(work.replay(&agent, run).await.unwrap().text, "Summary.");
        let other = crate::pair::builder(&ScriptedProvider::new(), &ScriptedProvider::new());
        let error = work.replay(&other.read_only().build().unwrap(), run).await.unwrap_err();
        assert_eq!(error.kind(), entourage_core::ErrorKind::Diverged);
    });
}

/// Approval for a call below is given from outside, days later, and the same phase continues.
#[test]
fn cw16_a_question_of_the_executor_is_answered_and_its_turn_goes_on() {
    use entourage_core::permission::Decision;
    use entourage_runtime::permission::Policy;
    use entourage_testkit as testkit;
    let store = memory();
    let life = || {
        let works = ScriptedProvider::by_history()
            .call("write", serde_json::json!({}))
            .text("I wrote it.")
            .text("Summary one.");
        let checks = ScriptedProvider::by_history().call("task_complete", crate::pair::done("I saw it."));
        let runtime = testkit::runtime()
            .policy(Policy::allow_all().ask("write"))
            .shared_store(std::sync::Arc::clone(&store))
            .build();
        (runtime, pair(&works, &checks))
    };
    let question = process(async {
        let (runtime, agent) = life();
        let outcome = session(&runtime).start(&agent, "Write it.").outcome().await.unwrap();
        let Status::Paused(Pause::Approval(question)) = outcome.status else { panic!("{outcome}") };
        question
    });
    process(async {
        let (runtime, agent) = life();
        runtime.decide(&question, Decision::Allow).await.unwrap();
        let outcome = session(&runtime).resume(&agent).outcome().await.unwrap();
        assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "Summary one."));
        assert_eq!(phases(&store).await.len(), 6);
        assert_eq!(count(&stored(&store, &child("executor")).await, "tool_finished"), 1);
    });
}
