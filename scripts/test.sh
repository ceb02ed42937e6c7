#!/usr/bin/env bash
# Builds and tests the project; does its own set-up. The last line is ctest's closing line of the release tests.
#
# usage: scripts/test.sh [--quick | --long] [--jobs N] [--no-setup]
#
#   (none)       release build and tests, CUDA compile, AddressSanitizer + UndefinedBehaviorSanitizer, ThreadSanitizer
#   --quick      release build and tests only
#   --long       everything, and the soaks: the tests labelled `long`
#   --jobs N     parallel compiles and tests (default: the number of CPUs)
#   --no-setup   take the system packages for granted
#
# MINISGL_TEST_CORPUS=<dir> adds the tests that read real tokenizers and chat templates. A test that cannot run is counted and its reason
# printed. Status 0 only if every part that ran succeeded.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/lib/output.sh"
source "$root/scripts/lib/packages.sh"
source "$root/scripts/lib/smollm2.sh"
source "$root/scripts/lib/parts.sh"
source "$root/scripts/lib/totals.sh"

mode=default setup=yes jobs=$(nproc)
while (($#)); do
  case $1 in
    -h | --help) usage "${BASH_SOURCE[0]}"; exit 0 ;;
    --quick | --long) mode=${1#--} ;;
    --no-setup) setup=no ;;
    --jobs)
      jobs=${2:-}
      [[ $jobs =~ ^[1-9][0-9]*$ ]] || { printf 'test.sh: --jobs wants a number of at least 1, not "%s"\n' "$jobs" >&2; exit 2; }
      shift ;;
    *) printf 'test.sh: unknown option %s; see --help\n' "$1" >&2; exit 2 ;;
  esac
  shift
done
cd "$root"

# What runs under ThreadSanitizer: the folders that own threads, and the cases of others that start some.
readonly TSAN_FOLDERS=(base engine scheduler llm tokenizer)
readonly TSAN_TESTS='^(base|engine|scheduler)/|^llm/.*(AbortFromAnotherThread|SeveralInstancesInOneProcess)|^tokenizer/.*ManyThreads'

prepare() {
  if [[ $setup == yes ]]; then install_packages "${BUILD_NEEDS[@]}" "${DOWNLOAD_NEEDS[@]}" "${TEST_NEEDS[@]}"; fi
  fetch_smollm2
}

# build <preset> [cmake option...] [-- target...]
build() {
  local preset=$1
  shift
  local -a options=() targets=()
  while (($#)); do
    if [[ $1 == -- ]]; then
      shift
      targets=(--target "$@")
      break
    fi
    options+=("$1")
    shift
  done
  # Warnings are errors in CI only: a newcomer's compiler may know more of them than ours.
  cmake --preset "$preset" "-DMINISGL_WERROR=$([[ ${CI:-} ]] && echo ON || echo OFF)" "${options[@]}"
  "${launcher[@]}" cmake --build "build/$preset" --parallel "$jobs" "${targets[@]}"
}

# run_tests <preset> [ctest option...]: leaves ctest's output and the tests' own in the folder of logs, for the totals.
run_tests() {
  local preset=$1 status=0
  local detail=build/$preset/Testing/Temporary/LastTest.log
  shift
  rm -f "$detail"
  "${launcher[@]}" ctest --test-dir "build/$preset" --parallel "$jobs" --output-on-failure --no-tests=error "$@" |
    tee "$logs/$part_name.ctest" || status=$?
  if [[ -f $detail ]]; then cp "$detail" "$logs/$part_name.detail"; fi
  return $status
}

# A command put before builds and tests: see use_tsan_launcher.
launcher=()

# ThreadSanitizer of g++ 12 needs the classic address-space layout where the kernel randomises more than 28 bits. Builds need it too: a test
# program runs once after linking, to list its cases.
use_tsan_launcher() {
  if (($(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28) > 28)); then launcher=(setarch -R); fi
}

tsan_build() {
  use_tsan_launcher
  build cpu-tsan -- "${TSAN_FOLDERS[@]/#/test_}"
}

tsan_tests() {
  use_tsan_launcher
  run_tests cpu-tsan -R "$TSAN_TESTS" -LE long
}

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

part "set-up" prepare
stop_if_failed
export MINISGL_TEST_SMOLLM2
MINISGL_TEST_SMOLLM2=$(smollm2_path)

part "release build" build cpu-release -DMINISGL_BUILD_TESTS=ON
stop_if_failed
part "release tests" run_tests cpu-release -LE long
if [[ $mode != quick ]]; then
  if ! command -v nvcc >/dev/null && [[ -x /usr/local/cuda/bin/nvcc ]]; then PATH+=:/usr/local/cuda/bin; fi
  if command -v nvcc >/dev/null; then
    part "CUDA compile" build cuda-release -DMINISGL_BUILD_TESTS=OFF -- cuda
  else
    part_not_run "CUDA compile" "no CUDA toolkit"
  fi
  part "ASan+UBSan build" build cpu-asan
  part_after "ASan+UBSan tests" run_tests cpu-asan -LE long
  part "TSan build" tsan_build
  part_after "TSan tests" tsan_tests
fi
if [[ $mode == long ]]; then
  if ctest --test-dir build/cpu-release -N -L long | grep -q '^Total Tests: 0$'; then
    part_not_run "long tests" "no test has the label"
  else
    part "long tests" run_tests cpu-release -L long
  fi
fi

print_parts
print_totals "$logs"
stop_if_failed
say ""
grep 'tests passed' "$logs/release tests.ctest"
