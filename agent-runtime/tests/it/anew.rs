//! Sessions that are deleted while something is under way or waits in them, and made anew under the same id: nothing of
//! the old one gets into the new one, and whoever worked in the old one is told.

use std::time::Duration;

use entourage_core::{
    ErrorKind, SessionId, SystemClock, Timestamp,
    event::Envelope,
    run::Status,
    session::{Lease, SessionFilter, SharedStore},
    tool::{Access, Repeat},
};
use entourage_runners::ReactAgent;
use entourage_runtime::permission::Policy;
use entourage_runtime::{Agents, Mode, Runtime, Session};
use entourage_testkit::{self as testkit, FakeTool, Gate, ScriptedProvider};
use serde_json::json;

use crate::common::{LaterClock, agent, count, memory, stored};

/// Two sessions are made at two times: a paused clock would stand still between them.
fn runtime(store: &SharedStore) -> Runtime {
    let runtime = testkit::runtime().clock(SystemClock).policy(Policy::allow_all());
    runtime.shared_store(store.clone()).build()
}

fn id() -> SessionId {
    SessionId::new("s").unwrap()
}

/// An agent that is at its tool until the gate opens.
fn payer(gate: &Gate) -> ReactAgent {
    let provider = ScriptedProvider::by_history().call("pay", json!({})).text("Paid.").text("Again.");
    let pay = FakeTool::new("pay").access(Access::WRITE).repeat(Repeat::Once).behind(gate);
    agent(provider.model()).tool(pay).build().unwrap()
}

fn asker() -> ReactAgent {
    let provider = ScriptedProvider::by_history().call("pay", json!({})).text("Paid.").text("Again.");
    agent(provider.model()).tool(FakeTool::new("pay").access(Access::WRITE)).build().unwrap()
}

async fn events(store: &SharedStore) -> Vec<Envelope> {
    stored(store, &id()).await
}

/// Appends without a lease, until the session has as many events.
async fn write_on(session: &Session, events: usize) {
    for n in 0..events {
        let mode = format!("m{n}");
        session.set_mode(&mode, &[Mode::new(mode.as_str(), "A mode")]).await.unwrap();
    }
}

async fn is_gone(store: &SharedStore) -> bool {
    store.query(&SessionFilter::all()).await.unwrap().is_empty()
}

#[tokio::test]
async fn a_run_of_a_deleted_session_writes_nothing_in_one_that_appends_without_a_lease() {
    let (store, gate) = (memory(), Gate::new());
    let (one, two) = (runtime(&store), runtime(&store));
    let old = one.session_with_id(id());
    let run = old.start(&payer(&gate), "Pay");
    gate.arrived(1).await;
    let newest = events(&store).await.len();
    two.store().delete(&id()).await.unwrap();
    let new = two.session_with_id(id());
    write_on(&new, newest).await;
    gate.open();
    let error = run.outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.message().contains("deleted"), "{error}");
    assert_eq!(count(&events(&store).await, "mode_changed"), newest);
    assert_eq!(events(&store).await.len(), newest);
    // The new one goes on, and so does the old handle in it, once it was told.
    assert_eq!(new.start(&asker(), "Go").outcome().await.unwrap().status, Status::Completed);
    assert_eq!(old.history().await.unwrap().len(), new.history().await.unwrap().len());
}

#[tokio::test]
async fn a_run_of_a_deleted_session_neither_settles_nor_ends_the_run_of_the_one_made_anew() {
    let store = memory();
    let (first, second) = (Gate::new(), Gate::new());
    let (one, two) = (runtime(&store), runtime(&store));
    let talker = agent(ScriptedProvider::by_history().text("Hi.").model()).build().unwrap();
    let old = one.session_with_id(id());
    old.start(&talker, "Hi").outcome().await.unwrap();
    // Others held it in between, so that the old run's generation is the later one.
    store.lease(&id(), Lease::new(9, 3, Timestamp::default())).await.unwrap();
    let provider = ScriptedProvider::by_history().text("Hi.").call("pay", json!({})).text("Paid.");
    let at_its_tool = |gate: &Gate| {
        let pay = FakeTool::new("pay").access(Access::WRITE).repeat(Repeat::Once).behind(gate);
        agent(provider.model()).tool(pay).build().unwrap()
    };
    let late = old.start(&at_its_tool(&first), "Pay");
    first.arrived(1).await;
    let newest = events(&store).await.len();
    two.store().delete(&id()).await.unwrap();
    let new = two.session_with_id(id());
    new.start(&talker, "Hi").outcome().await.unwrap();
    let run = new.start(&at_its_tool(&second), "Pay");
    second.arrived(1).await;
    assert_eq!(events(&store).await.len(), newest, "the numbers fit");
    first.open();
    let error = late.outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(events(&store).await.len(), newest);
    second.open();
    assert_eq!(run.outcome().await.unwrap().text, "Paid.");
}

