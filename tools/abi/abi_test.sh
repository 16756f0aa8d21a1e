#!/bin/bash
# The C interface is as promised, and a change of any kind would be seen.
set -euo pipefail
tools/abi/check --from "$PWD"
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=client/python CISTERN_LIBRARY=$PWD/client/libcistern.so \
  python3 tools/abi/python_test.py tools/abi/libcistern.so.1.abi

# A copy of what the check reads, that can be broken.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{tools/abi,client}
cp -L tools/abi/{check,describe.py,libcistern.so.1.abi} "$work/tools/abi/"
cp -L client/libcistern.so "$work/client/"
chmod -R u+w "$work"

# breaks WHAT SED-SCRIPT LINE: the check fails, and says LINE.
breaks() {
  sed "$2" client/cistern.h >"$work/client/cistern.h"
  ! cmp -s client/cistern.h "$work/client/cistern.h" || { echo "$1: the script changes nothing"; exit 1; }
  if (cd "$work" && tools/abi/check --from "$work") >"$work/out" 2>&1; then
    echo "$1 was not seen"
    exit 1
  fi
  grep -qF -- "$3" "$work/out" || { echo "$1: not said:"; cat "$work/out"; exit 1; }
}
breaks "a number" 's/CISTERN_NOT_FOUND = 3,/CISTERN_NOT_FOUND = 33,/' '- number CISTERN_NOT_FOUND = 3'
breaks "a moved member" 's/^  uint32_t unit;/  uint64_t unit;/' '- struct cistern_get_item .unit at=44 bytes=4'
breaks "a signature" 's/^cistern_code cistern_close(cistern_client client);/cistern_code cistern_close(cistern_client client, int now);/' \
  '- function cistern_code cistern_close(cistern_client client)'
breaks "a lost function" '/^cistern_code cistern_close/d' 'do not fit'
breaks "a new struct member" 's/^  uint32_t missing_never;//; s/^  uint64_t retries;/  uint64_t retries; uint64_t more;/' '+ struct cistern_stats .more'

cp -L client/cistern.h "$work/client/cistern.h"
(cd "$work" && tools/abi/check --from "$work" >/dev/null)
# What was added can be accepted; what is lost cannot.
sed -i '/^symbol cistern_ping/d' "$work/tools/abi/libcistern.so.1.abi"
if (cd "$work" && tools/abi/check --from "$work" >/dev/null); then echo "a new symbol was not seen"; exit 1; fi
(cd "$work" && tools/abi/check --accept --from "$work" >/dev/null && tools/abi/check --from "$work" >/dev/null)
cmp "$work/tools/abi/libcistern.so.1.abi" tools/abi/libcistern.so.1.abi
echo "symbol cistern_gone@@CISTERN_1" >>"$work/tools/abi/libcistern.so.1.abi"
if (cd "$work" && tools/abi/check --accept --from "$work" >/dev/null); then echo "a lost symbol was accepted"; exit 1; fi
echo ok
