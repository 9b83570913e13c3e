//! Recordings: calls that are recorded, answers from recordings, and content that never gets into one.

use std::{sync::Arc, time::Duration};

use entourage_core::{
    Error, ErrorKind, Result, RetryStatus,
    event::Event,
    message::{History, Message},
    provider::{
        CallContext, Delta, FinishReason, Layer, Model, OutputFormat, Params, Provider, Request, ToolChoice,
    },
    run::Outcome,
    tool::ToolSpec,
};
use entourage_runners::ReactAgent;
use entourage_runtime::layers::{Recorder, Replay};
use entourage_runtime::reply::ProviderExt;
use entourage_testkit::{FakeTool, Script, ScriptedProvider};
use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::{
    common::{agent, drain, open_runtime},
    layers_record_wire::{Answer, Wired},
};

const KEY: &str = "sk-proj-0123456789abcdefGHIJ";

pub(crate) fn request(texts: &[&str]) -> Request {
    Request::new("large-1", texts.iter().map(|text| Message::user(*text)).collect::<History>())
}

pub(crate) fn parsed(json: &str) -> Value {
    serde_json::from_str(json).unwrap()
}

fn looker(model: Model) -> ReactAgent {
    agent(model).instructions("Be brief.").tool(FakeTool::new("look").returning("a tree")).build().unwrap()
}

/// Runs the agent. Returns its outcome and all deltas.
async fn run(agent: &ReactAgent, prompt: &str) -> (Result<Outcome>, Vec<Delta>) {
    let mut run = open_runtime().session().start(agent, prompt);
    let events = drain(&mut run).await;
    let deltas = events.into_iter().filter_map(|envelope| match envelope.event {
        Event::Delta(delta) => Some(delta),
        _ => None,
    });
    (run.outcome().await, deltas.collect())
}

/// A run of two steps and a tool, with its recording.
async fn recorded() -> (Outcome, Vec<Delta>, String) {
    let first = Script::new()
        .reasoning("I look.")
        .delta(Delta::tool_call(0, "", "look"))
        .delta(Delta::arguments(0, "{\"at\":"))
        .delta(Delta::arguments(0, "\"x\"}"))
        .usage(10, 5)
        .finish(FinishReason::ToolCalls);
    let provider = ScriptedProvider::new()
        .step(first)
        .step(Script::new().text("Se").text("en.").finish(FinishReason::Stop));
    let recorder = Recorder::new();
    let (outcome, deltas) = run(&looker(provider.model().layer(&recorder)), "Look!").await;
    assert_eq!(recorder.count(), 2);
    (outcome.unwrap(), deltas, recorder.to_json("look").unwrap())
}

#[tokio::test]
async fn a_replayed_run_is_the_recorded_one() {
    let (outcome, deltas, recording) = recorded().await;
    let replay = Replay::from_json(&recording).unwrap();
    assert_eq!(replay.remaining(), 2);
    let model = Model::new(replay.provider(), "scripted");
    assert_eq!(&**model.provider_name(), "scripted");
    let (again, deltas_again) = run(&looker(model), "Look!").await;
    let again = again.unwrap();
    assert_eq!((again.text.as_str(), again.status, again.steps), ("Seen.", outcome.status, 2));
    assert_eq!(again.usage, outcome.usage);
    assert_eq!(deltas_again, deltas);
    assert_eq!(replay.remaining(), 0);
    assert_eq!(format!("{replay:?}"), "Replay(scripted, 0 of 2 calls left)");
}

