//! Pauses, crashes and restarts: a completed node never runs again, and an attempt in flight continues.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use entourage_core::{
    Error, ErrorKind,
    event::Event,
    permission::Decision,
    provider::Size,
    run::{Outcome, Pause, Status},
    session::{SessionFilter, SharedStore},
    tool::Access,
};
use entourage_runners::{
    ReactAgent,
    graph::{GraphReport, NodeFinished, NodeStarted, NodeState, PlanTask, SkipAs, TaskGraph},
};
use entourage_runtime::permission::Policy;
use entourage_runtime::{RunHandle, Runtime};
use entourage_testkit::{self as testkit, FakeTool, Gate, ScriptedProvider};
use serde_json::json;

use crate::{
    common::{Fault, FaultyStore, LaterClock, count, memory, process, runtime_on, stored, until_killed},
    crew::{Act, Hand, Log, root, secs, stored_ends},
};

fn resume_on(
    store: &SharedStore,
    graph: &TaskGraph,
) -> impl Future<Output = entourage_core::Result<Outcome>> {
    runtime_on(store).session_with_id(root()).resume(graph).outcome()
}

/// Two agents that wait for permission to pay, one beside them that does not, and a node that depends on all.
fn payers(pay: &FakeTool, log: &Log) -> TaskGraph {
    let payer = |name| {
        let provider = ScriptedProvider::by_history().call("pay", json!({})).text("Paid.");
        ReactAgent::builder(name, provider.model()).tool(pay.clone()).build().unwrap()
    };
    let graph = TaskGraph::builder("shop").limit(1);
    let one = graph.agent("one", &payer("ann"), "Pay.");
    let two = graph.agent("two", &payer("bob"), "Pay.");
    let other = graph.agent("other", &Hand::logging("other", log), "other");
    graph.agent("end", &Hand::logging("last", log), "end it").after((&one, &two, &other));
    graph.build().unwrap()
}

#[test]
fn design_3_an_approval_inside_a_child_inside_a_node_pauses_the_graph_when_nothing_else_is_left() {
    let (store, pay) = (memory(), FakeTool::new("pay").access(Access::WRITE).returning("paid"));
    let mut asked = Vec::new();
    for life in 0..4 {
        let log = Log::default();
        let runtime = || {
            testkit::runtime().policy(Policy::allow_all().ask("pay")).shared_store(Arc::clone(&store)).build()
        };
        let outcome = process(async {
            let graph = payers(&pay, &log);
            let runtime: Runtime = runtime();
            let session = runtime.session_with_id(root());
            let Some(question) = asked.last() else {
                return session.start(&graph, "Go").outcome().await.unwrap();
            };
            let asking = entourage_core::permission::ApprovalId::as_str(question).rsplit_once('.').unwrap().0;
            let asking = entourage_core::SessionId::new(asking).unwrap();
            runtime.open(&asking).await.unwrap().decide(question, Decision::Allow).await.unwrap();
            session.resume(&graph).outcome().await.unwrap()
        });
        // A limit of one: an agent that waits for permission does not block the others.
        assert_eq!(log.count("other starts"), usize::from(life == 0));
        match outcome.status {
            Status::Paused(Pause::Approval(question)) => asked.push(question),
            status => {
                assert_eq!((life, status), (2, Status::Completed));
                assert_eq!(log.count("end starts"), 1);
                break;
            }
        }
    }
    assert_eq!((asked.len(), pay.started()), (2, 2));
    assert_ne!(asked[0], asked[1]);
    process(async {
        let children = store.query(&SessionFilter::children_of(root())).await.unwrap();
        assert_eq!(children.len(), 4, "each went on in its session");
        let events = stored(&store, &root()).await;
        assert_eq!(count(&events, "record:graph.node_started"), 4);
        assert_eq!(count(&events, "record:graph.started"), 1);
    });
}

