//! The check that git may be asked about a repository: that its configuration names no program.
//!
//! A repository of somebody else, such as one that was unpacked, can name programs that git runs when it is only asked:
//! filters, drivers of differences, monitors. So the configuration must consist of known settings alone.

use std::{fs, io, path::Path};

/// Longest configuration that is read, in bytes.
const LONGEST: u64 = 64 * 1024;

/// Settings that name neither programs nor other places, by section. A section without settings may have any.
const KNOWN: [(&str, &[&str]); 21] = [
    ("advice", &[]),
    ("branch", &[]),
    ("color", &[]),
    (
        "core",
        &[
            "abbrev",
            "autocrlf",
            "bare",
            "bigfilethreshold",
            "checkstat",
            "commentchar",
            "compression",
            "eol",
            "filemode",
            "ignorecase",
            "logallrefupdates",
            "longpaths",
            "multipackindex",
            "precomposeunicode",
            "preloadindex",
            "protecthfs",
            "protectntfs",
            "quotepath",
            "repositoryformatversion",
            "safecrlf",
            "sharedrepository",
            "symlinks",
            "trustctime",
            "untrackedcache",
        ],
    ),
    ("commit", &["gpgsign", "verbose"]),
    ("extensions", &["objectformat", "refstorage", "noop", "preciousobjects"]),
    ("feature", &[]),
    ("fetch", &[]),
    ("gc", &[]),
    ("index", &[]),
    ("init", &["defaultbranch"]),
    ("lfs", &["repositoryformatversion", "locksverify"]),
    ("maintenance", &[]),
    ("pack", &["threads", "windowmemory", "usebitmaps"]),
    ("pull", &[]),
    ("push", &["default", "autosetupremote", "followtags"]),
    ("rebase", &[]),
    ("remote", &["fetch", "prune", "push", "pushurl", "tagopt", "url", "gh-resolved", "mirror"]),
    ("submodule", &["active", "url"]),
    ("tag", &["sort", "gpgsign"]),
    ("user", &["email", "name", "signingkey"]),
];

/// Entries of a repository that lead elsewhere, or that hold settings or work of their own.
const MORE: [&str; 9] = [
    "BISECT_START",
    "MERGE_HEAD",
    "commondir",
    "config.worktree",
    "modules",
    "rebase-apply",
    "rebase-merge",
    "sequencer",
    "worktrees",
];

/// Largest index that is looked at, in bytes.
const INDEX: u64 = 64 << 20;

/// True if git, asked in the canonical directory `dir` below the canonical `root`, runs no program that a repository
/// names, and reads nothing above the root. Blocks.
pub(super) fn runs_nothing(root: &Path, dir: &Path) -> bool {
    if dir.components().any(|part| part.as_os_str().eq_ignore_ascii_case(".git")) {
        return false;
    }
    for place in dir.ancestors().take_while(|place| place.starts_with(root)) {
        let git = place.join(".git");
        match fs::symlink_metadata(&git) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // A file leads to a repository elsewhere.
            Ok(meta) if meta.is_dir() => return is_plain(&git).unwrap_or(false),
            _ => return false,
        }
    }
    // Where there is none, git compares any files, or asks one above.
    false
}