#[tokio::test]
async fn a_recording_is_in_the_recordings_format() {
    let (.., recording) = recorded().await;
    let all = parsed(&recording);
    assert_eq!(
        (&all["id"], &all["protocol"], &all["provider"]),
        (&json!("look"), &json!("entourage"), &json!("scripted"))
    );
    let call = json!({"id": "", "name": "look", "arguments": {"at": "x"}, "arguments_raw": "{\"at\":\"x\"}"});
    let used = json!({
        "input_tokens": 10, "output_tokens": 5, "cache_read_tokens": null, "cache_write_tokens": null,
        "reasoning_tokens": null,
    });
    let first = &all["interactions"][0];
    assert_eq!(
        first["expect"],
        json!({
            "text": "", "reasoning": "I look.", "tool_calls": [call], "usage": used,
            "finish_reason": "tool_calls",
        })
    );
    assert_eq!(first["response"], json!({"status": 200, "headers": {}, "body": "", "base64": false}));
    assert_eq!(first["request"]["body"]["instructions"], "Be brief.");
    assert_eq!(first["deltas"].as_array().unwrap().len(), 6);
    assert_eq!(all["interactions"][1]["request"]["body"]["messages"].as_array().unwrap().len(), 3);
    assert_eq!(
        all["expect"],
        json!({"text": "Seen.", "tool_calls": [call], "usage": used, "finish_reason": "stop"})
    );
    assert_eq!(
        all["features"],
        json!(["multi-step", "reasoning", "stream", "text", "tool-call", "tools-declared"])
    );
    assert_eq!(all["scrubbed_values"], 0);
}

#[tokio::test]
async fn another_prompt_diverges_and_uses_nothing_up() {
    let (.., recording) = recorded().await;
    let replay = Replay::from_json(&recording).unwrap();
    let agent = looker(Model::new(replay.provider(), "scripted"));
    let (outcome, deltas) = run(&agent, "Look there!").await;
    let error = outcome.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Diverged, RetryStatus::Permanent));
    assert!(error.message().contains("in call 1 message 0 (counted from 0) differs"), "{error}");
    assert!(deltas.is_empty());
    assert_eq!(replay.remaining(), 2);
    assert_eq!(run(&agent, "Look!").await.0.unwrap().text, "Seen.");
}

#[tokio::test]
async fn a_divergence_names_what_differs() {
    let tool = |text: &str| ToolSpec::new("look", text, json!({"type": "object"}));
    let base = request(&["a", "b"]).with_tools([tool("Looks.")]);
    let provider = ScriptedProvider::new().text("Hi.");
    let recorder = Recorder::new();
    (&recorder).layer(provider.provider()).complete(base.clone(), &CallContext::new()).await.unwrap();
    let replay = Replay::from_json(&recorder.to_json("one").unwrap()).unwrap();

    let mut other_model = base.clone();
    other_model.model = "small-1".into();
    let mut params = Params::default();
    params.temperature = Some(0.5);
    let messages = |texts: &[&str]| request(texts).with_tools([tool("Looks.")]);
    let cases = [
        (other_model, "the model is `small-1` instead of `large-1`"),
        (base.clone().with_instructions("Obey."), "the instructions differ"),
        (base.clone().with_params(params), "the parameters differ"),
        (base.clone().with_output(OutputFormat::Json), "the form of the reply differ"),
        (base.clone().with_tool_choice(ToolChoice::Required), "the tool choice differ"),
        (base.clone().with_tools([tool("Sees.")]), "the tool `look` has another description or schema"),
        (base.clone().with_tools([]), "the tool `look` is missing"),
        (messages(&["a", "c"]), "message 1 (counted from 0) differs;"),
        (messages(&["a"]), "message 1 (counted from 0) is missing, there are 1 instead of 2"),
        (messages(&["a", "b", "c"]), "message 2 (counted from 0) is new, there are 3 instead of 2"),
    ];
    for (request, text) in cases {
        let error = replay.stream(request, &CallContext::new()).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Diverged);
        assert!(error.message().contains(text), "{error} lacks {text}");
    }
    assert_eq!(replay.remaining(), 1);
    replay.complete(base.clone(), &CallContext::new()).await.unwrap();
    let error = replay.stream(base, &CallContext::new()).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Diverged);
    assert!(error.message().contains("the recording holds 1 calls and this is one more"), "{error}");
}

