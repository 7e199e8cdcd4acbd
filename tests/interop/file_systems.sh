# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# ext4 and xfs of the kernel on hauld's disks. Sourced by tests/interop/cases.sh.
# shellcheck disable=SC2034,SC2086,SC2119,SC2120,SC2154 # variables without blanks, shared by these files

kinds="ext4 xfs"
# fs_disk KIND, fs_mount KIND: the disk is the namespace of its own.
fs_disk() { case $1 in ext4) echo "$disk" ;; xfs) echo "${disk%1}2" ;; esac; }
fs_mount() { mount "$(fs_disk "$1")" $tmp.mount.$1 || fail "$1: mount failed"; }
fs_umount() { umount $tmp.mount.$1 || fail "$1: umount failed"; }

fs_check() {
	case $1 in
	ext4) fsck.ext4 -fn "$(fs_disk ext4)" ;;
	xfs) xfs_repair -n "$(fs_disk xfs)" ;;
	esac || fail "$1: the check found damage"
}

# fs_copy KIND NAME: a copy of a tree that is on the disk when this returns.
fs_copy() { cp -r proto/nvme "$tmp.mount.$1/$2" && sync -f $tmp.mount.$1; }

# fs_load KIND: copies, one behind the other, until it is told to stop. $tmp.copies.KIND says how many are on the disk.
fs_load() {
	local i=0
	while [ ! -e $tmp.stop ] && [ $i -lt 200 ]; do
		fs_copy $1 load$i || fail "$1: a write failed"
		i=$((i + 1))
		echo $i > $tmp.counting.$1 && mv $tmp.counting.$1 $tmp.copies.$1 # whoever reads it finds a number
	done
	echo "$1: $i copies under load"
}

# fs_verify KIND: every copy is there, and is what it was.
fs_verify() {
	local copy copies
	copies=("$tmp.mount.$1"/load*)
	[ ${#copies[@]} = "$(< $tmp.copies.$1)" ] || fail "$1: there are ${#copies[@]} copies of $(< $tmp.copies.$1)"
	for copy in "$tmp.mount.$1/before" "${copies[@]}"; do
		(cd "$copy" && sha256sum --quiet -c $tmp.sums) || fail "$copy holds something else"
	done
}

nr_copies() { cat $tmp.copies.$1 2>/dev/null || echo 0; }
more_copies_than() { [ "$(nr_copies $1)" -gt "$2" ]; }
is_live() { [ "$(cat /sys/class/nvme/${disk:5:-2}/state)" = live ]; }
is_not_live() { ! is_live; }

# TRTYPE: mkfs, load on both file systems, kill -9, a new hauld, the host comes back by itself and the loads go on; then fstrim,
# umount, fsck, and after another mount all is there.
file_systems_outlive_a_killed_hauld() {
	local kind load loads=() before
	# xfs takes no less than 300 MiB, and the kernel names the disks in whatever order it finds them.
	truncate -s 320M $tmp.img $tmp.second
	set -- "$1" --listen "$1://$address:4420" --export "$tmp.img,nqn=$nqn,nsid=1" --export "$tmp.second,nqn=$nqn,nsid=2"
	run_hauld "${@:2}"
	kernel_connect "$1" --reconnect-delay=1 --ctrl-loss-tmo=120
	until_true 10 test -b "$(fs_disk xfs)" || fail "the second disk did not appear"
	(cd proto/nvme && find . -type f -exec sha256sum {} +) > $tmp.sums
	for kind in $kinds; do
		mkfs.$kind -q "$(fs_disk $kind)" || fail "mkfs.$kind failed"
		mkdir $tmp.mount.$kind
		fs_mount $kind
		fs_copy $kind before || fail "$kind: the first copy failed"
		fs_load $kind &
		loads+=($!)
	done
	for kind in $kinds; do
		until_true 30 more_copies_than $kind 0 || fail "$kind: the load did not begin"
	done
	kill -9 "$hauld_pid"
	wait "$hauld_pid"
	until_true 20 is_not_live || fail "the host did not see that hauld is gone"
	run_hauld "${@:2}"
	until_true 30 is_live || fail "the host did not come back by itself"
	for kind in $kinds; do
		before=$(nr_copies $kind)
		until_true 40 more_copies_than $kind "$before" || fail "$kind: the load does not go on"
	done
	: > $tmp.stop
	for load in "${loads[@]}"; do
		wait "$load" || fail "a load failed"
	done
	for kind in $kinds; do
		fstrim -v $tmp.mount.$kind || fail "$kind: fstrim failed"
		fs_umount $kind
		fs_check $kind
		blockdev --flushbufs "$(fs_disk $kind)" || fail "$kind: blockdev failed"
		fs_mount $kind
		fs_verify $kind
		fs_umount $kind
		rmdir $tmp.mount.$kind
	done
	nvme disconnect -n $nqn
	! kernel_log | grep -E 'I/O error|EXT4-fs error|XFS.*(error|orrupt)' || fail "the kernel saw errors"
	stop_hauld
}
