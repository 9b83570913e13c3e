//! The table `team` of a definition. Pure.

use entourage_core::{Result, provider::Size};
use serde_json::Value;

use super::settings::Settings;

/// Most members of a team.
const MEMBERS: usize = 50;

/// A team of agents, as a file describes it.
///
/// ```toml
/// [team]
/// lead = "architect"
/// size = "M"
/// members = ["coder", { name = "tester", role = "runs the tests" }]
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TeamDefinition {
    /// The name of the member that leads it, if one does.
    pub lead: Option<String>,
    /// Its size, if it has one.
    pub size: Option<Size>,
    /// Its members, at least one.
    pub members: Vec<TeamMember>,
}

/// A member of a team.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TeamMember {
    /// The name of the agent.
    pub name: String,
    /// Its part in the team, if it is said.
    pub role: Option<String>,
}

impl TeamDefinition {
    pub(super) fn read(of: &Settings<'_>) -> Result<Option<Self>> {
        let map = match of.map.get("team") {
            None => return Ok(None),
            Some(Value::Object(map)) => map,
            Some(_) => {
                let text =
                    "`team` is no table; write `[team]` in a file of TOML, with `members`, `lead` and `size`";
                return Err(of.wrong(text));
            }
        };
        let settings = Settings { place: of.place, map };
        settings.check_keys(&["members", "lead", "size"])?;
        let members = match map.get("members") {
            Some(Value::Array(values)) if !values.is_empty() && values.len() <= MEMBERS => {
                values.iter().map(|value| TeamMember::read(of, value)).collect::<Result<Vec<_>>>()?
            }
            _ => return Err(of.wrong(format!("a team has a list of 1 to {MEMBERS} `members`; write one"))),
        };
        let mut names: Vec<_> = members.iter().map(|member| member.name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair.first() == pair.last()) {
            let name = pair.first().copied().unwrap_or_default();
            return Err(of.wrong(format!("`{name}` is a member of the team twice; keep one")));
        }
        let lead = settings.text("lead")?.map(str::to_owned);
        if let Some(lead) = lead.as_deref().filter(|lead| !names.contains(lead)) {
            return Err(of.wrong(format!("the lead `{lead}` is no member of the team; add it to `members`")));
        }
        let size = settings.text("size")?.map(str::parse).transpose();
        let size = size.map_err(|error: entourage_core::Error| of.wrong(error.message()))?;
        Ok(Some(Self { lead, size, members }))
    }
}

impl TeamMember {
    fn read(of: &Settings<'_>, value: &Value) -> Result<Self> {
        match value {
            Value::String(name) if !name.trim().is_empty() => {
                Ok(Self { name: name.trim().to_owned(), role: None })
            }
            Value::Object(map) => {
                let settings = Settings { place: of.place, map };
                settings.check_keys(&["name", "role"])?;
                let name =
                    settings.text("name")?.ok_or_else(|| of.wrong("a member has no `name`; write one"))?;
                Ok(Self { name: name.to_owned(), role: settings.text("role")?.map(str::to_owned) })
            }
            _ => Err(of.wrong("a member is a name, or a table with `name` and `role`; write one")),
        }
    }
}
