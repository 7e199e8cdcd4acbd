# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# tshark's NVMe dissectors as an independent reader of what our two ends say to each other. Sourced by cases.sh, which only
# captures (reading takes minutes in the VM), by read_capture and by tshark_tcp.

# capture_start INTERFACE FILE [FILTER]: returns when packets are being kept.
capture_start() {
	local i
	dumpcap -q -i "$1" -s 0 -B 16 -f "${3:-}" -w "$2" > "$2.log" 2>&1 &
	capture_pid=$!
	for ((i = 0; i < 100; i++)); do
		! grep -q '^File: ' "$2.log" || return 0
		kill -0 $capture_pid 2>/dev/null || { capture_pid=; break; }
		sleep 0.1
	done
	return 1
}

capture_stop() {
	sleep 1 # the last packets are still on their way through the kernel's ring
	kill -INT "$capture_pid"
	wait "$capture_pid"
	capture_pid=
	grep 'dropped on' "$1.log"
}

# count FILE FILTER [tshark option...]: how many packets match.
capture_count() {
	local file=$1 filter=$2
	shift 2
	tshark -r "$file" "$@" -Y "$filter" -T fields -e frame.number 2>/dev/null | wc -l
}

# capture_judge FILE PROTOCOL MINIMUM [tshark option...]: at least MINIMUM packets are read as PROTOCOL, none of them is
# malformed or wrong. (A capsule longer than a packet, as with 4 KiB of data in it, is opaque to tshark.) Prints what it found; non-zero says no.
capture_judge() {
	local file=$1 protocol=$2 minimum=$3 read bad
	shift 3
	set -- -o nvme-tcp.check_hdgst:TRUE -o nvme-tcp.check_ddgst:TRUE "$@"
	read=$(capture_count "$file" "$protocol" "$@")
	bad=$(tshark -r "$file" "$@" -Y "_ws.malformed or _ws.expert.severity == \"Error\" or
		nvme-tcp.hdgst.status == \"Bad\" or nvme-tcp.ddgst.status == \"Bad\" or nvme-tcp.c2htermreq or nvme-tcp.h2ctermreq" 2>&1 | grep -v '^Running as') || true
	echo "$read packets read as $protocol"
	if [ -n "$bad" ]; then
		head -20 <<< "$bad"
		echo "tshark calls $(wc -l <<< "$bad") packets wrong, the first: $(head -1 <<< "$bad" | cut -c1-120)"
		return 1
	fi
	[ "$read" -ge "$minimum" ] || { echo "tshark reads only $read packets as $protocol, at least $minimum were sent"; return 1; }
}
