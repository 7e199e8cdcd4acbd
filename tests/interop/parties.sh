# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# What the cases have in common: the parties (hauld, the kernel's host and target, our engine), how each is started and ended,
# and how to wait. Sourced by tests/interop/cases.sh. Whatever a case starts, cleanup ends.
# shellcheck disable=SC2034,SC2086,SC2119,SC2120,SC2154 # variables without blanks, shared by these files

tmp=/run/interop
address=10.9.0.1
nqn=nqn.2024-01.org.example:interop
null_blk=/sys/kernel/config/nullb/haul

fail() { echo "$*"; exit 1; }
skip() { echo "$*"; exit 77; }

cleanup() {
	nvme disconnect-all > /dev/null 2>&1
	[ -z "${hauld_pid:-}" ] || { kill -9 "$hauld_pid"; wait "$hauld_pid"; } 2>/dev/null
	[ -z "${capture_pid:-}" ] || kill "$capture_pid" 2>/dev/null
	tests/lab/nvmet clear
	umount $tmp.mount 2>/dev/null && rmdir $tmp.mount
	[ ! -e $null_blk ] || { echo 0 > $null_blk/power; rmdir $null_blk; }
	rm -rf "$tmp".state
	rm -f "$tmp".*
}

# until_true SECONDS COMMAND...: does it succeed in time?
until_true() {
	local i seconds=$1
	shift
	for ((i = 0; i < seconds * 5; i++)); do
		"$@" && return 0
		sleep 0.2
	done
	return 1
}

# start_hauld TRTYPE [ADDRESS]: a 64 MiB file behind our target at ADDRESS:4420.
start_hauld() {
	truncate -s 64M $tmp.img
	run_hauld --listen "$1://${2:-$address}:4420" --export "$tmp.img,nqn=$nqn"
}

# run_hauld OPTION...
run_hauld() {
	[ -x "$build/target/hauld" ] || fail "hauld is not in this build"
	kernel_log_mark
	rm -f $tmp.ready
	mkfifo $tmp.ready
	"$build/target/hauld" "$@" > $tmp.ready 2> $tmp.hauld &
	hauld_pid=$!
	local line=
	while read -r -t 20 line; do
		[ "$line" != ready ] || break
	done < $tmp.ready
	[ "$line" = ready ] || { cat $tmp.hauld; fail "hauld did not say ready: $(tail -1 $tmp.hauld)"; }
}

# stop_hauld: SIGTERM ends it with status 0.
stop_hauld() {
	local rc=0
	kill "$hauld_pid"
	wait "$hauld_pid" || rc=$?
	hauld_pid=
	cat $tmp.hauld
	[ $rc = 0 ] || fail "hauld ended with status $rc after SIGTERM"
}

# kernel_log [dmesg option...]: what the kernel said since kernel_log_mark.
kernel_log_mark() { log_start=$(dmesg | tail -1 | sed 's/^\[ *\([0-9.]*\)\].*/\1/'); }

kernel_log() { dmesg "$@" | awk -v start="${log_start:-0}" '{time = $0; gsub(/^\[ *|\].*/, "", time)} time + 0 > start + 0'; }
kernel_warnings() { kernel_log -l warn,err,crit,alert,emerg | grep -E 'nvme|rxe|infiniband' | grep -v 'speed is unknown'; }

# wait_for_disk: sets disk to the block device that appeared.
wait_for_disk() {
	local i
	for ((i = 0; i < 50; i++)); do
		disk=$(find /dev -name 'nvme*n1' | head -1)
		[ -z "$disk" ] || return 0
		sleep 0.2
	done
	kernel_log
	fail "no block device appeared after nvme connect"
}

# kernel_connect TRTYPE [nvme connect option...]
kernel_connect() {
	local trtype=$1
	shift
	nvme connect -t "$trtype" -a $address -s 4420 -n $nqn --nr-io-queues=2 --keep-alive-tmo=15 "$@" || fail "nvme connect failed: $(kernel_log | tail -1)"
	wait_for_disk
}

kernel_disconnect() {
	local warnings
	nvme disconnect -n $nqn | grep -q 'disconnected 1 ' || fail "nvme disconnect did not find the controller"
	kernel_log
	warnings=$(kernel_warnings) && { echo "$warnings"; fail "the kernel warned: $(tail -1 <<< "$warnings")"; }
	return 0
}

# fio_verify FIO-OPTION...: write with verify; the check phase must really have read.
fio_verify() {
	fio --name=verify --rw=randwrite --bsrange=4k-64k --size=8M --iodepth=16 --verify=crc32c --verify_fatal=1 --verify_state_save=0 --do_verify=1 \
		--output-format=json --output=$tmp.json "$@" || { rc=$?; cat $tmp.json $tmp.hauld; fail "fio failed with status $rc"; }
	/usr/bin/python3 - $tmp.json << 'PY' || fail "fio's verify phase did not read back what was written"
import json, sys
text = open(sys.argv[1]).read()
job = json.loads(text[text.index("{"):])["jobs"][0]
print("fio: wrote", job["write"]["io_bytes"], "read", job["read"]["io_bytes"], "error", job["error"])
sys.exit(not (job["error"] == 0 and job["write"]["io_bytes"] == 8 << 20 and job["read"]["io_bytes"] == 8 << 20))
PY
}

kernel_fio() { fio_verify --filename="$disk" --ioengine=libaio --direct=1 "$@"; }

kernel_host_writes_and_reads() {
	kernel_connect "$@"
	kernel_fio
	kernel_disconnect
}

engine_fio() {
	local engine=$build/fio-plugin/fio-haul.so
	[ -e "$engine" ] || fail "the fio engine is not in this build (-Dfio_source)"
	fio_verify "--ioengine=external:$engine" "--uri=$1" --thread=1 "${@:2}"
}

start_kernel_target() {
	kernel_log_mark
	tests/lab/nvmet export "$nqn" ram:64 "$1://$address:4420" || fail "nvmet refused the export"
}

need_haul() { haul=$build/initiator/haul; [ -x "$haul" ] || fail "haul is not in this build"; }
