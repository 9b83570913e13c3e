//! Refused input, the conditions for continuing the loop, and the answer of a run.

use std::sync::Arc;

use entourage_core::{
    ErrorKind, SessionId, Usage,
    agent::Agent,
    message::{Media, MediaSource, Message, Part, Role},
    provider::FinishReason,
    run::{Status, StopReason, Task},
    session::SessionFilter,
    tool::{Access, Tool, ToolOutput, Tools},
};
use entourage_runners::{ReactBuilder, from_fn::typed};
use entourage_runtime::AgentExt;
use entourage_testkit::{self as testkit, FakeTool, Gate, Script, ScriptedProvider};
use serde_json::json;

use crate::common::{FaultyStore, act, agent, assert_valid, open_runtime};

fn media(mime: &str) -> Part {
    Part::Media(Media::new(mime, MediaSource::Base64("aGk=".into())))
}

#[tokio::test]
async fn cm01_a_refused_prompt_leaves_no_trace() {
    let store = FaultyStore::counting();
    let runtime = testkit::runtime().shared_store(store.clone()).build();
    let provider = ScriptedProvider::new();
    let agent = agent(provider.model()).build().unwrap();
    let user = |parts| Task::new(Message::new(Role::User, parts));
    let refused = [
        (Task::new(""), ErrorKind::EmptyPrompt),
        (Task::new(" \n\t"), ErrorKind::EmptyPrompt),
        (user(vec![]), ErrorKind::EmptyPrompt),
        (user(vec![media("image/png")]), ErrorKind::EmptyPrompt),
        (Task::new(Message::system("Obey.")), ErrorKind::InvalidInput),
        (Task::new(Message::assistant("I said so.")), ErrorKind::InvalidInput),
    ];
    for (task, kind) in refused {
        let session = runtime.session();
        let error = session.start(&agent, task.clone()).outcome().await.unwrap_err();
        assert_eq!(error.kind(), kind, "{task:?}");
        assert!(!session.is_busy());
        assert!(session.history().await.unwrap().is_empty());
    }
    assert_eq!(SessionId::new("").unwrap_err().kind(), ErrorKind::InvalidInput);
    let unknown = SessionId::new("unknown").unwrap();
    assert_eq!(runtime.open(&unknown).await.unwrap_err().kind(), ErrorKind::NotFound);
    let resumed = runtime.session_with_id(unknown.clone()).resume(&agent).outcome().await;
    assert_eq!(resumed.unwrap_err().kind(), ErrorKind::NotFound);
    let signalled = runtime.session_with_id(unknown).signal("s", json!(1)).await;
    assert_eq!(signalled.unwrap_err().kind(), ErrorKind::NotFound);

    assert_eq!(store.appends(), 0, "nothing was written");
    assert!(runtime.sessions(&SessionFilter::all()).await.unwrap().is_empty());
    assert_eq!(provider.count(), 0);
}

#[tokio::test]
async fn cm01_a_text_attachment_is_a_prompt_and_a_refusal_is_no_obstacle() {
    let provider = ScriptedProvider::new().text("Read.");
    let agent = agent(provider.model()).build().unwrap();
    let session = open_runtime().session();
    assert!(session.start(&agent, "").outcome().await.is_err());
    let task = Task::new(Message::new(Role::User, vec![media("text/plain")]));
    assert_eq!(session.start(&agent, task).outcome().await.unwrap().text, "Read.");
}

#[tokio::test]
async fn cm01_a_busy_session_refuses_to_resume_and_its_run_goes_on() {
    let gate = Gate::new();
    let script = Script::new().wait(&gate).text("First.").finish(FinishReason::Stop);
    let provider = ScriptedProvider::new().step(script);
    let agent = agent(provider.model()).build().unwrap();
    let session = open_runtime().session();
    let first = session.start(&agent, "one");
    gate.arrived(1).await;
    assert!(session.is_busy());
    for _ in 0..50 {
        let error = session.resume(&agent).outcome().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
    }
    gate.open();
    assert_eq!(first.outcome().await.unwrap().text, "First.");
    assert_eq!(session.history().await.unwrap().len(), 2);
}

