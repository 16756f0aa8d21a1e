#!/bin/bash
# Installs into a prefix, compiles the example against it with nothing else at hand, and looks at
# what it would drag into an engine's process.
set -euo pipefail
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
tools/install --prefix "$prefix" --from "$PWD"

for file in bin/cistern-master bin/cistern-store bin/cisternctl include/cistern/client.h \
  include/cistern/ids.h lib/libcistern.so share/doc/cistern/LICENSE; do
  [[ -e $prefix/$file ]] || { echo "not installed: $file"; exit 1; }
done

# From an empty folder: no header of the tree can be found by accident.
cd "$prefix"
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
g++ -std=c++20 -Wall -Wextra -Werror share/doc/cistern/put_get.cc \
  $(pkg-config --cflags --libs cistern) -o example
[[ $(wc -l <share/doc/cistern/put_get.cc) -lt 60 ]] || { echo "the example has 60 lines"; exit 1; }

# With no master there it says so, and names it.
if ./example 127.0.0.1:1 2>err; then echo "connected to nothing"; exit 1; fi
grep -q "127.0.0.1:1" err || { echo "the master is not named:"; cat err; exit 1; }

# An engine's process must not get these from us.
for file in lib/libcistern.so example; do
  libraries=$(ldd "$file")
  if grep -E 'grpc|glog|gflags|libprotobuf\.so|libprotoc|libabsl_log|not found' <<<"$libraries"; then
    echo "$file links what it must not"
    exit 1
  fi
done
# Nothing but the public classes is to be seen from outside (and templates of the standard library,
# which are the same everywhere).
shown=$(nm -DC --defined-only lib/libcistern.so | awk '{ $1 = ""; $2 = ""; print }' |
  grep -vE '^ *(std::|cistern::(Client|Buffer|BatchResult|LookupResult)::|cistern::(ChunkCodeName|ClientVersion)|(typeinfo|typeinfo name|vtable) for cistern::(Client|Namespace)$)' || true)
if [[ -n $shown ]]; then
  echo "libcistern.so shows more than its public classes:"
  head <<<"$shown"
  exit 1
fi
echo "ok"
