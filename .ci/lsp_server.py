"""A language server that finds nothing wrong. It notes the methods that it is sent in the file that LSP_LOG names."""

import json
import os
import sys


def message():
    """The next message; None at the end of input."""
    length = 0
    for line in iter(sys.stdin.buffer.readline, b""):
        if not line.strip():
            return json.loads(sys.stdin.buffer.read(length))
        name, value = line.split(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return None


def send(**fields):
    content = json.dumps({"jsonrpc": "2.0", **fields}).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n%s" % (len(content), content))
    sys.stdout.buffer.flush()


with open(os.environ["LSP_LOG"], "a", encoding="utf-8", buffering=1) as log:
    for request in iter(message, None):
        method, params = request.get("method"), request.get("params") or {}
        print(method, file=log)
        if method == "initialize":
            sync = {"openClose": True, "change": 1, "save": True}
            send(id=request["id"], result={"capabilities": {"textDocumentSync": sync}})
        elif method == "exit":
            break
        elif "id" in request:
            send(id=request["id"], result=None)
        elif method in ("textDocument/didOpen", "textDocument/didChange"):
            document = {key: params["textDocument"][key] for key in ("uri", "version")}
            send(method="textDocument/publishDiagnostics", params={**document, "diagnostics": []})
