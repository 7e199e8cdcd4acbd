# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# The kernel's host on hauld (and, to know the lab itself, on the kernel's target): attach, write, read, discard, reset, drain.
# Sourced by tests/interop/cases.sh.
# shellcheck disable=SC2034,SC2086,SC2119,SC2120,SC2154 # variables without blanks, shared by these files

kernel_host_to_kernel_target_tcp() {
	start_kernel_target tcp
	kernel_host_writes_and_reads tcp
}

# Captured, to know of the reader, too: what it complains of here is not hauld's.
kernel_host_to_kernel_target_rdma() {
	wire_up
	start_kernel_target rdma
	captured two-kernels-nvme-rdma kernel_host_writes_and_reads rdma
}

# kernel_host_to_hauld NAME TRTYPE [nvme connect option...]: NAME is the capture's.
kernel_host_to_hauld() {
	start_hauld "$2"
	captured "$1" kernel_host_attaches "${@:2}"
	stop_hauld
}

kernel_host_attaches() {
	kernel_connect "$@"
	nvme id-ctrl "$disk" > $tmp.page || fail "nvme id-ctrl failed"
	[ "$(blockdev --getsize64 "$disk")" = $((64 << 20)) ] || fail "the disk has $(blockdev --getsize64 "$disk") bytes"
	kernel_fio
	kernel_disconnect
}

kernel_host_to_hauld_rdma() { wire_up && kernel_host_to_hauld kernel-host-and-hauld-nvme-rdma rdma; }
kernel_host_to_hauld_tcp() { wire_up && kernel_host_to_hauld kernel-host-and-hauld-nvme-tcp tcp; }
kernel_host_to_hauld_tcp_with_digests() { wire_up && kernel_host_to_hauld digests-nvme-tcp tcp --hdr-digest --data-digest; }

# Both sides use the smaller of the two queue sizes to its last entry. A command too many would end the association.
kernel_host_at_several_queue_sizes() {
	start_hauld "$1"
	local size got
	for size in $2; do
		kernel_connect "$1" --nr-io-queues=1 --queue-size="$size"
		got=$(cat /sys/class/nvme/nvme*/sqsize)
		echo "queue size $size: SQSIZE $got"
		[ "$got" = $(($3 < size ? $3 - 1 : size - 1)) ] || fail "at queue size $size SQSIZE is $got"
		fio --name=full --filename="$disk" --ioengine=libaio --direct=1 --rw=randread --bs=4k --io_size=$((8 * size))k \
			--iodepth="$size" --iodepth_batch_submit="$size" > $tmp.fio || fail "fio failed at queue size $size: $(tail -1 $tmp.fio)"
		kernel_disconnect
	done
	stop_hauld
}

kernel_host_at_several_queue_sizes_tcp() { kernel_host_at_several_queue_sizes tcp "16 128 1024" 1024; }
kernel_host_at_several_queue_sizes_rdma() { kernel_host_at_several_queue_sizes rdma "16 128 256" 256; }

# refused WORDS OPTION...: nvme connect fails, and the kernel says why.
refused() {
	local words=$1
	shift
	kernel_log_mark
	nvme connect -t tcp -a $address -s 4420 --nr-io-queues=1 "$@" > $tmp.said 2>&1 && fail "nvme connect $* succeeded"
	cat $tmp.said
	kernel_log
	kernel_log | grep -q "$words" || fail "nvme connect $*: the kernel does not say '$words'"
}

kernel_host_is_told_why_it_is_refused_tcp() {
	cat > $tmp.conf <<- CONF
		listen: [tcp://$address:4420]
		subsystems:
		  - nqn: $nqn
		    allow: [nqn.2024-01.org.example:friend, testhost]
		    namespaces: [{ram: 64M}]
	CONF
	run_hauld --config $tmp.conf
	refused 'subsysnqn "nqn.2024-01.org.example:other"' -n nqn.2024-01.org.example:other
	refused "not allowed, hostnqn: nqn.2024-01.org.example:stranger" -n $nqn --hostnqn=nqn.2024-01.org.example:stranger
	kernel_log_mark
	kernel_connect tcp --hostnqn=testhost
	kernel_disconnect
	stop_hauld
}

# A listener on every address: the discovery log names the one that the host came in on, and connect-all attaches from it.
kernel_host_connects_all_through_a_wildcard_listener() {
	start_hauld "$1" 0.0.0.0
	nvme discover -t "$1" -a $address -s 4420 > $tmp.discovery || fail "nvme discover failed"
	cat $tmp.discovery
	grep -q "subnqn: *$nqn" $tmp.discovery || fail "the discovery log does not list $nqn"
	grep -q "traddr: *$address\$" $tmp.discovery || fail "the discovery log does not name $address"
	nvme connect-all -t "$1" -a $address -s 4420 --nr-io-queues=1 || fail "nvme connect-all failed"
	wait_for_disk
	dd if="$disk" of=/dev/null bs=32M count=2 iflag=direct status=none || fail "dd failed"
	kernel_disconnect
	stop_hauld
}

# Controller resets while fio writes: every queue goes and comes back, I/O goes on after each, and the data is right.
kernel_host_resets_hauld_under_load() {
	start_hauld "$1"
	kernel_connect "$1" --queue-size=16
	kernel_load
	for _ in 1 2 3; do
		nvme reset "${disk%n1}" || fail "nvme reset failed"
		until_true 20 wrote_more_than $(($(nr_writes) + 16)) || fail "no I/O after a reset"
	done
	fio_load_stop
	kernel_log
	nvme disconnect -n $nqn
	stop_hauld
}

kernel_host_discards_on_hauld() {
	start_hauld "$1"
	kernel_connect "$1"
	head -c 4M /dev/urandom > $tmp.pattern
	dd if=$tmp.pattern of="$disk" bs=1M oflag=direct status=none || fail "dd failed"
	blkdiscard -o 1M -l 1M "$disk" || fail "blkdiscard failed"
	blkdiscard -z -o 2M -l 1M "$disk" || fail "blkdiscard -z failed"
	cmp -n $((1 << 20)) $tmp.pattern "$disk" || fail "the blocks before the discarded range changed"
	cmp -n $((1 << 20)) -i $((2 << 20)) "$disk" /dev/zero || fail "the zeroed range is not zero"
	cmp -n $((1 << 20)) -i $((3 << 20)) $tmp.pattern "$disk" || fail "the blocks behind the zeroed range changed"
	kernel_disconnect
	stop_hauld
}

# SIGTERM with a kernel host attached and writing: hauld ends with 0, the host sees a lost connection and nothing worse.
hauld_drains_under_a_kernel_host() {
	start_hauld "$1"
	kernel_connect "$1" --ctrl-loss-tmo=1 --reconnect-delay=1
	kernel_load --iodepth=32 --bsrange=4k-4k --thinktime=0
	stop_hauld
	nvme disconnect-all
	wait "$load" && fail "fio did not notice that the target is gone"
	return 0
}
