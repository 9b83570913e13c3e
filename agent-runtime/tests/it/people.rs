//! Answers of people that meet each other, a grant, a rule, a deadline, a layer, or a call that was handed out.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Clock, ErrorKind, Result, SessionId,
    event::Event,
    permission::{ApprovalRequest, Approver, Decision},
    provider::Model,
    run::{RunContext, Status, StopReason},
    session::SharedStore,
    tool::{
        Access, CallId, Footprint, LayerVerdict, NextCall, Tool, ToolContext, ToolError, ToolInput,
        ToolLayer, ToolOutput, ToolSpec,
    },
};
use entourage_runners::{external, layered, typed::OutcomeExt};
use entourage_runtime::permission::Policy;
use entourage_runtime::{Agents, Runtime, RuntimeBuilder, Session, Waiting};
use entourage_testkit::{self as testkit, FakeTool, Gate, PausedClock, ScriptedProvider};
use serde_json::{Value, json};

use crate::common::{agent, assert_valid, memory, results, settled, stored};

/// A tool that writes where its link leads: to the path of its call, unless the link was set.
#[derive(Clone)]
struct Write(ToolSpec, Arc<Mutex<Option<&'static str>>>, Arc<Mutex<Vec<Value>>>);

impl Write {
    fn new() -> Self {
        let schema = json!({
            "type": "object", "properties": {"path": {"type": "string"}, "text": {}}, "required": ["path"],
        });
        let spec = ToolSpec::new("write", "Writes.", schema).with_access(Access::WRITE).naming_subjects();
        Self(spec, Arc::default(), Arc::default())
    }

    fn calls(&self) -> Vec<Value> {
        self.2.lock().unwrap().clone()
    }
}

#[async_trait]
impl Tool for Write {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn footprint(&self, arguments: &Value) -> Footprint {
        let path = arguments["path"].as_str().unwrap_or("?");
        Footprint::new(Access::WRITE).writing(self.1.lock().unwrap().unwrap_or(path))
    }

    async fn call(&self, input: ToolInput, _: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        self.2.lock().unwrap().push(input.arguments);
        Ok(ToolOutput::text("written"))
    }
}

/// An approver that answers by a part of the arguments, and moves a link when it is asked.
#[derive(Debug, Clone)]
struct ByText(Vec<(&'static str, Decision)>, Arc<Mutex<Option<&'static str>>>, Option<&'static str>);

impl ByText {
    fn new<const N: usize>(answers: [(&'static str, Decision); N]) -> Self {
        Self(answers.into(), Arc::default(), None)
    }
}

#[async_trait]
impl Approver for ByText {
    async fn decide(&self, request: &ApprovalRequest) -> Result<Decision> {
        *self.1.lock().unwrap() = self.2;
        let arguments = request.arguments.as_str();
        let found = self.0.iter().find(|(part, _)| arguments.contains(part));
        Ok(found.map_or(Decision::Later, |(_, decision)| decision.clone()))
    }
}

fn on(store: &SharedStore) -> RuntimeBuilder {
    testkit::runtime().shared_store(Arc::clone(store)).policy(Policy::new().ask("write"))
}

fn refusals() -> [Decision; 3] {
    [Decision::Deny, Decision::refuse("never"), Decision::Ask("Why?".to_owned())]
}

fn writes<const N: usize>(calls: [Value; N]) -> ScriptedProvider {
    ScriptedProvider::by_history().calls(calls.map(|call| ("write", call))).text("Done.")
}

fn click(access: Access) -> impl Tool {
    external(ToolSpec::new("click", "Clicks.", json!({"type": "object"})).with_access(access))
}

async fn questions(runtime: &Runtime) -> Vec<Arc<ApprovalRequest>> {
    let pending = runtime.pending().await.unwrap().into_iter();
    let question = |waits| if let Waiting::Approval(request) = waits { Some(request) } else { None };
    pending.filter_map(|it| question(it.waits_for)).collect()
}

async fn handed_out(session: &Session) -> Vec<CallId> {
    let pending = session.pending().await.unwrap().into_iter();
    let call = |waits| if let Waiting::Call { id, .. } = waits { Some(id) } else { None };
    pending.filter_map(|it| call(it.waits_for)).collect()
}

async fn told(store: &SharedStore, id: &SessionId) -> Vec<String> {
    settled(&stored(store, id).await).into_iter().map(|(_, text)| text).collect()
}

#[tokio::test]
async fn a_refused_call_does_not_run_beside_a_grant_that_covers_it() {
    let both = || writes([json!({"path": "a", "text": "good"}), json!({"path": "a", "text": "bad"})]);
    for refusal in refusals() {
        for later in [false, true] {
            let (store, write, provider) = (memory(), Write::new(), both());
            let agent = agent(provider.model()).tool(write.clone()).build().unwrap();
            let people = ByText::new([("good", Decision::AllowSession), ("bad", refusal.clone())]);
            let runtime = if later { on(&store) } else { on(&store).approver(people.clone()) }.build();
            let session = runtime.session();
            session.start(&agent, "Go").outcome().await.unwrap();
            if later {
                for question in questions(&runtime).await {
                    let decision = people.decide(&question).await.unwrap();
                    runtime.decide(&question.id, decision.by("bob")).await.unwrap();
                }
                session.resume(&agent).outcome().await.unwrap();
            }
            assert_eq!(write.calls(), [json!({"path": "a", "text": "good"})], "{refusal:?}, later: {later}");
            let decided = stored(&store, session.id()).await;
            let decided = decided.iter().filter(|it| matches!(it.event, Event::ApprovalDecided(_)));
            assert_eq!(decided.count(), 2, "{refusal:?}, later: {later}");
            assert!(questions(&runtime).await.is_empty());
            assert_valid(&session.history().await.unwrap());
        }
    }
}

#[tokio::test]
async fn a_refused_call_does_not_run_although_rules_allow_it_by_now() {
    for refusal in refusals() {
        // The rules of the process that resumes it.
        let (store, write) = (memory(), Write::new());
        let agent = agent(writes([json!({"path": "a"})]).model()).tool(write.clone()).build().unwrap();
        let runtime = on(&store).build();
        let session = runtime.session();
        session.start(&agent, "Go").outcome().await.unwrap();
        runtime.decide(&questions(&runtime).await[0].id, refusal.clone()).await.unwrap();
        let next = testkit::runtime().shared_store(Arc::clone(&store)).policy(Policy::allow_all()).build();
        next.open(session.id()).await.unwrap().resume(&agent).outcome().await.unwrap();
        assert_eq!(write.calls(), [Value::Null; 0], "{refusal:?}");

        // What the call touches moves to a place that rules allow.
        let provider = writes([json!({"path": "a"})]);
        let agent = crate::common::agent(provider.model()).tool(write.clone()).build().unwrap();
        *write.1.lock().unwrap() = Some("secret");
        let mut people = ByText::new([("a", refusal.clone())]);
        (people.1, people.2) = (Arc::clone(&write.1), Some("public"));
        let policy = Policy::new().ask("write:secret").allow("write:public");
        let runtime = testkit::runtime().policy(policy).approver(people).build();
        runtime.session().start(&agent, "Go").outcome().await.unwrap();
        assert_eq!(write.calls(), [Value::Null; 0], "{refusal:?}");
    }
}

#[tokio::test]
async fn pending_lists_what_is_still_asked_alone() {
    // A newer version of the tool is asked about anew, and the older question is closed.
    let (store, write) = (memory(), Write::new());
    let provider = writes([json!({"path": "a"})]);
    let first = agent(provider.model()).tool(write.clone()).build().unwrap();
    let runtime = on(&store).build();
    let session = runtime.session();
    session.start(&first, "Go").outcome().await.unwrap();
    let old = questions(&runtime).await.remove(0);
    let mut newer = write.clone();
    newer.0 = newer.0.with_description("Writes a file.");
    let second = agent(provider.model()).tool(newer).build().unwrap();
    session.resume(&second).outcome().await.unwrap();
    let [new] = &questions(&runtime).await[..] else { panic!("{:?}", questions(&runtime).await) };
    assert_ne!(new.id, old.id);
    let error = runtime.decide(&old.id, Decision::Deny).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    runtime.decide(&new.id, Decision::Allow).await.unwrap();
    session.resume(&second).outcome().await.unwrap();
    assert_eq!((write.calls().len(), questions(&runtime).await.len()), (1, 0));

    // A call that a grant covers by then waits for no answer.
    let provider =
        writes([json!({"path": "a", "text": 1}), json!({"path": "a", "text": 2}), json!({"path": "b"})]);
    let agent = agent(provider.model()).tool(write.clone()).build().unwrap();
    let session = runtime.session();
    session.start(&agent, "Go").outcome().await.unwrap();
    let asked = questions(&runtime).await;
    runtime.decide(&asked[0].id, Decision::AllowSession).await.unwrap();
    session.resume(&agent).outcome().await.unwrap();
    let open = questions(&runtime).await;
    let open: Vec<_> = open.iter().map(|it| it.arguments.as_str()).collect();
    assert_eq!((write.calls().len(), open), (3, vec![r#"{"path":"b"}"#]));
}

#[tokio::test]
async fn a_turn_that_ends_waits_for_no_handed_out_call() {
    #[derive(Debug, Clone, Copy)]
    enum Ends {
        Rule,
        Person,
        Later,
        Layer,
        Tool,
    }
    #[derive(Debug)]
    struct Stops;
    #[async_trait]
    impl ToolLayer for Stops {
        async fn before(&self, spec: &ToolSpec, _: &mut Value, _: &RunContext) -> Result<LayerVerdict> {
            Ok(if spec.name() == "write" {
                LayerVerdict::Stop("halt".to_owned())
            } else {
                LayerVerdict::Pass
            })
        }
    }
    for ends in [Ends::Rule, Ends::Person, Ends::Later, Ends::Layer, Ends::Tool] {
        for first in [true, false] {
            let label = format!("{ends:?}, click first: {first}");
            let store = memory();
            let mut calls = vec![("click", json!({})), ("write", json!({"path": "a"}))];
            if !first {
                calls.reverse();
            }
            let provider = ScriptedProvider::by_history().calls(calls).text("Done.");
            let agent = agent(provider.model()).tool(click(Access::READ));
            let agent = match ends {
                Ends::Tool => agent.tool(FakeTool::new("write").giving(ToolOutput::text("over").stopping())),
                _ => agent.tool(Write::new()),
            };
            let agent = agent.build().unwrap();
            let builder = testkit::runtime().shared_store(Arc::clone(&store));
            let runtime = match ends {
                Ends::Rule => builder.policy(Policy::new().deny("write")),
                Ends::Person => on(&store).approver(ByText::new([("a", Decision::Deny)])),
                Ends::Later => on(&store),
                Ends::Layer => builder.policy(Policy::allow_all()).tool_layer(Stops),
                Ends::Tool => builder.policy(Policy::allow_all()),
            };
            let runtime = runtime.build();
            let session = runtime.session();
            let mut ended = session.start(&agent, "Go").outcome().await;
            if let Ends::Later = ends {
                runtime.decide(&questions(&runtime).await[0].id, Decision::Deny).await.unwrap();
                ended = session.resume(&agent).outcome().await;
            }
            let status = ended.unwrap_or_else(|error| panic!("{label}: {error:?}")).status;
            match ends {
                Ends::Tool => assert_eq!(status, Status::Completed, "{label}"),
                _ => {
                    assert!(
                        matches!(status, Status::Stopped(StopReason::Denied { .. })),
                        "{label}: {status}"
                    );
                }
            }
            assert_eq!(handed_out(&session).await, [], "{label}");
            assert_eq!(told(&store, session.id()).await.len(), 2, "{label}");
            assert_valid(&session.history().await.unwrap());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn recovery_finds_each_deadline_that_has_passed() {
    #[derive(Debug, Clone, Copy)]
    enum After {
        Nothing,
        Signal,
        Answer,
        Decided,
    }
    let clock = PausedClock::new();
    let until =
        |seconds| Decision::Until { at: clock.now().after(Duration::from_secs(seconds)), allow: true };
    for (first, second, after) in [
        (Some(10), Some(1_000), After::Nothing),
        (Some(1_000), Some(10), After::Nothing),
        (None, Some(10), After::Nothing),
        (Some(10), None, After::Signal),
        (Some(10), None, After::Answer),
        (None, None, After::Decided),
    ] {
        let label = format!("{first:?}, {second:?}, {after:?}");
        let (store, write) = (memory(), Write::new());
        let calls = [("click", json!({})), ("write", json!({"path": "a"})), ("write", json!({"path": "b"}))];
        let provider = ScriptedProvider::by_history().calls(calls).text("Done.");
        let agent = agent(provider.model()).tool(write.clone()).tool(click(Access::READ)).build().unwrap();
        let [first, second] = [first, second].map(|seconds| seconds.map_or(Decision::Later, until));
        let people = ByText::new([("\"a\"", first), ("\"b\"", second)]);
        let runtime = on(&store).clock(clock).approver(people).build();
        let session = runtime.session();
        session.start(&agent, "Go").outcome().await.unwrap();
        match after {
            After::Nothing => {}
            After::Signal => session.signal("other", json!(1)).await.unwrap(),
            After::Answer => {
                let call = handed_out(&session).await.remove(0);
                runtime.answer(&call, "clicked").await.unwrap();
            }
            After::Decided => {
                let asked = questions(&runtime).await;
                runtime.decide(&asked[0].id, until(10)).await.unwrap();
            }
        }
        let recover = async || {
            let next = on(&store).clock(clock).build();
            let recovered = next.recover(&Agents::new().with(agent.clone())).await.unwrap().resumed;
            let count = recovered.len();
            for run in recovered {
                run.outcome().await.unwrap();
            }
            count
        };
        if !matches!(after, After::Answer) {
            assert_eq!(recover().await, 0, "{label}: nothing is due");
        }
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(recover().await, 1, "{label}");
    }
}

#[tokio::test]
async fn the_answer_of_a_typed_agent_is_no_call_that_rules_or_layers_see() {
    #[derive(Debug, PartialEq, serde::Deserialize, schemars::JsonSchema)]
    struct Report {
        summary: String,
    }
    #[derive(Debug)]
    struct Changes;
    #[async_trait]
    impl ToolLayer for Changes {
        async fn before(&self, _: &ToolSpec, arguments: &mut Value, _: &RunContext) -> Result<LayerVerdict> {
            arguments["summary"] = json!("changed");
            Ok(LayerVerdict::Pass)
        }
    }
    for policy in [
        Policy::new().deny("*"),
        Policy::new().ask("*"),
        Policy::new().ask("final_answer"),
        Policy::new().otherwise(entourage_core::permission::RuleEffect::Deny),
    ] {
        let provider = ScriptedProvider::new().call("final_answer", json!({"summary": "original"}));
        let agent = agent(provider.model()).returns::<Report>().build().unwrap();
        let runtime = testkit::runtime().policy(policy).tool_layer(Changes).build();
        let outcome = runtime.session().start(&agent, "Go").outcome().await.unwrap();
        assert_eq!(outcome.value::<Report>().unwrap(), Report { summary: "original".to_owned() });
    }
    // A tool of the program's own that is called so is a tool like any other.
    let tool = FakeTool::new("final_answer").access(Access::READ);
    let provider = ScriptedProvider::by_history().call("final_answer", json!({})).text("Done.");
    let agent = agent(provider.model()).tool(tool.clone()).build().unwrap();
    let runtime = testkit::runtime().policy(Policy::new().deny("final_answer")).build();
    let outcome = runtime.session().start(&agent, "Go").outcome().await;
    assert_eq!(tool.started(), 0, "{outcome:?}");
}

#[tokio::test]
async fn a_layer_has_no_effects_before_a_call() {
    #[derive(Debug)]
    struct Asks(Model);
    #[async_trait]
    impl ToolLayer for Asks {
        async fn before(&self, _: &ToolSpec, _: &mut Value, cx: &RunContext) -> Result<LayerVerdict> {
            let model = &self.0;
            let error = cx.call_model(model, model.request("May it?")).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            Ok(LayerVerdict::Pass)
        }
    }
    let (store, write, small) = (memory(), Write::new(), ScriptedProvider::named("small"));
    let agent = agent(writes([json!({"path": "a"})]).model()).tool(write.clone()).build().unwrap();
    let runtime = on(&store).tool_layer(Asks(small.model())).build();
    let session = runtime.session();
    session.start(&agent, "Go").outcome().await.unwrap();
    runtime.decide(&questions(&runtime).await[0].id, Decision::Allow).await.unwrap();
    assert!(session.resume(&agent).outcome().await.unwrap().is_completed());
    assert_eq!((write.calls().len(), small.count()), (1, 0));
}

#[tokio::test]
async fn the_model_is_told_of_the_arguments_that_a_handed_out_call_had() {
    let store = memory();
    let provider = ScriptedProvider::by_history().call("click", json!({"on": "a"})).text("Done.");
    let agent = agent(provider.model()).tool(click(Access::WRITE)).build().unwrap();
    let runtime = on(&store).policy(Policy::new().ask("click")).build();
    let session = runtime.session();
    session.start(&agent, "Go").outcome().await.unwrap();
    let edited = Decision::edit(&json!({"on": "z"})).unwrap();
    runtime.decide(&questions(&runtime).await[0].id, edited).await.unwrap();
    session.resume(&agent).outcome().await.unwrap();
    runtime.answer(&handed_out(&session).await[0], "clicked").await.unwrap();
    assert!(session.resume(&agent).outcome().await.unwrap().is_completed());
    let seen = results(provider.requests().last().unwrap().messages.last().unwrap()).concat();
    assert!(seen.contains(r#"other arguments than yours: {"on":"z"}"#) && seen.contains("clicked"), "{seen}");
}

#[tokio::test]
async fn a_layer_that_refuses_the_arguments_of_a_person_says_so_and_may_end_the_turn() {
    #[derive(Debug)]
    struct Guard;
    #[async_trait]
    impl ToolLayer for Guard {
        async fn before(&self, _: &ToolSpec, arguments: &mut Value, _: &RunContext) -> Result<LayerVerdict> {
            Ok(match arguments["path"].as_str() {
                Some("refuse") => LayerVerdict::Refuse("not there".to_owned()),
                Some("stop") => LayerVerdict::Stop("halt".to_owned()),
                _ => LayerVerdict::Pass,
            })
        }
    }
    for path in ["refuse", "stop"] {
        let (store, write) = (memory(), Write::new());
        let agent = agent(writes([json!({"path": "a"})]).model());
        let agent = agent.tool(layered(write.clone(), Guard)).build().unwrap();
        let edited = Decision::edit(&json!({ "path": path })).unwrap();
        let session = on(&store).approver(ByText::new([("a", edited)])).build().session();
        let status = session.start(&agent, "Go").outcome().await.unwrap().status;
        let denied = matches!(status, Status::Stopped(StopReason::Denied { .. }));
        assert_eq!(denied, path == "stop", "{status}");
        let told = told(&store, session.id()).await.concat();
        assert!(told.starts_with("not run: ") && !told.contains("Run with"), "{told}");
        assert_eq!(write.calls(), [Value::Null; 0]);
        assert_valid(&session.history().await.unwrap());
    }
}

#[tokio::test]
async fn a_long_reason_is_refused_where_it_is_given_and_cut_where_an_approver_gives_it() {
    let long = "é".repeat(40_000);
    for decision in [Decision::refuse(long.clone()), Decision::Ask(long.clone())] {
        let store = memory();
        let agent = agent(writes([json!({"path": "a"})]).model()).tool(Write::new()).build().unwrap();
        let runtime = on(&store).build();
        let session = runtime.session();
        session.start(&agent, "Go").outcome().await.unwrap();
        let error = runtime.decide(&questions(&runtime).await[0].id, decision.clone()).await.unwrap_err();
        assert_eq!((error.kind(), questions(&runtime).await.len()), (ErrorKind::TooLarge, 1));
        let session = on(&store).approver(ByText::new([("a", decision)])).build().session();
        session.start(&agent, "Go").outcome().await.unwrap();
        let told = told(&store, session.id()).await.concat();
        assert!(told.len() > 60_000 && told.len() < 66_000, "{}", told.len());
    }
}

#[tokio::test]
async fn a_call_that_somebody_is_asked_about_waits_for_the_answer_although_it_has_moved() {
    /// Answers about `b` only once `a` has run, which leads the link elsewhere.
    #[derive(Debug, Clone)]
    struct Slow(Decision, Gate);
    #[async_trait]
    impl Approver for Slow {
        async fn decide(&self, request: &ApprovalRequest) -> Result<Decision> {
            if request.arguments.as_str().contains("\"a\"") {
                return Ok(Decision::Allow);
            }
            self.1.pass().await;
            Ok(self.0.clone())
        }
    }
    #[derive(Debug)]
    struct Moves(Arc<Mutex<Option<&'static str>>>, Gate);
    #[async_trait]
    impl ToolLayer for Moves {
        async fn around(&self, next: NextCall<'_>) -> Result<ToolOutput, ToolError> {
            let output = next.run().await;
            *self.0.lock().unwrap() = Some("public");
            self.1.open();
            output
        }
    }
    for decision in
        [Decision::Deny, Decision::refuse("never"), Decision::Ask("Why?".to_owned()), Decision::Allow]
    {
        let (store, write, gate) = (memory(), Write::new(), Gate::new());
        let provider = writes([json!({"path": "a"}), json!({"path": "b"})]);
        let agent = agent(provider.model()).tool(write.clone()).build().unwrap();
        let policy = Policy::new().ask("write").allow("write:public");
        let runtime = testkit::runtime().shared_store(Arc::clone(&store)).policy(policy);
        let runtime = runtime.approver(Slow(decision.clone(), gate.clone()));
        let runtime = runtime.tool_layer(Moves(Arc::clone(&write.1), gate)).build();
        let session = runtime.session();
        session.start(&agent, "Go").outcome().await.unwrap();
        let expected = if decision == Decision::Allow { 2 } else { 1 };
        assert_eq!(write.calls().len(), expected, "{decision:?}");
        let events = stored(&store, session.id()).await;
        let decided = events.iter().filter(|it| matches!(it.event, Event::ApprovalDecided(_))).count();
        assert_eq!(decided, 2, "{decision:?}");
        assert_valid(&session.history().await.unwrap());
    }
}
