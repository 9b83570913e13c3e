#!/usr/bin/env bash
# The example `coder` with a server of our own on its PATH, then the client of language servers against one that others
# made, a type checker for Python from PyPI. Exits with 77 where that cannot be had; the last line is the result.
#
#     bash .ci/lsp.sh DIRECTORY      installs into the directory, or finds it there
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p "$1"
place=$(cd "$1" && pwd)

own=$(mktemp -d)
trap 'rm -rf "$own"' EXIT
mkdir "$own/bin"
{ printf '#!%s\n' "$(command -v python3)"; cat .ci/lsp_server.py; } >"$own/bin/rust-analyzer"
chmod +x "$own/bin/rust-analyzer"
cargo build -q --workspace --example coder
coder() { LSP_LOG=$own/methods PATH=$own/bin:$PATH "${CARGO_TARGET_DIR:-target}/debug/examples/coder" "$@" >"$own/out.log" 2>&1; }
fails() { cat "$own/out.log"; echo "$1"; exit 1; }
coder --help && grep -q -- '--lsp tells the language servers' "$own/out.log" || fails 'coder --help says nothing of language servers'
coder && [ ! -e "$own/methods" ] || fails 'coder starts a language server without --lsp'
coder --lsp && grep -q 'language servers: .*rust-analyzer' "$own/out.log" || fails 'coder --lsp found no server'
for method in initialize textDocument/didOpen textDocument/didChange textDocument/didSave shutdown exit; do
  grep -qx "$method" "$own/methods" || fails "coder --lsp did not send $method"
done

server=$place/bin/basedpyright-langserver
if [ ! -x "$server" ]; then
  { python3 -m venv "$place" && "$place/bin/pip" install --quiet basedpyright==1.40.2; } >"$place/pip.log" 2>&1 || {
    echo 'pip could not install the language server: it was not run'
    exit 77
  }
fi
ENTOURAGE_LSP_PYTHON="$server --stdio" timeout 600 cargo test -q --workspace --test lsp -- --ignored --exact real::ce02_a_real_server_for_python >"$place/out.log" 2>&1 || {
  tail -n 40 "$place/out.log"
  echo 'the client failed with the language server'
  exit 1
}
grep -q '1 passed' "$place/out.log" || { cat "$place/out.log"; exit 1; }
echo "the client passed with $("$place/bin/basedpyright" --version | head -n 1)"
