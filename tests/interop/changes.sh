# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# The kernel's host follows what changes at hauld while it is connected: namespaces, ANA states.
# Sourced by tests/interop/cases.sh.
# shellcheck disable=SC2034,SC2086,SC2119,SC2120,SC2154 # variables without blanks, shared by these files

# changes_config TRTYPE NAMESPACE...: a configuration with these.
changes_config() {
	local trtype=$1 one
	shift
	echo "listen: ['$trtype://$address:4420']"
	echo "subsystems: [{nqn: $nqn, namespaces: ["
	for one; do echo "    {$one},"; done
	echo "]}]"
}

has_blocks() { [ "$(blockdev --getsz "$1" 2>/dev/null)" = "$2" ]; }
is_read_only() { [ "$(blockdev --getro "$1")" = 1 ]; }
is_gone() { [ ! -e "$1" ]; }

# Namespaces come, grow, become read-only and go, by events alone, while fio writes to another one.
kernel_host_follows_changes() {
	local ctl=("$build/target/haulctl" --control "$tmp.sock") second
	truncate -s 64M $tmp.img
	truncate -s 8M $tmp.second
	changes_config "$1" "path: $tmp.img, nsid: 1" > $tmp.conf
	run_hauld --config $tmp.conf --control $tmp.sock
	kernel_connect "$1"
	second=${disk%n1}n2 # by the order of coming, not by namespace id
	kernel_load
	changes_config "$1" "path: $tmp.img, nsid: 1" "path: $tmp.second, nsid: 5" > $tmp.conf
	"${ctl[@]}" apply $tmp.conf || fail "haulctl apply failed"
	until_true 10 has_blocks "$second" 16384 || fail "the new namespace did not appear"
	truncate -s 16M $tmp.second
	until_true 15 has_blocks "$second" 32768 || fail "the namespace did not grow"
	changes_config "$1" "path: $tmp.img, nsid: 1" > $tmp.conf
	"${ctl[@]}" apply $tmp.conf || fail "haulctl apply failed"
	until_true 10 is_gone "$second" || fail "the removed namespace did not go"
	changes_config "$1" "path: $tmp.img, nsid: 1" "path: $tmp.second, nsid: 5, readonly: true" > $tmp.conf
	# Its disk is free when its last command is over on all reactors.
	until_true 10 "${ctl[@]}" apply $tmp.conf || fail "haulctl apply failed"
	until_true 10 is_read_only "$second" || fail "the namespace did not come back read-only"
	fio_load_stop
	kernel_disconnect
	stop_hauld
}

# ana_config TRTYPE STATE STATE [NAMESPACE]: two listeners of one subsystem, and what its disk is through each.
ana_config() {
	echo "listen: ['$1://$address:4420', '$1://$address:4421']"
	echo "subsystems: [{nqn: $nqn, ana: ["
	echo "    {group: 1, state: $2, listeners: ['$1://$address:4420']}, {group: 1, state: $3, listeners: ['$1://$address:4421']}],"
	echo "  namespaces: [{path: $tmp.img, nsid: 1}${4:+, {$4\}}]}]"
}

# ana_commands PORT: how many commands have come through it, on I/O queues.
ana_commands() {
	"$build/target/haulctl" --control "$tmp.sock" status --json > $tmp.status || return
	awk -v port=":$1\"" '/"qid":/ {io = !/:0,/} /"local":/ {here = index($0, port)}
		/"commands":/ && io && here {split($0, word, /[:,]/); sum += word[2]} END {print sum + 0}' $tmp.status
}

# ana_is_used PORT COUNT: some commands more than COUNT have come through it.
ana_is_used() { [ "$(ana_commands "$1")" -gt $(($2 + 20)) ]; }

ana_is_known() { # STATE...: the kernel has just these, in whatever order
	[ "$(cat /sys/class/nvme/nvme*/nvme*c*n1/ana_state | sort | tr '\n' ' ')" = "$(printf '%s\n' "$@" | sort | tr '\n' ' ')" ]
}

# The kernel's native multipath follows the states of two listeners while fio writes and verifies: nothing fails, and I/O
# comes by the usable way only.
kernel_host_follows_ana() {
	local ctl=("$build/target/haulctl" --control "$tmp.sock") trtype=$1 port from to before
	[ "$(cat /sys/module/nvme_core/parameters/multipath)" = Y ] || skip "this kernel has no native multipath"
	truncate -s 64M $tmp.img
	ana_config "$trtype" optimized inaccessible > $tmp.conf
	run_hauld --config $tmp.conf --control $tmp.sock
	for port in 4420 4421; do
		nvme connect -t "$trtype" -a $address -s $port -n $nqn --nr-io-queues=2 --keep-alive-tmo=15 || fail "nvme connect to $port failed: $(kernel_log | tail -1)"
	done
	until_true 10 ana_is_known optimized inaccessible || fail "the kernel does not know the states"
	disk=/dev/$(basename "$(echo /sys/class/nvme-subsystem/nvme-subsys*/nvme*n1 | cut -d' ' -f1)")
	kernel_load --bsrange=4k-4k
	from=4420 to=4421
	for turn in 1 2 3 4; do
		before=$(ana_commands $to)
		case $turn in
		1 | 3) # one after the other, with a change that hosts wait for
			"${ctl[@]}" ana $nqn 1 change --listener "$trtype://$address:$from" || fail "haulctl ana failed"
			"${ctl[@]}" ana $nqn 1 non-optimized --listener "$trtype://$address:$to" || fail "haulctl ana failed"
			"${ctl[@]}" ana $nqn 1 inaccessible --listener "$trtype://$address:$from" || fail "haulctl ana failed"
			until_true 10 ana_is_known non-optimized inaccessible || fail "the kernel does not know the new states"
			;;
		*) # both at once
			ana_config "$trtype" optimized inaccessible > $tmp.conf
			"${ctl[@]}" apply $tmp.conf || fail "haulctl apply failed"
			until_true 10 ana_is_known optimized inaccessible || fail "the kernel does not know the new states"
			;;
		esac
		until_true 20 ana_is_used $to "$before" || fail "I/O has not moved to $to"
		before=$(ana_commands $from)
		sleep 0.5
		[ "$(ana_commands $from)" = "$before" ] || fail "I/O still comes by $from"
		port=$from from=$to to=$port
	done
	fio_load_stop
	ana_config "$trtype" optimized inaccessible "ram: 1M, nsid: 2" > $tmp.conf
	"${ctl[@]}" apply $tmp.conf || fail "haulctl apply failed"
	until_true 10 has_blocks "${disk%n1}n2" 2048 || fail "the new namespace did not appear"
	nvme ana-log "$(find /dev -name 'nvme[0-9]' | head -1)" || fail "nvme ana-log failed"
	nvme disconnect -n $nqn | grep -q 'disconnected 2 ' || fail "nvme disconnect did not find the controllers"
	kernel_log
	! kernel_warnings | grep -v 'no usable path - requeuing I/O' || fail "the kernel warned"
	! kernel_log | grep -iE 'i/o error|no available path' || fail "I/O failed"
	stop_hauld
}