#[test]
fn design_3_a_signal_wakes_a_node() {
    let store = memory();
    let build = |log: &Log| {
        let graph = TaskGraph::builder("wakes");
        let hand = Hand::logging("hand", log).on("wait", [Act::Signal("go")]);
        graph.agent("wait", &hand, "wait");
        graph.build().unwrap()
    };
    process(async {
        let graph = build(&Log::default());
        let outcome = runtime_on(&store).session_with_id(root()).start(&graph, "Go").outcome().await.unwrap();
        assert!(matches!(outcome.status, Status::Paused(Pause::Signal { .. })), "{outcome:?}");
    });
    process(async {
        let child =
            GraphReport::from_events(&stored(&store, &root()).await).unwrap().nodes[0].child.clone().unwrap();
        let runtime = runtime_on(&store);
        runtime.open(&child).await.unwrap().signal("go", json!("now")).await.unwrap();
        let outcome =
            runtime.session_with_id(root()).resume(&build(&Log::default())).outcome().await.unwrap();
        assert_eq!(outcome.text, "\"now\"");
    });
}

#[test]
fn design_3_a_graph_that_is_asked_to_pause_does_so_before_its_next_node() {
    let store = memory();
    let build = |log: &Log, gate: &Gate| {
        let graph = TaskGraph::builder("asked");
        let hand = Hand::logging("hand", log).on("one", [Act::Wait(gate.clone())]);
        let one = graph.agent("one", &hand, "one");
        graph.agent("two", &hand, "two").after(&one);
        graph.build().unwrap()
    };
    let log = Log::default();
    process(async {
        let gate = Gate::new();
        let run = runtime_on(&store).session_with_id(root()).start(&build(&log, &gate), "Go");
        gate.arrived(1).await;
        run.pause();
        gate.open();
        assert_eq!(run.outcome().await.unwrap().status, Status::Paused(Pause::Asked));
        assert_eq!(stored_ends(&store, &root()).await.len(), 1);
    });
    process(async {
        let outcome = resume_on(&store, &build(&log, &Gate::new())).await.unwrap();
        assert_eq!(outcome.text, "two done");
        assert_eq!((log.count("one starts"), log.count("two starts")), (1, 1));
    });
}

#[test]
fn a_resumed_graph_shows_what_was_over_and_what_continues() {
    let (store, log) = (memory(), Log::default());
    let build = |gate: Option<&Gate>| {
        let wait = gate.map(|gate| Act::Wait(gate.clone()));
        let coder = Hand::logging("coder", &log).on("backend", wait);
        let graph = TaskGraph::builder("login");
        let schema = graph.step("schema", (), |()| async { Ok("a table".to_owned()) });
        let backend = graph.agent("backend", &coder, "backend").after(&schema);
        graph.agent("tests", &coder, "tests").after(&backend);
        graph.build().unwrap()
    };
    let progress = |mut run: RunHandle| async move {
        let mut told = Vec::new();
        while let Some(event) = run.next().await {
            if let Event::Progress(progress) = event.event {
                told.push((progress.call.clone(), progress.text.clone()));
            }
        }
        told
    };
    process(async {
        let gate = Gate::new();
        runtime_on(&store).session_with_id(root()).start(&build(Some(&gate)), "Go").detach();
        gate.arrived(1).await;
    });
    process(async {
        let told = progress(runtime_on(&store).session_with_id(root()).resume(&build(None))).await;
        let told: Vec<_> = told.iter().map(|(call, text)| (call.as_str(), text.as_str())).collect();
        assert_eq!(told, [("", "1 of 3 are over: schema"), ("backend", "continues backend, attempt 1")]);
    });
    process(async {
        let fresh = progress(runtime_on(&memory()).session_with_id(root()).start(&build(None), "Go")).await;
        assert_eq!(fresh, [], "a run that begins found nothing");
    });
}

