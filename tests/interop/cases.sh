# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# The interoperability cases; sourced by tests/interop/run, inside the lab VM. A case that returns non-zero failed and its
# last line says why; 77 is a skip. Whatever a case starts, cleanup ends.
# shellcheck disable=SC2034,SC2154 # some variables are shared with run

tmp=/run/interop
address=10.9.0.1
nqn=nqn.2024-01.org.example:interop
case_seconds=180
null_blk=/sys/kernel/config/nullb/haul
cases="kernel_host_to_kernel_target_tcp kernel_host_to_kernel_target_rdma
	kernel_host_discovers_hauld_tcp kernel_host_discovers_hauld_rdma
	kernel_host_to_hauld_tcp kernel_host_to_hauld_rdma kernel_host_to_hauld_tcp_with_digests
	kernel_host_connects_all_through_a_wildcard_listener_tcp kernel_host_connects_all_through_a_wildcard_listener_rdma
	kernel_host_at_several_queue_sizes_tcp kernel_host_at_several_queue_sizes_rdma kernel_host_is_told_why_it_is_refused_tcp
	kernel_host_discards_on_hauld_tcp kernel_host_discards_on_hauld_rdma
	kernel_host_follows_changes_tcp kernel_host_follows_changes_rdma
	kernel_host_follows_ana_tcp kernel_host_follows_ana_rdma
	kernel_host_reads_log_pages_tcp kernel_host_reads_log_pages_rdma
	kernel_host_resets_hauld_under_load_tcp kernel_host_resets_hauld_under_load_rdma
	ext4_outlives_a_killed_hauld_tcp xfs_outlives_a_killed_hauld_rdma
	nvme_cli_sends_each_io_command_tcp nvme_cli_sends_each_io_command_rdma
	hauld_drains_under_a_kernel_host_tcp hauld_drains_under_a_kernel_host_rdma
	haul_discovers_kernel_target_tcp haul_discovers_kernel_target_rdma
	haul_identifies_kernel_target_tcp haul_identifies_kernel_target_rdma
	haul_takes_a_free_form_name_tcp haul_follows_a_referral_of_the_kernel_tcp
	engine_to_kernel_target_tcp engine_to_kernel_target_rdma
	engine_to_hauld_tcp engine_to_hauld_rdma
	users_program_that_forks_rdma users_program_connects_again_and_again_rdma queues_outlive_a_change_of_mtu_rdma
	hauld_on_a_device_that_is_removed_tcp kernel_host_mounts_a_disk_of_4096_byte_blocks_tcp hauld_says_that_aio_slots_are_missing
	engine_has_its_data_in_huge_pages_tcp engine_has_its_data_in_huge_pages_rdma
	capture_of_two_kernels_rdma capture_of_engine_and_hauld_rdma
	capture_of_a_kernel_host_and_hauld_rdma capture_of_a_kernel_host_and_hauld_tcp"

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

# --- the three parties ---------------------------------------------------------------------------------------------------

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

# --- kernel host -> kernel target: the lab itself ------------------------------------------------------------------------

kernel_host_to_kernel_target() {
	start_kernel_target "$1"
	kernel_host_writes_and_reads "$1"
}
kernel_host_to_kernel_target_tcp() { kernel_host_to_kernel_target tcp; }
kernel_host_to_kernel_target_rdma() { kernel_host_to_kernel_target rdma; }

# --- kernel host -> hauld ------------------------------------------------------------------------------------------------

kernel_host_discovers_hauld() {
	start_hauld "$1"
	nvme discover -t "$1" -a $address -s 4420 | tee $tmp.discovery
	grep -q "subnqn: *$nqn" $tmp.discovery || fail "the discovery log does not list $nqn"
	stop_hauld
}
kernel_host_discovers_hauld_tcp() { kernel_host_discovers_hauld tcp; }
kernel_host_discovers_hauld_rdma() { kernel_host_discovers_hauld rdma; }

