#!/bin/bash
# poolbench on a pool of its own: every case measured beside its limits, nothing left behind.
set -euo pipefail

bench=tools/poolbench/poolbench
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; cat "$work"/out* || true; exit 1; }

echo "== a place for the results that is none is found before the work"
for path in "$work/none/json" "$work"; do
  code=0
  "$bench" --json "$path" > "$work/out" 2>&1 || code=$?
  [[ $code == 2 ]] || fail "exit code $code for --json $path"
  grep -q "cannot write $path" "$work/out" || fail "it does not say what is wrong with $path"
  ! grep -q " \.\.\.$" "$work/out" || fail "it began to measure"
done

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
    bounds = ["bare TCP pair", "memcpy", "memcpy and digest"]
    assert names == (["bare TCP echo", "gRPC echo"] if lookup else bounds), names
    assert result["p99_us"] >= result["p50_us"] > 0, result
    assert all(limit["ratio"] > 0 for limit in result["limits"]), result
    if lookup:
        figures = {f["name"]: f["value"] for f in result["figures"]}
        assert 0 <= figures["calls leased in full"] <= 1, figures
assert got["machine"] and got["kernel"] and got["build_mode"], got
PYTHON
grep -q "ours / limit" "$work/out" || fail "no table"
# Builds that are not optimised are warned of.
if ! grep -q '"build_mode": "opt"' "$work/json"; then
  grep -q WARNING "$work/out" || fail "no warning of this build"
fi

echo "== several threads"
"$bench" get --chunk-bytes 64KiB --batch 8 --threads 3 --rounds 1 --seconds 0.05 \
  --working-set 16MiB > "$work/out" 2> "$work/out.err" || fail "exit code $?"

echo "== chunks of many spans in memory of the caller's own; a mixture; a small get"
"$bench" --case "get chunk=64KiB batch=8 spans=16" --case "put chunk=64KiB batch=8 spans=16" \
  --case "mixed chunk=64KiB batch=4 gets=0.5" --case "get chunk=4KiB batch=1" --baseline \
  --memory foreign --rounds 1 --seconds 0.1 --working-set 16MiB --json "$work/json" \
  > "$work/out" 2> "$work/out.err" || fail "exit code $?"
python3 - "$work/json" <<'PYTHON' || fail "the JSON is not as expected"
import json, sys
results = json.load(open(sys.argv[1]))["results"]
assert [r["operation"] for r in results] == ["get", "put", "mixed", "get"], results
assert all(r["median"] > 0 for r in results), results
assert results[3]["limits"][0]["name"] == "bare TCP round trip", results[3]
assert results[3]["limits"][0]["calls_per_call"] > 0, results[3]
PYTHON

echo "== overload, fill and replay"
"$bench" --case "overload batch=8" --case "fill batch=8" --case replay --pool-bytes 32MiB \
  --requests 30 --json "$work/json" > "$work/out" 2> "$work/out.err" || fail "exit code $?"
python3 - "$work/json" <<'PYTHON' || fail "the JSON is not as expected"
import json, sys
results = json.load(open(sys.argv[1]))["results"]
overload, fill, replay = ({f["name"]: f["value"] for f in r["figures"]} for r in results)
# Three pools' bytes were offered, in calls of 512 KiB.
assert overload["chunks looked up"] + overload["chunks refused"] <= 3 * 512 + 8, overload
assert overload["chunks looked up"] > 0 and overload["put, whole run"] > 0, overload
assert 0.5 < fill["payload of a full segment, one size: median"] <= 1, fill
assert replay["requests"] == 30 and replay["put and got, whole run"] > 0, replay
PYTHON

echo "== index: a real master, played stores"
"$bench" index --index-stores 3 --index-chunks 60000 --evictions 20000 \
  --evictions-per-second 50000 --rebuild-chunks 10000 --rounds 1 --seconds 0.1 --baseline \
  --json "$work/json" > "$work/out" 2> "$work/out.err" || fail "exit code $?"
python3 - "$work/json" <<'PYTHON' || fail "the JSON is not as expected"
import json, sys
figures = {f["name"]: f["value"] for f in json.load(open(sys.argv[1]))["results"][0]["figures"]}
assert figures["stores"] == 3 and figures["chunks"] == 60000, figures
# An entry alone takes 56 bytes.
assert 56 < figures["bytes a chunk, as the master counts"] < 400, figures
assert figures["lookup of 6,000 keys"] > 0, figures
# 20,000 came to stores filled to 0.94; the watermarks are 0.95 and 0.92.
assert figures["chunks evicted meanwhile"] >= 15000, figures
assert figures["lock held, times"] > 100, figures
assert 0 < figures["lock held longest, the holder's own time"], figures
assert figures["chunks told to a restarted master"] == 10000, figures
assert figures["seconds from then until it knows all"] > 0, figures
PYTHON

echo "== wrong flags, no pool"
status=0; "$bench" get --chunk-bytes 1 > "$work/out" 2>&1 || status=$?
((status == 2)) || fail "exit code $status, not 2"
status=0; "$bench" get --master 127.0.0.1:1 > "$work/out" 2>&1 || status=$?
((status == 1)) || fail "exit code $status, not 1"
grep -q "127.0.0.1:1" "$work/out" || fail "the address is not named"

echo PASSED
