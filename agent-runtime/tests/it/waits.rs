//! Lasting effects: each is recorded before anything comes of it, so that changed code cannot take its place, and the
//! right code continues afterwards.

use std::{sync::Arc, time::Duration};

use entourage_core::{
    ErrorKind, Result, SessionId,
    agent::Agent,
    provider::Model,
    run::{Child, Outcome, RunContext, Status},
    session::{SessionFilter, SharedStore},
    tool::{Access, Tool, Tools},
};
use entourage_runtime::Runtime;
use entourage_runtime::permission::Policy;
use entourage_testkit::{self as testkit, FakeTool, Gate, Script, ScriptedProvider};
use serde_json::json;

use crate::common::{Do, act, agent, count, memory, process, stored};

#[derive(Debug, Clone, Copy, PartialEq)]
enum What {
    Signal(&'static str),
    Sleep(u64),
    Now,
    NewId,
    Spawn,
    WaitAny,
    Ask(&'static str),
    Tool(&'static str),
    Model,
}

const LASTING: [What; 7] = [
    What::Signal("go"),
    What::Sleep(1_000),
    What::WaitAny,
    What::Ask("worker"),
    What::Tool("write"),
    What::Tool("look"),
    What::Model,
];

const OTHERS: [What; 12] = [
    What::Signal("go"),
    What::Signal("other"),
    What::Sleep(1_000),
    What::Sleep(1),
    What::Now,
    What::NewId,
    What::Spawn,
    What::WaitAny,
    What::Ask("worker"),
    What::Tool("write"),
    What::Tool("look"),
    What::Model,
];

/// The models and tools of a life: they never answer, and count their calls.
#[derive(Clone)]
struct World {
    provider: Arc<ScriptedProvider>,
    tools: [FakeTool; 2],
}

impl World {
    fn new() -> Self {
        let gate = Gate::new();
        let never = |name: &str| FakeTool::new(name).behind(&gate);
        let script = Script::new().wait(&gate);
        Self {
            provider: Arc::new((0..9).fold(ScriptedProvider::by_history(), |it, _| it.step(script.clone()))),
            tools: [never("look"), never("write").access(Access::WRITE)],
        }
    }

    fn idle(&self) -> bool {
        self.provider.count() == 0 && self.tools.iter().all(|tool| tool.started() == 0)
    }

    fn model(&self) -> Model {
        self.provider.model()
    }

    async fn perform(&self, cx: &RunContext, what: What, children: &[Child]) -> Result<String> {
        let tools = Tools::new(self.tools.iter().map(|tool| Arc::new(tool.clone()) as Arc<dyn Tool>))?;
        let worker = || Arc::new(agent(self.model()).build().unwrap()) as Arc<dyn Agent>;
        Ok(match what {
            What::Signal(name) => cx.signal(name).await?.to_string(),
            What::Sleep(time) => cx.sleep(Duration::from_secs(time)).await.map(|()| "slept".into())?,
            What::Now => format!("{:?}", cx.now().await?),
            What::NewId => cx.new_id().await?,
            What::Spawn => cx.spawn(worker(), "Go").await?.session().to_string(),
            What::WaitAny => format!("{:?}", cx.wait_any(children, None).await?),
            What::Ask(role) => cx.ask(role, worker(), "Well?").await?.text,
            What::Tool(name) => cx.call_tool(&tools, name, &json!({})).await?.to_text(),
            What::Model => cx.call_model(&self.model(), self.model().request("Well?")).await?.message.text(),
        })
    }

    /// An agent with a paused child, which then does `what`. A `stubborn` one ignores errors.
    fn agent(&self, what: What, stubborn: bool) -> Do {
        let world = self.clone();
        act(move |cx| {
            let world = world.clone();
            Box::pin(async move {
                let waits = act(|cx| Box::pin(async move { Ok(cx.signal("never").await?.to_string()) }));
                let children = [cx.spawn(Arc::new(waits), "Wait").await?];
                let told = world.perform(cx, what, &children).await;
                if stubborn && told.is_err() {
                    drop(world.perform(cx, What::Tool("look"), &children).await);
                    drop(world.perform(cx, What::Model, &children).await);
                    drop(world.perform(cx, What::Spawn, &children).await);
                    return Ok("I did what I could.".into());
                }
                told
            })
        })
    }
}

fn work() -> SessionId {
    SessionId::new("work").unwrap()
}

fn runtime(store: &SharedStore) -> Runtime {
    let policy = Policy::allow_all().ask("write");
    testkit::runtime().policy(policy).shared_store(Arc::clone(store)).build()
}

/// The result of the run, if it ended.
async fn lived(run: entourage_runtime::RunHandle) -> Option<Result<Outcome>> {
    tokio::select! {
        ended = run.outcome() => Some(ended),
        () = tokio::time::sleep(Duration::from_millis(100)) => None,
    }
}

#[test]
fn what_lasts_is_on_record_before_other_code_can_take_its_place() {
    for what in LASTING {
        for stubborn in [false, true] {
            let store = memory();
            process(async {
                let world = World::new();
                lived(runtime(&store).session_with_id(work()).start(&world.agent(what, false), "Go")).await
            });
            let sessions = process(async { store.query(&SessionFilter::all()).await.unwrap().len() });
            // A question to another agent begins with the id of the run that answers it.
            let begins_so = |other: What| matches!((what, other), (What::Ask(_), What::NewId));
            for other in OTHERS.into_iter().filter(|other| *other != what && !begins_so(*other)) {
                let world = World::new();
                let ended = process(async {
                    let session = runtime(&store).session_with_id(work());
                    lived(session.resume(&world.agent(other, stubborn))).await
                });
                let error = ended.expect("it ends at once").unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Diverged, "{other:?} for {what:?}: {error}");
                assert!(world.idle(), "{other:?} for {what:?} did something");
                let now = process(async { store.query(&SessionFilter::all()).await.unwrap().len() });
                assert_eq!(now, sessions, "{other:?} for {what:?} began a session");
            }
            let world = World::new();
            let ended = process(async {
                let session = runtime(&store).session_with_id(work());
                lived(session.resume(&world.agent(what, false))).await
            });
            let goes_on = ended.is_none_or(|it| it.is_ok_and(|it| matches!(it.status, Status::Paused(_))));
            // A tool that may not be repeated is not.
            assert!(goes_on, "the right code goes on with {what:?}");
        }
    }
}

#[test]
fn a_signal_that_comes_after_wrong_code_was_tried_is_taken_by_the_right_one() {
    let store = memory();
    let waits = |name: &'static str| {
        act(move |cx| {
            Box::pin(async move { Ok(format!("{} {}", cx.signal(name).await?, cx.signal(name).await?)) })
        })
    };
    let resumed =
        |agent: Do| process(async { runtime(&store).session_with_id(work()).resume(&agent).outcome().await });
    process(async {
        let outcome =
            runtime(&store).session_with_id(work()).start(&waits("go"), "Go").outcome().await.unwrap();
        assert!(matches!(outcome.status, Status::Paused(_)));
    });
    for value in [1, 2] {
        assert!(matches!(resumed(waits("go")).unwrap().status, Status::Paused(_)), "not yet");
        assert_eq!(resumed(waits("stop")).unwrap_err().kind(), ErrorKind::Diverged);
        process(async {
            runtime(&store).open(&work()).await.unwrap().signal("go", json!(value)).await.unwrap();
        });
        assert_eq!(resumed(waits("stop")).unwrap_err().kind(), ErrorKind::Diverged);
    }
    assert_eq!(resumed(waits("go")).unwrap().text, "1 2");
    process(async {
        let events = stored(&store, &work()).await;
        assert_eq!((count(&events, "run_started"), count(&events, "run_finished")), (1, 1));
        let session = runtime(&store).open(&work()).await.unwrap();
        let run = events[0].origin.run;
        let replayed = session.replay(&waits("go"), run).await.unwrap();
        assert_eq!(replayed.text, "1 2", "its record is replayed, life by life");
    });
}

#[test]
fn a_run_by_hand_that_waited_for_leave_is_replayed() {
    let store = memory();
    let write = FakeTool::new("write").access(Access::WRITE).returning("written");
    let tools = Tools::new([Arc::new(write) as Arc<dyn Tool>]).unwrap();
    let doer = act(move |cx| {
        let tools = tools.clone();
        Box::pin(async move { Ok(cx.call_tool(&tools, "write", &json!({})).await?.to_text()) })
    });
    process(async {
        let runtime = runtime(&store);
        let session = runtime.session_with_id(work());
        let Status::Paused(entourage_core::run::Pause::Approval(id)) =
            session.start(&doer, "Go").outcome().await.unwrap().status
        else {
            panic!("it waits for leave");
        };
        assert!(matches!(session.resume(&doer).outcome().await.unwrap().status, Status::Paused(_)));
        runtime.decide(&id, entourage_core::permission::Decision::Allow).await.unwrap();
        assert_eq!(session.resume(&doer).outcome().await.unwrap().text, "written");
        let run = stored(&store, &work()).await[0].origin.run;
        assert_eq!(session.replay(&doer, run).await.unwrap().text, "written");
    });
}
