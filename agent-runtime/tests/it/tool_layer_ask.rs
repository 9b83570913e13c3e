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
