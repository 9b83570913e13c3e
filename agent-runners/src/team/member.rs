//! The members of a team.

use std::{fmt, marker::PhantomData, sync::Arc};

use entourage_core::{
    agent::{Agent, IntoAgent},
    context::Instructions,
    provider::Size,
};

use super::TaskType;
use crate::ReactAgent;

/// A member of a [`Team`](super::Team): an agent, the size of its model, and what it is given.
///
/// Any agent will do, a graph, a pair or another team as well. Its name is its id in the team, and its
/// [description](Agent::description) tells the lead what it is for. The mailbox of a team reaches
/// [`ReactAgent`]s alone.
///
/// ```
/// # fn example(model: entourage_core::provider::Model) -> entourage_core::Result<()> {
/// use entourage_core::provider::Size;
/// use entourage_runners::{ReactAgent, team::{Member, TaskType}};
///
/// let scout = ReactAgent::builder("scout", model.clone()).build()?;
/// // Five of them explore at once.
/// let scouts = Member::new(scout).role("You find things quickly.").size(Size::Xs).replicas(5);
/// let reviewer = ReactAgent::builder("reviewer", model).build()?;
/// let reviewer = Member::new(reviewer).specialist_in([TaskType::Review]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Member {
    pub(super) agent: Arc<dyn Agent>,
    pub(super) size: Size,
    pub(super) replicas: usize,
    pub(super) specialties: Vec<TaskType>,
}

impl Member {
    /// Creates a member of size M that works on one item at a time.
    pub fn new<Form>(agent: impl IntoAgent<Form>) -> Self {
        Self { agent: agent.into_agent(), size: Size::M, replicas: 1, specialties: Vec::new() }
    }

    /// Puts `text` before the system instructions of a [`ReactAgent`]; for any other agent it has no effect.
    #[must_use]
    pub fn role(mut self, text: impl Into<Instructions>) -> Self {
        if let Some(react) = self.react() {
            self.agent = Arc::new(react.instructed(&text.into()));
        }
        self
    }

    /// Sets the size of its model, by which items are given to it. Default M.
    #[must_use]
    pub fn size(mut self, size: Size) -> Self {
        self.size = size;
        self
    }

    /// Sets the number of items that it works on at once, each in a session of its own. Default 1.
    #[must_use]
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Gives it all items of these types, unless the lead names somebody else. A later member takes a type over.
    #[must_use]
    pub fn specialist_in(mut self, types: impl IntoIterator<Item = TaskType>) -> Self {
        self.specialties.extend(types);
        self
    }

    /// Returns its id: the name of its agent.
    #[must_use]
    pub fn id(&self) -> &str {
        self.agent.name()
    }

    pub(super) fn react(&self) -> Option<&ReactAgent> {
        self.agent.as_any().and_then(|any| any.downcast_ref())
    }
}

/// A member as an argument: a [`Member`], or any agent, which is one as [`Member::new`] makes it. `Form` is inferred
/// and tells the cases apart.
pub trait IntoMember<Form> {
    /// Returns the member.
    fn into_member(self) -> Member;
}

/// Form of a [`Member`].
#[derive(Debug)]
pub enum Whole {}

/// Form of an agent.
#[derive(Debug)]
pub struct Plain<Form>(PhantomData<Form>);

impl IntoMember<Whole> for Member {
    fn into_member(self) -> Member {
        self
    }
}

impl<Form, A: IntoAgent<Form>> IntoMember<Plain<Form>> for A {
    fn into_member(self) -> Member {
        Member::new(self)
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").field("id", &self.id()).field("size", &self.size).finish_non_exhaustive()
    }
}
