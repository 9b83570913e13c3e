//! Typed output: three ways to ask, one repair round, and a typed error when there is no value.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use entourage_core::{
    Error, ErrorKind, Money, Prices, RetryStatus, Usage,
    message::{History, Media, MediaSource, Message, Part, Role},
    provider::{
        CallContext, Delta, Effort, FinishReason, OutputFormat, Params, Profile, Restart, ToolChoice,
        Warning, WarningKind,
    },
    run::Status,
};
use entourage_runners::typed::{Generate, Generated, ModelExt, NoValue, NoValueReason, RunExt, Strategy};
use entourage_testkit::{Gate, Script, ScriptedProvider};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::common::{act, count, drain, memory, runtime_on, stored};

/// A city.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct City {
    name: String,
    /// In thousands.
    #[schemars(range(min = 1))]
    people: u32,
    mayor: Option<String>,
}

fn paris() -> City {
    City { name: "Paris".into(), people: 2_100, mayor: None }
}

const PARIS: &str = r#"{"name": "Paris", "people": 2100}"#;

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Mood {
    Calm,
    Angry { at: String },
}

/// Strategies with a profile that leads to each.
fn ways() -> [(Strategy, Profile); 3] {
    let profile = |structured, tools| {
        let mut profile = Profile::default();
        (profile.structured_output, profile.tools) = (structured, tools);
        profile.prices = Some(Prices::per_million_micros(1_000_000, 1_000_000));
        profile
    };
    [
        (Strategy::Native, profile(Some(true), Some(true))),
        (Strategy::Tool, profile(Some(false), Some(true))),
        (Strategy::Prompt, profile(None, None)),
    ]
}

/// A reply of `json`, as the model gives it with this strategy.
fn reply(strategy: Strategy, name: &str, json: &str) -> Script {
    let script = match strategy {
        Strategy::Tool => Script::new().raw_call(name, json),
        _ => Script::new().text(json),
    };
    script.usage(10, 5).finish(FinishReason::Stop)
}

async fn city(provider: &ScriptedProvider, profile: &Profile) -> Result<Generated<City>, Error> {
    let model = provider.model().with_profile(profile.clone());
    model.generate::<City>("Where is the tower?", &CallContext::new()).await
}

#[tokio::test]
async fn the_profile_chooses_the_way() {
    for (strategy, profile) in ways() {
        let provider = ScriptedProvider::new().step(reply(strategy, "City", PARIS));
        let made = city(&provider, &profile).await.unwrap();
        assert_eq!((&made.value, made.strategy, made.rounds), (&paris(), strategy, 1));
        assert_eq!((made.usage, made.cost), (Usage::new(10, 5), Some(Money::from_pico(15_000_000))));
        let sent = &provider.requests()[0];
        assert_eq!(sent.messages.get(0).unwrap().text(), "Where is the tower?");
        let is =
            (matches!(sent.output, OutputFormat::Schema(_)), sent.tools.len(), !sent.instructions.is_empty());
        match strategy {
            Strategy::Native => {
                let OutputFormat::Schema(schema) = &sent.output else { panic!("{sent:?}") };
                assert_eq!(
                    (&*schema.name, schema.description.as_deref(), schema.strict),
                    ("City", Some("A city."), true)
                );
                assert_eq!((&schema.schema["required"], is), (&json!(["name", "people"]), (true, 0, false)));
            }
            Strategy::Tool => {
                assert_eq!((&sent.tool_choice, is), (&ToolChoice::Tool("City".into()), (false, 1, false)));
                assert_eq!(sent.tools[0].schema()["properties"]["people"]["minimum"], json!(1));
                assert!(sent.tools[0].description().contains("A city."));
            }
            _ => {
                assert!(
                    sent.instructions.contains("\"In thousands.\"") && is == (false, 0, true),
                    "{sent:?}"
                );
            }
        }
    }
    assert_eq!(Strategy::of(&Profile::default()), Strategy::Prompt);
}

