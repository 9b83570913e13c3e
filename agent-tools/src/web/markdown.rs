//! The tree of a page as Markdown, by htmd within bounds.
//!
//! htmd knows no bounds: each element copies what is in it, a table is padded to its widest cell, and equal marks in a
//! row are joined one by one. So each element with content is handled here first. A [`Meter`] adds up what was made of
//! it; once a bound is passed or nobody waits any more, the elements that are left become nothing.

use std::{
    collections::BTreeSet,
    iter,
    rc::Rc,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use htmd::{
    Element, HtmlToMarkdown,
    element_handler::{HandlerResult, Handlers},
};
use markup5ever_rcdom::{Handle, Node, NodeData};

use super::html::SKIPPED;

/// Blocks with content that htmd handles. It handles no `div` and no inline element but these and `span`.
const BLOCKS: &[&str] = &[
    "address",
    "article",
    "blockquote",
    "body",
    "caption",
    "center",
    "colgroup",
    "dd",
    "details",
    "dialog",
    "dir",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "form",
    "frameset",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "html",
    "legend",
    "li",
    "main",
    "menu",
    "menuitem",
    "noframes",
    "ol",
    "optgroup",
    "option",
    "p",
    "pre",
    "search",
    "section",
    "summary",
    "tbody",
    "td",
    "textarea",
    "tfoot",
    "th",
    "thead",
    "title",
    "tr",
    "ul",
];
const INLINE: &[&str] = &["a", "b", "em", "i", "strong"];

/// White space that means nothing at the edges of a cell or a piece of code.
const BLANK: [char; 4] = ['\t', '\n', '\r', ' '];

/// Most bytes of Markdown, as a multiple of the page's and in any case. Half of it may be padding of tables.
const LONGER: usize = 4;
const LENGTH: usize = 1 << 20;

/// Most bytes that are copied from element to element, as a multiple of the page's and in any case.
const COPIES: usize = 64;
const COPIED: usize = 64 << 20;

/// Most bytes that elements may copy for a page of so many bytes.
pub(super) fn most_copied(bytes: usize) -> usize {
    bytes.saturating_mul(COPIES).saturating_add(COPIED)
}

/// The content of a page of so many bytes as Markdown; `None` if it goes beyond the bounds, or if nobody waits.
pub(super) fn markdown(tree: &Handle, bytes: usize, waits: &Weak<()>) -> Option<String> {
    join(tree);
    let meter = Arc::new(Meter::new(bytes, Weak::clone(waits)));
    let (other, tables, codes) = (Arc::clone(&meter), Arc::clone(&meter), Arc::clone(&meter));
    let text = HtmlToMarkdown::builder()
        .skip_tags(SKIPPED.to_vec())
        .add_handler([BLOCKS, INLINE].concat(), move |handlers: &dyn Handlers, element: Element<'_>| {
            other.made(|| handlers.fallback(element))
        })
        .add_handler(vec!["table"], move |handlers: &dyn Handlers, element: Element<'_>| {
            tables.made(|| table(&tables, handlers, element.node))
        })
        .add_handler(vec!["code"], move |handlers: &dyn Handlers, element: Element<'_>| {
            codes.made(|| code(handlers, element))
        })
        .build()
        .tree_to_markdown(tree);
    (!meter.is_over()).then_some(text)
}

/// The room that a conversion has left. One thread uses it: it is atomic since htmd asks for that.
struct Meter {
    waits: Weak<()>,
    longest: usize,
    copies: AtomicUsize,
    padding: AtomicUsize,
    is_spent: AtomicBool,
}

impl Meter {
    fn new(bytes: usize, waits: Weak<()>) -> Self {
        let longest = bytes.saturating_mul(LONGER).saturating_add(LENGTH);
        Self {
            waits,
            longest,
            copies: most_copied(bytes).into(),
            padding: (longest / 2).into(),
            is_spent: false.into(),
        }
    }

    fn is_over(&self) -> bool {
        self.is_spent.load(Relaxed) || self.waits.strong_count() == 0
    }

    /// Returns the text of an element: nothing when all is over before or after it is made. No handler makes more than
    /// a few times of what its children became, so that it may be counted when it is there.
    fn made(&self, makes: impl FnOnce() -> Option<HandlerResult>) -> Option<HandlerResult> {
        if self.is_over() {
            return None;
        }
        let made = makes()?;
        if made.content.len() > self.longest || !take(&self.copies, made.content.len()) {
            self.is_spent.store(true, Relaxed);
        }
        (!self.is_over()).then_some(made)
    }

    /// True if there is room for so much padding, which is then taken.
    fn pads(&self, bytes: usize) -> bool {
        take(&self.padding, bytes)
    }
}

