//! Context size and total usage: two separate figures, neither of them invented.

use std::time::Duration;

use entourage_core::{
    Error, ErrorKind, Money, Prices, Usage,
    context::{ContextUsage, estimate_tokens},
    event::{Envelope, Event},
    message::{Content, Media, MediaSource, Message, Role},
    provider::{Delta, Effort, FinishReason, Profile, PromptCache, ReasoningParams, Restart},
    run::{Outcome, Status},
    session::{SessionHead, SessionState},
    tool::ToolOutput,
};
use entourage_runtime::AgentExt;
use entourage_testkit::{FakeTool, Gate, Script, ScriptedProvider};
use serde_json::json;

use crate::common::{act, agent, drain, memory, open_runtime, runtime_on, stored};

fn fold(events: &[Envelope]) -> SessionState {
    let mut state = SessionState::default();
    events.iter().for_each(|event| state.apply(event));
    state
}

/// Runs an agent with the tool `look` on `provider`, and folds the stored events.
async fn folded(provider: &ScriptedProvider, prices: Option<Prices>) -> (SessionState, Outcome, SessionHead) {
    let mut profile = Profile::default();
    profile.prices = prices;
    let agent =
        agent(provider.model().with_profile(profile)).tool(FakeTool::new("look").returning("seen")).build();
    let store = memory();
    let session = runtime_on(&store).session();
    let outcome = session.start(&agent.unwrap(), "What is there?").outcome().await.unwrap();
    let state = fold(&stored(&store, session.id()).await);
    let head = session.head().await.unwrap();
    assert_eq!(*state.head(), head, "the fold of the stored events is the session's own");
    (state, outcome, head)
}

fn looks(script: Script) -> Script {
    script.call("look", &json!({})).finish(FinishReason::ToolCalls)
}

fn figures(context: ContextUsage) -> (u64, u64, bool) {
    (context.input, context.output, context.estimated)
}

const CHEAP: u64 = 1_000_000;

fn prices() -> Prices {
    Prices::per_million_micros(CHEAP, 2 * CHEAP)
}

#[tokio::test]
async fn cc02_the_context_is_the_last_steps_and_the_totals_are_sums() {
    let provider = ScriptedProvider::new()
        .step(looks(Script::new().usage(100, 10)))
        .step(Script::new().text("A tree.").usage(200, 20).finish(FinishReason::Stop));
    let (state, outcome, head) = folded(&provider, Some(prices())).await;
    assert_eq!(figures(state.context_usage()), (200, 20, false));
    assert_eq!(state.context_usage().total(), 220);
    assert_eq!((outcome.usage, head.usage), (Usage::new(300, 30), Usage::new(300, 30)));
    assert_eq!((outcome.cost, state.is_estimated()), (Some(Money::from_pico(360 * CHEAP)), false));
}

#[tokio::test]
async fn cc02_what_failed_attempts_used_is_in_the_totals_alone() {
    let error = Error::new(ErrorKind::Overloaded, "no room").record();
    let again = Delta::Restart(Box::new(Restart::new(2, error, Duration::ZERO)));
    let script = Script::new().text("A tr").usage(500, 3).delta(again).text("A tree.").usage(100, 10);
    let provider = ScriptedProvider::new().step(script.finish(FinishReason::Stop));
    let (state, outcome, _) = folded(&provider, Some(prices())).await;
    assert_eq!(figures(state.context_usage()), (100, 10, false));
    assert_eq!((outcome.usage, outcome.cost), (Usage::new(600, 13), Some(Money::from_pico(626 * CHEAP))));
}

#[tokio::test]
async fn cc03_missing_usage_is_estimated_and_costs_are_unknown() {
    for silent in [Script::new(), Script::new().usage(0, 0)] {
        let provider = ScriptedProvider::new()
            .step(looks(Script::new().usage(100, 10)))
            .step(silent.text("A tree stands there.").finish(FinishReason::Stop));
        let (state, outcome, head) = folded(&provider, Some(prices())).await;
        // "What is there?", the call of `look` with `{}`, and its result `seen` under that name.
        assert_eq!(figures(state.context_usage()), (4 + (1 + 1) + (1 + 1), 5, true));
        assert!(state.is_estimated());
        assert_eq!(
            (outcome.usage, head.usage),
            (Usage::new(100, 10), Usage::new(100, 10)),
            "no estimate is added"
        );
        assert_eq!((outcome.cost, head.cost), (None, None), "unknown is never 0");
    }
}

