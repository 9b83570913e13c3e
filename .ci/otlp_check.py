"""Judges what otlp_receiver.py got of the run in bridges/otel/tests/otlp.rs.

usage: otlp_check.py FOLDER
"""

import json
import pathlib
import sys

folder = pathlib.Path(sys.argv[1])
INTERNAL, CLIENT, ERROR = 1, 3, 2
# The run's prompt, replies, arguments, results, the text of its error and its key all hold this word.
SECRET = b"hunter2"

spans = [json.loads(line) for line in (folder / "spans.jsonl").read_text().splitlines()]
by_id = {span["id"]: span for span in spans}
problems = []


def expect(holds, what):
    if not holds:
        problems.append(what)


def one(name, **wanted):
    found = [span for span in spans if span["name"] == name and wanted.items() <= span["attributes"].items()]
    expect(len(found) == 1, f"{len(found)} spans are called `{name}` with {wanted}")
    return found[0] if found else None


def holds(span, **wanted):
    for key, value in wanted.items():
        name = key.replace("__", ".")
        expect(span and span["attributes"].get(name) == value, f"{span and span['name']}: {name} is "
               f"{span and span['attributes'].get(name)!r}, not {value!r}")


def below(span, parent):
    name = span and by_id.get(span["parent"], {}).get("name", "nothing")
    expect(span and parent and span["parent"] == parent["id"], f"{span and span['name']} is below {name}")


lead = one("invoke_agent lead")
helper = one("invoke_agent helper")
ask = one("execute_tool ask")
tell = one("execute_tool tell")
chats = [span for span in spans if span["name"].startswith("chat ")]
names = sorted(span["name"] for span in spans)
expect(len(spans) == 7 and len(by_id) == 7, f"there are {len(spans)} spans: {names}")
expect(len(chats) == 3, f"there are {len(chats)} model calls: {names}")
expect(len({span["trace"] for span in spans}) == 1, "they are several traces")
expect(lead and lead["parent"] == "", "the root has a parent")
below(ask, lead)
below(tell, lead)
below(helper, ask)
for chat in chats:
    below(chat, helper if chat["attributes"].get("gen_ai.provider.name") == "other" else lead)
    expect(chat["kind"] == CLIENT, "a model call is not of the kind client")
    expect(isinstance(chat["attributes"].get("gen_ai.usage.input_tokens"), int), "no count of tokens is an integer")
    holds(chat, gen_ai__operation__name="chat", gen_ai__request__stream=True)
    expect(chat["name"] == f"chat {chat['attributes'].get('gen_ai.request.model')}", f"its name is {chat['name']}")
reasons = sorted(json.dumps(chat["attributes"].get("gen_ai.response.finish_reasons")) for chat in chats)
expect(reasons == ['["stop"]', '["stop"]', '["tool_call"]'], f"replies ended with {reasons}")
holds(lead, gen_ai__operation__name="invoke_agent", gen_ai__agent__name="lead", gen_ai__conversation__id="otlp-run",
      entourage__status="completed", entourage__steps=2)
holds(helper, gen_ai__agent__name="helper", entourage__agent__path="lead/helper")
holds(ask, gen_ai__operation__name="execute_tool", gen_ai__tool__name="ask", gen_ai__tool__type="function")
holds(tell, error__type="tool_error")
expect(tell and tell["status"] == ERROR and tell["said"] == "", "a failed call's span has no error status, or a text")
for span in spans:
    expect(span["resource"] == {"service.name": "entourage-ci"}, f"the resource is {span['resource']}")
    expect(span["start"] <= span["end"], f"{span['name']} ends before it begins")
    expect(span["kind"] in (INTERNAL, CLIENT), f"{span['name']} is of the kind {span['kind']}")
    content = [key for key in span["attributes"] if key.endswith((".messages", ".arguments", ".result"))]
    expect(not content, f"{span['name']} has {content}")
received = (folder / "bytes").read_bytes()
expect(SECRET not in received.lower(), "something that was said was sent")
expect(b"invoke_agent lead" in received, "the bytes hold no names; is that the right file?")

for problem in problems:
    print(f"otlp: {problem}", file=sys.stderr)
if problems:
    sys.exit(1)
print(f"otlp: {len(spans)} spans in {len(received)} bytes, one trace, nothing that was said")