fn take(left: &AtomicUsize, bytes: usize) -> bool {
    let rest = left.load(Relaxed).checked_sub(bytes);
    if let Some(rest) = rest {
        left.store(rest, Relaxed);
    }
    rest.is_some()
}

/// Joins equal inline elements in a row that hold one text each. htmd does the same, but in quadratic time; after this
/// it finds none.
fn join(tree: &Handle) {
    let mut left = vec![Rc::clone(tree)];
    while let Some(node) = left.pop() {
        let mut children = node.children.borrow_mut();
        children.dedup_by(|next, kept| joins(kept, next));
        left.extend(children.iter().map(Rc::clone));
    }
}

/// Adds the text of an element to that of the one before it, if htmd would.
fn joins(kept: &Node, next: &Node) -> bool {
    let (one, other) = match (&kept.data, &next.data) {
        (
            NodeData::Element {
                name: one,
                attrs,
                template_contents,
                mathml_annotation_xml_integration_point,
            },
            NodeData::Element {
                name: other,
                attrs: its_attrs,
                template_contents: its_contents,
                mathml_annotation_xml_integration_point: its_point,
            },
        ) if mathml_annotation_xml_integration_point == its_point
            && template_contents.borrow().is_none()
            && its_contents.borrow().is_none()
            && attrs == its_attrs =>
        {
            (one, other)
        }
        _ => return false,
    };
    let is_same = one == other
        || matches!(
            (&*one.local, &*other.local),
            ("i", "em") | ("em", "i") | ("b", "strong") | ("strong", "b")
        );
    if !is_same || matches!(&*one.local, "a" | "div") || BLOCKS.contains(&&*one.local) {
        return false;
    }
    let (texts, its_texts) = (kept.children.borrow(), next.children.borrow());
    let ([text], [its_text]) = (texts.as_slice(), its_texts.as_slice()) else { return false };
    let (NodeData::Text { contents }, NodeData::Text { contents: added }) = (&text.data, &its_text.data)
    else {
        return false;
    };
    contents.borrow_mut().push_tendril(&added.borrow());
    true
}

pub(super) fn tag(node: &Node) -> &str {
    match &node.data {
        NodeData::Element { name, .. } => &name.local,
        _ => "",
    }
}

pub(super) fn parent(node: &Node) -> Option<Handle> {
    let parent = node.parent.take();
    let found = parent.as_ref().and_then(std::rc::Weak::upgrade);
    node.parent.set(parent);
    found
}

/// Code within a line, between more backticks than any in it. htmd looks for their number in quadratic time.
fn code(handlers: &dyn Handlers, element: Element<'_>) -> Option<HandlerResult> {
    if parent(element.node).is_some_and(|parent| tag(&parent) == "pre") {
        return handlers.fallback(element);
    }
    let content = handlers.walk_children(element.node).content;
    let content = content.trim_matches(BLANK);
    let runs: BTreeSet<_> = content.split(|c| c != '`').map(str::len).filter(|length| *length > 0).collect();
    let (length, pad) = if content.starts_with('`') || content.ends_with('`') {
        (runs.last().map_or(1, |longest| longest + 1), " ")
    } else {
        ((1..).find(|length| !runs.contains(length)).unwrap_or(1), "")
    };
    let fence = "`".repeat(length);
    Some(format!("{fence}{pad}{content}{pad}{fence}").into())
}

/// The parts of a table that htmd shows.
#[derive(Default)]
struct Parts {
    captions: Vec<Handle>,
    head: Vec<Handle>,
    rows: Vec<Vec<Handle>>,
}

impl Parts {
    fn of(table: &Node) -> Self {
        let mut parts = Self::default();
        let mut has_head = false;
        for part in table.children.borrow().iter() {
            let children = part.children.borrow();
            match tag(part) {
                "caption" => parts.captions.push(Rc::clone(part)),
                "thead" => {
                    has_head = true;
                    let row = children.iter().find(|child| tag(child) == "tr").unwrap_or(part);
                    parts.head = cells(row, "th");
                    if parts.head.is_empty() {
                        parts.head = cells(row, "td");
                    }
                }
                "tbody" | "tfoot" => {
                    for row in children.iter().filter(|child| tag(child) == "tr") {
                        if !has_head {
                            parts.head = cells(row, "th");
                            has_head = !parts.head.is_empty();
                            if has_head {
                                continue;
                            }
                        }
                        parts.rows.extend(Some(cells(row, "td")).filter(|row| !row.is_empty()));
                    }
                }
                _ => {}
            }
        }
        parts
    }
}

