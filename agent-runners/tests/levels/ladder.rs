//! Each level by name: who is asked how often, and that no level takes a rejection for an end.

use std::sync::Arc;

use entourage_core::{
    ErrorKind,
    event::{Envelope, Event},
    message::{History, Role},
    provider::{FinishReason, Model, Profile, Request, ToolChoice},
    run::{Outcome, Status, StopReason},
    session::SharedStore,
    tool::Access,
};
use entourage_runners::{
    Autonomy, AutonomyBuilder, AutonomyLevel, Phase, ReactAgent, StopKind, Verdict, checked::PhaseFinished,
};
use entourage_runtime::Session;
use entourage_testkit::{FakeTool, Script, ScriptedProvider};
use serde_json::{Value, json};

use crate::common::{assert_valid, memory, runtime_on, stored};

pub(crate) fn worker(model: Model) -> ReactAgent {
    let look = FakeTool::new("look").returning("a tree");
    ReactAgent::builder("worker", model).instructions("You work.").tool(look).todos().build().unwrap()
}

/// Creates a checker that can inspect and write.
fn checker(model: Model, write: &FakeTool) -> ReactAgent {
    let look = FakeTool::new("look").returning("a tree");
    ReactAgent::builder("checker", model).tool(look).tool(write.clone()).build().unwrap()
}

fn writer() -> FakeTool {
    FakeTool::new("write").access(Access::WRITE).returning("written")
}

/// Runs the agent at a level, in a session of its own store.
async fn run(agent: AutonomyBuilder, level: AutonomyLevel) -> (SharedStore, Session, Outcome) {
    let store = memory();
    let session = runtime_on(&store).session();
    let agent = agent.level(level).build().unwrap();
    let outcome = session.start(&agent, "Plant a tree").outcome().await.unwrap();
    (store, session, outcome)
}

/// Returns what the session itself shows to its user.
pub(crate) async fn shown(session: &Session) -> Vec<(Role, String)> {
    session.history().await.unwrap().iter().map(|message| (message.role(), message.text())).collect()
}

/// Returns the verdict of each check, by round.
pub(crate) async fn verdicts(store: &SharedStore, session: &Session) -> Vec<(u32, Verdict)> {
    let events = stored(store, session.id()).await;
    let found = events.iter().filter_map(|event| {
        let end = event.event.record::<PhaseFinished>().unwrap().filter(|end| end.phase == Phase::Check)?;
        // A check that was cut off has no verdict.
        end.verdict.clone().map(|verdict| (end.iteration, verdict))
    });
    found.collect()
}

/// The newest message of a request, as its role and text.
fn last(request: &Request) -> (Role, String) {
    let message = request.messages.last().unwrap();
    (message.role(), message.text())
}

fn tool_names(request: &Request) -> Vec<String> {
    request.tools.iter().map(|spec| spec.name().to_owned()).collect()
}

fn verdict(approved: bool, reason: &str) -> String {
    json!({ "approved": approved, "reason": reason }).to_string()
}

fn incomplete(outcome: &Outcome) -> (u32, String) {
    match &outcome.status {
        Status::Stopped(StopReason::Incomplete { iterations, feedback }) => {
            (*iterations, feedback.to_string())
        }
        other => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn cw01_react_ends_with_a_step_without_a_tool_call_and_nobody_else_is_asked() {
    let works = ScriptedProvider::new().call("look", json!({})).text("It stands.");
    let judges = ScriptedProvider::named("judge");
    let agent = Autonomy::builder("gardener", worker(works.model())).judge(judges.model());
    let (store, session, outcome) = run(agent, AutonomyLevel::React).await;
    assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "It stands."));
    assert_eq!((works.count(), judges.count()), (2, 0));
    assert_eq!(
        shown(&session).await,
        [(Role::User, "Plant a tree".to_owned()), (Role::Assistant, "It stands.".to_owned())]
    );
    let below = stored(&store, &session.id().in_role("executor").unwrap()).await;
    assert_eq!(below.iter().filter(|event| event.event.kind() == "tool_finished").count(), 1);
    assert_eq!(&*below[0].origin.agent, "gardener/worker");
}

