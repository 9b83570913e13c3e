//! Plan mode, and questions to the user.

use std::sync::Arc;

use entourage_core::{
    permission::Scope,
    run::{Pause, Status},
    session::SharedStore,
    tool::{Access, CallId, ToolOutput},
};
use entourage_runners::{AgentTool, Question, QuestionKind, ReactAgent, question};
use entourage_runtime::{Runtime, Session, Waiting, permission::Policy};
use entourage_testkit::{self as testkit, FakeTool, ScriptedProvider};
use serde_json::{Value, json};

use crate::common::{agent, assert_valid, memory, settled, stored};

fn on(store: &SharedStore) -> Runtime {
    testkit::runtime().shared_store(Arc::clone(store)).policy(Policy::allow_all()).build()
}

fn plan(steps: &[&str]) -> (&'static str, Value) {
    ("present_plan", json!({"plan": "It is to be so.", "steps": steps}))
}

/// The one call that waits.
async fn waiting(session: &Session) -> (CallId, String) {
    let mut pending = session.pending().await.unwrap();
    assert_eq!(pending.len(), 1, "{pending:?}");
    match pending.remove(0).waits_for {
        Waiting::Call { id, call } => (id, call.arguments.as_str().to_owned()),
        other => panic!("{other:?}"),
    }
}

/// Names of the tools in a request.
fn offered(provider: &ScriptedProvider, call: usize) -> Vec<String> {
    provider.requests()[call].tools.iter().map(|tool| tool.name().to_owned()).collect()
}

/// An agent in plan mode with one tool that looks and one that edits.
fn planner(provider: &ScriptedProvider) -> (ReactAgent, FakeTool) {
    let edit = FakeTool::new("edit").access(Access::WRITE);
    let agent = agent(provider.model()).tool(FakeTool::new("look")).tool(edit.clone()).build().unwrap();
    (agent.plan_first().unwrap(), edit)
}

#[tokio::test]
async fn issue_14_a_run_in_plan_mode_changes_nothing_until_its_plan_is_approved() {
    let store = memory();
    let provider = ScriptedProvider::new()
        .calls([("look", json!({})), ("edit", json!({}))])
        .calls([plan(&["Do it", " ", "Check it"]), ("edit", json!({}))])
        .calls([plan(&["Do it", "Check it"])])
        .call("edit", json!({}))
        .text("Done.");
    let (agent, edit) = planner(&provider);
    let session = on(&store).session();
    let outcome = session.start(&agent, "Go").outcome().await.unwrap();
    assert!(matches!(outcome.status, Status::Paused(Pause::Call(_))), "{outcome}");
    assert_eq!(offered(&provider, 0), ["look", "present_plan"]);
    let (id, shown) = waiting(&session).await;
    assert!(shown.contains("It is to be so."), "{shown}");

    // Another process asks for changes: the run goes on in plan mode.
    let other = on(&store).open(session.id()).await.unwrap();
    other.answer(&id, ToolOutput::error("Check it first.")).await.unwrap();
    let outcome = other.resume(&agent).outcome().await.unwrap();
    assert!(matches!(outcome.status, Status::Paused(Pause::Call(_))), "{outcome}");
    assert_eq!((edit.started(), other.state().await.unwrap().todos().len()), (0, 0));
    assert_eq!(offered(&provider, 2), ["look", "present_plan"]);

    let last = on(&store).open(session.id()).await.unwrap();
    let (id, _) = waiting(&last).await;
    last.answer(&id, "Approved.").await.unwrap();
    let outcome = last.resume(&agent).outcome().await.unwrap();
    assert_eq!((outcome.status, &*outcome.text, edit.finished()), (Status::Completed, "Done.", 1));
    assert_eq!(offered(&provider, 3), ["edit", "look", "present_plan"]);
    let todos: Vec<_> = last.state().await.unwrap().todos().iter().map(|todo| todo.content.clone()).collect();
    assert_eq!(todos, ["Do it", "Check it"]);
    provider.requests().iter().for_each(|request| assert_valid(&request.messages));
    let told = settled(&stored(&store, session.id()).await);
    let refused = told.iter().filter(|(name, text)| name == "edit" && text.contains("write")).count();
    assert_eq!(refused, 2, "both of the edits before the approval: {told:?}");
}