kernel_host_to_hauld() {
	start_hauld "$1"
	kernel_connect "$@"
	nvme id-ctrl "$disk" | head -30
	[ "$(blockdev --getsize64 "$disk")" = $((64 << 20)) ] || fail "the disk has $(blockdev --getsize64 "$disk") bytes"
	kernel_fio
	kernel_disconnect
	stop_hauld
}
kernel_host_to_hauld_tcp() { kernel_host_to_hauld tcp; }
kernel_host_to_hauld_rdma() { kernel_host_to_hauld rdma; }
kernel_host_to_hauld_tcp_with_digests() { kernel_host_to_hauld tcp --hdr-digest --data-digest; }

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
			--iodepth="$size" --iodepth_batch_submit="$size" > $tmp.json || fail "fio failed at queue size $size: $(tail -1 $tmp.json)"
		kernel_disconnect
	done
	stop_hauld
}
kernel_host_at_several_queue_sizes_tcp() { kernel_host_at_several_queue_sizes tcp "16 32 128 1024" 1024; }
kernel_host_at_several_queue_sizes_rdma() { kernel_host_at_several_queue_sizes rdma "16 32 128 256" 256; }

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
	nvme discover -t "$1" -a $address -s 4420 | tee $tmp.discovery
	grep -q "traddr: *$address\$" $tmp.discovery || fail "the discovery log does not name $address"
	nvme connect-all -t "$1" -a $address -s 4420 --nr-io-queues=1 || fail "nvme connect-all failed"
	wait_for_disk
	dd if="$disk" of=/dev/null bs=32M count=2 iflag=direct status=none || fail "dd failed"
	kernel_disconnect
	stop_hauld
}
kernel_host_connects_all_through_a_wildcard_listener_tcp() { kernel_host_connects_all_through_a_wildcard_listener tcp; }
kernel_host_connects_all_through_a_wildcard_listener_rdma() { kernel_host_connects_all_through_a_wildcard_listener rdma; }

# changes_config TRTYPE NAMESPACE...: a configuration with these.
changes_config() {
	local trtype=$1 one
	shift
	echo "listen: ['$trtype://$address:4420']"
	echo "subsystems: [{nqn: $nqn, namespaces: ["
	for one; do echo "    {$one},"; done
	echo "]}]"
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
	kernel_fio --rate=1m &
	local fio=$!
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
	wait $fio || fail "fio on the other namespace failed"
	kernel_disconnect
	stop_hauld
}
kernel_host_follows_changes_tcp() { kernel_host_follows_changes tcp; }
kernel_host_follows_changes_rdma() { kernel_host_follows_changes rdma; }

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
	/usr/bin/python3 - $tmp.status "$1" << 'PY'
import json, sys
print(sum(queue["commands"] for host in json.load(open(sys.argv[1]))["hosts"] for ctrl in host["controllers"]
          for queue in ctrl["queues"] if queue["qid"] and queue["local"].endswith(":" + sys.argv[2])))
PY
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
	kernel_fio --bsrange=4k-4k --rate_iops=,25 &
	local fio=$!
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
	kill -0 $fio 2>/dev/null || fail "fio ended before all was done"
	wait $fio || fail "fio failed"
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
kernel_host_follows_ana_tcp() { kernel_host_follows_ana tcp; }
kernel_host_follows_ana_rdma() { kernel_host_follows_ana rdma; }