#[tokio::test(start_paused = true)]
async fn cw01_prompted_asks_the_executor_once_a_round_and_goes_on_until_it_confirms() {
    let works = ScriptedProvider::new()
        .call("look", json!({}))
        .text("It stands.")
        .text("No. It was not watered.")
        .text("Now it is watered.")
        .text("Yes, I watered it.");
    let agent = Autonomy::builder("gardener", worker(works.model()));
    let (store, session, outcome) = run(agent, AutonomyLevel::Prompted).await;
    assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "Now it is watered."));

    let asked = works.requests();
    assert_eq!(asked.len(), 5, "two steps, the question, one step, the question");
    for question in [2, 4] {
        let (role, text) = last(&asked[question]);
        assert_eq!((role, text), (Role::User, last(&asked[2]).1), "the question is the same each time");
        assert_eq!(asked[question].tool_choice, ToolChoice::None);
    }
    assert_eq!(tool_names(&asked[2]), tool_names(&asked[0]), "the tools stay in the request");
    assert_eq!(asked[1].tool_choice, ToolChoice::Auto);
    assert_eq!(last(&asked[3]), (Role::User, "It was not watered.".to_owned()), "the answer is the feedback");
    assert_eq!(shown(&session).await.len(), 2);

    let found = verdicts(&store, &session).await;
    let found: Vec<_> = found.iter().map(|(round, it)| (*round, it.accepted, it.reason.as_str())).collect();
    assert_eq!(found, [(1, false, "It was not watered."), (2, true, "I watered it.")]);
}

