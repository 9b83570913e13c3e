//! Lists and trees of sessions, for stores without a database that sorts.

use std::collections::HashMap;

use entourage_core::{
    SessionId,
    session::{SessionFilter, SessionInfo, SessionRecord},
};

/// Returns a session and its descendants, parents before children.
pub(crate) fn below<'a>(
    records: impl Iterator<Item = &'a SessionRecord>,
    root: &SessionId,
) -> Vec<SessionId> {
    let mut children: HashMap<&SessionId, Vec<&SessionId>> = HashMap::new();
    for record in records {
        if let Some(parent) = &record.parent {
            children.entry(parent).or_default().push(&record.id);
        }
    }
    let (mut found, mut next) = (vec![root.clone()], 0);
    while let Some(id) = found.get(next) {
        // Each entry is taken once, so a cycle of parents ends.
        let below = children.remove(id).unwrap_or_default();
        found.extend(below.into_iter().filter(|id| *id != root).cloned());
        next += 1;
    }
    found
}

/// Sorts sessions in the order of lists and returns the page of `filter`. Only that page is cloned.
pub(crate) fn page<'a>(
    found: impl Iterator<Item = &'a SessionInfo>,
    filter: &SessionFilter,
) -> Vec<SessionInfo> {
    let mut found: Vec<&SessionInfo> = found.collect();
    found.sort_by(|a, b| b.head.updated.cmp(&a.head.updated).then_with(|| a.record.id.cmp(&b.record.id)));
    found.into_iter().skip(filter.offset).take(filter.limit.unwrap_or(usize::MAX)).cloned().collect()
}
