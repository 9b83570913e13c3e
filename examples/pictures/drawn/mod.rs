//! One picture a module. Each is drawn from what a run did, as its store, models, tools and events tell.

mod crash;
mod flow;
mod graph;
mod narrowing;
mod tree;
mod watched;

use std::future::Future;

use entourage::prelude::*;

/// A picture as Mermaid text.
pub(crate) struct Picture {
    pub(crate) name: &'static str,
    pub(crate) mermaid: String,
}

/// Draws all pictures.
///
/// # Errors
/// Those of the runs.
pub(crate) fn all() -> Result<Vec<Picture>> {
    let picture = |name, mermaid| Picture { name, mermaid };
    Ok(vec![
        picture("flow", process(flow::draw())?),
        picture("crash", crash::draw()?),
        picture("narrowing", process(narrowing::draw())?),
        picture("graph", process(graph::draw())?),
        picture("tree", process(tree::draw())?),
    ])
}

/// The life of a process: on its own tokio runtime, whose clock moves only when nothing else does. At the end whatever
/// still runs is dropped where it stands.
fn process<T>(life: impl Future<Output = Result<T>>) -> Result<T> {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    tokio.block_on(life)
}

/// A text for a label of Mermaid, in quotes or behind a colon, in lines of at most some 50 characters.
fn label(text: &str) -> String {
    const WIDTH: usize = 50;
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut wrapped = String::new();
        for word in line.split(' ') {
            if !wrapped.is_empty() && wrapped.chars().count() + word.chars().count() > WIDTH {
                lines.push(std::mem::take(&mut wrapped));
            }
            let space = if wrapped.is_empty() { "" } else { " " };
            wrapped.push_str(&format!("{space}{word}"));
        }
        lines.push(wrapped);
    }
    lines.join("<br/>").replace('"', "'").replace('#', "no. ").replace(';', ",")
}
