//! Digests by which recorded effects are compared, and the scope that an effect carries of its context.

use super::{Effect, ModelCall};
use crate::{Digest, permission::Scope, provider::Request};

impl Effect {
    /// Limits what runs by it to `scope`, so that a process that does not have the context knows.
    #[must_use]
    pub fn scoped(mut self, scope: &Scope) -> Self {
        let own = match &mut self {
            Self::Tools(calls) => &mut calls.scope,
            Self::Spawn(spawn) => &mut spawn.scope,
            Self::Delegate(delegate) => &mut delegate.spawn.scope,
            _ => return self,
        };
        if !scope.is_all() {
            *own = own.narrow(scope);
        }
        self
    }

    /// Returns the digest that earlier versions recorded for a model call: also over what its service gets unread.
    #[must_use]
    pub fn older_digest(&self) -> Option<Digest> {
        if let Self::Model(call) = self { Some(call.digest(&call.request)) } else { None }
    }

    /// Returns the digest by which a recorded effect is compared: over everything that decides what it does.
    pub(super) fn digest(&self) -> Digest {
        let text = |value: Result<String, serde_json::Error>| value.unwrap_or_default();
        match self {
            Self::Model(call) => call.digest(&call.request.told()),
            Self::Tools(calls) => {
                let calls = calls.message.tool_calls();
                let pieces =
                    calls.flat_map(|call| [call.name.as_bytes(), call.arguments.as_str().as_bytes()]);
                Digest::of(std::iter::once(b"tools".as_slice()).chain(pieces))
            }
            Self::Spawn(spawn) => Digest::of([
                if spawn.at_once { b"try_spawn".as_slice() } else { b"spawn" },
                spawn.agent.name().as_bytes(),
                text(serde_json::to_string(&*spawn.task.prompt)).as_bytes(),
                text(serde_json::to_string(&spawn.scope)).as_bytes(),
            ]),
            Self::Delegate(delegate) => Digest::of([
                b"delegate".as_slice(),
                delegate.child.as_str().as_bytes(),
                delegate.spawn.agent.name().as_bytes(),
                text(serde_json::to_string(&*delegate.spawn.task.prompt)).as_bytes(),
                text(serde_json::to_string(&delegate.spawn.scope)).as_bytes(),
            ]),
            Self::WaitAny { children, timeout } => {
                let timeout = format!("{timeout:?}");
                let names = children.iter().map(|child| child.as_str().as_bytes());
                Digest::of([b"wait".as_slice(), timeout.as_bytes()].into_iter().chain(names))
            }
            Self::Signal { name } => Digest::of([b"signal".as_slice(), name.as_bytes()]),
            Self::Sleep(time) => Digest::of([b"sleep".as_slice(), format!("{time:?}").as_bytes()]),
            Self::Now => Digest::of([b"now".as_slice()]),
            Self::NewId => Digest::of([b"id".as_slice()]),
            Self::Compact { .. } => Digest::of([b"compact".as_slice()]),
        }
    }
}

impl ModelCall {
    fn digest(&self, request: &Request) -> Digest {
        let text = serde_json::to_string(request).unwrap_or_default();
        Digest::of([b"model".as_slice(), self.model.provider().name().as_bytes(), text.as_bytes()])
    }
}
