//! `bash` in the scope of its run: commands reach no more than the run may.

use entourage_core::{
    event::Event,
    permission::{ApprovalRequest, Approver, Decision, Scope},
};
use entourage_runners::ReactAgent;
use entourage_runtime::{AllowAll, Runtime, permission::Policy};
use entourage_testkit::ScriptedProvider;
use entourage_tools::shell::Shell;
use serde_json::{Value, json};

use super::{Backend, Place, Sandbox, hosts};

/// The text and the metadata of `command`'s result in a run of this scope.
async fn run(place: &Place, sandbox: Option<Sandbox>, scope: Scope, command: &str) -> (String, Value) {
    let shell = Shell::open(place.root()).unwrap();
    let shell = match sandbox {
        Some(sandbox) => shell.with_sandbox(sandbox),
        None => shell,
    };
    let provider = ScriptedProvider::new().call("bash", json!({ "command": command })).text("Done.");
    let agent = ReactAgent::builder("a", provider.model()).tools(shell.tools()).scope(scope).build().unwrap();
    let session = Runtime::builder().approver(AllowAll).policy(Policy::allow_all()).build().session();
    session.start(&agent, "Go").outcome().await.unwrap();
    let events = session.events(0, 100).await.unwrap();
    let finished = events.iter().rev().find_map(|stored| match &stored.event {
        Event::ToolFinished(finished) => Some(finished.clone()),
        _ => None,
    });
    let finished = finished.unwrap_or_else(|| panic!("{events:?}"));
    (finished.result.to_text(), finished.metadata.clone().unwrap_or_default())
}

#[tokio::test]
async fn cp06_a_scope_with_hosts_admits_commands_that_a_sandbox_confines() {
    let place = Place::new();
    let scope = Scope::all().with_hosts(["a.example"]);
    let (text, _) = run(&place, None, scope.clone(), "echo on").await;
    assert!(text.contains("does not say which hosts"), "without a sandbox: {text}");
    let (text, metadata) = run(&place, Some(place.write(Backend::Landlock)), scope.clone(), "echo on").await;
    assert!(text.starts_with("on\n") && metadata["sandbox"]["hosts"] == json!([]), "{text} {metadata}");
    let services = place.write(Backend::Landlock).unix_sockets(true);
    let (text, _) = run(&place, Some(services), scope, "echo on").await;
    assert!(text.contains("opens the sockets of services"), "{text}");
}

#[tokio::test]
async fn cp06_commands_reach_the_hosts_that_scope_and_sandbox_share() {
    if hosts::place(&[]).await.is_none() {
        return;
    }
    let (place, port) = (Place::new(), hosts::server());
    let get = format!("curl -sS --noproxy '' http://127.0.0.1:{port}/; curl -sS http://b.example/");
    let open = place.write(Backend::Any).network(true);
    let (text, metadata) = run(&place, Some(open), Scope::all().with_hosts(["127.0.0.1"]), &get).await;
    assert!(text.contains("GET / HTTP/1.1"), "{text}");
    assert!(text.contains("`b.example` is not a host of this sandbox"), "{text}");
    // Through a tunnel, curl says no more than the number.
    let why = "refused by the sandbox: `b.example` is not a host of this sandbox, which has 127.0.0.1\n";
    assert!(text.contains(why) && metadata["refused"].as_array().unwrap().len() == 1, "{text} {metadata}");
    let record = &metadata["sandbox"];
    assert_eq!((&record["network"], &record["hosts"]), (&json!(false), &json!(["127.0.0.1"])));
    let some = place.write(Backend::Any).hosts(["b.example", "127.0.0.1"]);
    let scope = Scope::all().with_hosts(["127.0.0.1", "c.example"]);
    let (_, metadata) = run(&place, Some(some.clone()), scope, "true").await;
    assert_eq!(metadata["sandbox"]["hosts"], json!(["127.0.0.1"]));
    let (_, metadata) = run(&place, Some(some), Scope::all().with_hosts(["d.example"]), "true").await;
    assert_eq!(metadata["sandbox"]["hosts"], json!([]));
}

#[tokio::test]
async fn cp06_a_sandbox_that_opens_more_than_the_roots_of_a_scope_runs_nothing() {
    let place = Place::new();
    std::fs::create_dir(place.root().join("src")).unwrap();
    let links = tempfile::TempDir::new().unwrap();
    std::os::unix::fs::symlink(place.outside.path(), links.path().join("out")).unwrap();
    std::os::unix::fs::symlink(place.root().join("src"), links.path().join("in")).unwrap();
    let sandbox = || place.write(Backend::Landlock);
    let inner = Sandbox::workspace_write(place.root().join("src")).unwrap().backend(Backend::Landlock);
    let outside = std::fs::canonicalize(place.outside.path()).unwrap();
    let outside = format!("touches `{}`", outside.display());
    for (sandbox, root, beyond) in [
        (Some(sandbox()), ".", None),
        (Some(sandbox().reading(place.root().join("src"))), ".", None),
        (Some(inner), "src", None),
        (None, ".", Some("does not say which paths")),
        (Some(sandbox()), "src", Some("touches `.`")),
        (Some(sandbox().reading(place.outside.path())), ".", Some(outside.as_str())),
        (Some(sandbox().writing(links.path().join("out"))), ".", Some(outside.as_str())),
        (Some(sandbox().reading(links.path().join("in"))), ".", None),
        (Some(sandbox().writing(links.path().join("missing"))), ".", Some("touches `/`")),
        (Some(Sandbox::full()), ".", Some("touches `/`")),
        (Some(sandbox().unix_sockets(true)), ".", Some("touches `/`")),
    ] {
        let scope = Scope::all().with_roots([root]);
        let (text, _) = run(&place, sandbox, scope, "touch \"$TMPDIR/x\" && echo on").await;
        match beyond {
            None => assert!(text.starts_with("on\n"), "{root} {text}"),
            Some(beyond) => assert!(text.contains(beyond), "{root} {text}"),
        }
    }
    let secret = format!("cat {}", place.outside.path().join("secret").display());
    let (text, _) = run(&place, Some(sandbox()), Scope::all().with_roots(["."]), &secret).await;
    assert!(!text.contains("hidden"), "{text}");
}

/// An approver that must not be asked.
#[derive(Debug)]
struct Nobody;

#[async_trait::async_trait]
impl Approver for Nobody {
    async fn decide(&self, request: &ApprovalRequest) -> Result<Decision, entourage_core::Error> {
        panic!("nobody can allow what the scope excludes: {request:?}");
    }
}

#[tokio::test]
async fn cp06_nobody_is_asked_about_a_shell_whose_sandbox_is_out_of_scope() {
    let place = Place::new();
    let shell = Shell::open(place.root()).unwrap().with_sandbox(place.write(Backend::Landlock));
    let calls = [("bash", json!({ "command": "touch x" })), ("job_output", json!({ "id": "1" }))];
    for (name, arguments) in calls {
        let provider = ScriptedProvider::new().call(name, arguments).text("Done.");
        let agent = ReactAgent::builder("a", provider.model())
            .tools(shell.tools())
            .scope(Scope::all().with_roots(["src"]))
            .build()
            .unwrap();
        let session = Runtime::builder().approver(Nobody).build().session();
        session.start(&agent, "Go").outcome().await.unwrap();
        assert!(provider.requests().iter().all(|request| request.tools.is_empty()), "no tool is offered");
    }
    for tool in shell.tools() {
        assert!(!Scope::read_only().offers(tool.spec()), "{}", tool.spec().name());
        assert!(Scope::all().with_roots(["."]).offers(tool.spec()), "{}", tool.spec().name());
    }
}
