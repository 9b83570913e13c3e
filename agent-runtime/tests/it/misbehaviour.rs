//! A model, a service or a tool that does everything wrong: it is bounded, and the history stays valid.

use std::time::Duration;

use entourage_core::{
    ErrorKind, Prices, Result, Usage,
    message::Content,
    provider::{Delta, FinishReason, Model, Profile},
    run::{Limits, Outcome, Status, StopReason},
    session::SharedStore,
    tool::ToolOutput,
};
use entourage_testkit::{FakeTool, LiveProvider, Script, ScriptedProvider};
use serde_json::json;
use tokio::time::Instant;

use crate::common::{agent, assert_valid, memory, open_runtime, results, runtime_on, settled, stored};

/// Plays one script for an agent with the tool `look`, then a second prompt, whose request must be valid.
async fn play(script: Script) -> (Result<Outcome>, FakeTool, SharedStore, entourage_core::SessionId) {
    let store = memory();
    let provider = ScriptedProvider::by_history().step(script).text("I see.");
    let look = FakeTool::new("look").echoing();
    let first = agent(provider.model()).tool(look.clone()).build().unwrap();
    let session = runtime_on(&store).session();
    let outcome = session.start(&first, "Go").outcome().await;
    let next = ScriptedProvider::new().text("Here.");
    let second = agent(next.model()).build().unwrap();
    let again = runtime_on(&store).open(session.id()).await.unwrap();
    again.start(&second, "And now?").outcome().await.unwrap();
    assert_valid(&next.requests()[0].messages);
    (outcome, look, store, session.id().clone())
}

#[tokio::test]
async fn attack_46_a_model_that_never_stops_is_stopped_after_fifty_steps() {
    let mut provider = ScriptedProvider::new();
    for n in 0..50 {
        provider = provider.call("look", json!({"n": n}));
    }
    let look = FakeTool::new("look");
    let agent = agent(provider.model()).tool(look.clone()).build().unwrap();
    let session = open_runtime().session();
    let outcome = session.start(&agent, "Go").outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Stopped(StopReason::Steps(50)));
    assert_eq!((outcome.steps, provider.count(), look.finished()), (50, 50, 50));
    assert_valid(&session.history().await.unwrap());
}

#[tokio::test]
async fn attack_46_ten_thousand_calls_in_one_reply_are_cut_to_a_bound() {
    for same_index in [false, true] {
        let mut script = Script::new();
        for n in 0..10_000u32 {
            let index = if same_index { 0 } else { n };
            script = script
                .delta(Delta::tool_call(index, format!("c{n}"), "look"))
                .delta(Delta::arguments(index, format!("{{\"n\":{n}}}")));
        }
        let (outcome, look, store, id) = play(script.finish(FinishReason::ToolCalls)).await;
        assert_eq!(outcome.unwrap().text, "I see.");
        assert_eq!(look.finished(), 128);
        let events = stored(&store, &id).await;
        let told: Vec<_> = settled(&events).into_iter().map(|(_, text)| text).collect();
        assert_eq!(told.len(), 128);
        assert_eq!(told.last().unwrap(), "{\"n\":127}", "arguments of a dropped call go nowhere else");
        let warned = events.iter().any(|event| event.to_string().contains("9872 were left out"));
        assert!(warned);
    }
}

#[tokio::test]
async fn attack_46_duplicate_and_empty_ids_are_made_different() {
    let mut script = Script::new();
    for (index, id) in ["", "x", "x", "", "call_0", "x"].into_iter().enumerate() {
        let index = u32::try_from(index).unwrap();
        script = script
            .delta(Delta::tool_call(index, id, "look"))
            .delta(Delta::arguments(index, format!("{{\"n\":{index}}}")));
    }
    let (outcome, look, store, id) = play(script.finish(FinishReason::ToolCalls)).await;
    assert_eq!((outcome.unwrap().text.as_str(), look.finished()), ("I see.", 6));
    let session = runtime_on(&store).open(&id).await.unwrap();
    let history = session.history().await.unwrap();
    let ids: std::collections::HashSet<_> =
        history.get(1).unwrap().tool_calls().map(|call| call.id.to_string()).collect();
    assert_eq!(ids.len(), 6);
    let answers = results(history.get(2).unwrap());
    assert_eq!(
        answers,
        (0..6).map(|n| format!("{{\"n\":{n}}}")).collect::<Vec<_>>(),
        "each has its own answer"
    );
}

