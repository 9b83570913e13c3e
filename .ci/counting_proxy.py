"""Stands between a program and an HTTP service on this machine and writes a line for each request that was answered.

usage: counting_proxy.py http://HOST:PORT LOG

Prints its own address and runs until it is killed. The log has `METHOD PATH STATUS`, nothing of headers or bodies.
"""

import http.client
import http.server
import sys
import urllib.parse

UPSTREAM = urllib.parse.urlsplit(sys.argv[1])
LOG = open(sys.argv[2], "a", encoding="utf8", buffering=1)
# Belong to one connection, not to the message.
HOP = {"connection", "keep-alive", "transfer-encoding", "host", "proxy-connection", "upgrade", "te"}


class Proxy(http.server.BaseHTTPRequestHandler):
    # Version 1.0: the end of a streamed body is the end of the connection.
    protocol_version = "HTTP/1.0"

    def forward(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
        upstream = http.client.HTTPConnection(UPSTREAM.hostname, UPSTREAM.port, timeout=300)
        try:
            upstream.request(self.command, self.path, body=body or None, headers=headers)
            answer = upstream.getresponse()
            LOG.write(f"{self.command} {self.path} {answer.status}\n")
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in HOP:
                    self.send_header(name, value)
            self.end_headers()
            while piece := answer.read1(65536):
                self.wfile.write(piece)
                self.wfile.flush()
        except ConnectionError:
            pass  # One side left; the other sees its connection end.
        finally:
            upstream.close()

    do_GET = do_POST = forward

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