#[tokio::test]
async fn secrets_are_nowhere_in_a_recording() {
    let reply = Script::new()
        .reasoning("The passphrase is correct hor")
        .reasoning("se \"battery\"")
        .text("Your key sk-proj-01234")
        .text("56789abcdefGHIJ, ")
        .text("mail ada@example.org.")
        .delta(Delta::tool_call(0, "call_1", "look"))
        .delta(Delta::arguments(0, "{\"password\": \"hunt"))
        .delta(Delta::arguments(0, "er2hunter2\", \"note\": \"correct horse \\\"batt"))
        .delta(Delta::arguments(0, "ery\\\"\"}"))
        .finish(FinishReason::Stop);
    let failure = format!("the key {KEY} is wrong");
    let provider = ScriptedProvider::new().step(reply).fail(ErrorKind::Authentication, failure);
    let recorder = Recorder::new().secret("correct horse \"battery\"").secret("");
    let layered = (&recorder).layer(provider.provider());
    let tools = [ToolSpec::new("look", format!("Uses {KEY}."), json!({"default": "ada@example.org"}))];
    let asked = request(&["I am ada@example.org, correct horse \"battery\"."])
        .with_instructions(format!("Authorization: Bearer {KEY}"))
        .with_tools(tools);
    layered.complete(asked.clone(), &CallContext::new()).await.unwrap();
    layered.complete(asked.clone(), &CallContext::new()).await.unwrap_err();

    let recording = recorder.to_json("secrets").unwrap();
    let leaks = [
        KEY,
        "sk-proj",
        "GHIJ",
        "ada@example.org",
        "example.org",
        "correct",
        "horse",
        "battery",
        "hunter2",
        "hunt",
    ];
    for leak in leaks {
        assert!(!recording.contains(leak), "{leak} is in {recording}");
    }
    assert!(parsed(&recording)["scrubbed_values"].as_u64().unwrap() >= 10);
    assert_eq!(format!("{recorder:?}"), "Recorder(2 calls)");
    let text = &parsed(&recording)["expect"]["text"];
    assert_eq!(text.as_str().unwrap().len(), "Your key , mail ada@example.org.".len() + KEY.len());

    // Asked the same again, it answers: what was taken out is taken out of both.
    let replay = Replay::from_json(&recording).unwrap().secret("correct horse \"battery\"");
    replay.complete(asked.clone(), &CallContext::new()).await.unwrap();
    let error = replay.complete(asked.clone(), &CallContext::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Authentication);
    assert!(!format!("{replay:?}").contains("correct"));
}

#[tokio::test]
async fn a_secret_that_cannot_be_taken_out_leaves_no_recording() {
    let provider = ScriptedProvider::new().step(Script::new().usage(987_654, 1).finish(FinishReason::Stop));
    let recorder = Recorder::new().secret("987654");
    let layered = recorder.clone().layer(provider.provider());
    layered.complete(request(&["a"]), &CallContext::new()).await.unwrap();
    assert_eq!(recorder.to_json("numbers").unwrap_err().kind(), ErrorKind::Internal);
}

#[tokio::test]
async fn a_failing_call_is_replayed_as_the_same_error() {
    let refused = || {
        Error::new(ErrorKind::RateLimited, "acme: too many requests; wait")
            .during("model.stream")
            .with("request", "req-1")
            .with("status", "429")
            .with("shard", "7")
            .with_retry_after(Duration::from_millis(1_500))
    };
    let broken =
        || Error::new(ErrorKind::Protocol, "acme: the answer is cut").with_retry(RetryStatus::Temporary);
    let recorder = Recorder::new();
    let layered = (&recorder).layer(Arc::new(Wired::new([
        Answer { refuse: Some(refused()), ..Answer::default() },
        Answer { deltas: vec![Delta::text("Hel")], fail: Some(broken()), ..Answer::default() },
        Answer { deltas: vec![Delta::text("Hel")], ..Answer::default() },
    ])));
    for _ in 0..3 {
        hear(&*layered).await;
    }
    let recording = recorder.to_json("errors").unwrap();
    let all = parsed(&recording);
    assert_eq!(
        all["interactions"][0]["expect"]["error"],
        json!({"status": 429, "type": null, "code": null, "message": "acme: too many requests; wait"})
    );
    assert_eq!(all["interactions"][1]["expect"]["text"], "Hel");
    assert!(all["interactions"][2]["expect"].get("error").is_none());

    let replay = Replay::from_json(&recording).unwrap();
    let error = replay.stream(request(&["Hi."]), &CallContext::new()).await.err().unwrap();
    let expected = refused();
    assert_eq!(
        (error.kind(), error.retry(), error.retry_after(), error.message()),
        (expected.kind(), expected.retry(), expected.retry_after(), expected.message())
    );
    assert_eq!(
        error.record().context,
        "model.stream, request: req-1, status: 429, recorded: shard: 7",
        "names that are not known here are told apart"
    );
    let (deltas, error) = hear(&replay).await;
    assert_eq!((deltas, error.unwrap().record()), (vec![Delta::text("Hel")], broken().record()));
    let (deltas, error) = hear(&replay).await;
    assert_eq!(deltas, [Delta::text("Hel")]);
    assert!(error.is_none(), "a stream that was cut off is cut off again");
}

