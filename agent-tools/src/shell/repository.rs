//! The check that git may be asked about a repository: that its configuration names no program.
//!
//! A repository of somebody else, such as one that was unpacked, can name programs that git runs when it is only asked:
//! filters, drivers of differences, monitors. So the configuration must consist of known settings alone.

use std::{fs, path::Path};

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

/// True if git, asked in the canonical directory `dir`, runs no program that a repository names. Blocks.
pub(super) fn runs_nothing(dir: &Path) -> bool {
    if dir.components().any(|part| part.as_os_str().eq_ignore_ascii_case(".git")) {
        return false;
    }
    for place in dir.ancestors() {
        let git = place.join(".git");
        match fs::symlink_metadata(&git) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            // A file leads to a repository elsewhere.
            Ok(meta) if meta.is_dir() => return is_plain(&git),
            _ => return false,
        }
    }
    // Where there is none, git asks for one by name; `safe.bareRepository` sees to that.
    true
}

fn is_plain(git: &Path) -> bool {
    let absent = |name: &str| {
        fs::symlink_metadata(git.join(name)).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    };
    // Each of these leads elsewhere, or holds further settings.
    let elsewhere =
        ["commondir", "config.worktree", "objects/info/alternates", "objects/info/http-alternates"];
    let linked = |name: &str| fs::symlink_metadata(git.join(name)).is_ok_and(|meta| meta.is_symlink());
    if !elsewhere.iter().all(|name| absent(name))
        || ["HEAD", "config", "index", "objects", "refs"].into_iter().any(linked)
    {
        return false;
    }
    let path = git.join("config");
    match fs::metadata(&path) {
        Ok(meta) if meta.is_file() && meta.len() <= LONGEST => {
            fs::read_to_string(&path).is_ok_and(|text| names_nothing(&text))
        }
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        Ok(_) => false,
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
