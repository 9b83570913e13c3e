//! Reads of an old session: in windows, at an earlier moment, as lines, and as the start of a fork.

use std::time::Duration;

use entourage_core::{ErrorKind, Money, SessionId, event::Event, session::SharedStore, tool::Access};
use entourage_runtime::{Moment, Session};
use entourage_testkit::{self as testkit, FakeTool, ScriptedProvider};
use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::common::{agent, assert_valid, memory, runtime_on, stored};

/// A session of three runs, the second with a tool, with a checkpoint every few events.
async fn long(store: &SharedStore) -> Session {
    let runtime = testkit::runtime()
        .policy(entourage_runtime::permission::Policy::allow_all())
        .shared_store(store.clone())
        .checkpoint_every(5)
        .build();
    let session = runtime.session();
    for said in ["One.", "Two.", "Three."] {
        let provider = ScriptedProvider::new().call("look", json!({ "at": said })).text(said);
        let agent = agent(provider.model()).tool(FakeTool::new("look").access(Access::READ)).build().unwrap();
        session.start(&agent, format!("Say {said}")).outcome().await.unwrap();
        tokio::time::advance(Duration::from_secs(60)).await;
    }
    session
}

#[tokio::test(start_paused = true)]
async fn design_3_a_session_is_read_in_windows_and_exported_line_by_line() {
    let store = memory();
    let runtime = runtime_on(&store);
    let id = long(&store).await.id().clone();
    let session = runtime.open(&id).await.unwrap();
    let all = stored(&store, &id).await;
    assert_eq!(session.events(0, usize::MAX).await.unwrap(), all);
    assert_eq!(session.events(3, 2).await.unwrap(), all[3..5]);
    assert!(session.events(all.len() as u64, 5).await.unwrap().is_empty());

    let lines: Vec<_> = session.export().collect().await;
    assert_eq!(lines.len(), all.len());
    for (line, event) in lines.into_iter().zip(&all) {
        let line = line.unwrap();
        assert!(!line.contains('\n'));
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&value["seq"], value["kind"].as_str()), (&json!(event.seq), Some(event.event.kind())));
        assert_eq!(Event::from_json(event.event.kind(), &value["data"].to_string()).unwrap(), event.event);
    }
    let unknown = runtime.session();
    assert_eq!(unknown.events(0, 1).await.unwrap_err().kind(), ErrorKind::NotFound);
    let mut export = Box::pin(unknown.export());
    assert_eq!(export.next().await.unwrap().unwrap_err().kind(), ErrorKind::NotFound);
    assert!(export.next().await.is_none(), "an error ends it");
}

#[tokio::test(start_paused = true)]
async fn design_3_the_state_at_a_moment_is_the_fold_up_to_it() {
    let store = memory();
    let runtime = runtime_on(&store);
    let id = long(&store).await.id().clone();
    let session = runtime.open(&id).await.unwrap();
    let all = stored(&store, &id).await;
    assert!(all.iter().any(|event| event.event.kind() == "checkpoint"));
    let mut fold = entourage_core::session::SessionState::default();
    for event in &all {
        fold.apply(event);
        assert_eq!(session.state_at(Moment::Event(event.seq)).await.unwrap(), fold, "event {}", event.seq);
    }
    assert_eq!(session.state_at(Moment::Event(0)).await.unwrap(), Default::default());
    assert_eq!(session.state_at(Moment::Event(u64::MAX)).await.unwrap(), session.state().await.unwrap());
    let ends: Vec<_> = all.iter().filter(|event| event.event.kind() == "run_finished").collect();
    let second = session.state_at(Moment::Time(ends[1].at)).await.unwrap();
    assert_eq!(second.history().last().unwrap().text(), "Two.");
    assert_eq!(second.head().seq, ends[1].seq);
}

#[tokio::test(start_paused = true)]
async fn design_3_a_fork_goes_its_own_way() {
    let store = memory();
    let runtime = runtime_on(&store);
    let id = long(&store).await.id().clone();
    let session = runtime.open(&id).await.unwrap();
    let before = stored(&store, &id).await;
    let second = before.iter().filter(|event| event.event.kind() == "run_finished").nth(1).unwrap().seq;
    let fork = session.fork(Moment::Event(second)).await.unwrap();
    assert_ne!(fork.id(), session.id());
    assert_eq!(fork.history().await.unwrap().last().unwrap().text(), "Two.");
    let head = fork.head().await.unwrap();
    assert_eq!((head.usage.total(), head.cost), (None, Some(Money::default())), "nothing was spent here yet");
    assert_eq!(head.title, session.head().await.unwrap().title);

    let provider = ScriptedProvider::new().text("Another three.");
    let speaker = agent(provider.model()).build().unwrap();
    fork.start(&speaker, "And then?").outcome().await.unwrap();
    assert_eq!(provider.requests()[0].messages.len(), 9, "two runs of four messages, and the prompt");
    assert_eq!(stored(&store, &id).await, before, "the original is what it was");
    let later = runtime_on(&store);
    let again = later.open(fork.id()).await.unwrap();
    assert_eq!(again.history().await.unwrap().last().unwrap().text(), "Another three.");
    assert!(matches!(
        &stored(&store, fork.id()).await[0].event,
        Event::Checkpoint(it) if it.forked.as_ref().is_some_and(|from| from.session == id && from.seq == second)
    ));
    // Of a fork another fork, and one more of its beginning.
    let third = again.fork(Moment::Event(1)).await.unwrap();
    assert_eq!(third.history().await.unwrap().len(), 8);
    runtime.store().delete(&id).await.unwrap();
    assert_eq!(
        again.history().await.unwrap().len(),
        10,
        "it needs nothing of the session that it was taken from"
    );
}

#[tokio::test(start_paused = true)]
async fn design_3_a_fork_within_a_run_leaves_no_call_unanswered() {
    let store = memory();
    let runtime = runtime_on(&store);
    let id = long(&store).await.id().clone();
    let session = runtime.open(&id).await.unwrap();
    for event in stored(&store, &id).await {
        let fork = session.fork(Moment::Event(event.seq)).await.unwrap();
        assert_valid(&fork.history().await.unwrap());
        assert_eq!(fork.unfinished().await.unwrap(), None);
        let provider = ScriptedProvider::new().text("Fine.");
        let speaker = agent(provider.model()).build().unwrap();
        fork.start(&speaker, "Go on").outcome().await.unwrap();
        assert_valid(&provider.requests()[0].messages);
    }
    assert_eq!(session.fork(Moment::Event(0)).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    let unknown = runtime.session_with_id(SessionId::new("nobody").unwrap());
    assert_eq!(unknown.fork(Moment::Event(9)).await.unwrap_err().kind(), ErrorKind::NotFound);
}