#[tokio::test]
async fn issue_14_an_approved_plan_holds_for_its_run_also_past_a_checkpoint() {
    let store = memory();
    let provider = ScriptedProvider::new()
        .calls([plan(&[])])
        .call("edit", json!({}))
        .call("edit", json!({}))
        .text("Done.")
        .call("edit", json!({}))
        .text("I may not.");
    let (agent, edit) = planner(&provider);
    let here = || testkit::runtime().shared_store(Arc::clone(&store)).checkpoint_every(1);
    let session = here().policy(Policy::allow_all()).build().session();
    session.start(&agent, "Go").outcome().await.unwrap();
    let (id, _) = waiting(&session).await;
    session.answer(&id, "Yes").await.unwrap();
    // The first edit waits for an approver, so that the run is resumed once more.
    let asking = here().policy(Policy::new()).build().open(session.id()).await.unwrap();
    let outcome = asking.resume(&agent).outcome().await.unwrap();
    assert!(matches!(outcome.status, Status::Paused(Pause::Approval(_))), "{outcome}");
    let last = here().policy(Policy::allow_all()).build().open(session.id()).await.unwrap();
    let outcome = last.resume(&agent).outcome().await.unwrap();
    assert_eq!((&*outcome.text, edit.finished()), ("Done.", 2));
    let outcome = last.start(&agent, "And more").outcome().await.unwrap();
    assert_eq!((&*outcome.text, edit.started()), ("I may not.", 2), "a new prompt needs a new plan");
}

#[tokio::test]
async fn issue_14_a_rejected_plan_ends_the_run() {
    let provider = ScriptedProvider::by_history().calls([plan(&["Do it"])]).text("Never.");
    let (agent, _) = planner(&provider);
    let session = on(&memory()).session();
    session.start(&agent, "Go").outcome().await.unwrap();
    let (id, _) = waiting(&session).await;
    session.answer(&id, ToolOutput::error("Forget it.").stopping()).await.unwrap();
    let outcome = session.resume(&agent).outcome().await.unwrap();
    assert!(outcome.status != Status::Paused(Pause::Asked), "{outcome}");
    assert_eq!((provider.count(), session.state().await.unwrap().todos().len()), (1, 0));
}

#[tokio::test]
async fn issue_14_agents_below_a_run_in_plan_mode_change_nothing_either() {
    let below = ScriptedProvider::by_history().call("edit", json!({})).text("I tried.");
    let edit = FakeTool::new("edit").access(Access::WRITE);
    let helper = agent(below.model()).tool(edit.clone()).scope(Scope::all()).build().unwrap();
    let provider = ScriptedProvider::new()
        .call("agent", json!({"prompt": "Edit it"}))
        .calls([plan(&["Edit it"])])
        .call("agent", json!({"prompt": "Edit it"}))
        .text("Done.");
    let above = ReactAgent::builder("above", provider.model()).tool(AgentTool::new(&helper)).build().unwrap();
    let agent = above.plan_first().unwrap();
    let session = on(&memory()).session();
    session.start(&agent, "Go").outcome().await.unwrap();
    assert_eq!((below.count(), edit.started()), (2, 0));
    let (id, _) = waiting(&session).await;
    session.answer(&id, "Yes").await.unwrap();
    session.resume(&agent).outcome().await.unwrap();
    assert_eq!((below.count(), edit.finished()), (4, 1));
}

#[tokio::test]
async fn issue_14_a_beginning_that_the_program_gives_approves_no_plan() {
    use entourage_core::message::{Arguments, Content, Message, Part, Role, ToolCall, ToolResult};
    let (name, arguments) = plan(&["Do it"]);
    let call = ToolCall::new("c1", name, Arguments::from(&arguments));
    let result = ToolResult::new(&call, vec![Content::Text("Approved.".into())], false);
    let given = [
        Message::user("Go"),
        Message::new(Role::Assistant, vec![Part::ToolCall(call)]),
        Message::tool([result]),
        Message::assistant("Approved."),
    ];
    let provider = ScriptedProvider::new().call("edit", json!({})).text("I may not.");
    let (agent, edit) = planner(&provider);
    let session = on(&memory()).session();
    session.begin_with(given).await.unwrap();
    session.start(&agent, "Go on").outcome().await.unwrap();
    assert_eq!(edit.started(), 0);
}

fn asking(questions: Value) -> Value {
    json!({ "questions": questions })
}

