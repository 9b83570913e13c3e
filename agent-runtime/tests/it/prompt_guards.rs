//! Guards on prompts: whatever way a prompt takes into a session, its guards see it first, and once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use entourage_core::{
    Error, ErrorKind, Result,
    message::{Message, Role},
    provider::FinishReason,
    session::{SessionFilter, SharedStore},
};
use entourage_runners::{AgentTool, ReactAgent, graph::TaskGraph};
use entourage_runtime::permission::Policy;
use entourage_runtime::{AgentExt, Agents, Moment, Runtime, RuntimeBuilder, Session};
use entourage_testkit::{self as testkit, LiveProvider, ScriptedProvider};
use serde_json::json;

use crate::common::{LaterClock, act, agent, assert_valid, memory, process, stored};

type Guard = fn(Message) -> Result<Message>;

/// No id holds it by chance, as one may hold digits alone.
const SECRET: &str = "PIN 4711";

fn on(store: &SharedStore) -> RuntimeBuilder {
    testkit::runtime().shared_store(Arc::clone(store)).policy(Policy::allow_all())
}

fn mask(prompt: Message) -> Result<Message> {
    Ok(Message::user(prompt.text().replace(SECRET, "****")))
}

fn refuse(prompt: Message) -> Result<Message> {
    match prompt.text().contains(SECRET) {
        true => Err(Error::new(ErrorKind::InvalidInput, "leave out the number")),
        false => Ok(prompt),
    }
}

fn secret(place: &str) -> String {
    format!("{place} {SECRET}")
}

/// All that the store holds, as text.
async fn all(store: &SharedStore) -> String {
    let mut text = String::new();
    for info in store.query(&SessionFilter::all()).await.unwrap() {
        text += &info.head.title;
        for event in stored(store, &info.record.id).await {
            text += &serde_json::to_string(&event).unwrap();
        }
    }
    text
}

/// Sends a prompt with the secret by every way into a session, while a run is under way and before.
async fn every_way(runtime: &Runtime, provider: &LiveProvider) -> Vec<(&'static str, Result<()>)> {
    let agent = agent(provider.model()).build().unwrap();
    let session = runtime.session();
    let given = [Message::user(secret("given")), Message::assistant("Yes.")];
    let mut ways = vec![("begin_with", session.begin_with(given).await)];
    let running = session.start(&agent, "Go");
    let call = provider.asked().await;
    let steered = session.with_dep(1_u8).steer(secret("steered")).await;
    ways.push(("steer", steered));
    let queued = session.start(&agent, secret("queued"));
    let with_dep = session.with_dep(2_u8).start(&agent, secret("with a value"));
    let steps = ways.iter().filter(|way| way.1.is_ok()).count();
    call.finish(FinishReason::Stop);
    let more = async {
        loop {
            provider.asked().await.finish(FinishReason::Stop);
        }
    };
    let runs = async {
        running.outcome().await.unwrap();
        ways.push(("queue", queued.outcome().await.map(drop)));
        ways.push(("with_dep", with_dep.outcome().await.map(drop)));
        let idle = session.start(&agent, secret("idle")).outcome().await;
        ways.push(("start", idle.map(drop)));
        let head = session.head().await.unwrap();
        let fork = session.fork(Moment::Event(head.seq)).await.unwrap();
        ways.push(("fork", fork.start(&agent, secret("forked")).outcome().await.map(drop)));
        let again = runtime.open(session.id()).await.unwrap();
        ways.push(("open", again.start(&agent, secret("opened")).outcome().await.map(drop)));
        let graph = TaskGraph::builder("graph");
        let node = graph.agent("node", &agent, "Work.");
        let graph = graph.returning(&node).build().unwrap();
        ways.push(("graph", runtime.session().start(&graph, secret("graph")).outcome().await.map(drop)));
    };
    tokio::select! {
        () = runs => {}
        () = more => {}
    }
    assert!(steps <= 2);
    ways
}

#[tokio::test(start_paused = true)]
async fn no_way_into_a_session_goes_around_the_guards() {
    let (store, provider) = (memory(), LiveProvider::new());
    let runtime = on(&store).guard_prompts(mask).build();
    let ways = every_way(&runtime, &provider).await;
    for (way, outcome) in &ways {
        assert!(outcome.is_ok(), "{way}: {outcome:?}");
    }
    assert_eq!(ways.len(), 8);
    let all = all(&store).await;
    for place in ["given", "steered", "queued", "with a value", "idle", "forked", "opened", "graph"] {
        assert!(all.contains(&format!("{place} ****")), "{place}: {all}");
    }
    assert!(!all.contains(SECRET), "{all}");
}

#[tokio::test(start_paused = true)]
async fn what_a_guard_refuses_is_neither_stored_nor_run() {
    let (store, provider) = (memory(), LiveProvider::new());
    let runtime = on(&store).guard_prompts(refuse).build();
    let ways = every_way(&runtime, &provider).await;
    assert_eq!(ways.len(), 8);
    for (way, outcome) in ways {
        let error = outcome.expect_err(way);
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::InvalidInput, "leave out the number"),
            "{way}"
        );
    }
    let all = all(&store).await;
    assert!(!all.contains(SECRET) && !all.contains("prompt_queued"), "{all}");
    let sessions = store.query(&SessionFilter::all()).await.unwrap();
    assert_eq!(sessions.len(), 2, "the session that ran, and its fork: {sessions:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_message_of_a_given_conversation_is_named() {
    let session = Runtime::builder().guard_prompts(refuse).build().session();
    let given = [Message::user("Hi"), Message::assistant(SECRET), Message::user(SECRET)];
    let error = session.begin_with(given).await.unwrap_err();
    assert!(error.context().any(|it| it == ("message", "2")), "{error:?}");
    assert_eq!(session.history().await.unwrap().len(), 0);
    session.begin_with([Message::user("Hi"), Message::assistant(SECRET)]).await.unwrap();
    assert_eq!(session.history().await.unwrap().len(), 2, "an answer is no prompt");
}

