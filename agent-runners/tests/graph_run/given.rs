//! The inputs of nodes and the parsing of their answers: media of the graph's task, lists of typed answers.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use entourage_core::{
    ErrorKind, Result,
    agent::Agent,
    message::{Media, MediaSource, Message, Part},
    run::{Outcome, RunContext, Task},
};
use entourage_runners::{
    ReactAgent,
    graph::{Plan, PlanTask, TaskGraph},
};
use entourage_testkit::ScriptedProvider;

use crate::crew::{Act, Hand};

/// Records its prompts, with media by their kind.
#[derive(Clone, Default)]
struct Viewer(Arc<Mutex<Vec<String>>>);

impl Viewer {
    /// Returns the rest of each prompt that contains `text`.
    fn seen(&self, text: &str) -> Vec<String> {
        self.0.lock().unwrap().iter().filter(|seen| seen.starts_with(text)).cloned().collect()
    }
}

fn shown(message: &Message) -> String {
    let part = |part: &Part| match part {
        Part::Text(text) => text.replace('\n', " "),
        Part::Media(media) => format!("[{}]", media.mime),
        _ => "?".to_owned(),
    };
    message.parts().iter().map(part).collect::<Vec<_>>().join(" ")
}

#[async_trait]
impl Agent for Viewer {
    fn name(&self) -> &'static str {
        "viewer"
    }

    async fn run(&self, task: Task, _: &RunContext) -> Result<Outcome> {
        self.0.lock().unwrap().push(shown(&task.prompt));
        Ok(Outcome::completed("seen"))
    }
}

fn picture(mime: &str) -> Part {
    Part::Media(Media::new(mime, MediaSource::Base64("AQID".to_owned())))
}

fn task() -> Message {
    Message::user("What is it?").with(picture("image/png")).with(picture("application/pdf"))
}

