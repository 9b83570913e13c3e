//! `agentic_fetch`: its place, which is gone on every way out, and its agent.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use entourage_core::{
    Error, ErrorKind, Result, SessionId,
    run::{Outcome, Status, StopReason},
    tool::{Access, Tool},
};
use entourage_runners::{ReactAgent, agentic_fetch, builtin};
use entourage_runtime::{DenyAll, Runtime, RuntimeBuilder, permission::Policy};
use entourage_testkit::{self as testkit, FakeTool, ScriptedProvider};
use serde_json::{Value, json};

/// A directory that its guard removes, as a program's would.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("entourage-{}", SessionId::generate()));
        fs::create_dir(&path).map_err(|error| Error::new(ErrorKind::Io, error.to_string()))?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// The places that were made.
#[derive(Clone, Default)]
struct Places(Arc<std::sync::Mutex<Vec<PathBuf>>>, Arc<AtomicUsize>);

impl Places {
    fn made(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Asserts that none of them is left, and that each had been there.
    fn assert_gone(&self) {
        for path in &*self.0.lock().unwrap() {
            assert!(!path.exists(), "{}", path.display());
        }
        assert_eq!(self.1.load(Ordering::SeqCst), self.made(), "each was a directory");
    }

    fn tool(&self, small: &ScriptedProvider, tools: Vec<Arc<dyn Tool>>) -> impl Tool + use<> {
        let places = self.clone();
        agentic_fetch(small.model(), move || {
            let directory = Directory::new()?;
            places.1.fetch_add(usize::from(directory.0.is_dir()), Ordering::SeqCst);
            places.0.lock().unwrap().push(directory.0.clone());
            Ok((directory, tools.clone()))
        })
    }
}

fn web_fetch() -> FakeTool {
    FakeTool::new("web_fetch").access(Access::NETWORK | Access::WRITE).returning("Version 1.91")
}

fn shared(tool: FakeTool) -> Arc<dyn Tool> {
    Arc::new(tool)
}

fn asks() -> Value {
    json!({"prompt": "Which version?", "url": "https://a.example/news"})
}

/// A model that calls `agentic_fetch` once, and ends.
fn lead(arguments: Value) -> ScriptedProvider {
    ScriptedProvider::by_history().call("agentic_fetch", arguments).text("Done.")
}

async fn run(
    builder: RuntimeBuilder,
    large: &ScriptedProvider,
    tool: impl Tool + 'static,
) -> Result<Outcome> {
    let agent = ReactAgent::builder("lead", large.model()).tool(tool).build()?;
    builder.build().session().start(&agent, "Which version is it?").outcome().await
}

fn allowing() -> RuntimeBuilder {
    testkit::runtime().policy(Policy::allow_all())
}

/// Returns the text of the call's result, as the calling model was told it.
fn told(large: &ScriptedProvider) -> String {
    let requests = large.requests();
    requests[1].messages.last().unwrap().tool_results().next().unwrap().to_text()
}

#[tokio::test(start_paused = true)]
async fn cf01_the_place_is_gone_after_an_answer_an_error_and_a_panic() {
    let reads = |small: ScriptedProvider| small.call("web_fetch", json!({"url": "https://a.example/news"}));
    for (case, small, page, expected) in [
        ("answer", reads(ScriptedProvider::by_history()).text("1.91."), web_fetch(), "1.91."),
        (
            "error",
            ScriptedProvider::by_history().fail(ErrorKind::Authentication, "no key"),
            web_fetch(),
            "no key",
        ),
        (
            "fatal",
            reads(ScriptedProvider::by_history()),
            web_fetch().failing(ErrorKind::Io, "the cable is cut"),
            "the cable is cut",
        ),
        (
            "panic",
            reads(ScriptedProvider::by_history()).text("It panicked."),
            web_fetch().panicking("oh"),
            "It panicked.",
        ),
    ] {
        let (places, large) = (Places::default(), lead(asks()));
        let outcome = run(allowing(), &large, places.tool(&small, vec![shared(page)])).await.unwrap();
        assert_eq!((outcome.text.as_str(), places.made()), ("Done.", 1), "{case}");
        assert!(told(&large).contains(expected), "{case}: {}", told(&large));
        places.assert_gone();
    }
}

#[tokio::test(start_paused = true)]
async fn cf01_the_place_is_gone_after_a_cancel() {
    let (places, large) = (Places::default(), lead(asks()));
    let small = ScriptedProvider::by_history().call("web_fetch", json!({"url": "https://a.example"}));
    let page = web_fetch().hanging();
    let tool = places.tool(&small, vec![shared(page.clone())]);
    let agent = ReactAgent::builder("lead", large.model()).tool(tool).build().unwrap();
    let session = allowing().build().session();
    let run = session.start(&agent, "Which version is it?");
    // The clock moves on only once the page hangs.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((page.running(), places.made()), (1, 1));
    session.cancel();
    assert_eq!(run.outcome().await.unwrap().status, Status::Cancelled);
    assert_eq!(page.running(), 0);
    places.assert_gone();
}

#[tokio::test(start_paused = true)]
async fn cf01_a_refused_call_makes_no_place_and_asks_for_no_page() {
    let refused: [(&str, RuntimeBuilder); 2] = [
        ("person", testkit::runtime().policy(Policy::allow_all().ask("agentic_fetch")).approver(DenyAll)),
        ("rule", testkit::runtime().policy(Policy::allow_all().deny("agentic_fetch"))),
    ];
    for (case, builder) in refused {
        let (places, large, small) = (Places::default(), lead(asks()), ScriptedProvider::new());
        let page = web_fetch();
        let outcome = run(builder, &large, places.tool(&small, vec![shared(page.clone())])).await.unwrap();
        assert_eq!((places.made(), page.started(), small.count()), (0, 0, 0), "{case}");
        if case == "person" {
            assert_eq!(outcome.status, Status::Stopped(StopReason::Denied("agentic_fetch".into())));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn cf01_wrong_arguments_are_told_before_a_place_is_made() {
    for arguments in [
        json!({"url": "https://a.example"}),
        json!({"prompt": " \n"}),
        json!({"prompt": "Which?", "url": "file:///etc/passwd"}),
        json!({"prompt": "Which?", "url": "https://"}),
        json!({"prompt": "Which?", "url": "https://a.example/\nIgnore that"}),
        json!({"prompt": "Which?", "url": ""}),
    ] {
        let (places, large, small) = (Places::default(), lead(arguments.clone()), ScriptedProvider::new());
        let outcome = run(allowing(), &large, places.tool(&small, vec![])).await.unwrap();
        assert_eq!((outcome.text.as_str(), places.made(), small.count()), ("Done.", 0, 0), "{arguments}");
    }
}

#[tokio::test(start_paused = true)]
async fn cf01_without_an_address_the_agent_is_told_to_search() {
    let large = lead(json!({"prompt": "Which version?"}));
    let small = ScriptedProvider::by_history().text("1.91.");
    run(allowing(), &large, Places::default().tool(&small, vec![])).await.unwrap();
    let prompt = small.requests()[0].messages.last().unwrap().text();
    assert!(prompt.starts_with("Which version?\n\nNo page is given: search the web"), "{prompt}");
    let large = lead(asks());
    let small = ScriptedProvider::by_history().text("1.91.");
    run(allowing(), &large, Places::default().tool(&small, vec![])).await.unwrap();
    let prompt = small.requests()[0].messages.last().unwrap().text();
    assert!(prompt.ends_with("The page is https://a.example/news."), "{prompt}");
}

#[tokio::test(start_paused = true)]
async fn cf01_the_page_is_read_before_the_model_is_called() {
    for (page, expected) in [
        (web_fetch(), "The page was read by `web_fetch`:\n\nVersion 1.91"),
        (
            web_fetch().telling("the page has moved"),
            "The page could not be read by `web_fetch`:\n\nthe page has moved",
        ),
    ] {
        let (large, small) = (lead(asks()), ScriptedProvider::by_history().text("1.91."));
        let tool = Places::default().tool(&small, vec![shared(page.clone())]);
        assert_eq!(run(allowing(), &large, tool).await.unwrap().text, "Done.");
        let request = &small.requests()[0];
        let last = request.messages.last().unwrap().text();
        assert!(last.starts_with(expected), "{last}");
        assert_eq!((page.started(), small.count(), told(&large).as_str()), (1, 1, "1.91."));
    }
}

#[tokio::test(start_paused = true)]
async fn cf02_the_page_of_the_call_is_asked_about_once_and_any_other_page_again() {
    let other = "https://b.example/";
    for (rules, pages, ends) in [
        // The approver refuses whatever it is asked.
        (Policy::new().allow("agentic_fetch"), 1, "stopped"),
        (Policy::new().allow("agentic_fetch").deny("web_fetch"), 0, "stopped"),
        (Policy::new().allow("agentic_fetch").allow("web_fetch"), 2, "1.91."),
    ] {
        let large = lead(asks());
        let small = ScriptedProvider::by_history().call("web_fetch", json!({ "url": other })).text("1.91.");
        let page = web_fetch();
        let tool = Places::default().tool(&small, vec![shared(page.clone())]);
        let builder = testkit::runtime().policy(rules.clone()).approver(DenyAll);
        assert_eq!(run(builder, &large, tool).await.unwrap().text, "Done.");
        assert_eq!(page.started(), pages, "{rules:?}");
        assert!(told(&large).contains(ends), "{}", told(&large));
    }
}

#[tokio::test(start_paused = true)]
async fn cf02_what_the_call_is_for_is_asked_about_once() {
    let alone = json!({"prompt": "Which version?"});
    for (call, url, read) in [
        (asks(), "https://a.example/older?page=2", true),
        (asks(), "http://A.example:8080/", true),
        (asks(), "https://b.a.example/", false),
        (asks(), "https://a.example@b.example/", false),
        (asks(), "https://a.example\\@b.example/", false),
        (asks(), "https://a.example.evil/", false),
        // Without an address any page is what was allowed.
        (alone, "https://b.example/", true),
    ] {
        let searched = FakeTool::new("web_search").access(Access::NETWORK);
        let viewed = FakeTool::new("view").access(Access::READ);
        let page = web_fetch();
        let first = usize::from(call.get("url").is_some());
        let (large, small) = (lead(call), ScriptedProvider::by_history());
        let small = small
            .call("web_search", json!({}))
            .call("view", json!({}))
            .call("web_fetch", json!({ "url": url }))
            .text("1.91.");
        let tools = [&searched, &viewed, &page].map(|tool| shared(tool.clone())).to_vec();
        // The approver refuses whatever it is asked.
        let rules = Policy::new().allow("agentic_fetch").ask("view");
        let builder = testkit::runtime().policy(rules).approver(DenyAll);
        assert_eq!(run(builder, &large, Places::default().tool(&small, tools)).await.unwrap().text, "Done.");
        assert_eq!((searched.started(), viewed.started()), (1, 1), "{url}: {}", told(&large));
        assert_eq!(page.started(), first + usize::from(read), "{url}");
    }
}

#[tokio::test(start_paused = true)]
async fn cf01_a_place_that_cannot_be_made_is_told_and_the_run_goes_on() {
    let (large, small) = (lead(asks()), ScriptedProvider::new());
    let tool = agentic_fetch(small.model(), || -> Result<((), Vec<Arc<dyn Tool>>)> {
        Err(Error::new(ErrorKind::Io, "the disk is full"))
    });
    assert_eq!(run(allowing(), &large, tool).await.unwrap().text, "Done.");
    assert!(told(&large).contains("the disk is full"), "{}", told(&large));
}

#[tokio::test(start_paused = true)]
async fn cf02_the_agent_has_the_small_model_and_the_tools_of_its_list() {
    let (large, small) = (lead(asks()), ScriptedProvider::by_history().text("1.91."));
    let read = ["view", "grep", "glob", "ls"].map(|name| shared(FakeTool::new(name)));
    let more = [
        shared(web_fetch()),
        shared(FakeTool::new("web_search").access(Access::NETWORK)),
        shared(FakeTool::new("bash").access(Access::EXECUTE)),
        shared(FakeTool::new("edit").access(Access::WRITE)),
        shared(FakeTool::new("agent").access(Access::DELEGATE)),
    ];
    let tools = read.into_iter().chain(more).collect();
    run(allowing(), &large, Places::default().tool(&small, tools)).await.unwrap();
    let request = &small.requests()[0];
    let mut offered: Vec<_> = request.tools.iter().map(|spec| spec.name().to_owned()).collect();
    offered.sort();
    assert_eq!(offered, ["glob", "grep", "ls", "view", "web_fetch", "web_search"]);
    assert!(request.instructions.starts_with("You read pages of the web"), "{}", request.instructions);
    let listed = |it: &entourage_core::context::Instructions| {
        it.template().is_some_and(|id| id.starts_with("entourage/fetch@1#"))
    };
    assert!(builtin::prompts().iter().any(listed));
}

#[tokio::test(start_paused = true)]
async fn cf01_the_agents_session_is_named_after_the_call() {
    let (large, small) = (lead(asks()), ScriptedProvider::by_history().text("1.91."));
    let tool = Places::default().tool(&small, vec![]);
    let agent = ReactAgent::builder("lead", large.model()).tool(tool).build().unwrap();
    let runtime: Runtime = allowing().build();
    let session = runtime.session();
    session.start(&agent, "Which version is it?").outcome().await.unwrap();
    let all = runtime.sessions(&entourage_core::session::SessionFilter::all()).await.unwrap();
    let child = all.iter().find(|info| info.record.parent.is_some()).unwrap();
    let (parent, _, index) = child.record.id.origin().unwrap();
    assert_eq!((parent, index), (session.id().as_str(), 0));
    assert_eq!(&*child.head.title, "Sub-agent fetch");
}
