//! Ids of what is answered from outside: questions to approvers, and calls of tools.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Digest, RunId, SessionId};

/// Id of one question to an approver: the call's place, and a digest of its run, tool, schema, effective arguments and
/// footprint. A call whose footprint changed is another question.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ApprovalId(String);

impl ApprovalId {
    /// Id of the question `asked`, a digest, about one call. With `run`, a later session of the same id has other
    /// questions; `None` for a run of an older version.
    pub fn new(session: &SessionId, run: Option<RunId>, seq: u64, index: usize, asked: Digest) -> Self {
        let Some(run) = run else { return Self(format!("{session}.{seq}$${index}")) };
        let asked = asked.to_string();
        // So many digits that two questions share them only by chance.
        let of = [b"question".as_slice(), &run.as_u128().to_be_bytes(), asked.as_bytes()];
        let question = Digest::of(of).to_string();
        let question = question.get(..16).unwrap_or(&question);
        Self(format!("{session}.{seq}$${index}-{question}"))
    }

    /// The call that it is about: the part of the id that all questions about one call share.
    pub fn call(&self) -> &str {
        let parts = self.0.rsplit_once('-').filter(|(_, question)| !question.contains('$'));
        parts.map_or(&self.0, |(call, _)| call)
    }

    /// The session that asks; `None` for text that is not such an id.
    pub fn session(&self) -> Option<SessionId> {
        session_of(&self.0)
    }
}

/// Id of a tool call whose result comes from outside: its session, and its place there.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(String);

impl CallId {
    /// Id of the call with index `index` of what event `seq` of the session recorded, in a run.
    pub fn new(session: &SessionId, run: RunId, seq: u64, index: usize) -> Self {
        // The random half of the run's id. Plain SQL can make it, too.
        Self(format!("{session}.{seq}$${index}-{:016x}", run.as_u128() & u128::from(u64::MAX)))
    }

    /// The session of the call; `None` for text that is not such an id.
    pub fn session(&self) -> Option<SessionId> {
        session_of(&self.0)
    }
}

fn session_of(id: &str) -> Option<SessionId> {
    let (place, _) = id.rsplit_once("$$")?;
    let (session, _) = place.rsplit_once('.')?;
    SessionId::new(session).ok()
}

macro_rules! texts {
    ($($id:ident)*) => {
        $(
            impl $id {
                /// The id as text.
                pub fn as_str(&self) -> &str {
                    &self.0
                }
            }

            impl From<&str> for $id {
                fn from(id: &str) -> Self {
                    Self(id.to_owned())
                }
            }

            impl fmt::Display for $id {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(&self.0)
                }
            }
        )*
    };
}

texts!(ApprovalId CallId);
