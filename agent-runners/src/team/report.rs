//! Who does what in a team: a fold over the events of its session.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use entourage_core::{
    Result, RunId, SessionId,
    event::{Envelope, Event, plain_line},
    team::Todo,
};
use entourage_runtime::Session;

use super::{TeamItem, TeamMessage, TeamPlanned};
use crate::graph::{GraphReport, NodeEnd, NodeFinished, NodeReport, NodeState, Places, each_event};

/// Characters of a task that a line shows.
const SHOWN: usize = 60;

/// A team's run as a live list: its items, who does each, and how it stands.
///
/// `Display` is the list; [`TeamReport::todos`] gives it as data.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct TeamReport {
    /// The items as the lead planned them.
    pub items: Vec<TeamItem>,
    /// The items as they stand, with those that were added later.
    pub graph: GraphReport,
    /// The messages of the mailbox, oldest first.
    pub messages: Vec<Arc<TeamMessage>>,
    /// The team's session, once its plan was made.
    session: Option<SessionId>,
    /// Its run.
    run: Option<RunId>,
    /// True once that run ended.
    is_over: bool,
    places: Places,
    /// The attempts that ended, oldest first.
    pub(super) tries: Vec<Try>,
}

/// An attempt at an item that was completed or failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Try {
    pub(super) item: Arc<str>,
    pub(super) member: Arc<str>,
    pub(super) success: bool,
    pub(super) time: Duration,
}

/// A member in a [`TeamReport`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberReport {
    /// Its id.
    pub id: Arc<str>,
    /// Its status.
    pub status: MemberStatus,
    /// Ids of the items that it works on.
    pub items: Vec<Arc<str>>,
}

/// The status of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemberStatus {
    /// Nothing is left that it alone must do.
    Idle,
    /// It works on an item.
    Working,
    /// An item that it alone must do waits for others.
    Waiting,
}

