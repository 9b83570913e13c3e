//! Finds a model when the program names none, and retries its failed calls.
//!
//! The search is that of [`entourage_providers::env`]; each model comes with [`Retry`] as it is by default.

use entourage_core::{Result, provider::Model};
use entourage_runtime::layers::Retry;

pub use entourage_providers::env::Found;

/// Adds a constructor to [`Model`] that searches the environment.
pub trait ModelFromEnv: Sized {
    /// Returns the model that [`from_env`] finds.
    ///
    /// # Errors
    /// Those of [`from_env`].
    fn from_env() -> Result<Self>;
}

impl ModelFromEnv for Model {
    fn from_env() -> Result<Self> {
        from_env().map(|found| found.model)
    }
}

/// Finds a model in the process's environment or on this machine, as [`entourage_providers::env::from_env`] does.
///
/// # Errors
/// Those of that function.
pub fn from_env() -> Result<Found> {
    let mut found = entourage_providers::env::from_env()?;
    found.model = found.model.layer(Retry::new());
    Ok(found)
}

/// Returns the model that `text` names, in the form of the variable `ENTOURAGE_MODEL`: `vendor:model`, or an address.
///
/// ```
/// # #[cfg(feature = "openai-chat")] {
/// let model = entourage::providers::env::model("ollama:qwen3").unwrap();
/// assert_eq!(&**model.name(), "qwen3");
/// # }
/// ```
///
/// # Errors
/// Those of [`entourage_providers::env::model`].
pub fn model(text: &str) -> Result<Model> {
    entourage_providers::env::model(text).map(|model| model.layer(Retry::new()))
}
