//! The cache: what is kept, for how long, and for which questions.

use std::{sync::Arc, time::Duration};

use entourage_core::{
    ErrorKind, Money,
    run::{Outcome, Task},
    session::SharedStore,
    tool::Labels,
};
use entourage_runners::research::{Research, ResearchBuilder, Researcher};
use entourage_runtime::{Runtime, Session, permission::Policy};
use entourage_testkit::{self as testkit, MemoryStore, ScriptedProvider};

use crate::worker::{Act, Worker, recorded};

/// A runtime, and the session in which the reports of a project are kept.
struct Project {
    runtime: Runtime,
    cache: Session,
}

impl Project {
    fn new() -> Self {
        let store: SharedStore = Arc::new(MemoryStore::new());
        let runtime = testkit::runtime().policy(Policy::allow_all()).shared_store(store).build();
        Self { cache: runtime.session(), runtime }
    }

    fn research(&self, looks: &ScriptedProvider) -> ResearchBuilder {
        Research::builder("research", looks.model()).without_planner().cache(&self.cache)
    }

    async fn ask(&self, research: &Research, question: &str) -> Outcome {
        self.runtime.session().start(research, question).outcome().await.unwrap()
    }
}

/// A model that is asked this many times; its answers are numbered.
fn numbered(times: u32) -> ScriptedProvider {
    (1..=times).fold(ScriptedProvider::new(), |looks, n| looks.text(format!("Answer {n}.")))
}

#[tokio::test(start_paused = true)]
async fn ai10_a_hit_has_the_report_and_its_age_and_costs_nothing() {
    let (project, looks) = (Project::new(), numbered(2));
    let research = project.research(&looks).build().unwrap();
    assert_eq!(project.ask(&research, "How do leases work?").await.text, "Answer 1.");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let session = project.runtime.session();
    let hit = session.start(&research, "how do LEASES work").outcome().await.unwrap();
    assert_eq!(hit.text, "Answer 1.\n\n(This was found 60 seconds ago.)");
    assert_eq!((hit.steps, hit.cost, looks.count()), (0, Some(Money::default()), 1));
    assert!(recorded(&session).await.is_empty(), "no agent");
    // A hit is kept no second time: it would never grow old.
    assert_eq!(project.ask(&research, "Who made them?").await.text, "Answer 2.");
}

#[tokio::test(start_paused = true)]
async fn attack_44_a_hit_has_the_labels_of_what_found_it() {
    let (project, looks) = (Project::new(), numbered(1));
    let research = project.research(&looks).build().unwrap();
    let page = Task::new("How do leases work?").with_labels(Labels::UNTRUSTED);
    assert_eq!(
        project.runtime.session().start(&research, page).outcome().await.unwrap().labels,
        Labels::UNTRUSTED
    );
    let hit = project.ask(&research, "how do LEASES work").await;
    assert_eq!((hit.labels, looks.count()), (Labels::UNTRUSTED, 1));
}

#[tokio::test(start_paused = true)]
async fn ai10_a_report_is_used_for_less_than_an_hour() {
    for (age, hit) in [(3_599, true), (3_600, false), (3_601, false)] {
        let (project, looks) = (Project::new(), numbered(if hit { 1 } else { 2 }));
        let research = project.research(&looks).build().unwrap();
        project.ask(&research, "How do leases work?").await;
        tokio::time::sleep(Duration::from_secs(age)).await;
        let text = project.ask(&research, "How do leases work?").await.text;
        assert_eq!((text.starts_with("Answer 1."), looks.count()), (hit, if hit { 1 } else { 2 }), "{age}");
    }
}

#[tokio::test(start_paused = true)]
async fn ai10_questions_are_alike_from_0_85_on() {
    for (likeness, hit) in [(0.849, false), (0.85, true), (1.0, true), (0.0, false), (f64::NAN, false)] {
        let (project, looks) = (Project::new(), numbered(if hit { 1 } else { 2 }));
        let research = project.research(&looks).likeness(move |_, _| likeness).build().unwrap();
        project.ask(&research, "How do leases work?").await;
        let text = project.ask(&research, "Who?").await.text;
        assert_eq!(
            (text.starts_with("Answer 1."), looks.count()),
            (hit, if hit { 1 } else { 2 }),
            "{likeness}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn ai10_the_best_report_wins_and_the_newest_of_several() {
    let likeness = |asked: &str, kept: &str| match (asked, kept) {
        ("Which best?", "Is it one?") => 0.9,
        ("Which best?", "Is it two?") => 0.95,
        ("Which best?", "Is it three?") => 0.86,
        ("Which newest?", _) => 0.9,
        _ => 0.0,
    };
    let (project, looks) = (Project::new(), numbered(3));
    let research = project.research(&looks).likeness(likeness).build().unwrap();
    for question in ["Is it one?", "Is it two?", "Is it three?"] {
        project.ask(&research, question).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(project.ask(&research, "Which best?").await.text.starts_with("Answer 2."));
    assert!(project.ask(&research, "Which newest?").await.text.starts_with("Answer 3."));
    assert_eq!(looks.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn ai10_each_project_has_reports_of_its_own_and_a_refresh_replaces_one() {
    let (project, looks) = (Project::new(), numbered(3));
    let research = project.research(&looks).build().unwrap();
    let other = project.research(&looks).cache(&project.runtime.session()).build().unwrap();
    let question = "How do leases work?";
    assert_eq!(project.ask(&research, question).await.text, "Answer 1.");
    assert_eq!(project.ask(&other, question).await.text, "Answer 2.");
    assert_eq!(project.ask(&research.refreshing(), question).await.text, "Answer 3.");
    assert!(project.ask(&research, question).await.text.starts_with("Answer 3.\n\n(This was found"));
    assert!(project.ask(&other, question).await.text.starts_with("Answer 2.\n\n(This was found"));
    assert_eq!(looks.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn ai10_only_complete_reports_are_kept() {
    let (project, looks) = (Project::new(), numbered(4));
    let research =
        project.research(&looks).agent(Researcher::DocReader, Worker::new(Act::Panics)).build().unwrap();
    for count in [2, 4] {
        let outcome = project.ask(&research, "Find the lease").await;
        assert_eq!((outcome.failed.len(), looks.count()), (1, count), "{outcome:?}");
    }
    assert_eq!(project.cache.head().await.unwrap().seq, 0);
}

#[tokio::test(start_paused = true)]
async fn ai10_a_research_cannot_run_in_the_session_of_its_cache() {
    let (project, looks) = (Project::new(), numbered(0));
    let research = project.research(&looks).build().unwrap();
    let error = project.cache.start(&research, "How do leases work?").outcome().await.unwrap_err();
    assert_eq!((error.kind(), looks.count()), (ErrorKind::Config, 0));
    assert!(error.message().contains("a session of its own"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn ai10_a_scope_without_the_cache_looks_anew() {
    let (project, looks) = (Project::new(), numbered(2));
    let research = project.research(&looks).build().unwrap();
    let denied = testkit::runtime().policy(Policy::allow_all().deny("research_*")).build();
    for n in 1..=2 {
        let outcome = denied.session().start(&research, "How do leases work?").outcome().await.unwrap();
        assert_eq!(outcome.text, format!("Answer {n}."));
    }
}
