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
	local mount
	! any /sys/class/nvme/* || nvme disconnect-all > /dev/null 2>&1
	[ -z "${hauld_pid:-}" ] || { kill -9 "$hauld_pid"; wait "$hauld_pid"; } 2>/dev/null
	[ -z "${capture_pid:-}" ] || kill "$capture_pid" 2>/dev/null
	! any /sys/kernel/config/nvmet/subsystems/* || tests/lab/nvmet clear
	for mount in "$tmp".mount*; do
		[ ! -e "$mount" ] || { umount "$mount" 2>/dev/null; rmdir "$mount"; }
	done
	[ ! -e $null_blk ] || { echo 0 > $null_blk/power; rmdir $null_blk; }
	[ ! -e $tmp.state ] || rm -rf $tmp.state
	rm -f "$tmp".*
}

# any FILE...: is there one?
any() { [ -e "$1" ]; }

# until_true SECONDS COMMAND...: does it succeed in time?
until_true() {
	local i seconds=$1
	shift
	for ((i = 0; i < seconds * 10; i++)); do
		"$@" && return 0
		sleep 0.1
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
	[ -p $tmp.ready ] || mkfifo $tmp.ready
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

# kernel_log: what the kernel said since kernel_log_mark, with the level of each line.
kernel_log_mark() { log_mark="haul: mark $EPOCHREALTIME"; echo "$log_mark" > /dev/kmsg; }
kernel_log() { dmesg -x | sed "1,/$log_mark/d"; }
kernel_warnings() { grep -E '^[a-z]+ *:(warn|err|crit|alert|emerg) .*(nvme|rxe|infiniband)' "${1:-}" | grep -v 'speed is unknown'; }

# kernel_is_calm: it did not warn.
kernel_is_calm() {
	local warnings
	kernel_log > $tmp.dmesg
	cat $tmp.dmesg
	warnings=$(kernel_warnings $tmp.dmesg) && { echo "$warnings"; fail "the kernel warned: ${warnings##*$'\n'}"; }
	return 0
}

disk_is_there() {
	for disk in /dev/nvme*n1; do
		[ ! -b "$disk" ] || return 0
	done
	return 1
}

# wait_for_disk: sets disk to the block device that appeared.
wait_for_disk() { until_true 10 disk_is_there || { kernel_log; fail "no block device appeared after nvme connect"; }; }

# nr_writes: how many the kernel has finished on the disk.
nr_writes() {
	local field
	read -ra field < "/sys/class/block/${disk#/dev/}/stat"
	echo "${field[4]}"
}
wrote_more_than() { [ "$(nr_writes)" -gt "$1" ]; }

# kernel_connect TRTYPE [nvme connect option...]
kernel_connect() {
	local trtype=$1
	shift
	nvme connect -t "$trtype" -a $address -s 4420 -n $nqn --nr-io-queues=2 --keep-alive-tmo=15 "$@" || fail "nvme connect failed: $(kernel_log | tail -1)"
	wait_for_disk
}

kernel_disconnect() {
	nvme disconnect -n $nqn | grep -q 'disconnected 1 ' || fail "nvme disconnect did not find the controller"
	kernel_is_calm
}

fio_run() { fio --output-format=terse --terse-version=3 --output=$tmp.fio --aux-path=${tmp%/*} --verify=crc32c --verify_fatal=1 --verify_state_save=0 "$@"; }

# fio_result STATUS: every job ended well. Sets written and read_back, in KiB.
fio_result() {
	local field
	written=0 read_back=0
	[ "$1" = 0 ] || { cat $tmp.fio $tmp.hauld; fail "fio failed with status $1"; }
	while IFS=';' read -ra field; do
		[ "${field[0]}" = 3 ] || continue
		echo "fio: wrote ${field[46]} KiB, read ${field[5]} KiB, error ${field[4]}"
		[ "${field[4]}" = 0 ] || fail "fio tells of error ${field[4]}"
		written=$((written + field[46])) read_back=$((read_back + field[5]))
	done < $tmp.fio
}

# fio_verify FIO-OPTION...: write with verify; the check phase must really have read.
fio_verify() {
	local rc=0
	fio_run --name=verify --rw=randwrite --bsrange=4k-64k --size=4M --iodepth=16 --do_verify=1 "$@" || rc=$?
	fio_result $rc
	[ "$written $read_back" = "4096 4096" ] || fail "fio's verify phase did not read back what was written"
}

# fio_load FIO-OPTION...: writes and, 16 blocks later, reads back, until fio_load_stop; nothing may fail meanwhile.
fio_load() {
	rm -f $tmp.enough
	fio_run --name=load --rw=randwrite --bsrange=4k-64k --size=16M --iodepth=16 --verify_backlog=16 --time_based --runtime=150 \
		--thinktime=20000 --thinktime_blocks=4 --trigger-file=$tmp.enough "$@" &
	load=$!
}

fio_load_stop() {
	local rc=0
	kill -0 "$load" 2>/dev/null || fail "fio ended before all was done"
	: > $tmp.enough
	wait "$load" || rc=$?
	fio_result $rc
	[ $read_back -gt 0 ] || fail "fio has read nothing back"
}

kernel_fio() { fio_verify --filename="$disk" --ioengine=libaio --direct=1; }

# kernel_load [FIO-OPTION...]: fio_load on the disk, which has begun to write.
kernel_load() {
	local before
	before=$(nr_writes)
	fio_load --filename="$disk" --ioengine=libaio --direct=1 "$@"
	until_true 30 wrote_more_than $((before + 8)) || fail "fio does not write"
}

kernel_host_writes_and_reads() {
	kernel_connect "$@"
	kernel_fio
	kernel_disconnect
}

# engine_options URI: fio's options for our engine, in engine.
engine_options() {
	local file=$build/fio-plugin/fio-haul.so
	[ -e "$file" ] || fail "the fio engine is not in this build (-Dfio_source)"
	engine=("--ioengine=external:$file" "--uri=$1" --thread=1)
}
engine_fio() { engine_options "$1" && fio_verify "${engine[@]}" "${@:2}"; }

start_kernel_target() {
	kernel_log_mark
	tests/lab/nvmet export "$nqn" ram:64 "$1://$address:4420" || fail "nvmet refused the export"
}

need_haul() { haul=$build/initiator/haul; [ -x "$haul" ] || fail "haul is not in this build"; }
