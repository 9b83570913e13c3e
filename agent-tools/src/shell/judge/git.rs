//! The questions to git that only read.

/// Options that only shape what is shown.
const SHAPE: [&str; 58] = [
    "--abbrev-commit",
    "--abbrev-ref",
    "--all",
    "--author",
    "--before",
    "--after",
    "--branch",
    "--branches",
    "--cached",
    "--color",
    "--date",
    "--decorate",
    "--diff-filter",
    "--dirstat",
    "--exit-code",
    "--find-renames",
    "--first-parent",
    "--follow",
    "--format",
    "--full-index",
    "--graph",
    "--grep",
    "--ignore-all-space",
    "--ignored",
    "--is-inside-work-tree",
    "--max-count",
    "--merges",
    "--name-only",
    "--name-status",
    "--no-color",
    "--no-ext-diff",
    "--no-merges",
    "--no-patch",
    "--no-renames",
    "--no-textconv",
    "--numstat",
    "--oneline",
    "--patch",
    "--porcelain",
    "--pretty",
    "--quiet",
    "--raw",
    "--reverse",
    "--short",
    "--shortstat",
    "--show-toplevel",
    "--since",
    "--skip",
    "--staged",
    "--stat",
    "--summary",
    "--tags",
    "--unified",
    "--until",
    "--untracked-files",
    "--verify",
    "--word-diff",
    "--others",
];

/// Short ones. No other ones may be joined to them.
const SHORT: [&str; 17] =
    ["-a", "-b", "-i", "-M", "-p", "-q", "-r", "-s", "-sb", "-t", "-u", "-v", "-vv", "-w", "-z", "-C", "-c"];

/// Short ones with a number.
const NUMBERED: [&str; 3] = ["-n", "-U", "-M"];

const QUESTIONS: [&str; 13] = [
    "blame",
    "describe",
    "diff",
    "log",
    "ls-files",
    "ls-tree",
    "merge-base",
    "name-rev",
    "rev-list",
    "rev-parse",
    "shortlog",
    "show",
    "status",
];

/// Returns the operands of a question that only reads, as they may be paths.
pub(super) fn read_by(rest: &[&str]) -> Option<Vec<String>> {
    let rest = rest.strip_prefix(&["--no-pager"]).unwrap_or(rest);
    let (asked, rest) = rest.split_first()?;
    let only = |allowed: &[&str]| rest.iter().all(|it| allowed.contains(it)).then(Vec::new);
    match *asked {
        "branch" => only(&[
            "-a",
            "-r",
            "-v",
            "-vv",
            "-av",
            "-avv",
            "--all",
            "--list",
            "--remotes",
            "--show-current",
            "--verbose",
        ]),
        "remote" => only(&["-v", "--verbose"]),
        "tag" => only(&["-l", "--list", "-n"]),
        "stash" => (rest == ["list"]).then(Vec::new),
        asked if QUESTIONS.contains(&asked) => questions(asked, rest),
        _ => None,
    }
}

fn questions(asked: &str, rest: &[&str]) -> Option<Vec<String>> {
    let digits = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    let mut operands = Vec::new();
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        // Asks a program about signatures.
        if word.contains('%') && word.contains('G') {
            return None;
        }
        if *word == "--" {
            for path in words.by_ref() {
                operands.push(plain(path)?.to_owned());
            }
        } else if word.starts_with("--") {
            let name = word.split_once('=').map_or(*word, |(name, _)| name);
            SHAPE.contains(&name).then_some(())?;
        } else if SHORT.contains(word) || word.strip_prefix('-').is_some_and(digits) {
            // Of these some mean other things to other questions: they read as well.
        } else if NUMBERED.iter().any(|it| word.strip_prefix(it).is_some_and(digits)) {
        } else if *word == "-n" {
            words.next().filter(|it| digits(it))?;
        } else if let Some(value) = word.strip_prefix("-L") {
            let value = if value.is_empty() { words.next()? } else { value };
            // It ends with a file, but for `blame`.
            operands.push(plain(value.rsplit_once(':').map_or("", |(_, path)| path))?.to_owned());
        } else if let Some(value) = word.strip_prefix("-S").or_else(|| word.strip_prefix("-G")) {
            // Of `blame` it names a file.
            (asked != "blame").then_some(())?;
            if value.is_empty() {
                words.next()?;
            }
        } else if word.starts_with('-') {
            return None;
        } else {
            // `<commit>:<path>` names a path in a tree.
            operands.push(plain(word)?.split_once(':').map_or(*word, |(_, path)| path).to_owned());
        }
    }
    Some(operands)
}

/// The operand, unless git reads more in it than a name: a pattern, or words of its own.
fn plain(operand: &str) -> Option<&str> {
    (!operand.starts_with(':') && !operand.contains(['*', '?', '[', '(', '\\'])).then_some(operand)
}
