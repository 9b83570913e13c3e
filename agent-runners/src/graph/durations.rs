//! Durations of nodes in earlier runs, from which the next run computes its critical path.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{GraphReport, NodeState};

/// Average duration of each node of a graph. Kept by the program between runs: it serializes.
///
/// ```
/// use std::time::Duration;
/// use entourage_runners::graph::Durations;
///
/// let mut durations = Durations::default();
/// durations.learn("tests", Duration::from_secs(10));
/// durations.learn("tests", Duration::from_secs(20));
/// assert_eq!(durations.expected("tests"), Some(Duration::from_secs(15)));
/// assert_eq!(durations.expected("review"), None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Durations(BTreeMap<Box<str>, Mean>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
struct Mean {
    /// Mean in µs.
    micros: u64,
    /// Number of samples.
    count: u32,
}

impl Durations {
    /// Creates an empty record.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that node `id` took `time`. Leave out attempts that failed or were stopped: they say little.
    pub fn learn(&mut self, id: &str, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        match self.0.get_mut(id) {
            Some(mean) => mean.take_in(micros),
            None => drop(self.0.insert(id.into(), Mean { micros, count: 1 })),
        }
    }

    /// Records a run: the duration of each completed node, all its attempts together. Other nodes and the items of maps
    /// are ignored.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// use entourage_runners::graph::{Durations, TaskGraph};
    ///
    /// let build = |durations: &Durations| {
    ///     let graph = TaskGraph::builder("report").durations(durations);
    ///     graph.step("sales", (), |()| async { Ok(3_u32) });
    ///     graph.build().unwrap()
    /// };
    /// let mut durations = Durations::new();
    /// let first = build(&durations).run("Go").await.unwrap();
    /// durations.learn_from(&first.report());
    /// assert!(durations.expected("sales").is_some());
    /// let _next = build(&durations);
    /// # });
    /// ```
    pub fn learn_from(&mut self, run: &GraphReport) {
        let done = run.nodes.iter().filter(|node| node.state() == NodeState::Completed);
        // An item is called `map[0]`, as no node can be.
        for node in done.filter(|node| !node.id.ends_with(']')) {
            self.learn(&node.id, node.time);
        }
    }

    /// Returns the average duration of node `id`; `None` when none was recorded.
    #[must_use]
    pub fn expected(&self, id: &str) -> Option<Duration> {
        self.0.get(id).map(|mean| Duration::from_micros(mean.micros))
    }

    /// True when nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Mean {
    fn take_in(&mut self, micros: u64) {
        self.count = self.count.saturating_add(1);
        let (old, new, count) = (i128::from(self.micros), i128::from(micros), i128::from(self.count));
        self.micros = u64::try_from(old + (new - old) / count.max(1)).unwrap_or(self.micros);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_learned_and_survives_being_stored() {
        let mut durations = Durations::new();
        assert!(durations.is_empty());
        for micros in [100, 200, 600] {
            durations.learn("a", Duration::from_micros(micros));
        }
        durations.learn("b", Duration::MAX);
        durations.learn("b", Duration::ZERO);
        let stored = serde_json::to_string(&durations).unwrap();
        let read: Durations = serde_json::from_str(&stored).unwrap();
        assert_eq!(read, durations);
        assert_eq!(read.expected("a"), Some(Duration::from_micros(300)));
        assert_eq!(read.expected("b"), Some(Duration::from_micros(u64::MAX / 2 + 1)));
        assert_eq!(read.expected("c"), None);
    }

    #[test]
    fn a_hand_written_mean_with_count_zero_is_usable() {
        let mut read: Durations =
            serde_json::from_str(r#"{"a":{"micros":7,"count":4294967295},"b":{}}"#).unwrap();
        read.learn("a", Duration::from_micros(7));
        read.learn("b", Duration::from_micros(5));
        assert_eq!(read.expected("a"), Some(Duration::from_micros(7)));
        assert_eq!(read.expected("b"), Some(Duration::from_micros(5)));
    }
}
