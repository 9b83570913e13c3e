//! A dependent receives a node's output as the type that the node returned.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    agent::Agent,
    provider::FinishReason,
    run::{Outcome, Pause, RunContext, Status, Task},
};
use entourage_runners::{
    ReactAgent, TypedAgent,
    graph::{Each, NodeState, Plan, PlanTask, TaskGraph},
};
use entourage_testkit::{Script, ScriptedProvider};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::Named;

/// An agent that records its prompts and gives the answers that it was told to give.
#[derive(Clone)]
struct Hears {
    name: &'static str,
    answer: &'static str,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Hears {
    fn new(name: &'static str, answer: &'static str) -> Self {
        Self { name, answer, heard: Arc::default() }
    }

    fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

#[async_trait]
impl Agent for Hears {
    fn name(&self) -> &str {
        self.name
    }

    async fn run(&self, task: Task, _: &RunContext) -> Result<Outcome> {
        self.heard.lock().unwrap().push(task.prompt.text());
        Ok(Outcome::completed(self.answer))
    }
}

/// Answers the last word of its prompt, in capitals.
#[derive(Clone)]
struct Shouts;

#[async_trait]
impl Agent for Shouts {
    fn name(&self) -> &'static str {
        "shouter"
    }

    async fn run(&self, task: Task, _: &RunContext) -> Result<Outcome> {
        let text = task.prompt.text();
        let word = text.split_whitespace().last().unwrap_or_default();
        match word {
            "silence" => Err(Error::new(ErrorKind::Tool, "it cannot be said")),
            word => Ok(Outcome::completed(word.to_uppercase())),
        }
    }
}

/// A value that cannot be cloned: each dependent gets the original.
#[derive(Debug, Serialize, Deserialize)]
struct Schema {
    version: u32,
}

