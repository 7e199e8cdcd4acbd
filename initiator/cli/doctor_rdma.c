/* SPDX-License-Identifier: MIT */
/*
 * haul doctor: RDMA devices, their ports and their addresses, as sysfs shows them.
 */
#include "initiator/cli/doctor.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DOCTOR_NAME	 64 /* of a device */
#define DOCTOR_TEXT	 128
#define DOCTOR_CURE	 512
#define DOCTOR_MTU_4096	 4200 /* of the network device, for RoCE to send 4096 bytes at once */
#define DOCTOR_MTU_JUMBO 9000

struct doctor_port {
	const char *device;
	const char *number;
	char netdev[DOCTOR_NAME]; /* "": none (InfiniBand) */
	bool roce, iwarp, software;
};

/* --- without a device ------------------------------------------------------------------------ */

/* Who makes adapters that can RDMA, and the module they want for it. */
static const struct {
	const char *vendor, *module;
} doctor_adapters[] = {
	{"0x15b3", "mlx5_ib"},	/* NVIDIA (Mellanox) */
	{"0x8086", "irdma"},	/* Intel E810, X722 */
	{"0x14e4", "bnxt_re"},	/* Broadcom */
	{"0x1425", "iw_cxgb4"}, /* Chelsio */
	{"0x1077", "qedr"},	/* Marvell (QLogic) */
	{"0x1d0f", "efa"},	/* Amazon */
};

/* A network adapter of a maker whose adapters can, or NULL. Not each model does. */
static const char *doctor_adapter_module(const struct doctor *doctor)
{
	struct doctor_names names = doctor_names(doctor, "/sys/bus/pci/devices");
	const char *module = NULL;
	char line[32];

	for (int i = 0; i < names.nr && !module; i++) {
		const char *name = names.entry[i]->d_name;

		if (!doctor_read(
			    doctor, line, sizeof(line), "/sys/bus/pci/devices/%s/class", name) ||
			strncmp(line, "0x02", 4) != 0 ||
			!doctor_read(
				doctor, line, sizeof(line), "/sys/bus/pci/devices/%s/vendor", name))
			continue;
		for (size_t k = 0; k < sizeof(doctor_adapters) / sizeof(doctor_adapters[0]); k++)
			if (!strcmp(line, doctor_adapters[k].vendor))
				module = doctor_adapters[k].module;
	}
	doctor_names_free(&names);
	return module;
}

/* The first network device that is up and could carry soft-RoCE. */
static void doctor_netdev(const struct doctor *doctor, char ret_name[DOCTOR_NAME])
{
	struct doctor_names names = doctor_names(doctor, "/sys/class/net");
	char line[32];

	strcpy(ret_name, "NETDEV");
	for (int i = 0; i < names.nr; i++) {
		const char *name = names.entry[i]->d_name;

		/* 1: Ethernet (ARPHRD_ETHER). */
		if (doctor_read(doctor, line, sizeof(line), "/sys/class/net/%s/type", name) &&
			!strcmp(line, "1") &&
			doctor_read(
				doctor, line, sizeof(line), "/sys/class/net/%s/operstate", name) &&
			!strcmp(line, "up")) {
			snprintf(ret_name, DOCTOR_NAME, "%.15s", name); /* IFNAMSIZ */
			break;
		}
	}
	doctor_names_free(&names);
}

static void doctor_no_device(struct doctor *doctor)
{
	const char *module = doctor_adapter_module(doctor);
	char netdev[DOCTOR_NAME], cure[DOCTOR_CURE];

	doctor_netdev(doctor, netdev);
	snprintf(cure, sizeof(cure),
		"%s%s%smodprobe rdma_rxe\nrdma link add rxe0 type rxe netdev %s",
		module ? "modprobe " : "", module ? module : "",
		module ? "    # the adapter's; else in software:\n" : "", netdev);
	doctor_tell(doctor, DOCTOR_PROBLEM, "RDMA device", cure,
		module ? "there is none, but an adapter of a kind that may be one"
		       : "there is none; soft-RoCE makes one of any network device (slower than "
			 "TCP, good for trying)");
}

