//! Plans: the planner's, those that it fails to give, and what is refused.

use std::time::Duration;

use entourage_core::{Error, ErrorKind, run::Status, session::SessionFilter};
use entourage_runners::{
    builtin,
    research::{Research, Researcher},
};
use entourage_runtime::{AgentExt, permission::Policy};
use entourage_testkit::{self as testkit, FakeTool, ScriptedProvider};

use crate::worker::{Act, Worker, planner, recorded};

#[tokio::test(start_paused = true)]
async fn ai08_the_progress_counts_up_to_all_tasks() {
    let worker = Worker::new(Act::Works(Duration::from_secs(1)));
    let tasks = [(Researcher::FileSearcher, "one".to_owned()), (Researcher::DocReader, "two".to_owned())];
    let research = Research::builder("research", ScriptedProvider::new().model())
        .planner(planner(tasks).model())
        .agent(Researcher::FileSearcher, worker.clone())
        .agent(Researcher::DocReader, Worker::new(Act::Works(Duration::from_millis(1))))
        .build()
        .unwrap();
    let session = testkit::runtime().policy(Policy::allow_all()).build().session();
    let outcome = session.start(&research, "What is there?").outcome().await.unwrap();
    let recorded = recorded(&session).await;
    let progress: Vec<_> = recorded.iter().map(|it| (it.number, it.total, it.done, it.active)).collect();
    assert_eq!(progress, [(1, 2, 0, 1), (2, 2, 0, 2), (2, 2, 1, 1), (1, 2, 2, 0)]);
    // Results are in the order of the tasks, not of their ends.
    assert_eq!(outcome.text, "## 1. one (file-searcher)\n\ndid one\n\n## 2. two (doc-reader)\n\ndid two");
    let children: Vec<_> = recorded.iter().map(|it| it.child.clone()).collect();
    assert_eq!((&children[0], &children[1]), (&children[3], &children[2]));
}

#[tokio::test(start_paused = true)]
async fn ai08_without_a_plan_the_words_of_the_question_decide() {
    let failing = || ScriptedProvider::new().fail(ErrorKind::Authentication, "no key");
    let invalid = || ScriptedProvider::new().text("I would look.").text(r#"{"tasks": []}"#);
    let unknown = || {
        let task = r#"{"tasks": [{"kind": "poet", "prompt": "Sing."}]}"#;
        ScriptedProvider::new().text(task).text(task)
    };
    for (case, plans) in [("fails", failing()), ("is invalid", invalid()), ("is unknown", unknown())] {
        let looks = ScriptedProvider::by_history().text("There.");
        let research = Research::builder("research", looks.model()).planner(plans.model()).build().unwrap();
        let outcome = research.start("Find the lease").outcome().await.unwrap();
        assert_eq!((outcome.status, looks.count()), (Status::Completed, 3), "{case}");
        assert!(plans.count() > 0, "{case}");
        assert_eq!(outcome.text.matches("There.").count(), 3, "{case}: {}", outcome.text);
    }
}

#[tokio::test(start_paused = true)]
async fn ai08_a_coding_task_is_refused_before_anything_is_called() {
    let provider = ScriptedProvider::new();
    let research = Research::builder("research", provider.model()).build().unwrap();
    let runtime = testkit::runtime().policy(Policy::allow_all()).build();
    for prompt in ["Fix the lease", "Where is it? Then delete it."] {
        let error: Error = runtime.session().start(&research, prompt).outcome().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{prompt}: {error}");
    }
    assert_eq!(provider.count(), 0);
    assert_eq!(runtime.sessions(&SessionFilter::all()).await.unwrap().len(), 2, "no child");
}

#[tokio::test(start_paused = true)]
async fn ai08_a_planner_can_tell_that_a_task_is_no_research() {
    let plans = ScriptedProvider::new().text(r#"{"changes": true, "tasks": []}"#);
    let looks = ScriptedProvider::new();
    let research = Research::builder("research", looks.model()).planner(plans.model()).build().unwrap();
    let error = research.ask("The lease must be shorter").await.unwrap_err();
    assert_eq!((error.kind(), looks.count()), (ErrorKind::InvalidInput, 0));
    assert!(error.message().contains("give it to an agent that may write"), "{error}");
}

#[tokio::test]
async fn ai01_each_kind_has_a_prompt_of_its_own_that_records_name() {
    let prompts = builtin::prompts();
    let named = |name: &str| {
        let start = format!("entourage/{name}@1#");
        let found = prompts.iter().find(|it| it.template().is_some_and(|id| id.starts_with(&start)));
        found.unwrap_or_else(|| panic!("{name} is not listed"))
    };
    let mut texts = std::collections::BTreeSet::from([named("research-plan").text().to_owned()]);
    for kind in Researcher::ALL {
        let looks = ScriptedProvider::new().text("Seen.");
        let research = Research::builder("research", looks.model())
            .planner(planner([(kind, "Look.".to_owned())]).model())
            .build()
            .unwrap();
        assert_eq!(research.ask("What is there?").await.unwrap(), "Seen.");
        let text = named(kind.name()).text().to_owned();
        assert_eq!(*looks.requests()[0].instructions, *text, "{kind}");
        assert!(text.chars().count() < 900, "{kind}: it is short");
        texts.insert(text);
    }
    assert_eq!(texts.len(), 1 + Researcher::ALL.len());
}

#[test]
fn research_that_cannot_work_is_not_built() {
    let model = || ScriptedProvider::new().model();
    let twice = (FakeTool::new("grep"), FakeTool::new("grep"));
    for builder in
        [Research::builder("re search", model()), Research::builder("research", model()).tools(twice)]
    {
        assert_eq!(builder.build().unwrap_err().kind(), ErrorKind::Config);
    }
}
