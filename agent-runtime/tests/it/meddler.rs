//! An engine of which a test says what it does with each effect.

use std::{
    any::{Any, TypeId},
    fmt,
    sync::Arc,
};

use entourage_core::{
    Result, Timestamp,
    agent::{Agent, AgentPart},
    event::{EffectKey, Event, Origin, Recorded},
    message::Message,
    run::{Effect, Effects, Observation, Outcome, Performing, RunContext, Task},
    session::SessionState,
    team::Todo,
    tool::{Tool, Tools},
};
use entourage_runtime::permission::Policy;
use entourage_runtime::{
    Agents, RuntimeBuilder,
    engine::{Code, Engine, PartName},
};
use entourage_testkit::{self as testkit, FakeTool};
use futures_util::future::BoxFuture;

type Hook = dyn Fn(RunContext, Option<EffectKey>, Effect, Arc<dyn Effects>) -> BoxFuture<'static, Result<Observation>>
    + Send
    + Sync;

/// An engine that does with each effect what a test says, and passes on everything else.
#[derive(Clone)]
pub(crate) struct Meddler(Arc<Hook>);

impl Meddler {
    pub(crate) fn new(
        hook: impl Fn(
            RunContext,
            Option<EffectKey>,
            Effect,
            Arc<dyn Effects>,
        ) -> BoxFuture<'static, Result<Observation>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self(Arc::new(hook))
    }
}

impl fmt::Debug for Meddler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meddler")
    }
}

impl Engine for Meddler {
    fn effects(&self, _: &Origin, local: Arc<dyn Effects>) -> Arc<dyn Effects> {
        Arc::new(Meddling { hook: Arc::clone(&self.0), local })
    }
}

struct Meddling {
    hook: Arc<Hook>,
    local: Arc<dyn Effects>,
}

impl fmt::Debug for Meddling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meddling")
    }
}

impl Effects for Meddling {
    fn perform<'a>(
        &'a self,
        cx: &'a RunContext,
        key: Option<EffectKey>,
        effect: Effect,
    ) -> Performing<'a, Observation> {
        (self.hook)(cx.clone(), key, effect, Arc::clone(&self.local))
    }

    fn append(
        &self,
        cx: &RunContext,
        key: Option<EffectKey>,
        make: &mut dyn FnMut(&SessionState, u64) -> Result<Recorded>,
    ) -> Result<()> {
        self.local.append(cx, key, make)
    }

    fn commit<'a>(&'a self, cx: &'a RunContext) -> Performing<'a, ()> {
        self.local.commit(cx)
    }

    fn steer<'a>(&'a self, cx: &'a RunContext) -> Performing<'a, ()> {
        self.local.steer(cx)
    }

    fn remind(&self, cx: &RunContext, message: Arc<Message>) -> Result<()> {
        self.local.remind(cx, message)
    }

    fn read(&self, read: &mut dyn FnMut(&SessionState)) {
        self.local.read(read);
    }

    fn recorded(&self) -> Arc<[Event]> {
        self.local.recorded()
    }

    fn replayed<'a>(&'a self, cx: &'a RunContext) -> Performing<'a, Vec<Recorded>> {
        self.local.replayed(cx)
    }

    fn todos(&self) -> Vec<Todo> {
        self.local.todos()
    }

    fn set_todos<'a>(&'a self, cx: &'a RunContext, todos: Vec<Todo>) -> Performing<'a, ()> {
        self.local.set_todos(cx, todos)
    }

    fn dep(&self, of: TypeId) -> Option<Arc<dyn Any + Send + Sync>> {
        self.local.dep(of)
    }

    fn time(&self) -> Timestamp {
        self.local.time()
    }

    fn check(&self) -> Result<()> {
        self.local.check()
    }

    fn is_pausing(&self) -> bool {
        self.local.is_pausing()
    }

    fn has_readers(&self) -> bool {
        self.local.has_readers()
    }

    fn is_stored(&self) -> bool {
        self.local.is_stored()
    }

    fn sub_agents(&self) -> usize {
        self.local.sub_agents()
    }

    fn show(&self, cx: &RunContext, shown: Event) {
        self.local.show(cx, shown);
    }
}

pub(crate) fn open() -> RuntimeBuilder {
    testkit::runtime().policy(Policy::allow_all())
}

pub(crate) fn set(tool: &FakeTool) -> Tools {
    Tools::new([Arc::new(tool.clone()) as Arc<dyn Tool>]).unwrap()
}

pub(crate) fn code(parts: Vec<AgentPart>) -> Code {
    #[derive(Clone)]
    struct Boss(Vec<AgentPart>);
    #[async_trait::async_trait]
    impl Agent for Boss {
        fn name(&self) -> &'static str {
            "boss"
        }

        fn parts(&self) -> Vec<AgentPart> {
            self.0.clone()
        }

        async fn run(&self, _: Task, _: &RunContext) -> Result<Outcome> {
            Ok(Outcome::completed(""))
        }
    }
    Code::new(Agents::new().with(Boss(parts)), [PartName::new("boss")])
}