#[tokio::test(start_paused = true)]
async fn a_silent_run_of_a_deleted_session_is_cut_short() {
    for anew in [false, true] {
        let (store, gate) = (memory(), Gate::new());
        let timed = || testkit::runtime().policy(Policy::allow_all()).shared_store(store.clone());
        let (one, two) = (timed().build(), timed().clock(LaterClock::new(Duration::from_secs(1))).build());
        let run = one.session_with_id(id()).start(&payer(&gate), "Pay");
        gate.arrived(1).await;
        two.store().delete(&id()).await.unwrap();
        if anew {
            write_on(&two.session_with_id(id()), 2).await;
        }
        let ended = tokio::time::timeout(Duration::from_secs(60), run.outcome()).await;
        let error = ended.expect("its lease cannot be renewed").unwrap_err();
        let expected = if anew { ErrorKind::Conflict } else { ErrorKind::NotFound };
        assert_eq!(error.kind(), expected, "{error}");
        assert!(error.message().contains("deleted"), "{error}");
        assert_eq!(is_gone(&store).await, !anew);
    }
}

#[tokio::test]
async fn a_queued_prompt_of_a_deleted_session_hears_that_it_was_deleted() {
    for (anew, cancels) in [(false, false), (true, false), (false, true), (true, true)] {
        let (store, gate) = (memory(), Gate::new());
        let (one, two) = (runtime(&store), runtime(&store));
        let old = one.session_with_id(id());
        let mut first = old.start(&payer(&gate), "Pay");
        gate.arrived(1).await;
        let second = old.start(&payer(&gate), "Later");
        while count(&events(&store).await, "prompt_queued") == 0 {
            tokio::task::yield_now().await;
        }
        let newest = events(&store).await.len();
        two.store().delete(&id()).await.unwrap();
        if anew {
            write_on(&two.session_with_id(id()), newest).await;
        }
        if cancels {
            old.cancel();
        } else {
            gate.open();
        }
        while first.next().await.is_some() {}
        let ended = second.outcome().await;
        if cancels {
            assert!(matches!(ended, Ok(ref outcome) if outcome.status == Status::Cancelled), "{ended:?}");
        } else {
            let error = ended.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            assert!(error.message().contains("deleted"), "{error}");
        }
        let left = if anew { events(&store).await.len() } else { usize::from(!is_gone(&store).await) };
        assert_eq!(left, if anew { newest } else { 0 }, "nothing is written, and nothing made anew");
    }
}

#[tokio::test]
async fn an_old_handle_resumes_and_signals_nothing_in_a_session_made_anew() {
    let store = memory();
    let (one, two) = (testkit::runtime(), testkit::runtime());
    let build =
        |runtime: entourage_runtime::RuntimeBuilder| runtime.clock(SystemClock).shared_store(store.clone());
    let (one, two) = (build(one).build(), build(two).build());
    let old = one.session_with_id(id());
    let paused = old.start(&asker(), "Pay").outcome().await.unwrap();
    assert!(matches!(paused.status, Status::Paused(_)));
    two.store().delete(&id()).await.unwrap();
    let new = two.session_with_id(id());
    new.start(&asker(), "Another").outcome().await.unwrap();
    let newest = events(&store).await.len();
    for error in [old.signal("go", json!(1)).await.unwrap_err(), {
        // That told the handle of the new one; another old handle still has the old one in mind.
        let third = build(testkit::runtime()).build();
        let other = third.session_with_id(id());
        other.history().await.unwrap();
        two.store().delete(&id()).await.unwrap();
        let new = two.session_with_id(id());
        new.start(&asker(), "A third").outcome().await.unwrap();
        assert_eq!(events(&store).await.len(), newest);
        other.resume(&asker()).outcome().await.unwrap_err()
    }] {
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.message().contains("deleted"), "{error}");
    }
    assert_eq!(events(&store).await.len(), newest);
    let found = two.recover(&Agents::new().with(asker())).await.unwrap();
    assert!(found.resumed.is_empty() && found.skipped.is_empty());
}