#[tokio::test(start_paused = true)]
async fn cw02_a_model_that_keeps_to_a_form_confirms_in_one() {
    for (tools, structured_output) in [(Some(true), None), (Some(false), Some(true))] {
        let answer = json!({"done": true, "reason": "It stands."});
        let works = ScriptedProvider::new().text("Planted.");
        let works = match tools {
            Some(true) => works.call("Confirmation", answer),
            _ => works.text(answer.to_string()),
        };
        let mut profile = Profile::default();
        (profile.tools, profile.structured_output) = (tools, structured_output);
        let agent = Autonomy::builder("gardener", worker(works.model().with_profile(profile)));
        let (store, session, outcome) = run(agent, AutonomyLevel::Prompted).await;
        assert!(outcome.is_completed());
        let question = works.requests().pop().unwrap();
        assert_eq!(&*question.instructions, "You work.", "it is the executor that is asked");
        assert_eq!(question.messages.len(), 3, "in its own conversation");
        if tools == Some(true) {
            assert_eq!(question.tool_choice, ToolChoice::Tool("Confirmation".to_owned()));
            assert_eq!(tool_names(&question), ["Confirmation"]);
        } else {
            assert_ne!(question.output, works.requests()[0].output, "the service is held to the form");
        }
        assert_eq!(verdicts(&store, &session).await, [(1, Verdict::accepted("It stands."))]);
        let below = runtime_on(&store).open(&session.id().in_role("executor").unwrap()).await.unwrap();
        assert_eq!(shown(&below).await.pop().unwrap(), (Role::Assistant, "Yes. It stands.".to_owned()));
        assert_valid(&below.history().await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn cw02_a_form_that_says_no_or_is_none_is_not_done() {
    let profile = || {
        let mut profile = Profile::default();
        profile.tools = Some(true);
        profile
    };
    let no = json!({"done": false, "reason": "It leans."});
    for (replies, feedback) in [
        (vec![Script::new().call("Confirmation", &no).finish(FinishReason::ToolCalls)], "It leans."),
        (vec![Script::new().text("Yes!").finish(FinishReason::Stop); 2], "did not say"),
        (
            vec![
                Script::new().call("Confirmation", &json!({"done": "yes"})).finish(FinishReason::ToolCalls);
                2
            ],
            "did not say",
        ),
        (
            vec![
                Script::new()
                    .call("Confirmation", &json!({"done": true, "reason": "x"}))
                    .finish(FinishReason::Length),
            ],
            "did not say",
        ),
    ] {
        let mut works = ScriptedProvider::new().text("Planted.");
        for reply in replies {
            works = works.step(reply);
        }
        let agent =
            Autonomy::builder("gardener", worker(works.model().with_profile(profile()))).iterations(1);
        let (_, _, outcome) = run(agent, AutonomyLevel::Prompted).await;
        let (rounds, told) = incomplete(&outcome);
        assert!(rounds == 1 && told.contains(feedback), "{told}");
        works.verify();
    }
}

#[tokio::test(start_paused = true)]
async fn cw01_judge_sees_the_request_and_the_summary_and_its_reasons_go_back_to_the_executor() {
    let works = ScriptedProvider::new()
        .call("look", json!({}))
        .text("It stands.")
        .text("I planted an oak.")
        .text("Now it is watered.")
        .text("I watered the oak.");
    let judges =
        ScriptedProvider::named("judge").text(verdict(false, "Water it.")).text(verdict(true, "All there."));
    let agent = Autonomy::builder("gardener", worker(works.model())).judge(judges.model());
    let (store, session, outcome) = run(agent, AutonomyLevel::Judge).await;
    assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "I watered the oak."));

    let asked = works.requests();
    assert_eq!(asked.len(), 5, "two steps, a summary, one step, a summary");
    assert_eq!((&asked[2].tool_choice, &asked[4].tool_choice), (&ToolChoice::None, &ToolChoice::None));
    assert_eq!(last(&asked[3]), (Role::User, "Water it.".to_owned()));

    let judged = judges.requests();
    assert_eq!(judged.len(), 2);
    assert!(judged.iter().all(|request| request.tools.is_empty()));
    let first = last(&judged[0]).1;
    assert!(first.contains("Plant a tree") && first.contains("I planted an oak."), "{first}");
    assert!(!format!("{:?}", judged[0].messages).contains("a tree\""), "no tool traffic crosses");
    assert_eq!(roles(&judged[1].messages), [Role::User, Role::Assistant, Role::User]);
    assert!(last(&judged[1]).1.contains("I watered the oak."));

    let found = verdicts(&store, &session).await;
    assert_eq!(found, [(1, Verdict::rejected("Water it.")), (2, Verdict::accepted("All there."))]);
    let below = stored(&store, &session.id().in_role("judge").unwrap()).await;
    assert!(templates(&below).iter().all(|id| id.starts_with("entourage/judge@1#")));
    assert_eq!(templates(&below).len(), 2, "each call names the words that it was made with (CW17)");
    assert_eq!(shown(&session).await.len(), 2);
}

fn roles(history: &History) -> Vec<Role> {
    history.iter().map(|message| message.role()).collect()
}

fn templates(events: &[Envelope]) -> Vec<Arc<str>> {
    let calls = events.iter().filter_map(|event| match &event.event {
        Event::ModelStarted(call) => Some(call.template.clone().unwrap()),
        _ => None,
    });
    calls.collect()
}

#[tokio::test(start_paused = true)]
async fn cw01_a_verdict_that_cannot_be_read_is_a_rejection() {
    let works =
        ScriptedProvider::new().text("Planted.").text("I planted it.").text("Watered.").text("I watered it.");
    let judges = ScriptedProvider::named("judge")
        .text("Looks good to me, approved!")
        .text("As I said: approved.")
        .text(verdict(true, "All there."));
    let agent = Autonomy::builder("gardener", worker(works.model())).judge(judges.model());
    let (store, session, outcome) = run(agent, AutonomyLevel::Judge).await;
    assert!(outcome.is_completed());
    let found = verdicts(&store, &session).await;
    assert_eq!(found.len(), 2);
    assert!(!found[0].1.accepted && found[0].1.reason.contains("could not be read"), "{:?}", found[0]);
    assert_eq!(judges.count(), 3, "asked once more for the form, then taken for a rejection");
}

#[tokio::test(start_paused = true)]
async fn cw01_a_judge_that_declines_or_is_withheld_does_not_accept() {
    for reason in [FinishReason::Refusal, FinishReason::ContentFilter, FinishReason::Length] {
        let works = ScriptedProvider::new().text("Planted.").text("I planted it.");
        let judges =
            ScriptedProvider::named("judge").step(Script::new().text(verdict(true, "x")).finish(reason));
        let agent = Autonomy::builder("gardener", worker(works.model())).judge(judges.model()).iterations(1);
        let (_, _, outcome) = run(agent, AutonomyLevel::Judge).await;
        assert!(incomplete(&outcome).1.contains("could not be read"), "{reason:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn cw01_a_judge_whose_conversation_grew_too_long_judges_what_is_new() {
    let long = |provider: ScriptedProvider| provider.fail(ErrorKind::ContextOverflow, "it is too long");
    let works = ScriptedProvider::new().text("A.").text("I did A.").text("B.").text("I did B.");
    let judges = ScriptedProvider::named("judge").text(verdict(true, "All there."));
    let judges = long(judges).text(verdict(true, "B too."));
    let agent = Autonomy::builder("pair", worker(works.model()))
        .judge(judges.model())
        .level(AutonomyLevel::Judge)
        .build()
        .unwrap();
    let session = runtime_on(&memory()).session();
    session.start(&agent, "Do A").outcome().await.unwrap();
    assert!(session.start(&agent, "Do B").outcome().await.unwrap().is_completed());
    let asked = judges.requests();
    assert_eq!((asked[1].messages.len(), asked[2].messages.len()), (3, 1));
    let text = last(&asked[2]).1;
    assert!(text.contains("Do B") && text.contains("I did B."), "it holds all that is judged: {text}");

    // A request that alone exceeds the window fails, and is not accepted.
    let works = ScriptedProvider::new().text("A.").text("I did A.");
    let judges = long(ScriptedProvider::named("judge"));
    let agent = Autonomy::builder("pair", worker(works.model())).judge(judges.model());
    let agent = agent.level(AutonomyLevel::Judge).build().unwrap();
    let error = runtime_on(&memory()).session().start(&agent, "Do A").outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ContextOverflow);
}

#[tokio::test(start_paused = true)]
async fn cw02_a_conversation_that_is_too_long_to_confirm_is_not_done_yet() {
    let works = ScriptedProvider::new()
        .text("Planted.")
        .fail(ErrorKind::ContextOverflow, "it is too long")
        .text("It stands.")
        .call("Confirmation", json!({"done": true, "reason": "It stands."}));
    let mut profile = Profile::default();
    profile.tools = Some(true);
    let agent = Autonomy::builder("gardener", worker(works.model().with_profile(profile)));
    let (_, _, outcome) = run(agent, AutonomyLevel::Prompted).await;
    assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "It stands."));
}

