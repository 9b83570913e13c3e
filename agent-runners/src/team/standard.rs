//! The members of a team that needs no others: their words, sizes and bounds.

use entourage_core::{
    Result,
    context::Instructions,
    permission::Scope,
    provider::{ModelSlot, Size},
};

use super::{Member, TaskType, Team, TeamBuilder};
use crate::{ReactAgent, react::IntoTools};

/// Version of the instructions; raised whenever their words change.
const VERSION: u32 = 1;

/// Sessions of the scout that explore at once.
const SCOUTS: usize = 5;

/// A member of the standard team.
struct Role {
    name: &'static str,
    template: &'static str,
    size: Size,
    about: &'static str,
    only_reads: bool,
    specialties: &'static [TaskType],
    words: &'static str,
}

const ROLES: [Role; 4] = [
    Role {
        name: "scout",
        template: "entourage/scout",
        size: Size::Xs,
        about: "Finds files and places in them, quickly. It only reads.",
        only_reads: true,
        specialties: &[],
        words: "\
You are the scout of a team. You find out where things are, quickly: search by names and by contents, look at the few lines \
that matter, and stop as soon as you can answer. You change nothing.

Answer with what was asked for and nothing else: each place as a path with its lines, and one line that says what is there. \
Say what you looked for and did not find. If the task needs more thought than a search, say so in your first words.",
    },
    Role {
        name: "builder",
        template: "entourage/builder",
        size: Size::L,
        about: "Writes and mends code and other files, and tries what it wrote.",
        only_reads: false,
        specialties: &[],
        words: "\
You are the builder of a team. You do the task that you are given, wholly, in the files of the project, and nothing beside it. \
Read a file before you change it, follow how the code around it is written, and keep changes small. Where the project has \
tests or checks, run those that your change touches, and mend what they show.

Others go on with your answer alone: say what you changed and where, how you know that it works, and what is left undone. \
If the task cannot be done as it is put, say why instead of doing another one.",
    },
    Role {
        name: "reviewer",
        template: "entourage/reviewer",
        size: Size::M,
        about: "Checks work that others did. It only reads.",
        only_reads: true,
        specialties: &[TaskType::Review],
        words: "\
You are the reviewer of a team. You check work that somebody else did: look at the files themselves, not only at what is said \
of them. Ask what was wanted, whether each part of it is there, and what could go wrong that nobody tried.

Answer with a verdict in the first line, accepted or not, then the faults by weight: each with its place, why it is one, and \
what would settle it. Leave out matters of taste. If you find none, say what you looked at.",
    },
    Role {
        name: "task-manager",
        template: "entourage/task-manager",
        size: Size::S,
        about: "Sums up, orders and words what others found. It only reads.",
        only_reads: true,
        specialties: &[],
        words: "\
You are the task manager of a team. You bring order into what others found: sum up, sort by weight, word a message or a list \
of what is left to do. Take what you are given as it is: add no facts, and keep names, numbers and places exactly.

Answer with the text that was asked for, ready to be used, and nothing around it. Say in one line at its end what \
contradicts itself or is missing, if anything does.",
    },
];

impl Role {
    fn instructions(&self) -> Instructions {
        Instructions::built_in(self.template, VERSION, self.words)
    }
}

/// Returns the built-in instructions of the members.
pub(crate) fn prompts() -> impl Iterator<Item = Instructions> {
    ROLES.iter().map(Role::instructions)
}

impl Team {
    /// Starts building the standard team: a lead (M), five scouts (XS), a builder (L), a reviewer (M) that does all
    /// items of the type `review`, and a task manager (S), with built-in instructions. `model` gives the model of a
    /// size, and may give one model for several.
    ///
    /// All have `tools`; the builder may use all of them, the other members those that only read. The lead has none.
    ///
    /// ```
    /// # use entourage_core::{Result, provider::Model};
    /// # fn example(small: Model, large: Model) -> Result<()> {
    /// use entourage_core::provider::Size;
    /// use entourage_runners::team::Team;
    /// use entourage_testkit::FakeTool;
    ///
    /// let model = |size| if size < Size::M { small.clone() } else { large.clone() };
    /// let team = Team::standard("crew", model, (FakeTool::new("grep"),))?.mailbox().build()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`](entourage_core::ErrorKind::Config) for two tools of one name.
    pub fn standard<M: Into<ModelSlot>, Form>(
        name: impl Into<String>,
        model: impl Fn(Size) -> M,
        tools: impl IntoTools<Form>,
    ) -> Result<TeamBuilder> {
        let tools: Vec<_> = tools.into_tools().into_iter().collect();
        let mut team = Self::builder(name, model(Size::M));
        for role in &ROLES {
            let scope = if role.only_reads { Scope::read_only() } else { Scope::all() };
            let agent = ReactAgent::builder(role.name, model(role.size))
                .description(role.about)
                .instructions(role.instructions())
                .tools(tools.clone())
                .scope(scope)
                .build()?;
            let replicas = if role.size == Size::Xs { SCOUTS } else { 1 };
            let member = Member::new(agent).size(role.size).replicas(replicas);
            team = team.member(member.specialist_in(role.specialties.iter().copied()));
        }
        Ok(team)
    }
}

#[cfg(test)]
mod tests {
    use entourage_core::tool::Access;
    use entourage_testkit::{FakeTool, ScriptedProvider};

    use super::*;

    #[test]
    fn lo01_the_standard_team_has_a_lead_and_four_members() {
        let provider = ScriptedProvider::new();
        let tools =
            || (FakeTool::new("grep").access(Access::READ), FakeTool::new("edit").access(Access::WRITE));
        let team = Team::standard("crew", |_| provider.model(), tools()).unwrap().build().unwrap();
        let members: Vec<_> =
            team.0.roster.members.iter().map(|it| (it.id(), it.size, it.replicas)).collect();
        let expected = [
            ("scout", Size::Xs, 5),
            ("builder", Size::L, 1),
            ("reviewer", Size::M, 1),
            ("task-manager", Size::S, 1),
            ("lead", Size::M, 1),
        ];
        assert_eq!(members, expected);
        for member in &team.0.roster.members {
            let react = member.react().unwrap();
            let writes = react.scope().access().contains(Access::WRITE);
            assert_eq!(writes, ["builder", "lead"].contains(&member.id()), "{}", member.id());
            assert_eq!(react.tool_set().get("edit").is_some(), member.id() != "lead");
        }
    }
}
