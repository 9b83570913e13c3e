//! Programs that run the program in their arguments.

use super::super::parse::{Assignment, Simple, Word};

/// Deepest nesting of programs that run each other.
pub(super) const DEEPEST: usize = 8;

/// Programs that run others in ways that are not read here.
const OPAQUE: [&str; 62] = [
    "at",
    "batch",
    "bwrap",
    "caffeinate",
    "catchsegv",
    "chronic",
    "chroot",
    "chrt",
    "cpulimit",
    "crontab",
    "dbus-launch",
    "dbus-run-session",
    "dtach",
    "eatmydata",
    "entr",
    "expect",
    "fakeroot",
    "faketime",
    "firejail",
    "flock",
    "gdb",
    "hyperfine",
    "ifne",
    "linux32",
    "linux64",
    "ltrace",
    "newgrp",
    "nocache",
    "nsenter",
    "numactl",
    "parallel",
    "pee",
    "perf",
    "pkexec",
    "prlimit",
    "proot",
    "proxychains",
    "proxychains4",
    "rlwrap",
    "run-parts",
    "runuser",
    "rustup-run",
    "screen",
    "script",
    "sem",
    "setarch",
    "setpriv",
    "sg",
    "ssh-agent",
    "sshpass",
    "start-stop-daemon",
    "strace",
    "su",
    "systemd-run",
    "taskset",
    "tmux",
    "torsocks",
    "unbuffer",
    "unshare",
    "valgrind",
    "watch",
    "xvfb-run",
];

const SHELLS: [&str; 9] = ["ash", "bash", "csh", "dash", "fish", "ksh", "sh", "tcsh", "zsh"];
const INTERPRETERS: [&str; 11] =
    ["python", "python2", "python3", "perl", "ruby", "node", "nodejs", "deno", "bun", "php", "lua"];

/// The options of a wrapper: those that take a value, in short, and those that take none.
struct Options {
    valued: &'static [&'static str],
    flags: &'static [&'static str],
    /// Words between the options and the program.
    before: usize,
    /// True if assignments may come before the program.
    assigns: bool,
}

const fn options(valued: &'static [&'static str], flags: &'static [&'static str]) -> Options {
    Options { valued, flags, before: 0, assigns: false }
}

fn wrapper(name: &str) -> Option<Options> {
    Some(match name {
        "env" => Options {
            assigns: true,
            ..options(&["-u", "--unset"], &["-", "-i", "--ignore-environment", "-0", "--null"])
        },
        "timeout" | "gtimeout" => Options {
            before: 1,
            ..options(
                &["-k", "--kill-after", "-s", "--signal"],
                &["--preserve-status", "--foreground", "-v", "--verbose", "-f", "-p"],
            )
        },
        "nice" => options(&["-n", "--adjustment"], &[]),
        "nohup" => options(&[], &[]),
        "setsid" => options(&[], &["-c", "--ctty", "-f", "--fork", "-w", "--wait"]),
        "stdbuf" => options(&["-i", "--input", "-o", "--output", "-e", "--error"], &[]),
        "ionice" => options(&["-c", "--class", "-n", "--classdata"], &["-t", "--ignore"]),
        "time" => options(&[], &["-p", "-v"]),
        "builtin" => options(&[], &[]),
        "command" => options(&[], &["-p"]),
        "exec" => options(&["-a"], &["-c", "-l"]),
        "sudo" => Options {
            assigns: true,
            ..options(
                &["-u", "--user", "-g", "--group", "-h", "--host", "-p", "--prompt", "-C", "-T", "-r", "-t"],
                &[
                    "-A",
                    "-b",
                    "-E",
                    "--preserve-env",
                    "-H",
                    "--set-home",
                    "-k",
                    "-n",
                    "--non-interactive",
                    "-P",
                    "-S",
                ],
            )
        },
        "doas" => options(&["-u", "-C"], &["-n", "-L"]),
        "busybox" | "toybox" => options(&[], &[]),
        "xargs" => options(
            &["-I", "-n", "-P", "-L", "-d", "-a", "-E", "-s", "--max-args", "--max-procs", "--delimiter"],
            &["-0", "--null", "-r", "--no-run-if-empty", "-t", "-p", "-x", "-i"],
        ),
        _ => return None,
    })
}