# nvme-cli reads each log page, for people and as JSON, and finds what was done.
kernel_host_reads_log_pages() {
	local controller page
	start_hauld "$1"
	kernel_connect "$1"
	controller=${disk%n1}
	dd if="$disk" of=/dev/null bs=1M count=4 iflag=direct status=none || fail "dd failed"
	nvme read "$disk" -s 99999999 -c 0 -z 512 -d /dev/null > /dev/null 2>&1 && fail "a read behind the end succeeded"
	# effects-log without --csi looks for the registers of a PCIe device.
	for page in supported-log-pages error-log smart-log fw-log changed-ns-list-log "effects-log --csi=0" fid-support-effects-log mi-cmd-support-effects-log; do
		# shellcheck disable=SC2086 # the option is a word of its own
		nvme $page "$controller" > $tmp.page 2>&1 || { cat $tmp.page; fail "nvme $page failed"; }
		# shellcheck disable=SC2086
		[ "$page" = supported-log-pages ] || # of which nvme-cli 2.3 makes no JSON: it aborts, whatever the page says
			nvme $page "$controller" -o json > $tmp.page 2>&1 || { cat $tmp.page; fail "nvme $page -o json failed"; }
	done
	nvme smart-log "$controller" -o json > $tmp.page
	/usr/bin/python3 - $tmp.page << 'PY' || fail "smart-log does not say what was done"
import json, sys
page = json.load(open(sys.argv[1]))
print(page)
page = {key: int(value) for key, value in page.items()}
assert page["host_read_commands"] >= 4 and page["data_units_read"] >= 9 and page["num_err_log_entries"] >= 1
assert page["critical_warning"] == 0 and page["avail_spare"] == 100
PY
	nvme smart-log "$controller" -n 1 > /dev/null || fail "nvme smart-log of a namespace failed"
	nvme error-log "$controller" -e 4
	nvme error-log "$controller" -e 4 -o json > $tmp.page
	/usr/bin/python3 - $tmp.page << 'PY' || fail "error-log does not tell of the read behind the end"
import json, sys
page = json.load(open(sys.argv[1]))
print(page)
last = page["errors"][0]
assert last["error_count"] >= 1 and last["nsid"] == 1
assert 0x80 in (last["status_field"] & 0x7FF, last["status_field"] >> 1 & 0x7FF), "LBA Out of Range"
PY
	kernel_disconnect
	stop_hauld
}
kernel_host_reads_log_pages_tcp() { kernel_host_reads_log_pages tcp; }
kernel_host_reads_log_pages_rdma() { kernel_host_reads_log_pages rdma; }

# cli_reads COMMAND...: nvme prints it for people and as JSON that is JSON, ends with 0 and has nothing to complain of.
cli_reads() {
	local form
	for form in normal json; do
		nvme "$@" -o $form > $tmp.page 2> $tmp.complaint || { cat $tmp.page $tmp.complaint; fail "nvme $* -o $form failed"; }
		[ ! -s $tmp.complaint ] || { cat $tmp.complaint; fail "nvme $* -o $form: $(tail -1 $tmp.complaint)"; }
		[ $form = normal ] || [ ! -s $tmp.page ] || /usr/bin/python3 -m json.tool $tmp.page > /dev/null || { cat $tmp.page; fail "nvme $* gave no JSON"; }
	done
}

# cli_says WORD COMMAND...: nvme prints it, and WORD is in what it prints.
cli_says() {
	local word=$1
	shift
	nvme "$@" > $tmp.page 2>&1 || { cat $tmp.page; fail "nvme $* failed"; }
	grep -q -- "$word" $tmp.page || { cat $tmp.page; fail "nvme $* does not say $word"; }
}

# becomes VALUE COMMAND...
becomes() {
	local value=$1 i
	shift
	for ((i = 0; i < 50; i++)); do
		[ "$("$@")" != "$value" ] || return 0
		sleep 0.2
	done
	fail "$*: $("$@"), not $value"
}