#[tokio::test]
async fn values_of_all_shapes_arrive_as_they_were_made() {
    let graph = TaskGraph::builder("shapes");
    let made = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&made);
    let schema = graph.step("schema", (), move |()| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok(Schema { version: 2 }) }
    });
    let name = graph.step("name", (), |()| async { Ok("login".to_owned()) });
    let numbers: Vec<_> =
        (0..5_u64).map(|n| graph.step(n.to_string(), (), move |()| async move { Ok(n * n) })).collect();
    let sum = graph.step("sum", &numbers, |each: Each<u64>| async move {
        assert_eq!((each.len(), each.is_empty(), each.get(3), each.get(5)), (5, false, Some(&9), None));
        Ok(each.iter().sum::<u64>())
    });
    let never =
        graph.step("never", &schema, |_| async { Ok(7_u8) }).when(&schema, |schema| schema.version > 2);
    let some = graph.step("some", [never.optional(), never.optional()], |each| async move {
        Ok((each.len(), each.iter().count()))
    });
    let all = graph.step(
        "all",
        (&schema, &name, sum.clone(), never.optional(), graph.input(), &numbers[1..3], &some, &schema),
        |(schema, name, sum, never, input, two, some, again)| async move {
            assert!(Arc::ptr_eq(&schema, &again));
            let two: Vec<_> = two.iter().copied().collect();
            Ok(format!("{} {name} {sum} {never:?} {input} {two:?} {some:?}", schema.version))
        },
    );
    let graph = graph.returning(&all).build().unwrap();
    assert_eq!(*graph.ask("Build it").await.unwrap(), "2 login 30 None Build it [1, 4] (2, 0)");
    assert_eq!(made.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn lo07_agents_are_told_what_the_nodes_before_them_gave() {
    let architect = Hears::new("architect", "One form, two fields.");
    let coder = Hears::new("coder", "done");
    let graph = TaskGraph::builder("login");
    let design = graph.agent("design", &architect, "Design the login form.");
    let schema = graph.step("schema", (), |()| async { Ok(Schema { version: 2 }) });
    let never = graph.step("never", (), |()| async { Ok(()) }).when(&design, |_| false);
    graph.agent("backend", &coder, "Write the backend.").after(&design).after((&schema, never.optional()));
    graph.agent("docs", &coder, "Write it up.").after((&design, graph.input()));
    graph.agent_with("audit", &coder, (&design, &schema), |(design, schema)| {
        format!("{} {design}", schema.version)
    });
    let run = graph.build().unwrap().run("Build a login").await.unwrap();
    assert!(run.outcome.is_completed(), "{:?}", run.outcome);
    assert_eq!(architect.heard(), ["Design the login form.\n\n<task>\nBuild a login\n</task>"]);
    assert_eq!(
        coder.heard(),
        [
            "Write the backend.\n\n<result of=\"design\">\nOne form, two fields.\n</result>\n\n\
             <result of=\"schema\">\n{\"version\":2}\n</result>",
            "Write it up.\n\n<task>\nBuild a login\n</task>\n\n\
             <result of=\"design\">\nOne form, two fields.\n</result>",
            "2 One form, two fields.",
        ]
    );
}

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Verdict {
    good: bool,
}

#[tokio::test]
async fn an_answer_is_read_as_a_value() {
    let judge = Hears::new("judge", "Sure:\n```json\n{\"good\": true}\n```");
    let graph = TaskGraph::builder("judging");
    let verdict = graph.agent("verdict", &judge, "Is it good?").returns::<Verdict>();
    let word = graph.step("word", &verdict, |verdict| async move { Ok(verdict.good) });
    let graph = graph.returning(&word).build().unwrap();
    assert!(*graph.ask("A form").await.unwrap());
    let prompt = judge.heard().remove(0);
    assert!(
        prompt.starts_with("Is it good?\n\n<task>\nA form\n</task>\n\nAnswer with one JSON value"),
        "{prompt}"
    );
    assert!(prompt.contains("\"good\""), "{prompt}");

    let graph = TaskGraph::builder("judging");
    let verdict =
        graph.agent("verdict", &Hears::new("judge", "Yes, it is."), "Is it good?").returns::<Verdict>();
    let run = graph.returning(&verdict).build().unwrap().run("A form").await.unwrap();
    assert_eq!(run.report().node("verdict").unwrap().state(), NodeState::Failed);
    assert!(run.output.is_none());
}

#[tokio::test]
async fn a_list_is_worked_on_item_by_item_in_order() {
    let graph = TaskGraph::builder("files");
    let files = graph.step("files", graph.input(), |input| async move {
        Ok(input.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    });
    let lengths = graph
        .map("lengths", &files, |file: String| async move {
            // Later items end first.
            for _ in 0..10_usize.saturating_sub(file.len()) {
                tokio::task::yield_now().await;
            }
            Ok(file.len())
        })
        .at_once(2);
    let shouts = graph.map_agent("shouts", &files, &Shouts, |file| format!("Say {file}")).partial();
    let all = graph.step("all", (&lengths, &shouts), |(lengths, shouts)| async move {
        Ok(format!("{lengths:?} {shouts:?}"))
    });
    let graph = graph.returning(&all).build().unwrap();
    let answer = graph.ask("a bcd silence ef").await.unwrap();
    assert_eq!(*answer, r#"[1, 3, 7, 2] [Some("A"), Some("BCD"), None, Some("EF")]"#);
    // A graph is given a text, so the list is empty only if the text holds no words of its own.
    let graph = TaskGraph::builder("none");
    let none = graph.step("none", (), |()| async { Ok(Vec::<u32>::new()) });
    let mapped = graph.map("mapped", &none, |n| async move { Ok(n) });
    let graph = graph.returning(&mapped).build().unwrap();
    assert_eq!(*graph.ask("x").await.unwrap(), Vec::<u32>::new());
}

#[tokio::test]
async fn an_item_that_fails_fails_a_list_that_is_to_be_whole() {
    let graph = TaskGraph::builder("files");
    let files = graph.step("files", (), |()| async { Ok(vec!["a".to_owned(), "silence".to_owned()]) });
    let shouts = graph.map_agent("shouts", &files, &Shouts, |file| file);
    let run = graph.returning(&shouts).build().unwrap().run("x").await.unwrap();
    assert!(run.output.is_none());
    let report = run.report();
    assert_eq!(*report.value(&files).unwrap().unwrap(), ["a", "silence"]);
    assert_eq!(report.value(&shouts).unwrap(), None);
    assert_eq!(run.report().node("shouts").unwrap().state(), NodeState::Failed);
}

#[tokio::test]
async fn a_graph_is_a_node_and_what_it_comes_to_is_typed() {
    let inner = TaskGraph::builder("inner");
    let length = inner.step("length", inner.input(), |input| async move { Ok(vec![input.len()]) });
    let inner = inner.returning(&length).build().unwrap();
    let texts = TaskGraph::builder("texts");
    let quoted = texts.step("quoted", texts.input(), |input| async move { Ok(format!("\"{input}\"")) });
    let texts = texts.returning(&quoted).build().unwrap();

    let outer = TaskGraph::builder("outer");
    let word = outer.step("word", (), |()| async { Ok("four".to_owned()) });
    let length = outer.graph_with("inner", &inner, &word, |word| word.to_string());
    let text = outer.graph("texts", &texts, "Quote").after(&word);
    let both = outer
        .step("both", (&length, &text), |(length, text)| async move { Ok((length[0], text.to_string())) });
    let outer = outer.returning(&both).build().unwrap();
    let both = outer.ask("x").await.unwrap();
    assert_eq!(*both, (4, "\"Quote\n\n<result of=\"word\">\nfour\n</result>\"".to_owned()));
}

#[tokio::test]
async fn the_outcome_of_a_run_in_a_session_has_the_typed_output() {
    let graph = TaskGraph::builder("lengths");
    let lengths = graph.step("lengths", graph.input(), |text| async move {
        if text.len() > 9 {
            return Err(Error::new(ErrorKind::InvalidInput, "too long"));
        }
        Ok(text.split(' ').map(str::len).collect::<Vec<_>>())
    });
    let graph = graph.returning(&lengths).build().unwrap();
    let session = entourage_testkit::runtime().build().session();
    let outcome = session.start(&graph, "a bcd").outcome().await.unwrap();
    assert_eq!(graph.output(&outcome).unwrap(), [1, 3]);

    let outcome = session.start(&graph, "a bcd ef ghi").outcome().await.unwrap();
    let error = graph.output(&outcome).unwrap_err();
    assert!(error.stop_reason().is_some_and(|reason| reason.to_string().contains("lengths")), "{error}");
    let paused = Outcome::new(Status::Paused(Pause::Asked));
    assert_eq!(graph.output(&paused).unwrap_err().pause(), Some(&Pause::Asked));
    let other = graph.output(&Outcome::completed("of somebody else")).unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Corrupt);
}

#[tokio::test]
async fn one_of_two_ways_is_taken() {
    for (input, taken) in [("left", "went left"), ("right", "went right")] {
        let graph = TaskGraph::builder("router");
        let way = graph.step("way", graph.input(), |input| async move { Ok(input.to_string()) });
        let left =
            graph.step("left", (), |()| async { Ok("went left".to_owned()) }).when(&way, |way| way == "left");
        let right = graph
            .step("right", (), |()| async { Ok("went right".to_owned()) })
            .when(&way, |way| way == "right");
        let end = graph.step("end", (left.optional(), right.optional()), |(left, right)| async move {
            let ways: Vec<_> = left.into_iter().chain(right).map(|way| way.to_string()).collect();
            Ok(ways.join(" and "))
        });
        let graph = graph.returning(&end).build().unwrap();
        assert_eq!(*graph.ask(input).await.unwrap(), taken);
    }
}

#[tokio::test]
async fn all_conditions_must_hold_and_an_optional_value_is_needed_then() {
    for (value, expected) in [(5, Some("5")), (50, None), (1, None)] {
        let graph = TaskGraph::builder("between");
        let number = graph.step("number", (), move |()| async move { Ok(value) });
        let end = graph
            .step("end", number.optional(), |number| async move {
                Ok(number.map_or(0, |number| *number).to_string())
            })
            .when(&number, |number| *number > 2)
            .when(&number, |number| *number < 9);
        let run = graph.returning(&end).build().unwrap().run("x").await.unwrap();
        assert_eq!(run.output.as_ref().map(|output| output.as_str()), expected);
    }
}

#[tokio::test]
async fn lo06_a_plan_runs_as_it_was_written() {
    let (coder, tester) = (Hears::new("coder", "fn login()"), Hears::new("tester", "green"));
    let plan = Plan {
        tasks: vec![
            PlanTask::new("tests", "tester", "Test it.").after(["backend"]),
            PlanTask::new("backend", "coder", "Write the backend."),
        ],
    };
    let roster: [Arc<dyn Agent>; 3] = [Arc::new(coder), Arc::new(tester.clone()), Arc::new(Named("idle"))];
    let run = plan.graph("login", &roster).unwrap().run("Build it").await.unwrap();
    assert_eq!(run.outcome.status, Status::Completed);
    assert_eq!(tester.heard(), ["Test it.\n\n<result of=\"backend\">\nfn login()\n</result>"]);
    assert_eq!(run.output.unwrap().as_str(), "green");
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Sales {
    sold: u32,
}

/// An agent that refuses more than nine sales.
fn clerk(provider: &ScriptedProvider) -> TypedAgent<Sales> {
    let few = |sales: &Sales| if sales.sold < 10 { Ok(()) } else { Err("too many".to_owned()) };
    let clerk = ReactAgent::builder("clerk", provider.model()).returns::<Sales>();
    clerk.validate(move |sales, _| few(sales)).build().unwrap()
}

#[tokio::test]
async fn the_value_of_a_typed_agent_is_that_of_its_node() {
    let provider = ScriptedProvider::by_history().text("Some.").text("{\"sold\": 3}");
    let clerk = clerk(&provider);
    let graph = TaskGraph::builder("report");
    let here = graph.typed_agent("here", &clerk, "Count here.");
    let there = graph.typed_agent_with("there", &clerk, &here, |sales| format!("More than {}?", sales.sold));
    let sum = graph.step("sum", (&here, &there), |(here, there)| async move { Ok(here.sold + there.sold) });
    // An agent without types is told the value as JSON.
    let hears = Hears::new("hears", "Good.");
    let text = graph.agent("text", &hears, "Comment.").after(&there);
    let both = graph.step("both", (&sum, &text), |(sum, text)| async move { Ok(format!("{sum} {text}")) });
    let run = graph.returning(&both).build().unwrap().run("Sales").await.unwrap();
    assert_eq!(run.output.as_ref().unwrap().as_str(), "6 Good.");
    assert_eq!(hears.heard(), ["Comment.\n\n<result of=\"there\">\n{\"sold\":3}\n</result>"]);
    assert_eq!(run.report().value(&here).unwrap().as_deref(), Some(&Sales { sold: 3 }));
    let prompts =
        provider.requests().into_iter().map(|request| request.messages.iter().next().unwrap().text());
    assert!(prompts.into_iter().all(|prompt| !prompt.contains("Schema")), "the agent knows how to ask");
}

#[tokio::test]
async fn a_typed_agent_without_a_value_fails_its_attempt() {
    let wrong = || Script::new().text("{\"sold\": 99}").usage(1, 1).finish(FinishReason::Stop);
    let provider = ScriptedProvider::new().step(wrong()).step(wrong()).text("{\"sold\": 1}");
    let graph = TaskGraph::builder("report");
    let sales = graph.typed_agent("sales", &clerk(&provider), "Count.").attempts(2);
    let run = graph.returning(&sales).build().unwrap().run("Sales").await.unwrap();
    assert_eq!(run.output.as_deref(), Some(&Sales { sold: 1 }));
    let provider = ScriptedProvider::new().step(wrong()).step(wrong());
    let graph = TaskGraph::builder("report");
    let sales = graph.typed_agent("sales", &clerk(&provider), "Count.");
    let run = graph.returning(&sales).build().unwrap().run("Sales").await.unwrap();
    assert!(run.output.is_none());
    assert!(format!("{}", run.outcome.status).contains("too many"), "{}", run.outcome.status);
}

#[tokio::test]
async fn a_typed_agent_works_on_each_item_of_a_list() {
    let provider = ScriptedProvider::new().text("{\"sold\": 1}").text("{\"sold\": 2}");
    let graph = TaskGraph::builder("report");
    let shops = graph.step("shops", (), |()| async { Ok(vec!["a".to_owned(), "b".to_owned()]) });
    let sales = graph.map_typed_agent("sales", &shops, &clerk(&provider), |shop| format!("Count in {shop}."));
    let sum =
        graph.step("sum", &sales, |sales| async move { Ok(sales.iter().map(|it| it.sold).sum::<u32>()) });
    assert_eq!(*graph.returning(&sum).build().unwrap().ask("Sales").await.unwrap(), 3);
}
