//! The answers of approvers: together, for a session, with other arguments, with a reason, a question back, a deadline.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Clock, Error, ErrorKind, Result, Timestamp,
    event::Event,
    message::Arguments,
    permission::{ApprovalRequest, Approver, Decision},
    run::{Pause, Status, StopReason},
    session::SharedStore,
    tool::{Access, Footprint, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec},
};
use entourage_runtime::permission::Policy;
use entourage_runtime::{Agents, Moment, Runtime, RuntimeBuilder, Session};
use entourage_testkit::{self as testkit, FakeTool, PausedClock, ScriptedProvider};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::common::{agent, assert_valid, count, memory, settled, stored};

/// An approver that gives each call the answer for its path.
#[derive(Debug, Clone)]
struct ByPath(Arc<HashMap<&'static str, Decision>>, Arc<Mutex<Vec<ApprovalRequest>>>);

impl ByPath {
    fn new<const N: usize>(answers: [(&'static str, Decision); N]) -> Self {
        Self(Arc::new(answers.into()), Arc::default())
    }

    fn asked(&self) -> usize {
        self.1.lock().unwrap().len()
    }
}

#[async_trait]
impl Approver for ByPath {
    async fn decide(&self, request: &ApprovalRequest) -> Result<Decision> {
        self.1.lock().unwrap().push(request.clone());
        let arguments: Value = serde_json::from_str(request.arguments.as_str()).unwrap();
        Ok(self.0[arguments["path"].as_str().unwrap()].clone())
    }

    fn name(&self) -> Option<Arc<str>> {
        Some("ada".into())
    }
}

/// A tool that writes to the path in its arguments, and says what it was given.
#[derive(Clone)]
struct Write(ToolSpec, Arc<Mutex<Vec<Value>>>);

impl Write {
    fn new() -> Self {
        Self::with_schema(
            json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}),
        )
    }

    fn with_schema(schema: Value) -> Self {
        let spec = ToolSpec::new("write", "Writes.", schema).with_access(Access::WRITE).naming_subjects();
        Self(spec, Arc::default())
    }

    fn calls(&self) -> Vec<Value> {
        self.1.lock().unwrap().clone()
    }
}

#[async_trait]
impl Tool for Write {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn footprint(&self, arguments: &Value) -> Footprint {
        Footprint::new(Access::WRITE).writing(arguments["path"].as_str().unwrap_or("?"))
    }

    async fn call(&self, input: ToolInput, _: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        self.1.lock().unwrap().push(input.arguments);
        Ok(ToolOutput::text("written"))
    }
}

fn ask() -> Policy {
    Policy::new().ask("write")
}

fn on(store: &SharedStore) -> RuntimeBuilder {
    testkit::runtime().shared_store(Arc::clone(store)).policy(ask())
}

/// A model that writes to these paths in one step.
fn step<const N: usize>(paths: [&str; N]) -> ScriptedProvider {
    ScriptedProvider::new().calls(paths.map(|path| ("write", json!({"path": path}))))
}

fn writes<const N: usize>(paths: [&str; N]) -> ScriptedProvider {
    step(paths).text("Done.")
}

#[tokio::test]
async fn cp01_the_calls_of_one_step_are_asked_about_together() {
    /// Answers nothing before it was asked about everything.
    #[derive(Debug)]
    struct Together(Mutex<usize>, Notify);

    #[async_trait]
    impl Approver for Together {
        async fn decide(&self, _: &ApprovalRequest) -> Result<Decision> {
            *self.0.lock().unwrap() += 1;
            self.1.notify_waiters();
            loop {
                let more = self.1.notified();
                if *self.0.lock().unwrap() == 3 {
                    return Ok(Decision::Allow);
                }
                more.await;
            }
        }
    }

    let write = Write::new();
    let provider = writes(["a", "b", "c"]);
    let agent = agent(provider.model()).tool(write.clone()).build().unwrap();
    let approver = Together(Mutex::default(), Notify::new());
    let runtime = testkit::runtime().policy(ask()).approver(approver).build();
    runtime.session().start(&agent, "Go").outcome().await.unwrap();
    let paths: Vec<_> = write.calls().iter().map(|call| call["path"].clone()).collect();
    assert_eq!(paths, ["a", "b", "c"], "writers run in their order");
}

/// An approver may pass each question on to a person, and put it off at once.
#[tokio::test]
async fn cp01_an_approver_that_never_waits_is_asked_about_every_call_before_one_runs_or_pauses() {
    for (first, asked, ran) in [(Decision::Later, 3, 0), (Decision::Allow, 3, 1), (Decision::Deny, 1, 0)] {
        let write = Write::new();
        let provider = step(["a", "b", "c"]);
        let agent = agent(provider.model()).tool(write.clone()).build().unwrap();
        let approver = ByPath::new([("a", first.clone()), ("b", Decision::Later), ("c", Decision::Allow)]);
        let session = testkit::runtime().policy(ask()).approver(approver.clone()).build().session();
        session.start(&agent, "Go").outcome().await.unwrap();
        assert_eq!((approver.asked(), write.calls().len()), (asked, ran), "{first}");
    }
}

#[tokio::test]
async fn cp02_a_grant_for_the_session_covers_the_same_footprint_and_schema_alone() {
    let (store, write) = (memory(), Write::new());
    let approver = ByPath::new([("a", Decision::AllowSession), ("b", Decision::Allow)]);
    let session = on(&store).approver(approver.clone()).build().session();
    async fn play<const N: usize>(session: &Session, write: &Write, paths: [&str; N]) {
        let provider = writes(paths);
        let agent = agent(provider.model()).tool(write.clone()).build().unwrap();
        session.start(&agent, "Go").outcome().await.unwrap();
    }
    play(&session, &write, ["a", "a", "b", "b"]).await;
    // Both questions about `a` were asked before the first was answered.
    assert_eq!((approver.asked(), write.calls().len()), (4, 4));
    play(&session, &write, ["a", "b"]).await;
    assert_eq!((approver.asked(), write.calls().len()), (5, 6), "`a` is allowed, `b` is not");

    // Another process, a fork, another session, and another schema.
    let reopened = on(&store).approver(approver.clone()).build();
    let again = reopened.open(session.id()).await.unwrap();
    play(&again, &write, ["a"]).await;
    assert_eq!(approver.asked(), 5);
    let newest = stored(&store, session.id()).await.last().unwrap().seq;
    let fork = again.fork(Moment::Event(newest)).await.unwrap();
    play(&fork, &write, ["a"]).await;
    assert_eq!(approver.asked(), 6, "a fork is not granted anything");
    let asked = approver.asked();
    let other =
        Write::with_schema(json!({"type": "object", "properties": {"path": {"type": "string"}, "mode": {}}}));
    play(&again, &other, ["a"]).await;
    assert_eq!(approver.asked(), asked + 1, "the schema changed");
    play(&reopened.session(), &write, ["a"]).await;
    assert_eq!(approver.asked(), asked + 2, "another session");
}

#[tokio::test]
async fn issue_13_edited_arguments_are_checked_judged_and_recorded_beside_the_original() {
    let edit = |text: &str| Decision::Edit(Arguments::parse(text).unwrap());
    let approver = ByPath::new([
        ("a", edit(r#"{"path": "safe/a"}"#)),
        ("b", edit(r#"{"path": "secret/b"}"#)),
        ("c", edit(r#"{"path": 7}"#)),
    ]);
    for (path, ran, text) in [
        ("a", Some("safe/a"), "Run with other arguments than yours: {\"path\": \"safe/a\"}"),
        ("b", None, "refused by the rule"),
        ("c", None, "not run: the approver gave it other arguments"),
    ] {
        let (store, write) = (memory(), Write::new());
        let policy = ask().deny("write:secret/*");
        let runtime = testkit::runtime().shared_store(Arc::clone(&store)).policy(policy);
        let provider = if path == "b" { step([path]) } else { writes([path]) };
        let agent = agent(provider.model()).tool(write.clone()).build().unwrap();
        let session = runtime.approver(approver.clone()).build().session();
        session.start(&agent, "Go").outcome().await.unwrap();
        let given: Vec<_> =
            write.calls().iter().map(|call| call["path"].as_str().unwrap().to_owned()).collect();
        assert_eq!(given, Vec::from_iter(ran.map(str::to_owned)), "{path}");
        let events = stored(&store, session.id()).await;
        let told = settled(&events);
        assert!(told[0].1.contains(text), "{path}: {told:?}");
        let decided = events.iter().find_map(|event| match &event.event {
            Event::ApprovalDecided(answer) => Some((answer.decision.clone(), answer.by.clone())),
            _ => None,
        });
        let (decision, by) = decided.unwrap();
        assert!(matches!(decision, Decision::Edit(_)) && by.as_deref() == Some("ada"), "{decision:?}");
        let asked = events.iter().find_map(|event| match &event.event {
            Event::ApprovalRequested(request) => Some(request.arguments.as_str().to_owned()),
            _ => None,
        });
        assert_eq!(asked.unwrap(), format!("{{\"path\":\"{path}\"}}"));
    }
}

#[tokio::test]
async fn issue_13_a_reason_and_a_question_back_let_the_run_go_on() {
    let stop = Decision::Refuse { reason: "never".to_owned(), go_on: false };
    for (decision, text, goes_on) in [
        (Decision::refuse("that file is shared"), "refused by the approver: that file is shared", true),
        (Decision::Ask("Why there?".to_owned()), "the approver asks: Why there?", true),
        (stop, "refused by the approver: never", false),
        (Decision::Deny, "refused by the approver", false),
    ] {
        let (store, write) = (memory(), Write::new());
        let provider = if goes_on { writes(["a"]) } else { step(["a"]) };
        let agent = agent(provider.model()).tool(write.clone()).build().unwrap();
        let approver = ByPath::new([("a", decision.clone())]);
        let session = on(&store).approver(approver).build().session();
        let outcome = session.start(&agent, "Go").outcome().await.unwrap();
        assert_eq!((write.calls().len(), provider.count()), (0, 1 + usize::from(goes_on)), "{decision:?}");
        let expected = match goes_on {
            true => Status::Completed,
            false => Status::Stopped(StopReason::Denied("write".into())),
        };
        assert_eq!(outcome.status, expected, "{decision:?}");
        let events = stored(&store, session.id()).await;
        assert!(settled(&events)[0].1.contains(text), "{:?}", settled(&events));
        if goes_on {
            assert_valid(&provider.requests()[1].messages);
        }
    }
}

#[tokio::test]
async fn issue_13_the_text_of_an_approvers_failure_is_kept() {
    #[derive(Debug)]
    struct Failing;

    #[async_trait]
    impl Approver for Failing {
        async fn decide(&self, _: &ApprovalRequest) -> Result<Decision> {
            Err(Error::new(ErrorKind::Transport, "the line is dead"))
        }
    }

    let (store, write) = (memory(), Write::new());
    let provider = step(["a"]);
    let agent = agent(provider.model()).tool(write).build().unwrap();
    let session = on(&store).approver(Failing).build().session();
    session.start(&agent, "Go").outcome().await.unwrap();
    let events = stored(&store, session.id()).await;
    let failure = events.iter().find_map(|event| match &event.event {
        Event::ApprovalDecided(answer) => answer.failure.clone(),
        _ => None,
    });
    assert!(failure.unwrap().contains("the line is dead"));
}

#[tokio::test(start_paused = true)]
async fn issue_13_a_deadline_decides_when_it_has_passed_and_not_before() {
    for (allow, status, written) in
        [(true, Status::Completed, 1), (false, Status::Stopped(StopReason::Denied("write".into())), 0)]
    {
        let (store, write, clock) = (memory(), Write::new(), PausedClock::new());
        let until = clock.now().after(Duration::from_secs(60));
        let provider = if allow { writes(["a"]) } else { step(["a"]) };
        let agent = agent(provider.model()).tool(write.clone()).build().unwrap();
        let approver = ByPath::new([("a", Decision::Until { at: until, allow })]);
        let session = on(&store).clock(clock).approver(approver).build().session();
        let outcome = session.start(&agent, "Go").outcome().await.unwrap();
        let Status::Paused(pause) = &outcome.status else { panic!("{outcome}") };
        assert!(matches!(pause, Pause::Deadline { until: it, .. } if *it == until), "{pause:?}");

        // Nobody is there in the next process; it resumes nothing before the time.
        let next = on(&store).clock(clock).build();
        let agents = Agents::new().with(agent.clone());
        assert_eq!(next.recover(&agents).await.unwrap().resumed.len(), 0);
        tokio::time::advance(Duration::from_secs(60)).await;
        let mut recovered = next.recover(&agents).await.unwrap().resumed;
        assert_eq!(recovered.len(), 1);
        let outcome = recovered.pop().unwrap().outcome().await.unwrap();
        assert_eq!((outcome.status, write.calls().len()), (status, written));
        let events = stored(&store, session.id()).await;
        assert_eq!((count(&events, "approval_requested"), count(&events, "approval_decided")), (1, 2));
    }
}

#[tokio::test]
async fn issue_13_a_person_answers_before_the_deadline_and_the_second_is_told_who_did() {
    let (store, write) = (memory(), Write::new());
    let provider = writes(["a"]);
    let agent = agent(provider.model()).tool(write.clone()).build().unwrap();
    let far = Timestamp::now().after(Duration::from_secs(3_600));
    let approver = ByPath::new([("a", Decision::Until { at: far, allow: false })]);
    let session = on(&store).approver(approver).build().session();
    let outcome = session.start(&agent, "Go").outcome().await.unwrap();
    let Status::Paused(pause) = &outcome.status else { panic!("{outcome}") };
    let id = pause.approval().unwrap().clone();
    let (one, two): (Runtime, Runtime) = (on(&store).build(), on(&store).build());
    assert_eq!(Decision::edit(&json!(["b"])).unwrap_err().kind(), ErrorKind::InvalidInput);
    let edit = Decision::edit(&json!({"path": "b"})).unwrap();
    one.decide(&id, edit.clone().by("ada")).await.unwrap();
    one.decide(&id, edit).await.unwrap();
    let error = two.decide(&id, Decision::Deny.by("bob")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.message().contains("allowed with other arguments"), "{error}");
    assert!(error.context().any(|(name, value)| name == "decided_by" && value == "ada"), "{error}");
    let error = two.decide(&id, Decision::AllowAlways).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let reopened = two.open(session.id()).await.unwrap();
    reopened.resume(&agent).outcome().await.unwrap();
    assert_eq!(write.calls(), [json!({"path": "b"})]);
}

/// A tool without subjects: a grant for the session is for all its calls.
#[tokio::test]
async fn cp02_a_tool_that_names_nothing_is_granted_as_a_whole() {
    let approver = ByPath::new([("a", Decision::AllowSession)]);
    let provider = ScriptedProvider::new()
        .call("write", json!({"path": "a"}))
        .call("write", json!({"path": "b"}))
        .text("Done.");
    let write = FakeTool::new("write").access(Access::WRITE);
    let agent = agent(provider.model()).tool(write.clone()).build().unwrap();
    let runtime = testkit::runtime().policy(ask()).approver(approver.clone()).build();
    runtime.session().start(&agent, "Go").outcome().await.unwrap();
    assert_eq!((approver.asked(), write.finished()), (1, 2));
}
