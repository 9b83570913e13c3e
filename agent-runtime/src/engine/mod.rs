//! Engines: other implementations of a run's effects, such as a durable one that performs them in several processes.
//!
//! An [`Engine`] stands between each agent and the effects of this process. What crosses to another process is data and
//! names: [`effect_to_json`] writes an effect, and [`Code::effect`] makes it again from the models, tools and agents
//! that [`Agent::parts`](entourage_core::agent::Agent::parts) name there. The observation and the error that come back
//! are data as well: [`answer_to_json`] and [`answer_from_json`].
//!
//! ```
//! use std::sync::Arc;
//!
//! use entourage_core::{event::Origin, run::Effects};
//! use entourage_runtime::{Runtime, engine::Engine};
//!
//! /// Performs everything here: the place to begin from.
//! #[derive(Debug)]
//! struct Here;
//!
//! impl Engine for Here {
//!     fn effects(&self, run: &Origin, local: Arc<dyn Effects>) -> Arc<dyn Effects> {
//!         println!("{} begins in {}", run.agent, run.session);
//!         local
//!     }
//! }
//!
//! let runtime = Runtime::builder().effects(Here).build();
//! ```

mod code;
mod whole;
mod wire;

use std::{fmt, sync::Arc};

use entourage_core::{event::Origin, run::Effects};

pub use code::{Code, PartName};
pub(crate) use whole::{check_numbers, check_request, check_schemas};
pub use wire::{answer_from_json, answer_to_json, effect_to_json};

/// Source of the effects of a runtime's runs.
///
/// # Contract
/// - The effects keep what [`Effects`] promises, for each run that they were made for and until that is over.
/// - What they do not perform themselves they pass on to `local`, which performs it in this process. `local` keeps the
///   session's record: everything recorded goes through it.
/// - `local` is given an effect once in a life of its run. Tool calls that were given before, and dropped, are refused
///   with [`ErrorKind::Diverged`](entourage_core::ErrorKind::Diverged), so that no tool runs twice. The run then fails;
///   a resumed one is left open, and its next life goes on from the record.
/// - A context that it makes for a run holds the run's cancellation token or a child of it. A cancel reaches what runs
///   in a context by that token alone. A context with a wider scope, or without the run's budget, is refused.
/// - It is not asked for the runs in which the runtime itself writes titles and summaries: those are performed in this
///   process.
pub trait Engine: Send + Sync + fmt::Debug {
    /// Returns the effects of a run that begins or is resumed.
    fn effects(&self, run: &Origin, local: Arc<dyn Effects>) -> Arc<dyn Effects>;
}
