//! Sessions of every shape: several runs, given beginnings, handed out calls, paused and failed originals.

use entourage_core::{
    Error, ErrorKind, Money,
    message::{Message, Role},
    run::{Pause, Status},
    tool::{Access, Repeat, ToolSpec},
};
use entourage_runners::external;
use entourage_runtime::{Moment, Titles, Waiting};

use super::*;
use crate::{Gate, rerun::answers::MARKED};

fn passes(_: &RerunCase) -> bool {
    true
}

#[tokio::test]
async fn each_run_is_a_run_of_one_new_session() {
    let tool = send();
    let old = ScriptedProvider::new().text("Hello!").call("send", to("Ada")).text("Sent.");
    let original = recorded(&agent(&old, [tool.clone()]), &["Hi", "Send it"]).await;
    let prompts: Vec<_> = original.runs.iter().map(|run| (run.prompt.text(), &*run.answer)).collect();
    assert_eq!(prompts, [("Hi".to_owned(), "Hello!"), ("Send it".to_owned(), "Sent.")]);
    assert_eq!((original.calls[0].run, original.steps), (1, 3));

    let new = ScriptedProvider::new().text("Good day!").call("send", to("Ada")).text("Sent.");
    let case = rerun(original, &agent(&new, [tool]), Unmatched::Mark).await;
    assert_eq!(case.rerun.runs.iter().map(|run| &*run.answer).collect::<Vec<_>>(), ["Good day!", "Sent."]);
    assert_eq!((figures(&case), case.rerun.calls[0].run), ([1, 0, 0, 0], 1));
    // The second run sees the first as it went this time.
    assert_eq!(new.requests()[1].messages.get(1).unwrap().text(), "Good day!");
}

#[tokio::test]
async fn prompts_that_joined_a_run_are_part_of_its_prompt() {
    let (gate, old) =
        (Gate::new(), ScriptedProvider::new().call("look", json!({})).text("A tree and a house."));
    let look = FakeTool::new("look").returning("a tree").behind(&gate);
    let runtime = open();
    let session = runtime.session();
    let run = session.start(agent(&old, [look]), "What is here?");
    gate.arrived(1).await;
    session.steer("And there?").await.unwrap();
    gate.open();
    run.outcome().await.unwrap();
    let original = transcript(&runtime, &session).await;
    assert_eq!(original.runs.len(), 1);
    let new = ScriptedProvider::new().text("Both.");
    rerun(original, &agent(&new, []), Unmatched::Mark).await;
    let prompt = new.requests()[0].messages.last().unwrap().clone();
    assert_eq!((prompt.role(), prompt.parts().len()), (Role::User, 2));
    assert_eq!(prompt.text(), "What is here?And there?");
}

#[tokio::test]
async fn a_given_or_forked_beginning_is_given_again() {
    let runtime = open();
    let given = runtime.session();
    given.begin_with([Message::user("I am Ada"), Message::assistant("Hello!")]).await.unwrap();
    let old = ScriptedProvider::new().text("Ada.").text("Ada, as before.");
    given.start(agent(&old, []), "Who am I?").outcome().await.unwrap();
    let end = given.state().await.unwrap().head().seq;
    let fork = given.fork(Moment::Event(end)).await.unwrap();
    fork.start(agent(&old, []), "Once more?").outcome().await.unwrap();

    for (session, before) in [(&given, 2), (&fork, 4)] {
        let original = transcript(&runtime, session).await;
        assert_eq!((original.given.len(), original.runs.len(), original.steps), (before, 1, 1));
        let read = Transcript::from_jsonl(&original.to_jsonl().unwrap()).unwrap();
        assert_eq!(read, original);
        let new = ScriptedProvider::new().text("Ada.");
        let case = rerun(read, &agent(&new, []), Unmatched::Mark).await;
        let request = new.requests()[0].messages.clone();
        assert_eq!((request.len(), request.get(0).unwrap().text()), (before + 1, "I am Ada".to_owned()));
        assert_eq!((case.rerun.given.len(), case.rerun.steps), (before, 1));
    }
}

