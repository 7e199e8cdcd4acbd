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

# cli_reads COMMAND...: nvme prints it for people and as JSON, ends with 0 and has nothing to complain of. json_of finds the JSON.
cli_reads() {
	local form name=$*
	name=$tmp.json.${name//[ \/]/_}
	for form in normal json; do
		nvme "$@" -o $form > "$name" 2> $tmp.complaint || { cat "$name" $tmp.complaint; fail "nvme $* -o $form failed"; }
		[ ! -s $tmp.complaint ] || { cat $tmp.complaint; fail "nvme $* -o $form: $(tail -1 $tmp.complaint)"; }
	done
}

# json_says: whatever cli_reads has read is JSON (nvme-cli prints none for a list without entries), and a program on standard
# input agrees with it: its json_of("id-ns ...") is a page; its disk is the kernel's folder.
json_says() {
	cat - > $tmp.program
	/usr/bin/python3 - $tmp "$disk" << 'PY' || fail "the JSON of nvme-cli is another"
import glob, json, pathlib, sys
pages = {}
for name in glob.glob(sys.argv[1] + ".json.*"):
    text = open(name).read()
    try:
        pages[name] = json.loads(text) if text.strip() else None
    except ValueError as error:
        sys.exit(f"{name}: {error}\n{text}")
disk = pathlib.Path("/sys/block") / pathlib.Path(sys.argv[2]).name
def json_of(command):
    page = pages[sys.argv[1] + ".json." + command.replace(" ", "_").replace("/", "_")]
    print(command, page)
    return page
exec(open(sys.argv[1] + ".program").read())
PY
}

# cli_says WORD COMMAND...: nvme prints it, and WORD is in what it prints.
cli_says() {
	local word=$1
	shift
	nvme "$@" > $tmp.page 2>&1 || { cat $tmp.page; fail "nvme $* failed"; }
	grep -q -- "$word" $tmp.page || { cat $tmp.page; fail "nvme $* does not say $word"; }
}

# cli_refused WORDS COMMAND...: it fails, with a status that says so.
cli_refused() {
	local words=$1
	shift
	nvme "$@" > $tmp.page 2>&1 && { cat $tmp.page; fail "nvme $* succeeded"; }
	echo "nvme $*:" "$(tail -1 $tmp.page)"
	grep -qiE "status.*$words" $tmp.page || { cat $tmp.page; fail "nvme $* was refused for another reason: $(tail -1 $tmp.page)"; }
}

# becomes VALUE COMMAND...
is_now() { [ "$("${@:2}")" = "$1" ]; }
becomes() { until_true 10 is_now "$@" || fail "${*:2}: $("${@:2}"), not $1"; }

# What pages say of one thing, in different places, is the same, and what was done is in them.
nvme_cli_pages_agree() {
	json_says << 'PY'
page, controller = json_of("id-ns " + sys.argv[2]), sys.argv[2][:-2]
text = lambda name: disk.joinpath(name).read_text().strip()
plain = lambda value: value.replace("-", "").replace(" ", "").lower()
assert page["nsze"] == page["ncap"] == int(text("size")) == 131072 and page["nmic"] == 1 and page["anagrpid"] == 1
assert int(page["nvmcap"]) == 64 << 20 and page["lbafs"][0] == {"ms": 0, "ds": 9, "rp": 0}
assert plain(page["nguid"]) == plain(text("nguid")) == plain(text("uuid")) and plain(page["eui64"]) == plain(text("eui"))
assert text("wwid") == "uuid." + text("uuid")
assert plain(text("uuid")) in plain(str(json_of("ns-descs " + sys.argv[2])))
ctrl = json_of("id-ctrl " + controller)
assert ctrl["ver"] == 0x20000 and ctrl["subnqn"] == "nqn.2024-01.org.example:interop" and ctrl["nn"] == 1024
assert 0 < len(ctrl["sn"].strip()) <= 20 and ctrl["mn"].strip() == "haul NVMe-oF target" and ctrl["fr"].strip()
listed = str(json_of("list"))
assert sys.argv[2] in listed and ctrl["sn"].strip() in listed and ctrl["mn"].strip() in listed and str(64 << 20) in listed
smart = {key: int(value) for key, value in json_of("smart-log " + controller).items()}
assert smart["host_read_commands"] >= 4 and smart["data_units_read"] >= 9 and smart["num_err_log_entries"] >= 1
assert smart["critical_warning"] == 0 and smart["avail_spare"] == 100
last = json_of("error-log " + controller)["errors"]
last = [entry for entry in last if 0x80 in (entry["status_field"] & 0x7FF, entry["status_field"] >> 1 & 0x7FF)]
assert last and last[0]["nsid"] == 1 and last[0]["error_count"] >= 1, "LBA Out of Range"
ana = json_of("ana-log " + controller)
assert "optimized" in str(ana) and "non-optimized" not in str(ana)
PY
}

# Whatever nvme-cli can ask a controller and a namespace for: Identify, log pages, registers.
nvme_cli_reads_every_page() {
	local controller what
	truncate -s 64M $tmp.img
	ana_config "$1" optimized non-optimized > $tmp.conf
	mkdir -p $tmp.state
	run_hauld --config $tmp.conf --state $tmp.state
	kernel_connect "$1"
	controller=${disk%n1}
	dd if="$disk" of=/dev/null bs=1M count=4 iflag=direct status=none || fail "dd failed"
	nvme read "$disk" -s 99999999 -c 0 -z 512 -d /dev/null > /dev/null 2>&1 && fail "a read behind the end succeeded"
	# effects-log without --csi looks for the registers of a PCIe device.
	for what in id-ctrl list-ns "list-ns --all" list-ctrl "list-ctrl -n 1" nvm-id-ctrl error-log smart-log "smart-log -n 1" fw-log \
		changed-ns-list-log "effects-log --csi=0" fid-support-effects-log mi-cmd-support-effects-log ana-log resv-notif-log; do
		cli_reads $what "$controller"
	done
	# nvme-cli 2.3 does not find the namespace's id by itself for cmdset-ind-id-ns.
	for what in id-ns "id-ns --force" ns-descs nvm-id-ns "cmdset-ind-id-ns -n 1" "resv-report --eds"; do
		cli_reads $what "$disk"
	done
	for what in list "list -v" list-subsys show-topology; do
		cli_reads $what
	done
	cli_says 'Combination\[0\]:1' id-iocs "$controller" # which knows no JSON
	cli_says 'LID 0x2 ' supported-log-pages "$controller" # as JSON nvme-cli 2.3 aborts, whatever the page says
	cli_says 'Write Protect Namespace Supported' id-ctrl -H "$controller"
	cli_says 'Data Size: 512 bytes' id-ns -H "$disk"
	cli_says '\[3:3\] : 0x1.*ANA ' id-ctrl -H "$controller"
	# show-regs of nvme-cli 2.3 gives up at the first register that only PCIe has, and prints memory that it has freed.
	for what in 0 8 0x14 0x1c; do
		cli_says "$(printf 'property *: 0x%02x' $what)" get-property "$controller" -o $what
	done
	cli_refused 'invalid field' get-property "$controller" -o 0xc
	[ "$(nvme get-ns-id "$disk")" = "${disk#/dev/}: namespace-id:1" ] || fail "nvme get-ns-id: $(nvme get-ns-id "$disk")"
	# What hauld does not have is refused, not invented.
	for what in id-nvmset id-uuid id-domain id-ns-granularity list-secondary primary-ctrl-caps list-endgrp self-test-log endurance-log \
		sanitize-log "predictable-lat-log -i 1" lba-status-log media-unit-stat-log; do
		cli_refused 'invalid' $what "$controller"
	done
	nvme_cli_pages_agree
	kernel_disconnect
	stop_hauld
}

# What nvme-cli can set, and what it must not be able to.
nvme_cli_sets_features() {
	local controller fid what
	truncate -s 64M $tmp.img
	mkdir -p $tmp.state
	run_hauld --listen "$1://$address:4420" --export "$tmp.img,nqn=$nqn" --state $tmp.state
	kernel_connect "$1"
	controller=${disk%n1}
	for fid in 1 2 4 6 7 0x0a 0x0b 0x0f 0x16; do
		cli_says . get-feature "$controller" -f $fid -H
	done
	for fid in 5 0x82 0x83 0x84; do
		cli_says . get-feature "$disk" -n 1 -f $fid
	done
	for what in 0 1 2 3; do # current, default, saved, supported
		cli_says . get-feature "$controller" -f 0x19 -s $what
	done
	cli_says . get-feature "$controller" -f 0x81 --cdw11=1 -l 16 -b
	cli_says . set-feature "$controller" -f 4 -v 0x15e
	cli_says '0x0*15e' get-feature "$controller" -f 4
	cli_refused "not changeable" set-feature "$controller" -f 1 -v 0
	cli_refused "not saveable" set-feature "$controller" -f 4 -v 0x15e -s
	# The kernel hears of it by an event, and makes its disk read-only.
	cli_says . set-feature "$disk" -n 1 -f 0x84 -v 1
	becomes 1 blockdev --getro "$disk"
	cli_fails 'write protected' write -s 0 -c 0 -z 512 -d /dev/zero
	cli_says . set-feature "$disk" -n 1 -f 0x84 -v 0
	becomes 0 blockdev --getro "$disk"
	dd if=/dev/zero of="$disk" bs=4k count=1 oflag=direct status=none || fail "dd failed"
	# What hauld does not have is refused, not done.
	for what in "format --force -n 1" "sanitize -a 2" "create-ns -s 1 -c 1 -b 512" "delete-ns -n 1" "device-self-test -s 1" "security-recv -x 8" \
		"dir-receive -n 1 -D 0 -O 1" "virt-mgmt -a 1 -r 0 -n 1 -c 1" "fw-commit -s 1 -a 1" "lockdown -f 1"; do
		cli_refused 'invalid' $what "$controller"
	done
	kernel_disconnect
	stop_hauld
}

# --- reservations: two hosts of one kernel -------------------------------------------------------------------------------

# resv_connect NUMBER TRTYPE: a controller of host NUMBER, in controller. Each has a port of its own, since nvme-cli 2.3 takes a
# host's controller at the same address for another's ("already connected").
resv_connect() {
	nvme connect -t "$2" -a $address -s 442$1 -n $nqn --nr-io-queues=1 --reconnect-delay=1 -o json \
		--hostnqn=nqn.2024-01.org.example:host$1 --hostid=00000000-0000-4000-8000-00000000000$1 > $tmp.said || fail "nvme connect failed: $(kernel_log | tail -1)"
	controller=$(sed -n 's/.*"device" *: *"\(nvme[0-9]*\)".*/\/dev\/\1/p' $tmp.said)
	[ -c "$controller" ] || fail "nvme connect names no device: $(cat $tmp.said)"
}

# Through the controller, not the disk: both hosts are this kernel, which would take whichever way to the disk it likes.
resv() { nvme "resv-$1" "$2" -n 1 "${@:3}" > $tmp.said 2>&1 || { cat $tmp.said; fail "nvme resv-$* failed: $(tail -1 $tmp.said)"; }; }
resv_write() { nvme io-passthru "$1" -o 1 -n 1 -w -l 512 -i /dev/zero > $tmp.said 2>&1; }
resv_conflicts() {
	"$@" && fail "$*: no conflict"
	grep -qi 'reservation conflict' $tmp.said || fail "$*: $(tail -1 $tmp.said)"
}

# resv_is TYPE KEY...: the report, in both forms, has this type and just these keys.
resv_is() {
	local form type=$1
	shift
	for form in normal json; do
		resv report $one --eds -o $form
		cp $tmp.said $tmp.report.$form
	done
	/usr/bin/python3 - $tmp.report.json "$type" "$@" << 'PY' || { cat $tmp.report.*; fail "the reservation is another"; }
import json, sys
report = json.load(open(sys.argv[1]))
hosts = next((value for value in report.values() if isinstance(value, list)), [])
assert report["rtype"] == int(sys.argv[2]) and report["ptpls"] == 1, report
assert sorted(int(host["rkey"]) for host in hosts) == sorted(map(int, sys.argv[3:])) and report["regctl"] == len(hosts), report
PY
}

both_are_live() { [ "$(cat /sys/class/nvme/${one#/dev/}/state) $(cat /sys/class/nvme/${two#/dev/}/state)" = "live live" ]; }

nvme_cli_reserves() {
	local controller one two
	truncate -s 64M $tmp.img
	mkdir -p $tmp.state
	set -- "$1" --listen "$1://$address:4421" --listen "$1://$address:4422" --export "$tmp.img,nqn=$nqn" --state $tmp.state
	run_hauld "${@:2}"
	resv_connect 1 "$1" && one=$controller
	resv_connect 2 "$1" && two=$controller
	resv register $one --nrkey=10 --rrega=0 --cptpl=3
	resv register $two --nrkey=11 --rrega=0
	resv acquire $one --crkey=10 --rtype=1 --racqa=0
	resv_is 1 10 11
	resv_conflicts resv_write $two
	resv_write $one || fail "the holder may not write: $(tail -1 $tmp.said)"
	kill -9 "$hauld_pid"
	wait "$hauld_pid"
	run_hauld "${@:2}"
	until_true 40 both_are_live || fail "the hosts did not come back by themselves"
	resv_is 1 10 11
	resv_conflicts resv_write $two
	resv acquire $two --crkey=11 --prkey=10 --rtype=3 --racqa=1
	resv_is 3 11
	nvme resv-notif-log $one > $tmp.said || fail "nvme resv-notif-log failed"
	cat $tmp.said
	# Registration Preempted is 1; nvme-cli 2.3 gives each type the name of the one before.
	grep -q 'Page Type.*: 1 ' $tmp.said || fail "host 1 was not told that it was preempted"
	resv_conflicts resv_write $one
	resv release $two --crkey=11 --rtype=3 --rrela=0
	resv_is 0 11
	resv register $two --crkey=11 --rrega=1
	resv_is 0
	kernel_log
	stop_hauld
}

# --- I/O commands --------------------------------------------------------------------------------------------------------

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