pub(super) fn is_one(name: &str) -> bool {
    let other = SHELLS.contains(&name) || OPAQUE.contains(&name) || name == "find";
    other || wrapper(name).is_some() || is_interpreter(name)
}

fn is_interpreter(name: &str) -> bool {
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.contains(&name) || INTERPRETERS.contains(&bare)
}

/// The programs that a program runs beside itself.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) commands: Vec<Simple>,
    /// The text of a shell.
    pub(super) script: Option<String>,
    pub(super) unclear: bool,
}

impl Run {
    fn unclear() -> Self {
        Self { unclear: true, ..Self::default() }
    }
}

/// Returns what `program` runs with the arguments `rest`; `fed` if it gets its input from the command line.
pub(super) fn run_by(program: &str, rest: &[Word], fed: bool) -> Run {
    match program {
        _ if OPAQUE.contains(&program) => Run::unclear(),
        _ if SHELLS.contains(&program) => shell(rest),
        "find" => found(rest),
        "command" if rest.first().and_then(Word::known).is_some_and(|it| it == "-v" || it == "-V") => {
            Run::default()
        }
        _ if is_interpreter(program) => interpreter(rest, fed),
        _ => wrapper(program).map_or_else(Run::default, |options| wrapped(program, &options, rest, fed)),
    }
}

fn wrapped(program: &str, options: &Options, rest: &[Word], fed: bool) -> Run {
    let Some(from) = after_options(options, rest) else { return Run::unclear() };
    let mut words = rest.get(from..).unwrap_or_default();
    let mut simple = Simple { fed, ..Simple::default() };
    while options.assigns
        && let Some((word, others)) = words.split_first()
        && let Some((name, _)) = word.text.split_once('=')
        && !name.contains('/')
    {
        // A name that is no variable's is one to programs that read it otherwise.
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Run::unclear();
        }
        simple.assignments.push(Assignment { name: name.to_owned(), word: word.clone() });
        words = others;
    }
    let (before, words) = words.split_at_checked(options.before).unwrap_or((words, &[]));
    if !before.iter().all(|word| word.literal) {
        return Run::unclear();
    }
    simple.words = words.to_vec();
    let Some(first) = words.first() else {
        // `xargs` then runs `echo`.
        let harmless = ["env", "exec", "command", "builtin", "nice", "time", "xargs"].contains(&program);
        return Run { unclear: !harmless && !rest.is_empty(), ..Run::default() };
    };
    let name = first.known().and_then(|it| it.rsplit('/').next()).unwrap_or_default();
    // What is read from the input is appended, and then is the program.
    let open =
        program == "xargs" && (is_one(name) || is_replaced(rest, first) || takes_subcommand(name, words));
    Run { commands: vec![simple], unclear: open, ..Run::default() }
}

/// True if `xargs` puts what it reads in the place of a part of the program's name.
fn is_replaced(rest: &[Word], program: &Word) -> bool {
    let mut words = rest.iter();
    let Some(option) = words.by_ref().find(|word| word.text.starts_with("-I")) else {
        return program.text.contains("{}");
    };
    let joined = option.text.trim_start_matches("-I");
    let mark = if joined.is_empty() { words.next().map_or("", |word| word.text.as_str()) } else { joined };
    program.text.contains(mark)
}

/// True if the word that says what the program does is still to come.
fn takes_subcommand(name: &str, words: &[Word]) -> bool {
    super::BY_SUBCOMMAND.contains(&name) && words.iter().skip(1).all(|word| word.text.starts_with('-'))
}

