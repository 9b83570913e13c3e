//! Layers around tools: what they leave of a call is judged, shown and run; they refuse, stop and wrap.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    event::Event,
    permission::{ApprovalRequest, Approver, Decision},
    run::{RunContext, Status, StopReason},
    tool::{LayerVerdict, NextCall, ToolError, ToolLayer, ToolOutput, ToolSpec},
};
use entourage_runtime::permission::Policy;
use entourage_testkit::{self as testkit, ScriptedProvider};
use serde_json::{Value, json};

use crate::common::{Write, agent, assert_valid, memory, settled, stored};

type Before = fn(&mut Value) -> Result<LayerVerdict>;

/// A layer that logs, and does to the arguments what the test says.
#[derive(Debug, Clone)]
struct Layer(&'static str, Before, Arc<Mutex<Vec<String>>>);

impl Layer {
    fn new(name: &'static str, before: Before) -> Self {
        Self(name, before, Arc::default())
    }
}

#[async_trait]
impl ToolLayer for Layer {
    async fn before(&self, _: &ToolSpec, arguments: &mut Value, _: &RunContext) -> Result<LayerVerdict> {
        self.2.lock().unwrap().push(format!("before {}", self.0));
        (self.1)(arguments)
    }

    async fn around(&self, next: NextCall<'_>) -> Result<ToolOutput, ToolError> {
        self.2.lock().unwrap().push(format!("around {} {}", self.0, next.arguments()));
        let output = next.run().await?;
        self.2.lock().unwrap().push(format!("after {}", self.0));
        Ok(output)
    }
}

fn pass(_: &mut Value) -> Result<LayerVerdict> {
    Ok(LayerVerdict::Pass)
}

/// Rewrites the path.
fn elsewhere(arguments: &mut Value) -> Result<LayerVerdict> {
    arguments["path"] = json!("secret/x");
    Ok(LayerVerdict::Pass)
}

fn model(goes_on: bool) -> ScriptedProvider {
    let provider = ScriptedProvider::new().call("write", json!({"path": "a"}));
    if goes_on { provider.text("Done.") } else { provider }
}

#[tokio::test]
async fn issue_13_layers_wrap_each_other_those_of_the_runtime_outermost() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let layer = |name| Layer(name, pass, Arc::clone(&log));
    let (provider, write) = (model(true), Write::new());
    let tool =
        entourage_runners::layered(entourage_runners::layered(write.clone(), layer("inner")), layer("outer"));
    let agent = agent(provider.model()).tool(tool).build().unwrap();
    let runtime = testkit::runtime().policy(Policy::allow_all()).tool_layer(layer("runtime")).build();
    runtime.session().start(&agent, "Go").outcome().await.unwrap();
    assert_eq!(
        *log.lock().unwrap(),
        [
            "before runtime",
            "before outer",
            "before inner",
            r#"around runtime {"path":"a"}"#,
            r#"around outer {"path":"a"}"#,
            r#"around inner {"path":"a"}"#,
            "after inner",
            "after outer",
            "after runtime"
        ]
    );
    assert_eq!(write.paths(), ["a"]);
}

#[tokio::test]
async fn issue_13_what_a_layer_changes_is_judged_so_it_widens_nothing() {
    for (policy, wrote) in [
        (Policy::allow_all(), Some("secret/x")),
        (Policy::allow_all().deny("write:secret/*"), None),
        (Policy::new().allow("write:a"), None),
    ] {
        let (store, write) = (memory(), Write::new());
        let provider = model(wrote.is_some());
        let tool = entourage_runners::layered(write.clone(), Layer::new("elsewhere", elsewhere));
        let agent = agent(provider.model()).tool(tool).build().unwrap();
        let runtime = testkit::runtime().shared_store(Arc::clone(&store)).policy(policy).build();
        let session = runtime.session();
        session.start(&agent, "Go").outcome().await.unwrap();
        assert_eq!(write.paths(), Vec::from_iter(wrote));
        let events = stored(&store, session.id()).await;
        let edited = events.iter().find_map(|event| match &event.event {
            Event::ToolStarted(call) => call.edited.clone(),
            _ => None,
        });
        assert_eq!(edited.is_some(), wrote.is_some(), "what ran is recorded beside what the model asked for");
        if wrote.is_some() {
            assert!(settled(&events)[0].1.starts_with("Run with other arguments than yours"));
        }
    }
}

/// An approver that is shown what will run, and answers with `.0`.
#[derive(Debug, Clone)]
struct Shown(Decision, Arc<Mutex<Vec<String>>>);

#[async_trait]
impl Approver for Shown {
    async fn decide(&self, request: &ApprovalRequest) -> Result<Decision> {
        self.1.lock().unwrap().push(request.arguments.as_str().to_owned());
        Ok(self.0.clone())
    }
}