#[test]
fn design_3_the_login_graph_is_killed_with_two_nodes_in_flight_and_goes_on() {
    let store = memory();
    let log = Log::default();
    let build = |gate: Option<&Gate>| {
        let mut coder = Hand::logging("coder", &log);
        let mut artist = Hand::logging("artist", &log);
        if let Some(gate) = gate {
            coder = coder.on("backend", [Act::Wait(gate.clone())]);
            artist = artist.on("design", [Act::Wait(gate.clone())]);
        }
        let graph = TaskGraph::builder("login");
        let schema = graph.step("schema", (), {
            let log = log.clone();
            move |()| {
                log.note("schema starts");
                async { Ok("a table".to_owned()) }
            }
        });
        let backend = graph.agent("backend", &coder, "backend").after(&schema);
        let design = graph.agent("design", &artist, "design");
        graph.agent("tests", &coder, "tests").after((&backend, &design));
        graph.build().unwrap()
    };
    process(async {
        let gate = Gate::new();
        runtime_on(&store).session_with_id(root()).start(&build(Some(&gate)), "Go").detach();
        gate.arrived(2).await;
    });
    process(async {
        let stored_before = stored(&store, &root()).await;
        let before: Vec<_> = stored_before.iter().map(|it| it.event.kind()).collect();
        let outcome = resume_on(&store, &build(None)).await.unwrap();
        assert_eq!(outcome.text, "tests done");
        let events = stored(&store, &root()).await;
        let after: Vec<_> = events.iter().skip(before.len()).map(|it| it.event.kind()).collect();
        assert_eq!(
            after,
            [
                "run_resumed",
                "record:graph.node_finished",
                "record:graph.node_finished",
                "record:graph.node_started",
                "record:graph.node_finished",
                "run_finished"
            ],
            "both went on in the attempts that they were in"
        );
        let asked = "coder is asked: backend\n\n<result of=\"schema\">\na table\n</result>";
        assert_eq!((log.count("schema starts"), log.count("backend starts"), log.count(asked)), (1, 2, 2));
        assert_eq!(store.query(&SessionFilter::children_of(root())).await.unwrap().len(), 3);
    });
}

#[test]
fn a_changed_graph_refuses_to_resume_and_says_what_differs() {
    let store = memory();
    let build = |version: &str, gate: &Gate, more: bool| {
        let graph = TaskGraph::builder("changed");
        let hand = Hand::new("hand").on("one", [Act::Wait(gate.clone())]);
        let one = graph.agent("one", &hand, "one").version(version);
        if more {
            graph.agent("two", &hand, "two").after(&one);
        }
        graph.build().unwrap()
    };
    process(async {
        let gate = Gate::new();
        runtime_on(&store).session_with_id(root()).start(&build("v1", &gate, false), "Go").detach();
        gate.arrived(1).await;
    });
    process(async {
        let open = Gate::new();
        open.open();
        for (version, more, told) in [("v2", false, "version `v2`"), ("v1", true, "two")] {
            let error = resume_on(&store, &build(version, &open, more)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Diverged);
            assert!(error.message().contains(told), "{error}");
        }
        assert_eq!(resume_on(&store, &build("v1", &open, false)).await.unwrap().text, "one done");
    });
}

#[test]
fn another_agent_for_an_attempt_in_flight_refuses_to_resume() {
    let store = memory();
    let build = |larger: &str, gate: &Gate| {
        let small = Hand::new("small").on("work", [Act::Fail("too small")]);
        let larger = Hand::new(larger).on("work", [Act::Wait(gate.clone())]);
        let graph = TaskGraph::builder("sizes");
        graph.agent("work", &small, "work").escalate([(Size::S, small.clone()), (Size::M, larger)]);
        graph.build().unwrap()
    };
    process(async {
        let gate = Gate::new();
        runtime_on(&store).session_with_id(root()).start(&build("medium", &gate), "Go").detach();
        gate.arrived(1).await;
    });
    process(async {
        let open = Gate::new();
        open.open();
        let error = resume_on(&store, &build("other", &open)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Diverged);
        assert!(error.message().contains("`work` was run by `medium`, and now has another agent"), "{error}");
        assert_eq!(resume_on(&store, &build("medium", &open)).await.unwrap().text, "work done");
    });
}

