#!/usr/bin/env bash
# Proves the README's two commands on a clean system: mmdebstrap makes a root, a clone of the last commit goes into it, and make demo and
# make test run there. Needs mmdebstrap, root or user namespaces, the network, 20 GB and an hour or more.
#   tools/clean_root.sh bookworm [FOLDER]            Debian 12; trixie: Debian 13; noble: Ubuntu 24.04
#   COMMANDS="make demo" tools/clean_root.sh trixie  only what is named
# The folder (build/roots/<suite>) stays, and a second call starts anew. The last line says what ran how long.
set -euo pipefail
cd "$(dirname "$0")/.."

suite=${1:?name a suite: bookworm, trixie, noble}
root=${2:-build/roots/$suite}
commands=${COMMANDS:-make demo;make test}
case $suite in
  noble | jammy) mirror=http://archive.ubuntu.com/ubuntu components=main,universe ;;
  *) mirror=http://deb.debian.org/debian components=main ;;
esac
command -v mmdebstrap >/dev/null || { echo "[root] mmdebstrap is not installed: apt-get install mmdebstrap" >&2; exit 1; }

mkdir -p "$(dirname "$root")"
rm -rf "$root"
# What the README names, and how a clone and its packages come.
mmdebstrap --variant=minbase --components="$components" --include=python3,make,git,ca-certificates "$suite" "$root" "$mirror"
cp /etc/resolv.conf "$root/etc/resolv.conf"
git bundle create "$root/shoal.bundle" HEAD
inside() {
  unshare --mount --pid --fork --kill-child bash -c '
    set -e
    mount -t proc proc "$1/proc"
    mount --rbind /dev "$1/dev"
    mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm"
    exec chroot "$1" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 bash -euo pipefail -c "$2"' _ "$root" "$1"
}
inside 'git clone -q /shoal.bundle /root/shoal'
report="$suite $(uname -m), $(git rev-parse --short HEAD), $(date +%F):"
IFS=';' read -ra list <<<"$commands"
for command in "${list[@]}"; do
  start=$SECONDS
  inside "cd /root/shoal && $command" || { echo "[root] $report $command FAILED after $((SECONDS - start)) s"; exit 1; }
  report+=" $command $((SECONDS - start)) s;"
done
echo "[root] $report all ended well"
