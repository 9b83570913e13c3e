//! A graph run with a map, a retry, a task that fails for good, and one that is skipped for it.

use std::time::Duration;

use entourage::{
    Prices,
    graph::{GraphReport, TaskGraph},
    prelude::*,
    provider::{FinishReason, Profile},
    testkit::{self, Script, ScriptedProvider},
};

pub(super) async fn draw() -> Result<String> {
    let says = |seconds, text: &str| {
        let time = Duration::from_secs(seconds);
        Script::new().delay(time).text(text).usage(900, 60).finish(FinishReason::Stop)
    };
    let fails = || Script::refuse(ErrorKind::Overloaded, "no room");
    let writes = ScriptedProvider::by_history().step(says(20, "It is faster."));
    let checks = ScriptedProvider::new().step(fails()).step(says(5, "The text is right."));
    let paints = ScriptedProvider::new().step(fails());
    let prices = Profile::default().with_prices(Prices::per_million_micros(3_000_000, 15_000_000));
    let agent = |name: &str, provider: &ScriptedProvider| {
        ReactAgent::builder(name, provider.model().with_profile(prices.clone())).build()
    };
    let (writer, checker, painter) =
        (agent("writer", &writes)?, agent("checker", &checks)?, agent("painter", &paints)?);

    let graph = TaskGraph::builder("release").agent_limit("writer", 2);
    let crates = graph.step("crates", (), |()| async { Ok(vec!["core".to_owned(), "store".to_owned()]) });
    let notes = graph.map_agent("notes", &crates, &writer, |name| format!("What is new in {name}?"));
    let checked = graph.agent("check", &checker, "Check the notes.").after(&notes).attempts(2);
    let cover = graph.agent("cover", &painter, "Draw a cover.").after(&crates);
    graph.agent("print", &writer, "Put the cover around the notes.").after((&cover, &checked));
    let page = graph.step("page", &notes, |notes| async move { Ok(notes.join("\n")) });
    let graph = graph.returning(&page).build()?;

    let session = testkit::runtime().build().session();
    session.start(&graph, "Release notes, please").outcome().await?;
    Ok(GraphReport::from_events(&session.events(0, 10_000).await?)?.mermaid())
}
