//! A team and its builder.

use std::{collections::BTreeSet, fmt, sync::Arc};

use entourage_core::{
    Error, ErrorKind, Result, agent::Agent, context::Instructions, provider::ModelSlot, run::Limits,
    tool::Tool,
};
use entourage_runtime::{RunHandle, check_agent_name};

use super::{
    Member, Performance, TaskType,
    assign::Roster,
    lead::{self, Lead},
    mail::{EVERYONE, LEAD, SendMessage},
    member::IntoMember,
};
use crate::{
    ReactAgent,
    graph::{GraphControl, Live},
    react::IntoTools,
};

/// Default number of items that are worked on at once.
const AT_ONCE: usize = 10;

/// A team as an agent: a lead plans items of work, members of different sizes do them, and the lead answers for all.
/// Cloning shares the team.
///
/// # Plan
/// The lead gets the prompt with the list of members, and divides it into at most 200 items, each with a type and the
/// items that it comes after. What cannot be worked on (cycles, unknown members or items) is told, and the lead may
/// mend it three times. It can also answer at once; then nobody works. The plan is recorded as a
/// [`TeamPlanned`](super::TeamPlanned): a resumed run has the same one.
///
/// # Work
/// The items run as a [`TaskGraph`](crate::graph::TaskGraph) in the team's own session, each in a session of its own
/// below it. An item goes to the member that the lead names, else to the [specialist](Member::specialist_in) of its
/// type, else to whoever is free first of the size that [`TaskType::size`] chooses, and to the lead itself if nobody
/// fits. It waits while all of these are at work. A failed attempt goes one size up with the reason, at most twice.
///
/// # Stepping in
/// When an item has failed for good, the lead is asked, at most 5 times in one run, and its steps are taken while the
/// others work on: [`Interventions`](crate::graph::Interventions). The program does the same, and more, by
/// [`Team::control`]. With [`TeamBuilder::mailbox`] members write to each other and to the lead.
///
/// # Outcome
/// Completed with the lead's message; [`Outcome::failed`](entourage_core::run::Outcome::failed) lists the items that
/// failed, and those that could not begin for that reason. If no item was done, the run was stopped, with
/// [`StopReason::Tasks`](entourage_core::run::StopReason::Tasks). A lead that fails, pauses or is stopped ends the run
/// in the same way; the text is then what the members found. A cancel reaches everybody at work.
///
/// # Watching
/// [`NodeStarted`](crate::graph::NodeStarted) and [`NodeFinished`](crate::graph::NodeFinished) are the events of items;
/// [`TeamReport`](super::TeamReport) folds them into a list of who does what.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use entourage_core::provider::Size;
/// use entourage_runners::{ReactAgent, team::{Member, Team}};
/// use entourage_runtime::AgentExt;
/// use entourage_testkit::ScriptedProvider;
///
/// let lead = ScriptedProvider::new()
///     .text(r#"{"items": [{"id": "facts", "task": "Find out who wrote it.", "type": "analyze"},
///                         {"id": "poem", "task": "Praise the author.", "type": "edit", "after": ["facts"]}]}"#)
///     .text("Ada wrote it. O Ada!");
/// let small = ScriptedProvider::new().text("Ada wrote it.").text("O Ada!");
/// let poet = ReactAgent::builder("poet", small.model()).build()?;
///
/// let team = Team::builder("crew", lead.model()).member(Member::new(poet).size(Size::S)).build()?;
/// assert_eq!(team.ask("Praise the author.").await?, "Ada wrote it. O Ada!");
/// # Ok::<_, entourage_core::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Team(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) name: String,
    pub(super) planner: Arc<dyn Agent>,
    pub(super) supervisor: ReactAgent,
    pub(super) speaker: ReactAgent,
    pub(super) roster: Arc<Roster>,
    pub(super) at_once: usize,
    pub(super) mailbox: bool,
    pub(super) live: Arc<Live>,
}

impl Team {
    /// Starts building a team called `name`, whose lead uses `model`.
    pub fn builder(name: impl Into<String>, model: impl Into<ModelSlot>) -> TeamBuilder {
        TeamBuilder {
            name: name.into(),
            lead: Lead {
                model: model.into(),
                instructions: lead::built_in(),
                tools: Vec::new(),
                limits: Limits::default(),
            },
            members: Vec::new(),
            performance: Performance::new(),
            at_once: AT_ONCE,
            mailbox: false,
        }
    }

    /// Returns a control of the items of this run, by which the program skips, retries, reassigns, adds and cancels
    /// them, and reads how they stand. Its methods wait until the plan is made. The agent that runs must be this team
    /// or a clone of it.
    #[must_use]
    pub fn control(&self, run: &RunHandle) -> GraphControl {
        GraphControl::of_run(&self.0.name, &self.0.live, run)
    }
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Team").field("name", &self.0.name).finish_non_exhaustive()
    }
}

/// Builds a [`Team`].
#[must_use = "a builder does nothing until `build`"]
pub struct TeamBuilder {
    name: String,
    lead: Lead,
    members: Vec<Member>,
    performance: Performance,
    at_once: usize,
    mailbox: bool,
}

impl TeamBuilder {
    /// Adds a member: an agent as it is, or a [`Member`] with a size, replicas or specialties.
    pub fn member<Form>(mut self, member: impl IntoMember<Form>) -> Self {
        self.members.push(member.into_member());
        self
    }

