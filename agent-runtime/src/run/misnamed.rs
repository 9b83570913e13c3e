//! Rules on tools that a run does not have, such as those whose name is misspelt: a run warns of them.

use std::collections::HashSet;

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
    if !rules.is_empty() {
        let mut names = HashSet::new();
        collect(agent.parts(), DEPTH, &mut names);
        rules
            .retain(|rule| !names.contains(&rule.tool) && names.iter().any(|name| is_slip(&rule.tool, name)));
    }
    rules
}

fn collect(parts: Vec<AgentPart>, depth: usize, names: &mut HashSet<String>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    for part in parts {
        match part {
            AgentPart::Tools(tools) => {
                for tool in tools.iter() {
                    names.insert(tool.spec().name().to_owned());
                    collect(tool.parts(), depth, names);
                }
            }
            AgentPart::Agent { agent, .. } => collect(agent.parts(), depth, names),
            _ => {}
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