fn cells(row: &Node, kind: &str) -> Vec<Handle> {
    row.children.borrow().iter().filter(|cell| tag(cell) == kind).map(Rc::clone).collect()
}

/// A table as htmd shows it, as long as there is room for its padding; else without any. Each part is converted once,
/// where htmd converts a caption twice if there is no row.
fn table(meter: &Meter, handlers: &dyn Handlers, node: &Handle) -> Option<HandlerResult> {
    if is_in_cell(node) || !has_head(node) {
        return Some(handlers.walk_children(node));
    }
    let Parts { captions, head, rows } = Parts::of(node);
    if head.is_empty() && rows.is_empty() {
        let content = handlers.walk_children(node).content;
        let content = content.trim_matches('\n');
        return (!content.is_empty()).then(|| format!("\n\n{content}\n\n").into());
    }
    let shown = |node: &Handle| {
        let made = handlers.handle(node).map(|made| made.content).unwrap_or_default();
        made.trim_matches(BLANK).to_owned()
    };
    let captions: Vec<String> = captions.iter().map(shown).collect();
    let head: Vec<String> = head.iter().map(shown).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(shown).collect()).collect();
    if meter.is_over() {
        return None;
    }
    let columns = rows.iter().map(Vec::len).fold(head.len(), usize::max);
    let mut widths = vec![0; columns];
    let mut bare = 0;
    for row in iter::once(&head).chain(&rows) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
            bare += cell.len() + 3;
        }
    }
    let line = widths.iter().map(|width| width + 3).sum::<usize>();
    let is_padded = meter.pads(line.saturating_mul(rows.len() + 2).saturating_sub(bare));
    if !is_padded {
        widths.fill(0);
    }
    let mut text = String::from("\n\n");
    for caption in captions {
        text.push_str(&caption);
        text.push('\n');
    }
    if !head.is_empty() {
        push_row(&mut text, &head, &widths);
        text.push('|');
        for width in &widths {
            let dashes = if is_padded { *width } else { 3 };
            text.push(' ');
            text.extend(iter::repeat_n('-', dashes));
            text.push_str(" |");
        }
        text.push('\n');
    }
    for row in &rows {
        // The cells that a row lacks need not be written.
        let filled = if is_padded { columns } else { row.len() };
        push_row(&mut text, row, widths.get(..filled).unwrap_or_default());
    }
    text.push('\n');
    Some(text.into())
}

/// Adds a row with a cell for each of these widths.
fn push_row(text: &mut String, cells: &[String], widths: &[usize]) {
    text.push('|');
    for (cell, width) in cells.iter().map(String::as_str).chain(iter::repeat("")).zip(widths) {
        let cell = cell.replace('\n', " ").replace('\r', "").replace('|', "&#124;");
        let cell = cell.trim_matches(BLANK);
        text.push(' ');
        text.push_str(cell);
        text.extend(iter::repeat_n(' ', width.saturating_sub(cell.chars().count())));
        text.push_str(" |");
    }
    text.push('\n');
}

/// True if a table has a head of its own, and not only one of a table within it.
fn has_head(table: &Node) -> bool {
    table
        .children
        .borrow()
        .iter()
        .filter(|child| tag(child) != "table")
        .any(|child| matches!(tag(child), "th" | "thead") || has_head(child))
}

