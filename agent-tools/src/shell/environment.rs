//! The environment of commands: the program's own, without secrets and without what changes the meaning of commands.

use std::ffi::{OsStr, OsString};

/// Parts of names of secrets.
const SECRET: [&str; 14] = [
    "APIKEY",
    "AUTH",
    "COOKIE",
    "CREDENTIAL",
    "DSN",
    "KEY",
    "PASSPHRASE",
    "PASSW",
    "PGPASS",
    "PRIVATE",
    "SECRET",
    "SESSION",
    "TOKEN",
    "CONNECTION_STRING",
];

/// Beginnings of values that are secrets under any name.
const SECRET_VALUES: [&str; 13] = [
    "-----BEGIN",
    "AKIA",
    "ASIA",
    "AIza",
    "eyJ",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "hf_",
    "sk-",
    "xox",
];

/// Variables that name programs or code, or change how a shell reads commands.
const MEANING: [&str; 26] = [
    "BASHOPTS",
    "BASH_ENV",
    "BROWSER",
    "CDPATH",
    "EDITOR",
    "ENV",
    "FCEDIT",
    "GLOBIGNORE",
    "IFS",
    "LESSCLOSE",
    "LESSOPEN",
    "MANPAGER",
    "NODE_OPTIONS",
    "PAGER",
    "PERL5OPT",
    "PROMPT_COMMAND",
    "PS0",
    "PS4",
    "PYTHONSTARTUP",
    "RIPGREP_CONFIG_PATH",
    "RUBYOPT",
    "SHELLOPTS",
    "VISUAL",
    "PERL5DB",
    "EXECIGNORE",
    "POSIXLY_CORRECT",
];
const MEANING_PREFIXES: [&str; 5] = ["BASH", "DYLD_", "GIT_", "LD_", "SUDO_"];
const MEANING_SUFFIXES: [&str; 4] = ["ASKPASS", "EDITOR", "PAGER", "_WRAPPER"];

