//! Lasting grants: for the session, always, for one session unwatched; and the ruling on a call without making it.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Clock, Digest, Error, ErrorKind, Result,
    agent::Agent,
    event::Event,
    permission::{ApprovalRequest, Approver, Decision, Grants, RuleEffect, Scope},
    run::{Pause, Status, StopReason},
    session::SharedStore,
    tool::{Access, Footprint, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec},
};
use entourage_runners::AgentTool;
use entourage_runtime::{
    RuntimeBuilder,
    permission::{Policy, Preset, Ruling},
};
use entourage_testkit::{self as testkit, PausedClock, ScriptedProvider};
use serde_json::{Value, json};

use crate::{
    common::{agent, memory, stored},
    meddler::Meddler,
};

/// A tool that changes the file in its arguments.
#[derive(Clone)]
struct Edit(ToolSpec, Arc<Mutex<Vec<String>>>);

impl Edit {
    fn new(description: &str) -> Self {
        let schema =
            json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
        let spec = ToolSpec::new("edit", description, schema);
        Self(spec.with_access(Access::WRITE).naming_subjects().changing_files(), Arc::default())
    }

    fn edited(&self) -> Vec<String> {
        self.1.lock().unwrap().clone()
    }
}

#[async_trait]
impl Tool for Edit {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn footprint(&self, arguments: &Value) -> Footprint {
        assert_ne!(arguments["path"], "panic");
        Footprint::new(Access::WRITE).writing(arguments["path"].as_str().unwrap())
    }

    async fn call(&self, input: ToolInput, _: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        self.1.lock().unwrap().push(input.arguments["path"].as_str().unwrap().to_owned());
        Ok(ToolOutput::text("edited"))
    }
}

/// Gives each question one answer, and keeps what it was asked about.
#[derive(Debug, Clone)]
struct Answers(Decision, Arc<Mutex<Vec<String>>>);

impl Answers {
    fn new(decision: Decision) -> Self {
        Self(decision, Arc::default())
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.1.lock().unwrap())
    }
}

#[async_trait]
impl Approver for Answers {
    async fn decide(&self, request: &ApprovalRequest) -> Result<Decision> {
        self.1.lock().unwrap().extend(request.footprint.subjects().map(str::to_owned));
        Ok(self.0.clone())
    }

    fn name(&self) -> Option<Arc<str>> {
        Some("ada".into())
    }
}

/// A keeper in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept(Arc<Mutex<BTreeSet<Digest>>>);

#[async_trait]
impl Grants for Kept {
    fn holds(&self, grant: Digest) -> bool {
        self.0.lock().unwrap().contains(&grant)
    }

    async fn keep(&self, question: &ApprovalRequest, _: Option<&str>) -> Result<()> {
        self.0.lock().unwrap().extend(question.grant);
        Ok(())
    }
}

/// A keeper that fails.
#[derive(Debug)]
struct Full;

#[async_trait]
impl Grants for Full {
    fn holds(&self, _: Digest) -> bool {
        panic!("unreadable")
    }

    async fn keep(&self, _: &ApprovalRequest, _: Option<&str>) -> Result<()> {
        Err(Error::new(ErrorKind::Io, "the disk is full"))
    }
}

fn on(store: &SharedStore) -> RuntimeBuilder {
    testkit::runtime().shared_store(Arc::clone(store))
}

/// A model that edits each of these files in a step of its own.
fn edits(paths: &[&str]) -> ScriptedProvider {
    let provider =
        paths.iter().fold(ScriptedProvider::by_history(), |it, path| it.call("edit", json!({"path": path})));
    provider.text("Done.")
}

async fn run(builder: RuntimeBuilder, tool: &Edit, paths: &[&str]) -> Status {
    let agent = agent(edits(paths).model()).tool(tool.clone()).build().unwrap();
    builder.build().session().start(&agent, "Go").outcome().await.unwrap().status
}

