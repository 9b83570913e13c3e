#!/usr/bin/env python3
"""Writes models.tsv: windows, abilities and prices of the models that matter, from two MIT packages on PyPI.

    python3 agent-providers/catalog/generate.py [--date YYYY-MM-DD] [--litellm VERSION] [--genai-prices VERSION]

Only the standard library and pip are needed; nothing of the packages is run, their data files are read as data.
The same versions and date give the same file. Figures are carried over, never text.

Who says what: `litellm` has limits, abilities, prices and tiers and is the first source. `genai-prices` has prices with
the day from which they hold; it is the second opinion on prices, and the source for OpenRouter and for models that are
too new for the first. Where both state a price and differ, the one with a date wins; without a date, or where a figure
is not a whole number of micro-dollars per million tokens, the price is left out, since unknown is better than wrong.
Every such decision is printed.
"""

import argparse
import ast
import datetime
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from decimal import Decimal
from pathlib import Path

OUTPUT = Path(__file__).with_name("models.tsv")
PICO = Decimal(10) ** 12

# Our name of a service -> its names in litellm, in genai-prices, and as a maker on OpenRouter.
SERVICES = {
    "anthropic": ("anthropic", "anthropic", "anthropic"),
    "cerebras": ("cerebras", "cerebras", None),
    "cohere": ("cohere_chat", "cohere", "cohere"),
    "dashscope": ("dashscope", None, "qwen"),
    "deepseek": ("deepseek", "deepseek", "deepseek"),
    "fireworks": ("fireworks_ai", "fireworks", None),
    "gemini": ("gemini", "google", "google"),
    "groq": ("groq", "groq", None),
    "meta": ("meta", "meta", "meta"),
    "minimax": ("minimax", "minimax", "minimax"),
    "mistral": ("mistral", "mistral", "mistralai"),
    "moonshot": ("moonshot", "moonshotai", "moonshotai"),
    "openai": ("openai", "openai", "openai"),
    "perplexity": ("perplexity", "perplexity", "perplexity"),
    "together": ("together_ai", "together", None),
    "xai": ("xai", "x-ai", "x-ai"),
    "zai": ("zai", "zai", "z-ai"),
}
# These rent out other makers' models, many of them never meant for agents: there, only what calls tools is taken.
HOSTS = {"cerebras", "fireworks", "groq", "together"}
# Their documentation knows a JSON mode but no schema, whatever the first source says.
NO_SCHEMA = {"deepseek", "zai"}
# Their higher price begins at the bound, not above it; the first source's keys cannot say so.
FROM_THE_BOUND = {"xai"}
# What no agent talks to in text, what only one customer can call, and names of versions that were tried out.
LEFT_OUT = re.compile(
    r"(^|[-_/:.])(audio|realtime|live|tts|transcribe|translate|image|video|lyria\d*|voxtral|nano-banana|omni|ocr|embed\w*"
    r"|rerank\w*|guard|safeguard|safety|moderation|robotics|container|computer-use|ft"
    r"|learnlm|exp|experimental|beta|gv\d)([-_/:.]|$)"
)
SMALLEST_WINDOW = 64_000
VERSION = re.compile(r"(.*\d[-.])(\d{1,2})")
DATED = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2})$")

