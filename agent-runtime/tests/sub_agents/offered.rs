//! Tools that the scope cannot admit are not offered; a call of one is answered with what is missing, and not run.

use std::sync::Arc;

use entourage_core::{
    permission::Scope,
    provider::{Request, ToolChoice},
    tool::{Access, Footprint, Tools, Toolset},
};
use entourage_runners::{Prepared, ReactAgent, Step};
use entourage_testkit::{FakeTool, ScriptedProvider};
use proptest::prelude::*;
use serde_json::json;

use crate::common::{agent, open_runtime, results};

fn names(request: &Request) -> Vec<&str> {
    request.tools.iter().map(|tool| tool.name()).collect()
}

fn tools() -> (FakeTool, FakeTool, FakeTool) {
    let run = FakeTool::new("run").access(Access::EXECUTE);
    (FakeTool::new("look"), FakeTool::new("write").access(Access::WRITE), run)
}

async fn asked(scope: Scope, provider: &ScriptedProvider) -> ReactAgent {
    let (look, write, run) = tools();
    let agent = agent(provider.model()).tool(look).tool(write).tool(run).scope(scope).build().unwrap();
    open_runtime().session().start(&agent, "Go").outcome().await.unwrap();
    agent
}

#[tokio::test]
async fn cp06_only_what_the_scope_can_admit_is_offered() {
    for (scope, offered) in [
        (Scope::all(), &["look", "run", "write"][..]),
        (Scope::read_only(), &["look"]),
        (Scope::all().with_access(Access::READ | Access::WRITE), &["look", "write"]),
        (Scope::all().with_tools(["run", "absent"]), &["run"]),
        (Scope::all().without_tools(["run"]), &["look", "write"]),
        (Scope::read_only().without_tools(["look"]), &[]),
        (Scope::none(), &[]),
    ] {
        let provider = ScriptedProvider::new().text("Hm.");
        asked(scope.clone(), &provider).await;
        assert_eq!(names(&provider.requests()[0]), offered, "{scope:?}");
    }
}

#[tokio::test]
async fn cp06_a_call_of_what_was_not_offered_is_told_tool_required_and_held_and_the_run_goes_on() {
    for (scope, said) in [
        (Scope::read_only(), "the tool `write` needs write access, and this agent's scope holds read only"),
        (
            Scope::all().with_tools(["look", "run"]),
            "the tool `write` (write access) is outside this agent's scope, which holds look, run only",
        ),
        (
            Scope::all().without_tools(["write"]),
            "the tool `write` (write access) is outside this agent's scope, which holds others only",
        ),
    ] {
        let (look, write, run) = tools();
        let provider = ScriptedProvider::new().call("write", json!({})).text("I could not.");
        let agent = agent(provider.model()).tool(look).tool(write.clone()).tool(run).scope(scope).build();
        let outcome = open_runtime().session().start(&agent.unwrap(), "Go").outcome().await.unwrap();
        assert_eq!((outcome.text.as_str(), write.started()), ("I could not.", 0));
        let answer = provider.requests()[1].messages.last().unwrap().clone();
        assert_eq!(results(&answer), [said]);
        assert!(answer.tool_results().all(|result| result.is_error));
    }
}

#[tokio::test]
async fn cp06_the_list_that_is_shown_is_the_same_from_step_to_step() {
    let provider = ScriptedProvider::new().call("look", json!({})).call("look", json!({"n": 2})).text("Hm.");
    asked(Scope::read_only(), &provider).await;
    let requests = provider.requests();
    assert!(requests.windows(2).all(|two| Arc::ptr_eq(&two[0].tools, &two[1].tools)));
}

/// A set that grows after it was queried twice.
#[derive(Debug)]
struct Growing(std::sync::atomic::AtomicUsize);

impl Toolset for Growing {
    fn tools(&self) -> Tools {
        let (look, write, run) = tools();
        let asked = self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let see = FakeTool::new("see");
        let late: Vec<Arc<dyn entourage_core::tool::Tool>> =
            if asked > 1 { vec![Arc::new(see)] } else { vec![] };
        let first: [Arc<dyn entourage_core::tool::Tool>; 3] =
            [Arc::new(look), Arc::new(write), Arc::new(run)];
        Tools::new(first.into_iter().chain(late)).unwrap()
    }
}

#[tokio::test]
async fn cp06_a_set_that_changes_is_restricted_anew() {
    let provider = ScriptedProvider::new().call("look", json!({})).call("look", json!({"n": 2})).text("Hm.");
    let growing = Growing(std::sync::atomic::AtomicUsize::new(0));
    let agent = agent(provider.model()).toolset(growing).scope(Scope::read_only()).build().unwrap();
    open_runtime().session().start(&agent, "Go").outcome().await.unwrap();
    let last = provider.requests().pop().unwrap();
    assert_eq!(names(&last), ["look", "see"]);
}

#[tokio::test]
async fn cp06_a_choice_of_what_is_not_offered_is_left_to_the_model() {
    let unmet =
        [(ToolChoice::Tool("write".into()), ToolChoice::Auto), (ToolChoice::Required, ToolChoice::Required)];
    let met = [
        (ToolChoice::Tool("look".into()), ToolChoice::Tool("look".into())),
        (ToolChoice::None, ToolChoice::None),
    ];
    for (asked, sent) in unmet.into_iter().chain(met) {
        let provider = ScriptedProvider::new().text("Hm.");
        let (look, write, _) = tools();
        let choice = asked.clone();
        let agent = agent(provider.model())
            .tool(look)
            .tool(write)
            .scope(Scope::read_only())
            .prepare(move |_: &Step, plan: &mut Prepared| plan.tool_choice = choice.clone())
            .build()
            .unwrap();
        open_runtime().session().start(&agent, "Go").outcome().await.unwrap();
        assert_eq!(provider.requests()[0].tool_choice, sent, "{asked:?}");
    }
}

fn scope() -> impl Strategy<Value = Scope> {
    let names = || prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 0..3);
    let access =
        prop::sample::select(vec![Access::NONE, Access::READ, Access::READ | Access::WRITE, Access::ALL]);
    (access, prop::option::of(names()), names()).prop_map(|(access, tools, without)| {
        let scope = Scope::all().with_access(access).without_tools(without);
        match tools {
            Some(tools) => scope.with_tools(tools),
            None => scope,
        }
    })
}

proptest! {
    #[test]
    fn cp06_scopes_only_narrow_and_offer_what_they_may_admit(one in scope(), other in scope(), third in scope()) {
        let both = one.narrow(&other);
        prop_assert_eq!(&both, &other.narrow(&one));
        prop_assert_eq!(both.narrow(&third), one.narrow(&other.narrow(&third)));
        prop_assert!(one.contains(&both) && other.contains(&both) && one.contains(&one));
        for name in ["a", "b", "c", "d"] {
            for access in [Access::NONE, Access::READ, Access::WRITE] {
                let tool = FakeTool::new(name).access(access);
                let spec = entourage_core::tool::Tool::spec(&tool);
                let offers = |scope: &Scope| scope.offers(spec);
                prop_assert_eq!(offers(&both), offers(&one) && offers(&other));
                prop_assert_eq!(offers(&both), both.admits(spec, &Footprint::default()).is_ok());
                if one.contains(&other) {
                    prop_assert!(offers(&one) || !offers(&other));
                }
            }
        }
        let stored = serde_json::to_string(&both).unwrap();
        prop_assert_eq!(serde_json::from_str::<Scope>(&stored).unwrap(), both);
    }
}
