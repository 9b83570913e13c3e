//! The streaming suite on the core's own providers, and behind every layer.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    budget::{Budget, BudgetLimits},
    message::{Opaque, Signature},
    provider::{CallContext, Delta, DeltaStream, Layer, Model, Provider, Request, ResponseInfo},
};
use entourage_runtime::layers::{
    BudgetLayer, Check, CredentialRefresh, Fallback, ModelChoice, RateLimit, Recorder, Refresh, Replay,
    ResponseCache, Retry, Tier, Timeout,
};
use entourage_testkit::{
    Gate, Script, ScriptedProvider,
    stream::{
        Capability, Ending, Layered, Manifest, Reply, Say, Spoken, Stage, StreamScenario, Subject,
        conformance, scenarios,
    },
};
use serde_json::json;

/// A subject that spells scenarios as scripts.
struct Scripted;

fn say(script: Script, say: &Say) -> Result<Script> {
    Ok(script.delta(match *say {
        Say::Text(text) => Delta::text(text),
        Say::Reasoning(text) => Delta::Reasoning(text.into()),
        Say::Signature(data) => Delta::signature(Signature::new("scripted", data)),
        Say::Refusal(text) => Delta::Refusal(text.into()),
        Say::CallStart { index, id, name } => Delta::tool_call(index, id, name),
        Say::Arguments { index, json } => Delta::arguments(index, json),
        Say::Block => Delta::Opaque(Box::new(Opaque::new("scripted", json!([1])))),
        Say::ResponseId(id) => Delta::Response(Box::new(ResponseInfo::new(Some(id.into()), None))),
        Say::ResponseModel(name) => Delta::Response(Box::new(ResponseInfo::new(None, Some(name.into())))),
        Say::Usage(usage) => Delta::Usage(Box::new(usage)),
        _ => return Err(Error::new(ErrorKind::Unsupported, "a script cannot say this")),
    }))
}

fn script(reply: &Reply) -> Result<Script> {
    match reply {
        Reply::Refused(failure) => Ok(Script::refuse(failure.kind, failure.message)),
        Reply::Silent => Ok(Script::new().wait(&Gate::new())),
        Reply::Streamed { says, ending } => {
            let script = says.iter().try_fold(Script::new(), say)?;
            match ending {
                Ending::Finish(reason) | Ending::Unclosed(reason) => Ok(script.finish(*reason)),
                Ending::Failed(failure) => Ok(script.fail(failure.kind, failure.message)),
                Ending::CutOff => Ok(script),
                Ending::Open => Ok(script.wait(&Gate::new())),
                _ => Err(Error::new(ErrorKind::Unsupported, "a script cannot end so")),
            }
        }
        _ => Err(Error::new(ErrorKind::Unsupported, "a script cannot answer so")),
    }
}

#[async_trait]
impl Subject for Scripted {
    fn manifest(&self) -> Manifest {
        Manifest::new("scripted")
            .without(Capability::FinishWord, "scripts speak our terms")
            .without(Capability::RetryAfter, "scripts name a kind and a text")
            .without(Capability::Watched, "scripts do not tell when they are dropped")
    }

    async fn play(&self, scenario: &StreamScenario) -> Result<Stage> {
        let mut provider = ScriptedProvider::new();
        for reply in &scenario.replies {
            provider = provider.step(script(reply)?);
        }
        Ok(Stage::new(provider.provider()).keeping(provider))
    }
}

#[tokio::test(start_paused = true)]
async fn the_scripted_provider_passes() {
    let report = conformance(&Scripted).await;
    report.assert();
    let skipped: Vec<_> = report.skipped().iter().map(|(case, _)| case.as_str()).collect();
    assert_eq!(
        skipped,
        [
            "the_wires_own_word_is_kept",
            "refused_with_a_time_to_wait",
            "a_dropped_stream_ends_the_call",
            "a_dropped_call_ends",
            "a_cancelled_run_ends_the_call",
            "a_reply_that_has_ended_is_left",
        ]
    );
}

