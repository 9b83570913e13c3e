//! The extent of a command line: its commands in one spelling, the files that it opens, and if it only reads. Pure.

mod builtins;
mod find;
mod git;
mod reading;
mod variables;
mod wrappers;

use std::path::{Component, Path};

use entourage_core::tool::{Access, Footprint, normal_path};

use super::parse::{Direction, Redirect, Script, Simple, Word, parse, spelled};
use variables::Weight;

/// Access of a command that may do more than read.
pub(super) const FULL: Access = Access::WRITE.union(Access::EXECUTE).union(Access::NETWORK);

/// Most bytes of the commands of one line, together.
const NAMED: usize = 128 * 1024;

/// Programs whose first word says what they do, so that a rule must be able to see it.
const BY_SUBCOMMAND: [&str; 24] = [
    "apt",
    "apt-get",
    "aws",
    "az",
    "brew",
    "cargo",
    "docker",
    "dnf",
    "gcloud",
    "gh",
    "git",
    "go",
    "helm",
    "kubectl",
    "npm",
    "npx",
    "pip",
    "pip3",
    "pnpm",
    "podman",
    "systemctl",
    "terraform",
    "uv",
    "yarn",
];

/// Programs that run what they read, if a file `-` is named.
const READ_INPUT: [&str; 10] = ["awk", "ed", "gawk", "gdb", "gmake", "gsed", "make", "mawk", "nawk", "sed"];

/// The extent of a command line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Judged {
    /// Each simple command, in one spelling. One that is run under another name is there under both.
    pub(super) commands: Vec<String>,
    /// Files that redirections name, as written.
    files: Vec<(Direction, String)>,
    /// True if it may do more than is named.
    pub(super) unclear: bool,
    /// True if it only reads.
    pub(super) only_reads: bool,
    /// True if it asks git about a repository, whose configuration may name programs.
    pub(super) asks_git: bool,
    /// True if it may change its directory.
    moves: bool,
}

/// Judges `command` for a shell that is bash, or one that knows less.
pub(super) fn judge(command: &str, is_bash: bool) -> Judged {
    let script = parse(command);
    let mut judged = Judged { unclear: script.unclear || script.bash_only && !is_bash, ..Judged::default() };
    judged.add(&script);
    let read = (script.plain && !judged.unclear && judged.files.is_empty())
        .then(|| reading::files_read(&script.commands))
        .flatten();
    if let Some(read) = read {
        judged.only_reads = true;
        judged.asks_git = judged.commands.iter().any(|command| command.starts_with("git "));
        judged.files = read.into_iter().map(|path| (Direction::In, path)).collect();
    }
    judged
}

impl Judged {
    /// The footprint of the command in the directory `inside` the root at `root`.
    ///
    /// A line that reads beyond the root does more than the file tools may, so it is no mere reading.
    pub(super) fn footprint(&self, root: &Path, inside: &Path) -> Footprint {
        let place = |path: &str| normal_path(&root.join(inside).join(path));
        let below = |path: &str| !climbs(path) && place(path).starts_with(root);
        let only_reads = self.only_reads && self.files.iter().all(|(_, path)| below(path));
        let mut footprint = Footprint::new(if only_reads { Access::READ } else { FULL });
        for command in &self.commands {
            footprint = footprint.running(command);
        }
        let named = self.files.iter().filter(|_| only_reads || !self.only_reads);
        for (direction, path) in named {
            let path = if Path::new(path).is_absolute() { path.into() } else { inside.join(path) };
            if *direction != Direction::Out {
                footprint = footprint.naming_path(Footprint::reading, &path, Some(root));
            }
            if *direction != Direction::In {
                footprint = footprint.naming_path(Footprint::writing, &path, Some(root));
            }
        }
        footprint.unclear |=
            self.unclear || !self.only_reads && self.files.iter().any(|(_, path)| climbs(path));
        footprint
    }

    fn add(&mut self, script: &Script) {
        self.unclear |= script.unclear;
        self.moves |= moves(&script.commands);
        self.unclear |= script.functions.iter().any(|name| builtins::is_known(name));
        for name in &script.sets {
            match variables::weight(name) {
                Weight::None => {}
                Weight::Some => self.name(format!("{name}=")),
                Weight::Meaning => self.unclear = true,
            }
        }
        for command in &script.commands {
            self.simple(command, 0);
        }
        for redirect in &script.redirects {
            self.redirect(redirect);
        }
    }

    fn redirect(&mut self, redirect: &Redirect) {
        let Some(path) = redirect.target.known() else {
            self.unclear = true;
            return;
        };
        match path {
            "/dev/null" | "/dev/stdout" | "/dev/stderr" | "/dev/stdin" => {}
            // Bash talks to hosts by such names.
            _ if path.starts_with("/dev/tcp") || path.starts_with("/dev/udp") => self.unclear = true,
            _ => {
                self.unclear |= path.is_empty() || self.moves && !Path::new(path).is_absolute();
                self.files.push((redirect.direction, path.to_owned()));
            }
        }
    }

    fn name(&mut self, command: String) {
        if self.commands.contains(&command) {
            return;
        }
        // Nested substitutions repeat their text.
        if self.commands.iter().map(String::len).sum::<usize>() + command.len() > NAMED {
            self.unclear = true;
            return;
        }
        self.commands.push(command);
    }

