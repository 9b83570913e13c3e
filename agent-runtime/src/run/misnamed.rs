//! Rules on tools that a run does not have, such as those whose name is misspelt: a run warns of them.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use entourage_core::{
    agent::{Agent, AgentPart},
    event::{Event, WarningRaised},
    permission::RuleEffect,
    provider::WarningKind,
};

use crate::{
    caught,
    effects::site::Site,
    permission::{Policy, Rule},
};

/// Maximum depth of agents within one another that is looked at.
const DEPTH: usize = 16;
/// Most agents and tools with parts that are looked at, each as often as it is named.
const MOST: usize = 5_000;

/// Warns of rules that deny or ask about a tool that neither the agent nor any agent below it has, if a tool of theirs
/// has almost that name. One policy serves many agents, so other rules on tools that are not there are no mistake.
pub(super) fn warn(site: &Site, agent: &dyn Agent) {
    let rules = caught(|| misnamed(&site.env.policy, agent)).unwrap_or_default();
    let Some(first) = rules.first() else { return };
    let shown: Vec<_> = rules.iter().map(|rule| format!("`{rule}`")).collect();
    let text = format!(
        "no tool of the agent `{}`, or of those below it, has the name in these rules, so they apply to nothing here: {}. \
         Correct the name, or list a tool that a hook offers in `Agent::parts`",
        agent.name(),
        shown.join(", "),
    );
    let warning = WarningRaised::new(WarningKind::Rule, first.tool.as_str().into(), text.into(), None);
    site.note(Event::WarningRaised(warning.into()));
}

/// Returns the rules that restrict a tool by its whole name, and name a tool of the agent but for one slip.
fn misnamed<'a>(policy: &'a Policy, agent: &dyn Agent) -> Vec<&'a Rule> {
    let restricts = |rule: &&Rule| rule.effect != RuleEffect::Allow && !rule.tool.contains('*');
    let mut rules: Vec<_> = policy.rules().filter(restricts).collect();
    if rules.is_empty() {
        return rules;
    }
    // With more agents than are looked at, a rule may be about a tool of one of the others.
    let Some(names) = tools_below(agent) else { return Vec::new() };
    rules.retain(|rule| !names.contains(&rule.tool) && names.iter().any(|name| is_slip(&rule.tool, name)));
    rules
}

/// Returns the names of the tools of an agent and of all below it; `None` for more of them than are looked at.
fn tools_below(agent: &dyn Agent) -> Option<HashSet<String>> {
    let mut below = Below::default();
    below.add(agent.name(), agent.parts());
    let mut next = 0;
    for _ in 0..DEPTH {
        let level: Vec<_> = below.found.iter().skip(next).cloned().collect();
        next = below.found.len();
        for part in level.iter().flat_map(|parts| parts.iter()) {
            below.look(part);
            if below.looked > MOST {
                return None;
            }
        }
    }
    Some(below.names)
}

/// An agent or a tool with parts: its name, and the names of its parts and of theirs. It has no other identity, since
/// parts may be made anew each time they are asked for.
type Signature = (String, BTreeSet<String>);

fn signature(name: &str, parts: &[AgentPart]) -> Signature {
    let mut names = BTreeSet::new();
    for part in parts {
        match part {
            AgentPart::Tools(tools) => {
                for tool in tools.iter() {
                    let named = |part: &AgentPart| {
                        if let AgentPart::Agent { name, .. } = part { Some(Arc::clone(name)) } else { None }
                    };
                    let below: Vec<_> = tool.parts().iter().filter_map(named).collect();
                    names.insert(format!("{} {}", tool.spec().name(), below.join(" ")));
                }
            }
            AgentPart::Agent { name, .. } => drop(names.insert(name.to_string())),
            _ => {}
        }
    }
    (name.to_owned(), names)
}

/// What was found below an agent. Many ways may lead to one part, which is looked at once.
#[derive(Default)]
struct Below {
    names: HashSet<String>,
    seen: HashSet<Signature>,
    /// The parts of each that was seen.
    found: Vec<Arc<[AgentPart]>>,
    looked: usize,
}

impl Below {
    fn look(&mut self, part: &AgentPart) {
        match part {
            AgentPart::Tools(tools) => {
                for tool in tools.iter() {
                    let name = tool.spec().name();
                    self.names.insert(name.to_owned());
                    self.add(name, tool.parts());
                }
            }
            AgentPart::Agent { agent, .. } => self.add(agent.name(), agent.parts()),
            _ => {}
        }
    }

    fn add(&mut self, name: &str, parts: Vec<AgentPart>) {
        if parts.is_empty() {
            return;
        }
        self.looked = self.looked.saturating_add(1);
        if self.seen.insert(signature(name, &parts)) {
            self.found.push(parts.into());
        }
    }
}

/// True if the words differ by one character that is added, missing or another one, or by two that are swapped.
fn is_slip(word: &str, name: &str) -> bool {
    let (word, name): (Vec<char>, Vec<char>) = (word.chars().collect(), name.chars().collect());
    let same = |(a, b): &(&char, &char)| a == b;
    let start = word.iter().zip(&name).take_while(same).count();
    let (word, name) = (word.get(start..).unwrap_or_default(), name.get(start..).unwrap_or_default());
    let end = word.iter().rev().zip(name.iter().rev()).take_while(same).count();
    match (word.get(..word.len() - end), name.get(..name.len() - end)) {
        (Some([] | [_]), Some([] | [_])) => true,
        (Some([a, b]), Some([c, d])) => a == d && b == c,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_slip;

    #[test]
    fn one_slip_is_a_slip_and_two_are_another_word() {
        for (word, slip) in [
            ("wirte", true),
            ("writ", true),
            ("writee", true),
            ("wriite", true),
            ("wrote", true),
            ("rite", true),
            ("bash", false),
            ("wirtte", false),
            ("multiedit", false),
            ("", false),
        ] {
            assert_eq!(is_slip(word, "write"), slip, "{word}");
        }
    }
}