/* --- a port's addresses ---------------------------------------------------------------------- */

struct doctor_gids {
	unsigned v1, v2;     /* RoCE; v1 counts InfiniBand's, too */
	unsigned v2_with_ip; /* made from an address that is not link-local */
};

static bool doctor_gid_has_ip(const char *gid)
{
	return strncmp(gid, "fe80:", 5) != 0;
}

static void doctor_count_gid(const struct doctor *doctor, const struct doctor_port *port,
	const char *index, struct doctor_gids *gids)
{
	char gid[64], type[32];

	/* An entry that is not in use has no type. */
	if (!doctor_read(doctor, type, sizeof(type),
		    "/sys/class/infiniband/%s/ports/%s/gid_attrs/types/%s", port->device,
		    port->number, index) ||
		!doctor_read(doctor, gid, sizeof(gid), "/sys/class/infiniband/%s/ports/%s/gids/%s",
			port->device, port->number, index))
		return;
	if (strcmp(type, "RoCE v2") != 0) {
		gids->v1++;
		return;
	}
	gids->v2++;
	gids->v2_with_ip += doctor_gid_has_ip(gid);
}

static struct doctor_gids doctor_count_gids(
	const struct doctor *doctor, const struct doctor_port *port)
{
	struct doctor_names names = doctor_names(
		doctor, "/sys/class/infiniband/%s/ports/%s/gids", port->device, port->number);
	struct doctor_gids gids = {0};

	for (int i = 0; i < names.nr; i++)
		doctor_count_gid(doctor, port, names.entry[i]->d_name, &gids);
	doctor_names_free(&names);
	return gids;
}

/* What connections get, where configfs is there to tell. */
static void doctor_default_roce(struct doctor *doctor, const struct doctor_port *port)
{
	char mode[32], cure[DOCTOR_CURE];

	if (!doctor_read(doctor, mode, sizeof(mode),
		    "/sys/kernel/config/rdma_cm/%s/ports/%s/default_roce_mode", port->device,
		    port->number) ||
		!strcmp(mode, "RoCE v2"))
		return;
	snprintf(cure, sizeof(cure),
		"echo 'RoCE v2' >/sys/kernel/config/rdma_cm/%s/ports/%s/default_roce_mode",
		port->device, port->number);
	doctor_tell(doctor, DOCTOR_PROBLEM, "RoCE version", cure,
		"%s/%s connects with %s, which no router passes on and hosts with v2 do not hear",
		port->device, port->number, mode);
}

static void doctor_roce_addresses(struct doctor *doctor, const struct doctor_port *port)
{
	struct doctor_gids gids = doctor_count_gids(doctor, port);
	char cure[DOCTOR_CURE];

	if (gids.v2 == 0) {
		doctor_tell(doctor, DOCTOR_PROBLEM, "RoCE version",
			"rdma link show    # and the adapter's own settings: RoCE v2 is to be on",
			"%s/%s has no address for RoCE v2%s", port->device, port->number,
			gids.v1 ? ", only for v1" : "");
		return;
	}
	snprintf(cure, sizeof(cure), "ip address add ADDRESS/PREFIX dev %s", port->netdev);
	if (gids.v2_with_ip == 0)
		doctor_tell(doctor, DOCTOR_PROBLEM, "IP address", cure,
			"%s/%s has only a link-local one", port->device, port->number);
	else
		doctor_tell(doctor, DOCTOR_OK, "IP address", NULL,
			"%s/%s has %u for RoCE v2 (rdma link show, ip address show dev %s)",
			port->device, port->number, gids.v2_with_ip, port->netdev);
	doctor_default_roce(doctor, port);
}