ABILITIES = {  # In the order of the file.
    "tools": "supports_function_calling",
    "vision": "supports_vision",
    "documents": "supports_pdf_input",
    "schema": "supports_response_schema",
    "reasoning": "supports_reasoning",
    "sampling": "supports_sampling_params",
}
FIELDS = ("input", "output", "cache_read", "cache_write")
LITELLM_PRICES = dict(
    zip(
        FIELDS,
        (
            "input_cost_per_token",
            "output_cost_per_token",
            "cache_read_input_token_cost",
            "cache_creation_input_token_cost",
        ),
    )
)
GENAI_PRICES = dict(zip(FIELDS, ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")))


class Inexact(Exception):
    """A price that the table cannot hold without changing it."""


# ---- fetching


def wheel(package, version, folder):
    """The wheel of `package` and its version."""
    wanted = f"{package}=={version}" if version else package
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    subprocess.run([*command, "--dest", str(folder), wanted], check=True)
    (path,) = folder.glob(f"{package.replace('-', '_')}-*.whl")
    archive = zipfile.ZipFile(path)
    (licence,) = [name for name in archive.namelist() if re.search(r"dist-info/licenses/LICENSE$", name)]
    if "MIT License" not in archive.read(licence).decode():
        sys.exit(f"{path.name}: {licence} is not the MIT licence any more; read it before you go on")
    return archive, path.name.split("-")[1]


def read_litellm(archive):
    text = archive.read("litellm/model_prices_and_context_window_backup.json")
    data = json.loads(text, parse_float=Decimal)
    data.pop("sample_spec")
    return data


def read_genai(archive):
    """The providers by id. The file is Python that only builds records, so its syntax tree is read, not run."""
    tree = ast.parse(archive.read("genai_prices/data.py"))
    (value,) = [node.value for node in tree.body if isinstance(node, ast.AnnAssign) and node.target.id == "providers"]
    return {provider["id"]: provider["models"] for provider in literal(value)}


def literal(node):
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        arguments = [literal(one) for one in node.args]
        if name == "Decimal":
            return Decimal(arguments[0])
        if name == "date":
            return datetime.date(*arguments)
        return {"kind": name, **{one.arg: literal(one.value) for one in node.keywords}}
    if isinstance(node, (ast.List, ast.Tuple)):
        return [literal(one) for one in node.elts]
    if isinstance(node, ast.Dict):
        return {literal(key): literal(value) for key, value in zip(node.keys, node.values)}
    return node.attr if isinstance(node, ast.Attribute) else ast.literal_eval(node)


# ---- prices: {"input": .., "output": .., "cache_read": .., "cache_write": .., "tiers": {above: {..}}} in pico-dollars


def pico(dollars):
    if dollars is None:
        return None
    value = Decimal(dollars) * PICO
    if value != value.to_integral_value() or value < 0:
        raise Inexact(f"{dollars} USD per token is no whole number of pico-dollars")
    return int(value)


def checked(prices):
    """`prices`, or None where they say nothing that may be relied on."""
    for one in (prices, *prices["tiers"].values()):
        # In the sources, a zero stands for "not stated", "not charged yet" or "at the price of input", not for free.
        for field in ("cache_read", "cache_write"):
            one[field] = one[field] or None
        if not one["input"] or not one["output"]:
            return None
        if one["cache_write"] and one["cache_write"] < one["input"]:
            raise Inexact("writing to the cache costs less than input: it is a fee on top")
        for field in ("cache_read", "cache_write"):
            if one is not prices and prices[field] and not one[field]:
                raise Inexact(f"a tier does not state {field}")
    return prices


def litellm_prices(service, row):
    if row.get("output_cost_per_reasoning_token", row.get("output_cost_per_token")) != row.get("output_cost_per_token"):
        raise Inexact("reasoning tokens have a price of their own")
    ranges = row.get("tiered_pricing")
    if ranges:
        if any("output_cost_per_reasoning_token" in one for one in ranges):
            raise Inexact("reasoning tokens have a price of their own")
        tiers = {int(one["range"][0]): {f: pico(one.get(key)) for f, key in LITELLM_PRICES.items()} for one in ranges}
        base = tiers.pop(0)
    else:
        base = {field: pico(row.get(key)) for field, key in LITELLM_PRICES.items()}
        found = [re.fullmatch(r"input_cost_per_token_above_(\d+)k_tokens", key) for key in row]
        tiers = {}
        for thousands in (one[1] for one in found if one):
            above = int(thousands) * 1000 - (service in FROM_THE_BOUND)
            names = {f: f"{key}_above_{thousands}k_tokens" for f, key in LITELLM_PRICES.items()}
            tiers[above] = {f: pico(row.get(name)) for f, name in names.items()}
    return checked({**base, "tiers": tiers})


def genai_prices(model, date):
    """The prices that hold at `date`, and whether they come with the day since which they do."""
    found, dated = model["prices"], False
    if isinstance(found, list):
        current = None
        for one in found:
            constraint = one.get("constraint")
            if constraint is None:
                current = current or one["prices"]
            elif constraint["kind"] != "StartDateConstraint":
                raise Inexact("the price depends on the hour")
            elif constraint["start_date"] <= date:
                current, dated = one["prices"], True
        found = current or {}
    stated = {field: found.get(key) for field, key in GENAI_PRICES.items()}
    bounds = {tier["start"] for price in stated.values() if isinstance(price, dict) for tier in price["tiers"]}
    base = {field: per_token(price, 0) for field, price in stated.items()}
    tiers = {above: {field: per_token(price, above) for field, price in stated.items()} for above in bounds}
    return checked({**base, "tiers": tiers}), dated


def per_token(price, above):
    if isinstance(price, dict):
        reached = [tier for tier in price["tiers"] if tier["start"] <= above]
        price = max(reached, key=lambda tier: tier["start"])["price"] if reached else price["base"]
    return None if price is None else pico(price / 1_000_000)


def agree(one, other, window):
    """Whether no figure that both state differs, for prompts that fit."""
    pairs = [(one, other)]
    bounds = [{above for above in prices["tiers"] if above < window} for prices in (one, other)]
    if bounds[0] != bounds[1]:
        return False
    pairs += [(one["tiers"][above], other["tiers"][above]) for above in bounds[0]]
    return all(a[f] == b[f] for a, b in pairs for f in FIELDS if a[f] is not None and b[f] is not None)


def settle(name, window, first, model, date, notes):
    """The prices of one model out of both sources."""
    second, dated = None, False
    try:
        # Such a name moves from version to version, and the second source has it under the version that it once meant.
        if model and not name.endswith("-latest"):
            second, dated = genai_prices(model, date)
    except Inexact as reason:
        notes.append(f"{name}: second opinion not used: {reason}")
    if first is None or second is None:
        return first or second
    if agree(first, second, window):
        # What only the second states is taken over; a cache price next to tiers would have to be there for each.
        if first["tiers"]:
            return first
        return {**first, **{f: second[f] for f in FIELDS if first[f] is None}, "tiers": second["tiers"]}
    shown = ", ".join(f"{f} {first[f]} or {second[f]}" for f in FIELDS if first[f] != second[f]) or "tiers"
    notes.append(f"{name}: sources differ ({shown}): {'the dated one is taken' if dated else 'no price'}")
    return second if dated else None


# ---- models


def matches(clause, name):
    """Whether a clause names exactly this model; prefixes and parts of names are too loose to take a price from."""
    if clause["kind"] == "ClauseOr":
        return any(matches(one, name) for one in clause["or_"])
    if clause["kind"] == "ClauseRegex":
        return clause["regex"].startswith("^") and clause["regex"].endswith("$") and re.search(clause["regex"], name)
    return name in (clause.get("equals"), clause.get("starts_with"))


def second_opinion(genai, service, name):
    models = genai.get(SERVICES[service][1], [])
    return next((model for model in models if model["id"] == name or matches(model["match"], name)), None)


def abilities(service, row):
    found = {ability: row[key] for ability, key in ABILITIES.items() if isinstance(row.get(key), bool)}
    if service == "anthropic":  # There, the general key only means that a forced tool can stand in for a schema.
        found.pop("schema", None)
        if isinstance(row.get("supports_native_structured_output"), bool):
            found["schema"] = row["supports_native_structured_output"]
    if service in NO_SCHEMA:
        found.pop("schema", None)
    return found


def whole(value):
    return int(value) if isinstance(value, (int, Decimal)) and value > 0 else None


def wanted(service, name, row, date):
    says = any(key.startswith("supports_") and value is True for key, value in row.items())
    return (
        row.get("mode") in ("chat", "responses")
        and not LEFT_OUT.search(name)
        and (whole(row.get("max_input_tokens")) or 0) >= SMALLEST_WINDOW
        and says
        and row.get("deprecation_date", "9999") >= date.isoformat()
        and (service not in HOSTS or row.get("supports_function_calling") is True)
        and (service != "fireworks" or name.startswith("accounts/fireworks/models/"))
    )


def from_litellm(litellm, genai, date, notes):
    """{(service, model): facts}, with `listed` off for those that do not belong into the file."""
    table = {}
    for service, (theirs, _, _) in SERVICES.items():
        rows = {}
        for key, row in litellm.items():
            if row.get("litellm_provider") == theirs:
                prefixed = key.startswith(f"{theirs}/")
                name = key[len(theirs) + 1 :] if prefixed else key
                if prefixed or name not in rows:
                    rows[name] = row
        for name, row in rows.items():
            listed = wanted(service, name, row, date)
            window, reply = whole(row.get("max_input_tokens")), whole(row.get("max_output_tokens"))
            if reply and window and reply >= window:
                reply = None  # The window was put in for want of a figure.
            label = f"{service} {name}"
            prices = None
            try:
                first, second = litellm_prices(service, row), second_opinion(genai, service, name)
                base = DATED.sub("", name)
                if not second and base in rows and litellm_prices(service, rows[base]) == first:
                    second = second_opinion(genai, service, base)
                prices = settle(label, window or 0, first, second, date, notes)
            except Inexact as reason:
                notes.append(f"{label}: no price: {reason}")
            table[service, name] = {
                "window": window,
                "output": reply,
                "abilities": abilities(service, row),
                "prices": prices,
                "listed": listed,
            }
    return table


def recent(model, date):
    """Whether OpenRouter lists it under a dated name of the last year."""
    days = re.findall(r"-(20\d{6})\b", json.dumps(model["match"]))
    return bool(days) and max(days) >= f"{date - datetime.timedelta(days=365):%Y%m%d}"


def from_genai(model, name, date, notes):
    if LEFT_OUT.search(model["id"]) or model.get("deprecated") or (model.get("context_window") or 0) < SMALLEST_WINDOW:
        return None
    prices = None
    try:
        prices, _ = genai_prices(model, date)
    except Inexact as reason:
        notes.append(f"{name}: no price: {reason}")
    return {"window": model["context_window"], "output": None, "abilities": {}, "prices": prices, "listed": True}


def add_openrouter(table, genai, date, notes):
    """OpenRouter's recent models of the makers above, and the makers' own that the first source does not have yet."""
    makers = {maker: service for service, (_, _, maker) in SERVICES.items() if maker}
    own = {(service, name.replace(".", "-")): facts for (service, name), facts in table.items()}
    for model in genai["openrouter"]:
        maker, _, short = model["id"].partition("/")
        if maker not in makers or ":" in short or not recent(model, date):
            continue
        service = makers[maker]
        facts = from_genai(model, f"openrouter {model['id']}", date, notes)
        if not facts:
            continue
        undotted = short.replace(".", "-")
        listed = own.get((service, undotted))
        if listed:  # What the model can do is the same there; schemas, documents and parameters depend on the service.
            same = ("tools", "vision", "reasoning")
            facts["abilities"] = {key: value for key, value in listed["abilities"].items() if key in same}
        table["openrouter", model["id"]] = facts
        for name in (short, undotted) if not listed else ():
            newer = next((one for one in genai.get(SERVICES[service][1], []) if one["id"] == name), None)
            facts = newer and from_genai(newer, f"{service} {name}", date, notes)
            if facts:
                table[service, name] = facts
                break


def add_successors(table, genai, date, notes):
    """What the first source does not have yet: a listed name but for its last number, which is above all of them."""
    last = {}
    for (service, name), facts in table.items():
        found = VERSION.fullmatch(name)
        if found and facts["listed"]:
            key = (service, found[1])
            last[key] = max(last.get(key, 0), int(found[2]))
    for service, (_, theirs, _) in SERVICES.items():
        for model in genai.get(theirs, ()):
            found = VERSION.fullmatch(model["id"])
            if found and int(found[2]) > last.get((service, found[1]), int(found[2])):
                facts = from_genai(model, f"{service} {model['id']}", date, notes)
                if facts:
                    table[service, model["id"]] = facts


def listed(table):
    """What belongs into the file, and what an alias (see alias.rs) would otherwise take for a model of other figures."""
    kept = {key: facts for key, facts in table.items() if facts["listed"]}
    for (service, name), facts in table.items():
        bases = {DATED.sub("", name), name.removesuffix("-latest")} - {name}
        others = [kept[service, base] for base in bases if (service, base) in kept]
        if not facts["listed"] and any({**other, "listed": False} != facts for other in others):
            kept[service, name] = facts
    return kept


# ---- writing


def price_cells(prices):
    return ["-" if prices[field] is None else str(prices[field]) for field in FIELDS]


def line(service, name, facts):
    stated = [key if facts["abilities"][key] else f"!{key}" for key in ABILITIES if key in facts["abilities"]]
    prices = facts["prices"]
    cells = [service, name, str(facts["window"] or "-"), str(facts["output"] or "-"), ",".join(stated) or "-"]
    cells += price_cells(prices) if prices else ["-"] * len(FIELDS)
    tiers = sorted(prices["tiers"].items()) if prices else []
    cells.append(" ".join(":".join([str(above), *price_cells(tier)]) for above, tier in tiers) or "-")
    return "\t".join(cells)


def header(date, versions, count):
    return f"""\
# Generated by catalog/generate.py: do not edit. A program's own figures go before these: see catalog::Catalog.
# date: {date}
# models: {count}
# source: litellm {versions[0]} from PyPI (model_prices_and_context_window_backup.json), MIT, Copyright (c) 2023 Berri AI
# source: genai-prices {versions[1]} from PyPI (data.py), MIT, Copyright (c) Pydantic Services Inc. 2025 to present
# Prices are whole micro-dollars per million tokens, which is pico-dollars per token; `-` is unknown, never zero. They are
# list prices of the service's normal tier at its dearest hour; fees per request or per search are not in them.
# Window: the longest prompt that the source states; where it counts the reply in, so does this.
# Tiers: the prompt must have more tokens than the first number; then the four prices, for the whole call.
# Abilities: `!` says no; what is not named is unknown.
# {chr(9).join(("vendor", "model", "window", "max_output", "abilities", *FIELDS, "tiers"))}
"""


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    today = datetime.datetime.now(datetime.timezone.utc).date()
    arguments.add_argument("--date", type=datetime.date.fromisoformat, default=today)
    arguments.add_argument("--litellm", metavar="VERSION")
    arguments.add_argument("--genai-prices", metavar="VERSION")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        first, first_version = wheel("litellm", options.litellm, Path(folder))
        second, second_version = wheel("genai-prices", options.genai_prices, Path(folder))
        with first, second:
            litellm, genai = read_litellm(first), read_genai(second)
    notes = []
    table = from_litellm(litellm, genai, options.date, notes)
    add_openrouter(table, genai, options.date, notes)
    add_successors(table, genai, options.date, notes)
    table = listed(table)
    lines = [line(*key, facts) for key, facts in sorted(table.items())]
    OUTPUT.write_text(header(options.date, (first_version, second_version), len(lines)) + "\n".join(lines) + "\n")
    named = {f"{service} {name}" for service, name in table}
    for note in notes:
        if note.split(":", 1)[0] in named or note.startswith("openrouter "):
            print(note, file=sys.stderr)
    priced = sum(1 for facts in table.values() if facts["prices"])
    print(f"{OUTPUT}: {len(lines)} models, {priced} with prices, {OUTPUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