# Whatever nvme-cli can ask a controller and a namespace for: Identify, features, registers.
nvme_cli_identifies_and_sets() {
	local controller fid sel what
	truncate -s 64M $tmp.img
	mkdir -p $tmp.state
	run_hauld --listen "$1://$address:4420" --export "$tmp.img,nqn=$nqn" --state $tmp.state
	kernel_connect "$1"
	controller=${disk%n1}
	for what in id-ctrl list-ns "list-ns --all" list-ctrl "list-ctrl -n 1" nvm-id-ctrl resv-notif-log; do
		# shellcheck disable=SC2086 # options are words of their own
		cli_reads $what "$controller"
	done
	cli_says 'Combination\[0\]:1' id-iocs "$controller" # which knows no JSON
	for what in id-ns "id-ns --force" ns-descs nvm-id-ns cmdset-ind-id-ns "resv-report --eds"; do
		# shellcheck disable=SC2086
		cli_reads $what "$disk"
	done
	cli_reads list
	cli_reads list -v
	cli_reads list-subsys
	cli_says 'ver *: 0x20000' id-ctrl "$controller"
	cli_says "$nqn" id-ctrl "$controller"
	cli_says 'Write Protect Namespace Supported' id-ctrl -H "$controller"
	cli_says 'Data Size: 512 bytes' id-ns -H "$disk"
	nvme show-regs "$controller" > $tmp.page 2>&1 || { cat $tmp.page; fail "nvme show-regs failed"; }
	nvme show-regs -H "$controller" > $tmp.page 2>&1 || { cat $tmp.page; fail "nvme show-regs -H failed"; }
	[ "$(nvme get-ns-id "$disk")" = "$disk: namespace-id:1" ] || fail "nvme get-ns-id: $(nvme get-ns-id "$disk")"
	nvme id-ns "$disk" -o json > $tmp.page
	nvme ns-descs "$disk" -o json > $tmp.descs
	/usr/bin/python3 - "$disk" $tmp.page $tmp.descs << 'PY' || fail "the kernel and nvme-cli see another namespace"
import json, pathlib, sys
disk = pathlib.Path("/sys/block") / pathlib.Path(sys.argv[1]).name
page, descs = (json.load(open(name)) for name in sys.argv[2:])
print(page, descs)
text = lambda name: disk.joinpath(name).read_text().strip()
assert page["nsze"] == page["ncap"] == int(text("size")) == 131072 and page["nmic"] == 1
assert int(page["nvmcap"]) == 64 << 20 and page["lbafs"][0] == {"ms": 0, "ds": 9, "rp": 0}
plain = lambda value: value.replace("-", "").replace(" ", "").lower()
assert plain(page["nguid"]) == plain(text("nguid")) == plain(text("uuid"))
assert plain(page["eui64"]) == plain(text("eui"))
assert text("wwid") == "uuid." + text("uuid")
PY
	# What belongs to the controller, then what belongs to the namespace.
	for sel in 0 1 2 3; do
		for fid in 1 2 4 6 7 0x0a 0x0b 0x0f 0x16 0x19; do
			nvme get-feature "$controller" -f $fid -s $sel > $tmp.page 2>&1 || { cat $tmp.page; fail "nvme get-feature -f $fid -s $sel failed"; }
		done
		for fid in 5 0x82 0x83 0x84; do
			nvme get-feature "$disk" -n 1 -f $fid -s $sel > $tmp.page 2>&1 || { cat $tmp.page; fail "nvme get-feature -f $fid -s $sel failed"; }
		done
	done
	for fid in 1 2 4 6 7 0x0a 0x0b 0x0f 0x16; do
		nvme get-feature "$controller" -f $fid -H > $tmp.page 2>&1 || { cat $tmp.page; fail "nvme get-feature -f $fid -H failed"; }
	done
	nvme get-feature "$controller" -f 0x81 --cdw11=1 -l 16 -b > /dev/null || fail "nvme get-feature -f 0x81 failed"
	nvme set-feature "$controller" -f 4 -V 0x15e > /dev/null || fail "nvme set-feature -f 4 failed"
	cli_says '0x0*15e' get-feature "$controller" -f 4
	nvme set-feature "$controller" -f 1 -V 0 > /dev/null 2>&1 && fail "nvme set-feature changed what cannot be changed"
	nvme set-feature "$controller" -f 4 -V 0x15e -s > /dev/null 2>&1 && fail "nvme set-feature saved what cannot be saved"
	# The kernel hears of it by an event, and makes its disk read-only.
	nvme set-feature "$disk" -n 1 -f 0x84 -V 1 > /dev/null || fail "nvme set-feature -f 0x84 failed"
	becomes 1 blockdev --getro "$disk"
	nvme write "$disk" -s 0 -c 0 -z 512 -d /dev/zero > $tmp.page 2>&1 && fail "a protected namespace was written"
	grep -qi 'write protected' $tmp.page || { cat $tmp.page; fail "a write to a protected namespace failed for another reason"; }
	nvme set-feature "$disk" -n 1 -f 0x84 -V 0 > /dev/null || fail "nvme set-feature -f 0x84 -V 0 failed"
	becomes 0 blockdev --getro "$disk"
	dd if=/dev/zero of="$disk" bs=4k count=1 oflag=direct status=none || fail "dd failed"
	for what in format sanitize create-ns device-self-test security-recv dir-receive virt-mgmt; do
		nvme $what "$controller" > /dev/null 2>&1 && fail "nvme $what succeeded"
	done
	kernel_disconnect
	stop_hauld
}
nvme_cli_identifies_and_sets_tcp() { nvme_cli_identifies_and_sets tcp; }
nvme_cli_identifies_and_sets_rdma() { nvme_cli_identifies_and_sets rdma; }

