#!/usr/bin/env bash
# The client of language servers against one that others made, a type checker for Python from PyPI. Exits with 77 where
# it cannot be had; the last line is the result.
#
#     bash .ci/lsp.sh DIRECTORY      installs into the directory, or finds it there
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p "$1"
place=$(cd "$1" && pwd)
server=$place/bin/basedpyright-langserver
if [ ! -x "$server" ]; then
  { python3 -m venv "$place" && "$place/bin/pip" install --quiet basedpyright==1.40.2; } >"$place/pip.log" 2>&1 || {
    echo 'pip could not install the language server: it was not run'
    exit 77
  }
fi
ENTOURAGE_LSP_PYTHON="$server --stdio" timeout 600 cargo test -q -p entourage-tools --no-default-features --features lsp \
  --test lsp -- --ignored --exact real::ce02_a_real_server_for_python >"$place/out.log" 2>&1 || {
  tail -n 40 "$place/out.log"
  echo 'the client failed with the language server'
  exit 1
}
grep -q '1 passed' "$place/out.log" || { cat "$place/out.log"; exit 1; }
echo "the client passed with $("$place/bin/basedpyright" --version | head -n 1)"