#[tokio::test]
async fn cm02_a_step_with_tools_is_followed_by_another() {
    let provider = ScriptedProvider::new().call("look", json!({"at": "x"})).text("Seen.");
    let tool = FakeTool::new("look").returning("a tree");
    let agent = agent(provider.model()).instructions("Be brief.").tool(tool.clone()).build().unwrap();
    let outcome = open_runtime().session().start(&agent, "Look!").outcome().await.unwrap();
    assert_eq!((outcome.status, outcome.steps), (Status::Completed, 2));
    assert_eq!(outcome.usage, Usage::new(20, 10), "both steps count");

    let requests = provider.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].messages.len(), 1);
    assert_eq!(&*requests[1].instructions, "Be brief.");
    assert_valid(&requests[1].messages);
    let sent: Vec<_> = requests[1].messages.iter().map(|message| message.role()).collect();
    assert_eq!(sent, [Role::User, Role::Assistant, Role::Tool]);
    let answer = requests[1].messages.get(2).unwrap();
    assert_eq!(answer.tool_results().next().unwrap().to_text(), "a tree");
    assert!(Arc::ptr_eq(requests[0].messages.get(0).unwrap(), requests[1].messages.get(0).unwrap()));
}

#[tokio::test]
async fn cm02_calls_in_a_reply_that_does_not_wait_for_them_are_not_run() {
    for (finish, status) in [
        (FinishReason::Stop, Status::Completed),
        (FinishReason::Length, Status::Stopped(StopReason::Reply(FinishReason::Length))),
        (FinishReason::ContentFilter, Status::Stopped(StopReason::Reply(FinishReason::ContentFilter))),
    ] {
        let script = Script::new().text("Hm.").call("look", &json!({})).finish(finish);
        let provider = ScriptedProvider::new().step(script).text("Next.");
        let tool = FakeTool::new("look");
        let agent = agent(provider.model()).tool(tool.clone()).build().unwrap();
        let session = open_runtime().session();
        let outcome = session.start(&agent, "Look!").outcome().await.unwrap();
        assert_eq!((outcome.status, outcome.steps, tool.started()), (status, 1, 0), "{finish:?}");
        assert_eq!(provider.count(), 1);
        session.start(&agent, "And now?").outcome().await.unwrap();
        assert_valid(&provider.requests()[1].messages);
    }
}

#[tokio::test]
async fn cm02_a_reply_that_claims_calls_and_has_none_ends_the_run() {
    let provider = ScriptedProvider::new().step(Script::new().text("Done.").finish(FinishReason::ToolCalls));
    let agent = agent(provider.model()).build().unwrap();
    assert_eq!(agent.ask("Go").await.unwrap(), "Done.");
}

#[tokio::test]
async fn cm07_a_result_that_stops_the_turn_stops_it_after_all_results_are_stored() {
    let provider = ScriptedProvider::new().calls([("halt", json!({})), ("look", json!({}))]).text("Later.");
    let (halt, look) =
        (FakeTool::new("halt").giving(ToolOutput::text("halted").stopping()), FakeTool::new("look"));
    let agent = agent(provider.model()).tool(halt).tool(look.clone()).build().unwrap();
    let session = open_runtime().session();
    let outcome = session.start(&agent, "Go").outcome().await.unwrap();
    assert_eq!((outcome.status, outcome.steps), (Status::Completed, 1));
    assert_eq!((provider.count(), look.finished()), (1, 1), "the second step was never asked for");
    assert_valid(&session.history().await.unwrap());
    assert_eq!(session.history().await.unwrap().len(), 3);
    session.start(&agent, "Go on").outcome().await.unwrap();
}

#[tokio::test]
async fn cm08_the_answer_is_the_newest_text_that_is_not_blank() {
    let script = Script::new()
        .reasoning("hm")
        .text("I will look.")
        .call("look", &json!({}))
        .text("second block")
        .usage(7, 3)
        .finish(FinishReason::ToolCalls);
    let blank =
        Script::new().text(" \n ").call("halt", &json!({})).usage(9, 1).finish(FinishReason::ToolCalls);
    let provider = ScriptedProvider::new().step(script).step(blank);
    let halt = FakeTool::new("halt").giving(ToolOutput::text("halted").stopping());
    let agent = agent(provider.model()).tool(FakeTool::new("look")).tool(halt).build().unwrap();
    let outcome = open_runtime().session().start(&agent, "Go").outcome().await.unwrap();
    assert_eq!(outcome.text, "I will look.");
    assert_eq!((outcome.usage, outcome.steps), (Usage::new(16, 4), 2));
}

