#!/usr/bin/env bash
# Checks format and style of the C++ files that changed, and the shell scripts.
#
# usage: scripts/lint.sh [--all | --since COMMIT]
#
#   (none)           files that differ from HEAD, untracked ones included
#   --since COMMIT   files that differ from COMMIT
#   --all            every file
#
# Needs what `apt-get install clang-format clang-tidy-16 shellcheck` brings on Debian 12 (clang-format 14 is the one that decides; clang-tidy
# before 16 does not understand all of our C++20), and a configured build/cpu-release or build/cpu-debug. Status 1 if anything is to be
# changed; `clang-format -i FILE` does the formatting.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/lib/output.sh"
cd "$root"

since=HEAD
case ${1:-} in
  "") ;;
  -h | --help) usage "${BASH_SOURCE[0]}"; exit 0 ;;
  --all) since= ;;
  --since) since=${2:?--since wants a commit} ;;
  *) printf 'lint.sh: unknown option %s; see --help\n' "$1" >&2; exit 2 ;;
esac

for tool in clang-format clang-tidy-16 shellcheck; do
  command -v "$tool" >/dev/null || die "$tool is missing: apt-get install $tool"
done

sources=(src include tests examples)
if [[ $since ]]; then
  mapfile -t files < <({
    git diff --name-only --diff-filter=d "$since" -- "${sources[@]}"
    git ls-files --others --exclude-standard -- "${sources[@]}"
  } | sort -u | grep -E '\.(h|cc|cpp|cu|inl)$')
else
  mapfile -t files < <(git ls-files -- "${sources[@]}" | grep -E '\.(h|cc|cpp|cu|inl)$')
fi

status=0
step "clang-format: ${#files[@]} files"
if ((${#files[@]})); then clang-format --dry-run --Werror "${files[@]}" || status=1; fi

# Headers are checked through the sources that include them.
mapfile -t compiled < <(printf '%s\n' "${files[@]}" | grep -E '\.(cc|cpp)$')
step "clang-tidy: ${#compiled[@]} files"
if ((${#compiled[@]})); then
  build=
  for preset in cpu-release cpu-debug; do
    if [[ -f build/$preset/compile_commands.json ]]; then build=build/$preset; break; fi
  done
  [[ $build ]] || die "no compile commands: run cmake --preset cpu-debug"
  printf '%s\n' "${compiled[@]}" | xargs -n 1 -P "$(nproc)" clang-tidy-16 --quiet -p "$build" || status=1
fi

step "shellcheck"
shellcheck scripts/*.sh scripts/lib/*.sh .ci/run tests/scripts/*.sh || status=1
exit $status
