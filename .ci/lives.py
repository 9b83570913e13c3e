"""Kills a team of three sizes and a planner with executors (SIGKILL) again and again, until each has come to its end.

    python3 .ci/lives.py URLS TESTS FOLDER [SEED]

URLS are those of three model servers, joined by commas; TESTS is the built test `peer` of the examples, whose tests
`lives_of_…` are one process each; FOLDER is an empty one. The moments are random and follow from SEED. Whatever the
models said, no completed step may have run twice: that is counted in the SQLite file of each, by SQL.
"""

import os
import pathlib
import random
import signal
import sqlite3
import subprocess
import sys
import time

# Processes that are killed, at most, and seconds of the one that is not.
KILLS = 10
PATIENCE = 60

# Each finds work that ran once more after it was complete.
AGAIN = {
    "a node that was done began again": """
        SELECT done.session, done.json_body ->> '$.value.node' FROM events AS done
        JOIN events AS begun ON begun.session = done.session AND begun.run = done.run AND begun.seq > done.seq
            AND begun.kind = 'record:graph.node_started'
            AND begun.json_body ->> '$.value.node' = done.json_body ->> '$.value.node'
        WHERE done.kind = 'record:graph.node_finished' AND done.json_body -> '$.value.end.completed' IS NOT NULL""",
    "an attempt ended twice": """
        SELECT session, json_body ->> '$.value.node' FROM events WHERE kind = 'record:graph.node_finished'
        GROUP BY session, run, json_body ->> '$.value.node', json_body ->> '$.value.attempt' HAVING count(*) > 1""",
    "the work began anew": """
        SELECT session FROM events WHERE kind = 'run_started' AND session IN ('team', 'planner')
        GROUP BY session HAVING count(*) > 1""",
    "a run ended twice": """
        SELECT session, run FROM events WHERE kind = 'run_finished' GROUP BY session, run HAVING count(*) > 1""",
    "a call of a model that was answered was made again": """
        SELECT done.session, done.json_body ->> '$.request' FROM events AS done
        JOIN events AS begun ON begun.session = done.session AND begun.run = done.run AND begun.seq > done.seq
            AND begun.kind = 'model_started' AND begun.json_body ->> '$.step' = done.json_body ->> '$.step'
        WHERE done.kind = 'model_finished' AND done.json_body -> '$.error' IS NULL""",
    "a tool call that was answered was made again": """
        SELECT done.session, done.json_body ->> '$.result.call' FROM events AS done
        JOIN events AS other ON other.session = done.session AND other.seq > done.seq
            AND (other.kind = 'tool_started' AND other.json_body ->> '$.call' = done.json_body ->> '$.result.call'
                OR other.kind = 'tool_finished'
                    AND other.json_body ->> '$.result.call' = done.json_body ->> '$.result.call')
        WHERE done.kind = 'tool_finished'""",
    "a message between planner and executor was said twice": """
        SELECT session, json_body ->> '$.value.turn' FROM events WHERE kind = 'record:planner.message'
        GROUP BY session, json_body ->> '$.value.turn',
                 json_body ->> '$.value.kind' IN ('task_assignment', 'clarification') HAVING count(*) > 1""",
    "a plan was made twice": """
        SELECT session, run FROM events WHERE kind = 'record:team.planned'
            OR kind = 'record:planner.progress' AND json_body -> '$.value.plan_created' IS NOT NULL
        GROUP BY session, run HAVING count(*) > 1""",
}
COUNTS = {
    "nodes": "SELECT count(*) FROM events WHERE kind = 'record:graph.node_finished'",
    "model calls": "SELECT count(*) FROM events WHERE kind = 'model_finished'",
    "tool calls": "SELECT count(*) FROM events WHERE kind = 'tool_finished'",
    "models": "SELECT count(DISTINCT json_body ->> '$.model') FROM events WHERE kind = 'model_started'",
    "resumed": "SELECT count(*) FROM events WHERE kind = 'run_resumed' AND session IN ('team', 'planner')",
}


def fail(text):
    sys.exit(f"FAILED: lives: {text}")


class Life:
    """The processes of one run."""

    def __init__(self, urls, tests, folder, name):
        self.name, self.folder = name, folder / name
        self.folder.mkdir()
        self.command = [tests, f"lives::lives_of_a_{name}", "--exact", "--ignored", "--nocapture"]
        kept = {key: value for key, value in os.environ.items() if key in ("PATH", "LANG", "TMPDIR")}
        self.env = {**kept, "LIVES": str(self.folder), "LIVES_URLS": urls}

    def process(self, seconds):
        """Runs a process for at most this time; returns what it said if it came to its end."""
        with open(self.folder / "log", "a+b") as log:
            began = log.seek(0, os.SEEK_END)
            child = subprocess.Popen(self.command, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                code = child.wait(seconds)
            except subprocess.TimeoutExpired:
                child.send_signal(signal.SIGKILL)
                code = child.wait()
            log.seek(began)
            said = log.read().decode(errors="replace")
        if code == -signal.SIGKILL:
            # One that was killed after its end has nothing to go on with.
            return f"{self.name} ended: its process was killed after that" if self.is_over() else None
        if code != 0 or f"{self.name} ended: " not in said:
            fail(f"{self.name} ended with {code}: {said}")
        return next(line for line in said.splitlines() if f"{self.name} ended: " in line).strip()

    def is_over(self):
        file = self.folder / "lives.db"
        if not file.exists():
            return False
        with sqlite3.connect(file) as db:
            sql = "SELECT count(*) FROM sqlite_schema WHERE name = 'events'"
            if not db.execute(sql).fetchone()[0]:
                return False
            sql = "SELECT count(*) FROM events WHERE session = ? AND kind = 'run_finished'"
            return db.execute(sql, (self.name,)).fetchone()[0] > 0

    def run(self, moments):
        killed = 0
        for _ in range(KILLS):
            end = self.process(moments.uniform(0.1, 0.5))
            if end is not None:
                return killed, end
            killed += 1
        end = self.process(PATIENCE)
        if end is None:
            fail(f"{self.name} did not end within {PATIENCE} s")
        return killed, end

    def check(self):
        with sqlite3.connect(self.folder / "lives.db") as db:
            for text, sql in AGAIN.items():
                found = db.execute(sql).fetchall()
                if found:
                    fail(f"{self.name}: {text}: {found[:10]}")
            counts = {text: db.execute(sql).fetchone()[0] for text, sql in COUNTS.items()}
        for notes in self.folder.glob("note.txt"):
            keys = notes.read_text().split()
            if len(set(keys)) < len(keys):
                fail(f"{self.name}: a call that may not be repeated ran twice: {keys}")
        return counts


def main():
    urls, tests = sys.argv[1:3]
    folder = pathlib.Path(sys.argv[3])
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    for name, models in (("team", 3), ("planner", 2)):
        began = time.monotonic()
        life = Life(urls, tests, folder, name)
        killed, end = life.run(random.Random(f"{seed} {name}"))
        counts = life.check()
        if counts["models"] != models or not killed or not counts["resumed"] or not counts["nodes"]:
            fail(f"{name}: {killed} kills, {counts}")
        told = ", ".join(f"{count} {text}" for text, count in counts.items())
        print(f"{end}; killed {killed} times, {told}, nothing twice, {time.monotonic() - began:.0f} s")


main()
