"""A collector of spans: takes OTLP over HTTP with protobuf on 127.0.0.1, and writes what it got.

usage: otlp_receiver.py FOLDER

Writes FOLDER/url once it listens, then a line of JSON for each span to FOLDER/spans.jsonl and all bytes of the bodies to
FOLDER/bytes. Needs the package opentelemetry-proto, whose generated code is the judge of what is well-formed. What is not
is answered with 400. A request without the header `x-otlp-key: receiver-key` is answered with 401.
"""

import http.server
import json
import pathlib
import sys

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

folder = pathlib.Path(sys.argv[1])


def plain(value):
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(one) for one in value.array_value.values]
    return None if kind is None else getattr(value, kind)


def attributes(pairs):
    return {pair.key: plain(pair.value) for pair in pairs}


def spans(request):
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield {
                    "resource": attributes(resource.resource.attributes),
                    "scope": scope.scope.name,
                    "trace": span.trace_id.hex(),
                    "id": span.span_id.hex(),
                    "parent": span.parent_span_id.hex(),
                    "name": span.name,
                    "kind": span.kind,
                    "status": span.status.code,
                    "said": span.status.message,
                    "start": span.start_time_unix_nano,
                    "end": span.end_time_unix_nano,
                    "attributes": attributes(span.attributes),
                    "events": [{"name": it.name, "attributes": attributes(it.attributes)} for it in span.events],
                }


class Receiver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path != "/v1/traces" or self.headers["Content-Type"] != "application/x-protobuf":
            return self.answer(404)
        if self.headers["x-otlp-key"] != "receiver-key":
            return self.answer(401)
        request = ExportTraceServiceRequest()
        try:
            request.ParseFromString(body)
        except DecodeError:
            return self.answer(400)
        with open(folder / "bytes", "ab") as file:
            file.write(body)
        with open(folder / "spans.jsonl", "a") as file:
            for span in spans(request):
                file.write(json.dumps(span) + "\n")
        return self.answer(200, ExportTraceServiceResponse().SerializeToString())

    def answer(self, status, body=b""):
        self.send_response(status)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
url = folder / "url.part"
url.write_text(f"http://127.0.0.1:{server.server_port}\n")
url.rename(folder / "url")
server.serve_forever()
