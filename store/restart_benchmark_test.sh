#!/bin/sh
# 20,000 chunks: every committed one must be back, which the program's exit code says.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
store/restart_benchmark 20000 "$folder" | tee "$folder/out"
grep -q "^kept  *20000 (100.0000 %), unfinished 1, damaged 0, wrong 0" "$folder/out"
