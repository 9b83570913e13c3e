//! Programs that run the program in their arguments.

use super::{
    super::parse::{Assignment, Simple, Word},
    find::find,
};

/// Deepest nesting of programs that run each other.
pub(super) const DEEPEST: usize = 8;

/// Programs that run others in ways that are not read here.
const OPAQUE: [&str; 86] = [
    "at",
    "batch",
    "bwrap",
    "caffeinate",
    "catchsegv",
    "choom",
    "chpst",
    "chronic",
    "chroot",
    "chrt",
    "cpulimit",
    "crontab",
    "dbus-launch",
    "dbus-run-session",
    "dtach",
    "dumb-init",
    "eatmydata",
    "entr",
    "envdir",
    "expect",
    "fakeroot",
    "faketime",
    "firejail",
    "flock",
    "gdb",
    "gosu",
    "hyperfine",
    "i386",
    "i486",
    "i586",
    "i686",
    "ifne",
    "ld-linux.so.2",
    "ld.so",
    "linux32",
    "linux64",
    "logsave",
    "ltrace",
    "mispipe",
    "ncat",
    "newgrp",
    "nocache",
    "nsenter",
    "numactl",
    "parallel",
    "pee",
    "perf",
    "pkexec",
    "ppc",
    "ppc64",
    "prlimit",
    "proot",
    "proxychains",
    "proxychains4",
    "rlwrap",
    "run-parts",
    "runuser",
    "rustup-run",
    "s6-setuidgid",
    "screen",
    "script",
    "sem",
    "setarch",
    "setpriv",
    "setuidgid",
    "sg",
    "socat",
    "softlimit",
    "ssh-agent",
    "sshpass",
    "start-stop-daemon",
    "strace",
    "su",
    "su-exec",
    "systemd-run",
    "taskset",
    "tini",
    "tmux",
    "torsocks",
    "uname26",
    "unbuffer",
    "unshare",
    "valgrind",
    "watch",
    "x86_64",
    "xvfb-run",
];

const SHELLS: [&str; 20] = [
    "ash", "bash", "csh", "dash", "elvish", "fish", "ksh", "lksh", "mksh", "nu", "osh", "posh", "pwsh",
    "rbash", "rksh", "rzsh", "sh", "tcsh", "yash", "zsh",
];
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
    let other = is_shell(name) || is_opaque(name) || name == "find";
    other || wrapper(name).is_some() || is_interpreter(name)
}

/// True for a shell, also by a name with its version, such as `bash-5.2`.
fn is_shell(name: &str) -> bool {
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    SHELLS.contains(&name) || SHELLS.contains(&bare)
}

/// True for a program that runs others in ways that are not read here.
fn is_opaque(name: &str) -> bool {
    OPAQUE.contains(&name) || ["ld-linux", "ld-musl", "qemu-"].iter().any(|it| name.starts_with(it))
}

fn is_interpreter(name: &str) -> bool {
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.contains(&name) || INTERPRETERS.contains(&bare)
}

/// The programs that a program runs beside itself.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) commands: Vec<Simple>,
    /// The text of a shell, and whether it is bash.
    pub(super) script: Option<(String, bool)>,
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
        _ if is_opaque(program) => Run::unclear(),
        _ if is_shell(program) => shell(program, rest),
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
    // So that a rule for the program with arguments holds.
    if program == "xargs" && !replaces(rest) {
        simple.words.push(Word { text: "{}".to_owned(), literal: true, glob: false });
    }
    Run { commands: vec![simple], unclear: open, ..Run::default() }
}

/// True if `xargs` puts what it reads where a mark is, and not at the end.
fn replaces(rest: &[Word]) -> bool {
    let options = rest.iter().take_while(|word| word.text.starts_with('-'));
    options.into_iter().any(|word| word.text.starts_with("-I") || word.text == "-i")
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

fn shell(program: &str, rest: &[Word]) -> Run {
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
            "--version" | "--help" if rest.len() == 1 => return Run::default(),
            // Any other option may read a file, or take the next word.
            _ if text.starts_with(['-', '+']) => {
                let flags = text.strip_prefix('-').filter(|it| !it.is_empty());
                let known = |flags: &str| flags.chars().all(|c| "ceuxl".contains(c));
                let Some(flags) = flags.filter(|flags| known(flags)) else { return Run::unclear() };
                is_text |= flags.contains('c');
            }
            _ => {
                first = Some(word);
                break;
            }
        }
    }
    // Other shells read a text in ways of their own.
    let is_bash = ["bash", "rbash"].iter().any(|it| program.starts_with(it));
    let is_posix = is_bash || ["ash", "dash", "sh"].contains(&program);
    match first.and_then(Word::known) {
        Some(text) if is_text && is_posix => {
            Run { script: Some((text.to_owned(), is_bash)), ..Run::default() }
        }
        // A script's file, which is named.
        Some(text) if !is_text && !text.starts_with("/dev/") => Run::default(),
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
    let Some(found) = find(rest) else { return Run::unclear() };
    let mut run = Run::default();
    for inner in found.runs {
        if inner.first().is_none_or(|first| first.text.contains("{}")) {
            run.unclear = true;
        }
        // A name that is found would be read as a text, or an option, by a shell.
        let shell = inner.first().and_then(|it| it.text.rsplit('/').next()).is_some_and(is_shell);
        run.unclear |= shell && !inner.iter().any(|word| word.known() == Some("-c"));
        run.unclear |= shell && inner.iter().any(|word| word.text != "{}" && word.text.contains("{}"));
        run.commands.push(Simple { words: inner, ..Simple::default() });
    }
    run
}