impl TeamReport {
    /// Builds the report of the newest run of a team in these events, given in their order, as
    /// [`TeamReport::update`] takes each in.
    ///
    /// # Errors
    /// Those of [`TeamReport::update`].
    pub fn from_events<'a>(events: impl IntoIterator<Item = &'a Envelope>) -> Result<Self> {
        let mut report = Self::default();
        for event in events {
            report.update(event)?;
        }
        Ok(report)
    }

    /// Reads the report of the newest run of a team in a session: the list to go on with when a run is resumed, which
    /// tells of what happens from then on alone. Empty for a session that is not stored, or without a team.
    ///
    /// # Errors
    /// Those of [`TeamReport::update`], the store's.
    pub async fn of(session: &Session) -> Result<Self> {
        let mut report = Self::default();
        each_event(session, |event| report.update(event).map(drop)).await?;
        Ok(report)
    }

    /// Takes in one more event of a run, and returns whether it is one of the team's items or messages. All others are
    /// ignored, also those of the sessions below, where members may be teams too.
    ///
    /// A team that plans in another session once this one's run ended begins the list anew: an agent may call a team as
    /// a tool several times. Of two teams that work side by side the list shows the one that planned first.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](entourage_core::ErrorKind::Corrupt) for a record that cannot be read,
    /// [`ErrorKind::NewerVersion`](entourage_core::ErrorKind::NewerVersion) for one of a newer version.
    pub fn update(&mut self, event: &Envelope) -> Result<bool> {
        let (session, run) = (&event.origin.session, event.origin.run);
        let is_own = self.session.as_ref().is_none_or(|own| own == session);
        if !is_own && !self.is_over {
            return Ok(false);
        }
        if is_own && self.run == Some(run) {
            self.is_over = matches!(event.event, Event::RunFinished(_));
        }
        let record = match &event.event {
            // Whatever runs next in the session has nothing to do with the team's items.
            Event::RunStarted(_) if is_own && self.run.is_some_and(|own| own != run) => {
                *self = Self { session: self.session.take(), is_over: true, ..Self::default() };
                return Ok(true);
            }
            Event::Recorded(record) => record,
            _ => return Ok(false),
        };
        if let Some(planned) = record.get::<TeamPlanned>()? {
            let items = planned.items.clone();
            *self = Self { items, session: Some(session.clone()), run: Some(run), ..Self::default() };
            return Ok(true);
        }
        if !is_own || self.run != Some(run) {
            return Ok(false);
        }
        if let Some(message) = record.get::<TeamMessage>()? {
            self.messages.push(message);
            return Ok(true);
        }
        if let Some(finished) = record.get::<NodeFinished>()? {
            let place = self.places.get(&finished.node);
            let member = place.and_then(|place| self.graph.nodes.get(*place)?.agent.clone());
            self.tries.extend(member.and_then(|member| tried(&finished, member)));
        }
        self.graph.see(&mut self.places, event)?;
        let name = record.name();
        Ok(name.starts_with("graph.") && !name.starts_with("graph.supervisor_"))
    }

    /// Returns a planned item.
    #[must_use]
    pub fn item(&self, id: &str) -> Option<&TeamItem> {
        self.items.iter().find(|item| &*item.id == id)
    }

    /// Returns the members that items were planned for or given to, by id.
    #[must_use]
    pub fn members(&self) -> Vec<MemberReport> {
        let mut members: BTreeMap<Arc<str>, (Vec<Arc<str>>, bool)> = BTreeMap::new();
        for id in self.items.iter().flat_map(|item| item.members.iter().flatten()) {
            members.entry(Arc::clone(id)).or_default();
        }
        for node in &self.graph.nodes {
            let state = node.state();
            if let Some(agent) = node.agent.as_ref().filter(|_| state == NodeState::Running) {
                members.entry(Arc::clone(agent)).or_default().0.push(Arc::clone(&node.id));
            }
            if let Some([only]) = self.first(node).filter(|_| state == NodeState::Pending) {
                members.entry(Arc::clone(only)).or_default().1 = true;
            }
        }
        let member = |(id, (items, waits)): (_, (Vec<_>, bool))| {
            let status = match (items.is_empty(), waits) {
                (false, _) => MemberStatus::Working,
                (true, true) => MemberStatus::Waiting,
                (true, false) => MemberStatus::Idle,
            };
            MemberReport { id, status, items }
        };
        members.into_iter().map(member).collect()
    }

    /// Returns the members of which one begins the item.
    fn first(&self, node: &NodeReport) -> Option<&[Arc<str>]> {
        self.item(&node.id)?.members.first().map(Vec::as_slice)
    }

    /// Returns the run as a todo list, one entry for each item: a view that follows the work.
    #[must_use]
    pub fn todos(&self) -> Vec<Todo> {
        self.graph.todos()
    }

    fn line(&self, node: &NodeReport, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match node.state() {
            NodeState::Completed => "[x]",
            NodeState::Running => "[>]",
            NodeState::Pending => "[ ]",
            NodeState::Failed => "[!]",
            NodeState::Skipped | NodeState::Cancelled => "[-]",
        };
        write!(f, "{sign} {}", node.id)?;
        if let Some(item) = self.item(&node.id) {
            write!(f, ": {}", shown(item))?;
        }
        // Until an attempt began, any of several members may make it.
        if let Some(agent) = node.agent.as_ref().filter(|_| node.attempts > 0) {
            write!(f, " ({agent})")?;
        }
        match &node.end {
            Some(NodeEnd::Failed(error)) => write!(f, ": {}", plain_line(&error.message)),
            _ if node.attempts > 1 => write!(f, ", attempt {}", node.attempts),
            _ => Ok(()),
        }
    }
}

fn shown(item: &TeamItem) -> String {
    plain_line(&item.task).chars().take(SHOWN).collect()
}

/// Returns the attempt that ended so; `None` for one that was broken off.
fn tried(finished: &NodeFinished, member: Arc<str>) -> Option<Try> {
    let success = match finished.end {
        NodeEnd::Completed(_) => true,
        NodeEnd::Failed(_) => false,
        NodeEnd::Skipped(_) | NodeEnd::Cancelled => return None,
    };
    let (item, time) = (Arc::clone(&finished.node), Duration::from_micros(finished.micros));
    Some(Try { item, member, success, time })
}

impl fmt::Display for TeamReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.graph.nodes.is_empty() {
            let lines: Vec<_> =
                self.items.iter().map(|item| format!("[ ] {}: {}", item.id, shown(item))).collect();
            return f.write_str(&lines.join("\n"));
        }
        for (number, node) in self.graph.nodes.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            self.line(node, f)?;
        }
        Ok(())
    }
}
