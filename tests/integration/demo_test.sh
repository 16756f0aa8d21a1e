#!/bin/bash
# The demo: its results, and that no process and no file stays behind, however it ends.
set -euo pipefail

demo=tools/replay/demo
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "FAILED: $*"
  tail -n 40 "$work"/out* || true
  exit 1
}
small=(--trace tests/data/kv_trace_2000.jsonl --chunk-bytes 16KiB)

# The processes whose command line has these words, one number a line.
processes_with() {
  local file
  for file in /proc/[0-9]*/cmdline; do
    if tr '\0' ' ' < "$file" 2> /dev/null | grep -qF -- "$1"; then
      file=${file#/proc/}
      echo "${file%/cmdline}"
    fi
  done
}
# The folders that the demo said it uses.
folders() { sed -n 's/.*; folders \(.*\) and \(.*\)$/\1 \2/p' "$1"; }
nothing_left() {
  local names
  names=$(folders "$1")
  [[ -n $names ]] || fail "the demo named no folders"
  for folder in $names; do
    [[ ! -e $folder ]] || fail "$folder is still there"
    [[ -z $(processes_with "$folder/") ]] || fail "a process of $folder still runs"
  done
}
# await WHAT COMMAND...: 30 s at most.
await() {
  local what=$1 tries=0
  shift
  until "$@"; do
    ((++tries < 300)) || fail "waited in vain for $what"
    sleep 0.1
  done
}
# start NAME FLAGS...: the demo in the background, once its clients run.
start() {
  out=$work/out-$1
  shift
  "$demo" "$@" > "$out" 2>&1 &
  pid=$!
  await "the pool" grep -q "the pool is up" "$out"
  folder=$(folders "$out" | cut -d' ' -f1)
  await "a client" test -s "$folder/client-0.progress"
}
ended_with() {
  local status=0
  wait "$pid" || status=$?
  ((status == $1)) || fail "exit code $status, not $1"
}

echo "== results"
"$demo" "${small[@]}" --requests 400 --json "$work/json" > "$work/out-results" 2>&1 \
  || fail "exit code $?"
nothing_left "$work/out-results"
grep -q "everything removed: 0 chunks, 0 bytes, 0 leases" "$work/out-results" \
  || fail "no word of the leak check"
python3 - "$work/json" <<'PYTHON' || fail "the JSON is not as documented"
import json, sys
got = json.load(open(sys.argv[1]))
assert got["requests"] == 400, got
assert got["verification_failures"] == 0 and got["errors"] == 0, got
assert 0 < got["prefix_hit_ratio"] <= got["chunk_hit_ratio"] < 1, got
assert got["evictions"] > 0 and got["bytes_got"] > 0 and got["wire"] == "shm", got
assert len(got["stores"]) == 2 and all(0.8 < s["fill"] <= 1 for s in got["stores"]), got
PYTHON

for signal in INT TERM HUP; do
  echo "== SIG$signal"
  start "$signal" "${small[@]}" --clients 1
  kill "-$signal" "$pid"
  case $signal in INT) ended_with 130 ;; *) ended_with 143 ;; esac
  nothing_left "$out"
done

echo "== a store that dies"
start died "${small[@]}" --clients 1
kill -KILL "$(processes_with "--config $folder/store-0.toml")"
ended_with 1
grep -q "store-0 was ended by signal 9; the end of its log:" "$out" || fail "nobody said who died"
nothing_left "$out"

echo "== a client that dies"
start client "${small[@]}" --clients 1
kill -KILL "$(processes_with "--progress $folder/client-0.progress")"
ended_with 1
grep -q "client-0 was ended by signal 9" "$out" || fail "nobody said who died"
nothing_left "$out"

echo "== --keep"
out=$work/out-keep
"$demo" "${small[@]}" --requests 50 --keep > "$out" 2>&1 || fail "exit code $?"
folder=$(folders "$out" | cut -d' ' -f1)
ctl=$(sed -n 's/^ *\.bazel\/bin\/\(tools\/ctl\/cisternctl.* stats\)$/\1/p' "$out")
chunks=$($ctl -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)["pool"]["chunk_count"])') \
  || fail "the command that it printed does not work"
((chunks > 0)) || fail "the pool that was kept is empty"
goodbye=$(sed -n 's/^ *\(kill .*; rm -rf .*\)$/\1/p' "$out")
pids=$(sed 's/^kill \(.*\);.*/\1/' <<< "$goodbye")
kill $pids
for one in $pids; do await "$one to end" eval "! kill -0 $one 2> /dev/null"; done
eval "${goodbye#*;}"
nothing_left "$out"

echo PASSED
