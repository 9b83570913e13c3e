//! The table `team` of a definition. Pure.

use entourage_core::{Error, Result, provider::Size};
use serde_json::Value;

use super::settings::Settings;
use crate::team::TaskType;

/// Most members of a team, items at once, and items at once of one member.
const MEMBERS: usize = 50;
const AT_ONCE: u32 = 100;

/// A team of agents, as a file describes it: the file's own model, instructions and tools are those of the lead.
///
/// ```toml
/// [team]
/// at_once = 5
/// members = ["coder", { name = "scout", size = "XS", replicas = 5, specialist_in = ["summarize"] }]
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TeamDefinition {
    /// Items that are worked on at once; `None` for the default of a [`Team`](crate::team::Team).
    pub at_once: Option<u32>,
    /// Its members, at least one.
    pub members: Vec<TeamMember>,
}

/// A member of a team.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TeamMember {
    /// The name of the agent.
    pub name: String,
    /// The size of its model. Default M.
    pub size: Size,
    /// Items that it works on at once. Default 1.
    pub replicas: u32,
    /// The types of items that it alone does.
    pub specialist_in: Vec<TaskType>,
}

impl TeamDefinition {
    pub(super) fn read(of: &Settings<'_>) -> Result<Option<Self>> {
        let map = match of.map.get("team") {
            None => return Ok(None),
            Some(Value::Object(map)) => map,
            Some(_) => {
                let text = "`team` is no table; write `[team]` in a file of TOML, with `members`";
                return Err(of.wrong(text));
            }
        };
        let settings = Settings { place: of.place, map };
        settings.check_keys(&["members", "at_once"])?;
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
            return Err(of.wrong(format!("`{name}` is a member of the team twice; give it `replicas`")));
        }
        Ok(Some(Self { at_once: settings.number("at_once", AT_ONCE)?, members }))
    }
}

impl TeamMember {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), size: Size::M, replicas: 1, specialist_in: Vec::new() }
    }

    fn read(of: &Settings<'_>, value: &Value) -> Result<Self> {
        match value {
            Value::String(name) if !name.trim().is_empty() => Ok(Self::new(name.trim())),
            Value::Object(map) => {
                let settings = Settings { place: of.place, map };
                settings.check_keys(&["name", "size", "replicas", "specialist_in"])?;
                let name =
                    settings.text("name")?.ok_or_else(|| of.wrong("a member has no `name`; write one"))?;
                let told = |error: Error| of.wrong(error.message());
                let size = settings.text("size")?.map(str::parse).transpose().map_err(told)?;
                let types = settings.list("specialist_in")?.unwrap_or_default();
                let types = types.iter().map(|kind| kind.parse::<TaskType>().map_err(told));
                Ok(Self {
                    size: size.unwrap_or(Size::M),
                    replicas: settings.number("replicas", AT_ONCE)?.unwrap_or(1),
                    specialist_in: types.collect::<Result<_>>()?,
                    ..Self::new(name)
                })
            }
            _ => Err(of.wrong(
                "a member is a name, or a table with `name`, `size`, `replicas` and `specialist_in`; write one",
            )),
        }
    }
}
