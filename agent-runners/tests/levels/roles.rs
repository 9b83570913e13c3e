//! Models of roles: each role has its own, a session may have another, and only names of a model are stored.

use std::collections::BTreeSet;

use entourage_core::{
    ErrorKind,
    agent::Agent,
    event::Event,
    provider::{Model, Params},
    session::{SessionFilter, SharedStore},
};
use entourage_runners::{Autonomy, AutonomyLevel, ReactAgent};
use entourage_runtime::Session;
use entourage_testkit::ScriptedProvider;
use serde_json::json;

use crate::{
    common::{memory, runtime_on, stored},
    ladder::worker,
};

fn approve() -> String {
    json!({ "approved": true, "reason": "All there." }).to_string()
}

fn checker(model: Model) -> ReactAgent {
    ReactAgent::builder("checker", model).build().unwrap()
}

/// Returns the services and models of all calls in a session's tree.
async fn asked(store: &SharedStore, session: &Session) -> BTreeSet<(String, String)> {
    let mut ids = vec![session.id().clone()];
    let children = store.query(&SessionFilter::children_of(session.id().clone())).await.unwrap();
    ids.extend(children.into_iter().map(|info| info.record.id));
    let mut found = BTreeSet::new();
    for id in ids {
        found.extend(stored(store, &id).await.into_iter().filter_map(|event| match event.event {
            Event::ModelStarted(call) => Some((call.provider.to_string(), call.model.to_string())),
            _ => None,
        }));
    }
    found
}

fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> BTreeSet<(String, String)> {
    pairs.into_iter().map(|(provider, model)| (provider.to_owned(), model.to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn cw11_each_role_has_its_own_model_and_one_is_overridden_for_a_session() {
    let works = ScriptedProvider::named("works").text("A.").text("I did A.").text("B.").text("I did B.");
    let judges = ScriptedProvider::named("judges").text(approve());
    let other = ScriptedProvider::named("other").text(approve());
    let mut params = Params::default();
    params.temperature = Some(0.25);
    let agent = Autonomy::builder("pair", worker(works.model()))
        .judge(judges.model().with_params(params.clone()))
        .level(AutonomyLevel::Judge)
        .build()
        .unwrap();
    let store = memory();
    let first = runtime_on(&store).session();
    first.start(&agent, "Do A").outcome().await.unwrap();
    assert_eq!(asked(&store, &first).await, pairs([("works", "scripted"), ("judges", "scripted")]));
    assert_eq!(judges.requests()[0].params.temperature, Some(0.25), "with the role's own sampling");

    let own = agent.with_model("judge", Model::new(other.provider(), "large-1")).unwrap();
    assert_eq!(own.name(), agent.name(), "the same agent: it resumes what the other began");
    let second = runtime_on(&store).session();
    second.start(&own, "Do B").outcome().await.unwrap();
    assert_eq!(asked(&store, &second).await, pairs([("works", "scripted"), ("other", "large-1")]));
    assert_eq!((judges.count(), other.count()), (1, 1), "the agent itself is what it was");
}

#[tokio::test(start_paused = true)]
async fn cw11_every_role_can_be_overridden_by_itself() {
    let unused = ScriptedProvider::named("unused");
    let agent = Autonomy::builder("pair", worker(unused.model()))
        .judge(unused.model())
        .discriminator(checker(unused.model()))
        .build()
        .unwrap();
    for (role, level) in [
        ("executor", AutonomyLevel::React),
        ("judge", AutonomyLevel::Judge),
        ("verifier", AutonomyLevel::Verified),
        ("discriminator", AutonomyLevel::Dual),
    ] {
        let works = ScriptedProvider::named("works").text("A.");
        let checks = ScriptedProvider::named("checks");
        let (works, checks) = match level {
            AutonomyLevel::React => (works, checks),
            AutonomyLevel::Judge => (works.text("I did A."), checks.text(approve())),
            _ => (works.text("I did A."), checks.call("task_complete", json!({"summary": "Seen."}))),
        };
        let mut own = agent.with_model("executor", works.model()).unwrap().at(level).unwrap();
        if role != "executor" {
            own = own.with_model(role, checks.model()).unwrap();
        }
        assert!(runtime_on(&memory()).session().start(&own, "Do A").outcome().await.unwrap().is_completed());
        assert_eq!(unused.count(), 0, "{role}");
        assert_eq!(own.level(), level, "another model leaves the level as it is");
    }
}

#[test]
fn cw11_a_role_that_nobody_fills_is_refused_with_those_that_somebody_does() {
    let provider = ScriptedProvider::new();
    let all = Autonomy::builder("pair", worker(provider.model()))
        .judge(provider.model())
        .discriminator(checker(provider.model()))
        .build()
        .unwrap();
    let alone = Autonomy::builder("one", worker(provider.model())).build().unwrap();
    let every = "`executor`, `judge`, `verifier`, `discriminator`";
    for (agent, role, roles) in [
        (&all, "critic", every),
        (&all, "Judge", every),
        (&all, "", every),
        (&alone, "judge", "its roles are `executor`"),
        (&alone, "discriminator", "its roles are `executor`"),
    ] {
        let error = agent.with_model(role, provider.model()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains(roles), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn r20_what_is_stored_of_a_model_is_its_name_and_its_services() {
    let secret = "sk-verysecret";
    let works = ScriptedProvider::named("works").text("A.").text("I did A.");
    let judges = ScriptedProvider::named("judges").text(approve());
    let mut params = Params::default();
    params.metadata.insert("key".to_owned(), secret.into());
    let agent = Autonomy::builder("pair", worker(works.model()))
        .judge(judges.model().with_params(params))
        .level(AutonomyLevel::Judge)
        .build()
        .unwrap();
    let store = memory();
    let session = runtime_on(&store).session();
    session.start(&agent, "Do A").outcome().await.unwrap();
    agent.set_mode(&session, "react").await.unwrap();
    for id in [session.id().clone(), session.id().in_role("judge").unwrap()] {
        for event in stored(&store, &id).await {
            assert!(!serde_json::to_string(&event).unwrap().contains(secret), "{event:?}");
        }
    }
    assert!(!format!("{agent:?}").contains(secret));
}
