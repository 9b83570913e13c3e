//! The commands that only read, with the options that do not change that.
//!
//! Each option is listed: one that is not known may write a file, run a program, or follow links out of the root.

use super::{
    super::parse::{Simple, Word},
    find::find,
    git,
};

/// The kind of a program's operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operands {
    /// None are taken.
    None,
    Text,
    Paths,
    /// One file; a second one would be written.
    OnePath,
    /// A text, then files.
    PatternPaths,
    /// Formats of a date.
    Format,
}

/// A program that only reads: its name, short options without and with a value, and long options. `#` among the short
/// ones stands for numbers.
struct Reader(&'static str, Operands, &'static str, &'static str, &'static [&'static str]);

const READERS: [Reader; 31] = [
    Reader("basename", Operands::Text, "az", "s", &[]),
    Reader("cat", Operands::Paths, "AbeEnstTv", "", &["number", "show-all", "show-ends", "show-tabs"]),
    Reader("cmp", Operands::Paths, "bls", "n", &[]),
    Reader("comm", Operands::Paths, "123", "", &[]),
    Reader(
        "cut",
        Operands::Paths,
        "szn",
        "bcdf",
        &["bytes", "characters", "delimiter", "fields", "complement"],
    ),
    Reader("date", Operands::Format, "uIR", "", &["utc", "iso-8601", "rfc-3339"]),
    Reader("df", Operands::Paths, "ahHikPT", "", &["human-readable"]),
    Reader("dirname", Operands::Text, "z", "", &[]),
    Reader(
        "du",
        Operands::Paths,
        "abchkmsSx",
        "d",
        &["all", "human-readable", "max-depth", "summarize", "total"],
    ),
    Reader("echo", Operands::Text, "neE", "", &[]),
    Reader("false", Operands::None, "", "", &[]),
    Reader("file", Operands::Paths, "bhiN", "", &["brief", "mime", "mime-type"]),
    Reader("grep", Operands::PatternPaths, "EFGPivwxcLloqshHnrabzTVU", "ABCme", &GREP),
    Reader("head", Operands::Paths, "qvz#", "cn", &["bytes", "lines", "quiet", "verbose"]),
    Reader("hostname", Operands::None, "", "", &[]),
    Reader("id", Operands::None, "gGnruz", "", &[]),
    Reader(
        "ls",
        Operands::Paths,
        "1aAbBcCdfFgGhiklmnNopqQrRsStuUvxXZ",
        "I",
        &[
            "all",
            "almost-all",
            "classify",
            "color",
            "directory",
            "group-directories-first",
            "human-readable",
            "inode",
            "reverse",
            "recursive",
            "size",
            "sort",
            "time",
            "time-style",
        ],
    ),
    Reader("nl", Operands::Paths, "p", "bfhivlnsw", &[]),
    Reader("pwd", Operands::None, "LP", "", &[]),
    Reader("readlink", Operands::Paths, "efmnz", "", &["canonicalize"]),
    Reader("realpath", Operands::Paths, "emsz", "", &["relative-to", "relative-base"]),
    Reader("rg", Operands::PatternPaths, "acFHhIilnNopqsSUuvwxP0", "ABCMdegmtTjr", &RG),
    Reader(
        "sort",
        Operands::Paths,
        "bcCdfghiMnrRsuVz",
        "kt",
        &["key", "numeric-sort", "reverse", "unique", "version-sort"],
    ),
    Reader("stat", Operands::Paths, "fLt", "c", &["dereference", "format", "printf", "terse"]),
    Reader("tail", Operands::Paths, "qvz#", "cn", &["bytes", "lines", "quiet", "verbose"]),
    Reader("tr", Operands::Text, "cCdst", "", &["complement", "delete", "squeeze-repeats"]),
    Reader(
        "tree",
        Operands::Paths,
        "aCdDfFghinpQrsStuvx",
        "LIP",
        &["dirsfirst", "noreport", "prune", "gitignore"],
    ),
    Reader("true", Operands::None, "", "", &[]),
    Reader("uname", Operands::None, "aimnoprsv", "", &["all"]),
    Reader("uniq", Operands::OnePath, "cdDiuz", "fsw", &["count", "ignore-case", "repeated", "unique"]),
    Reader("wc", Operands::Paths, "clLmw", "", &["bytes", "chars", "lines", "words", "max-line-length"]),
];

const GREP: [&str; 24] = [
    "after-context",
    "basic-regexp",
    "before-context",
    "color",
    "context",
    "count",
    "exclude",
    "exclude-dir",
    "extended-regexp",
    "files-with-matches",
    "files-without-match",
    "fixed-strings",
    "ignore-case",
    "include",
    "invert-match",
    "line-number",
    "max-count",
    "no-filename",
    "only-matching",
    "perl-regexp",
    "quiet",
    "recursive",
    "with-filename",
    "word-regexp",
];

const RG: [&str; 25] = [
    "after-context",
    "before-context",
    "case-sensitive",
    "color",
    "context",
    "count",
    "files",
    "files-with-matches",
    "files-without-match",
    "fixed-strings",
    "glob",
    "hidden",
    "ignore-case",
    "invert-match",
    "json",
    "line-number",
    "max-count",
    "max-depth",
    "multiline",
    "no-heading",
    "no-ignore",
    "only-matching",
    "smart-case",
    "type",
    "word-regexp",
];

/// Programs that are asked for their version alone. Where a language has versions, its programs may be stand-ins that
/// look into the project for the one to run.
const VERSIONS: [&str; 6] = ["bash", "clang", "cmake", "gcc", "git", "make"];

/// True for a program that only reads the files in its arguments.
pub(super) fn is_reader(name: &str) -> bool {
    READERS.iter().any(|reader| reader.0 == name)
}

pub(super) fn is_one(name: &str) -> bool {
    is_reader(name) || ["find", "which"].contains(&name) || VERSIONS.contains(&name)
}

/// Returns the files that the commands read, as written; `None` unless each of them only reads.
pub(super) fn files_read(commands: &[Simple]) -> Option<Vec<String>> {
    let each = commands.iter().map(|it| if it.assignments.is_empty() { read_by(&it.words) } else { None });
    each.collect::<Option<Vec<_>>>().map(|all| all.concat())
}

fn read_by(words: &[Word]) -> Option<Vec<String>> {
    let (program, rest) = words.split_first()?;
    // A name that a pattern finds may begin with a dash, which makes it an option, or be a link that leads out of the
    // root.
    if !rest.iter().all(|word| word.literal) {
        return None;
    }
    let program = program.known()?;
    if program == "find" {
        let found = find(rest).filter(|found| found.only_reads)?;
        return Some(found.reads.iter().map(|word| word.text.clone()).collect());
    }
    let rest: Vec<&str> = rest.iter().map(|word| word.text.as_str()).collect();
    if let [only] = rest[..]
        && VERSIONS.contains(&program)
        && only == "--version"
    {
        return Some(Vec::new());
    }
    match program {
        "git" => git::read_by(&rest),
        "which" => rest.iter().all(|it| !it.starts_with('-')).then(Vec::new),
        _ => READERS.iter().find(|reader| reader.0 == program)?.read(&rest),
    }
}

impl Reader {
    fn read(&self, rest: &[&str]) -> Option<Vec<String>> {
        let Self(program, kind, flags, valued, long) = self;
        let mut operands = Vec::new();
        let mut pattern_given = *program == "rg" && rest.contains(&"--files");
        let mut words = rest.iter();
        while let Some(word) = words.next() {
            if *word == "--" {
                operands.extend(words.by_ref());
            } else if let Some(option) = word.strip_prefix("--") {
                let name = option.split_once('=').map_or(option, |(name, _)| name);
                long.contains(&name).then_some(())?;
            } else if let Some(cluster) =
                word.strip_prefix('-').filter(|it| !it.is_empty() && *program != "echo")
            {
                let value = short(cluster, flags, valued)?;
                pattern_given |= value.is_some_and(|(letter, _)| letter == 'e');
                if value.is_some_and(|(_, rest)| rest.is_empty()) {
                    words.next()?;
                }
            } else {
                operands.push(word);
            }
        }
        let named = |from: usize| {
            let paths = operands.iter().skip(from).filter(|it| **it != &"-");
            Some(paths.map(|it| (**it).to_owned()).collect())
        };
        match kind {
            Operands::Text => Some(Vec::new()),
            Operands::None => operands.is_empty().then(Vec::new),
            Operands::Format => operands.iter().all(|it| it.starts_with('+')).then(Vec::new),
            Operands::OnePath if operands.len() > 1 => None,
            Operands::OnePath | Operands::Paths => named(0),
            Operands::PatternPaths => named(usize::from(!pattern_given)),
        }
    }
}

/// The option with a value in a cluster such as `-rne`, and the value that is joined to it; `None` if a letter of the
/// cluster is not known.
fn short<'a>(cluster: &'a str, flags: &str, valued: &str) -> Option<Option<(char, &'a str)>> {
    if flags.contains('#') && cluster.chars().all(|c| c.is_ascii_digit()) {
        return Some(None);
    }
    let mut letters = cluster.chars();
    while let Some(letter) = letters.next() {
        if valued.contains(letter) {
            return Some(Some((letter, letters.as_str())));
        }
        if !flags.contains(letter) || letter == '#' {
            return None;
        }
    }
    Some(None)
}