#[tokio::test]
async fn cp02_a_grant_for_the_session_covers_the_files_of_the_same_directory_alone() {
    let (tool, approver) = (Edit::new(""), Answers::new(Decision::AllowSession));
    let paths = ["src/a.rs", "src/b.rs", "src/fs/c.rs", "d.rs", "src/e.rs", "f.rs"];
    run(on(&memory()).approver(approver.clone()), &tool, &paths).await;
    assert_eq!(approver.asked(), ["src/a.rs", "src/fs/c.rs", "d.rs"]);
    assert_eq!(tool.edited(), paths);
}

#[tokio::test]
async fn cp02_what_is_allowed_always_is_allowed_in_later_sessions_until_the_tool_changes_or_a_rule_denies() {
    let (kept, approver) = (Kept::default(), Answers::new(Decision::AllowAlways));
    let builder = || on(&memory()).grants(kept.clone()).approver(approver.clone());
    run(builder(), &Edit::new(""), &["src/a.rs"]).await;
    assert_eq!(approver.asked(), ["src/a.rs"]);
    run(builder(), &Edit::new(""), &["src/b.rs", "a.rs"]).await;
    assert_eq!(approver.asked(), ["a.rs"]);
    run(builder(), &Edit::new("now with more"), &["src/b.rs"]).await;
    assert_eq!(approver.asked(), ["src/b.rs"], "attack 43");

    let denied =
        run(builder().policy(Policy::new().deny("edit:*.lock")), &Edit::new(""), &["src/a.lock"]).await;
    assert_eq!(denied, Status::Stopped(StopReason::Denied("edit".into())));
    let tool = Edit::new("");
    let agent =
        agent(edits(&["src/a.rs"]).model()).tool(tool.clone()).scope(Scope::read_only()).build().unwrap();
    builder().build().session().start(&agent, "Go").outcome().await.unwrap();
    assert_eq!((tool.edited().len(), approver.asked().len()), (0, 0));
}

#[tokio::test]
async fn issue_14_a_grant_that_cannot_be_kept_holds_for_the_session_and_says_so() {
    for (has_keeper, why) in [(true, "the disk is full"), (false, "keeps no grants")] {
        let (store, tool, approver) = (memory(), Edit::new(""), Answers::new(Decision::AllowAlways));
        let agent = agent(edits(&["src/a.rs", "src/b.rs"]).model()).tool(tool.clone()).build().unwrap();
        let builder = on(&store).approver(approver.clone());
        let session = if has_keeper { builder.grants(Full) } else { builder }.build().session();
        session.start(&agent, "Go").outcome().await.unwrap();
        assert_eq!((approver.asked(), tool.edited().len()), (vec!["src/a.rs".to_owned()], 2));
        let events = stored(&store, session.id()).await;
        let decided = events.iter().find_map(|it| match &it.event {
            Event::ApprovalDecided(answer) => Some(answer),
            _ => None,
        });
        let decided = decided.unwrap();
        assert_eq!(decided.decision, Decision::AllowSession);
        assert!(decided.failure.as_deref().unwrap().contains(why), "{decided:?}");
    }
}

