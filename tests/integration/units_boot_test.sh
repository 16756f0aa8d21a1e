#!/bin/bash
# The units of deploy/systemd under a systemd that booted: in a container whose root is this host's,
# with all that is written kept aside and thrown away.
set -euo pipefail
skip() {
  echo "SKIPPED: $*: the units were not started"
  exit 0
}
[[ $(id -u) == 0 ]] || skip "not root"
command -v systemd-nspawn > /dev/null || skip "no systemd-nspawn (package systemd-container)"

source_root=$PWD
work=$(mktemp -d)
machine=cistern-units-$$
cleanup() {
  mountpoint -q "$work/tree" && umount "$work/tree"
  mountpoint -q "$work/fs" && umount "$work/fs"
  rm -rf "$work"
}
trap cleanup EXIT

# On a tmpfs: the root may itself be an overlay, which is no upper folder of another.
mkdir "$work/fs" "$work/tree"
mount -t tmpfs tmpfs "$work/fs"
mkdir "$work/fs/upper" "$work/fs/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/fs/upper,workdir=$work/fs/work" "$work/tree" \
  || skip "no overlay of this host's root"

# --- what an administrator installs ---
install_file() { install -D -m "$1" "$source_root/$2" "$work/tree/$3"; }
install_file 0755 master/cistern-master usr/bin/cistern-master
install_file 0755 store/cistern-store usr/bin/cistern-store
install_file 0755 tools/ctl/cisternctl usr/bin/cisternctl
for daemon in master store; do
  install_file 0644 deploy/systemd/cistern-$daemon.service etc/systemd/system/cistern-$daemon.service
  # The samples are for two hosts and a large one.
  mkdir -p "$work/tree/etc/cistern"
  sed -e 's/"10\.0\.0\.[12]"/"127.0.0.1"/; s/"10\.0\.0\.1:7601"/"127.0.0.1:7601"/; s/size = "64GiB"/size = "64MiB"/' \
    -e 's/^allowed_uids = ""/allowed_uids = "65534"/' -e 's/^# run_dir = "\/run\/cistern/run_dir = "\/run\/cistern/' \
    "$source_root/deploy/config/$daemon.toml" > "$work/tree/etc/cistern/$daemon.toml"
done
install_file 0644 deploy/systemd/cistern.sysusers etc/sysusers.d/cistern.conf
install_file 0644 deploy/systemd/cistern.tmpfiles etc/tmpfiles.d/cistern.conf
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > "$work/tree/etc/cistern/token"

# --- what is tried inside: its output comes back in a file, and it switches the machine off ---
cat > "$work/tree/srv/try" <<'TRY'
#!/bin/bash
set -uo pipefail
fail() { echo "FAILED: $*"; systemctl status --no-pager -n 40 cistern-master cistern-store; exit 1; }
property() { systemctl show --value -p "$2" "cistern-$1"; }
await() {  # UNIT PROPERTY VALUE: within 20 s
  for ((i = 0; i < 200; ++i)); do
    [[ $(property "$1" "$2") == "$3" ]] && return
    sleep 0.1
  done
  fail "$1: $2 is $(property "$1" "$2"), not $3, after 20 s"
}
ctl() { cisternctl --master 127.0.0.1:7601 --data 127.0.0.1:7600 --token-file /etc/cistern/token "$@"; }
came_back() {
  for ((i = 0; i < 100; ++i)); do
    ctl get key /srv/got > /srv/got.log 2>&1 && cmp -s /srv/chunk /srv/got && return
    sleep 0.1
  done
  fail "$1: $(cat /srv/got.log)"
}

chown -R cistern:cistern /etc/cistern && chmod 0600 /etc/cistern/token || fail "no user cistern"
[[ $(stat -c '%a %U' /dev/shm/cistern) == "700 cistern" ]] || fail "/dev/shm/cistern: $(stat -c '%a %U' /dev/shm/cistern)"

