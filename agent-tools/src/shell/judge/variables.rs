//! Variables: which of them change what commands mean.

/// The effect of a variable on commands that run with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weight {
    /// It changes what is shown, at most.
    None,
    /// It may change anything; a rule must be able to see it.
    Some,
    /// It names programs, code or the way that commands are found and read.
    Meaning,
}

const HARMLESS: [&str; 22] = [
    "CI",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLORTERM",
    "COLUMNS",
    "DEBIAN_FRONTEND",
    "FORCE_COLOR",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_MESSAGES",
    "LC_NUMERIC",
    "LC_TIME",
    "LINES",
    "NO_COLOR",
    "RUST_BACKTRACE",
    "RUST_LOG",
    "SOURCE_DATE_EPOCH",
    "TERM",
    "TZ",
];

const MEANING: [&str; 69] = [
    "AR",
    "BASHOPTS",
    "BASH_ENV",
    "BROWSER",
    "CC",
    "CDPATH",
    "CLASSPATH",
    "CXX",
    "EDITOR",
    "ENV",
    "FCEDIT",
    "FIGNORE",
    "FPATH",
    "GCONV_PATH",
    "GLOBIGNORE",
    "GOFLAGS",
    "GREP_OPTIONS",
    "HISTFILE",
    "HOME",
    "HOSTALIASES",
    "IFS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "LD",
    "LESS",
    "LESSCLOSE",
    "LESSOPEN",
    "LOCPATH",
    "MAKEFLAGS",
    "MANPATH",
    "NLSPATH",
    "OPENSSL_CONF",
    "PAGER",
    "PATH",
    "PROMPT_COMMAND",
    "PS0",
    "PS1",
    "PS2",
    "PS4",
    "RES_OPTIONS",
    "RIPGREP_CONFIG_PATH",
    "RUSTC",
    "RUSTC_WRAPPER",
    "RUSTFLAGS",
    "SHELL",
    "SHELLOPTS",
    "SSLKEYLOGFILE",
    "SSL_CERT_FILE",
    "TAR_OPTIONS",
    "TMPDIR",
    "VISUAL",
    "WGETRC",
    "XDG_CONFIG_HOME",
    "ZDOTDIR",
    "EXECIGNORE",
    "POSIXLY_CORRECT",
    // What is assigned to these is an expression.
    "COPROC",
    "DIRSTACK",
    "EPOCHREALTIME",
    "EPOCHSECONDS",
    "FUNCNEST",
    "HISTCMD",
    "HISTFILESIZE",
    "HISTSIZE",
    "LINENO",
    "OPTIND",
    "RANDOM",
    "SECONDS",
    "SRANDOM",
];

/// Beginnings and ends of such names.
const MEANING_PREFIXES: [&str; 15] = [
    "BASH",
    "CARGO_",
    "COMP_",
    "CURL_",
    "DYLD_",
    "GIT_",
    "GO",
    "LD_",
    "MALLOC_",
    "NODE_",
    "NPM_CONFIG_",
    "PERL",
    "PYTHON",
    "RUBY",
    "SSH_",
];
const MEANING_SUFFIXES: [&str; 8] =
    ["EDITOR", "PAGER", "_ASKPASS", "_COMMAND", "_OPTIONS", "_OPTS", "_PROXY", "_WRAPPER"];

/// Returns the effect of the variable `name`.
pub(super) fn weight(name: &str) -> Weight {
    let upper = name.to_ascii_uppercase();
    let meaning = MEANING.contains(&upper.as_str())
        || MEANING_PREFIXES.iter().any(|it| upper.starts_with(it))
        || MEANING_SUFFIXES.iter().any(|it| upper.ends_with(it));
    let own = name == name.to_ascii_lowercase();
    match name {
        // By convention these are the script's own; but proxies are written in both ways.
        _ if own && !(upper.ends_with("_PROXY") || upper.starts_with("NPM_CONFIG_")) => Weight::None,
        _ if HARMLESS.contains(&name) => Weight::None,
        _ if meaning => Weight::Meaning,
        _ => Weight::Some,
    }
}
