//! A person who reviews the work of an agent, days later and in other processes, on one file.

use std::path::Path;

use entourage::{agent::Verdict, prelude::*, session::Waiting, testkit::ScriptedProvider, tool::CallId};

async fn process(file: &Path) -> Runtime {
    Runtime::builder().store(SqliteStore::open(file).await.unwrap()).build()
}

/// The one check that waits: its call, the root session and the words that the person reads.
async fn waiting(runtime: &Runtime) -> (CallId, SessionId, String) {
    let pending = runtime.pending().await.unwrap();
    let calls = pending.into_iter().filter_map(|it| match it.waits_for {
        Waiting::Call { id, call } => Some((id, it.root, call.arguments.as_str().to_owned())),
        _ => None,
    });
    let calls: Vec<_> = calls.collect();
    let [call] = calls.as_slice() else { panic!("{calls:?}") };
    call.clone()
}

#[tokio::test]
async fn a_person_reviews_work_from_other_processes_on_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("sessions.db");
    let pair = || {
        let works = ScriptedProvider::by_history();
        let works = works.text("Draft.").text("A draft.").text("Better.").text("A better one.");
        let writer = ReactAgent::builder("writer", works.model()).build().unwrap();
        DualAgent::reviewed_by("pair", writer, "ada").build().unwrap()
    };
    let outcome = process(&file).await.session().start(&pair(), "Write a page").outcome().await.unwrap();
    assert!(matches!(outcome.status, Status::Paused(_)), "{outcome}");

    for (answer, report) in
        [(Verdict::rejected("Add a title."), "A draft."), (Verdict::accepted("It has one."), "A better one.")]
    {
        let reviewer = process(&file).await;
        let (id, root, words) = waiting(&reviewer).await;
        assert!(words.contains(report), "{words}");
        let error = reviewer.answer(&id, "Hm.").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        reviewer.answer(&id, answer).await.unwrap();
        let error = process(&file).await.answer(&id, Verdict::rejected("No.")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");

        let session = process(&file).await.open(&root).await.unwrap();
        let outcome = session.resume(&pair()).outcome().await.unwrap();
        if report == "A better one." {
            assert_eq!((outcome.status, &*outcome.text), (Status::Completed, report));
        } else {
            assert!(matches!(outcome.status, Status::Paused(_)), "{outcome}");
        }
    }
}
