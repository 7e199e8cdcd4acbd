# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# nvme-cli on hauld: what it can ask, set and do. Sourced by tests/interop/cases.sh.
# shellcheck disable=SC2034,SC2086,SC2119,SC2120,SC2154 # variables without blanks, shared by these files

# cli COMMAND OPTION...: nvme-cli on the disk, which has to succeed.
cli() {
	local rc=0
	nvme "$1" "$disk" "${@:2}" > $tmp.said 2>&1 || rc=$?
	cat $tmp.said
	[ $rc = 0 ] || fail "nvme $* ended with status $rc: $(tail -1 $tmp.said)"
}

# cli_fails WORDS COMMAND OPTION...: it has to fail, and say why.
cli_fails() {
	local words=$1
	shift
	nvme "$1" "$disk" "${@:2}" > $tmp.said 2>&1 && fail "nvme $* succeeded"
	cat $tmp.said
	grep -qi "$words" $tmp.said || fail "nvme $*: not '$words' but '$(tail -1 $tmp.said)'"
}

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

# blocks_are SLBA FILE: eight blocks, read by nvme-cli.
blocks_are() {
	cli read -s "$1" -c 7 -z 4096 -d $tmp.got
	cmp $tmp.got "$2" || fail "the blocks from $1 are not those of $2"
}

nvme_cli_sends_each_io_command() {
	start_hauld "$1"
	kernel_connect "$1"
	head -c 4096 /dev/urandom > $tmp.one
	head -c 4096 /dev/urandom > $tmp.two
	head -c 4096 /dev/zero > $tmp.zero
	cli write -s 0 -c 7 -z 4096 -d $tmp.one
	cli write -s 16 -c 7 -z 4096 -d $tmp.two --force-unit-access
	blocks_are 0 $tmp.one
	blocks_are 16 $tmp.two
	cli compare -s 0 -c 7 -z 4096 -d $tmp.one
	cli_fails 'compare' compare -s 0 -c 7 -z 4096 -d $tmp.two
	cli copy --sdlba=64 --slbs=16,0 --blocks=7,7
	blocks_are 64 $tmp.two
	blocks_are 72 $tmp.one
	cli_fails 'range' copy --sdlba=64 --slbs=131072 --blocks=7
	cli verify -s 0 -c 127
	cli_fails 'range' verify -s 131072 -c 0
	cli write-zeroes -s 64 -c 7
	blocks_are 64 $tmp.zero
	blocks_are 72 $tmp.one
	cli write-zeroes -s 72 -c 7 --deac
	blocks_are 72 $tmp.zero
	cli dsm --ad --slbs=0,24 --blocks=8,8
	blocks_are 16 $tmp.two
	cli_fails 'range' dsm --ad --slbs=131072 --blocks=8
	cli flush
	cli_fails 'opcode' write-uncor -s 0 -c 0
	kernel_disconnect
	stop_hauld
}