static void doctor_mtu(struct doctor *doctor, const struct doctor_port *port)
{
	char line[32], cure[DOCTOR_CURE];
	unsigned long mtu;

	if (!doctor_read(doctor, line, sizeof(line), "/sys/class/net/%s/mtu", port->netdev))
		return;
	mtu = strtoul(line, NULL, 10);
	snprintf(cure, sizeof(cure), "ip link set dev %s mtu %d    # at all ends and switches",
		port->netdev, DOCTOR_MTU_JUMBO);
	if (mtu >= DOCTOR_MTU_4096)
		doctor_tell(doctor, DOCTOR_OK, "MTU", NULL, "%lu at %s", mtu, port->netdev);
	else
		doctor_tell(doctor, DOCTOR_HINT, "MTU", cure,
			"%lu at %s: RoCE sends %s bytes at once; from %d on it is 4096", mtu,
			port->netdev, mtu >= 2200 ? "2048" : "1024", DOCTOR_MTU_4096);
}

/* --- ports and devices ------------------------------------------------------------------------ */

static void doctor_port_cure(
	const struct doctor_port *port, const char *state, char cure[DOCTOR_CURE])
{
	if (port->netdev[0])
		snprintf(cure, DOCTOR_CURE,
			"ip link set dev %s up    # and look at cable and switch port",
			port->netdev);
	else if (strstr(state, "INIT"))
		snprintf(cure, DOCTOR_CURE,
			"systemctl start opensm    # no subnet manager has "
			"set this port up");
	else
		snprintf(cure, DOCTOR_CURE, "ibstat %s    # look at cable and switch port",
			port->device);
}

static bool doctor_port_state(struct doctor *doctor, const struct doctor_port *port)
{
	char state[64], rate[64], cure[DOCTOR_CURE];
	const char *name;

	if (!doctor_read(doctor, state, sizeof(state), "/sys/class/infiniband/%s/ports/%s/state",
		    port->device, port->number)) {
		doctor_tell(doctor, DOCTOR_UNKNOWN, "port", NULL, "%s/%s: its state cannot be read",
			port->device, port->number);
		return false;
	}
	if (!doctor_read(doctor, rate, sizeof(rate), "/sys/class/infiniband/%s/ports/%s/rate",
		    port->device, port->number))
		strcpy(rate, "rate unknown");
	name = strchr(state, ' '); /* "4: ACTIVE" */
	name = name ? name + 1 : state;
	if (!strcmp(name, "ACTIVE")) {
		doctor_tell(doctor, DOCTOR_OK, "port", NULL, "%s/%s is active: %s%s%s, %s",
			port->device, port->number,
			port->roce    ? "RoCE"
			: port->iwarp ? "iWARP"
				      : "InfiniBand",
			port->netdev[0] ? " at " : "", port->netdev, rate);
		return true;
	}
	doctor_port_cure(port, state, cure);
	doctor_tell(doctor, DOCTOR_PROBLEM, "port", cure, "%s/%s is %s", port->device, port->number,
		name);
	return false;
}

static void doctor_port(
	struct doctor *doctor, const char *device, const char *number, bool iwarp, bool software)
{
	struct doctor_port port = {
		.device = device, .number = number, .iwarp = iwarp, .software = software};
	char layer[32];

	(void)doctor_read(doctor, layer, sizeof(layer),
		"/sys/class/infiniband/%s/ports/%s/link_layer", device, number);
	port.roce = !iwarp && !strcmp(layer, "Ethernet");
	(void)doctor_read(doctor, port.netdev, sizeof(port.netdev),
		"/sys/class/infiniband/%s/ports/%s/gid_attrs/ndevs/0", device, number);
	if (!doctor_port_state(doctor, &port) || !port.roce)
		return;
	doctor_roce_addresses(doctor, &port);
	doctor_mtu(doctor, &port);
	if (!software && !doctor->root[0])
		doctor_flow_control(doctor, port.netdev);
}

