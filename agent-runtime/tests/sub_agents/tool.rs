//! An agent as a tool of another agent.

use std::{sync::Arc, time::Duration};

use entourage_core::{
    ErrorKind, RunId, SessionId, Timestamp,
    agent::Agent,
    budget::BudgetLimits,
    event::{Envelope, Event, Origin},
    permission::{Decision, Scope},
    provider::FinishReason,
    run::{Limits, Outcome, Pause, Status, Task},
    session::{Batch, Row, SessionFilter, SessionHead, SessionRecord, SharedStore},
    tool::{Access, Repeat, Tool},
};
use entourage_runners::{AgentTool, ReactAgent};
use entourage_runtime::Titles;
use entourage_runtime::permission::Policy;
use entourage_testkit::{self as testkit, FakeTool, Gate, Script, ScriptedProvider};
use serde_json::{Value, json};

use crate::common::{agent, count, memory, open_runtime, results, runtime_on, settled, stored};

fn root() -> SessionId {
    SessionId::new("work").unwrap()
}

fn sub(provider: &ScriptedProvider) -> ReactAgent {
    ReactAgent::builder("sub", provider.model()).instructions("You look.").build().unwrap()
}

/// Creates a parent that calls `agent` once, with these arguments, and then ends.
fn parent(tool: AgentTool, arguments: Value) -> ReactAgent {
    let provider = ScriptedProvider::by_history().call("agent", arguments).text("Done.");
    agent(provider.model()).instructions("You lead.").tool(tool).build().unwrap()
}

async fn run(store: &SharedStore, agent: &ReactAgent) -> Outcome {
    runtime_on(store).session_with_id(root()).start(agent, "A secret of the parent").outcome().await.unwrap()
}

/// Returns the result that the parent's model got, and whether it was an error.
async fn told(store: &SharedStore) -> (String, bool) {
    let found = stored(store, &root()).await.into_iter().find_map(|event| match event.event {
        Event::ToolFinished(call) => Some((call.result.to_text(), call.result.is_error)),
        _ => None,
    });
    found.unwrap()
}

async fn children(store: &SharedStore) -> Vec<SessionId> {
    let found = store.query(&SessionFilter::children_of(root())).await.unwrap();
    found.into_iter().map(|it| it.record.id).collect()
}

#[tokio::test(start_paused = true)]
async fn ca01_the_child_sees_its_instructions_and_the_prompt_in_a_session_named_after_the_call() {
    let store = memory();
    let provider = ScriptedProvider::new().text("A tree.");
    let tool = AgentTool::new(sub(&provider));
    let spec = tool.spec().clone();
    assert_eq!((spec.name(), spec.access(), spec.repeat()), ("agent", Access::DELEGATE, Repeat::Resume));
    assert_eq!(spec.schema()["required"], json!(["prompt"]));
    assert_eq!(spec.schema()["properties"].as_object().unwrap().len(), 1);

    run(&store, &parent(tool, json!({"prompt": "What is there?"}))).await;
    assert_eq!(told(&store).await, ("A tree.".into(), false));
    let request = &provider.requests()[0];
    assert_eq!(&*request.instructions, "You look.");
    let said: Vec<_> = request.messages.iter().map(|message| message.text()).collect();
    assert_eq!(said, ["What is there?"], "nothing of the conversation above");

    let log = stored(&store, &root()).await;
    let message = log.iter().find(|it| it.event.kind() == "model_finished").unwrap().seq;
    let child = children(&store).await.pop().unwrap();
    assert_eq!(child, root().child(message, 0).unwrap());
    assert_eq!(child.origin(), Some(("work", message, 0)));
    let metadata = log.iter().find_map(|event| match &event.event {
        Event::ToolFinished(call) => call.metadata.clone(),
        _ => None,
    });
    assert_eq!(metadata, Some(json!({"agent": "sub", "session": child.as_str()})));
}

