//! An agent that reads files and answers with a value: a validator refuses the first answer, and the value is shown
//! while it streams. It needs no key: its model is scripted.

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

use entourage::{
    agent::Partial,
    prelude::*,
    provider::FinishReason,
    testkit::{Script, ScriptedProvider},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// The dependencies of a package.
#[derive(Deserialize, JsonSchema)]
struct Report {
    /// Name of the package.
    package: String,
    /// The dependencies that only tests need.
    for_tests: Vec<String>,
}

fn is_known(report: &Report, _: &RunContext) -> Result<(), String> {
    let unknown = report.for_tests.iter().find(|name| name.contains(' '));
    unknown.map_or(Ok(()), |name| Err(format!("`{name}` is no name of a package")))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let provider = scripted();
    let builder = ReactAgent::builder("reader", provider.model()).tools([fs::grep(), fs::view()]);
    let agent = builder.returns::<Report>().validate(is_known).repairs(2).build()?;

    let session = Runtime::in_memory().session();
    let mut run = session.start(&agent, "Which dependencies are for tests alone?");
    let mut partial = Partial::of::<Report>();
    while let Some(event) = run.next().await {
        if partial.apply(&event.event) {
            partial.value().into_iter().for_each(|value| println!("so far: {value}"));
        } else if let Event::Recorded(refused) = &event.event {
            println!("{}", refused.summary());
        }
    }
    let report: Report = run.outcome().await?.value()?;
    println!("{} needs {} for its tests", report.package, report.for_tests.join(" and "));
    Ok(())
}

fn scripted() -> ScriptedProvider {
    let answers = |names: Value| {
        let json = json!({"package": "entourage-examples", "for_tests": names}).to_string();
        json.split_inclusive([',', '-', ' ']).fold(Script::new(), Script::text).finish(FinishReason::Stop)
    };
    ScriptedProvider::new()
        .call("grep", json!({"pattern": "dev-dependencies", "path": "examples/Cargo.toml"}))
        .step(answers(json!(["all of them"])))
        .step(answers(json!(["tokio", "serde_json"])))
}