#[test]
fn lo08_an_attempt_goes_on_with_the_agent_that_began_it_though_another_is_free() {
    let store = memory();
    let build = |gate: &Gate, with: [&str; 2]| {
        let hands = with.map(|name| Hand::new(name).on("two", [Act::Wait(gate.clone())]));
        let graph = TaskGraph::builder("pool");
        for node in ["one", "two"] {
            graph.agent(node, &hands[0], node).escalate(hands.clone().map(|hand| (Size::S, hand)));
        }
        graph.build().unwrap()
    };
    process(async {
        let gate = Gate::new();
        runtime_on(&store).session_with_id(root()).start(&build(&gate, ["ann", "bob"]), "Go").detach();
        gate.arrived(1).await;
    });
    process(async {
        let open = Gate::new();
        open.open();
        let error = resume_on(&store, &build(&open, ["ann", "eve"])).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Diverged);
        assert!(error.message().contains("`two` was run by `bob`"), "{error}");
        resume_on(&store, &build(&open, ["ann", "bob"])).await.unwrap();
        let report = GraphReport::from_events(&stored(&store, &root()).await).unwrap();
        let node = report.node("two").unwrap();
        assert_eq!(
            (node.agent.as_deref(), node.attempts, node.state()),
            (Some("bob"), 1, NodeState::Completed)
        );
    });
}

#[test]
fn a_changed_graph_below_keeps_the_one_above_open() {
    let store = memory();
    let build = |version: &str, gate: &Gate| {
        let inner = TaskGraph::builder("inner");
        let hand = Hand::new("hand").on("one", [Act::Wait(gate.clone())]);
        inner.agent("one", &hand, "one").version(version);
        let outer = TaskGraph::builder("outer");
        outer.graph("below", &inner.build().unwrap(), "Go");
        outer.build().unwrap()
    };
    process(async {
        let gate = Gate::new();
        runtime_on(&store).session_with_id(root()).start(&build("v1", &gate), "Go").detach();
        gate.arrived(1).await;
    });
    process(async {
        let open = Gate::new();
        open.open();
        let error = resume_on(&store, &build("v2", &open)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Diverged, "{error}");
        let outcome = resume_on(&store, &build("v1", &open)).await.unwrap();
        assert_eq!((outcome.status, &*outcome.text), (Status::Completed, "one done"));
    });
}

#[test]
fn the_wait_for_the_next_attempt_survives_a_restart() {
    let store = memory();
    let build = |fails: bool| {
        let graph = TaskGraph::builder("waits");
        let mut hand = Hand::new("hand");
        if fails {
            hand = hand.on("one", [Act::Fail("not yet")]);
        }
        graph.agent("one", &hand, "one").attempts(2).delay(secs(3_600));
        graph.build().unwrap()
    };
    process(async {
        runtime_on(&store).session_with_id(root()).start(&build(true), "Go").detach();
        tokio::time::sleep(secs(1_200)).await;
    });
    process(async {
        let runtime =
            testkit::runtime().clock(LaterClock::new(secs(1_800))).shared_store(Arc::clone(&store)).build();
        let start = tokio::time::Instant::now();
        let outcome = runtime.session_with_id(root()).resume(&build(false)).outcome().await.unwrap();
        assert_eq!(outcome.text, "one done");
        assert_eq!(start.elapsed(), secs(1_800), "what is left of it");
        let report = GraphReport::from_events(&stored(&store, &root()).await).unwrap();
        assert_eq!(report.nodes[0].attempts, 2);
    });
}

