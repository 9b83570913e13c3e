//! The state of a git repository, asked of the `git` program.
//!
//! A repository's configuration may name programs: monitors, hooks, filters, transports, signature checkers. A mere
//! query must run none of them, so each is switched off. Submodules, which have configurations of their own, are not
//! entered.

use std::{ffi::OsString, path::Path, process::Stdio, time::Duration};

use entourage_core::context::GitFacts;
use tokio::{
    io::AsyncReadExt,
    process::Command,
    time::{Instant, timeout_at},
};

/// Time limit for all queries together.
const TIME: Duration = Duration::from_secs(2);

/// Most bytes of one answer; the rest is not read.
const ANSWER: u64 = 64 * 1024;

/// Settings that override the repository's configuration.
const FIXED: [(&str, &str); 6] = [
    ("core.fsmonitor", "false"),
    ("core.hooksPath", if cfg!(windows) { "NUL" } else { "/dev/null" }),
    ("core.pager", "cat"),
    ("core.quotePath", "true"),
    ("log.showSignature", "false"),
    ("color.ui", "false"),
];

/// Variables that git needs to be found and to find the user's own settings.
const KEPT: [&str; 7] =
    ["HOME", "XDG_CONFIG_HOME", "USERPROFILE", "HOMEDRIVE", "HOMEPATH", "SystemRoot", "TMPDIR"];

/// Asks for the state of the repository that contains `dir`.
pub(super) async fn ask(dir: &Path) -> Option<GitFacts> {
    let until = Instant::now() + TIME;
    let plain = Git { dir, filters: Vec::new(), until };
    if plain.answer(&["rev-parse", "--is-inside-work-tree"]).await.as_deref() != Ok("true\n") {
        return None;
    }
    let log = ["log", "--max-count=3", "--no-show-signature", "--format=%h %s"];
    let (branch, status, log) = tokio::join!(plain.branch(), plain.status(), plain.answer(&log));
    let status = status.unwrap_or_else(|_| "not known: git did not answer".to_owned());
    let commits = log.unwrap_or_default();
    Some(GitFacts::new(&branch, status.lines(), commits.lines()))
}

/// No answer from git: it failed, is not installed, or took too long.
#[derive(Debug, PartialEq, Eq)]
struct NoAnswer;

struct Git<'a> {
    dir: &'a Path,
    /// Configuration keys of filters, which would run programs to compare files.
    filters: Vec<String>,
    until: Instant,
}

impl Git<'_> {
    async fn branch(&self) -> String {
        if let Ok(branch) = self.answer(&["symbolic-ref", "--quiet", "--short", "HEAD"]).await {
            return branch.trim_end().to_owned();
        }
        match self.answer(&["rev-parse", "--short", "HEAD"]).await {
            Ok(commit) => format!("none; at commit {}", commit.trim_end()),
            Err(NoAnswer) => "not known".to_owned(),
        }
    }

    /// The short status. It compares files, so it runs only once all filters are known and off.
    async fn status(&self) -> Result<String, NoAnswer> {
        let keys = self.full(&["config", "--includes", "--name-only", "-z", "--list"]).await?;
        let git = Git { dir: self.dir, filters: filters(&keys), until: self.until };
        let ask = [
            "status",
            "--porcelain=v1",
            "--ignore-submodules=all",
            "--no-renames",
            "--untracked-files=normal",
        ];
        git.answer(&ask).await
    }

    /// An answer, up to its last complete line.
    async fn answer(&self, arguments: &[&str]) -> Result<String, NoAnswer> {
        let (mut text, cut) = self.timed(arguments).await?;
        if cut {
            text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
        }
        Ok(text)
    }

    /// An answer that is complete, or none.
    async fn full(&self, arguments: &[&str]) -> Result<String, NoAnswer> {
        match self.timed(arguments).await? {
            (text, false) => Ok(text),
            (_, true) => Err(NoAnswer),
        }
    }

    async fn timed(&self, arguments: &[&str]) -> Result<(String, bool), NoAnswer> {
        timeout_at(self.until, self.run(arguments)).await.unwrap_or(Err(NoAnswer))
    }

    /// The output of git, and true if there was more.
    async fn run(&self, arguments: &[&str]) -> Result<(String, bool), NoAnswer> {
        let mut child = self.command(arguments).spawn().map_err(|_| NoAnswer)?;
        let mut bytes = Vec::new();
        let mut out = child.stdout.take().ok_or(NoAnswer)?.take(ANSWER);
        out.read_to_end(&mut bytes).await.map_err(|_| NoAnswer)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if bytes.len() as u64 == ANSWER {
            child.kill().await.map_err(|_| NoAnswer)?;
            return Ok((text, true));
        }
        drop(out);
        let ended = child.wait().await.map_err(|_| NoAnswer)?;
        if ended.success() { Ok((text, false)) } else { Err(NoAnswer) }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("git");
        command.env_clear().envs(KEPT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        if let Some(path) = search_path() {
            command.env("PATH", path);
        }
        for (name, value) in [
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_TERMINAL_PROMPT", "0"),
            // A repository with missing objects must not fetch them: from no server, through no transport.
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_ALLOW_PROTOCOL", "none"),
            ("LC_ALL", "C"),
        ] {
            command.env(name, value);
        }
        // Not `-c`: that cannot name a key with `=` in it, and a repository may choose one.
        let off = self
            .filters
            .iter()
            .map(|key| (key.as_str(), if key.ends_with(".required") { "false" } else { "" }));
        let mut count = 0_usize;
        for (key, value) in FIXED.into_iter().chain(off) {
            command
                .env(format!("GIT_CONFIG_KEY_{count}"), key)
                .env(format!("GIT_CONFIG_VALUE_{count}"), value);
            count += 1;
        }
        command.env("GIT_CONFIG_COUNT", count.to_string());
        command.arg("--no-pager").arg("-C").arg(self.dir).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        command
    }
}

/// `PATH` without relative entries: otherwise a program in the project's directory could be taken for git.
fn search_path() -> Option<OsString> {
    let all = std::env::var_os("PATH")?;
    std::env::join_paths(std::env::split_paths(&all).filter(|entry| entry.is_absolute())).ok()
}

/// Configuration keys that name or require a filter's programs.
fn filters(keys: &str) -> Vec<String> {
    let mut found: Vec<_> = keys
        .split('\0')
        .filter(|key| {
            let rest = key.strip_prefix("filter.").and_then(|rest| rest.rsplit_once('.'));
            rest.is_some_and(|(_, last)| matches!(last, "clean" | "smudge" | "process" | "required"))
        })
        .map(str::to_owned)
        .collect();
    // `required` alone would make a disabled filter fail.
    found.sort();
    found.dedup();
    found
}