    /// Adds members.
    pub fn members<Form, M: IntoMember<Form>>(mut self, members: impl IntoIterator<Item = M>) -> Self {
        self.members.extend(members.into_iter().map(IntoMember::into_member));
        self
    }

    /// Replaces the built-in instructions of the lead, `entourage/team-lead`.
    pub fn instructions(mut self, instructions: impl Into<Instructions>) -> Self {
        self.lead.instructions = instructions.into();
        self
    }

    /// Adds tools of the lead, which it may use while it plans, steps in and answers.
    pub fn lead_tools<Form>(mut self, tools: impl IntoTools<Form>) -> Self {
        self.lead.tools.extend(tools.into_tools());
        self
    }

    /// Sets the limits of each run of the lead: while it plans, steps in, works and answers.
    pub(crate) fn lead_limits(mut self, limits: Limits) -> Self {
        self.lead.limits = limits;
        self
    }

    /// Sets the number of items that are worked on at once, by all members together. Default 10. The others wait
    /// without a time limit.
    pub fn at_once(mut self, items: usize) -> Self {
        self.at_once = items;
        self
    }

    /// Sets what earlier runs taught of the members: of those of one size, the best ones are asked first.
    pub fn performance(mut self, performance: &Performance) -> Self {
        self.performance = performance.clone();
        self
    }

    /// Gives each member that is a [`ReactAgent`], and the lead, the tool `send_message`. A message is recorded before
    /// it is delivered, and reaches its recipient with the task of its next item or with the next result of a tool,
    /// once, and in the order of its sender; one for the lead has it asked at once. A run has at most 10,000 messages.
    /// The next attempt of a member at an item gets the mail of its failed attempt again, as it knows nothing of that
    /// one; but no request that the member has answered.
    ///
    /// A request may wait for its answer, at most 10 minutes; a pause ends the wait, and so does a recipient that
    /// cannot begin meanwhile, since all who work wait for answers. Only the one who was asked answers it. At most
    /// 32 KiB of messages arrive at once. The labels of a message are those of its sender's session.
    pub fn mailbox(mut self) -> Self {
        self.mailbox = true;
        self
    }

    /// Builds the team.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] without a member, for an invalid name, for two members of one name or one called `lead` or
    /// `everyone`, for two specialists in one type, for a number of zero, and for a tool of the lead or of a member
    /// called `send_message` beside a mailbox.
    pub fn build(self) -> Result<Team> {
        check_agent_name(&self.name)?;
        check(&self.members)?;
        if self.at_once == 0 {
            return Err(invalid("a team works on no items at once; raise `TeamBuilder::at_once`"));
        }
        if self.mailbox {
            self.check_names()?;
        }
        let speaker = self.lead.speaker()?;
        let supervisor = self.lead.supervisor()?;
        let main = Member::new(&speaker);
        let members = self.members.into_iter().chain([main]).collect();
        let roster = Arc::new(Roster { members, performance: self.performance, main: LEAD.into() });
        let planner = self.lead.planner(&roster)?;
        Ok(Team(Arc::new(Inner {
            name: self.name,
            planner,
            supervisor,
            speaker,
            roster,
            at_once: self.at_once,
            mailbox: self.mailbox,
            live: Arc::default(),
        })))
    }
}

impl TeamBuilder {
    /// Refuses tools that have the name of the mailbox's own.
    fn check_names(&self) -> Result<()> {
        let is_it = |tool: &Arc<dyn Tool>| tool.spec().name() == SendMessage::NAME;
        let of = |whose: &str| {
            let text = format!(
                "a tool of {whose} has the name of the mailbox's own tool; rename it, or leave `mailbox` out"
            );
            invalid(&text).with("tool", SendMessage::NAME)
        };
        if self.lead.tools.iter().any(is_it) {
            return Err(of("the lead"));
        }
        let has_it = |member: &&Member| {
            let tools = member.react().and_then(ReactAgent::fixed_tools);
            tools.is_some_and(|tools| tools.iter().any(is_it))
        };
        match self.members.iter().find(has_it) {
            Some(member) => Err(of("a member").with("member", member.id().to_owned())),
            None => Ok(()),
        }
    }
}

fn check(members: &[Member]) -> Result<()> {
    if members.is_empty() {
        return Err(invalid("a team needs a member beside its lead; add one with `TeamBuilder::member`"));
    }
    let (mut ids, mut types) = (BTreeSet::new(), BTreeSet::new());
    for member in members {
        check_agent_name(member.id())?;
        let of = |text: &str| Err(invalid(text).with("member", member.id().to_owned()));
        if member.id() == LEAD || member.id() == EVERYONE {
            return of("this name has a meaning in every team; name the agent otherwise");
        }
        if !ids.insert(member.id()) {
            return of(
                "two members have one name; name their agents differently, or raise `Member::replicas`",
            );
        }
        if member.replicas == 0 {
            return of("a member works on no item at once; raise `Member::replicas`");
        }
        let own: BTreeSet<TaskType> = member.specialties.iter().copied().collect();
        if let Some(kind) = own.into_iter().find(|kind| !types.insert(*kind)) {
            return of("a type of task has two specialists; leave one of them")
                .map_err(|error: Error| error.with("type", kind.name()));
        }
    }
    Ok(())
}

fn invalid(text: &str) -> Error {
    Error::new(ErrorKind::Config, text.to_owned())
}

impl fmt::Debug for TeamBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TeamBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}
