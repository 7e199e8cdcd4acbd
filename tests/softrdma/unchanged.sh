#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs a program of the distribution (rdmacm-utils, ibverbs-utils) over softrdma, as it was installed.
# usage: unchanged.sh NAME; LD_LIBRARY_PATH points to the libraries. 77: not installed, or cannot be loaded.

set -u
out=$(mktemp -d) || exit 1
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$out"' EXIT

skip() {
	echo "skipped: $1"
	exit 77
}

need() {
	command -v "$1" >/dev/null || skip "$1 is not installed"
	[ -z "${SOFTRDMA_SANITIZED:-}" ] || skip "an unchanged program cannot load sanitized libraries"
}

# A fabric of its own, so that fixed ports of the programs meet no other test.
export SOFTRDMA_DIR="unchanged-$$"

wait_listener() {
	tries=0
	until grep -q "@softrdma/$SOFTRDMA_DIR/cm/" /proc/net/unix; do
		tries=$((tries + 1))
		[ $tries -lt 100 ] || { echo "no listener"; cat "$out/server"; exit 1; }
		sleep 0.05
	done
}

start() {
	timeout 60 "$@" >"$out/server" 2>&1 &
	server=$!
}

finish() {
	wait "$server"
	status=$?
	server=
	[ $status -eq 0 ] || { echo "server: exit status $status"; cat "$out/server"; exit 1; }
}

cm_pair() { # server command -- client command
	command=
	while [ "$1" != -- ]; do
		command="$command $1"
		shift
	done
	shift
	# shellcheck disable=SC2086
	start $command
	wait_listener
	timeout 60 "$@" || exit 1
	finish
}

# These meet over a TCP port of their own; the client tries until the server is there.
verbs_pair() {
	port=$((20000 + $$ % 20000))
	start "$@" -g 0 -p "$port"
	tries=0
	until timeout 60 "$@" -g 0 -p "$port" 127.0.0.1 >>"$out/client" 2>&1; do
		tries=$((tries + 1))
		[ $tries -lt 50 ] || { cat "$out/client" "$out/server"; exit 1; }
		sleep 0.1
	done
	tail -1 "$out/client"
	finish
}

case $1 in
devinfo)
	need ibv_devinfo
	timeout 60 ibv_devinfo -v >"$out/info" || exit 1
	grep -q 'hca_id:.*soft0' "$out/info" && grep -q 'PORT_ACTIVE (4)' "$out/info"
	;;
rping)
	need rping
	cm_pair rping -s -a 127.0.0.1 -C 50 -S 8192 -V -- rping -c -a 127.0.0.1 -C 50 -S 8192 -V
	;;
rping6)
	need rping
	cm_pair rping -s -a ::1 -C 50 -V -- rping -c -a ::1 -C 50 -V
	;;
rping_self)
	need rping
	cm_pair rping -s -q -a 127.0.0.1 -C 50 -V -- rping -c -q -a 127.0.0.1 -C 50 -V
	;;
ucmatose)
	need ucmatose
	cm_pair ucmatose -c 4 -C 20 -S 100000 -- ucmatose -s 127.0.0.1 -c 4 -C 20 -S 100000
	;;
ucmatose_migrate)
	need ucmatose
	cm_pair ucmatose -m -c 4 -- ucmatose -s 127.0.0.1 -m -c 4
	;;
endpoints)
	need rdma_client
	cm_pair rdma_server -- rdma_client -s 127.0.0.1
	;;
rc_pingpong)
	need ibv_rc_pingpong
	verbs_pair ibv_rc_pingpong -n 200 -c
	;;
rc_pingpong_events)
	need ibv_rc_pingpong
	verbs_pair ibv_rc_pingpong -n 200 -e
	;;
srq_pingpong)
	need ibv_srq_pingpong
	verbs_pair ibv_srq_pingpong -n 200
	;;
*)
	echo "unknown: $1"
	exit 2
	;;
esac
