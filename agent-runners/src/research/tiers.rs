//! The class of model for a task, by the type of the agent and the complexity of the task. Pure.

use std::collections::BTreeMap;

use entourage_runtime::layers::Tier;
use serde::{Deserialize, Serialize};

use super::Researcher;

/// Complexity of a task. Ordered: `Low < Medium < High`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Complexity {
    /// A task of few steps, whose way is known.
    Low,
    /// Any other task.
    Medium,
    /// A task that is wide, or whose way is unknown.
    High,
}

/// The rules that choose the tier of a model for a task. The program has the models: it picks one of that tier, or
/// gives all with their tiers to a [`Fallback`](entourage_runtime::layers::Fallback).
///
/// | type of agent | low | medium | high |
/// |---|---|---|---|
/// | `explorer` | small | medium | large |
/// | `builder`, `refactorer` | medium | medium | large |
/// | `debugger` | medium | large | large |
/// | each [`Researcher`] | small | small | small |
/// | any other | medium | medium | medium |
///
/// ```
/// use entourage_runners::research::{Complexity, TaskTiers};
/// use entourage_runtime::layers::Tier;
///
/// let tiers = TaskTiers::new().with_tier("debugger", Complexity::Low, Tier::Small);
/// assert_eq!(tiers.tier("debugger", Complexity::Low), Tier::Small);
/// assert_eq!(tiers.tier("debugger", Complexity::High), Tier::Large);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskTiers {
    overrides: BTreeMap<(String, Complexity), Tier>,
}

impl TaskTiers {
    /// Creates the rules of the table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the tier for tasks of a type and complexity, before the table. A later setting replaces an earlier one.
    #[must_use]
    pub fn with_tier(mut self, agent: impl Into<String>, complexity: Complexity, tier: Tier) -> Self {
        self.overrides.insert((agent.into(), complexity), tier);
        self
    }

    /// Returns the tier for a task of this complexity, by an agent of this type.
    #[must_use]
    pub fn tier(&self, agent: &str, complexity: Complexity) -> Tier {
        let set = self.overrides.iter().find(|((of, at), _)| of == agent && *at == complexity);
        set.map_or_else(|| by_table(agent, complexity), |(_, tier)| *tier)
    }
}

fn by_table(agent: &str, complexity: Complexity) -> Tier {
    use Complexity::{High, Low, Medium};
    match (agent, complexity) {
        ("explorer", Low) => Tier::Small,
        ("debugger", Medium) | ("explorer" | "builder" | "debugger" | "refactorer", High) => Tier::Large,
        _ if Researcher::ALL.iter().any(|kind| kind.name() == agent) => Tier::Small,
        _ => Tier::Medium,
    }
}

#[cfg(test)]
mod tests {
    use entourage_runtime::layers::Tier::{self, Large, Local, Medium, Small};

    use super::{Complexity, TaskTiers};
    use crate::research::Researcher;

    const ALL: [Complexity; 3] = [Complexity::Low, Complexity::Medium, Complexity::High];

    #[test]
    fn ai05_the_table_of_tiers() {
        let tiers = TaskTiers::new();
        let row = |agent: &str| ALL.map(|complexity| tiers.tier(agent, complexity));
        assert_eq!(row("explorer"), [Small, Medium, Large]);
        assert_eq!(row("builder"), [Medium, Medium, Large]);
        assert_eq!(row("debugger"), [Medium, Large, Large]);
        assert_eq!(row("refactorer"), [Medium, Medium, Large]);
        for kind in Researcher::ALL {
            assert_eq!(row(kind.name()), [Small; 3], "{kind}");
        }
        for unknown in ["", "Explorer", "poet"] {
            assert_eq!(row(unknown), [Medium; 3], "{unknown}: a missing rule");
        }
        assert!(ALL.is_sorted() && [Local, Small, Medium, Large].is_sorted());
    }

    #[test]
    fn ai05_an_override_comes_first_and_reaches_no_other_task() {
        for agent in ["explorer", "poet", Researcher::WebSearcher.name()] {
            for at in ALL {
                for tier in [Local, Small, Medium, Large] {
                    let tiers = TaskTiers::new().with_tier(agent, at, Large).with_tier(agent, at, tier);
                    assert_eq!(tiers.tier(agent, at), tier);
                    let kept = |of: &str, complexity| {
                        let without: Tier = TaskTiers::new().tier(of, complexity);
                        assert_eq!(tiers.tier(of, complexity), without, "{of} {complexity:?}");
                    };
                    ALL.into_iter().filter(|it| *it != at).for_each(|other| kept(agent, other));
                    ALL.into_iter().for_each(|any| kept("debugger", any));
                }
            }
        }
    }
}
