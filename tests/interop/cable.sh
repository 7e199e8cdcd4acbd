# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# Traffic over a cable, kept for tests/interop/read_capture to read afterwards. Sourced by tests/interop/cases.sh.
# shellcheck disable=SC2034,SC2086,SC2119,SC2120,SC2154 # variables without blanks, shared by these files

# shellcheck source=tests/interop/capture.sh
. tests/interop/capture.sh

# wire_up: two RDMA devices at the two ends of a cable (veth), 10.9.1.1 and 10.9.1.2, both in this machine. The kernel would
# keep traffic between two addresses of its own off the cable: routes that only locally made packets follow send it there.
# The case's address is then 10.9.1.2.
wire_up() {
	address=10.9.1.2
	[ ! -e /sys/class/net/wire1 ] || return 0
	ip link add wire1 mtu 4500 type veth peer name wire2 mtu 4500
	local i
	for i in 1 2; do
		ip addr add 10.9.1.$i/32 dev wire$i
		ip link set wire$i up
		sysctl -qw net.ipv4.conf.wire$i.accept_local=1 net.ipv4.conf.wire$i.rp_filter=0 net.ipv4.conf.wire$i.arp_ignore=1
		ip route add 10.9.1.$((3 - i)) dev wire$i src 10.9.1.$i table 10$i
		ip rule add iif lo to 10.9.1.$((3 - i)) pref 1$i lookup 10$i
		# The connection manager asks whether the peer's address is behind the device that its request came in on.
		ip rule add oif wire$i to 10.9.1.$((3 - i)) pref 2$i lookup 10$i
	done
	ip rule add pref 100 lookup local
	ip rule del pref 0
	sysctl -qw net.ipv4.conf.all.rp_filter=0
	rdma link add rxe1 type rxe netdev wire1
	rdma link add rxe2 type rxe netdev wire2
}

# captured NAME COMMAND...: run the command with the cable's packets kept in /out/NAME.pcap.
captured() {
	local file=/out/$1.pcap
	shift
	capture_start wire1 $tmp.pcap || fail "no capture: $(tail -1 $tmp.pcap.log)"
	("$@")
	local rc=$?
	capture_stop $tmp.pcap > /dev/null
	cp $tmp.pcap "$file"
	[ $rc = 0 ] || exit $rc
}