#[tokio::test]
async fn cc03_a_later_count_replaces_the_estimate_but_not_the_mark() {
    let provider = ScriptedProvider::new()
        .step(looks(Script::new()))
        .step(Script::new().text("A tree.").usage(200, 20).finish(FinishReason::Stop));
    let (state, outcome, _) = folded(&provider, Some(prices())).await;
    assert_eq!(figures(state.context_usage()), (200, 20, false));
    assert!(state.is_estimated(), "the totals still lack a step");
    assert_eq!((outcome.usage, outcome.cost), (Usage::new(200, 20), None));
}

#[tokio::test]
async fn cc03_what_a_service_itself_says_that_it_cost_is_known() {
    let mut usage = Usage::default();
    usage.cost = Some(Money::from_pico(7));
    let script = Script::new().text("A tree.").delta(Delta::Usage(Box::new(usage)));
    let provider = ScriptedProvider::new().step(script.finish(FinishReason::Stop));
    let (state, outcome, _) = folded(&provider, Some(prices())).await;
    assert_eq!((outcome.cost, state.is_estimated()), (Some(Money::from_pico(7)), false));
    assert_eq!(figures(state.context_usage()), (4, 2, true), "tokens are still estimated");
}

#[tokio::test]
async fn cc03_the_estimate_follows_the_history_at_any_length() {
    let provider = (0..70).fold(ScriptedProvider::new(), |provider, n| {
        provider.step(Script::new().text("word ".repeat(n)).finish(FinishReason::Stop))
    });
    let agent = agent(provider.model()).build().unwrap();
    let store = memory();
    let session = runtime_on(&store).session();
    for _ in 0..70 {
        session.start(&agent, "And then?").outcome().await.unwrap();
    }
    let state = fold(&stored(&store, session.id()).await);
    let all: u64 = state.history().iter().map(|message| estimate_tokens(message)).sum();
    assert_eq!(state.context_usage().total(), all);
}

#[tokio::test]
async fn a_call_that_failed_uncounted_leaves_the_context_as_it_was() {
    let provider = ScriptedProvider::new()
        .step(Script::new().text("A tree.").usage(100, 10).finish(FinishReason::Stop))
        .fail(ErrorKind::Overloaded, "no room; wait");
    let agent = agent(provider.model()).build().unwrap();
    let store = memory();
    let session = runtime_on(&store).session();
    session.start(&agent, "What is there?").outcome().await.unwrap();
    session.start(&agent, "And then?").outcome().await.unwrap_err();
    let state = fold(&stored(&store, session.id()).await);
    assert_eq!((figures(state.context_usage()), state.is_estimated()), ((100, 10, false), false));
}

#[tokio::test]
async fn cc02_the_calls_of_a_hand_written_agent_are_no_part_of_the_conversation() {
    let provider = ScriptedProvider::new().text("A tree.");
    let model = provider.model();
    let doer = act(move |cx| {
        let model = model.clone();
        Box::pin(async move {
            let reply = cx.call_model(&model, model.request(cx.history())).await?;
            Ok(reply.message.text())
        })
    });
    let store = memory();
    let session = runtime_on(&store).session();
    let outcome = session.start(&doer, "What is there?").outcome().await.unwrap();
    let state = fold(&stored(&store, session.id()).await);
    assert_eq!(state.context_usage(), ContextUsage::default());
    assert_eq!(state.head().usage, Usage::new(10, 5));
    let counted = (outcome.steps, outcome.usage, outcome.cost);
    assert_eq!(
        counted,
        (1, Usage::new(10, 5), None),
        "counted for it; a model without prices costs nobody knows what"
    );
}

#[tokio::test]
async fn cm19_broken_base64_of_a_tool_is_an_error_result() {
    let broken = Media::new("image/png", MediaSource::Base64("no base64!".into()));
    let whole = Media::new("image/png", MediaSource::Base64("aGk=".into()));
    let provider = ScriptedProvider::new().calls([("bad", json!({})), ("good", json!({}))]).text("Seen.");
    let agent = agent(provider.model())
        .tool(FakeTool::new("bad").giving(ToolOutput::text("Look:").with_media(broken)))
        .tool(FakeTool::new("good").giving(ToolOutput::text("Look:").with_media(whole.clone())))
        .build()
        .unwrap();
    open_runtime().session().start(&agent, "Go").outcome().await.unwrap();
    let requests = provider.requests();
    let results: Vec<_> = requests[1].messages.last().unwrap().tool_results().collect();
    assert!(results[0].is_error && results[0].to_text().contains("no valid base64"), "{results:?}");
    assert_eq!((results[1].is_error, results[1].content.last()), (false, Some(&Content::Media(whole))));
}