# Controller resets while fio writes: every queue goes and comes back, and the data is right.
kernel_host_resets_hauld_under_load() {
	start_hauld "$1"
	kernel_connect "$1" --queue-size=16
	local i controller=${disk%n1}
	(
		for i in 1 2 3; do
			sleep 1
			nvme reset "$controller" || exit 1
		done
	) &
	kernel_fio --rate=2m
	wait $! || fail "nvme reset failed"
	kernel_log
	nvme disconnect -n $nqn
	stop_hauld
}
kernel_host_resets_hauld_under_load_tcp() { kernel_host_resets_hauld_under_load tcp; }
kernel_host_resets_hauld_under_load_rdma() { kernel_host_resets_hauld_under_load rdma; }

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
kernel_host_discards_on_hauld_tcp() { kernel_host_discards_on_hauld tcp; }
kernel_host_discards_on_hauld_rdma() { kernel_host_discards_on_hauld rdma; }

# SIGTERM with a kernel host attached and writing: hauld ends with 0, the host sees a lost connection and nothing worse.
hauld_drains_under_a_kernel_host() {
	start_hauld "$1"
	kernel_connect "$1" --ctrl-loss-tmo=1 --reconnect-delay=1
	fio --name=load --filename="$disk" --ioengine=libaio --direct=1 --rw=randwrite --bs=4k --iodepth=32 --time_based --runtime=60 \
		> $tmp.load 2>&1 &
	local load=$!
	sleep 3
	stop_hauld
	nvme disconnect-all
	wait $load && fail "fio did not notice that the target is gone"
	return 0
}
hauld_drains_under_a_kernel_host_tcp() { hauld_drains_under_a_kernel_host tcp; }
hauld_drains_under_a_kernel_host_rdma() { hauld_drains_under_a_kernel_host rdma; }

# File systems and nvme-cli's I/O commands.
# shellcheck source=tests/interop/others.sh
. tests/interop/others.sh

# --- our initiator -> kernel target --------------------------------------------------------------------------------------

haul_discovers_kernel_target() {
	need_haul
	start_kernel_target "$1"
	"$haul" discover "$1://$address:4420" > $tmp.found || fail "haul discover ended with status $?"
	cat $tmp.found
	grep -q $nqn $tmp.found || fail "haul discover does not list $nqn"
}
haul_discovers_kernel_target_tcp() { haul_discovers_kernel_target tcp; }
haul_discovers_kernel_target_rdma() { haul_discovers_kernel_target rdma; }

haul_identifies_kernel_target() {
	need_haul
	start_kernel_target "$1"
	"$haul" id --json "$1://$address:4420/$nqn" > $tmp.id || fail "haul id ended with status $?"
	cat $tmp.id
	/usr/bin/python3 -m json.tool $tmp.id > /dev/null || fail "haul id --json printed no JSON"
	grep -q 67108864 $tmp.id || fail "haul id does not know the disk's size"
}
haul_identifies_kernel_target_tcp() { haul_identifies_kernel_target tcp; }
haul_identifies_kernel_target_rdma() { haul_identifies_kernel_target rdma; }

