//! Every setting that takes a `Duration`, with the shortest and the longest value: the longest means "no limit", the
//! shortest gives a typed end, and neither panics.

use std::{sync::Arc, time::Duration};

use entourage_core::{
    Error, ErrorKind, Result,
    agent::Agent,
    budget::{Budget, BudgetLimits},
    provider::{CallContext, Delta, FinishReason, Layer, Provider, RateLimits, ResponseInfo},
    run::{Limits, Status},
};
use entourage_runners::graph::TaskGraph;
use entourage_runtime::layers::{BudgetLayer, RateLimit, ResponseCache, Retry, Timeout};
use entourage_runtime::reply::ProviderExt;
use entourage_testkit::{self as testkit, FakeTool, Script, ScriptedProvider};
use serde_json::json;

use crate::{
    common::{act, agent},
    layers_common::hello,
};

const TIMES: [Duration; 3] = [Duration::ZERO, Duration::from_nanos(1), Duration::MAX];

/// A reply with pauses, so that every timer is set again.
fn pausing() -> Script {
    let pause = Duration::from_millis(5);
    Script::new().delay(pause).text("one").delay(pause).text("two").delay(pause).finish(FinishReason::Stop)
}

/// Checks for an end of one of these kinds, or success; the longest time must succeed.
fn ended<T>(name: &str, time: Duration, result: Result<T>) {
    match result {
        Ok(_) => {}
        Err(error) => {
            assert_ne!(time, Duration::MAX, "{name}: {error}");
            let kinds = [ErrorKind::Timeout, ErrorKind::BudgetExceeded];
            assert!(kinds.contains(&error.kind()), "{name} of {time:?}: {error:?}");
        }
    }
}

async fn call(name: &str, time: Duration, provider: Arc<dyn Provider>, cx: CallContext) {
    ended(name, time, provider.complete(hello("m"), &cx).await);
}