#[tokio::test]
async fn calls_that_were_handed_out_are_answered_from_the_record() {
    let clerk = |provider: &ScriptedProvider| -> Arc<dyn Agent> {
        let spec = ToolSpec::new("person", "Asks a person.", json!({"type": "object"}));
        let person = external(spec.with_access(Access::ASK).with_repeat(Repeat::External));
        Arc::new(ReactAgent::builder("clerk", provider.model()).tool(person).build().unwrap())
    };
    let runtime = open();
    let session = runtime.session();
    let old = ScriptedProvider::new().call("person", json!({"about": "the date"})).text("On Monday.");
    session.start(clerk(&old), "When?").outcome().await.unwrap();
    let waits = transcript(&runtime, &session).await;
    assert!(matches!(waits.status(), Some(Status::Paused(Pause::Call(_)))), "{waits:?}");
    let pending = runtime.pending().await.unwrap();
    let Waiting::Call { id, .. } = &pending[0].waits_for else { panic!() };
    session.answer(id, "Monday").await.unwrap();
    session.resume(clerk(&old)).outcome().await.unwrap();
    let original = transcript(&runtime, &session).await;
    assert!(original.is_completed());

    for unmatched in [Unmatched::Mark, Unmatched::Perform] {
        let new = ScriptedProvider::new().call("person", json!({"about": "the date"})).text("Monday it is.");
        let case = rerun(original.clone(), &clerk(&new), unmatched).await;
        assert_eq!((figures(&case), told(&new)), ([1, 0, 0, 0], vec![vec!["Monday".to_owned()]]));
        assert!(case.is_completed());
    }
    // Nobody answered it in the record that still waits.
    let new = ScriptedProvider::new().call("person", json!({"about": "the date"})).text("I cannot know.");
    let case = rerun(waits.clone(), &clerk(&new), Unmatched::Mark).await;
    assert_eq!((figures(&case), told(&new)), ([0, 1, 0, 0], vec![vec![MARKED.to_owned()]]));
    assert!(case.is_completed());
    let new = ScriptedProvider::new().call("person", json!({"about": "the date"}));
    let case = rerun(waits, &clerk(&new), Unmatched::Perform).await;
    assert!(matches!(case.rerun.status(), Some(Status::Paused(Pause::Call(_)))));
}

#[tokio::test]
async fn failed_and_waiting_originals_are_rerun_like_others() {
    let tool = send();
    let old = ScriptedProvider::new().fail(ErrorKind::Authentication, "the key is wrong");
    let failed = recorded(&agent(&old, []), &["Send it"]).await;
    assert!(matches!(failed.status(), Some(Status::Failed(_))), "{failed:?}");

    let old = ScriptedProvider::new().call("send", to("Ada"));
    let runtime = crate::runtime().build();
    let session = runtime.session();
    session.start(agent(&old, [tool.clone()]), "Send it").outcome().await.unwrap();
    let waits = transcript(&runtime, &session).await;
    assert!(matches!(waits.status(), Some(Status::Paused(Pause::Approval(_)))), "{waits:?}");
    // It has no result, so it answers nothing.
    assert!(waits.calls.iter().all(|call| !call.is_answered));

    let new = ScriptedProvider::new().text("Hello.").call("send", to("Ada")).text("Not sent.");
    let rerun = Rerun::of([failed.named("failed"), waits.named("waits")], agent(&new, [tool.clone()]));
    let completes = |case: &RerunCase| -> Result<(), Error> {
        assert!(!case.original.is_completed());
        Ok(())
    };
    let report = rerun.score("was not completed", completes).run().await.unwrap();
    assert_eq!((report.passed(), tool.started()), (2, 0));
    assert_eq!(report.cases().iter().map(figures).collect::<Vec<_>>(), [[0; 4], [0, 1, 0, 0]]);
}