async fn passes(name: &str, wrap: impl Fn(Arc<dyn Provider>) -> Arc<dyn Provider> + Send + Sync + 'static) {
    conformance(&Layered::new(Spoken, name, wrap)).await.assert();
}

#[tokio::test(start_paused = true)]
async fn layers_keep_what_a_provider_promises() {
    let hour = Duration::from_secs(3_600);
    passes("check", |inner| Check::new().layer(inner)).await;
    passes("timeout", move |inner| {
        Timeout::new().with_total(hour).with_first_delta(hour).with_idle(hour).layer(inner)
    })
    .await;
    passes("record", |inner| Recorder::new().layer(inner)).await;
    passes("a rate limit", |inner| RateLimit::new().layer(inner)).await;
    passes("a budget", |inner| BudgetLayer::new(&Budget::new(BudgetLimits::none()), "suite").layer(inner))
        .await;
    passes("refresh", |inner| CredentialRefresh::new(NoOther).layer(inner)).await;
    passes("a fallback", |inner| Fallback::to([gone()]).layer(inner)).await;
    let cache = Layered::new(Spoken, "a cache", |inner| ResponseCache::new().layer(inner)).skipping(
        "three_calls_in_a_row",
        "the second call is the first one again, and is answered without a call",
    );
    conformance(&cache).await.assert();
}

/// A refresh hook without another credential.
#[derive(Debug)]
struct NoOther;

#[async_trait]
impl Refresh for NoOther {
    async fn refresh(&self, error: &Error, _: &Arc<dyn Provider>) -> Result<Arc<dyn Provider>> {
        Err(Error::new(error.kind(), "there is no other key"))
    }
}

/// Another service without any model.
#[derive(Debug)]
struct Gone;

#[async_trait]
impl Provider for Gone {
    fn name(&self) -> &'static str {
        "elsewhere"
    }

    async fn stream(&self, _: Request, _: &CallContext) -> Result<DeltaStream> {
        Err(Error::new(ErrorKind::NotFound, "the model is gone"))
    }
}

fn gone() -> ModelChoice {
    ModelChoice::new(Model::new(Arc::new(Gone), "model-2"), Tier::Small)
}

#[tokio::test(start_paused = true)]
async fn a_retry_layer_keeps_all_but_the_early_refusal() {
    let subject = Layered::new(Spoken, "retry", |inner| Retry::new().with_retries(0).layer(inner));
    conformance(&subject).await.assert();
}

#[tokio::test(start_paused = true)]
async fn a_stack_of_layers_passes() {
    let stack = |inner: Arc<dyn Provider>| {
        let inner = Timeout::new().with_idle(Duration::from_secs(3_600)).layer(Check::new().layer(inner));
        Recorder::new().layer(Retry::new().with_retries(0).layer(inner))
    };
    conformance(&Layered::new(Spoken, "a stack", stack)).await.assert();
}

/// A subject that answers each case from a recording of itself.
struct Replayed(Vec<String>);

#[async_trait]
impl Subject for Replayed {
    fn manifest(&self) -> Manifest {
        Manifest::new("replayed").without(Capability::Watched, "a replay calls nobody")
    }

    async fn play(&self, scenario: &StreamScenario) -> Result<Stage> {
        let place = scenarios().iter().position(|one| one.name == scenario.name).unwrap();
        Ok(Stage::new(Replay::from_json(&self.0[place])?.provider()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_recording_of_the_suite_passes_the_suite() {
    let recorders = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&recorders);
    let recorded = Layered::new(Spoken, "record", move |inner| {
        let recorder = Recorder::new();
        kept.lock().unwrap().push(recorder.clone());
        recorder.layer(inner)
    });
    conformance(&recorded).await.assert();
    let recordings: Vec<_> =
        recorders.lock().unwrap().iter().map(|one| one.to_json("case").unwrap()).collect();
    assert_eq!(recordings.len(), scenarios().len());
    conformance(&Replayed(recordings)).await.assert();
}
