//! The progress of a graph's run: a fold over its records, so that every reader of the events can see it.

use std::{borrow::Cow, collections::HashMap, fmt, sync::Arc, time::Duration};

use entourage_core::{
    ErrorKind, ErrorRecord, Money, Result, SessionId, Timestamp, Usage,
    event::{Envelope, Event},
};
use entourage_runtime::Session;

use super::{
    Change, EdgeSignature, GraphSignature, GraphStarted, Handle, NodeEnd, NodeFinished, NodeSignature,
    NodeStarted, Output,
    picture::{Arrow, Picture, Shape},
    problem::shown,
    records::GraphRecord,
};

/// Events that are read at once.
const WINDOW: usize = 1_000;

/// Progress of a graph's run, node by node, in the order in which they were added. Items of a map come after all nodes,
/// as `id[0]`, `id[1]` and so on.
///
/// `Display` is a table; [`GraphReport::mermaid`] and [`GraphReport::dot`] are pictures.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct GraphReport {
    /// The graph's name; empty before its run began.
    pub name: Arc<str>,
    /// The nodes and items.
    pub nodes: Vec<NodeReport>,
}

/// Progress of a node.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct NodeReport {
    /// Id of the node.
    pub id: Arc<str>,
    /// Edges from the nodes that it depends on.
    pub after: Vec<EdgeSignature>,
    /// Agent that works on it; `None` for a step of the program itself.
    pub agent: Option<Arc<str>>,
    /// Session of the newest attempt, if an agent works on the node.
    pub child: Option<SessionId>,
    /// Number of attempts that began.
    pub attempts: u32,
    /// Start of the newest attempt, while it runs.
    pub since: Option<Timestamp>,
    /// End of the node, with its output; `None` until then.
    pub end: Option<NodeEnd>,
    /// Total duration of the attempts that ended.
    pub time: Duration,
    /// Tokens of these attempts and of all agents below, as far as services reported them.
    pub usage: Usage,
    /// Cost of these attempts; `None` when unknown.
    pub cost: Option<Money>,
    /// Error of the newest attempt that failed, whatever became of the node.
    pub(crate) failure: Option<ErrorRecord>,
}

/// State of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NodeState {
    /// The node waits: for other nodes, for a slot, or for its next attempt.
    Pending,
    /// An attempt is running.
    Running,
    /// The node is done.
    Completed,
    /// The node failed.
    Failed,
    /// The node was not run, or not to its end.
    Skipped,
    /// The node was cancelled.
    Cancelled,
}

impl NodeReport {
    pub(crate) fn new(node: &NodeSignature) -> Self {
        Self {
            id: Arc::clone(&node.id),
            after: node.after.clone(),
            agent: node.agent.clone(),
            child: None,
            attempts: 0,
            since: None,
            end: None,
            time: Duration::ZERO,
            usage: Usage::default(),
            cost: Some(Money::default()),
            failure: None,
        }
    }

    /// Returns the state.
    #[must_use]
    pub fn state(&self) -> NodeState {
        match &self.end {
            Some(NodeEnd::Completed(_)) => NodeState::Completed,
            Some(NodeEnd::Failed(_)) => NodeState::Failed,
            Some(NodeEnd::Skipped(_)) => NodeState::Skipped,
            Some(NodeEnd::Cancelled) => NodeState::Cancelled,
            None if self.since.is_some() => NodeState::Running,
            None => NodeState::Pending,
        }
    }

    fn started(&mut self, record: &NodeStarted, at: Timestamp) {
        self.attempts = self.attempts.max(record.attempt);
        self.agent.clone_from(&record.agent);
        self.child.clone_from(&record.child);
        self.since = Some(at);
        self.end = None;
    }

