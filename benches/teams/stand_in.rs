//! The stand-ins of both sides: models that answer by the request alone, and agents that do nothing.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Result,
    agent::Agent,
    message::Role,
    provider::{CallContext, Delta, DeltaStream, FinishReason, Model, Provider, Request},
    run::{Outcome, RunContext, Task},
};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

/// A reply of a model.
pub(crate) enum Said {
    Text(String),
    Calls(Vec<(&'static str, Value)>),
}

struct StandIn<F> {
    delay: Duration,
    says: F,
}

impl<F> fmt::Debug for StandIn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StandIn").field("delay", &self.delay).finish_non_exhaustive()
    }
}

pub(crate) async fn pass(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

#[async_trait]
impl<F: Fn(&Request) -> Said + Send + Sync> Provider for StandIn<F> {
    fn name(&self) -> &str {
        "bench"
    }

    async fn stream(&self, request: Request, _: &CallContext) -> Result<DeltaStream> {
        pass(self.delay).await;
        let deltas = match (self.says)(&request) {
            Said::Text(text) => vec![Delta::Text(text.into()), Delta::Finish(FinishReason::Stop.into())],
            Said::Calls(calls) => {
                let call = |(index, (name, arguments)): (u32, (&str, Value))| {
                    [
                        Delta::tool_call(index, format!("call{index}"), name),
                        Delta::arguments(index, arguments.to_string()),
                    ]
                };
                let calls = (0..).zip(calls).flat_map(call);
                calls.chain([Delta::Finish(FinishReason::ToolCalls.into())]).collect()
            }
        };
        Ok(stream::iter(deltas.into_iter().map(Ok)).boxed())
    }
}

/// A model that takes so long for each reply.
pub(crate) fn model(delay: Duration, says: impl Fn(&Request) -> Said + Send + Sync + 'static) -> Model {
    Model::new(Arc::new(StandIn { delay, says }), "bench")
}

/// A lead: the first user message of its conversation asks for the plan, a later one for the answer.
pub(crate) fn lead(delay: Duration, plan: &str) -> Model {
    let plan = plan.to_owned();
    model(delay, move |request| {
        let asked = request.messages.iter().filter(|message| message.role() == Role::User).count();
        Said::Text(if asked == 1 { plan.clone() } else { "Done.".to_owned() })
    })
}

/// An item of a plan.
pub(crate) fn item(id: &str, kind: &str, member: Option<&str>, after: &[String]) -> Value {
    json!({ "id": id, "task": "Do it.", "type": kind, "member": member, "after": after })
}

pub(crate) fn plan(items: &[Value]) -> String {
    json!({ "items": items }).to_string()
}

/// An agent that does nothing.
#[derive(Clone)]
pub(crate) struct Idle(pub(crate) String);

#[async_trait]
impl Agent for Idle {
    fn name(&self) -> &str {
        &self.0
    }

    async fn run(&self, _: Task, _: &RunContext) -> Result<Outcome> {
        Ok(Outcome::completed("done"))
    }
}
