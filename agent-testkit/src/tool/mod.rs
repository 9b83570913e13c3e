//! The suite that every tool passes, yours included.
//!
//! Each call runs through a session, in a tree of files that the suite makes: the tool gets one directory of it, and
//! the rest are sentinels that no call may change. Links lead out of the directory, and each file holds words by which
//! its content is recognised in a result. Arguments come from the calls that the author gives and, changed in hostile
//! ways, from a seed: a failure names it with the arguments.
//!
//! | case | the tool keeps it if |
//! |---|---|
//! | `the_declarations_are_sound` | services take its name, and it has a description |
//! | `every_service_takes_the_schema` | its schema has only what all of them take |
//! | `declarations_and_footprints_are_stable` | they are the same each time, and asking for them changes nothing |
//! | `the_given_calls_succeed` | no call that the author gave is an error result |
//! | `no_arguments_cause_a_panic` | neither the call, nor its footprint or preview panics |
//! | `no_arguments_end_the_run` | a call of a model is never answered with a fatal error |
//! | `nothing_outside_is_changed` | the sentinels stay as they are |
//! | `the_footprint_covers_what_is_touched` | it names what was changed, and the files whose content is in a result;
//! skipped for a tool that names nothing |
//! | `a_preview_changes_nothing` | the tree is the same after it |
//! | `results_are_bounded` | text, files and metadata are within the default [`Limits`](entourage_core::run::Limits) |
//! | `errors_say_something` | an error result has text |
//! | `a_dropped_call_leaves_nothing_half_done` | each file is as before, or as the whole call leaves it |
//! | `a_cancel_ends_the_call_within_a_second` | its run is over by then |
//!
//! ```
//! use entourage_core::tool::Access;
//! use entourage_runners::from_fn::typed;
//! use entourage_testkit::tool::conformance;
//! use serde_json::json;
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Text {
//!     /// The text.
//!     text: String,
//! }
//!
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
//! let count = |Text { text }: Text| async move { Ok(text.chars().count()) };
//! let report = conformance("count", move |_| (typed("count", "Counts letters.", Access::NONE, count),))
//!     .call(json!({"text": "héllo"}))
//!     .run()
//!     .await;
//! report.assert();
//! # });
//! ```

mod bench;
mod cases;
mod dialect;
mod fuzz;
mod judge;
mod tree;

#[cfg(test)]
mod tests;

use std::{fmt, path::Path, sync::Arc};

use entourage_core::tool::Tool;
use entourage_runners::IntoTools;
use entourage_runtime::RuntimeBuilder;
use serde_json::Value;

use super::ConformanceReport;

/// Calls that are made with arguments from the seed, by default.
const CALLS: usize = 150;

/// Starts the suite for the tool `name` among those that `make` makes for a directory.
///
/// `make` is called often, each time with a directory of its own, in which alone the tool may change files. Make the
/// tool anew each time, with all that it keeps.
pub fn conformance<Form, I: IntoTools<Form>>(
    name: impl Into<String>,
    make: impl Fn(&Path) -> I + Send + Sync + 'static,
) -> Conformance {
    Conformance {
        name: name.into(),
        make: Box::new(move |directory| make(directory).into_tools().into_iter().collect()),
        runtime: Box::new(|builder| builder),
        before: Vec::new(),
        calls: Vec::new(),
        long: None,
        seed: 0,
        fuzzed: CALLS,
    }
}

/// Makes tools for a directory.
type Make = dyn Fn(&Path) -> Vec<Arc<dyn Tool>> + Send + Sync;

/// The suite for one tool, before it runs. Made by [`conformance`].
#[must_use = "a suite does nothing until `run`"]
pub struct Conformance {
    name: String,
    make: Box<Make>,
    runtime: Box<dyn Fn(RuntimeBuilder) -> RuntimeBuilder + Send + Sync>,
    before: Vec<(String, Value)>,
    calls: Vec<Value>,
    long: Option<Value>,
    seed: u64,
    fuzzed: usize,
}

impl Conformance {
    /// Name of the tool under test.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds the arguments of a call that succeeds. The directory has the text files `a.txt`, `src/lib.rs` and
    /// `src/deep/note.md`, of which each has two lines, and `big.txt` and `long.txt` of 300 KiB, in many lines and in
    /// one.
    pub fn call(mut self, arguments: Value) -> Self {
        self.calls.push(arguments);
        self
    }

    /// Adds the arguments of a call that takes longer than a second unless it is cancelled.
    pub fn long_call(mut self, arguments: Value) -> Self {
        self.long = Some(arguments);
        self
    }

    /// Adds a call of another tool, or of the same one, that comes before each call in its session.
    pub fn after(mut self, tool: impl Into<String>, arguments: Value) -> Self {
        self.before.push((tool.into(), arguments));
        self
    }

    /// Adds settings of the runtime in which the calls are made: values that the tool finds by type, for example.
    /// Replaces earlier ones.
    pub fn in_runtime(
        mut self,
        set: impl Fn(RuntimeBuilder) -> RuntimeBuilder + Send + Sync + 'static,
    ) -> Self {
        self.runtime = Box::new(set);
        self
    }

    /// Sets the seed of the arguments. Default: 0.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the number of calls with arguments from the seed. Default: 150.
    pub fn with_fuzzed_calls(mut self, calls: usize) -> Self {
        self.fuzzed = calls;
        self
    }

    /// Runs every case and reports the results.
    ///
    /// Needs a tokio runtime with everything enabled and real time. Makes files below the directory for temporary
    /// files, and removes them.
    ///
    /// # Panics
    /// If the tree cannot be made, or `make` gives no tool of that name.
    pub async fn run(self) -> ConformanceReport {
        cases::run(&self).await
    }
}

impl fmt::Debug for Conformance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conformance")
            .field("tool", &self.name)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}
