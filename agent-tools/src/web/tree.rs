//! The tree of a page, within bounds that hold at each node that is made.
//!
//! A few bytes may open hundreds of marks again, each with all its attributes, and the tree builder scans all open
//! elements at a tag. So the attributes that nothing shows are dropped before the builder sees them; nodes are counted
//! where they are made, and steps at each tag. Once a bound is passed, the builder gets no more.

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    iter,
    rc::Rc,
    time::Duration,
};

use html5ever::{
    Attribute, ExpandedName, QualName, TokenizerResult,
    buffer_queue::BufferQueue,
    local_name,
    tendril::StrTendril,
    tokenizer::{Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts},
    tree_builder::{ElementFlags, NodeOrText, QuirksMode, TreeBuilder, TreeBuilderOpts, TreeSink},
};
use markup5ever_rcdom::{Handle, Node, NodeData, RcDom};
#[cfg(any(target_os = "linux", target_vendor = "apple"))]
use rustix::time::{ClockId, clock_gettime};

use super::markdown::{most_copied, parent, tag};

/// Most elements within one another; browsers stop at 512.
const DEPTH: usize = 512;

/// Most nodes that are made, and those that a page may have beyond one for each of its bytes.
const NODES: usize = 500_000;
const FEW_NODES: usize = 50_000;

/// Most steps at tags, for each byte of a page and in any case. An ordinary page takes few for a byte.
const STEPS: usize = 64;
const FEW_STEPS: usize = 16 << 20;

/// Steps at an open element, for a tag that marks text or ends an element.
const SCANS: usize = 4;

/// Elements that are placed between two looks at the depth.
const LOOKS: usize = 64;

/// Bytes that are parsed at once.
const PIECE: usize = 4 << 10;

/// Time of the processor for all pieces within which no token ends, beyond that of ordinary ones. The tokenizer
/// compares an attribute with all of its tag before it, and tells of none until the tag ends. Pieces of long values and
/// comments take microseconds, and up to two milliseconds in a build for tests.
const UNENDED: Duration = Duration::from_secs(1);
const ORDINARY: Duration = Duration::from_millis(4);

/// Returns the tree of a page, unless it grows beyond the bounds or nobody waits for it.
pub(super) fn parsed(html: &str, is_over: impl Fn() -> bool) -> Option<Handle> {
    let sink = Sink::new(html.len());
    let document = sink.get_document();
    let builder = TreeBuilder::new(sink, TreeBuilderOpts::default());
    let tokens = Tokens { builder, has_come: Cell::new(false) };
    let tokenizer = Tokenizer::new(tokens, TokenizerOpts::default());
    let input = BufferQueue::default();
    let mut unended = Duration::ZERO;
    let mut rest = html;
    while !rest.is_empty() {
        let (piece, next) = rest.split_at(rest.floor_char_boundary(PIECE));
        let began = Worked::now();
        input.push_back(StrTendril::from_slice(piece));
        while !matches!(tokenizer.feed(&input), TokenizerResult::Done) {}
        rest = next;
        if !tokenizer.sink.has_come.take() {
            unended += began.elapsed().saturating_sub(ORDINARY);
        }
        if is_over() || unended > UNENDED || tokenizer.sink.is_over() {
            return None;
        }
    }
    tokenizer.end();
    let mut copies = most_copied(html.len());
    (!tokenizer.sink.is_over() && fits(&document, 0, &mut copies)).then_some(document)
}

/// A time of this thread's work, which a busy machine does not make longer.
#[cfg(any(target_os = "linux", target_vendor = "apple"))]
struct Worked(Duration);

#[cfg(any(target_os = "linux", target_vendor = "apple"))]
impl Worked {
    fn now() -> Self {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
        Self(Duration::new(seconds, nanos))
    }