#[tokio::test]
async fn attack_46_arguments_too_deep_or_no_json_are_not_run() {
    let deep = |n: usize| format!("{{\"a\":{}1{}}}", "[".repeat(n), "]".repeat(n));
    for text in
        [deep(200), deep(100_000), "[".repeat(1_000_000), "{\"n\": NaN}".into(), "{\"a\": 1e999999}".into()]
    {
        let script = Script::new().raw_call("look", &text).finish(FinishReason::ToolCalls);
        let (outcome, look, ..) = play(script).await;
        assert_eq!((outcome.unwrap().text.as_str(), look.started()), ("I see.", 0));
    }
    let huge = format!("{{\"n\": {}}}", "9".repeat(400));
    let (outcome, look, ..) =
        play(Script::new().raw_call("look", &huge).finish(FinishReason::ToolCalls)).await;
    assert!(outcome.is_ok() && look.started() <= 1);
}

#[tokio::test]
async fn attack_46_arguments_and_replies_beyond_their_bounds_end_the_run() {
    let text = format!("{{\"a\":\"{}\"}}", "x".repeat(9 << 20));
    let (outcome, look, ..) =
        play(Script::new().raw_call("look", &text).finish(FinishReason::ToolCalls)).await;
    assert_eq!((outcome.unwrap_err().kind(), look.started()), (ErrorKind::TooLarge, 0));

    let mut pieces = Script::new().raw_call("look", "{\"a\":\"");
    for _ in 0..9 {
        pieces = pieces.delta(Delta::arguments(0, "x".repeat(1 << 20)));
    }
    let (outcome, look, ..) = play(pieces.finish(FinishReason::ToolCalls)).await;
    assert_eq!((outcome.unwrap_err().kind(), look.started()), (ErrorKind::TooLarge, 0));

    let mut flood = Script::new();
    for _ in 0..33 {
        flood = flood.text("y".repeat(1 << 20));
    }
    let (outcome, ..) = play(flood.finish(FinishReason::Stop)).await;
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::TooLarge);
}

#[tokio::test]
async fn attack_46_a_stream_that_is_cut_is_a_retryable_error_and_runs_nothing() {
    for script in [
        Script::new(),
        Script::new().text("half a sen"),
        Script::new().reasoning("hm"),
        Script::new().call("look", &json!({})),
        Script::new().text("x").raw_call("look", "{\"path\": \"/ho"),
        Script::new().call("look", &json!({})).fail(ErrorKind::Transport, "reset by peer"),
    ] {
        let label = format!("{script:?}");
        let (outcome, look, ..) = play(script).await;
        let error = outcome.unwrap_err();
        assert_eq!(error.retry(), entourage_core::RetryStatus::Temporary, "{label}");
        assert_eq!(look.started(), 0, "{label}");
    }
}

#[tokio::test]
async fn attack_46_deltas_against_the_protocol_end_the_run() {
    let stray = Delta::arguments(5, "{}");
    for script in [
        Script::new().delta(stray.clone()).finish(FinishReason::Stop),
        Script::new().text("x").finish(FinishReason::Stop).text("y"),
        Script::new().finish(FinishReason::Stop).finish(FinishReason::Stop),
        Script::new().call("look", &json!({})).finish(FinishReason::ToolCalls).delta(stray),
    ] {
        let (outcome, look, ..) = play(script).await;
        assert_eq!((outcome.unwrap_err().kind(), look.started()), (ErrorKind::Protocol, 0));
    }
}

#[tokio::test]
async fn attack_46_absurd_usage_does_not_overflow() {
    let calls =
        || Script::new().call("look", &json!({})).usage(u64::MAX, u64::MAX).finish(FinishReason::ToolCalls);
    let last = Script::new().text("Done.").usage(u64::MAX, 0).finish(FinishReason::Stop);
    let provider = ScriptedProvider::new().step(calls()).step(calls()).step(last);
    let mut profile = Profile::default();
    profile.prices = Some(Prices::per_million_micros(u64::MAX, u64::MAX));
    let model = Model::new(provider.provider(), "dear").with_profile(profile);
    let agent = agent(model).tool(FakeTool::new("look")).build().unwrap();
    let session = open_runtime().session();
    let outcome = session.start(&agent, "Go").outcome().await.unwrap();
    // What cannot be true is not known, and no price follows from it.
    let mut known = Usage::default();
    known.output = Some(0);
    assert_eq!((outcome.usage, outcome.cost), (known, None));
    assert_eq!(session.head().await.unwrap().usage, outcome.usage);
}

