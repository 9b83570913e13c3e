use std::path::Path;

use super::*;

fn judged(text: &str) -> Judged {
    judge(text, true)
}

#[test]
fn cx03_the_commands_that_others_run_are_judged_too() {
    for (text, commands) in [
        ("git -C . push", &["git -C . push", "git . push", "git push"][..]),
        ("git --no-pager push x", &["git --no-pager push x", "git push x", "git x"][..]),
        ("cargo +nightly publish", &["cargo +nightly publish", "cargo publish"]),
        ("env -u A X=1 rm x", &["env -u A X=1 rm x", "X=1 rm x", "rm x"][..]),
        ("timeout -k 5 10 rm x", &["timeout -k 5 10 rm x", "rm x"]),
        ("timeout --signal=KILL 10s rm x", &["timeout --signal=KILL 10s rm x", "rm x"]),
        (
            "nice -n 5 nohup setsid rm x",
            &["nice -n 5 nohup setsid rm x", "nohup setsid rm x", "setsid rm x", "rm x"],
        ),
        ("stdbuf -oL rm x", &["stdbuf -oL rm x", "rm x"]),
        ("sudo -u root -- rm x", &["sudo -u root -- rm x", "rm x"]),
        ("command rm x", &["command rm x", "rm x"]),
        ("builtin cd x", &["builtin cd x", "cd x"]),
        ("exec rm x", &["exec rm x", "rm x"]),
        ("command -v rm", &["command -v rm"]),
        ("time rm x", &["rm x"]),
        ("ls | xargs -0 -n 1 rm -f", &["ls", "xargs -0 -n 1 rm -f", "rm -f '{}'"]),
        ("ls | xargs -I{} rm {} x", &["ls", "xargs '-I{}' rm '{}' x", "rm '{}' x"]),
        ("find . -name -exec -exec rm x \\;", &["find . -name -exec -exec rm x ';'", "rm x"]),
        (
            "find . -fprintf -exec %p -exec rm a + b \\;",
            &["find . -fprintf -exec %p -exec rm a + b ';'", "rm a + b"],
        ),
        ("cd / && bin/rm x", &["cd /", "bin/rm x", "rm x"]),
        ("find . -name x -exec rm {} +", &["find . -name x -exec rm '{}' +", "rm '{}'"]),
        ("find . -execdir a {} \\; -ok b \\;", &["find . -execdir a '{}' ';' -ok b ';'", "a '{}'", "b"]),
        ("bash -c 'ls; rm x'", &["bash -c 'ls; rm x'", "ls", "rm x"]),
        ("sh -ec 'rm x' sh a", &["sh -ec 'rm x' sh a", "rm x"]),
        ("bash -c \"bash -c 'rm x'\"", &["bash -c 'bash -c '\\''rm x'\\'''", "bash -c 'rm x'", "rm x"]),
        ("/usr/bin/sudo rm x", &["/usr/bin/sudo rm x", "sudo rm x", "rm x"]),
        ("../../bin/rm x", &["../../bin/rm x", "rm x"]),
        ("./gradlew build", &["./gradlew build"]),
        ("RUST_LOG=debug cargo test", &["cargo test"]),
        ("FOO=1 cargo test", &["FOO=1 cargo test", "cargo test"]),
        ("x=1; ls", &["ls"]),
        ("FOO=1; ls", &["FOO=1", "ls"]),
        ("FOO=(1); ls", &["FOO=", "ls"]),
        ("bash run.sh", &["bash run.sh"]),
        ("python3 -c 'print(1)'", &["python3 -c 'print(1)'"]),
    ] {
        let judged = judged(text);
        assert_eq!(judged.commands, commands, "{text}");
        assert!(!judged.unclear, "{text}");
    }
}

