/* SPDX-License-Identifier: MIT */
/*
 * Texts of status codes and the translation between status and errno.
 */
#include "proto/nvme/status.h"

#include <errno.h>
#include <stddef.h>

#include "proto/base/compiler.h"

/* What the host library reports (0 or errno) and a person reads. Several codes may share an errno.
 */
static const struct {
	uint16_t code;
	int error;
	const char *text;
} status_table[] = {
	{NVME_SC_SUCCESS, 0, "Success"},
	{NVME_SC_INVALID_OPCODE, EOPNOTSUPP, "Invalid Command Opcode"},
	{NVME_SC_INVALID_FIELD, EINVAL, "Invalid Field in Command"},
	{NVME_SC_CID_CONFLICT, EPROTO, "Command ID Conflict"},
	{NVME_SC_DATA_TRANSFER, EFAULT, "Data Transfer Error"},
	{NVME_SC_POWER_LOSS, ECANCELED, "Commands Aborted due to Power Loss Notification"},
	{NVME_SC_INTERNAL, EIO, "Internal Error"},
	{NVME_SC_ABORT_REQUESTED, ECANCELED, "Command Abort Requested"},
	{NVME_SC_ABORT_SQ_DELETED, ECANCELED, "Command Aborted due to SQ Deletion"},
	{NVME_SC_ABORT_FUSED_FAILED, ECANCELED, "Command Aborted due to Failed Fused Command"},
	{NVME_SC_ABORT_FUSED_MISSING, ECANCELED, "Command Aborted due to Missing Fused Command"},
	{NVME_SC_INVALID_NS, ENODEV, "Invalid Namespace or Format"},
	{NVME_SC_COMMAND_SEQUENCE, EPROTO, "Command Sequence Error"},
	{NVME_SC_SGL_SEGMENT_INVALID, EINVAL, "Invalid SGL Segment Descriptor"},
	{NVME_SC_SGL_COUNT_INVALID, EINVAL, "Invalid Number of SGL Descriptors"},
	{NVME_SC_SGL_DATA_LEN_INVALID, EINVAL, "Data SGL Length Invalid"},
	{NVME_SC_SGL_METADATA_LEN_INVALID, EINVAL, "Metadata SGL Length Invalid"},
	{NVME_SC_SGL_TYPE_INVALID, EINVAL, "SGL Descriptor Type Invalid"},
	{NVME_SC_PRP_OFFSET_INVALID, EINVAL, "PRP Offset Invalid"},
	{NVME_SC_ATOMIC_WRITE_UNIT_EXCEEDED, EINVAL, "Atomic Write Unit Exceeded"},
	{NVME_SC_OPERATION_DENIED, EACCES, "Operation Denied"},
	{NVME_SC_SGL_OFFSET_INVALID, EINVAL, "SGL Offset Invalid"},
	{NVME_SC_HOSTID_FORMAT, EINVAL, "Host Identifier Inconsistent Format"},
	{NVME_SC_KEEP_ALIVE_EXPIRED, ETIMEDOUT, "Keep Alive Timer Expired"},
	{NVME_SC_KEEP_ALIVE_INVALID, EINVAL, "Keep Alive Timeout Invalid"},
	{NVME_SC_ABORT_PREEMPTED, ECANCELED, "Command Aborted due to Preempt and Abort"},
	{NVME_SC_SANITIZE_FAILED, EIO, "Sanitize Failed"},
	{NVME_SC_SANITIZE_IN_PROGRESS, EBUSY, "Sanitize In Progress"},
	{NVME_SC_SGL_GRANULARITY_INVALID, EINVAL, "SGL Data Block Granularity Invalid"},
	{NVME_SC_NS_WRITE_PROTECTED, EROFS, "Namespace is Write Protected"},
	{NVME_SC_INTERRUPTED, EAGAIN, "Command Interrupted"},
	{NVME_SC_TRANSIENT_TRANSPORT, EBADMSG, "Transient Transport Error"},
	{NVME_SC_ADMIN_MEDIA_NOT_READY, EBUSY, "Admin Command Media Not Ready"},
	{NVME_SC_LBA_RANGE, ERANGE, "LBA Out of Range"},
	{NVME_SC_CAPACITY_EXCEEDED, ENOSPC, "Capacity Exceeded"},
	{NVME_SC_NS_NOT_READY, EBUSY, "Namespace Not Ready"},
	{NVME_SC_RESERVATION_CONFLICT, EBADE, "Reservation Conflict"},
	{NVME_SC_FORMAT_IN_PROGRESS, EBUSY, "Format In Progress"},
	{NVME_SC_CQ_INVALID, EINVAL, "Completion Queue Invalid"},
	{NVME_SC_QID_INVALID, EINVAL, "Invalid Queue Identifier"},
	{NVME_SC_QUEUE_SIZE_INVALID, EINVAL, "Invalid Queue Size"},
	{NVME_SC_ABORT_LIMIT, EBUSY, "Abort Command Limit Exceeded"},
	{NVME_SC_AER_LIMIT, EBUSY, "Asynchronous Event Request Limit Exceeded"},
	{NVME_SC_LOG_PAGE_INVALID, EINVAL, "Invalid Log Page"},
	{NVME_SC_FEATURE_NOT_SAVEABLE, EINVAL, "Feature Identifier Not Saveable"},
	{NVME_SC_FEATURE_NOT_CHANGEABLE, EINVAL, "Feature Not Changeable"},
	{NVME_SC_FEATURE_NOT_PER_NS, EINVAL, "Feature Not Namespace Specific"},
	{NVME_SC_IO_COMMAND_SET_UNSUPPORTED, EOPNOTSUPP, "I/O Command Set Not Supported"},
	/* Two meanings each: Connect's on fabrics commands, the NVM command set's on its own. */
	{NVME_SC_CONNECT_FORMAT, EPROTO, "Connect Incompatible Format, or Conflicting Attributes"},
	{NVME_SC_CONNECT_BUSY, EBUSY, "Connect Controller Busy, or Invalid Protection Information"},
	{NVME_SC_CONNECT_INVALID_PARAM, EINVAL,
		"Connect Invalid Parameters, or Attempted Write to Read Only Range"},
	{NVME_SC_CONNECT_RESTART_DISCOVERY, EAGAIN,
		"Connect Restart Discovery, or Command Size Limit Exceeded"},
	{NVME_SC_CONNECT_INVALID_HOST, EACCES, "Connect Invalid Host"},
	{NVME_SC_DISCONNECT_INVALID_QUEUE_TYPE, EINVAL, "Invalid Queue Type"},
	{NVME_SC_DISCOVER_RESTART, EAGAIN, "Discover Restart"},
	{NVME_SC_AUTH_REQUIRED, EACCES, "Authentication Required"},
	{NVME_SC_WRITE_FAULT, EIO, "Write Fault"},
	{NVME_SC_READ_ERROR, ENODATA, "Unrecovered Read Error"},
	{NVME_SC_GUARD_CHECK, EILSEQ, "End-to-end Guard Check Error"},
	{NVME_SC_APPTAG_CHECK, EILSEQ, "End-to-end Application Tag Check Error"},
	{NVME_SC_REFTAG_CHECK, EILSEQ, "End-to-end Reference Tag Check Error"},
	{NVME_SC_COMPARE_FAILED, EILSEQ, "Compare Failure"},
	{NVME_SC_ACCESS_DENIED, EACCES, "Access Denied"},
	{NVME_SC_UNWRITTEN_BLOCK, ENODATA, "Deallocated or Unwritten Logical Block"},
	{NVME_SC_INTERNAL_PATH, ENOLINK, "Internal Path Error"},
	{NVME_SC_ANA_PERSISTENT_LOSS, ENOLINK, "Asymmetric Access Persistent Loss"},
	{NVME_SC_ANA_INACCESSIBLE, ENOLINK, "Asymmetric Access Inaccessible"},
	{NVME_SC_ANA_TRANSITION, ENOLINK, "Asymmetric Access Transition"},
	{NVME_SC_CTRL_PATH, ENOLINK, "Controller Pathing Error"},
	{NVME_SC_HOST_PATH, ENOLINK, "Host Pathing Error"},
	{NVME_SC_HOST_ABORTED, ECANCELED, "Command Aborted By Host"},
};

