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

/// Operators of `test` that compare two texts.
const OPERATORS: [&str; 5] = ["=", "==", "!=", "<", ">"];

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
        "read" | "unset" | "getopts" | "wait" => {
            rest.iter().any(|word| !word.literal || word.text.contains('[') || heavy(&word.text))
        }
        "mapfile" | "readarray" => rest.iter().any(|word| {
            let option = word.text.starts_with('-') && word.text != "-t";
            option || !word.literal || word.text.contains('[') || heavy(&word.text)
        }),
        "printf" => match rest.first() {
            Some(first) if first.text.starts_with("-v") || !first.literal => {
                rest.get(1).and_then(known).is_none_or(|name| name.contains('[') || heavy(&name))
                    || first.text != "-v"
            }
            _ => false,
        },
        "test" => tests(rest),
        "[" => match rest.split_last() {
            Some((last, rest)) if last.known() == Some("]") => tests(rest),
            _ => true,
        },
        "export" | "declare" | "typeset" | "local" | "readonly" => {
            rest.iter().any(|word| declares(word, program == "export"))
        }
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

/// True if `test` may evaluate an operand. It does so with the index in a name that is asked for by `-v` or `-R`, and
/// an expansion may be that operator, or more words than one.
fn tests(rest: &[Word]) -> bool {
    let asks = |word: &Word| word.literal && matches!(word.text.as_str(), "-v" | "-R");
    if rest.iter().any(asks) {
        return true;
    }
    let open = |word: &Word| !word.literal && !word.is_number();
    if !rest.iter().any(open) {
        return false;
    }
    let operator =
        |word: &Word| word.known().is_some_and(|text| text.starts_with('-') || OPERATORS.contains(&text));
    let rest = match rest {
        [not, rest @ ..] if not.known() == Some("!") => rest,
        rest => rest,
    };
    let read = match rest {
        [_] => rest.iter().all(Word::is_one),
        [unary, operand] => operator(unary) && operand.is_one(),
        [left, binary, right] => operator(binary) && left.is_one() && right.is_one(),
        _ => false,
    };
    !read
}

/// True unless the argument declares a plain variable that changes no meaning.
fn declares(word: &Word, exports: bool) -> bool {
    if let Some(flags) = word.known().and_then(|text| text.strip_prefix('-')) {
        // Integers are expressions, references are other names, functions are exported; the value of an array is read
        // as words of the shell.
        return !flags.chars().all(|c| "xrgplut".contains(c));
    }
    let name: String = word.text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    let mut rest = word.text.chars().skip(name.chars().count());
    let plain = match rest.next() {
        None => true,
        // What is set to an array by its name is read as words as well.
        Some('=') => rest.next() != Some('(') && (exports || word.literal),
        Some(_) => false,
    };
    name.is_empty() || heavy(&name) || !plain
}
