//! The tools over the current directory open it at their first call. This test is alone in its process, since it
//! changes the current directory.

#![cfg(all(feature = "fs", unix))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod common;

use std::env;

use entourage_runtime::Runtime;
use entourage_tools::fs;
use serde_json::json;

#[tokio::test]
async fn the_current_directory_is_taken_at_the_first_call_and_kept() {
    let (gone, first, second) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (dir, text) in [(&first, "first"), (&second, "second")] {
        std::fs::write(dir.path().join("a.txt"), text).unwrap();
    }
    env::set_current_dir(gone.path()).unwrap();
    drop(gone);
    let tools = vec![fs::view(), fs::ls(), fs::glob(), fs::grep()];
    let runtime = Runtime::in_memory();
    let calls = || {
        vec![
            ("view", json!({ "path": "a.txt" })),
            ("ls", json!({})),
            ("glob", json!({ "pattern": "*" })),
            ("grep", json!({ "pattern": "first" })),
        ]
    };
    for result in common::call_all(&runtime, tools.clone(), calls()).await {
        assert!(result.is_error && result.to_text().contains("no current directory"), "{}", result.to_text());
    }
    for dir in [&first, &second] {
        env::set_current_dir(dir.path()).unwrap();
        let results = common::call_all(&runtime, tools.clone(), calls()).await;
        assert!(results.iter().all(|result| !result.is_error), "{results:?}");
        assert_eq!(results[0].to_text(), "     1\tfirst");
        assert!(results[3].to_text().starts_with("1 line matches"), "{}", results[3].to_text());
    }
}