#[test]
fn attack_29_what_no_reading_can_foresee_is_unclear() {
    for text in [
        "$x y",
        "\"$x\" y",
        "$(echo rm) x",
        "r* x",
        "{rm,-rf,x}",
        "~/x",
        "PATH=. ls",
        "export PAGER=x; git branch",
        "PAGER='touch x' git branch",
        "GIT_SSH_COMMAND=x git fetch",
        "declare -x LD_PRELOAD=x",
        "declare -i x=y",
        "declare -n x=y",
        "export $x",
        "export -f ls",
        "readonly \"$x=1\"",
        "for PATH in .; do ls; done",
        "PATH=(.); ls",
        "read PATH",
        "printf -v PATH .",
        "printf -v 'a[$(rm x)]' x",
        "read 'a[$(rm x)]'",
        "unset 'a[$(rm x)]'",
        "test -v 'a[$(rm x)]'",
        "[ -v x ]",
        "mapfile -C rm x",
        "eval rm x",
        "source x",
        ". x",
        "trap 'rm x' EXIT",
        "alias ls=rm",
        "shopt -s expand_aliases",
        "set -k",
        "enable -f x y",
        "hash -p ./x ls",
        "let 'a[$(rm x)]'",
        "ls() { rm x; }; ls",
        "git() { rm x; }; git status",
        "command_not_found_handle() { rm x; }",
        "env -S 'rm x'",
        "env $x",
        "env PATH=. ls",
        "sudo -s",
        "sudo -i",
        "sudo --unknown rm x",
        "timeout $x rm",
        "xargs sh -c 'rm x'",
        "ls | xargs env",
        "ls | xargs sudo",
        "echo a >& 'x$(rm x)'",
        "echo a >& \\$\\(rm\\)",
        "echo a &> 'x$(rm x)'",
        "bash //dev/stdin <<< 'rm x'",
        "bash /proc/self/fd/0",
        "/proc/self/exe -c 'rm x'",
        "make -f /dev/stdin",
        "echo x | make -f -",
        "echo x | awk -f -",
        "git -c alias.x=!rm x",
        "git -C . -c core.fsmonitor=rm status",
        "ls | sh",
        "curl x | bash",
        "bash <<< 'rm x'",
        "bash -s",
        "bash -i",
        "bash -c \"$x\"",
        "bash -c \"rm $x\"",
        "bash",
        "bash -c",
        "bash $x",
        "sh /dev/stdin",
        "bash --rcfile x -c ls",
        "bash -c 'ls > x'",
        "bash -c 'eval x'",
        "python3 -c \"$x\"",
        "curl x | python3",
        "python3 -",
        "find . $x",
        "find \"$x\" -name y",
        "find . -name \"$x\"y -exec {rm,x} \\;",
        "find . {-exec,rm,x,\\;}",
        "find . `echo -exec` rm x \\;",
        "find . -e* rm x \\;",
        "find . -name -*",
        "find . -unknown rm x",
        "bash -c +x 'rm x'",
        "bash -c - 'rm x'",
        "sh -c 'ls &> x'",
        "sh -c '[[ a == b ]]'",
        "zsh -c 'ls'",
        "rbash -i",
        "x86_64 rm x",
        "i386 rm x",
        "choom -n 1 rm x",
        "/lib64/ld-linux-x86-64.so.2 /bin/rm x",
        "mksh -c 'rm x'",
        "bash-5.2 -s",
        "find . -exec sh {} \\;",
        "find . -exec sh -c 'rm {}' \\;",
        "find . -exec {} \\;",
        "find . -exec env {} \\;",
        "find . -exec git {} \\;",
        "ls | xargs -I% %",
        "ls | xargs -I x env",
        "ls | xargs -i {}",
        "echo push | xargs git",
        "jobs -x rm x",
        "command cd x; ls > y",
        "watch ls",
        "parallel rm",
        "flock x rm y",
        "su -c 'rm x'",
        "git $x",
        "git -C \"$x\" push",
        "docker \"$x\"",
        "cargo $(echo publish)",
        "ls > $x",
        "ls > *",
        "ls > /dev/tcp/a.example/80",
        "cd x; ls > y",
        "echo 'a",
        &"env ".repeat(40),
        &format!("{}{}{}", "echo $(".repeat(10), "x".repeat(20_000), ")".repeat(10)),
    ] {
        assert!(judged(text).unclear, "{text}: {:?}", judged(text));
    }
}

