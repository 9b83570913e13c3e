//! One tool, bare and behind every kind of layer in every place: whatever the tool does, the same is recorded, shown,
//! told and asked.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use entourage_core::{
    ErrorKind, Result, SessionId,
    event::Envelope,
    message::{Media, MediaSource},
    permission::{ApprovalRequest, Approver, Decision},
    run::{Outcome, Pause, RunContext, Status},
    session::{SessionFilter, SharedStore},
    tool::{
        Access, Footprint, LayerVerdict, NextCall, Repeat, Tool, ToolContext, ToolError, ToolInput,
        ToolLayer, ToolOutput, ToolSpec, Tools,
    },
};
use entourage_runners::{AgentTool, ReactAgent, ToolsetExt, external, layered};
use entourage_runtime::permission::Policy;
use entourage_runtime::{RunHandle, Runtime};
use entourage_testkit::{self as testkit, FakeTool, Gate, ScriptedProvider};
use serde_json::{Value, json};

use crate::common::{agent, assert_valid, memory, process, stored, until_killed};

/// A layer that leaves everything to the defaults.
#[derive(Debug, Clone, Copy)]
struct Idle;

impl ToolLayer for Idle {}

/// A layer that writes equal arguments in the place of the call's.
#[derive(Debug, Clone, Copy)]
struct Equal;

#[async_trait]
impl ToolLayer for Equal {
    async fn before(&self, _: &ToolSpec, arguments: &mut Value, _: &RunContext) -> Result<LayerVerdict> {
        // The order of the fields is another one.
        if let Value::Object(fields) = std::mem::take(arguments) {
            *arguments = Value::Object(fields.into_iter().rev().collect());
        }
        Ok(LayerVerdict::Pass)
    }
}

/// A layer that runs the call after other work, and passes its result on.
#[derive(Debug, Clone, Copy)]
struct Around;

#[async_trait]
impl ToolLayer for Around {
    async fn around(&self, next: NextCall<'_>) -> Result<ToolOutput, ToolError> {
        tokio::task::yield_now().await;
        let output = next.run().await?;
        tokio::task::yield_now().await;
        Ok(output)
    }
}

/// A layer that loses what is meant for programs.
#[derive(Debug, Clone, Copy)]
struct Meddler;

#[async_trait]
impl ToolLayer for Meddler {
    async fn around(&self, next: NextCall<'_>) -> Result<ToolOutput, ToolError> {
        let mut output = next.run().await?;
        output.metadata = None;
        Ok(output)
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    Runtime,
    Tool,
    Set,
    /// One layer in each of the places.
    Everywhere,
}

/// The layers of one run of the suite: none, or some in a place, the outermost first.
#[derive(Debug, Clone)]
struct Layers(Place, Vec<Arc<dyn ToolLayer>>);

impl Layers {
    fn all() -> Vec<Self> {
        let three: [Arc<dyn ToolLayer>; 3] = [Arc::new(Idle), Arc::new(Equal), Arc::new(Around)];
        let kinds: Vec<Vec<_>> =
            three.iter().map(|one| vec![Arc::clone(one)]).chain([three.to_vec()]).collect();
        let places = [Place::Runtime, Place::Tool, Place::Set];
        let all =
            places.into_iter().flat_map(|place| kinds.iter().map(move |kind| Self(place, kind.clone())));
        all.chain([Self(Place::Everywhere, three.to_vec())]).collect()
    }

    fn none() -> Self {
        Self(Place::Runtime, Vec::new())
    }

    fn at(&self, place: Place) -> Vec<Arc<dyn ToolLayer>> {
        match (self.0, place) {
            (Place::Everywhere, Place::Runtime) => self.1[..1].to_vec(),
            (Place::Everywhere, Place::Set) => self.1[1..2].to_vec(),
            (Place::Everywhere, Place::Tool) => self.1[2..].to_vec(),
            (is, place) if is == place => self.1.clone(),
            _ => Vec::new(),
        }
    }

    fn tools(&self, tool: Arc<dyn Tool>) -> Tools {
        let inside = self.at(Place::Tool).into_iter().rev();
        let tool = inside.fold(tool, |tool, layer| Arc::new(layered(tool, layer)));
        let set = Tools::new([tool]).unwrap();
        self.at(Place::Set).into_iter().rev().fold(set, ToolsetExt::layered)
    }