/// All deltas of a call, and its error.
pub(crate) async fn hear(provider: &dyn Provider) -> (Vec<Delta>, Option<Error>) {
    let mut deltas = Vec::new();
    let mut stream = match provider.stream(request(&["Hi."]), &CallContext::new()).await {
        Ok(stream) => stream,
        Err(error) => return (deltas, Some(error)),
    };
    while let Some(item) = stream.next().await {
        match item {
            Ok(delta) => deltas.push(delta),
            Err(error) => return (deltas, Some(error)),
        }
    }
    (deltas, None)
}

#[tokio::test]
async fn a_call_that_was_given_up_is_replayed_as_far_as_it_came() {
    let provider =
        ScriptedProvider::new().step(Script::new().text("Hel").text("lo").finish(FinishReason::Stop));
    let recorder = Recorder::new();
    let layered = (&recorder).layer(provider.provider());
    let mut stream = layered.stream(request(&["Hi."]), &CallContext::new()).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap(), Delta::text("Hel"));
    drop(stream);
    let replay = Replay::from_json(&recorder.to_json("dropped").unwrap()).unwrap();
    let (deltas, error) = hear(&replay).await;
    assert_eq!(deltas, [Delta::text("Hel")]);
    assert_eq!(error.unwrap().kind(), ErrorKind::Diverged);
}

#[tokio::test]
async fn a_recorder_keeps_no_more_than_it_may() {
    let provider = ScriptedProvider::new().text("x".repeat(10_000)).text("y");
    let recorder = Recorder::new().limit(1_000);
    let layered = (&recorder).layer(provider.provider());
    for _ in 0..2 {
        layered.complete(request(&["Hi."]), &CallContext::new()).await.unwrap();
    }
    let error = recorder.to_json("large").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.message().contains("1000 bytes"), "{error}");
}

#[test]
fn invalid_recordings_are_refused() {
    let kind = |json: &str| Replay::from_json(json).unwrap_err().kind();
    for json in [
        "",
        "[]",
        "{}",
        r#"{"interactions": []}"#,
        r#"{"recorder": 1, "interactions": [{"deltas": []}]}"#,
        r#"{"recorder": 1, "interactions": [{"asked": null, "deltas": [{"sing": "la"}]}]}"#,
    ] {
        assert_eq!(kind(json), ErrorKind::Corrupt, "{json}");
    }
    assert_eq!(kind(r#"{"recorder": 2, "interactions": []}"#), ErrorKind::NewerVersion);
    let empty = Replay::from_json(&Recorder::new().to_json("empty").unwrap()).unwrap();
    assert_eq!(empty.remaining(), 0);
}

#[tokio::test]
async fn parts_and_calls_that_spell_a_secret_together_do_not_show_it() {
    let step = |text: &str| Script::new().text(text).finish(FinishReason::Stop);
    let parts = Script::new().text("horse").reasoning("Hm.").text("shoe").finish(FinishReason::Stop);
    let provider = ScriptedProvider::new().step(parts).step(step("a horse")).step(step("shoe"));
    let recorder = Recorder::new().secret("horseshoe");
    let layered = (&recorder).layer(provider.provider());
    for _ in 0..3 {
        hear(&*layered).await;
    }
    let all = parsed(&recorder.to_json("together").unwrap());
    assert_eq!(all["interactions"][0]["expect"]["text"], "xxxxxxxxx");
    assert_eq!(all["expect"]["text"], "xxxxxxxxxa xxxxxxxxx");
}
