#!/bin/bash
# poolbench on a pool of its own: every case measured beside its limits, nothing left behind.
set -euo pipefail

bench=tools/poolbench/poolbench
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; cat "$work"/out* || true; exit 1; }

echo "== the usual cases"
"$bench" --baseline --rounds 2 --seconds 0.05 --working-set 16MiB --json "$work/json" \
  > "$work/out" 2> "$work/out.err" || fail "exit code $?"
python3 - "$work/json" <<'PYTHON' || fail "the JSON is not as expected"
import json, sys
got = json.load(open(sys.argv[1]))
cases = [(r["operation"], r["chunk_bytes"], r["batch"]) for r in got["results"]]
assert cases == [("get", 1 << 20, 16), ("put", 1 << 20, 16), ("get", 1 << 16, 64),
                 ("put", 1 << 16, 64), ("lookup", 4096, 1024)], cases
for result in got["results"]:
    assert len(result["rounds"]) == 2 and result["median"] > 0, result
    names = [limit["name"] for limit in result["limits"]]
    lookup = result["operation"] == "lookup"
    assert names == (["bare TCP echo", "gRPC echo"] if lookup else ["bare TCP pair"]), names
    assert all(limit["ratio"] > 0 for limit in result["limits"]), result
assert got["machine"] and got["build_mode"], got
PYTHON
grep -q "ours / limit" "$work/out" || fail "no table"
# Builds that are not optimised are warned of.
if ! grep -q '"build_mode": "opt"' "$work/json"; then
  grep -q WARNING "$work/out" || fail "no warning of this build"
fi

echo "== several threads"
"$bench" get --chunk-bytes 64KiB --batch 8 --threads 3 --rounds 1 --seconds 0.05 \
  --working-set 16MiB > "$work/out" 2> "$work/out.err" || fail "exit code $?"

echo "== wrong flags, no pool"
status=0; "$bench" get --chunk-bytes 1 > "$work/out" 2>&1 || status=$?
((status == 2)) || fail "exit code $status, not 2"
status=0; "$bench" get --master 127.0.0.1:1 > "$work/out" 2>&1 || status=$?
((status == 1)) || fail "exit code $status, not 1"
grep -q "127.0.0.1:1" "$work/out" || fail "the address is not named"

echo PASSED