# The kernel lets subsystems have any name: found, shown and written to under it, and taken without being named.
haul_takes_a_free_form_name_tcp() {
	need_haul
	local nqn=testnqn uri=tcp://$address:4420
	start_kernel_target tcp
	"$haul" discover "$uri" | tee $tmp.found
	grep -q "$uri/testnqn\$" $tmp.found || fail "haul discover does not list testnqn"
	"$haul" id "$uri/testnqn" > $tmp.id || fail "haul id ended with status $?"
	"$haul" id "$uri" > $tmp.only || fail "haul id without a name ended with status $?"
	grep -q '^subsystem *testnqn$' $tmp.only || fail "the only subsystem was not taken: $(cat $tmp.only)"
	engine_fio "$uri/testnqn/1"
}

haul_follows_a_referral_of_the_kernel_tcp() {
	need_haul
	local uri=tcp://$address:4420 other=tcp://$address:4421 nqn=testnqn
	start_kernel_target tcp
	truncate -s 64M $tmp.img
	run_hauld --listen "$other" --export "$tmp.img,nqn=nqn.2024-01.org.example:referred"
	tests/lab/nvmet refer "$uri" "$other" || fail "nvmet refused the referral"
	"$haul" discover "$uri" > $tmp.found || fail "haul discover ended with status $?"
	cat $tmp.found
	grep -q "^referral .*4421" $tmp.found || fail "haul discover does not list the referral"
	grep -q "$uri/testnqn\$" $tmp.found || fail "haul discover does not list what the kernel offers"
	grep -q "$other/nqn.2024-01.org.example:referred" $tmp.found || fail "haul discover does not follow the referral"
	stop_hauld
	"$haul" discover "$uri" > $tmp.found 2> $tmp.warning || fail "haul discover ended with status $? when the referral was dead"
	cat $tmp.warning
	grep -q '^haul: warning: ' $tmp.warning || fail "haul discover does not warn of a dead referral"
	grep -q "$uri/testnqn\$" $tmp.found || fail "a dead referral hides what the kernel offers"
}

engine_to_kernel_target() {
	start_kernel_target "$1"
	engine_fio "$1://$address/$nqn/1"
	warnings=$(kernel_warnings) && fail "the kernel warned: $(tail -1 <<< "$warnings")"
	return 0
}
engine_to_kernel_target_tcp() { engine_to_kernel_target tcp; }
engine_to_kernel_target_rdma() { engine_to_kernel_target rdma; }

# --- ours on both ends ---------------------------------------------------------------------------------------------------

engine_to_hauld() {
	start_hauld "$1"
	engine_fio "$1://$address/$nqn/1"
	stop_hauld
}
engine_to_hauld_tcp() { engine_to_hauld tcp; }
engine_to_hauld_rdma() { engine_to_hauld rdma; }

# A program with registered memory that forks: parent, child and device each keep what is theirs (PITFALLS B120).
users_program_that_forks_rdma() {
	start_hauld rdma
	"$build/tests/e2e/user" fork "rdma://$address/$nqn/1" io_uring 40 < /dev/null || fail "the program ended with status $?"
	stop_hauld
}

# rdma_objects: how many objects of each kind the kernel keeps for rxe0.
rdma_objects() { rdma resource show rxe0 | grep -oE '(qp|cq|mr|pd|srq|cm_id) [0-9]+' | tr '\n' ' '; }