#[test]
fn changes_survive_a_restart() {
    let store = memory();
    let log = Log::default();
    let build = |gate: &Gate| {
        let hand = Hand::logging("hand", &log).on("one", [Act::Wait(gate.clone())]);
        let graph = TaskGraph::builder("changes").with_agent(Hand::logging("other", &log));
        let one = graph.agent("one", &hand, "one");
        let two = graph.agent("two", &hand, "two").after(&one);
        graph.agent("three", &hand, "three").after(&two);
        graph.build().unwrap()
    };
    process(async {
        let gate = Gate::new();
        let graph = build(&gate);
        let run = runtime_on(&store).session_with_id(root()).start(&graph, "Go");
        let control = graph.control(&run);
        run.detach();
        gate.arrived(1).await;
        control.skip("two", SkipAs::Satisfied).await.unwrap();
        control.reassign("three", "other").await.unwrap();
        control.add(PlanTask::new("four", "other", "four").after(["three"])).await.unwrap();
    });
    process(async {
        let open = Gate::new();
        open.open();
        assert_eq!(resume_on(&store, &build(&open)).await.unwrap().text, "four done");
        assert_eq!((log.count("one starts"), log.count("two starts")), (2, 0));
        assert!(log.all().iter().any(|it| it.starts_with("other is asked: three")));
        let report = GraphReport::from_events(&stored(&store, &root()).await).unwrap();
        assert_eq!((report.count(NodeState::Completed), report.count(NodeState::Skipped)), (3, 1));
    });
}

#[test]
fn lo13_what_was_being_stopped_when_the_process_died_is_not_begun_again() {
    let store = memory();
    let log = Log::default();
    let build = |acts: Vec<Act>| {
        let graph = TaskGraph::builder("stops");
        let hand = Hand::logging("hand", &log).on("one", acts);
        let one = graph.agent("one", &hand, "one");
        graph.agent("two", &hand, "two").after(&one);
        graph.build().unwrap()
    };
    process(async {
        // An agent that ignores its cancel: it is still running when the process dies.
        let deaf = Gate::new();
        let graph = TaskGraph::builder("stops");
        let one = graph.agent("one", &Deaf(deaf.clone()), "one");
        graph.agent("two", &Deaf(deaf.clone()), "two").after(&one);
        let graph = graph.build().unwrap();
        let run = runtime_on(&store).session_with_id(root()).start(&graph, "Go");
        let control = graph.control(&run);
        run.detach();
        deaf.arrived(1).await;
        control.skip("one", SkipAs::Satisfied).await.unwrap();
        assert!(stored_ends(&store, &root()).await.is_empty(), "its slot is held");
    });
    process(async {
        let outcome = resume_on(&store, &build(vec![Act::Hang])).await.unwrap();
        assert_eq!(outcome.text, "two done");
        let ends = stored_ends(&store, &root()).await;
        assert_eq!((&*ends["one"], &*ends["two"]), ("skipped: on request", "completed"));
        let report = GraphReport::from_events(&stored(&store, &root()).await).unwrap();
        assert_eq!(report.node("one").unwrap().attempts, 1);
    });
}

/// An agent that ignores its cancel.
#[derive(Clone)]
struct Deaf(Gate);

#[async_trait::async_trait]
impl entourage_core::agent::Agent for Deaf {
    fn name(&self) -> &str {
        "hand"
    }

    async fn run(
        &self,
        _: entourage_core::run::Task,
        _: &entourage_core::run::RunContext,
    ) -> entourage_core::Result<Outcome> {
        self.0.pass().await;
        Ok(Outcome::completed("deaf"))
    }
}

/// Number of times that each step of a graph ran, over all its lives.
#[derive(Default)]
struct Ran(std::sync::Mutex<BTreeMap<String, u32>>);

impl Ran {
    fn note(&self, node: &str) {
        *self.0.lock().unwrap().entry(node.to_owned()).or_default() += 1;
    }
}

