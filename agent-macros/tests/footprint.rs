//! What the arguments name, and what rules, approvals and the schedule make of it.

#![allow(clippy::unwrap_used)]

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use entourage_core::{
    Result,
    permission::{ApprovalRequest, Approver, Decision},
    run::{Outcome, Status, StopReason},
    tool::{Access, Footprint, Tool},
};
use entourage_macros::tool;
use entourage_runners::ReactAgent;
use entourage_runtime::permission::Policy;
use entourage_testkit::{self as testkit, Gate, ScriptedProvider, run_tool};
use serde_json::{Value, json};

type Log = Arc<Mutex<Vec<String>>>;

#[tool(access = "read+write+network", crate = "entourage_core")]
/// Publishes a note.
async fn publish(
    #[state] log: Log,
    /// The note.
    #[arg(write)]
    path: String,
    #[arg(read, description = "Its templates.")] templates: Option<Vec<PathBuf>>,
    #[arg(host)]
    #[serde(default, rename = "to", alias = "url")]
    hosts: Vec<Box<str>>,
    text: Option<String>,
) {
    log.lock().unwrap().push(format!("{path} {templates:?} {hosts:?} {text:?}"));
}

#[tool(access = "execute", crate = "entourage_core")]
/// Runs a command.
async fn shell(#[arg(command)] line: Option<String>) -> String {
    line.unwrap_or_default()
}

#[tool(access = "read", crate = "entourage_core")]
/// Reads a note.
async fn look(
    #[state] gate: Gate,
    #[arg(read)]
    #[serde(default = "notes", alias = "file")]
    path: PathBuf,
) -> String {
    gate.pass().await;
    path.display().to_string()
}

fn notes() -> PathBuf {
    "./notes/".into()
}

#[tool(access = "write", crate = "entourage_core")]
/// Saves a note.
async fn save(#[state] gate: Gate, #[state] log: Log, #[arg(write)] path: String) {
    log.lock().unwrap().push(format!("begin {path}"));
    gate.pass().await;
    log.lock().unwrap().push(format!("end {path}"));
}

fn open() -> Gate {
    let gate = Gate::new();
    gate.open();
    gate
}

#[allow(clippy::needless_pass_by_value)]
fn named(tool: impl Into<Arc<dyn Tool>>, arguments: Value) -> Footprint {
    tool.into().footprint(&arguments)
}

#[test]
fn arguments_name_what_a_call_touches() {
    let all = Access::READ | Access::WRITE | Access::NETWORK;
    let tool = publish(Log::default());
    let footprint = named(
        tool.clone(),
        json!({"path": "./a//b", "templates": ["t/../x", "y/"], "to": ["https://A.example/x", "b.example:1"], "text": "z"}),
    );
    let expected = Footprint::new(all).reading("x").reading("y").writing("a/b");
    assert_eq!(footprint, expected.talking_to("a.example").talking_to("b.example"));
    for absent in [json!({"path": "a"}), json!({"path": "a", "templates": null, "to": []})] {
        assert_eq!(named(tool.clone(), absent), Footprint::new(all).writing("a"));
    }
    assert_eq!(
        named(shell, json!({"line": "rm  -rf \"x\""})),
        Footprint::new(Access::EXECUTE).running("rm  -rf \"x\"")
    );
    assert_eq!(named(shell, json!({})), Footprint::new(Access::EXECUTE));
    let tool: Arc<dyn Tool> = tool.into();
    assert!(tool.spec().names_subjects());
    assert_eq!(tool.spec().schema()["properties"]["templates"]["description"], "Its templates.");
    assert_eq!(tool.spec().schema()["properties"]["path"]["description"], "The note.");
}

