//! Options of the levels: claims at `prompted`, criteria at `judge`, evidence at the two above.

use entourage_core::{
    ErrorKind,
    permission::Scope,
    provider::{FinishReason, Request},
    run::{Limits, Outcome, Pause, Status, StopReason},
    session::SharedStore,
    tool::Access,
};
use entourage_runners::{
    Autonomy, AutonomyBuilder, AutonomyLevel, CheckedTask, LoopDetection, Phase, ReactAgent,
    checked::{PhaseFinished, PhaseStarted},
};
use entourage_runtime::AgentExt;
use entourage_testkit::{FakeTool, Gate, Script, ScriptedProvider};
use serde_json::{Value, json};

use crate::{
    common::{
        Fault, FaultyStore, assert_valid, count, memory, process, runtime_on, settled, stored, until_killed,
    },
    ladder::{shown, verdicts, worker},
    switch::{told, work},
};

fn claim(summary: &str) -> (&'static str, Value) {
    ("task_complete", json!({ "summary": summary }))
}

fn claiming(works: &ScriptedProvider) -> AutonomyBuilder {
    Autonomy::builder("gardener", worker(works.model())).until_task_complete().level(AutonomyLevel::Prompted)
}

async fn run(store: &SharedStore, agent: AutonomyBuilder) -> Outcome {
    let session = runtime_on(store).session_with_id(work());
    session.start(&agent.build().unwrap(), "Plant a tree").outcome().await.unwrap()
}

fn names(request: &Request) -> Vec<&str> {
    request.tools.iter().map(|spec| spec.name()).collect()
}

fn rejected(outcome: &Outcome) -> String {
    match &outcome.status {
        Status::Stopped(StopReason::Incomplete { feedback, .. }) => feedback.to_string(),
        other => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn r14_the_executor_works_on_until_it_calls_its_task_complete_and_is_never_asked() {
    let works = ScriptedProvider::new()
        .call("look", json!({}))
        .text("All of it is done!")
        .calls([claim(" \n")])
        .text("Well, it is done.")
        .calls([claim("I planted an oak."), ("look", json!({})), claim("Twice.")]);
    let store = memory();
    let outcome = run(&store, claiming(&works)).await;
    assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "I planted an oak."));
    let asked = works.requests();
    assert_eq!(asked.len(), 5, "its own steps and nothing else");
    assert!(asked.iter().all(|request| names(request) == ["look", "task_complete", "todos"]));
    let heard = told(&asked[4]);
    assert_eq!((heard.len(), heard[0].as_str()), (3, "Plant a tree"));
    assert!(heard[1].contains("without calling `task_complete`") && heard[1] == heard[2], "{heard:?}");
    let session = runtime_on(&store).session_with_id(work());
    let found: Vec<_> = verdicts_of(&store, Phase::Execute).await;
    assert_eq!(found, [(1, false), (2, false), (3, true)]);
    assert_eq!(verdicts(&store, &session).await, [], "there is no check beside the work");
    assert_eq!(shown(&session).await.pop().unwrap().1, "I planted an oak.");
    let executor = runtime_on(&store).open(&work().in_role("executor").unwrap()).await.unwrap();
    assert_valid(&executor.history().await.unwrap());
}

/// Returns the verdicts of phases of this kind: the round, and whether it was accepted.
async fn verdicts_of(store: &SharedStore, phase: Phase) -> Vec<(u32, bool)> {
    let events = stored(store, &work()).await;
    let ends = events.iter().filter_map(|event| {
        let end = event.event.record::<PhaseFinished>().unwrap().filter(|end| end.phase == phase)?;
        end.verdict.as_ref().map(|verdict| (end.iteration, verdict.accepted))
    });
    ends.collect()
}

