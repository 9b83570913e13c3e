//! Layers that have a call asked about, whatever else allows it.

use entourage_core::{
    permission::{Decision, Scope},
    run::Status,
    tool::{Access, LayerVerdict},
};
use entourage_runners::layered;
use entourage_runtime::permission::Policy;
use serde_json::{Value, json};

use crate::{
    common::{Write, agent, assert_valid, memory},
    tool_layer_allow::{Before, Layer, allow, asked, begun, decide, on, provider},
};

fn ask(_: &mut Value) -> LayerVerdict {
    LayerVerdict::Ask("it leaves the machine".to_owned())
}

#[tokio::test]
async fn attack_44_nothing_but_the_approver_answers_a_layer_that_asks() {
    let read = Scope::none().with_access(Access::READ);
    // Neither the rules nor another layer answer it; what is forbidden is not asked about.
    for (policy, scope, other, questions) in [
        (Policy::allow_all(), Scope::all(), None, 1),
        (Policy::new().ask("write"), Scope::all(), None, 1),
        (Policy::allow_all(), Scope::all(), Some(allow as Before), 1),
        (Policy::new().ask("write"), Scope::all(), Some(allow), 1),
        (Policy::allow_all().deny("write:a"), Scope::all(), None, 0),
        (Policy::allow_all(), read, None, 0),
    ] {
        let (store, write) = (memory(), Write::new().idempotent());
        let shown = format!("{policy:?} {scope:?} {other:?}");
        let tool = layered(write.clone(), Layer::new(other.unwrap_or(ask)));
        let agent = agent(provider(&["a"]).model()).tool(tool).scope(scope).build().unwrap();
        let runtime = on(&store, policy).tool_layer(Layer::new(ask)).build();
        let session = runtime.session();
        let outcome = session.start(&agent, "Go").outcome().await.unwrap();
        assert_eq!(matches!(outcome.status, Status::Paused(_)), questions == 1, "{shown}: {outcome}");
        assert_eq!((write.paths().len(), asked(&store, session.id()).await), (0, questions), "{shown}");
        if questions == 1 {
            decide(&runtime, Decision::Allow).await;
            session.resume(&agent).outcome().await.unwrap();
            assert_eq!(write.paths(), ["a"], "{shown}");
            assert_eq!(begun(&store, session.id()).await[0].allowed_by, "approver");
        }
        assert_valid(&session.history().await.unwrap());
    }
}

#[tokio::test]
async fn attack_44_a_grant_for_the_session_is_no_answer_to_a_layer() {
    let (store, write) = (memory(), Write::new().idempotent());
    let agent = agent(provider(&["a", "a"]).model()).tool(write.clone()).build().unwrap();
    let runtime = on(&store, Policy::allow_all()).tool_layer(Layer::new(ask)).build();
    let session = runtime.session();
    session.start(&agent, "Go").outcome().await.unwrap();
    decide(&runtime, Decision::AllowSession).await;
    let outcome = session.resume(&agent).outcome().await.unwrap();
    assert!(matches!(outcome.status, Status::Paused(_)), "{outcome}");
    assert_eq!(write.paths(), ["a"]);
    decide(&runtime, Decision::Deny).await;
    session.resume(&agent).outcome().await.unwrap();
    assert_eq!(write.paths(), ["a"]);
}

#[tokio::test]
async fn attack_43_a_question_of_a_layer_outlives_its_process_and_its_layer() {
    for (decision, wrote) in [
        (None, &[][..]),
        (Some(Decision::Allow), &["a"]),
        (Some(Decision::Deny), &[]),
        (Some(Decision::edit(&json!({"path": "z"})).unwrap()), &["z"]),
    ] {
        let (store, write) = (memory(), Write::new().idempotent());
        let agent = agent(provider(&["a"]).model()).tool(write.clone()).build().unwrap();
        let layer = Layer::once(ask);
        let session = on(&store, Policy::allow_all()).tool_layer(layer.clone()).build().session();
        session.start(&agent, "Go").outcome().await.unwrap();
        // By now the layer would let it pass.
        let runtime =
            || on(&store, Policy::allow_all()).tool_layer(Layer::once(|_| LayerVerdict::Pass)).build();
        let later = runtime();
        if let Some(decision) = decision.clone() {
            decide(&later, decision).await;
        }
        let session = later.open(session.id()).await.unwrap();
        let outcome = session.resume(&agent).outcome().await.unwrap();
        assert_eq!(matches!(outcome.status, Status::Paused(_)), decision.is_none(), "{outcome}");
        assert_eq!(
            (write.paths().as_slice(), layer.asked()),
            (&*wrote.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>(), 1)
        );
        if decision.is_some() {
            assert_valid(&session.history().await.unwrap());
        }
        if decision == Some(Decision::Allow) {
            let run = session.events(0, 1).await.unwrap()[0].origin.run;
            assert_eq!(session.replay(&agent, run).await.unwrap().text, "Done.");
            assert_eq!(write.paths().len(), 1);
        }
    }
}

#[tokio::test]
async fn attack_43_a_question_of_a_layer_is_answered_by_a_person_also_where_the_layer_is_gone() {
    let (store, write) = (memory(), Write::new().idempotent());
    let agent = agent(provider(&["a"]).model()).tool(write.clone()).build().unwrap();
    let session = on(&store, Policy::allow_all()).tool_layer(Layer::new(ask)).build().session();
    session.start(&agent, "Go").outcome().await.unwrap();
    let later = on(&store, Policy::allow_all()).build();
    let session = later.open(session.id()).await.unwrap();
    let outcome = session.resume(&agent).outcome().await.unwrap();
    assert!(matches!(outcome.status, Status::Paused(_)), "{outcome}");
    assert_eq!(write.paths(), [""; 0]);
    decide(&later, Decision::Allow).await;
    assert!(session.resume(&agent).outcome().await.unwrap().is_completed());
    assert_eq!(write.paths(), ["a"]);
}

#[tokio::test]
async fn attack_43_an_answer_holds_for_the_reason_that_it_was_asked_for() {
    fn other(_: &mut Value) -> LayerVerdict {
        LayerVerdict::Ask("for another reason".to_owned())
    }
    // Asked by a rule, or by a layer for one reason; by now a layer asks for another one.
    for first in [None, Some(ask as Before)] {
        let (store, write) = (memory(), Write::new().idempotent());
        let agent = agent(provider(&["a"]).model()).tool(write.clone()).build().unwrap();
        let mut before = on(&store, Policy::new().ask("write"));
        if let Some(layer) = first {
            before = before.tool_layer(Layer::new(layer));
        }
        let before = before.build();
        let session = before.session();
        session.start(&agent, "Go").outcome().await.unwrap();
        decide(&before, Decision::Allow).await;
        let later = on(&store, Policy::new().ask("write")).tool_layer(Layer::new(other)).build();
        let session = later.open(session.id()).await.unwrap();
        let outcome = session.resume(&agent).outcome().await.unwrap();
        assert!(matches!(outcome.status, Status::Paused(_)), "{first:?}: {outcome}");
        assert_eq!(write.paths(), [""; 0]);
        decide(&later, Decision::Allow).await;
        session.resume(&agent).outcome().await.unwrap();
        assert_eq!(write.paths(), ["a"]);
    }
}
