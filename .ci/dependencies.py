"""Checks every crate that the workspace can pull in, on any platform, against dependencies.toml.

usage: cargo metadata --format-version 1 --locked | dependencies.py dependencies.toml

Why not cargo-deny: building it takes many minutes, and its main strength, the advisories, is a repository on GitHub that
need not be reachable here. Licences, bans and versions are all in `cargo metadata`. Arrows between this workspace's
crates, and what the core may not pull in, are in tests/architecture.rs.
"""

import collections
import json
import re
import sys
import tomllib


def allowed(expression, licences):
    """Whether an SPDX expression can be satisfied with `licences`. AND binds closer than OR; `/` is an old OR."""
    tokens = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))
    at = 0

    def either():
        nonlocal at
        value = both()
        while at < len(tokens) and tokens[at] == "OR":
            at += 1
            other = both()
            value = value or other
        return value

    def both():
        nonlocal at
        value = one()
        while at < len(tokens) and tokens[at] == "AND":
            at += 1
            other = one()
            value = value and other
        return value

    def one():
        nonlocal at
        if at >= len(tokens):
            raise ValueError(expression)
        token = tokens[at]
        at += 1
        if token == "(":
            value = either()
            if at >= len(tokens) or tokens[at] != ")":
                raise ValueError(expression)
            at += 1
            return value
        if at + 1 < len(tokens) and tokens[at] == "WITH":
            token = f"{token} WITH {tokens[at + 1]}"
            at += 2
        return token in licences

    value = either()
    if at != len(tokens):
        raise ValueError(expression)
    return value


def number(version):
    return tuple(int(part) for part in re.split(r"[-+]", version)[0].split("."))


def self_test():
    have = {"MIT", "Apache-2.0 WITH LLVM-exception", "ISC"}
    for expression, expected in [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("GPL-3.0-only OR MIT", True),
        ("GPL-3.0-only/MIT", True),
        ("MIT AND GPL-3.0-only", False),
        ("(GPL-3.0-only OR MIT) AND ISC", True),
        ("GPL-3.0-only OR MIT AND BSD-4-Clause", False),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("Apache-2.0", False),
    ]:
        assert allowed(expression, have) is expected, expression
    assert number("1.10.0-rc.1") > number("1.9.3")


def main(rules_path):
    self_test()
    with open(rules_path, "rb") as file:
        rules = tomllib.load(file)
    packages = json.load(sys.stdin)["packages"]
    outside = [package for package in packages if package["source"]]
    licences, problems = set(rules["licences"]), []
    versions = collections.defaultdict(set)
    for package in outside:
        name, version = package["name"], package["version"]
        versions[name].add(version)
        shown = f"{name} {version}"
        if not package["source"].startswith("registry+https://github.com/rust-lang/crates.io-index"):
            problems.append(f"{shown} comes from {package['source']}, not from crates.io")
        if not package["license"]:
            problems.append(f"{shown} names no licence")
        else:
            try:
                if not allowed(package["license"], licences):
                    problems.append(f"{shown} is under {package['license']}, which dependencies.toml does not allow")
            except ValueError:
                problems.append(f"{shown} has a licence that cannot be read: {package['license']}")
        if reason := rules["banned"].get(name):
            problems.append(f"{shown} is banned: {reason}")
        least, reason = rules["at_least"].get(name, ("0", ""))
        if number(version) < number(least):
            problems.append(f"{shown} is older than {least}: {reason}")
    for name in rules["one_version"]:
        if len(versions[name]) > 1:
            problems.append(f"{name} is there in {len(versions[name])} versions: {', '.join(sorted(versions[name]))}")
    for package in packages:
        if not package["source"] and package["license"] != "MIT OR Apache-2.0":
            problems.append(f"{package['name']} of this workspace is under {package['license']}")
    twice = sorted(name for name, found in versions.items() if len(found) > 1)
    print(f"{len(outside)} crates of crates.io; in more than one version: {', '.join(twice) or 'none'}")
    if len(outside) < 50:
        problems.append("hardly any crate was found; is the input `cargo metadata` with dependencies?")
    for problem in problems:
        print(f"dependencies: {problem}", file=sys.stderr)
    return 1 if problems else 0


sys.exit(main(sys.argv[1]))
