//! Costs: unknown is never zero, and a known zero is never unknown.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Money, Prices, SessionId,
    provider::{CallContext, DeltaStream, FinishReason, Model, Profile, Provider, Request},
    run::Status,
    session::{SessionFilter, SharedStore},
};
use entourage_runners::ReactAgent;
use entourage_runtime::{
    layers::Retry,
    telemetry::{SessionStats, Telemetry},
};
use entourage_testkit::{Gate, Script, ScriptedProvider};

use crate::{
    captain,
    common::{Fault, FaultyStore, act, agent, count, memory, process, runtime_on, stored, until_killed},
};

fn priced() -> Profile {
    let mut profile = Profile::default();
    profile.prices = Some(Prices::per_million_micros(1_000_000, 1_000_000));
    profile
}

fn ok(text: &str) -> Script {
    Script::new().text(text).usage(10, 5).finish(FinishReason::Stop)
}

/// The cost of one good reply.
const REPLY: Option<Money> = Some(Money::from_pico(15_000_000));

/// Answers its first call with an error.
#[derive(Debug)]
struct Refusing(Arc<dyn Provider>, Mutex<Option<Error>>);

#[async_trait]
impl Provider for Refusing {
    fn name(&self) -> &str {
        "scripted"
    }

    async fn stream(&self, request: Request, cx: &CallContext) -> Result<DeltaStream, Error> {
        let error = self.1.lock().unwrap().take();
        match error {
            Some(error) => Err(error),
            None => self.0.stream(request, cx).await,
        }
    }
}

type Failing = Box<dyn Fn() -> Error>;

fn id() -> SessionId {
    SessionId::new("s").unwrap()
}

async fn stats(store: &SharedStore) -> SessionStats {
    Telemetry::new(store.clone()).session_stats("s").await.unwrap()
}

/// Costs by each account of the session: its head, its statistics and its model's.
async fn costs(store: &SharedStore) -> [Option<Money>; 3] {
    let stats = stats(store).await;
    let head = store.query(&SessionFilter::id(id())).await.unwrap().remove(0).head.cost;
    [head, stats.own.cost, stats.models["scripted:scripted"].cost]
}

#[tokio::test(start_paused = true)]
async fn newcomer_b3_a_refusal_costs_nothing_and_a_broken_call_what_nobody_knows() {
    let fail = |kind| move || Error::new(kind, "no; try again");
    let unreachable = || {
        let cause = io::Error::from(io::ErrorKind::ConnectionRefused);
        Error::new(ErrorKind::Transport, "no; try again").caused_by(cause)
    };
    let cases: [(Failing, Option<Money>); 7] = [
        (Box::new(fail(ErrorKind::RateLimited)), REPLY),
        (Box::new(fail(ErrorKind::Overloaded)), REPLY),
        (Box::new(fail(ErrorKind::Authentication)), REPLY),
        (Box::new(fail(ErrorKind::ContextOverflow)), REPLY),
        (Box::new(unreachable), REPLY),
        (Box::new(fail(ErrorKind::Transport)), None),
        (Box::new(fail(ErrorKind::Timeout)), None),
    ];
    for (error, known) in cases {
        for layered in [false, true] {
            let store = memory();
            let (kind, temporary) =
                (error().kind(), error().retry() == entourage_core::RetryStatus::Temporary);
            let provider = ScriptedProvider::new().step(ok("Done."));
            let refusing = Refusing(provider.provider(), Mutex::new(Some(error())));
            let model = Model::new(Arc::new(refusing), "scripted").with_profile(priced());
            let model = if layered { model.layer(Retry::new()) } else { model };
            let tester = agent(model).build().unwrap();
            let session = runtime_on(&store).session_with_id(id());
            let first = session.start(&tester, "Go").outcome().await;
            assert_eq!(first.is_ok(), layered && temporary, "{kind:?}: {first:?}");
            if first.is_err() {
                let known = known.map(|_| Money::default());
                assert_eq!(costs(&store).await, [known; 3], "{kind:?}");
                session.start(&tester, "Again").outcome().await.unwrap();
            }
            assert_eq!(costs(&store).await, [known; 3], "{kind:?}, layered: {layered}");
        }
    }
}

fn tester(provider: &ScriptedProvider) -> ReactAgent {
    agent(provider.model().with_profile(priced())).build().unwrap()
}

/// A store with a run whose process died in its only model call.
fn killed() -> SharedStore {
    let inner = memory();
    let faulty = FaultyStore::new(&inner, 1, Fault::HangBefore);
    let killed = faulty.killed.clone();
    process(until_killed(
        async {
            let provider = ScriptedProvider::by_history().step(ok("Done."));
            let session = runtime_on(&(faulty as _)).session_with_id(id());
            session.start(&tester(&provider), "Go").outcome().await.unwrap();
        },
        &killed,
    ));
    assert_eq!(process(costs(&inner)), [None; 3], "a call without a reply");
    assert_eq!(process(stats(&inner)).models["scripted:scripted"].open, 1);
    inner
}

