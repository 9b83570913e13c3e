use std::{path::Path, process::Command};

use proptest::prelude::*;

use super::*;

/// The spelling of each command of a text, and `?` at the end if it is unclear.
fn read(text: &str) -> Vec<String> {
    let script = parse(text);
    let mut all: Vec<_> = script.commands.iter().map(|it| spelled(&it.words)).collect();
    if script.unclear {
        all.push("?".to_owned());
    }
    all
}

#[test]
fn cx03_every_simple_command_is_found_wherever_it_is() {
    for (text, commands) in [
        ("ls", &["ls"][..]),
        ("  ls   -l\t'a b'  ", &["ls -l 'a b'"]),
        ("ls; rm x", &["ls", "rm x"]),
        ("ls & rm x", &["ls", "rm x"]),
        ("ls && rm x || cat y", &["ls", "rm x", "cat y"]),
        ("ls | rm x |& cat", &["ls", "rm x", "cat"]),
        ("ls\nrm x\n", &["ls", "rm x"]),
        ("(ls; rm x)", &["ls", "rm x"]),
        ("{ ls; rm x; } > /dev/null", &["ls", "rm x"]),
        ("! ls", &["ls"]),
        ("time -p rm x", &["rm x"]),
        ("if a; then b; elif c; then d; else e; fi", &["a", "b", "c", "d", "e"]),
        ("while a; do b; done; until c; do d; done", &["a", "b", "c", "d"]),
        ("for i in 1 2; do rm $i; done", &["rm $i"]),
        ("for i\ndo rm x\ndone", &["rm x"]),
        ("case x in a|b) rm x;; (*) ls ;& c) d; esac", &["rm x", "ls", "d"]),
        ("f() { rm x; }; f", &["rm x", "f"]),
        ("function f { rm x; }", &["rm x"]),
        ("echo $(rm x)", &["rm x", "echo $(rm x)"]),
        ("echo \"a $(rm x) b\"", &["rm x", "echo \"a $(rm x) b\""]),
        ("echo `rm x`", &["rm x", "echo `rm x`"]),
        ("cat <(rm x) >(rm y)", &["rm x", "rm y", "cat <(rm x) >(rm y)"]),
        ("echo ${x:-$(rm x)}", &["rm x", "echo ${x:-$(rm x)}"]),
        ("[[ -n $(rm x) && a == b ]]", &["rm x"]),
        ("a=$(rm x)", &["rm x", ""]),
        ("a=(x $(rm x))", &["rm x"]),
        ("cat <<E\n$(rm x)\nE\nls", &["cat", "rm x", "ls"]),
        ("cat <<'E'\n$(rm x)\nE\nls", &["cat", "ls"]),
        ("cat <<-E && ls\n\tx\n\tE\nrm x", &["cat", "ls", "rm x"]),
        ("cat <<A <<B\n$(a)\nA\n$(b)\nB", &["cat", "a", "b"]),
        ("git commit -m \"$(cat <<'E'\nIt's\nE\n)\"", &["cat", "git commit -m \"$(cat <<'E'\nIt's\nE\n)\""]),
        ("cat <<< \"$(rm x)\"", &["rm x", "cat"]),
        ("ls # rm x", &["ls"]),
        ("ls a#b", &["ls 'a#b'"]),
        ("ls \\\n  -l", &["ls -l"]),
        ("l's' \"-l\" \\-a", &["ls -l -a"]),
        ("$'r\\x'", &["?"]),
        ("$'l\\'s' x", &["'l'\\''s' x"]),
        ("echo '' \"\"", &["echo '' ''"]),
        ("echo \"$\" $ 'it''s'", &["echo '$' '$' its"]),
        ("ls > a 2>&1 < b &>> c", &["ls"]),
        ("2>a ls 3x", &["ls 3x"]),
        ("find . -exec rm {} \\;", &["find . -exec rm '{}' ';'"]),
        ("echo $((1 + 2))", &["echo $((1 + 2))"]),
        ("echo ls\\;rm", &["echo 'ls;rm'"]),
        ("ls\rrm", &["'ls\rrm'"]),
        ("FOO=1 ls", &["ls"]),
    ] {
        assert_eq!(read(text), commands, "{text}");
    }
}

