#!/bin/bash
# The units of deploy/systemd as systemd itself reads them.
set -euo pipefail
if ! command -v systemd-analyze > /dev/null; then
  echo "SKIPPED: no systemd-analyze (package systemd): nothing was checked"
  exit 0
fi
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "FAILED: $*"
  exit 1
}

for daemon in master store; do
  unit=cistern-$daemon.service
  # It wants the program to be there.
  sed "s,/usr/bin/cistern-$daemon,$root/$daemon/cistern-$daemon," "$root/deploy/systemd/$unit" > "$work/$unit"
  grep -q "^ExecStart=$root/$daemon/cistern-$daemon " "$work/$unit" || fail "$unit starts something else"
done
cd "$work"
for unit in cistern-master.service cistern-store.service; do
  # It tells of unknown settings without failing.
  said=$(systemd-analyze verify --man=no "./$unit" 2>&1) || fail "$unit: $said"
  [[ -z $said ]] || fail "$unit: $said"
  # The exposure level: 0 is least, 10 most. A setting that is lost shows here.
  systemd-analyze security --offline=true --threshold=25 "./$unit" > security 2>&1 \
    || fail "$unit: $(tail -n 1 security)"
done
# That the check checks.
sed 's/^ProtectHome=yes/ProtectHoem=yes/' cistern-store.service > broken.service
[[ -n $(systemd-analyze verify --man=no ./broken.service 2>&1) ]] || fail "a misspelt setting passed"

# What deletes segments when the unit stops.
for setting in DynamicUser=yes RemoveIPC=yes PrivateIPC=yes; do
  ! grep -q "^$setting" cistern-store.service || fail "$setting takes the segments away"
done
grep -q '^RemoveIPC=no' cistern-store.service || fail "RemoveIPC= is left to chance"

# The user and the folder that the units name.
mkdir -p sys/etc sys/dev/shm
cp "$root/deploy/systemd/cistern.sysusers" cistern.conf
systemd-sysusers --root="$work/sys" "$work/cistern.conf" > sysusers.out 2>&1 || fail "sysusers: $(cat sysusers.out)"
uid=$(awk -F: '$1 == "cistern" { print $3 }' sys/etc/passwd)
[[ -n $uid ]] || fail "no user cistern"
((uid < 1000)) || fail "cistern has uid $uid: logind removes the IPC objects of other than system users"
systemd-tmpfiles --root="$work/sys" --create - < "$root/deploy/systemd/cistern.tmpfiles" > tmpfiles.out 2>&1 \
  || fail "tmpfiles: $(cat tmpfiles.out)"
[[ $(stat -c '%a %u' sys/dev/shm/cistern) == "700 $uid" ]] \
  || fail "/dev/shm/cistern is $(stat -c '%a %u' sys/dev/shm/cistern)"
grep -q "segment_dir = \"/dev/shm/cistern\"" "$root/deploy/config/store.toml" || fail "the sample names another folder"
echo PASSED
