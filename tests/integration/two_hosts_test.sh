#!/bin/bash
# The README's two-host quick start, between two network namespaces: host A runs the master, host B a
# store, both with the configuration files that the README shows; a client on A puts a file that lands
# on B, a client on B gets it back. Needs root and `ip netns`; says so and skips otherwise.
set -euo pipefail

root=$PWD
master=$root/master/cistern-master
store=$root/store/cistern-store
ctl=$root/tools/ctl/cisternctl

skip() { echo "SKIPPED: $*"; exit 0; }
((EUID == 0)) || skip "needs root for network namespaces"
command -v ip > /dev/null || skip "needs the ip command (iproute2)"

tag=cistern$$
work=$(mktemp -d)
segments=$(mktemp -d /dev/shm/cistern-test-XXXXXX)
pids=()
finish() {
  local status=$?
  for pid in "${pids[@]}"; do kill "$pid" 2> /dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2> /dev/null || true; done
  ip netns del "$tag-a" 2> /dev/null || true
  ip netns del "$tag-b" 2> /dev/null || true
  if ((status != 0)); then tail -n 20 "$work"/*.log || true; fi
  rm -rf "$work" "$segments"
  exit "$status"
}
trap finish EXIT

ip netns add "$tag-a" 2> /dev/null || skip "this kernel lets us make no network namespace"
ip netns add "$tag-b"
ip link add "${tag: -8}a" netns "$tag-a" type veth peer name "${tag: -8}b" netns "$tag-b" \
  || skip "this kernel has no veth devices"
ip -n "$tag-a" addr add 10.77.0.1/24 dev "${tag: -8}a"
ip -n "$tag-b" addr add 10.77.0.2/24 dev "${tag: -8}b"
for side in a b; do
  ip -n "$tag-$side" link set lo up
  ip -n "$tag-$side" link set "${tag: -8}$side" up
done
on_a() { ip netns exec "$tag-a" "$@"; }
on_b() { ip netns exec "$tag-b" "$@"; }

# The README's two files, with this test's folders and addresses.
sample() {
  sed -e "s|10\.0\.0\.1|10.77.0.1|g" -e "s|10\.0\.0\.2|10.77.0.2|g" \
    -e "s|/var/lib/cistern|$work|g" -e "s|/etc/cistern|$work|g" \
    -e "s|/dev/shm/cistern|$segments|g" -e "s|64GiB|64MiB|g" "$root/deploy/config/$1"
}
sample master.toml > "$work/master.toml"
sample store.toml > "$work/store.toml"

# await WHAT COMMAND...: tries until it succeeds, 20 s at most.
await() {
  local what=$1 tries=0
  shift
  until "$@" > /dev/null 2>&1; do
    if ((++tries == 200)); then echo "waited in vain for $what"; exit 1; fi
    sleep 0.1
  done
}

on_a "$master" --config "$work/master.toml" --init
# Not through on_a and on_b: a function in the background is a shell, and would be killed in the
# daemon's stead.
ip netns exec "$tag-a" "$master" --config "$work/master.toml" > "$work/master.log" 2>&1 &
pids+=($!)
# Both sides share a kernel and its files: by shared memory they would pass the network by.
ip netns exec "$tag-b" "$store" --config "$work/store.toml" --set shm.enabled=false \
  > "$work/store.log" 2>&1 &
pids+=($!)

flags=(--master 10.77.0.1:7601 --data 10.77.0.1:7600 --token-file "$work/token")
serving() { on_a "$ctl" "${flags[@]}" stores | grep -q serving; }
await "the store to join" serving

head -c 5000000 /dev/urandom > "$work/original"
on_a "$ctl" "${flags[@]}" put greeting "$work/original"
on_b "$ctl" "${flags[@]}" get greeting "$work/copy"
cmp "$work/original" "$work/copy"

# The bytes are on B: its store reports them.
on_b "$ctl" "${flags[@]}" stores

# Without the token nobody gets in, and the exit code says so.
status=0
head -c 64 /dev/zero > "$work/wrong"
chmod 600 "$work/wrong"
on_b "$ctl" --master 10.77.0.1:7601 --token-file "$work/wrong" stats || status=$?
((status == 4)) || { echo "a wrong token ended with exit code $status, not 4"; exit 1; }

# Both end as asked, and nothing else is left of them.
for pid in "${pids[@]}"; do kill "$pid"; done
for pid in "${pids[@]}"; do wait "$pid" || { echo "a daemon ended with exit code $?"; exit 1; }; done
pids=()
if grep -qsF -- "$work/" /proc/[0-9]*/cmdline; then echo "a process was left behind"; exit 1; fi

echo "PASSED: put on one host, got on the other"