#[test]
fn cx03_what_is_not_read_with_certainty_is_unclear() {
    let deep = |open: &str, close: &str| format!("{}x{}", open.repeat(3_000), close.repeat(3_000));
    for text in [
        "echo 'a",
        "echo \"a",
        "echo `a",
        "echo $(a",
        "echo ${a",
        "(ls",
        "ls)",
        "{ ls",
        "if",
        "if a; fi",
        "ls; then",
        "ls ;; rm x",
        "&& ls",
        "ls | ",
        "ls &&",
        "ls > ",
        "cat <<E\nx",
        "cat <<E",
        "cat <<E\nx \\\nE\n",
        "cat <<E 'a\nb'\nE\n",
        "cat <<$E\nx\n$E\n",
        "cat <<E; echo $(ls\n)\nE\n",
        "cat <<E \\\n x\nE\n",
        "((a[$(rm x)]))",
        "echo $((a))",
        "echo $[1]",
        "echo ${!x}",
        "echo ${x@P}",
        "echo ${a[x]}",
        "echo ${a[$(rm x)]}",
        "echo ${x:y}",
        "echo ${x//'}'/$(rm x)}",
        "echo \"${x:-\"a\"}\"",
        "echo $\"a\"",
        "echo $\\\n(rm x)",
        "echo `rm \\`rm x\\``",
        "a[0]=1",
        "a=([0]=1)",
        "[[ x -eq y ]]",
        "[[ -v x ]]",
        "select i in a; do ls; done",
        "for ((;;)); do ls; done",
        "coproc rm x",
        "i\\\nf rm x; then ls; fi",
        "!\\\n rm x",
        "{fd}>x ls",
        "ls !(x)",
        "a b() { ls; }",
        "echo $(cat <<E\nx\nE\nls)",
        "echo $(cat <<E\nE rm x )\nE\n)",
        "PA\\\nTH=. ls",
        "l\\\ns",
        "ls 2\\\n>x",
        "ls <\\\n(rm x)",
        "time -- rm x",
        "ls\0",
        &deep("(", ")"),
        &deep("$(", ")"),
        &deep("\"$(", ")\""),
        &deep("${a:-", "}"),
        &deep("{ ", "; }"),
        &deep("if ", ""),
        &deep("cat <(", ")"),
        &"`".repeat(2_001),
        &"(".repeat(30_000),
        &"a;".repeat(20_000),
        &"a ".repeat(60_000),
    ] {
        let short: String = text.chars().take(60).collect();
        assert!(parse(text).unclear, "{short}");
    }
}

/// The commands that bash ran: the words of each that it did not know, which were all.
fn ran(text: &str, dir: &Path) -> Vec<Vec<String>> {
    // Bash runs the handler in a process of its own, and writes line by line: a file for each.
    let log = dir.join("log");
    let handler = format!(
        "() {{ builtin printf '%s\\037' \"$@\" $'\\036' >> '{}'.$BASHPID; builtin return 1; }}",
        log.display()
    );
    // A loop without an end is cut by its processor time. What runs in the background keeps the pipe open.
    let child = Command::new("/bin/bash")
        .args([
            "-c",
            "ulimit -t 1; exec 9>&1 >/dev/null; exec /bin/bash --noprofile --norc -c -- \"$0\"",
            text,
        ])
        .env_clear()
        .env("PATH", "/nowhere")
        .env("BASH_FUNC_command_not_found_handle%%", handler)
        .current_dir(dir)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    child.wait_with_output().unwrap();
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let logs = files.filter(|file| file.file_name().unwrap().to_string_lossy().starts_with("log."));
    let runs: Vec<_> =
        logs.map(|log| String::from_utf8_lossy(&std::fs::read(log).unwrap()).into_owned()).collect();
    let runs = runs.concat();
    let words = |run: &str| run.split_terminator('\u{1f}').map(str::to_owned).collect();
    runs.split_terminator("\u{1e}\u{1f}").map(words).collect()
}

