//! Division of the staged events into parts that one append can take. Pure.

use std::collections::VecDeque;

use entourage_core::{
    Result,
    bound::value,
    event::{Event, Recorded},
    message::json_bytes,
    session::SessionHead,
};

use crate::session::journal::weight::{result_weight, weight};

/// The bounds between appends. Events that are staged together need not be stored together: each says what happened by
/// itself.
#[derive(Debug)]
pub(super) struct Parts {
    /// Bytes of texts and files in one part; only a part of one event may have more.
    most: usize,
    /// Session heads after each part but the last.
    ends: VecDeque<SessionHead>,
    /// Bytes of the last part.
    bytes: usize,
}

impl Parts {
    /// Creates the parts for a store that takes batches of at most `largest` bytes. JSON may make six bytes of one.
    pub(super) fn new(largest: usize) -> Self {
        Self { most: largest / 6, ends: VecDeque::new(), bytes: 0 }
    }

    /// Adds an event of `bytes` that is staged at the head `before`. It is the first one unless it `follows` others.
    pub(super) fn add(&mut self, bytes: usize, before: &SessionHead, follows: bool) {
        if !follows {
            self.bytes = 0;
        } else if bytes > self.most.saturating_sub(self.bytes) {
            self.ends.push_back(before.clone());
            self.bytes = 0;
        }
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Returns the number of staged events in the next part, which begins after event `committed`, and the head after
    /// them. Without a head, the next part is all that is left.
    pub(super) fn next(&self, committed: u64) -> (usize, Option<SessionHead>) {
        match self.ends.front() {
            Some(head) => {
                let count = usize::try_from(head.seq.saturating_sub(committed)).unwrap_or(usize::MAX);
                (count, Some(head.clone()))
            }
            None => (usize::MAX, None),
        }
    }

    /// Forgets the parts up to event `committed`, which are stored.
    pub(super) fn stored(&mut self, committed: u64) {
        while self.ends.front().is_some_and(|head| head.seq <= committed) {
            self.ends.pop_front();
        }
    }
}

/// Bytes of an event beside its texts and files.
const BASE: usize = 256;

/// Approximate bytes of a record.
///
/// # Errors
/// The error of a value that cannot be stored.
pub(super) fn weighed(record: &Recorded) -> Result<usize> {
    Ok(record.weigh()?.saturating_add(BASE))
}

/// Approximate bytes of an event's texts and files.
pub(super) fn size(event: &Event) -> usize {
    match event {
        Event::RunStarted(it) => weight(&it.prompt),
        Event::PromptQueued(it) => weight(&it.prompt),
        Event::MessageAdded(it) => weight(&it.message),
        Event::ModelFinished(it) => weight(&it.message),
        Event::Compacted(it) => weight(&it.summary),
        Event::ToolFinished(it) => result_weight(&it.result).saturating_add(it.metadata.as_ref().map_or(0, value)),
        Event::ApprovalRequested(it) => it.arguments.as_str().len(),
        Event::SignalReceived(it) => value(&it.value),
        Event::Observed(it) => value(&it.value),
        Event::ModelStarted(it) => it.contents.iter().flatten().map(|(_, text)| text.len()).sum(),
        Event::RunFinished(it) => it.outcome.text.len(),
        Event::ChildFinished(it) => it.outcome.as_ref().map_or(0, |outcome| outcome.text.len()),
        Event::Recorded(it) => it.weigh().unwrap_or_default(),
        Event::TodosChanged(it) => json_bytes(&it.todos, usize::MAX),
        // Words, names and texts that are always short.
        Event::RunResumed(_)
        | Event::ModelRestarted(_)
        | Event::ToolStarted(_)
        | Event::ApprovalDecided(_)
        | Event::ChildStarted(_)
        | Event::WaitStarted(_)
        | Event::PromptDropped(_)
        | Event::CompactionStarted(_)
        | Event::CompactionFailed(_)
        | Event::OutputsCleared(_)
        | Event::LabelsAdded(_)
        | Event::Titled(_)
        | Event::ModeChanged(_)
        | Event::WarningRaised(_)
        | Event::RunPaused(_)
        | Event::Delta(_)
        | Event::Progress(_)
        // Counted by who makes it.
        | Event::Checkpoint(_) => 0,
        // A kind that is not listed counts as it is stored.
        other => other.to_json().map_or(0, |body| body.len()),
    }
    .saturating_add(BASE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(seq: u64) -> SessionHead {
        let mut head = SessionHead::default();
        head.seq = seq;
        head
    }

    #[test]
    fn what_is_too_much_for_one_append_is_cut_before_the_event_that_is() {
        let mut parts = Parts::new(600);
        // Events 8 to 12 after event 7.
        for (seq, bytes) in [(8, 60), (9, 40), (10, 1), (11, 500), (12, 1)] {
            parts.add(bytes, &head(seq - 1), seq > 8);
        }
        for (committed, count, end) in
            [(7, 2, Some(9)), (9, 1, Some(10)), (10, 1, Some(11)), (11, usize::MAX, None)]
        {
            let (taken, head) = parts.next(committed);
            assert_eq!((taken, head.map(|head| head.seq)), (count, end));
            parts.stored(end.unwrap_or(12));
        }
        // Events that are staged while the last part is stored count as more of it.
        parts.add(99, &head(12), false);
        assert_eq!(parts.next(12), (usize::MAX, None));
    }
}
