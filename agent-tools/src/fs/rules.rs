//! Ignore files: the names that a walk leaves out.
//!
//! They are read through the workspace's handle like any other file, and never from outside it. So neither the ignore
//! files above the root nor the user's own count.

use std::{
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use cap_fs_ext::FollowSymlinks;
use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};

use super::workspace::Workspace;

/// Most bytes of one ignore file that count.
const LARGEST: u64 = 1 << 20;

/// The rules of a directory and of those above it, up to the root.
#[derive(Debug)]
pub(super) struct Rules {
    parent: Option<Arc<Rules>>,
    dir: PathBuf,
    plain: Gitignore,
    git: Gitignore,
    /// True at the root of a repository, where the rules of an outer repository end.
    repository: bool,
}

/// The verdict of the rules on a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Silent,
    Ignore,
    /// Matched by a `!` line: shown although it is hidden.
    Keep,
}

impl Rules {
    /// Reads the rules in `dir`. `has` tells if a name exists there, to spare the attempt to open it.
    pub(super) fn read(
        ws: &Workspace,
        dir: &Path,
        parent: Option<Arc<Self>>,
        has: impl Fn(&str) -> bool,
    ) -> Arc<Self> {
        let file = |name: &str| if has(name) { load(ws, &dir.join(name)) } else { Gitignore::empty() };
        let (plain, git) = (file(".ignore"), file(".gitignore"));
        Arc::new(Self { parent, dir: dir.to_owned(), plain, git, repository: has(".git") })
    }

    /// The rules of a directory whose ignore files have these texts.
    pub(super) fn of_texts(
        dir: &Path,
        parent: Option<Arc<Self>>,
        (plain, git): (Option<&[u8]>, Option<&[u8]>),
        repository: bool,
    ) -> Arc<Self> {
        let [plain, git] = [plain, git].map(|text| text.map_or_else(Gitignore::empty, parsed));
        Arc::new(Self { parent, dir: dir.to_owned(), plain, git, repository })
    }

    /// The rules of all directories above `dir`; `None` for the root.
    pub(super) fn above(ws: &Workspace, dir: &Path) -> Option<Arc<Self>> {
        let mut parents: Vec<&Path> = dir.ancestors().skip(1).collect();
        parents.reverse();
        parents.into_iter().fold(None, |rules, parent| {
            Some(Self::read(ws, parent, rules, |name| ws.dir().symlink_metadata(parent.join(name)).is_ok()))
        })
    }

    /// The verdict of the nearest matching rule. Any `.ignore` file takes precedence over any `.gitignore`.
    pub(super) fn judge(&self, path: &Path, is_dir: bool) -> Verdict {
        let mut plain = Verdict::Silent;
        let mut git = Verdict::Silent;
        let mut git_counts = true;
        let mut level = Some(self);
        while let Some(rules) = level {
            let below = path.strip_prefix(&rules.dir).unwrap_or(path);
            if plain == Verdict::Silent {
                plain = verdict(&rules.plain, below, is_dir);
            }
            if git == Verdict::Silent && git_counts {
                git = verdict(&rules.git, below, is_dir);
            }
            git_counts &= !rules.repository;
            level = rules.parent.as_deref();
        }
        if plain == Verdict::Silent { git } else { plain }
    }
}

fn verdict(rules: &Gitignore, path: &Path, is_dir: bool) -> Verdict {
    match rules.matched(path, is_dir) {
        Match::None => Verdict::Silent,
        Match::Ignore(_) => Verdict::Ignore,
        Match::Whitelist(_) => Verdict::Keep,
    }
}

/// Loads an ignore file. Invalid lines are skipped, as in git.
fn load(ws: &Workspace, at: &Path) -> Gitignore {
    let Ok(Some(file)) = Workspace::open_file(ws.dir(), at, FollowSymlinks::No) else {
        return Gitignore::empty();
    };
    let mut bytes = Vec::new();
    if file.take(LARGEST).read_to_end(&mut bytes).is_err() {
        return Gitignore::empty();
    }
    parsed(&bytes)
}

/// The rules of an ignore file's text, of which the beginning counts: the same rules wherever the text comes from.
fn parsed(bytes: &[u8]) -> Gitignore {
    let most = usize::try_from(LARGEST).unwrap_or(usize::MAX);
    let text = String::from_utf8_lossy(bytes.get(..most).unwrap_or(bytes));
    let mut builder = GitignoreBuilder::new("");
    for line in text.strip_prefix('\u{feff}').unwrap_or(&text).lines() {
        let _ = builder.add_line(None, line);
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}