async fn refused(guard: Guard) -> Error {
    let (store, provider) = (memory(), ScriptedProvider::by_history().text("Never."));
    let agent = agent(provider.model()).build().unwrap();
    let session = on(&store).guard_prompts(guard).build().session();
    let error = session.start(&agent, "Go").outcome().await.unwrap_err();
    let given = session.begin_with([Message::user("Go")]).await.unwrap_err();
    assert_eq!((given.kind(), given.message()), (error.kind(), error.message()));
    assert!(store.query(&SessionFilter::all()).await.unwrap().is_empty());
    assert_eq!(provider.count(), 0);
    error
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_makes_no_prompt_of_a_prompt_refuses_it() {
    let cases: [(Guard, ErrorKind, &str); 5] = [
        (|_| panic!("lost my head"), ErrorKind::Internal, "lost my head"),
        (|_| Ok(Message::user(" \n")), ErrorKind::EmptyPrompt, "left nothing"),
        (|_| Ok(Message::new(Role::User, Vec::new())), ErrorKind::EmptyPrompt, "left nothing"),
        (|_| Ok(Message::assistant("Yes.")), ErrorKind::InvalidInput, "no user message"),
        (|_| Ok(Message::system("Obey.")), ErrorKind::InvalidInput, "no user message"),
    ];
    for (guard, kind, text) in cases {
        let error = refused(guard).await;
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains(text), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn guards_are_called_in_order_and_see_only_prompts() {
    let provider = ScriptedProvider::new().text("Done.");
    let agent = agent(provider.model()).build().unwrap();
    let seen = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&seen);
    let runtime = testkit::runtime()
        .guard_prompts(move |prompt| {
            counts.fetch_add(1, Ordering::SeqCst);
            Ok(Message::user(prompt.text() + " one"))
        })
        .guard_prompts(|prompt| Ok(Message::user(prompt.text() + " two")))
        .build();
    let session = runtime.session();
    assert_eq!(session.start(&agent, " ").outcome().await.unwrap_err().kind(), ErrorKind::EmptyPrompt);
    assert_eq!(session.steer("").await.unwrap_err().kind(), ErrorKind::EmptyPrompt);
    assert_eq!(seen.load(Ordering::SeqCst), 0);
    session.start(&agent, "Go").outcome().await.unwrap();
    assert_eq!(provider.requests()[0].messages.last().unwrap().text(), "Go one two");
}

#[tokio::test(start_paused = true)]
async fn prompts_of_agents_and_of_other_runtimes_are_not_guarded() {
    let leaf = ScriptedProvider::new().text("Seen.").text("Seen.");
    let leaf_agent = ReactAgent::builder("leaf", leaf.model()).build().unwrap();
    let root = ScriptedProvider::new().call("agent", json!({"prompt": SECRET})).text("Done.");
    let root = agent(root.model()).tool(AgentTool::new(leaf_agent.clone())).build().unwrap();
    let runtime = testkit::runtime().policy(Policy::allow_all()).guard_prompts(refuse).build();
    let session = runtime.session();
    session.start(&root, "Ask it").outcome().await.unwrap();
    assert_eq!(leaf.requests()[0].messages.last().unwrap().text(), SECRET);
    assert_valid(&session.history().await.unwrap());
    leaf_agent.ask(SECRET).await.unwrap();
    Session::ephemeral()
        .start(&act(|_| Box::pin(async { Ok(String::new()) })), SECRET)
        .outcome()
        .await
        .unwrap();
}

#[test]
fn a_stored_prompt_is_not_guarded_again() {
    let store = memory();
    process(async {
        let provider = LiveProvider::new();
        let agent = agent(provider.model()).build().unwrap();
        let guarded = |prompt: Message| Ok(Message::user(prompt.text() + "!"));
        let session = on(&store).guard_prompts(guarded).build().session();
        let running = session.start(&agent, "One");
        let _call = provider.asked().await;
        let mut queued = session.start(&agent, "Two");
        session.steer("Three").await.unwrap();
        assert_eq!(queued.next().await.unwrap().event.kind(), "prompt_queued");
        running.detach();
        queued.detach();
    });
    process(async {
        let provider = ScriptedProvider::by_history().text("1").text("2").text("3");
        let agent = agent(provider.model()).build().unwrap();
        let day = LaterClock::new(Duration::from_secs(86_400));
        let never = |_| Err(Error::new(ErrorKind::InvalidInput, "asked again"));
        let runtime = on(&store).clock(day).guard_prompts(never).build();
        let recovery = runtime.recover(&Agents::new().with(agent)).await.unwrap();
        let session = recovery.resumed[0].session().clone();
        for run in recovery.resumed {
            run.outcome().await.unwrap();
        }
        let session = runtime.open(&session).await.unwrap();
        while session.is_busy() || !session.state().await.unwrap().queue().is_empty() {
            tokio::task::yield_now().await;
        }
        let requests = provider.requests();
        let said = requests.last().unwrap().messages.iter().map(|message| message.text()).collect::<Vec<_>>();
        for prompt in ["One!", "Two!", "Three!"] {
            assert!(said.iter().any(|text| text == prompt), "{said:?}");
        }
    });
}
