//! Spans as a subscriber sees them: names, fields, parents, ends, and what is not in them.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use entourage_core::{
    ErrorKind, SessionId,
    agent::Agent,
    permission::Scope,
    provider::FinishReason,
    session::SharedStore,
    tool::{Access, Repeat, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec},
};
use entourage_runners::ReactAgent;
use entourage_runtime::permission::Policy;
use entourage_runtime::{RunHandle, Runtime, telemetry::Spans};
use entourage_testkit::{FakeTool, Gate, Script, ScriptedProvider};
use serde_json::{Value, json};
use tracing::{
    Dispatch, Subscriber,
    field::{Field, Visit},
    span,
};
use tracing_subscriber::{Layer, Registry, layer::Context, layer::SubscriberExt, registry::LookupSpan};

/// A text that no span may contain. It is part of the prompt, the reply, arguments, results and errors.
const SECRET: &str = "hunter2";

#[derive(Debug, Clone, Default)]
struct Seen {
    id: u64,
    /// Index in the tape.
    parent: Option<usize>,
    fields: BTreeMap<&'static str, String>,
    events: Vec<BTreeMap<&'static str, String>>,
    closed: bool,
}

/// A layer that records every notification, in order.
#[derive(Debug, Clone, Default)]
struct Tape(Arc<Mutex<Vec<Seen>>>);

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_u64(&mut self, field: &Field, _: u64) {
        panic!("{field} is unsigned, which OpenTelemetry has not");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Tape {
    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, _: Context<'_, S>) {
        assert!(!attributes.is_contextual(), "no parent is the ambient one");
        let parent = attributes.parent().map(|id| self.place(id));
        let mut seen = Seen { id: id.into_u64(), parent, ..Seen::default() };
        attributes.record(&mut seen);
        self.0.lock().unwrap().push(seen);
    }

    fn on_record(&self, id: &span::Id, record: &span::Record<'_>, _: Context<'_, S>) {
        let place = self.place(id);
        record.record(&mut self.0.lock().unwrap()[place]);
    }

    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut seen = Seen::default();
        event.record(&mut seen);
        let place = self.place(event.parent().unwrap());
        self.0.lock().unwrap()[place].events.push(seen.fields);
    }

    fn on_close(&self, id: span::Id, _: Context<'_, S>) {
        let place = self.place(&id);
        self.0.lock().unwrap()[place].closed = true;
    }
}

impl Tape {
    fn subscriber(&self) -> Dispatch {
        Dispatch::new(Registry::default().with(self.clone()))
    }

    fn spans(&self) -> Spans {
        Spans::new().to(self.subscriber())
    }

    /// Index of the newest span with that id: the registry reuses ids.
    fn place(&self, id: &span::Id) -> usize {
        self.0.lock().unwrap().iter().rposition(|it| it.id == id.into_u64()).unwrap()
    }

    fn all(&self) -> Vec<Seen> {
        self.0.lock().unwrap().clone()
    }

    fn named(&self, name: &str) -> Vec<Seen> {
        self.all().into_iter().filter(|it| it.fields["otel.name"] == name).collect()
    }

    fn one(&self, name: &str) -> Seen {
        let mut found = self.named(name);
        assert_eq!(found.len(), 1, "{name} in {:#?}", self.names());
        found.remove(0)
    }

    fn names(&self) -> Vec<String> {
        self.all().iter().map(|it| it.fields["otel.name"].clone()).collect()
    }

    fn parent(&self, of: &Seen) -> Option<String> {
        of.parent.map(|place| self.0.lock().unwrap()[place].fields["otel.name"].clone())
    }

    /// All records, as one text.
    fn text(&self) -> String {
        format!("{:?}", self.all())
    }
}

fn fields(seen: &Seen, wanted: &[(&str, &str)]) {
    for (name, value) in wanted {
        assert_eq!(seen.fields.get(name).map(String::as_str), Some(*value), "{name} of {seen:#?}");
    }
}

fn runtime(spans: Spans) -> Runtime {
    Runtime::builder().policy(Policy::allow_all()).observer(spans).build()
}

fn agent(name: &str, provider: &ScriptedProvider) -> entourage_runners::ReactBuilder {
    ReactAgent::builder(name, provider.model())
}

fn look() -> FakeTool {
    FakeTool::new("look").returning(format!("seen {SECRET}"))
}

fn talk() -> ScriptedProvider {
    let first = Script::new()
        .text(format!("Let me see, {SECRET}."))
        .call("look", &json!({"at": SECRET}))
        .usage(7, 3)
        .finish(FinishReason::ToolCalls);
    ScriptedProvider::named("spoken")
        .step(first)
        .step(Script::new().text(format!("It is {SECRET}.")).usage(20, 5).finish(FinishReason::Stop))
}