/*
 * Without DNR only what passes by itself: the Linux host repeats such a command, at once, a handful
 * of times. A failed disk (EIO) has been retried by the kernel below us already.
 */
static const struct {
	int error;
	uint16_t status;
} status_of_errno[] = {
	{0, NVME_SC_SUCCESS},
	{EINVAL, NVME_SC_INVALID_FIELD | NVME_STATUS_DNR},
	{EOPNOTSUPP, NVME_SC_INVALID_OPCODE | NVME_STATUS_DNR},
	{ENOSYS, NVME_SC_INVALID_OPCODE | NVME_STATUS_DNR},
	{EROFS, NVME_SC_NS_WRITE_PROTECTED | NVME_STATUS_DNR},
	{EPERM, NVME_SC_NS_WRITE_PROTECTED | NVME_STATUS_DNR},
	{EACCES, NVME_SC_ACCESS_DENIED | NVME_STATUS_DNR},
	{ERANGE, NVME_SC_LBA_RANGE | NVME_STATUS_DNR},
	{ENOSPC, NVME_SC_CAPACITY_EXCEEDED | NVME_STATUS_DNR},
	{EDQUOT, NVME_SC_CAPACITY_EXCEEDED | NVME_STATUS_DNR},
	{EFBIG, NVME_SC_CAPACITY_EXCEEDED | NVME_STATUS_DNR},
	{EILSEQ, NVME_SC_GUARD_CHECK | NVME_STATUS_DNR},
	{EBADE, NVME_SC_RESERVATION_CONFLICT | NVME_STATUS_DNR},
	{ENODEV, NVME_SC_INVALID_NS | NVME_STATUS_DNR},
	{ENXIO, NVME_SC_INVALID_NS | NVME_STATUS_DNR},
	{EPROTO, NVME_SC_COMMAND_SEQUENCE | NVME_STATUS_DNR},
	{EFAULT, NVME_SC_DATA_TRANSFER},
	{EBADMSG, NVME_SC_TRANSIENT_TRANSPORT},
	{ECANCELED, NVME_SC_ABORT_REQUESTED},
	{EAGAIN, NVME_SC_INTERRUPTED},
	{EINTR, NVME_SC_INTERRUPTED},
	{ENOMEM, NVME_SC_INTERRUPTED},
	{ETIMEDOUT, NVME_SC_INTERRUPTED},
	{EBUSY, NVME_SC_NS_NOT_READY},
	{ENOLINK, NVME_SC_INTERNAL_PATH},
};

