//! `find`: the places where it looks, the programs that it runs, and if it only reads.
//!
//! Its expression is read with the number of arguments that each test and action takes: the name of one may be the
//! argument of another.

use super::super::parse::Word;

/// Tests and actions that take nothing.
const BARE: [&str; 37] = [
    "!",
    "(",
    ")",
    ",",
    "-P",
    "-H",
    "-L",
    "-a",
    "-and",
    "-d",
    "-daystart",
    "-delete",
    "-depth",
    "-empty",
    "-executable",
    "-false",
    "-follow",
    "-ignore_readdir_race",
    "-ls",
    "-mount",
    "-nogroup",
    "-noignore_readdir_race",
    "-noleaf",
    "-not",
    "-nouser",
    "-nowarn",
    "-o",
    "-or",
    "-print",
    "-print0",
    "-prune",
    "-quit",
    "-readable",
    "-true",
    "-warn",
    "-writable",
    "-xdev",
];

/// Those that take a text.
const VALUED: [&str; 32] = [
    "-amin",
    "-atime",
    "-cmin",
    "-context",
    "-ctime",
    "-fls",
    "-fprint",
    "-fprint0",
    "-fstype",
    "-gid",
    "-group",
    "-iname",
    "-inum",
    "-ipath",
    "-iregex",
    "-iwholename",
    "-links",
    "-maxdepth",
    "-mindepth",
    "-mmin",
    "-mtime",
    "-name",
    "-path",
    "-perm",
    "-printf",
    "-regex",
    "-regextype",
    "-size",
    "-type",
    "-uid",
    "-used",
    "-user",
];

/// Those that take a file.
const FILES: [&str; 6] = ["-anewer", "-cnewer", "-files0-from", "-ilname", "-lname", "-samefile"];

/// Those that do more than read, or follow links.
const MORE: [&str; 7] = ["-L", "-delete", "-files0-from", "-fls", "-follow", "-fprint", "-fprint0"];

/// The meaning of the arguments of `find`.
#[derive(Debug, Default)]
pub(super) struct Find<'w> {
    /// The places where it begins and the files that it compares with.
    pub(super) reads: Vec<&'w Word>,
    /// The commands that it runs.
    pub(super) runs: Vec<Vec<Word>>,
    /// True if it only reads.
    pub(super) only_reads: bool,
}

/// Reads the arguments of `find`; `None` where they could mean more than they say.
pub(super) fn find(rest: &[Word]) -> Option<Find<'_>> {
    let mut found = Find { only_reads: true, ..Find::default() };
    let mut words = rest.iter().peekable();
    while let Some(word) = words.next_if(|word| ["-H", "-L", "-P"].contains(&word.text.as_str())) {
        found.only_reads &= word.text != "-L";
    }
    let expression = |text: &str| text.starts_with('-') || ["!", "(", ")", ","].contains(&text);
    while let Some(word) = words.next_if(|word| !expression(&word.text)) {
        // What it expands to may be a part of the expression.
        word.known()?;
        found.reads.push(word);
    }
    while let Some(word) = words.next() {
        match word.known()? {
            "-exec" | "-execdir" | "-ok" | "-okdir" => {
                found.only_reads = false;
                found.runs.push(command(&mut words)?);
            }
            "-fprintf" => {
                found.only_reads = false;
                words.next()?;
                words.next()?;
            }
            text if BARE.contains(&text) => found.only_reads &= !MORE.contains(&text),
            text if FILES.contains(&text) || text.starts_with("-newer") => {
                found.only_reads &= !MORE.contains(&text);
                let value = words.next()?;
                value.is_one().then(|| found.reads.push(value))?;
            }
            text if VALUED.contains(&text) => {
                found.only_reads &= !MORE.contains(&text);
                let value = words.next()?;
                // A pattern may match more names than one, or names that begin with a dash.
                let few =
                    value.glob && value.text.chars().next().is_some_and(|c| c == '*' || c.is_alphanumeric());
                (value.is_one() || few).then_some(())?;
                found.only_reads &= value.literal;
            }
            _ => return None,
        }
    }
    Some(found)
}

/// Reads a command to its end: `;`, or `+` behind the place of the names.
fn command<'w>(words: &mut impl Iterator<Item = &'w Word>) -> Option<Vec<Word>> {
    let mut command: Vec<Word> = Vec::new();
    loop {
        let word = words.next()?;
        match word.known() {
            Some(";") => break,
            Some("+") if command.last().is_some_and(|last| last.text == "{}") => break,
            // It may be the end.
            None if !word.is_one() && !word.glob => return None,
            None if word.glob && command.is_empty() => return None,
            _ => command.push(word.clone()),
        }
    }
    (!command.is_empty()).then_some(command)
}
