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

/// Short ones, where a number or a value may follow.
const SHORT: [&str; 16] =
    ["-L", "-S", "-G", "-U", "-a", "-b", "-n", "-p", "-q", "-s", "-u", "-v", "-w", "-z", "-i", "-M"];

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
        asked if QUESTIONS.contains(&asked) => {
            // Of this one the option names a file.
            let file = asked == "blame" && rest.iter().any(|it| it.starts_with("-S"));
            (!file).then(|| questions(rest)).flatten()
        }
        _ => None,
    }
}

fn questions(rest: &[&str]) -> Option<Vec<String>> {
    let mut operands = Vec::new();
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        // Asks a program about signatures.
        if word.contains("%G") {
            return None;
        }
        if *word == "--" {
            operands.extend(words.by_ref().map(|it| (*it).to_owned()));
        } else if word.starts_with("--") {
            let name = word.split_once('=').map_or(*word, |(name, _)| name);
            SHAPE.contains(&name).then_some(())?;
        } else if let Some(letters) = word.strip_prefix('-') {
            let number = letters.chars().all(|c| c.is_ascii_digit());
            let short = SHORT.iter().any(|it| {
                word.strip_prefix(it).is_some_and(|value| !it.starts_with("-a") || value.is_empty())
            });
            (number || short).then_some(())?;
            if ["-G", "-L", "-S", "-n"].contains(word) {
                words.next()?;
            }
        } else {
            // `<commit>:<path>` names a path in a tree.
            operands.push(word.split_once(':').map_or(*word, |(_, path)| path).to_owned());
        }
    }
    Some(operands)
}