/// True if what bash ran is one of the commands that were read.
fn is_foreseen(script: &Script, run: &[String]) -> bool {
    script.commands.iter().any(|command| {
        let known = command.words.iter().take_while(|word| word.literal).count();
        let open = known < command.words.len();
        let fits = command.words.iter().zip(run).take(known).all(|(word, ran)| word.text == *ran);
        known > 0 && fits && if open { run.len() >= known } else { run.len() == known }
    })
}

/// Pieces of command lines whose commands, `k1` to `k4`, no machine has.
const PIECES: [&str; 92] = [
    "k1",
    "k2 ",
    "k3 a",
    "k4 a b",
    "k1 ",
    "k2",
    " ",
    " ",
    " ",
    " ",
    "\n",
    "\n",
    ";",
    "; ",
    "; ",
    " && ",
    " || ",
    " | ",
    "|&",
    " & ",
    "(",
    ")",
    "( ",
    " )",
    "{ ",
    "; }",
    "$(",
    "$( ",
    ")",
    "`",
    "`",
    "\"",
    "\"",
    "'",
    "'",
    "\\",
    "\\\n",
    "$'",
    "if ",
    "; then ",
    " else ",
    "; fi",
    "if k1; then ",
    "case x in a) ",
    "case a in (a) ",
    ";; ",
    ";& ",
    " esac",
    "b) ",
    "for x in a b; do ",
    "for x do ",
    "; done",
    "while ",
    "; do ",
    " <<E\n",
    "\nE\n",
    "E\n",
    " <<'E'\n",
    " <<-E\n",
    "\tE\n",
    " <<< ",
    "#",
    " # ",
    "$x",
    "${x:-",
    "}",
    "${x}",
    "a",
    "x=",
    " y=b ",
    "[[ ",
    " ]]",
    " == ",
    "((",
    "))",
    "$((1+2))",
    " <(",
    " >(",
    " 2>&1",
    " >f",
    " &>f",
    "!",
    "! ",
    "time ",
    "function f ",
    "f() { ",
    " f ",
    "~",
    "*",
    "{a,b}",
    "\"$(k3)\"",
    "$(k4 b)",
];

/// A word whose meaning is the same for bash, or that neither of both reads as it seems.
fn word() -> impl Strategy<Value = String> {
    let plain = prop::sample::select(
        &[
            "a",
            "'a b'",
            "\"a b\"",
            "a\\ b",
            "$'a\\tb'",
            "''",
            "\"\"",
            "a'b'\"c\"",
            "a#b",
            "\\#a",
            "a\\\nb",
            "\"a\\\nb\"",
            "'a\nb'",
            "\"\\$x\"",
            "\"a\\nb\"",
            "'\\'",
            "\"'\"",
            "'\"'",
            "a=b",
            "}",
            "]]",
            "if",
            "~",
            "\\~",
            "a~",
            "{}",
            "!",
            "[",
            "\"$\"",
            "$",
            "a$",
            "-",
            "--",
            "\"a`k4 x`b\"",
            "`k3`",
            "$((1+2))",
            "$x",
            "\"${x:-b}\"",
            "é",
            "\\;",
            "\"#\"",
            "in",
            "do",
        ][..],
    );
    plain.prop_map(str::to_owned)
}

