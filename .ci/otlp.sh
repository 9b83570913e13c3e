#!/usr/bin/env bash
# Exports a run to a real OTLP receiver and judges what arrived: `bash .ci/otlp.sh FOLDER`, where FOLDER is an empty one.
#
# The receiver's decoder is the package opentelemetry-proto of PyPI, in an environment of its own below FOLDER. Exit code
# 77: it cannot be had, nothing was tried.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$1
mkdir -p "$folder"
if ! { python3 -m venv "$folder/venv" && timeout 120 "$folder/venv/bin/pip" install -q 'opentelemetry-proto>=1.41,<2'; } \
  >"$folder/pip.log" 2>&1; then
  echo "opentelemetry-proto of PyPI cannot be had: $(tail -n 1 "$folder/pip.log")"
  exit 77
fi
"$folder/venv/bin/python" .ci/otlp_receiver.py "$folder" &
receiver=$!
trap 'kill "$receiver" 2>/dev/null || true' EXIT
for _ in $(seq 100); do [ -s "$folder/url" ] && break; sleep 0.1; done
[ -s "$folder/url" ] || { echo 'the receiver did not start' >&2; exit 1; }
OTLP_URL=$(<"$folder/url") cargo test -q --workspace --test otlp -- --ignored --exact a_run_arrives_at_a_real_receiver
python3 .ci/otlp_check.py "$folder"