#[test]
fn attack_24_no_name_or_default_of_an_argument_hides_it() {
    let reads = |arguments| named(look(open()), arguments).reads;
    assert_eq!(reads(json!({"path": "a"})), ["a"]);
    assert_eq!(reads(json!({"file": "secrets/key"})), ["secrets/key"], "an alias");
    assert_eq!(reads(json!({})), ["notes"], "a default");
    let hosts = |arguments| named(publish(Log::default()), arguments).hosts;
    assert_eq!(hosts(json!({"path": "a", "url": ["b.example"]})), ["b.example"]);
    assert_eq!(
        hosts(json!({"path": "a", "hosts": ["b.example"]})),
        [""; 0],
        "the function does not get these"
    );
}

#[tokio::test]
async fn attack_24_arguments_that_are_no_text_are_unclear_and_never_reach_the_function() {
    let log = Log::default();
    for arguments in [
        json!({}),
        json!({"path": null}),
        json!({"path": 7}),
        json!({"path": ["secrets/key"]}),
        json!({"path": {"at": "secrets/key"}}),
        json!({"path": "a", "templates": "t"}),
        json!({"path": "a", "templates": ["t", 7]}),
        json!({"path": "a", "to": "b.example"}),
        json!({"path": "a", "to": [["b.example"]]}),
        json!({"path": "a", "to": ["a.example"], "url": ["b.example"]}),
        json!([]),
        json!("a"),
    ] {
        let tool: Arc<dyn Tool> = publish(Arc::clone(&log)).into();
        let footprint = tool.footprint(&arguments);
        assert!(footprint.unclear && footprint.subjects().next().is_none(), "{arguments}");
        let judge = |policy: Policy| policy.judge(tool.spec(), &footprint);
        let denied = judge(Policy::allow_all().allow("publish:*").deny("publish:secrets/*"));
        assert!(format!("{denied:?}").starts_with("Deny"), "{arguments}: {denied:?}");
        let asked = judge(Policy::new().allow("publish:*"));
        assert!(format!("{asked:?}").starts_with("Ask"), "{arguments}: {asked:?}");
        // Even where the rules allow it.
        assert!(run_tool(tool, arguments.clone()).await.is_ok_and(|it| it.is_error), "{arguments}");
    }
    assert!(log.lock().unwrap().is_empty());
}

/// The end of a run that makes these calls, one a step.
async fn ended(policy: Policy, tool: impl Into<Arc<dyn Tool>>, calls: Vec<(&str, Value)>) -> Outcome {
    let provider =
        calls.into_iter().fold(ScriptedProvider::by_history(), |it, (name, args)| it.call(name, args));
    let agent = ReactAgent::builder("tester", provider.text("Done.").model()).tools([tool.into()]).build();
    let session = testkit::runtime().policy(policy).build().session();
    session.start(&agent.unwrap(), "Go").outcome().await.unwrap()
}

#[tokio::test]
async fn attack_24_no_spelling_of_a_path_evades_a_rule() {
    let policy = || Policy::allow_all().deny("save:secrets/**").deny("save:secrets");
    let here = std::env::current_dir().unwrap();
    let folder = here.file_name().unwrap().to_str().unwrap();
    for path in [
        "secrets/key",
        "secrets",
        "secrets/",
        "./secrets/key",
        "secrets//key",
        "secrets/./a/../key",
        "a/../secrets/key",
        "a/b/../../secrets/deep/key",
        "secrets/key\0.txt",
        "~/secrets/key",
        "~/../x",
        &format!("../{folder}/secrets/key"),
        &format!("a/../../{folder}/secrets/key"),
        here.join("secrets/key").to_str().unwrap(),
        here.join("../x/..").join(folder).join("secrets//key").to_str().unwrap(),
        &format!("/..{}/secrets/key", here.display()),
    ] {
        let log = Log::default();
        let tool = save(open(), Arc::clone(&log));
        let outcome = ended(policy(), tool, vec![("save", json!({"path": path}))]).await;
        assert_eq!(outcome.status, Status::Stopped(StopReason::Denied("save".into())), "{path}");
        assert!(log.lock().unwrap().is_empty(), "{path}");
    }
    // Other places, which the rule must not cover.
    for path in ["a/secrets/key", "secrets-old/key", "secrets/../key", "../secrets/key", "/secrets/key", ""] {
        let outcome =
            ended(policy(), save(open(), Log::default()), vec![("save", json!({"path": path}))]).await;
        assert_eq!(outcome.status, Status::Completed, "{path}");
    }
}