    fn finished(&mut self, record: &NodeFinished) {
        self.attempts = self.attempts.max(record.attempt);
        self.since = None;
        if let NodeEnd::Failed(error) = &record.end {
            self.failure = Some(error.clone());
        }
        self.end = Some(record.end.clone()).filter(|_| record.retry_at.is_none());
        self.time = self.time.saturating_add(Duration::from_micros(record.micros));
        self.usage += record.usage;
        // The cost of a program's step is unknown to us, and an attempt that never began costs nothing.
        if self.agent.is_some() && record.attempt > 0 {
            self.cost = self.cost.zip(record.cost).map(|(sum, cost)| sum + cost);
        }
    }

    /// Text of the label besides the id.
    fn facts(&self) -> String {
        let mut facts = vec![self.state().to_string()];
        if self.attempts > 1 {
            facts.push(format!("{} attempts", self.attempts));
        }
        if self.has_facts() {
            facts.push(shown_time(self.time));
        }
        facts.extend(self.shown_tokens().map(|tokens| format!("{tokens} tokens")));
        facts.extend(self.shown_cost());
        facts.join(", ")
    }

    /// True when an attempt ended, so that there is a duration to show.
    fn has_facts(&self) -> bool {
        self.attempts > u32::from(self.since.is_some())
    }

    /// Returns the tokens; `None` where no model calls are known.
    fn shown_tokens(&self) -> Option<Cow<'static, str>> {
        match self.usage.total() {
            Some(tokens) => Some(tokens.to_string().into()),
            None => (self.shown_cost()? != Money::default().to_string()).then_some("unknown".into()),
        }
    }

    fn shown_cost(&self) -> Option<String> {
        if self.agent.is_none() || !self.has_facts() {
            return None;
        }
        Some(self.cost.map_or_else(|| "cost unknown".to_owned(), |cost| cost.to_string()))
    }
}

/// Calls `see` on each stored event of a session.
pub(crate) async fn each_event(
    session: &Session,
    mut see: impl FnMut(&Envelope) -> Result<()>,
) -> Result<()> {
    let mut after = 0;
    loop {
        let events = match session.events(after, WINDOW).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            events => events?,
        };
        events.iter().try_for_each(&mut see)?;
        match events.last() {
            Some(last) if events.len() == WINDOW => after = last.seq,
            _ => return Ok(()),
        }
    }
}

impl GraphReport {
    pub(crate) fn new(name: &str, signature: &GraphSignature) -> Self {
        Self { name: name.into(), nodes: signature.nodes.iter().map(NodeReport::new).collect() }
    }

