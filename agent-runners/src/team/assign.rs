//! Members for the items of a plan, and the graph that the items run as. Pure.

use std::{collections::BTreeMap, sync::Arc};

use entourage_core::{Error, ErrorKind, Result, agent::Agent, provider::Size};

use super::{
    Member, Performance, TaskType,
    plan::{PlannedItem, TeamItem, TeamPlan},
};
use crate::graph::{TaskGraph, TaskGraphBuilder};

/// Most items of one plan.
pub(super) const MOST_ITEMS: usize = 200;

/// The members of a team by id, and what is known of them.
#[derive(Debug, Clone)]
pub(super) struct Roster {
    /// In the order in which they were added.
    pub(super) members: Vec<Member>,
    pub(super) performance: Performance,
    /// The member that does what nobody else fits.
    pub(super) main: Arc<str>,
}

impl Roster {
    pub(super) fn member(&self, id: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.id() == id)
    }

    /// Returns the items with their members.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`], in words for a model, for a plan that is neither an answer nor work, and for a
    /// member that there is not.
    pub(super) fn assign(&self, plan: &TeamPlan) -> Result<Vec<TeamItem>> {
        let invalid = |text: String| Err(Error::new(ErrorKind::InvalidInput, text));
        match (plan.answer.as_deref().unwrap_or_default().trim(), plan.items.len()) {
            ("", 0) => return invalid("the plan has no items and no answer; give one of both".to_owned()),
            ("", count) if count > MOST_ITEMS => {
                return invalid(format!("{count} items are too many; join some, at most {MOST_ITEMS}"));
            }
            ("", _) | (_, 0) => {}
            _ => return invalid("the plan has items and an answer; leave one of both out".to_owned()),
        }
        plan.items.iter().map(|item| self.item(item)).collect()
    }

    fn item(&self, item: &PlannedItem) -> Result<TeamItem> {
        Ok(TeamItem {
            id: item.id.as_str().into(),
            task: item.task.as_str().into(),
            kind: item.kind,
            after: item.after.iter().map(|id| id.as_str().into()).collect(),
            members: self.levels(item)?,
            expected_seconds: item.expected_seconds,
        })
    }

    /// Returns the members that may do the item, one list for each attempt: the named one, else the specialist, else
    /// those of the size that fits, else the main one; then those of each larger size.
    fn levels(&self, item: &PlannedItem) -> Result<Vec<Vec<Arc<str>>>> {
        let named = item.member.as_deref().map(|id| {
            self.member(id).ok_or_else(|| {
                let ids: Vec<_> = self.members.iter().map(Member::id).collect();
                let text = format!(
                    "`{}` names the member `{id}`, which there is not; there are {}",
                    item.id,
                    ids.join(", ")
                );
                Error::new(ErrorKind::InvalidInput, text)
            })
        });
        let named = named.transpose()?.or_else(|| self.specialist(item.kind));
        let sizes = self.sizes();
        let fitting = item.kind.size(sizes.keys().copied());
        let (first, from) = match (named, fitting) {
            (Some(member), _) => (vec![Arc::from(member.id())], member.size),
            (None, Some(size)) => (self.ranked(sizes.get(&size), item.kind), size),
            (None, None) => {
                let size = self.member(&self.main).map_or(Size::M, |main| main.size);
                (vec![Arc::clone(&self.main)], size)
            }
        };
        let larger = sizes.range(from..).filter(|(size, _)| **size > from);
        let larger = larger.map(|(_, members)| self.ranked(Some(members), item.kind));
        Ok(std::iter::once(first).chain(larger).collect())
    }

    fn specialist(&self, kind: TaskType) -> Option<&Member> {
        self.members.iter().rev().find(|member| member.specialties.contains(&kind))
    }

    fn sizes(&self) -> BTreeMap<Size, Vec<&str>> {
        let mut sizes: BTreeMap<Size, Vec<&str>> = BTreeMap::new();
        // The main one is kept for what nobody else fits.
        for member in self.members.iter().filter(|member| member.id() != &*self.main) {
            sizes.entry(member.size).or_default().push(member.id());
        }
        sizes
    }

    fn ranked(&self, members: Option<&Vec<&str>>, kind: TaskType) -> Vec<Arc<str>> {
        let members = members.into_iter().flatten().copied();
        self.performance.ranked(members, kind).into_iter().map(Arc::from).collect()
    }

    /// Returns the builder of the graph of these items. `agent` is what works for a member.
    ///
    /// # Errors
    /// [`ErrorKind::Diverged`] for a member that the team does not have any more.
    pub(super) fn graph(
        &self,
        name: &str,
        items: &[TeamItem],
        agent: impl Fn(&Member) -> Arc<dyn Agent>,
    ) -> Result<TaskGraphBuilder> {
        let agents: BTreeMap<&str, (Size, Arc<dyn Agent>)> =
            self.members.iter().map(|member| (member.id(), (member.size, agent(member)))).collect();
        let mut builder = TaskGraph::builder(name);
        for item in items {
            let sized = |id: &Arc<str>| {
                let (size, agent) = agents.get(&**id).ok_or_else(|| gone(id))?;
                Ok((*size, Arc::clone(agent)))
            };
            let agents = item.members.iter().flatten().map(sized).collect::<Result<Vec<_>>>()?;
            builder.add_item(&item.id, &item.after, &item.task, agents, item.expected_seconds);
        }
        for member in &self.members {
            builder = builder.agent_limit(member.id(), member.replicas);
        }
        Ok(agents.into_values().fold(builder, |builder, (_, agent)| builder.with_agent(agent)))
    }
}

fn gone(id: &str) -> Error {
    let text = "the plan of this run names a member that the team does not have now; resume it with the team that made it";
    Error::new(ErrorKind::Diverged, text).with("member", id)
}
