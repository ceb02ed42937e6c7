# shellcheck shell=bash
# System packages: what a job needs, what of it is missing, and its installation. Sourced after output.sh.
#
# shellcheck disable=SC2034  # the scripts that source this file use the lists
#
# A need is `package`, or `package:command` for a tool that may also come from elsewhere: it is met by the command or by the package.

readonly BUILD_NEEDS=(g++:g++ cmake:cmake ninja-build:ninja pkgconf:pkg-config libfmt-dev libspdlog-dev nlohmann-json3-dev
                      libpcre2-dev libutf8proc-dev libcli11-dev libtomlplusplus-dev)
readonly DOWNLOAD_NEEDS=(python3:python3 python3-pip)
readonly TEST_NEEDS=(libgtest-dev shellcheck:shellcheck)
readonly OS_RELEASE=${MINISGL_TEST_OS_RELEASE:-/etc/os-release}

# have_pip: whether `python3 -m pip` works, whoever installed it.
have_pip() { python3 -m pip --version >/dev/null 2>&1; }

# missing_packages <need>...: prints the packages that are needed and not there, one a line.
missing_packages() {
  local need package command
  local -a to_ask=()
  for need in "$@"; do
    package=${need%%:*} command=${need#*:}
    if [[ $package == python3-pip ]]; then
      have_pip || say "$package"
    elif [[ $command == "$need" ]]; then
      to_ask+=("$package")
    elif ! command -v "$command" >/dev/null; then
      say "$package"
    fi
  done
  if ((${#to_ask[@]})); then
    if command -v dpkg-query >/dev/null; then
      # A package dpkg never heard of is missing from its answer, hence the comparison with what was asked.
      comm -23 <(printf '%s\n' "${to_ask[@]}" | sort) \
        <(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${to_ask[@]}" 2>/dev/null | sed -n 's/^installed //p' | sort)
    else
      printf '%s\n' "${to_ask[@]}"
    fi
  fi
}

# is_debian: whether the package names and versions of this project are right here: Debian 12 or later.
is_debian() {
  local id version
  id=$(sed -n 's/^ID=//p' "$OS_RELEASE" | tr -d \")
  version=$(sed -n 's/^VERSION_ID=//p' "$OS_RELEASE" | tr -d \")
  [[ $id == debian && $version =~ ^[0-9]+$ && $version -ge 12 ]]
}

# print_download_sizes <package>...: a table of everything apt would fetch, with apt's own sizes. Fails if apt does not know a package.
print_download_sizes() {
  local uris
  uris=$(apt-get install -y --no-install-recommends --print-uris "$@" 2>/dev/null) || return 1
  awk '/^\x27/ { sub(/_.*/, "", $2); printf "  %-36s %8.2f MB\n", $2, $3 / 1e6; bytes += $3; count++ }
       END { printf "  %-36s %8.2f MB\n", "in all, " count + 0 " packages", bytes / 1e6 }' <<<"$uris"
}

# install_packages <need>...: makes every need present, or explains what to do and stops with status 1.
# As root on Debian it installs; otherwise it changes nothing. It never calls sudo.
install_packages() {
  local -a missing
  mapfile -t missing < <(missing_packages "$@" | sort -u)
  if ((${#missing[@]} == 0)); then
    say "System packages: all $# present."
    return
  fi
  if ! is_debian; then
    say "Missing, by their names on Debian 12: ${missing[*]}"
    die "this set-up knows Debian 12 only; install the list above by your system's means, then run again with --no-setup"
  fi
  say "System packages missing: ${missing[*]}"
  if [[ $(id -u) != 0 ]]; then
    print_download_sizes "${missing[@]}" || say "  (sizes unknown until 'apt-get update' has been run)"
    say "Run this, then start again:"
    say "  sudo apt-get update && sudo apt-get install --no-install-recommends ${missing[*]}"
    exit 1
  fi
  export DEBIAN_FRONTEND=noninteractive
  if ! print_download_sizes "${missing[@]}"; then
    say "The package lists are absent or old: apt-get update fetches them (about 15 MB) before sizes can be told."
    apt-get update -q
    print_download_sizes "${missing[@]}" || die "apt does not know one of: ${missing[*]}; check /etc/apt/sources.list"
  fi
  apt-get install -y -q --no-install-recommends "${missing[@]}" </dev/null || {
    say "The package lists may be older than the mirror: updating them and trying once more."
    apt-get update -q
    apt-get install -y -q --no-install-recommends "${missing[@]}" </dev/null
  }
}