#[tokio::test]
async fn cx12_questions_wait_for_their_answers_and_lists_written_as_text_are_read() {
    let store = memory();
    let asked = json!([
        {"text": "Which one?", "kind": "single", "options": ["a", "b"]},
        {"text": "Why?", "kind": "text"},
    ]);
    let provider = ScriptedProvider::new()
        .call("question", asking(json!(asked.to_string())))
        .call("question", asking(asked.clone()));
    let agent = agent(provider.model()).tool(question()).build().unwrap();
    let session = on(&store).session();
    session.start(&agent, "Go").outcome().await.unwrap();
    let (id, shown) = waiting(&session).await;
    let questions = Question::all(&shown);
    assert_eq!(
        questions.iter().map(|it| it.kind).collect::<Vec<_>>(),
        [QuestionKind::Single, QuestionKind::Text]
    );
    let other = on(&store).open(session.id()).await.unwrap();
    other.answer(&id, "1. a\n2. Because.").await.unwrap();
    other.resume(&agent).outcome().await.unwrap();
    let told = settled(&stored(&store, session.id()).await);
    assert!(told.iter().any(|(_, text)| text.ends_with("1. a\n2. Because.")), "{told:?}");

    let (id, shown) = waiting(&other).await;
    assert_eq!(Question::all(&shown), questions);
    other.answer(&id, ToolOutput::error("nobody is there").stopping()).await.unwrap();
    let outcome = other.resume(&agent).outcome().await.unwrap();
    assert!(outcome.status != Status::Paused(Pause::Asked), "{outcome}");
    assert_eq!(provider.count(), 2);
}

fn choice(options: &[String]) -> Value {
    json!({"text": "Which?", "kind": "single", "options": options})
}

#[tokio::test]
async fn cx12_what_a_person_sees_controls_no_terminal() {
    let store = memory();
    let asked = json!([{"text": "Delete\u{1b}[2J\r it\u{202e}?", "kind": "single", "options": ["\u{9b}yes", "no\nno"]}]);
    let (name, mut presented) = plan(&["Do\u{1b}]0;x\u{7} it"]);
    presented["plan"] = json!("# Plan\u{1b}[31m\n\n    code\u{200b}\rx");
    let provider =
        ScriptedProvider::new().call("question", asking(asked)).call(name, presented).text("Done.");
    let (agent, _) = planner(&provider);
    let agent = agent.with_tool(Arc::new(question())).unwrap();
    let session = on(&store).session();
    session.start(&agent, "Go").outcome().await.unwrap();
    let (id, shown) = waiting(&session).await;
    let question = Question::all(&shown).remove(0);
    assert_eq!(
        (&*question.text, question.options),
        ("Delete [2J it?", vec!["yes".to_owned(), "no no".to_owned()])
    );
    session.answer(&id, "no no").await.unwrap();
    session.resume(&agent).outcome().await.unwrap();
    let (id, shown) = waiting(&session).await;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown, json!({"plan": "# Plan [31m\n\n    code x", "steps": ["Do ]0;x it"]}));
    session.answer(&id, "Approved.").await.unwrap();
    session.resume(&agent).outcome().await.unwrap();
    assert_eq!(session.state().await.unwrap().todos()[0].content, "Do ]0;x it");
}

#[tokio::test]
async fn issue_14_of_two_plans_in_a_step_each_must_be_approved() {
    for (first, second, works) in [(true, false, 0), (false, true, 0), (true, true, 1)] {
        let store = memory();
        let provider = ScriptedProvider::new()
            .calls([plan(&["One"]), plan(&["Two"])])
            .call("edit", json!({}))
            .text("Done.");
        let (agent, edit) = planner(&provider);
        let session = on(&store).session();
        session.start(&agent, "Go").outcome().await.unwrap();
        for approved in [first, second] {
            // Each in a process of its own.
            let session = on(&store).open(session.id()).await.unwrap();
            let (id, _) = waiting(&session).await;
            let answer = if approved { ToolOutput::text("Approved.") } else { ToolOutput::error("No.") };
            session.answer(&id, answer).await.unwrap();
            session.resume(&agent).outcome().await.unwrap();
        }
        assert_eq!(edit.started(), works, "{first} {second}");
        let state = on(&store).open(session.id()).await.unwrap().state().await.unwrap();
        let todos: Vec<_> = state.todos().iter().map(|it| it.content.clone()).collect();
        assert_eq!(todos, vec!["Two"; works], "{first} {second}");
    }
}