#[tokio::test]
async fn issue_13_an_approver_is_shown_what_layers_left_and_cannot_pass_them_by() {
    fn no_secrets(arguments: &mut Value) -> Result<LayerVerdict> {
        match arguments["path"].as_str() {
            Some("plain") => Ok(LayerVerdict::Pass),
            Some("stop") => Ok(LayerVerdict::Stop("enough".to_owned())),
            Some("a") => {
                arguments["path"] = json!("b");
                Ok(LayerVerdict::Pass)
            }
            _ => Ok(LayerVerdict::Refuse("no secrets".to_owned())),
        }
    }
    let edit = |path: &str| Decision::edit(&json!({"path": path})).unwrap();
    for (decision, wrote, text) in [
        (Decision::Allow, Some("b"), "wrote b"),
        (edit("plain"), Some("plain"), "wrote plain"),
        (edit("secret"), None, "not run: no secrets"),
        (edit("a"), None, "a layer would change the arguments that the approver gave it"),
    ] {
        let (store, write) = (memory(), Write::new());
        let provider = model(true);
        let tool = entourage_runners::layered(write.clone(), Layer::new("no secrets", no_secrets));
        let agent = agent(provider.model()).tool(tool).build().unwrap();
        let approver = Shown(decision.clone(), Arc::default());
        let runtime = testkit::runtime().shared_store(Arc::clone(&store)).policy(Policy::new().ask("write"));
        let session = runtime.approver(approver.clone()).build().session();
        session.start(&agent, "Go").outcome().await.unwrap();
        assert_eq!(*approver.1.lock().unwrap(), [r#"{"path":"b"}"#]);
        assert_eq!(write.paths(), Vec::from_iter(wrote), "{decision:?}");
        let told = settled(&stored(&store, session.id()).await);
        assert!(told[0].1.contains(text), "{decision:?}: {told:?}");
    }
}

#[tokio::test]
async fn issue_13_a_layer_refuses_stops_fails_and_breaks_arguments_without_a_run() {
    fn broken(arguments: &mut Value) -> Result<LayerVerdict> {
        *arguments = json!([1]);
        Ok(LayerVerdict::Pass)
    }
    let cases: [(Before, &str, bool); 6] = [
        (|_| Ok(LayerVerdict::Refuse("not on Sundays".to_owned())), "not run: not on Sundays", true),
        (|_| Ok(LayerVerdict::Stop("a trap".to_owned())), "not run: a trap", false),
        (|_| Err(Error::new(ErrorKind::Transport, "the guard is away")), "the guard is away", true),
        (|_| panic!("boom"), "a layer panicked", true),
        (broken, "a layer changed its arguments", true),
        (
            |arguments| {
                arguments["path"] = json!(1);
                Ok(LayerVerdict::Pass)
            },
            "a layer changed its arguments",
            true,
        ),
    ];
    for (before, text, goes_on) in cases {
        let (store, write) = (memory(), Write::new());
        let provider = model(goes_on);
        let agent = agent(provider.model()).tool(write.clone()).build().unwrap();
        let runtime = testkit::runtime().shared_store(Arc::clone(&store)).policy(Policy::allow_all());
        let session = runtime.tool_layer(Layer::new("guard", before)).build().session();
        let outcome = session.start(&agent, "Go").outcome().await.unwrap();
        let status = match goes_on {
            true => Status::Completed,
            false => Status::Stopped(StopReason::Denied("write".into())),
        };
        assert_eq!((outcome.status, write.paths().len()), (status, 0), "{text}");
        let told = settled(&stored(&store, session.id()).await);
        assert!(told[0].1.contains(text), "{told:?}");
        if goes_on {
            assert_valid(&provider.requests()[1].messages);
        }
    }
}

#[tokio::test]
async fn issue_13_a_layer_changes_an_output_gives_one_of_its_own_and_stops_the_run() {
    #[derive(Debug)]
    struct Cached;

    #[async_trait]
    impl ToolLayer for Cached {
        async fn around(&self, next: NextCall<'_>) -> Result<ToolOutput, ToolError> {
            if next.arguments()["path"] == json!("known") {
                return Ok(ToolOutput::text("from the cache"));
            }
            let output = next.run().await?;
            let text = format!("{:?}", output.content);
            if text.contains("secret") {
                return Ok(ToolOutput::error("the output holds a secret").stopping());
            }
            Ok(output)
        }
    }

    let (store, write) = (memory(), Write::new());
    let provider = ScriptedProvider::new()
        .call("write", json!({"path": "known"}))
        .call("write", json!({"path": "a"}))
        .call("write", json!({"path": "secret"}));
    let agent =
        agent(provider.model()).tool(entourage_runners::layered(write.clone(), Cached)).build().unwrap();
    let session =
        testkit::runtime().shared_store(Arc::clone(&store)).policy(Policy::allow_all()).build().session();
    session.start(&agent, "Go").outcome().await.unwrap();
    assert_eq!(write.paths(), ["a", "secret"]);
    let told: Vec<_> = settled(&stored(&store, session.id()).await).into_iter().map(|it| it.1).collect();
    assert_eq!(told, ["from the cache", "wrote a", "the output holds a secret"]);
}
