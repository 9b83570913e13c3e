//! The code that `#[tool]` writes, and what the compiler says of functions that cannot be tools.

mod common;
mod facade;
mod footprint;
mod free;
mod method;
mod ui;

// Stands for the facade, which depends on the macro.
extern crate self as entourage;
pub use entourage_core::{__private, tool};