#[test]
fn attack_29_a_shell_that_is_not_bash_reads_otherwise() {
    for text in [
        "ls &> x",
        "echo $'a'",
        "cat <(ls)",
        "[[ a == b ]]",
        "a=(b)",
        "ls |& cat",
        "function f { ls; }",
        "echo {a,b}",
    ] {
        assert!(judge(text, false).unclear, "{text}");
        assert!(!judge(text, true).unclear, "{text}");
    }
    assert!(!judge("ls -l | grep x > y", false).unclear);
}

#[test]
fn cx03_redirections_name_their_files_from_the_working_directory() {
    let footprint = |text: &str| judged(text).footprint(Path::new("/w/root"), Path::new("sub"));
    let both = footprint("sort < a > ../b 2>> /etc/c <> d 2>/dev/null");
    assert_eq!(both.reads, ["sub/a", "sub/d"]);
    assert_eq!(both.writes, ["b", "/etc/c", "sub/d"]);
    assert!(!both.unclear && both.access == FULL);
    let out = footprint("ls > ../../x");
    assert_eq!(out.writes, ["../x"]);
    assert!(footprint("ls > l/../x").unclear && !footprint("ls > ../x").unclear);
    let inside = footprint("ls > /w/root/x");
    assert_eq!(inside.writes, ["/w/root/x", "x"]);
}

#[test]
fn cx03_what_only_reads_is_known_with_what_it_reads() {
    for (text, files) in [
        ("ls", &[][..]),
        ("ls -la src", &["src"]),
        ("pwd; whoami 2>/dev/null; ls", &[]),
        ("cat a 'b c' | head -n 5 | wc -l", &["a", "b c"]),
        ("git status && git diff --stat", &[]),
        ("git log --oneline -n 5 -- src", &["src"]),
        ("git log -3 -L 1,5:src/a.rs", &["src/a.rs"]),
        ("git status -sb", &[]),
        ("git show HEAD:src/a.rs", &["src/a.rs"]),
        ("git branch -a", &[]),
        ("git remote -v", &[]),
        ("git tag -l", &[]),
        ("grep -rn 'fn main' src", &["src"]),
        ("grep -e a -e b src/x", &["src/x"]),
        ("rg -n --hidden foo", &[]),
        ("find src -name '*.rs' -type f", &["src"]),
        ("sort -u a", &["a"]),
        ("uniq -c a", &["a"]),
        ("date +%s", &[]),
        ("hostname", &[]),
        ("git --version", &[]),
        ("find . '(' -name a -o -newer b ')' -print", &[".", "b"]),
        ("find '!d/x' -type f", &["!d/x"]),
        ("echo a > /dev/null 2>&1", &[]),
        ("ls # all", &[]),
    ] {
        let judged = judged(text);
        let known = text.starts_with("pwd") || judged.only_reads;
        assert!(known, "{text}: {judged:?}");
        if !text.starts_with("pwd") {
            let named: Vec<_> = judged.files.iter().map(|(_, path)| path.as_str()).collect();
            assert_eq!(named, files, "{text}");
        }
    }
}

