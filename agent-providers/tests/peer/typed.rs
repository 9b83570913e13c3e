//! Typed output, in each way in which the server can force it by a grammar.

use entourage_core::provider::CallContext;
use entourage_runners::typed::{Generate, ModelExt, Strategy};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::{SERVER, params, peers};

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct File {
    #[schemars(length(min = 1, max = 12))]
    name: String,
    lines: i64,
    kind: Kind,
    #[schemars(length(max = 3))]
    tags: Vec<Tag>,
    #[schemars(length(max = 8))]
    note: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Tag {
    hot: bool,
}

#[derive(Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Source,
    Test,
}

pub(crate) fn check(wire: &str, file: &File) {
    assert!((1..=12).contains(&file.name.chars().count()), "{wire}: {file:?}");
    assert!(
        file.tags.len() <= 3 && file.note.as_deref().is_none_or(|note| note.len() <= 32),
        "{wire}: {file:?}"
    );
    assert!(matches!(file.kind, Kind::Source | Kind::Test) && file.lines.checked_abs().is_some());
    assert!(file.tags.iter().filter(|tag| tag.hot).count() <= 3);
}

#[tokio::test]
#[ignore = "needs LLM_PEER_URL, the address of a llama.cpp server"]
async fn a_typed_value_comes_by_schema_or_by_forced_tool() {
    let _server = SERVER.read().await;
    for peer in peers() {
        let native = peer.native.then_some(Strategy::Native);
        for strategy in [Strategy::Tool].into_iter().chain(native) {
            let ask = Generate::new("Which file is the longest?")
                .with_instructions("Answer briefly.")
                .with_params(params())
                .with_strategy(strategy);
            let made = peer.model.generate::<File>(ask, &CallContext::new()).await.unwrap();
            println!("{}: {strategy:?}, {} round(s): {:?}", peer.wire, made.rounds, made.value);
            check(peer.wire, &made.value);
            assert_eq!((made.strategy, made.rounds), (strategy, 1), "{}", peer.wire);
            assert!(made.usage.output.is_some_and(|tokens| tokens > 0), "{:?}", made.usage);
        }
    }
}

/// A value that is not an object is sent as the only field of one.
#[tokio::test]
#[ignore = "needs LLM_PEER_URL, the address of a llama.cpp server"]
async fn a_list_is_a_value_too() {
    let _server = SERVER.read().await;
    for peer in peers() {
        let strategy = if peer.native { Strategy::Native } else { Strategy::Tool };
        let ask = Generate::new("Which kinds?").with_params(params()).with_strategy(strategy);
        let made = peer.model.generate::<Vec<Kind>>(ask, &CallContext::new()).await.unwrap();
        println!("{}: {strategy:?}: {} kinds", peer.wire, made.value.len());
        assert_eq!(made.rounds, 1, "{}", peer.wire);
    }
}

/// The server does not know the wire's own request for a schema here, only that of chat completions.
#[tokio::test]
#[ignore = "needs LLM_PEER_URL, the address of a llama.cpp server"]
async fn responses_take_the_schema_through_extra_parameters() {
    let _server = SERVER.read().await;
    let [_, responses, _] = peers();
    let schema = entourage_core::tool::schema_of::<File>();
    let mut params = params();
    params.extra = Some(json!({
        "response_format": {"type": "json_schema", "json_schema": {"name": "file", "schema": schema}},
    }));
    let ask = Generate::new("Which file?").with_params(params).with_strategy(Strategy::Native);
    let made = responses.model.generate::<File>(ask, &CallContext::new()).await.unwrap();
    println!("{}: {:?} with extra: {:?}", responses.wire, made.strategy, made.value);
    check(responses.wire, &made.value);
    assert_eq!(made.rounds, 1);
}