#[tokio::test(start_paused = true)]
async fn cw01_a_check_that_fails_is_a_failed_run_at_every_level() {
    let refused = "the key was refused; set another";
    for level in AutonomyLevel::ALL.into_iter().skip(1) {
        let fail = |provider: ScriptedProvider| provider.fail(ErrorKind::Authentication, refused);
        let mut works = ScriptedProvider::new().text("Planted.");
        let mut checks = ScriptedProvider::named("other");
        if level == AutonomyLevel::Prompted {
            works = fail(works);
        } else {
            (works, checks) = (works.text("I planted it."), fail(checks));
        }
        let store = memory();
        let session = runtime_on(&store).session();
        let agent = everyone(&works, &checks).level(level).build().unwrap();
        let error = session.start(&agent, "Plant a tree").outcome().await.unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::Authentication, refused), "{level}");
        let events = stored(&store, session.id()).await;
        assert_eq!(events.last().unwrap().event.kind(), "run_finished");
        assert_eq!(shown(&session).await.len(), 1, "nothing is answered at {level}");
    }
}

/// Creates an agent with all levels; all checkers are on `checks`.
fn everyone(works: &ScriptedProvider, checks: &ScriptedProvider) -> AutonomyBuilder {
    Autonomy::builder("gardener", worker(works.model()))
        .judge(checks.model())
        .discriminator(checker(checks.model(), &writer()))
}

