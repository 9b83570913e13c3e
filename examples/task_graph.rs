//! Six agents on a graph of six tasks: tasks without unfinished dependencies run in parallel. The list in the terminal
//! is live, a task is skipped from outside during the run, and at the end the graph is printed as Mermaid text.

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

use std::{io::IsTerminal, time::Duration};

use entourage::{
    event::NodeStarted,
    graph::{GraphReport, SkipAs, TaskGraph},
    prelude::*,
    provider::FinishReason,
    team::TodoStatus,
    testkit::{Script, ScriptedProvider},
};

#[tokio::main]
async fn main() -> Result<()> {
    let model = Model::from_env();
    if let Err(error) = &model {
        println!(
            "{}\nScripted models stand in: the schedule is real, the words are canned.\n",
            error.message()
        );
    }
    let agent = |name: &str, role: &str, canned: &str, takes: u64| {
        let script =
            Script::new().delay(Duration::from_millis(takes)).text(canned).finish(FinishReason::Stop);
        let stand_in = || ScriptedProvider::by_history().step(script).model();
        let model = model.as_ref().map_or_else(|_| stand_in(), Model::clone);
        ReactAgent::builder(name, model)
            .instructions(format!("You are {role}. Answer in two sentences."))
            .build()
    };

    let graph = TaskGraph::builder("login");
    let architect = agent("architect", "a software architect", "One form, two fields, one endpoint.", 300)?;
    let design = graph.agent("design", &architect, "Design the login of a small web shop.");
    let coder = agent("backend-dev", "a backend developer", "POST /login checks the password's hash.", 600)?;
    let backend = graph.agent("backend", &coder, "Write the backend.").after(&design);
    let artist = agent("frontend-dev", "a frontend developer", "A form that posts to /login.", 400)?;
    let frontend = graph.agent("frontend", &artist, "Write the frontend.").after(&design);
    let writer = agent("writer", "a technical writer", "How to log in.", 2_000)?;
    graph.agent("manual", &writer, "Write the manual.").after(&design);
    let tester = agent("tester", "a tester", "Three tests, all pass.", 300)?;
    let tests = graph.agent("tests", &tester, "Test both.").after((&backend, &frontend)).attempts(2);
    let reviewer = agent("reviewer", "a strict reviewer", "It may be merged.", 200)?;
    let review = graph.agent("review", &reviewer, "Review the work.").after(&tests);
    let graph = graph.limit(4).returning(&review).build()?;

    let runtime = Runtime::in_memory();
    let session = runtime.session();
    let mut run = session.start(&graph, "Customers shall be able to log in.");
    let control = graph.control(&run);
    let mut screen = Screen::default();
    while let Some(event) = run.next().await {
        let Event::Recorded(record) = &event.event else { continue };
        // The run continues meanwhile, and may have ended.
        if let Ok(todos) = control.todos().await {
            screen.show(todos.iter().map(|todo| format!("{} {}", mark(todo.status), todo.content)).collect());
        }
        // Called from any task: the result of the manual is not needed.
        if record.get::<NodeStarted>()?.is_some_and(|it| &*it.node == "tests") {
            control.skip("manual", SkipAs::Satisfied).await?;
        }
    }
    let outcome = run.outcome().await?;
    println!("\n{}: {}\n", outcome.status, outcome.text);

    // From the stored events: any process can draw it, then or later.
    let report = GraphReport::from_events(&session.events(0, 1_000).await?)?;
    println!("{report}\n{}", report.mermaid());
    Ok(())
}

fn mark(status: TodoStatus) -> &'static str {
    match status {
        TodoStatus::Pending => "[ ]",
        TodoStatus::InProgress => "[>]",
        TodoStatus::Completed => "[x]",
        _ => "[-]",
    }
}

/// A list that overwrites itself in a terminal, and is printed anew anywhere else.
#[derive(Default)]
struct Screen(Vec<String>);

impl Screen {
    fn show(&mut self, lines: Vec<String>) {
        if lines == self.0 {
            return;
        }
        if std::io::stdout().is_terminal() {
            if !self.0.is_empty() {
                print!("\x1b[{}A", self.0.len());
            }
            lines.iter().for_each(|line| println!("\x1b[2K{line}"));
        } else {
            println!("{}", lines.join("  "));
        }
        self.0 = lines;
    }
}