#[tokio::test(start_paused = true)]
async fn what_the_graph_is_given_goes_with_its_images_to_those_who_are_told_of_it() {
    let viewer = Viewer::default();
    let below = TaskGraph::builder("below");
    below.agent("inner", &viewer, "Below.");
    let below = below.build().unwrap();
    let graph = TaskGraph::builder("media");
    let first = graph.agent("first", &viewer, "First.");
    graph.agent("second", &viewer, "Second.").after(&first);
    graph.agent("third", &viewer, "Third.").after((&first, graph.input()));
    graph.agent_with("fourth", &viewer, graph.input(), |text| format!("Fourth: {text}"));
    graph.agent_with("fifth", &viewer, graph.message(), |message| Message::clone(&message));
    graph.graph("sixth", &below, "Sixth.");
    let graph = graph.build().unwrap();
    graph.ask(Task::new(task())).await.unwrap();
    for (text, told) in [
        ("First.", "First.  <task> What is it? </task> [image/png] [application/pdf]"),
        ("Second.", "Second.  <result of=\"first\"> seen </result>"),
        (
            "Third.",
            "Third.  <task> What is it? </task>  <result of=\"first\"> seen </result> [image/png] [application/pdf]",
        ),
        ("Fourth:", "Fourth: What is it?"),
        ("What", "What is it? [image/png] [application/pdf]"),
        (
            "Below.",
            "Below.  <task-2> Sixth.  <task> What is it? </task> </task-2> [image/png] [application/pdf]",
        ),
    ] {
        let seen = viewer.seen(text);
        assert_eq!(seen.len(), 1, "{text}");
        assert_eq!(seen[0], told);
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_tasks_of_a_plan_see_the_images_too() {
    let viewer = Viewer::default();
    let tasks = vec![
        PlanTask::new("look", "viewer", "Look."),
        PlanTask::new("tell", "viewer", "Tell.").after(["look"]),
    ];
    let roster: Vec<Arc<dyn Agent>> = vec![Arc::new(viewer.clone())];
    let graph = Plan { tasks }.graph("plan", &roster).unwrap();
    graph.ask(Task::new(task())).await.unwrap();
    assert_eq!(viewer.seen("Look.").len(), 1);
    assert!(viewer.seen("Look.")[0].ends_with("[image/png] [application/pdf]"));
    assert!(!viewer.seen("Tell.")[0].contains("[image/png]"));
}

fn essays(
    graph: &entourage_runners::graph::TaskGraphBuilder,
) -> entourage_runners::graph::Handle<Vec<String>> {
    graph.step("essays", (), |()| async { Ok(["a", "b", "c"].map(str::to_owned).to_vec()) })
}

#[tokio::test(start_paused = true)]
async fn the_answers_for_the_items_of_a_list_are_read_as_values() {
    let provider = ScriptedProvider::new().text("3").text("not a number").text("5").text("4");
    let critic = ReactAgent::builder("critic", provider.model()).build().unwrap();
    let graph = TaskGraph::builder("marks");
    let marks = graph
        .map_agent("marks", &essays(&graph), &critic, |essay| format!("How good is {essay}?"))
        .returns::<u32>()
        .attempts(2);
    let sum = graph.step("sum", &marks, |marks| async move { Ok(marks.iter().sum::<u32>()) });
    let graph = graph.returning(&sum).build().unwrap();
    let run = graph.run("Go").await.unwrap();
    assert_eq!(run.output.as_deref(), Some(&12));
    let attempts: Vec<_> =
        run.report().nodes.iter().map(|node| (node.id.to_string(), node.attempts)).collect();
    let expected =
        [("essays", 1), ("marks", 1), ("sum", 1), ("marks[0]", 1), ("marks[1]", 2), ("marks[2]", 1)];
    assert_eq!(attempts, expected.map(|(id, attempts)| (id.to_owned(), attempts)));
    let asked = provider.requests()[0].messages.last().unwrap().text();
    assert!(asked.starts_with("How good is a?") && asked.contains("JSON Schema"), "{asked}");
}

#[tokio::test(start_paused = true)]
async fn an_invalid_typed_answer_leaves_a_gap_or_fails_the_list() {
    let hand = || Hand::new("hand").on("b", [Act::Fail("no")]);
    let graph = TaskGraph::builder("gaps");
    let each = graph.map_agent("each", &essays(&graph), &hand(), |essay| essay).returns::<bool>().partial();
    let graph = graph.returning(&each).build().unwrap();
    assert_eq!(*graph.ask("Go").await.unwrap(), [None, None, None], "`a done` is no bool");
    let graph = TaskGraph::builder("typed");
    let each = graph.map_agent("each", &essays(&graph), &hand(), |essay| essay).returns::<bool>();
    let error = graph.returning(&each).build().unwrap().ask("Go").await.unwrap_err();
    assert!(error.message().contains("the answer does not match its schema"), "{error}");
}

#[test]
fn only_answers_of_agents_are_read_as_values_and_their_schema_is_in_the_signature() {
    let steps = TaskGraph::builder("steps");
    let each = steps.map("each", &essays(&steps), |essay: String| async move { Ok(essay) });
    drop(each.returns::<u32>());
    let error = steps.build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.message().contains("`each`") && error.message().contains("returns"), "{error}");
    let lists = TaskGraph::builder("lists");
    drop(lists.agent("list", &Hand::new("hand"), "A list.").returns::<Vec<String>>().returns::<u32>());
    assert_eq!(lists.build().unwrap_err().kind(), ErrorKind::Config);
    let build = |typed: bool| {
        let graph = TaskGraph::builder("signed");
        let each = graph.map_agent("each", &essays(&graph), &Hand::new("hand"), |essay| essay);
        match typed {
            true => drop(each.returns::<u32>()),
            false => drop(each),
        }
        graph.build().unwrap()
    };
    let differences = build(false).signature().differences(build(true).signature());
    assert_eq!(differences.len(), 1, "{differences:?}");
}

#[tokio::test(start_paused = true)]
async fn lo07_agents_of_one_name_count_as_one() {
    let (one, other) = (Hand::new("twin"), Hand::new("twin"));
    let one = one.on("a", [Act::Sleep(crate::crew::secs(1))]);
    let other = other.on("b", [Act::Sleep(crate::crew::secs(1))]);
    let graph = TaskGraph::builder("twins");
    graph.agent("a", &one, "a");
    graph.agent("b", &other, "b");
    let start = tokio::time::Instant::now();
    graph.build().unwrap().run("Go").await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 2);
    assert_eq!((one.log.count("a ends"), other.log.count("b ends")), (1, 1), "each does its own node");
}
