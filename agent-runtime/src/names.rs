//! Names of agents.

use entourage_core::{Error, ErrorKind, Result};

/// Checks an agent's name. Names are joined by `/` to paths, and stores and logs show them.
///
/// # Errors
/// [`ErrorKind::Config`] for a name that is not 1 to 64 letters, digits, `_` and `-`.
pub fn check_agent_name(name: &str) -> Result<()> {
    let safe = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.len() <= 64 && name.chars().all(safe) {
        return Ok(());
    }
    let shown: String = name.chars().take(80).collect();
    Err(Error::new(
        ErrorKind::Config,
        format!("`{shown}` cannot name an agent; use 1 to 64 letters, digits, _ and -"),
    ))
}