#[tokio::test]
async fn cp03_a_losing_answer_keeps_no_grant() {
    let (store, kept, tool) = (memory(), Kept::default(), Edit::new(""));
    let agent = agent(edits(&["a"]).model()).tool(tool.clone()).build().unwrap();
    let runtime = on(&store).grants(kept.clone()).build();
    let session = runtime.session();
    let outcome = session.start(&agent, "Go").outcome().await.unwrap();
    let Status::Paused(Pause::Approval(id)) = outcome.status else { panic!("{outcome:?}") };
    runtime.decide(&id, Decision::Deny.by("ada")).await.unwrap();
    let late = on(&store).grants(kept.clone()).build().decide(&id, Decision::AllowAlways.by("bob")).await;
    assert_eq!(late.unwrap_err().kind(), ErrorKind::Conflict);
    assert!(kept.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn cp03_an_answer_from_another_process_is_kept_there() {
    let (store, kept, tool) = (memory(), Kept::default(), Edit::new(""));
    let agent = agent(edits(&["a"]).model()).tool(tool.clone()).build().unwrap();
    let session = on(&store).build().session();
    let outcome = session.start(&agent, "Go").outcome().await.unwrap();
    let Status::Paused(Pause::Approval(id)) = outcome.status else { panic!("{outcome:?}") };
    let without = on(&store).build().decide(&id, Decision::AllowAlways).await.unwrap_err();
    assert_eq!(without.kind(), ErrorKind::Unsupported);
    on(&store).grants(kept.clone()).build().decide(&id, Decision::AllowAlways.by("ada")).await.unwrap();
    assert_eq!(kept.0.lock().unwrap().len(), 1);
    let outcome =
        on(&store).build().open(session.id()).await.unwrap().resume(&agent).outcome().await.unwrap();
    assert_eq!((outcome.status, tool.edited().len()), (Status::Completed, 1));
}

#[tokio::test]
async fn cp05_a_session_that_is_auto_approved_asks_nobody_and_the_sessions_below_it_do() {
    let (store, tool, approver) = (memory(), Edit::new(""), Answers::new(Decision::Deny));
    let below = agent(edits(&["below"]).model()).tool(tool.clone()).build().unwrap();
    let provider = ScriptedProvider::new()
        .call("edit", json!({"path": "above"}))
        .call("helper", json!({"prompt": "Go"}))
        .text("Done.");
    let helper = AgentTool::new(below).with_name("helper");
    let top = agent(provider.model()).tool(tool.clone()).tool(helper).build().unwrap();
    let session = on(&store).approver(approver.clone()).build().session();
    session.auto_approve(true);
    session.start(&top, "Go").outcome().await.unwrap();
    assert_eq!((tool.edited(), approver.asked()), (vec!["above".to_owned()], vec!["below".to_owned()]));

    let events = stored(&store, session.id()).await;
    let said = events.iter().any(|it| format!("{:?}", it.event).contains("auto-approved session"));
    assert!(said, "the record says why it ran");
    session.auto_approve(false);
    let provider = ScriptedProvider::new().call("edit", json!({"path": "after"}));
    let agent = agent(provider.model()).tool(tool.clone()).build().unwrap();
    session.start(&agent, "Go").outcome().await.unwrap();
    assert_eq!(approver.asked(), ["after"]);
}

#[tokio::test]
async fn cp05_a_rule_that_denies_and_a_scope_hold_in_an_auto_approved_session() {
    let tool = Edit::new("");
    let agent = agent(edits(&["secrets"]).model()).tool(tool.clone()).build().unwrap();
    let session = on(&memory()).policy(Policy::new().deny("edit:secrets")).build().session();
    session.auto_approve(true);
    let outcome = session.start(&agent, "Go").outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Stopped(StopReason::Denied("edit".into())));
    assert!(tool.edited().is_empty());
}

/// Gives the paths that an approver is asked about when an agent with the first scope has one with the other look at
/// two.
async fn asked_below(builder: RuntimeBuilder, above: Scope, below: Scope) -> (Vec<String>, Status) {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    let spec = ToolSpec::new("look", "", schema).with_access(Access::READ).naming_subjects();
    let looks = || {
        let paths = [("look", json!({"path": "a"})), ("look", json!({"path": "contracts/b"}))];
        ScriptedProvider::by_history().calls(paths).text("Seen.")
    };
    let reader = agent(looks().model()).tool(Look(spec)).build().unwrap();
    let helper = AgentTool::new(reader).with_name("helper").with_scope(below);
    let lead = ScriptedProvider::by_history().call("helper", json!({"prompt": "Look"})).text("Done.");
    let lead = agent(lead.model()).tool(helper).scope(above).build().unwrap();
    let approver = Answers::new(Decision::Allow);
    let session = builder.approver(approver.clone()).build().session();
    let outcome = session.start(&lead, "Go").outcome().await.unwrap();
    (approver.asked(), outcome.status)
}

/// Looks at the path in its arguments.
struct Look(ToolSpec);

#[async_trait]
impl Tool for Look {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn footprint(&self, arguments: &Value) -> Footprint {
        Footprint::new(Access::READ).reading(arguments["path"].as_str().unwrap())
    }

    async fn call(&self, _: ToolInput, _: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::text("seen"))
    }
}

