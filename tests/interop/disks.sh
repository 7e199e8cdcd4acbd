# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# Disks of hauld, and limits, that only a machine of one's own can have. Sourced by tests/interop/cases.sh.
# shellcheck disable=SC2034,SC2086,SC2119,SC2120,SC2154 # variables without blanks, shared by these files

# make_null_blk BLOCK-BYTES: 64 MiB in memory, without discard, as /dev/$null_disk.
make_null_blk() {
	mkdir $null_blk || fail "null_blk has no configfs"
	echo "$1" > $null_blk/blocksize
	echo 64 > $null_blk/size
	echo 1 > $null_blk/memory_backed
	echo 1 > $null_blk/power || fail "null_blk refused a device"
	# Newer kernels give it the name that it has here.
	for ((i = 0; i < 50; i++)); do
		for null_disk in haul "nullb$(cat $null_blk/index)"; do
			[ ! -b "/dev/$null_disk" ] || return 0
		done
		sleep 0.1
	done
	fail "no device of null_blk appears: $(ls /dev)"
}

# fails_with TEXT FIO-OPTION...: the engine's fio ends with the status of this text, soon.
fails_with() {
	local text=$1 begin=$SECONDS
	shift
	fio --name=fails "--ioengine=external:$build/fio-plugin/fio-haul.so" --thread --bs=4k --size=64k "$@" > $tmp.said 2>&1 && fail "fio $* succeeded"
	cat $tmp.said
	grep -q "$text" $tmp.said || fail "fio $*: not '$text'"
	[ $((SECONDS - begin)) -lt 20 ] || fail "fio $* took $((SECONDS - begin)) s to fail"
}

# The device is taken away under a hauld that holds it: errors of the medium at once, not "full"; the other disk works on.
hauld_on_a_device_that_is_removed_tcp() {
	local uri=tcp://$address:4420/$nqn
	make_null_blk 512
	run_hauld --listen tcp://$address:4420 --export "/dev/$null_disk,nqn=$nqn,nsid=1" --export "ram:64M,nqn=$nqn,nsid=2"
	engine_fio "$uri/1"
	echo 0 > $null_blk/power || fail "the device cannot be removed"
	fails_with '280h: Write Fault' --uri="$uri/1" --rw=write
	fails_with '281h: Unrecovered Read Error' --uri="$uri/1" --rw=read
	engine_fio "$uri/2"
	stop_hauld
}

kernel_host_mounts_a_disk_of_4096_byte_blocks_tcp() {
	make_null_blk 4096
	run_hauld --listen tcp://$address:4420 --export "/dev/$null_disk,nqn=$nqn"
	kernel_connect tcp
	[ "$(blockdev --getss "$disk")" = 4096 ] || fail "the kernel sees blocks of $(blockdev --getss "$disk") bytes"
	mkfs.ext4 -q "$disk" || fail "mkfs.ext4 failed"
	mkdir $tmp.mount
	mount "$disk" $tmp.mount || fail "mount failed"
	head -c 8M /dev/urandom > $tmp.pattern
	cp $tmp.pattern $tmp.mount/file
	fstrim $tmp.mount || fail "fstrim failed: discards that the disk lacks are no error"
	umount $tmp.mount
	blockdev --flushbufs "$disk"
	mount "$disk" $tmp.mount || fail "mount failed the second time"
	cmp $tmp.pattern $tmp.mount/file || fail "the file is another one"
	umount $tmp.mount
	rmdir $tmp.mount
	kernel_disconnect
	stop_hauld
}

hauld_says_that_aio_slots_are_missing() {
	local before rc=0
	before=$(cat /proc/sys/fs/aio-max-nr)
	echo 64 > /proc/sys/fs/aio-max-nr
	truncate -s 64M $tmp.img
	timeout 60 "$build/target/hauld" --engine epoll --listen tcp://$address:4420 --export $tmp.img > $tmp.said 2>&1 || rc=$?
	echo "$before" > /proc/sys/fs/aio-max-nr
	cat $tmp.said
	[ $rc = 1 ] || fail "hauld ended with $rc"
	grep -q 'fs.aio-max-nr is 64 and .* are in use: .* more are needed' $tmp.said || fail "the limit and the need are not said"
	start_hauld tcp
	stop_hauld
}
