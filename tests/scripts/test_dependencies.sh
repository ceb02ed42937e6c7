#!/usr/bin/env bash
# Tests that the folders of src/ depend on each other as they say. The compiler cannot: all of src/ is on its include path.
#   - A folder includes headers only of folders that its CMakeLists.txt names: in a header those of DEPS, elsewhere those of PRIVATE_DEPS too.
#   - It names none that it does not use, and only folders that CMakeLists.txt adds before it, so that there is no cycle.
#   - minisgl/llm.h, which the folder llm implements, is for llm and what stands above it; the other public headers are for everybody.
#   - include/ does not include src/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

failures=0
fail() {
  printf 'FAILED: %s\n' "$*"
  failures=$((failures + 1))
}

# declared <folder>: a line "DEPS x" or "PRIVATE_DEPS x" for each folder x that the folder's minisgl_library() names.
declared() {
  sed 's/#.*//; s/(/ ( /g; s/)/ ) /g' "src/$1/CMakeLists.txt" | tr -s ' ' '\n' |
    awk '$0 == ")" { keyword = "" }
         /^(SOURCES|CUDA_SOURCES|DEPS|PRIVATE_DEPS)$/ { keyword = $0 }
         keyword ~ /DEPS$/ && sub(/^minisgl_/, "") { print keyword, $0 }'
}

# included <folder>: a line "FILE x" for each include of a header of another folder x.
included() {
  grep -rE '^#include "[a-z_]+/' "src/$1" | sed -E 's/^([^:]*):#include "([a-z_]+)\/.*/\1 \2/' | awk -v self="$1" '$2 != self && $2 != "minisgl"' | sort -u
}

read -ra order < <(sed -nE 's/^foreach\(folder (.*)\)$/\1/p' CMakeLists.txt)
((${#order[@]})) || fail "CMakeLists.txt has no list of folders"
for path in src/*/; do
  [[ " ${order[*]} " == *" $(basename "$path") "* ]] || fail "CMakeLists.txt does not add $path"
done

above=
for folder in "${order[@]}"; do
  public=" $(declared "$folder" | awk '$1 == "DEPS" { print $2 }' | xargs) "
  private=" $(declared "$folder" | awk '$1 == "PRIVATE_DEPS" { print $2 }' | xargs) "
  used=" $(included "$folder" | awk '{ print $2 }' | sort -u | xargs) "
  for other in $public $private; do
    [[ " $above " == *" $other "* ]] || fail "src/$folder names $other, which CMakeLists.txt does not add before it"
    [[ $used == *" $other "* ]] || fail "src/$folder names $other and includes nothing of it"
  done
  while read -r file other; do
    if [[ $file == *.h ]]; then
      [[ $public == *" $other "* ]] || fail "$file includes a header of $other, which is not in the DEPS of $folder"
    else
      [[ $public$private == *" $other "* ]] || fail "$file includes a header of $other, which is neither in DEPS nor in PRIVATE_DEPS of $folder"
    fi
  done < <(included "$folder")
  if [[ " $above " != *" llm "* && $folder != llm ]]; then
    while read -r file; do fail "$file includes minisgl/llm.h, which stands above $folder"; done < <(grep -rl '"minisgl/llm\.h"' "src/$folder" || true)
  fi
  above+=" $folder"
done

while read -r line; do fail "a public header includes one that is not: $line"; done < <(grep -rE '^#include "' include | grep -v '"minisgl/' || true)

exit $((failures > 0))
