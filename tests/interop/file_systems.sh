# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# ext4 and xfs of the kernel on hauld's disks. Sourced by tests/interop/cases.sh.
# shellcheck disable=SC2034,SC2086,SC2119,SC2120,SC2154 # variables without blanks, shared by these files

fs_check() {
	case $1 in
	ext4) fsck.ext4 -fn "$disk" ;;
	xfs) xfs_repair -n "$disk" ;;
	esac || fail "the check found damage"
}

# fs_copy NAME: a copy of a tree that is on the disk when this returns.
fs_copy() { cp -r proto/nvme "$tmp.mount/$1" && sync -f $tmp.mount; }

# fs_load: copies, one behind the other, until it is told to stop. $tmp.copies says how many are on the disk.
fs_load() {
	local i=0
	while [ ! -e $tmp.stop ] && [ $i -lt 200 ]; do
		fs_copy load$i || fail "a write failed"
		i=$((i + 1))
		echo $i > $tmp.copies
	done
	echo "$i copies under load"
}

fs_verify() {
	local copy nr
	nr=$(find $tmp.mount -mindepth 1 -maxdepth 1 -name 'load*' | wc -l)
	[ "$nr" = "$(cat $tmp.copies)" ] || fail "there are $nr copies of $(cat $tmp.copies)"
	for copy in $tmp.mount/{before,load*}; do
		(cd "$copy" && sha256sum --quiet -c $tmp.sums) || fail "$copy holds something else"
	done
}

more_copies_than() { [ "$(cat $tmp.copies 2>/dev/null || echo 0)" -gt "$1" ]; }
is_live() { [ "$(cat "/sys/class/nvme/$(basename "${disk%n1}")/state")" = live ]; }
is_not_live() { ! is_live; }

# TRTYPE KIND: mkfs, load, kill -9, a new hauld, the host comes back by itself and the load goes on; then all is there.
file_system_outlives_a_killed_hauld() {
	local load
	truncate -s 320M $tmp.img
	set -- "$@" --listen "$1://$address:4420" --export "$tmp.img,nqn=$nqn"
	run_hauld "${@:3}"
	kernel_connect "$1" --reconnect-delay=1 --ctrl-loss-tmo=120
	"mkfs.$2" -q "$disk" || fail "mkfs.$2 failed"
	mkdir -p $tmp.mount
	mount "$disk" $tmp.mount || fail "mount failed"
	(cd proto/nvme && find . -type f -exec sha256sum {} +) > $tmp.sums
	fs_copy before || fail "the first copy failed"
	fs_load &
	load=$!
	until_true 30 more_copies_than 0 || fail "the load did not begin"
	kill -9 "$hauld_pid"
	wait "$hauld_pid"
	until_true 20 is_not_live || fail "the host did not see that hauld is gone"
	run_hauld "${@:3}"
	until_true 30 is_live || fail "the host did not come back by itself"
	until_true 40 more_copies_than "$(cat $tmp.copies)" || fail "the load does not go on"
	touch $tmp.stop
	wait $load || fail "the load failed"
	fstrim -v $tmp.mount || fail "fstrim failed"
	umount $tmp.mount || fail "umount failed"
	fs_check "$2"
	echo 3 > /proc/sys/vm/drop_caches
	mount "$disk" $tmp.mount || fail "the second mount failed"
	fs_verify
	umount $tmp.mount || fail "the second umount failed"
	rmdir $tmp.mount
	nvme disconnect -n $nqn
	! kernel_log | grep -E 'I/O error|EXT4-fs error|XFS.*(error|orrupt)' || fail "the kernel saw errors"
	stop_hauld
}

# The two others are not among the cases that run always, for the time they take.
ext4_outlives_a_killed_hauld_tcp() { file_system_outlives_a_killed_hauld tcp ext4; }

ext4_outlives_a_killed_hauld_rdma() { file_system_outlives_a_killed_hauld rdma ext4; }
xfs_outlives_a_killed_hauld_tcp() { file_system_outlives_a_killed_hauld tcp xfs; }
xfs_outlives_a_killed_hauld_rdma() { file_system_outlives_a_killed_hauld rdma xfs; }
