//! Runs of one graph or team in sessions that have one id, each in a runtime of its own.

use entourage_core::{
    ErrorKind,
    provider::{FinishReason, Request},
};
use entourage_runners::{
    graph::{NodeState, SkipAs, TaskGraph},
    team::{Member, Team},
};
use entourage_testkit::{Gate, Script, ScriptedProvider};
use serde_json::json;

use crate::{
    common::{memory, runtime_on},
    crew::{Act, Hand, Log, root, secs},
    team::{plan, react},
};

/// A graph whose first runs wait at these gates, one after another.
fn waiting(log: &Log, gates: &[Gate]) -> TaskGraph {
    let waits = |hand: Hand, gate: &Gate| hand.on("a", [Act::Wait(gate.clone())]);
    let hand = gates.iter().fold(Hand::logging("hand", log), waits);
    let graph = TaskGraph::builder("twins");
    let first = graph.agent("a", &hand, "a");
    graph.agent("b", &hand, "b").after(&first);
    graph.build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn each_control_reaches_its_own_run_whichever_began_or_ended_last() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [1, 0, 2]] {
        let (log, gates) = (Log::default(), [Gate::new(), Gate::new(), Gate::new()]);
        let graph = waiting(&log, &gates);
        let mut runs = Vec::new();
        for gate in &gates {
            let run = runtime_on(&memory()).session_with_id(root()).start(&graph, "Go");
            gate.arrived(1).await;
            runs.push(Some(run));
        }
        let controls: Vec<_> = runs.iter().flatten().map(|run| graph.control(run)).collect();
        let newest = graph.control_in(&root());
        let state = async |at: usize| controls[at].report().await.unwrap().node("b").unwrap().state();
        let mut left = vec![0, 1, 2];
        for at in order {
            controls[at].skip("b", SkipAs::Satisfied).await.unwrap();
            for other in &left {
                let skipped = state(*other).await == NodeState::Skipped;
                assert_eq!(skipped, *other == at, "{order:?}: the change of {at} in {other}");
            }
            let last = *left.last().unwrap();
            let found = newest.report().await.unwrap().node("b").unwrap().state();
            assert_eq!(found, state(last).await, "{order:?}");
            gates[at].open();
            assert!(runs[at].take().unwrap().outcome().await.unwrap().is_completed());
            left.retain(|other| *other != at);
            let over = controls[at].report().await.unwrap_err();
            assert_eq!(over.kind(), ErrorKind::NotFound, "{order:?}: {over}");
        }
        assert_eq!(newest.report().await.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(log.count("b starts"), 0, "{:?}", log.all());
    }
}

#[tokio::test(start_paused = true)]
async fn mail_for_the_lead_has_that_of_its_own_run_asked() {
    let to_do = [("a", "ann"), ("b", "bob")];
    let items = to_do.map(|(id, member)| json!({"id": id, "task": id, "type": "code", "member": member}));
    let lead = ScriptedProvider::by_history().text(plan(&items)).text(r#"{"steps": []}"#).text("Done.");
    let (gates, send) = ([Gate::new(), Gate::new()], Gate::new());
    // The first of them to be asked is that of the first run.
    let request = json!({"to": "lead", "type": "request", "text": "Which port?"});
    let asks = Script::new().wait(&send).call("send_message", &request).finish(FinishReason::ToolCalls);
    let ann = ScriptedProvider::new().step(asks).text("A of the second.").text("A.");
    let waits = |hand: Hand, gate: &Gate| hand.on("b", [Act::Wait(gate.clone())]);
    let bob = gates.iter().fold(Hand::new("bob"), waits);
    let team = Team::builder("crew", lead.model())
        .member(Member::new(react("ann", &ann)))
        .member(Member::new(bob).replicas(2))
        .mailbox()
        .build()
        .unwrap();
    let mut runs = Vec::new();
    for (gate, prompt) in gates.iter().zip(["One", "Two"]) {
        runs.push(runtime_on(&memory()).session_with_id(root()).start(&team, prompt));
        gate.arrived(1).await;
    }
    tokio::time::sleep(secs(1)).await;
    send.open();
    tokio::time::sleep(secs(1)).await;
    gates.iter().for_each(Gate::open);
    for run in runs {
        assert!(run.outcome().await.unwrap().is_completed());
    }
    let whole = |request: &Request| {
        request.messages.iter().map(|message| message.text()).collect::<Vec<_>>().join("\n")
    };
    let all: Vec<_> = lead.requests().iter().map(whole).collect();
    let asked: Vec<_> = all.iter().filter(|it| it.contains("Which port?")).collect();
    assert!(!asked.is_empty() && asked.iter().all(|it| it.contains("One")), "{asked:?}");
    let stepped_in = all.iter().filter(|it| it.contains("The work stands like this:"));
    assert!(stepped_in.clone().next().is_some(), "{all:?}");
    assert!(stepped_in.into_iter().all(|it| it.contains("Which port?")), "nobody else's lead: {all:?}");
}
