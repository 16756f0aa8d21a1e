#!/bin/bash
# docs/metrics.md is what tools/metrics_doc makes of the daemons' own tables, and what running
# daemons export.
set -euo pipefail
work=$(mktemp -d)
pids=()
stop() {
  for pid in "${pids[@]}"; do kill "$pid" 2> /dev/null || true; done
  wait
  rm -rf "$work"
}
trap stop EXIT
fail() {
  echo "FAILED: $*"
  tail -n 20 "$work"/*.log || true
  exit 1
}

tools/metrics_doc --print master/cistern-master store/cistern-store > "$work/metrics.md"
diff -u docs/metrics.md "$work/metrics.md" || fail "docs/metrics.md is not true: run tools/metrics_doc"

# field FILE KEY
field() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$1" "$2"; }
await_file() {
  for ((i = 0; i < 300; ++i)); do
    [[ ! -e $1 ]] || return 0
    sleep 0.1
  done
  fail "no $1"
}
master/cistern-master --set data_dir="$work/master" --set data_port=0 --set grpc_port=0 \
  --set http_port=0 > "$work/master.log" 2>&1 &
pids+=($!)
await_file "$work/master/endpoints.json"
store/cistern-store --set data_dir="$work/store" --set data_port=0 --set http_port=0 \
  --set master_address="$(field "$work/master/endpoints.json" grpc)" \
  --set segment_dir="$work/segments" --set 'segment[0].size=8MiB' > "$work/store.log" 2>&1 &
pids+=($!)
await_file "$work/store/endpoints.json"

for daemon in master store; do
  python3 - "$(field "$work/$daemon/endpoints.json" http)" "$daemon" docs/metrics.md <<'PYTHON' \
    || fail "$daemon exports other metrics than docs/metrics.md has"
import re, sys, urllib.request
address, daemon, document = sys.argv[1:]
text = urllib.request.urlopen(f"http://{address}/metrics", timeout=20).read().decode()
rows = re.findall(rf"^\| `(cistern_{daemon}_\w+)` \| (\w+) \| ([^|]*) \| [^|]+ \|$",
                  open(document).read(), re.M)
documented = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
assert len(documented) > 30, documented
kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M))
exported = {}
for line in text.splitlines():
    if line.startswith("#"):
        continue
    match = re.match(r'^(\w+?)(?:\{((?:\w+="(?:[^"\\]|\\.)*",?)*)\})? (\S+)$', line)
    assert match, f"not Prometheus's format: {line}"
    name, labels, value = match.groups()
    float(value)
    if name not in kinds:
        name = re.sub(r"_(bucket|sum|count)$", "", name)
    labels = set(re.findall(r'(\w+)="', labels or "")) - {"le"}
    exported.setdefault(name, labels)
    assert exported[name] == labels, line
assert exported.keys() == documented.keys(), exported.keys() ^ documented.keys()
for name, (kind, labels) in documented.items():
    assert kinds[name] == kind, name
    assert exported[name] == labels, (name, exported[name], labels)
    # Prometheus's conventions.
    assert (kind == "counter") == name.endswith("_total"), name
    assert "# HELP " + name + " " in text, name
PYTHON
done
echo PASSED
