//! The judgement of a call: rules, scope, approvals, grants and layers see the real tool.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use entourage_core::{
    Result,
    event::Event,
    message::Arguments,
    permission::{ApprovalRequest, Approver, Decision, Scope},
    run::{RunContext, Status, StopReason},
    tool::{
        Access, Footprint, Labels, LayerVerdict, Tool, ToolContext, ToolError, ToolInput, ToolLayer,
        ToolOutput, ToolSpec, Tools,
    },
};
use entourage_runners::ToolsetExt;
use entourage_runtime::{AllowAll, permission::Policy};
use entourage_testkit::{self as testkit, FakeTool, ScriptedProvider};
use serde_json::{Value, json};

use crate::{agent, finished, found, memory, of, set, started, stored, told};

fn pay() -> FakeTool {
    FakeTool::new("crm_pay").access(Access::WRITE).requiring(&["to"]).echoing()
}

/// A tool that names the path that it writes.
struct Edit(ToolSpec);

impl Edit {
    fn new() -> Self {
        let schema =
            json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
        let spec = ToolSpec::new("crm_edit", "Edits.", schema).with_access(Access::WRITE);
        Self(spec.naming_subjects().changing_files())
    }
}

#[async_trait]
impl Tool for Edit {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::text(format!("{} {:?}", input.arguments["path"], cx.footprint().writes)))
    }

    fn footprint(&self, arguments: &Value) -> Footprint {
        Footprint::new(Access::WRITE).writing(arguments["path"].as_str().unwrap_or_default())
    }

    async fn preview(&self, input: ToolInput, _: &ToolContext<'_>) -> Option<String> {
        Some(format!("would edit {}", input.arguments["path"]))
    }
}

/// An approver that gives its answers in their order, and keeps its questions.
#[derive(Debug, Clone, Default)]
struct Answers(Arc<Mutex<(Vec<Decision>, Vec<ApprovalRequest>)>>);

impl Answers {
    fn new(mut answers: Vec<Decision>) -> Self {
        answers.reverse();
        Self(Arc::new(Mutex::new((answers, Vec::new()))))
    }

    fn asked(&self) -> Vec<ApprovalRequest> {
        self.0.lock().unwrap().1.clone()
    }
}

#[async_trait]
impl Approver for Answers {
    async fn decide(&self, request: &ApprovalRequest) -> Result<Decision> {
        let mut state = self.0.lock().unwrap();
        state.1.push(request.clone());
        Ok(state.0.pop().unwrap_or(Decision::Deny))
    }
}

#[tokio::test]
async fn issue_15_a_rule_for_the_real_tool_denies_and_one_for_the_wrapper_does_not() {
    let (pay, store) = (pay(), memory());
    let provider = ScriptedProvider::new().call("use_tool", of("crm_pay", json!({"to": "ada"})));
    let denied = agent(&provider).toolset(set([pay.clone()]).deferred()).build().unwrap();
    let runtime = testkit::runtime().shared_store(Arc::clone(&store)).approver(AllowAll);
    let session = runtime.policy(Policy::allow_all().deny("crm_pay")).build().session();
    let outcome = session.start(&denied, "Go").outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Stopped(StopReason::Denied("crm_pay".into())));
    assert_eq!(pay.started(), 0);
    let events = stored(&store, session.id()).await;
    assert_eq!(finished(&events), [("crm_pay".to_owned(), "refused by the rule `deny crm_pay`".to_owned())]);

    // What a rule says of the wrapper's name never judges, so it cannot allow either.
    for (policy, runs) in
        [(Policy::allow_all().deny("use_tool"), true), (Policy::new().allow("use_tool").deny("crm_*"), false)]
    {
        let provider = ScriptedProvider::new().call("use_tool", of("crm_pay", json!({"to": "ada"})));
        let provider = if runs { provider.text("Done.") } else { provider };
        let (pay, runtime) = (self::pay(), testkit::runtime().policy(policy).build());
        let agent = agent(&provider).toolset(set([pay.clone()]).deferred()).build().unwrap();
        runtime.session().start(&agent, "Go").outcome().await.unwrap();
        assert_eq!(pay.started(), usize::from(runs));
    }
}