    fn elapsed(&self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
use std::time::Instant as Worked;

/// The way from the tokenizer to the tree builder.
struct Tokens {
    builder: TreeBuilder<Handle, Sink>,
    has_come: Cell<bool>,
}

impl Tokens {
    fn is_over(&self) -> bool {
        self.builder.sink.is_over.get()
    }
}

impl TokenSink for Tokens {
    type Handle = Handle;

    fn process_token(&self, mut token: Token, line: u64) -> TokenSinkResult<Handle> {
        if matches!(token, Token::ParseError(_)) {
            return TokenSinkResult::Continue;
        }
        self.has_come.set(true);
        if let Token::TagToken(tag) = &mut token {
            let count = tag.attrs.len();
            let scans = if strip(tag) || tag.kind == TagKind::EndTag { SCANS } else { 1 };
            let sink = &self.builder.sink;
            sink.spend(&sink.steps, 1 + sink.depth.get() * scans + count.saturating_mul(count) / 2);
        }
        if self.is_over() {
            return TokenSinkResult::Continue;
        }
        self.builder.process_token(token, line)
    }

    fn end(&self) {
        self.builder.end();
    }

    fn adjusted_current_node_present_but_not_in_html_namespace(&self) -> bool {
        self.builder.adjusted_current_node_present_but_not_in_html_namespace()
    }
}

/// Drops the attributes of a tag that is copied or merged, but those that are shown. Returns true for a tag that marks
/// text: the builder looks for those most, and opens three equal ones again at most.
fn strip(tag: &mut Tag) -> bool {
    match tag.name {
        local_name!("a") => tag.attrs.retain(|attr| matches!(&*attr.name.local, "class" | "href" | "title")),
        local_name!("code") => tag
            .attrs
            .retain(|attr| attr.name.local == local_name!("class") && attr.value.contains("language-")),
        // Within a picture these attributes end it, whatever they say.
        local_name!("font") => {
            tag.attrs.retain(|attr| matches!(&*attr.name.local, "color" | "face" | "size"));
            tag.attrs.iter_mut().for_each(|attr| attr.value.clear());
        }
        local_name!("b")
        | local_name!("big")
        | local_name!("em")
        | local_name!("i")
        | local_name!("nobr")
        | local_name!("s")
        | local_name!("small")
        | local_name!("strike")
        | local_name!("strong")
        | local_name!("tt")
        | local_name!("u") => tag.attrs.clear(),
        local_name!("html") | local_name!("body") => {
            tag.attrs.clear();
            return false;
        }
        _ => return false,
    }
    true
}

/// Makes the nodes of a tree, and counts them.
struct Sink {
    dom: RcDom,
    nodes: Cell<usize>,
    steps: Cell<usize>,
    placed: Cell<usize>,
    /// The depth at the last look.
    depth: Cell<usize>,
    is_over: Cell<bool>,
}

impl Sink {
    fn new(bytes: usize) -> Self {
        Self {
            dom: RcDom::default(),
            nodes: bytes.saturating_add(FEW_NODES).min(NODES).into(),
            steps: bytes.saturating_mul(STEPS).saturating_add(FEW_STEPS).into(),
            placed: Cell::default(),
            depth: Cell::default(),
            is_over: Cell::default(),
        }
    }

    fn spend(&self, left: &Cell<usize>, count: usize) {
        match left.get().checked_sub(count) {
            Some(rest) => left.set(rest),
            None => self.is_over.set(true),
        }
    }

    fn made(&self, data: NodeData) -> Handle {
        self.spend(&self.nodes, 1);
        Node::new(data)
    }

    fn text(&self, text: StrTendril) -> Handle {
        self.made(NodeData::Text { contents: RefCell::new(text) })
    }

    /// Looks at the depth of an element from time to time.
    fn look(&self, parent: &Node, child: &Node) {
        if matches!(child.data, NodeData::Element { .. }) {
            let placed = self.placed.get().wrapping_add(1);
            self.placed.set(placed);
            if placed.is_multiple_of(LOOKS) {
                let depth = depth(parent);
                self.depth.set(depth);
                if depth > DEPTH {
                    self.is_over.set(true);
                }
            }
        }
    }

    /// The parent of a node and its index there. The last children are those that are asked for.
    fn place(&self, node: &Handle) -> Option<(Handle, usize)> {
        let parent = parent(node)?;
        let (index, count) = {
            let children = parent.children.borrow();
            (children.iter().rposition(|child| Rc::ptr_eq(child, node))?, children.len())
        };
        self.spend(&self.steps, count - index);
        Some((parent, index))
    }
}

fn depth(node: &Node) -> usize {
    iter::successors(parent(node), |node| parent(node)).count() + 1
}

/// Adds text to a node, if that is one of text.
fn joins(node: Option<&Handle>, text: &StrTendril) -> bool {
    let Some(NodeData::Text { contents }) = node.map(|node| &node.data) else { return false };
    contents.borrow_mut().push_tendril(text);
    true
}

impl TreeSink for Sink {
    type Handle = Handle;
    type Output = ();
    type ElemName<'a> = ExpandedName<'a>;

    fn finish(self) {}

    fn parse_error(&self, _: Cow<'static, str>) {}

    fn get_document(&self) -> Handle {
        self.dom.get_document()
    }

    fn elem_name<'a>(&'a self, target: &'a Handle) -> ExpandedName<'a> {
        self.dom.elem_name(target)
    }

    /// Makes an element. What is in a template lies among its children, so that all bounds hold for it.
    fn create_element(&self, name: QualName, attrs: Vec<Attribute>, flags: ElementFlags) -> Handle {
        self.made(NodeData::Element {
            name,
            attrs: RefCell::new(attrs),
            template_contents: RefCell::default(),
            mathml_annotation_xml_integration_point: flags.mathml_annotation_xml_integration_point,
        })
    }

    fn get_template_contents(&self, target: &Handle) -> Handle {
        Rc::clone(target)
    }

    fn create_comment(&self, contents: StrTendril) -> Handle {
        self.made(NodeData::Comment { contents })
    }

    fn create_pi(&self, _: StrTendril, contents: StrTendril) -> Handle {
        self.create_comment(contents)
    }

    fn append(&self, parent: &Handle, child: NodeOrText<Handle>) {
        let child = match child {
            NodeOrText::AppendText(text) => {
                if joins(parent.children.borrow().last(), &text) {
                    return;
                }
                self.text(text)
            }
            NodeOrText::AppendNode(node) => node,
        };
        self.look(parent, &child);
        child.parent.set(Some(Rc::downgrade(parent)));
        parent.children.borrow_mut().push(child);
    }

    fn append_before_sibling(&self, sibling: &Handle, child: NodeOrText<Handle>) {
        if let NodeOrText::AppendNode(node) = &child {
            self.remove_from_parent(node);
        }
        let Some((parent, index)) = self.place(sibling) else { return };
        let child = match child {
            NodeOrText::AppendText(text) => {
                let before = index.checked_sub(1);
                if joins(
                    before.and_then(|before| parent.children.borrow().get(before).cloned()).as_ref(),
                    &text,
                ) {
                    return;
                }
                self.text(text)
            }
            NodeOrText::AppendNode(node) => node,
        };
        self.look(&parent, &child);
        child.parent.set(Some(Rc::downgrade(&parent)));
        parent.children.borrow_mut().insert(index, child);
    }

    fn append_based_on_parent_node(&self, element: &Handle, previous: &Handle, child: NodeOrText<Handle>) {
        if parent(element).is_some() {
            self.append_before_sibling(element, child);
        } else {
            self.append(previous, child);
        }
    }

    fn append_doctype_to_document(&self, _: StrTendril, _: StrTendril, _: StrTendril) {}

    fn same_node(&self, one: &Handle, other: &Handle) -> bool {
        Rc::ptr_eq(one, other)
    }

    fn set_quirks_mode(&self, _: QuirksMode) {}

    /// Adds nothing: the tags that are merged have no attributes left.
    fn add_attrs_if_missing(&self, _: &Handle, _: Vec<Attribute>) {}

    fn remove_from_parent(&self, target: &Handle) {
        if let Some((parent, index)) = self.place(target) {
            parent.children.borrow_mut().remove(index);
            target.parent.set(None);
        }
    }

    fn reparent_children(&self, node: &Handle, new_parent: &Handle) {
        self.spend(&self.steps, node.children.borrow().len());
        self.dom.reparent_children(node, new_parent);
    }

    fn is_mathml_annotation_xml_integration_point(&self, target: &Handle) -> bool {
        self.dom.is_mathml_annotation_xml_integration_point(target)
    }

    /// Leaves the selected option where it is. `RcDom` would look through the whole list at the end of each option.
    fn maybe_clone_an_option_into_selectedcontent(&self, _: &Handle) {}
}

/// Takes a node with all below it from the room for copies: bytes of text times their depth, since each element copies
/// what is in it. Returns false beyond the bounds. That on the depth holds for the calls within one another too. Once
/// they are counted, templates are emptied: nothing shows what is in them.
fn fits(node: &Node, depth: usize, copies: &mut usize) -> bool {
    let copied = match &node.data {
        NodeData::Text { contents } => contents.borrow().len().saturating_mul(depth),
        _ => 0,
    };
    let Some(rest) = copies.checked_sub(copied) else { return false };
    *copies = rest;
    let fits = depth <= DEPTH && node.children.borrow().iter().all(|child| fits(child, depth + 1, copies));
    if tag(node) == "template" {
        node.children.borrow_mut().clear();
    }
    fits
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use htmd::HtmlToMarkdown;
    use html5ever::{ParseOpts, parse_document, tendril::TendrilSink};
    use proptest::prelude::*;

    use super::*;
    use crate::web::{html::SKIPPED, markdown::markdown};

    /// The elements and texts of a tree in one line.
    fn shape(node: &Node) -> String {
        let children: String = node.children.borrow().iter().map(|child| shape(child)).collect();
        match &node.data {
            NodeData::Text { contents } => format!("'{}'", contents.borrow()),
            NodeData::Element { name, .. } => format!("{}({children})", name.local),
            _ => children,
        }
    }

    fn attributes(count: usize) -> String {
        (0..count).map(|number| format!(" a{number}")).collect()
    }

    fn nodes(node: &Node) -> usize {
        1 + node.children.borrow().iter().map(|child| nodes(child)).sum::<usize>()
    }

    #[test]
    fn attack_46_what_is_made_is_counted_where_it_is_made() {
        let marks: String = (0..400).map(|number| format!("<code class=language-{number}>")).collect();
        for (name, page) in [
            ("elements in a template", format!("<template>{}", "<div>".repeat(1_000))),
            ("templates in templates", "<template>".repeat(1_000)),
            ("marks in a template", format!("<template><p>{marks}{}", "<p>x".repeat(1_000))),
            ("marks", format!("<p>{marks}{}", "<p>x".repeat(1_000))),
            ("tags that end nothing", format!("{}{}", "<span>".repeat(480), "</x>".repeat(200_000))),
            (
                "looks at other depths",
                format!("{}{}", "<p><i>".repeat(400), "</body><!--x--><i>".repeat(1_000)),
            ),
        ] {
            assert!(parsed(&page, || false).is_none(), "{name}");
        }
    }

    #[test]
    fn attack_46_long_lists_take_no_quadratic_time() {
        let options = "<option>x</option>".repeat(50_000);
        let began = Worked::now();
        for page in [format!("<select>{options}"), format!("<table>{}", "<br>".repeat(100_000))] {
            assert!(parsed(&page, || false).is_some());
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }

    #[test]
    fn attack_46_attributes_are_not_copied() {
        let many = attributes(200);
        let marks: String = (0..450).map(|number| format!("<b id={number}{many}>")).collect();
        let page = format!("<p>{marks}{}", "<p>x".repeat(1_000));
        assert!(nodes(&parsed(&page, || false).unwrap()) < 10_000);
        let began = Worked::now();
        let merged: String = (0..50_000).map(|number| format!("<html a{number}><body b{number}>")).collect();
        assert!(parsed(&merged, || false).is_some());
        assert!(parsed(&format!("<p{}>", attributes(8_000)), || false).is_none());
        assert!(parsed(&format!("<p{}>", attributes(200_000)), || false).is_none(), "it ends before the tag");
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }

    #[test]
    fn cf03_long_values_and_comments_are_no_attributes() {
        let words = " a='b' c".repeat(100_000);
        let page =
            format!("<p title=\"{words}\"><!--{words}--><font color=red>x</font><code class='language-c x'>");
        let tree = parsed(&page, || false).unwrap();
        assert_eq!(shape(&tree), "html(head()body(p(font('x')code())))");
    }

    #[test]
    fn cf03_templates_are_not_shown_and_attributes_that_are_shown_are_kept() {
        for html in [
            "<p>a<template>b<p>c</template>d<table><template><tr><th>h</table></template><tr><td>x</table>",
            "<table><tr><th>h<template><td>y</template><tr><td>x</table>",
            "<a id=x href=/y title=z>a</a><img src=/b alt=c title=d><ol start=3><li>e</ol>",
            "<pre><code id=x class='a language-rust'>f</code></pre><pre class=language-c><code class=x>g</code></pre>",
            "<span class='math math-inline'>h</span><font color=red>i</font><b class=x>j</b>",
        ] {
            let waits = Arc::new(());
            let tree = parsed(html, || false).unwrap();
            let shown = markdown(&tree, html.len(), &Arc::downgrade(&waits)).unwrap();
            let htmd = HtmlToMarkdown::builder().skip_tags(SKIPPED.to_vec()).build();
            assert_eq!(shown, htmd.convert(html).unwrap(), "{html}");
        }
    }

    proptest! {
        #[test]
        fn cf03_the_tree_is_that_of_the_parser(
            parts in prop::collection::vec((prop::sample::select(vec![
                "<table>", "<caption>", "<tbody>", "<tr>", "<td>", "</td>", "</tr>", "</table>", "<b>", "</b>",
                "<i a=1>", "</i>", "<nobr>", "<code class=x>", "</code>", "<p>", "</p>", "<div>", "</div>", "<ul>",
                "<li>", "</ul>", "<a href=x>", "</a>", "<span>", "</span>", "<h2>", "</h2>", "<select>", "<option>",
                "</option>",
                "</select>", "<svg>", "<font color=x>", "</svg>", "<math>", "<mi>", "<object>", "</object>", "<script>",
                "</script>", "<br>", "<html a=1>", "<body b>", "</body>", "<form>", "</form>", "<frameset>", "<!--c-->",
            ]), prop::sample::select(vec!["", "", "x", " y ", "\n"])), 0..60)
        ) {
            let html: String = parts.into_iter().flat_map(|(tag, text)| [tag, text]).collect();
            let expected = parse_document(RcDom::default(), ParseOpts::default()).one(html.as_str()).document;
            prop_assert_eq!(shape(&parsed(&html, || false).unwrap()), shape(&expected));
        }
    }
}