#[tokio::test]
async fn cm08_no_text_at_all_is_an_empty_answer() {
    let provider = ScriptedProvider::new().step(Script::new().finish(FinishReason::Stop));
    let agent = agent(provider.model()).build().unwrap();
    let session = open_runtime().session();
    let outcome = session.start(&agent, "Go").outcome().await.unwrap();
    assert_eq!((outcome.status, &*outcome.text), (Status::Completed, ""));
    assert_eq!(outcome.usage, Usage::default(), "absent usage is unknown, not zero");
    assert_eq!(outcome.cost, None);
    assert_eq!(session.history().await.unwrap().len(), 1, "a reply that says nothing is left out");
}

/// Most bytes of the future in which a `ReactAgent` runs: a run holds it for as long as it lasts.
const RUN_BYTES: usize = 600;

#[tokio::test]
async fn the_future_of_a_run_is_small() {
    let provider = ScriptedProvider::new().text("Done.");
    let inner = agent(provider.model()).build().unwrap();
    let weighed = act(move |cx| {
        let inner = inner.clone();
        Box::pin(async move {
            let run = inner.run(Task::new("Go"), cx);
            let bytes = size_of_val(&*run);
            assert!(bytes <= RUN_BYTES, "{bytes} bytes, {RUN_BYTES} at most");
            Ok(run.await?.text)
        })
    });
    assert_eq!(weighed.ask("Go").await.unwrap(), "Done.");
}

#[tokio::test]
async fn tools_of_different_types_need_no_conversion() {
    /// A tool that becomes a shared one with `into()`, as those of `#[tool]` do.
    struct Convertible(FakeTool);
    impl From<Convertible> for Arc<dyn Tool> {
        fn from(tool: Convertible) -> Self {
            Arc::new(tool.0)
        }
    }

    let model = || ScriptedProvider::new().model();
    let fake = FakeTool::new;
    let shared = |name| -> Arc<dyn Tool> { Arc::new(fake(name)) };
    let typed = typed("typed", "A tool.", Access::NONE, |(): ()| async { Ok("done") });
    let names = |agent: ReactBuilder| {
        let specs = Arc::clone(agent.build().unwrap().tool_set().specs());
        specs.iter().map(|spec| spec.name().to_owned()).collect::<Vec<_>>()
    };

    let mixed = agent(model()).tools((fake("fake"), shared("shared"), typed)).tool(Arc::new(fake("tool")));
    assert_eq!(names(mixed), ["fake", "shared", "tool", "typed"]);
    assert_eq!(names(agent(model()).tools((fake("a"),)).tool(shared("b"))), ["a", "b"]);
    let set = Tools::new([shared("a"), shared("b")]).unwrap();
    assert_eq!(names(agent(model()).tools(set).tools(vec![shared("c")])), ["a", "b", "c"]);
    // Lists whose items are converted keep their type, also when nothing else in them tells it.
    let converted = agent(model()).tools([Convertible(fake("a")).into()]);
    assert_eq!(names(converted.tools([Convertible(fake("b")).into(), shared("c")])), ["a", "b", "c"]);
    // Sets join the fixed tools, wherever they are given. Of one name the first is taken, and a fixed one before all.
    let (set, other) = ([shared("a"), shared("b")], [shared("b"), shared("c")]);
    let (a, b) = (fake("a"), Arc::clone(&set[1]));
    let joined = agent(model()).toolset(Tools::new(set).unwrap()).toolset(Tools::new(other).unwrap());
    let joined = joined.tools((a, shared("d"))).build().unwrap();
    let all: Vec<_> = joined.tool_set().iter().map(|tool| tool.spec().name().to_owned()).collect();
    assert_eq!(all, ["a", "b", "c", "d"]);
    let found = joined.tool_set().get("b").map(Arc::clone).unwrap();
    assert!(Arc::ptr_eq(&found, &b), "the set that was given first has it");
    assert!(agent(model()).tools((fake("a"), fake("a"))).toolset(Tools::none()).build().is_err());
}