#[tokio::test(start_paused = true)]
async fn cw01_verified_looks_for_itself_and_changes_nothing() {
    let write = writer();
    let works = ScriptedProvider::new().text("Planted.").text("I planted it.");
    let checks = ScriptedProvider::named("verifier")
        .calls([("look", json!({})), ("write", json!({}))])
        .call("task_complete", json!({"summary": "I saw it."}));
    let agent =
        Autonomy::builder("gardener", worker(works.model())).discriminator(checker(checks.model(), &write));
    let (store, session, outcome) = run(agent, AutonomyLevel::Verified).await;
    assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "I planted it."));
    assert_eq!((works.count(), checks.count(), write.started()), (2, 2, 0));
    assert_eq!(
        tool_names(&checks.requests()[0]),
        ["look", "task_complete"],
        "what would write is not offered"
    );
    assert!(!tool_names(&works.requests()[0]).contains(&"task_complete".to_owned()));

    let (_, found) = verdicts(&store, &session).await.pop().unwrap();
    assert_eq!((found.accepted, found.reason.as_str()), (true, "I saw it."));
    let seen: Vec<_> = found.evidence.iter().map(|it| (&*it.tool, it.is_error)).collect();
    assert_eq!(seen, [("look", false), ("write", true)], "what it saw is kept with the verdict");
    assert!(!stored(&store, &session.id().in_role("verifier").unwrap()).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn cw01_dual_has_all_its_tools_and_its_words_are_feedback() {
    let write = writer();
    let works =
        ScriptedProvider::new().text("Planted.").text("I planted it.").text("Watered.").text("I watered it.");
    let checks = ScriptedProvider::named("discriminator")
        .call("write", json!({}))
        .text("It is done? It is dry.")
        .call("task_complete", json!({"summary": "It is wet."}));
    let agent =
        Autonomy::builder("gardener", worker(works.model())).discriminator(checker(checks.model(), &write));
    let (store, session, outcome) = run(agent, AutonomyLevel::Dual).await;
    assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "I watered it."));
    assert_eq!((works.count(), checks.count(), write.started()), (4, 3, 1));
    assert_eq!(last(&works.requests()[2]), (Role::User, "It is done? It is dry.".to_owned()));
    let found: Vec<_> = verdicts(&store, &session).await.iter().map(|(_, it)| it.accepted).collect();
    assert_eq!(found, [false, true]);
    assert!(!stored(&store, &session.id().in_role("discriminator").unwrap()).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn cw01_every_level_above_the_first_ends_after_its_rounds() {
    for (level, own, others) in [
        (AutonomyLevel::Prompted, 2, 0),
        (AutonomyLevel::Judge, 2, 1),
        (AutonomyLevel::Verified, 2, 1),
        (AutonomyLevel::Dual, 2, 1),
    ] {
        for rounds in [1, 3, 10] {
            let (mut works, mut checks) = (ScriptedProvider::new(), ScriptedProvider::named("other"));
            for _ in 0..rounds {
                works = works.text("Planted.").text("No, and I never will be.");
                checks = match level {
                    AutonomyLevel::Prompted => checks,
                    AutonomyLevel::Judge => checks.text(verdict(false, "Never.")),
                    _ => checks.text("Never."),
                };
            }
            let agent = everyone(&works, &checks);
            // Ten is the default.
            let agent = if rounds == 10 { agent } else { agent.iterations(rounds) };
            let (_, _, outcome) = run(agent, level).await;
            let (made, feedback) = incomplete(&outcome);
            assert_eq!(made, rounds, "{level}");
            assert!(feedback.to_lowercase().contains("never"), "{level}: {feedback}");
            let rounds = rounds as usize;
            assert_eq!((works.count(), checks.count()), (own * rounds, others * rounds), "{level}");
            assert_eq!(StopKind::of(&outcome.status), Some(StopKind::MaxTurnRequests));
        }
    }
}

#[test]
fn cw11_build_fails_without_the_levels_checker() {
    let provider = ScriptedProvider::new();
    let model = || provider.model();
    let named = || Autonomy::builder("gardener", worker(model()));
    let own = FakeTool::new("task_complete");
    let claims = || ReactAgent::builder("claims", model()).tool(own.clone()).build().unwrap();
    for (builder, says) in [
        (named().level(AutonomyLevel::Judge), "`judge`"),
        (named().level(AutonomyLevel::Verified), "`verifier`"),
        (named().level(AutonomyLevel::Dual), "`discriminator`"),
        (named().judge(model()).level(AutonomyLevel::Dual), "`discriminator`"),
        (named().verifier(worker(model())).level(AutonomyLevel::Dual), "`discriminator`"),
        (named().iterations(0), "one round"),
        (named().judge_instructions("Be just."), "no judge"),
        (Autonomy::builder("a b", worker(model())), "cannot name an agent"),
        (Autonomy::builder("x", claims()).discriminator(worker(model())), "`task_complete`"),
        (named().discriminator(claims()), "task_complete"),
    ] {
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.message().contains(says), "{error}");
    }
    let agent = named().judge(model()).build().unwrap();
    let levels: Vec<_> = agent.levels().collect();
    assert_eq!(levels, [AutonomyLevel::React, AutonomyLevel::Prompted, AutonomyLevel::Judge]);
    assert_eq!(agent.at(AutonomyLevel::Dual).unwrap_err().kind(), ErrorKind::Config);
    assert_eq!(agent.at(AutonomyLevel::Judge).unwrap().level(), AutonomyLevel::Judge);
    let verified = named().verifier(worker(model())).build().unwrap();
    assert_eq!(verified.levels().last(), Some(AutonomyLevel::Verified));
    assert_eq!(named().discriminator(worker(model())).build().unwrap().levels().count(), 4);
    let _: Value = serde_json::to_value(agent.modes()).unwrap();
}