#[tokio::test]
async fn issue_15_the_footprint_of_the_inner_arguments_is_judged() {
    let tools = || Tools::new([Arc::new(Edit::new()) as Arc<dyn Tool>]).unwrap().deferred();
    let provider = ScriptedProvider::new()
        .call("use_tool", of("crm_edit", json!({"path": "src/a.rs"})))
        .call("use_tool", of("crm_edit", json!({"path": "Cargo.lock"})));
    let agent = agent(&provider).toolset(tools()).build().unwrap();
    let runtime = testkit::runtime().policy(Policy::allow_all().deny("crm_edit:*.lock")).build();
    let outcome = runtime.session().start(&agent, "Go").outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Stopped(StopReason::Denied("crm_edit".into())));
    assert_eq!(told(&provider.requests()[1])[0].to_text(), r#""src/a.rs" ["src/a.rs"]"#);

    let provider =
        ScriptedProvider::new().call("use_tool", of("crm_edit", json!({"path": "etc/passwd"}))).text("Done.");
    let agent =
        crate::agent(&provider).toolset(tools()).scope(Scope::all().with_roots(["src"])).build().unwrap();
    let runtime = testkit::runtime().policy(Policy::allow_all()).build();
    runtime.session().start(&agent, "Go").outcome().await.unwrap();
    let text = told(&provider.requests()[1])[0].to_text();
    assert!(text.contains("the tool `crm_edit` touches `etc/passwd`"), "{text}");
}

#[tokio::test]
async fn issue_15_what_the_scope_never_admits_is_refused_and_not_found() {
    let (pay, look) = (pay(), FakeTool::new("crm_look").returning("a customer"));
    let provider = ScriptedProvider::new()
        .call("find_tools", json!({"query": "crm"}))
        .call("use_tool", of("crm_pay", json!({"to": "ada"})))
        .call("use_tool", of("crm_pat", json!({"to": "ada"})))
        .call("use_tool", of("crm_look", json!({})))
        .text("Done.");
    let agent = agent(&provider)
        .toolset(set([pay.clone(), look.clone()]).deferred())
        .scope(Scope::read_only())
        .build()
        .unwrap();
    let runtime = testkit::runtime().policy(Policy::allow_all()).build();
    let outcome = runtime.session().start(&agent, "Go").outcome().await.unwrap();
    assert_eq!((outcome.status, pay.started(), look.finished()), (Status::Completed, 0, 1));
    let requests = provider.requests();
    assert_eq!(found(told(&requests[1])[0]), ["crm_look"]);
    let refused = told(&requests[2])[0].to_text();
    assert!(refused.contains("the tool `crm_pay` needs write access"), "{refused}");
    let unknown = told(&requests[3])[0].to_text();
    assert!(unknown.contains("the closest names are: crm_look;"), "{unknown}");
}