#[test]
fn newcomer_b2_a_call_that_died_with_its_process_has_an_unknown_cost() {
    let store = killed();
    process(async {
        let provider = ScriptedProvider::by_history().step(ok("Done."));
        let session = runtime_on(&store).open(&id()).await.unwrap();
        let run = session.unfinished().await.unwrap().unwrap();
        let outcome = session.resume(&tester(&provider)).outcome().await.unwrap();
        assert_eq!((&outcome.status, outcome.cost), (&Status::Completed, None));
        assert_eq!(costs(&store).await, [None; 3]);
        assert_eq!(session.replay(&tester(&provider), run).await.unwrap(), outcome);
    });
}

#[test]
fn a_call_of_a_run_that_was_given_up_has_an_unknown_cost() {
    for stop in [false, true] {
        let store = killed();
        process(async {
            let provider = ScriptedProvider::by_history().step(ok("Done.")).step(ok("Done."));
            // The dead process's lease has ended.
            let runtime = captain::runtime(&store, Duration::from_secs(120));
            let session = runtime.open(&id()).await.unwrap();
            if stop {
                assert!(session.stop().await.unwrap());
                assert_eq!(costs(&store).await, [None; 3]);
            }
            let outcome = session.start(&tester(&provider), "Go on").outcome().await.unwrap();
            assert_eq!(outcome.cost, REPLY, "the run's own");
            assert_eq!(costs(&store).await, [None; 3]);
        });
    }
}

#[tokio::test(start_paused = true)]
async fn newcomer_b2_while_any_of_several_calls_is_open_the_cost_is_unknown() {
    let (store, gates) = (memory(), [Gate::new(), Gate::new()]);
    let held = |gate: &Gate| Script::new().wait(gate).text("x").usage(10, 5).finish(FinishReason::Stop);
    let provider = ScriptedProvider::new().step(ok("first")).step(held(&gates[0])).step(held(&gates[1]));
    let model = provider.model().with_profile(priced());
    let both = act(move |cx| {
        let model = model.clone();
        Box::pin(async move {
            let ask = || cx.call_model(&model, model.request("go"));
            ask().await?;
            let (one, two) = tokio::join!(ask(), ask());
            one.and(two).map(|_| String::new())
        })
    });
    let session = runtime_on(&store).session_with_id(id());
    let run = session.start(&both, "Go").outcome();
    let look = async {
        gates[1].arrived(1).await;
        assert_eq!(costs(&store).await, [None; 3], "two are open");
        gates[0].open();
        // What a call of a hand-written agent returned is stored with its next effect.
        while session.head().await.unwrap().usage.input != Some(20) {
            tokio::task::yield_now().await;
        }
        assert_eq!(session.head().await.unwrap().cost, None, "one is open");
        gates[1].open();
    };
    let (ended, ()) = tokio::join!(run, look);
    ended.unwrap();
    assert_eq!(count(&stored(&store, &id()).await, "model_finished"), 3);
}

#[tokio::test]
async fn a_budget_that_does_not_cover_a_call_says_what_the_call_may_need() {
    use entourage_core::{budget::BudgetLimits, run::Task};
    let provider = ScriptedProvider::new();
    let mut profile = priced();
    profile.max_output = Some(100);
    let tester = agent(provider.model().with_profile(profile)).build().unwrap();
    let task = Task::new("Go").with_budget(BudgetLimits::none().with_money(Money::from_pico(90_000_000)));
    let session = runtime_on(&memory()).session();
    let status = session.start(&tester, task).outcome().await.unwrap().status.to_string();
    assert!(status.contains("does not cover the next call, which may need $0.0001"), "{status}");
    assert!(status.contains("left: $0.00009;") && status.contains("raise the limit"), "{status}");
}

#[test]
fn newcomer_b7_a_record_of_a_record_names_its_context_once() {
    let error =
        Error::new(ErrorKind::Conflict, "another process").during("store.append").with("session", "s");
    let again = error.record().to_error().record().to_error().with("more", "x");
    assert_eq!(again.to_string(), "another process (conflict, recorded: store.append, session: s, more: x)");
    assert_eq!(again.record().context, "store.append, session: s, more: x");
}

#[tokio::test]
async fn a_session_tells_the_least_that_it_cost_when_the_cost_of_a_call_is_unknown() {
    let store = memory();
    let provider = ScriptedProvider::new().step(ok("Done."));
    let broken = Error::new(ErrorKind::Transport, "it broke off");
    let refusing = Refusing(provider.provider(), Mutex::new(Some(broken)));
    let tester = agent(Model::new(Arc::new(refusing), "scripted").with_profile(priced())).build().unwrap();
    let runtime = runtime_on(&store);
    let session = runtime.session_with_id(id());
    assert_eq!(session.stats().await.unwrap(), SessionStats::default());
    session.start(&tester, "Go").outcome().await.unwrap_err();
    session.start(&tester, "Again").outcome().await.unwrap();
    let stats = session.stats().await.unwrap();
    assert_eq!((stats.cost(), Some(stats.known_cost())), (None, REPLY));
    assert_eq!((stats.model_calls(), stats.tool_calls(), stats.runs), (2, 0, 2));
    let line = stats.to_string();
    assert!(
        line.starts_with("2 model calls, 0 tool calls, ") && line.contains("at least $0.000015"),
        "{line}"
    );
}