#[tokio::test]
async fn cm19_a_model_without_vision_is_sent_notes_and_the_session_keeps_the_files() {
    let image = Media::new("image/png", MediaSource::Base64("aGk=".into()));
    let provider = ScriptedProvider::new().call("look", json!({})).text("I saw nothing.");
    let mut profile = Profile::default();
    profile.vision = Some(false);
    let agent = agent(provider.model().with_profile(profile))
        .tool(FakeTool::new("look").giving(ToolOutput::text("Look:").with_media(image.clone())))
        .build()
        .unwrap();
    let session = open_runtime().session();
    let prompt = Message::user("See:").with(entourage_core::message::Part::Media(image));
    session.start(&agent, prompt).outcome().await.unwrap();
    let sent = serde_json::to_string(&provider.requests()[1].messages).unwrap();
    assert_eq!((sent.matches("not shown").count(), sent.matches("aGk=").count()), (2, 0), "{sent}");
    let kept = serde_json::to_string(&session.history().await.unwrap()).unwrap();
    assert_eq!((kept.matches("not shown").count(), kept.matches("aGk=").count()), (0, 2), "{kept}");
}

#[tokio::test]
async fn an_agents_reasoning_cache_and_metadata_are_sent() {
    let provider = ScriptedProvider::new().text("Hi.");
    let mut defaults = entourage_core::provider::Params::default();
    defaults.reasoning = Some(Effort::Low.into());
    defaults.seed = Some(7);
    let mut own = entourage_core::provider::Params::default();
    own.reasoning = Some(Effort::High.into());
    own.cache = Some(PromptCache::Long);
    own.metadata.insert("user_id".into(), "u1".into());
    let agent = agent(provider.model().with_params(defaults)).params(own).build().unwrap();
    agent.ask("Go").await.unwrap();
    let sent = provider.requests()[0].params.clone();
    assert_eq!(
        (sent.reasoning, sent.cache),
        (Some(ReasoningParams::from(Effort::High)), Some(PromptCache::Long))
    );
    assert_eq!((sent.seed, sent.metadata.get("user_id").map(String::as_str)), (Some(7), Some("u1")));
}

#[tokio::test]
async fn cc03_a_cancelled_reply_does_not_mark_the_service_as_not_counting() {
    let gate = Gate::new();
    let provider =
        ScriptedProvider::new().step(Script::new().text("A tr").wait(&gate).finish(FinishReason::Stop));
    let agent = agent(provider.model()).build().unwrap();
    let store = memory();
    let session = runtime_on(&store).session();
    let mut run = session.start(&agent, "What is there?");
    gate.arrived(1).await;
    run.cancel();
    let events = drain(&mut run).await;
    let ended = events.iter().find_map(|event| match &event.event {
        Event::RunFinished(end) => Some(end.outcome.status.clone()),
        _ => None,
    });
    assert_eq!(ended, Some(Status::Cancelled));
    let state = fold(&stored(&store, session.id()).await);
    assert_eq!((state.context_usage(), state.is_estimated()), (ContextUsage::default(), false));
    assert_eq!(state.history().last().unwrap().role(), Role::Assistant);
}

#[test]
fn money_is_read_from_dollars_and_cents_exactly() {
    let read = |text: &str| Money::usd(text).map(Money::as_pico).ok();
    let cases = [
        ("2", Some(2_000_000_000_000)),
        ("2.00", Some(2_000_000_000_000)),
        ("$0.5", Some(500_000_000_000)),
        ("0.000000000001", Some(1)),
        ("007.10", Some(7_100_000_000_000)),
        ("9223372.036854775807", Some(i64::MAX.unsigned_abs())),
        ("9223372.036854775808", None),
        ("99999999999999999999", None),
        ("0.0000000000001", None),
        ("", None),
        ("$", None),
        (".5", None),
        ("5.", None),
        ("1.2.3", None),
        ("-1", None),
        ("+1", None),
        ("1e3", None),
        ("1,000", None),
        (" 1", None),
        ("$$1", None),
        ("١", None),
    ];
    for (text, pico) in cases {
        assert_eq!(read(text), pico, "{text}");
        if let (Some(pico), Ok(money)) = (pico, Money::usd(text)) {
            assert_eq!(Money::usd(&money.to_string()).unwrap().as_pico(), pico, "{money}");
        }
    }
    assert_eq!(Money::cents(250), Money::usd("2.5").unwrap());
    assert_eq!(Money::cents(u64::MAX), Money::usd("9223372.036854775807").unwrap());
    let refused = Money::usd("two").unwrap_err();
    assert!(refused.kind() == ErrorKind::InvalidInput && refused.to_string().contains("`2.50`"), "{refused}");
}
