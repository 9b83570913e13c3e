//! The tools that requests carry: the same two, whatever is behind them.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use entourage_core::{
    provider::Request,
    tool::{Access, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec, Tools, Toolset},
};
use entourage_runners::{Combined, ToolsetExt, typed::Strategy};
use entourage_runtime::{AgentExt, layers::Forecast};
use entourage_testkit::{FakeTool, ScriptedProvider};
use serde_json::json;

use crate::{agent, found, of, told};

pub(crate) fn many(count: usize) -> Tools {
    let schema =
        json!({"type": "object", "properties": {"title": {"type": "string", "description": "Its title."}}});
    let tool = |n: usize| {
        let about = format!("Creates an issue in tracker {n}, with a title and a text.");
        let spec =
            ToolSpec::new(format!("tracker{n}_create"), about, schema.clone()).with_access(Access::NONE);
        Arc::new(entourage_runners::from_fn::from_fn(spec, |_| async { Ok("created") })) as Arc<dyn Tool>
    };
    Tools::new((0..count).map(tool)).unwrap()
}

/// The first request of an agent with a tool of its own and this set.
async fn first(set: impl Toolset + 'static) -> Request {
    let provider = ScriptedProvider::new().text("Done.");
    let own: Arc<dyn Toolset> = Arc::new(crate::set([FakeTool::new("look")]));
    let agent = agent(&provider).toolset(Combined::new(vec![own, Arc::new(set)])).build().unwrap();
    agent.ask("Go").await.unwrap();
    provider.requests().remove(0)
}

#[tokio::test]
async fn issue_15_five_hundred_deferred_tools_cost_what_ten_cost() {
    let (ten, all) = (first(many(10).deferred()).await, first(many(500).deferred()).await);
    assert_eq!(ten.tools, all.tools);
    assert_eq!(all.tools.iter().map(ToolSpec::name).collect::<Vec<_>>(), ["find_tools", "look", "use_tool"]);
    let tokens = |request: &Request| Forecast::new(request, None).input;
    assert_eq!(tokens(&ten), tokens(&all));
    let shown = first(many(500)).await;
    assert!(tokens(&shown) > 20 * tokens(&all), "{} {}", tokens(&shown), tokens(&all));
}

/// A set that a tool of its own changes.
#[derive(Debug, Clone)]
struct Growing(Arc<Mutex<Tools>>);

struct Grow(ToolSpec, Growing);

#[async_trait]
impl Tool for Grow {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: ToolInput, _: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        *self.1.0.lock().unwrap() = crate::set([FakeTool::new("wiki_read").returning("a page")]);
        Ok(ToolOutput::text("grown"))
    }
}

impl Toolset for Growing {
    fn tools(&self) -> Tools {
        self.0.lock().unwrap().clone()
    }
}

#[tokio::test]
async fn issue_15_each_request_begins_with_the_one_before_while_the_set_changes() {
    let growing = Growing(Arc::new(Mutex::new(Tools::none())));
    let spec =
        ToolSpec::new("connect", "Connects the wiki.", json!({"type": "object"})).with_access(Access::NONE);
    *growing.0.lock().unwrap() =
        Tools::new([Arc::new(Grow(spec, growing.clone())) as Arc<dyn Tool>]).unwrap();
    let provider = ScriptedProvider::new()
        .call("find_tools", json!({"query": "wiki"}))
        .call("use_tool", of("wiki_read", json!({})))
        .call("use_tool", of("connect", json!({})))
        .call("find_tools", json!({"query": "wiki"}))
        .call("use_tool", of("wiki_read", json!({})))
        .call("use_tool", of("connect", json!({})))
        .call("wiki_read", json!({}))
        .text("Done.");
    let own: Arc<dyn Toolset> = Arc::new(crate::set([FakeTool::new("look")]));
    let set = Combined::new(vec![own, Arc::new(growing.deferred())]);
    let agent = agent(&provider).instructions("Work.").toolset(set).build().unwrap();
    agent.ask("Go").await.unwrap();

    let requests = provider.requests();
    assert_eq!(requests.len(), 8);
    for (before, after) in requests.iter().zip(requests.iter().skip(1)) {
        assert_eq!(before.tools, after.tools);
        assert_eq!(before.instructions, after.instructions);
        let common = after.messages.iter().take(before.messages.len());
        assert!(before.messages.len() < after.messages.len() && before.messages.iter().eq(common));
    }
    assert_eq!(found(told(&requests[1])[0]), ["connect"]);
    assert!(told(&requests[2])[0].to_text().contains("there is no tool `wiki_read`"));
    assert_eq!(told(&requests[3])[0].to_text(), "grown");
    assert_eq!(found(told(&requests[4])[0]), ["wiki_read"]);
    assert_eq!(told(&requests[5])[0].to_text(), "a page");
    assert!(told(&requests[6])[0].to_text().contains("there is no tool `connect`"));
    assert_eq!(told(&requests[7])[0].to_text(), "a page", "called by its own name");
}

#[derive(Debug, PartialEq, serde::Deserialize, schemars::JsonSchema)]
pub(crate) struct Answer {
    pub(crate) count: u8,
}

#[tokio::test]
async fn issue_15_a_typed_agent_defers_too() {
    let provider = ScriptedProvider::new()
        .call("use_tool", of("tracker3_create", json!({"title": "a"})))
        .call("final_answer", json!({"count": 4}));
    let typed = agent(&provider).toolset(many(500).deferred()).returns::<Answer>();
    let typed = typed.strategy(Strategy::Tool).build().unwrap();
    assert_eq!(typed.ask("Go").await.unwrap(), Answer { count: 4 });
    let requests = provider.requests();
    assert_eq!(requests[0].tools, requests[1].tools);
    let names: Vec<_> = requests[0].tools.iter().map(ToolSpec::name).collect();
    assert_eq!(names, ["final_answer", "find_tools", "use_tool"]);
    assert_eq!(told(&requests[1])[0].to_text(), "created");
}

#[tokio::test]
async fn issue_15_one_search_covers_two_deferred_sets() {
    let one = crate::set([FakeTool::new("mail_send"), FakeTool::new("find_tools").returning("not this one")]);
    let provider = ScriptedProvider::new()
        .call("find_tools", json!({"query": "mail, tracker 1"}))
        .call("use_tool", of("tracker1_create", json!({})))
        .text("Done.");
    let sets: [Arc<dyn Toolset>; 2] = [Arc::new(one.deferred()), Arc::new(many(2).deferred())];
    let agent = agent(&provider).toolset(Combined::new(sets.to_vec())).build().unwrap();
    agent.ask("Go").await.unwrap();
    let requests = provider.requests();
    assert_eq!(requests[0].tools.len(), 2);
    assert_eq!(found(told(&requests[1])[0]), ["mail_send", "tracker1_create", "tracker0_create"]);
    assert_eq!(told(&requests[2])[0].to_text(), "created");
}
