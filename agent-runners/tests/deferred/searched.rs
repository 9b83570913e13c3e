//! Requests to a service that searches deferred tools itself.

use std::sync::Arc;

use entourage_core::{
    ErrorKind,
    permission::Scope,
    provider::{Model, Profile, Request},
    tool::{ToolSpec, Toolset},
};
use entourage_runners::{Combined, ReactAgent, ToolsetExt, typed::Strategy};
use entourage_runtime::{
    AgentExt,
    layers::{Fallback, Forecast, ModelChoice, Tier},
    permission::Policy,
};
use entourage_testkit::{self as testkit, FakeTool, ScriptedProvider};
use serde_json::json;

use crate::{finished, memory, set, started, stored, told};

/// The provider's model, whose service searches.
fn searching(provider: &ScriptedProvider) -> Model {
    provider.model().with_profile(Profile::default().with_tools(true).with_tool_search(true))
}

/// Name of each tool of a request, and whether its service loads it on demand.
fn shown(request: &Request) -> Vec<(&str, bool)> {
    request.tools.iter().map(|tool| (tool.name(), tool.is_deferred())).collect()
}

fn crm() -> [FakeTool; 2] {
    [FakeTool::new("crm_look").echoing(), FakeTool::new("crm_send").echoing()]
}

#[tokio::test]
async fn issue_15_a_request_to_a_service_that_searches_has_the_tools_beside_the_two() {
    let store = memory();
    let provider = ScriptedProvider::new().call("crm_look", json!({"id": 7})).text("Done.");
    let own: Arc<dyn Toolset> = Arc::new(set([FakeTool::new("todos")]));
    let all = Combined::new(vec![own, Arc::new(set(crm()).deferred())]);
    let agent = ReactAgent::builder("clerk", searching(&provider)).toolset(all).build().unwrap();
    let runtime = testkit::runtime().policy(Policy::allow_all()).shared_store(Arc::clone(&store)).build();
    let session = runtime.session();
    session.start(&agent, "Go").outcome().await.unwrap();

    let requests = provider.requests();
    assert_eq!(
        shown(&requests[0]),
        [
            ("crm_look", true),
            ("crm_send", true),
            ("find_tools", false),
            ("todos", false),
            ("use_tool", false)
        ]
    );
    assert_eq!(requests[0].tools, requests[1].tools);
    assert_eq!(told(&requests[1])[0].to_text(), r#"{"id":7}"#);
    let events = stored(&store, session.id()).await;
    assert_eq!(started(&events), ["crm_look"]);
    assert_eq!(finished(&events)[0].0, "crm_look");
}

#[tokio::test]
async fn issue_15_tools_that_the_service_searches_are_forecast_at_nothing() {
    let first = async |many: usize| {
        let provider = ScriptedProvider::new().text("Done.");
        let tools = crate::requests::many(many).deferred();
        let agent = ReactAgent::builder("clerk", searching(&provider)).toolset(tools).build().unwrap();
        agent.ask("Go").await.unwrap();
        provider.requests().remove(0)
    };
    let (ten, all) = (first(10).await, first(500).await);
    assert_eq!((ten.tools.len(), all.tools.len()), (12, 502));
    assert_eq!(Forecast::new(&ten, None).input, Forecast::new(&all, None).input);
}

#[tokio::test]
async fn issue_15_a_scope_hides_tools_from_the_services_search_and_needs_no_name_of_the_two() {
    let provider = ScriptedProvider::new().call("crm_send", json!({})).text("Done.");
    let agent = ReactAgent::builder("clerk", searching(&provider))
        .toolset(set(crm()).deferred())
        .scope(Scope::all().with_tools(["crm_look"]))
        .build()
        .unwrap();
    let runtime = testkit::runtime().policy(Policy::allow_all()).build();
    runtime.session().start(&agent, "Go").outcome().await.unwrap();
    let requests = provider.requests();
    assert_eq!(shown(&requests[0]), [("crm_look", true)]);
    assert!(told(&requests[1])[0].is_error, "{:?}", told(&requests[1]));
}

#[tokio::test]
async fn issue_15_a_typed_agent_answers_beside_tools_that_the_service_searches() {
    let provider = ScriptedProvider::new().call("final_answer", json!({"count": 4}));
    let typed = ReactAgent::builder("clerk", searching(&provider))
        .toolset(set(crm()).deferred())
        .returns::<crate::requests::Answer>()
        .strategy(Strategy::Tool)
        .build()
        .unwrap();
    assert_eq!(typed.ask("Go").await.unwrap().count, 4);
    let shown_first = provider.requests().remove(0);
    assert_eq!(
        shown(&shown_first),
        [
            ("crm_look", true),
            ("crm_send", true),
            ("final_answer", false),
            ("find_tools", false),
            ("use_tool", false)
        ]
    );
}

#[tokio::test]
async fn issue_15_a_set_that_is_not_deferred_goes_to_a_searching_service_as_to_any() {
    let provider = ScriptedProvider::new().text("Done.");
    let agent = ReactAgent::builder("clerk", searching(&provider)).toolset(set(crm())).build().unwrap();
    agent.ask("Go").await.unwrap();
    let request = provider.requests().remove(0);
    assert_eq!(shown(&request), [("crm_look", false), ("crm_send", false)]);
    assert!(request.tools.iter().all(|tool: &ToolSpec| !tool.calls_deferred()));
}

#[tokio::test]
async fn issue_15_a_fallback_is_told_of_deferred_tools_as_its_service_takes_them() {
    for (searches, expected) in [
        (true, vec![("crm_look", true), ("crm_send", true), ("find_tools", false), ("use_tool", false)]),
        (false, vec![("find_tools", false), ("use_tool", false)]),
    ] {
        let first = ScriptedProvider::named("first").fail(ErrorKind::Overloaded, "no room");
        let second = ScriptedProvider::named("second").text("Done.");
        let profile = Profile::default().with_tool_search(searches);
        let choice = ModelChoice::new(second.model().with_profile(profile), Tier::Small);
        let model = searching(&first).layer(Fallback::to([choice]));
        let agent = ReactAgent::builder("clerk", model).toolset(set(crm()).deferred()).build().unwrap();
        assert_eq!(agent.ask("Go").await.unwrap(), "Done.");
        assert_eq!(first.requests()[0].tools.len(), 4);
        assert_eq!(shown(&second.requests()[0]), expected, "{searches}");
    }
}