    fn runtime(&self, case: &Case, store: &SharedStore, approver: &Notes) -> Runtime {
        let runtime = testkit::runtime().shared_store(Arc::clone(store)).policy(case.policy.clone());
        let runtime = runtime.approver(approver.clone());
        self.at(Place::Runtime).into_iter().fold(runtime, |runtime, layer| runtime.tool_layer(layer)).build()
    }
}

/// What the tool and the approver saw. The approver allows, or gives the arguments of `edit`.
#[derive(Debug, Clone, Default)]
struct Notes {
    all: Arc<Mutex<Vec<String>>>,
    /// The keys of calls, which are random: a note has the place of its key here.
    keys: Arc<Mutex<Vec<String>>>,
    edit: Option<Value>,
}

impl Notes {
    fn add(&self, note: String) {
        self.all.lock().unwrap().push(without_ids(&note));
    }

    fn key(&self, key: String) -> usize {
        let mut keys = self.keys.lock().unwrap();
        keys.iter().position(|known| *known == key).unwrap_or_else(|| {
            keys.push(key);
            keys.len() - 1
        })
    }
}

#[async_trait]
impl Approver for Notes {
    async fn decide(&self, request: &ApprovalRequest) -> Result<Decision> {
        self.add(format!("asked about {} by {:?}", request.arguments.as_str(), request.rule));
        self.edit.as_ref().map_or(Ok(Decision::Allow), Decision::edit)
    }
}

/// A tool that notes all that it is given, and then does as the tool inside it does.
struct Noting<T>(T, Notes);

#[async_trait]
impl<T: Tool> Tool for Noting<T> {
    fn spec(&self) -> &ToolSpec {
        self.0.spec()
    }

    fn footprint(&self, arguments: &Value) -> Footprint {
        match arguments.get("path").and_then(Value::as_str) {
            Some(path) => Footprint::new(self.0.spec().access()).writing(path),
            None => self.0.footprint(arguments),
        }
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let (key, at) = (self.1.key(cx.idempotency_key()), cx.footprint());
        self.1.add(format!("called with {} as {}, key {key}: {at:?}", input.arguments, cx.call_id()));
        cx.progress("working");
        let mut left = Left(&self.1, false);
        let output = self.0.call(input, cx).await;
        left.1 = true;
        self.1.add(format!("gives {output:?}"));
        output
    }
}

/// Notes that a call was dropped before it ended.
struct Left<'a>(&'a Notes, bool);

impl Drop for Left<'_> {
    fn drop(&mut self) {
        if !self.1 {
            self.0.add("dropped".to_owned());
        }
    }
}

/// The end of a case.
#[derive(Debug, Clone)]
enum End {
    /// The run comes to its end.
    Run,
    /// The run is cancelled while the tool runs.
    Cancel(Gate),
    /// The process dies while the tool runs, and the run is resumed.
    Crash(Gate),
    /// The result comes from outside, and the run is resumed.
    Outside,
}

type MakeTool = Arc<dyn Fn(&Notes) -> Arc<dyn Tool>>;

struct Case {
    name: &'static str,
    /// Part of what is seen, so that the case is what its name says.
    shows: &'static str,
    tool: MakeTool,
    policy: Policy,
    edit: Option<Value>,
    end: End,
    /// The model's replies: the calls of the tool, then text.
    calls: Vec<Value>,
}

fn case<T: Tool + 'static>(name: &'static str, shows: &'static str, tool: impl Fn() -> T + 'static) -> Case {
    let tool = move |notes: &Notes| Arc::new(Noting(tool(), notes.clone())) as Arc<dyn Tool>;
    let calls = vec![json!({"path": "a", "more": [1, {"b": 2}]})];
    Case { name, shows, tool: Arc::new(tool), policy: Policy::allow_all(), edit: None, end: End::Run, calls }
}

fn write() -> FakeTool {
    FakeTool::new("act").access(Access::WRITE)
}

/// A tool that names what it touches, as [`Noting`] says.
fn naming() -> impl Tool {
    struct Naming(ToolSpec);
    #[async_trait]
    impl Tool for Naming {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }
        async fn call(&self, _: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
            let admission = cx.admission();
            let may = |path: &str| admission.reading(path);
            Ok(ToolOutput::text(format!("a: {:?}, secret/b: {:?}", may("a"), may("secret/b"))))
        }
    }
    let spec = ToolSpec::new("act", "Acts.", json!({"type": "object"})).with_access(Access::WRITE);
    Naming(spec.naming_subjects())
}