#[tokio::test(start_paused = true)]
async fn r14_without_a_claim_the_rounds_end_it_whatever_ended_the_turns() {
    let mut limits = Limits::default();
    limits.steps = 2;
    // Text alone, a step limit, a reply that was cut off after its claim.
    let works = ScriptedProvider::new()
        .text("Done.")
        .call("look", json!({}))
        .call("look", json!({}))
        .step(Script::new().call("task_complete", &claim("x").1).finish(FinishReason::Length));
    let executor = ReactAgent::builder("worker", works.model())
        .tool(FakeTool::new("look"))
        .limits(limits)
        .loops(LoopDetection::off())
        .build()
        .unwrap();
    let agent = Autonomy::builder("gardener", executor)
        .until_task_complete()
        .level(AutonomyLevel::Prompted)
        .iterations(3);
    let store = memory();
    let outcome = run(&store, agent).await;
    assert!(rejected(&outcome).contains("task_complete"), "{outcome}");
    assert_eq!(verdicts_of(&store, Phase::Execute).await, [(1, false), (2, false), (3, false)]);
    // A phase that fails ends the task, and not as complete.
    let works = ScriptedProvider::new().fail(ErrorKind::InvalidInput, "no work today");
    let agent = claiming(&works).build().unwrap();
    assert_eq!(agent.ask("Plant").await.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[tokio::test(start_paused = true)]
async fn r14_at_other_levels_the_executor_has_no_task_complete_and_another_model_has() {
    let works = ScriptedProvider::new().calls([claim("Me!")]).text("It stands.");
    let store = memory();
    let outcome = run(&store, claiming(&works).level(AutonomyLevel::React)).await;
    assert_eq!(outcome.text, "It stands.");
    assert_eq!(names(&works.requests()[0]), ["look", "todos"]);
    let refused = settled(&stored(&store, &work().in_role("executor").unwrap()).await);
    assert!(refused[0].1.contains("`task_complete`"), "{refused:?}");

    let never = ScriptedProvider::new();
    let works = ScriptedProvider::new().calls([claim("I planted it.")]);
    let agent = claiming(&never).build().unwrap().with_model("executor", works.model()).unwrap();
    assert_eq!(agent.ask("Plant a tree").await.unwrap(), "I planted it.");
}

fn criteria(list: &[&str]) -> String {
    json!({ "criteria": list }).to_string()
}

fn assessed(met: &[u32], approved: bool) -> String {
    json!({ "met": met, "approved": approved, "reason": "I read it." }).to_string()
}

fn by_criteria(works: &ScriptedProvider, judges: &ScriptedProvider) -> AutonomyBuilder {
    let agent = Autonomy::builder("gardener", worker(works.model())).judge(judges.model());
    agent.acceptance_criteria().level(AutonomyLevel::Judge)
}

#[tokio::test(start_paused = true)]
async fn r14_criteria_come_from_the_request_alone_are_told_to_the_executor_and_all_have_to_be_met() {
    let works = ScriptedProvider::new()
        .text("Planted.")
        .text("I planted an oak.")
        .text("Watered.")
        .text("I watered the oak.");
    let judges = ScriptedProvider::named("judge")
        .text(criteria(&["A tree stands.", "It is\nwatered.", " "]))
        // It approves, and does not name the second one.
        .text(assessed(&[1, 3], true))
        .text(assessed(&[2, 1], true));
    let store = memory();
    let outcome = run(&store, by_criteria(&works, &judges)).await;
    assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "I watered the oak."));

    let list = "1. A tree stands.\n2. It is watered.";
    let asked = judges.requests();
    let drafted = asked[0].messages.last().unwrap().text();
    assert!(
        asked[0].messages.len() == 1 && drafted.contains("<request>\nPlant a tree\n</request>"),
        "{drafted}"
    );
    assert!(asked[0].instructions.starts_with("Somebody else is about to be given"));
    for judged in &asked[1..] {
        let text = judged.messages.last().unwrap().text();
        assert!(text.contains(&format!("<criteria>\n{list}\n</criteria>")), "{text}");
        assert!(judged.instructions.starts_with("You judge work"), "{}", judged.instructions);
    }
    let heard = told(&works.requests()[2]);
    assert_eq!(heard[0], format!("Plant a tree\n\nIt counts as done when all of this is true:\n{list}"));
    assert!(heard[2].ends_with("\n2. It is watered.") && !heard[2].contains("A tree stands"), "{heard:?}");
    let session = runtime_on(&store).session_with_id(work());
    let found: Vec<_> = verdicts(&store, &session).await.iter().map(|(_, it)| it.accepted).collect();
    assert_eq!(found, [false, true]);
    let events = stored(&store, &work()).await;
    let first = events.iter().find_map(|it| it.event.record::<PhaseStarted>().unwrap()).unwrap();
    assert_eq!((first.phase, first.child.clone()), (Phase::Criteria, work().in_role("judge").unwrap()));
    assert_eq!(CheckedTask::of(&session.state().await.unwrap()).unwrap(), None);
    assert_eq!(shown(&session).await[0].1, "Plant a tree", "the user's own prompt is as it was");
}

#[tokio::test(start_paused = true)]
async fn r14_all_criteria_met_without_approval_is_a_rejection() {
    let works = ScriptedProvider::new().text("Planted.").text("I planted it.");
    let judges =
        ScriptedProvider::named("judge").text(criteria(&["A tree stands."])).text(assessed(&[1], false));
    let outcome = run(&memory(), by_criteria(&works, &judges).iterations(1)).await;
    assert_eq!(rejected(&outcome), "I read it.");
}

