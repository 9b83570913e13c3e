//! A prompt made of a template and of facts about the machine, and the record of the template that was used.

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

use entourage::{
    Timestamp,
    context::{PromptTemplate, Templates},
    prelude::*,
    project::{ProjectFacts, ProjectOptions},
    testkit::ScriptedProvider,
};

const CODER: &str = "\
You work on the project in {{ working_dir }} ({{ platform }}). Today is {{ date }}.
{% if git %}
It is a git repository on the branch {{ git.branch }}. Its last commits:
{% for commit in git.commits %}
- {{ commit }}
{% endfor %}
{% endif %}
{% for file in context_files %}
What {{ file.path }} says holds:
{{ file.content }}
{% endfor %}
Answer {{ tone }}.
";

#[tokio::main]
async fn main() -> Result<()> {
    let mut templates = Templates::new();
    templates.register(PromptTemplate::new("coder", 1, CODER)?)?;
    // Other words under the same version would make records ambiguous.
    if let Err(error) = templates.register(PromptTemplate::new("coder", 1, CODER.replace("Answer", "Reply"))?)
    {
        println!("refused: {}\n", error.message());
    }

    let options = ProjectOptions::new(Timestamp::now()).with_context_paths(["rustfmt.toml"]);
    let facts = ProjectFacts::gather(".", options).await?.into_prompt();
    let template = templates
        .get("coder")
        .ok_or_else(|| Error::new(ErrorKind::NotFound, "register the template `coder` first"))?;
    // A missing fact is an error, never a gap in the prompt.
    if let Err(error) = template.render(&facts) {
        println!("refused: {}\n", error.message());
    }
    let instructions = template.render(&facts.with_variable("tone", "briefly"))?;
    println!("{}\n", instructions.text());

    let model = ScriptedProvider::by_history().text("A scripted model has read it.").model();
    let agent = ReactAgent::builder("coder", model).instructions(instructions).build()?;
    let runtime = Runtime::in_memory();
    let mut run = runtime.session().start(&agent, "What do you work on?");
    while let Some(event) = run.next().await {
        if let Event::ModelStarted(call) = &event.event {
            println!("step {} used {}", call.step, call.template.as_deref().unwrap_or("no template"));
        }
    }
    println!("{}", run.outcome().await?.text);
    Ok(())
}
