//! Failures: the three ways in which a tool fails, and a store or a provider that fails.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    provider::{CallContext, DeltaStream, FinishReason, Model, Provider, Request},
    tool::Access,
};
use entourage_runtime::Runtime;
use entourage_testkit::{self as testkit, FakeTool, Gate, Script, ScriptedProvider};
use serde_json::json;

use crate::common::{
    Fault, FaultyStore, LaterClock, agent, assert_valid, memory, open_runtime, results, runtime_on,
};

#[tokio::test]
async fn cm06_what_the_model_can_mend_is_told_and_the_loop_goes_on() {
    let provider = ScriptedProvider::new().calls([("bad", json!({})), ("wild", json!({}))]).text("I see.");
    let (bad, wild) =
        (FakeTool::new("bad").telling("no such file"), FakeTool::new("wild").panicking("index 7"));
    let agent = agent(provider.model()).tool(bad.clone()).tool(wild.clone()).build().unwrap();
    let outcome = open_runtime().session().start(&agent, "Go").outcome().await.unwrap();
    assert_eq!(outcome.text, "I see.");
    let message = provider.requests()[1].messages.last().unwrap().clone();
    assert!(message.tool_results().all(|result| result.is_error));
    assert_eq!(results(&message), ["no such file", "the tool panicked: index 7"]);
    assert_eq!((bad.started(), wild.started(), wild.running()), (1, 1, 0));
}

#[tokio::test]
async fn cm06_a_fatal_failure_ends_the_run_once_the_others_are_done() {
    let gate = Gate::new();
    let (first, last) = (FakeTool::new("first").behind(&gate), FakeTool::new("last").access(Access::WRITE));
    // A network error of a tool looks retryable; nothing is tried again all the same.
    let fatal = FakeTool::new("fatal").failing(ErrorKind::Transport, "the line is dead");
    let calls = [("first", json!({})), ("fatal", json!({})), ("last", json!({}))];
    let provider = ScriptedProvider::new().calls(calls).text("Next.");
    let agent =
        agent(provider.model()).tool(first.clone()).tool(fatal.clone()).tool(last.clone()).build().unwrap();
    let session = open_runtime().session();
    let run = session.start(&agent, "Go");
    gate.arrived(1).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!((fatal.finished(), first.running()), (1, 1), "the other call still runs");
    assert!(session.is_busy());
    gate.open();
    let error = run.outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Transport);
    assert!(error.to_string().contains("the line is dead"));
    assert_eq!((first.finished(), fatal.started(), last.started()), (1, 1, 0));
    assert_eq!(provider.count(), 1);

    session.start(&agent, "And now?").outcome().await.unwrap();
    let history = &provider.requests()[1].messages;
    assert_valid(history);
    let told = results(history.get(2).unwrap());
    assert_eq!(told[0], "ok");
    assert!(told[1].contains("the line is dead") && told[2].starts_with("not run"), "{told:?}");
}

#[tokio::test]
async fn cm06_an_agent_that_panics_fails_its_run_and_nothing_else() {
    #[derive(Debug)]
    struct Wild;

    #[async_trait]
    impl Provider for Wild {
        fn name(&self) -> &'static str {
            "wild"
        }

        async fn stream(&self, _: Request, _: &CallContext) -> Result<DeltaStream> {
            panic!("the provider broke down")
        }
    }

    let session = open_runtime().session();
    let wild = agent(Model::new(Arc::new(Wild), "m")).build().unwrap();
    let error = session.start(&wild, "Go").outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert!(error.to_string().contains("the provider broke down"));
    assert!(!session.is_busy());
    let provider = ScriptedProvider::new().text("Here.");
    let calm = agent(provider.model()).build().unwrap();
    assert_eq!(session.start(&calm, "Again").outcome().await.unwrap().text, "Here.");
    assert_valid(&provider.requests()[0].messages);
}

