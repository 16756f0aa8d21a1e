#!/bin/busybox sh
# The VM's first process: makes the RDMA devices, runs the command, hands its exit status out, powers
# off. Its own output is the kernel's console, which is shown only when something fails.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev

step() { read -r seconds _ < /proc/uptime; echo "vm: $seconds s: $*"; }
# Without a status the host knows that the VM failed.
end() { sync; poweroff -f; sleep 60; }
fail() { echo "vm: FAILED: $*"; end; }
load() { while read -r name; do insmod "/vm/modules/$name.ko" || fail "cannot load the module $name"; done < "/vm/$1"; }
share() { mount -t 9p -o "trans=virtio,version=9p2000.L,msize=512000,$3" "$1" "$2" || fail "cannot mount $1 at $2"; }

step "the kernel is up"
. /vm/settings  # pair, netem, shares
load boot
for port in /sys/class/virtio-ports/vport*; do
  read -r name < "$port/name" && eval "port_$name=/dev/${port##*/}"
done
[ -c "$port_out" ] && [ -c "$port_err" ] && [ -c "$port_status" ] || fail "no virtio-serial ports"

# The command's root: the host's files, read-only, below what it writes into RAM.
root=/root_of_command
mkdir -p $root /host /ram
share host /host ro,cache=loose
mount -t tmpfs -o mode=755 ram /ram
mkdir /ram/upper /ram/work
mount -t overlay -o lowerdir=/host,upperdir=/ram/upper,workdir=/ram/work overlay $root || fail "cannot mount the overlay"
mkdir -p $root/proc $root/sys $root/dev $root/run $root/tmp
mount -t proc proc $root/proc
mount -t sysfs sys $root/sys
mount -t devtmpfs dev $root/dev
mount -t tmpfs -o mode=755 run $root/run
mkdir -p $root/dev/pts $root/dev/shm
mount -t devpts pts $root/dev/pts
mount -t tmpfs -o mode=1777 shm $root/dev/shm
ln -sf /proc/self/fd $root/dev/fd
for link in 0:stdin 1:stdout 2:stderr; do ln -sf "fd/${link%:*}" "$root/dev/${link#*:}"; done
n=0
while read -r folder; do
  mkdir -p "$root$folder"
  share "keep$n" "$root$folder" rw,cache=mmap
  n=$((n + 1))
done < /vm/keep
step "the file systems are there"

hostname rdma-vm
[ "$pair" = 0 ] || load pair
cp -r /vm/scripts $root/run/rdma-vm
chroot $root /bin/sh /run/rdma-vm/net "$pair" "$netem" || fail "cannot make the RDMA devices"
step "the RDMA devices are up"

# Through pipes, which a command may reopen or hand on; a port takes one opener.
mkfifo /out /err
cat /out > "$port_out" & cat_out=$!
cat /err > "$port_err" & cat_err=$!
chroot $root /bin/sh /run/rdma-vm/command < /dev/null > /out 2> /err
status=$?
step "the command ended: $status"
# Its last output; what it left running may hold the pipes open for ever.
(sleep 2; kill $cat_out $cat_err) 2> /dev/null &
wait $cat_out
wait $cat_err
echo "$status" > "$port_status"
end
