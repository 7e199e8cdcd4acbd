# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# Our initiator on the kernel's target and on hauld: haul, the fio engine, and programs of users.
# Sourced by tests/interop/cases.sh.
# shellcheck disable=SC2034,SC2086,SC2119,SC2120,SC2154 # variables without blanks, shared by these files

# haul finds and identifies what the kernel exports; our engine writes and reads it.
haul_and_engine_use_a_kernel_target() {
	need_haul
	start_kernel_target "$1"
	"$haul" discover "$1://$address:4420" > $tmp.found || fail "haul discover ended with status $?"
	cat $tmp.found
	grep -q $nqn $tmp.found || fail "haul discover does not list $nqn"
	"$haul" id --json "$1://$address:4420/$nqn" > $tmp.id || fail "haul id ended with status $?"
	/usr/bin/python3 -m json.tool $tmp.id || fail "haul id --json printed no JSON"
	grep -q 67108864 $tmp.id || fail "haul id does not know the disk's size"
	engine_fio "$1://$address/$nqn/1"
	haul_doctor_finds_the_way "$1"
	kernel_is_calm
}

# The VM's soft-RoCE is seen as it is, and each step to the kernel's target. There may be other problems: a small limit of locked
# memory, for one.
haul_doctor_finds_the_way() {
	local line
	"$haul" doctor "$1://$address/$nqn/1" > $tmp.doctor
	cat $tmp.doctor
	for line in '^ok  *discovery ' "^ok  *controller  *$nqn: Linux" '^ok  *reads  *200 of 4096 bytes'; do
		grep -q "$line" $tmp.doctor || fail "haul doctor has no line $line"
	done
	[ "$1" = tcp ] && return
	for line in '^ok  *connections ' '^ok  *RDMA device  *rxe0 (in software)' '^ok  *verbs  *rxe0 is /dev/infiniband/uverbs0' \
		'^ok  *port  *rxe0/1 is active: RoCE at ' '^ok  *IP address  *rxe0/1 has ' "^ok  *route  *through rxe0/1, from $address "; do
		grep -q "$line" $tmp.doctor || fail "haul doctor has no line $line"
	done
}

# The kernel lets subsystems have any name: found, shown and written to under it, and taken without being named.
haul_takes_a_free_form_name_tcp() {
	need_haul
	local nqn=testnqn uri=tcp://$address:4420
	start_kernel_target tcp
	"$haul" discover "$uri" > $tmp.found || fail "haul discover ended with status $?"
	cat $tmp.found
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

engine_to_hauld_tcp() {
	start_hauld tcp
	engine_fio "tcp://$address/$nqn/1"
	stop_hauld
}

engine_to_hauld_rdma() {
	wire_up
	start_hauld rdma
	captured engine-and-hauld-nvme-rdma engine_fio "rdma://$address/$nqn/1"
	stop_hauld
}

# A program with registered memory that forks: parent, child and device each keep what is theirs (PITFALLS B120).
# keys=io on a real device: targets that do wrong reach nothing; hauld and the kernel reach what they are to.
keys_of_each_command_rdma() {
	HAUL_TEST_ADDRESS=$address "$build/tests/sim/rdma/test_rdma_keys" || fail "a target reached what it must not"
	start_hauld rdma
	engine_fio "rdma://$address/$nqn/1?keys=io"
	stop_hauld
	start_kernel_target rdma
	engine_fio "rdma://$address/$nqn/1?keys=io"
	kernel_is_calm
}

users_program_that_forks_rdma() {
	start_hauld rdma
	"$build/tests/e2e/user" fork "rdma://$address/$nqn/1" io_uring 40 < /dev/null || fail "the program ended with status $?"
	stop_hauld
}

# rdma_objects: how many objects of each kind the kernel keeps for rxe0.
rdma_objects() { rdma resource show rxe0 | grep -oE '(qp|cq|mr|pd|srq|cm_id) [0-9]+' | tr '\n' ' '; }

# no_more_objects BEFORE: there are as many of each kind, or fewer, as the pool's regions come and go.
no_more_objects() {
	local before after i
	read -ra before <<< "$1"
	read -ra after <<< "$(rdma_objects)"
	for ((i = 1; i < ${#before[@]}; i += 2)); do
		[ "${after[i]}" -le "${before[i]}" ] || return 1
	done
}

# soft-RoCE has been known to run out of memory after a hundred rounds, because of objects that programs left (B122).
users_program_connects_again_and_again_rdma() {
	local user=$build/tests/e2e/user before
	start_hauld rdma
	"$user" rounds "rdma://$address/$nqn/1" io_uring 1 || fail "the first round ended with status $?"
	before=$(rdma_objects)
	"$user" rounds "rdma://$address/$nqn/1" io_uring 25 || fail "250 connections ended with status $?"
	until_true 10 no_more_objects "$before" || fail "objects are left: before $before, after $(rdma_objects)"
	echo "before: $before after: $(rdma_objects)"
	stop_hauld
	! grep -E 'error|cannot' $tmp.hauld || fail "hauld complained: $(grep -E 'error|cannot' $tmp.hauld | tail -1)"
}

are_connected() { [ "$(grep -c " connected to $nqn" $tmp.hauld)" = "$1" ]; }

# The MTU of the port changes under load: no queue is lost, and the data is right (B124).
queues_outlive_a_change_of_mtu_rdma() {
	local mtu
	start_hauld rdma
	engine_options "rdma://$address/$nqn/1"
	fio_load "${engine[@]}"
	# The first association looks the sizes up.
	until_true 30 are_connected 2 || fail "the engine did not connect"
	for mtu in 1500 4500 1500 4500 1500 4500; do
		ip link set rdma0 mtu $mtu
		sleep 0.5
	done
	fio_load_stop
	stop_hauld
	are_connected 2 || fail "a queue was lost"
}

engine_has_its_data_in_huge_pages() {
	local before rc=0
	before=$(cat /proc/sys/vm/nr_hugepages)
	echo 16 > /proc/sys/vm/nr_hugepages
	grep -q 'HugePages_Free: *16$' /proc/meminfo || skip "no huge pages: $(grep HugePages_Free /proc/meminfo)"
	start_hauld "$1"
	engine_options "$1://$address/$nqn/1"
	fio_run "${engine[@]}" --rw=randwrite --bsrange=4k-64k --size=4M --iodepth=16 --do_verify=1 --stonewall \
		--name=mmap --iomem=mmaphuge --name=shm --iomem=shmhuge || rc=$?
	fio_result $rc
	[ "$written $read_back" = "8192 8192" ] || fail "fio's verify phases did not read back what was written"
	stop_hauld
	echo "$before" > /proc/sys/vm/nr_hugepages
}