    /// Builds the report of the newest graph run in these events of one session, given in their order. Other events are
    /// ignored.
    ///
    /// Another process can follow a run this way: it reads the session's events from the store.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](entourage_core::ErrorKind::Corrupt) for a record that cannot be read,
    /// [`ErrorKind::NewerVersion`](entourage_core::ErrorKind::NewerVersion) for one of a newer version.
    pub fn from_events<'a>(events: impl IntoIterator<Item = &'a Envelope>) -> Result<Self> {
        let mut fold = Fold::default();
        for event in events {
            fold.see(event)?;
        }
        Ok(fold.report)
    }

    /// Reads the report of the newest graph run of a session, in whatever process: that of before a resume, say. Empty
    /// for a session that is not stored, or without a graph.
    ///
    /// # Errors
    /// Those of [`GraphReport::from_events`], the store's.
    pub async fn of(session: &Session) -> Result<Self> {
        let mut fold = Fold::default();
        each_event(session, |event| fold.see(event)).await?;
        Ok(fold.report)
    }

    /// Takes in one more event; `places` are those of the nodes so far.
    pub(crate) fn see(&mut self, places: &mut Places, event: &Envelope) -> Result<()> {
        let mut fold = Fold { report: std::mem::take(self), places: std::mem::take(places) };
        let seen = fold.see(event);
        (*self, *places) = (fold.report, fold.places);
        seen
    }

    /// Returns the node of this id.
    #[must_use]
    pub fn node(&self, id: &str) -> Option<&NodeReport> {
        self.nodes.iter().find(|node| &*node.id == id)
    }

    /// Returns this node's output; `None` when it gave none, or when no node has its id.
    ///
    /// With [`GraphReport::from_events`] this reads the typed result of a stored run, in any process that builds the
    /// graph again: keep the handle of the node that the graph returns.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](entourage_core::ErrorKind::Corrupt) when the output is no `T`: the handle is of another
    /// graph.
    pub fn value<T: Output>(&self, node: &Handle<T>) -> Result<Option<Arc<T>>> {
        match self.node(node.id()).and_then(|node| node.end.as_ref()) {
            Some(NodeEnd::Completed(value)) => value.get().map(Some),
            _ => Ok(None),
        }
    }

    /// Returns the number of nodes in this state.
    #[must_use]
    pub fn count(&self, state: NodeState) -> usize {
        self.nodes.iter().filter(|node| node.state() == state).count()
    }

    /// Returns the tokens of all attempts that ended and of all agents below, as far as services reported them.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.nodes.iter().map(|node| node.usage).sum()
    }

    /// Returns the cost of these attempts; `None` when any cost is unknown.
    #[must_use]
    pub fn cost(&self) -> Option<Money> {
        self.nodes.iter().try_fold(Money::default(), |sum, node| node.cost.map(|cost| sum + cost))
    }

    /// Returns the run as [Mermaid](https://mermaid.js.org) text: the graph, with the state, time, tokens and cost of
    /// each node.
    #[must_use]
    pub fn mermaid(&self) -> String {
        self.picture().mermaid()
    }

    /// Returns the run as text in Graphviz' DOT language.
    #[must_use]
    pub fn dot(&self) -> String {
        self.picture().dot()
    }

    fn picture(&self) -> Picture<'_> {
        let places: HashMap<&str, usize> =
            self.nodes.iter().enumerate().map(|(place, node)| (&*node.id, place)).collect();
        let (mut nodes, mut edges) = (Vec::new(), Vec::new());
        for (to, node) in self.nodes.iter().enumerate() {
            let mut lines: Vec<Cow<'_, str>> = vec![(&*node.id).into()];
            lines.extend(node.agent.as_deref().map(Into::into));
            lines.push(node.facts().into());
            nodes.push(Shape { lines, step: node.agent.is_none(), class: Some(node.state().as_str()) });
            for EdgeSignature { from, conditional, optional } in &node.after {
                let from = places.get(&**from);
                let (conditional, optional) = (*conditional, *optional);
                edges.extend(from.map(|from| Arrow { from: *from, to, conditional, optional }));
            }
            let map = places.get(map_of(&node.id).unwrap_or_default());
            edges.extend(map.map(|from| Arrow { from: *from, to, conditional: false, optional: true }));
        }
        Picture { name: &self.name, nodes, edges }
    }
}

/// Returns the map that `id` is an item of. No other id contains brackets.
fn map_of(id: &str) -> Option<&str> {
    id.strip_suffix(']')?.rsplit_once('[').map(|(map, _)| map)
}

/// Index of each node of a report.
pub(crate) type Places = HashMap<Arc<str>, usize>;

#[derive(Default)]
struct Fold {
    report: GraphReport,
    places: Places,
}

impl Fold {
    fn see(&mut self, envelope: &Envelope) -> Result<()> {
        let Event::Recorded(record) = &envelope.event else { return Ok(()) };
        match GraphRecord::of(record)? {
            Some(GraphRecord::Started(started)) => self.begin(&envelope.origin.agent, &started),
            Some(GraphRecord::NodeStarted(started)) => {
                if let Some(node) = self.node(&started.node) {
                    node.started(&started, envelope.at);
                }
                self.items_again(&started.node);
            }
            Some(GraphRecord::NodeFinished(finished)) => {
                if let Some(node) = self.node(&finished.node) {
                    node.finished(&finished);
                }
            }
            Some(GraphRecord::Changed(changed)) => {
                self.change(&changed.change);
                for node in &changed.again {
                    self.wait_again(node);
                }
            }
            Some(GraphRecord::Asked(_) | GraphRecord::Answered(_)) | None => {}
        }
        Ok(())
    }