# Started when they serve, and not before: both commands return at READY=1.
systemctl start cistern-master || fail "the master did not start"
systemctl start cistern-store || fail "the store did not start"
for unit in master store; do
  [[ $(property $unit ActiveState) == active ]] || fail "$unit is $(property $unit ActiveState)"
  [[ -n $(property $unit StatusText) ]] || fail "$unit says nothing of its state"
  [[ $(ps -o user= -p "$(property $unit MainPID)") == cistern ]] || fail "$unit runs as another user"
done
runuser -u nobody -- test -w /run/cistern/store/store.sock \
  || fail "allowed_uids lists nobody, who cannot reach the store's socket: $(ls -l /run/cistern/store)"
head -c 100000 /dev/urandom > /srv/chunk
ctl put key /srv/chunk > /srv/put.log 2>&1 || fail "put: $(cat /srv/put.log)"
came_back "no chunk after the put"

# A restart and a kill keep what is committed; a kill is made good by systemd.
systemctl restart cistern-store || fail "the store did not restart"
came_back "the chunk is gone with a restart"
systemctl kill -s KILL cistern-store
await store NRestarts 1
await store ActiveState active
came_back "the chunk is gone with a kill"
systemctl kill -s KILL cistern-master
await master NRestarts 1
await master ActiveState active
came_back "the chunk is gone with the master"
# A process that hangs is not fed by, so it is ended and started anew; that takes its WatchdogSec.
mkdir -p /run/systemd/system/cistern-store.service.d
printf '[Service]\nWatchdogSec=3s\n' > /run/systemd/system/cistern-store.service.d/watchdog.conf
systemctl daemon-reload
systemctl restart cistern-store || fail "the store did not restart with another watchdog"
before=$(property store NRestarts)
kill -STOP "$(property store MainPID)"
await store NRestarts $((before + 1))
await store ActiveState active
came_back "the chunk is gone with a hang"

# Stopped: with exit code 0, and soon.
systemctl stop cistern-store cistern-master
for unit in store master; do
  [[ $(property $unit Result) == success && $(property $unit ExecMainStatus) == 0 ]] \
    || fail "$unit ended with $(property $unit Result), $(property $unit ExecMainStatus)"
done
[[ -n $(ls /dev/shm/cistern) ]] || fail "the segments are gone with the unit"

# A wrong configuration is not tried again and again.
echo 'nonsense = 1' >> /etc/cistern/store.toml
systemctl start cistern-store 2> /dev/null && fail "started with a wrong configuration"
sleep 2.5
[[ $(property store ActiveState) == failed && $(property store ExecMainStatus) == 2 ]] \
  || fail "with a wrong configuration it is $(property store ActiveState), exit code $(property store ExecMainStatus)"
journalctl -u cistern-store -n 20 | grep -q nonsense || fail "the journal does not name the wrong key"
echo PASSED
TRY
cat > "$work/tree/etc/systemd/system/try.service" <<'UNIT'
[Unit]
After=systemd-tmpfiles-setup.service systemd-sysusers.service dbus.socket
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
ExecStart=/bin/bash -c '/bin/bash /srv/try > /srv/said 2>&1'
TimeoutStartSec=150s
UNIT
# Nothing else of this host's is started.
cat > "$work/tree/etc/systemd/system/try.target" <<'UNIT'
[Unit]
Requires=sysinit.target dbus.socket
Wants=try.service
UNIT

timeout 200 systemd-nspawn --quiet --register=no --keep-unit --directory="$work/tree" --machine="$machine" \
  --private-network --boot systemd.unit=try.target > "$work/fs/boot" 2>&1 < /dev/null || true
if [[ ! -e $work/tree/srv/said ]]; then
  # A host that cannot boot it says nothing of the units.
  tail -n 20 "$work/fs/boot"
  skip "systemd did not boot in a container here"
fi
cat "$work/tree/srv/said"
[[ $(tail -n 1 "$work/tree/srv/said") == PASSED ]]
