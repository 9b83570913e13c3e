//! Texts that bash evaluates although they are arguments: bash itself is the judge of what was missed.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking too")]

use std::process::{Command, Stdio};

use proptest::prelude::*;

use super::judge;

/// Texts with a command that no machine has, which runs where one of them is evaluated, and words beside them.
const WORDS: [&str; 44] = [
    "'a[$(k9)]'",
    "'-a[$(k9)]'",
    "'+a[$(k9)]'",
    "'1+a[$(k9)]'",
    "'x=($(k9))'",
    "'x[$(k9)]=1'",
    "'($(k9))'",
    "\"a[\\$(k9)]\"",
    "$x",
    "\"$x\"",
    "-$x",
    "${x}",
    "$1",
    "\"$1\"",
    "$@",
    "\"$*\"",
    "$#",
    "$?",
    "-v",
    "-R",
    "-n",
    "-z",
    "-t",
    "-eq",
    "-gt",
    "=",
    "==",
    "=~",
    "-a",
    "-o",
    "!",
    "x",
    "x=1",
    "-x",
    "-g",
    "-aA",
    "-i",
    "1",
    "(",
    ")",
    "(#$(k9)\n)",
    "@(#$(k9)\n)",
    "#$(k9)\n",
    "-tC",
];

const SHAPES: [&str; 22] = [
    "[[ W ]]",
    "[[ W W ]]",
    "[[ W W W ]]",
    "[[ W W W && W W W ]]",
    "test W W",
    "test W W W",
    "test W W W W",
    "[ W W ]",
    "[ W W W ]",
    "[ W W W W W ]",
    "declare W W",
    "export W",
    "readonly W W",
    "f() { local W W; }; f 'a[$(k9)]'",
    "read W <<< 'a[$(k9)]'",
    "mapfile W W <<< 'a[$(k9)]'",
    "printf W W W",
    "unset W",
    "RANDOM=W",
    "OPTIND=W; SECONDS=W",
    "for x in W W; do [ W W ]; done",
    "case W in W) test W W;; esac",
];

const BEFORE: [&str; 7] = [
    "",
    "x='a[$(k9)]'; ",
    "x='-v a[$(k9)]'; ",
    "x=-v; ",
    "x=(1); ",
    "set -- 'a[$(k9)]' -v; ",
    "x=-eq; a='a[$(k9)]'; ",
];

/// True if bash, given this line, ran the command.
fn evaluates(line: &str) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let handler = format!("() {{ case $1 in k9) builtin printf x > '{}/ran'; esac; }}", dir.path().display());
    let mut child = Command::new("/bin/bash")
        .args(["-c", "ulimit -t 1; exec /bin/bash --noprofile --norc -c -- \"$0\"", line])
        .env_clear()
        .env("PATH", "/nowhere")
        .env("BASH_FUNC_command_not_found_handle%%", handler)
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.wait().unwrap();
    dir.path().join("ran").exists()
}

fn line() -> impl Strategy<Value = String> {
    let words = prop::collection::vec(prop::sample::select(&WORDS[..]), 6);
    let wrapped = prop::sample::select(&["B S", "bash -c \"Q\"", "B if S; then S; fi"][..]);
    (prop::sample::select(&BEFORE[..]), prop::sample::select(&SHAPES[..]), wrapped, words).prop_map(
        |(before, shape, wrapped, words)| {
            let mut words = words.into_iter().cycle();
            let filled: String = shape
                .split_inclusive('W')
                .map(|part| match part.strip_suffix('W') {
                    Some(part) => format!("{part}{}", words.next().unwrap()),
                    None => part.to_owned(),
                })
                .collect();
            match wrapped {
                "bash -c \"Q\"" => {
                    let quoted = format!("{before}{filled}").replace('\'', "'\\''");
                    format!("bash -c '{quoted}' sh 'a[$(k9)]'")
                }
                other => other.replace('S', &filled).replace("B ", before),
            }
        },
    )
}

/// A command that is written out is one that the line names, so it is no proof of a miss.
fn names_it(line: &str) -> bool {
    judge(line, true).commands.iter().any(|command| command == "k9")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4 * ProptestConfig::default().cases, ..ProptestConfig::default() })]

    #[test]
    fn attack_29_bash_evaluates_no_argument_of_a_line_that_is_clear(line in line()) {
        let line = line.replace("bash -c", "/bin/bash -c");
        if !judge(&line, true).unclear && !names_it(&line) {
            prop_assert!(!evaluates(&line), "{line:?}");
        }
    }
}

#[test]
fn attack_29_the_lines_that_evaluated_their_arguments_are_unclear() {
    for (line, is_evaluated) in [
        ("[[ '-a[$(k9)]' -eq 0 ]]", true),
        ("x='a[$(k9)]'; [[ -$x -eq 0 ]]", true),
        ("[[ a =~ (#$(k9)\n) ]]", false),
        ("bash -c '[[ $1 -eq 1 ]]' sh 'a[$(k9)]'", false),
        ("x=-v; test $x 'a[$(k9)]'", true),
        ("x='-v a[$(k9)]'; [ $x ]", true),
        ("declare -a 'x=($(k9))'", true),
        ("x=(1); declare 'x=($(k9))'", false),
        ("mapfile -tC k9 x <<< a", false),
        ("RANDOM='a[$(k9)]'", true),
        ("OPTIND='a[$(k9)]'", false),
    ] {
        assert!(judge(line, true).unclear, "{line}");
        if is_evaluated && std::path::Path::new("/bin/bash").exists() {
            assert!(evaluates(line), "bash does not evaluate {line}: the test shows nothing");
        }
    }
    for line in [
        "[[ -n $x && -f y ]]",
        "[[ $# -gt 1 ]]",
        "[ \"$x\" = y ]",
        "[ ! -f \"$x\" ]",
        "test -n \"$x\"",
        "[ $? -eq 0 ]",
        "[ $# -lt 2 ]",
        "[[ a == \"b[c]\" ]]",
        "[[ $x =~ ^(a)$ ]]",
        "export A=\"$x\"",
        "readonly a=b",
        "declare -x y=1",
    ] {
        let judged = judge(line, true);
        assert!(!judged.unclear, "{line}: {judged:?}");
    }
}