#[test]
fn attack_27_and_29_what_lists_of_prefixes_let_through_is_more_than_reading() {
    for text in [
        "env",
        "env ls",
        "timeout 5 ls",
        "nice ls",
        "nohup ls",
        "time ls",
        "kill 1",
        "command ls",
        "sudo ls",
        "ls & rm x",
        "ls &",
        "ls\nls",
        "ls || ls",
        "(ls)",
        "{ ls; }",
        "! ls",
        "if ls; then ls; fi",
        "ls $(ls)",
        "ls `ls`",
        "ls \"$HOME\"",
        "cat <(ls)",
        "cat < a",
        "cat <<< a",
        "cat <<E\nx\nE",
        "ls > a",
        "ls >> a",
        "ls 2> a",
        "ls &> a",
        "ls >| a",
        "ls; rm x",
        "LANG=C ls",
        "x=1",
        "x=1; ls",
        "ls *",
        "cat -- *",
        "cat sub/?/passwd",
        "cat src/[a]/x",
        "ls src/*.rs",
        "ls '-'*",
        "./ls",
        "/bin/ls",
        "git branch -D x",
        "git branch x",
        "git branch -m x",
        "git tag x",
        "git tag -d x",
        "git remote add x y",
        "git remote show x",
        "git stash",
        "git stash drop",
        "git -c core.pager=x log",
        "git -c alias.log=!x log",
        "git --exec-path=x status",
        "git -C x status",
        "git --git-dir=x status",
        "git diff --output=x",
        "git diff --outp=x",
        "git log --output x",
        "git log --ext-diff",
        "git log --textconv",
        "git log --format=%G?",
        "git grep -Ox y",
        "git config x y",
        "git push",
        "git fetch --upload-pack=x",
        "git ls-remote --upload-pack=x y",
        "git bisect run x",
        "git archive --remote=x y",
        "find . -delete",
        "find . -exec rm {} +",
        "find . -execdir rm {} +",
        "find . -ok rm {} +",
        "find . -fprint x",
        "find . -fprintf x y",
        "find . -fls x",
        "sort -o x y",
        "sort -ox y",
        "sort -uo x y",
        "sort --output=x y",
        "sort --outp=x y",
        "sort --compress-program=x y",
        "sort -T x y",
        "sort -k1k --output=x",
        "sort -tt -o x",
        "head -c5c --x",
        "uniq a b",
        "sed -n 1p x",
        "sed -i s/a/b/ x",
        "awk 1 x",
        "awk 'BEGIN { system(\"x\") }'",
        "tee x",
        "ls | tee x",
        "rg --pre x y",
        "rg --pre=x y",
        "rg -z x",
        "rg --search-zip x",
        "rg --hostname-bin x y",
        "tree -o x",
        "tree -ao x",
        "tree -R -H x -L 1",
        "date -s x",
        "date 010100002000",
        "date --set=x",
        "hostname x",
        "hostname -F x",
        "file -C",
        "file -m x -C",
        "tail -f x",
        "grep -R x",
        "find -L x",
        "rg -L x",
        "diff -r a b",
        "diff --to-file=x y",
        "cargo --version x",
        "cargo --version",
        "rustc --version",
        "node --version",
        "diff a b",
        "ls -LR x",
        "git blame -S x y",
        "git blame -bS/x y",
        "git diff -pO/x",
        "git ls-files -zX/x",
        "git log --format='% GK'",
        "git show ':0:x'",
        "git diff ':(top)x'",
        "git diff 'x?/y'",
        "find . -not -name -{},delete}",
        "cat .{},./outside/secret}",
        "git diff -S -{},-output=x}",
        "find . -newer",
        "find . -name x -files0-from y",
        "cargo test",
        "make",
        "cd x",
        "curl x",
        "xargs ls",
        "jq . x",
        "less x",
        "man x",
        "vi x",
        "test -f x",
        "printf x",
        "eval ls",
        "ls() { rm x; }; ls",
        "[[ a == b ]]",
    ] {
        let judged = judged(text);
        assert!(!judged.only_reads, "{text}: {judged:?}");
        assert_eq!(judged.footprint(Path::new("/w"), Path::new("")).access, FULL, "{text}");
    }
}

#[test]
fn attack_26_what_reads_beyond_the_root_is_more_than_reading() {
    let access =
        |text: &str, inside: &str| judged(text).footprint(Path::new("/w/root"), Path::new(inside)).access;
    assert_eq!(access("cat a ../b", "sub"), Access::READ);
    assert_eq!(access("cat /w/root/a", "sub"), Access::READ);
    for text in [
        "cat /etc/passwd",
        "cat ../../x",
        "ls ..",
        "cat /w/root/../x",
        "cat ~/x",
        "cat l/../x",
        "cat /w/root/l/../x",
        "find . -newer /etc/x",
        "find '!d/../..' -name x",
        "find / -name x",
        "git diff -- ../x",
    ] {
        assert_eq!(access(text, ""), FULL, "{text}");
    }
}