#[tokio::test]
async fn issue_15_the_approver_sees_the_real_tool_and_its_arguments() {
    let (store, approver) = (memory(), Answers::new(vec![Decision::Allow, Decision::Allow]));
    let provider = ScriptedProvider::new()
        .call("use_tool", of("crm_edit", json!({"path": "a"})))
        .call("crm_edit", json!({"path": "a"}))
        .text("Done.");
    let tools = Tools::new([Arc::new(Edit::new()) as Arc<dyn Tool>]).unwrap();
    let agent = agent(&provider).toolset(tools.deferred()).build().unwrap();
    let runtime = testkit::runtime().shared_store(Arc::clone(&store)).approver(approver.clone()).build();
    let session = runtime.session();
    session.start(&agent, "Go").outcome().await.unwrap();
    let asked = approver.asked();
    assert_eq!(asked.len(), 2);
    // However the model wrote it, the question is the same one.
    for request in &asked {
        assert_eq!((request.tool.as_str(), request.arguments.as_str()), ("crm_edit", r#"{"path":"a"}"#));
        assert_eq!(request.preview.as_deref(), Some(r#"would edit "a""#));
        assert_eq!((request.digest, &request.footprint), (asked[0].digest, &asked[0].footprint));
    }
    let events = stored(&store, session.id()).await;
    let allowed = events.iter().filter_map(|event| match &event.event {
        Event::ToolStarted(call) => Some((call.tool.to_string(), call.allowed_by.to_string())),
        _ => None,
    });
    assert_eq!(allowed.collect::<Vec<_>>(), vec![("crm_edit".to_owned(), "approver".to_owned()); 2]);
}

#[tokio::test]
async fn issue_15_a_grant_for_the_session_covers_the_real_tool_alone() {
    let approver = Answers::new(vec![Decision::AllowSession, Decision::Allow]);
    let (pay, refund) = (pay(), FakeTool::new("crm_refund").access(Access::WRITE));
    let provider = ScriptedProvider::new()
        .call("use_tool", of("crm_pay", json!({"to": "ada"})))
        .call("use_tool", of("crm_pay", json!({"to": "bob"})))
        .call("crm_pay", json!({"to": "eve"}))
        .call("use_tool", of("crm_refund", json!({})))
        .text("Done.");
    let agent = agent(&provider).toolset(set([pay.clone(), refund.clone()]).deferred()).build().unwrap();
    let runtime = testkit::runtime().approver(approver.clone()).build();
    runtime.session().start(&agent, "Go").outcome().await.unwrap();
    let asked: Vec<_> = approver.asked().into_iter().map(|request| request.tool).collect();
    assert_eq!(asked, ["crm_pay", "crm_refund"]);
    assert_eq!((pay.finished(), refund.finished()), (3, 1));
}

#[tokio::test]
async fn issue_15_an_approver_edits_the_arguments_of_the_real_tool() {
    let given = Arguments::from(&json!({"to": "bob"}));
    let misfit = Arguments::from(&of("crm_pay", json!({"to": "bob"})));
    let approver = Answers::new(vec![Decision::Edit(given), Decision::Edit(misfit)]);
    let call = of("crm_pay", json!({"to": "ada"}));
    let provider =
        ScriptedProvider::new().call("use_tool", call.clone()).call("use_tool", call).text("Done.");
    let (pay, runtime) = (pay(), testkit::runtime().approver(approver).build());
    let agent = agent(&provider).toolset(set([pay.clone()]).deferred()).build().unwrap();
    runtime.session().start(&agent, "Go").outcome().await.unwrap();
    let requests = provider.requests();
    let texts: Vec<_> = requests.iter().skip(1).map(|request| told(request)[0].to_text()).collect();
    assert!(texts[0].contains(r#"{"to":"bob"}"#) && !texts[0].contains("ada"), "{texts:?}");
    assert!(texts[1].contains("the arguments of `crm_pay` do not fit its schema"), "{texts:?}");
    assert_eq!(pay.finished(), 1);
}

/// A layer that records what it sees, and puts a name in place of another one.
#[derive(Debug, Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl ToolLayer for Seen {
    async fn before(&self, spec: &ToolSpec, arguments: &mut Value, _: &RunContext) -> Result<LayerVerdict> {
        self.0.lock().unwrap().push(format!("{} {arguments}", spec.name()));
        if arguments["to"] == "ada" {
            arguments["to"] = "grace".into();
        }
        Ok(LayerVerdict::Pass)
    }
}

#[tokio::test]
async fn issue_15_layers_of_the_runtime_and_of_the_tool_see_the_real_call() {
    let (inner, outer, around) = (Seen::default(), Seen::default(), Seen::default());
    let provider =
        ScriptedProvider::new().call("use_tool", of("crm_pay", json!({"to": "ada"}))).text("Done.");
    let tools = set([pay()]).layered(inner.clone()).deferred().layered(outer.clone());
    let agent = agent(&provider).toolset(tools).build().unwrap();
    let runtime = testkit::runtime().policy(Policy::allow_all()).tool_layer(around.clone()).build();
    runtime.session().start(&agent, "Go").outcome().await.unwrap();
    let seen = |layer: &Seen| layer.0.lock().unwrap().clone();
    assert_eq!(seen(&around), [r#"crm_pay {"to":"ada"}"#]);
    assert_eq!((seen(&outer), seen(&inner)), (seen_grace(), seen_grace()));
    assert!(told(&provider.requests()[1])[0].to_text().contains(r#"{"to":"grace"}"#));
}

fn seen_grace() -> Vec<String> {
    vec![r#"crm_pay {"to":"grace"}"#.to_owned()]
}

#[tokio::test]
async fn issue_15_in_plan_mode_a_deferred_tool_that_changes_something_waits_for_the_approval() {
    let (pay, store) = (pay(), memory());
    let plan = json!({"plan": "Pay Ada.", "steps": ["Pay"]});
    let provider = ScriptedProvider::new()
        .call("find_tools", json!({"query": "pay"}))
        .call("use_tool", of("crm_pay", json!({"to": "ada"})))
        .call("present_plan", plan)
        .call("use_tool", of("crm_pay", json!({"to": "ada"})))
        .text("Done.");
    let agent =
        agent(&provider).toolset(set([pay.clone()]).deferred()).build().unwrap().plan_first().unwrap();
    let runtime = testkit::runtime().policy(Policy::allow_all()).shared_store(Arc::clone(&store)).build();
    let session = runtime.session();
    session.start(&agent, "Go").outcome().await.unwrap();
    assert_eq!(pay.started(), 0);
    let pending = session.pending().await.unwrap();
    let entourage_runtime::Waiting::Call { id, .. } = &pending[0].waits_for else { panic!("{pending:?}") };
    session.answer(id, "Approved.").await.unwrap();
    session.resume(&agent).outcome().await.unwrap();
    let requests = provider.requests();
    let texts: Vec<_> = requests.iter().skip(1).map(|request| told(request)[0].to_text()).collect();
    assert!(texts[0].contains("There is no tool to be found here"), "{texts:?}");
    assert!(texts[1].contains("the tool `crm_pay` needs write access"), "{texts:?}");
    assert_eq!(pay.finished(), 1);
    let events = stored(&store, session.id()).await;
    assert_eq!(started(&events), ["find_tools", "present_plan", "crm_pay"]);
}

#[tokio::test]
async fn attack_44_names_and_descriptions_of_a_server_are_a_strangers_text() {
    for (access, expected) in [
        (Access::NONE, Labels::empty()),
        (Access::NETWORK, Labels::empty()),
        // As the tools of a server are, whose results may be anything.
        (Access::READ | Access::NETWORK, Labels::UNTRUSTED),
    ] {
        for (query, text) in [
            ("crm pay", "\"name\":\"crm_pay\""),
            ("quantum", "No tool matches; try other words. There is one tool: crm_pay."),
            ("?!", "the query has no word; say what the tool should do. There is one tool: crm_pay."),
        ] {
            let provider =
                ScriptedProvider::new().call("find_tools", json!({ "query": query })).text("Done.");
            let tools = set([FakeTool::new("crm_pay").access(access)]).deferred();
            let agent = agent(&provider).toolset(tools).build().unwrap();
            let session = testkit::runtime().policy(Policy::allow_all()).build().session();
            let labels = session.start(&agent, "Go").outcome().await.unwrap().labels;
            assert_eq!(labels, expected, "{access:?} {query}");
            let result = told(&provider.requests()[1])[0].to_text();
            assert!(result.contains(text), "{query}: {result}");
        }
    }
}