/// Variables set in each environment: programs that would wait for a person do not.
const FIXED: [(&str, &str); 9] = [
    ("EDITOR", "true"),
    ("GIT_EDITOR", "true"),
    ("GIT_PAGER", "cat"),
    ("GIT_SEQUENCE_EDITOR", "true"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("MANPAGER", "cat"),
    ("PAGER", "cat"),
    ("TERM", "dumb"),
    ("VISUAL", "true"),
];

/// Settings of git for commands that only read: a repository's configuration may name programs to run.
const GIT: [(&str, &str); 7] = [
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.pager", "cat"),
    ("core.attributesFile", "/dev/null"),
    ("diff.external", ""),
    ("log.showSignature", "false"),
    ("submodule.recurse", "false"),
];

/// Returns `own` without secrets, and with what is fixed. `added` is taken as it is.
pub(super) fn scrubbed(
    own: impl IntoIterator<Item = (OsString, OsString)>,
    added: &[(OsString, OsString)],
    only_reads: bool,
) -> Vec<(OsString, OsString)> {
    let mut all: Vec<_> = own.into_iter().filter(|(name, value)| stays(name, value)).collect();
    for (name, value) in &mut all {
        if name == "PATH" {
            *value = search_path(value);
        }
    }
    let mut set = |name: &OsStr, value: &OsStr| {
        all.retain(|(other, _)| other != name);
        all.push((name.to_owned(), value.to_owned()));
    };
    for (name, value) in FIXED {
        set(name.as_ref(), value.as_ref());
    }
    if only_reads {
        set("GIT_OPTIONAL_LOCKS".as_ref(), "0".as_ref());
        set("GIT_NO_LAZY_FETCH".as_ref(), "1".as_ref());
        set("GIT_CONFIG_COUNT".as_ref(), GIT.len().to_string().as_ref());
        for (number, (key, value)) in GIT.into_iter().enumerate() {
            set(format!("GIT_CONFIG_KEY_{number}").as_ref(), key.as_ref());
            set(format!("GIT_CONFIG_VALUE_{number}").as_ref(), value.as_ref());
        }
    }
    for (name, value) in added {
        set(name, value);
    }
    all
}

/// `PATH` without relative entries, by which a program of the project could be taken for another.
fn search_path(path: &OsStr) -> OsString {
    std::env::join_paths(std::env::split_paths(path).filter(|entry| entry.is_absolute())).unwrap_or_default()
}

fn stays(name: &OsStr, value: &OsStr) -> bool {
    let name = name.to_string_lossy().to_ascii_uppercase();
    let value = value.to_string_lossy();
    let author = ["GIT_AUTHOR_", "GIT_COMMITTER_"].iter().any(|it| name.starts_with(it));
    let secret = !author && SECRET.iter().any(|part| name.contains(part));
    let meaning = MEANING.contains(&name.as_str())
        || !author && MEANING_PREFIXES.iter().any(|it| name.starts_with(it))
        || MEANING_SUFFIXES.iter().any(|it| name.ends_with(it));
    let function = value.starts_with("() {");
    !secret && !meaning && !function && !is_secret(&value)
}

/// True for a key, or an address with a password.
fn is_secret(value: &str) -> bool {
    let value = value.trim_start();
    let with_password = value.split_once("://").is_some_and(|(_, rest)| {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
    });
    with_password || value.contains("-----BEGIN") || SECRET_VALUES.iter().any(|it| value.starts_with(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(own: &[(&str, &str)], added: &[(OsString, OsString)]) -> Vec<(String, String)> {
        let own = own.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let text = |it: OsString| it.into_string().unwrap();
        scrubbed(own, added, false).into_iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn cx03_secrets_are_no_part_of_the_environment() {
        for (name, value) in [
            ("OPENAI_API_KEY", "x"),
            ("api_key", "x"),
            ("AWS_SECRET_ACCESS_KEY", "x"),
            ("GITHUB_TOKEN", "x"),
            ("PGPASSWORD", "x"),
            ("PGPASSFILE", "x"),
            ("MYSQL_PASSWD", "x"),
            ("GOOGLE_APPLICATION_CREDENTIALS", "x"),
            ("SSH_AUTH_SOCK", "x"),
            ("COOKIE_JAR", "x"),
            ("DBUS_SESSION_BUS_ADDRESS", "x"),
            ("DATABASE_URL", "postgres://me:pw@db.example/x"),
            ("HTTPS_PROXY", "http://me:pw@proxy.example"),
            ("SENTRY_DSN", "https://x@sentry.example/1"),
            ("PLAIN", "sk-abc"),
            ("PLAIN", "ghp_abc"),
            ("PLAIN", "AKIAABC"),
            ("PLAIN", "x\n-----BEGIN PRIVATE KEY-----"),
        ] {
            let left = names(&[(name, value), ("HOME", "/home/me")], &[]);
            assert!(left.iter().all(|(_, left)| left != value), "{name}: {left:?}");
            assert!(left.contains(&("HOME".to_owned(), "/home/me".to_owned())));
        }
        let kept = [("DATABASE_URL", "postgres://db.example/x"), ("GIT_AUTHOR_NAME", "me"), ("LANG", "C")];
        for (name, value) in kept {
            assert!(names(&kept, &[]).contains(&(name.to_owned(), value.to_owned())), "{name}");
        }
        let added = [("OPENAI_API_KEY".into(), "on purpose".into())];
        let left = names(&[("OPENAI_API_KEY", "x")], &added);
        assert!(left.contains(&("OPENAI_API_KEY".to_owned(), "on purpose".to_owned())), "{left:?}");
    }

    #[test]
    fn attack_29_nothing_in_the_environment_changes_what_commands_mean() {
        for name in [
            "BASH_ENV",
            "ENV",
            "LD_PRELOAD",
            "DYLD_INSERT_LIBRARIES",
            "PROMPT_COMMAND",
            "BASH_FUNC_ls%%",
            "SHELLOPTS",
            "BASHOPTS",
            "PS4",
            "IFS",
            "PAGER",
            "GIT_PAGER",
            "EDITOR",
            "GIT_EDITOR",
            "GIT_SSH_COMMAND",
            "GIT_EXTERNAL_DIFF",
            "GIT_CONFIG_KEY_0",
            "SUDO_ASKPASS",
            "SYSTEMD_PAGER",
            "LESSOPEN",
            "RUSTC_WRAPPER",
            "NODE_OPTIONS",
        ] {
            let left = names(&[(name, "/tmp/evil")], &[]);
            assert!(left.iter().all(|(_, value)| value != "/tmp/evil"), "{name}: {left:?}");
        }
        let left = names(&[("f", "() { rm x; }"), ("PATH", "/bin:.::bin:/usr/bin")], &[]);
        assert!(left.contains(&("PATH".to_owned(), "/bin:/usr/bin".to_owned())), "{left:?}");
        assert!(left.contains(&("PAGER".to_owned(), "cat".to_owned())), "{left:?}");
        assert!(left.iter().all(|(name, _)| name != "f"), "{left:?}");
    }
}
