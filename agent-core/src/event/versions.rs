//! The version of stored events, and the names of version 0.1.

use serde_json::Value;

use super::record::{Kept, Recorded};
use crate::{Error, ErrorKind, Result};

/// Version of the stored form of events. A store written by a newer version is refused, never guessed at.
pub const FORMAT: u32 = 1;

/// Returns the kind that a kind of version 0.1 has now. Its rows hold the value alone, in the first version.
pub(super) fn renamed(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "phase_started" => "keep:checked.phase_started",
        "phase_finished" => "keep:checked.phase_finished",
        "graph_started" => "record:graph.started",
        "node_started" => "record:graph.node_started",
        "node_finished" => "record:graph.node_finished",
        "graph_changed" => "record:graph.changed",
        _ => return None,
    })
}

/// Reads the progress of a checked task in a checkpoint of version 0.1, which is kept as one value.
pub(crate) fn progress(task: &Value) -> Result<Kept> {
    let read = Recorded::stored("keep:checked.task", &format!(r#"{{"v":1,"value":{task}}}"#));
    read.unwrap_or_else(|| Err(Error::new(ErrorKind::Internal, "a kept value has no kind"))).map(Kept::Value)
}

/// Returns the error for what only a newer version can have written.
pub(super) fn newer(what: &str) -> Error {
    let text = format!("{what}; the session was written by a newer version of entourage, update to read it");
    Error::new(ErrorKind::NewerVersion, text)
}
