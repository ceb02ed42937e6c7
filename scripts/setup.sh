#!/usr/bin/env bash
# Prepares this machine and stops: what scripts/demo.sh and scripts/test.sh do first by themselves.
#
# usage: scripts/setup.sh demo|test
#
# Installs the system packages that are missing (as root on Debian 12; otherwise they are listed and the status is 1), then downloads and
# checks the model.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/lib/output.sh"
source "$root/scripts/lib/packages.sh"
source "$root/scripts/lib/smollm2.sh"

case ${1:-} in
  demo) install_packages "${BUILD_NEEDS[@]}" "${DOWNLOAD_NEEDS[@]}" ;;
  test) install_packages "${BUILD_NEEDS[@]}" "${DOWNLOAD_NEEDS[@]}" "${TEST_NEEDS[@]}" ;;
  -h | --help) usage "${BASH_SOURCE[0]}"; exit 0 ;;
  *) usage "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
fetch_smollm2