#[tokio::test]
async fn a_rerun_that_fails_is_a_case_and_the_next_prompt_goes_on() {
    let old = ScriptedProvider::new().text("One.").text("Two.");
    let original = recorded(&agent(&old, []), &["First", "Second"]).await;
    let new = ScriptedProvider::new().fail(ErrorKind::Authentication, "the key is wrong").text("Two.");
    let rerun = Rerun::of([original.clone()], agent(&new, []));
    let report = rerun.score("completed", RerunCase::is_completed).run().await.unwrap();
    let case = &report.cases()[0];
    assert!(
        matches!(&case.rerun.runs[0].status, Some(Status::Failed(error)) if error.message.contains("key"))
    );
    assert_eq!((report.passed(), case.rerun.answer()), (0, "Two."));

    // No run can begin: the beginning is refused before anything is stored.
    let mut broken = original;
    broken.given = vec![Arc::new(Message::system("Obey"))];
    let new = ScriptedProvider::new();
    let report = Rerun::of([broken], agent(&new, [])).score("ran", passes).run().await.unwrap();
    let case = &report.cases()[0];
    assert!(case.rerun.runs.iter().all(|run| matches!(run.status, Some(Status::Failed(_)))), "{case:?}");
    assert_eq!((case.rerun.runs.len(), case.rerun.steps), (2, 0));
}

#[tokio::test]
async fn unknown_costs_stay_unknown() {
    let known = ScriptedProvider::new().step(paid("One.", "0.25")).step(paid("Two.", "0.5"));
    let clerk = agent(&known, []);
    let original = recorded(&clerk, &["First", "Second"]).await;
    assert_eq!((original.cost, original.usage.total()), (Some(Money::usd("0.75").unwrap()), Some(30)));
    let new = ScriptedProvider::new().step(paid("One.", "0.1")).text("Two.");
    let report = Rerun::of([original], agent(&new, [])).score("ran", passes).run().await.unwrap();
    // The scripted model has no price.
    assert_eq!((report.cost(), report.steps(), report.usage().total()), (None, 2, Some(30)));
    let table = report.to_string();
    assert!(table.contains("cost unknown ($0.75)") && table.contains("unknown ($0.75)"), "{table}");
}

