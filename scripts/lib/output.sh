# shellcheck shell=bash
# What every script says and how it stops. Sourced, never run.

say() { printf '%s\n' "$*"; }
step() { printf '\n== %s\n' "$*"; }
die() {
  printf '%s: error: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# usage <file>: prints the comment block at the top of a script, which is its documentation.
usage() { sed -n -e '1d' -e '/^#/!q' -e 's/^# \{0,1\}//p' "$1"; }

# megabytes <bytes>: "93.4 MB".
megabytes() { awk -v bytes="$1" 'BEGIN { printf "%.1f MB", bytes / 1e6 }'; }