async fn run(spans: Spans) {
    let provider = talk();
    let agent = agent("scout", &provider).tool(look()).build().unwrap();
    let session = runtime(spans).session_with_id(SessionId::new("work").unwrap());
    assert!(session.start(&agent, format!("Find {SECRET}")).outcome().await.unwrap().is_completed());
}

#[tokio::test(start_paused = true)]
async fn a_run_is_a_span_with_its_model_and_tool_calls_below_it() {
    let tape = Tape::default();
    run(tape.spans()).await;
    let all = tape.all();
    assert_eq!(all.len(), 4, "{:?}", tape.names());
    assert!(all.iter().all(|it| it.closed));

    let root = tape.one("invoke_agent scout");
    assert_eq!(root.parent, None);
    let wanted = [
        ("otel.kind", "internal"),
        ("gen_ai.operation.name", "invoke_agent"),
        ("gen_ai.agent.name", "scout"),
        ("gen_ai.conversation.id", "work"),
        ("entourage.agent.path", "scout"),
        ("entourage.status", "completed"),
        ("entourage.steps", "2"),
        ("gen_ai.usage.input_tokens", "27"),
        ("gen_ai.usage.output_tokens", "8"),
    ];
    fields(&root, &wanted);
    assert!(entourage_core::RunId::parse(&root.fields["entourage.run.id"]).is_ok());
    assert!(!root.fields.contains_key("error.type") && !root.fields.contains_key("entourage.resumed"));

    let chats: Vec<_> = all.iter().filter(|it| it.fields["gen_ai.operation.name"] == "chat").collect();
    let wanted = [
        ("otel.kind", "client"),
        ("gen_ai.provider.name", "spoken"),
        ("gen_ai.response.finish_reasons", "[\"tool_call\"]"),
        ("gen_ai.usage.input_tokens", "7"),
        ("gen_ai.usage.output_tokens", "3"),
        ("entourage.attempts", "1"),
        ("entourage.step", "1"),
    ];
    fields(chats[0], &wanted);
    let model = &chats[0].fields["gen_ai.request.model"];
    assert_eq!(chats[0].fields["otel.name"], format!("chat {model}"));
    fields(
        chats[1],
        &[("gen_ai.response.finish_reasons", "[\"stop\"]"), ("gen_ai.usage.input_tokens", "20")],
    );

    let tool = tape.one("execute_tool look");
    fields(
        &tool,
        &[("gen_ai.operation.name", "execute_tool"), ("gen_ai.tool.name", "look"), ("otel.kind", "internal")],
    );
    assert!(!tool.fields["gen_ai.tool.call.id"].is_empty());
    for below in [chats[0], chats[1], &tool] {
        assert_eq!(tape.parent(below).as_deref(), Some("invoke_agent scout"));
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_that_was_said_is_in_a_span_unless_asked_for() {
    let tape = Tape::default();
    run(tape.spans()).await;
    assert!(!tape.text().contains(SECRET), "{}", tape.text());
}

#[tokio::test(start_paused = true)]
async fn what_was_said_comes_when_asked_for() {
    let tape = Tape::default();
    run(tape.spans().with_content()).await;
    let read = |seen: &Seen, name: &str| -> Value { serde_json::from_str(&seen.fields[name]).unwrap() };
    let root = tape.one("invoke_agent scout");
    let prompt = json!([{"role": "user", "parts": [{"type": "text", "content": "Find hunter2"}]}]);
    assert_eq!(read(&root, "gen_ai.input.messages"), prompt);
    assert_eq!(read(&root, "gen_ai.output.messages")[0]["parts"][0]["content"], "It is hunter2.");

    let tool = tape.one("execute_tool look");
    assert_eq!(read(&tool, "gen_ai.tool.call.arguments"), json!({"at": SECRET}));
    fields(&tool, &[("gen_ai.tool.call.result", "seen hunter2")]);

    let all = tape.all();
    let chats: Vec<_> = all.iter().filter(|it| it.fields["gen_ai.operation.name"] == "chat").collect();
    assert_eq!(read(chats[0], "gen_ai.input.messages"), prompt);
    let reply = &read(chats[0], "gen_ai.output.messages")[0];
    assert_eq!(reply["finish_reason"], "tool_call");
    assert_eq!(reply["parts"][1]["type"], "tool_call");
    // Only messages since the previous call.
    let second = read(chats[1], "gen_ai.input.messages");
    assert_eq!(second.as_array().unwrap().len(), 1);
    assert_eq!(second[0]["parts"][0]["response"], "seen hunter2");
}

#[tokio::test(start_paused = true)]
async fn content_is_cut_in_whole_characters() {
    let tape = Tape::default();
    let provider = ScriptedProvider::new().text("Yes.");
    let agent = agent("scout", &provider).build().unwrap();
    let session = runtime(tape.spans().with_content()).session();
    session.start(&agent, "ü".repeat(50_000)).outcome().await.unwrap();
    let messages = &tape.one("invoke_agent scout").fields["gen_ai.input.messages"];
    let text = serde_json::from_str::<Value>(messages).unwrap()[0]["parts"][0]["content"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(text.chars().count(), 16 * 1024 / 2 + 1);
    assert!(text.ends_with("ü…"));
}

/// A tool that passes its call on to another agent.
struct Ask(ToolSpec, Arc<dyn Agent>);

impl Ask {
    fn new(agent: impl Agent + 'static) -> Self {
        let spec = ToolSpec::new("ask", "Asks another agent.", json!({"type": "object"}))
            .with_access(Access::DELEGATE)
            .with_repeat(Repeat::Resume);
        Self(spec, Arc::new(agent))
    }
}

#[async_trait]
impl Tool for Ask {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let outcome = cx.run_agent(Arc::clone(&self.1), format!("Help with {SECRET}"), Scope::all()).await?;
        Ok(ToolOutput::text(outcome.text))
    }
}

#[tokio::test(start_paused = true)]
async fn a_childs_run_is_below_the_call_that_started_it() {
    let tape = Tape::default();
    let other = ScriptedProvider::named("other").text("Done.");
    let child = agent("helper", &other).build().unwrap();
    let calls = [("look", json!({})), ("ask", json!({}))];
    let provider = ScriptedProvider::new().calls(calls).text("All done.");
    let lead = agent("lead", &provider).tool(look()).tool(Ask::new(child)).build().unwrap();
    runtime(tape.spans()).session().start(&lead, "Go").outcome().await.unwrap();

    let helper = tape.one("invoke_agent helper");
    assert_eq!(tape.parent(&helper).as_deref(), Some("execute_tool ask"));
    fields(&helper, &[("entourage.agent.path", "lead/helper"), ("gen_ai.agent.name", "helper")]);
    let ask = tape.one("execute_tool ask");
    assert_eq!(tape.parent(&ask).as_deref(), Some("invoke_agent lead"));
    let chat = tape
        .all()
        .into_iter()
        .find(|it| it.fields.get("gen_ai.provider.name").is_some_and(|it| it == "other"));
    assert_eq!(tape.parent(&chat.unwrap()).as_deref(), Some("invoke_agent helper"));
    assert!(tape.all().iter().all(|it| it.closed));
}

#[tokio::test(start_paused = true)]
async fn failures_carry_their_kind_and_no_text() {
    let tape = Tape::default();
    let provider = ScriptedProvider::new()
        .calls([("tell", json!({})), ("look_at_hunter2", json!({}))])
        .fail(ErrorKind::Authentication, format!("bad key {SECRET}"));
    let tool = FakeTool::new("tell").telling(format!("no {SECRET}"));
    let agent = agent("scout", &provider).tool(tool).build().unwrap();
    runtime(tape.spans()).session().start(&agent, "Go").outcome().await.unwrap_err();

    let root = tape.one("invoke_agent scout");
    fields(
        &root,
        &[("entourage.status", "failed"), ("error.type", "authentication"), ("otel.status_code", "ERROR")],
    );
    let failed: Vec<_> =
        tape.all().into_iter().filter(|it| it.fields["gen_ai.operation.name"] == "chat").collect();
    fields(
        &failed[1],
        &[("error.type", "authentication"), ("gen_ai.response.finish_reasons", "[\"error\"]")],
    );
    fields(&tape.one("execute_tool tell"), &[("error.type", "tool_error"), ("otel.status_code", "ERROR")]);
    // A tool that the model made up: its name is a part of its reply.
    fields(&tape.one("execute_tool _OTHER"), &[("error.type", "not_run"), ("entourage.not_run", "true")]);
    assert!(!tape.text().contains(SECRET), "{}", tape.text());
}

#[tokio::test(start_paused = true)]
async fn an_errors_text_comes_with_content() {
    let tape = Tape::default();
    let provider = ScriptedProvider::new().fail(ErrorKind::Overloaded, "no room");
    let agent = agent("scout", &provider).build().unwrap();
    runtime(tape.spans().with_content()).session().start(&agent, "Go").outcome().await.unwrap_err();
    fields(
        &tape.one("invoke_agent scout"),
        &[("error.type", "overloaded"), ("otel.status_description", "no room")],
    );
}

#[tokio::test(start_paused = true)]
async fn a_further_attempt_is_an_event_of_the_call() {
    let tape = Tape::default();
    let provider = ScriptedProvider::new().fail(ErrorKind::Overloaded, SECRET).text("Yes.");
    let model = provider.model().layer(entourage_runtime::layers::Retry::default());
    let agent = ReactAgent::builder("scout", model).build().unwrap();
    runtime(tape.spans()).session().start(&agent, "Go").outcome().await.unwrap();
    let all = tape.all();
    let chats: Vec<_> = all.iter().filter(|it| it.fields["gen_ai.operation.name"] == "chat").collect();
    assert_eq!(chats.len(), 1);
    fields(chats[0], &[("entourage.attempts", "2")]);
    assert!(!chats[0].fields.contains_key("error.type"), "the call went well in the end");
    assert_eq!(chats[0].events.len(), 1);
    assert_eq!(chats[0].events[0]["error.type"], "overloaded");
    assert_eq!(chats[0].events[0]["entourage.attempt"], "2");
    assert!(!tape.text().contains(SECRET));
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_the_run_and_what_it_had_open() {
    let tape = Tape::default();
    let gate = Gate::new();
    let provider = ScriptedProvider::new().call("look", json!({}));
    let tool = look().behind(&gate);
    let started = tool.clone();
    let agent = agent("scout", &provider).tool(tool).build().unwrap();
    let run: RunHandle = runtime(tape.spans()).session().start(&agent, "Go");
    while started.started() == 0 {
        tokio::task::yield_now().await;
    }
    run.cancel();
    drop(run.outcome().await);
    fields(
        &tape.one("invoke_agent scout"),
        &[("entourage.status", "cancelled"), ("error.type", "cancelled")],
    );
    // The run settles the call that it cut off.
    fields(&tape.one("execute_tool look"), &[("error.type", "tool_error")]);
    assert!(tape.all().iter().all(|it| it.closed));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_goes_on_elsewhere_begins_a_span_of_the_same_run() {
    let (first, second) = (Tape::default(), Tape::default());
    let store: SharedStore = Arc::new(entourage_runtime::MemoryStore::new());
    let id = SessionId::new("work").unwrap();
    let agent = |provider: &ScriptedProvider| {
        ReactAgent::builder("scout", provider.model()).tool(look().access(Access::WRITE)).build().unwrap()
    };
    // Without an approver the run pauses.
    let process = Runtime::builder().shared_store(Arc::clone(&store)).observer(first.spans()).build();
    let provider = ScriptedProvider::by_history().call("look", json!({})).text("Yes.");
    let outcome = process.session_with_id(id.clone()).start(&agent(&provider), "Go").outcome().await.unwrap();
    assert!(matches!(outcome.status, entourage_core::run::Status::Paused(_)), "{outcome:?}");
    drop(process);
    let paused = first.one("invoke_agent scout");
    fields(&paused, &[("entourage.status", "paused")]);
    assert!(paused.closed && !paused.fields.contains_key("error.type"));

    let process =
        Runtime::builder().shared_store(store).policy(Policy::allow_all()).observer(second.spans()).build();
    let run = process.session_with_id(id).resume(&agent(&provider));
    assert!(run.outcome().await.unwrap().is_completed());
    let resumed = second.one("invoke_agent scout");
    fields(&resumed, &[("entourage.resumed", "1"), ("entourage.status", "completed")]);
    assert_eq!(resumed.fields["entourage.run.id"], paused.fields["entourage.run.id"]);
    assert_eq!(second.parent(&second.one("execute_tool look")).as_deref(), Some("invoke_agent scout"));
}

#[tokio::test(start_paused = true)]
async fn nothing_stays_open_after_a_thousand_runs() {
    let tape = Tape::default();
    let spans = Arc::new(tape.spans());
    #[derive(Debug)]
    struct Shared(Arc<Spans>);
    impl entourage_core::run::Observer for Shared {
        fn on_event(&self, event: &entourage_core::event::Envelope) {
            self.0.on_event(event);
        }
    }
    let runtime = Runtime::builder().policy(Policy::allow_all()).observer(Shared(Arc::clone(&spans))).build();
    let session = runtime.session();
    let mut provider = ScriptedProvider::new();
    for _ in 0..1_000 {
        provider = provider.text("Yes.");
    }
    let agent = agent("scout", &provider).build().unwrap();
    for _ in 0..1_000 {
        session.start(&agent, "Go").outcome().await.unwrap();
    }
    assert_eq!(format!("{spans:?}"), "Spans(0 runs open, content: false)");
    assert_eq!(tape.all().len(), 2_000);
    assert!(tape.all().iter().all(|it| it.closed));
}

#[tokio::test(start_paused = true)]
async fn without_a_subscriber_nothing_happens() {
    let provider = talk();
    let agent = agent("scout", &provider).tool(look()).build().unwrap();
    let outcome = runtime(Spans::new().with_content()).session().start(&agent, "Go").outcome().await.unwrap();
    assert!(outcome.is_completed());
}