#[tokio::test]
async fn a_title_is_no_part_of_the_figures_and_a_child_is_no_case() {
    let title = ScriptedProvider::new().text("A greeting");
    let old = ScriptedProvider::new().step(paid("Hello!", "0.25"));
    let runtime = crate::runtime().titles(Titles::new(title.model())).build();
    let session = runtime.session();
    session.start(agent(&old, []), "Hi").outcome().await.unwrap();
    assert!(runtime.cancel_all().await);
    assert_eq!(title.count(), 1);
    let original = transcript(&runtime, &session).await;
    assert_eq!((original.steps, original.cost), (1, Some(Money::usd("0.25").unwrap())));

    let below = runtime.sessions(&entourage_core::session::SessionFilter::all()).await.unwrap();
    let child = below.iter().find(|info| info.record.parent.is_some()).unwrap();
    let error = Transcript::read(runtime.store(), child.record.id.as_str()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let error = Transcript::read(runtime.store(), "nobody").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn prompts_can_be_changed_and_cases_run_side_by_side() {
    let old = ScriptedProvider::new().text("Hello!").text("Hello!");
    let clerk = agent(&old, []);
    let originals = [recorded(&clerk, &["Hi"]).await.named("a"), recorded(&clerk, &["Ho"]).await.named("b")];
    let gate = Gate::new();
    let reply = || Script::new().wait(&gate).text("Hello!").finish(FinishReason::Stop);
    let new = ScriptedProvider::new().step(reply()).step(reply());
    let rerun = Rerun::of(originals, agent(&new, []))
        .at_once(2)
        .prompts(|prompt| Message::user(format!("{} (in one word)", prompt.text())))
        .score("same answers", RerunCase::has_same_answers)
        .judge("asked twice", |case| Box::pin(async move { case.rerun.steps.eq(&1).into() }))
        .run();
    let (report, ()) = tokio::join!(rerun, async {
        gate.arrived(2).await;
        gate.open();
    });
    let report = report.unwrap();
    report.assert();
    assert_eq!(report.cases().iter().map(RerunCase::name).collect::<Vec<_>>(), ["a", "b"]);
    let mut asked: Vec<_> = new.requests().iter().map(|it| it.messages.last().unwrap().text()).collect();
    asked.sort();
    assert_eq!(asked, ["Hi (in one word)", "Ho (in one word)"]);
}

#[tokio::test]
async fn a_rerun_without_sessions_or_scores_is_refused_before_anything_runs() {
    let provider = ScriptedProvider::new();
    let none = Rerun::of([], agent(&provider, [])).score("ran", passes).run().await.unwrap_err();
    let unscored = Rerun::of([Transcript::new("a")], agent(&provider, [])).run().await.unwrap_err();
    assert_eq!((none.kind(), unscored.kind()), (ErrorKind::Config, ErrorKind::Config));
}

#[tokio::test]
async fn a_panic_of_a_score_fails_its_case_alone() {
    let provider = ScriptedProvider::by_history().text("Said.");
    let new = || agent(&provider, []);
    let mut originals = Vec::new();
    for name in ["one", "two", "three"] {
        originals.push(recorded(&new(), &["Say it"]).await.named(name));
    }
    let is_two = |case: &RerunCase| case.name() == "two";
    let scored = Rerun::of(originals.clone(), new())
        .score("says", move |case: &RerunCase| {
            assert!(!is_two(case), "no score for two");
            true
        })
        .score("ran", RerunCase::is_completed)
        .run();
    let judged = Rerun::of(originals.clone(), new())
        .judge("says", move |case| {
            Box::pin(async move {
                tokio::task::yield_now().await;
                assert!(!is_two(case), "no score for two");
                true.into()
            })
        })
        .score("ran", RerunCase::is_completed)
        .run();
    let unmade = Rerun::of(originals.clone(), new())
        .judge("says", move |case| {
            assert!(!is_two(case), "no score for two");
            Box::pin(std::future::ready(true.into()))
        })
        .score("ran", RerunCase::is_completed)
        .run();
    for report in [scored.await.unwrap(), judged.await.unwrap(), unmade.await.unwrap()] {
        let passes: Vec<_> = report.cases().iter().map(RerunCase::passes).collect();
        assert_eq!(passes, [true, false, true], "{report}");
        assert!(
            report.to_string().contains("two fails `says`: the score panicked: no score for two"),
            "{report}"
        );
        assert!(!report.to_string().contains("fails `ran`"), "{report}");
    }

    let asked: Vec<_> = originals.iter().cloned().zip(["Say it", "Say two", "Say it"]).collect();
    let originals = asked.into_iter().map(|(mut original, prompt)| {
        original.runs[0].prompt = Arc::new(Message::user(prompt));
        original
    });
    let report = Rerun::of(originals, new())
        .prompts(|prompt| {
            assert!(!prompt.text().contains("two"), "no prompt for two");
            prompt.clone()
        })
        .score("ran", |_: &RerunCase| true)
        .run()
        .await
        .unwrap();
    let passes: Vec<_> = report.cases().iter().map(RerunCase::passes).collect();
    assert_eq!(passes, [true, false, true], "{report}");
    let reason = "two fails `ran`: the change of its prompts panicked: no prompt for two";
    assert!(report.to_string().contains(reason), "{report}");
    assert!(!report.cases()[1].is_completed() && report.cases()[2].is_completed());
}