/* /dev/infiniband/uverbsN of DEVICE. */
static void doctor_verbs(struct doctor *doctor, const char *device)
{
	struct doctor_names names = doctor_names(doctor, "/sys/class/infiniband_verbs");
	char line[DOCTOR_NAME], cure[DOCTOR_CURE];
	const char *verbs = NULL;

	for (int i = 0; i < names.nr && !verbs; i++)
		if (doctor_read(doctor, line, sizeof(line), "/sys/class/infiniband_verbs/%s/ibdev",
			    names.entry[i]->d_name) &&
			!strcmp(line, device))
			verbs = names.entry[i]->d_name;
	snprintf(cure, sizeof(cure),
		"modprobe ib_uverbs\n"
		"docker run --device /dev/infiniband/%s --device /dev/infiniband/rdma_cm ...",
		verbs ? verbs : "uverbs0");
	if (!verbs || !doctor_may(doctor, F_OK, "/dev/infiniband/%s", verbs))
		doctor_tell(doctor, DOCTOR_PROBLEM, "verbs", cure,
			"%s has no node in /dev/infiniband here", device);
	else if (!doctor_may(doctor, R_OK | W_OK, "/dev/infiniband/%s", verbs))
		doctor_tell(doctor, DOCTOR_PROBLEM, "verbs",
			"cp /usr/lib/udev/rules.d/*rdma*.rules /etc/udev/rules.d/    # of rdma-core: "
			"mode 0666",
			"/dev/infiniband/%s may not be opened", verbs);
	else
		doctor_tell(doctor, DOCTOR_OK, "verbs", NULL, "%s is /dev/infiniband/%s", device,
			verbs);
	doctor_names_free(&names);
}

static void doctor_device(struct doctor *doctor, const char *device)
{
	bool software = !doctor_may(doctor, F_OK, "/sys/class/infiniband/%s/device", device);
	char type[64], firmware[64];
	struct doctor_names ports;
	bool iwarp;

	iwarp = doctor_read(
			doctor, type, sizeof(type), "/sys/class/infiniband/%s/node_type", device) &&
		strstr(type, "RNIC");
	if (!doctor_read(
		    doctor, firmware, sizeof(firmware), "/sys/class/infiniband/%s/fw_ver", device))
		strcpy(firmware, "unknown");
	doctor_tell(doctor, DOCTOR_OK, "RDMA device", NULL, "%s%s, firmware %s", device,
		software ? " (in software)" : "", firmware);
	doctor_verbs(doctor, device);
	ports = doctor_names(doctor, "/sys/class/infiniband/%s/ports", device);
	for (int i = 0; i < ports.nr; i++)
		doctor_port(doctor, device, ports.entry[i]->d_name, iwarp, software);
	doctor_names_free(&ports);
}

static void doctor_connection_manager(struct doctor *doctor)
{
	if (doctor_may(doctor, R_OK | W_OK, "/dev/infiniband/rdma_cm"))
		doctor_tell(doctor, DOCTOR_OK, "connections", NULL,
			"the connection manager is at /dev/infiniband/rdma_cm");
	else if (doctor_may(doctor, F_OK, "/dev/infiniband/rdma_cm"))
		doctor_tell(doctor, DOCTOR_PROBLEM, "connections",
			"chmod 666 /dev/infiniband/rdma_cm    # rdma-core's udev rules do it",
			"/dev/infiniband/rdma_cm may not be opened");
	else
		doctor_tell(doctor, DOCTOR_PROBLEM, "connections",
			"modprobe rdma_ucm\n"
			"docker run --device /dev/infiniband/rdma_cm ...",
			"there is no connection manager (/dev/infiniband/rdma_cm)");
}

void doctor_rdma(struct doctor *doctor)
{
	struct doctor_names devices = doctor_names(doctor, "/sys/class/infiniband");

	if (devices.nr == 0)
		doctor_no_device(doctor);
	else
		doctor_connection_manager(doctor);
	for (int i = 0; i < devices.nr; i++)
		doctor_device(doctor, devices.entry[i]->d_name);
	doctor_names_free(&devices);
}