fn is_plain(git: &Path) -> io::Result<bool> {
    let mut found = 0;
    for entry in fs::read_dir(git)? {
        let entry = entry?;
        let name = entry.file_name();
        let more = MORE.iter().any(|it| name.eq_ignore_ascii_case(it));
        if more || entry.file_type()?.is_symlink() || name.to_string_lossy().starts_with("sharedindex.") {
            return Ok(false);
        }
        found += usize::from(["HEAD", "objects", "refs"].iter().any(|it| name == *it));
    }
    let absent = |name: &str| {
        fs::symlink_metadata(git.join(name)).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    let elsewhere = ["objects/info/alternates", "objects/info/http-alternates"];
    // What git takes for no repository, it looks for above.
    if found < 3 || !elsewhere.into_iter().all(absent) || has_inner(&git.join("index"))? {
        return Ok(false);
    }
    let path = git.join("config");
    match fs::metadata(&path) {
        Ok(meta) if meta.is_file() && meta.len() <= LONGEST => Ok(names_nothing(&fs::read_to_string(&path)?)),
        Err(error) => Ok(error.kind() == io::ErrorKind::NotFound),
        Ok(_) => Ok(false),
    }
}

/// True if an index may name a repository in the working tree, which has a configuration of its own: an entry with the
/// mode of one is looked for by its bytes alone.
fn has_inner(index: &Path) -> io::Result<bool> {
    const MODE: [u8; 4] = [0, 0, 0xe0, 0];
    match fs::metadata(index) {
        Ok(meta) if meta.is_file() && meta.len() <= INDEX => {
            let bytes = fs::read(index)?;
            Ok(bytes.windows(MODE.len()).any(|window| window == MODE))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        _ => Ok(true),
    }
}

/// True if a configuration has known settings alone, written in the plain way that git itself writes them.
fn names_nothing(text: &str) -> bool {
    let mut known: Option<&[&str]> = None;
    text.lines().all(|line| {
        let line = line.trim_matches([' ', '\t']);
        if line.is_empty() || line.starts_with(['#', ';']) {
            return true;
        }
        // The next line would go on with this one.
        if line.ends_with('\\') || line.contains('\r') {
            return false;
        }
        if let Some(header) = line.strip_prefix('[') {
            known = section(header);
            return known.is_some();
        }
        let name = line
            .split_once('=')
            .map_or(line, |(name, _)| name)
            .trim_end_matches([' ', '\t'])
            .to_ascii_lowercase();
        let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        plain && known.is_some_and(|known| known.is_empty() || known.contains(&name.as_str()))
    })
}

/// Returns the known settings of the section of this header, which is alone on its line.
fn section(header: &str) -> Option<&'static [&'static str]> {
    let header = header.strip_suffix(']')?;
    let name = match header.split_once(' ') {
        None => header,
        Some((name, rest)) => {
            let inner = rest.trim_start().strip_prefix('"')?.strip_suffix('"')?;
            (!inner.contains(['"', '\\', ']'])).then_some(name)?
        }
    };
    let name = name.to_ascii_lowercase();
    KNOWN.iter().find(|(known, _)| *known == name).map(|(_, settings)| *settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_29_a_configuration_is_plain_by_what_is_known_alone() {
        let plain = "# mine\n[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\
            [remote \"origin\"]\n\turl = https://a.example/x.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\
            [branch \"feature/x\"]\n\tremote = origin\n\tmerge = refs/heads/main\n[user]\n\temail = a@b.example\n";
        assert!(names_nothing(plain) && names_nothing(""));
        for more in [
            "[core]\n\tfsmonitor = ./x",
            "[core]\n\tFSMonitor = ./x",
            "[core]\n\tworktree = /etc",
            "[core] fsmonitor = ./x",
            "[core]fsmonitor=x",
            "[core]\n\tabbrev = 7 \\\n\tfsmonitor = x",
            "[filter \"x\"]\n\tclean = ./x",
            "[filter.x]\n\tclean = ./x",
            "[FILTER \"x\"]\n\tclean = ./x",
            "[diff \"x\"]\n\ttextconv = ./x",
            "[diff]\n\texternal = ./x",
            "[include]\n\tpath = x",
            "[includeIf \"gitdir:/\"]\n\tpath = x",
            "[alias]\n\tlog = !x",
            "[pager]\n\tlog = x",
            "[pretty]\n\tevil = %G?",
            "[gpg]\n\tprogram = x",
            "[log]\n\tshowSignature = true",
            "[remote \"x\"]\n\tuploadpack = x",
            "[remote \"x\"]\n\tpromisor = true",
            "[remote \"a\\\"]\n[filter \"x\"]\n\tclean = x",
            "[extensions]\n\tworktreeConfig = true",
            "\u{feff}[core]\n\tbare = false",
            "[core]\r\n\tbare = false\r[filter \"x\"]\r\tclean = x",
            "bare = false",
            "[]",
            "[core",
        ] {
            assert!(!names_nothing(&format!("{plain}{more}\n")), "{more}");
        }
    }
}
