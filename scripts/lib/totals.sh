# shellcheck shell=bash
# What the tests of all parts did, and what they did not do and why. Sourced after output.sh.

# not_run_reasons <LastTest.log>: one line "reason|test" for every test that was skipped.
not_run_reasons() {
  awk '/^[0-9]+\/[0-9]+ Test: /   { test = $0; sub(/^[^:]*: /, "", test); reason = ""; skipped = 0 }
       /NOT RUN: /               { if (reason == "") { reason = $0; sub(/^.*NOT RUN: /, "", reason) } }
       /SKIPPED|^Test Skipped/   { skipped = 1 }
       /^Test time = /           { if (skipped || reason != "") print (reason == "" ? "no reason given" : reason) "|" test }' "$1"
}

# print_totals <folder>: of the logs that test.sh left there (NAME.ctest and NAME.detail), per part ctest's closing line, and below it the number of tests that did not run, with every reason.
print_totals() {
  local logs=$1 log name
  step "Tests"
  for log in "$logs"/*.ctest; do
    [[ -f $log ]] || continue
    name=${log##*/} name=${name%.ctest}
    say "  $name: $(grep 'tests passed' "$log" || echo 'did not finish')"
    [[ -f ${log%.ctest}.detail ]] || continue
    not_run_reasons "${log%.ctest}.detail" | cut -d'|' -f1 | sort | uniq -c |
      awk '{ count = $1; sub(/^ *[0-9]+ /, ""); printf "    NOT RUN: %d (%s)\n", count, $0 }'
  done
}