    fn begin(&mut self, path: &str, started: &GraphStarted) {
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        self.report = GraphReport::new(name, &started.signature);
        let nodes = self.report.nodes.iter().enumerate();
        self.places = nodes.map(|(place, node)| (Arc::clone(&node.id), place)).collect();
    }

    /// Returns the node of this id. An item of a map is created when an event first names it.
    fn node(&mut self, id: &Arc<str>) -> Option<&mut NodeReport> {
        if !self.places.contains_key(id) {
            let map = self.report.node(map_of(id)?)?;
            let node = NodeSignature {
                id: Arc::clone(id),
                after: Vec::new(),
                agent: map.agent.clone(),
                version: Box::default(),
                output: None,
            };
            self.add(&node);
        }
        self.report.nodes.get_mut(*self.places.get(id)?)
    }

    fn wait_again(&mut self, node: &Arc<str>) {
        if let Some(node) = self.node(node) {
            node.end = None;
        }
    }

    /// The items of a map begin with each of its attempts, save those that gave a value.
    fn items_again(&mut self, map: &str) {
        let items =
            (0..).map(|number| format!("{map}[{number}]")).map_while(|item| self.places.get(&*item).copied());
        for place in items.collect::<Vec<_>>() {
            let item = self.report.nodes.get_mut(place).filter(|item| item.state() != NodeState::Completed);
            if let Some(item) = item {
                item.end = None;
            }
        }
    }

    fn add(&mut self, node: &NodeSignature) {
        self.places.insert(Arc::clone(&node.id), self.report.nodes.len());
        self.report.nodes.push(NodeReport::new(node));
    }

    fn change(&mut self, change: &Change) {
        match change {
            Change::Add { node, .. } if !self.places.contains_key(&node.id) => self.add(node),
            Change::Reassign { node, agent } => {
                if let Some(node) = self.node(node) {
                    node.agent = Some(Arc::clone(agent));
                }
            }
            Change::Retry { node } => self.wait_again(node),
            // The effect of a skip or a cancel is recorded as the end of the node.
            Change::Add { .. } | Change::Skip { .. } | Change::Cancel { .. } => {}
        }
    }
}

impl NodeState {
    /// Returns the serialized name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
        }
    }

    /// True when the node is over, unless it is retried.
    #[must_use]
    pub fn is_over(self) -> bool {
        !matches!(self, Self::Pending | Self::Running)
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for GraphReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width =
            self.nodes.iter().map(|node| shown(&node.id).chars().count()).max().unwrap_or_default().max(4);
        writeln!(f, "{:width$}  state      tries     time   tokens        cost  agent", "node")?;
        for node in &self.nodes {
            let tokens = node.shown_tokens().unwrap_or_default();
            let time = if node.has_facts() { shown_time(node.time) } else { String::new() };
            let cost = match node.shown_cost() {
                Some(_) if node.cost.is_none() => "unknown".to_owned(),
                shown => shown.unwrap_or_default(),
            };
            let agent = node.agent.as_deref().map(shown).unwrap_or_default();
            let line = format!(
                "{:width$}  {:9}  {:>5}  {time:>7}  {tokens:>7}  {cost:>10}  {agent}",
                shown(&node.id),
                node.state(),
                node.attempts
            );
            writeln!(f, "{}", line.trim_end())?;
        }
        let cost = self.cost().map_or_else(|| "cost unknown".to_owned(), |cost| cost.to_string());
        let done = self.count(NodeState::Completed);
        write!(f, "{done} of {} completed, {}, {cost}", self.nodes.len(), self.usage())
    }
}

/// Formats a duration in two or three digits with a unit.
fn shown_time(time: Duration) -> String {
    let micros = time.as_micros();
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{} ms", micros / 1_000),
        1_000_000..60_000_000 => format!("{}.{} s", micros / 1_000_000, micros % 1_000_000 / 100_000),
        _ => format!("{} min {} s", micros / 60_000_000, micros / 1_000_000 % 60),
    }
}
