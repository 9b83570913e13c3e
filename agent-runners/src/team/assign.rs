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

    /// Checks that the team has the members that a plan names.
    ///
    /// # Errors
    /// [`ErrorKind::Diverged`] for a member that the team does not have any more.
    pub(super) fn check(&self, items: &[TeamItem]) -> Result<()> {
        let mut named = items.iter().flat_map(|item| item.members.iter().flatten());
        let is_gone = |id: &&Arc<str>| self.members.iter().all(|member| member.id() != &***id);
        named.find(is_gone).map_or(Ok(()), |id| Err(gone(id)))
    }

    /// Returns the builder of the graph of these items. `agent` is what works for a member.
    ///
    /// # Errors
    /// Those of [`Roster::check`].
    pub(super) fn graph(
        &self,
        name: &str,
        items: &[TeamItem],
        agent: impl Fn(&Member) -> Result<Arc<dyn Agent>>,
    ) -> Result<TaskGraphBuilder> {
        let agent = |member| Ok((Member::id(member), (member.size, agent(member)?)));
        let agents: BTreeMap<&str, (Size, Arc<dyn Agent>)> =
            self.members.iter().map(agent).collect::<Result<_>>()?;
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
    let text = format!(
        "the plan of this run names the member `{id}`, which the team does not have now; resume it with the team that made it"
    );
    Error::new(ErrorKind::Diverged, text).with("member", id)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use async_trait::async_trait;
    use entourage_core::{
        Result,
        agent::Agent,
        provider::Size::{self, L, M, S, Xl, Xs},
        run::{Outcome, RunContext, Task},
    };

    use super::*;
    use crate::team::TaskType::{Code, Edit, Review, Summarize};

    struct Nobody(&'static str);

    #[async_trait]
    impl Agent for Nobody {
        fn name(&self) -> &str {
            self.0
        }

        async fn run(&self, _: Task, _: &RunContext) -> Result<Outcome> {
            Ok(Outcome::completed(""))
        }
    }

    /// The type of an item, and the member that it names.
    type Asked = (TaskType, Option<&'static str>);

    /// The members of which one makes each attempt.
    type Levels = &'static [&'static [&'static str]];

    /// A member, its size and its specialties.
    type Row = (&'static str, Size, &'static [TaskType]);

    fn roster(members: &[Row], performance: Performance) -> Roster {
        let member = |(id, size, types): &Row| {
            Member::new(Arc::new(Nobody(id)) as Arc<dyn Agent>)
                .size(*size)
                .specialist_in(types.iter().copied())
        };
        let main = Member::new(Arc::new(Nobody("lead")) as Arc<dyn Agent>);
        let members = members.iter().map(member).chain([main]).collect();
        Roster { members, performance, main: "lead".into() }
    }

    fn planned(kind: TaskType, member: Option<&str>) -> TeamPlan {
        let (id, task, after) = ("a".to_owned(), "a".to_owned(), Vec::new());
        let member = member.map(str::to_owned);
        TeamPlan {
            answer: None,
            items: vec![PlannedItem { id, task, kind, after, member, expected_seconds: None }],
        }
    }

    #[test]
    fn lo08_the_named_member_then_the_specialist_then_the_fitting_size_then_the_main_one() {
        let all: &[Row] = &[
            ("scout", Xs, &[]),
            ("clerk", S, &[]),
            ("ann", M, &[]),
            ("bob", M, &[]),
            ("eve", L, &[Review]),
            ("max", Xl, &[]),
        ];
        let table: &[(&[Row], Asked, Levels)] = &[
            (all, (Code, Some("scout")), &[&["scout"], &["clerk"], &["ann", "bob"], &["eve"], &["max"]]),
            (all, (Review, None), &[&["eve"], &["max"]]),
            (all, (Review, Some("ann")), &[&["ann"], &["eve"], &["max"]]),
            (all, (Edit, None), &[&["ann", "bob"], &["eve"], &["max"]]),
            (all, (Summarize, None), &[&["clerk"], &["ann", "bob"], &["eve"], &["max"]]),
            (all, (Code, None), &[&["eve"], &["max"]]),
            (&[("scout", Xs, &[])], (Code, None), &[&["lead"]]),
            (&[("scout", Xs, &[Code])], (Code, None), &[&["scout"]]),
            (&[("scout", Xs, &[])], (Code, Some("lead")), &[&["lead"]]),
        ];
        for (members, (kind, named), levels) in table {
            let items = roster(members, Performance::new()).assign(&planned(*kind, *named)).unwrap();
            let found: Vec<Vec<&str>> =
                items[0].members.iter().map(|level| level.iter().map(|id| &**id).collect()).collect();
            assert_eq!(found, *levels, "{kind} {named:?}");
        }
        let error = roster(all, Performance::new()).assign(&planned(Code, Some("zoe"))).unwrap_err();
        assert!(error.message().contains("there are scout, clerk, ann, bob, eve, max, lead"), "{error}");
    }

    #[test]
    fn lo11_the_best_of_a_size_comes_first_and_sizes_stay_apart() {
        let mut performance = Performance::new();
        for (member, success) in [("ann", false), ("bob", true), ("eve", false)] {
            (0..5).for_each(|_| performance.learn(member, Edit, success, Duration::from_secs(1)));
        }
        let roster = roster(&[("ann", M, &[]), ("bob", M, &[]), ("eve", L, &[])], performance);
        let items = roster.assign(&planned(Edit, None)).unwrap();
        assert_eq!(items[0].members, [vec![Arc::from("bob"), Arc::from("ann")], vec![Arc::from("eve")]]);
        let items = roster.assign(&planned(Code, None)).unwrap();
        assert_eq!(items[0].members, [vec![Arc::from("eve")]]);
    }
}
