//! A tool's future moves between threads.
#![allow(unused, mixed_script_confusables)]

use std::rc::Rc;

use entourage_macros::tool;

/// Holds an `Rc` across an await.
#[tool(crate = "entourage_core", access = "none")]
async fn rc() -> usize {
    let rc = Rc::new(1);
    std::future::ready(()).await;
    *rc
}

fn main() {}
