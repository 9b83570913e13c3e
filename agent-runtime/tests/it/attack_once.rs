//! Attacks on what is performed once: effects that an engine gives twice, drops, or that name no calls.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use entourage_core::{
    Error, ErrorKind,
    agent::Agent,
    event::EffectKey,
    message::{Arguments, Message, Part, Role, ToolCall},
    provider::{Model, Params},
    run::{Effect, Limits, PendingCall, RunContext, ToolCalls},
    tool::{Access, Tools},
};
use entourage_testkit::{FakeTool, ReactAgent, ScriptedProvider};
use futures_util::{FutureExt, future::BoxFuture, join};
use serde_json::json;

use crate::{
    common::{act, memory, runtime_on, stored},
    meddler::{Meddler, open, set},
};

/// Ways in which an engine gives an effect twice.
#[derive(Debug, Clone, Copy)]
enum Again {
    /// After it was done.
    Later,
    /// Beside itself.
    Beside,
    /// After it was dropped before it was polled.
    Unpolled,
    /// After it was dropped at its first wait.
    Dropped,
}

const AGAIN: [Again; 4] = [Again::Later, Again::Beside, Again::Unpolled, Again::Dropped];

/// Gives each effect that `meant` selects twice, in one way.
fn twice(again: Again, meant: fn(&Effect) -> bool) -> Meddler {
    Meddler::new(move |cx, key, effect, local| {
        async move {
            if !meant(&effect) {
                return local.perform(&cx, key, effect).await;
            }
            let first = local.perform(&cx, key, effect.clone());
            match again {
                Again::Later => drop(first.await),
                Again::Beside => {
                    let (first, second) = join!(first, local.perform(&cx, key, effect));
                    drop(first);
                    return second;
                }
                Again::Unpolled => drop(first),
                Again::Dropped => drop(first.now_or_never()),
            }
            local.perform(&cx, key, effect).await
        }
        .boxed()
    })
}

/// Asks for one effect, which is refused.
type Asks = for<'a> fn(&'a RunContext, &'a Tools, &'a Model, &'a ReactAgent) -> BoxFuture<'a, Error>;

fn call(name: &str) -> Part {
    Part::ToolCall(ToolCall::new("c", name, Arguments::empty()))
}

#[tokio::test(start_paused = true)]
async fn attack_12_an_effect_with_a_key_is_performed_once_in_a_life() {
    for again in AGAIN {
        let look = FakeTool::new("look").access(Access::ALL);
        let provider = ScriptedProvider::by_history().text("yes");
        let (tools, model) = (set(&look), provider.model());
        let helper = {
            let provider = ScriptedProvider::by_history().text("helped");
            ReactAgent::builder("helper", provider.model()).build().unwrap()
        };
        let all: [(&str, Asks); 6] = [
            ("tool", |cx, tools, _, _| {
                async move { cx.call_tool(tools, "look", &json!({})).await.unwrap_err() }.boxed()
            }),
            ("model", |cx, _, model, _| {
                async move { cx.call_model(model, model.request("hm")).await.unwrap_err() }.boxed()
            }),
            ("id", |cx, _, _, _| async move { cx.new_id().await.unwrap_err() }.boxed()),
            ("time", |cx, _, _, _| async move { cx.now().await.unwrap_err() }.boxed()),
            ("child", |cx, _, _, helper| async move { cx.spawn(helper, "Help.").await.unwrap_err() }.boxed()),
            ("sleep", |cx, _, _, _| {
                async move { cx.sleep(std::time::Duration::from_secs(1)).await.unwrap_err() }.boxed()
            }),
        ];
        for (what, asks) in all {
            let label = format!("{what}, {again:?}");
            let (tools, model, helper) = (tools.clone(), model.clone(), helper.clone());
            let seen = Arc::new(AtomicBool::new(false));
            let diverged = Arc::clone(&seen);
            let agent = act(move |cx| {
                let (tools, model, helper) = (tools.clone(), model.clone(), helper.clone());
                let diverged = Arc::clone(&diverged);
                Box::pin(async move {
                    let error = asks(cx, &tools, &model, &helper).await;
                    diverged.store(error.kind() == ErrorKind::Diverged, Ordering::SeqCst);
                    // It gets nothing more.
                    assert_eq!(cx.now().await.unwrap_err().kind(), ErrorKind::Diverged);
                    Ok(String::new())
                })
            });
            let store = memory();
            let runtime = open().shared_store(Arc::clone(&store)).effects(twice(again, |_| true)).build();
            let session = runtime.session();
            let error = session.start(&agent, "Go.").outcome().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Diverged, "{label}: {error}");
            assert!(seen.load(Ordering::SeqCst), "{label}");
            let events = stored(&store, session.id()).await;
            let keyed = |kind: &str| {
                events.iter().filter(|it| it.event.effect_key().is_some() && it.event.kind() == kind).count()
            };
            for event in &events {
                assert!(keyed(event.event.kind()) < 2, "{label}: {} twice", event.event.kind());
            }
        }
        assert!(look.started() < 2, "{again:?}: {}", look.started());
        assert!(provider.count() < 2, "{again:?}: {}", provider.count());
    }
}