fn cases() -> Vec<Case> {
    let out =
        ToolOutput::text("seen").with_media(Media::new("image/png", MediaSource::Base64("AQID".into())));
    let full = out.with_metadata(json!({"lines": [1, 2]}));
    let paths = |paths: &[&str]| paths.iter().map(|path| json!({"path": path})).collect::<Vec<_>>();
    let rules = || Policy::allow_all().deny("act:secret/*").ask("act:doubtful/*");
    let gates = [Gate::new(), Gate::new(), Gate::new(), Gate::new()];
    let behind = |at: usize| gates[at].clone();
    let hanging = |at: usize, repeat| {
        let gate = behind(at);
        move || write().repeat(repeat).behind(&gate)
    };
    vec![
        case("a whole output", "metadata: Some(", move || write().giving(full.clone())),
        case("an error output", "is_error: true", || {
            write().giving(ToolOutput::error("no such file").with_metadata(json!(1)))
        }),
        case("an error told", "look with `list`", || write().telling("no such file; look with `list`")),
        case("a fatal error", "Failed(", || write().failing(ErrorKind::Store, "the disk is full")),
        case("a panic", "an index out of range", || write().panicking("an index out of range")),
        case("a tool that stops the run", "stop_turn: true", || {
            write().giving(ToolOutput::text("enough").stopping())
        }),
        case("a time limit", "longer than 3 s", || {
            write().timeout(std::time::Duration::from_secs(3)).hanging()
        }),
        case("arguments that do not fit", "`text`", || write().requiring(&["text"])),
        Case { end: End::Cancel(behind(0)), ..case("a cancel", "\"dropped\"", hanging(0, Repeat::Once)) },
        Case {
            end: End::Crash(behind(1)),
            ..case("a crash in a call that may not repeat", "outcome is unknown", hanging(1, Repeat::Once))
        },
        Case {
            end: End::Crash(behind(2)),
            ..case("a crash in a call that may", "gives Ok", hanging(2, Repeat::Idempotent))
        },
        Case {
            policy: rules(),
            calls: paths(&["a", "doubtful/c", "../x", "secret/b"]),
            ..case("rules on what it touches", "a: Allow, secret/b: Deny", naming)
        },
        Case {
            policy: Policy::new().ask("act"),
            edit: Some(json!({"path": "b"})),
            ..case("arguments of an approver", "edited: Some", naming)
        },
        Case { policy: Policy::new(), ..case("a call that no rule allows", "asked about", write) },
        Case {
            end: End::Outside,
            ..case("a result from outside", "clicked", || {
                external(ToolSpec::new("act", "Acts.", json!({"type": "object"})).with_access(Access::WRITE))
            })
        },
        Case {
            calls: vec![json!({"prompt": "Look."})],
            ..case("an agent as a tool", "I looked.", || {
                let model = ScriptedProvider::by_history().text("I looked.").model();
                AgentTool::new(ReactAgent::builder("below", model).build().unwrap()).with_name("act")
            })
        },
    ]
}

/// All that can be seen of a case, without what is random.
#[derive(Debug, PartialEq, Default)]
struct Seen {
    outcomes: Vec<String>,
    stored: Vec<String>,
    shown: Vec<String>,
    noted: Vec<String>,
    told: Vec<String>,
}

/// Replaces random ids: those of runs and requests, and the ends of those of questions.
fn without_ids(text: &str) -> String {
    let of_question = |word: &str| word.rsplit_once('-').is_some_and(|(_, end)| end.len() == 16);
    let is_id = |word: &str| word.len() == 36 && word.matches('-').count() == 4 || of_question(word);
    let parts = text.split_inclusive(|c: char| !c.is_ascii_hexdigit() && c != '-');
    let plain = parts.map(|part| {
        let word = part.trim_end_matches(|c: char| !c.is_ascii_hexdigit() && c != '-');
        if is_id(word) { part.replace(word, "ID") } else { part.to_owned() }
    });
    plain.collect()
}

fn plain(events: &[Envelope]) -> Vec<String> {
    let text = |event: &Envelope| format!("{} {} {:?}", event.seq, event.at.as_micros(), event.event);
    events.iter().map(|event| without_ids(&text(event))).collect()
}