/// A command line that is well formed for the most part.
fn line() -> impl Strategy<Value = String> {
    let simple = (
        prop::sample::select(&["k1", "k2", "k'3'", "\"k4\"", "k\\1", "x=1 k2", "x=a k3", ">f k1"][..]),
        prop::collection::vec(word(), 0..4),
    )
        .prop_map(|(name, words)| [vec![name.to_owned()], words].concat().join(" "));
    simple.prop_recursive(4, 24, 4, |inner| {
        let two = (inner.clone(), inner.clone());
        let shapes = prop::sample::select(
            &[
                "A; B",
                "A && B",
                "A || B",
                "A | B",
                "A & B",
                "A\nB",
                "(A)",
                "( A; B )",
                "{ A; B; }",
                "{ A\n}",
                "! A",
                "A $(B)",
                "A \"$(B)\"",
                "A \"x$( B )y\" z",
                "A `k1`",
                "if A; then B; fi",
                "if A\nthen\nB\nelse A; fi",
                "for v in 1 2; do A; done",
                "for v in a; do A\nB\ndone",
                "while A; do B; done",
                "case a in a) A;; esac",
                "case a in (b) A;; *) B ;; esac",
                "case a in a|b) A\n;;\n(c) B;; esac",
                "fn() { A; }; fn",
                "fn () (A)\nfn",
                "A <<E\nx $(B) y\nE",
                "A <<'E'\nx $(B) y\nE",
                "A <<E && B\nx\nE\n",
                "A <<-E\n\tx\n\tE\nB",
                "A <<< \"$(B)\"",
                "A > f 2>&1",
                "A >f; B <f",
                "A &>f",
                "A 2>/dev/null | B",
                "A # B\nB",
                "A \\\n x; B",
                "cat=$(A) B",
                "v=(A $(B))",
                "v=$(A)",
                "[[ -n $(A) ]] && B",
                "[[ a == b || ( c == d ) ]] || A",
                "time A",
                "A |& B",
                "A \"${x:-$(B)}\"",
                "A ${x:+$(B)}",
                "A >(B)",
                "A <(B) x",
                "A \"a\nb\" x",
                "A <<E x <<'F'\n$(B)\nE\n$(B)\nF\nB",
                "A;\n\n B;",
                "A $(B <<E\nx\nE\n)",
                "A \"$(B <<'E'\nIt's\nE\n)\"",
                "A $(# c )\nB)",
                "function fm { A; }; B",
                "{ A; } > f",
                "A $(case a in a) B;; esac)",
                "A $(case a in (a) B;; esac)",
                "A\\\n;B",
                "A;\\\nB",
                "A |\\\nB",
                "A &&\n\nB",
                "A |\n# c\nB",
            ][..],
        );
        (shapes, two).prop_map(|(shape, (a, b))| {
            shape
                .chars()
                .map(|c| match c {
                    'A' => a.clone(),
                    'B' => b.clone(),
                    c => c.to_string(),
                })
                .collect::<String>()
        })
    })
}

proptest! {
    #[test]
    fn cx03_nothing_panics_and_nothing_takes_long(text in "[ -~\n]{0,80}") {
        let _ = parse(&text);
    }

    /// Bash itself is the judge: whatever it runs must have been read, or the text be unclear.
    #[test]
    #[cfg(unix)]
    fn attack_29_bash_runs_nothing_that_was_not_read(
        text in prop_oneof![
            3 => line(),
            1 => (line(), prop::collection::vec(0..PIECES.len(), 1..4), any::<prop::sample::Index>())
                .prop_map(|(line, picks, at)| {
                    let pieces: String = picks.iter().map(|pick| PIECES[*pick]).collect();
                    let mut chars: Vec<char> = line.chars().collect();
                    let at = at.index(chars.len() + 1);
                    chars.splice(at..at, pieces.chars());
                    chars.into_iter().collect::<String>()
                }),
            1 => prop::collection::vec(0..PIECES.len(), 1..14)
                .prop_map(|picks| picks.iter().map(|pick| PIECES[*pick]).collect::<String>()),
        ],
    ) {
        let script = parse(&text);
        // The judge calls a command without a name unclear.
        let named = script.commands.iter().all(|it| it.words.first().is_none_or(|word| word.literal));
        if !script.unclear && named {
            let dir = tempfile::tempdir().unwrap();
            for run in ran(&text, dir.path()) {
                prop_assert!(is_foreseen(&script, &run), "{text:?} ran {run:?}, read {:?}", script.commands);
            }
        }
    }
}
