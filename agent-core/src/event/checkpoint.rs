//! The event that holds the folded state of a session.

use serde::{Deserialize, Serialize};

use super::payload::{Forked, payload};
use crate::session::SessionState;

payload! {
    /// Snapshot of the fold of all events before this one. Reading a session begins at its newest checkpoint.
    Checkpoint {
        /// State of the session at this point.
        state: SessionState,
        /// Origin of the session, if it is a fork and this is its first event.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        forked: Option<Forked>,
        /// True if this is the first event, and the program gave the conversation in the state: nothing ran before.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        given: bool,
    }
}
