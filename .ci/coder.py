"""Drives the example `coder` by a real model server in each mode, and checks what it left behind.

    python3 .ci/coder.py URL CODER REPOSITORY FOLDER [PROMPTS]

URL is the server's, CODER the built example, REPOSITORY what is copied for each mode, FOLDER an empty one. The model's words
are gibberish, so what it asks for is anything: nothing outside of the workspace may change, nothing at all in the modes
`read` and `plan`, and `--rewind` must give back what there was, byte for byte.
"""

import hashlib
import os
import pathlib
import re
import subprocess
import sys

MODES = ("read", "plan", "ask", "edit", "full")
# The most prompts until a call may have changed something.
PATIENCE = 25


def fail(text):
    sys.exit(f"FAILED: coder: {text}")


def tree(root, without=()):
    """What is below a folder: paths, modes, contents and targets of links."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root)
        if name.parts[0] in without:
            continue
        mode = path.lstat().st_mode
        if path.is_symlink():
            what = os.readlink(path)
        elif path.is_file():
            what = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            what = ""
        found[str(name)] = (mode, what)
    return found


def differences(before, after):
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))[:10]


class Place:
    def __init__(self, url, coder, repository, folder, mode):
        self.mode, self.coder = mode, coder
        self.folder = folder / mode
        self.workspace = self.folder / "workspace"
        self.folder.mkdir()
        subprocess.run(["git", "clone", "-q", str(repository), str(self.workspace)], check=True)
        home = self.folder / "home"
        home.mkdir()
        (home / ".netrc").write_text("machine example.com login me password secret\n")
        (self.folder / "beside.txt").write_text("not yours\n")
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "TMPDIR")}
        self.env = {**kept, "HOME": str(home), "OPENAI_BASE_URL": f"{url}/v1"}
        self.outside = tree(self.folder, ("workspace", "state"))
        self.begin()

    def begin(self):
        """Takes what is in the workspace for what a way back leads to."""
        self.inside = tree(self.workspace, (".git",))

    def run(self, *arguments):
        words = [self.coder, "--dir", self.workspace, "--state", self.folder / "state", "--mode", self.mode, *arguments]
        done = subprocess.run(
            words, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, errors="replace"
        )
        text = done.stdout + done.stderr
        if done.returncode not in (0, 1) or "panicked" in text:
            fail(f"mode {self.mode} ended with {done.returncode}: {text}")
        return text

    def check_outside(self):
        changed = differences(self.outside, tree(self.folder, ("workspace", "state")))
        if changed:
            fail(f"mode {self.mode} changed {changed} outside of the workspace")

    def kept(self, runs):
        """True if a snapshot was taken before one of these runs changed anything."""
        words = ["git", "-C", self.workspace, "for-each-ref", "--format=%(refname:lstrip=-1)", "refs/entourage/snapshots"]
        kept = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
        return not set(runs).isdisjoint(kept)

    def changed(self):
        return differences(self.inside, tree(self.workspace, (".git",)))


def main():
    url, coder, repository, folder = sys.argv[1], *map(pathlib.Path, sys.argv[2:5])
    prompts = int(sys.argv[5]) if len(sys.argv) > 5 else 1
    calls = 0
    for mode in MODES:
        place = Place(url, coder, repository, folder, mode)
        session, runs, waits = None, [], 0
        for number in range(PATIENCE):
            if number >= prompts and (mode not in ("edit", "full") or place.kept(runs)):
                break
            text = place.run(*(["--resume", session] if session else []), "Change a file, and run a command.")
            ids = re.findall(r"--resume (\S+) --rewind (\S+)", text)
            if not ids:
                fail(f"mode {mode} told no session: {text}")
            # What waits for a person is left behind: nobody is here.
            waiting = "nobody is here" in text
            waits += waiting
            calls += len(re.findall(r"^\S+ (?:done|failed|exit code)", text, re.M))
            session = ids[-1][0]
            runs.append(ids[-1][1])
            # Words such as `bash ls` need no way back, and a call that failed may have been refused before it ran.
            if re.search(r"^(?:write|edit|multiedit) done", text, re.M) and not place.kept(runs[-1:]):
                fail(f"mode {mode} changed a file, and kept no snapshot: {text}")
            if waiting:
                session, runs = None, []
                if mode in ("edit", "full"):
                    place.begin()
            place.check_outside()
        if mode in ("read", "plan") and place.changed():
            fail(f"mode {mode} changed {place.changed()}")
        way_back = mode in ("edit", "full") and place.kept(runs)
        if way_back:
            # As a command would, by whose snapshot all of this is taken back.
            (place.workspace / "README.md").write_text("changed\n")
            (place.workspace / "new" / "file").parent.mkdir(exist_ok=True)
            (place.workspace / "new" / "file").write_text("new\n")
            (place.workspace / "LICENSE-MIT").unlink()
            text = place.run("--resume", session, "--rewind", runs[0])
            if "restored README.md" not in text or place.changed():
                fail(f"mode {mode}: the way back left {place.changed()} changed: {text}")
        place.check_outside()
        print(f"coder in mode {mode}: {waits} runs wait for a person, {'a way back' if way_back else 'no change'}")
    print(f"{calls} calls in {len(MODES)} modes, nothing outside changed")


main()