#[tokio::test(start_paused = true)]
async fn ca01_a_call_without_a_prompt_is_an_error_result_and_nobody_is_asked() {
    for arguments in [json!({}), json!({"prompt": ""}), json!({"prompt": " \n\t"}), json!({"prompt": 7})] {
        let store = memory();
        let never = ScriptedProvider::new();
        let outcome = run(&store, &parent(AgentTool::new(sub(&never)), arguments.clone())).await;
        assert_eq!(outcome.text, "Done.");
        let (text, is_error) = told(&store).await;
        assert!(is_error && (text.contains("prompt") || text.contains("arguments")), "{arguments}: {text}");
        assert!(children(&store).await.is_empty(), "{arguments}");
        assert_eq!(never.count(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn ca01_several_agents_have_names_of_their_own() {
    let first = ScriptedProvider::new().text("One.");
    let second = ScriptedProvider::new().text("Two.");
    let tools = [
        AgentTool::new(sub(&first)).with_name("scout").with_description("Finds."),
        AgentTool::new(sub(&second)).with_name("critic").with_description("Doubts."),
    ];
    let calls = ["critic", "scout"].map(|name| (name, json!({"prompt": name})));
    let provider = ScriptedProvider::new().calls(calls).text("Done.");
    let [scout, critic] = tools;
    let lead = agent(provider.model()).tool(scout).tool(critic).build().unwrap();
    open_runtime().session().start(&lead, "Go").outcome().await.unwrap();
    let requests = provider.requests();
    let shown: Vec<_> = requests[0].tools.iter().map(|it| (it.name(), it.description())).collect();
    assert_eq!(shown, [("critic", "Doubts."), ("scout", "Finds.")]);
    assert_eq!(results(requests[1].messages.last().unwrap()), ["Two.", "One."]);
    let twice = AgentTool::new(sub(&first)).with_name("scout");
    let same = agent(provider.model()).tool(twice.clone()).tool(twice).build().unwrap_err();
    assert_eq!(same.kind(), ErrorKind::Config);
    assert!(same.message().contains("`AgentTool::with_name`"), "{same}");
}

#[tokio::test(start_paused = true)]
async fn ca02_the_file_reader_is_offered_four_tools_and_can_do_nothing_else() {
    let store = memory();
    let readers = AgentTool::FILE_READING_TOOLS.map(FakeTool::new);
    let edit = FakeTool::new("edit").access(Access::WRITE);
    let (shell, secret) = (FakeTool::new("bash").access(Access::EXECUTE), FakeTool::new("memory"));
    // A tool with an admitted name that declares more than reading.
    let below = ScriptedProvider::new();
    let deeper = AgentTool::new(sub(&below));
    let calls = ["edit", "memory", "agent", "view"].map(|name| (name, json!({"prompt": "x"})));
    let provider = ScriptedProvider::new().calls(calls).text("I looked.");
    let mut tools: Vec<Arc<dyn Tool>> =
        vec![Arc::new(edit.clone()), Arc::new(shell), Arc::new(secret.clone())];
    tools.extend(readers.iter().map(|tool| Arc::new(tool.clone()) as Arc<dyn Tool>));
    tools.push(Arc::new(deeper));
    let able = ReactAgent::builder("task", provider.model()).tools(tools).build().unwrap();

    run(&store, &parent(AgentTool::file_reader(able), json!({"prompt": "Look!"}))).await;
    assert_eq!(told(&store).await, ("I looked.".into(), false));
    let requests = provider.requests();
    let offered: Vec<_> = requests[0].tools.iter().map(|tool| tool.name()).collect();
    assert_eq!(offered, AgentTool::FILE_READING_TOOLS);
    assert_eq!((edit.started(), secret.started(), below.count(), readers[3].finished()), (0, 0, 0, 1));
    let answers = results(requests[1].messages.last().unwrap());
    for (name, answer) in ["edit", "memory", "agent"].iter().zip(&answers) {
        assert!(answer.contains(&format!("`{name}`")) && answer.contains("scope"), "{answer}");
    }
    assert_eq!(answers[3], "ok");
}

#[tokio::test(start_paused = true)]
async fn ca02_the_read_only_agent_has_what_the_scope_of_that_name_admits() {
    let store = memory();
    let (edit, look) = (FakeTool::new("edit").access(Access::WRITE), FakeTool::new("look_up"));
    let provider =
        ScriptedProvider::new().calls([("edit", json!({})), ("look_up", json!({}))]).text("I looked.");
    let below = ScriptedProvider::new();
    let able = ReactAgent::builder("task", provider.model());
    let able = able.tools((edit.clone(), look.clone(), AgentTool::new(sub(&below)))).build().unwrap();

    run(&store, &parent(AgentTool::read_only(able), json!({"prompt": "Look!"}))).await;
    assert_eq!(told(&store).await, ("I looked.".into(), false));
    let offered: Vec<_> = provider.requests()[0].tools.iter().map(|tool| tool.name().to_owned()).collect();
    assert_eq!((offered.as_slice(), edit.started(), look.finished()), (&["look_up".to_owned()][..], 0, 1));
}

#[tokio::test(start_paused = true)]
async fn attack_20_the_tools_scope_and_the_callers_both_bound_the_agent() {
    let reads_and_asks = || Scope::all().with_access(Access::READ | Access::DELEGATE);
    for (callers, tools) in [(reads_and_asks(), Scope::all()), (Scope::all(), reads_and_asks())] {
        let store = memory();
        let write = FakeTool::new("write").access(Access::WRITE);
        let provider = ScriptedProvider::new().call("write", json!({})).text("I could not.");
        let able =
            ReactAgent::builder("sub", provider.model()).tool(write.clone()).scope(Scope::all()).build();
        let tool = AgentTool::new(able.unwrap()).with_scope(tools).with_scope(Scope::all());
        let lead = ScriptedProvider::by_history().call("agent", json!({"prompt": "Write!"})).text("Done.");
        let lead = agent(lead.model()).tool(tool).scope(callers).build().unwrap();
        run(&store, &lead).await;
        assert_eq!((told(&store).await.0.as_str(), write.started()), ("I could not.", 0));
        assert!(provider.requests()[0].tools.is_empty());
    }
}

/// Creates an agent that ends as scripted, whatever its prompt.
fn ending(provider: &ScriptedProvider) -> ReactAgent {
    let mut limits = Limits::default();
    limits.steps = 1;
    let agent = ReactAgent::builder("sub", provider.model()).tool(FakeTool::new("look")).limits(limits);
    agent.build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn ca03_what_the_parent_is_told_of_each_end() {
    let said_and_stopped = Script::new().text("Half of it.").call("look", &json!({})).usage(1, 1);
    for (provider, said, is_error) in [
        (ScriptedProvider::new().text("  A tree. "), "  A tree. ", false),
        (ScriptedProvider::new().text(" \n"), "the agent `sub` ended without an answer", true),
        (
            ScriptedProvider::new().fail(ErrorKind::InvalidInput, "the service is gone"),
            "the agent `sub` failed: the service is gone",
            true,
        ),
        (
            ScriptedProvider::new().step(said_and_stopped.finish(FinishReason::ToolCalls)),
            "the agent `sub` was stopped before it was finished: the limit of 1 steps was reached\n\
             What it had to say by then:\nHalf of it.",
            true,
        ),
        (
            ScriptedProvider::new().call("look", json!({})),
            "the agent `sub` was stopped before it was finished: the limit of 1 steps was reached",
            true,
        ),
    ] {
        let store = memory();
        let outcome =
            run(&store, &parent(AgentTool::new(ending(&provider)), json!({"prompt": "Look!"}))).await;
        assert_eq!((outcome.text.as_str(), outcome.status), ("Done.", Status::Completed));
        assert_eq!(told(&store).await, (said.to_owned(), is_error));
    }
}

#[tokio::test(start_paused = true)]
async fn ca03_a_session_that_cannot_be_had_ends_the_parent() {
    let store = memory();
    let runtime = runtime_on(&store);
    // The id of the call's session is already taken: the message with the call is event 3.
    let taken = root().child(3, 0).unwrap();
    let started = Arc::new(Origin::new(taken.clone(), RunId::generate(), "sub"));
    let titled = Event::Titled(serde_json::from_value(json!({"title": "Mine"})).unwrap());
    let row = Row::live(Envelope::new(started, 1, Timestamp::default(), titled));
    let mut head = SessionHead::default();
    head.seq = 1;
    let record = SessionRecord::root(taken.clone(), Timestamp::default());
    store.append(&taken, 0, Batch::new(1, vec![row], head).creating(record)).await.unwrap();
    let never = ScriptedProvider::new();
    let parent = parent(AgentTool::new(sub(&never)), json!({"prompt": "Look!"}));
    let error = runtime.session_with_id(root()).start(&parent, "Go").outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.message().contains("is not this one's child"), "{error}");
    assert!(children(&store).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn ca03_a_budget_above_stops_the_agent_and_the_parent_is_told_which() {
    let store = memory();
    let below = ScriptedProvider::by_history().call("look", json!({})).text("Never said.");
    let able = ReactAgent::builder("sub", below.model()).tool(FakeTool::new("look")).build().unwrap();
    let provider = ScriptedProvider::by_history().call("agent", json!({"prompt": "Look!"})).text("Done.");
    let lead = agent(provider.model()).tool(AgentTool::new(able)).build().unwrap();
    let task = Task::new("Go").with_budget(BudgetLimits::none().with_model_calls(2));
    let outcome = runtime_on(&store).session_with_id(root()).start(&lead, task).outcome().await.unwrap();
    assert!(outcome.status.to_string().contains("model calls"), "{outcome}");
    let (text, is_error) = told(&store).await;
    assert!(is_error && text.contains("was stopped") && text.contains("model calls"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn ca04_three_calls_of_one_step_overlap_and_a_writer_does_not_join_them() {
    let store = memory();
    let gate = Gate::new();
    let seen = Script::new().wait(&gate).text("Seen.").usage(1, 1).finish(FinishReason::Stop);
    let below = ScriptedProvider::by_history().step(seen);
    let write = FakeTool::new("write").access(Access::WRITE);
    let call = || ("agent", json!({"prompt": "Look!"}));
    let provider =
        ScriptedProvider::by_history().calls([call(), call(), call(), ("write", json!({}))]).text("Done.");
    let lead = agent(provider.model()).tool(AgentTool::new(sub(&below))).tool(write.clone()).build().unwrap();
    let run = runtime_on(&store).session_with_id(root()).start(&lead, "Go");
    gate.arrived(3).await;
    assert_eq!(write.started(), 0);
    gate.open();
    assert_eq!(run.outcome().await.unwrap().text, "Done.");
    let mut places: Vec<_> = children(&store).await.iter().map(|id| id.origin().unwrap().2).collect();
    places.sort_unstable();
    assert_eq!((places, write.finished()), (vec![0, 1, 2], 1));
}

#[tokio::test(start_paused = true)]
async fn ca06_a_cancel_reaches_the_agent_and_leaves_nothing_running() {
    let store = memory();
    let gate = Gate::new();
    let tool = FakeTool::new("wait").behind(&gate);
    let provider = ScriptedProvider::new().call("wait", json!({}));
    let able = ReactAgent::builder("sub", provider.model()).tool(tool.clone()).build().unwrap();
    let lead = parent(AgentTool::new(able), json!({"prompt": "Wait!"}));
    let run = runtime_on(&store).session_with_id(root()).start(&lead, "Go");
    gate.arrived(1).await;
    run.cancel();
    assert_eq!(run.outcome().await.unwrap().status, Status::Cancelled);
    assert_eq!(tool.running(), 0);
    let events = stored(&store, &children(&store).await[0]).await;
    let Event::RunFinished(end) = &events.last().unwrap().event else { panic!() };
    assert_eq!(end.outcome.status, Status::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn ca06_a_sub_agent_is_not_titled_and_its_time_is_bounded() {
    let store = memory();
    let titler = ScriptedProvider::new().text("The parent's title");
    let hang = FakeTool::new("hang").hanging();
    let below = ScriptedProvider::new().call("hang", json!({}));
    let able = ReactAgent::builder("sub", below.model()).tool(hang.clone()).build().unwrap();
    let tool = AgentTool::new(able).with_timeout(Duration::from_secs(3));
    let lead = parent(tool, json!({"prompt": "Wait!"}));
    let runtime = testkit::runtime()
        .policy(Policy::allow_all())
        .shared_store(Arc::clone(&store))
        .titles(Titles::new(titler.model()))
        .build();
    let outcome = runtime.session_with_id(root()).start(&lead, "Go").outcome().await.unwrap();
    runtime.cancel_all().await;
    assert_eq!(outcome.text, "Done.");
    assert_eq!(told(&store).await, ("the call took longer than 3 s and was stopped".into(), true));
    assert_eq!((titler.count(), hang.running()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_pause_below_pauses_the_parent_and_both_are_resumed() {
    let store = memory();
    let pay = FakeTool::new("pay").access(Access::WRITE).returning("paid");
    let below = ScriptedProvider::by_history().call("pay", json!({})).text("Paid.");
    let able = ReactAgent::builder("sub", below.model()).tool(pay.clone()).build().unwrap();
    let lead = parent(AgentTool::new(able), json!({"prompt": "Pay!"}));
    let policy = Policy::allow_all().ask("pay");
    let runtime = testkit::runtime().policy(policy).shared_store(Arc::clone(&store)).build();
    let session = runtime.session_with_id(root());
    let paused = session.start(&lead, "Go").outcome().await.unwrap();
    let Status::Paused(Pause::Approval(question)) = &paused.status else { panic!("{paused:?}") };
    let child = children(&store).await.pop().unwrap();
    runtime.open(&child).await.unwrap().decide(question, Decision::Allow).await.unwrap();
    assert_eq!(session.resume(&lead).outcome().await.unwrap().text, "Done.");
    assert_eq!((told(&store).await, pay.started()), (("Paid.".into(), false), 1));
    assert_eq!(count(&stored(&store, &child).await, "run_started"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_agent_tool_is_an_agent_of_any_kind() {
    let worker = crate::workers::Worker::second();
    let inner = parent(AgentTool::new(worker.clone()), json!({"prompt": "it"}));
    let outer: Arc<dyn Agent> = Arc::new(inner);
    let lead = parent(AgentTool::new(outer), json!({"prompt": "all"}));
    let store = memory();
    run(&store, &lead).await;
    let found = settled(&stored(&store, &children(&store).await[0]).await);
    assert_eq!(found, [("agent".to_owned(), "did it".to_owned())]);
}

#[test]
fn the_description_of_an_agent_begins_that_of_its_tool() {
    let model = ScriptedProvider::new().model();
    let scout = ReactAgent::builder("scout", model).description("Knows the lexer.").build().unwrap();
    let described = |tool: AgentTool| tool.spec().description().to_owned();
    for tool in [AgentTool::new(&scout), AgentTool::read_only(Arc::new(scout.clone()))] {
        let text = described(tool);
        assert!(text.starts_with("Knows the lexer.\n\nHand"), "{text}");
    }
    assert_eq!(described(AgentTool::new(scout).with_description("Finds.")), "Finds.");
}

#[test]
fn the_tools_that_a_model_sees_are_plain() {
    let provider = ScriptedProvider::new();
    let agent = || ReactAgent::builder("helper", provider.model()).build().unwrap();
    for tool in [AgentTool::new(agent()), AgentTool::read_only(agent()), AgentTool::file_reader(agent())] {
        entourage_testkit::assert_plain_words(tool.spec());
    }
}
