# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# The interoperability cases; sourced by tests/interop/run, inside the lab VM. A case X_tcp or X_rdma is a function of that name
# in one of the files below, or function X called with the transport. One that returns non-zero failed and its last line says
# why; 77 is a skip.
# shellcheck disable=SC2034 # run has the list

case_seconds=${case_seconds:-240}
cases="kernel_host_to_kernel_target_tcp kernel_host_to_kernel_target_rdma
	kernel_host_to_hauld_tcp kernel_host_to_hauld_rdma kernel_host_to_hauld_tcp_with_digests
	kernel_host_connects_all_through_a_wildcard_listener_tcp kernel_host_connects_all_through_a_wildcard_listener_rdma
	kernel_host_at_several_queue_sizes_tcp kernel_host_at_several_queue_sizes_rdma kernel_host_is_told_why_it_is_refused_tcp
	kernel_host_authenticates_tcp kernel_host_authenticates_rdma kernel_host_authenticates_simply_tcp
	kernel_host_discards_on_hauld_tcp kernel_host_discards_on_hauld_rdma
	kernel_host_follows_changes_tcp kernel_host_follows_changes_rdma
	kernel_host_follows_ana_tcp kernel_host_follows_ana_rdma
	nvme_cli_reads_every_page_tcp nvme_cli_reads_every_page_rdma nvme_cli_sets_features_tcp nvme_cli_sets_features_rdma
	nvme_cli_reserves_tcp nvme_cli_reserves_rdma kernel_host_keeps_discovery_tcp kernel_host_keeps_discovery_rdma
	kernel_host_resets_hauld_under_load_tcp kernel_host_resets_hauld_under_load_rdma
	file_systems_outlive_a_killed_hauld_tcp file_systems_outlive_a_killed_hauld_rdma
	nvme_cli_sends_each_io_command_tcp nvme_cli_sends_each_io_command_rdma
	hauld_drains_under_a_kernel_host_tcp hauld_drains_under_a_kernel_host_rdma
	haul_takes_a_free_form_name_tcp haul_follows_a_referral_of_the_kernel_tcp
	haul_and_engine_use_a_kernel_target_tcp haul_and_engine_use_a_kernel_target_rdma
	engine_to_hauld_tcp engine_to_hauld_rdma keys_of_each_command_rdma
	users_program_that_forks_rdma users_program_connects_again_and_again_rdma queues_outlive_a_change_of_mtu_rdma
	hauld_on_a_device_that_is_removed_tcp kernel_host_mounts_a_disk_of_4096_byte_blocks_tcp hauld_says_that_aio_slots_are_missing
	engine_has_its_data_in_huge_pages_tcp engine_has_its_data_in_huge_pages_rdma
	wire_suite_against_the_kernel_target_tcp wire_suite_against_the_kernel_target_rdma wire_suite_against_hauld_rdma"

# shellcheck source=tests/interop/parties.sh
. tests/interop/parties.sh
# shellcheck source=tests/interop/conformance.sh
. tests/interop/conformance.sh
# shellcheck source=tests/interop/kernel_host.sh
. tests/interop/kernel_host.sh
# shellcheck source=tests/interop/auth.sh
. tests/interop/auth.sh
# shellcheck source=tests/interop/changes.sh
. tests/interop/changes.sh
# shellcheck source=tests/interop/nvme_cli.sh
. tests/interop/nvme_cli.sh
# shellcheck source=tests/interop/file_systems.sh
. tests/interop/file_systems.sh
# shellcheck source=tests/interop/initiator.sh
. tests/interop/initiator.sh
# shellcheck source=tests/interop/disks.sh
. tests/interop/disks.sh
# shellcheck source=tests/interop/cable.sh
. tests/interop/cable.sh
