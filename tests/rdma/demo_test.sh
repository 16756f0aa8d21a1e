#!/bin/bash
# The demo with two stores by RDMA, where there is a device.
set -euo pipefail

demo=tools/replay/demo
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "FAILED: $*"
  tail -n 40 "$work/out" || true
  exit 1
}

flags=(--wire rdma --trace tests/data/kv_trace_2000.jsonl --chunk-bytes 16KiB --requests 150)
if [[ -z ${RDMA_VM:-} && ! -e /sys/class/infiniband/. ]]; then
  # It is refused with the reason; no other wire steps in.
  if "$demo" "${flags[@]}" > "$work/out" 2>&1; then fail "it ran without RDMA"; fi
  grep -q "RDMA is asked for, but this host does not have it" "$work/out" || fail "no reason given"
  echo "the rest is skipped: no RDMA device"
  exit 0
fi
"$demo" "${flags[@]}" --json "$work/json" > "$work/out" 2>&1 || fail "exit code $?"
python3 - "$work/json" << 'PYTHON' || fail "the results are not right"
import json, sys
got = json.load(open(sys.argv[1]))
assert got["requests"] == 150, got
assert got["verification_failures"] == 0 and got["errors"] == 0, got
assert got["bytes_got"] > 0 and got["wire"] == "rdma" and len(got["stores"]) == 2, got
PYTHON
cat "$work/out"
echo PASSED
