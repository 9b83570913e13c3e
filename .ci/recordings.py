"""Judges the last line of compare_cassettes.py, read from standard input: none failed, and few are skipped.

How few is known for the whole collection only: of other recordings just none may fail.
"""

import re
import sys

WHOLE, LEAST = 447, 438  # At most 2 % are skipped.


def problem(line):
    """What is wrong with the result, or None."""
    found = re.fullmatch(r"cassettes: (\d+) passed, (\d+) failed, (\d+) skipped", line)
    if not found:
        return f"the last line is no result: {line!r}"
    passed, failed, skipped = map(int, found.groups())
    if failed or not passed:
        return f"{failed} failed, {passed} passed"
    if passed + skipped == WHOLE and passed < LEAST:
        return f"only {passed} of {WHOLE} passed, at least {LEAST} must"
    return None


def self_test():
    for line, holds in [
        ("cassettes: 447 passed, 0 failed, 0 skipped", True),
        ("cassettes: 438 passed, 0 failed, 9 skipped", True),
        ("cassettes: 437 passed, 0 failed, 10 skipped", False),
        ("cassettes: 446 passed, 1 failed, 0 skipped", False),
        ("cassettes: 3 passed, 0 failed, 10 skipped", True),
        ("cassettes: 0 passed, 0 failed, 447 skipped", False),
        ("446 cuts tried", False),
        ("", False),
    ]:
        assert (problem(line) is None) is holds, line


self_test()
lines = sys.stdin.read().splitlines()
wrong = problem(lines[-1] if lines else "")
if wrong:
    print(f"recordings: {wrong}", file=sys.stderr)
sys.exit(1 if wrong else 0)