#[tokio::test]
async fn attack_24_no_spelling_of_a_host_evades_a_rule() {
    for host in [
        "a.example",
        "HTTPS://A.Example.:443/x",
        "https://b.example@a.example",
        "http://b.example\\@a.example",
        " http://a.example",
        "http:/a.example",
        "http://a%2eexample",
        "http://\u{ff41}.example",
    ] {
        let policy = Policy::allow_all().deny("publish:a.example");
        let call = ("publish", json!({"path": "x", "to": ["b.example", host]}));
        let outcome = ended(policy, publish(Log::default()), vec![call]).await;
        assert_eq!(outcome.status, Status::Stopped(StopReason::Denied("publish".into())), "{host}");
    }
}

#[derive(Debug, Clone, Default)]
struct Asked(Arc<Mutex<Vec<ApprovalRequest>>>);

#[async_trait]
impl Approver for Asked {
    async fn decide(&self, request: &ApprovalRequest) -> Result<Decision> {
        self.0.lock().unwrap().push(request.clone());
        Ok(Decision::Allow)
    }
}

#[tokio::test]
async fn an_approver_sees_what_the_arguments_name() {
    let (asked, log) = (Asked::default(), Log::default());
    let provider = ScriptedProvider::new()
        .call("publish", json!({"path": "./docs/a", "to": ["https://A.example"]}))
        .call("publish", json!({"path": "notes/b"}))
        .text("Done.");
    let agent = ReactAgent::builder("tester", provider.model()).tools([publish(log.clone()).into()]).build();
    let runtime = testkit::runtime().policy(Policy::new().allow("publish:notes/*")).approver(asked.clone());
    let outcome = runtime.build().session().start(&agent.unwrap(), "Go").outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Completed);
    let asked = asked.0.lock().unwrap();
    let [one] = &asked[..] else { panic!("only the first call is asked about: {asked:?}") };
    let access = Access::READ | Access::WRITE | Access::NETWORK;
    assert_eq!(one.footprint, Footprint::new(access).writing("docs/a").talking_to("a.example"));
    assert_eq!(log.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn readers_of_a_path_overlap_and_writers_do_not() {
    let start = |tool: Arc<dyn Tool>| {
        let (name, path) = (tool.spec().name().to_owned(), json!({"path": "a"}));
        let provider =
            ScriptedProvider::by_history().calls([(&*name, path.clone()), (&*name, path)]).text("Done.");
        let agent = ReactAgent::builder("tester", provider.model()).tools([tool]).build().unwrap();
        let session = testkit::runtime().policy(Policy::allow_all()).build().session();
        session.start(&agent, "Go")
    };
    let gate = Gate::new();
    let run = start(look(gate.clone()).into());
    gate.arrived(2).await;
    gate.open();
    assert_eq!(run.outcome().await.unwrap().status, Status::Completed);

    let (gate, log) = (Gate::new(), Log::default());
    let run = start(save(gate.clone(), log.clone()).into());
    gate.arrived(1).await;
    gate.open();
    assert_eq!(run.outcome().await.unwrap().status, Status::Completed);
    assert_eq!(*log.lock().unwrap(), ["begin a", "end a", "begin a", "end a"]);
}

struct Desk;

impl Desk {
    #[tool(access = "write", crate = "entourage_core")]
    /// Files a note.
    async fn file(&self, #[arg(write)] at: Vec<Option<String>>) -> usize {
        at.len()
    }
}

#[test]
fn a_method_names_what_it_touches() {
    let tool = Arc::new(Desk).file_tool();
    assert!(tool.spec().names_subjects());
    assert_eq!(tool.footprint(&json!({"at": ["a/", null, "./b"]})).writes, ["a", "b"]);
}
