#!/bin/bash
# tools/demo refuses wrong flags at once: before it installs or builds anything.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
touch "$work/file"
# A tree of its own, which has nothing that could be installed or built.
mkdir -p "$work/tree/tools/replay"
cp tools/demo "$work/tree/tools/"
cp tools/replay/demo_help.txt "$work/tree/tools/replay/"
cd "$work/tree"

refuses() {
  local code=0
  tools/demo "$@" > "$work/out" 2> "$work/err" || code=$?
  [[ $code == 2 ]] || { echo "exit code $code of: tools/demo $*"; cat "$work/err"; exit 1; }
  grep -q -- "$1" "$work/err" || grep -q -- "${1%%=*}" "$work/err" \
    || { echo "it does not say what is wrong with $*:"; cat "$work/err"; exit 1; }
  [[ ! -s $work/out ]] || { echo "it did something for $*:"; cat "$work/out"; exit 1; }
}
refuses --frobnicate
refuses --clients 0
refuses --clients=65
refuses --stores many
refuses --stores
refuses --requests 0
refuses --requests=-1
refuses --seed x
refuses --chunk-bytes 64Kilo
refuses --pool-bytes ""
refuses --wire=udp
refuses --prefill-tokens-per-second fast
refuses --trace "$work/none"
refuses --trace "$work"
refuses --json "$work"
refuses --json="$work/none/out.json"
refuses --json /proc/none/out.json
refuses stray

# What is right comes as far as the installing.
accepts() {
  local code=0
  tools/demo "$@" > "$work/out" 2> "$work/err" || code=$?
  [[ $code == 127 ]] && grep -q 'tools/setup' "$work/err" \
    || { echo "exit code $code of: tools/demo $*"; cat "$work/err"; exit 1; }
}
accepts
accepts --keep --clients 64 --stores=1 --requests 1 --seed 0 --chunk-bytes 64KiB --pool-bytes=1073741824
accepts --wire shm --prefill-tokens-per-second 1e4 --trace "$work/file" --json "$work/out.json"
tools/demo --help | grep -q 'Usage: ./tools/demo'
echo ok
