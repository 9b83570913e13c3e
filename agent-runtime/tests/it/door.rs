//! The door of a run as a runner outside of the core uses it: reminders, prompts that join, compaction.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use entourage_core::{
    ErrorKind,
    context::{Compaction, CompactionCause},
    message::Message,
    run::{Effect, Observation, RunContext, Status},
};
use entourage_runtime::Session;
use entourage_testkit::ScriptedProvider;
use serde_json::json;

use crate::common::{Do, act, memory, runtime_on};

fn said(cx: &RunContext) -> String {
    let texts: Vec<_> = cx.history().iter().map(|message| message.text()).collect();
    texts.join("|")
}

/// An agent that reminds its model, waits for a signal, and then lets in what came meanwhile.
fn listener(provider: &ScriptedProvider, session: &Arc<OnceLock<Session>>) -> Do {
    let (model, session) = (provider.model(), Arc::clone(session));
    act(move |cx| {
        let (model, session) = (model.clone(), Arc::clone(&session));
        Box::pin(async move {
            cx.remind("Be brief.")?;
            assert_eq!(cx.remind(Message::assistant("No.")).unwrap_err().kind(), ErrorKind::InvalidInput);
            cx.call_model(&model, model.request("Hm?")).await?;
            cx.signal("go").await?;
            if let Some(session) = session.get() {
                session.steer("Listen.").await?;
            }
            cx.steer().await?;
            Ok(said(cx))
        })
    })
}

#[tokio::test]
async fn a_runner_reminds_once_and_lets_prompts_in_also_when_it_is_resumed_or_replayed() {
    let (store, provider) = (memory(), ScriptedProvider::by_history().text("Yes."));
    let session = runtime_on(&store).session();
    let alone = Arc::default();
    let paused = session.start(&listener(&provider, &alone), "Go").outcome().await.unwrap();
    assert!(matches!(paused.status, Status::Paused(_)), "{paused:?}");
    session.signal("go", json!(1)).await.unwrap();
    let heard = Arc::new(OnceLock::from(session.clone()));
    let run = session.unfinished().await.unwrap().unwrap();
    let outcome = session.resume(&listener(&provider, &heard)).outcome().await.unwrap();
    assert_eq!((outcome.text.as_str(), provider.requests().len()), ("Go|Be brief.|Listen.", 1));
    assert_eq!(session.replay(&listener(&provider, &alone), run).await.unwrap(), outcome);
}

#[tokio::test]
async fn a_runner_asks_for_compaction_without_a_key() {
    let provider = ScriptedProvider::new();
    let model = provider.model();
    let agent = act(move |cx| {
        let model = model.clone();
        Box::pin(async move {
            let compact = || Effect::Compact {
                compaction: Box::new(Compaction::new()),
                model: model.clone(),
                cause: CompactionCause::Asked,
                silence: Duration::from_secs(30),
            };
            assert!(!cx.read(|state| state.compaction_due(cx.session(), Some(100_000)) || state.may_retry()));
            assert_eq!(cx.perform(compact()).await.unwrap_err().kind(), ErrorKind::Unsupported);
            let compacted = cx.effects().perform(cx, None, compact()).await?;
            assert_eq!(compacted, Observation::Compacted(false), "there is nothing to remove");
            Ok(said(cx))
        })
    });
    let outcome = runtime_on(&memory()).session().start(&agent, "Go").outcome().await.unwrap();
    assert_eq!(outcome.text, "Go");
}
