//! Bounds on input from outside: everything that is accepted can be read again.

use std::sync::Arc;

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, SessionId, Usage,
    event::Event,
    message::{Media, MediaSource, Message, Opaque, Part, Role},
    provider::{Delta, FinishReason, Warning, WarningKind},
    run::{Limits, Status},
    session::{Batch, ReadRange, Row, SessionFilter, SharedStore},
    tool::ToolOutput,
};
use entourage_runners::graph::{NodeFinished, TaskGraph};
use entourage_runtime::permission::Policy;
use entourage_runtime::{Mode, Runtime};
use entourage_testkit::{FakeTool, Script, ScriptedProvider};
use serde_json::{Value, json};

use crate::common::{Meddles, Through, act, agent, memory};

fn deep(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!([inner]))
}

fn runtime(store: &SharedStore) -> Runtime {
    Runtime::builder().policy(Policy::allow_all()).shared_store(Arc::clone(store)).build()
}

/// Every stored event, read from the text that a store on disk would have.
async fn reread(store: &SharedStore, session: &SessionId) -> Vec<Event> {
    let rows = store.read(session, ReadRange::all()).await.unwrap();
    let read = |row: Row| {
        let body = row.body().unwrap().into_owned();
        let back = Event::from_json(&row.columns().kind, &body).unwrap();
        assert_eq!(row.into_envelope(session).unwrap().event, back);
        back
    };
    rows.into_iter().map(read).collect()
}

/// Continues the session in a new process.
async fn goes_on(store: &SharedStore, session: &SessionId) -> Vec<Event> {
    let provider = ScriptedProvider::new().text("Still here.");
    let session = runtime(store).open(session).await.unwrap();
    let next = session.start(&agent(provider.model()).build().unwrap(), "And now?").outcome().await.unwrap();
    assert_eq!(next.text, "Still here.");
    reread(store, session.id()).await
}

