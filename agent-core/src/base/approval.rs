//! Ids of the questions that approvers are asked.

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

    /// The session that asks; `None` for text that is not such an id.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        let (place, _) = self.0.rsplit_once("$$")?;
        let (session, _) = place.rsplit_once('.')?;
        SessionId::new(session).ok()
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ApprovalId {
    fn from(id: &str) -> Self {
        Self(id.to_owned())
    }
}

impl fmt::Display for ApprovalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