const char *nvme_status_str(uint16_t status)
{
	static const char *const type_text[8] = {
		"unknown generic status",
		"unknown command specific status",
		"unknown media error",
		"unknown path error",
		"status of a reserved type",
		"status of a reserved type",
		"status of a reserved type",
		"vendor specific status",
	};
	uint16_t code = status & NVME_STATUS_CODE_MASK;

	for (size_t i = 0; i < ARRAY_SIZE(status_table); i++) {
		if (status_table[i].code == code)
			return status_table[i].text;
	}
	return type_text[code >> 8];
}

uint16_t nvme_status_from_errno(int error, bool is_write)
{
	if (error == -EIO || error == -ENODATA)
		return (is_write ? NVME_SC_WRITE_FAULT : NVME_SC_READ_ERROR) | NVME_STATUS_DNR;
	for (size_t i = 0; i < ARRAY_SIZE(status_of_errno); i++) {
		if (status_of_errno[i].error == -error)
			return status_of_errno[i].status;
	}
	return NVME_SC_INTERNAL | NVME_STATUS_DNR;
}

int nvme_status_to_errno(uint16_t status)
{
	uint16_t code = status & NVME_STATUS_CODE_MASK;

	for (size_t i = 0; i < ARRAY_SIZE(status_table); i++) {
		if (status_table[i].code == code)
			return -status_table[i].error;
	}
	return code >> 8 == NVME_SC_INTERNAL_PATH >> 8 ? -ENOLINK : -EIO;
}