#[tokio::test]
async fn a_way_can_be_forced_and_settings_are_sent() {
    let mut defaults = Params::default();
    defaults.seed = Some(7);
    let mut own = Params::default();
    own.reasoning = Some(Effort::High.into());
    let provider = ScriptedProvider::new().step(reply(Strategy::Tool, "City", PARIS)).step(reply(
        Strategy::Prompt,
        "",
        PARIS,
    ));
    let model = provider.model().with_params(defaults).with_profile(ways()[0].1.clone());
    let ask = Generate::new("Where?").with_instructions("Be brief.").with_params(own);
    let cx = CallContext::new();
    assert_eq!(
        model.generate::<City>(ask.clone().with_strategy(Strategy::Tool), &cx).await.unwrap().value,
        paris()
    );
    assert_eq!(
        model.generate::<City>(ask.with_strategy(Strategy::Prompt), &cx).await.unwrap().value,
        paris()
    );
    let sent = provider.requests();
    assert_eq!(
        (&*sent[0].instructions, sent[0].tool_choice.clone()),
        ("Be brief.", ToolChoice::Tool("City".into()))
    );
    assert!(
        sent[1].instructions.starts_with("Be brief.\n\nAnswer with one JSON value"),
        "{}",
        sent[1].instructions
    );
    for request in &sent {
        assert_eq!((request.params.seed, request.params.reasoning), (Some(7), Some(Effort::High.into())));
        assert_eq!(request.profile.structured_output, Some(true));
    }
}

#[tokio::test]
async fn a_conversation_or_a_request_can_be_asked_for_a_value() {
    let history: History = [Message::user("The tower?"), Message::assistant("Yes?"), Message::user("Where?")]
        .into_iter()
        .collect();
    let provider = ScriptedProvider::new().text(PARIS).text(PARIS).text(PARIS);
    let (model, cx) = (provider.model(), CallContext::new());
    model.generate::<City>(history.clone(), &cx).await.unwrap();
    model.generate::<City>(Message::user("Where?"), &cx).await.unwrap();
    let request =
        model.request(history).with_instructions("Be brief.").with_tool_choice(ToolChoice::Required);
    model.generate::<City>(request, &cx).await.unwrap();
    let sent = provider.requests();
    assert_eq!(sent.iter().map(|request| request.messages.len()).collect::<Vec<_>>(), [3, 1, 3]);
    assert!(sent[2].instructions.starts_with("Be brief.\n\n"));
    assert_eq!(sent[2].tool_choice, ToolChoice::Auto);

    for empty in [Generate::new(""), History::default().into()] {
        let error = model.generate::<City>(empty, &cx).await.unwrap_err();
        assert_eq!((error.kind(), provider.count()), (ErrorKind::EmptyPrompt, 3));
    }
}

async fn value<T: serde::de::DeserializeOwned + JsonSchema>(
    strategy: Strategy,
    replies: &[&str],
) -> Result<T, Error> {
    let provider = ScriptedProvider::by_history();
    let model = replies.iter().fold(provider, |provider, json| {
        let name: String =
            T::schema_name().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        provider.step(reply(strategy, &name, json))
    });
    let ask = Generate::new("Go").with_strategy(strategy);
    Ok(model.model().generate::<T>(ask, &CallContext::new()).await?.value)
}

