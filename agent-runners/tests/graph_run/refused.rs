//! A refusal within an agent that is made of others: it is as final outside of it as within.

use std::{
    mem::ManuallyDrop,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    agent::Agent,
    event::{Envelope, Event},
    provider::Size,
    run::{Outcome, RunContext, Status, StopReason, Task},
};
use entourage_runners::{
    Cascade, DualAgent, ReactAgent,
    graph::{SupervisorAnswered, TaskGraph},
    team::{Member, Team},
};
use entourage_runtime::AgentExt;
use entourage_testkit::{Script, ScriptedProvider};
use serde_json::json;

use crate::{
    common::{memory, runtime_on, stored},
    team::{item, plan, steps},
};

/// An agent whose first run is stopped by a refusal. Each later one is completed, as if a person had given in.
#[derive(Debug, Clone)]
struct Asks {
    name: &'static str,
    runs: Arc<AtomicUsize>,
    refused: usize,
}

impl Asks {
    fn new(name: &'static str, refused: usize) -> Self {
        Self { name, runs: Arc::default(), refused }
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Agent for Asks {
    fn name(&self) -> &str {
        self.name
    }

    async fn run(&self, _: Task, _: &RunContext) -> Result<Outcome> {
        let run = self.runs.fetch_add(1, Ordering::SeqCst);
        let denied = || Outcome::new(Status::Stopped(StopReason::Denied("pay".into())));
        Ok(if run < self.refused { denied() } else { Outcome::completed("paid") })
    }
}

/// A lead that gives its one item to this member, and takes no step.
fn lead(member: &str) -> ScriptedProvider {
    let mut only = item("x", "code", &[]);
    only["member"] = json!(member);
    (0..4).fold(ScriptedProvider::new().text(plan(&[only])), |lead, _| lead.text(steps(&[])))
}

fn checker() -> (ReactAgent, ScriptedProvider) {
    let says = (0..4).fold(ScriptedProvider::new(), |says, _| says.text("No, not yet."));
    (ReactAgent::builder("checker", says.model()).build().unwrap(), says)
}

/// Returns the agent within another one of this kind, with the models that it needs.
fn within(kind: &str, asks: &Asks) -> (Arc<dyn Agent>, Vec<ScriptedProvider>) {
    let agent = asks.clone();
    match kind {
        "alone" => (Arc::new(agent), vec![]),
        "team" => {
            let lead = lead(asks.name);
            let team = Team::builder("inner", lead.model()).member(Member::new(agent)).build().unwrap();
            (Arc::new(team), vec![lead])
        }
        "graph" => {
            let graph = TaskGraph::builder("inner");
            graph.agent("n", &agent, "Pay.");
            (Arc::new(graph.build().unwrap()), vec![])
        }
        "map" | "gaps" => {
            let graph = TaskGraph::builder("inner");
            let list = graph.step("list", (), |()| async { Ok(vec![1_u32]) });
            let each = graph.map_agent("each", &list, &agent, |item| format!("Pay {item}.")).attempts(3);
            if kind == "gaps" {
                each.partial();
            }
            (Arc::new(graph.build().unwrap()), vec![])
        }
        "pair" => {
            let (checker, says) = checker();
            (Arc::new(DualAgent::builder("inner", agent, checker).build().unwrap()), vec![says])
        }
        "cascade" => (Arc::new(Cascade::builder("inner").step(agent).build().unwrap()), vec![]),
        _ => {
            let (graph, models) = within("graph", asks);
            let outer = TaskGraph::builder("nested");
            outer.agent("n", &graph, "Pay.");
            (Arc::new(outer.build().unwrap()), models)
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_within_an_agent_of_agents_is_tried_by_no_other_one() {
    for kind in ["alone", "team", "graph", "map", "gaps", "pair", "cascade", "nested"] {
        for around in ["team", "cascade", "attempts", "pair"] {
            let (asks, large) = (Asks::new("small", 1), Asks::new("large", 0));
            let (inner, mut models) = within(kind, &asks);
            let outer: Arc<dyn Agent> = match around {
                "team" => {
                    let lead = lead(inner.name());
                    let members =
                        [Member::new(inner).size(Size::S), Member::new(large.clone()).size(Size::L)];
                    let team = Team::builder("outer", lead.model()).members(members).build().unwrap();
                    models.push(lead);
                    Arc::new(team)
                }
                "cascade" => {
                    Arc::new(Cascade::builder("outer").step(inner).step(large.clone()).build().unwrap())
                }
                "attempts" => {
                    let graph = TaskGraph::builder("outer");
                    graph.agent("n", &inner, "Pay.").attempts(3);
                    Arc::new(graph.build().unwrap())
                }
                _ => {
                    let (checker, says) = checker();
                    models.push(says);
                    Arc::new(DualAgent::builder("outer", inner, checker).iterations(3).build().unwrap())
                }
            };
            let _models = ManuallyDrop::new(models);
            let outcome = outer.start("Pay, then tell.").outcome().await.unwrap();
            let Status::Stopped(reason) = &outcome.status else { panic!("{around} over {kind}: {outcome}") };
            assert!(reason.is_final(), "{around} over {kind}: {outcome}");
            assert_eq!((asks.runs(), large.runs()), (1, 0), "{around} over {kind}");
        }
    }
}

/// The error of a map names the item that is final, and says that it is.
#[tokio::test(start_paused = true)]
async fn a_map_is_as_final_as_its_items() {
    let late = Error::new(ErrorKind::Stopped, "late").with_stop_reason(StopReason::Deadline);
    for (last, is_final) in [
        (Error::new(ErrorKind::PermissionDenied, "no"), true),
        (Error::new(ErrorKind::BudgetExceeded, "no"), true),
        (late, true),
        (Error::new(ErrorKind::PermissionDenied, "no").during("model.stream"), false),
        (Error::new(ErrorKind::Tool, "no"), false),
    ] {
        for (items, gaps, fails) in
            [(2, false, true), (2, true, is_final), (3, false, true), (3, true, false)]
        {
            let graph = TaskGraph::builder("outer");
            let list = graph.step("list", (), move |()| async move { Ok((0..items).collect::<Vec<u32>>()) });
            let last = last.record();
            let each = graph.map("each", &list, move |item| {
                let last = last.to_error();
                async move {
                    match item {
                        0 => Err(Error::new(ErrorKind::Tool, "broken")),
                        1 => Err(last),
                        _ => Ok(item),
                    }
                }
            });
            if gaps {
                each.partial();
            }
            let outcome = graph.build().unwrap().start("Go").outcome().await.unwrap();
            assert_eq!(!outcome.is_completed(), fails, "{items} {gaps}: {outcome}");
            if let Status::Stopped(reason) = &outcome.status {
                assert_eq!(reason.is_final(), is_final, "{items} {gaps}: {outcome}");
                let named = reason.to_string().contains("each[1] failed");
                assert_eq!(named, is_final, "{outcome}");
            }
        }
    }
}

/// A service that refuses a model to an account refuses nothing to another model.
#[tokio::test(start_paused = true)]
async fn another_agent_does_what_a_service_refused() {
    for around in ["team", "cascade", "attempts", "escalates"] {
        let refuses = ScriptedProvider::new()
            .step(Script::refuse(ErrorKind::PermissionDenied, "403"))
            .text("Done late.");
        let takes = ScriptedProvider::new().text("Done.");
        let small = ReactAgent::builder("small", refuses.model()).build().unwrap();
        let large = ReactAgent::builder("large", takes.model()).build().unwrap();
        let lead = lead("small");
        let agent: Arc<dyn Agent> = match around {
            "team" => {
                let members = [Member::new(small).size(Size::S), Member::new(large).size(Size::L)];
                Arc::new(Team::builder("outer", lead.model()).members(members).build().unwrap())
            }
            "cascade" => Arc::new(Cascade::builder("outer").step(small).step(large).build().unwrap()),
            "attempts" => {
                let graph = TaskGraph::builder("outer");
                graph.agent("n", &small, "Do it.").attempts(2);
                Arc::new(graph.build().unwrap())
            }
            _ => {
                let graph = TaskGraph::builder("outer");
                graph
                    .agent("n", &small, "Do it.")
                    .attempts(2)
                    .escalate([(Size::S, small.clone()), (Size::L, large)]);
                Arc::new(graph.build().unwrap())
            }
        };
        let outcome = agent.start("Do it.").outcome().await.unwrap();
        assert!(outcome.is_completed(), "{around}: {outcome}");
        let expected = if around == "attempts" { (2, 0) } else { (1, 1) };
        assert_eq!((refuses.count(), takes.count()), expected, "{around}");
        let _unused = ManuallyDrop::new([refuses, takes, lead]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lead_does_not_have_somebody_asked_again_who_refused() {
    for step in [json!({"do": "retry", "task": "x"}), json!({"do": "reassign", "task": "x", "to": "large"})] {
        let (asks, large) = (Asks::new("small", 1), Asks::new("large", 0));
        let mut only = item("x", "code", &[]);
        only["member"] = json!("small");
        let lead = ScriptedProvider::new()
            .text(plan(&[only]))
            .text(steps(std::slice::from_ref(&step)))
            .text(steps(&[]))
            .text("It was refused.");
        let members = [Member::new(asks.clone()), Member::new(large.clone())];
        let team = Team::builder("crew", lead.model()).members(members).build().unwrap();
        let store = memory();
        let session = runtime_on(&store).session();
        let outcome = session.start(&team, "Pay.").outcome().await.unwrap();
        assert!(matches!(&outcome.status, Status::Stopped(reason) if reason.is_final()), "{outcome}");
        assert_eq!((asks.runs(), large.runs()), (1, 0), "{step}");
        let events = stored(&store, session.id()).await;
        let answered = |envelope: &Envelope| match &envelope.event {
            Event::Recorded(record) => record.get::<SupervisorAnswered>().unwrap(),
            _ => None,
        };
        let refused: Vec<_> = events.iter().filter_map(answered).flat_map(|it| it.refused.clone()).collect();
        assert!(matches!(&refused[..], [only] if only.contains("do without it")), "{refused:?}");
    }
}
