//! Kinds of records under the names that version 0.1 stored them by.

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
