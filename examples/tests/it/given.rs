//! A conversation that the program gives to a session, and values of its own, in each store.

use std::{path::Path, sync::Arc};

use entourage::{
    agent::Step,
    message::Message,
    prelude::*,
    run::Status,
    session::{MemoryStore, SharedStore},
    store::{HybridStore, JsonStore, PostgresStore},
    testkit::{FakeTool, ScriptedProvider},
};
use futures_util::StreamExt;
use serde_json::json;

const STORES: [&str; 5] = ["memory", "json", "sqlite", "hybrid", "postgres"];

/// Opens the store of this name; `None` for a server that is not there.
async fn open(name: &str, directory: &Path) -> Option<SharedStore> {
    Some(match name {
        "json" => Arc::new(JsonStore::open(directory.join("j")).await.unwrap()),
        "sqlite" => Arc::new(SqliteStore::open(directory.join("s.db")).await.unwrap()),
        "hybrid" => Arc::new(HybridStore::open(directory.join("h"), directory.join("h.db")).await.unwrap()),
        "postgres" => {
            let url = std::env::var("DATABASE_URL").ok()?;
            let store = PostgresStore::builder(url).schema("entourage_given_tests").connections(2);
            Arc::new(store.build().await.unwrap())
        }
        _ => Arc::new(MemoryStore::new()),
    })
}

/// Whose session it is. Nothing that is stored may hold it.
#[derive(Debug)]
struct Customer(&'static str);

fn agent(provider: &ScriptedProvider) -> ReactAgent {
    let who = |step: &Step| Ok(format!("A step of {} letters.", step.run.deps::<Customer>()?.0.len()));
    let write = FakeTool::new("write").access(Access::WRITE);
    ReactAgent::builder("a", provider.model()).instructions_with(who).tool(write).build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_given_conversation_goes_on_after_each_store_was_opened_again() {
    for name in STORES {
        let directory = tempfile::tempdir().unwrap();
        let Some(first) = open(name, directory.path()).await else { continue };
        let runtime = Runtime::builder().shared_store(Arc::clone(&first)).dep(Customer("zaphod")).build();
        let session = runtime.session();
        session.begin_with([Message::user("Hi"), Message::assistant("Hello!")]).await.unwrap();
        let one = ScriptedProvider::by_history().text("No.").call("write", json!({})).text("Done.");
        let outcome = session.start(&agent(&one), "Go").outcome().await.unwrap();
        // Replies are told apart by the conversation, and the given one has an answer.
        let Status::Paused(_) = outcome.status else { panic!("{name}: {outcome:?}") };
        let id = session.id().clone();
        drop((session, runtime));

        let second = match name {
            "memory" => first,
            name => {
                drop(first);
                open(name, directory.path()).await.unwrap()
            }
        };
        let runtime = Runtime::builder().shared_store(second).policy(Policy::allow_all()).build();
        let again = runtime.open(&id).await.unwrap().with_dep(Customer("tricia"));
        assert_eq!(again.head().await.unwrap().title.as_ref(), "Hi", "{name}");
        let two = ScriptedProvider::by_history().text("No.").text("No.").text("Done.");
        let outcome = again.resume(&agent(&two)).outcome().await.unwrap();
        assert_eq!(outcome.text, "Done.", "{name}");
        let texts: Vec<_> = again.history().await.unwrap().iter().take(3).map(|it| it.text()).collect();
        assert_eq!(texts, ["Hi", "Hello!", "Go"], "{name}");
        let lines: Vec<_> = again.export().map(Result::unwrap).collect().await;
        assert!(lines[0].contains(r#""given":true"#), "{name}: {}", lines[0]);
        assert!(!lines.iter().any(|line| line.contains("zaphod") || line.contains("tricia")), "{name}");
        assert!(!lines.iter().any(|line| line.contains("Customer")), "{name}");
    }
}
