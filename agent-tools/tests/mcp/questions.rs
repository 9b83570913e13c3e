//! Questions of a server to the user.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use entourage_core::{
    Result,
    permission::{ApprovalRequest, Approver, Decision},
};
use entourage_tools::mcp::{Mcp, McpLifecycle, McpServer};
use serde_json::{Value, json};

use crate::{
    call, eventually, fake,
    http::{Site, speaks},
};

/// Answers each question with the same, and notes it.
#[derive(Debug, Clone)]
struct Desk(Decision, Arc<Mutex<Vec<ApprovalRequest>>>);

#[async_trait]
impl Approver for Desk {
    async fn decide(&self, request: &ApprovalRequest) -> Result<Decision> {
        self.1.lock().unwrap().push(request.clone());
        Ok(self.0.clone())
    }
}

async fn answer(approver: Option<impl Approver + 'static>) -> Value {
    let notes = tempfile::tempdir().unwrap();
    let mut builder = Mcp::builder().servers([fake::server("fake", "plain", notes.path())]);
    if let Some(desk) = approver {
        builder = builder.approver(desk);
    }
    let mcp = builder.start().unwrap();
    mcp.ready().await;
    serde_json::from_str(&call(&mcp, "mcp_fake_ask", json!({})).await.unwrap()).unwrap()
}

#[tokio::test]
async fn a_question_of_a_server_goes_to_the_approver() {
    let given = |value: Value| Decision::edit(&value).unwrap();
    for (decision, expected) in [
        (given(json!({"name": "Ada"})), json!({"action": "accept", "content": {"name": "Ada"}})),
        // It lacks what is required, or has what nobody asked for.
        (given(json!({"loud": true})), json!({"action": "decline"})),
        (given(json!({"name": "Ada", "key": "sk-1"})), json!({"action": "decline"})),
        (Decision::Allow, json!({"action": "decline"})),
        (Decision::Deny, json!({"action": "decline"})),
        (Decision::refuse("no"), json!({"action": "decline"})),
        (Decision::Later, json!({"action": "cancel"})),
    ] {
        let asked = Arc::default();
        assert_eq!(answer(Some(Desk(decision.clone(), Arc::clone(&asked)))).await, expected, "{decision:?}");
        let asked = asked.lock().unwrap();
        let [question] = asked.as_slice() else { panic!("{asked:?}") };
        assert_eq!(
            (question.tool.as_str(), question.arguments.as_str()),
            ("mcp_fake", r#"{"loud":true,"name":null}"#)
        );
        let preview = question.preview.as_deref().unwrap();
        // Nothing in it moves the cursor of a terminal.
        assert!(
            preview.starts_with("Who are you?[2J\n- loud (boolean)")
                && preview.contains("- name (string, required) Your name")
        );
        assert!(question.rule.contains("the MCP server `fake` asks"));
    }
}

#[tokio::test]
async fn without_an_approver_a_server_is_told_that_nobody_answers() {
    // It said that it cannot ask, so a server that asks nevertheless is declined.
    assert_eq!(answer(None::<Desk>).await, json!({"action": "decline"}));
}

/// Fails at each question.
#[derive(Debug)]
struct Broken;

#[async_trait]
impl Approver for Broken {
    async fn decide(&self, _: &ApprovalRequest) -> Result<Decision> {
        panic!("nobody is at the desk")
    }
}

/// A site whose tool asks before it answers, as servers do from 2026-07-28 on: its answer is that of the user.
pub(crate) fn asking_site() -> (Site, McpServer) {
    let site = Site::new(|asked| {
        let answer = |result: &str| {
            let result = format!(r#"{{"resultType":"{result},"ttlMs":0,"cacheScope":"private"}}"#);
            let body = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, asked.body["id"]);
            ("200 OK\r\nContent-Type: application/json".to_owned(), body)
        };
        match asked.body["method"].as_str() {
            Some("server/discover") => answer(
                r#"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},
                "_meta":{"io.modelcontextprotocol/serverInfo":{"name":"site","version":"1"}}"#,
            ),
            Some("tools/list") => answer(
                r#"complete","tools":[{"name":"ask","inputSchema":{"type":"object"},
                "annotations":{"readOnlyHint":true}}]"#,
            ),
            Some("tools/call") if !asked.body["params"]["inputResponses"].is_null() => {
                let told = json!(asked.body["params"]["inputResponses"]["k"].to_string());
                answer(&format!(r#"complete","content":[{{"type":"text","text":{told}}}]"#))
            }
            Some("tools/call") => answer(
                r#"input_required","requestState":"s","inputRequests":{"k":{"method":"elicitation/create",
                "params":{"mode":"form","message":"Who?","requestedSchema":{"type":"object","properties":{}}}}}"#,
            ),
            _ => speaks(asked),
        }
    });
    let server = site.server().with_lifecycle(McpLifecycle::Discover);
    (site, server)
}

#[tokio::test]
async fn a_panic_of_the_approver_declines() {
    assert_eq!(answer(Some(Broken)).await, json!({"action": "decline"}));
    let (_site, server) = asking_site();
    let mcp = Mcp::builder().servers([server]).approver(Broken).start().unwrap();
    mcp.ready().await;
    let told = call(&mcp, "mcp_fake_ask", json!({})).await.unwrap();
    assert_eq!(serde_json::from_str::<Value>(&told).unwrap(), json!({"action": "decline"}));
}

/// Never answers, and notes its questions and their ends.
#[derive(Debug, Clone, Default)]
struct Silent(Arc<Mutex<(usize, usize)>>);

struct Asking(Silent);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().1 += 1;
    }
}

#[async_trait]
impl Approver for Silent {
    async fn decide(&self, _: &ApprovalRequest) -> Result<Decision> {
        self.0.lock().unwrap().0 += 1;
        let _asking = Asking(self.clone());
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_flood_of_questions_is_one_question_which_ends_with_its_call() {
    let (notes, desk) = (tempfile::tempdir().unwrap(), Silent::default());
    let server = fake::server("fake", "asks_often", notes.path());
    let mcp = Mcp::builder().servers([server]).approver(desk.clone()).start().unwrap();
    mcp.ready().await;
    let asked = tokio::spawn({
        let mcp = mcp.clone();
        async move { call(&mcp, "mcp_fake_ask", json!({})).await }
    });
    let answered =
        |action: &str| fake::notes(notes.path(), "answered").iter().filter(|it| it.contains(action)).count();
    eventually("all but one are declined", || answered("decline") == 49).await;
    assert_eq!(*desk.0.lock().unwrap(), (1, 0));
    asked.abort();
    eventually("the question ends", || answered("cancel") == 1).await;
    assert_eq!(*desk.0.lock().unwrap(), (1, 1));
}
