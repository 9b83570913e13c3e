//! Cascades: what escalates and what does not, who begins, who checks, and what each agent is told.

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Prices, Result,
    agent::Agent,
    provider::{
        Model, Profile,
        Size::{L, M, S, Xl, Xs},
    },
    run::{Outcome, RunContext, Status, StopReason, Task},
    session::SharedStore,
};
use entourage_runners::{Cascade, CascadeBuilder, CascadeStep, ReactAgent, Verdict, team::TaskType};
use entourage_runtime::{AgentExt, Runtime};
use entourage_testkit::{Gate, Script, ScriptedProvider};
use serde_json::json;

use crate::{
    common::{memory, runtime_on, stored},
    crew::{Act, Hand, Log, root, secs},
};

/// Three agents, of which the first performs `acts`.
fn three(log: &Log, acts: Vec<Act>) -> CascadeBuilder {
    let small = Hand::logging("small", log).on("work", acts);
    let others = ["medium", "large"].map(|name| Hand::logging(name, log));
    others.into_iter().fold(Cascade::builder("cascade").step(small), CascadeBuilder::step)
}

/// Returns who was asked, in order.
fn asked(log: &Log) -> Vec<String> {
    log.all().iter().filter_map(|it| it.split_once(" is asked").map(|(name, _)| name.to_owned())).collect()
}

async fn steps(store: &SharedStore) -> Vec<CascadeStep> {
    let events = stored(store, &root()).await;
    let found = events.iter().filter_map(|event| event.event.record::<CascadeStep>().unwrap());
    found.map(|step| CascadeStep::clone(&step)).collect()
}

async fn run(cascade: &Cascade, store: &SharedStore) -> Result<Outcome> {
    runtime_on(store).session_with_id(root()).start(cascade, "work hard").outcome().await
}

#[tokio::test(start_paused = true)]
async fn lo04_a_failed_attempt_goes_to_the_next_agent_with_the_reason() {
    let incomplete = StopReason::Incomplete { iterations: 3, feedback: "no tests".into() };
    for (failure, reason) in [
        (Act::Fail("I am too small"), "I am too small"),
        (Act::End(Status::Stopped(StopReason::Steps(50))), "stopped: the limit of 50 steps was reached"),
        (
            Act::End(Status::Stopped(StopReason::LoopDetected)),
            "stopped: it went in circles: the same calls with the same results",
        ),
        (Act::End(Status::Stopped(incomplete)), "stopped: not complete after 3 attempts: no tests"),
        (Act::Panic, "the agent panicked: work panics"),
    ] {
        let (log, store) = (Log::default(), memory());
        let outcome = run(&three(&log, vec![failure]).build().unwrap(), &store).await.unwrap();
        assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "work done"), "{reason}");
        assert_eq!(asked(&log), ["small", "medium"], "{reason}");
        let told = log.all().into_iter().find(|it| it.starts_with("medium is asked")).unwrap();
        let expected =
            format!("work hard\n\nAn attempt before this one failed:\n\n<failure>\n{reason}\n</failure>");
        assert_eq!(told, format!("medium is asked: {expected}"));
        let steps = steps(&store).await;
        let [first, second] = &steps[..] else { panic!("{steps:?}") };
        assert_eq!((first.attempt, first.step, first.refused.as_deref()), (1, 1, Some(reason)));
        assert_eq!((first.ended.clone(), &*first.agent), (None, "small"));
        assert_eq!((second.attempt, second.step, second.refused.as_deref()), (2, 2, None));
        assert_eq!((second.ended.clone(), &*second.agent), (Some(Status::Completed), "medium"));
    }
}