#[tokio::test]
async fn cm06_a_tool_whose_footprint_panics_is_not_run() {
    #[derive(Debug)]
    struct Shy(FakeTool);

    #[async_trait]
    impl entourage_core::tool::Tool for Shy {
        fn spec(&self) -> &entourage_core::tool::ToolSpec {
            self.0.spec()
        }

        async fn call(
            &self,
            input: entourage_core::tool::ToolInput,
            cx: &entourage_core::tool::ToolContext<'_>,
        ) -> Result<entourage_core::tool::ToolOutput, entourage_core::tool::ToolError> {
            self.0.call(input, cx).await
        }

        fn footprint(&self, _: &serde_json::Value) -> entourage_core::tool::Footprint {
            panic!("no path in the arguments")
        }
    }

    let provider = ScriptedProvider::new().call("shy", json!({})).text("I see.");
    let inner = FakeTool::new("shy");
    let agent = agent(provider.model()).tool(Shy(inner.clone())).build().unwrap();
    assert_eq!(open_runtime().session().start(&agent, "Go").outcome().await.unwrap().text, "I see.");
    assert_eq!(inner.started(), 0);
}

#[tokio::test]
async fn cm14_a_store_that_fails_mid_run_ends_it_and_the_session_can_be_opened_again() {
    for at in 0.. {
        let inner = memory();
        let faulty = FaultyStore::new(&inner, at, Fault::Fail);
        let runtime: Runtime = runtime_on(&(faulty as _));
        let provider = ScriptedProvider::by_history().call("write", json!({})).text("Done.");
        let write = FakeTool::new("write").access(Access::WRITE);
        let agent = agent(provider.model()).tool(write.clone()).build().unwrap();
        let session = runtime.session();
        let run = session.start(&agent, "Go").outcome().await;
        assert!(!session.is_busy());
        let Err(error) = run else {
            assert_eq!(at, 4, "start, claim, result, end: four appends");
            break;
        };
        assert_eq!(error.kind(), ErrorKind::Store, "append {at}");
        assert!(write.started() <= 1 && write.running() == 0);

        // The run could not give its lease back; a caller from outside waits until it has expired.
        let later = testkit::runtime().clock(LaterClock::new(Duration::from_secs(31)));
        let again = later.shared_store(Arc::clone(&inner)).build().session_with_id(session.id().clone());
        let provider = ScriptedProvider::new().text("Here again.");
        let agent = crate::common::agent(provider.model()).tool(write).build().unwrap();
        assert_eq!(again.start(&agent, "Again").outcome().await.unwrap().text, "Here again.");
        assert_valid(&provider.requests()[0].messages);
    }
}

#[tokio::test]
async fn cm14_the_same_session_object_recovers_when_its_store_does() {
    let inner = memory();
    let store = FaultyStore::new(&inner, 2, Fault::Fail);
    let runtime = testkit::runtime().shared_store(store).build();
    let provider = ScriptedProvider::new().text("One.");
    let agent = agent(provider.model()).build().unwrap();
    let session = runtime.session();
    session.start(&agent, "First").outcome().await.unwrap();
    let script = Script::new().text("x").finish(FinishReason::Stop);
    let other = ScriptedProvider::by_history().step(script);
    let second = crate::common::agent(other.model()).build().unwrap();
    assert_eq!(session.start(&second, "Second").outcome().await.unwrap_err().kind(), ErrorKind::Store);
    assert_eq!(other.count(), 0, "no model call leaves before its start is stored");
    assert_eq!(session.history().await.unwrap().len(), 2, "what the store has is what there is");
}

#[test]
fn store_f8_a_record_keeps_the_causes_of_its_error() {
    let full =
        || Error::new(ErrorKind::Store, "the write failed").caused_by(std::io::Error::other("no room left"));
    let error = Error::new(ErrorKind::Tool, "the file was not saved").during("save").caused_by(full());
    let told = error.record().to_error();
    let text =
        "the file was not saved (tool, recorded: save, cause: the write failed (store), cause: no room left)";
    assert_eq!(told.to_string(), text);
    assert_eq!(told.record(), error.record());
    assert_eq!(told.record().to_error().to_string(), text, "again and again");
    // What the message says is not said twice.
    let error = Error::new(ErrorKind::Store, "it failed: no room left");
    let error = error.caused_by(std::io::Error::other("no room left"));
    assert_eq!(error.record().context, "");
    // However long the texts and however many they are.
    let mut deep = Error::new(ErrorKind::Store, "0");
    for level in 1..100 {
        deep = Error::new(ErrorKind::Store, format!("{level}{}", "ü".repeat(9_000))).caused_by(deep);
    }
    assert!(deep.record().context.len() <= 16 << 10);
}
