//! `glob`: files by name, and the patterns that `grep` shares.

use std::{
    collections::BinaryHeap,
    path::{Component, Path, PathBuf},
    time::Duration,
};

use entourage_core::tool::{ToolError, ToolOutput};
use globset::{GlobBuilder, GlobMatcher};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    level::{Entry, Include, Kind, Walk},
    sight::{Sight, Start},
    stop::{Halt, Stop, halted},
    text,
    tool::Operation,
    workspace::Workspace,
};

const FILES: usize = 100;
/// Longest pattern, in bytes.
const LONGEST: usize = 1_000;

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Arguments {
    /// The pattern: `*.rs` finds names at any depth, `src/**/*.{js,ts}` is matched against the path from `path`.
    pattern: String,
    /// The directory to search, relative to the workspace's root. Default: the root.
    #[serde(default)]
    path: Option<String>,
}

#[derive(Debug)]
pub(super) struct Find;

impl Operation for Find {
    type Arguments = Arguments;
    const NAME: &'static str = "glob";
    const DESCRIPTION: &'static str = "Finds files by name, at most 100, shortest paths first. Hidden files and what \
        ignore files name are left out. To search inside files use `grep`.";
    const TIME: Duration = Duration::from_secs(30);
    const WITHOUT_PATH: Option<&'static str> = Some(".");

    fn run(sight: &Sight<'_>, arguments: Arguments, stop: &Stop) -> Result<ToolOutput, ToolError> {
        let pattern = Pattern::parse(&arguments.pattern, sight.workspace().roots())?;
        let place = sight.workspace().place(arguments.path.as_deref().unwrap_or("."))?;
        if !sight.look(&place)?.is_dir() {
            let name = text::echo(&text::show(place.as_path()));
            return Err(ToolError::tell(format!("`{name}` is no directory; show a file with `view`")));
        }
        let start = sight.start(&place)?;
        let mut found = Found::default();
        let late = match search(sight, &start, &pattern, &mut found, stop) {
            Ok(()) => false,
            Err(Halt::TimeOver) => true,
            Err(halt @ Halt::Dropped) => return Err(halted(halt, stop)),
        };
        Ok(ToolOutput::text(found.show(late.then(|| stop.limit()), sight.left_out())))
    }
}

fn search(
    sight: &Sight<'_>,
    start: &Start,
    pattern: &Pattern,
    found: &mut Found,
    stop: &Stop,
) -> Result<(), Halt> {
    let mut walk = Walk::new(sight, start, Include::default(), stop)?;
    loop {
        let next = walk.next();
        found.unreadable = walk.unreadable;
        let Some(entry) = next? else { return Ok(()) };
        if pattern.is_match(&entry.path, &start.path) && is_file(sight.workspace(), &entry) {
            found.push(text::show(&entry.path));
        }
    }
}

/// True for a regular file, and for a link that leads to a file of the workspace.
fn is_file(ws: &Workspace, entry: &Entry) -> bool {
    match entry.kind {
        Kind::File => true,
        Kind::Link => ws.dir().metadata(&entry.path).is_ok_and(|target| target.is_file()),
        Kind::Dir | Kind::Special => false,
    }
}

/// The shortest paths so far; the longest is on top.
#[derive(Default)]
struct Found {
    paths: BinaryHeap<(usize, String)>,
    total: usize,
    unreadable: usize,
}

impl Found {
    fn push(&mut self, path: String) {
        self.total += 1;
        self.paths.push((path.len(), path));
        if self.paths.len() > FILES {
            self.paths.pop();
        }
    }

    fn show(self, late: Option<String>, left_out: Option<String>) -> String {
        let shown = self.paths.len();
        let mut lines: Vec<String> = self.paths.into_sorted_vec().into_iter().map(|(_, path)| path).collect();
        if shown == 0 {
            lines.push("no file matches; hidden and ignored files are not looked at".to_owned());
        }
        if self.total > shown {
            let files = text::count(self.total, "file", "files");
            lines.push(format!("(cut at 100 of {files} that match; narrow the pattern or give `path`)"));
        }
        if let Some(limit) = late {
            lines.push(format!("(stopped after {limit}, there may be more; give `path`)"));
        }
        if self.unreadable > 0 {
            lines.push(format!(
                "({} could not be read)",
                text::count(self.unreadable, "directory", "directories")
            ));
        }
        lines.extend(left_out);
        lines.join("\n")
    }
}

/// A pattern on the names or paths of files.
#[derive(Debug)]
pub(super) struct Pattern {
    matcher: GlobMatcher,
    /// True for a pattern without a `/`, which matches the name in any directory.
    name_only: bool,
}

impl Pattern {
    /// Parses a pattern. An absolute one must begin with one of `roots`, otherwise it is taken from the root.
    pub(super) fn parse(pattern: &str, roots: &[PathBuf]) -> Result<Self, ToolError> {
        if pattern.trim().is_empty() {
            return Err(ToolError::tell("the pattern is empty; `*` matches every file"));
        }
        if pattern.len() > LONGEST {
            return Err(ToolError::tell("the pattern is longer than 1,000 bytes; use a shorter one"));
        }
        if Path::new(pattern).components().any(|part| part == Component::ParentDir) {
            return Err(ToolError::tell(format!(
                "the pattern `{}` is outside the workspace: `..` matches nothing; give a directory as `path` instead",
                text::echo(pattern)
            )));
        }
        let below = roots.iter().find_map(|root| pattern.strip_prefix(root.to_str()?)?.strip_prefix('/'));
        let anchored = below.or_else(|| pattern.strip_prefix('/'));
        let mut rest = anchored.unwrap_or(pattern);
        while let Some(shorter) = rest.strip_prefix("./") {
            rest = shorter;
        }
        let glob = GlobBuilder::new(rest).literal_separator(true).empty_alternates(true).build();
        let matcher = glob
            .map_err(|error| {
                ToolError::tell(format!(
                    "the pattern `{}` cannot be read: {}",
                    text::echo(pattern),
                    error.kind()
                ))
            })?
            .compile_matcher();
        Ok(Self { matcher, name_only: anchored.is_none() && !rest.contains('/') })
    }

    /// True if it matches the file at `path`, seen from the root or from `start`.
    pub(super) fn is_match(&self, path: &Path, start: &Path) -> bool {
        if self.name_only {
            return path.file_name().is_some_and(|name| self.matcher.is_match(name));
        }
        self.matcher.is_match(path)
            || path.strip_prefix(start).is_ok_and(|below| self.matcher.is_match(below))
    }
}