    /// Adds a command, and those that it runs.
    fn simple(&mut self, simple: &Simple, depth: usize) {
        let mut with = Vec::new();
        for assignment in &simple.assignments {
            match variables::weight(&assignment.name) {
                Weight::None => {}
                Weight::Some => with.push(assignment.word.clone()),
                Weight::Meaning => self.unclear = true,
            }
        }
        if !with.is_empty() {
            with.extend(simple.words.iter().cloned());
            self.name(spelled(&with));
        }
        self.words(&simple.words, simple.fed, depth);
    }

    fn words(&mut self, words: &[Word], fed: bool, depth: usize) {
        let Some((first, rest)) = words.split_first() else { return };
        self.name(spelled(words));
        let Some(program) = first.known() else {
            self.unclear = true;
            return;
        };
        // The same program by its place.
        let path = Path::new(program);
        let file = path.file_name().and_then(|name| name.to_str()).unwrap_or(program);
        if path.is_absolute() || program.contains("../") || program.contains('/') && self.moves {
            let mut short = words.to_vec();
            if let Some(first) = short.first_mut() {
                file.clone_into(&mut first.text);
            }
            self.name(spelled(&short));
        }
        if depth >= wrappers::DEEPEST {
            self.unclear = true;
            return;
        }
        let hidden = rest.iter().find(|word| !word.literal || !word.text.starts_with('-'));
        let hidden = hidden.is_some_and(|word| !word.literal || word.text.contains("{}"));
        // Braces stand for what `find` or `xargs` puts there.
        self.unclear |= program.contains("{}") || BY_SUBCOMMAND.contains(&file) && hidden;
        self.unclear |= builtins::changes_meaning(file, rest);
        self.unclear |= is_of_a_process(program) || !reading::is_reader(file) && rest.iter().any(is_handed);
        self.unclear |= fed && READ_INPUT.contains(&file) && rest.iter().any(|word| word.text == "-");
        if BY_SUBCOMMAND.contains(&file) {
            self.behind_options(first, file, rest);
        }
        let run = wrappers::run_by(file, rest, fed);
        self.unclear |= run.unclear;
        if let Some((text, is_bash)) = run.script {
            self.add_inner(&text, is_bash, depth);
        }
        for command in run.commands {
            self.simple(&command, depth + 1);
        }
    }

    /// Names a command without the options before its subcommand, which may have values: so a rule for that holds.
    fn behind_options(&mut self, first: &Word, file: &str, rest: &[Word]) {
        let is_option = |word: &Word| word.text.starts_with(['-', '+']);
        let options = rest.iter().take_while(|word| is_option(word)).count();
        if options == 0 {
            return;
        }
        // Settings may name programs.
        let sets = |word: &Word| {
            ["-c", "--config-env", "--exec-path", "--git-dir"].iter().any(|it| word.text.starts_with(it))
        };
        self.unclear |= file == "git" && rest.iter().take_while(|word| !is_subcommand(word)).any(sets);
        let places = rest.iter().enumerate().filter(|(_, word)| !is_option(word)).map(|(place, _)| place);
        for place in places.take(4) {
            let words: Vec<_> = [first].into_iter().chain(rest.iter().skip(place)).cloned().collect();
            self.name(spelled(&words));
        }
    }

    /// Adds the text that another shell is given.
    fn add_inner(&mut self, text: &str, is_bash: bool, depth: usize) {
        let script = super::parse::parse_at(text, 8 + depth);
        self.unclear |= script.unclear || script.commands.is_empty() || script.bash_only && !is_bash;
        if depth + 1 >= wrappers::DEEPEST {
            self.unclear = true;
            return;
        }
        self.moves |= moves(&script.commands);
        let inner = Script { commands: Vec::new(), ..script.clone() };
        self.add(&inner);
        // Where the other shell works is not followed.
        self.unclear |=
            script.redirects.iter().any(|it| it.target.known().is_none_or(|at| !at.starts_with('/')));
        for command in &script.commands {
            self.simple(command, depth + 1);
        }
    }
}

/// True for a word of a known git question or command, behind which options are its own.
fn is_subcommand(word: &Word) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c == '-';
    !word.text.starts_with('-') && word.text.chars().all(plain) && word.text.len() > 1
}

/// True for a program that is what a process has open.
fn is_of_a_process(program: &str) -> bool {
    normal_path(Path::new(program)).starts_with("/proc")
}

/// True for a file that is what the command gets on a descriptor, so its text is one of the line.
fn is_handed(word: &Word) -> bool {
    let path = normal_path(Path::new(&word.text));
    path.starts_with("/dev/fd") || path.starts_with("/dev/stdin") || path.starts_with("/proc")
}

/// True if one of the commands may change the directory.
fn moves(commands: &[Simple]) -> bool {
    let mut words = commands.iter().flat_map(|command| &command.words);
    words.any(|word| ["cd", "pushd", "popd"].contains(&word.text.as_str()))
}

/// True if the path goes up behind a name, which may be that of a link: then it leads up from where the link does.
fn climbs(path: &str) -> bool {
    let mut parts = Path::new(path).components().skip_while(|part| !matches!(part, Component::Normal(_)));
    parts.any(|part| part == Component::ParentDir)
}

#[cfg(all(test, unix))]
mod evaluated;
#[cfg(test)]
mod tests;