#[tokio::test(start_paused = true)]
async fn r14_without_criteria_nothing_is_begun() {
    for replies in [
        vec![criteria(&[])],
        vec![criteria(&[" ", "\n"])],
        vec!["A tree, I should say.".to_owned(), "As I said.".to_owned()],
    ] {
        let works = ScriptedProvider::new();
        let judges = replies.into_iter().fold(ScriptedProvider::named("judge"), ScriptedProvider::text);
        let agent = by_criteria(&works, &judges).build().unwrap();
        let error = agent.ask("Plant a tree").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        assert_eq!(works.count(), 0);
    }
    let judges = ScriptedProvider::named("judge").fail(ErrorKind::Authentication, "the key was refused");
    let agent = by_criteria(&ScriptedProvider::new(), &judges).build().unwrap();
    assert_eq!(agent.ask("Plant a tree").await.unwrap_err().kind(), ErrorKind::Authentication);
}

#[tokio::test(start_paused = true)]
async fn r14_what_the_user_says_while_criteria_are_written_is_in_them_and_with_the_executor() {
    let gate = Gate::new();
    let works = ScriptedProvider::new().text("Planted.").text("I planted a lime.");
    let judges = ScriptedProvider::named("judge")
        .step(Script::new().wait(&gate))
        .text(criteria(&["A lime stands."]))
        .text(assessed(&[1], true));
    let agent = by_criteria(&works, &judges).build().unwrap();
    let store = memory();
    let session = runtime_on(&store).session_with_id(work());
    let first = session.start(&agent, "Plant a tree");
    gate.arrived(1).await;
    first.cancel();
    assert_eq!(first.outcome().await.unwrap().status, Status::Paused(Pause::Asked));
    let outcome = session.start(&agent, "A lime, please").outcome().await.unwrap();
    assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "I planted a lime."));
    let drafted = judges.requests()[1].messages.last().unwrap().text();
    assert!(drafted.contains("Plant a tree") && drafted.contains("<user>\nA lime, please"), "{drafted}");
    let heard = told(&works.requests()[0]);
    let [first] = &heard[..] else { panic!("{heard:?}") };
    for part in
        ["Plant a tree", "The user stopped the work and says:\nA lime, please\n\n", "1. A lime stands."]
    {
        assert!(first.contains(part), "{first}");
    }
}

/// Creates the agent on models whose reply follows from the conversation.
fn resumable(level: AutonomyLevel) -> Autonomy {
    let works = match level {
        AutonomyLevel::Prompted => ScriptedProvider::by_history()
            .call("look", json!({}))
            .text("Planted.")
            .calls([claim("It stands.")]),
        _ => ScriptedProvider::by_history().call("look", json!({})).text("Planted.").text("I planted it."),
    };
    let judges =
        ScriptedProvider::by_history().text(criteria(&["A tree stands."])).text(assessed(&[1], true));
    let agent = Autonomy::builder("gardener", worker(works.model())).judge(judges.model());
    agent.until_task_complete().acceptance_criteria().level(level).build().unwrap()
}

#[test]
fn r14_a_run_that_dies_at_any_append_goes_on_and_repeats_nothing() {
    for (level, role, calls) in [(AutonomyLevel::Prompted, "executor", 3), (AutonomyLevel::Judge, "judge", 2)]
    {
        let mut deaths = 0;
        for at in 0.. {
            let store = memory();
            let fault = if at % 2 == 0 { Fault::HangBefore } else { Fault::HangAfter };
            let dying = FaultyStore::new(&store, at, fault);
            let lived = process(async {
                let shared: SharedStore = dying.clone();
                let session = runtime_on(&shared).session_with_id(work());
                until_killed(session.start(&resumable(level), "Plant").outcome(), &dying.killed).await
            });
            if lived.is_none() {
                deaths += 1;
                process(async {
                    let session = runtime_on(&store).session_with_id(work());
                    let run = match session.unfinished().await.unwrap() {
                        Some(_) => session.resume(&resumable(level)),
                        None if session.head().await.unwrap().seq == 0 => {
                            session.start(&resumable(level), "Plant")
                        }
                        None => return,
                    };
                    assert_eq!(
                        run.outcome().await.unwrap().status,
                        Status::Completed,
                        "{level}, append {at}"
                    );
                });
            }
            process(async {
                let below = stored(&store, &work().in_role(role).unwrap()).await;
                assert_eq!(count(&below, "model_finished"), calls, "{level}, append {at}");
                let phases = stored(&store, &work()).await;
                let ends = (
                    count(&phases, "keep:checked.phase_started"),
                    count(&phases, "keep:checked.phase_finished"),
                );
                let expected = if level == AutonomyLevel::Prompted { 2 } else { 4 };
                assert_eq!(ends, (expected, expected), "{level}, append {at}");
                let session = runtime_on(&store).session_with_id(work());
                let run = phases[0].origin.run;
                assert!(session.replay(&resumable(level), run).await.unwrap().is_completed());
            });
            if lived.is_some() {
                break;
            }
        }
        assert!(deaths > 8, "{level}: {deaths}");
    }
}

