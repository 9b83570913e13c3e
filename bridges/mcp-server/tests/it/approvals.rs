//! Calls that somebody has to allow.

use std::sync::Arc;

use async_trait::async_trait;
use entourage_core::{
    Result,
    permission::{ApprovalRequest, Approver, Decision, Scope},
    session::SessionFilter,
    tool::Access,
};
use entourage_mcp_server::ToolServer;
use entourage_runtime::{AllowAll, DenyAll, Runtime, RuntimeBuilder, Waiting, permission::Policy};
use entourage_testkit::{FakeTool, ReactAgent, ScriptedProvider};
use serde_json::json;

use crate::kit::{Client, connect, tools};

fn write() -> FakeTool {
    FakeTool::new("write").access(Access::WRITE)
}

async fn client(runtime: &Runtime, tool: &FakeTool) -> Client {
    let server =
        ToolServer::new("test", runtime).toolset(tools([Arc::new(tool.clone())])).scope(Scope::all());
    connect(server).await
}

#[tokio::test(start_paused = true)]
async fn rules_and_approvers_decide_about_calls() {
    let cases: [(RuntimeBuilder, &str, bool); 4] = [
        (Runtime::builder().approver(AllowAll), "ok", false),
        (Runtime::builder().approver(DenyAll), "refused by the approver", true),
        (Runtime::builder().policy(Policy::new().deny("write")), "write", true),
        (Runtime::builder().policy(Policy::new().allow("write")), "ok", false),
    ];
    for (builder, words, refused) in cases {
        let tool = write();
        let client = client(&builder.build(), &tool).await;
        let (text, failed) = client.text("write", json!({})).await;
        assert!(failed == refused && text.contains(words), "{text}");
        assert_eq!(tool.started(), usize::from(!refused));
        // The client goes on.
        assert_eq!(client.names().await, ["write"]);
        client.close().await;
    }
}

/// An approver that is not there.
#[derive(Debug)]
struct Later;

#[async_trait]
impl Approver for Later {
    async fn decide(&self, _: &ApprovalRequest) -> Result<Decision> {
        Ok(Decision::Later)
    }
}

