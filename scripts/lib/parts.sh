# shellcheck shell=bash
# Named parts of a long run: their status, their minutes, and the table at the end. Sourced after output.sh.

part_rows=()       # name|seconds|status
failed_parts=()
last_part_status=0
part_name=

# part <name> <command>...: runs the command in a subshell, under `set -e` and without standard input; a failure is noted, not fatal.
part() {
  local start=$SECONDS status=0
  part_name=$1
  shift
  step "$part_name"
  set +e
  (
    set -e
    "$@"
  ) </dev/null
  status=$?
  set -e
  part_rows+=("$part_name|$((SECONDS - start))|$( ((status == 0)) && echo passed || echo FAILED)")
  if ((status != 0)); then failed_parts+=("$part_name"); fi
  last_part_status=$status
}

# part_after <name> <command>...: as part, but not run when the part before it failed.
part_after() {
  if ((last_part_status == 0)); then part "$@"; else part_not_run "$1" "the part before it failed"; fi
}

part_not_run() { part_rows+=("$1|0|NOT RUN: $2"); }

# print_parts: the table so far, once.
print_parts() {
  if [[ ${parts_printed:-} ]]; then return; fi
  parts_printed=yes
  step "Parts"
  printf '%s\n' "${part_rows[@]}" |
    awk -F'|' '{ printf "  %-18s %6.1f min  %s\n", $1, $2 / 60, $3; seconds += $2 }
               END { printf "  %-18s %6.1f min\n", "in all", seconds / 60 }'
}

# stop_if_failed: prints the table and stops with status 1 if a part failed.
stop_if_failed() {
  if ((${#failed_parts[@]} == 0)); then return; fi
  print_parts
  local names
  printf -v names '%s, ' "${failed_parts[@]}"
  die "failed: ${names%, }"
}
