"""table.py FIGURES COST: the tables of a run, as Markdown."""

import collections
import glob
import json
import re
import statistics
import sys

OURS = ["entourage", "entourage, stored"]
PROGRAMS = ["floor", *OURS, "rig", "adk-rust", "swiftide", "autoagents", "graph-flow", "genai"]
WORKLOADS = [
    ("turn_2", "model turn, run of 2, CPU", "µs"),
    ("turn_2_allocations", "the same, allocations", ""),
    ("turn_51", "model turn, run of 51, CPU", "µs"),
    ("turn_51_allocations", "the same, allocations", ""),
    ("loop_1000", "run of 1,000 tool turns, CPU", "ms"),
    ("chat_1000", "chat of 1,000 user turns, CPU", "ms"),
    ("tools_32", "32 tools of 1 ms at once, wall", "ms"),
    ("delta", "streamed delta in process, CPU", "ns"),
    ("wire", "streamed delta over HTTP, CPU", "µs"),
    ("streams_wall", "1,000 streams at once, wall", "ms"),
    ("streams_cpu", "the same, CPU", "ms"),
    ("streams_memory", "the same, peak memory", "MB"),
    ("login", "graph of 6 steps, CPU a step", "µs"),
    ("chain", "graph of 1,000 in a chain, CPU a step", "µs"),
    ("layers", "graph of 10 × 100, all to all, CPU a step", "µs"),
    ("heap", "heap of an idle agent", "B"),
    ("runs_wall", "1,000 runs of 5 turns of 10 ms, wall", "ms"),
    ("runs_cpu", "the same, CPU", "ms"),
]


def figures(folder):
    """The least of all rounds: what else runs on the machine can only add."""
    found = collections.defaultdict(list)
    for path in glob.glob(f"{folder}/round-*.tsv"):
        for line in open(path):
            label, workload, least, _ = line.rstrip("\n").split("\t")
            found[label, workload].append(float(least))
    spread = [max(values) / min(values) for values in found.values() if min(values) > 0]
    if spread:
        print(f"Least of {max(map(len, found.values()))} rounds; the least of one round was up to"
              f" {max(spread):.1f} times another's, in the middle {statistics.median(spread):.2f} times.\n")
    return {key: min(values) for key, values in found.items()}


def short(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def row(cells):
    print("| " + " | ".join(cells) + " |")


def table(figure):
    labels = [label for label in PROGRAMS if any(key[0] == label for key in figure)]
    print("Figures, and in brackets how many times the floor:\n")
    row(["work", *labels, "best peer over ours"])
    row(["---"] * (len(labels) + 2))
    for workload, name, unit in WORKLOADS:
        values = {label: figure.get((label, workload)) for label in labels}
        floor = values.get("floor")
        cells = [short(value) + (f" ({value / floor:.3g})" if value and floor and label != "floor" else "")
                 for label, value in values.items()]
        ours = next((values[label] for label in OURS if values.get(label)), None)
        peers = [(value, label) for label, value in values.items() if value and label not in ["floor", *OURS]]
        best = f"{min(peers)[0] / ours:.2f} {min(peers)[1]}" if peers and ours else "-"
        row([f"{name}{', ' if unit else ''}{unit}", *cells, best])
    print("\nTimes ours (below 1: we are behind). Ours is the way without a store, and for a chat, which has no such way, the stored one:\n")
    others = [label for label in labels if label != "entourage"]
    row(["work", *others])
    row(["---"] * (len(others) + 1))
    for workload, name, _ in WORKLOADS:
        ours = next((figure[label, workload] for label in OURS if (label, workload) in figure), None)
        if ours:
            values = [figure.get((label, workload)) for label in others]
            row([name, *[f"{value / ours:.2f}" if value is not None else "-" for value in values]])


def costs(folder, cost):
    """CPU seconds and packages below each program, by the units that cargo names as its parts."""
    spent = {}
    for line in open(cost):
        kind, unit, _, user, system = line.split()
        spent[kind, unit] = float(user) + float(system)
    print("\nBuilding, with what each program here needs and without the program itself:\n")
    row(["program", "crates", "CPU, s"])
    row(["---"] * 3)
    for program in ["floor", "entourage-default", *PROGRAMS]:
        try:
            lines = [json.loads(line) for line in open(f"{folder}/{program}.json")]
        except FileNotFoundError:
            continue
        if program == "floor" and program in done:
            continue
        done.add(program)
        parts = [line for line in lines if line["reason"] == "compiler-artifact" and "/peers/" not in line["manifest_path"]]
        units = set()
        for part in parts:
            for path in part["filenames"]:
                match = re.search(r"-([0-9a-f]{16})(/build-script-[\w-]+)?(\.\w+)?$", path)
                if match:
                    units.add(match.group(1))
        known = [spent.get(("rustc", unit)) for unit in units]
        total = sum(value for value in known if value is not None) + sum(spent.get(("script", unit), 0) for unit in units)
        crates = len({part["package_id"] for part in parts})
        row([program, str(crates), f"{total:.0f}" + ("" if None not in known else " at least")])


done = set()
table(figures(sys.argv[1]))
costs(sys.argv[1], sys.argv[2])
