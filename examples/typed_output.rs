//! A value of a custom type from a model: through the service's schema, a forced tool or the prompt, whichever the
//! model supports.

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

use entourage::{
    prelude::*,
    provider::{CallContext, FinishReason, Generate, ModelExt, NoValue, NoValueReason},
    testkit::{Script, ScriptedProvider},
};
use schemars::JsonSchema;
use serde::Deserialize;

/// A bug report, taken apart.
#[derive(Debug, Deserialize, JsonSchema)]
struct Report {
    /// One line.
    summary: String,
    severity: Severity,
    /// What to do to see it, in order.
    steps: Vec<String>,
    /// How many people are said to be affected.
    #[schemars(range(min = 1))]
    people: Option<u32>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Severity {
    Cosmetic,
    Annoying,
    DataLoss,
}

const MAIL: &str =
    "Hi! Since Monday I lose my draft whenever I press Back twice in the editor. Ann and Raj too.";

#[tokio::main]
async fn main() -> Result<()> {
    let model = Model::from_env().unwrap_or_else(|error| {
        println!(
            "{}\nA scripted model stands in: its words are canned, reading and repair are real.\n",
            error.message()
        );
        scripted()
    });
    let ask = Generate::new(MAIL).with_instructions("You take bug reports apart. Invent nothing.");
    match model.generate::<Report>(ask, &CallContext::new()).await {
        Ok(made) => {
            let Report { summary, severity, steps, people } = made.value;
            println!("{summary} ({severity:?}, people: {people:?})");
            steps.iter().for_each(|step| println!("- {step}"));
            let cost = made.cost.map_or_else(|| "unknown".to_owned(), |cost| cost.to_string());
            println!("[{:?}, {} calls, {}, cost {cost}]", made.strategy, made.rounds, made.usage);
            Ok(())
        }
        // The reason for a missing value is typed too.
        Err(error) if NoValue::of(&error).is_some_and(|none| none.reason == NoValueReason::Refused) => {
            println!("The model would not read this mail.");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// A model whose first reply has an unknown severity: it is told, and corrects it.
fn scripted() -> Model {
    let reply = |severity: &str| {
        let json = serde_json::json!({
            "summary": "Drafts are lost",
            "severity": severity,
            "steps": ["Open the editor", "Write something", "Press Back twice"],
            "people": 3,
        });
        Script::new().text(format!("Here it is: {json}")).usage(240, 60).finish(FinishReason::Stop)
    };
    ScriptedProvider::by_history().step(reply("terrible")).step(reply("data_loss")).model()
}