# soft-RoCE has been known to run out of memory after a hundred rounds, because of objects that programs left (B122).
users_program_connects_again_and_again_rdma() {
	local user=$build/tests/e2e/user before i
	start_hauld rdma
	"$user" rounds "rdma://$address/$nqn/1" io_uring 1 || fail "the first round ended with status $?"
	before=$(rdma_objects)
	"$user" rounds "rdma://$address/$nqn/1" io_uring 25 || fail "250 connections ended with status $?"
	for ((i = 0; i < 25; i++)); do
		[ "$(rdma_objects)" != "$before" ] || break
		sleep 0.2
	done
	echo "before: $before after: $(rdma_objects)"
	[ "$(rdma_objects)" = "$before" ] || fail "objects are left: before $before, after $(rdma_objects)"
	stop_hauld
	! grep -E 'error|cannot' $tmp.hauld || fail "hauld complained: $(grep -E 'error|cannot' $tmp.hauld | tail -1)"
}

# The MTU of the port changes under load: no queue is lost, and the data is right (B124).
queues_outlive_a_change_of_mtu_rdma() {
	local load i
	start_hauld rdma
	engine_fio "rdma://$address/$nqn/1" --rate=1m &
	load=$!
	# The first association looks the sizes up.
	while [ "$(grep -c " connected to $nqn" $tmp.hauld)" -lt 2 ] && kill -0 $load; do
		sleep 0.1
	done
	for ((i = 0; ; i++)); do
		ip link set rdma0 mtu $((i % 2 ? 4500 : 1500))
		sleep 0.3
		kill -0 $load 2> /dev/null || break
	done
	ip link set rdma0 mtu 4500
	echo "$i changes"
	wait $load || fail "fio ended with status $?"
	stop_hauld
	[ $i -ge 4 ] || fail "the load was over after $i changes"
	[ "$(grep -c " connected to $nqn" $tmp.hauld)" = 2 ] || fail "a queue was lost"
}

# --- disks of hauld that only a machine of one's own can have ------------------------------------------------------------

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
	echo 3 > /proc/sys/vm/drop_caches
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

engine_has_its_data_in_huge_pages() {
	local iomem before
	before=$(cat /proc/sys/vm/nr_hugepages)
	echo 16 > /proc/sys/vm/nr_hugepages
	grep -q 'HugePages_Free: *16$' /proc/meminfo || skip "no huge pages: $(grep HugePages_Free /proc/meminfo)"
	start_hauld "$1"
	for iomem in mmaphuge shmhuge; do
		engine_fio "$1://$address/$nqn/1" --iomem=$iomem
	done
	stop_hauld
	echo "$before" > /proc/sys/vm/nr_hugepages
}
engine_has_its_data_in_huge_pages_tcp() { engine_has_its_data_in_huge_pages tcp; }
engine_has_its_data_in_huge_pages_rdma() { engine_has_its_data_in_huge_pages rdma; }

# --- what tests/interop/read_capture is to read afterwards ---------------------------------------------------------------

# shellcheck source=tests/interop/capture.sh
. tests/interop/capture.sh

# wire_up: two RDMA devices at the two ends of a cable (veth), 10.9.1.1 and 10.9.1.2, both in this machine. The kernel would
# keep traffic between two addresses of its own off the cable: routes that only locally made packets follow send it there.
wire_up() {
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

# The same reader on two kernels, to know that it is not the reader.
capture_of_two_kernels_rdma() {
	wire_up
	address=10.9.1.2
	start_kernel_target rdma
	captured two-kernels-nvme-rdma kernel_host_writes_and_reads rdma
}

capture_of_a_kernel_host_and_hauld_rdma() {
	wire_up
	address=10.9.1.2
	start_hauld rdma $address
	captured kernel-host-and-hauld-nvme-rdma kernel_host_writes_and_reads rdma
	stop_hauld
}

capture_of_engine_and_hauld_rdma() {
	wire_up
	address=10.9.1.2
	start_hauld rdma $address
	captured engine-and-hauld-nvme-rdma engine_fio "rdma://$address/$nqn/1"
	stop_hauld
}

capture_of_a_kernel_host_and_hauld_tcp() {
	wire_up
	address=10.9.1.2
	start_hauld tcp $address
	captured kernel-host-and-hauld-nvme-tcp kernel_host_writes_and_reads tcp --hdr-digest --data-digest
	stop_hauld
}