#[tokio::test]
async fn ai03_a_reader_below_an_agent_that_only_looks_asks_about_single_places_alone() {
    let looks = || Preset::Read.scope();
    let ask = || Policy::new().ask("look");
    let both = ["a", "contracts/b"];
    for (above, below, policy, expected) in [
        (looks(), Scope::read_only(), ask(), &[][..]),
        (looks(), Scope::read_only(), Policy::new().otherwise(RuleEffect::Ask).allow("helper"), &[]),
        (looks(), Scope::read_only(), Policy::new().restricted_by(ask().named("project")), &[]),
        // A rule for one place holds, whoever wrote it.
        (looks(), Scope::read_only(), ask().ask("look:contracts/*"), &["contracts/b"]),
        (
            looks(),
            Scope::read_only(),
            ask().restricted_by(Policy::new().ask("*:contracts/*")),
            &["contracts/b"],
        ),
        // Anything else asks.
        (Scope::all(), Scope::read_only(), ask(), &both),
        (looks(), Scope::all(), ask(), &both),
        (Scope::all(), Scope::all(), ask(), &both),
    ] {
        let builder = || on(&memory()).policy(policy.clone());
        let (asked, status) =
            asked_below(builder().auto_approve_readers(), above.clone(), below.clone()).await;
        assert_eq!(
            (asked.as_slice(), status),
            (strings(expected).as_slice(), Status::Completed),
            "{policy:?}"
        );
        let (asked, _) = asked_below(builder(), above, below).await;
        assert!(asked.contains(&"contracts/b".to_owned()), "without the setting all ask: {policy:?}");
    }
    let denies = on(&memory()).policy(ask().deny("look:contracts/*")).auto_approve_readers();
    assert!(asked_below(denies, looks(), Scope::read_only()).await.0.is_empty());
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[tokio::test]
async fn issue_14_the_ruling_on_a_call_is_explained_without_making_it() {
    let (store, tool, kept) = (memory(), Edit::new(""), Kept::default());
    let project = Policy::new().named("project").deny("*:*.lock").allow("*");
    let policy = || Policy::new().allow("edit:docs/*").restricted_by(project.clone());
    let builder = || on(&store).policy(policy()).grants(kept.clone());
    let agent = agent(edits(&["src/a.rs"]).model()).tool(tool.clone()).build().unwrap();
    let runtime = builder().approver(Answers::new(Decision::AllowSession)).build();
    let session = runtime.session();
    session.start(&agent, "Go").outcome().await.unwrap();
    let (count, edited) = (stored(&store, session.id()).await.len(), tool.edited().len());

    let explain = async |scope: &Scope, path: &str| {
        runtime.explain(session.id(), scope, &tool, &json!({"path": path})).await.unwrap()
    };
    let all = Scope::all();
    assert_eq!(explain(&all, "docs/a.md").await, Ruling::Allow("allow edit:docs/*".into()));
    assert_eq!(explain(&all, "Cargo.lock").await, Ruling::Deny("deny *:*.lock (project)".into()));
    assert_eq!(explain(&all, "a.rs").await, Ruling::Ask("default".into()));
    assert_eq!(explain(&all, "src/b.rs").await, Ruling::Allow("approver, for the session".into()));
    assert!(matches!(explain(&Scope::read_only(), "docs/a.md").await, Ruling::OutOfScope(_)));
    let roots = Scope::all().with_roots(["src"]);
    assert!(explain(&roots, "docs/a.md").await.to_string().contains("these paths only: src"));

    let bad = runtime.explain(session.id(), &all, &tool, &json!({})).await.unwrap_err();
    assert_eq!(bad.kind(), ErrorKind::InvalidInput);
    let bad = runtime.explain(session.id(), &all, &tool, &json!({"path": "panic"})).await.unwrap_err();
    assert_eq!(bad.kind(), ErrorKind::Tool);
    assert_eq!((stored(&store, session.id()).await.len(), tool.edited().len()), (count, edited));
}

/// A tool whose previews fail in every way.
struct Odd(ToolSpec);

#[async_trait]
impl Tool for Odd {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn preview(&self, input: ToolInput, _: &ToolContext<'_>) -> Option<String> {
        match input.arguments["path"].as_str().unwrap() {
            "never" => std::future::pending().await,
            "panic" => panic!("on purpose"),
            "long" => Some("é".repeat(1 << 20)),
            path => Some(format!("changes {path}")),
        }
    }

    async fn call(&self, _: ToolInput, _: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        panic!("nobody allowed it")
    }
}

#[tokio::test(start_paused = true)]
async fn issue_14_a_preview_that_hangs_or_panics_leaves_the_question_as_it_is() {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    let tool: Arc<dyn Tool> = Arc::new(Odd(ToolSpec::new("edit", "", schema).with_access(Access::WRITE)));
    for paths in [&["never", "panic", "a", "long"][..], &["never"], &["a"]] {
        let provider =
            ScriptedProvider::new().calls(paths.iter().map(|path| ("edit", json!({"path": path}))));
        let agent = agent(provider.model()).tool(Arc::clone(&tool)).build().unwrap();
        let session = testkit::runtime().build().session();
        let outcome = session.start(&agent, "Go").outcome().await.unwrap();
        assert!(matches!(outcome.status, Status::Paused(_)));
        let state = session.state().await.unwrap();
        let previews: Vec<_> = state.questions().iter().map(|it| it.request.preview.clone()).collect();
        assert_eq!(previews.len(), paths.len());
        for (path, preview) in paths.iter().zip(previews) {
            match *path {
                "a" => assert_eq!(preview.as_deref(), Some("changes a")),
                "long" => assert!(preview.is_some_and(|text| text.len() <= 64 << 10 && text.ends_with('…'))),
                _ => assert_eq!(preview, None, "{path}"),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn issue_14_a_deadline_that_passed_refuses_although_the_call_would_be_allowed_by_then() {
    for way in ["nothing", "a grant", "auto-approval", "a rule"] {
        let (store, tool, kept, clock) = (memory(), Edit::new(""), Kept::default(), PausedClock::new());
        let until = Decision::Until { at: clock.now().after(Duration::from_secs(60)), allow: false };
        let agent = agent(edits(&["src/a.rs"]).model()).tool(tool.clone()).build().unwrap();
        let builder = || on(&store).clock(clock).grants(kept.clone());
        let session = builder().approver(Answers::new(until)).build().session();
        session.start(&agent, "Go").outcome().await.unwrap();
        tokio::time::advance(Duration::from_secs(60)).await;
        if way == "a grant" {
            run(builder().approver(Answers::new(Decision::AllowAlways)), &Edit::new(""), &["src/b.rs"]).await;
        }
        let policy = if way == "a rule" { Policy::allow_all() } else { Policy::new() };
        let next = builder().policy(policy).build().open(session.id()).await.unwrap();
        next.auto_approve(way == "auto-approval");
        let outcome = next.resume(&agent).outcome().await.unwrap();
        assert_eq!(outcome.status, Status::Stopped(StopReason::Denied("edit".into())), "{way}");
        assert!(tool.edited().is_empty(), "{way}");
        let events = stored(&store, session.id()).await;
        let by_deadline = events.iter().any(|it| match &it.event {
            Event::ApprovalDecided(answer) => answer.by.as_deref() == Some("deadline"),
            _ => false,
        });
        assert!(by_deadline, "{way}");
    }
}

#[tokio::test]
async fn issue_14_a_grant_that_was_not_kept_is_kept_by_the_same_answer_again() {
    /// Fails the first time.
    #[derive(Debug, Clone, Default)]
    struct Once(Kept, Arc<Mutex<bool>>);

    #[async_trait]
    impl Grants for Once {
        fn holds(&self, grant: Digest) -> bool {
            self.0.holds(grant)
        }

        async fn keep(&self, question: &ApprovalRequest, by: Option<&str>) -> Result<()> {
            if !std::mem::replace(&mut *self.1.lock().unwrap(), true) {
                return Err(Error::new(ErrorKind::Io, "the disk is full"));
            }
            self.0.keep(question, by).await
        }
    }

    let (store, once) = (memory(), Once::default());
    let agent = agent(edits(&["src/a.rs"]).model()).tool(Edit::new("")).build().unwrap();
    let runtime = on(&store).grants(once.clone()).build();
    let outcome = runtime.session().start(&agent, "Go").outcome().await.unwrap();
    let Status::Paused(Pause::Approval(id)) = outcome.status else { panic!("{outcome:?}") };
    assert_eq!(runtime.decide(&id, Decision::AllowAlways).await.unwrap_err().kind(), ErrorKind::Io);
    assert!(once.0.0.lock().unwrap().is_empty());
    runtime.decide(&id, Decision::AllowAlways).await.unwrap();
    assert_eq!(once.0.0.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn issue_14_a_preview_runs_no_agent() {
    struct Runs(Edit, Arc<dyn Agent>);

    #[async_trait]
    impl Tool for Runs {
        fn spec(&self) -> &ToolSpec {
            self.0.spec()
        }

        async fn preview(&self, _: ToolInput, cx: &ToolContext<'_>) -> Option<String> {
            let ran = cx.run_agent(Arc::clone(&self.1), "Go", Scope::all()).await;
            Some(format!("ran: {}", ran.is_ok()))
        }

        async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
            self.0.call(input, cx).await
        }
    }

    let below = agent(edits(&["below"]).model()).tool(Edit::new("")).build().unwrap();
    let tool: Arc<dyn Tool> = Arc::new(Runs(Edit::new(""), Arc::new(below)));
    let agent = agent(edits(&["a"]).model()).tool(tool).build().unwrap();
    let session = testkit::runtime().build().session();
    session.start(&agent, "Go").outcome().await.unwrap();
    let state = session.state().await.unwrap();
    assert_eq!(state.questions()[0].request.preview.as_deref(), Some("ran: false"));
}

/// A process that has the effect and the run's own context alone.
#[tokio::test]
async fn attack_20_an_agent_below_a_tool_is_as_narrow_as_its_caller_when_its_effect_crosses() {
    let wide = Arc::new(Mutex::new(None));
    let engine = Meddler::new(move |cx, key, effect, local| {
        let cx = wide.lock().unwrap().get_or_insert(cx).clone();
        Box::pin(async move { local.perform(&cx, key, effect).await })
    });
    let tool = Edit::new("");
    let below = agent(edits(&["secrets/key"]).model()).tool(tool.clone()).build().unwrap();
    let provider = ScriptedProvider::new().call("agent", json!({"prompt": "Go"})).text("Done.");
    let top = agent(provider.model()).tool(AgentTool::new(below)).scope(Scope::all().with_roots(["src"]));
    let runtime = testkit::runtime().policy(Policy::allow_all()).effects(engine).build();
    let outcome = runtime.session().start(&top.build().unwrap(), "Go").outcome().await.unwrap();
    assert_eq!((outcome.status, tool.edited().len()), (Status::Completed, 0));
}
