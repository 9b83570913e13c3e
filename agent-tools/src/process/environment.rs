//! The environment of commands: the program's own, without secrets and without what changes the meaning of commands.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
};

/// Parts of names of secrets.
const SECRET: [&str; 16] = [
    "AUTH",
    "CONNECTIONSTRING",
    "CONNECTION_STRING",
    "CONNSTR",
    "COOKIE",
    "CREDENTIAL",
    "DSN",
    "KEY",
    "PASS",
    "PRIVATE",
    "PWD",
    "SECRET",
    "SESSION",
    "SIGNATURE",
    "TOKEN",
    "WEBHOOK",
];

/// Beginnings of words that are secrets in any value.
const SECRET_WORDS: [&str; 35] = [
    "AKIA",
    "ASIA",
    "AIza",
    "AGE-SECRET-KEY",
    "SG.",
    "dop_v1_",
    "eyJ",
    "gho_",
    "ghp_",
    "ghr_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "gsk_",
    "hf_",
    "hvs.",
    "key-",
    "lin_api_",
    "npm_",
    "nvapi-",
    "pplx-",
    "pypi-",
    "r8_",
    "rk_live_",
    "shpat_",
    "sk-",
    "sk_live_",
    "sk_test_",
    "sqlserver_",
    "tvly-",
    "whsec_",
    "xai-",
    "xox",
    "ya29.",
];