fn is_in_cell(node: &Node) -> bool {
    iter::successors(parent(node), |node| parent(node)).any(|node| matches!(tag(&node), "td" | "th"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tree(html: &str) -> Handle {
        HtmlToMarkdown::new().html_to_tree(html).unwrap()
    }

    /// Converts a page on a thread like those of the readers.
    fn ours(html: &str) -> Option<String> {
        let waits = Arc::new(());
        let works = || markdown(&tree(html), html.len(), &Arc::downgrade(&waits));
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(64 << 20);
            thread.spawn_scoped(scope, works).unwrap().join().unwrap()
        })
    }

    fn htmds(html: &str) -> String {
        HtmlToMarkdown::builder().skip_tags(SKIPPED.to_vec()).build().tree_to_markdown(&tree(html))
    }

    #[test]
    fn cf03_ordinary_tables_code_and_marks_are_shown_as_htmd_shows_them() {
        for html in [
            "<table><caption>C</caption><thead><tr><th>a<th>long | head</thead><tr><td>1<td>2<td>x\ny<tr><td></table>",
            "<table><tr><th>a<th>b<tr><th>lost<td>1<tr><td>ü<td><b>2</b></table>",
            "<table><thead><td>a<tbody><tr><td>b<tfoot><tr><td>c</table>x",
            "<table><thead></thead><caption>only</caption></table>",
            "<table><thead></thead></table>y",
            "<table><tr><td>a<td><table><tr><th>b</table></table>",
            "<table><tr><th>a<td><table><tr><th>b<tr><td>c</table><tr><td>d</table>",
            "<p>a <code>`x` ``</code> <code>a``b`c</code> <code> x </code> <code></code><pre><code>```x\n</code></pre>",
            "<b>a</b><strong>b</strong><b class=x>c</b> <i>d</i><em>e</em><a>f</a><a>g</a><u>h</u><u>i</u>",
            "<p>x</p><p>y</p><div>a</div><div>b</div><x-y>c</x-y><x-y>d</x-y><noscript>e</noscript>",
            "<ol start=9><li>a<li>b<br>c<ul><li>d</ul></ol><blockquote>e<br>f<blockquote>g</blockquote></blockquote>",
        ] {
            assert_eq!(ours(html).unwrap(), htmds(html), "{html}");
        }
    }

    proptest! {
        /// Whatever is in an ordinary page, it is shown as htmd shows it.
        #[test]
        fn cf03_ordinary_pages_are_shown_as_htmd_shows_them(
            parts in prop::collection::vec((prop::sample::select(vec![
                "<table>", "<caption>", "<thead>", "<tbody>", "<tr>", "<th>", "<td>", "</td>", "</tr>", "</table>",
                "<b>", "</b>", "<strong>", "</strong>", "<em>", "</em>", "<i a=1>", "</i>", "<u>", "</u>", "<code>",
                "</code>", "<pre>", "</pre>", "<p>", "<div>", "</div>", "<ul>", "<ol>", "<li>", "</ul>", "</ol>",
                "<blockquote>", "</blockquote>", "<br>", "<a href=x>", "</a>", "<span>", "</span>", "<h2>", "</h2>",
            ]), prop::sample::select(vec!["", "", "x", " y ", "`", "a|b", "\n", "``c`", "*", "ü z"])), 0..40)
        ) {
            let html: String = parts.into_iter().flat_map(|(tag, text)| [tag, text]).collect();
            // What htmd joins in broken tables is its own; the test above tells of the rest.
            let joined = tree(&html);
            join(&joined);
            let htmds = HtmlToMarkdown::builder().skip_tags(SKIPPED.to_vec()).build().tree_to_markdown(&joined);
            prop_assert_eq!(ours(&html).unwrap(), htmds);
        }
    }

    #[test]
    fn attack_46_what_grows_with_the_square_is_bounded() {
        let rows = |count: usize| "<tr><td>x".repeat(count);
        let wide = format!("<table><tr><th>{}{}</table>", "a".repeat(50_000), rows(5_000));
        let text = ours(&wide).unwrap();
        assert!(text.len() < 100_000 && text.contains("\n| --- |\n| x |\n| x |"), "{} bytes", text.len());
        let many = format!("<table><tr>{}{}</table>", "<th>a".repeat(5_000), rows(5_000));
        let text = ours(&many).unwrap();
        assert!(text.len() < 100_000 && text.ends_with("\n| x |"), "{} bytes", text.len());
        let quotes = "<blockquote>".repeat(490);
        assert_eq!(ours(&format!("{quotes}{}x", "<br>".repeat(20_000))), None);
        assert_eq!(ours(&format!("{quotes}<img src=x alt='{}'>", "a\n".repeat(20_000))), None);
        // Each level would double the work.
        let captions = "<table><thead></thead><caption>".repeat(100);
        assert_eq!(ours(&format!("{captions}x")).as_deref(), Some("x"));
        // Each one would move all that follow it.
        assert_eq!(ours(&"<b>x</b>".repeat(60_000)).unwrap().len(), 60_004);
        let runs: String = (1..1_000).map(|length| format!("{}a", "`".repeat(length))).collect();
        let code = format!("{}a{}{runs}", "<code>".repeat(2), "`a".repeat(100_000));
        assert!(ours(&code).is_some());
    }

    #[test]
    fn attack_46_the_conversion_ends_when_nobody_waits() {
        let meter = Meter::new(0, Weak::new());
        assert!(meter.made(|| panic!("nothing is made")).is_none());
        assert_eq!(markdown(&tree("<p>x"), 4, &Weak::new()), None);
        let waits = Arc::new(());
        let meter = Meter::new(0, Arc::downgrade(&waits));
        assert!(meter.made(|| Some("x".into())).is_some());
        let mut waits = Some(waits);
        let dropped = meter.made(|| {
            waits = None;
            Some("x".into())
        });
        assert!(dropped.is_none() && meter.is_over());
    }
}
