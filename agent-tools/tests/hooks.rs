//! Hooks with real programs, asked as a run asks them.

#![cfg(all(feature = "hooks", unix))]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests fail by panicking too"
)]

mod common;

use std::{
    fmt::Write as _,
    fs::{self},
    path::PathBuf,
    process::Command,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use entourage_core::{
    ErrorKind,
    event::Event,
    permission::{Decision, Scope},
    run::{Outcome, Status, StopReason},
    session::SharedStore,
    tool::{Access, Footprint, Repeat, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec},
};
use entourage_runners::{AgentTool, ReactAgent};
use entourage_runtime::{MemoryStore, Runtime, RuntimeBuilder, Session, Waiting, permission::Policy};
use entourage_testkit::{self as testkit, ScriptedProvider};
use entourage_tools::Hooks;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;

/// A tool that writes to a path, and notes the arguments of its calls.
#[derive(Clone)]
struct Act(ToolSpec, Arc<Mutex<Vec<Value>>>);

impl Act {
    fn new() -> Self {
        let schema = json!({
            "type": "object",
            "properties": {"path": {"type": "string"}, "text": {"type": "string"}, "number": {"type": "number"}},
            "required": ["path"],
            "additionalProperties": false,
        });
        let spec = ToolSpec::new("act", "Acts.", schema).with_access(Access::WRITE).naming_subjects();
        Self(spec.with_repeat(Repeat::Idempotent), Arc::default())
    }

    fn calls(&self) -> Vec<Value> {
        self.1.lock().unwrap().clone()
    }
}

#[async_trait]
impl Tool for Act {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn footprint(&self, arguments: &Value) -> Footprint {
        Footprint::new(Access::WRITE).writing(arguments["path"].as_str().unwrap_or("?"))
    }

    async fn call(&self, input: ToolInput, _: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        self.1.lock().unwrap().push(input.arguments.clone());
        match input.arguments["path"].as_str() {
            Some("fails") => Err(ToolError::tell("no such path")),
            _ => Ok(ToolOutput::text("done")),
        }
    }
}

/// A directory in which hooks run, and a store.
struct Place {
    _keep: TempDir,
    dir: PathBuf,
    store: SharedStore,
    act: Act,
    /// The tool that writes may run.
    policy: Policy,
    provider: ScriptedProvider,
}

/// The end of a run.
#[derive(Debug)]
struct Seen {
    outcome: Outcome,
    results: Vec<String>,
    allowed_by: Vec<String>,
    took: Duration,
}

impl Place {
    fn new() -> Self {
        let keep = tempfile::tempdir().unwrap();
        let dir = fs::canonicalize(keep.path()).unwrap();
        let (store, act) = (Arc::new(MemoryStore::new()), Act::new());
        let policy = Policy::new().ask("act");
        let provider = ScriptedProvider::by_history().call("act", json!({"path": "a"})).text("Done.");
        Self { _keep: keep, dir, store, act, policy, provider }
    }

    /// Whose model makes this call instead.
    fn calling(self, arguments: Value) -> Self {
        let provider = ScriptedProvider::by_history().call("act", arguments).text("Done.");
        Self { provider, ..self }
    }

    fn ruled(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    fn hooks(&self, commands: &[&str]) -> Hooks {
        let mut text = String::new();
        for command in commands {
            writeln!(text, "[[hooks]]\ncommand = '''{command}'''\ntimeout = 600").unwrap();
        }
        self.toml(&text)
    }

    fn toml(&self, text: &str) -> Hooks {
        Hooks::from_toml(text).unwrap().in_dir(&self.dir)
    }

    fn runtime(&self, hooks: &Hooks) -> RuntimeBuilder {
        let runtime = testkit::runtime().shared_store(Arc::clone(&self.store)).policy(self.policy.clone());
        runtime.tool_layer(hooks.clone())
    }

    fn agent(&self) -> ReactAgent {
        ReactAgent::builder("clerk", self.provider.model()).tool(self.act.clone()).build().unwrap()
    }

    async fn go(&self, hooks: &Hooks) -> Seen {
        let (session, before) = (self.runtime(hooks).build().session(), Instant::now());
        let outcome = session.start(&self.agent(), "Go").outcome().await.unwrap();
        self.seen(&session, outcome, before.elapsed()).await
    }

    async fn seen(&self, session: &Session, outcome: Outcome, took: Duration) -> Seen {
        let mut seen = Seen { outcome, results: Vec::new(), allowed_by: Vec::new(), took };
        for envelope in session.events(0, 1_000).await.unwrap() {
            match envelope.event {
                Event::ToolFinished(call) => seen.results.push(call.result.to_text()),
                Event::ToolStarted(call) => seen.allowed_by.push(call.allowed_by.to_string()),
                _ => {}
            }
        }
        seen
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.dir.join(name)).unwrap_or_default()
    }

    fn pipe(&self, name: &str) -> (oneshot::Receiver<String>, oneshot::Receiver<()>) {
        common::pipe(&self.dir.join(name))
    }

    fn fifo(&self, name: &str) {
        assert!(Command::new("mkfifo").arg(self.dir.join(name)).status().unwrap().success());
    }
}

fn is_paused(outcome: &Outcome) -> bool {
    matches!(outcome.status, Status::Paused(_))
}

fn denied(outcome: &Outcome) -> bool {
    matches!(outcome.status, Status::Stopped(StopReason::Denied(_)))
}

#[tokio::test]
async fn ce03_each_exit_code_and_decision_has_its_effect() {
    // Nobody can be asked, so a call that is left to the rules pauses the run.
    let (runs, refused, halted, left) = ("runs", "refused", "halted", "left");
    for (command, effect, text) in [
        (r#"echo '{"decision":"allow","reason":"fine"}'"#, runs, "done"),
        (r#"echo '{"decision":"deny","reason":"no way"}'"#, refused, "not run: refused by a hook: no way"),
        (r#"echo '{"decision":"none"}'"#, left, ""),
        (r#"echo '{"halt":true,"reason":"enough"}'"#, halted, "not run: a hook ended the turn: enough"),
        (r#"echo '{"decision":"allow","halt":true}'"#, halted, "not run: a hook ended the turn"),
        ("true", left, ""),
        ("echo no >&2; exit 2", refused, "not run: refused by a hook: no"),
        ("exit 2", refused, "not run: refused by a hook"),
        ("echo stop >&2; exit 49", halted, "not run: a hook ended the turn: stop"),
        (r#"echo '{"decision":"deny"}'; exit 1"#, left, ""),
        (r#"echo '{"decision":"allow"}'; exit 3"#, left, ""),
        ("kill -9 $$", left, ""),
        ("no-such-program-anywhere", left, ""),
        ("echo allow", left, ""),
        ("printf '{\"decision\":\"allow\",\"reason\":\"\\377\"}'", left, ""),
    ] {
        let place = Place::new();
        let seen = place.go(&place.hooks(&[command])).await;
        assert_eq!(place.act.calls().len(), usize::from(effect == runs), "{command}: {seen:?}");
        assert_eq!(is_paused(&seen.outcome), effect == left, "{command}: {seen:?}");
        assert_eq!(denied(&seen.outcome), effect == halted, "{command}: {seen:?}");
        assert_eq!(seen.results.concat(), text, "{command}");
        assert_eq!(seen.outcome.is_completed(), effect == runs || effect == refused, "{command}");
    }
}

#[tokio::test]
async fn ce03_the_record_names_the_hook_that_allowed_a_call() {
    let place = Place::new();
    let seen = place.go(&place.hooks(&["true", r#"echo '{"decision":"allow","reason":"fine"}'"#])).await;
    let by = r#"layer: hook `echo '{"decision":"allow","reason":"fine"}'`: fine"#;
    assert_eq!(seen.allowed_by, [by]);
    let place = Place::new();
    fs::write(place.dir.join("answer"), r#"{"decision":"allow"}"#).unwrap();
    let named = place.toml("[[hooks]]\nname = 'tests'\ncommand = 'cat answer'\n");
    assert_eq!(place.go(&named).await.allowed_by, ["layer: hook `tests`"]);
}

#[tokio::test]
async fn ce03_a_hook_reads_the_call_and_nothing_of_it_is_run() {
    let text = "a'b\"c $(touch pwned) `touch pwned` ; touch pwned\n&& touch pwned | \\ é \u{1}";
    let place = Place::new().calling(json!({"path": text, "text": "$(touch pwned)"}));
    let hooks = place.hooks(&["cat > input; pwd -P > cwd"]);
    let session = place.runtime(&hooks).build().session();
    session.start(&place.agent(), "Go").outcome().await.unwrap();
    let mut input: Value = serde_json::from_str(&place.read("input")).unwrap();
    let call = input["call_id"].take();
    assert!(call.as_str().unwrap().starts_with(session.id().as_str()), "{call}");
    let dir = place.dir.to_str().unwrap();
    assert_eq!(
        input,
        json!({
            "event": "before_tool", "session": session.id().as_str(), "agent": "clerk", "tool": "act",
            "call_id": null, "arguments": {"path": text, "text": "$(touch pwned)"}, "cwd": dir,
        })
    );
    assert_eq!(place.read("cwd").trim(), dir);
    assert!(!place.dir.join("pwned").exists());
}

#[tokio::test]
async fn ce03_hooks_are_for_whole_names_and_each_command_is_asked_once() {
    let place = Place::new();
    let hook = |tools: &str, command: &str| format!("[[hooks]]\ntools = '{tools}'\ncommand = '{command}'\n");
    let text = [
        hook("act", "echo one >> log"),
        hook("a.t|other", "echo one >> log"),
        hook("ac", "echo two >> log"),
        hook("ct", "echo three >> log"),
        hook("(?i)ACT", "echo four >> log"),
        hook("other|act|x", "echo five >> log"),
        hook("[^a].*", "echo six >> log"),
    ];
    place.go(&place.toml(&text.concat())).await;
    let log = place.read("log");
    let mut lines: Vec<_> = log.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["five", "four", "one"]);
}

#[tokio::test]
async fn ce03_hooks_run_side_by_side_and_are_merged_in_the_order_of_the_text() {
    let place = Place::new();
    place.fifo("there");
    place.fifo("back");
    // Each waits for the other: one after the other they would take all their time and be ignored.
    let first = r#"echo x > there; read x < back; echo '{"decision":"allow","context":"first"}'"#;
    let second = r#"read x < there; echo x > back; echo '{"context":"second"}'"#;
    let seen = place.go(&place.hooks(&[first, second])).await;
    assert_eq!(seen.results, ["done\nFrom a hook, not from the tool:\nfirst\nsecond"]);

    for (commands, ran) in [
        ([r#"echo '{"decision":"allow"}'"#, "exit 2"], false),
        (["exit 2", r#"echo '{"decision":"allow"}'"#], false),
        (["exit 7", r#"echo '{"decision":"allow"}'"#], true),
        ([r#"echo '{"decision":"allow"}'"#, "exit 49"], false),
    ] {
        let place = Place::new();
        place.go(&place.hooks(&commands)).await;
        assert_eq!(!place.act.calls().is_empty(), ran, "{commands:?}");
    }
}

#[tokio::test]
async fn ce03_what_hooks_change_is_checked_judged_and_run() {
    let one = r#"echo '{"decision":"allow","arguments":{"path":"b","text":"one"}}'"#;
    let place = Place::new();
    let seen = place.go(&place.hooks(&[one, r#"echo '{"arguments":{"text":"two"}}'"#])).await;
    assert_eq!(place.act.calls(), [json!({"path": "b", "text": "two"})]);
    assert!(seen.results[0].starts_with("Run with other arguments than yours"), "{seen:?}");
    // The rules see what is left.
    let place = Place::new().ruled(Policy::allow_all().deny("act:b"));
    assert!(denied(&place.go(&place.hooks(&[one])).await.outcome));
    // So does the schema.
    for patch in [r#"{"path":1}"#, r#"{"more":1}"#, r#"{"path":null}"#] {
        let place = Place::new().ruled(Policy::allow_all());
        let command = format!(r#"echo '{{"arguments":{patch}}}'"#);
        let seen = place.go(&place.hooks(&[&command])).await;
        assert!(seen.results[0].contains("a layer changed its arguments"), "{patch}: {seen:?}");
        assert_eq!(place.act.calls(), [Value::Null; 0]);
    }
}

#[tokio::test]
async fn ce03_an_allow_never_widens() {
    let allow = r#"echo '{"decision":"allow"}'"#;
    for policy in [
        Policy::new().ask("act").deny("act:a"),
        Policy::allow_all().deny("*"),
        Policy::new().ask("act").restricted_by(Policy::allow_all().deny("act")),
    ] {
        let place = Place::new().ruled(policy);
        assert!(denied(&place.go(&place.hooks(&[allow])).await.outcome));
        assert_eq!(place.act.calls(), [Value::Null; 0]);
    }
    let place = Place::new();
    let agent = ReactAgent::builder("clerk", place.provider.model()).tool(place.act.clone());
    let agent = agent.scope(Scope::all().with_roots(["src"])).build().unwrap();
    let runtime = place.runtime(&place.hooks(&[allow])).build();
    assert!(runtime.session().start(&agent, "Go").outcome().await.unwrap().is_completed());
    assert_eq!(place.act.calls(), [Value::Null; 0]);
}

#[tokio::test]
async fn ce03_an_allow_is_for_its_call_alone() {
    // The first one that asks is allowed, also if the next call is the very same.
    let first = r#"echo x >> log; [ $(wc -l < log) = 1 ] && echo '{"decision":"allow"}'; exit 0"#;
    for second in ["a", "b"] {
        let calls = [("act", json!({"path": "a"})), ("act", json!({ "path": second }))];
        let provider = ScriptedProvider::by_history().calls(calls).text("Done.");
        let place = Place { provider, ..Place::new() };
        let seen = place.go(&place.hooks(&[first])).await;
        assert!(is_paused(&seen.outcome), "{seen:?}");
        assert_eq!((place.act.calls().len(), place.read("log").lines().count()), (1, 2), "{seen:?}");
    }
}

#[tokio::test]
async fn ce03_a_context_is_beside_the_result_whatever_that_is() {
    let command = r#"echo '{"decision":"allow","context":"the tests are slow"}'"#;
    for (path, result) in [("a", "done"), ("fails", "no such path")] {
        let place = Place::new().calling(json!({ "path": path }));
        let seen = place.go(&place.hooks(&[command])).await;
        let text = &seen.results[0];
        assert!(text.starts_with(result), "{text}");
        assert!(text.ends_with("From a hook, not from the tool:\nthe tests are slow"), "{text}");
    }
    let place = Place::new();
    let seen = place.go(&place.hooks(&[command, "exit 2"])).await;
    assert!(seen.results[0].ends_with("not from the tool:\nthe tests are slow"), "{seen:?}");
}

#[tokio::test]
async fn ce03_a_hook_that_takes_too_long_is_asked_to_end_then_killed_and_ignored() {
    let place = Place::new();
    let (up, gone) = place.pipe("pipe");
    // It answers when it is asked to end, and goes on: it is too late.
    let command =
        "trap 'echo asked >> log; echo x' TERM; exec 3> pipe; echo up >&3; while :; do sleep 60; done";
    let text = format!("[[hooks]]\ncommand = \"{command}\"\ntimeout = 1\n");
    let hooks = place.toml(&text);
    let seen = place.go(&hooks).await;
    assert!(is_paused(&seen.outcome), "it was left to the rules: {seen:?}");
    assert!(seen.took >= Duration::from_secs(2) && seen.took < Duration::from_secs(120), "{seen:?}");
    assert_eq!((up.await.unwrap().trim(), place.read("log").trim()), ("up", "asked"));
    gone.await.unwrap();
}

#[tokio::test]
async fn ce03_a_cancel_kills_the_hooks() {
    let place = Place::new();
    let (up, gone) = place.pipe("pipe");
    let hooks = place.hooks(&["trap '' TERM; exec 3> pipe; echo up >&3; while :; do sleep 60; done"]);
    let session = place.runtime(&hooks).build().session();
    let run = session.start(&place.agent(), "Go");
    let cancel = run.cancellation();
    let stop = async {
        up.await.unwrap();
        cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(run.outcome(), stop);
    assert_eq!(outcome.unwrap().status, Status::Cancelled);
    gone.await.unwrap();
}

#[tokio::test]
async fn ce03_what_a_hook_leaves_behind_is_killed_and_what_left_its_group_is_not_waited_for() {
    let place = Place::new();
    let (up, gone) = place.pipe("pipe");
    let hooks =
        place.hooks(&[r#"(exec 3> pipe; echo up >&3; exec sleep 600) & echo '{"decision":"allow"}'"#]);
    let seen = place.go(&hooks).await;
    assert_eq!((place.act.calls().len(), up.await.unwrap().trim()), (1, "up"));
    assert!(seen.took < Duration::from_secs(120), "{seen:?}");
    gone.await.unwrap();

    // It holds the output open, and ends by itself when the test lets it.
    let place = Place::new();
    place.fifo("leave");
    place.fifo("ready");
    let left =
        r#"setsid sh -c 'echo up > ready; read x < leave' & read up < ready; echo '{"decision":"allow"}'"#;
    let seen = place.go(&place.hooks(&[left])).await;
    assert_eq!(place.act.calls().len(), 1, "{seen:?}");
    assert!(seen.took < Duration::from_secs(120), "{seen:?}");
    fs::write(place.dir.join("leave"), "x\n").unwrap();
}

#[tokio::test]
async fn ce03_hostile_output_is_bounded_and_ignored() {
    for (command, refuses) in [
        ("head -c 1073741824 /dev/zero", false),
        // A refusal holds, whatever comes with it.
        ("head -c 1073741824 /dev/zero; exit 2", true),
        ("head -c 1073741824 /dev/zero >&2; exit 2", true),
        (
            r#"printf '{"decision":"allow","arguments":{"text":'; head -c 20000 /dev/zero | tr '\0' '['; echo"#,
            false,
        ),
        (r#"echo '{"decision":"allow","arguments":{"number":1e999}}'"#, false),
        (r#"head -c 70000 /dev/zero | tr '\0' ' '; echo '{"decision":"allow"}'"#, false),
        (r#"printf '\377\376'"#, false),
    ] {
        let place = Place::new();
        let seen = place.go(&place.hooks(&[command])).await;
        assert_eq!(place.act.calls(), [Value::Null; 0], "{command}");
        assert_eq!(is_paused(&seen.outcome), !refuses, "{command}: {seen:?}");
    }
    // A number that JSON can hold is the tool's to judge.
    let place = Place::new();
    place.go(&place.hooks(&[r#"echo '{"decision":"allow","arguments":{"number":1e308}}'"#])).await;
    assert_eq!(place.act.calls(), [json!({"path": "a", "number": 1e308})]);
    if let Ok(status) = fs::read_to_string("/proc/self/status") {
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(kib < 512 << 10, "{kib} KiB");
    }
}

#[tokio::test]
async fn ce03_a_hook_need_not_read_a_large_call() {
    let place = Place::new().calling(json!({"path": "a", "text": "x".repeat(4 << 20)}));
    let seen = place.go(&place.hooks(&[r#"echo '{"decision":"allow"}'"#])).await;
    assert_eq!(place.act.calls().len(), 1);
    assert!(seen.took < Duration::from_secs(120), "{seen:?}");
    let counted = place.go(&place.hooks(&["wc -c > size"])).await;
    assert!(is_paused(&counted.outcome));
    assert!(place.read("size").trim().parse::<usize>().unwrap() > 4 << 20);
}

const INNER: &str = "ENTOURAGE_TEST_OF_HOOKS";

#[test]
fn ce03_hooks_have_the_environment_of_commands_without_secrets() {
    if std::env::var_os(INNER).is_some() {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return tokio.block_on(async {
            let place = Place::new();
            place.go(&place.hooks(&["env > vars; [ -t 0 ] || echo none >> vars"])).await;
            let vars = place.read("vars");
            for secret in ["sk-abc", "hidden-by-name", "hidden-by-value", "from-bash-env"] {
                assert!(!vars.contains(secret), "{vars}");
            }
            assert!(vars.contains("KEPT=yes") && vars.contains("PATH="), "{vars}");
        });
    }
    let dir = tempfile::tempdir().unwrap();
    let bash_env = dir.path().join("env");
    fs::write(&bash_env, "export FROM=from-bash-env\n").unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "ce03_hooks_have_the_environment_of_commands_without_secrets"])
        .env(INNER, "1")
        .env("OPENAI_API_KEY", "sk-abc")
        .env("MY_TOKEN", "hidden-by-name")
        .env("INNOCENT", "ghp_hidden-by-value")
        .env("BASH_ENV", &bash_env)
        .env("ENV", &bash_env)
        .env("KEPT", "yes")
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && shown.contains("1 passed"), "{shown}");
}

#[tokio::test]
async fn ce03_hooks_are_not_asked_inside_sub_agents() {
    let place = Place::new().ruled(Policy::allow_all());
    let hooks = place.hooks(&["cat >> log; echo >> log"]);
    let below = ReactAgent::builder("below", place.provider.model()).tool(place.act.clone()).build().unwrap();
    let provider = ScriptedProvider::by_history().call("agent", json!({"prompt": "Go"})).text("Done.");
    let tool = AgentTool::new(below).with_name("agent");
    let agent = ReactAgent::builder("top", provider.model()).tool(tool).build().unwrap();
    let runtime = place.runtime(&hooks).build();
    let outcome = runtime.session().start(&agent, "Go").outcome().await.unwrap();
    assert!(outcome.is_completed(), "{outcome}");
    assert_eq!(place.act.calls().len(), 1);
    let log = place.read("log");
    let tools: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(tools.iter().map(|it| &it["tool"]).collect::<Vec<_>>(), ["agent"]);
}

async fn decide(runtime: &Runtime, decision: Decision) {
    let pending = runtime.pending().await.unwrap().remove(0);
    let Waiting::Approval(question) = pending.waits_for else { panic!("{pending:?}") };
    runtime.decide(&question.id, decision).await.unwrap();
}

#[tokio::test]
async fn ce03_a_resumed_run_does_not_ask_again_about_a_call_that_was_judged() {
    let command = r#"echo x >> log; echo '{"arguments":{"text":"'$(wc -l < log)'"},"context":"seen"}'"#;
    for same_process in [true, false] {
        let place = Place::new();
        let hooks = place.hooks(&[command]);
        let session = place.runtime(&hooks).build().session();
        assert!(is_paused(&session.start(&place.agent(), "Go").outcome().await.unwrap()));
        let later = if same_process { hooks } else { place.hooks(&[command]) };
        let runtime = place.runtime(&later).build();
        decide(&runtime, Decision::Allow).await;
        let session = runtime.open(session.id()).await.unwrap();
        let outcome = session.resume(&place.agent()).outcome().await.unwrap();
        let seen = place.seen(&session, outcome, Duration::ZERO).await;
        assert_eq!((place.read("log").lines().count(), place.act.calls().len()), (1, 1), "{seen:?}");
        assert_eq!(place.act.calls()[0]["text"], "1", "what was shown ran");
        // The context is kept by the process that asked.
        assert_eq!(seen.results[0].ends_with("not from the tool:\nseen"), same_process, "{seen:?}");
    }
}

#[tokio::test]
async fn ce03_arguments_of_an_approver_are_asked_about() {
    let command = r#"cat > input; grep -q '"path":"bad"' input && exit 2; exit 0"#;
    for (path, ran) in [("bad", false), ("good", true)] {
        let place = Place::new();
        let runtime = place.runtime(&place.hooks(&[command])).build();
        let session = runtime.session();
        session.start(&place.agent(), "Go").outcome().await.unwrap();
        decide(&runtime, Decision::edit(&json!({ "path": path })).unwrap()).await;
        session.resume(&place.agent()).outcome().await.unwrap();
        assert_eq!(place.act.calls().len(), usize::from(ran), "{path}");
    }
}

#[test]
fn ce03_a_text_that_is_not_valid_is_refused_and_says_what_is() {
    let hook = |more: &str| format!("[[hooks]]\ncommand = \"x\"\n{more}");
    for (text, part) in [
        (hook("tool = 'x'"), "expected one of `name`, `tools`, `command`, `timeout`"),
        ("[[hook]]\ncommand = 'x'".to_owned(), "expected `hooks`"),
        ("[[hooks]]\ntools = 'x'".to_owned(), "missing field `command`"),
        ("[[hooks]]\ncommand = ' '".to_owned(), "hook 1: `command` is"),
        ("[[hooks]]\ncommand = \"a\\u0000b\"".to_owned(), "hook 1: `command` is"),
        (format!("[[hooks]]\ncommand = '{}'", "x".repeat(8_193)), "hook 1: `command` is"),
        (hook("name = ''"), "hook 1: `name` is a text of 1 to 80 bytes"),
        (hook("timeout = 0"), "`timeout` is a number of seconds from 1 to 600"),
        (hook("timeout = 601"), "`timeout` is"),
        (hook("timeout = -1"), "timeout"),
        (hook("timeout = 1.5"), "timeout"),
        (hook("timeout = '5'"), "timeout"),
        (hook("tools = '('"), "hook 1: `tools` is no regular expression"),
        (hook("tools = 'a)|(b'"), "hook 1: `tools` is no regular expression"),
        (hook("tools = 'a{1000}{1000}{1000}'"), "hook 1: `tools` is no regular expression"),
        (hook(&format!("tools = '{}'", "x".repeat(1_001))), "at most 1000 bytes"),
        (hook(&hook("tools = '['")), "hook 2: `tools`"),
        (hook("").repeat(65), "65 hooks are more than 64"),
        ("hooks = 1".to_owned(), "these are no hooks"),
        ("[[hooks]\n".to_owned(), "these are no hooks"),
    ] {
        let error = Hooks::from_toml(&text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}");
        assert!(error.message().contains(part), "{text}: {}", error.message());
    }
    let large = Hooks::from_toml(&format!("# {}", "x".repeat(256 << 10))).unwrap_err();
    assert_eq!(large.kind(), ErrorKind::TooLarge);
    for fine in ["", "hooks = []", &hook("timeout = 600\ntools = '.*'"), &hook("").repeat(64)] {
        Hooks::from_toml(fine).unwrap();
    }
    let shown = format!("{:?}", Hooks::from_toml("[[hooks]]\ncommand = 'curl -H secret'").unwrap());
    assert!(!shown.contains("secret"), "{shown}");
}

#[tokio::test]
async fn ce03_a_directory_that_is_gone_lets_no_hook_allow() {
    let place = Place::new();
    let hooks = place.hooks(&[r#"echo '{"decision":"allow"}'"#]).in_dir("gone");
    assert!(is_paused(&place.go(&hooks).await.outcome));
}

/// Keeps the text of warnings.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<String>>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = self.0.lock().unwrap();
        event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            write!(text, "{field}={value:?} ").unwrap();
        });
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn ce03_a_hook_that_is_ignored_is_warned_of_without_the_call() {
    for (command, why) in [
        ("exit 7", "it ended with exit code 7"),
        ("echo yes", "its output is no answer"),
        ("head -c 70000 /dev/zero", "it printed too much"),
        ("kill -9 $$", "it was ended by a signal"),
    ] {
        let warnings = Warnings::default();
        let place = Place::new().calling(json!({"path": "private"}));
        let hooks = place.hooks(&[command]);
        let guard = tracing::subscriber::set_default(warnings.clone());
        place.go(&hooks).await;
        drop(guard);
        let text = warnings.0.lock().unwrap().clone();
        assert!(text.contains(&format!("hook={command}")) && text.contains("tool=\"act\""), "{text}");
        assert!(text.contains(&format!("a hook was ignored: {why}")), "{text}");
        assert!(!text.contains("private"), "{text}");
    }
}