#[tokio::test]
async fn issue_14_an_agent_without_plan_mode_that_resumes_stays_in_it() {
    let store = memory();
    let provider = ScriptedProvider::new()
        .calls([plan(&["Do it"])])
        .call("edit", json!({}))
        .text("Not done.")
        .call("edit", json!({}))
        .text("Done.");
    let (planning, edit) = planner(&provider);
    let free = agent(provider.model()).tool(FakeTool::new("look")).tool(edit.clone()).build().unwrap();
    let session = on(&store).session();
    session.start(&planning, "Go").outcome().await.unwrap();
    let (id, _) = waiting(&session).await;
    let session = on(&store).open(session.id()).await.unwrap();
    session.answer(&id, ToolOutput::error("No.")).await.unwrap();
    let outcome = session.resume(&free).outcome().await.unwrap();
    assert_eq!((&*outcome.text, edit.started()), ("Not done.", 0));
    // A further prompt to it is a run of its own.
    let outcome = session.start(&free, "Go").outcome().await.unwrap();
    assert_eq!((&*outcome.text, edit.started()), ("Done.", 1));
}

#[tokio::test]
async fn cx12_wrong_questions_are_refused_and_nobody_sees_them() {
    let one = json!({"text": "Why?", "kind": "text"});
    let wrong = [
        (json!([]), "at least 1"),
        (json!(vec![one.clone(); 6]), "at most 5"),
        (json!("[]"), "1 to 5"),
        (json!(json!(vec![one.clone(); 6]).to_string()), "1 to 5"),
        (json!("why?"), "cannot be read"),
        (
            json!([{"text": "Which?", "kind": "single", "options": ["a"]}]),
            "question 1 needs at least two options",
        ),
        (
            json!([one.clone(), {"text": "Yes?", "kind": "yes_no", "options": ["a"]}]),
            "question 2 has options",
        ),
        (json!([{"text": " ", "kind": "text"}]), "question 1 has no text"),
        (json!([{"text": "Why?", "kind": "essay"}]), "essay"),
        (json!([{"text": "Why?"}]), "kind"),
        (json!([{"text": "\u{1b}\u{202e}\u{200b}", "kind": "text"}]), "question 1 has no text"),
        (json!([{"text": "y".repeat(2_001), "kind": "text"}]), "longer than 2000 characters"),
        (json!([choice(&vec!["a".to_owned(); 2])]), "an option twice"),
        (json!([choice(&["a".to_owned(), "\u{7}a".to_owned()])]), "an option twice"),
        (json!([choice(&["a".to_owned(), " ".to_owned()])]), "an option without a text"),
        (json!([choice(&["a".to_owned(), "b".repeat(201)])]), "an option of more than 200"),
        (json!([choice(&(0..21).map(|it| it.to_string()).collect::<Vec<_>>())]), "more than 20 options"),
    ];
    let provider = wrong.iter().fold(ScriptedProvider::new(), |provider, (questions, _)| {
        provider.call("question", asking(questions.clone()))
    });
    let provider = provider.text("I decide myself.");
    let store = memory();
    let agent = agent(provider.model()).tool(question()).build().unwrap();
    let session = on(&store).session();
    let outcome = session.start(&agent, "Go").outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Completed, "{outcome}");
    let told = settled(&stored(&store, session.id()).await);
    for ((_, text), (questions, expected)) in told.iter().zip(&wrong) {
        assert!(text.contains(expected), "{questions}: {text}");
    }
    assert_eq!(told.len(), wrong.len());
}

#[tokio::test]
async fn cx12_agents_below_ask_nobody() {
    let below = ScriptedProvider::new().call("question", asking(json!([{"text": "Why?", "kind": "text"}])));
    let below = below.text("I do not know why.");
    let helper = agent(below.model()).tool(question()).build().unwrap();
    let provider = ScriptedProvider::new().call("agent", json!({"prompt": "Why?"})).text("Done.");
    let above = ReactAgent::builder("above", provider.model()).tool(AgentTool::new(&helper)).build().unwrap();
    let outcome = on(&memory()).session().start(&above, "Go").outcome().await.unwrap();
    assert_eq!(outcome.text, "Done.");
    let told = below.requests()[1].messages.last().unwrap().tool_results().next().unwrap().to_text();
    assert!(told.contains("only the agent that talks with the user"), "{told}");
}