#[tokio::test(start_paused = true)]
async fn attack_12_a_dropped_effect_is_performed_by_the_next_life() {
    // What was recorded before the drop is answered from the record, and the rest is performed.
    let store = memory();
    let agent = || {
        act(|cx| {
            Box::pin(async move {
                let id = cx.new_id().await?;
                cx.signal("go").await?;
                Ok(format!("{id} {}", cx.new_id().await? == id))
            })
        })
    };
    let runtime = open().shared_store(Arc::clone(&store)).build();
    let session = runtime.session();
    drop(session.start(&agent(), "Go.").outcome().await);
    session.signal("go", json!(1)).await.unwrap();
    let engine = twice(Again::Later, |effect| matches!(effect, Effect::NewId));
    let meddled = open().shared_store(Arc::clone(&store)).effects(engine).build();
    drop((session.id(), runtime));
    let session = meddled.open(session.id()).await.unwrap();
    let error = session.resume(&agent()).outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Diverged, "{error}");
    drop(meddled);
    let session = open().shared_store(store).build().open(session.id()).await.unwrap();
    let outcome = session.resume(&agent()).outcome().await.unwrap();
    assert!(outcome.text.ends_with(" false"), "{}", outcome.text);
}

#[tokio::test(start_paused = true)]
async fn attack_12_a_call_twice_in_one_effect_of_an_agent_is_refused() {
    let look = FakeTool::new("look").access(Access::READ);
    let tools = set(&look);
    let agent = act(move |cx| {
        let tools = tools.clone();
        Box::pin(async move {
            let message = Arc::new(Message::new(Role::Assistant, vec![call("look")]));
            for calls in [vec![PendingCall::new(0); 2], Vec::new()] {
                let calls = ToolCalls::new(Arc::clone(&message), calls, tools.clone(), Limits::default());
                let error = cx.perform(Effect::Tools(Box::new(calls))).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            }
            Ok("refused".to_owned())
        })
    });
    let outcome = open().build().session().start(&agent, "Go.").outcome().await.unwrap();
    assert_eq!((&*outcome.text, look.started()), ("refused", 0));
}

/// Asks a model with a secret beside the request, and then waits for a signal.
fn asks_with(secret: &'static str, text: &'static str) -> (ScriptedProvider, impl Agent + Clone + 'static) {
    let provider = ScriptedProvider::by_history().text("hm");
    let model = provider.model();
    let agent = act(move |cx| {
        let model = model.clone();
        let params = Params::default().with_extra(json!({"token": secret})).with_metadata("token", secret);
        Box::pin(async move {
            let request = model.request(text).with_params(params);
            let reply = cx.call_model(&model, request).await?.message.text();
            cx.signal("go").await?;
            Ok(reply)
        })
    });
    (provider, agent)
}

#[tokio::test(start_paused = true)]
async fn attack_12_a_secret_that_changed_is_no_other_effect() {
    let plain =
        Meddler::new(|cx, key, effect, local| async move { local.perform(&cx, key, effect).await }.boxed());
    // As earlier versions recorded it.
    let earlier = Meddler::new(|cx, key, effect, local| {
        let key = match (key, effect.older_digest()) {
            (Some(key), Some(digest)) => Some(EffectKey::new(key.ordinal, digest)),
            (key, _) => key,
        };
        async move { local.perform(&cx, key, effect).await }.boxed()
    });
    for (engine, again, diverges) in
        [(&plain, "one", false), (&plain, "two", false), (&earlier, "one", false), (&earlier, "two", true)]
    {
        for text in ["Ask.", "Ask something else."] {
            let label = format!("{again}, {text}");
            let store = memory();
            let (_first, agent) = asks_with("one", "Ask.");
            let session = open().shared_store(Arc::clone(&store)).effects(engine.clone()).build().session();
            drop(session.start(&agent, "Go.").outcome().await);
            session.signal("go", json!(1)).await.unwrap();
            let session = runtime_on(&store).open(session.id()).await.unwrap();
            let (provider, agent) = asks_with(again, text);
            let ended = session.resume(&agent).outcome().await;
            let error = ended.err().map(|error| error.kind());
            let want = (diverges || text != "Ask.").then_some(ErrorKind::Diverged);
            assert_eq!((error, provider.count()), (want, 0), "{label}");
            if want.is_none() {
                let run = session.events(0, 1).await.unwrap()[0].origin.run;
                assert_eq!(session.replay(&agent, run).await.unwrap().text, "hm", "{label}");
            }
        }
    }
}
