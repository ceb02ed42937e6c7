#!/usr/bin/env bash
# Runs a command in a clone of this commit on a bare Debian 12 with nothing but git: proves that a script does all its own set-up.
#
# usage: scripts/cleanroom.sh [--keep] COMMAND [ARGUMENT...]
#
#   scripts/cleanroom.sh scripts/demo.sh
#   scripts/cleanroom.sh bash -c 'scripts/demo.sh && time scripts/demo.sh'
#
# Needs root, debootstrap and about 3 GB under $TMPDIR. The command runs in a chroot, in the clone's folder, without standard input; its
# status is this script's. Mirror, certificates, pip's configuration and name resolution are this machine's. The bare system is kept as an
# archive in the cache folder, so that only the first call makes it.
#   --keep   leave the clean root in place and say where it is
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/lib/output.sh"

keep=no
case ${1:-} in
  -h | --help) usage "${BASH_SOURCE[0]}"; exit 0 ;;
  --keep) keep=yes; shift ;;
esac
if (($# == 0)); then
  usage "${BASH_SOURCE[0]}" >&2
  exit 2
fi
((EUID == 0)) || die "must be run as root, because it makes a chroot"
command -v debootstrap >/dev/null || die "debootstrap is missing: apt-get install debootstrap"

readonly ARCHIVE=${XDG_CACHE_HOME:-${HOME:?is not set}/.cache}/minisgl/cleanroom-bookworm.tar

# make_archive: a minimal system with git, and without apt's lists and cached packages: what a container image of Debian gives, plus git.
make_archive() {
  local system mirror
  system=$(mktemp -d)
  # shellcheck disable=SC2016  # $(REPO_URI) is apt-get's own syntax
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Codename: bookworm' 'Created-By: Packages' | head -n1)
  step "Making a bare Debian 12 (once)"
  # With no mirror known, debootstrap takes its own default.
  debootstrap --variant=minbase --include=git,ca-certificates bookworm "$system" ${mirror:+"$mirror"}
  rm -rf "$system"/var/lib/apt/lists/* "$system"/var/cache/apt/archives/*.deb
  mkdir -p "${ARCHIVE%/*}"
  tar -C "$system" -cf "$ARCHIVE.partial" .
  mv "$ARCHIVE.partial" "$ARCHIVE"
  rm -rf "$system"
}

[[ -f $ARCHIVE ]] || make_archive

room=$(mktemp -d)
if [[ $keep == yes ]]; then
  say "Clean root: $room"
else
  trap 'rm -rf "$room"' EXIT
fi
tar -C "$room" -xpf "$ARCHIVE"
chmod 755 "$room"  # mktemp's 700 would shut out every user but root
for file in /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt /etc/pip.conf; do
  if [[ -e $file ]]; then cp -L "$file" "$room$file"; fi
done
git clone --quiet --no-hardlinks "$root" "$room/root/minisgl"

environment=(HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "TERM=${TERM:-dumb}" LANG=C.UTF-8)
while IFS= read -r variable; do environment+=("$variable"); done < <(env | grep -E '^(PIP_[A-Z_]+|https?_proxy|no_proxy)=')

step "Clean root: $*"
start=$SECONDS status=0
# The mounts live in a namespace that ends with the command, so removing the clean root reaches nothing outside it.
# shellcheck disable=SC2016  # expanded by the inner shell
unshare --mount --propagation private bash -c '
  set -e
  room=$1
  shift
  mount --rbind /dev "$room/dev"
  mount -t proc proc "$room/proc"
  exec chroot "$room" env -i "$@"
' cleanroom "$room" "${environment[@]}" bash -c 'cd /root/minisgl && exec "$@"' command "$@" </dev/null || status=$?
say ""
say "Clean root: status $status after $(((SECONDS - start) / 60)) min $(((SECONDS - start) % 60)) s"
exit $status
