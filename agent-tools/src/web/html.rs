//! HTML as Markdown or bare text, within bounds that no page can exceed.
//!
//! A page is somebody else's: some take a parser hours, or nest deeper than any stack. So it is parsed piece by piece
//! on a thread of its [`Readers`], which stops when nobody waits any more, or when the tree has grown too far.

use std::{
    rc::Rc,
    sync::{Arc, Weak},
};

use entourage_core::tool::ToolError;
use markup5ever_rcdom::{Handle, NodeData};
use tokio::sync::oneshot;

use super::{
    markdown::{self, most_copied},
    readers::Readers,
    tree::parsed,
};

/// Elements that say nothing about the content of a page.
pub(super) const SKIPPED: &[&str] =
    &["script", "style", "nav", "header", "footer", "aside", "noscript", "iframe", "svg", "template"];

/// Elements that stand in the line of what is before and after them.
const INLINE: &[&str] = &[
    "a", "abbr", "b", "bdi", "bdo", "cite", "code", "data", "dfn", "em", "font", "i", "img", "kbd", "label",
    "mark", "q", "s", "samp", "small", "span", "strong", "sub", "sup", "time", "tt", "u", "var", "wbr",
];

/// The content of a page as Markdown.
///
/// # Errors
/// The text for the model, if the page goes beyond the bounds.
pub(super) async fn markdown(readers: &Readers, html: String) -> Result<String, ToolError> {
    on_thread(readers, html, |tree, bytes, waits| Some(tidy(&markdown::markdown(tree, bytes, waits)?))).await
}

/// The text of a page without its marks; each block has a line of its own.
///
/// # Errors
/// As of [`markdown`].
pub(super) async fn text(readers: &Readers, html: String) -> Result<String, ToolError> {
    on_thread(readers, html, |tree, _, _| Some(tidy(&bare(tree)))).await
}

/// A link of a page.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) class: String,
    pub(super) href: String,
    pub(super) text: String,
}

impl Link {
    pub(super) fn has_class(&self, class: &str) -> bool {
        self.class.split_ascii_whitespace().any(|one| one == class)
    }
}

/// The links of a page in their order.
///
/// # Errors
/// As of [`markdown`].
pub(super) async fn links(readers: &Readers, html: String) -> Result<Vec<Link>, ToolError> {
    on_thread(readers, html, |document, bytes, _| {
        let mut links = Vec::new();
        // An address stands again in each element that opens its link again.
        let mut room = most_copied(bytes);
        let mut left = vec![Rc::clone(document)];
        while let Some(node) = left.pop() {
            if let NodeData::Element { name, attrs, .. } = &node.data
                && &*name.local == "a"
            {
                let of = |name: &str| {
                    let attrs = attrs.borrow();
                    let found = attrs.iter().find(|it| &*it.name.local == name);
                    found.map(|it| it.value.to_string()).unwrap_or_default()
                };
                let link = Link { class: of("class"), href: of("href"), text: bare(&node) };
                room = room.checked_sub(link.class.len() + link.href.len() + link.text.len())?;
                links.push(link);
            }
            left.extend(node.children.borrow().iter().rev().map(Rc::clone));
        }
        Some(links)
    })
    .await
}

/// Returns the result of `show` for a page. It gets the tree, the bytes, and a reference that dies when nobody waits.
async fn on_thread<T: Send + 'static>(
    readers: &Readers,
    html: String,
    show: fn(&Handle, usize, &Weak<()>) -> Option<T>,
) -> Result<T, ToolError> {
    let turn = readers.turn(html.len()).await?;
    let (sender, receiver) = oneshot::channel();
    let waiting = Arc::new(());
    let waits = Arc::downgrade(&waiting);
    let work = move || {
        let tree = parsed(&html, || waits.strong_count() == 0);
        let shown = tree.as_ref().and_then(|tree| show(tree, html.len(), &waits)).ok_or_else(too_much);
        // Whoever waits need not wait until the memory of a large tree is free again; the next page does.
        drop(sender.send(shown));
        drop((tree, html));
        drop(turn);
    };
    readers.give(Box::new(work))?;
    let shown = receiver.await.map_err(|_| too_much())?;
    drop(waiting);
    shown
}

fn too_much() -> ToolError {
    ToolError::tell("the page is nested or repeated beyond what can be read; fetch it with the format `html`")
}

/// A step of the walk over a tree: a node, or the end of a line.
enum Step {
    Node(Handle),
    Break,
}

fn bare(document: &Handle) -> String {
    let mut text = String::new();
    let mut left = vec![Step::Node(Rc::clone(document))];
    while let Some(step) = left.pop() {
        let Step::Node(node) = step else {
            text.push('\n');
            continue;
        };
        let name = match &node.data {
            NodeData::Text { contents } => {
                text.push_str(&contents.borrow());
                continue;
            }
            NodeData::Element { name, .. } => &*name.local,
            _ => "",
        };
        if SKIPPED.contains(&name) {
            continue;
        }
        if !INLINE.contains(&name) {
            text.push('\n');
            left.push(Step::Break);
        }
        left.extend(node.children.borrow().iter().rev().map(|child| Step::Node(Rc::clone(child))));
    }
    text
}

/// Without trailing blanks, and with at most one empty line in a row.
fn tidy(text: &str) -> String {
    let mut tidy = String::with_capacity(text.len());
    let mut empty = 0;
    for line in text.lines().map(str::trim_end) {
        empty = if line.is_empty() { empty + 1 } else { 0 };
        if empty < 2 {
            tidy.push_str(line);
            tidy.push('\n');
        }
    }
    tidy.trim().to_owned()
}
