//! Commands of the shell that change what later commands mean, or that evaluate their arguments.

use super::{
    super::parse::Word,
    reading,
    variables::{self, Weight},
    wrappers,
};

/// Commands whose effect on the shell no reading can foresee.
const OPAQUE: [&str; 15] = [
    ".", "alias", "bind", "complete", "compopt", "coproc", "enable", "eval", "fc", "hash", "let", "shopt",
    "source", "trap", "unalias",
];

const BUILTINS: [&str; 41] = [
    "[",
    "bg",
    "break",
    "builtin",
    "caller",
    "cd",
    "command",
    "compgen",
    "continue",
    "declare",
    "dirs",
    "disown",
    "echo",
    "exec",
    "exit",
    "export",
    "false",
    "fg",
    "getopts",
    "help",
    "jobs",
    "kill",
    "local",
    "mapfile",
    "popd",
    "printf",
    "pushd",
    "pwd",
    "read",
    "readarray",
    "readonly",
    "return",
    "set",
    "shift",
    "test",
    "times",
    "true",
    "type",
    "typeset",
    "unset",
    "wait",
];

/// True if a function of this name would take the place of a command that is judged by its name.
pub(super) fn is_known(name: &str) -> bool {
    let known = OPAQUE.contains(&name) || BUILTINS.contains(&name) || wrappers::is_one(name);
    known
        || reading::is_one(name)
        || super::BY_SUBCOMMAND.contains(&name)
        || name.starts_with("command_not_found")
}

/// True if `program` with these arguments may change what other commands mean, or run what they name.
pub(super) fn changes_meaning(program: &str, rest: &[Word]) -> bool {
    let known = |word: &Word| word.known().map(str::to_owned);
    match program {
        _ if OPAQUE.contains(&program) => true,
        // An index in the name of a variable is an expression, which may hold commands.
        "read" | "unset" | "getopts" | "wait" | "mapfile" | "readarray" => {
            let program = rest.iter().any(|word| word.text.starts_with("-C"));
            program || rest.iter().any(|word| !word.literal || word.text.contains('[') || heavy(&word.text))
        }
        "printf" => match rest.first() {
            Some(first) if first.text.starts_with("-v") || !first.literal => {
                rest.get(1).and_then(known).is_none_or(|name| name.contains('[') || heavy(&name))
                    || first.text != "-v"
            }
            _ => false,
        },
        "test" | "[" => rest.iter().any(|word| word.literal && matches!(word.text.as_str(), "-v" | "-R")),
        "export" | "declare" | "typeset" | "local" | "readonly" => rest.iter().any(declares),
        "set" => rest.iter().any(|word| {
            let option = ["pipefail", "errexit", "nounset", "xtrace", "noglob", "+e", "--"];
            let flags =
                |text: &str| text.strip_prefix('-').is_some_and(|it| it.chars().all(|c| "euxof".contains(c)));
            !word.known().is_some_and(|text| option.contains(&text) || flags(text))
        }),
        "jobs" => rest.iter().any(|word| word.text != "-l" && word.text != "-p"),
        "compgen" => rest.iter().any(|word| !word.literal || word.text.starts_with(['-', '$'])),
        _ => false,
    }
}

fn heavy(name: &str) -> bool {
    variables::weight(name) == Weight::Meaning
}

/// True unless the argument declares a plain variable that changes no meaning.
fn declares(word: &Word) -> bool {
    if let Some(flags) = word.known().and_then(|text| text.strip_prefix('-')) {
        // Integers are expressions, references are other names, functions are exported.
        return flags.chars().any(|c| "infI".contains(c));
    }
    let name: String = word.text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    let after = word.text.chars().nth(name.chars().count());
    name.is_empty() || heavy(&name) || !matches!(after, None | Some('='))
}
