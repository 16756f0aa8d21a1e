#!/bin/bash
# Installs into a prefix, compiles the examples against it with nothing else at hand, and looks at
# what they would drag into an engine's process.
set -euo pipefail
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
tools/install --prefix "$prefix/made" --from "$PWD"
# The units start the programs that were installed with them, and nothing else.
for daemon in master store; do
  unit=$prefix/made/lib/systemd/system/cistern-$daemon.service
  grep -qx "ExecStart=$prefix/made/bin/cistern-$daemon --config /etc/cistern/$daemon.toml" "$unit" \
    || { echo "$unit starts something else:"; grep ExecStart "$unit"; exit 1; }
done
if command -v systemd-analyze >/dev/null; then
  said=$(cd "$prefix/made/lib/systemd/system" && systemd-analyze verify --man=no ./*.service 2>&1) && [[ -z $said ]] \
    || { echo "systemd says of the installed units: $said"; exit 1; }
fi
# A prefix may be moved.
mv "$prefix/made" "$prefix/moved"
cd "$prefix/moved"

for file in bin/cistern-master bin/cistern-store bin/cisternctl include/cistern/client.h \
  include/cistern/cistern.h include/cistern/ids.h lib/libcistern.so lib/libcistern.so.1 \
  lib/libcistern-cxx.so lib/cmake/cistern/cistern-config.cmake share/doc/cistern/LICENSE \
  lib/systemd/system/cistern-master.service lib/systemd/system/cistern-store.service \
  lib/sysusers.d/cistern.conf lib/tmpfiles.d/cistern.conf share/cistern/config/master.toml \
  share/cistern/config/store.toml share/cistern/config/client.toml share/doc/cistern/README.md \
  share/doc/cistern/CHANGELOG.md share/doc/cistern/deploy/README.md share/doc/cistern/docs/metrics.md \
  share/doc/cistern/docs/formats/frame.md; do
  [[ -e $file ]] || { echo "not installed: $file"; exit 1; }
done

# From here: no header of the tree can be found by accident.
export PKG_CONFIG_PATH=$PWD/lib/pkgconfig
g++ -std=c++20 -Wall -Wextra -Werror share/doc/cistern/put_get.cc \
  $(pkg-config --cflags --libs cistern-cxx) -o example-cxx
gcc -std=c11 -Wall -Wextra -Werror -pedantic share/doc/cistern/put_get.c \
  $(pkg-config --cflags --libs cistern) -o example-c
# The header is C++ too.
echo '#include <cistern/cistern.h>' |
  g++ -std=c++11 -Wall -Wextra -Werror -pedantic -fsyntax-only $(pkg-config --cflags cistern) -x c++ -
for example in put_get.cc put_get.c; do
  [[ $(wc -l <share/doc/cistern/$example) -lt 75 ]] || { echo "$example has 75 lines"; exit 1; }
done

# The same through CMake, both languages, where it is installed.
if command -v cmake >/dev/null; then
  mkdir cmake-consumer
  cat >cmake-consumer/CMakeLists.txt <<'EOF'
cmake_minimum_required(VERSION 3.16)
project(consumer C CXX)
set(CMAKE_C_STANDARD 11)
set(CMAKE_CXX_STANDARD 20)
find_package(cistern 0.1 REQUIRED)
add_executable(by-cmake-c ${cistern_DIR}/../../../share/doc/cistern/put_get.c)
target_link_libraries(by-cmake-c PRIVATE cistern::cistern)
if(TARGET cistern::cxx)
  add_executable(by-cmake-cxx ${cistern_DIR}/../../../share/doc/cistern/put_get.cc)
  target_link_libraries(by-cmake-cxx PRIVATE cistern::cxx)
endif()
find_package(cistern 99.0 QUIET)
if(cistern_FOUND)
  message(FATAL_ERROR "a version that is not there was found")
endif()
EOF
  cmake -S cmake-consumer -B cmake-consumer/build -DCMAKE_PREFIX_PATH="$PWD" >cmake.log || { cat cmake.log; exit 1; }
  cmake --build cmake-consumer/build >cmake.log || { cat cmake.log; exit 1; }
  cp cmake-consumer/build/by-cmake-c .
else
  echo "SKIPPED: no cmake here: its package files were not tried"
  cp example-c by-cmake-c
fi

# With no master there they say so, and name it.
for example in example-cxx example-c by-cmake-c; do
  if ./$example 127.0.0.1:1 2>err; then echo "connected to nothing"; exit 1; fi
  grep -q "127.0.0.1:1" err || { echo "$example: the master is not named:"; cat err; exit 1; }
done

# An engine's process must not get these from us.
for file in lib/libcistern.so lib/libcistern-cxx.so example-c example-cxx; do
  libraries=$(ldd "$file")
  if grep -E 'grpc|glog|gflags|libprotobuf\.so|libprotoc|libabsl_log|not found' <<<"$libraries"; then
    echo "$file links what it must not"
    exit 1
  fi
done
# A C program needs the library of the C interface by its stable name and version, and no C++ of its own.
needed=$(readelf -d -V example-c)
grep -q 'NEEDED.*\[libcistern\.so\.1\]' <<<"$needed" || { echo "not linked to libcistern.so.1"; exit 1; }
grep -q 'CISTERN_1' <<<"$needed" || { echo "the symbols are not versioned"; exit 1; }
if grep -q 'NEEDED.*stdc++' <<<"$needed"; then echo "a C program needs libstdc++"; exit 1; fi

# shows LIBRARY PATTERN: nothing else is to be seen from outside.
shows() {
  local shown
  shown=$(nm -DC --defined-only "$1" | awk '{ $1 = ""; $2 = ""; print }' | grep -vE "$2" || true)
  if [[ -n $shown ]]; then
    echo "$1 shows more than its interface:"
    head <<<"$shown"
    exit 1
  fi
}
shows lib/libcistern.so '^ *(cistern_[a-z_]+@@CISTERN_1|CISTERN_1)$'
# And templates of the standard library, which are the same everywhere.
shows lib/libcistern-cxx.so \
  '^ *(std::|cistern::(Client|Buffer|BatchResult|LookupResult)::|cistern::(ChunkCodeName|ClientVersion)|(typeinfo|typeinfo name|vtable) for cistern::(Client|Namespace)$)'
echo "ok"
