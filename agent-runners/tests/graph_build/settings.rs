//! Settings that determine the order of nodes.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use entourage_runners::graph::{Durations, TaskGraph};

/// Returns the order in which three steps run one at a time; the second one declares its duration itself.
async fn order(durations: &Durations) -> Vec<&'static str> {
    let ran = Arc::new(Mutex::new(Vec::new()));
    let graph = TaskGraph::builder("order");
    let step = |id: &'static str| {
        let ran = Arc::clone(&ran);
        graph.step(id, (), move |()| {
            ran.lock().unwrap().push(id);
            async { Ok(()) }
        })
    };
    step("a");
    step("b").expected(Duration::from_secs(30));
    step("c");
    graph.limit(1).durations(durations).build().unwrap().run("x").await.unwrap();
    let ran = ran.lock().unwrap();
    ran.clone()
}

#[tokio::test]
async fn lo07_what_is_expected_to_take_longest_goes_first_and_what_a_node_says_itself_counts() {
    assert_eq!(order(&Durations::new()).await, ["b", "a", "c"]);
    let mut durations = Durations::new();
    durations.learn("a", Duration::from_secs(10));
    durations.learn("b", Duration::from_secs(500));
    durations.learn("c", Duration::from_secs(100));
    assert_eq!(order(&durations).await, ["c", "b", "a"]);
}
