//! Maps over lists, conditions, graphs in graphs, and runs in memory.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use entourage_core::{Error, ErrorKind, run::Status};
use entourage_runners::graph::{NodeState, PlanTask, SkipAs, TaskGraph};
use entourage_testkit::Gate;

use crate::{
    common::{memory, runtime_on, stored},
    crew::{Act, Hand, Log, not_done, root, secs, stored_ends},
};

#[tokio::test(start_paused = true)]
async fn a_map_keeps_the_order_of_its_items_and_its_own_limit() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let graph = TaskGraph::builder("map");
    let list = graph.step("list", (), |()| async { Ok(vec![5_u64, 1, 4, 2, 3]) });
    let (running, peak) = (Arc::clone(&now), Arc::clone(&most));
    let each = graph
        .map("each", &list, move |item: u64| {
            let (running, peak) = (Arc::clone(&running), Arc::clone(&peak));
            async move {
                peak.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(secs(item)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                Ok(item * 10)
            }
        })
        .at_once(2);
    let sum = graph.step("sum", &each, |each| async move { Ok(format!("{each:?}")) });
    let graph = graph.returning(&sum).build().unwrap();
    assert_eq!(*graph.ask("Go").await.unwrap(), "[50, 10, 40, 20, 30]");
    assert_eq!(most.load(Ordering::SeqCst), 2);
    let report = graph.run("Go").await.unwrap().report();
    let ids: Vec<_> = report.nodes.iter().map(|node| &*node.id).collect();
    assert_eq!(ids, ["list", "each", "sum", "each[0]", "each[1]", "each[2]", "each[3]", "each[4]"]);
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_is_an_empty_list() {
    let graph = TaskGraph::builder("empty");
    let list = graph.step("list", (), |()| async { Ok(Vec::<u32>::new()) });
    let each = graph.map("each", &list, |item| async move { Ok(item) });
    let graph = graph.returning(&each).build().unwrap();
    assert!(graph.ask("Go").await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_agent_works_on_each_item_and_items_are_repeated_alone() {
    let store = memory();
    let hand = Hand::new("hand").on("b", [Act::Fail("not yet")]);
    let graph = TaskGraph::builder("review");
    let files = graph.step("files", (), |()| async { Ok(["a", "b", "c"].map(str::to_owned).to_vec()) });
    let each = graph
        .map_agent("each", &files, &hand, |file: String| format!("{file} is to be reviewed"))
        .attempts(2);
    let graph = graph.agent_limit("hand", 3).returning(&each).build().unwrap();
    let outcome = runtime_on(&store).session_with_id(root()).start(&graph, "Go").outcome().await.unwrap();
    assert_eq!(outcome.text, r#"["a done","b done","c done"]"#);
    assert_eq!((hand.log.count("a starts"), hand.log.count("b starts")), (1, 2));
    let ends = stored_ends(&store, &root()).await;
    assert_eq!(ends.keys().collect::<Vec<_>>(), ["each", "each[0]", "each[1]", "each[2]", "files"]);
}

#[tokio::test(start_paused = true)]
async fn an_item_that_fails_fails_the_map_or_leaves_a_gap() {
    let build = |partial: bool| {
        let graph = TaskGraph::builder("gaps");
        let list = graph.step("list", (), |()| async { Ok(vec![1_u32, 2, 3]) });
        let each = graph.map("each", &list, |item: u32| async move {
            if item == 2 { Err(Error::new(ErrorKind::Tool, "two is bad")) } else { Ok(item) }
        });
        if partial {
            let each = each.partial();
            graph.step("end", &each, |each| async move { Ok(format!("{each:?}")) });
        } else {
            graph.step("end", &each, |each| async move { Ok(format!("{each:?}")) });
        }
        graph.build().unwrap()
    };
    assert_eq!(*build(true).ask("Go").await.unwrap(), "[Some(1), None, Some(3)]");
    let run = build(false).run("Go").await.unwrap();
    assert_eq!(not_done(&run.outcome), (vec!["each".into()], vec![], vec!["end".into()]));
    let told = run.outcome.status.to_string();
    assert!(told.contains("1 of 3 items have no output; each[1] failed: two is bad"), "{told}");
    assert_eq!(run.report().node("each[2]").unwrap().state(), NodeState::Completed);
}

#[tokio::test(start_paused = true)]
async fn lo13_a_map_is_tried_again_where_it_failed_and_its_items_are_changed_like_nodes() {
    let log = Log::default();
    let (hold, slow) = (Gate::new(), Gate::new());
    let hand = Hand::logging("hand", &log)
        .on("b", [Act::Fail("no")])
        .on("hold", [Act::Wait(hold.clone())])
        .on("c", [Act::Wait(slow.clone())]);
    let graph = TaskGraph::builder("again").limit_each_agent(9);
    let files = graph.step("files", (), |()| async { Ok(["a", "b", "c"].map(str::to_owned).to_vec()) });
    let each = graph.map_agent("each", &files, &hand, |file: String| file);
    graph.step("end", &each, |each| async move { Ok(each.len()) });
    graph.agent("hold", &hand, "hold");
    let graph = graph.build().unwrap();
    let store = memory();
    let run = runtime_on(&store).session_with_id(root()).start(&graph, "Go");
    let control = graph.control(&run);
    slow.arrived(1).await;
    hold.arrived(1).await;
    control.add(PlanTask::new("more", "hand", "more").after(["each"])).await.unwrap();
    slow.open();
    while control.report().await.unwrap().node("each").unwrap().state() != NodeState::Failed {
        tokio::task::yield_now().await;
    }
    control.retry("each").await.unwrap();
    hold.open();
    let outcome = run.outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Completed, "{:?}", log.all());
    assert_eq!((log.count("a starts"), log.count("b starts"), log.count("c starts")), (1, 2, 1));
    let asked = "hand is asked: more\n\n<result of=\"each\">\n[\"a done\",\"b done\",\"c done\"]\n</result>";
    assert_eq!(log.count(asked), 1, "{:?}", log.all());
}

#[tokio::test(start_paused = true)]
async fn lo13_a_map_that_runs_is_skipped_with_its_items() {
    let hand = Hand::new("hand").on("a", [Act::Hang]);
    let graph = TaskGraph::builder("skips");
    let files = graph.step("files", (), |()| async { Ok(["a", "b"].map(str::to_owned).to_vec()) });
    let each = graph.map_agent("each", &files, &hand, |file: String| file);
    graph.agent("end", &hand, "end").after(&each);
    let graph = graph.build().unwrap();
    let run = graph.start("Go");
    let control = graph.control(&run);
    while hand.running() == 0 {
        tokio::task::yield_now().await;
    }
    control.skip("each", SkipAs::Satisfied).await.unwrap();
    assert_eq!(run.outcome().await.unwrap().text, "end done");
    assert_eq!((hand.log.count("a is cancelled"), hand.log.count("b starts")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_router_takes_one_way_and_the_ways_meet_again() {
    for (ask, expected) in [("bug", "fixed"), ("wish", "planned")] {
        let graph = TaskGraph::builder("router");
        let kind = graph.step("kind", graph.input(), |text| async move { Ok((*text).clone()) });
        let fix =
            graph.step("fix", (), |()| async { Ok("fixed".to_owned()) }).when(&kind, |kind| kind == "bug");
        let plan = graph
            .step("plan", (), |()| async { Ok("planned".to_owned()) })
            .when(&kind, |kind| kind == "wish");
        let end = graph.step("end", (fix.optional(), plan.optional()), |(fix, plan)| async move {
            Ok(fix.or(plan).map(|it| (*it).clone()).unwrap_or_default())
        });
        let graph = graph.returning(&end).build().unwrap();
        let run = graph.run(ask).await.unwrap();
        assert_eq!(run.outcome.status, Status::Completed);
        assert_eq!(run.output.unwrap().as_str(), expected);
    }
    let graph = TaskGraph::builder("none");
    let kind = graph.step("kind", (), |()| async { Ok(1_u32) });
    let end = graph.step("end", &kind, |kind| async move { Ok(*kind) }).when(&kind, |kind| *kind > 1);
    let graph = graph.returning(&end).build().unwrap();
    let run = graph.run("Go").await.unwrap();
    assert_eq!(
        run.outcome.status.to_string(),
        "stopped: not all tasks were done: skipped: `end (the condition after kind did not hold)`"
    );
}

#[tokio::test(start_paused = true)]
async fn a_graph_is_a_node_of_another_and_its_value_comes_back_as_it_was() {
    let store = memory();
    let inner = TaskGraph::builder("inner");
    let words = inner.step("words", inner.input(), |text| async move {
        Ok(text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    });
    let inner = inner.returning(&words).build().unwrap();
    let outer = TaskGraph::builder("outer");
    let words = outer.graph_with("words", &inner, outer.input(), |text| (*text).clone());
    let count = outer.step("count", &words, |words| async move { Ok(words.len()) });
    let outer = outer.returning(&count).build().unwrap();
    let session = runtime_on(&store).session_with_id(root());
    assert_eq!(session.start(&outer, "one two three").outcome().await.unwrap().text, "3");
    let events = stored(&store, &root()).await;
    let report = entourage_runners::graph::GraphReport::from_events(&events).unwrap();
    let child = report.node("words").unwrap().child.clone().unwrap();
    assert_eq!(stored_ends(&store, &child).await["words"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_graph_below_that_fails_is_a_failed_node() {
    let inner = TaskGraph::builder("inner");
    inner.step("bad", (), |()| async { Err::<String, _>(Error::new(ErrorKind::Tool, "no luck")) });
    let inner = inner.build().unwrap();
    let outer = TaskGraph::builder("outer");
    outer.graph("below", &inner, "Do it");
    let run = outer.build().unwrap().run("Go").await.unwrap();
    let told = run.outcome.status.to_string();
    assert!(
        told.contains("`below` failed (stopped: not all tasks were done: `bad` failed (no luck))"),
        "{told}"
    );
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_nodes_in_a_chain_neither_recurse_nor_wait() {
    let graph = TaskGraph::builder("chain");
    let mut last = graph.step("n0", (), |()| async { Ok(0_u32) });
    for node in 1..10_000 {
        last = graph.step(format!("n{node}"), &last, |before| async move { Ok(*before + 1) });
    }
    let graph = graph.returning(&last).build().unwrap();
    assert_eq!(*graph.ask("Go").await.unwrap(), 9_999);
    let broken = TaskGraph::builder("broken");
    let mut last = broken.step("n0", (), |()| async { Err(Error::new(ErrorKind::Tool, "no")) });
    for node in 1..10_000 {
        last = broken.step(format!("n{node}"), &last, |before: Arc<u32>| async move { Ok(*before + 1) });
    }
    let run = broken.build().unwrap().run("Go").await.unwrap();
    assert_eq!(not_done(&run.outcome).2.len(), 9_999);
}

#[tokio::test(start_paused = true)]
async fn a_graph_of_steps_that_never_wait_is_cancelled_too() {
    let graph = TaskGraph::builder("busy").limit(1);
    let mut last = graph.step("n0", (), |()| async { Ok(()) });
    for node in 1..5_000 {
        last = graph.step(format!("n{node}"), &last, |_| async { Ok(()) });
    }
    let graph = graph.build().unwrap();
    let run = graph.start("Go");
    tokio::task::yield_now().await;
    run.cancel();
    assert_eq!(run.outcome().await.unwrap().status, Status::Cancelled);
}