#[tokio::test]
async fn attack_18_a_signal_that_no_reader_takes_is_refused_before_it_is_stored() {
    let store = memory();
    let session = runtime(&store).session();
    let provider = ScriptedProvider::new().text("Hello.");
    session.start(&agent(provider.model()).build().unwrap(), "Hi").outcome().await.unwrap();
    for levels in [1, 95, 96] {
        session.signal("hook", deep(levels)).await.unwrap();
    }
    let before = reread(&store, session.id()).await.len();
    for levels in [97, 121, 127, 500] {
        let refused = session.signal("hook", deep(levels)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{levels}");
    }
    let refused = session.signal("hook", json!("x".repeat(33 << 20))).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooLarge);
    let refused = session.signal("x".repeat(1_000), json!(1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooLarge);
    assert_eq!(reread(&store, session.id()).await.len(), before);
    goes_on(&store, session.id()).await;
}

#[tokio::test]
async fn attack_18_what_a_model_nests_too_deep_ends_the_reply_and_not_the_session() {
    let block = |levels| Delta::Opaque(Box::new(Opaque::new("wire", deep(levels))));
    for levels in [96, 97, 126] {
        let store = memory();
        let script = Script::new().text("One. ").delta(block(levels)).text("Two.").finish(FinishReason::Stop);
        let provider = ScriptedProvider::new().step(script);
        let session = runtime(&store).session();
        let ended = session.start(&agent(provider.model()).build().unwrap(), "Go").outcome().await;
        match (levels, ended) {
            (96, Ok(outcome)) => assert_eq!(outcome.status, Status::Completed),
            (_, Err(error)) => assert_eq!(error.kind(), ErrorKind::Protocol, "{error}"),
            (levels, ended) => panic!("{levels}: {ended:?}"),
        }
        goes_on(&store, session.id()).await;
    }
}

#[tokio::test]
async fn attack_17_blocks_count_as_the_memory_that_they_take() {
    let block: Value = serde_json::from_str(&format!("[{}[]]", "[],".repeat(200_000))).unwrap();
    let mut script = Script::new();
    for _ in 0..4 {
        script = script.delta(Delta::Opaque(Box::new(Opaque::new("wire", block.clone()))));
    }
    let provider = ScriptedProvider::new().step(script.finish(FinishReason::Stop));
    let store = memory();
    let session = runtime(&store).session();
    let error = session.start(&agent(provider.model()).build().unwrap(), "Go").outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    // 2.4 MB of text were sent; four of them take more than 32 MiB.
    let block = Opaque::new("wire", block);
    assert!(Arc::ptr_eq(&block.data, &block.clone().data), "a copy of a block shares what it holds");
    goes_on(&store, session.id()).await;
}

#[tokio::test]
async fn attack_07_what_a_tool_returns_beside_text_has_a_bound() {
    let store = memory();
    let media = Media::new("image/png", MediaSource::Base64("A".repeat(40 << 20)));
    let output =
        ToolOutput::text("x".repeat(1 << 20)).with_media(media).with_metadata(json!("A".repeat(40 << 20)));
    let provider = ScriptedProvider::new().call("look", json!({})).text("Done.");
    let agent = agent(provider.model()).tool(FakeTool::new("look").giving(output)).build().unwrap();
    let session = runtime(&store).session();
    session.start(&agent, "Go").outcome().await.unwrap();
    let events = goes_on(&store, session.id()).await;
    let finished = events.iter().find(|event| event.kind() == "tool_finished").unwrap();
    let bytes = finished.to_json().unwrap().len();
    assert!(bytes < Limits::default().tool_output + 1_000, "{bytes}");
    let Event::ToolFinished(call) = finished else { panic!("{finished:?}") };
    let told = call.result.to_text();
    assert!(told.contains("a file of 419") && told.contains("metadata left out"), "{:.300}", told);
}

#[tokio::test]
async fn attack_43_ids_names_and_words_of_a_reply_have_a_bound() {
    let long = "c".repeat(4 << 20);
    let info =
        entourage_core::provider::ResponseInfo::new(Some(long.clone().into()), Some(long.clone().into()));
    let script = Script::new()
        .delta(Delta::Response(Box::new(info)))
        .delta(Delta::Warning(Box::new(Warning::new(WarningKind::Other, &*long, &*long))))
        .delta(Delta::tool_call(0, &*long, "look"))
        .delta(Delta::arguments(0, "{}"))
        .delta(Delta::tool_call(1, "c1", &*long))
        .delta(Delta::arguments(1, "{}"))
        .finish(FinishReason::ToolCalls);
    let provider = ScriptedProvider::new().step(script).text("Done.");
    let look = FakeTool::new("look");
    let agent = agent(provider.model()).tool(look.clone()).build().unwrap();
    let store = memory();
    let session = runtime(&store).session();
    session.start(&agent, "Go").outcome().await.unwrap();
    assert_eq!(look.started(), 1, "the call with an id that is none is run under another");
    for event in goes_on(&store, session.id()).await {
        let bytes = event.to_json().unwrap().len();
        assert!(bytes < 40_000, "{} takes {bytes} bytes", event.kind());
    }
}

#[tokio::test]
async fn attack_04_figures_that_cannot_be_true_are_unknown_and_no_sum_outgrows_a_store() {
    let claims = |tokens| Script::new().text("Hm.").usage(tokens, 1).finish(FinishReason::Stop);
    let provider = ScriptedProvider::new().step(claims(9_223_372_036_854_775_800)).step(claims(7));
    let agent = agent(provider.model()).without_compaction().build().unwrap();
    let store = memory();
    let session = runtime(&store).session();
    for prompt in ["One", "Two"] {
        session.start(&agent, prompt).outcome().await.unwrap();
    }
    assert_eq!(session.head().await.unwrap().usage, Usage::new(7, 2));
    let most = i64::MAX.unsigned_abs();
    let sum: Usage = [Usage::new(u64::MAX, most), Usage::new(1, most), Usage::default()].into_iter().sum();
    assert_eq!((sum, sum.total()), (Usage::new(most, most), Some(most)));
}

#[tokio::test]
async fn attack_18_a_prompt_that_cannot_be_read_again_stores_nothing() {
    let store = memory();
    let session = runtime(&store).session();
    let agent = agent(ScriptedProvider::new().model()).build().unwrap();
    for block in [deep(97), deep(126), json!("[],".repeat(12 << 20))] {
        let parts = vec![Part::Text("Hi".into()), Part::Opaque(Opaque::new("wire", block))];
        let refused = session.start(&agent, Message::new(Role::User, parts)).outcome().await.unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::InvalidInput | ErrorKind::TooLarge), "{refused}");
    }
    assert!(store.query(&SessionFilter::all()).await.unwrap().is_empty());
}

