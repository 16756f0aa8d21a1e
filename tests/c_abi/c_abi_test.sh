#!/bin/bash
# c_abi_test.sh built|installed: the C program, made by Bazel or by hand against an install prefix,
# with a pool that is there for it.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir "$work/bin"
cp -L master/cistern-master store/cistern-store tools/ctl/cisternctl "$work/bin/"
program=$PWD/tests/c_abi/c_abi_program
if [[ $1 == installed ]]; then
  tools/install --prefix "$work/prefix" --from "$PWD" >/dev/null
  mkdir "$work/source"
  cp -L tests/c_abi/*.[ch] "$work/source/"
  program=$work/program
  # From a folder in which no header of the tree can be found by accident.
  (cd "$work/source" && PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig &&
    export PKG_CONFIG_PATH &&
    gcc -std=c11 -Wall -Wextra -Werror -O1 ./*.c $(pkg-config --cflags --libs cistern) -o "$program")
fi

CISTERN_BIN_DIR=$work/bin python3 client/python/cistern/dev.py --memory 128MiB --stores 2 -- \
  sh -c '"$0" "$CISTERN_MASTER" "$CISTERN_TOKEN_FILE"' "$program" | tee "$work/out"
[[ $(tail -n 1 "$work/out") == ok ]] || { echo "FAILED"; exit 1; }
