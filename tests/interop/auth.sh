# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# The kernel's host proves to hauld who it is, and hauld to the host (DH-HMAC-CHAP).
# Sourced by tests/interop/cases.sh.
# shellcheck disable=SC2034,SC2086,SC2119,SC2120,SC2154 # variables without blanks, shared by these files

host_nqn=nqn.2024-01.org.example:host

# auth_config TRTYPE KEY-FILE [LINE...]: a subsystem for one host, which has a key; more of what is asked of it.
auth_config() {
	local trtype=$1 key=$2 line
	shift 2
	echo "listen: ['$trtype://$address:4420']"
	echo "subsystems:"
	echo "  - nqn: $nqn"
	echo "    allow: [$host_nqn]"
	echo "    namespaces: [{path: $tmp.img, nsid: 1}]"
	echo "    hosts:"
	echo "      - nqn: $host_nqn"
	echo "        dhchap_key: $key"
	for line; do echo "        $line"; done
}

# auth_keys: three secrets of nvme-cli's making, each in a file.
auth_keys() {
	local name
	for name in host ctrl other; do
		nvme gen-dhchap-key --hmac=1 --nqn=$host_nqn > $tmp.$name.key || fail "nvme gen-dhchap-key failed"
		chmod 600 $tmp.$name.key
	done
	host_key=$(cat $tmp.host.key) ctrl_key=$(cat $tmp.ctrl.key) other_key=$(cat $tmp.other.key)
}

# auth_is_refused TRTYPE SECRET WORDS
auth_is_refused() {
	nvme connect -t "$1" -a $address -s 4420 -n $nqn --nr-io-queues=1 --hostnqn=$host_nqn --dhchap-secret="$2" \
		> $tmp.said 2>&1 && fail "nvme connect with a wrong key succeeded"
	cat $tmp.said
	until_true 10 grep -q "$3" $tmp.hauld || { cat $tmp.hauld; fail "hauld does not say '$3'"; }
}

auth_used() { "$build/target/haulctl" --control $tmp.sock status --json | grep -c "\"authentication\":\"$1\""; }

auth_used_thrice() { [ "$(auth_used "$1")" = 3 ]; }

# Each of three queues proves itself, at first with the strongest hash and the strongest group that it may; then again, while fio
# writes. Without acceleration the kernel takes longer for ffdhe8192 than it waits for an answer.
kernel_host_authenticates() {
	local ctl=("$build/target/haulctl" --control "$tmp.sock")
	truncate -s 64M $tmp.img
	auth_keys
	auth_config "$1" $tmp.host.key "dhchap_ctrl_key: $tmp.ctrl.key" "dhchap_groups: [ffdhe2048, ffdhe4096]" > $tmp.conf
	run_hauld --config $tmp.conf --control $tmp.sock
	kernel_connect "$1" --hostnqn=$host_nqn --dhchap-secret="$host_key" --dhchap-ctrl-secret="$ctrl_key"
	auth_used_thrice "sha512 ffdhe4096 both ways" || { "${ctl[@]}" status; fail "not all queues have proved themselves"; }
	kernel_log | grep -q "authenticated with hash hmac(sha512) dhgroup ffdhe4096" || fail "the kernel does not tell of it"
	kernel_load
	# Another key, which counts from the next time on: nothing happens until the host is told, too.
	auth_config "$1" $tmp.other.key "dhchap_ctrl_key: $tmp.ctrl.key" "dhchap_hashes: [sha256]" "dhchap_groups: [ffdhe2048]" > $tmp.conf
	"${ctl[@]}" apply $tmp.conf || fail "haulctl apply failed"
	echo "$other_key" > "$(echo /sys/class/nvme/nvme*/dhchap_secret)" || fail "the kernel did not take the other key"
	until_true 20 auth_used_thrice "sha256 ffdhe2048 both ways" || { "${ctl[@]}" status; fail "the queues did not prove themselves again"; }
	fio_load_stop
	kernel_disconnect
	auth_is_refused "$1" "$host_key" "host $host_nqn is refused at $nqn: authentication failed"
	stop_hauld
}

# Without Diffie-Hellman and one way; and what is refused.
kernel_host_authenticates_simply_tcp() {
	truncate -s 64M $tmp.img
	auth_keys
	auth_config tcp $tmp.host.key "dhchap_hashes: [sha384]" "dhchap_groups: ['null']" > $tmp.conf
	run_hauld --config $tmp.conf --control $tmp.sock
	kernel_connect tcp --hostnqn=$host_nqn --dhchap-secret="$host_key"
	auth_used_thrice "sha384 null" || fail "not all queues have proved themselves"
	kernel_fio
	kernel_disconnect
	auth_is_refused tcp "$other_key" "host $host_nqn is refused at $nqn: authentication failed"
	nvme connect -t tcp -a $address -s 4420 -n $nqn --nr-io-queues=1 --hostnqn=$host_nqn > $tmp.said 2>&1 &&
		fail "nvme connect without a key succeeded"
	cat $tmp.said
	stop_hauld
}