#[tokio::test(start_paused = true)]
async fn a_paused_call_continues_after_the_decision() {
    for builder in [Runtime::builder(), Runtime::builder().approver(Later)] {
        let runtime = builder.build();
        let tool = write();
        let client = client(&runtime, &tool).await;
        let (text, failed) = client.text("write", json!({"to": "a"})).await;
        assert!(failed, "{text}");
        let [pending] = &*runtime.pending().await.unwrap() else { panic!("one question") };
        let Waiting::Approval(question) = &pending.waits_for else { panic!("{pending:?}") };
        let (id, session) = (question.id.clone(), pending.session.clone());
        assert!(text.contains(&id.to_string()), "{text}");

        // Until then the same call has the same answer, and other calls go on.
        assert_eq!(client.text("write", json!({"to": "a"})).await, (text.clone(), true));
        let (other, failed) = client.text("write", json!({"to": "b"})).await;
        assert!(failed && other != text);
        assert!(client.text("missing", json!({})).await.1);
        assert_eq!(tool.started(), 0);

        let session = runtime.open(&session).await.unwrap();
        session.decide(&id, Decision::Allow).await.unwrap();
        assert_eq!(client.text("write", json!({"to": "a"})).await, ("ok".to_owned(), false));
        assert_eq!(tool.finished(), 1);
        // The answer held for one call.
        let (again, failed) = client.text("write", json!({"to": "a"})).await;
        assert!(failed && again != text);
        client.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_after_a_pause_reaches_the_client() {
    let runtime = Runtime::in_memory();
    let tool = write();
    let client = client(&runtime, &tool).await;
    client.text("write", json!({})).await;
    let pending = runtime.pending().await.unwrap().remove(0);
    let Waiting::Approval(question) = &pending.waits_for else { panic!("{pending:?}") };
    let session = runtime.open(&pending.session).await.unwrap();
    session.decide(&question.id, Decision::refuse("not on a Friday")).await.unwrap();
    let (text, failed) = client.text("write", json!({})).await;
    assert!(failed && text.contains("not on a Friday"), "{text}");
    assert_eq!(tool.started(), 0);
    client.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_call_that_the_program_stopped_is_asked_about_anew() {
    let runtime = Runtime::in_memory();
    let tool = write();
    let client = client(&runtime, &tool).await;
    let (first, _) = client.text("write", json!({})).await;
    for info in runtime.sessions(&SessionFilter::all()).await.unwrap() {
        assert!(runtime.open(&info.record.id).await.unwrap().stop().await.unwrap());
    }
    let (second, failed) = client.text("write", json!({})).await;
    assert!(failed && second.contains("decide") && second != first, "{second}");
    client.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_question_of_a_served_agent_pauses_its_call() {
    let provider = ScriptedProvider::new().call("write", json!({})).text("Written.");
    let tool = write();
    let worker = ReactAgent::builder("worker", provider.model()).tool(tool.clone()).build().unwrap();
    let runtime = Runtime::in_memory();
    let client = connect(ToolServer::new("team", &runtime).agent(worker).scope(Scope::all())).await;
    let prompt = json!({"prompt": "Write."});
    let (text, failed) = client.text("worker", prompt.clone()).await;
    assert!(failed && text.contains("approval"), "{text}");
    let pending = runtime.pending().await.unwrap().remove(0);
    let Waiting::Approval(question) = &pending.waits_for else { panic!("{pending:?}") };
    let session = runtime.open(&pending.session).await.unwrap();
    session.decide(&question.id, Decision::Allow).await.unwrap();
    assert_eq!(client.text("worker", prompt).await, ("Written.".to_owned(), false));
    assert_eq!((tool.finished(), provider.count()), (1, 2));
    client.close().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_for_the_client_that_asked() {
    let runtime = Runtime::in_memory();
    let tool = write();
    let (one, two) = (client(&runtime, &tool).await, client(&runtime, &tool).await);
    one.text("write", json!({})).await;
    let pending = runtime.pending().await.unwrap().remove(0);
    let Waiting::Approval(question) = &pending.waits_for else { panic!("{pending:?}") };
    let session = runtime.open(&pending.session).await.unwrap();
    session.decide(&question.id, Decision::AllowSession).await.unwrap();
    let (text, failed) = two.text("write", json!({})).await;
    assert!(failed && text.contains("decide"), "{text}");
    assert_eq!(tool.started(), 0);
    assert_eq!(one.text("write", json!({})).await, ("ok".to_owned(), false));
    // The grant holds in the session that asked, which takes the next call.
    assert_eq!(one.text("write", json!({"again": true})).await, ("ok".to_owned(), false));
    one.close().await;
    two.close().await;
}

#[tokio::test(start_paused = true)]
async fn the_questions_of_a_client_are_bounded_and_closed_when_it_leaves() {
    let runtime = Runtime::in_memory();
    let tool = write();
    let client = client(&runtime, &tool).await;
    for n in 0..64 {
        let (text, failed) = client.text("write", json!({"n": n})).await;
        assert!(failed && text.contains("by the approval"), "{text}");
    }
    for n in [64, 65] {
        let (text, failed) = client.text("write", json!({"n": n})).await;
        assert!(failed && text.contains("64 calls wait"), "{text}");
    }
    // A call that asked before is still the same one.
    assert!(client.text("write", json!({"n": 5})).await.0.contains("by the approval"));
    let open = runtime.pending().await.unwrap();
    assert_eq!(open.len(), 64);

    // An answered one gives way, but only if it has to.
    let mut allowed = open.iter().filter_map(|it| match &it.waits_for {
        Waiting::Approval(question) => Some((it.session.clone(), question.id.clone())),
        _ => None,
    });
    for (session, question) in allowed.by_ref().take(2) {
        runtime.open(&session).await.unwrap().decide(&question, Decision::Allow).await.unwrap();
    }
    let (text, _) = client.text("write", json!({"n": 66})).await;
    assert!(text.contains("by the approval"), "{text}");
    assert_eq!(client.text("write", json!({"n": 1})).await, ("ok".to_owned(), false));
    client.close().await;
    assert_eq!(runtime.pending().await.unwrap(), []);
    assert_eq!(tool.started(), 1);
}
