"""Judges a run of the quickstart by what it printed and by what it stored.

usage: quickstart.py scripted|resumed|real OUTPUT SESSIONS

scripted: no model was there, a scripted one stood in and said so.
resumed:  the same session was continued by the command that the first run printed.
real:     a model server answered every call and no scripted model any.

Prints the command that goes on with the session. What is wrong goes to standard error, exit code 1.
"""

import json
import re
import sys
from pathlib import Path


def main(kind, output_path, directory):
    with open(output_path, encoding="utf8") as file:
        output = file.read()
    problems = []

    def check(holds, problem):
        if not holds:
            problems.append(problem)

    session = re.search(r"^session +(\S+) in ", output, re.M)
    command = re.search(r"^resume +(\S.*--resume (\S+))$", output, re.M)
    check(session, "the output has no `session` line with an id")
    check(command, "the output has no `resume` line with a command")
    if session and command:
        check(session[1] == command[2], f"the command resumes {command[2]}, the session is {session[1]}")
    stands_in = "scripted model stands in" in output
    if kind == "real":
        check(not stands_in, "a scripted model stood in although a server was named")
    else:
        check(stands_in, "the output does not say that a scripted model stands in; is a model server on this machine?")

    sessions, bodies = set(), {}
    for path in Path(directory).glob("*.jsonl"):
        head, *commits = map(json.loads, path.read_text(encoding="utf8").splitlines())
        sessions.add(head["session"]["id"])
        for event in (event for commit in commits for event in commit.get("events", [])):
            bodies.setdefault(event["kind"], []).append(event["body"])
    check(not session or sessions == {session[1]}, f"the directory holds the sessions {sorted(sessions)}, not the one shown")
    runs = 2 if kind == "resumed" else 1
    finished = [body["outcome"].get("status") for body in bodies.get("run_finished", [])]
    check(finished == ["completed"] * runs, f"{runs} completed runs are expected, stored are {finished}")
    check(len(bodies.get("run_started", [])) == runs, f"{len(bodies.get('run_started', []))} runs were started, not {runs}")
    check(bodies.get("tool_finished"), "no tool was called")
    providers = {body["provider"] for body in bodies.get("model_started", [])}
    if kind == "real":
        check(providers and "scripted" not in providers, f"the models that were called belong to {sorted(providers)}")
        failed = [body["error"] for body in bodies.get("model_finished", []) if body.get("error")]
        check(not failed, f"model calls failed: {failed}")
    else:
        check(providers == {"scripted"}, f"the models that were called belong to {sorted(providers)}")

    for problem in problems:
        print(f"quickstart ({kind}): {problem}", file=sys.stderr)
    if command:
        print(command[1])
    return 1 if problems else 0


sys.exit(main(*sys.argv[1:]))