#[tokio::test]
async fn what_is_no_object_travels_in_one() {
    for strategy in [Strategy::Native, Strategy::Tool] {
        assert_eq!(value::<Vec<u8>>(strategy, &[r#"{"value": [1, 2]}"#]).await.unwrap(), [1, 2]);
        assert_eq!(value::<u32>(strategy, &[r#"{"value": 7}"#]).await.unwrap(), 7);
        assert_eq!(value::<Mood>(strategy, &[r#"{"value": "calm"}"#]).await.unwrap(), Mood::Calm);
        let angry = r#"{"value": {"angry": {"at": "me"}}}"#;
        assert_eq!(value::<Mood>(strategy, &[angry]).await.unwrap(), Mood::Angry { at: "me".into() });
        assert_eq!(value::<Option<City>>(strategy, &[r#"{"value": null}"#]).await.unwrap(), None);
        assert_eq!(value::<String>(strategy, &[r#"{"value": "x"}"#]).await.unwrap(), "x");
        let map = value::<BTreeMap<String, u8>>(strategy, &[r#"{"value": 1}"#]).await.unwrap();
        assert_eq!(map, BTreeMap::from([("value".to_owned(), 1)]), "an object is not unwrapped");
    }
    assert_eq!(value::<Vec<u8>>(Strategy::Prompt, &["[1, 2]"]).await.unwrap(), [1, 2]);
    assert_eq!(value::<u32>(Strategy::Prompt, &["7"]).await.unwrap(), 7);
    assert_eq!(value::<Mood>(Strategy::Prompt, &["\"calm\""]).await.unwrap(), Mood::Calm);
}

#[tokio::test]
async fn a_value_is_found_in_the_text_around_it() {
    for text in [
        "```json\n{\"name\": \"Paris\", \"people\": 2100}\n```",
        "It is [1] Paris: {\"name\": \"Paris\", \"people\": 2100}. Not {\"name\": \"Lyon\"}.",
        "{\"people\": 2100, \"name\": \"Paris\"",
        "<think>{\"name\": \"Lyon\", \"people\": 500}</think>{\"name\": \"Paris\", \"people\": 2100,}",
    ] {
        assert_eq!(value::<City>(Strategy::Prompt, &[text]).await.unwrap(), paris(), "{text}");
    }
}

#[tokio::test]
async fn a_wrong_reply_is_shown_to_the_model_once() {
    for (strategy, profile) in ways() {
        let wrong = r#"{"name": 1, "people": 0}"#;
        let provider =
            ScriptedProvider::new().step(reply(strategy, "City", wrong)).step(reply(strategy, "City", PARIS));
        let made = city(&provider, &profile).await.unwrap();
        assert_eq!((made.value, made.rounds), (paris(), 2));
        assert_eq!((made.usage, made.cost), (Usage::new(20, 10), Some(Money::from_pico(30_000_000))));
        let sent = provider.requests();
        let again: Vec<_> = sent[1].messages.iter().collect();
        assert_eq!((again.len(), again[1].role()), (3, Role::Assistant));
        let told = match strategy {
            Strategy::Tool => {
                let result = again[2].tool_results().next().unwrap();
                assert!(result.is_error && result.call == again[1].tool_calls().next().unwrap().id);
                result.to_text()
            }
            _ => {
                assert_eq!((again[1].text(), again[2].role()), (wrong.to_owned(), Role::User));
                again[2].text()
            }
        };
        assert!(told.contains("/name should be string and is 1"), "{told}");
        assert!(told.contains("/people should be at least 1 and is 0"), "{told}");
        assert_eq!((&sent[0].output, &sent[0].tool_choice), (&sent[1].output, &sent[1].tool_choice));
        assert_eq!((&sent[0].instructions, &sent[0].tools), (&sent[1].instructions, &sent[1].tools));
    }
}

#[tokio::test]
async fn a_second_wrong_reply_is_an_error_that_says_what_was_wrong_and_spent() {
    let long = format!("{{\"name\": \"{}\", \"people\": -1}}", "é\n".repeat(400).replace('\n', "\\n"));
    for (strategy, profile) in ways() {
        let provider =
            ScriptedProvider::new().step(reply(strategy, "City", "{}")).step(reply(strategy, "City", &long));
        let error = city(&provider, &profile).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.retry(), provider.count()),
            (ErrorKind::Protocol, RetryStatus::Permanent, 2)
        );
        assert!(error.message().contains("no `City`") && error.message().contains("/people"), "{error}");
        let shown = error.context().find(|(name, _)| *name == "reply").unwrap().1;
        let began: String = long.chars().take(200).collect();
        assert_eq!(shown, format!("{began:?}"));
        let none = NoValue::of(&error).unwrap();
        assert!(
            matches!(&none.reason, NoValueReason::Invalid(problem) if problem.contains("at least")),
            "{none:?}"
        );
        assert_eq!((none.rounds, none.usage), (2, Usage::new(20, 10)));
        assert_eq!(none.cost, Some(Money::from_pico(30_000_000)));
    }
}

#[tokio::test]
async fn each_way_to_say_nothing_usable_is_repaired() {
    for (strategy, first) in [
        (Strategy::Native, Script::new().text("I cannot say.")),
        (Strategy::Native, Script::new()),
        (Strategy::Tool, Script::new().text("It is Paris.")),
        (Strategy::Tool, Script::new().raw_call("City", "{\"name\": \"Par")),
        (Strategy::Tool, Script::new().raw_call("Town", PARIS)),
        (Strategy::Prompt, Script::new().reasoning("Hm.").text("Paris")),
    ] {
        let label = format!("{first:?}");
        let first = first.usage(10, 5).finish(FinishReason::Stop);
        let provider = ScriptedProvider::new().step(first).step(reply(strategy, "City", PARIS));
        let ask = Generate::new("Where?").with_strategy(strategy);
        let made = provider.model().generate::<City>(ask, &CallContext::new()).await.unwrap();
        assert_eq!((made.value, made.rounds), (paris(), 2), "{label}");
        let sent = provider.requests();
        crate::common::assert_valid(&sent[1].messages);
    }
}

#[tokio::test]
async fn a_tool_that_was_not_forced_leaves_the_value_in_the_text() {
    let provider = ScriptedProvider::new().text(format!("Sure: {PARIS}"));
    let ask = Generate::new("Where?").with_strategy(Strategy::Tool);
    let made = provider.model().generate::<City>(ask, &CallContext::new()).await.unwrap();
    assert_eq!((made.value, made.rounds), (paris(), 1));
}

#[tokio::test]
async fn a_refusal_a_filter_and_a_cut_off_are_errors_of_their_own() {
    let refusal =
        |finish| Script::new().delta(Delta::Refusal("I will not.".into())).usage(10, 5).finish(finish);
    // What is cut off may look whole, and must not pass.
    let cut = Script::new().text("[1, 2]").usage(10, 5).finish(FinishReason::Length);
    let filtered = Script::new().text("[1, 2]").usage(10, 5).finish(FinishReason::ContentFilter);
    for (script, kind, reason) in [
        (refusal(FinishReason::Stop), ErrorKind::ContentFiltered, NoValueReason::Refused),
        (refusal(FinishReason::Refusal), ErrorKind::ContentFiltered, NoValueReason::Refused),
        (filtered, ErrorKind::ContentFiltered, NoValueReason::Withheld),
        (cut, ErrorKind::TooLarge, NoValueReason::CutOff),
    ] {
        let provider = ScriptedProvider::new().step(script);
        let error = provider.model().generate::<Vec<u8>>("Go", &CallContext::new()).await.unwrap_err();
        let none = NoValue::of(&error).unwrap();
        assert_eq!((error.kind(), &none.reason, none.rounds), (kind, &reason, 1), "{error}");
        assert_eq!((none.usage, provider.count()), (Usage::new(10, 5), 1), "no repair round");
        assert_eq!(error.retry(), RetryStatus::Permanent);
    }
}

#[tokio::test]
async fn a_call_that_fails_gives_its_own_error() {
    let provider = ScriptedProvider::new().fail(ErrorKind::Overloaded, "no room; wait");
    let error = provider.model().generate::<City>("Where?", &CallContext::new()).await.unwrap_err();
    assert_eq!((error.kind(), NoValue::of(&error).is_none()), (ErrorKind::Overloaded, true));
    let provider = ScriptedProvider::new().step(Script::new().text(PARIS));
    let error = provider.model().generate::<City>("Where?", &CallContext::new()).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.retry()),
        (ErrorKind::Protocol, RetryStatus::Temporary),
        "the stream had no end"
    );
}

#[tokio::test]
async fn a_cancel_ends_it_in_the_middle_of_a_reply() {
    let gate = Gate::new();
    let provider =
        ScriptedProvider::new().step(Script::new().wait(&gate).text(PARIS).finish(FinishReason::Stop));
    let (model, cx) = (provider.model(), CallContext::new());
    let cancel = cx.cancel.clone();
    let (made, ()) = tokio::join!(model.generate::<City>("Where?", &cx), async {
        gate.arrived(1).await;
        cancel.cancel();
    });
    assert_eq!(made.unwrap_err().kind(), ErrorKind::Cancelled);
}

#[tokio::test]
async fn failed_attempts_are_paid_for_and_warnings_are_kept() {
    let error = Error::new(ErrorKind::Overloaded, "no room").record();
    let again = Delta::Restart(Box::new(Restart::new(2, error, Duration::ZERO)));
    let warning = Warning::new(WarningKind::Schema, "City", "not enforced");
    let script =
        Script::new().usage(100, 1).delta(again).delta(Delta::Warning(Box::new(warning.clone()))).text(PARIS);
    let provider = ScriptedProvider::new().step(script.usage(10, 5).finish(FinishReason::Stop));
    let made = city(&provider, &ways()[0].1).await.unwrap();
    assert_eq!((made.usage, made.cost), (Usage::new(110, 6), Some(Money::from_pico(116_000_000))));
    assert_eq!(made.warnings, [warning]);
}

#[tokio::test]
async fn cc03_the_cost_is_unknown_when_a_round_was_not_counted() {
    for silent in [Script::new(), Script::new().usage(0, 0)] {
        let provider = ScriptedProvider::new()
            .step(silent.text("{}").finish(FinishReason::Stop))
            .step(reply(Strategy::Native, "City", PARIS));
        let made = city(&provider, &ways()[0].1).await.unwrap();
        assert_eq!((made.rounds, made.cost), (2, None));
    }
}

#[tokio::test]
async fn cm19_a_model_without_vision_is_asked_with_notes() {
    let mut profile = Profile::default();
    profile.vision = Some(false);
    let provider = ScriptedProvider::new().text(PARIS);
    let image = Part::Media(Media::new("image/png", MediaSource::Base64("aGk=".into())));
    let model = provider.model().with_profile(profile);
    model.generate::<City>(Message::user("Where?").with(image), &CallContext::new()).await.unwrap();
    let sent = serde_json::to_string(&provider.requests()[0].messages).unwrap();
    assert!(sent.contains("not shown") && !sent.contains("aGk="), "{sent}");
}

#[tokio::test]
async fn within_a_run_each_call_is_recorded_and_none_is_made_twice() {
    for strategy in [Strategy::Native, Strategy::Tool, Strategy::Prompt] {
        let provider =
            ScriptedProvider::new().step(reply(strategy, "City", "{}")).step(reply(strategy, "City", PARIS));
        let model = provider.model();
        let lives = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&lives);
        let doer = act(move |cx| {
            let (model, lives) = (model.clone(), Arc::clone(&counted));
            Box::pin(async move {
                let ask = Generate::new("Where?").with_strategy(strategy);
                let made = cx.generate::<City>(&model, ask).await?;
                lives.fetch_add(1, Ordering::SeqCst);
                // Paused here the first time, and run again from the top the second.
                cx.signal("go").await?;
                Ok(format!("{} after {}", made.value.name, made.rounds))
            })
        });
        let store = memory();
        let session = runtime_on(&store).session();
        let mut run = session.start(&doer, "Go");
        let events = drain(&mut run).await;
        assert_eq!(
            (count(&events, "model_finished"), count(&events, "tool_started")),
            (2, 0),
            "{strategy:?}"
        );
        assert!(matches!(run.outcome().await.unwrap().status, Status::Paused(_)));
        session.signal("go", json!(null)).await.unwrap();
        let outcome = session.resume(&doer).outcome().await.unwrap();
        assert_eq!((outcome.text.as_str(), provider.count()), ("Paris after 2", 2));
        assert_eq!(lives.load(Ordering::SeqCst), 2, "the code ran again, its calls did not");
        assert_eq!(session.head().await.unwrap().usage, Usage::new(20, 10));
        assert_eq!(count(&stored(&store, session.id()).await, "model_finished"), 2);
    }
}

/// Replies of which no one value is the answer, and ones of which one is.
#[tokio::test]
async fn attack_run_i1_two_values_that_differ_are_no_answer() {
    const LYON: &str = r#"{"name": "Lyon", "people": 520}"#;
    let profile = &ways()[2].1;
    for reply in [
        format!("Not {LYON} but {PARIS}."),
        format!("They say\n```json\n{LYON}\n```\nI say\n```json\n{PARIS}\n```"),
    ] {
        let provider = ScriptedProvider::new().text(&reply).text(PARIS);
        let made = city(&provider, profile).await.unwrap();
        assert_eq!((made.value, made.rounds), (paris(), 2), "{reply}");
        let repair = provider.requests()[1].messages.iter().last().unwrap().text();
        assert!(repair.contains("several values") && repair.contains("one JSON value"), "{repair}");
    }
    for reply in [
        format!("{PARIS} Once more: {PARIS}"),
        format!("See {{\"source\": 1}}: {PARIS}"),
        format!("```json\n{PARIS}\n```\nThat is {{\"people\": 2100, \"name\": \"Paris\"}}."),
    ] {
        let provider = ScriptedProvider::new().text(&reply);
        let made = city(&provider, profile).await.unwrap();
        assert_eq!((made.value, made.rounds), (paris(), 1), "{reply}");
    }
}

#[tokio::test]
async fn two_calls_of_the_answer_tool_that_differ_are_no_answer() {
    let profile = &ways()[1].1;
    let both = |other: &str| {
        Script::new().raw_call("City", PARIS).raw_call("City", other).finish(FinishReason::Stop)
    };
    let provider = ScriptedProvider::new().step(both(PARIS));
    assert_eq!(city(&provider, profile).await.unwrap().rounds, 1);
    let other = r#"{"name": "Lyon", "people": 520}"#;
    let provider = ScriptedProvider::new().step(both(other)).step(reply(Strategy::Tool, "City", PARIS));
    let made = city(&provider, profile).await.unwrap();
    assert_eq!((made.value, made.rounds), (paris(), 2));
}

/// The optional parts of a value with a slip in its syntax are no values of their own.
#[tokio::test]
async fn a_part_of_a_repaired_value_is_no_second_value() {
    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Part {
        a: Option<Box<Part>>,
    }
    let provider = ScriptedProvider::new().text("```json\n{\"a\": {\"a\": null},}\n```");
    let model = provider.model();
    let made = model.generate::<Part>("x", &CallContext::new()).await.unwrap();
    assert_eq!((made.value, made.rounds), (Part { a: Some(Box::new(Part { a: None })) }, 1));
}

#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Ui {
    Row { child: Box<Ui> },
    Col { child: Box<Ui> },
    Card { child: Box<Ui> },
    List { child: Box<Ui> },
    Pad { child: Box<Ui> },
    Link { child: Box<Ui> },
    Tab { child: Box<Ui> },
    Text { n: u8 },
}

#[tokio::test]
async fn attack_run_l2_a_valid_tree_is_taken_at_once() {
    let tree = |depth: usize| {
        format!(
            "{}{{\"kind\":\"text\",\"n\":1}}{}",
            "{\"kind\":\"tab\",\"child\":".repeat(depth),
            "}".repeat(depth)
        )
    };
    for (_, profile) in ways() {
        for depth in [5, 30] {
            let provider = ScriptedProvider::new().text(tree(depth));
            let model = provider.model().with_profile(profile.clone());
            let made = model.generate::<Ui>("A tree, please.", &CallContext::new()).await.unwrap();
            let expected = (0..depth).fold(Ui::Text { n: 1 }, |child, _| Ui::Tab { child: Box::new(child) });
            assert_eq!((made.value, made.rounds), (expected, 1));
        }
    }
}
