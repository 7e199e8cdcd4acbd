# shellcheck shell=bash
# What check, demo and the lab share: progress lines, Debian packages, fio's headers.
# Sourced from the root of the tree, never run.

haul_cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/haul
export HAUL_STARTED=${HAUL_STARTED:-$EPOCHSECONDS} # one clock for a script and those it calls

say() { printf '[%3d s] %s\n' $((EPOCHSECONDS - HAUL_STARTED)) "$*"; }
die() { echo "${0##*/}: $*" >&2; exit 1; }

# bounded [-k GRACE] SECONDS COMMAND...: run with a deadline, in a process group of its own that bounded_stop ends (from a
# trap) and waits for. GRACE (10): seconds from SIGTERM to SIGKILL.
bounded() {
	timeout -k 10 "$@" < /dev/null &
	bounded_pid=$!
	wait "$bounded_pid"
	local rc=$?
	bounded_pid=
	return $rc
}

bounded_stop() { [ -z "${bounded_pid:-}" ] || { kill "$bounded_pid"; wait "$bounded_pid"; } 2>/dev/null; }

# packages GROUP...: the packages of these groups, one a line.
packages() {
	local group
	for group in "$@"; do
		sed -n "s/^$group: //p" tests/packages
	done | tr ' ' '\n' | sort -u
}

packages_missing() {
	local package
	for package in $(packages "$@"); do
		[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
	done
}

# packages_need GROUP...: install what is missing as root or through sudo; who cannot gets the one line to run.
packages_need() {
	local missing as_root=()
	missing=$(packages_missing "$@" | tr '\n' ' ')
	[ -n "$missing" ] || return 0
	if [ "$(id -u)" != 0 ]; then
		if ! sudo -n true 2>/dev/null && { [ ! -t 0 ] || ! command -v sudo >/dev/null; }; then
			echo "${0##*/}: packages are missing; run: sudo apt-get update && sudo apt-get install -y --no-install-recommends $missing" >&2
			exit 2
		fi
		as_root=(sudo)
	fi
	say "installing $missing"
	# shellcheck disable=SC2086 # one word a package
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive sh -c \
		'apt-get update -q && apt-get install -yq --no-install-recommends "$@"' apt $missing \
		> "${TMPDIR:-/tmp}/haul-apt.$$" 2>&1 < /dev/null ||
		{ tail -20 "${TMPDIR:-/tmp}/haul-apt.$$" >&2; rm -f "${TMPDIR:-/tmp}/haul-apt.$$"; die "apt-get failed"; }
	rm -f "${TMPDIR:-/tmp}/haul-apt.$$"
}

# fio_headers: fetch and configure the source of the fio that is installed; sets fio_source. The machine's own apt
# sources stay as they are: the deb-src line lives in a directory of our own.
fio_headers() {
	local version apt uri log
	version=$(dpkg-query -W -f '${source:Version}' fio) || return 1
	fio_source=$haul_cache/fio-$version
	[ -e "$fio_source/config-host.h" ] && return 0
	apt=$haul_cache/apt log=$haul_cache/fio.log
	if ! { rm -rf "$fio_source" "$apt" && mkdir -p "$apt"/{lists,cache,parts,unpack}; } 2>/dev/null; then
		echo "${0##*/}: cannot write $haul_cache; set XDG_CACHE_HOME to a folder that can be written" >&2
		return 1
	fi
	[ "$(id -u)" != 0 ] || [ -n "$(apt-cache madison fio 2>/dev/null)" ] || apt-get update -q > /dev/null 2>&1
	# shellcheck disable=SC1091
	uri=$(apt-get download --print-uris fio 2>/dev/null | sed -n "s,^'\(.*\)/pool/.*,\1,p")
	[ -n "$uri" ] || { echo "${0##*/}: apt knows no source of fio; run: sudo apt-get update" >&2; return 1; }
	echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
		"$uri $(. /etc/os-release && echo "$VERSION_CODENAME") main" > "$apt/sources.list"
	{
		local options=(-q -o "Dir::Etc::SourceList=$apt/sources.list" -o "Dir::Etc::SourceParts=$apt/parts"
			-o "Dir::State::Lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o "APT::Sandbox::User=$(id -un)")
		apt-get "${options[@]}" update &&
			(cd "$apt/unpack" && apt-get "${options[@]}" source "fio=$version") &&
			(cd "$apt"/unpack/fio-*/ && ./configure) &&
			mv "$apt"/unpack/fio-*/ "$fio_source"
	} > "$log" 2>&1 < /dev/null && [ -e "$fio_source/config-host.h" ] && return 0
	tail -5 "$log" >&2
	rm -rf "$fio_source"
	return 1
}
