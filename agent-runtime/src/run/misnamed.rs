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

/// Warns of rules that deny or ask about a tool that neither the agent nor any agent below it has.
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

/// Returns the rules that restrict a tool by its whole name, and that name no tool of the agent. None for an agent that
/// lists no tool at all: its tools are not known.
fn misnamed<'a>(policy: &'a Policy, agent: &dyn Agent) -> Vec<&'a Rule> {
    let restricts = |rule: &&Rule| rule.effect != RuleEffect::Allow && !rule.tool.contains('*');
    let mut rules: Vec<_> = policy.rules().filter(restricts).collect();
    if !rules.is_empty() {
        let mut names = HashSet::new();
        collect(agent.parts(), DEPTH, &mut names);
        rules.retain(|rule| !names.is_empty() && !names.contains(&rule.tool));
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
