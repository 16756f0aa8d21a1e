# Makes the RDMA devices, in the command's root. Arguments: 1 for a pair; what netem is to do.
set -e
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
pair=$1 netem=$2

ip link set lo up
# The module brings dummy0 when it is loaded.
ip link set dummy0 mtu 9000 up
ip address add 10.77.0.1/24 dev dummy0
ip address add fd77::1/64 dev dummy0 nodad
rdma link add rxe0 type rxe netdev dummy0
[ "$pair" = 1 ] || exit 0

# Soft-RoCE of this kernel lives in the first network namespace only. Both ends of the cable are
# therefore this host's own addresses, which the kernel would never send by a cable. So the rule that
# own addresses are local makes way, for what is sent, to rules that lead through it.
ip link add veth1 type veth peer name veth2
echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter
for end in 1 2; do
  other=$((3 - end))
  echo 1 > /proc/sys/net/ipv6/conf/veth$end/disable_ipv6  # nothing but RDMA and ARP on the cable
  echo 0 > /proc/sys/net/ipv4/conf/veth$end/rp_filter
  echo 1 > /proc/sys/net/ipv4/conf/veth$end/accept_local
  ip link set veth$end mtu 9000 up
  ip address add 10.78.0.$end/24 dev veth$end
  ip route add 10.78.0.0/24 dev veth$end src 10.78.0.$end table 10$end
  ip rule add preference 1$end iif veth$end lookup local
  ip rule add preference 2$end to 10.78.0.$other iif lo lookup 10$end
done
ip rule add preference 100 lookup local
ip rule delete preference 0
for end in 1 2; do
  # shellcheck disable=SC2086  # Several words.
  [ -z "$netem" ] || tc qdisc add dev veth$end root netem $netem
  rdma link add rxe$end type rxe netdev veth$end
done
