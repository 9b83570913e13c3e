//! A run that continues after a kill: kill it, and start it again. Four steps and an agent take some seconds; work
//! done before the kill is not repeated.
//!
//! ```text
//! cargo run -p entourage-examples --example resume -- [--reset]
//! ```
//!
//! Its state is in the folder `entourage-resume` of the system's folder for temporary files, one readable file per
//! session.

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

use std::time::Duration;

use entourage::{
    event::{NodeFinished, NodeStarted},
    graph::{GraphReport, NodeState, TaskGraph},
    prelude::*,
    provider::FinishReason,
    testkit::{Script, ScriptedProvider},
};

#[tokio::main]
async fn main() -> Result<()> {
    let folder = std::env::temp_dir().join("entourage-resume");
    let runtime = Runtime::builder().store(JsonStore::open(&folder).await?).build();
    let session = runtime.session_with_id(SessionId::new("bake")?);
    let known = !runtime.sessions(&SessionFilter::id(session.id().clone())).await?.is_empty();
    if known && std::env::args().any(|it| it == "--reset") {
        runtime.store().delete(session.id()).await?;
        println!("Forgotten: {}", folder.display());
        return Ok(());
    }
    let graph = bread()?;

    let unfinished = if known { session.unfinished().await? } else { None };
    let mut run = match unfinished {
        Some(_) => {
            let report = GraphReport::from_events(&session.events(0, 10_000).await?)?;
            let done = report.nodes.iter().filter(|node| node.state() == NodeState::Completed);
            println!("A process left this unfinished. Done by then: {}", names(done.map(|node| &*node.id)));
            session.resume(&graph)
        }
        None => {
            println!("From the beginning. Kill it (kill -9 {}), and start it again.", std::process::id());
            session.start(&graph, "Bake a loaf.")
        }
    };
    while let Some(event) = run.next().await {
        if let Some(it) = event.event.record::<NodeStarted>()? {
            println!("begins {}", it.node);
        }
        if let Some(it) = event.event.record::<NodeFinished>()? {
            println!("       {} {}", it.node, it.end);
        }
    }
    let outcome = run.outcome().await?;
    println!("\n{}: {}", outcome.status, outcome.text);
    Ok(())
}

fn bread() -> Result<TaskGraph> {
    let graph = TaskGraph::builder("bread");
    // A step returns a value of its own type; its JSON is what is stored.
    let flour = graph.step("weigh flour", (), |()| slow(500_u32));
    let water = graph.step("weigh water", (), |()| slow(340_u32));
    let dough = graph.step("knead", (&flour, &water), |(flour, water)| slow(*flour + *water));
    let rest = graph.step("rest", &dough, |dough| slow(format!("{dough} g of dough, risen")));
    let baker = ScriptedProvider::by_history().step(
        Script::new()
            .delay(Duration::from_secs(2))
            .text("A loaf of good bread, crust and all.")
            .finish(FinishReason::Stop),
    );
    let baker = ReactAgent::builder("baker", baker.model()).build()?;
    let loaf = graph.agent("bake", &baker, "Bake it, and say how it came out.").after(&rest);
    graph.returning(&loaf).build()
}

async fn slow<T>(value: T) -> Result<T> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(value)
}

fn names<'a>(ids: impl Iterator<Item = &'a str>) -> String {
    let ids: Vec<_> = ids.collect();
    if ids.is_empty() { "nothing".to_owned() } else { ids.join(", ") }
}