#[tokio::test(start_paused = true)]
async fn attack_16_layers_take_any_duration() {
    for time in TIMES {
        let service = || ScriptedProvider::by_history().step(pausing()).provider();
        for (name, layer) in [
            ("total", Timeout::new().with_total(time)),
            ("first delta", Timeout::new().with_first_delta(time)),
            ("idle", Timeout::new().with_idle(time)),
        ] {
            call(name, time, layer.layer(service()), CallContext::new()).await;
        }
        let mut cx = CallContext::new();
        cx.timeout = Some(time);
        call("a call's timeout", time, Timeout::new().layer(service()), cx.clone()).await;
        call("a call's timeout, retried", time, Retry::new().layer(service()), cx.clone()).await;
        let limit = |limit: entourage_runtime::layers::RateLimitBuilder| limit.build().unwrap();
        call("a limit's timeout", time, limit(RateLimit::builder().timeout(time)).layer(service()), cx).await;
        let speed = limit(RateLimit::builder().speed(time, time).window(1));
        call("speed", Duration::MAX, speed.layer(service()), CallContext::new()).await;
        let cache = ResponseCache::new().with_max_age(time).layer(service());
        call("a cache's age", Duration::MAX, Arc::clone(&cache), CallContext::new()).await;
        call("a cache's age", Duration::MAX, cache, CallContext::new()).await;
        let budget = Budget::new(BudgetLimits::none().with_time(time));
        call("a budget's time", time, BudgetLayer::new(&budget, "a").layer(service()), CallContext::new())
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn attack_16_retries_take_any_duration() {
    for time in TIMES {
        for asked in [None, Some(time)] {
            let policies = [
                ("first delay", Retry::new().with_first_delay(time)),
                ("the longest delay", Retry::new().with_max_delay(time)),
                ("both", Retry::new().with_first_delay(time).with_max_delay(time).with_factor(u32::MAX)),
                ("jitter", Retry::new().with_first_delay(time).with_max_delay(time).with_jitter(time)),
            ];
            for (name, policy) in policies {
                let refusal = || {
                    let error = Error::new(ErrorKind::Overloaded, "no room");
                    match asked {
                        Some(wait) => error.with_retry_after(wait),
                        None => error,
                    }
                };
                let service = Failing(std::sync::Mutex::new(vec![refusal(), refusal()]), pausing_service());
                let provider = policy.layer(Arc::new(service));
                call(name, Duration::MAX, provider, CallContext::new()).await;
            }
        }
    }
}

fn pausing_service() -> Arc<dyn Provider> {
    ScriptedProvider::by_history().step(pausing()).provider()
}

/// A provider that refuses with each of these errors once.
#[derive(Debug)]
struct Failing(std::sync::Mutex<Vec<Error>>, Arc<dyn Provider>);

#[async_trait::async_trait]
impl Provider for Failing {
    fn name(&self) -> &'static str {
        "failing"
    }

    async fn stream(
        &self,
        request: entourage_core::provider::Request,
        cx: &CallContext,
    ) -> Result<entourage_core::provider::DeltaStream> {
        let error = self.0.lock().unwrap().pop();
        match error {
            Some(error) => Err(error),
            None => self.1.stream(request, cx).await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn attack_16_limits_that_a_service_reports_may_be_any_duration() {
    for time in TIMES {
        let mut limits = RateLimits::default();
        limits.requests.remaining = Some(0);
        limits.requests.reset = Some(time);
        let mut info = ResponseInfo::default();
        info.limits = Some(Box::new(limits));
        let script = || {
            let info = Delta::Response(Box::new(info.clone()));
            Script::new().delta(info).text("one").finish(FinishReason::Stop)
        };
        let service = ScriptedProvider::new().step(script()).step(script());
        let limit = RateLimit::builder().timeout(None).build().unwrap();
        let provider = limit.layer(service.provider());
        call("a reset", Duration::MAX, Arc::clone(&provider), CallContext::new()).await;
        call("a reset", Duration::MAX, provider, CallContext::new()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn attack_16_runs_take_any_duration() {
    for time in TIMES {
        for which in ["silence", "tool", "tool's own", "lease", "budget"] {
            let mut limits = Limits::default();
            let (mut runtime, mut tool) = (testkit::runtime(), FakeTool::new("look").returning("seen"));
            match which {
                "silence" => limits.model_silence = time,
                "tool" => limits.tool_timeout = time,
                "tool's own" => tool = tool.timeout(time),
                "lease" => runtime = runtime.lease(time),
                _ => runtime = runtime.budget(BudgetLimits::none().with_time(time)),
            }
            let tool = tool.taking(Duration::from_millis(5));
            let provider = ScriptedProvider::by_history().call("look", json!({})).step(pausing());
            let agent = agent(provider.model()).limits(limits).tool(tool).build().unwrap();
            let outcome = runtime.build().session().start(&agent, "Go").outcome().await;
            let completed = outcome.as_ref().is_ok_and(|outcome| outcome.status == Status::Completed);
            assert!(completed || time != Duration::MAX, "{which} of {time:?}: {outcome:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn attack_16_agents_sleep_and_wait_for_any_duration() {
    for time in TIMES {
        let sleeper = act(move |cx| {
            Box::pin(async move {
                cx.sleep(time).await?;
                cx.wait_any(&[], Some(time)).await?;
                Ok("awake".to_owned())
            })
        });
        let session = testkit::runtime().build().session();
        let run = session.start(&sleeper, "Sleep");
        if time == Duration::MAX {
            session.cancel_within(time).await;
        }
        drop(run.outcome().await);
        let provider = ScriptedProvider::by_history().step(pausing());
        let worker: Arc<dyn Agent> = Arc::new(agent(provider.model()).build().unwrap());
        let graph = TaskGraph::builder("any");
        let work = graph.agent("work", &worker, "Work.").timeout(time).delay(time).expected(time).attempts(2);
        let graph = match graph.returning(&work).build() {
            Ok(graph) => graph,
            Err(error) => {
                assert_eq!((error.kind(), time), (ErrorKind::Config, Duration::ZERO), "{error}");
                continue;
            }
        };
        let outcome = testkit::runtime().build().session().start(&graph, "Go").outcome().await;
        let completed = outcome.as_ref().is_ok_and(|outcome| outcome.status == Status::Completed);
        assert!(completed || time != Duration::MAX, "{time:?}: {outcome:?}");
    }
}
