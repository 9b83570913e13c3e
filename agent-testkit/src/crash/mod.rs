//! The crash suite: kills work at every possible point, and checks that the process that continues loses nothing and
//! repeats nothing.
//!
//! It runs your own agents, tools and store as well as the built-in ones. A [`Scenario`] is work that any process can
//! continue; a [`Medium`] is where its sessions live; [`run`] kills it once at each point:
//!
//! ```
//! use entourage_runners::ReactAgent;
//! use entourage_testkit::{FakeTool, ScriptedProvider, crash::{self, Medium, Scenario}};
//! use serde_json::json;
//!
//! let scenario = Scenario::new("look", |life| {
//!     // Found by history: a reply that was cut off is asked for again.
//!     let provider = ScriptedProvider::by_history().call("look", json!({})).text("A tree.");
//!     ReactAgent::builder("scout", life.model(&provider.model())).tool(life.tool(FakeTool::new("look"))).build()
//! });
//! let report = crash::run(&scenario.prompt("What is there?"), &Medium::memory());
//! println!("{report}");
//! report.assert();
//! ```
//!
//! The invariants (see [`judge`]): no completed effect is repeated; no event is lost or doubled; the answer is that of
//! an undisturbed run; every checkpoint is the fold before it; every run replays to its outcome; a tool that may not
//! be repeated runs once, and where it was cut, the model is told that its outcome is unknown.
//!
//! A program that kills real processes builds on [`Life`], [`Witness`] and [`Scenario::step`], and lets [`judge`]
//! decide.

mod judge;
mod life;
mod medium;
mod scenario;
mod seams;
mod suite;
mod tree;

pub use judge::{Expected, Faults, judge};
pub use life::{Life, Note, Witness};
pub use medium::{Medium, Place};
pub use scenario::{DriveContext, DriveStep, Scenario};
pub use suite::{CrashReport, Random, expected, run, sample};
pub use tree::{Log, Tree};

/// Phrase in the result of a call whose process died while it ran.
pub const UNKNOWN: &str = "outcome is unknown";