#[tokio::test(start_paused = true)]
async fn lo04_a_denial_and_a_cancel_never_escalate() {
    let forbidden = Error::new(ErrorKind::PermissionDenied, "no").record();
    for end in [
        Status::Stopped(StopReason::Denied("shell".into())),
        Status::Stopped(StopReason::Deadline),
        Status::Failed(forbidden),
        Status::Cancelled,
    ] {
        let (log, store) = (Log::default(), memory());
        let cascade = three(&log, vec![Act::End(end.clone())]).verify(|_| Ok(())).build().unwrap();
        let ended = run(&cascade, &store).await;
        assert_eq!(asked(&log), ["small"], "{end}");
        match end {
            Status::Failed(_) => assert_eq!(ended.unwrap_err().kind(), ErrorKind::PermissionDenied),
            end => assert_eq!(ended.unwrap().status, end),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lo04_a_cancel_unwinds_the_attempt_and_ends_the_run() {
    let (log, gate, store) = (Log::default(), Gate::new(), memory());
    let cascade = three(&log, vec![Act::Wait(gate.clone())]).build().unwrap();
    let run = runtime_on(&store).session_with_id(root()).start(&cascade, "work hard");
    gate.arrived(1).await;
    run.cancel();
    assert_eq!(run.outcome().await.unwrap().status, Status::Cancelled);
    assert_eq!((asked(&log), log.count("work is cancelled")), (vec!["small".to_owned()], 1));
    assert!(steps(&store).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn lo04_a_verifier_refuses_until_somebody_will_do() {
    // The agent that is accepted; without one, the last answer is refused too.
    for (good, expected) in [(Some(1), 1), (Some(2), 2), (Some(3), 3), (None, 3)] {
        let (log, store) = (Log::default(), memory());
        let count = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
        let verify = move |answer: &Outcome| {
            assert_eq!(answer.text, "work done");
            let number = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
            if Some(number) == good { Ok(()) } else { Err(format!("refusal {number}")) }
        };
        let cascade = three(&log, Vec::new()).verify(verify).build().unwrap();
        let outcome = run(&cascade, &store).await.unwrap();
        assert_eq!(asked(&log).len(), expected);
        assert_eq!(outcome.text, "work done");
        let incomplete = || StopReason::Incomplete { iterations: 3, feedback: "refusal 3".into() };
        let status = good.map_or_else(|| Status::Stopped(incomplete()), |_| Status::Completed);
        assert_eq!(outcome.status, status);
        if expected == 3 {
            let told = log.all().into_iter().find(|it| it.starts_with("large is asked")).unwrap();
            assert!(
                told.ends_with("An attempt before this one failed:\n\n<failure>\nrefusal 2\n</failure>"),
                "{told}"
            );
            assert!(!told.contains("refusal 1"), "the newest reason alone: {told}");
        }
        // The record alone gives the outcome: no agent and no verifier is asked.
        let events = stored(&store, &root()).await;
        let replayed =
            runtime_on(&store).session_with_id(root()).replay(&cascade, events[0].origin.run).await;
        assert_eq!((replayed.unwrap().text.as_str(), asked(&log).len()), ("work done", expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_verifier_that_panics_refuses_the_answer() {
    let log = Log::default();
    let cascade = three(&log, Vec::new()).verify(|_| panic!("no luck")).build().unwrap();
    let outcome = run(&cascade, &memory()).await.unwrap();
    let feedback = "the verifier panicked: no luck".into();
    assert_eq!(outcome.status, Status::Stopped(StopReason::Incomplete { iterations: 3, feedback }));
    let (log, store) = (Log::default(), memory());
    let cascade = three(&log, Vec::new()).task_type(|_| panic!("no luck")).build().unwrap();
    let error = run(&cascade, &store).await.unwrap_err();
    assert_eq!((error.kind(), asked(&log).len()), (ErrorKind::Internal, 0));
}

#[tokio::test(start_paused = true)]
async fn the_last_agent_ends_the_run_as_it_ends() {
    for end in [Status::Stopped(StopReason::Steps(3)), Status::Stopped(StopReason::LoopDetected)] {
        let only = Hand::new("only").on("work", [Act::End(end.clone())]);
        let cascade = Cascade::builder("cascade").step(only).build().unwrap();
        assert_eq!(run(&cascade, &memory()).await.unwrap().status, end);
    }
    let only = Hand::new("only").on("work", [Act::Fail("too hard")]);
    let cascade = Cascade::builder("cascade").step(only).build().unwrap();
    assert_eq!(run(&cascade, &memory()).await.unwrap_err().message(), "too hard");
}

#[tokio::test(start_paused = true)]
async fn lo03_the_type_of_a_task_chooses_who_begins() {
    use TaskType::{Code, Edit, Summarize};
    let of_word = |task: &Task| task.prompt.text().split_whitespace().last().unwrap().parse().unwrap();
    for (sizes, kind, first) in [
        ([Xs, M, Xl], Summarize, "two"),
        ([S, M, Xl], Summarize, "one"),
        ([S, M, Xl], Edit, "two"),
        ([S, M, Xl], Code, "three"),
        ([S, M, M], Code, "two"),
        ([Xs, Xs, Xs], Code, "three"),
    ] {
        let log = Log::default();
        let hands = ["one", "two", "three"].map(|name| Hand::logging(name, &log));
        let steps = sizes.into_iter().zip(hands);
        let cascade = steps.fold(Cascade::builder("cascade"), |it, (size, hand)| it.step_of(size, hand));
        let cascade = cascade.task_type(of_word).starts_by_type().build().unwrap();
        let store = memory();
        let session = runtime_on(&store).session_with_id(root());
        session.start(&cascade, format!("work {kind}")).outcome().await.unwrap();
        assert_eq!(asked(&log), [first], "{kind} {sizes:?}");
        assert_eq!(steps_of(&store).await, [Some(kind)]);
    }
}

async fn steps_of(store: &SharedStore) -> Vec<Option<TaskType>> {
    steps(store).await.iter().map(|step| step.task).collect()
}

fn model(name: &str, size: Option<entourage_core::provider::Size>, price: Option<u64>) -> Model {
    let mut profile = Profile::default();
    profile.size = size;
    profile.prices = price.map(|price| Prices::per_million_micros(price, price));
    let provider = ScriptedProvider::by_history().text(name);
    Model::new(provider.provider(), name).with_profile(profile)
}

#[tokio::test(start_paused = true)]
async fn agents_are_ordered_by_hand_by_size_or_by_price() {
    let sorted: [fn(CascadeBuilder) -> CascadeBuilder; 3] =
        [|it| it, CascadeBuilder::by_size, CascadeBuilder::by_price];
    for (sort, expected) in sorted.into_iter().zip(["unknown", "small", "cheap"]) {
        let models = [
            model("unknown", None, Some(3)),
            model("cheap", Some(Xl), Some(1)),
            model("small", Some(S), Some(2)),
        ];
        let [agent, ..] = models.clone().map(|model| ReactAgent::builder("counter", model).build().unwrap());
        let cascade = sort(Cascade::of_models(&agent, models)).build().unwrap();
        assert_eq!(cascade.ask("Who?").await.unwrap(), expected);
        assert_eq!(cascade.name(), "counter");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cascade_that_cannot_work_is_refused_with_the_next_step() {
    let empty = || Cascade::builder("cascade");
    let one = || empty().step(Hand::new("one"));
    let react = |name: &str| ReactAgent::builder(name, model("m", Some(L), None)).build().unwrap();
    let many = (0..17).fold(empty(), |it, _| it.step(Hand::new("one")));
    let narrow = entourage_core::permission::Scope::all().with_tools(["look"]);
    let narrow = ReactAgent::builder("narrow", model("m", None, None)).scope(narrow).build().unwrap();
    for (builder, told) in [
        (empty(), "add one with `step`"),
        (many, "at most 16 agents, and this one 17"),
        (Cascade::builder("two words").step(Hand::new("one")), "name"),
        (one().by_price(), "order the agents by hand"),
        (empty().step(react("dear")).by_price(), "order the agents by hand"),
        (one().starts_by_type(), "set `task_type`"),
        (one().verified_by(narrow), "`task_complete`"),
    ] {
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{told}");
        assert!(error.message().contains(told), "{told}: {error}");
    }
}

/// What a checker answers to its prompt.
type Says = fn(&str) -> Result<Outcome>;

/// A checker by hand.
#[derive(Clone)]
struct Checks(Log, Says);

#[async_trait]
impl Agent for Checks {
    fn name(&self) -> &'static str {
        "checks"
    }

    async fn run(&self, task: Task, _: &RunContext) -> Result<Outcome> {
        self.0.note(format!("checks: {}", task.prompt.text()));
        (self.1)(&task.prompt.text())
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_verifies_as_the_checker_of_a_pair_does() {
    let yes = |_: &str| Ok(Verdict::accepted("It is there.").into());
    let no = |_: &str| Ok(Verdict::rejected("It is not there.").into());
    let vague = |_: &str| Ok(Outcome::completed("Perhaps."));
    let broken = |_: &str| Err(Error::new(ErrorKind::Overloaded, "no room"));
    let table: [(Says, usize, Option<&str>); 4] =
        [(yes, 1, None), (no, 3, Some("It is not there.")), (vague, 3, Some("Perhaps.")), (broken, 1, None)];
    for (says, attempts, feedback) in table {
        let (log, store) = (Log::default(), memory());
        let checker = Checks(log.clone(), says);
        let cascade = three(&log, Vec::new()).verified_by(checker).build().unwrap();
        let ended = run(&cascade, &store).await;
        assert_eq!(asked(&log).len(), attempts);
        let checks: Vec<_> = log.all().into_iter().filter(|it| it.starts_with("checks: ")).collect();
        assert_eq!(checks.len(), attempts);
        assert!(checks[0].contains("work hard") && checks[0].contains("work done"), "{}", checks[0]);
        assert!(!checks[attempts - 1].contains("An attempt before"), "the user's words alone");
        match (ended, feedback) {
            (Ok(outcome), None) => assert_eq!(outcome.status, Status::Completed),
            (Err(error), None) => assert_eq!(error.kind(), ErrorKind::Overloaded),
            (ended, Some(feedback)) => {
                let incomplete = StopReason::Incomplete { iterations: 3, feedback: feedback.into() };
                assert_eq!(ended.unwrap().status, Status::Stopped(incomplete));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_checker_with_tools_completes_the_task_or_says_what_is_left() {
    let done = json!({"summary": "I counted."});
    let checks = ScriptedProvider::new().text("Count again.").call("task_complete", done);
    let checker = ReactAgent::builder("checker", checks.model()).build().unwrap();
    let small = ScriptedProvider::new().text("About 40.");
    let large = ScriptedProvider::new().text("42.");
    let agent = ReactAgent::builder("counter", small.model()).build().unwrap();
    let cascade = Cascade::of_models(&agent, [small.model(), large.model()]).verified_by(checker);
    let session = Runtime::in_memory().session();
    let outcome = session.start(&cascade.build().unwrap(), "How many?").outcome().await.unwrap();
    assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "42."));
    let told = large.requests()[0].messages.iter().last().unwrap().text();
    assert_eq!(
        told,
        "How many?\n\nAn attempt before this one failed:\n\n<failure>\nCount again.\n</failure>"
    );
    for (request, report) in checks.requests().iter().zip(["About 40.", "42."]) {
        let texts: Vec<_> = request.messages.iter().map(|message| message.text()).collect();
        assert_eq!((texts.len(), texts[1].as_str(), texts[2].as_str()), (3, "How many?", report));
    }
}

#[tokio::test(start_paused = true)]
async fn every_agent_sees_what_the_cascade_said_and_nothing_of_refused_attempts() {
    let small = ScriptedProvider::new().text("Maybe 40.").text("Maybe 3.");
    let large = ScriptedProvider::new().text("42.").text("Three.");
    let agent = ReactAgent::builder("counter", small.model()).build().unwrap();
    let sure = |answer: &Outcome| match answer.text.starts_with("Maybe") {
        true => Err("Be sure.".to_owned()),
        false => Ok(()),
    };
    let cascade = Cascade::of_models(&agent, [small.model(), large.model()]).verify(sure).build().unwrap();
    let session = Runtime::in_memory().session();
    for (prompt, answer) in [("How many pears?", "42."), ("And plums?", "Three.")] {
        assert_eq!(session.start(&cascade, prompt).outcome().await.unwrap().text, answer);
    }
    let texts = |provider: &ScriptedProvider| -> Vec<String> {
        provider.requests()[1].messages.iter().map(|message| message.text()).collect()
    };
    assert_eq!(texts(&small), ["How many pears?", "42.", "And plums?"]);
    let again = "And plums?\n\nAn attempt before this one failed:\n\n<failure>\nBe sure.\n</failure>";
    assert_eq!(texts(&large), ["How many pears?", "42.", again]);
    let said: Vec<_> = session.history().await.unwrap().iter().map(|message| message.text()).collect();
    assert_eq!(said, ["How many pears?", "42.", "And plums?", "Three."]);
}

#[tokio::test(start_paused = true)]
async fn each_attempt_has_a_session_and_figures_of_its_own() {
    let provider = |text: &str| {
        let reply = Script::new().text(text).usage(100, 10);
        ScriptedProvider::by_history().step(reply.finish(entourage_core::provider::FinishReason::Stop))
    };
    let models = [provider("one").model(), provider("two").model()].map(|model| {
        let mut profile = Profile::default();
        profile.prices = Some(Prices::per_million_micros(1_000_000, 1_000_000));
        model.with_profile(profile)
    });
    let agent = ReactAgent::builder("counter", models[0].clone()).build().unwrap();
    let only_two = |it: &Outcome| if it.text == "two" { Ok(()) } else { Err("no".to_owned()) };
    let cascade = Cascade::of_models(&agent, models).verify(only_two).build().unwrap();
    let store = memory();
    run(&cascade, &store).await.unwrap();
    let steps = steps(&store).await;
    let figures: Vec<_> =
        steps.iter().map(|it| (it.usage.total(), it.cost.map(|cost| cost.as_pico()))).collect();
    assert_eq!(figures, [(Some(110), Some(110_000_000)); 2]);
    assert_ne!(steps[0].child, steps[1].child);
    let children = store.query(&entourage_core::session::SessionFilter::children_of(root())).await.unwrap();
    assert!(children.len() == 2 && children.iter().all(|child| &*child.record.role == "attempt"));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_paused_goes_on_with_the_cascade_that_began_it_alone() {
    let (log, store) = (Log::default(), memory());
    let session = runtime_on(&store).session_with_id(root());
    let cascade = three(&log, vec![Act::Signal("go")]).build().unwrap();
    let outcome = session.start(&cascade, "work hard").outcome().await.unwrap();
    assert!(matches!(outcome.status, Status::Paused(_)), "{outcome}");
    let other = Cascade::builder("cascade").step(Hand::new("other")).build().unwrap();
    let error = session.resume(&other).outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Diverged, "{error}");
    let child = store.query(&entourage_core::session::SessionFilter::children_of(root())).await.unwrap();
    let child = runtime_on(&store).open(&child[0].record.id).await.unwrap();
    child.signal("go", json!("now")).await.unwrap();
    let again = three(&log, vec![Act::Signal("go")]).build().unwrap();
    assert_eq!(session.resume(&again).outcome().await.unwrap().text, "\"now\"");
}

#[tokio::test(start_paused = true)]
async fn a_cascade_is_a_node_of_a_graph_as_any_agent() {
    let log = Log::default();
    let cascade = three(&log, vec![Act::Sleep(secs(1)), Act::Fail("too hard")]).build().unwrap();
    let graph = entourage_runners::graph::TaskGraph::builder("graph");
    let node = graph.agent("work", &cascade, "work hard");
    let graph = graph.returning(&node).build().unwrap();
    assert_eq!(*graph.ask("Go").await.unwrap(), "work done");
    assert_eq!(asked(&log), ["small", "medium"]);
}
