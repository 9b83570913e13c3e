//! `ls`: a directory as a tree.

use std::{collections::HashMap, fmt::Write as _, path::PathBuf, sync::Arc, time::Duration};

use entourage_core::tool::{ToolError, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    level::{Entry, Include, Kind, Level},
    rules::Rules,
    sight::{Sight, Start},
    stop::{Halt, Stop, halted},
    text,
    tool::Operation,
};

const ENTRIES: usize = 1_000;

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Arguments {
    /// The directory, relative to the workspace's root. Default: the root.
    #[serde(default)]
    path: Option<String>,
    /// Number of levels to show; 1 is the directory's own entries. Default: all.
    #[serde(default)]
    depth: Option<u32>,
    /// True to show names that begin with a dot. Default: false.
    #[serde(default)]
    hidden: Option<bool>,
}

#[derive(Debug)]
pub(super) struct Ls;

impl Operation for Ls {
    type Arguments = Arguments;
    const NAME: &'static str = "ls";
    const DESCRIPTION: &'static str = "Lists a directory as a tree of at most 1,000 entries, without what ignore files \
        name. Directories end with `/`, links with `@`. To find files by name use `glob`, by content `grep`.";
    const TIME: Duration = Duration::from_secs(20);
    const WITHOUT_PATH: Option<&'static str> = Some(".");

    fn run(sight: &Sight<'_>, arguments: Arguments, stop: &Stop) -> Result<ToolOutput, ToolError> {
        if arguments.depth == Some(0) {
            return Err(ToolError::tell("`depth` is 0, so nothing would be shown; give 1 or more"));
        }
        let place = sight.workspace().place(arguments.path.as_deref().unwrap_or("."))?;
        let name = text::echo(&text::show(place.as_path()));
        if !sight.look(&place)?.is_dir() {
            return Err(ToolError::tell(format!("`{name}` is no directory; show a file with `view`")));
        }
        let include = Include { hidden: arguments.hidden.unwrap_or(false), times: false };
        let start = sight.start(&place)?;
        let above = Rules::above(sight.workspace(), &start.path);
        let top = Level::read(sight, &start, &start.path, above, include, stop);
        let Some(top) = top.map_err(|halt| halted(halt, stop))? else {
            return Err(ToolError::tell(format!("the system does not allow reading `{name}`")));
        };
        let mut tree = Tree { depth: arguments.depth, ..Tree::empty(sight, &start, include, stop) };
        match tree.grow(top) {
            Err(halt @ Halt::Dropped) => return Err(halted(halt, stop)),
            Err(Halt::TimeOver) => tree.late = true,
            Ok(()) => {}
        }
        Ok(ToolOutput::text(tree.show(&name)))
    }
}

/// The entries chosen so far, level by level, so that shallow ones come first when there are too many.
struct Tree<'a> {
    sight: &'a Sight<'a>,
    start: &'a Start,
    include: Include,
    stop: &'a Stop,
    depth: Option<u32>,
    top: Vec<Entry>,
    below: HashMap<PathBuf, Vec<Entry>>,
    entries: usize,
    more: bool,
    late: bool,
    unreadable: usize,
}

impl<'a> Tree<'a> {
    fn empty(sight: &'a Sight<'a>, start: &'a Start, include: Include, stop: &'a Stop) -> Self {
        let (top, below) = (Vec::new(), HashMap::new());
        Self {
            sight,
            start,
            include,
            stop,
            depth: None,
            top,
            below,
            entries: 0,
            more: false,
            late: false,
            unreadable: 0,
        }
    }

    fn grow(&mut self, top: Level) -> Result<(), Halt> {
        let mut level = Vec::new();
        self.top = self.take(top, &mut level);
        let mut depth = 1_u32;
        while !level.is_empty() && self.depth.is_none_or(|most| depth < most) {
            let mut next = Vec::new();
            for (dir, rules) in level {
                if self.more {
                    return Ok(());
                }
                match Level::read(self.sight, self.start, &dir, Some(rules), self.include, self.stop)? {
                    Some(found) => {
                        let entries = self.take(found, &mut next);
                        self.below.insert(dir, entries);
                    }
                    None => self.unreadable += 1,
                }
            }
            level = next;
            depth = depth.saturating_add(1);
        }
        Ok(())
    }

    /// Keeps as many entries as fit, and collects the directories among them.
    fn take(&mut self, level: Level, dirs: &mut Vec<(PathBuf, Arc<Rules>)>) -> Vec<Entry> {
        let mut entries = level.entries;
        let room = ENTRIES - self.entries;
        self.more |= entries.len() > room;
        entries.truncate(room);
        self.entries += entries.len();
        for entry in &entries {
            // The internal directory of a repository is named, not listed.
            if entry.kind == Kind::Dir && entry.path.file_name().is_some_and(|name| name != ".git") {
                dirs.push((entry.path.clone(), Arc::clone(&level.rules)));
            }
        }
        entries
    }

    fn show(&self, name: &str) -> String {
        let mut out = format!("{name}/\n");
        let mut left: Vec<(usize, &Entry)> = self.top.iter().rev().map(|entry| (1, entry)).collect();
        while let Some((depth, entry)) = left.pop() {
            let name = entry.path.file_name().map(|name| text::show(name.as_ref())).unwrap_or_default();
            let mark = match entry.kind {
                Kind::Dir => "/",
                Kind::Link => "@",
                Kind::File => "",
                Kind::Special => " (special file)",
            };
            let _ = writeln!(out, "{:indent$}{name}{mark}", "", indent = depth * 2);
            if let Some(entries) = self.below.get(&entry.path) {
                left.extend(entries.iter().rev().map(|entry| (depth + 1, entry)));
            }
        }
        if self.entries == 0 {
            out.push_str("(nothing that is neither hidden nor ignored)\n");
        }
        if self.more {
            out.push_str("(cut at 1,000 entries, there are more; list a directory below or give `depth`)\n");
        }
        if self.late {
            let _ = writeln!(
                out,
                "(stopped after {}; list a directory below or give `depth`)",
                self.stop.limit()
            );
        }
        if self.unreadable > 0 {
            let _ = writeln!(
                out,
                "({} could not be read)",
                text::count(self.unreadable, "directory", "directories")
            );
        }
        if let Some(line) = self.sight.left_out() {
            let _ = writeln!(out, "{line}");
        }
        out.truncate(out.trim_end_matches('\n').len());
        out
    }
}