async fn followed(run: &mut RunHandle, seen: &mut Seen) {
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        events.push(event);
    }
    seen.shown.extend(plain(&events));
}

/// Takes in the end of a life of the run.
async fn ended(mut run: RunHandle, seen: &mut Seen) -> Result<Outcome> {
    followed(&mut run, seen).await;
    let ended = run.outcome().await;
    seen.outcomes.push(without_ids(&format!("{ended:?}")));
    ended
}

fn assert_same(what: &str, seen: Seen, bare: &Seen) {
    let parts = [
        (&seen.outcomes, &bare.outcomes),
        (&seen.noted, &bare.noted),
        (&seen.stored, &bare.stored),
        (&seen.shown, &bare.shown),
        (&seen.told, &bare.told),
    ];
    for (seen, bare) in parts {
        for (seen, bare) in seen.iter().zip(bare) {
            assert_eq!(seen, bare, "{what}");
        }
        assert_eq!(seen.len(), bare.len(), "{what}");
    }
}

/// Runs one case inside `layers`.
fn seen(case: &Case, layers: &Layers) -> Seen {
    let (mut seen, store) = (Seen::default(), memory());
    let notes = Notes { edit: case.edit.clone(), ..Notes::default() };
    let calls = case.calls.iter().cloned();
    let provider =
        calls.fold(ScriptedProvider::by_history(), |all, call| all.call("act", call)).text("Done.");
    let id = SessionId::new("work").unwrap();
    let world = || {
        let runtime = layers.runtime(case, &store, &notes);
        let agent = agent(provider.model()).tools(layers.tools((case.tool)(&notes)).iter().cloned());
        (runtime, agent.build().unwrap())
    };
    process(async {
        let (runtime, agent) = world();
        let session = runtime.session_with_id(id.clone());
        let run = session.start(&agent, "Go");
        match &case.end {
            End::Run => drop(ended(run, &mut seen).await),
            End::Cancel(gate) => {
                let cancel = run.cancellation();
                let stop = async {
                    gate.arrived(1).await;
                    cancel.cancel();
                };
                let _ = tokio::join!(ended(run, &mut seen), stop);
            }
            End::Crash(gate) => {
                let mut lost = Seen::default();
                let ended = until_killed(ended(run, &mut lost), gate).await;
                assert!(ended.is_none(), "{ended:?}");
            }
            End::Outside => {
                let outcome = ended(run, &mut seen).await.unwrap();
                let Status::Paused(Pause::Call(call)) = outcome.status else { panic!("{outcome}") };
                runtime.answer(&call, ToolOutput::text("clicked").with_metadata(json!(7))).await.unwrap();
                drop(ended(session.resume(&agent), &mut seen).await);
            }
        }
    });
    process(async {
        let (runtime, agent) = world();
        let session = runtime.open(&id).await.unwrap();
        if let End::Crash(gate) = &case.end {
            gate.open();
            drop(ended(session.resume(&agent), &mut seen).await);
        }
        assert_valid(&session.history().await.unwrap());
        for session in store.query(&SessionFilter::default()).await.unwrap() {
            seen.stored.extend(plain(&stored(&store, &session.record.id).await));
        }
    });
    seen.noted = notes.all.lock().unwrap().clone();
    seen.told = provider.requests().iter().map(|request| format!("{:?}", request.messages)).collect();
    seen
}

#[test]
fn issue_13_whatever_a_tool_does_is_the_same_behind_every_layer_that_passes_it_on() {
    let all = Layers::all();
    assert_eq!(all.len(), 13);
    // Gates open for good, so each run gets cases of its own.
    let bare: Vec<_> = cases().iter().map(|case| seen(case, &Layers::none())).collect();
    for (case, bare) in cases().iter().zip(&bare) {
        assert!(format!("{bare:?}").contains(case.shows), "{}: {bare:?}", case.name);
    }
    // A layer that does not pass a result on as it is makes a difference.
    let meddler = Layers(Place::Tool, vec![Arc::new(Meddler)]);
    assert_ne!(seen(&cases()[0], &meddler), bare[0]);
    for layers in all {
        for (case, bare) in cases().iter().zip(&bare) {
            assert_same(&format!("{}, {layers:?}", case.name), seen(case, &layers), bare);
        }
    }
}
