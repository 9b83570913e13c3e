//! Graphs as text for drawing programs: Mermaid and DOT.
//!
//! Ids in these texts are indices (`n0`, `n1`, …); text from outside occurs in labels only, escaped.

use std::{
    borrow::Cow,
    collections::HashMap,
    fmt::{self, Write as _},
};

use super::{EdgeSignature, GraphSignature, TaskGraph};

/// A drawing.
pub(super) struct Picture<'a> {
    pub(super) name: &'a str,
    pub(super) nodes: Vec<Shape<'a>>,
    pub(super) edges: Vec<Arrow>,
}

/// A drawn node.
pub(super) struct Shape<'a> {
    /// Lines of its label.
    pub(super) lines: Vec<Cow<'a, str>>,
    /// True for a step of the program itself.
    pub(super) step: bool,
    /// State of the node: a class of [`CLASSES`].
    pub(super) class: Option<&'static str>,
}

/// A drawn edge, between node indices.
pub(super) struct Arrow {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) conditional: bool,
    pub(super) optional: bool,
}

/// States of a node with their fill and line colours.
pub(super) const CLASSES: [(&str, &str, &str); 6] = [
    ("pending", "#ffffff", "#9e9e9e"),
    ("running", "#e3f2fd", "#1565c0"),
    ("completed", "#e8f5e9", "#2e7d32"),
    ("failed", "#ffebee", "#c62828"),
    ("skipped", "#f5f5f5", "#757575"),
    ("cancelled", "#fff3e0", "#ef6c00"),
];

impl<O> TaskGraph<O> {
    /// Returns the graph as [Mermaid](https://mermaid.js.org) text. Steps of the program have square corners, agents
    /// round ones; a dotted arrow is optional, an arrow marked `if` has a condition.
    ///
    /// ```
    /// use entourage_runners::graph::TaskGraph;
    ///
    /// let graph = TaskGraph::builder("report");
    /// let sales = graph.step("sales", (), |()| async { Ok(3_u32) });
    /// graph.step("total", &sales, |sales| async move { Ok(*sales) });
    /// assert_eq!(
    ///     graph.build().unwrap().mermaid(),
    ///     "flowchart TD\n    n0[\"sales\"]\n    n1[\"total\"]\n    n0 --> n1\n"
    /// );
    /// ```
    #[must_use]
    pub fn mermaid(&self) -> String {
        self.picture().mermaid()
    }

    /// Returns the graph as text in Graphviz' DOT language: as [`TaskGraph::mermaid`], but an optional edge is dashed.
    #[must_use]
    pub fn dot(&self) -> String {
        self.picture().dot()
    }

    fn picture(&self) -> Picture<'_> {
        let signature = self.signature();
        let nodes = signature.nodes.iter().map(|node| {
            let mut lines = vec![(&*node.id).into()];
            lines.extend(node.agent.as_deref().map(Into::into));
            Shape { lines, step: node.agent.is_none(), class: None }
        });
        Picture { name: &self.inner.name, nodes: nodes.collect(), edges: arrows(signature) }
    }
}

/// Returns the edges of a signature, without those from unknown nodes.
pub(super) fn arrows(signature: &GraphSignature) -> Vec<Arrow> {
    let places: HashMap<_, _> =
        signature.nodes.iter().enumerate().map(|(place, node)| (&node.id, place)).collect();
    let arrow = |to: usize, edge: &EdgeSignature| {
        let EdgeSignature { conditional, optional, .. } = *edge;
        places.get(&edge.from).map(|from| Arrow { from: *from, to, conditional, optional })
    };
    let nodes = signature.nodes.iter().enumerate();
    nodes.flat_map(|(to, node)| node.after.iter().filter_map(move |edge| arrow(to, edge))).collect()
}

impl Picture<'_> {
    pub(super) fn mermaid(&self) -> String {
        let mut text = "flowchart TD\n".to_owned();
        // Writing to a string never fails.
        let _ = self.write_mermaid(&mut text);
        text
    }

    fn write_mermaid(&self, text: &mut String) -> fmt::Result {
        for (place, node) in self.nodes.iter().enumerate() {
            let (open, close) = if node.step { ("[", "]") } else { ("([", "])") };
            let label = label(node, in_mermaid, "<br/>");
            let class = node.class.map(|class| format!(":::{class}")).unwrap_or_default();
            writeln!(text, "    n{place}{open}\"{label}\"{close}{class}")?;
        }
        for Arrow { from, to, conditional, optional } in &self.edges {
            let arrow = if *optional { "-.->" } else { "-->" };
            let mark = if *conditional { "|if|" } else { "" };
            writeln!(text, "    n{from} {arrow}{mark} n{to}")?;
        }
        let used = |class: &str| self.nodes.iter().any(|node| node.class == Some(class));
        for (class, area, line) in CLASSES.iter().filter(|(class, ..)| used(class)) {
            writeln!(text, "    classDef {class} fill:{area},stroke:{line},color:#212121")?;
        }
        Ok(())
    }

    pub(super) fn dot(&self) -> String {
        let mut text = String::new();
        // Writing to a string never fails.
        let _ = self.write_dot(&mut text);
        text
    }

    fn write_dot(&self, text: &mut String) -> fmt::Result {
        writeln!(text, "digraph \"{}\" {{", in_dot(self.name))?;
        writeln!(text, "    node [shape=box]")?;
        for (place, node) in self.nodes.iter().enumerate() {
            let label = label(node, in_dot, "\\n");
            write!(text, "    n{place} [label=\"{label}\"")?;
            let colours = CLASSES.iter().find(|(class, ..)| Some(*class) == node.class);
            let mut style: Vec<_> = colours.map(|_| "filled").into_iter().collect();
            style.extend((!node.step).then_some("rounded"));
            if !style.is_empty() {
                write!(text, ", style=\"{}\"", style.join(","))?;
            }
            if let Some((_, area, line)) = colours {
                write!(text, ", fillcolor=\"{area}\", color=\"{line}\"")?;
            }
            writeln!(text, "]")?;
        }
        for Arrow { from, to, conditional, optional } in &self.edges {
            let marks = match (conditional, optional) {
                (false, false) => "",
                (true, false) => " [label=\"if\"]",
                (false, true) => " [style=dashed]",
                (true, true) => " [label=\"if\", style=dashed]",
            };
            writeln!(text, "    n{from} -> n{to}{marks}")?;
        }
        writeln!(text, "}}")
    }
}

fn label(node: &Shape<'_>, escaped: fn(&str) -> String, newline: &str) -> String {
    node.lines.iter().map(|line| escaped(line)).collect::<Vec<_>>().join(newline)
}

/// Escapes a text for a quoted label of Mermaid: letters, digits and a few harmless characters are kept, all others
/// become character references. So quotes, brackets, directives and HTML have no effect.
fn in_mermaid(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // At the beginning of a label `1.` and `-` would make a list.
            '.' if !safe.chars().all(|before| before.is_ascii_digit()) => safe.push(c),
            '-' if !safe.is_empty() => safe.push(c),
            ' ' | '_' | ',' | ':' | '/' | '$' | '[' | ']' => safe.push(c),
            c if c.is_alphanumeric() => safe.push(c),
            c if c.is_control() => safe.push(' '),
            c => {
                let _ = write!(safe, "#{};", u32::from(c));
            }
        }
    }
    safe
}

/// Escapes a text for a quoted string of DOT.
fn in_dot(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                safe.push('\\');
                safe.push(c);
            }
            c if c.is_control() => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}
