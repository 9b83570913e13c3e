#!/usr/bin/env bash
# The client and the server against what others made of the Model Context Protocol: the conformance suite of npm, the
# reference server, and a server and a client on the official Python SDK. Exits with 77 where they cannot be had; the last
# line is the result.
#
#     bash .ci/mcp.sh DIRECTORY      installs into the directory, or finds it there
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p "$1"
place=$(cd "$1" && pwd)
target=${CARGO_TARGET_DIR:-target}
if ! command -v npm >/dev/null; then
  echo 'there is no npm: the MCP suite was not run'
  exit 77
fi
if [ ! -x "$place/node_modules/.bin/conformance" ]; then
  npm install --silent --no-audit --no-fund --prefix "$place" node@22 @modelcontextprotocol/conformance@0.1.16 \
    @modelcontextprotocol/server-everything@2026.8.31 >"$place/npm.log" 2>&1 || {
    echo 'npm could not install the MCP suite: it was not run'
    exit 77
  }
fi
# The suite needs Node 22, which npm brings.
export PATH=$place/node_modules/node/bin:$place/node_modules/.bin:$PATH

# As the tests have built them: a package alone has other features, for which all is built once more.
cargo build -q --workspace --example mcp_conformance --example everything --example mcp

scenarios=0
client() {
  timeout 120 conformance client --command "$target/debug/examples/mcp_conformance --initialize" --scenario "$1" \
    >"$place/out.log" 2>&1
}
# Its server takes the first GET for the reconnection, also before it closed a stream. A client opens its own stream beside
# its calls, so that one may come first: the scenario then saw no reconnection at all, and is begun anew.
reconnects() {
  local try
  for try in 1 2 3 4 5; do
    client sse-retry && return 0
    ! grep -q 'Closed tools/call SSE stream' "$place/out.log" || return 1
    echo "sse-retry saw no reconnection ($try)"
  done
  return 1
}
# Its server asks over the client's own stream, and the question is lost where that is not open yet.
elicits() {
  local try
  for try in 1 2 3; do
    client elicitation-sep1034-client-defaults && return 0
    grep -q 'Elicitation failed: MCP error -32001: Request timed out' "$place/out.log" || return 1
    echo "the question of elicitation-sep1034-client-defaults was lost ($try)"
  done
  return 1
}
logins=(metadata-default metadata-var1 metadata-var2 metadata-var3 basic-cimd scope-from-www-authenticate
  scope-from-scopes-supported scope-omitted-when-undefined scope-step-up scope-retry-limit token-endpoint-auth-basic
  token-endpoint-auth-post token-endpoint-auth-none pre-registration 2025-03-26-oauth-endpoint-fallback
  resource-mismatch offline-access-scope offline-access-not-supported client-credentials-basic)
for scenario in initialize tools_call "${logins[@]/#/auth/}"; do
  client "$scenario" || { tail -n 20 "$place/out.log"; echo "the client failed at $scenario"; exit 1; }
  scenarios=$((scenarios + 1))
done
elicits || { tail -n 20 "$place/out.log"; echo 'the client failed at elicitation-sep1034-client-defaults'; exit 1; }
scenarios=$((scenarios + 1))
reconnects || { tail -n 20 "$place/out.log"; echo 'the client failed at sse-retry'; exit 1; }
scenarios=$((scenarios + 1))
# Logins that are not to succeed, or not yet; one that does is no longer to be listed here.
declare -A failing=(
  [2025-03-26-oauth-metadata-backcompat]='its metadata names another issuer than that of its address, which RFC 8414 forbids'
  [client-credentials-jwt]='no assertion is signed: rmcp does that by aws-lc alone'
  [cross-app-access-complete-flow]='no token of another identity provider is exchanged'
)
for scenario in "${!failing[@]}"; do
  if client "auth/$scenario"; then
    echo "the client passed auth/$scenario, which was to fail: ${failing[$scenario]}"
    exit 1
  fi
done

port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$target/debug/examples/everything" "$port" &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
for _ in $(seq 200); do (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break; sleep 0.1; done
# What is left out needs logging, completion, sampling, elicitation, resources or prompts, which the server does not offer.
for scenario in server-initialize ping tools-list tools-call-simple-text tools-call-image tools-call-audio \
  tools-call-embedded-resource tools-call-mixed-content tools-call-error tools-call-with-progress json-schema-2020-12 \
  server-sse-multiple-streams dns-rebinding-protection; do
  timeout 120 conformance server --url "http://127.0.0.1:$port/mcp" --scenario "$scenario" >"$place/out.log" 2>&1 ||
    { tail -n 20 "$place/out.log"; echo "the server failed at $scenario"; exit 1; }
  scenarios=$((scenarios + 1))
done

timeout 60 "$target/debug/examples/mcp" mcp-server-everything stdio >"$place/everything.log" 2>&1 || {
  cat "$place/everything.log"
  echo 'the reference server could not be used'
  exit 1
}
grep -q 'mcp_other_echo (read)' "$place/everything.log" || { cat "$place/everything.log"; exit 1; }

python=$place/venv/bin/python
if [ ! -x "$python" ] || ! "$python" -c 'import mcp' 2>/dev/null; then
  { python3 -m venv "$place/venv" && "$place/venv/bin/pip" install -q 'mcp==2.3.0'; } >"$place/pip.log" 2>&1 || {
    echo 'pip could not install the Python SDK of MCP: it was not run'
    exit 77
  }
fi
for served in "http://127.0.0.1:$port/mcp" "$target/debug/examples/mcp serve"; do
  # shellcheck disable=SC2086
  "$python" .ci/mcp_client.py $served || {
    echo "the Python SDK's client: it could not use $served"
    exit 1
  }
done
kill "$server"
"$python" .ci/mcp_server.py "$port" >"$place/python.log" 2>&1 &
server=$!
for _ in $(seq 200); do (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break; sleep 0.1; done
asks() {
  # Once by the newer handshake, if the server knows it, and once by the older one.
  for begins in '' --initialize; do
    timeout 60 "$target/debug/examples/mcp_conformance" $begins "$@" >"$place/python.out" 2>&1 || true
    for line in 'Connected \{ tools: 8,' 'mcp_suite_add: 10$' 'mcp_suite_steps: done$' '"degrees": 21.5$' \
      'mcp_suite_fail: Error executing tool fail' 'mcp_suite_texts: text 0$' 'mcp_suite_paint: painted green$' \
      'mcp_suite_resources: Resource x://text:$' '^the text$' 'mcp_suite_prompts: user: Greet them\.$'; do
      grep -Eq "$line" "$place/python.out" || {
        cat "$place/python.out"
        echo "the Python SDK's server: no line has $line ($begins $*)"
        exit 1
      }
    done
    python_runs=$((python_runs + 1))
  done
}
python_runs=0
asks "http://127.0.0.1:$port/mcp"
asks -- "$python" .ci/mcp_server.py stdio
echo "$python_runs runs with the Python SDK's server, 4 with its client;" \
  "$scenarios scenarios passed; $(grep -c '^  mcp_other_' "$place/everything.log") tools of the reference server listed"
