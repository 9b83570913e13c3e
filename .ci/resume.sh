#!/usr/bin/env bash
# Kills the example `resume` (SIGKILL) at four moments, each later than the one before, and lets it end: no step that was
# done is begun again. $1: a folder for what it writes.
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=$1
export TMPDIR=$scratch/resume
mkdir -p "$TMPDIR"
program=${CARGO_TARGET_DIR:-target}/debug/examples/resume
cargo build -q --workspace --example resume
for seconds in 0.5 1.5 1.5 1.5; do
  timeout -s KILL "$seconds" "$program" >>"$TMPDIR/log" 2>&1 </dev/null || true
  echo '-- killed' >>"$TMPDIR/log"
done
timeout 60 "$program" >>"$TMPDIR/log" 2>&1 </dev/null || true
cat "$TMPDIR/log"
tail -n 1 "$TMPDIR/log" | grep -q '^completed: ' || { echo 'the run did not come to its end'; exit 1; }
[ "$(grep -c '^From the beginning' "$TMPDIR/log")" = 1 ] || { echo 'it began more than once'; exit 1; }
done_twice=$(sed -n 's/^ *\(.*\) completed: .*/\1/p' "$TMPDIR/log" | sort | uniq -d)
[ -z "$done_twice" ] || { echo "done twice: $done_twice"; exit 1; }
[ "$(grep -c ' completed: ' "$TMPDIR/log")" = 5 ] || { echo 'not every task was seen to end'; exit 1; }
