# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# tests/wire, the conformance suite, against targets over the kernel's transports. What the kernel's target is known to do
# otherwise is in tests/wire/nvmet.deviations; our own deviates nowhere. The cases whose names begin with whole_ are in no
# list and run by name. Sourced by tests/interop/cases.sh.
# shellcheck disable=SC2154 # address, build and nqn are shared with parties.sh

# wire_suite TRTYPE FILES OPTION...: FILES are words, test_WORD.py
wire_suite() {
	local word files=() rc=0 trtype=$1
	for word in $2; do
		files+=("tests/wire/test_$word.py")
	done
	HAUL_BUILD_DIR=$build /usr/bin/python3 -m pytest "${files[@]}" -p no:cacheprovider -q --tb=short --durations=10 \
		--target "$trtype://$address:4420/$nqn" "${@:3}" || rc=$?
	[ $rc = 0 ] || fail "the target does not do as tests/wire and its list of deviations say"
}

kernel_wire_suite() { start_kernel_target "$1" && wire_suite "$@" --deviations tests/wire/nvmet.deviations; }

commands="connect admin io log features discovery"

# Over RDMA, where to connect takes the VM half a second, what the transport has a part in.
wire_suite_against_the_kernel_target_tcp() { kernel_wire_suite tcp "$commands tcp" -m "not long"; }
wire_suite_against_the_kernel_target_rdma() { kernel_wire_suite rdma "io rdma" -m "not long"; }
whole_wire_suite_against_the_kernel_target() { kernel_wire_suite "$1" "$commands $1"; }

wire_suite_against_hauld_rdma() {
	start_hauld rdma
	wire_suite rdma rdma
	stop_hauld
}