/// Creates an agent whose checker has these tools, at the levels above `judge`.
fn seeing(works: &ScriptedProvider, checks: &ScriptedProvider, tools: Vec<FakeTool>) -> AutonomyBuilder {
    let checker =
        tools.into_iter().fold(ReactAgent::builder("checker", checks.model()), |it, tool| it.tool(tool));
    Autonomy::builder("gardener", worker(works.model()))
        .discriminator(checker.todos().build().unwrap())
        .requires_evidence()
}

#[tokio::test(start_paused = true)]
async fn cw04_a_claim_without_a_look_is_refused_where_evidence_is_required() {
    for level in [AutonomyLevel::Verified, AutonomyLevel::Dual] {
        let works = ScriptedProvider::new().text("a").text("One.").text("b").text("Two.");
        let checks = ScriptedProvider::named("checker")
            .calls([claim("Surely.")])
            // The todo list is no evidence, and neither is a call that failed or of an unknown tool.
            .calls([("todos", json!({"todos": []})), ("gone", json!({})), claim("Surely!")])
            .call("look", json!({}))
            .text("Water it.")
            // Evidence of an earlier round does not count in this one.
            .calls([claim("As before.")])
            .calls([("look", json!({})), claim("I saw it.")]);
        let look = FakeTool::new("look").returning("a tree");
        let agent = seeing(&works, &checks, vec![look]).level(level);
        let store = memory();
        let outcome = run(&store, agent).await;
        assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "Two."), "{level}");
        let role = if level == AutonomyLevel::Dual { "discriminator" } else { "verifier" };
        let results = settled(&stored(&store, &work().in_role(role).unwrap()).await);
        let claims: Vec<_> = results.iter().filter(|(name, _)| name == "task_complete").collect();
        assert!(
            claims[..3].iter().all(|(_, text)| text.contains("no tool has shown you any of the work")),
            "{results:?}"
        );
        assert_eq!((claims.len(), claims[3].1.as_str()), (4, "The task is complete."));
        let session = runtime_on(&store).session_with_id(work());
        let (_, found) = verdicts(&store, &session).await.pop().unwrap();
        assert_eq!(found.evidence.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn cw04_a_look_in_an_earlier_step_of_the_turn_is_one() {
    let works = ScriptedProvider::new().text("a").text("One.");
    let checks = ScriptedProvider::named("checker").call("look", json!({})).calls([claim("I saw it.")]);
    let agent = seeing(&works, &checks, vec![FakeTool::new("look")]).level(AutonomyLevel::Dual);
    assert!(run(&memory(), agent).await.is_completed());
}

#[test]
fn r14_options_that_nobody_is_there_for_are_refused_when_it_is_built() {
    let provider = ScriptedProvider::new();
    let model = || provider.model();
    let named = |executor: ReactAgent| Autonomy::builder("gardener", executor);
    let own = FakeTool::new("task_complete");
    let claims = ReactAgent::builder("claims", model()).tool(own).build().unwrap();
    let narrow = ReactAgent::builder("n", model()).scope(Scope::all().with_tools(["look"])).build().unwrap();
    let write = FakeTool::new("write").access(Access::WRITE);
    let writer = ReactAgent::builder("w", model()).tool(write).build().unwrap();
    for (builder, says) in [
        (named(worker(model())).acceptance_criteria(), "no judge"),
        (named(worker(model())).requires_evidence(), "there is no checker"),
        (named(worker(model())).judge(model()).requires_evidence(), "there is no checker"),
        (named(claims).until_task_complete(), "`task_complete`"),
        (named(narrow).until_task_complete(), "scope"),
        // `todos` shows nothing of the work, and a verifier may not write.
        (named(worker(model())).discriminator(blind(&provider)).requires_evidence(), "no tool to look with"),
        (named(worker(model())).verifier(writer).requires_evidence(), "no tool to look with"),
    ] {
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.message().contains(says), "{error}");
    }
    let blind = entourage_runners::DualAgent::builder("pair", worker(model()), blind(&provider));
    assert!(blind.clone().build().is_ok());
    assert_eq!(blind.requires_evidence().build().unwrap_err().kind(), ErrorKind::Config);
}

fn blind(provider: &ScriptedProvider) -> ReactAgent {
    ReactAgent::builder("blind", provider.model()).todos().build().unwrap()
}