/// Builds steps, an agent, a map over a list, a node that fails once, a condition and a nested graph.
fn mixed(ran: &Arc<Ran>, failures: &Arc<AtomicU32>) -> TaskGraph {
    let note = |node: &str| {
        let (ran, node) = (Arc::clone(ran), node.to_owned());
        move || ran.note(&node)
    };
    let graph = TaskGraph::builder("mixed");
    let list = graph.step("list", (), {
        let ran = note("list");
        move |()| {
            ran();
            async { Ok(vec![1_u32, 2, 3]) }
        }
    });
    let each = graph.map("each", &list, {
        let ran = Arc::clone(ran);
        move |item: u32| {
            ran.note(&format!("each {item}"));
            async move { Ok(item * 2) }
        }
    });
    let flaky = graph
        .step("flaky", &list, {
            let (ran, failures) = (note("flaky"), Arc::clone(failures));
            move |_| {
                ran();
                let fails = failures.fetch_add(1, Ordering::SeqCst) == 0;
                async move { if fails { Err(Error::new(ErrorKind::Tool, "once")) } else { Ok(()) } }
            }
        })
        .attempts(2);
    let agent = graph.agent("agent", &Hand::new("hand"), "agent").after(&each);
    graph.step("never", (), |()| async { Ok(()) }).when(&list, |list| list.is_empty());
    let below = TaskGraph::builder("below");
    below.agent("inner", &Hand::new("hand"), "inner");
    let below = graph.graph("below", &below.build().unwrap(), "Go").after((&agent, &flaky));
    let end = graph.step("end", (&each, &agent, &below), |(each, agent, below)| async move {
        Ok(format!("{each:?} {agent} {below}"))
    });
    graph.returning(&end).build().map(|graph| TaskGraph::builder("top").wrap(graph)).unwrap()
}

/// A graph that only wraps another one, so that all tests here have one type.
trait Wrap {
    fn wrap<O: entourage_runners::graph::Output>(self, graph: TaskGraph<O>) -> TaskGraph;
}

impl Wrap for entourage_runners::graph::TaskGraphBuilder {
    fn wrap<O: entourage_runners::graph::Output>(self, graph: TaskGraph<O>) -> TaskGraph {
        self.graph("mixed", &graph, "Go");
        self.build().unwrap()
    }
}

#[test]
fn design_3_a_graph_survives_death_at_every_append() {
    let expected = "[2, 4, 6] agent done inner done";
    let mut deaths = 0;
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        for at in 0.. {
            let inner = memory();
            let faulty = FaultyStore::new(&inner, at, fault);
            let killed = faulty.killed.clone();
            let (ran, failures) = (Arc::new(Ran::default()), Arc::new(AtomicU32::new(0)));
            let store = faulty as SharedStore;
            let lived = process(async {
                let graph = mixed(&ran, &failures);
                let run = runtime_on(&store).session_with_id(root()).start(&graph, "Go");
                until_killed(run.outcome(), &killed).await
            });
            if let Some(outcome) = lived {
                assert_eq!(outcome.unwrap().text, expected);
                break;
            }
            deaths += 1;
            let label = format!("{fault:?} at append {at}");
            let outcome = process(async {
                let graph = mixed(&ran, &failures);
                let session = runtime_on(&inner).session_with_id(root());
                if session.head().await.unwrap().seq == 0 {
                    return session.start(&graph, "Go").outcome().await.unwrap();
                }
                if session.unfinished().await.unwrap().is_some() {
                    return session.resume(&graph).outcome().await.unwrap();
                }
                // The process died when everything was stored.
                match &stored(&inner, &root()).await.last().unwrap().event {
                    Event::RunFinished(end) => end.outcome.clone(),
                    other => panic!("{label}: {other:?}"),
                }
            });
            assert_eq!(outcome.text, expected, "{label}");
            process(async {
                for info in inner.query(&SessionFilter::all()).await.unwrap() {
                    let events = stored(&inner, &info.record.id).await;
                    assert_eq!(
                        (count(&events, "run_started"), count(&events, "run_finished")),
                        (1, 1),
                        "{label}"
                    );
                    assert!(count(&events, "record:graph.started") <= 1, "{label}");
                    let mut done = Vec::new();
                    for event in &events {
                        if let Some(start) = event.event.record::<NodeStarted>().unwrap() {
                            assert!(!done.contains(&start.node), "{label}");
                        }
                        if let Some(end) = event.event.record::<NodeFinished>().unwrap()
                            && end.end.is_completed()
                        {
                            done.push(Arc::clone(&end.node));
                        }
                    }
                }
            });
            // A step whose end was not stored may run once more; no other step does.
            let most = ran.0.lock().unwrap().values().copied().max().unwrap_or_default();
            assert!(most <= 3, "{label}: {:?}", ran.0.lock().unwrap());
        }
    }
    assert!(deaths > 30, "{deaths}");
}