# discovery_is STATE: of the persistent discovery controller, whose name discovery becomes.
discovery_is() {
	local ctrl
	for ctrl in /sys/class/nvme/nvme*; do
		[ "$(cat "$ctrl/cntrltype" 2>/dev/null)" = discovery ] || continue
		discovery=${ctrl##*/}
		[ "$(cat "$ctrl/state")" = "$1" ]
		return
	done
	return 1
}

# subsystems_are NQN...: the kernel is connected to just these, in whatever order.
subsystems_are() { [ "$(cat /sys/class/nvme/*/subsysnqn | grep -v discovery | sort | tr '\n' ' ')" = "$(printf '%s\n' "$@" | sort | tr '\n' ' ')" ]; }

# discovery_config TRTYPE NQN...
discovery_config() {
	local one
	echo "listen: ['$1://$address:4420']"
	echo "subsystems:"
	for one in "${@:2}"; do echo "  - {nqn: $one, namespaces: [{ram: 1M, nsid: 1}]}"; done
}

# kernel_events: the lines of the kernel's events, as udev gets them (NETLINK_KOBJECT_UEVENT).
kernel_events() {
	exec /usr/bin/python3 -u -c 'import socket
events = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15)
events.bind((0, 1))
print("listening")
while True:
    print(events.recv(65536).decode(errors="replace").replace("\0", "\n"))'
}
discovery_told() { [ "$(grep -c "^$1\$" $tmp.events)" -ge "$2" ]; }

# What udev does with the events that the kernel makes of ours, step by step: a discovery controller that stays, an event for
# each change, and connect-all through it. It comes back after a crash of hauld and says so.
kernel_host_keeps_discovery() {
	local ctl=("$build/target/haulctl" --control "$tmp.sock") discovery events
	discovery_config "$1" $nqn > $tmp.conf
	run_hauld --config $tmp.conf --control $tmp.sock
	kernel_events > $tmp.events &
	events=$!
	until_true 20 grep -q listening $tmp.events || fail "nobody listens for the kernel's events"
	nvme discover -p -t "$1" -a $address -s 4420 --reconnect-delay=1 > $tmp.discovery || fail "nvme discover -p failed"
	grep -q "subnqn: *$nqn\$" $tmp.discovery || fail "the discovery log does not list $nqn"
	discovery_is live || fail "there is no discovery controller"
	nvme connect-all -p -t "$1" -a $address -s 4420 --reconnect-delay=1 --nr-io-queues=1 || fail "nvme connect-all -p failed"
	until_true 10 subsystems_are $nqn || fail "connect-all did not connect $nqn"
	discovery_config "$1" $nqn $nqn-2 > $tmp.conf
	"${ctl[@]}" apply $tmp.conf || fail "haulctl apply failed"
	until_true 10 discovery_told NVME_AEN=0x70f002 1 || { cat $tmp.events $tmp.hauld; fail "the kernel made no event of the new subsystem"; }
	nvme connect-all --device=$discovery --nr-io-queues=1 || fail "nvme connect-all through $discovery failed"
	until_true 10 subsystems_are $nqn $nqn-2 || fail "the new subsystem was not connected"
	discovery_config "$1" $nqn-2 > $tmp.conf
	"${ctl[@]}" apply $tmp.conf || fail "haulctl apply failed"
	until_true 10 discovery_told NVME_AEN=0x70f002 2 || fail "the kernel made no event of the subsystem that went"
	nvme discover --device=$discovery > $tmp.discovery || fail "nvme discover through $discovery failed"
	! grep -q "subnqn: *$nqn\$" $tmp.discovery || fail "the discovery log still lists $nqn"
	kill -9 "$hauld_pid"
	wait "$hauld_pid"
	run_hauld --config $tmp.conf --control $tmp.sock
	until_true 30 discovery_told NVME_EVENT=rediscover 1 || fail "the discovery controller did not come back"
	until_true 10 discovery_is live || fail "the discovery controller is not live"
	kill $events
	cat $tmp.events
	kernel_log
	stop_hauld
}
