//! Commands that the operating system confines: a [`Sandbox`] starts a program that can reach only what was allowed.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use entourage_tools::sandbox::Sandbox;
//!
//! let sandbox = Sandbox::workspace_write("/home/ann/project")?.reading("/home/ann/.cargo").memory(2 << 30);
//! let (mut child, enforced) = sandbox.spawn("cargo", |command| command.arg("test")).await?;
//! let status = child.wait().await?;
//! let changed = enforced.restore().await?;
//! assert!(changed.is_empty(), "{changed:?} appeared where only people write");
//! # Ok(())
//! # }
//! ```
//!
//! This module decides nothing about calls: it holds for whatever program was allowed to start. It must not fall back
//! to a weaker confinement than the one asked for.

mod enforced;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod linux;
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[path = "elsewhere.rs"]
mod linux;
#[cfg_attr(
    not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))),
    allow(dead_code, reason = "places are opened where there is a sandbox")
)]
mod resolved;
#[cfg_attr(
    not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))),
    allow(dead_code, reason = "settings are read where there is a sandbox")
)]
mod settings;
#[cfg(feature = "shell")]
mod within;

pub use enforced::{Backend, Enforced};
pub use settings::Sandbox;
#[cfg(feature = "shell")]
pub(crate) use within::Narrowed;
