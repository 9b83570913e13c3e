//! All mistakes of one function are told together.
#![allow(unused, mixed_script_confusables)]

use entourage_macros::tool;

#[tool(crate = "entourage_core", access = "all", retry = "once")]
fn count<T>(text: &str, (a, b): (u8, u8)) -> usize {
    text.len()
}

fn main() {}