#[tokio::test(start_paused = true)]
async fn attack_46_a_tool_that_hangs_is_stopped_and_the_model_is_told() {
    for (limit, own, expected) in [(None, None, 600), (Some(30), None, 30), (Some(30), Some(5), 5)] {
        let mut tool = FakeTool::new("hang").hanging();
        if let Some(own) = own {
            tool = tool.timeout(Duration::from_secs(own));
        }
        let mut limits = Limits::default();
        if let Some(limit) = limit {
            limits.tool_timeout = Duration::from_secs(limit);
        }
        let provider = ScriptedProvider::new().call("hang", json!({})).text("I see.");
        let agent = agent(provider.model()).tool(tool.clone()).limits(limits).build().unwrap();
        let started = Instant::now();
        assert_eq!(open_runtime().session().start(&agent, "Go").outcome().await.unwrap().text, "I see.");
        assert_eq!((started.elapsed().as_secs(), tool.running()), (expected, 0));
        let text = &results(provider.requests()[1].messages.last().unwrap())[0];
        assert!(text.contains(&format!("longer than {expected} s")), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn attack_46_a_model_that_falls_silent_is_given_up() {
    let provider = LiveProvider::new();
    let agent = agent(provider.model()).build().unwrap();
    let started = Instant::now();
    let run = open_runtime().session().start(&agent, "Go");
    let mut call = provider.asked().await;
    // As long as something comes, it may take as long as it likes.
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(299)).await;
        call.text("x");
    }
    let error = run.outcome().await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Timeout, entourage_core::RetryStatus::Temporary));
    assert_eq!(started.elapsed().as_secs(), 5 * 299 + 300);
    assert!(call.is_abandoned());
}

async fn shown_of(output: ToolOutput) -> (Vec<Content>, usize) {
    let provider = ScriptedProvider::new().call("flood", json!({})).text("I see.");
    let agent = agent(provider.model()).tool(FakeTool::new("flood").giving(output)).build().unwrap();
    open_runtime().session().start(&agent, "Go").outcome().await.unwrap();
    let content =
        provider.requests()[1].messages.last().unwrap().tool_results().next().unwrap().content.clone();
    let bytes = content.iter().map(|piece| piece.as_text().len()).sum();
    (content, bytes)
}

#[tokio::test]
async fn attack_46_a_flood_of_output_is_cut_in_the_middle() {
    const CAP: usize = 256 << 10;
    let (content, bytes) = shown_of(ToolOutput::text("é".repeat(50 << 20))).await;
    assert!(bytes > CAP - 16 && bytes < CAP + 200, "{bytes}");
    let text = content[0].as_text();
    assert!(text.starts_with('é') && text.ends_with('é') && text.contains("bytes left out"));
    let dropped: usize = text.split("[… ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let kept = text.chars().filter(|c| *c == 'é').count() * 2;
    assert_eq!(kept + dropped, 100 << 20, "it says truly how much is missing");

    let exact = "x".repeat(CAP);
    assert_eq!(shown_of(ToolOutput::text(exact.clone())).await.0, [Content::Text(exact)]);
}

#[tokio::test]
async fn attack_46_a_flood_in_many_pieces_is_cut_as_well() {
    let mut output = ToolOutput::text("first");
    output.content.extend((0..200_000).map(|_| Content::Text("ab".into())));
    output.content.push(Content::Text("last".into()));
    let (_, bytes) = shown_of(output).await;
    assert!(bytes < (256 << 10) + 200, "{bytes}");
}

#[tokio::test]
async fn attack_46_a_flood_in_an_error_or_a_panic_is_cut_as_well() {
    let flood = "y".repeat(1 << 20);
    for tool in [FakeTool::new("bad").telling(flood.clone()), FakeTool::new("bad").panicking(flood.clone())] {
        let provider = ScriptedProvider::new().call("bad", json!({})).text("I see.");
        let agent = agent(provider.model()).tool(tool).build().unwrap();
        open_runtime().session().start(&agent, "Go").outcome().await.unwrap();
        assert!(results(provider.requests()[1].messages.last().unwrap())[0].len() < (256 << 10) + 200);
    }
}