/// Parts of values that are secrets, in small letters: a password or a key in an address or a connection string, and
/// addresses that are secrets themselves.
const SECRET_PARTS: [&str; 9] = [
    "-----begin",
    "discord.com/api/webhooks/",
    "hooks.slack.com/",
    "key=",
    "password=",
    "pwd=",
    "secret=",
    "sig=",
    "token=",
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

/// Variables that commands need which only read.
const PLAIN: [&str; 14] = [
    "HOME",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_MESSAGES",
    "LC_NUMERIC",
    "LC_TIME",
    "LOGNAME",
    "PATH",
    "TZ",
    "USER",
    "XDG_CONFIG_HOME",
];

/// The search path where nothing is left of the program's own.
const SYSTEM_PATH: &str = "/usr/bin:/bin";

/// Settings of git for commands that only read: a repository's configuration may name programs to run, and a comparison
/// would write the index anew.
const GIT: [(&str, &str); 9] = [
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.pager", "cat"),
    ("core.attributesFile", "/dev/null"),
    ("diff.autoRefreshIndex", "false"),
    ("format.pretty", "medium"),
    ("log.showSignature", "false"),
    ("safe.bareRepository", "explicit"),
    ("submodule.recurse", "false"),
];

/// Returns `own` without secrets, and with what is fixed. `added` is taken as it is. A command that only reads below
/// the root `only_reads` has no more than it needs, and runs no program of that root.
pub(crate) fn scrubbed(
    own: impl IntoIterator<Item = (OsString, OsString)>,
    added: &[(OsString, OsString)],
    only_reads: Option<&Path>,
) -> Vec<(OsString, OsString)> {
    let mut all: Vec<_> = own.into_iter().filter(|(name, value)| stays(name, value)).collect();
    if only_reads.is_some() {
        all.retain(|(name, _)| PLAIN.iter().any(|plain| name == plain));
    }
    for (name, value) in &mut all {
        if name == "PATH" {
            *value = search_path(value, only_reads);
        }
    }
    let mut set = |name: &OsStr, value: &OsStr| {
        all.retain(|(other, _)| other != name);
        all.push((name.to_owned(), value.to_owned()));
    };
    for (name, value) in FIXED {
        set(name.as_ref(), value.as_ref());
    }
    if only_reads.is_some() {
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

/// `PATH` without relative entries, by which a program of the project could be taken for another, and without those
/// below `root`.
pub(crate) fn search_path(path: &OsStr, root: Option<&Path>) -> OsString {
    let below = |entry: &Path| {
        let real = std::fs::canonicalize(entry);
        root.is_some_and(|root| entry.starts_with(root) || real.is_ok_and(|real| real.starts_with(root)))
    };
    let entries = std::env::split_paths(path).filter(|entry| entry.is_absolute() && !below(entry));
    let path = std::env::join_paths(entries).unwrap_or_default();
    // An empty one has programs looked up in the working directory.
    if path.is_empty() { SYSTEM_PATH.into() } else { path }
}

fn stays(name: &OsStr, value: &OsStr) -> bool {
    let name = name.to_string_lossy().to_ascii_uppercase();
    let value = value.to_string_lossy();
    let author = ["GIT_AUTHOR_", "GIT_COMMITTER_"].iter().any(|it| name.starts_with(it));
    // The directories in which a shell works.
    let place = ["PWD", "OLDPWD"].contains(&name.as_str());
    let secret = !author && !place && SECRET.iter().any(|part| name.contains(part));
    let meaning = MEANING.contains(&name.as_str())
        || !author && MEANING_PREFIXES.iter().any(|it| name.starts_with(it))
        || MEANING_SUFFIXES.iter().any(|it| name.ends_with(it));
    let function = value.starts_with("() {");
    !secret && !meaning && !function && !is_secret(&value)
}

/// True if a value holds a key, or an address with a password.
fn is_secret(value: &str) -> bool {
    let low = value.to_ascii_lowercase();
    let with_user = low.split_once("://").is_some_and(|(scheme, rest)| {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        // The name of a user alone is a token, where pages are.
        let user = authority.rsplit_once('@').map(|(user, _)| user);
        user.is_some_and(|user| user.contains(':') || scheme.ends_with("http") || scheme.ends_with("https"))
    });
    let mut words = value.split(|c: char| c.is_whitespace() || "\"'=:,;/@?&|()[]{}<>".contains(c));
    let is_key = |word: &str| SECRET_WORDS.iter().any(|it| word.len() > it.len() && word.starts_with(it));
    with_user || SECRET_PARTS.iter().any(|part| low.contains(part)) || words.any(is_key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(own: &[(&str, &str)], added: &[(OsString, OsString)]) -> Vec<(String, String)> {
        let own = own.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let text = |it: OsString| it.into_string().unwrap();
        scrubbed(own, added, None).into_iter().map(|(name, value)| (text(name), text(value))).collect()
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
            ("DB_PASS", "x"),
            ("SMTP_PASS", "x"),
            ("SSHPASS", "x"),
            ("MYSQL_PWD", "x"),
            ("ConnectionStrings__Default", "x"),
            ("PLAIN", "Server=db;User Id=me;Password=x;"),
            ("PLAIN", "jdbc:postgresql://db/x?user=me&password=x"),
            ("PLAIN", "https://db.example/?token=x"),
            ("PLAIN", "https://ghp_abc@github.example/x"),
            ("PLAIN", "https://x@github.example/x"),
            ("PLAIN", "ghu_abc"),
            ("PLAIN", "rk_live_abc"),
            ("PLAIN", "a b sk_live_abc"),
            ("PLAIN", "https://hooks.slack.com/services/T/B/x"),
            ("PLAIN", "DefaultEndpointsProtocol=https;AccountKey=x"),
            ("PLAIN", "sk-abc"),
            ("PLAIN", "ghp_abc"),
            ("PLAIN", "AKIAABC"),
            ("PLAIN", "x\n-----BEGIN PRIVATE KEY-----"),
        ] {
            let left = names(&[(name, value), ("HOME", "/home/me")], &[]);
            assert!(left.iter().all(|(_, left)| left != value), "{name}: {left:?}");
            assert!(left.contains(&("HOME".to_owned(), "/home/me".to_owned())));
        }
        let kept = [
            ("DATABASE_URL", "postgres://db.example/x"),
            ("GIT_AUTHOR_NAME", "me"),
            ("LANG", "C"),
            ("PWD", "/w"),
            ("REMOTE", "ssh://git@host.example/x"),
            ("GREETING", "monkey business, sk8, task-list, SGML"),
        ];
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
        let own =
            [("PATH", "/usr/bin:/w/root/bin"), ("MAKEFLAGS", "x"), ("PYTHONPATH", "x"), ("HOME", "/home/me")];
        let own = own.map(|(name, value)| (name.into(), value.into()));
        let left = scrubbed(own, &[], Some(Path::new("/w/root")));
        let value = |name: &str| left.iter().find(|(it, _)| it == name).and_then(|(_, value)| value.to_str());
        assert_eq!((value("PATH"), value("HOME")), (Some("/usr/bin"), Some("/home/me")));
        assert_eq!((value("MAKEFLAGS"), value("PYTHONPATH")), (None, None));
        let left = names(&[("f", "() { rm x; }"), ("PATH", "/bin:.::bin:/usr/bin")], &[]);
        assert!(left.contains(&("PATH".to_owned(), "/bin:/usr/bin".to_owned())), "{left:?}");
        for path in ["", ".", ".:bin:", ":"] {
            assert!(
                names(&[("PATH", path)], &[]).contains(&("PATH".to_owned(), SYSTEM_PATH.to_owned())),
                "{path}"
            );
        }
        assert!(left.contains(&("PAGER".to_owned(), "cat".to_owned())), "{left:?}");
        assert!(left.iter().all(|(name, _)| name != "f"), "{left:?}");
    }
}