/// The number of words that are options, or `None` if one is not known.
fn after_options(options: &Options, rest: &[Word]) -> Option<usize> {
    let mut at = 0;
    while let Some(word) = rest.get(at) {
        if !word.text.starts_with('-') {
            break;
        }
        let text = word.known()?;
        at += 1;
        if text == "--" {
            break;
        }
        if options.flags.contains(&text) {
            continue;
        }
        if options.valued.contains(&text) {
            rest.get(at)?.known()?;
            at += 1;
            continue;
        }
        let joined = options.valued.iter().any(|option| {
            text.strip_prefix(option).is_some_and(|rest| !option.starts_with("--") || rest.starts_with('='))
        });
        let number = text.strip_prefix('-').is_some_and(|it| it.chars().all(|c| c.is_ascii_digit()));
        if !joined && !number {
            return None;
        }
    }
    Some(at)
}

fn shell(rest: &[Word]) -> Run {
    let mut words = rest.iter();
    let mut is_text = false;
    let mut first = None;
    for word in words.by_ref() {
        let Some(text) = word.known() else { return Run::unclear() };
        match text {
            "--" => {
                first = words.next();
                break;
            }
            "--norc" | "--noprofile" | "--posix" => {}
            _ if text.starts_with("--") || text.starts_with('+') || text.len() < 2 => {
                first = Some(word);
                break;
            }
            _ => match text.strip_prefix('-') {
                Some(flags) if flags.chars().all(|c| "ceuxl".contains(c)) => is_text |= flags.contains('c'),
                Some(_) => return Run::unclear(),
                None => {
                    first = Some(word);
                    break;
                }
            },
        }
    }
    match first.map(|word| (word.known(), word)) {
        Some((Some(text), _)) if is_text => Run { script: Some(text.to_owned()), ..Run::default() },
        Some((Some("--version" | "--help"), _)) => Run::default(),
        // A script's file, which is named.
        Some((Some(text), _)) if !text.starts_with(['-', '+']) && !text.starts_with("/dev/") => {
            Run::default()
        }
        // The text comes from the input.
        _ => Run::unclear(),
    }
}

fn interpreter(rest: &[Word], fed: bool) -> Run {
    let only_options = rest.iter().all(|word| word.text.starts_with('-'));
    let asks = rest.len() == 1
        && rest
            .first()
            .and_then(Word::known)
            .is_some_and(|it| ["--version", "-V", "-v", "--help"].contains(&it));
    // The program comes from the input.
    let from_input =
        only_options && !asks || rest.iter().any(|word| word.text == "-" || word.text.starts_with("/dev/"));
    // The first word that is no option is the program, its file, or the value of an option.
    let open = rest.iter().take_while(|word| word.text.starts_with('-')).any(|word| !word.literal)
        || rest.iter().find(|word| !word.text.starts_with('-')).is_some_and(|word| !word.literal);
    Run { unclear: open || from_input && (fed || !asks), ..Run::default() }
}

/// The commands of `find … -exec command \;`.
fn found(rest: &[Word]) -> Run {
    let mut run = Run::default();
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        // What is not literal could be any of these.
        if !word.literal && !word.glob && word.text.starts_with('$') {
            run.unclear = true;
        }
        if !matches!(word.known(), Some("-exec" | "-execdir" | "-ok" | "-okdir")) {
            continue;
        }
        let inner: Vec<Word> =
            words.by_ref().take_while(|word| !matches!(word.known(), Some(";" | "+"))).cloned().collect();
        if inner.first().is_none_or(|first| first.text.contains("{}")) {
            run.unclear = true;
        }
        // A name that is found would be read as a text, or an option, by a shell.
        let shell =
            inner.first().and_then(|it| it.text.rsplit('/').next()).is_some_and(|it| SHELLS.contains(&it));
        run.unclear |= shell && !inner.iter().any(|word| word.known() == Some("-c"));
        run.unclear |= shell && inner.iter().any(|word| word.text != "{}" && word.text.contains("{}"));
        run.commands.push(Simple { words: inner, ..Simple::default() });
    }
    run
}