#[tokio::test]
async fn attack_18_a_node_whose_value_no_reader_takes_fails() {
    let graph = TaskGraph::builder("g");
    graph.step("deep", (), |()| async { Ok(deep(120)) });
    let graph = graph.build().unwrap();
    let store = memory();
    let session = runtime(&store).session();
    let ended = session.start(&graph, "Go").outcome().await;
    assert!(!matches!(&ended, Ok(outcome) if outcome.status == Status::Completed), "{ended:?}");
    let events = goes_on(&store, session.id()).await;
    let ends: Vec<String> = events
        .iter()
        .filter_map(|event| event.record::<NodeFinished>().unwrap())
        .map(|it| format!("{} {}", it.node, it.end))
        .collect();
    assert!(
        ends.iter().any(|end| end.starts_with("deep failed") && end.contains("nests deeper")),
        "{ends:?}"
    );
}

/// A store with a small limit for one append.
#[derive(Debug)]
struct Narrow {
    inner: SharedStore,
    most: usize,
}

#[async_trait]
impl Meddles for Narrow {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        let bytes: usize = batch.rows.iter().map(|row| row.body().unwrap().len()).sum();
        if bytes > self.most {
            return Err(Error::new(ErrorKind::TooLarge, format!("{bytes} bytes are too many")));
        }
        self.inner.append(session, expected, batch).await
    }

    fn largest_batch(&self) -> usize {
        self.most
    }
}

/// Five results that are ready together exceed one append, and the state soon exceeds a checkpoint.
#[tokio::test]
async fn attack_23_a_checkpoint_over_a_stores_limit_is_left_out_and_a_batch_is_cut() {
    let store: SharedStore = Arc::new(Through(Narrow { inner: memory(), most: 200_000 }));
    let open = || {
        Runtime::builder()
            .policy(Policy::allow_all())
            .shared_store(Arc::clone(&store))
            .checkpoint_every(1)
            .build()
    };
    let id = SessionId::new("s").unwrap();
    let small = agent(ScriptedProvider::by_history().text("a").text("b").text("c").model()).build().unwrap();
    for _ in 0..3 {
        open().session_with_id(id.clone()).start(&small, "Hi").outcome().await.unwrap();
    }
    for prompt in 1..=4 {
        let session = open().session_with_id(id.clone());
        let mut script = Script::new();
        for n in 0..5 {
            script = script.call("look", &json!({ "n": n }));
        }
        let provider = ScriptedProvider::new()
            .step(script.finish(FinishReason::ToolCalls))
            .text(format!("Done {prompt}."));
        // A control character takes six bytes in JSON.
        let look = FakeTool::new("look").returning("\u{1}".repeat(20_000));
        let agent = agent(provider.model()).without_compaction().tool(look).build().unwrap();
        let outcome = session.start(&agent, format!("prompt {prompt}")).outcome().await.unwrap();
        assert_eq!(outcome.text, format!("Done {prompt}."));
    }
    let events = goes_on(&store, &id).await;
    let count = |kind: &str| events.iter().filter(|event| event.kind() == kind).count();
    assert_eq!((count("tool_finished"), count("run_finished")), (20, 8));
    assert!(count("checkpoint") >= 1, "while it fits there is one");
    let sizes = events.iter().map(|event| event.to_json().unwrap().len());
    assert!(sizes.max() < Some(200_000));
}

#[tokio::test]
async fn what_an_agent_by_hand_says_at_its_end_is_stored_within_bounds() {
    let store = memory();
    let session = runtime(&store).session();
    let talker = act(|_| Box::pin(async { Ok("x".repeat(40 << 20)) }));
    let outcome = session.start(&talker, "Go").outcome().await.unwrap();
    assert_eq!(outcome.text.len(), 40 << 20, "who waits for it gets all of it");
    let rows = store.read(session.id(), ReadRange::all()).await.unwrap();
    assert!(rows.iter().all(|row| row.body().unwrap().len() < 33 << 20));
}

#[tokio::test]
async fn issue_11_the_id_of_a_mode_is_bounded_before_it_is_stored() {
    let store = memory();
    let session = runtime(&store).session();
    for (bytes, kind) in [(512, None), (513, Some(ErrorKind::TooLarge)), (1 << 20, Some(ErrorKind::TooLarge))]
    {
        let id = "m".repeat(bytes);
        let picked = session.set_mode(&id, &[Mode::new(id.as_str(), "A mode")]).await;
        assert_eq!(picked.err().map(|error| error.kind()), kind, "{bytes} bytes");
    }
    assert_eq!(session.mode().await.unwrap().map(|mode| mode.len()), Some(512));
}
